"""The master's end of one connection: HAConnection with its read service and its write service.

The read side takes reports; the write side sends frames. All state of both is in `MasterConnection`, and every function here is
pure: (connection, what happened) -> Step. impl/ha/master.py lists its handlers in the same order.

    AWAIT_REPORT --first report--> CAUGHT_UP --data--> FRAME_WAITING / HEADER_PARTIAL / BODY_PARTIAL --> CAUGHT_UP
                                       \\--interval--> HEARTBEAT_WAITING / HEARTBEAT_PARTIAL --> CAUGHT_UP
    any --> CLOSED
"""

from dataclasses import dataclass
from enum import Enum

from rocketmq_ha.reference import store, wire
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Acked, Close, Output, Send, Step, unique
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings


class MasterConnectionState(Enum):
    AWAIT_REPORT = "await_report"
    CAUGHT_UP = "caught_up"  # no pending frame, and everything in the log is sent
    FRAME_WAITING = "frame_waiting"  # a data frame is built, and the socket has not taken a byte of it
    HEADER_PARTIAL = "header_partial"
    BODY_PARTIAL = "body_partial"  # the header is written, the body is not
    HEARTBEAT_WAITING = "heartbeat_waiting"
    HEARTBEAT_PARTIAL = "heartbeat_partial"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class MasterConnection:
    """One slave's connection, as the master holds it."""

    last_read_timestamp: int  # ms; the time of the accept until the first byte is read
    last_write_timestamp: int  # ms; the time of the accept until the first byte is written
    # Read side.
    byte_buffer_read: bytes = b""  # the bytes read; its length is the buffer's position
    process_position: int = 0  # bytes of the buffer that are processed; a multiple of 8
    slave_request_offset: int = -1  # -1: nothing reported yet; fixed by the first report that is not negative
    slave_ack_offset: int = -1  # the last report
    # Write side.
    next_transfer_from_where: int = -1  # -1: no frame built yet; then only grows
    start_offset: int = -1  # where the transfer started; -1: the write side has found no report yet
    last_write_over: bool = True  # no frame is pending
    byte_buffer_header: bytes = b""  # the rest of the pending header
    select_mapped_buffer: bytes | None = None  # the rest of the pending body; None: a heartbeat, or no frame
    this_offset: int = -1  # the offset in the last header that was built
    close_reason: str = ""  # empty while open; both sides share it: HA-M-36 "The end of either side MUST end the other"


def classify(conn: MasterConnection) -> MasterConnectionState:
    if conn.close_reason:
        return MasterConnectionState.CLOSED
    if conn.last_write_over:
        fixed = conn.next_transfer_from_where != -1
        return MasterConnectionState.CAUGHT_UP if fixed else MasterConnectionState.AWAIT_REPORT
    untouched = len(conn.byte_buffer_header) == TRANSFER_HEADER_SIZE
    if conn.select_mapped_buffer is None:
        return MasterConnectionState.HEARTBEAT_WAITING if untouched else MasterConnectionState.HEARTBEAT_PARTIAL
    if untouched:
        return MasterConnectionState.FRAME_WAITING
    return MasterConnectionState.HEADER_PARTIAL if conn.byte_buffer_header else MasterConnectionState.BODY_PARTIAL


def on_accept(now_ms: int) -> Step[MasterConnection]:
    """A new connection, without a report and without a pending frame.

    Spec: HA-M-16 "MUST become one connection, with a read side and a write side of its own"; HA-M-40 "MUST set its
    last_read_timestamp and its last_write_timestamp to now".
    Source: article 001, HAConnection.
    """
    return Step(MasterConnection(last_read_timestamp=now_ms, last_write_timestamp=now_ms), clauses=("HA-M-1",))


