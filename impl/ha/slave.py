"""The slave's end of its connection, sans-I/O, over the log that it writes.

RocketMQ's slave has a read buffer and a backup buffer. This one has a single buffer: it parses the frames in place and appends
all their bodies at once. When the buffer is full, it moves the unparsed bytes to its start. The lock-step shows that both
behave alike: HA-S-9 "It MAY move the bytes within one buffer instead".
"""

from collections.abc import Sequence
from typing import Final, Protocol

from rocketmq_ha.impl.errors import AppendFailed, AppendRefused, FileSizeDiffers, OutOfStep, PeerViolation
from rocketmq_ha.impl.ha.file_size import Shows, Walk
from rocketmq_ha.impl.ha.overlap import Overlap, ReadableLog, find_overlap, first_difference_from_log, recovered_end
from rocketmq_ha.impl.store.log.layout import file_name
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.spec.profile import Profile, Settings

RECV_SIZE: Final = 1024 * 1024  # bytes: large enough for one pwritev of many frames, small enough to stay in the cache
RESTART_FIRST: Final = (
    "what differs is behind the last message of this store whose CRC holds, and a restart of this slave cuts it off: try that "
    "first; if the error comes again, "
)
_GREATEST_OFFSET: Final = 0x7FFFFFFFFFFFFFFF
_LARGEST_ARRAY: Final = 0x7FFFFFFF - HEADER.size  # RocketMQ adds the header size to an i32, so larger body sizes overflow


class AppendableLog(ReadableLog, Protocol):
    """The part of a commit log that the slave uses: append, read back the end, change the file size."""

    def append_data(self, offset: int, buffers: Sequence[memoryview]) -> None: ...

    def count_as_written(self, offset: int, size: int) -> None: ...

    def adopt_file_size(self, file_size: int) -> None: ...


