"""The slave: HAClient, and the log that it writes.

The read buffer is the documents' own: bytes are read to its position, frames are taken from `dispatch_position`, and
`reallocate_byte_buffer` makes room at its start. impl/ha/slave.py has no second buffer; the unparsed bytes relate the two.

    DISCONNECTED --connect--> CONNECTED --bytes--> HEADER_PARTIAL / BODY_PARTIAL --rest--> CONNECTED
    any --close--> DISCONNECTED
"""

from dataclasses import dataclass, replace
from enum import Enum

from rocketmq_ha.reference import store, wire
from rocketmq_ha.reference.step import Close, Output, Send, Step, unique
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings


class SlaveState(Enum):
    DISCONNECTED = "disconnected"
    CONNECTED = "connected"  # no unparsed bytes
    HEADER_PARTIAL = "header_partial"
    BODY_PARTIAL = "body_partial"  # the header is there, the body is not


@dataclass(frozen=True, slots=True)
class Slave:
    """One slave: its log, and its one connection to the master."""

    log: Log
    connected: bool = False
    current_reported_offset: int = 0  # the last report, or on connecting the max offset
    last_write_timestamp: int = 0  # ms; of the last report, or of the connect
    last_read_timestamp: int = 0  # ms; of the last byte read, or of the connect
    byte_buffer_read: bytes = b""  # what has been read; its length is the buffer's position
    dispatch_position: int = 0  # start of the first frame that is not dispatched; <= len(byte_buffer_read)
    close_reason: str = ""  # why the last connection ended


def unparsed(slave: Slave) -> bytes:
    """The bytes that have been read and not dispatched: what a slave without these buffers would hold."""
    return slave.byte_buffer_read[slave.dispatch_position :]


def classify(slave: Slave) -> SlaveState:
    if not slave.connected:
        return SlaveState.DISCONNECTED
    size = len(unparsed(slave))
    if size == 0:
        return SlaveState.CONNECTED
    return SlaveState.HEADER_PARTIAL if size < TRANSFER_HEADER_SIZE else SlaveState.BODY_PARTIAL


def on_connect(slave: Slave, room: int, now_ms: int, profile: Profile) -> Step[Slave]:
    """Start at the max offset; hardened says so at once.

    Args: room: bytes that the socket will take.
    Spec: HA-S-1, HA-S-3.  Source: article 001, connectMaster.
    """
    slave = replace(
        slave,
        connected=True,
        current_reported_offset=store.max_offset(slave.log),
        last_write_timestamp=now_ms,
        last_read_timestamp=now_ms,
        close_reason="",
    )
    if not profile.reports_on_connect:
        return Step(slave, clauses=("HA-S-1",))
    slave, outputs = report_slave_max_offset(slave, room, now_ms)
    return Step(slave, outputs, ("HA-S-1", "HA-S-3", *_report_clauses(outputs)))


def on_readable(slave: Slave, arrived: bytes, room: int, now_ms: int, settings: Settings, profile: Profile) -> Step[Slave]:
    """Read what the socket holds and dispatch each whole frame.

    Args: arrived: the bytes that the socket holds; each read takes as many as the buffer has room for.
          room: bytes of reports that the socket will take.
    Returns: Step with a `Send` for each report, or a `Close`.
    Spec: HA-S-4 to HA-S-11.  Source: article 001, processReadEvent and dispatchReadRequest.
    """
    outputs: list[Output] = []
    clauses: list[str] = []

    def report() -> None:
        nonlocal slave, room
        slave, out = report_slave_max_offset_plus(slave, room, now_ms)
        room -= sum(len(output.data) for output in out if isinstance(output, Send))
        outputs.extend(out)
        if out:
            clauses.extend(("HA-S-7" if profile.coalesces_reports else "HA-S-6", *_report_clauses(out)))

    def close(reason: str, clause: str) -> Step[Slave]:
        return Step(close_master(slave, reason), (*outputs, Close(reason)), unique((*clauses, clause, "HA-S-13")))

    while arrived and len(slave.byte_buffer_read) < settings.slave_read_buffer_size:
        free = settings.slave_read_buffer_size - len(slave.byte_buffer_read)
        slave = replace(slave, byte_buffer_read=slave.byte_buffer_read + arrived[:free], last_read_timestamp=now_ms)
        arrived = arrived[free:]
        while len(slave.byte_buffer_read) - slave.dispatch_position >= TRANSFER_HEADER_SIZE:
            at = slave.dispatch_position
            offset, body_size = wire.unpack_header(slave.byte_buffer_read[at : at + TRANSFER_HEADER_SIZE])
            # GUARD
            if store.max_offset(slave.log) not in (0, offset):
                return close("offset", "HA-S-4")
            if profile.checks_frames and not frame_is_legal(slave.log, offset, body_size, settings):
                return close("frame", "HA-S-11")
            at += TRANSFER_HEADER_SIZE
            if len(slave.byte_buffer_read) < at + body_size:
                break
            # STATE
            if body_size or not profile.checks_frames:
                clauses += ("HA-S-5", "HA-ST-6") if body_size else ("HA-S-10",)
                body = slave.byte_buffer_read[at : at + body_size]
                slave = replace(slave, log=store.append_data(slave.log, offset, body))
            slave = replace(slave, dispatch_position=at + body_size)
            # OUTPUT
            if not profile.coalesces_reports:
                report()
                if not slave.connected:
                    return Step(slave, tuple(outputs), unique(clauses))
        if len(slave.byte_buffer_read) == settings.slave_read_buffer_size:
            slave = reallocate_byte_buffer(slave)
            clauses.append("HA-S-9")
    if len(unparsed(slave)) == settings.slave_read_buffer_size:
        return close("stalled", "HA-S-14")
    if profile.coalesces_reports:
        report()
    return Step(slave, tuple(outputs), unique(clauses))


