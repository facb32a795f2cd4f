"""A remoting server over loopback that the test turns at a time of its own, bare clients, and a channel without a socket."""

import select
import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.remoting.channel import Channel, Totals
from rocketmq_ha.impl.remoting.command import RemotingCommand, decode, encode_whole
from rocketmq_ha.impl.remoting.frames import FrameReader
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.server import RemotingServer
from rocketmq_ha.impl.remoting.tls import RemotingTls

STEP_MS = 500


class Client:
    """A bare client: a socket, and what it has received."""

    def __init__(self, sock: socket.socket, turn: Callable[[], object]) -> None:
        self.sock, self._turn = sock, turn
        self._reader = FrameReader()
        self.received: list[RemotingCommand] = []
        self.is_closed = False
        sock.setblocking(False)

    def send(self, *commands: RemotingCommand) -> None:
        self.send_bytes(b"".join(map(encode_whole, commands)))

    def send_bytes(self, data: bytes) -> None:
        view = memoryview(data)

        def push() -> bool:
            nonlocal view
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                pass
            except OSError:  # the server has closed: `read` will show it
                return True
            return not view

        wait_for(push, self._turn)

    def read(self) -> None:
        """Take what has come."""
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            self.is_closed = True
            return
        self.is_closed |= not data
        self.received += map(decode, self._reader.feed(data))

    def await_answers(self, count: int) -> list[RemotingCommand]:
        """Turn the server until there are `count` answers more. Returns: these."""

        def come() -> bool:
            self.read()
            return len(self.received) >= count

        wait_for(come, self._turn)
        found, self.received = self.received[:count], self.received[count:]
        return found

    def ask(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        return self.await_answers(1)[0]

    def await_close(self) -> None:
        """Turn the server until it has closed the connection."""

        def closed() -> bool:
            self.read()
            return self.is_closed

        wait_for(closed, self._turn)


class Stand:
    """A server, and its clients."""

    def __init__(
        self,
        resources: ExitStack,
        limits: RemotingLimits | None = None,
        listeners: int = 1,
        tls: RemotingTls | None = None,
    ) -> None:
        self._resources = resources
        # The time of the server. It passes in waits, `pass_time` and `pause` alone, however slow the machine is.
        self.now_ms = clock_ms()
        self.server = RemotingServer([listen("127.0.0.1", 0) for _ in range(listeners)], limits, tls)
        resources.callback(self.server.close)

    def turn(self, wait_ms: int = 5) -> None:
        """A turn of the server at its own time, after a short wait for something to do."""
        began_ms = clock_ms()
        select.select([self.server], [], [], wait_ms / 1000)
        self.now_ms += min(wait_ms, clock_ms() - began_ms)
        self.server.on_readable()
        self.server.turn(self.now_ms)

    def turns(self, count: int = 20) -> None:
        """Some turns almost without waiting: enough for all that is under way over loopback."""
        for _ in range(count):
            self.turn(1)

    def has_event(self) -> bool:
        """Whether a loop that holds the server's is woken by it."""
        return bool(select.select([self.server], [], [], 0)[0])

    def await_bytes(self, client: Client) -> None:
        """Wait without a turn until the system has bytes of a client for the server."""
        address = client.sock.getsockname()[:2]
        [sock] = [each.sock for each in self.server._connections.values() if each.channel.address == address]
        assert sock is not None
        assert select.select([sock], [], [], PATIENCE_S)[0]

    def pass_time(self, ms: int) -> None:
        """Let time pass for the server, which looks at the clock all the while: no pause of the process."""
        for _ in range(-(-ms // STEP_MS)):
            self.now_ms += STEP_MS
            self.turn(0)

    def pause(self, ms: int) -> None:
        """Let the process stand still for so long: the next turn comes after it."""
        self.now_ms += ms

    def connect(self, listener: int = 0, source: str = "127.0.0.1") -> Client:
        """Connect, without a wait for the server's accept."""
        address = self.server.addresses[listener]
        sock = socket.create_connection(address, timeout=PATIENCE_S, source_address=(source, 0))
        self._resources.callback(sock.close)
        return Client(sock, self.turn)


def _keep(channel: Channel) -> None:
    assert isinstance(channel, Quiet)
    data = b"".join(channel.out)
    channel.on_sent(len(data), channel.active_ms)
    channel.sent += frames([data])


class Quiet(Channel):
    """A channel without a socket, for handlers: `sent` has what was answered and sent over it."""

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 4711), limits: RemotingLimits | None = None) -> None:
        super().__init__(address, f"{address[0]}:{address[1]}", limits or RemotingLimits(), Totals(), _keep, 0)
        self.sent: list[RemotingCommand] = []

    def ask(
        self,
        handler: Callable[[Channel, RemotingCommand, int], RemotingCommand | None],
        request: RemotingCommand,
        now_ms: int = 0,
    ) -> RemotingCommand | None:
        """Call a handler as the server does. Returns: what it has answered at once."""
        self.on_request(request)
        answer = handler(self, request, now_ms)
        if answer is not None:
            self.answer(answer)
            return self.sent.pop()
        return None


def frames(data: Iterable[bytes]) -> list[RemotingCommand]:
    """The commands of a stream in pieces."""
    reader = FrameReader()
    return [decode(frame) for piece in data for frame in reader.feed(piece)]
