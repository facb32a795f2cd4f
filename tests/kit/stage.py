"""A slave's loop in the test's own thread: a script plays its master between two turns, and time passes in waits alone."""

import logging
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from kit.waiting import PATIENCE_S, accepted
from rocketmq_ha.impl.net import back_off as back_off_module
from rocketmq_ha.impl.net import client as client_module
from rocketmq_ha.impl.net.back_off import BackOff
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings

Script = Iterator[None]
FILE_SIZE = 1000
MESSAGE = Message("T", bytes(8))  # 100 bytes in the log
_MOST_TURNS = 20_000


class FullableLog(CommitLog):
    """A log on a disk that fails."""

    failure: OSError | None = None

    def append_data(self, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        if self.failure is not None:
            raise self.failure
        super().append_data(offset, buffers)


class Stage:
    """A slave over real sockets. now_s: its clock. waits: how long each wait before a connect might have been."""

    def __init__(
        self, log: CommitLog, monkeypatch: pytest.MonkeyPatch, resources: ExitStack, *, file_size: int, **options: Any
    ) -> None:
        self.now_s = 1000.0
        self.waits: list[float] = []
        self.refusals: deque[Exception] = deque()  # raised by the next connects
        self.log, self._resources = log, resources
        self.listener = resources.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.listener.settimeout(PATIENCE_S)
        settings = options.pop("settings", None) or Settings(file_size)
        profile = options.pop("profile", HARDENED)
        self.follower = Follower(log, *self.listener.getsockname(), settings, profile, **options)
        self.peer = "{}:{}".format(*self.listener.getsockname())
        connect, wait = client_module.connect, BackOff.wait

        def connecting(*arguments: Any) -> socket.socket:
            if self.refusals:
                raise self.refusals.popleft()
            return connect(*arguments)

        def waiting(back_off: BackOff, *arguments: Any) -> None:
            self.waits.append(back_off.next_s)
            wait(back_off, *arguments)

        time = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep)
        monkeypatch.setattr(client_module, "time", time)
        monkeypatch.setattr(client_module, "clock_ms", lambda: int(self.now_s * 1000))
        monkeypatch.setattr(client_module, "connect", connecting)
        monkeypatch.setattr(client_module, "TICK_MS", 1)
        monkeypatch.setattr(back_off_module, "time", time)
        monkeypatch.setattr(back_off_module, "random", SimpleNamespace(uniform=lambda _, most: most))
        monkeypatch.setattr(BackOff, "wait", waiting)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def play(self, script: Script, prepare: Callable[[], bool] | None = None) -> None:
        """Run the slave until its script ends."""
        turns = 0

        def stopped() -> bool:
            nonlocal turns
            turns += 1
            assert turns < _MOST_TURNS, "the slave goes on, and the script waits"
            return next(script, self) is self

        self.follower.run(stopped, prepare)

    def until(self, condition: Callable[[], object]) -> Script:
        """Let the slave go on until a condition holds."""
        while not condition():
            yield

    def accept(self) -> socket.socket:
        """The next connection of the slave, which it has opened already, or opens now."""
        peer = self._resources.enter_context(accepted(self.listener))
        peer.settimeout(PATIENCE_S)
        return peer

    def life(self, data: bytes = b"", *, then: Callable[[], object] = lambda: True) -> Script:
        """One connection: take its first report, send bytes, wait until `then`, and close."""
        yield from self.until(lambda: self.follower.client.connected)
        with self.accept() as peer:
            assert len(peer.recv(REPORT.size, socket.MSG_WAITALL)) == REPORT.size
            received = self.follower.received_bytes + len(data)
            peer.sendall(data)
            yield from self.until(lambda: self.follower.received_bytes >= received or not self.follower.client.connected)
            yield from self.until(then)
        yield from self.until(lambda: not self.follower.client.connected)

    def ended(self) -> Script:
        """Let the slave go on until it has taken note of the end of its connection, and waits or connects again."""
        waits = len(self.waits)
        yield from self.until(lambda: len(self.waits) > waits)


MakeStage = Callable[..., Stage]  # the fixture of tests/net/conftest.py


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """The lines of a level or a higher one."""
    return [record.getMessage() for record in caplog.records if record.levelno >= level]
