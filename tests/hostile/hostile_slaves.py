"""Inputs of hostile slaves and other clients to a master. Each input is repeated for about a second.

An input is a function of a Port. It raises Unexpected if the master does not do what it must.
"""

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from hostile_stand import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    PATIENCE_S,
    REPORT_DEADLINE_S,
    WRITE_STALL_DEADLINE_S,
    Stand,
    Unexpected,
)

from rocketmq_ha.impl.wire.frame import HEADER, REPORT

SECONDS: Final = 1.0
PAUSE_S: Final = 0.005
GREATEST: Final = (1 << 63) - 1
NO_LINGER: Final = struct.pack("ii", 1, 0)


class Port:
    """The master's port, for a client with one hostile address."""

    def __init__(self, stand: Stand, host: str) -> None:
        self._address, self.tls_address = stand.address, stand.tls_address
        self.host, self.master, self.certs = host, stand.master, stand.certs
        self.connections = 0  # most connections open at a time
        self.uses_tls = False

    def connect_tls(self, receive_buffer: int = 0) -> socket.socket:
        """Connect to the TLS port, without a handshake yet."""
        self.uses_tls = True
        return self.connect("", receive_buffer, self.tls_address)

    def connect(self, host: str = "", receive_buffer: int = 0, address: tuple[str, int] | None = None) -> socket.socket:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(PATIENCE_S)
        sock.bind((host or self.host, 0))
        sock.connect(address or self._address)
        self.connections = max(self.connections, 1)
        return sock


Input = Callable[[Port], None]
INPUTS: Final[dict[str, Input]] = {}


def hostile(name: str) -> Callable[[Input], Input]:
    def register(given: Input) -> Input:
        assert name not in INPUTS
        INPUTS[name] = given
        return given

    return register


def read_to_the_end(sock: socket.socket, most: int = 1 << 30) -> bytes:
    """Read until the master closes the connection. Raises: Unexpected, if it does not."""
    data = bytearray()
    try:
        while part := sock.recv(1 << 16):
            data += part
            if len(data) > most:
                raise Unexpected(f"{len(data)} bytes come, and no end")
    except TimeoutError:
        raise Unexpected(f"the connection is still open after {PATIENCE_S:.0f} s; it sent {len(data)} bytes") from None
    except ConnectionError:
        pass
    return bytes(data)


def exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise Unexpected(f"the connection ends after {len(data)} bytes of {size}")
        data += part
    return bytes(data)


def must_be_served(port: Port, sock: socket.socket, offset: int) -> int:
    """Read a frame, which must equal the log. Returns: its end offset."""
    told, size = HEADER.unpack(exactly(sock, HEADER.size))
    body = exactly(sock, size)
    if told != offset or body != port.master.log_bytes(offset, size):
        raise Unexpected(f"a frame of offset {told} and size {size} is not the log's at {offset}")
    return int(offset + size)


