"""Inputs of a hostile master: what it sends to a slave with a correct log, which returns to an honest master afterwards.

An input is a function of the accepted socket and the slave's first report. When it returns, the socket is closed. It raises
Unexpected if the slave does not do what it must.
"""

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hostile_stand import FILE_SIZE, FRAME_DEADLINE_S, PATIENCE_S, Unexpected

from kit.waiting import await_end
from rocketmq_ha.impl.wire.frame import HEADER, REPORT

GREATEST: Final = (1 << 63) - 1
NO_LINGER: Final = struct.pack("ii", 1, 0)
BUFFER: Final = 4 * 1024 * 1024


@dataclass(frozen=True)
class Connection:
    """A slave's connection to a hostile master."""

    sock: socket.socket
    report: int  # its first report


Input = Callable[[Connection], None]


@dataclass(frozen=True)
class HostileMaster:
    """An input and its expected outcome.

    connections: the number it needs. appends: it sends bytes that a slave cannot distinguish from a log's. Then the slave is
    killed and restarted before the honest master returns, and recovery cuts these bytes off. empty: the slave has no log yet,
    and its memory is that of a new process.
    """

    name: str
    run: Input
    connections: int = 1
    appends: bool = False
    empty: bool = False


def closes(sock: socket.socket, patience_s: float = PATIENCE_S) -> None:
    """Read reports until the slave closes the connection. Raises: Unexpected, if it does not."""
    sock.settimeout(patience_s)
    try:
        while sock.recv(1 << 16):
            pass
    except TimeoutError:
        raise Unexpected(f"the slave is still connected after {patience_s:.0f} s") from None
    except ConnectionError:
        pass


def _sends(data: Callable[[int], bytes]) -> Input:
    """Send bytes computed from the slave's report; it must close."""

    def run(slave: Connection) -> None:
        with contextlib.suppress(ConnectionError):
            slave.sock.sendall(data(slave.report))
        closes(slave.sock)

    return run


def _frame(offset: int, size: int, body: bytes = b"") -> bytes:
    return struct.pack(">qi", offset, size) + body


def _dribbles(data: Callable[[int], bytes]) -> Input:
    """Send a frame byte by byte, too slowly for the frame deadline; the slave must close."""

    def run(slave: Connection) -> None:
        stream, until = data(slave.report), time.monotonic() + FRAME_DEADLINE_S + PATIENCE_S
        slave.sock.settimeout(FRAME_DEADLINE_S / 8)
        for byte in stream:
            try:
                slave.sock.sendall(bytes((byte,)))
                while slave.sock.recv(1 << 16):
                    pass
                return
            except TimeoutError:
                if time.monotonic() > until:
                    break
            except ConnectionError:
                return
        raise Unexpected("the slave is still connected")

    return run


def _ends(data: Callable[[int], bytes], *, reset: bool = False) -> Input:
    """Send bytes, then close."""

    def run(slave: Connection) -> None:
        if reset:
            slave.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        with contextlib.suppress(ConnectionError):
            slave.sock.sendall(data(slave.report))

    return run


def _silence(slave: Connection) -> None:
    closes(slave.sock, 60)


def _heartbeats(seconds: float) -> Input:
    """Flood the slave with valid heartbeats. The slave reports and goes on."""

    def run(slave: Connection) -> None:
        slave.sock.setblocking(False)
        beats, at = memoryview(_frame(slave.report, 0) * 4096), 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                at = (at + slave.sock.send(beats[at:])) % len(beats)
            except BlockingIOError:
                time.sleep(0.001)
            except ConnectionError:
                raise Unexpected("the slave closes over honest heartbeats") from None

    return run


def _early(slave: Connection) -> None:
    """Send before reading the report: a frame with a wrong offset still closes the connection."""
    _sends(lambda _: _frame(0, 8, bytes(8)))(slave)


_LAST: Final = (1 << 63) - FILE_SIZE
_NOISE: Final = random.Random(23).randbytes(1 << 20)