def frame_is_legal(log: Log, offset: int, body_size: int, settings: Settings) -> bool:
    """Whether the hardened slave takes a frame, its place at the max offset apart.

    Spec: HA-S-11.
    """
    if not 0 <= body_size <= settings.slave_read_buffer_size - TRANSFER_HEADER_SIZE or offset < 0:
        return False
    if offset % log.file_size + body_size > log.file_size:
        return False
    return store.max_offset(log) != 0 or offset % log.file_size == 0


def reallocate_byte_buffer(slave: Slave) -> Slave:
    """Copy the unparsed bytes to the start of the backup buffer, swap the buffers, dispatch from 0.

    Spec: HA-S-9.  Source: 000 section 5.2 step 1.A to 1.C. What the swapped-out buffer still holds is never read, so the state
    keeps one buffer only.
    """
    byte_buffer_backup = unparsed(slave)
    return replace(slave, byte_buffer_read=byte_buffer_backup, dispatch_position=0)


def on_tick(slave: Slave, room: int, now_ms: int, settings: Settings, profile: Profile) -> Step[Slave]:
    """Report when it is time; then close a connection whose master is silent.

    Spec: HA-S-2, HA-S-12.  Source: article 001, HAClient.run.
    """
    if not slave.connected:
        return Step(slave)
    outputs: tuple[Output, ...] = ()
    clauses: tuple[str, ...] = ()
    if now_ms - slave.last_write_timestamp > settings.ha_send_heartbeat_interval_ms:
        slave, outputs = report_slave_max_offset(slave, room, now_ms)
        clauses = ("HA-T-1", "HA-S-2", *_report_clauses(outputs))
    # 4.5.2 measures from last_write_timestamp, which the report above has just moved: its test can never be true.
    silent = now_ms - slave.last_read_timestamp > settings.ha_housekeeping_interval_ms
    if slave.connected and profile.detects_silent_master and silent:
        clauses = (*clauses, "HA-T-1", "HA-S-12", "HA-S-13")
        return Step(close_master(slave, "housekeeping"), (*outputs, Close("housekeeping")), unique(clauses))
    return Step(slave, outputs, unique(clauses))


def on_end_of_stream(slave: Slave) -> Step[Slave]:
    """The master, or the network, has closed the connection.

    Spec: HA-S-13.  Source: article 001, HAClient.run.
    """
    return Step(close_master(slave, "end_of_stream"), clauses=("HA-S-13",))


def on_restart(slave: Slave, profile: Profile) -> Step[Slave]:
    """The process ends, however, and starts again: the log is recovered, all else is forgotten.

    Spec: HA-ST-5, HA-ST-7, HA-ST-10.
    """
    recovered = store.recover(slave.log, profile)
    return Step(Slave(recovered.state), clauses=recovered.clauses)


def report_slave_max_offset_plus(slave: Slave, room: int, now_ms: int) -> tuple[Slave, tuple[Output, ...]]:
    """Report the max offset if it has grown. HA-S-6, HA-S-7. Source: article 001, reportSlaveMaxOffsetPlus."""
    max_offset = store.max_offset(slave.log)
    if max_offset <= slave.current_reported_offset:
        return slave, ()
    return report_slave_max_offset(replace(slave, current_reported_offset=max_offset), room, now_ms)


def report_slave_max_offset(slave: Slave, room: int, now_ms: int) -> tuple[Slave, tuple[Output, ...]]:
    """Write `current_reported_offset`; one not taken whole closes. HA-S-8. Source: article 001, reportSlaveMaxOffset."""
    report = wire.pack_report(slave.current_reported_offset)
    taken = report[:room]
    slave = replace(slave, last_write_timestamp=now_ms)
    sends = (Send(taken),) if taken else ()
    if taken == report:
        return slave, sends
    return close_master(slave, "report"), (*sends, Close("report"))


def close_master(slave: Slave, reason: str) -> Slave:
    """HA-S-13. Source: article 001, closeMaster."""
    return replace(slave, connected=False, byte_buffer_read=b"", dispatch_position=0, close_reason=reason)


def _report_clauses(outputs: tuple[Output, ...]) -> tuple[str, ...]:
    if not outputs:
        return ()
    return ("HA-W-1", "HA-S-8", "HA-S-13") if any(isinstance(output, Close) for output in outputs) else ("HA-W-1",)
