"""`rocketmq-ha doctor`: why does my slave not sync? Looked at from outside, one line a finding, with what to do."""

import json
import os
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.cli.file_sizes import compare_file_sizes
from rocketmq_ha.impl.cli.findings import Findings
from rocketmq_ha.impl.cli.known_quirks import parse_version, quirks_of
from rocketmq_ha.impl.cli.look import MasterLook, StoreLook, look_at_master, look_at_store
from rocketmq_ha.impl.cli.master_option import master_option, parse_master, settle_option
from rocketmq_ha.impl.cli.replication import Stop
from rocketmq_ha.impl.cli.tls_options import client_tls, tls_client_options
from rocketmq_ha.impl.errors import ConfigInvalid, PeerViolation, StoreCorrupt
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.broker_info import BrokerInfo, NotTold, ask_broker
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, SpeaksTls, Stopped, TlsRefused, Unreachable
from rocketmq_ha.impl.net.figures import CONNECTED
from rocketmq_ha.impl.net.fresh import ASKING, WAITING
from rocketmq_ha.impl.net.status_socket import NotRunning, ask
from rocketmq_ha.impl.net.tls import ClientTls, TlsBroken
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.spec.constants import HA_HOUSEKEEPING_INTERVAL_MS, HA_SEND_HEARTBEAT_INTERVAL_MS

_CLOCK_S: Final = 5.0
ANEW: Final = (
    "stop the slave, move its store aside (`rocketmq-ha resync STORE`), start it anew; it gets the master's last file, a slave "
    "of ours with --from min all that the master has"
)


_TLS_ADVICE: Final = (
    "each end's certificate must be in date and signed by the other's --tls-ca, the master's have the name that is asked for "
    "(--tls-name), and the port be that of --tls-listen"
)


@click.command()
@master_option("The HA address that the slave should follow.")
@tls_client_options
@click.option(
    "--broker",
    "broker",
    metavar="HOST:PORT",
    help="The master's remoting address, 10911 by default there: its version and settings.",
)
@click.option(
    "--store", type=click.Path(path_type=Path), metavar="DIR", help="The slave's store, to be held against the master."
)
@click.option(
    "--patience",
    type=click.FloatRange(min=0.1),
    default=8.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to read from the master; longer than its heartbeat interval, 5 s by default.",
)
@settle_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end, instead of lines.")
@click.pass_context
def doctor(
    ctx: click.Context,
    address: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    tls_name: str | None,
    broker: str | None,
    store: Path | None,
    patience: float,
    settle: float,
    as_json: bool,
) -> None:
    """Answer why a slave does not sync, by looking from outside.

    Is the master reachable, and does it talk HA? Where does it start, where does it end, does it send heartbeats? With --store:
    is the slave's log whole, in the master's range, of files of the master's size, and the same log? With --broker: its
    version, its role and settings, and what is known of that release.

    Nothing is changed on either side. The doctor connects to the master once, and with --store some times more, for some
    seconds. It reports 0, or an older offset for which no put can still wait, and acknowledges nothing that it is sent; a
    master that counts sockets counts a slave for so long.

    Exit status: 0 nothing is wrong; 1 there are findings, an unreachable master among them; 2 it could not look.
    """
    master_address = parse_master(address)
    tls = client_tls(master_address[0], tls_cert, tls_key, tls_ca, tls_name)
    broker_address = parse_address(broker) if broker else None
    findings, stopped = Findings(as_json), Stop()
    with ExitStack() as stack:
        looked = None
        if store is not None:
            looked = _examine_store(store, address, findings, stack)
        info = _examine_broker(broker_address, findings) if broker_address else None
        try:
            master = _examine_master(master_address, looked, patience, settle, findings, stopped, tls)
        except Stopped:
            ctx.exit(2)
        if looked is not None:
            compare_file_sizes(master, looked, info, findings)
        if master is not None and looked is not None:
            _compare(master, looked, findings)
    if as_json:
        click.echo(json.dumps({"healthy": not findings.count, "findings": [asdict(found) for found in findings.all]}))
    elif findings.count:
        click.echo(f"{findings.count} finding{'s' if findings.count > 1 else ''}")
    else:
        click.echo("nothing wrong was found")
    ctx.exit(1 if findings.count else 0)


# --- The slave's store -----------------------------------------------------------------------------------------------


