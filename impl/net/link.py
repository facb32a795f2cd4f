"""Bytes between a socket and a decision: one end of a connection, read and written until it would block.

Nothing else writes to the socket: HA-W-7 "nothing but reports from the slave and frames from the master".

`Socket` is the part of a non-blocking socket that is used; the lock-step passes a scripted one.
"""

import errno
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from rocketmq_ha.impl.errors import FileSizeDiffers, OutOfStep, PeerViolation, StoreCorrupt
from rocketmq_ha.impl.ha.master import MAX_FRAMES, MasterConnection
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.tls_record import is_tls
from rocketmq_ha.impl.net.token_bucket import TokenBucket, first_bytes
from rocketmq_ha.impl.wire.frame import HEADER
from rocketmq_ha.spec.constants import HA_TRANSFER_BATCH_SIZE, REPORT_WRITE_TRIES

# Bytes moved in one call, so that one busy connection starves neither the others nor its own reports.
MAX_TURN: Final = 4 * 1024 * 1024
MAX_SEND: Final = MAX_FRAMES * (HA_TRANSFER_BATCH_SIZE + HEADER.size)  # bytes of one call: larger frames than usual are cut
MAX_REPORTS_TURN: Final = 16 * 1024  # bytes: 2,048 reports, of which the last counts
# Bytes in one read, from which on more are likely to have come while they were appended: a report is better put off then.
BULK: Final = 64 * 1024
_TLS_CLAUSES: Final = frozenset({"HA-M-70", "HA-S-70"})  # what a TLS socket raises of itself (tls.py)


class Socket(Protocol):
    """A connected, non-blocking stream socket. One with TLS (tls.py) raises PeerViolation too, of recv_into."""

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def send(self, data: bytes, /) -> int: ...

    def sendmsg(self, buffers: Iterable[memoryview], /) -> int: ...

    def close(self) -> None: ...


class MasterLink:
    """The master's end.

    `ends_short`: a read that does not fill its buffer shows that the socket holds no more, and it is not asked again; what
    comes meanwhile is as if it came later. Likewise a write of which a part was taken. Not so of a scripted socket, which gives
    and takes as little as a schedule says.
    """

    def __init__(
        self,
        sock: Socket,
        conn: MasterConnection,
        service: HAService,
        bucket: TokenBucket | None = None,
        *,
        ends_short: bool = False,
    ) -> None:
        """bucket: how fast it may send; None for as fast as the socket takes it."""
        self.sock, self.conn, self._service = sock, conn, service
        self._bucket, self._ends_short = bucket, ends_short
        self.is_throttled = False  # the last turn ended for want of bucket
        self.blocked_since_ms: int | None = None  # since when the socket has taken nothing of what is pending
        self.is_full = False  # the socket took less than it was given, and nobody has heard of room in it since
        self.is_watched = False  # somebody waits to hear of room in it
        self.moved = 0  # bytes that the last turn wrote
        self.unread: Exception | None = None  # why bytes of the log could not be read, for which it was closed (HA-M-88)
        self.received = 0  # bytes

    def on_reports(self, now_ms: int) -> PeerViolation | None:
        """Read until the socket would block. Returns: the violation for which the connection was closed.

        Spec: HA-M-54 "MUST NOT read more than 16 KiB of one connection", and what is left is there in the next turn.
        """
        conn, moved = self.conn, 0
        try:
            while nbytes := self.sock.recv_into(buffer := conn.recv_buffer()):
                if conn.on_reports(nbytes, now_ms):  # HA-M-24 "handed to the group transfer before the next read"
                    self._service.on_ack(conn)
                moved += nbytes
                self.received += nbytes
                if moved >= MAX_REPORTS_TURN or (self._ends_short and nbytes < len(buffer)):
                    return None
        except BlockingIOError:
            return None
        except PeerViolation as violation:
            self.close("tls" if violation.clause in _TLS_CLAUSES else "report")
            return violation
        except OSError:
            pass  # reset by the peer: HA-M-13 "An end of stream or an error of the socket MUST close the connection"
        self.close("end_of_stream")
        return None

    def on_transfer(self, now_ms: int, most: int = MAX_TURN) -> bool:
        """Write until the socket, the log or the bucket has no more, or `most` bytes are written, or a call's worth more.

        Returns: whether the turn ended before that.
        Spec: HA-M-88 "MUST end the connection for which it reads", "and MUST NOT touch the other connections".
        """
        conn, bucket = self.conn, self._bucket
        self.moved = 0
        self.is_throttled = False
        while self.moved < most:
            limit = MAX_SEND
            if bucket is not None:
                if not (left := bucket.left(now_ms)):
                    self.is_throttled = True
                    return False
                limit = min(left, limit)
            try:
                buffers = conn.on_transfer(now_ms)
            except StoreCorrupt as error:
                self.unread = error
                self.close("store")
                return False
            if not buffers:
                return False
            offered = conn.offered
            if offered > limit:
                buffers, offered = first_bytes(buffers, limit), limit
            try:
                nbytes = self.sock.sendmsg(buffers)
            except BlockingIOError:
                nbytes = 0
            except OSError as error:
                if error.errno == errno.EFAULT:  # the system met the end of a mapped file that was cut since it was looked at
                    self.unread = error
                self.close("store" if self.unread else "end_of_stream")
                return False
            conn.on_transferred(nbytes, now_ms)
            self.moved += nbytes
            if nbytes == 0:
                self.is_full = True
                if self.blocked_since_ms is None:
                    self.blocked_since_ms = now_ms
                return False
            self.blocked_since_ms = None
            if bucket is not None:
                bucket.spend(nbytes)
            if self._ends_short and nbytes < offered:
                self.is_full, self.blocked_since_ms = True, now_ms
                return False
            if conn.has_all:
                return False
        return True

    def close(self, reason: str) -> None:
        if not self.conn.close_reason:
            self._service.close(self.conn, reason)
        self.sock.close()


