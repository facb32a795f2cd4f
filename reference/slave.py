"""The slave: HAClient, and the log that it writes.

The read buffer is RocketMQ's: bytes are read to its position, frames are taken from `dispatch_position`, and
`reallocate_byte_buffer` makes room at its start. impl/ha/slave.py has no second buffer; the unparsed bytes relate the two.

    DISCONNECTED --connect--> CONNECTED --bytes--> HEADER_PARTIAL / BODY_PARTIAL --rest--> CONNECTED
    any --close--> DISCONNECTED        classic: --a size that no array has--> DEAF
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from rocketmq_ha.reference import file_size, overlap, store, wire
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Close, Output, Send, Step, unique
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings

I64_MAX: Final = (1 << 63) - 1
I32_MAX: Final = (1 << 31) - 1


class SlaveState(Enum):
    DISCONNECTED = "disconnected"
    CONNECTED = "connected"  # no unparsed bytes
    HEADER_PARTIAL = "header_partial"
    BODY_PARTIAL = "body_partial"  # the header is complete, the body is not
    DEAF = "deaf"  # connected and reporting, but it dispatches no frame any more (quirks 20 to 22)


@dataclass(frozen=True, slots=True)
class Slave:
    """A slave: its log and its connection to the master."""

    log: Log
    connected: bool = False
    current_reported_offset: int = 0  # the last report; after connecting the max offset (hardened: the last record's start)
    last_write_timestamp: int = 0  # ms; time of the last report, or of the connect
    last_read_timestamp: int = 0  # ms; time of the last byte read, or of the connect
    byte_buffer_read: bytes = b""  # the bytes read; its length is the buffer's position
    dispatch_position: int = 0  # start of the first frame that is not dispatched; <= len(byte_buffer_read)
    deaf: bool = False  # bytes read are dropped: the buffer stays empty
    close_reason: str = ""  # why the last connection ended
    disk_full: bool = False  # appended bytes do not reach the file (quirk 42)


def classify(slave: Slave) -> SlaveState:
    if not slave.connected:
        return SlaveState.DISCONNECTED
    if slave.deaf:
        return SlaveState.DEAF
    size = len(unparsed(slave))
    if size == 0:
        return SlaveState.CONNECTED
    return SlaveState.HEADER_PARTIAL if size < TRANSFER_HEADER_SIZE else SlaveState.BODY_PARTIAL


def on_connect(slave: Slave, room: int, now_ms: int, profile: Profile) -> Step[Slave]:
    """Start at the max offset; hardened starts at its last record, and reports at once.

    Args: room: bytes that the socket will take.
    Spec: HA-S-1 "MUST set current_reported_offset to its max offset and last_write_timestamp to now"; HA-S-61 "the start of its
    last whole record"; HA-S-3 "MUST report at once on connecting".
    Source: article 001, connectMaster.
    """
    first = overlap.first_report(slave.log) if profile.checks_overlap else store.max_offset(slave.log)
    slave = replace(
        slave,
        connected=True,
        current_reported_offset=first,
        last_write_timestamp=now_ms,
        last_read_timestamp=now_ms,
        close_reason="",
    )
    if not profile.reports_on_connect:
        return Step(slave, clauses=("HA-S-1",))
    starts = ("HA-S-1",) if first == store.max_offset(slave.log) else ("HA-S-1", "HA-S-61")
    slave, outputs = report_slave_max_offset(slave, room, now_ms)
    return Step(slave, outputs, (*starts, "HA-S-3", *_report_clauses(outputs)))


def on_frames(slave: Slave, arrived: bytes, room: int, now_ms: int, settings: Settings, profile: Profile) -> Step[Slave]:
    """Read what the socket holds and dispatch each whole frame.

    Args: arrived: the bytes that the socket holds; each read takes as many as the buffer has room for.
          room: bytes of reports that the socket will take.
    Returns: Step with a `Send` for each report, or a `Close`.
    Spec: HA-W-8 "A receiver MUST NOT depend on where its reads split the stream"; HA-S-31 "After each read the slave MUST
    take all whole frames out of its buffer, in order"; HA-S-5 "A body MUST be appended only when all of it is there, and then
    dispatch_position MUST advance by 12 plus its size"; HA-S-28 "MUST NOT report for any reason but these"; HA-S-62 "MUST
    compare the bytes that it is sent before its max offset with its own"; HA-S-63 "is not where the comparison stands MUST
    close the connection".
    Source: article 001, processReadEvent and dispatchReadRequest.
    """
    outputs: list[Output] = []
    clauses: list[str] = []
    # The position of the next byte: the max offset, or the end of the compared overlap, which is the last report.
    position = slave.current_reported_offset if profile.checks_overlap else store.max_offset(slave.log)
    # What each frame changes. The state is made once, by `done` or `close`.
    log, dispatch_position = slave.log, slave.dispatch_position

    def report() -> None:
        nonlocal slave, room
        slave, out = report_slave_max_offset_plus(slave, position, room, now_ms)
        room -= sum(len(output.data) for output in out if isinstance(output, Send))
        outputs.extend(out)
        if out:
            clauses.extend(("HA-S-7" if profile.coalesces_reports else "HA-S-6", *_report_clauses(out)))

    def done() -> Step[Slave]:
        after = replace(slave, log=log, dispatch_position=dispatch_position if slave.connected else 0)
        return Step(after, tuple(outputs), unique(clauses))

    def close(reason: str, clause: str) -> Step[Slave]:
        after = close_master(replace(slave, log=log), reason)
        return Step(after, (*outputs, Close(reason)), unique((*clauses, clause, "HA-S-13")))

    if slave.deaf:
        return Step(replace(slave, last_read_timestamp=now_ms), clauses=("HA-S-36",))
    while arrived and len(slave.byte_buffer_read) < settings.slave_read_buffer_size:
        free = settings.slave_read_buffer_size - len(slave.byte_buffer_read)
        buffer = slave.byte_buffer_read + arrived[:free]
        slave = replace(slave, byte_buffer_read=buffer, last_read_timestamp=now_ms)
        arrived = arrived[free:]
        while len(buffer) - dispatch_position >= TRANSFER_HEADER_SIZE:
            at = dispatch_position + TRANSFER_HEADER_SIZE
            offset, body_size = wire.unpack_header(buffer[dispatch_position:at])
            # GUARD
            max_offset = store.max_offset(log)
            # HA-S-4 "before its body, the slave MUST close the connection if its max offset is not 0 and differs".
            if max_offset != 0 and offset != position:
                return close("offset", "HA-S-4" if position == max_offset else "HA-S-63")
            if broken := check_end_of_file(log, offset):
                return close("frame", broken)
            if profile.checks_frames and (broken := check_frame(log, offset, body_size, settings)):
                return close("frame", broken)
            if profile.checks_frames and not ends_in_its_file(log, offset, body_size):
                known = not profile.checks_file_size or file_size.is_known(log)
                return close("frame", "HA-S-11") if known else close("file_size", "HA-S-92")
            if not profile.checks_frames and parsing_throws(body_size):
                dispatch_position = 0
                slave = replace(slave, deaf=True, byte_buffer_read=b"")
                clauses.append("HA-S-36")
                return done()
            if len(buffer) < at + body_size:
                break
            body = buffer[at : at + body_size]
            held = min(max_offset - position, body_size) if max_offset else 0  # bytes of the body that the log has already
            if held:
                if overlap.differs(log, position, body[:held]):
                    return close("diverged", "HA-S-62")
                clauses.append("HA-S-62")
            # STATE
            position += held
            if profile.checks_file_size and held < body_size:
                seen = file_size.walk(log, body[held:])
                if seen.differs or (seen.is_same and len(log.data) < log.file_size):
                    clauses.append("HA-S-90")
                if seen.differs:
                    adopted = file_size.adopt(log, offset, body[held:], seen.size) if settings.adopts_file_size else None
                    if adopted is None:
                        # HA-S-92 "MUST append nothing from that record on, close the connection, and stop".
                        if fitting := body[held:][: max(0, seen.position - len(log.data))]:
                            if slave.disk_full:
                                return close("disk_full", "HA-S-38")
                            log = store.append_data(log, offset, fitting)
                        return close("file_size", "HA-S-92")
                    log = adopted
                    clauses.append("HA-S-91")
            if held < body_size or not profile.ignores_heartbeats:  # HA-S-10 "A heartbeat is appended too, with length 0"
                appended = body[held:]
                if slave.disk_full and appended:
                    # HA-S-38 "MUST NOT count the bytes as part of its log, and MUST NOT report any of them".
                    if profile.checks_appends:
                        return close("disk_full", "HA-S-38")
                    appended = store.unwritten(log, len(appended))
                    clauses.append("HA-S-37")
                clauses += ("HA-S-5", "HA-ST-6") if body_size else ("HA-S-10",)
                log = store.append_data(log, offset, appended)
                position = store.max_offset(log)
            dispatch_position = at + body_size
            # OUTPUT
            if not profile.coalesces_reports:
                report()
                if not slave.connected:
                    return done()
        if len(buffer) == settings.slave_read_buffer_size:
            slave = reallocate_byte_buffer(replace(slave, dispatch_position=dispatch_position))
            dispatch_position = slave.dispatch_position
            clauses.append("HA-S-9")
    # HA-S-14 "that fills the read buffer without being complete MUST end the connection"; HA-S-32 "MUST hold 4 MiB by default".
    if len(slave.byte_buffer_read) - dispatch_position == settings.slave_read_buffer_size:
        return close("stalled", "HA-S-14")
    if profile.coalesces_reports:
        report()
    return done()


def check_frame(log: Log, offset: int, body_size: int, settings: Settings) -> str:
    """The clause that a frame violates in the hardened profile, or "". `ends_in_its_file` checks its end.

    Spec: HA-S-11 "of negative size, or of a size that the read buffer cannot hold, or that crosses the end of a file, or, on an
    empty log, whose offset is negative or not the start of a file".
    """
    if not 0 <= body_size <= settings.slave_read_buffer_size - TRANSFER_HEADER_SIZE or offset < 0:
        return "HA-S-11"
    return "" if store.max_offset(log) != 0 or offset % log.file_size == 0 else "HA-S-11"


def check_end_of_file(log: Log, offset: int) -> str:
    """The clause that a frame violates if no i64 holds the end of its file, or "".

    Classic refuses it too. The max offset of 4.5.2 would wrap to a negative number, which no record and no report has.
    Spec: HA-S-52 "A frame whose file would end beyond the greatest offset".
    """
    return "HA-S-52" if offset - offset % log.file_size + log.file_size > I64_MAX else ""


def ends_in_its_file(log: Log, offset: int, body_size: int) -> bool:
    """Return True if a frame ends in the same file of the slave in which it begins.

    Spec: HA-S-11 "or that crosses the end of a file"; HA-S-90 "where a frame crosses it".
    """
    return offset % log.file_size + body_size <= log.file_size


def parsing_throws(body_size: int) -> bool:
    """Return True if 4.5.2 takes a body for complete but cannot create or fill an array for it.

    Its test is `diff >= 12 + body_size` in 32 bits. It is true for a negative size, and for a size that makes the sum overflow.
    Spec: HA-S-36 "of negative size, or of a size above 2,147,483,635, leaves the slave deaf".
    Source: article 001, dispatchReadRequest; quirks 20 to 22.
    """
    return body_size < 0 or body_size + TRANSFER_HEADER_SIZE > I32_MAX


def reallocate_byte_buffer(slave: Slave) -> Slave:
    """Copy the unparsed bytes to the start of the backup buffer, swap the buffers, dispatch from 0.

    Spec: HA-S-9 "MUST copy the unparsed bytes to the start of the backup buffer, swap the two buffers, and set
    dispatch_position to 0".
    Source: 000 section 5.2 step 1.A to 1.C. The swapped-out buffer is never read, so the state keeps only one
    buffer.
    """
    byte_buffer_backup = unparsed(slave)
    return replace(slave, byte_buffer_read=byte_buffer_backup, dispatch_position=0)


def on_tick(slave: Slave, room: int, now_ms: int, settings: Settings, profile: Profile) -> Step[Slave]:
    """Report when it is time; then close a connection whose master is silent.

    Spec: HA-S-2 "MUST report current_reported_offset when more than ha_send_heartbeat_interval has passed since its last
    report"; HA-S-12 "nothing has been read for more than ha_housekeeping_interval is silent, and the slave MUST close the
    connection".
    Source: article 001, HAClient.run.
    """
    if not slave.connected:
        return Step(slave)
    outputs: tuple[Output, ...] = ()
    clauses: tuple[str, ...] = ()
    if now_ms - slave.last_write_timestamp > settings.ha_send_heartbeat_interval_ms:
        slave, outputs = report_slave_max_offset(slave, room, now_ms)
        clauses = ("HA-T-1", "HA-S-2", *_report_clauses(outputs))
    # 4.5.2 measures from last_write_timestamp, which the report above has just set, so its test is never true. HA-S-29
    # "is measured from the slave's own last report, so that no silence is ever noticed".
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
    """The process ends, by a stop or a kill, and starts again: the log is recovered, everything else is lost.

    Spec: HA-ST-5, HA-ST-7, HA-ST-10.
    """
    recovered = store.recover(slave.log, profile)
    return Step(Slave(recovered.state, disk_full=slave.disk_full), clauses=recovered.clauses)


def report_slave_max_offset_plus(slave: Slave, position: int, room: int, now_ms: int) -> tuple[Slave, tuple[Output, ...]]:
    """Report the max offset if it has grown; in hardened, during a comparison, the end of the compared part.

    Spec: HA-S-6 "After each frame the slave reports its max offset" in classic; HA-S-7 "When the socket holds no more bytes" in
    hardened; both HA-S-6 "if that is greater than current_reported_offset"; HA-S-62 "reports how far it has compared".
    Source: article 001, reportSlaveMaxOffsetPlus.
    """
    if position <= slave.current_reported_offset:
        return slave, ()
    return report_slave_max_offset(replace(slave, current_reported_offset=position), room, now_ms)


def report_slave_max_offset(slave: Slave, room: int, now_ms: int) -> tuple[Slave, tuple[Output, ...]]:
    """Write `current_reported_offset`.

    Spec: HA-S-8 "A report that the socket does not take whole, in at most 3 tries, MUST close the connection"; HA-S-27 "A
    report MUST set last_write_timestamp, whichever of its reasons it has".
    Source: article 001, reportSlaveMaxOffset.
    """
    report = wire.pack_report(slave.current_reported_offset)
    taken = report[:room]
    slave = replace(slave, last_write_timestamp=now_ms)
    sends = (Send(taken),) if taken else ()
    if taken == report:
        return slave, sends
    return close_master(slave, "report"), (*sends, Close("report"))


def close_master(slave: Slave, reason: str) -> Slave:
    """HA-S-13 "MUST drop the unparsed bytes and set dispatch_position to 0". Source: article 001, closeMaster."""
    return replace(slave, connected=False, byte_buffer_read=b"", dispatch_position=0, deaf=False, close_reason=reason)


def unparsed(slave: Slave) -> bytes:
    """The bytes that have been read but not dispatched."""
    return slave.byte_buffer_read[slave.dispatch_position :]


def _report_clauses(outputs: tuple[Output, ...]) -> tuple[str, ...]:
    if not outputs:
        return ()
    return ("HA-W-1", "HA-S-8", "HA-S-13") if any(isinstance(output, Close) for output in outputs) else ("HA-W-1",)
