"""The connections of a server or of a client in one selectors loop, which another loop can hold within its own.

Alone, `poll` waits and serves. Within another loop, that loop waits for `fileno` too (as `Master.wake_by` does, by
`on_readable`), and calls `turn` once a round. All methods are called in one thread; another thread wakes the loop by a
`Waker` (`wake_by`).
"""

import logging
import selectors
from collections import deque
from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import FrameInvalid, PeerViolation
from rocketmq_ha.impl.net.pause import Pauses
from rocketmq_ha.impl.net.peer_log import PeerLog
from rocketmq_ha.impl.net.waker import Waker, Wakes
from rocketmq_ha.impl.remoting.channel import Channel, Totals
from rocketmq_ha.impl.remoting.connection import Connection
from rocketmq_ha.impl.remoting.dispatch import Dispatcher, Handler
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.spec.constants import REMOTING_HEADER_MAX

TICK_MS: Final = 200  # well below the gap that counts as a pause of the process (HA-T-21)
READ_SIZE: Final = 64 * 1024  # bytes that a turn reads from one connection
LARGE_READ: Final = 256 * 1024  # from one whose frame needs more
LEAST_READ: Final = 8 * 1024
READ_TURN: Final = 256 * 1024  # bytes that a turn reads from all connections together, about
CHANNELS_TURN: Final = 32  # connections that a turn serves; the others come first in the next
REQUESTS_TURN: Final = 512  # requests that a turn serves
HANDSHAKES_TURN: Final = 4  # of TLS; each may cost a millisecond or two
BROKEN: Final = "its connection broke"
END_OF_STREAM: Final = "end of stream"


