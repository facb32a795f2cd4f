"""A connection that reads a master's log and is no replica: it repeats the offset at which it began, for ever.

A master takes a report for an acknowledgement of everything before it (HA-W-9), from whoever sends it. So this reader reports
0, and gets what it wants of the last file by reading that file from its start. Only of an older file it reports the wanted
offset itself, and never so soon after the master has begun its last file that a put could still wait for that offset. What it
is sent it never acknowledges. Every master takes a report that is repeated: it is not less than the one before, and not more
than what was sent.

What remains: a master that counts sockets counts this one as a slave, so that a sync put without any other slave ends in
FLUSH_SLAVE_TIMEOUT rather than in SLAVE_NOT_AVAILABLE (quirk 3).
"""

# ruff: noqa: N818  (the names say whose fault it is, as in errors.py)

import select
import socket
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import PeerViolation, RocketmqHaError
from rocketmq_ha.impl.ha.feed import Piece, Pieces
from rocketmq_ha.impl.net.address import connect, format_address
from rocketmq_ha.impl.net.pause import Deadline, Pauses
from rocketmq_ha.impl.net.tls import TlsSocket
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.impl.net.tls_record import is_tls
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.spec.constants import (
    HA_HOUSEKEEPING_INTERVAL_MS,
    HA_SEND_HEARTBEAT_INTERVAL_MS,
)

_DATA_AFTER_HEARTBEAT_S: Final = 2.0  # a heartbeat goes before data (HA-M-8), and data follows at once, if there is any
_TURN_MS: Final = 100
_RECV_SIZE: Final = 256 * 1024
# Said behind "closed": our master refuses an address so (HA-M-51), and nothing on the wire says why.
WITHOUT_A_BYTE: Final = "without a byte: see whether the master's --allow names this address, and what its log says"


class Unreachable(RocketmqHaError):
    """No connection to the master came about."""


class TlsRefused(Unreachable):
    """A connection came about, and no TLS on it: one end does not trust the other, or there is none."""


class FeedEnded(RocketmqHaError):
    """The master has closed the connection, or is silent. Another one may fare better."""


class SpeaksTls(FeedEnded):
    """The port is one for TLS, and we have none."""


class OutOfRange(RocketmqHaError):
    """The master has no bytes at the wanted offset."""

    def __init__(self, peer: str, offset: int, found: str) -> None:
        super().__init__(f"{peer}: offset {offset} is out of the master's range: {found}")
        self.offset, self.found = offset, found


class Stopped(Exception):
    """The caller has been asked to stop."""


