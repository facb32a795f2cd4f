"""The client: one connection to each address, made when it is needed, in the loop of `Connections`.

The other end may send requests of its own over the connection (NOTIFY_CONSUMER_IDS_CHANGED); they go to `handlers`.
"""

import errno
import logging
import selectors
import socket
from typing import Final

from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid, PeerViolation, RequestFailed
from rocketmq_ha.impl.net.address import parse_address, reason
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.client_tls import RemotingClientTls
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.remoting.connection import Connection
from rocketmq_ha.impl.remoting.connections import BROKEN, END_OF_STREAM, Connections
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.resolver import Found, Resolver
from rocketmq_ha.impl.remoting.waiting_answers import OnAnswer
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX

CONNECT_MS: Final = 3_000  # as RocketMQ's connectTimeoutMillis
SILENT_MS: Final = 3_000  # a connection that was silent for so long when a request gets no answer in time is given up
_UNDER_WAY: Final = (errno.EINPROGRESS, errno.EWOULDBLOCK)

log = logging.getLogger(__name__)


class RemotingClient(Connections):
    """Sends requests, and tells whoever asked: exactly once, by the answer or by RequestFailed. HA-RM-16."""

    def __init__(self, limits: RemotingLimits | None = None, tls: RemotingClientTls | None = None) -> None:
        """tls: None for none."""
        super().__init__(limits or RemotingLimits(), log, REMOTING_FRAME_MAX)
        self._tls = tls
        self._by_address: dict[str, Connection] = {}
        self._connecting: dict[Connection, int] = {}  # until when a connect may last
        self._links = 0  # connections so far
        self._failed: list[tuple[Connection, str]] = []  # no connection was to be had, and why
        self._resolver = Resolver()
        self.wake_by(self._resolver.waker)

    def invoke(self, address: str, command: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None:
        """Ask. Never waits. The command gets a new opaque, so that it may be sent again.

        Args:  address: HOST:PORT. deadline_ms: by `clock_ms`. on_answer: called from within a turn; at once only where the
        peer has left 8 MiB of requests unread. Raises: ConfigInvalid for an address that is none; FrameInvalid.
        """
        self._channel(address).invoke(command, deadline_ms, on_answer)

    def send(self, address: str, command: RemotingCommand) -> None:
        """Send a oneway request: nobody learns whether it arrives. Raises: as `invoke`."""
        self._channel(address).send(command)

    def ask(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Ask, and run the loop until there is an answer. Raises: RequestFailed; as `invoke`."""
        told: list[RemotingCommand | RequestFailed] = []
        self.invoke(address, command, clock_ms() + timeout_ms, told.append)
        while not told:
            self.poll(timeout_ms)
        if isinstance(told[0], RequestFailed):
            raise told[0]
        return told[0]

    def link(self, address: str) -> int:
        """The number of the connection to an address, which no other connection has or will have; 0 if there is none."""
        connection = self._by_address.get(address)
        return 0 if connection is None else connection.number

    def disconnect(self, address: str) -> None:
        """Close the connection to an address, if there is one; its requests fail."""
        if (connection := self._by_address.get(address)) is not None:
            self._drop(connection, "this end has closed it")

    # --- Connecting --------------------------------------------------------------------------------------------------

    def _channel(self, address: str) -> Channel:
        """The connection to an address; where there is none, it begins."""
        connection = self._by_address.get(address)
        if connection is None:
            host, port = parse_address(address)
            now_ms = clock_ms()
            channel = Channel((host, port), address, self.limits, self._totals, self._on_output, now_ms)
            connection = Connection(channel, None, host)
            self._links += 1
            connection.number = self._links
            self._connections[channel] = self._by_address[address] = connection
            self._connecting[connection] = now_ms + CONNECT_MS
            self._resolver.resolve(host, port, lambda found: self._connect(connection, found))
        return connection.channel

    def _connect(self, connection: Connection, found: Found) -> None:
        """The address is known: begin to connect, without waiting for it."""
        if not connection.channel.is_open:
            return
        if isinstance(found, str):
            self._fail(connection, found)
            return
        family, address = found
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._fail(connection, reason(error))
            return
        connection.sock = sock
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(address)
        if code not in (0, *_UNDER_WAY):
            self._fail(connection, reason(OSError(code, "")))
            return
        connection.watch_for(self._selector, selectors.EVENT_WRITE)

    def _fail(self, connection: Connection, why: str) -> None:
        """There is no connection to be had. Whoever asks is told in the next turn, never from within `invoke`."""
        self._failed.append((connection, f"cannot connect: {why}"))
        self._waker.wake()

    def _on_writable(self, connection: Connection) -> None:
        """The first time, the connect has ended, well or not."""
        if connection in self._connecting:
            assert connection.sock is not None
            if code := connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._drop(connection, f"cannot connect: {reason(OSError(code, ''))}")
                return
            del self._connecting[connection]
            connection.is_connected = True
            if self._tls is not None:
                try:
                    connection.tls = self._tls.wrap(connection.sock, connection.channel.peer, connection.host)
                except PeerViolation as violation:
                    self._drop(connection, f"found {violation.found}, expected {violation.expected}")
                    return
                except (ConfigInvalid, OSError) as error:
                    self._drop(connection, f"cannot begin TLS: {error}")
                    return
        super()._on_writable(connection)

    def _begin(self, connection: Connection) -> bool:
        """Look at the first byte. A server that demands TLS closes the connection of one that comes without it."""
        if connection.tls is None:
            assert connection.sock is not None
            try:
                is_served = bool(connection.sock.recv(1, socket.MSG_PEEK))
            except ConnectionResetError:
                is_served = False
            if not is_served:
                self._drop(connection, "it ended before any answer: it may demand TLS, or refuse us")
                return False
        return super()._begin(connection)

    # --- Time and ends -----------------------------------------------------------------------------------------------

    def _take_ready(self, timeout_s: float) -> None:
        super()._take_ready(timeout_s)
        self._resolver.take()

    def _serve(self, now_ms: int) -> None:
        failed, self._failed = self._failed, []
        for connection, why in failed:
            self._drop(connection, why)
        super()._serve(now_ms)

    def _tick(self, now_ms: int) -> None:
        super()._tick(now_ms)
        for connection in [late for late, until_ms in self._connecting.items() if now_ms >= until_ms]:
            self._drop(connection, f"cannot connect: no answer within {CONNECT_MS} ms")

    def _on_late(self, connection: Connection, late: int, now_ms: int) -> None:
        """HA-RM-30 "MUST close its connection if nothing has come over it for 3 s": its peer may be gone without a word."""
        if late and now_ms - connection.channel.heard_ms >= SILENT_MS:
            self._drop(connection, f"silent for {SILENT_MS} ms")

    def _close(self, connection: Connection, why: str, reason: str) -> None:
        """Without a log line: each of its requests fails with the reason."""
        del reason
        self._drop(connection, why)

    def _drop(self, connection: Connection, reason: str) -> None:
        if connection.is_shaking_hands and reason in (BROKEN, END_OF_STREAM):
            reason += " in the TLS handshake: it may have no TLS, or refuse us"
        self._connecting.pop(connection, None)
        if self._by_address.get(connection.channel.peer) is connection:
            del self._by_address[connection.channel.peer]
        super()._drop(connection, reason)

    def close(self) -> None:
        """Close all connections; requests without an answer fail."""
        super().close()
        self._resolver.close()
