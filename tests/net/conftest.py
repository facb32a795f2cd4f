"""Fixtures: a master with limits, and its clock; a slave's loop with a script for its master."""

import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit.limits import MIB, Clock, Serve
from kit.stage import FILE_SIZE, MESSAGE, FullableLog, MakeStage, Stage
from rocketmq_ha.impl.app.run_master import MASTER_READ_BUFFER_SIZE
from rocketmq_ha.impl.net import server as server_module
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.profile import HARDENED, Settings


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server_module, "clock_ms", clock)
    return clock


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Opens a master over a log of zeros. A limit that the test does not give is unlimited."""
    opened: list[tuple[Master, CommitLog]] = []

    def start(limits: Limits, size: int = 0, send_buffer: int | None = None) -> Master:
        log = CommitLog.open(tmp_path / "m", file_size=4 * MIB)
        if size:
            log.append_data(0, [memoryview(bytes(size))])
        listener = listen("127.0.0.1", 0)
        if send_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        settings = Settings(4 * MIB, master_read_buffer_size=MASTER_READ_BUFFER_SIZE)
        opened.append((Master(log, listener, settings, HARDENED, limits), log))
        return opened[-1][0]

    yield start
    for master, log in opened:
        master.close()
        log.close()


@pytest.fixture
def make_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[MakeStage]:
    """Makes a slave whose log has some messages of 100 bytes."""
    caplog.set_level(logging.INFO, "rocketmq_ha")
    with ExitStack() as resources:

        def stage(messages: int = 0, base: int = 0, **options: Any) -> Stage:
            log = resources.enter_context(FullableLog.open(tmp_path / "slave", file_size=FILE_SIZE))
            if base:
                with CommitLog.open(tmp_path / "other", file_size=FILE_SIZE) as other:
                    while other.max_offset < base + 100:
                        other.append(MESSAGE)
                    log.append_data(base, [bytes(other.data_at(base, 100) or b"")])
            for _ in range(messages):
                log.append(MESSAGE)
            return Stage(log, monkeypatch, resources, file_size=FILE_SIZE, **options)

        yield stage


@pytest.fixture
def records(tmp_path: Path) -> bytes:
    """The first nine messages of a master."""
    with CommitLog.open(tmp_path / "records", file_size=FILE_SIZE) as log:
        for _ in range(9):
            log.append(MESSAGE)
        return bytes(log.data_at(0, 900) or b"")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found
