"""A master with its socket for puts, whose loop the test runs, and clients of it."""

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.app.roles import end_all, putting
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.local_socket import local_address
from rocketmq_ha.impl.net.put_socket import SOCKET_NAME, PutSocket
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.spec.profile import HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

FILE_SIZE = 1 << 22


class Stand:
    """A master and its put socket; this thread runs the master's loop."""

    def __init__(
        self, stack: ExitStack, store: Path, role: BrokerRole = BrokerRole.ASYNC_MASTER, flush: str = "async", **settings: int
    ) -> None:
        self.store = store
        self.stack = stack
        self.log = stack.enter_context(CommitLog.open(store, file_size=FILE_SIZE))
        patient = {"sync_flush_timeout_ms": PATIENCE_S * 1000} | settings
        self.master = Master(self.log, listen("127.0.0.1", 0), Settings(FILE_SIZE, **patient), HARDENED)
        stack.callback(self.master.close)
        self.puts = stack.enter_context(putting(self.master, self.log, role, flush, FlushIntervals()))
        self.socket = PutSocket(store, self.puts)
        self.master.wake_by(self.socket)
        self.finished = False
        stack.callback(self.finish)

    def finish(self) -> None:
        if not self.finished:
            self.finished = True
            self.socket.finish(lambda: end_all(self.master, self.puts, ()))

    def turn(self) -> None:
        self.master.poll(1)
        self.socket.turn(clock_ms())

    def until(self, condition: Callable[[], object]) -> None:
        wait_for(condition, self.turn)

    def client(self, *, waits: bool = True) -> "Client":
        """Connect a client. waits: until it is greeted."""
        sock = self.stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        with local_address(self.store, SOCKET_NAME) as address:
            sock.connect(address)
        sock.setblocking(False)
        client = Client(self, sock)
        if waits:
            self.until(lambda: client.receive() or client.received)
        return client

    def slave(self) -> socket.socket:
        """A peer that counts as a slave: it has acknowledged one message."""
        sock = self.stack.enter_context(socket.create_connection(self.master.address, timeout=PATIENCE_S))
        sock.sendall(REPORT.pack(0))
        self.until(lambda: any(conn.start_offset == 0 for conn in self.master.service.connections))
        client = self.client()
        client.send({"topic": "t", "body": "first", "properties": {"WAIT": "false"}})
        assert client.answer()["status"] == "PUT_OK"
        self.acknowledge(sock)
        self.until(lambda: self.master.service.count_slaves() == 1)
        return sock

    def acknowledge(self, sock: socket.socket) -> None:
        (conn,) = self.master.service.connections
        self.until(lambda: conn.sent_offset == self.log.max_offset)
        sock.sendall(REPORT.pack(self.log.max_offset))

    def bodies(self) -> list[bytes]:
        return [message.body for _, _, message in self.log.records()]


class Client:
    """A client of the socket."""

    def __init__(self, stand: Stand, sock: socket.socket) -> None:
        self.stand, self.sock = stand, sock
        self.received, self.ended = b"", False

    def send(self, *lines: object) -> None:
        self.send_raw(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def send_raw(self, data: bytes) -> None:
        """Send all bytes, with as many turns of the loop as needed."""
        until = time.monotonic() + PATIENCE_S
        view = memoryview(data)
        while view:
            assert time.monotonic() < until, "waited in vain"
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                self.stand.turn()

    def receive(self) -> bool:
        """Receive the bytes that have come. Returns: True if the other end has closed."""
        try:
            while data := self.sock.recv(1 << 16):
                self.received += data
            self.ended = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.ended = True
        return self.ended

    def lines(self) -> list[dict[str, Any]]:
        """The whole lines received so far, without the greeting."""
        self.receive()
        return [json.loads(line) for line in self.received.split(b"\n")[1:-1]]

    def answers(self, count: int) -> list[dict[str, Any]]:
        """Wait for a number of lines, and assert that no more come."""
        self.stand.until(lambda: len(self.lines()) >= count)
        found = self.lines()
        assert len(found) == count
        return found

    def answer(self) -> dict[str, Any]:
        return self.answers(1)[0]

    def statuses(self, count: int) -> list[str]:
        return [line["status"] for line in self.answers(count)]


def message(body: str = "b", **more: object) -> dict[str, object]:
    return {"topic": "t", "body": body, **more}


NO_WAIT = {"properties": {"WAIT": "false"}}
