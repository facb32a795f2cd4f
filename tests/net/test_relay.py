"""Connections that go by a relay: passed on, refused, or cut without a word to either end."""

import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kit.sockets import kept_port
from kit.waiting import PATIENCE_S, accepted, await_end, wait_for
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.relay import BUFFER_SIZE, Relay, Route

SILENT_S = 0.3  # what has not come within this time does not come


class Stand:
    """A relay that runs in a thread, and a server behind it."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.resources = ExitStack()
        self.near = self.resources.enter_context(kept_port())
        self.relay = Relay()
        self.route: Route = self.relay.add(self.near, self.server.getsockname())
        self._woken, self._wake = socket.socketpair()
        self.relay.selector.register(self._woken, 1, "stop")
        self.lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._is_over = False
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            with self.lock:
                self.relay.poll(0.005)
            time.sleep(0.001)  # the lock is free for `set`

    def set(self, *, is_open: bool = True, is_cut: bool = False) -> None:
        with self.lock:
            self.route.set(is_open=is_open, is_cut=is_cut)

    def connect(self, timeout_s: float = PATIENCE_S) -> socket.socket:
        sock = socket.create_connection(self.near, timeout_s)
        sock.settimeout(PATIENCE_S)
        return sock

    def both(self) -> tuple[socket.socket, socket.socket]:
        """A connection of a client, and its end at the server."""
        client = self.connect()
        return client, accepted(self.server)

    def close(self) -> None:
        self._is_over = True
        self._wake.send(b"x")
        await_end(self._thread)
        self.relay.close()
        for sock in (self.server, self._woken, self._wake):
            sock.close()
        self.resources.close()


@pytest.fixture
def stand() -> Iterator[Stand]:
    stand = Stand()
    yield stand
    stand.close()


def is_silent(sock: socket.socket) -> bool:
    """Whether nothing comes, not even the end."""
    sock.settimeout(SILENT_S)
    try:
        return not isinstance(sock.recv(1), bytes)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(PATIENCE_S)


def test_bytes_pass_both_ways_and_the_end_behind_them(stand: Stand) -> None:
    stand.set()
    client, server = stand.both()
    with client, server:
        client.sendall(b"question")
        assert server.recv(100) == b"question"
        client.shutdown(socket.SHUT_WR)
        assert server.recv(100) == b""
        server.sendall(b"answer")  # the other direction is still open
        assert client.recv(100) == b"answer"
        server.close()
        assert client.recv(100) == b""
    wait_for(lambda: stand.route.connections == 0)


def test_more_bytes_than_the_buffers_hold_arrive_whole(stand: Stand) -> None:
    stand.set()
    client, server = stand.both()
    data = bytes(range(256)) * (8 * BUFFER_SIZE // 256)
    found = bytearray()

    def read() -> None:
        while part := server.recv(1 << 16):
            found.extend(part)

    with client, server:
        reader = threading.Thread(target=read, daemon=True)
        time.sleep(SILENT_S)  # the server reads late: the relay stops reading, and holds no more than its buffer
        reader.start()
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        await_end(reader)
    assert found == data


def test_a_closed_route_refuses_and_keeps_the_connections_that_stand(stand: Stand) -> None:
    with pytest.raises(ConnectionRefusedError):
        stand.connect()
    stand.set()
    client, server = stand.both()
    with client, server:
        stand.set(is_open=False)
        with pytest.raises(ConnectionRefusedError):
            stand.connect()
        server.sendall(b"still")
        assert client.recv(100) == b"still"
    stand.set()
    again, server = stand.both()
    with again, server:
        server.sendall(b"x")
        assert again.recv(1) == b"x"


def test_a_connection_to_nobody_is_reset(stand: Stand) -> None:
    stand.set()
    stand.server.close()
    with stand.connect() as client, pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_reset_of_one_end_reaches_the_other(stand: Stand) -> None:
    stand.set()
    client, server = stand.both()
    with client:
        client.sendall(b"unread")
        time.sleep(SILENT_S)
        server.close()  # with bytes that nobody has read: the system resets, as it does for a process that is killed
        with pytest.raises(ConnectionResetError):
            while client.recv(1):
                pass


def test_a_cut_is_silence_and_what_was_sent_meanwhile_comes_after_it(stand: Stand) -> None:
    stand.set()
    client, server = stand.both()
    with client, server:
        client.sendall(b"before")
        assert server.recv(100) == b"before"
        stand.set(is_cut=True)
        client.sendall(b"meanwhile")
        server.sendall(b"too")
        assert is_silent(server)
        assert is_silent(client)
        stand.set()
        assert server.recv(100) == b"meanwhile"
        assert client.recv(100) == b"too"


def test_an_end_amid_a_cut_is_told_after_it(stand: Stand) -> None:
    stand.set()
    client, server = stand.both()
    with client:
        stand.set(is_cut=True)
        server.close()
        stand.set(is_open=False, is_cut=True)
        assert is_silent(client)
        stand.set(is_open=False)
        assert client.recv(1) == b""


def test_a_connect_amid_a_cut_waits_and_succeeds_after_it(stand: Stand) -> None:
    """It is dropped, as in a network: it is neither refused nor accepted."""
    stand.set()
    stand.set(is_cut=True)
    with pytest.raises(TimeoutError):
        stand.connect(SILENT_S)
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(stand.near)
    time.sleep(SILENT_S)
    with client:
        client.settimeout(PATIENCE_S)
        with pytest.raises(OSError):
            client.getpeername()
        stand.set()
        wait_for(lambda: client.connect_ex(stand.near) in (0, errno.EISCONN), lambda: time.sleep(0.05))
        server = accepted(stand.server)
        with server:
            server.sendall(b"x")
            assert client.recv(1) == b"x"


def test_a_closed_route_that_is_cut_does_not_refuse(stand: Stand) -> None:
    stand.set(is_open=False, is_cut=True)
    with pytest.raises(TimeoutError):
        stand.connect(SILENT_S)
    stand.set(is_open=False)
    with pytest.raises(ConnectionRefusedError):
        stand.connect()


def test_a_route_may_be_cut_again_and_again(stand: Stand) -> None:
    stand.set()
    client, server = stand.both()
    with client, server:
        for number in range(5):
            stand.set(is_cut=True)
            stand.set(is_cut=True)
            client.sendall(b"%d" % number)
            assert is_silent(server)
            stand.set()
            assert server.recv(10) == b"%d" % number


def test_an_address_that_is_taken_is_named(stand: Stand) -> None:
    host, port = stand.resources.enter_context(kept_port())
    with socket.create_server((host, port)):
        route = stand.relay.add((host, port), ("127.0.0.1", 1))
        with stand.lock, pytest.raises(ConfigInvalid, match=f"cannot listen on {host}:{port}: Address already in use"):
            route.set(is_open=True, is_cut=False)
    with stand.lock:
        route.set(is_open=True, is_cut=False)
        route.set(is_open=False, is_cut=False)


class Doubles:
    def feed(self, data: bytes) -> bytes:
        if b"!" in data:
            raise ConnectionAbortedError
        return data * 2


def test_a_translator_changes_its_direction_alone_and_may_end_the_connection(stand: Stand) -> None:
    near = stand.resources.enter_context(kept_port())
    with stand.lock:
        stand.relay.add(near, stand.server.getsockname(), Doubles).set(is_open=True, is_cut=False)
    client = socket.create_connection(near, PATIENCE_S)
    server = accepted(stand.server)
    with client, server:
        client.sendall(b"a")
        assert server.recv(10) == b"aa"
        server.sendall(b"b")
        assert client.recv(10) == b"b"
        client.sendall(b"!")
        with pytest.raises(ConnectionResetError):
            server.recv(10)
