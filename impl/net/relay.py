"""TCP connections that are passed on, and can be cut: no byte passes then, and neither end is told, as where a cable is cut.

A `Route` is an address where it listens, and the address to which each connection goes. Open, it passes bytes on. Closed, it
refuses connections, as a machine does whose process is gone. Cut, it leaves bytes and connects where they are: the ends find no
more than silence, and what they have sent arrives when the route is healed. The process needs no rights for this: a listening
socket whose queue is full drops connects on Linux.
"""

import errno
import selectors
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.listeners import listen

BUFFER_SIZE: Final = 262_144  # bytes that were read from one end and wait for the other
ACCEPTS_TURN: Final = 16
BACKLOG: Final = 1_024
_FILL_S: Final = 0.05  # a connect within this machine that takes longer was dropped
_MOST_FILLERS: Final = 8
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST, as the kernel does for a process that has died

Address = tuple[str, int]


class Translator(Protocol):
    """Changes the bytes of one direction of a connection."""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes. Returns: those that are passed on now."""
        ...


MakeTranslator = Callable[[], Translator]


class _Half:
    """One direction of a connection. waiting: bytes that were read and not written. has_ended: the source said so."""

    __slots__ = ("has_ended", "is_over", "sink", "source", "translator", "waiting")

    def __init__(self, source: socket.socket, sink: socket.socket, translator: Translator | None) -> None:
        self.source, self.sink, self.translator = source, sink, translator
        self.waiting = bytearray()
        self.has_ended = self.is_over = False

    def read(self) -> None:
        """Raises: OSError."""
        data = self.source.recv(BUFFER_SIZE)
        if not data:
            self.has_ended = True
        self.waiting += self.translator.feed(data) if self.translator is not None and data else data

    def write(self) -> None:
        """Pass on what the sink takes, and the end behind it. Raises: OSError."""
        if self.waiting:
            with suppress(BlockingIOError):
                del self.waiting[: self.sink.send(self.waiting)]
        if self.has_ended and not self.waiting and not self.is_over:
            self.is_over = True
            self.sink.shutdown(socket.SHUT_WR)


class _Pair:
    """A connection, and that to which its bytes go. is_connected: the second one stands."""

    def __init__(self, near: socket.socket, far: socket.socket, there: _Half, back: _Half) -> None:
        self.near, self.far, self.halves = near, far, (there, back)
        self.is_connected = False

    def wanted(self, sock: socket.socket) -> int:
        """The events to wait for at one of the two sockets."""
        if not self.is_connected:
            return selectors.EVENT_WRITE if sock is self.far else 0
        events = 0
        for half in self.halves:
            if half.source is sock and not half.has_ended and len(half.waiting) < BUFFER_SIZE:
                events |= selectors.EVENT_READ
            if half.sink is sock and half.waiting:
                events |= selectors.EVENT_WRITE
        return events

    def turn(self) -> bool:
        """Move what can be moved. Returns: False if the connection is over. Raises: OSError."""
        for half in self.halves:
            if not half.has_ended and len(half.waiting) < BUFFER_SIZE:
                with suppress(BlockingIOError):
                    half.read()
            half.write()
        return not all(half.is_over for half in self.halves)


class Route:
    """Connections from one address to another. It is closed at first."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        near: Address,
        far: Address,
        there: MakeTranslator | None = None,
        back: MakeTranslator | None = None,
    ) -> None:
        """near: where it listens; far: where the connections go. there, back: what changes the bytes of a direction."""
        self.near, self.far = near, far
        self._selector, self._there, self._back = selector, there, back
        self._listener: socket.socket | None = None
        self._fillers: list[socket.socket] = []
        self._pairs: set[_Pair] = set()
        self._is_open = self._is_cut = False

    @property
    def connections(self) -> int:
        return len(self._pairs)

    def set(self, *, is_open: bool, is_cut: bool) -> None:
        """Open or close, cut or heal. Raises: ConfigInvalid if the address is taken."""
        was_open, was_cut = self._is_open, self._is_cut
        self._is_open, self._is_cut = is_open, is_cut
        if is_cut and not was_cut:
            self._silence()
        elif was_cut and not is_cut:
            self._speak()
        elif not is_cut and is_open and not was_open:
            self._listen()
            self._selector.register(self._take_listener(), selectors.EVENT_READ, self)
        elif not is_cut and was_open and not is_open:
            self._selector.unregister(self._take_listener())
            self._refuse()

    def close(self) -> None:
        for pair in list(self._pairs):
            self._end(pair)
        for filler in self._fillers:
            filler.close()
        self._refuse()

    # --- The listening socket ----------------------------------------------------------------------------------------

    def _take_listener(self) -> socket.socket:
        assert self._listener is not None
        return self._listener

    def _listen(self) -> None:
        try:
            self._listener = listen(*self.near)
        except ConfigInvalid:
            self._is_open = self._is_cut = False
            raise
        self._listener.setblocking(False)

    def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _silence(self) -> None:
        """Wait for no end, and have the system drop every connect, as if it had not arrived: the queue of connects is full."""
        for pair in self._pairs:
            self._unregister(pair)
        if self._listener is None:
            self._listen()
        else:
            self._selector.unregister(self._listener)
        listener = self._take_listener()
        listener.listen(0)
        for _ in range(_MOST_FILLERS):
            filler = socket.socket(listener.family, socket.SOCK_STREAM)
            filler.settimeout(_FILL_S)
            try:
                filler.connect(self.near)
            except OSError:
                filler.close()
                return
            self._fillers.append(filler)

    def _speak(self) -> None:
        """End the silence: what was sent, or tried, meanwhile goes on."""
        listener, fillers, self._fillers = self._take_listener(), self._fillers, []
        own = {filler.getsockname() for filler in fillers}
        for pair in self._pairs:
            self._register(pair)
        with suppress(OSError):  # nothing waits any more
            while True:
                sock, peer = listener.accept()
                if peer in own:
                    sock.close()
                else:
                    self._begin(sock)
        for filler in fillers:
            filler.close()
        if self._is_open:
            listener.listen(BACKLOG)
            self._selector.register(listener, selectors.EVENT_READ, self)
        else:
            self._refuse()

    # --- Connections -------------------------------------------------------------------------------------------------

    def on_event(self, event: "_Pair | None") -> None:
        """The selector has found a connection ready; None: the listening socket."""
        if event is None:
            self._accept()
        elif event in self._pairs and not self._is_cut:
            self._move(event)

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(ACCEPTS_TURN):
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._begin(sock)

    def _begin(self, near: socket.socket) -> None:
        far = socket.socket(near.family, socket.SOCK_STREAM)
        for sock in (near, far):
            sock.setblocking(False)
            with suppress(OSError):  # some systems refuse this if the peer has gone already
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there = _Half(near, far, self._there() if self._there else None)
        back = _Half(far, near, self._back() if self._back else None)
        pair = _Pair(near, far, there, back)
        self._pairs.add(pair)
        error = far.connect_ex(self.far)
        if error not in (0, errno.EINPROGRESS):
            self._end(pair)
        else:
            self._register(pair)

    def _move(self, pair: _Pair) -> None:
        try:
            if not pair.is_connected:
                if pair.far.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    self._end(pair)
                    return
                pair.is_connected = True
            goes_on = pair.turn()
        except OSError:
            goes_on = False
        if not goes_on:
            self._end(pair)
            return
        self._register(pair)

    def _register(self, pair: _Pair) -> None:
        """Wait for what the connection needs now."""
        for sock in (pair.near, pair.far):
            events, known = pair.wanted(sock), sock in self._selector.get_map()
            if events and known:
                self._selector.modify(sock, events, (self, pair))
            elif events:
                self._selector.register(sock, events, (self, pair))
            elif known:
                self._selector.unregister(sock)

    def _unregister(self, pair: _Pair) -> None:
        for sock in (pair.near, pair.far):
            if sock in self._selector.get_map():
                self._selector.unregister(sock)

    def _end(self, pair: _Pair) -> None:
        """Close both connections. One that has not come to its end is reset, so that its peer knows."""
        self._unregister(pair)
        self._pairs.discard(pair)
        for sock in (pair.near, pair.far):
            if not all(half.is_over for half in pair.halves):
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.close()


class Relay:
    """Some routes in one thread."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._routes: list[Route] = []

    def add(
        self, near: Address, far: Address, there: MakeTranslator | None = None, back: MakeTranslator | None = None
    ) -> Route:
        route = Route(self.selector, near, far, there, back)
        self._routes.append(route)
        return route

    def poll(self, timeout_s: float | None) -> list[object]:
        """Move bytes. Returns: what others have registered, and is ready."""
        others: list[object] = []
        for key, _ in self.selector.select(timeout_s):
            match key.data:
                case Route() as route:
                    route.on_event(None)
                case (Route() as route, _Pair() as pair):
                    route.on_event(pair)
                case other:
                    others.append(other)
        return others

    def close(self) -> None:
        for route in self._routes:
            route.close()
        self.selector.close()