class Connections:
    """Reads, dispatches and sends, in bounded turns.

    handlers: by the code of a request, handler(channel, request, now_ms) -> answer, or None. on_close: called with each channel
    that has ended, from within `turn`.
    """

    def __init__(self, limits: RemotingLimits, log: logging.Logger, header_max: int = REMOTING_HEADER_MAX) -> None:
        """header_max: bytes of the longest header that is read."""
        self.limits: Final = limits
        self._dispatcher = Dispatcher(header_max)
        self.handlers: Final[dict[int, Handler]] = self._dispatcher.handlers
        self.on_close: Final[list[Callable[[Channel], object]]] = []
        self._peers = PeerLog(log)
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()  # what is to be done in the next turn though no socket is ready
        self._selector.register(self._waker, selectors.EVENT_READ, self._waker)
        self._connections: dict[Channel, Connection] = {}
        self._totals = Totals()
        self._ready: deque[tuple[Connection, int]] = deque()  # what a select has found, and no turn has served yet
        self._dirty: list[Connection] = []
        self._paused: set[Connection] = set()
        self._closed: list[Channel] = []  # on_close is still to be called for these
        self._in_turn = self._has_event = False
        self._budget = 0  # requests that this turn may still serve
        self._handshakes = 0  # of TLS, continued in this turn
        self._plain = memoryview(bytearray(LARGE_READ))  # where TLS puts what it has decrypted
        self._pauses = Pauses()
        self._next_tick_ms = 0
        self._now_ms = clock_ms()
        self.invalid_frames = self.sent_bytes = self.received_bytes = 0

    # --- For status and metrics --------------------------------------------------------------------------------------

    @property
    def channels(self) -> list[Channel]:
        """The open connections."""
        return list(self._connections)

    @property
    def requests(self) -> dict[int | str, int]:
        """How many requests have come, by code; those with a code that is not served under "unsupported"."""
        return dict(self._dispatcher.requests)

    @property
    def failures(self) -> int:
        """How many requests have met a bug of this program."""
        return self._dispatcher.failures

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return self._totals.pending

    @property
    def unfinished(self) -> int:
        """Bytes of frames that have begun and are not whole."""
        return self._totals.unfinished

    # --- The loop ----------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """The selector's descriptor, which is readable if there is something to do in a turn."""
        fd = self._selector.fileno()  # type: ignore[attr-defined,unused-ignore]  # epoll and kqueue have it
        assert isinstance(fd, int)
        return fd

    def on_readable(self) -> None:
        """The loop that holds this one has found `fileno` readable."""
        self._has_event = True

    def wake_by(self, waker: Wakes) -> None:
        """Let something else end the wait of `poll`, or make `fileno` readable: a Waker, or another loop with a `fileno`."""
        self._selector.register(waker, selectors.EVENT_READ, waker)

    def poll(self, timeout_ms: int) -> None:
        """Wait at most `timeout_ms` for something to do, then run a turn. For a process whose only loop this is."""
        if not self._ready:
            wait_ms = min(timeout_ms, max(0, self._next_tick_ms - clock_ms()))
            self._take_ready(wait_ms / 1000)
        self._has_event = True
        self.turn(clock_ms())

    def turn(self, now_ms: int) -> None:
        """Serve what is ready, send the answers, and check what depends on time. Never waits.

        Spec: HA-RM-27 "MUST serve no more than 512 requests of all connections together"; what is left comes first in the next.
        """
        if not self._has_event and now_ms < self._next_tick_ms and not self._ready and not self._closed:
            return
        self._has_event = False
        self._now_ms = now_ms
        self._in_turn = True
        try:
            if not self._ready:
                self._take_ready(0)
            self._serve(now_ms)
            if now_ms >= self._next_tick_ms:
                self._next_tick_ms = now_ms + TICK_MS
                self._tick(now_ms)
            self._resume(now_ms)
        finally:
            self._in_turn = False
        self._flush_dirty()
        self._tell_closed()
        if self._ready or self._closed or any(paused.channel.may_take for paused in self._paused):
            self._waker.wake()

    def _take_ready(self, timeout_s: float) -> None:
        """Ask the selector. Connections are queued; all else, such as a waker or a listening socket, is told."""
        for key, events in self._selector.select(timeout_s):
            if isinstance(key.data, Connection):
                self._ready.append((key.data, events))
            else:
                key.data.on_readable()

    def _serve(self, now_ms: int) -> None:
        ready = self._ready
        size = max(LEAST_READ, min(READ_SIZE, READ_TURN // max(1, min(len(ready), CHANNELS_TURN))))
        self._budget, self._handshakes = REQUESTS_TURN, 0
        for _ in range(min(len(ready), CHANNELS_TURN)):
            connection, events = ready.popleft()
            channel = connection.channel
            if events & selectors.EVENT_WRITE and channel.is_open:
                self._on_writable(connection)
            if connection.is_paused or not channel.is_open:
                continue
            if not channel.may_take and not connection.is_shaking_hands:  # other connections have taken the room meanwhile
                self._pause(connection)
                continue
            if channel.frames:
                self._dispatch(connection, now_ms)
            elif events & selectors.EVENT_READ:
                self._read(connection, size, now_ms)
            self._look_again(connection)
            if self._budget == 0:
                break

    def _look_again(self, connection: Connection) -> None:
        """What TLS has decrypted already no select shows: the connection is read from again in the next turn."""
        if connection.has_buffered and connection.channel.is_open and not connection.is_paused:
            self._ready.append((connection, selectors.EVENT_READ))

    def _read(self, connection: Connection, size: int, now_ms: int) -> None:
        channel = connection.channel
        wanted = channel.wanted
        if wanted > size:
            size = min(wanted, LARGE_READ)
        try:
            if connection.is_fresh and not self._begin(connection):
                return
            if connection.is_shaking_hands:
                self._handshakes += 1
                if self._handshakes > HANDSHAKES_TURN:  # it is still readable in the next turn
                    return
            data = connection.recv(size, self._plain)
        except BlockingIOError:
            data = None
        except PeerViolation as violation:
            self._close(connection, f"found {violation.found}, expected {violation.expected}", "tls")
            return
        except OSError:
            self._drop(connection, BROKEN)
            return
        if connection.tls is not None:
            self._watch(connection)  # it may have to answer, as a handshake does
        if data is None:
            return
        if not data:
            self._drop(connection, END_OF_STREAM)
            return
        self.received_bytes += len(data)
        channel.on_bytes(data, now_ms)
        self._dispatch(connection, now_ms)

    def _begin(self, connection: Connection) -> bool:
        """The first bytes of a connection are there. Returns: False if it was closed. Raises: OSError."""
        connection.is_fresh = False
        return True

    def _close(self, connection: Connection, why: str, reason: str) -> None:
        """Close a connection for its peer's fault, and say so in a line."""
        peer = connection.channel.peer
        self._peers.write(self._now_ms, logging.WARNING, "%s: closed: %s", peer, why, peer=peer, reason=reason)
        self._drop(connection, why)

    def _dispatch(self, connection: Connection, now_ms: int) -> None:
        """Serve the frames that a connection has. One that may take no more is paused until it may."""
        channel, before = connection.channel, self._dispatcher.served
        try:
            self._dispatcher.dispatch(channel, self._peers, now_ms, self._budget)
        except FrameInvalid as error:
            self.invalid_frames += 1
            if channel.is_open:  # a handler may have given it up
                self._flush(connection)  # the answers to the frames before it
                self._close(connection, str(error), "frame")
            return
        finally:
            self._budget -= self._dispatcher.served - before
        if channel.is_open and not channel.may_take:
            self._pause(connection)
        elif channel.frames:
            self._ready.append((connection, 0))

    def _pause(self, connection: Connection) -> None:
        """Neither read from it nor serve its frames until it may take requests again. HA-RM-23, HA-RM-24."""
        connection.is_paused = True
        self._paused.add(connection)
        self._watch(connection)

    def _resume(self, now_ms: int) -> None:
        """Go on with the connections that may take requests again."""
        for connection in [paused for paused in self._paused if paused.channel.may_take]:
            connection.is_paused = False
            self._paused.discard(connection)
            self._dispatch(connection, now_ms)
            if connection.channel.is_open:
                self._watch(connection)
                self._look_again(connection)

    # --- Output ------------------------------------------------------------------------------------------------------

    def _on_output(self, channel: Channel) -> None:
        """A channel has something to send: at once, or with all else at the end of a turn."""
        connection = self._connections[channel]
        if not self._in_turn:
            self._flush(connection)
        elif not connection.is_dirty:
            connection.is_dirty = True
            self._dirty.append(connection)
        if self._paused and not self._in_turn:  # this answer may have made room for a request
            has_room = self._totals.pending == self.limits.max_pending_in_all - 1
            if has_room or (connection.is_paused and channel.may_take):
                self._waker.wake()

    def _flush_dirty(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.is_dirty = False
            if connection.channel.is_open:
                self._flush(connection)

    def _on_writable(self, connection: Connection) -> None:
        """The socket takes bytes again."""
        self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        if not connection.is_connected:
            return
        try:
            self.sent_bytes += connection.send(self._now_ms)
        except OSError:
            self._drop(connection, BROKEN)
            return
        self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        connection.watch(self._selector)

    # --- Time and ends -----------------------------------------------------------------------------------------------

    def _tick(self, now_ms: int) -> None:
        """Close what has missed a deadline."""
        self._peers.end_window(now_ms)
        if not self._pauses.may_expire(now_ms):
            return
        self._take_ready(0)  # HA-T-20 "each end MUST look at what has come"
        ready = {connection for connection, _ in self._ready}
        for connection in list(self._connections.values()):
            self._on_late(connection, connection.channel.on_tick(now_ms), now_ms)
            if why := connection.missed_deadline(now_ms, is_ready=connection in ready):
                self._close(connection, why, "deadline")

    def _on_late(self, connection: Connection, late: int, now_ms: int) -> None:
        """Some requests of ours have had no answer in time."""

    def _drop(self, connection: Connection, reason: str) -> None:
        channel = connection.channel
        if self._connections.pop(channel, None) is None:
            return
        if connection.sock is not None:
            connection.watch_for(self._selector, 0)
            connection.sock.close()
        self._paused.discard(connection)
        channel.close(reason)
        self._peers.write(self._now_ms, logging.DEBUG, "%s: disconnected: %s", channel.peer, reason, peer=channel.peer)
        self._closed.append(channel)
        if not self._in_turn:
            self._waker.wake()

    def _tell_closed(self) -> None:
        while self._closed:
            closed, self._closed = self._closed, []
            for channel in closed:
                for told in self.on_close:
                    told(channel)

    def close(self) -> None:
        """Send what the sockets take at once, then close all of them. Nobody is told of the ends."""
        for connection in list(self._connections.values()):
            self._flush(connection)
            self._drop(connection, "this end has closed it")
        self._closed.clear()
        self._selector.close()
        self._waker.close()