def _examine_store(store: Path, address: str, findings: Findings, stack: ExitStack) -> StoreLook | None:
    """Raises: ConfigInvalid where there is no store; OSError where it cannot be read."""
    try:
        reader = stack.enter_context(LogReader(store))
    except StoreCorrupt as error:
        findings.finding(
            "store", str(error), "a broker refuses such a store; move that file aside if it is not the store's, else " + ANEW
        )
        return None
    looked = look_at_store(reader)
    if not looked.has_files:
        findings.note("store", f"{store} is empty: its slave asks for 0, the start of the master's last file")
    elif looked.damage is not None:
        findings.finding(
            "store", f"its log is damaged: {looked.damage}", f"see `rocketmq-ha recover --dry-run {store}`; " + ANEW
        )
    else:
        files = f"{len(reader.files)} file{'s' if len(reader.files) > 1 else ''} of {looked.file_size:,} bytes"
        findings.ok("store", f"its log holds {looked.min_offset:,} to {looked.end:,}, {files}")
        if looked.tail_size:
            findings.note(
                "store", f"{looked.tail_size:,} bytes of a message that is not whole follow; the next start cuts them off"
            )
    if looked.has_files:
        there = os.statvfs(store)
        free = there.f_bavail * there.f_frsize
        if free < looked.file_size:
            findings.finding(
                "disk", f"{free:,} bytes are free, less than one file of the log", "make room: the next file cannot be made"
            )
    _examine_process(store, address, findings)
    return looked


def _examine_process(store: Path, address: str, findings: Findings) -> None:
    """What a slave of ours says of itself, if one serves the store."""
    try:
        told = ask(store, 2.0)
    except (NotRunning, ConfigInvalid, OSError) as error:
        if "has not answered" in str(error):
            findings.finding("process", str(error), "look at it: is it stopped, or does its disk hang?")
        return
    if told.get("role") != "slave":
        findings.finding(
            "process", f"the store is served by a {told.get('role')}, pid {told.get('pid')}", "no slave follows with it"
        )
    elif told.get("master") != address:
        text = f"the slave, pid {told.get('pid')}, follows {told.get('master')}, not {address}"
        findings.finding("process", text, "start it with the address of this master, or ask about the other")
    elif told.get("state") in (ASKING, WAITING):
        findings.note("process", f"a slave, pid {told.get('pid')}, is {told.get('state')}")
    elif told.get("state") != CONNECTED:
        text = f"the slave, pid {told.get('pid')}, is not connected; {told.get('failed_connects')} tries have failed"
        ended = told.get("last_close_reason")
        advice = "see its log"
        if told.get("disk_full"):
            advice = "make room: it goes on by itself"
            text += f"; its disk is full: {told['disk_full']}"
        findings.finding("process", text + (f", its last connection ended: {ended}" if ended else ""), advice)
    else:
        findings.ok("process", f"a slave, pid {told.get('pid')}, is connected and has reported {told.get('reported_offset'):,}")


# --- The master ------------------------------------------------------------------------------------------------------


def _examine_master(
    address: tuple[str, int],
    store: StoreLook | None,
    patience_s: float,
    settle_s: float,
    findings: Findings,
    stopped: Stop,
    tls: ClientTls | None,
) -> MasterLook | None:
    began = time.monotonic()
    port_advice = "the HA port is the broker's listenPort + 1, or haListenPort: 10912 by default"
    try:
        feed = MasterFeed(address, 0, tls=tls)
    except TlsRefused as error:
        findings.finding("tls", str(error), _TLS_ADVICE)
        return None
    except Unreachable as error:
        advice = "is the master up, the address right (brokerIP2), and no firewall between? " + port_advice
        findings.finding("reachable", str(error), advice)
        return None
    findings.ok("reachable", f"{feed.peer} takes connections, in {(time.monotonic() - began) * 1000:.1f} ms")
    with feed:
        try:
            found = look_at_master(feed, store, patience_s, settle_s, stopped, tls)
        except TlsBroken as error:  # the master takes its time to say what it thinks of our certificate (TLS 1.3)
            findings.finding("tls", str(error), _TLS_ADVICE)
            return None
        except PeerViolation as error:
            findings.finding("protocol", f"it does not talk HA: {error}", f"{port_advice}; this is another service")
            return None
        except SpeaksTls as error:
            findings.finding("tls", str(error), "or name the port of the master's --listen, where it has one")
            return None
        except FeedEnded as error:
            text = str(error).partition(": ")[2] or str(error)
            advice = (
                f"{port_advice}; or it refuses this address, or it expects TLS (--tls-cert, --tls-key and --tls-ca), or its "
            )
            advice += "heartbeat interval is longer than --patience"
            findings.finding("protocol", f"it says nothing in HA for a report of 0: {text}", advice)
            return None
    findings.ok("protocol", f"it talks HA; for a report of 0 it starts at {found.last_file:,}, the start of its last file")
    if found.damage:
        findings.finding("log", f"what it sends is no log: {found.damage}", "check the master's store: `rocketmq-ha verify`")
    if found.lost is not None:
        findings.finding(
            "link", f"the connection ended while it was read: {found.lost}", "something between cuts it, or the master"
        )
    _tell_end(found, findings)
    seconds = time.monotonic() - began
    connections = f"{found.connections} connection{'s' if found.connections > 1 else ''}"
    findings.note(
        "looked", f"for {seconds:.1f} s by {connections}; a master that counts sockets had one more slave for so long"
    )
    return found


