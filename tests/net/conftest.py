"""Fixtures: a master with limits, and its clock."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.limits import MIB, Clock, Serve
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
