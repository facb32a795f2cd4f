"""Move bytes between a non-blocking socket and one end of a connection (impl/ha) until the socket would block.

Nothing else writes to the socket: HA-W-7 "nothing but reports from the slave and frames from the master".

`Socket` lists the methods that a link uses; the lock-step passes a scripted socket.
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

# Bytes moved in one call. The bound keeps a busy connection from starving the others and its own reports.
MAX_TURN: Final = 4 * 1024 * 1024
MAX_SEND: Final = MAX_FRAMES * (HA_TRANSFER_BATCH_SIZE + HEADER.size)  # bytes of one sendmsg; larger frames are split
MAX_REPORTS_TURN: Final = 16 * 1024  # bytes: 2,048 reports, of which only the last counts
# After a read of at least this many bytes, more have probably arrived during the append: read again before reporting.
BULK: Final = 64 * 1024
_TLS_CLAUSES: Final = frozenset({"HA-M-70", "HA-S-70"})  # clauses of a PeerViolation that a TLS socket raises (tls.py)


class Socket(Protocol):
    """A connected, non-blocking stream socket. With TLS (tls.py), recv_into may raise PeerViolation too."""

    def recv_into(self, buffer: memoryview, /) -> int: ...

    def send(self, data: bytes, /) -> int: ...

    def sendmsg(self, buffers: Iterable[memoryview], /) -> int: ...

    def close(self) -> None: ...


class MasterLink:
    """The master's end of a connection.

    `ends_short`: take a read that does not fill its buffer for the last one, and a partial write for a full socket, and save
    the system call that would confirm it. Bytes that arrive meanwhile are read in the next turn. A scripted socket gives and
    takes as little as its schedule says, so it needs ends_short=False.
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
        """bucket: limits the send rate; None: no limit."""
        self.sock, self.conn, self._service = sock, conn, service
        self._bucket, self._ends_short = bucket, ends_short
        self.is_throttled = False  # the last turn ended because the bucket was empty
        self.blocked_since_ms: int | None = None  # since when the socket has taken no byte of the pending data
        self.is_full = False  # the socket took less than was offered, and has not been writable since
        self.is_watched = False  # the selector watches the socket for room
        self.moved = 0  # bytes that the last turn wrote
        self.unread: Exception | None = None  # the read error of the log that closed the connection (HA-M-88)
        self.received = 0  # bytes

    def on_reports(self, now_ms: int) -> PeerViolation | None:
        """Read until the socket would block. Returns: the violation that closed the connection, or None.

        Spec: HA-M-54 "MUST NOT read more than 16 KiB of one connection"; the next turn reads the rest.
        """
        conn, moved = self.conn, 0
        try:
            while nbytes := self.sock.recv_into(buffer := conn.recv_buffer()):
                self.received += nbytes
                if conn.on_reports(nbytes, now_ms):  # HA-M-24 "handed to the group transfer before the next read"
                    self._service.on_ack(conn)
                moved += nbytes
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
        """Write until the socket is full, the log is sent, the bucket is empty, or at least `most` bytes are written.

        The last call may exceed `most` by up to MAX_SEND bytes. Returns: True if the turn ended at `most`, with more to send.
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
                if error.errno == errno.EFAULT:  # a mapped file was truncated after it was checked
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
    """The slave's end of a connection.

    `before_report` is called before each report, HA-S-60 "MUST have on its disk all that a report acknowledges"; its
    exceptions reach the caller. `ends_short`: see MasterLink.
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
        self.out_of_step: OutOfStep | None = None  # why no further connection can help the slave (HA-S-62, HA-S-92)
        self._frame_since_ms: int | None = None  # since when a partial frame has waited; reset whenever a frame is complete

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
                nbytes = 0  # reset by the peer: treated as an end of stream
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
        """Send a report that is due, then check the deadlines.

        HA-S-12 "the slave MUST close the connection" of a silent master.
        may_expire: False right after a pause (pause.py). The caller has read everything that came by now_ms.
        Spec: HA-S-50 "not whole after frame_deadline MUST end the connection": a master that sends a byte now and then is not
        silent, so it needs a deadline of its own.
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

        Returns: True if the connection is still open.
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