def _tell_end(found: MasterLook, findings: Findings) -> None:
    if found.is_end:
        findings.ok("end", f"its log ends at {found.end:,}; {found.messages:,} messages of the last file were read")
    else:
        rate = found.received / found.seconds / 1e6 if found.seconds else 0.0
        findings.note(
            "end", f"it has not come to its end, at {found.end:,} so far, {rate:.0f} MB/s: it is busy, or --patience short"
        )
    housekeeping_s = HA_HOUSEKEEPING_INTERVAL_MS / 1000
    if found.heartbeat_s is not None:
        text = f"a heartbeat after {found.heartbeat_s:.1f} s of rest"
        if found.heartbeat_s > housekeeping_s:
            advice = f"set haSendHeartbeatInterval below the slave's haHousekeepingInterval, {housekeeping_s:g} s by default"
            findings.finding("heartbeat", text, advice)
        else:
            findings.ok("heartbeat", text)
    if found.newest_ms is not None:
        ahead_s = found.newest_ms / 1000 - time.time()
        if ahead_s > _CLOCK_S:
            text = f"its newest message is stored {ahead_s:.0f} s in our future: the clocks differ"
            findings.finding(
                "clock", text, "let NTP steer both; a step of a clock holds back reports, or closes all links (quirk 28)"
            )


# --- One against the other -------------------------------------------------------------------------------------------


def _compare(master: MasterLook, store: StoreLook, findings: Findings) -> None:
    if not store.has_files:
        if master.last_file:
            findings.note(
                "history", f"a new slave will not get what is before {master.last_file:,} (quirk 8), but ours with --from min"
            )
        return
    if store.damage is not None:
        return
    if store.end == 0:
        if master.last_file:
            text = f"the store has a file and no message, and the master starts at {master.last_file:,}"
            text += (
                ": a RocketMQ slave writes that at 0, and then refuses all (quirk 17); ours, hardened, takes it for a new store"
            )
            findings.finding("phantom", text, ANEW)
        return
    if master.is_end and store.end > master.end:
        text = f"the slave ends at {store.end:,}, {store.end - master.end:,} bytes ahead of the master"
        findings.finding("ahead", text + ": the master has lost what it had sent, or is another (quirk 9)", ANEW)
    if master.out_of_range is not None:
        text = f"the master does not have what the slave wants next to {store.overlap:,}: {master.out_of_range.found}"
        findings.finding("range", text + " (quirk 7)", ANEW)
    if master.difference is not None:
        text = f"the logs differ at {master.difference:,}: the slave's is not the master's log"
        findings.finding("diverged", text, ANEW)
    elif master.compared:
        findings.ok("overlap", f"{master.compared:,} messages that both have are the same")
    elif master.out_of_range is None and master.last_file <= store.end:
        findings.note(
            "overlap", "no message is in both what was read and the store: whether they are the same log was not seen"
        )
    if master.end >= store.end and master.out_of_range is None and master.difference is None:
        behind = master.end - store.end
        so_far = "" if master.is_end else " so far"
        findings.ok("lag", f"the store is {behind:,} bytes behind{so_far}" if behind else "the store has all")


# --- The broker ------------------------------------------------------------------------------------------------------


def _examine_broker(address: tuple[str, int], findings: Findings) -> BrokerInfo | None:
    try:
        info = ask_broker(address)
    except NotTold as error:
        findings.finding("broker", f"it does not tell: {error}", "the remoting port is its listenPort, 10911 by default")
        return None
    config = info.config
    described = info.runtime.get("brokerVersionDesc", "a version that it does not tell")
    role = config.get("brokerRole")
    name = f", {config['brokerName']}" if config.get("brokerName") else ""
    findings.ok("broker", f"{described}{name}{', ' + role if role else ''}")
    if role == "SLAVE":
        findings.finding(
            "role", "the broker is a slave itself", "give the slave its master's address; a slave's slave gets no acks"
        )
    heartbeat_ms = _number(config.get("haSendHeartbeatInterval")) or HA_SEND_HEARTBEAT_INTERVAL_MS
    housekeeping_ms = _number(config.get("haHousekeepingInterval")) or HA_HOUSEKEEPING_INTERVAL_MS
    if heartbeat_ms + 1000 >= housekeeping_ms:
        text = f"heartbeats every {heartbeat_ms:,} ms, and {housekeeping_ms:,} ms of silence end a link"
        findings.finding("intervals", text, "set haSendHeartbeatInterval below haHousekeepingInterval by more than a second")
    ends = info.runtime.get("commitLogMinOffset"), info.runtime.get("commitLogMaxOffset")
    if all(ends):
        findings.note("broker", f"its log holds {_number(ends[0]) or 0:,} to {_number(ends[1]) or 0:,}")
    version = parse_version(described)
    for text in quirks_of(version) if version else ():
        findings.note("known", text)
    return info


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