class MasterFeed:
    """One connection, from its first report on. Read when readable, tick often, close. Memory: one read of 256 KiB."""

    def __init__(
        self,
        address: tuple[str, int],
        report: int,
        *,
        heartbeat_ms: int = HA_SEND_HEARTBEAT_INTERVAL_MS,
        housekeeping_ms: int = HA_HOUSEKEEPING_INTERVAL_MS,
        tls: ClientTls | None = None,
        source_address: tuple[str, int] | None = None,
    ) -> None:
        """Connect, and report. source_address: of ours, as `socket.create_connection` has it. Raises: Unreachable."""
        self.peer = format_address(*address)
        self.address = address
        self.report = report
        self.first_offset: int | None = None  # where the master has begun
        self.received = 0  # bytes of the log
        self._pieces = Pieces(self.peer)
        self._buffer = memoryview(bytearray(_RECV_SIZE))
        self._ready: deque[Piece] = deque()  # read ahead by `first`
        self._heartbeat_ms, self._housekeeping_ms = heartbeat_ms, housekeeping_ms
        try:
            self._sock = connect(address, source_address)
        except OSError as error:
            raise Unreachable(f"{self.peer}: cannot connect: {error.strerror or error}") from error
        self._end: socket.socket | TlsSocket = self._sock
        try:
            self._sock.setblocking(False)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._end = self._shake_hands(tls)
            self.connected_s = time.monotonic()
            self.last_read_ms = self._last_report_ms = clock_ms()
            self._pauses = Pauses()
            self.may_expire = True  # no pause of ours explains that nothing has come (pause.py); as of the last tick
            self._write_report()
        except BaseException:
            self._sock.close()
            raise

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def has_ready(self) -> bool:
        """Whether `read` gives something without reading the socket."""
        return bool(self._ready) or self.has_buffered

    @property
    def has_buffered(self) -> bool:
        """Whether TLS holds something to read that the socket does not show."""
        return isinstance(self._end, TlsSocket) and self._end.has_buffered

    @property
    def next_offset(self) -> int | None:
        """Of the next byte of the log; None before the first frame."""
        return self._pieces.next_offset

    @property
    def first_body_size(self) -> int | None:
        """Of the first frame that is no heartbeat; None before it."""
        return self._pieces.first_body_size

    def read(self) -> list[Piece]:
        """What one read gives; the pieces hold until the next. Raises: FeedEnded, PeerViolation."""
        if self._ready:
            ready = list(self._ready)
            self._ready.clear()
            return ready
        try:
            nbytes = self._end.recv_into(self._buffer)
        except BlockingIOError:
            return []
        except OSError as error:
            raise FeedEnded(f"{self.peer}: connection lost: {error.strerror or error}") from error
        if not nbytes and is_tls(self._pieces.unparsed):
            raise SpeaksTls(f"{self.peer}: the master speaks TLS on this port: give --tls-cert, --tls-key and --tls-ca")
        if not nbytes:
            is_unheard = self.first_offset is None and not self._pieces.unparsed
            raise FeedEnded(f"{self.peer}: the master has closed the connection" + f", {WITHOUT_A_BYTE}" * is_unheard)
        self.last_read_ms = clock_ms()
        pieces = list(self._pieces.take(self._buffer[:nbytes]))
        if pieces and self.first_offset is None:
            self.first_offset = pieces[0][0]
        self.received += sum(len(piece) for _, piece in pieces)
        return pieces

    def tick(self, *, is_reading: bool = True) -> None:
        """Repeat the report when it is due. Raises: FeedEnded for a master that is silent while we read."""
        now = clock_ms()
        self.may_expire = self._pauses.may_expire(now)
        if not is_reading:
            self.last_read_ms = now
        is_silent = now - self.last_read_ms > self._housekeeping_ms and self.may_expire
        if is_silent and not wait_readable(self, 0):  # HA-T-20 "Between reading the clock and letting anything expire"
            raise FeedEnded(f"{self.peer}: the master has been silent for {(now - self.last_read_ms) / 1000:.0f} s")
        if now - self._last_report_ms > self._heartbeat_ms:
            self._last_report_ms = now
            self._write_report()

    def first(self, stopped: Callable[[], bool], patience_s: float | None = None) -> Piece:
        """Wait for the first piece, and keep it for `read`. Raises: FeedEnded, PeerViolation, Stopped."""
        deadline = Deadline(self._housekeeping_ms / 1000 if patience_s is None else patience_s)
        while not self._ready:
            if stopped():
                raise Stopped
            if deadline.has_passed():
                raise FeedEnded(f"{self.peer}: connected, but the master sends nothing")
            if wait_readable(self, _TURN_MS):
                self._ready.extend(self.read())
            self.tick()
        return self._ready[0]

    def first_data(self, stopped: Callable[[], bool], patience_s: float | None = None) -> Piece | None:
        """Wait for the first bytes of the log, and keep them; None where a heartbeat comes and none behind it."""
        self.first(stopped, patience_s)
        deadline = Deadline(_DATA_AFTER_HEARTBEAT_S)
        while (found := next((piece for piece in self._ready if piece[1]), None)) is None and not deadline.has_passed():
            if stopped():
                raise Stopped
            if wait_readable(self, _TURN_MS):
                self._ready.clear()  # heartbeats
                self._ready.extend(self.read())
            self.tick()
        return found

    def close(self) -> None:
        self._sock.close()

    def __enter__(self) -> "MasterFeed":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _shake_hands(self, tls: ClientTls) -> TlsSocket:
        """Raises: TlsRefused. A master that does not trust us says so only to the first read (TLS 1.3): PeerViolation there."""
        try:
            end = tls.open(self._sock, self.peer, self.address[0])
        except PeerViolation as error:
            raise TlsRefused(str(error)) from error
        except OSError as error:
            raise TlsRefused(f"{self.peer}: {error.strerror or error}") from error
        assert end is not None  # nobody has told it to stop
        return end

    def _write_report(self) -> None:
        try:
            if self._end.send(REPORT.pack(self.report)) != REPORT.size:
                raise FeedEnded(f"{self.peer}: a report was cut")  # the next byte would no longer be one's first
        except BlockingIOError:
            pass  # the master has not read the ones before; that it must be alive is its own concern
        except OSError as error:
            raise FeedEnded(f"{self.peer}: connection lost: {error.strerror or error}") from error


def wait_readable(feed: MasterFeed, timeout_ms: int) -> bool:
    """Wait until there is something to read."""
    if feed.has_buffered:
        return True
    poll = select.poll()
    poll.register(feed, select.POLLIN)
    return bool(poll.poll(timeout_ms))