INPUTS: Final = (
    HostileMaster("body size -1 (quirk 20)", _sends(lambda at: _frame(at, -1))),
    HostileMaster("body size -12 (quirk 20)", _sends(lambda at: _frame(at, -12))),
    HostileMaster("body size -100 (quirk 21)", _sends(lambda at: _frame(at, -100))),
    HostileMaster("the least body size", _sends(lambda at: _frame(at, -(1 << 31)))),
    HostileMaster("body size 2^31 - 1 (quirk 22)", _sends(lambda at: _frame(at, (1 << 31) - 1))),
    HostileMaster("body size 2^31 - 12 (quirk 22)", _sends(lambda at: _frame(at, (1 << 31) - 12))),
    HostileMaster("body size 1 GiB", _sends(lambda at: _frame(at, 1 << 30, bytes(1 << 20)))),
    HostileMaster("a body that just does not fit (quirk 23)", _sends(lambda at: _frame(at, BUFFER - 11, bytes(BUFFER - 11)))),
    HostileMaster("a gap of one byte", _sends(lambda at: _frame(at + 1, 4, b"gaps"))),
    HostileMaster("a gap of a gigabyte", _sends(lambda at: _frame(at + (1 << 30), 4, b"gaps"))),
    HostileMaster("an overlap of one byte", _sends(lambda at: _frame(at - 1, 4, b"over"))),
    HostileMaster("the log from its start", _sends(lambda _: _frame(0, 8, bytes(8)))),
    HostileMaster("offset -1", _sends(lambda _: _frame(-1, 8, bytes(8)))),
    HostileMaster("the greatest offset", _sends(lambda _: _frame(GREATEST, 8, bytes(8)))),
    HostileMaster("the least offset", _sends(lambda _: _frame(-(1 << 63), 8, bytes(8)))),
    HostileMaster("a heartbeat of another offset", _sends(lambda at: _frame(at + 100, 0))),
    HostileMaster("good heartbeats and then a bad one", _sends(lambda at: _frame(at, 0) * 1000 + _frame(at, -1))),
    HostileMaster("a frame before any report", _early),
    HostileMaster("a MiB of noise", _sends(lambda _: _NOISE)),
    HostileMaster("an HTTP answer", _sends(lambda _: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")),
    HostileMaster("a TLS alert, and silence", _sends(lambda _: bytes.fromhex("15030300020246"))),
    HostileMaster("a header byte by byte", _dribbles(lambda at: _frame(at, 100) + bytes(100))),
    HostileMaster("a body byte by byte", _dribbles(lambda at: _frame(at, 100, bytes(100))[:11] + bytes(101))),
    HostileMaster("the largest body, but for its last byte", _sends(lambda at: _frame(at, BUFFER - 12, bytes(BUFFER - 13)))),
    HostileMaster("silence", _silence),
    HostileMaster("heartbeats without end", _heartbeats(2.0)),
    HostileMaster("closed at once, ten times", _ends(lambda _: b""), connections=10),
    HostileMaster("reset at once, ten times", _ends(lambda _: b"", reset=True), connections=10),
    HostileMaster("closed within a header, five times", _ends(lambda at: _frame(at, 100)[:7]), connections=5),
    HostileMaster("closed within a body, five times", _ends(lambda at: _frame(at, 100, bytes(99))), connections=5),
    HostileMaster("reset within a body, five times", _ends(lambda at: _frame(at, 100, bytes(99)), reset=True), connections=5),
    HostileMaster("a greeting and the end, eight times", _ends(lambda at: _frame(at, 0)), connections=8),
    HostileMaster("a body of noise", _ends(lambda at: _frame(at, 5000, _NOISE[:5000])), appends=True),
    HostileMaster("a body of zeros", _ends(lambda at: _frame(at, 5000, bytes(5000))), appends=True),
    HostileMaster("to an empty slave: the last offsets there are", _sends(lambda _: _frame(_LAST, 9, bytes(9))), empty=True),
    HostileMaster(
        "to an empty slave: an offset within a file (quirk 18)", _sends(lambda _: _frame(50, 9, bytes(9))), empty=True
    ),
    HostileMaster("to an empty slave: a negative heartbeat (quirk 24)", _sends(lambda _: _frame(-5, 0)), empty=True),
    HostileMaster("to an empty slave: a heartbeat, and the end (quirk 17)", _ends(lambda _: _frame(0, 0)), empty=True),
    HostileMaster("half a record", _ends(lambda at: _frame(at, 50, _NOISE[:50])), appends=True),
)


class Front:
    """The address to which a slave connects: it relays to the honest master, plays the hostile one, or refuses."""

    def __init__(self, honest: tuple[str, int]) -> None:
        self._honest = honest
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self.address: tuple[str, int] = self._listener.getsockname()
        self._input: HostileMaster | None = None
        self._open = True  # relay to the honest master
        self._relays: list[socket.socket] = []
        self.served = 0  # connections that the hostile master served
        self.problem: str | None = None
        self.attacked = threading.Event()
        self._done = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def attack(self, given: HostileMaster) -> None:
        """Cut the honest connection; the next connections get the input. `attacked` is set when it has ended."""
        self.attacked.clear()
        self._input, self.served = given, 0
        self._open = False
        self.cut()

    def cut(self) -> None:
        relays, self._relays = self._relays, []
        for sock in relays:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Relay to the honest master again."""
        self._open = True

    def close(self) -> None:
        self._done = True
        await_end(self._thread)
        self.cut()
        self._listener.close()

    def _run(self) -> None:
        while not self._done:
            try:
                sock, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self._input is not None:
                self._attack(sock, self._input)
            elif self._open:
                self._relay(sock)
            else:
                sock.close()

    def _attack(self, sock: socket.socket, given: HostileMaster) -> None:
        with sock:
            sock.settimeout(PATIENCE_S)
            report = b""
            try:
                while len(report) < REPORT.size:
                    part = sock.recv(REPORT.size - len(report))
                    if not part:
                        raise Unexpected("the slave connects and does not report")
                    report += part
                given.run(Connection(sock, REPORT.unpack(report)[0]))
            except ConnectionResetError as error:
                if not report:  # the slave was killed before its connection was accepted
                    return
                self.problem = str(error)
            except (OSError, Unexpected) as error:
                self.problem = str(error)
        self.served += 1
        if self.served >= given.connections or self.problem:
            self._input = None
            self.attacked.set()

    def _relay(self, sock: socket.socket) -> None:
        try:
            upstream = socket.create_connection(self._honest, PATIENCE_S)
        except OSError:
            sock.close()
            return
        sock.settimeout(None)
        upstream.settimeout(None)
        self._relays += [sock, upstream]
        for source, sink in ((sock, upstream), (upstream, sock)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for sock in (source, sink):
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


assert FILE_SIZE % BUFFER == 0
assert HEADER.size == 12