def send(sock: socket.socket, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the master may have closed already
        sock.sendall(data)


def again_and_again(once: Callable[[], None]) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        once()
        time.sleep(PAUSE_S)


# --- Bytes that close a connection: nothing may be sent in answer ------------------------------------------------------

_NOISE: Final = random.Random(17)


def _reports(*offsets: int) -> bytes:
    return b"".join(map(REPORT.pack, offsets))


CLOSED_AT_ONCE: Final = {
    "first report -1": _reports(-1),
    "first report -5 (quirk 4)": _reports(-5),
    "first report the least i64": _reports(-(1 << 63)),
    "first report the greatest i64 (quirk 1)": _reports(GREATEST),
    "first report 2^62": _reports(1 << 62),
    "first report a terabyte beyond the log": _reports(1 << 40),
    "first report 2^32": _reports(1 << 32),
    "a good report and a forged one in one write": _reports(0, 1 << 40),
    "a hundred good reports and the greatest": _reports(*[0] * 100, GREATEST),
    "a good report and a negative one": _reports(0, -1),
    "a misaligned stream": bytes(3) + _reports(8, 8, 8, 8),
    "an HTTP probe": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an HTTP probe in one line": b"HEAD / HTTP/1.0\r\n\r\n",
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(range(256)),
    "an SSH banner": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a Redis command": b"*1\r\n$4\r\nPING\r\n",
    "a remoting command of RocketMQ": bytes.fromhex("0000006c00000068") + b'{"code":26,"language":"JAVA","version":399}',
    "a proxy's header": b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
    "64 KiB of noise": _NOISE.randbytes(1 << 16),
    "1 MiB of ones": b"\xff" * (1 << 20),
}


def _closes(data: bytes) -> Input:
    def run(port: Port) -> None:
        def once() -> None:
            with port.connect() as sock:
                send(sock, data)
                # The master answers a correct first report with the log before it reads what follows.
                read_to_the_end(sock)

        again_and_again(once)

    return run


for _name, _data in CLOSED_AT_ONCE.items():
    INPUTS[_name] = _closes(_data)


# --- Forged acknowledgements --------------------------------------------------------------------------------------------


def _forges(forged: Callable[[int], int]) -> Input:
    """Read one frame correctly, then report `forged(end of the frame)`."""

    def run(port: Port) -> None:
        def once() -> None:
            with port.connect() as sock:
                send(sock, _reports(1))
                end = must_be_served(port, sock, 1)
                send(sock, _reports(forged(end)))
                read_to_the_end(sock)

        again_and_again(once)

    return run


INPUTS["an ack of everything that will ever be"] = _forges(lambda _: GREATEST)
INPUTS["an ack of a gigabyte more than was sent"] = _forges(lambda end: end + (1 << 30))
INPUTS["an ack less than the one before"] = _forges(lambda _: 0)
INPUTS["a negative ack"] = _forges(lambda end: -end)


# --- Clients that stay silent, or never complete a report ----------------------------------------------------------------


def _is_closed_in_time(sock: socket.socket) -> None:
    if data := read_to_the_end(sock):
        raise Unexpected(f"{len(data)} bytes are sent to somebody who has not reported")


@hostile("a socket that never reports (quirk 3)")
def _(port: Port) -> None:
    with port.connect() as sock:
        _is_closed_in_time(sock)


@hostile("seven bytes of a report, and silence")
def _(port: Port) -> None:
    with port.connect() as sock:
        send(sock, bytes(7))
        _is_closed_in_time(sock)


@hostile("seven bytes, one at a time, until the deadline")
def _(port: Port) -> None:
    with port.connect() as sock:
        for _ in range(7):
            send(sock, b"\0")
            time.sleep(REPORT_DEADLINE_S / 8)
        _is_closed_in_time(sock)


@hostile("six bytes of a probe, and silence")
def _(port: Port) -> None:
    with port.connect() as sock:
        send(sock, b"PING\r\n")
        _is_closed_in_time(sock)


@hostile("all the connections of an address, held without a word")
def _(port: Port) -> None:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(port.connect()) for _ in range(4 * MAX_CONNECTIONS_PER_ADDRESS)]
        port.connections = MAX_CONNECTIONS_PER_ADDRESS
        for sock in socks:
            _is_closed_in_time(sock)


@hostile("all the connections there are, held from many addresses")
def _(port: Port) -> None:
    hosts = [f"127.1.0.{number}" for number in range(1, 9)]
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(port.connect(hosts[n % 8])) for n in range(3 * MAX_CONNECTIONS)]
        port.connections = MAX_CONNECTIONS
        for sock in socks:
            _is_closed_in_time(sock)


@hostile("a stranger")
def _(port: Port) -> None:
    def once() -> None:
        with port.connect("127.200.0.1") as sock:
            send(sock, _reports(0))
            _is_closed_in_time(sock)

    again_and_again(once)


# --- Clients that end the connection abnormally ---------------------------------------------------------------------------


@hostile("half-closed at once")
def _(port: Port) -> None:
    def once() -> None:
        with port.connect() as sock:
            sock.shutdown(socket.SHUT_WR)
            _is_closed_in_time(sock)

    again_and_again(once)


@hostile("half-closed within a report")
def _(port: Port) -> None:
    def once() -> None:
        with port.connect() as sock:
            send(sock, bytes(5))
            sock.shutdown(socket.SHUT_WR)
            _is_closed_in_time(sock)

    again_and_again(once)


@hostile("half-closed after a report")
def _(port: Port) -> None:
    def once() -> None:
        with port.connect() as sock:
            send(sock, _reports(0))
            sock.shutdown(socket.SHUT_WR)
            read_to_the_end(sock)

    again_and_again(once)


@hostile("reset at once")
def _(port: Port) -> None:
    def once() -> None:
        with port.connect() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)

    again_and_again(once)


@hostile("reset in the middle of a frame")
def _(port: Port) -> None:
    def once() -> None:
        with port.connect(receive_buffer=4096) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            send(sock, _reports(0))
            exactly(sock, 100)

    again_and_again(once)


@hostile("an urgent byte in a report")
def _(port: Port) -> None:
    def once() -> None:
        with port.connect() as sock:
            with contextlib.suppress(ConnectionError):
                sock.sendall(bytes(4))
                sock.send(b"\1", socket.MSG_OOB)
            _is_closed_in_time(sock)

    once()


