"""The master's listening sockets: the plain port, the port for TLS, or both."""

import errno
import logging
import selectors
import socket
from collections.abc import Iterator
from typing import Final, NamedTuple

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address, reason
from rocketmq_ha.impl.net.limits import ConnectionLimiter
from rocketmq_ha.impl.net.peer_log import PeerLog

ACCEPTS_TURN: Final = 16  # of all ports together: a flood of connects must leave time for the open connections
BACKLOG: Final = 1024  # connects that wait for an accept; the system may allow fewer
NO_DESCRIPTORS_MS: Final = 100
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})  # errors of an accept that may pass


def listen(host: str, port: int, option: str = "") -> socket.socket:
    """Listen on an address. Called before any store is opened, so that a refusal changes nothing. Raises: ConfigInvalid.

    Args:  option: that names the address, for the error.
    Spec: HA-M-15 "allow its address to be taken again at once after a restart", which `create_server` does; HA-M-63 "MUST ask
    the system to keep 1,024 connects until it accepts them".
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        where = f"{option}: " if option else ""
        raise ConfigInvalid(f"{where}cannot listen on {format_address(host, port)}: {reason(error)}") from error


class Accepted(NamedTuple):
    """A new connection, non-blocking and counted by the limiter. host: the peer's address. peer: address and port."""

    sock: socket.socket
    host: str
    peer: str
    has_tls: bool


class Listeners:
    """Accepts connections, as many as the limiter allows."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        plain: socket.socket | None,
        tls: socket.socket | None,
        limiter: ConnectionLimiter,
        peers: PeerLog,
        data: object = None,
    ) -> None:
        """Take over the sockets. plain, tls: at least one of them. data: what the selector gives with them."""
        self._plain, self._tls = plain, tls
        self._sockets = [sock for sock in (plain, tls) if sock is not None]
        self._selector, self._limiter, self._peers, self._data = selector, limiter, peers, data
        self._accepts_again_ms: int | None = None  # while the system has no descriptors
        for sock in self._sockets:
            sock.setblocking(False)  # HA-M-15 "The listening socket MUST be non-blocking"
            selector.register(sock, selectors.EVENT_READ, data)

    @property
    def address(self) -> tuple[str, int]:
        """The address of the plain port if there is one, else of the port for TLS."""
        return _address_of(self._sockets[0])

    @property
    def plain_address(self) -> tuple[str, int] | None:
        return _address_of(self._plain) if self._plain else None

    @property
    def tls_address(self) -> tuple[str, int] | None:
        return _address_of(self._tls) if self._tls else None

    @property
    def is_accepting(self) -> bool:
        """False while the system has no descriptor for a new connection."""
        return self._accepts_again_ms is None

    def accept(self, listener: socket.socket, now_ms: int) -> Iterator[Accepted]:
        """Accept what waits at one of the sockets. HA-M-54 "MUST accept no more than 16 connections".

        Spec: HA-M-75 "MUST hold on both ports together": both ports share one limiter.
        """
        if self._accepts_again_ms is not None:  # the other socket met the lack of descriptors in this turn
            return
        for _ in range(ACCEPTS_TURN // len(self._sockets)):
            try:
                sock, address = listener.accept()
            except OSError as error:  # nothing waits, the peer has gone again, or there are no descriptors left
                if error.errno in NO_ROOM:
                    self._pause(now_ms, error)
                return  # HA-M-20 "MUST NOT touch the other connections, nor end the service"
            host, peer = address[0], format_address(*address[:2])
            if refusal := self._limiter.refusal(host):
                sock.close()
                self._peers.write(now_ms, logging.WARNING, "%s: refused: %s", peer, refusal, peer=peer, reason=refusal)
                continue
            # HA-M-17 "MUST be non-blocking, with TCP_NODELAY set and without lingering on close": a socket does not linger by
            # default.
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # some systems refuse this if the peer has gone already
                sock.close()
                self._limiter.release(host)
                continue
            yield Accepted(sock, host, peer, listener is self._tls)

    def _pause(self, now_ms: int, error: OSError) -> None:
        """HA-M-58 "MUST NOT ask its listening socket again before 100 ms have passed": it stays readable all the while."""
        for listener in self._sockets:
            self._selector.unregister(listener)
        self._accepts_again_ms = now_ms + NO_DESCRIPTORS_MS
        self._peers.write(now_ms, logging.WARNING, "cannot accept: %s", error.strerror, reason=error.strerror)

    def on_tick(self, now_ms: int) -> None:
        """Accept again when the pause is over."""
        if self._accepts_again_ms is not None and now_ms >= self._accepts_again_ms:
            self._accepts_again_ms = None
            for listener in self._sockets:
                self._selector.register(listener, selectors.EVENT_READ, self._data)

    def close(self) -> None:
        for listener in self._sockets:
            listener.close()


def _address_of(listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()[:2]
    return host, port
