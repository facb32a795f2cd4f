"""The server: its listening sockets, and who may connect to them. The loop is that of `Connections`."""

import logging
import socket
from collections.abc import Iterable
from typing import Final

from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.limits import LOOPBACK, ConnectionLimiter, Network, fit_descriptors
from rocketmq_ha.impl.net.listeners import Accepted, Listeners
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.connection import Connection
from rocketmq_ha.impl.remoting.connections import Connections
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.tls import FIRST_BYTE, RemotingTls, refusal

log = logging.getLogger(__name__)


class _Door:
    """A listening socket in the loop: a select notes that connections wait there, and a turn accepts them."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock: Final = sock
        self.is_waited_at = False

    def on_readable(self) -> None:
        self.is_waited_at = True


class RemotingServer(Connections):
    """Serves requests by the handlers of `handlers`: handler(channel, request, now_ms) -> answer, or None.

    on_close: called with each channel that has ended, from within `turn`.
    """

    def __init__(
        self, listeners: Iterable[socket.socket], limits: RemotingLimits | None = None, tls: RemotingTls | None = None
    ) -> None:
        """Serve on listening sockets (`impl.net.listeners.listen`), which become the server's own: the limits hold on all
        of them together. tls: None for none.
        """
        super().__init__(limits or RemotingLimits(), log)
        self._tls = tls
        self.limiter: Final = ConnectionLimiter(fit_descriptors(self.limits.connections))
        self._listeners: dict[_Door, Listeners] = {}
        for sock in listeners:
            door = _Door(sock)
            self._listeners[door] = Listeners(self._selector, sock, None, self.limiter, self._peers, door)
            self._warn_of_loopback(sock)
        self.accepted_connections = 0

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens, in the order of the sockets; the ports are the real ones, never 0."""
        return [listeners.address for listeners in self._listeners.values()]

    @property
    def is_accepting(self) -> bool:
        """False while the system has no descriptor for a new connection."""
        return all(listeners.is_accepting for listeners in self._listeners.values())

    def _serve(self, now_ms: int) -> None:
        for door, listeners in self._listeners.items():
            if door.is_waited_at:
                door.is_waited_at = False
                self._accept(listeners.accept(door.sock, now_ms), now_ms)
        super()._serve(now_ms)

    def _accept(self, accepted: Iterable[Accepted], now_ms: int) -> None:
        for sock, host, peer, _ in accepted:
            port = int(peer.rpartition(":")[2])
            channel = Channel((host, port), peer, self.limits, self._totals, self._on_output, now_ms)
            connection = self._connections[channel] = Connection(channel, sock, host)
            self.accepted_connections += 1
            self._watch(connection)
            self._peers.write(now_ms, logging.DEBUG, "%s: connected", peer, peer=peer)

    def _begin(self, connection: Connection) -> bool:
        """Look at the first byte, which stays where it is. HA-RM-19 "a connection whose first byte is 0x16 MUST be served with
        TLS, and every other without it, on the same port".
        """
        sock, channel = connection.sock, connection.channel
        assert sock is not None
        first = sock.recv(1, socket.MSG_PEEK)
        if first and (why := refusal(self._tls, first[0])):
            self._close(connection, why, "tls")
            return False
        if first and first[0] == FIRST_BYTE:
            assert self._tls is not None
            connection.tls = self._tls.wrap(sock, channel.peer)
        return super()._begin(connection)

    def _tick(self, now_ms: int) -> None:
        for listeners in self._listeners.values():
            listeners.on_tick(now_ms)
        super()._tick(now_ms)

    def allow(self, networks: tuple[Network, ...] | None) -> None:
        """Let these networks connect from now on, and close the connections of the others. HA-M-80."""
        self.limiter.allow(networks)
        for connection in list(self._connections.values()):
            if not self.limiter.admits(connection.host):
                self._drop(connection, "allow")

    def drop(self, channel: Channel, reason: str) -> None:
        """Close a connection that a handler's table gives up. `on_close` is called in this turn, or in the next."""
        connection = self._connections.get(channel)
        if connection is not None:
            self._drop(connection, reason)

    def _drop(self, connection: Connection, reason: str) -> None:
        if connection.channel.is_open:
            self.limiter.release(connection.host)
        super()._drop(connection, reason)

    def close(self) -> None:
        """Send what the sockets take at once, then close all of them. Nobody is told of the ends."""
        super().close()
        for listeners in self._listeners.values():
            listeners.close()

    def _warn_of_loopback(self, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        if self.limits.connections.allow == LOOPBACK and not self.limiter.admits(host):
            log.warning(
                "listening on %s, and only loopback addresses may connect: --allow NETWORK says who else may",
                format_address(host, port),
            )
