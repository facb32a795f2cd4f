"""The deadlines of a connection to a master."""

from typing import Final

from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.link import MasterLink

# Why a connection is closed at a tick, in the words of the log.
WHY_EXPIRED: Final = {
    "housekeeping": "silent for more than the housekeeping interval",
    "report_deadline": "no report within --report-deadline",
    "write_stall": "it has taken nothing of what it is sent for more than --write-stall-deadline",
}


def missed_deadline(link: MasterLink, limits: Limits, now_ms: int) -> str | None:
    """The deadline that a connection has missed; None if it has missed none. HA-M-72 "is part of report_deadline".

    Spec: HA-M-52 "report_deadline after its accept MUST be closed"; HA-M-53 "taken no byte of a pending frame for more
    than write_stall_deadline MUST be closed".
    """
    conn = link.conn
    deadline_ms = limits.report_deadline_ms
    if deadline_ms is not None and conn.slave_request_offset == -1 and now_ms - conn.connected_timestamp > deadline_ms:
        return "report_deadline"
    deadline_ms = limits.write_stall_deadline_ms
    since_ms = link.blocked_since_ms
    if deadline_ms is not None and since_ms is not None and now_ms - since_ms > deadline_ms:
        return "write_stall"
    return None
