"""The order of the steps with which a master's puts end, seen by what their producers hear."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketmq_ha.impl.app import roles
from rocketmq_ha.impl.app.roles import end_all, putting
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.waker import Waker
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings
from rocketmq_ha.spec.role import BrokerRole

FILE_SIZE = 1 << 20


class Watched(Waker):
    """A waker that notes who wakes it after its end."""

    is_closed = False
    late = 0

    def wake(self) -> None:
        Watched.late += self.is_closed
        super().wake()

    def close(self) -> None:
        self.is_closed = True
        super().close()


@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_the_disk_ends_its_waits_before_the_slaves_go(
    tmp_path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-G-45 "MUST flush once more for the puts that wait for the disk". With the connections gone no slave is available."""
    monkeypatch.setattr(roles, "Waker", Watched)
    monkeypatch.setattr(Watched, "late", 0)
    with ExitStack() as stack:
        log = stack.enter_context(CommitLog.open(tmp_path, file_size=FILE_SIZE))
        server = Master(log, listen("127.0.0.1", 0), Settings(FILE_SIZE), profile)
        stack.callback(server.close)
        puts = stack.enter_context(putting(server, log, BrokerRole.SYNC_MASTER, "sync", FlushIntervals()))
        conn = server.service.on_accept("10.0.0.7:4000", clock_ms())
        conn.start_offset, conn.slave_ack_offset = 0, 1  # it counts as a slave in hardened, too
        put = puts.put(Message("t", b"body"), clock_ms())
        end_all(server, puts, [put])
        assert put.status is not PutMessageStatus.SLAVE_NOT_AVAILABLE
        assert log.flushed_offset == log.max_offset > 0
    assert Watched.late == 0  # the thread that flushes ends before its waker


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_the_thread_that_flushes_ends_before_its_waker(tmp_path: Path, flush: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "Waker", Watched)
    monkeypatch.setattr(Watched, "late", 0)
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        server = Master(log, listen("127.0.0.1", 0), Settings(FILE_SIZE), HARDENED)
        with putting(server, log, BrokerRole.ASYNC_MASTER, flush, FlushIntervals()) as puts:
            puts.put(Message("t", b"body"), clock_ms())
        server.close()
        assert puts.flushing == 0
    assert Watched.late == 0