class SlaveClient:
    """A slave: its log and its connection to the master."""

    __slots__ = (
        "_buffer",
        "_end",
        "_is_file_size_known",
        "_last_record",
        "_log",
        "_profile",
        "_settings",
        "_start",
        "_view",
        "_walk",
        "close_reason",
        "connected",
        "current_reported_offset",
        "deaf",
        "heartbeats",
        "last_read_timestamp",
        "last_write_timestamp",
        "overlap",
        "peer",
    )

    def __init__(self, peer: str, log: AppendableLog, settings: Settings, profile: Profile) -> None:
        self.peer = peer
        self._log, self._settings, self._profile = log, settings, profile
        self.connected = False
        self.deaf = False  # a frame has come that classic cannot parse: it reports, and takes no other (HA-S-36)
        self.current_reported_offset = 0
        self.last_write_timestamp = self.last_read_timestamp = 0
        self.close_reason = ""  # why the last connection ended
        self.overlap: Overlap | None = None  # while it is compared: HA-S-62
        self.heartbeats = 0  # heartbeats in a row during the comparison
        self._last_record = 0  # start of the last record, when the log was last searched
        self._is_file_size_known = not profile.checks_file_size
        self._walk: Walk | None = None  # the walk over incoming heads; None once it has ended
        self._resize(min(RECV_SIZE, settings.slave_read_buffer_size))
        self._start = self._end = 0  # the unparsed bytes are _buffer[_start:_end]

    def _resize(self, size: int) -> None:
        self._buffer = bytearray(size)
        self._view = memoryview(self._buffer)

    # --- Life --------------------------------------------------------------------------------------------------------

    def on_connect(self, now_ms: int) -> bytes | None:
        """Start at the max offset, hardened at the start of the last record. Twin: reference.slave.on_connect.

        Returns: the report to write at once, HA-S-3 "MUST report at once on connecting", or None in classic.
        Spec: HA-S-1 "MUST set current_reported_offset to its max offset and last_write_timestamp to now"; HA-S-61 "the start of
        its last whole record".
        """
        self.connected = True
        self.close_reason = ""
        self.current_reported_offset = self._log.max_offset
        self.heartbeats = 0
        if self._profile.checks_overlap and (overlap := find_overlap(self._log, self._last_record)) is not None:
            self._last_record = overlap.record
            self.current_reported_offset = overlap.position
            self.overlap = overlap if overlap.position < overlap.end else None
        if not self._is_file_size_known:
            self._walk = self._walk_again()
        self.last_write_timestamp = self.last_read_timestamp = now_ms
        return REPORT.pack(self.current_reported_offset) if self._profile.reports_on_connect else None

    # --- Frames ------------------------------------------------------------------------------------------------------

    def recv_buffer(self) -> memoryview:
        """Where the socket's next bytes go. Twin: reference.slave.on_frames.

        At least one byte long, unless the client is stalled (HA-S-14).
        The buffer grows only while one frame fills it: HA-S-32 "MUST hold 4 MiB by default" is how large it may become.
        """
        unparsed = self._end - self._start
        if self._end == len(self._buffer):
            if unparsed == len(self._buffer) < self._settings.slave_read_buffer_size:  # one frame fills it: it may grow
                kept = bytes(self._view)
                self._resize(min(2 * len(kept), self._settings.slave_read_buffer_size))
                self._buffer[:unparsed] = kept
            elif unparsed:
                self._view[:unparsed] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, unparsed
        return self._view[self._end :]

    def on_frames(self, nbytes: int, now_ms: int) -> None:
        """The socket gave `nbytes`; `dispatch` takes the frames out of the buffer. Twin: reference.slave.on_frames."""
        self.last_read_timestamp = now_ms
        if not self.deaf:
            self._end += nbytes

    def dispatch(self) -> bytes | None:
        """Append whole frames. Twin: reference.slave.on_frames.

        Returns: a report to write before the next call (classic, HA-S-6), or None when no whole frame is left.
        Raises: PeerViolation: the frames before the broken one are appended. OutOfStep: nothing is appended, but with
        FileSizeDiffers the bytes before the record that shows it. The connection is to be closed in each case.
        Spec: HA-S-31 "MUST take all whole frames out of its buffer, in order"; HA-S-4 "the slave MUST close the connection if
        its max offset is not 0 and differs from the frame's offset"; HA-S-5 "A body MUST be appended only when all of it is
        there"; HA-W-8 "where its reads split the stream".
        """
        if self.overlap is not None:
            self._compare(self.overlap)
            if self.overlap is not None:
                return None
        log, profile = self._log, self._profile
        max_offset = log.max_offset
        bodies: list[memoryview] = []  # whole frames of one file, which follow the log's end and are not appended yet
        try:
            while self._end - self._start >= HEADER.size:
                offset, body_size = HEADER.unpack_from(self._buffer, self._start)
                if max_offset not in (0, offset):
                    raise PeerViolation("HA-S-4", self.peer, f"a frame at offset {offset}", f"offset {max_offset}")
                self._check_end_of_file(offset)
                if profile.checks_frames:
                    self._check_frame(offset, body_size, max_offset)
                elif not 0 <= body_size <= _LARGEST_ARRAY:  # HA-S-36 "leaves the slave deaf"
                    self.deaf = True
                    self._start = self._end = 0
                    break
                body_start = self._start + HEADER.size
                if self._end < body_start + body_size:
                    break
                self._start = body_start + body_size
                if body_size == 0 and profile.ignores_heartbeats:
                    continue
                if self._walk is not None:
                    self._walk_on(self._walk, offset, body_start, self._start, bodies)
                bodies.append(self._view[body_start : self._start])
                if max_offset == 0 or not profile.coalesces_reports:
                    # An empty log learns here where it begins, a classic one from HA-S-10 "A heartbeat is appended too, with
                    # length 0" as well.
                    frame, bodies = bodies, []
                    self._append(offset, frame)
                    max_offset = log.max_offset
                    if not profile.coalesces_reports and (report := self.report_slave_max_offset_plus()):
                        return report
                else:
                    max_offset += body_size
                    if max_offset % log.file_size == 0:  # one append stays within one file
                        frames, bodies = bodies, []
                        self._append(log.max_offset, frames)
        finally:
            if bodies:
                self._append(log.max_offset, bodies)
        return None

    def _compare(self, overlap: Overlap) -> None:
        """Compare whole frames with the overlap; append what the last one holds behind it. Twin: reference.slave.on_frames.

        Raises: as dispatch.
        Spec: HA-S-62 "MUST compare the bytes that it is sent before its max offset with its own", "MUST close the connection,
        and stop with an error"; HA-S-63 "is not where the comparison stands MUST close the connection".
        """
        while overlap.position < overlap.end and self._end - self._start >= HEADER.size:
            offset, body_size = HEADER.unpack_from(self._buffer, self._start)
            if offset != overlap.position:
                raise PeerViolation("HA-S-63", self.peer, f"a frame at offset {offset}", f"offset {overlap.position}")
            self._check_end_of_file(offset)
            self._check_frame(offset, body_size, overlap.end)
            body_start = self._start + HEADER.size
            if self._end < body_start + body_size:
                return
            self._start = body_start + body_size
            self.heartbeats = 0 if body_size else self.heartbeats + 1
            body = self._view[body_start : self._start]
            held = min(body_size, overlap.end - offset)
            if held and (at := first_difference_from_log(self._log, overlap, body)) is not None:
                mine = self._log.data_at(at, 1)
                assert mine is not None
                raise OutOfStep(
                    self.peer,
                    f"diverged: the log is another from commit-log offset {at} on, or before",
                    f"byte 0x{body[at - offset]:02x}",
                    f"0x{mine[0]:02x}, as this store has it",
                    first=RESTART_FIRST if at >= recovered_end(self._log, overlap) else "",
                )
            overlap.position += held
            if held < body_size:
                if self._walk is not None:
                    self._walk_on(self._walk, overlap.end, body_start + held, self._start, [])
                self._append(overlap.end, [body[held:]])
        if overlap.position == overlap.end:
            self.overlap = None

    def _walk_again(self) -> Walk | None:
        """Start the walk over the present log again; None if it has ended.

        HA-S-90 "MUST go on from the log's last whole record".
        """
        log = self._log
        begin, held = log.min_offset, log.max_offset - log.min_offset
        walk = Walk(log.file_size, max(0, self._last_record - begin))
        if held < log.file_size and (data := log.data_at(begin + walk.position, log.file_size)) is not None:
            ended = walk.take(data, 0, len(data))
            self._is_file_size_known = ended is not None and ended.shows is Shows.SAME
            return walk if ended is None or ended.shows is Shows.OTHER else None
        self._is_file_size_known = held >= log.file_size
        return None if self._is_file_size_known else walk

    def _walk_on(self, walk: Walk, offset: int, start: int, stop: int, before: list[memoryview]) -> None:
        """Walk over the heads in the bytes to be appended next, `_buffer[start:stop]`, at an offset.

        Args:  before: bodies to be appended before them; the walk has passed them already.
        Raises: FileSizeDiffers; then the log ends before the record that showed the difference.
        Spec: HA-S-90 "before it appends them, and so before it reports them"; HA-S-91 "MUST make its one file as long as the
        master's are, before it appends that BLANK"; HA-S-92 "MUST append nothing from that record on".
        """
        log = self._log
        base = offset if log.max_offset == 0 else log.min_offset
        ended = walk.take(self._buffer, start, stop)
        if ended is None:
            return
        self._walk = None
        self._is_file_size_known = ended.shows is Shows.SAME
        if ended.shows is not Shows.OTHER:
            return
        if before:
            self._append(log.max_offset, before)
            before.clear()
        size = ended.size
        is_adoptable = size is not None and size < log.file_size and base % size == 0 and offset - base + stop - start <= size
        if self._settings.adopts_file_size and is_adoptable:
            assert size is not None
            self._adopt(size)
            return
        fitting = self._view[start : max(start, start + base + ended.position - offset)]
        if fitting:
            self._append(offset, [fitting])
        raise FileSizeDiffers(self.peer, log.file_size, size)

    def _adopt(self, file_size: int) -> None:
        try:
            self._log.adopt_file_size(file_size)
        except OSError as error:
            raise AppendFailed(error.filename or file_name(self._log.min_offset), self._log.max_offset, error) from error
        self._is_file_size_known = True

    def _append(self, offset: int, frames: list[memoryview]) -> None:
        """Append the bodies of frames. In hardened they have been checked, so the log cannot refuse them.

        Spec: in classic HA-S-33 "does not look at the outcome of an append" (quirks 19 and 25), and HA-S-37 "counts an append
        whose write fails as done" (quirk 42); in hardened HA-S-38 "MUST NOT count the bytes as part of its log, and MUST NOT
        report any of them" and HA-S-34 "MUST stop with an error that names the file and the offset". If no file can be
        created or found for the bytes, classic stops, too.
        """
        try:
            try:
                self._log.append_data(offset, frames)
            except OSError:
                if self._profile.checks_appends:
                    raise
                self._log.count_as_written(offset, sum(map(len, frames)))
        except AppendRefused:
            if self._profile.checks_appends:
                raise
        except OSError as error:
            file = error.filename or file_name(offset - offset % self._log.file_size)
            raise AppendFailed(file, offset, error) from error

    def _check_frame(self, offset: int, body_size: int, max_offset: int) -> None:
        """Refuse what no honest master sends (quirks 17 to 24). Twin: reference.slave.check_frame.

        Spec: HA-S-11 "of negative size, or of a size that the read buffer cannot hold, or that crosses the end of a file, or,
        on an empty log, whose offset is negative or not the start of a file, MUST close the connection".
        """
        largest = self._settings.slave_read_buffer_size - HEADER.size
        if not 0 <= body_size <= largest:
            raise PeerViolation("HA-S-11", self.peer, f"body size {body_size}", f"0 to {largest}")
        file_size = self._log.file_size
        if offset < 0 or (max_offset == 0 and offset % file_size):
            raise PeerViolation("HA-S-11", self.peer, f"start offset {offset}", f"a multiple of file size {file_size}")
        if offset % file_size + body_size > file_size:
            if not self._is_file_size_known and max_offset - self._log.min_offset < file_size:
                raise FileSizeDiffers(self.peer, file_size, None)  # HA-S-90 "or where a frame crosses it"
            end = offset - offset % file_size + file_size
            raise PeerViolation("HA-S-11", self.peer, f"a frame from {offset} to {offset + body_size}", f"its end by {end}")

    def _check_end_of_file(self, offset: int) -> None:
        """Refuse a frame behind whose file no offset can be told, in classic too. Twin: reference.slave.check_end_of_file.

        Spec: HA-S-52 "whose file would end beyond the greatest offset, 2^63 - 1, MUST close the connection".
        """
        file_size = self._log.file_size
        if offset > _GREATEST_OFFSET - file_size + offset % file_size:
            raise PeerViolation("HA-S-52", self.peer, f"a frame at offset {offset}", "one whose file ends before 2^63")

    # --- Reports -----------------------------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> bytes | None:
        """The report that is due by the clock, or None. Twin: reference.slave.on_tick.

        Spec: HA-S-2 "has passed since its last report".
        """
        if now_ms - self.last_write_timestamp <= self._settings.ha_send_heartbeat_interval_ms:
            return None
        return REPORT.pack(self.current_reported_offset)

    def is_master_silent(self, now_ms: int) -> bool:
        """Return True if the connection must be closed because the master is silent. Twin: reference.slave.on_tick.

        Spec: HA-S-12 "nothing has been read for more than ha_housekeeping_interval is silent"; HA-S-29 "is measured from the
        slave's own last report, so that no silence is ever noticed" in classic.
        """
        silence = now_ms - self.last_read_timestamp
        return self._profile.detects_silent_master and silence > self._settings.ha_housekeeping_interval_ms

    def report_slave_max_offset_plus(self) -> bytes | None:
        """The report of a max offset that has grown, or None. Twin: reference.slave.report_slave_max_offset_plus.

        Spec: HA-S-6 "if that is greater than current_reported_offset", in classic after each frame; in hardened HA-S-7 "When
        the socket holds no more bytes", which the link knows. HA-S-28 "MUST NOT report for any reason but these": connecting,
        growth here, time below. HA-S-62 "reports how far it has compared".
        """
        max_offset = self._log.max_offset if self.overlap is None else self.overlap.position
        if max_offset <= self.current_reported_offset:
            return None
        self.current_reported_offset = max_offset
        return REPORT.pack(max_offset)

    def on_report_written(self, nbytes: int, now_ms: int) -> bool:
        """The socket took `nbytes` of a report. Twin: reference.slave.report_slave_max_offset.

        Returns: True if it took all of it; if not, the connection must be closed.
        Spec: HA-S-27 "MUST set last_write_timestamp, whichever of its reasons it has".
        """
        self.last_write_timestamp = now_ms
        return nbytes == REPORT.size

    def close_master(self, reason: str) -> None:
        """Forget the connection. Twin: reference.slave.close_master.

        Spec: HA-S-13 "the slave MUST drop the unparsed bytes".
        """
        self.connected = False
        self.close_reason = reason
        self._start = self._end = 0
        self.deaf = False
        self.overlap = None

    @property
    def unparsed(self) -> bytes:
        """The bytes that have been read and not dispatched. Twin: reference.slave.unparsed."""
        return bytes(self._view[self._start : self._end])

    @property
    def unparsed_size(self) -> int:
        """The number of unparsed bytes."""
        return self._end - self._start

    @property
    def stalled(self) -> bool:
        """HA-S-14 "A frame that fills the read buffer without being complete"."""
        return self._end - self._start == self._settings.slave_read_buffer_size