# --- Clients that read slowly, or stop reading -----------------------------------------------------------------------------


def _never_reads(count: int, floods: bool) -> Input:
    def run(port: Port) -> None:
        with contextlib.ExitStack() as stack:
            socks = [stack.enter_context(port.connect(receive_buffer=4096)) for _ in range(count)]
            port.connections = count
            for sock in socks:
                send(sock, _reports(1))
                sock.setblocking(False)
            until = time.monotonic() + WRITE_STALL_DEADLINE_S + PATIENCE_S
            left = set(socks)
            while left:
                if time.monotonic() > until:
                    raise Unexpected(f"{len(left)} of {count} that read nothing are still connected")
                for sock in list(left):
                    try:
                        sock.send(_reports(1) * (4096 if floods else 1))
                    except BlockingIOError:
                        pass
                    except ConnectionError:
                        left.remove(sock)
                time.sleep(0.001 if floods else 0.05)

    return run


INPUTS["a reader that reads nothing (quirk 12)"] = _never_reads(1, False)
INPUTS["twenty readers that read nothing"] = _never_reads(20, False)
INPUTS["a flood of reports, and nothing is read"] = _never_reads(1, True)


def _reads(chunk: int, pause_s: float, seconds: float) -> Input:
    """A slow or pausing reader is a valid slave: it must read the log and stay connected."""

    def run(port: Port) -> None:
        with port.connect(receive_buffer=4096) as sock:
            send(sock, _reports(1))
            until, stream = time.monotonic() + seconds, b""
            while time.monotonic() < until:
                stream += exactly(sock, chunk)
                send(sock, _reports(1))
                time.sleep(pause_s)
        at = 1
        while len(stream) >= HEADER.size:
            offset, size = HEADER.unpack_from(stream)
            body = stream[12 : 12 + size]
            if offset != at or body != port.master.log_bytes(at, len(body) or 1)[: len(body)]:
                raise Unexpected(f"what was read at {at} is not the log's")
            at += size
            stream = stream[12 + size :]

    return run


INPUTS["a slow reader, for longer than the deadline"] = _reads(512, 0.05, WRITE_STALL_DEADLINE_S + 1.0)
INPUTS["a reader that stops and goes on"] = _reads(1 << 18, WRITE_STALL_DEADLINE_S / 3, 2 * WRITE_STALL_DEADLINE_S)


@hostile("a reader from the middle of a record")
def _(port: Port) -> None:
    def once() -> None:
        with port.connect() as sock:
            send(sock, _reports(12345))
            must_be_served(port, sock, must_be_served(port, sock, 12345))

    again_and_again(once)


@hostile("a report in single bytes")
def _(port: Port) -> None:
    def once() -> None:
        with port.connect() as sock:
            for byte in _reports(777):
                send(sock, bytes((byte,)))
                time.sleep(0.02)
            must_be_served(port, sock, 777)

    again_and_again(once)


# --- Floods ------------------------------------------------------------------------------------------------------------------


@hostile("a flood of good reports")
def _(port: Port) -> None:
    with port.connect() as sock:
        send(sock, _reports(0))
        sock.setblocking(False)
        until, reports = time.monotonic() + SECONDS, _reports(0) * 8192
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                sock.send(reports)
            with contextlib.suppress(BlockingIOError):
                sock.recv(1 << 20)


@hostile("a flood of connects that report and go")
def _(port: Port) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        with port.connect() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            send(sock, _reports(0))


@hostile("twenty thousand connects")
def _(port: Port) -> None:
    """Connect from a hundred addresses, sixteen at a time. While the backlog is full, each waits a second between tries."""

    def connect(number: int) -> None:
        with port.connect(f"127.2.0.{1 + number % 100}") as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)

    with ThreadPoolExecutor(16) as pool:
        for _ in pool.map(connect, range(20_000)):
            pass


@hostile("twenty that take the whole log at once")
def _(port: Port) -> None:
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(port.connect()) for _ in range(20)]
        port.connections = len(socks)
        for sock in socks:
            send(sock, _reports(1))
            sock.setblocking(False)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for sock in socks:
                with contextlib.suppress(BlockingIOError):
                    sock.recv(1 << 18)


@hostile("a second slave with the same offset as the first")
def _(port: Port) -> None:
    with port.connect() as sock:
        offset = port.master.offset
        send(sock, _reports(offset))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            offset = must_be_served(port, sock, offset)
            send(sock, _reports(offset))