class SlaveLink:
    """The slave's end. Each call returns the violation for which it closed the connection, or None.

    `before_report` is called before each report, HA-S-60 "MUST have on its disk all that a report acknowledges"; what it
    raises comes through. `ends_short`: see MasterLink.
    """

    def __init__(
        self,
        sock: Socket,
        client: SlaveClient,
        frame_deadline_ms: int | None = None,
        before_report: Callable[[], object] | None = None,
        *,
        ends_short: bool = False,
    ) -> None:
        self.sock, self.client, self._frame_deadline_ms = sock, client, frame_deadline_ms
        self._before_report, self._ends_short = before_report, ends_short
        self.received = self.sent = 0  # bytes
        self.out_of_step: OutOfStep | None = None  # why the slave can go on with no connection (HA-S-62, HA-S-92)
        self._frame_since_ms: int | None = None  # since when a frame is there in part, and no other has become whole

    def on_connect(self, now_ms: int) -> None:
        self._write(self.client.on_connect(now_ms), now_ms)

    def on_frames(self, now_ms: int) -> PeerViolation | None:
        """Read and append until the socket blocks. HA-S-7 "at the latest after 4 MiB, the slave MUST report its max offset"."""
        dispatched = self.received - self.client.unparsed_size
        violation = self._read(now_ms)
        if self.client.unparsed_size == 0:
            self._frame_since_ms = None
        elif self._frame_since_ms is None or self.received - self.client.unparsed_size > dispatched:
            self._frame_since_ms = now_ms
        return violation

    def _read(self, now_ms: int) -> PeerViolation | None:
        client, moved = self.client, 0
        while moved < MAX_TURN:
            buffer = client.recv_buffer()
            try:
                nbytes = self.sock.recv_into(buffer)
            except BlockingIOError:
                break
            except PeerViolation as violation:
                self.close("tls")
                return violation
            except OSError:
                nbytes = 0  # reset by the peer: an end of stream like another
            if nbytes == 0:
                self.close("tls_port" if is_tls(client.unparsed[:3]) else "end_of_stream")
                return None
            client.on_frames(nbytes, now_ms)
            moved += nbytes
            self.received += nbytes
            try:
                while report := client.dispatch():
                    if not self._write(report, now_ms):
                        return None
            except PeerViolation as violation:
                self.close("offset" if violation.clause in ("HA-S-4", "HA-S-63") else "frame")
                return violation
            except OutOfStep as error:
                self.out_of_step = error
                self.close("file_size" if isinstance(error, FileSizeDiffers) else "diverged")
                return None
            if client.stalled:  # HA-S-14
                self.close("stalled")
                return None
            if self._ends_short and nbytes < min(len(buffer), BULK):
                break
        self._write(client.report_slave_max_offset_plus(), now_ms)
        return None

    def on_tick(self, now_ms: int, *, may_expire: bool = True) -> None:
        """Report what is due; then HA-S-12 "the slave MUST close the connection" of a master that is silent.

        may_expire: false right after a pause (pause.py); what has come by now_ms has been read in any case.
        Spec: HA-S-50 "not whole after frame_deadline MUST end the connection": who sends a byte now and then is not silent.
        """
        if not self._write(self.client.on_tick(now_ms), now_ms) or not may_expire:
            return
        deadline_ms, since_ms = self._frame_deadline_ms, self._frame_since_ms
        if self.client.is_master_silent(now_ms):
            self.close("housekeeping")
        elif deadline_ms is not None and since_ms is not None and now_ms - since_ms > deadline_ms:
            self.close("frame_deadline")

    def _write(self, report: bytes | None, now_ms: int) -> bool:
        """Write a report, or close: HA-S-8 "that the socket does not take whole, in at most 3 tries".

        Returns: whether the connection is still open.
        """
        if report is None:
            return True
        if self._before_report is not None:
            self._before_report()
        written = 0
        for _ in range(REPORT_WRITE_TRIES):
            try:
                written += self.sock.send(report[written:])
            except BlockingIOError:
                continue
            except OSError:
                break
            if written == len(report):
                break
        self.sent += written
        if self.client.on_report_written(written, now_ms):
            return True
        self.close("report")
        return False

    def close(self, reason: str) -> None:
        if self.client.connected:
            self.client.close_master(reason)
        self.sock.close()