def on_reports(
    conn: MasterConnection, arrived: bytes, log: Log, now_ms: int, settings: Settings, profile: Profile
) -> Step[MasterConnection]:
    """Take the last complete report of each read.

    Args: arrived: the bytes that the socket holds; each read takes as many as the buffer has room for.
    Returns: Step with an `Acked` for each report used (0 if it acknowledges nothing), or a `Close`.
    Spec: HA-W-8 "A receiver MUST NOT depend on where its reads split the stream"; HA-M-2 "the master MUST take the last
    complete report, and no other, as slave_ack_offset"; HA-M-10 "Reports MUST stay aligned in
    the read buffer: it is reused from its start only when it is full"; HA-M-23
    "MUST set last_read_timestamp, whether or not they complete a report".
    Source: article 001, ReadSocketService.processReadEvent.
    """
    outputs: list[Output] = []
    clauses: list[str] = []
    while arrived:
        if len(conn.byte_buffer_read) == settings.master_read_buffer_size:
            conn = replace(conn, byte_buffer_read=b"", process_position=0)
            clauses.append("HA-M-10")
        room = settings.master_read_buffer_size - len(conn.byte_buffer_read)
        buffer = conn.byte_buffer_read + arrived[:room]
        arrived = arrived[room:]
        conn = replace(conn, byte_buffer_read=buffer, last_read_timestamp=now_ms)
        if len(buffer) - conn.process_position < REPORT_SIZE:
            continue
        pos = len(buffer) - len(buffer) % REPORT_SIZE
        read_offset = wire.unpack_report(buffer[pos - REPORT_SIZE : pos])
        clauses += ("HA-W-1", "HA-M-2")
        # GUARD
        if profile.checks_reports and (broken := check_report(conn, read_offset, log)):
            conn = close(replace(conn, process_position=pos), "report")
            return Step(conn, (*outputs, Close("report")), unique((*clauses, broken)))
        # STATE
        # HA-W-9 "MUST be taken for three things at once": the start, what the slave holds and, above, that it is alive.
        # HA-M-3 "The first non-negative report MUST fix slave_request_offset; a later report MUST move slave_ack_offset".
        # HA-M-39 "A negative report becomes slave_request_offset too, until a later report replaces it".
        first = conn.slave_request_offset < 0
        clauses += ("HA-M-3",) if first else ()
        conn = replace(
            conn,
            process_position=pos,
            slave_ack_offset=read_offset,
            slave_request_offset=read_offset if first else conn.slave_request_offset,
        )
        # OUTPUT
        outputs.append(Acked(acked_offset(conn, profile)))
    return Step(conn, tuple(outputs), unique(clauses))


def acked_offset(conn: MasterConnection, profile: Profile) -> int:
    """The acknowledged offset: in classic always the last report; in hardened 0 if it acknowledges nothing.

    Spec: HA-G-5 "A report MUST count as an acknowledgement only when it is greater than the offset at which the transfer of its
    connection started".
    """
    is_ack = conn.start_offset != -1 and conn.slave_ack_offset > conn.start_offset
    return conn.slave_ack_offset if is_ack or not profile.forgets_lost_slaves else 0


def check_report(conn: MasterConnection, read_offset: int, log: Log) -> str:
    """The clause that a report violates in the hardened profile, or "".

    Spec: HA-M-11 "MUST close the connection and MUST NOT be used if it is negative, if it is less than the report taken before
    it, or if it is too large"; HA-M-12 "greater than 0 and less than the log's min offset MUST close the connection".
    """
    if conn.slave_request_offset == -1:
        if not 0 <= read_offset <= store.max_offset(log):
            return "HA-M-11"
        return "HA-M-12" if read_offset != 0 and read_offset < store.min_offset(log) else ""
    return "" if conn.slave_ack_offset <= read_offset <= max(conn.slave_ack_offset, sent_offset(conn)) else "HA-M-11"


def on_transfer(conn: MasterConnection, log: Log, room: int, now_ms: int, settings: Settings) -> Step[MasterConnection]:
    """Send frames until the socket is full or the log is sent.

    Args: room: bytes that the socket will take; 0 where it would block.
    Returns: Step with a `Send` of all bytes that the socket took, if any.
    Spec: HA-M-1 "MUST NOT send anything before the first report"; HA-M-27 "MUST be fixed once, when the write side first finds
    a report"; HA-M-4 "MUST start the transfer at the beginning of the last commit-log file"; HA-M-5 "MUST start the transfer at
    that offset"; HA-M-6 "MUST be finished before another is begun"; HA-M-8 "MUST send a heartbeat before it looks for data".
    Source: article 001, WriteSocketService.run.
    """
    taken_data: list[bytes] = []  # what the socket took
    clauses: list[str] = []
    if conn.slave_request_offset == -1:
        return Step(conn, clauses=("HA-M-1",))
    if conn.next_transfer_from_where == -1:
        if conn.slave_request_offset == 0:
            start = store.max_offset(log) - store.max_offset(log) % settings.mapped_file_size
            clauses.append("HA-M-4")
        else:
            start = conn.slave_request_offset
            clauses.append("HA-M-5")
        conn = replace(conn, start_offset=start, next_transfer_from_where=start)
    if not conn.last_write_over:
        clauses.append("HA-M-6")
    elif now_ms - conn.last_write_timestamp > settings.ha_send_heartbeat_interval_ms:
        conn = build_frame(conn, conn.next_transfer_from_where, None)
        clauses += ("HA-T-1", "HA-W-3", "HA-M-8")
    if not conn.last_write_over:
        conn, data = transfer_data(conn, room, now_ms)
        taken_data.append(data)
        room -= len(data)
    # Frames that the socket takes whole leave none pending: the connections behind them differ in two offsets alone, and only
    # the last one is made.
    offset, this_offset, body = conn.next_transfer_from_where, conn.this_offset, b""
    while conn.last_write_over:  # HA-M-28 "MUST NOT wait for a report between two frames"
        body = store.data_at(log, offset, settings.ha_transfer_batch_size)
        if not body:  # HA-M-35 "the slave gets only heartbeats"
            break
        clauses += ("HA-W-2", "HA-M-7")
        if (offset + len(body)) % settings.mapped_file_size == 0:
            clauses.append("HA-W-4")
        if len(body) == settings.ha_transfer_batch_size:
            clauses.append("HA-W-5")
        if TRANSFER_HEADER_SIZE + len(body) > room:
            break
        taken_data.append(wire.pack_header(offset, len(body)) + body)
        room -= TRANSFER_HEADER_SIZE + len(body)
        this_offset, offset = offset, offset + len(body)
    if offset != conn.next_transfer_from_where:
        conn = replace(conn, next_transfer_from_where=offset, this_offset=this_offset, last_write_timestamp=now_ms)
    if body:  # the frame that the socket does not take whole
        conn, data = transfer_data(build_frame(conn, offset, body), room, now_ms)
        taken_data.append(data)
    data = b"".join(taken_data)
    return Step(conn, (Send(data),) if data else (), unique(clauses))


