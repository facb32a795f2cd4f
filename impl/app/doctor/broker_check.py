"""The check of a broker's version, role and settings, which its remoting port reports."""

from rocketmq_ha.impl.app.doctor.findings import Findings
from rocketmq_ha.impl.app.doctor.known_quirks import parse_version, quirks_of
from rocketmq_ha.impl.net.broker_info import BrokerInfo, NotTold, ask_broker
from rocketmq_ha.spec.constants import HA_HOUSEKEEPING_INTERVAL_MS, HA_SEND_HEARTBEAT_INTERVAL_MS


def check_broker(address: tuple[str, int], findings: Findings) -> BrokerInfo | None:
    """Ask a broker for its settings, and check them. Returns: its answers; None if it did not answer."""
    try:
        info = ask_broker(address)
    except NotTold as error:
        findings.finding("broker", f"it does not tell: {error}", "the remoting port is its listenPort, 10911 by default")
        return None
    described = info.runtime.get("brokerVersionDesc", "a version that it does not tell")
    role = info.config.get("brokerRole")
    name = f", {info.config['brokerName']}" if info.config.get("brokerName") else ""
    findings.ok("broker", f"{described}{name}{', ' + role if role else ''}")
    if role == "SLAVE":
        findings.finding(
            "role", "the broker is a slave itself", "give the slave its master's address; a slave's slave gets no acks"
        )
    _check_intervals(info, findings)
    ends = info.runtime.get("commitLogMinOffset"), info.runtime.get("commitLogMaxOffset")
    if all(ends):
        findings.note("broker", f"its log holds {_number(ends[0]) or 0:,} to {_number(ends[1]) or 0:,}")
    version = parse_version(described)
    for text in quirks_of(version) if version else ():
        findings.note("known", text)
    return info


def _check_intervals(info: BrokerInfo, findings: Findings) -> None:
    heartbeat_ms = _number(info.config.get("haSendHeartbeatInterval")) or HA_SEND_HEARTBEAT_INTERVAL_MS
    housekeeping_ms = _number(info.config.get("haHousekeepingInterval")) or HA_HOUSEKEEPING_INTERVAL_MS
    if heartbeat_ms + 1000 >= housekeeping_ms:
        text = f"heartbeats every {heartbeat_ms:,} ms, and {housekeeping_ms:,} ms of silence end a link"
        findings.finding("intervals", text, "set haSendHeartbeatInterval below haHousekeepingInterval by more than a second")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdigit() else None
