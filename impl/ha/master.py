"""The master's end of one connection, sans-I/O: bytes in, buffers out.

The caller reads from the socket into `recv_buffer()` and then calls `on_reports`. It writes the buffers that `on_transfer`
returns, and then tells `on_transferred` how many bytes the socket took. reference/master.py lists its functions in the same
order, and the lock-step compares the two after every event.

`on_transfer` builds many frames, for one `sendmsg`. Only the frame at which the socket stopped is kept. The frames behind it
are built anew the next time, so the framing is that of a master that builds one frame at a time (HA-M-7).
"""

from typing import Final, Protocol

from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.spec.profile import Profile, Settings

MAX_FRAMES: Final = 16  # in one on_transfer: 32 buffers are far below IOV_MAX, and 512 KiB fill a socket's buffer


class ReadableLog(Protocol):
    """The part of a commit log that the master reads."""

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...

    def data_at(self, offset: int, limit: int) -> memoryview | None: ...


class MasterConnection:
    """One slave's connection, as the master holds it."""

    __slots__ = (
        "_frames",
        "_header_views",
        "_headers",
        "_log",
        "_offered_end",
        "_pending",
        "_position",
        "_profile",
        "_read_buffer",
        "_read_view",
        "_settings",
        "close_reason",
        "connected_timestamp",
        "has_all",
        "last_read_timestamp",
        "last_write_timestamp",
        "next_transfer_from_where",
        "offered",
        "peer",
        "process_position",
        "replica",
        "sent_offset",
        "slave_ack_offset",
        "slave_request_offset",
        "start_offset",
    )

    def __init__(
        self, peer: str, log: ReadableLog, now_ms: int, settings: Settings, profile: Profile, replica: str = ""
    ) -> None:
        """A new connection. Twin: reference.master.on_accept.

        Args: replica: the name under which its acknowledgements count (HA-G-31); by default `peer`.
        Spec: HA-M-40 "the master MUST set its last_read_timestamp and its last_write_timestamp to now".
        """
        assert settings.master_read_buffer_size % REPORT.size == 0  # HA-M-10 "its size is a multiple of 8"
        self.peer, self.replica = peer, replica or peer
        self._log, self._settings, self._profile = log, settings, profile
        self.connected_timestamp = self.last_read_timestamp = self.last_write_timestamp = now_ms
        self.close_reason = ""  # empty while open
        # Read side.
        self._read_buffer = bytearray(settings.master_read_buffer_size)
        self._read_view = memoryview(self._read_buffer)
        self._position = 0  # bytes of the buffer that have been read
        self.process_position = 0  # bytes of it that are used up; a multiple of 8
        self.slave_request_offset = -1  # -1: nothing reported yet
        self.slave_ack_offset = -1
        # Write side.
        self.start_offset = -1  # where the transfer began; -1: the write side has found no report yet
        self.next_transfer_from_where = -1  # -1: no frame built yet
        self.sent_offset = -1  # end offset of the last frame that the socket took completely
        self.has_all = False  # the last on_transfer reached the end of the log, and the socket took everything
        self._headers = bytearray(MAX_FRAMES * HEADER.size)
        self._header_views = [
            memoryview(self._headers)[at : at + HEADER.size] for at in range(0, MAX_FRAMES * HEADER.size, HEADER.size)
        ]
        self._frames: list[tuple[int, memoryview, memoryview | None]] = []  # (offset, header, body) of the last on_transfer
        self._pending: tuple[int, memoryview, memoryview | None, int] | None = None  # ..., bytes already taken
        self.offered = 0  # bytes, headers included, that the last on_transfer returned
        self._offered_end = -1  # the offset behind them

    # --- Read side ---------------------------------------------------------------------------------------------------

    def recv_buffer(self) -> memoryview:
        """Where the socket's next bytes go; at least one byte long. Twin: reference.master.on_reports."""
        if self._position == len(self._read_buffer):  # HA-M-10 "reused from its start only when it is full"
            self._position = self.process_position = 0
        return self._read_view[self._position :]

    def on_reports(self, nbytes: int, now_ms: int) -> bool:
        """Take the last complete report among the bytes read. Twin: reference.master.on_reports.

        Returns: whether slave_ack_offset was set.
        Raises: PeerViolation in the hardened profile, HA-M-11 and HA-M-12; the connection is then to be closed.
        Spec: HA-M-2 "the last complete report, and no other"; HA-W-8 "MUST NOT depend on where its reads split the stream";
        HA-M-23 "MUST set last_read_timestamp, whether or not they complete a report".
        """
        self._position += nbytes
        self.last_read_timestamp = now_ms
        if self._position - self.process_position < REPORT.size:
            return False
        pos = self._position - self._position % REPORT.size
        (read_offset,) = REPORT.unpack_from(self._read_buffer, pos - REPORT.size)
        self.process_position = pos
        if self._profile.checks_reports:
            self._check_report(read_offset)
        # HA-W-9 "where the slave wants to start (the first report of a connection), what it holds, and that it is alive".
        self.slave_ack_offset = read_offset
        # HA-M-39 "A negative report becomes slave_request_offset too, until a later report replaces it".
        if self.slave_request_offset < 0:  # HA-M-3 "a later report MUST move slave_ack_offset"
            self.slave_request_offset = read_offset
        return True

    @property
    def acked_offset(self) -> int:
        """What this connection has acknowledged, or 0. Twin: reference.master.acked_offset.

        Spec: HA-G-5 "MUST count as an acknowledgement only when it is greater than the offset at which the transfer of its
        connection started"; HA-G-4 "the greatest report ever received from anyone" in classic, whatever it says.
        """
        if self._profile.forgets_lost_slaves and not -1 < self.start_offset < self.slave_ack_offset:
            return 0
        return self.slave_ack_offset

    @property
    def needed_offset(self) -> int | None:
        """The first offset that the peer may still ask for; None if it has not reported, or needs only the last file.

        A slave still needs the last byte that it has acknowledged, since it asks for that record again when it reconnects
        (HA-S-61). A peer that acknowledges nothing needs everything behind the bytes sent to it.
        """
        if self.acked_offset > 0:
            return self.slave_ack_offset - 1
        if self.start_offset != -1:
            return self.sent_offset
        return self.slave_request_offset if self.slave_request_offset > 0 else None

    def _check_report(self, read_offset: int) -> None:
        """Refuse what no honest slave reports (quirks 1, 4, 7, 9). Twin: reference.master.check_report.

        Spec: HA-M-11 "a first report beyond the end of the log, or a later one beyond what has been sent"; HA-M-12
        "greater than 0 and less than the log's min offset".
        """
        log = self._log
        if self.slave_request_offset == -1:
            if not 0 <= read_offset <= log.max_offset:
                raise PeerViolation("HA-M-11", self.peer, f"first report {read_offset}", f"0 to {log.max_offset}")
            if 0 != read_offset < log.min_offset:
                raise PeerViolation("HA-M-12", self.peer, f"first report {read_offset}", f"0, or {log.min_offset} on")
        elif not self.slave_ack_offset <= read_offset <= max(self.slave_ack_offset, self.sent_offset):
            expected = f"{self.slave_ack_offset} to {self.sent_offset}"
            raise PeerViolation("HA-M-11", self.peer, f"report {read_offset}", expected)

    # --- Write side --------------------------------------------------------------------------------------------------

    def on_transfer(self, now_ms: int) -> list[memoryview]:
        """The buffers that the socket should take next, in order; empty if there is none. Twin: reference.master.on_transfer.

        Raises: StoreCorrupt where a file of the log was cut; the connection is then to be closed (HA-M-88).
        Spec: HA-M-7 "from next_transfer_from_where that the master has when the frame is built"; HA-W-5 "MUST NOT be larger
        than ha_transfer_batch_size"; HA-M-28 "MUST NOT wait for a report between two frames".
        """
        self.has_all = False
        if self.slave_request_offset == -1:  # HA-M-1 "while slave_request_offset is -1 the write side waits"
            return []
        if self._pending is not None:  # HA-M-6 "while last_write_over is false the write side only goes on"
            offset, header, body, taken = self._pending
            if body is not None:
                self._log.data_at(offset, 1)  # which sees whether the file was cut since, as TLS reads the body by itself
            self._frames = [(offset, header, body)]
            size = 0 if body is None else len(body)
            self.offered, self._offered_end = HEADER.size + size - taken, offset + size
            if taken < HEADER.size:
                return [header[taken:]] if body is None else [header[taken:], body]
            assert body is not None
            return [body[taken - HEADER.size :]]
        if self.next_transfer_from_where == -1:
            self._start()
        settings, log = self._settings, self._log
        batch_size, headers, header_views = settings.ha_transfer_batch_size, self._headers, self._header_views
        frames: list[tuple[int, memoryview, memoryview | None]] = []
        self._frames = frames
        buffers: list[memoryview] = []
        start = position = self.next_transfer_from_where
        # HA-M-8 "MUST send a heartbeat before it looks for data"; HA-W-3 "its offset MUST be next_transfer_from_where".
        if now_ms - self.last_write_timestamp > settings.ha_send_heartbeat_interval_ms:
            HEADER.pack_into(headers, 0, position, 0)
            frames.append((position, header_views[0], None))
            buffers.append(header_views[0])
        end = log.max_offset
        while (room := MAX_FRAMES - len(frames)) > 0:
            # For all frames at once: a log takes some time to find a place, and to see that its file is whole.
            data = None if position == end else log.data_at(position, room * batch_size)
            if not data:  # HA-M-35 "deleted, beyond the end or negative": nothing but the heartbeat
                self.has_all = True
                break
            for at in range(0, len(data), batch_size):
                body = data[at : at + batch_size]
                header = header_views[len(frames)]
                HEADER.pack_into(headers, len(frames) * HEADER.size, position, len(body))
                frames.append((position, header, body))
                buffers += (header, body)
                position += len(body)
        self.offered, self._offered_end = position - start + len(frames) * HEADER.size, position
        return buffers

    def _start(self) -> None:
        """Fix where the transfer starts. Twin: reference.master.on_transfer.

        Spec: HA-M-27 "once, when the write side first finds a report"; HA-M-4 "at the beginning of the last commit-log file";
        HA-M-5 "Any other slave_request_offset MUST start the transfer at that offset".
        """
        start = self.slave_request_offset
        if start == 0:
            start = self._log.max_offset - self._log.max_offset % self._settings.mapped_file_size
        self.start_offset = self.next_transfer_from_where = self.sent_offset = start

    def on_transferred(self, nbytes: int, now_ms: int) -> None:
        """The socket took `nbytes` of what `on_transfer` returned; 0 if it would block. Twin: reference.master.on_transfer.

        Spec: HA-M-6 "A frame once begun MUST be finished"; HA-M-7 "next_transfer_from_where MUST advance by their
        number at once".
        """
        if nbytes:  # HA-M-34 "at least one byte MUST set last_write_timestamp"
            self.last_write_timestamp = now_ms
        if nbytes == self.offered:
            self._pending, self._frames = None, []
            self.next_transfer_from_where = self.sent_offset = self._offered_end
            return
        if self._pending is not None:
            nbytes += self._pending[3]
            self._pending = None
        for offset, header, body in self._frames:
            size = 0 if body is None else len(body)
            self.next_transfer_from_where = offset + size
            if nbytes < HEADER.size + size:
                self._pending = (offset, self._own(header), body, nbytes)
                self.has_all = False
                break
            nbytes -= HEADER.size + size
            self.sent_offset = offset + size
        self._frames = []

    def _own(self, header: memoryview) -> memoryview:
        """The header of a pending frame in the first slot, so that the next on_transfer cannot overwrite it."""
        first = self._header_views[0]
        first[:] = bytes(header)
        return first

    @property
    def last_write_over(self) -> bool:
        """Whether no frame is pending."""
        return self._pending is None

    @property
    def taken(self) -> int:
        """Bytes of the pending frame that the socket has taken. Twin: reference.master.taken."""
        return self._pending[3] if self._pending else 0

    @property
    def unparsed(self) -> int:
        """Bytes of an incomplete report."""
        return self._position - self.process_position

    # --- Life --------------------------------------------------------------------------------------------------------

    def on_tick(self, now_ms: int) -> bool:
        """Return True if the connection has been silent for too long, and must be closed. Twin: reference.master.on_tick.

        Spec: HA-M-9 "nothing has been read for more than ha_housekeeping_interval"; HA-T-1 "strictly more than its length".
        """
        return now_ms - self.last_read_timestamp > self._settings.ha_housekeeping_interval_ms

    def close(self, reason: str) -> None:
        """Drop the pending frame, and with it every view of the log. Twin: reference.master.close.

        Spec: HA-M-13 "the pending frame is dropped"; HA-M-36 "release the bytes of the log that it holds".
        """
        self.close_reason = self.close_reason or reason
        self._pending = None
        self._frames = []
