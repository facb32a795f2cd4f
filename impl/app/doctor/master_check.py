"""The check of a master: it must be reachable, talk HA, and send a log and heartbeats."""

import time
from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.app.doctor.findings import Findings
from rocketmq_ha.impl.app.doctor.probe import MasterProbe, StoreProbe, probe_master
from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, SpeaksTls, TlsRefused, Unreachable
from rocketmq_ha.impl.net.tls import TlsBroken
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.spec.constants import HA_HOUSEKEEPING_INTERVAL_MS

_CLOCK_S: Final = 5.0
_PORT_ADVICE: Final = "the HA port is the broker's listenPort + 1, or haListenPort: 10912 by default"
_TLS_ADVICE: Final = (
    "each end's certificate must be in date and signed by the other's --tls-ca, the master's have the name that is asked for "
    "(--tls-name), and the port be that of --tls-listen"
)


def check_master(
    address: tuple[str, int],
    store: StoreProbe | None,
    patience_s: float,
    settle_s: float,
    findings: Findings,
    stopped: Callable[[], bool],
    tls: ClientTls | None,
) -> MasterProbe | None:
    """Check a master, and read from it. Returns: its observation; None if it could not be read. Raises: Stopped."""
    began = time.monotonic()
    try:
        feed = MasterFeed(address, 0, tls=tls)
    except (TlsRefused, Unreachable) as error:
        findings.finding(*_connect_error(error))
        return None
    findings.ok("reachable", f"{feed.peer} takes connections, in {(time.monotonic() - began) * 1000:.1f} ms")
    with feed:
        try:
            found = probe_master(feed, store, patience_s, settle_s, stopped, tls)
        except (PeerViolation, FeedEnded) as error:
            findings.finding(*_read_error(error))
            return None
    findings.ok("protocol", f"it talks HA; for a report of 0 it starts at {found.last_file:,}, the start of its last file")
    if found.damage:
        findings.finding("log", f"what it sends is no log: {found.damage}", "check the master's store: `rocketmq-ha verify`")
    if found.lost is not None:
        findings.finding(
            "link", f"the connection ended while it was read: {found.lost}", "something between cuts it, or the master"
        )
    check_end(found, findings)
    seconds = time.monotonic() - began
    connections = f"{found.connections} connection{'s' if found.connections > 1 else ''}"
    findings.note(
        "looked", f"for {seconds:.1f} s by {connections}; a master that counts sockets had one more slave for so long"
    )
    return found


def _connect_error(error: TlsRefused | Unreachable) -> tuple[str, str, str]:
    """Return check, text and advice of a connection that could not be opened."""
    if isinstance(error, TlsRefused):
        return "tls", str(error), _TLS_ADVICE
    return "reachable", str(error), "is the master up, the address right (brokerIP2), and no firewall between? " + _PORT_ADVICE


def _read_error(error: PeerViolation | FeedEnded) -> tuple[str, str, str]:
    """Return check, text and advice of a connection on which no frame came."""
    match error:
        case TlsBroken():  # with TLS 1.3 a master refuses our certificate only after the handshake
            return "tls", str(error), _TLS_ADVICE
        case PeerViolation():
            return "protocol", f"it does not talk HA: {error}", f"{_PORT_ADVICE}; this is another service"
        case SpeaksTls():
            return "tls", str(error), "or name the port of the master's --listen, where it has one"
    advice = f"{_PORT_ADVICE}; or it refuses this address, or it expects TLS (--tls-cert, --tls-key and --tls-ca), or its "
    advice += "heartbeat interval is longer than --patience"
    return "protocol", f"it says nothing in HA for a report of 0: {str(error).partition(': ')[2] or error}", advice


def check_end(found: MasterProbe, findings: Findings) -> None:
    """Report where the log ends, and check the heartbeat after it and the clock of the newest message."""
    if found.is_end:
        findings.ok("end", f"its log ends at {found.end:,}; {found.messages:,} messages of the last file were read")
    else:
        rate = found.received / found.seconds / 1e6 if found.seconds else 0.0
        findings.note(
            "end", f"it has not come to its end, at {found.end:,} so far, {rate:.0f} MB/s: it is busy, or --patience short"
        )
    _check_heartbeat(found, findings)
    _check_clock(found, findings)


def _check_heartbeat(found: MasterProbe, findings: Findings) -> None:
    if found.heartbeat_s is None:
        return
    housekeeping_s = HA_HOUSEKEEPING_INTERVAL_MS / 1000
    text = f"a heartbeat after {found.heartbeat_s:.1f} s of rest"
    if found.heartbeat_s > housekeeping_s:
        advice = f"set haSendHeartbeatInterval below the slave's haHousekeepingInterval, {housekeeping_s:g} s by default"
        findings.finding("heartbeat", text, advice)
    else:
        findings.ok("heartbeat", text)


def _check_clock(found: MasterProbe, findings: Findings) -> None:
    ahead_s = 0.0 if found.newest_ms is None else found.newest_ms / 1000 - time.time()
    if ahead_s > _CLOCK_S:
        text = f"its newest message is stored {ahead_s:.0f} s in our future: the clocks differ"
        findings.finding(
            "clock", text, "let NTP steer both; a step of a clock holds back reports, or closes all links (quirk 28)"
        )