def build_frame(conn: MasterConnection, offset: int, body: bytes | None) -> MasterConnection:
    """The connection with a new pending frame: a data frame, or a heartbeat if `body` is None.

    Spec: HA-M-7 "next_transfer_from_where MUST advance by their number at once"; HA-W-3 "A frame with a body size of 0 is a
    heartbeat, and its offset MUST be next_transfer_from_where".
    """
    size = 0 if body is None else len(body)
    return replace(
        conn,
        next_transfer_from_where=offset + size,
        last_write_over=False,
        byte_buffer_header=wire.pack_header(offset, size),
        select_mapped_buffer=body,
        this_offset=offset,
    )


def transfer_data(conn: MasterConnection, room: int, now_ms: int) -> tuple[MasterConnection, bytes]:
    """Write the rest of the pending header, then the rest of the body: (connection, bytes that the socket took).

    Spec: HA-M-6 "from the byte where the socket stopped taking it"; HA-M-34 "A write that takes at least one byte MUST set
    last_write_timestamp".
    Source: article 001, transferData (its three tries on an empty socket have no observable effect).
    """
    if room == 0:
        return conn, b""
    body = conn.select_mapped_buffer or b""
    data = (conn.byte_buffer_header + body)[:room]
    of_header = min(room, len(conn.byte_buffer_header))
    header, body = conn.byte_buffer_header[of_header:], body[len(data) - of_header :]
    over = not header and not body
    return replace(
        conn,
        last_write_timestamp=now_ms if data else conn.last_write_timestamp,
        last_write_over=over,
        byte_buffer_header=header,
        select_mapped_buffer=None if over or conn.select_mapped_buffer is None else body,
    ), data


def sent_offset(conn: MasterConnection) -> int:
    """The end offset of the last frame that the socket took completely. No correct report exceeds it."""
    if conn.next_transfer_from_where == -1:
        return conn.slave_request_offset
    return conn.next_transfer_from_where if conn.last_write_over else conn.this_offset


def taken(conn: MasterConnection) -> int:
    """Bytes of the pending frame that the socket took; 0 without a pending frame."""
    if conn.last_write_over:
        return 0
    frame_size = TRANSFER_HEADER_SIZE + conn.next_transfer_from_where - conn.this_offset
    return frame_size - len(conn.byte_buffer_header) - len(conn.select_mapped_buffer or b"")


def on_tick(conn: MasterConnection, now_ms: int, settings: Settings) -> Step[MasterConnection]:
    """Close a connection that has been silent for too long.

    Spec: HA-M-9 "nothing has been read for more than ha_housekeeping_interval MUST be closed"; HA-T-1 "MUST count as
    passed when strictly more than its length has passed".
    Source: article 001, ReadSocketService.run.
    """
    if now_ms - conn.last_read_timestamp > settings.ha_housekeeping_interval_ms:
        return Step(close(conn, "housekeeping"), (Close("housekeeping"),), ("HA-T-1", "HA-M-9"))
    return Step(conn)


def on_end_of_stream(conn: MasterConnection) -> Step[MasterConnection]:
    """The slave, or the network, has closed the connection.

    Spec: HA-M-13 "An end of stream or an error of the socket MUST close the connection, and the pending frame is dropped".
    Source: article 001, ReadSocketService.run.
    """
    return Step(close(conn, "end_of_stream"), clauses=("HA-M-13",))


def close(conn: MasterConnection, reason: str) -> MasterConnection:
    """Close the connection. No function uses a closed connection, so its bytes need not be dropped.

    Spec: HA-M-36 "The end of either side MUST end the other".
    """
    return replace(conn, close_reason=reason)
