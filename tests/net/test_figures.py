"""The figures of a master and of a slave: a kind and a state for each connection, and every number in its own place."""

import errno
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit.limits import Clock
from kit.played import AGAIN, PlayedSocket, error
from rocketmq_ha.impl.errors import AppendFailed
from rocketmq_ha.impl.net import figures as module
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.figures import Growth, MasterFigures, Rate, SlaveFigures
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.link import MasterLink
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

FILE_SIZE = 100_000
MESSAGE = Message("T", bytes(8))  # 100 bytes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "clock_ms", clock)
    return clock


class Stand:
    """A master whose peers the test plays, and its figures."""

    def __init__(self, directory: Path, resources: ExitStack, clock: Clock, **settings: int) -> None:
        self.clock = clock
        self.log = resources.enter_context(CommitLog.open(directory, file_size=FILE_SIZE))
        for _ in range(10):
            self.log.append(MESSAGE)
        self.master = Master(self.log, listen("127.0.0.1", 0), Settings(FILE_SIZE, **settings), HARDENED, Limits())
        resources.callback(self.master.close)
        self.figures = MasterFigures(self.master, "hardened", BrokerRole.SYNC_MASTER)

    def peer(self, name: str, *reports: int, writes: tuple[Any, ...] = ()) -> MasterLink:
        """A peer that reports in turn; after each report the master writes, and a sample is taken 100 ms later."""
        conn = self.master.service.on_accept(name, self.clock.ms)
        link = MasterLink(PlayedSocket((), writes), conn, self.master.service)
        for report in reports:
            link.sock.reads += [REPORT.pack(report), AGAIN]  # type: ignore[attr-defined]
            link.on_reports(self.clock.ms)
            link.on_transfer(self.clock.ms)
            self.clock.ms += 100
            assert self.figures.sample()
        return link

    def connection(self) -> dict[str, Any]:
        (found,) = self.figures.snapshot()["connections"]
        return dict(found)


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    ("reports", "writes", "kind", "state"),
    [
        ((), (), "not reported", "awaiting report"),
        ((100,), (AGAIN,), "new", "blocked"),
        ((100,), (5, AGAIN), "new", "blocked"),
        ((100,), (), "new", "all sent"),
        ((100, 100), (), "new", "all sent"),  # read when the sample saw that bytes had been sent, and not behind it
        ((100, 100, 100), (), "reader", "all sent"),
        ((0, 0, 0), (), "reader", "all sent"),
        ((100, 101), (), "slave", "streaming"),
        ((100, 1000), (), "slave", "in sync"),
        ((1000,), (), "new", "all sent"),
        ((1000, 1000, 1000), (), "new", "all sent"),  # nothing was sent that it could acknowledge
        ((100, 500), (912 + 100, AGAIN), "slave", "streaming"),
    ],
)
def test_each_connection_has_its_kind_and_its_state(
    tmp_path: Path, resources: ExitStack, clock: Clock, reports: tuple[int, ...], writes: tuple[Any, ...], kind: str, state: str
) -> None:
    """Judged by what it was sent and by what it has reported since."""
    stand = Stand(tmp_path, resources, clock)
    stand.peer("10.0.0.7:4000", *reports, writes=writes)
    found = stand.connection()
    assert (found["kind"], found["state"]) == (kind, state)


def test_every_number_of_a_slave_stands_in_its_place(tmp_path: Path, resources: ExitStack, clock: Clock) -> None:
    stand = Stand(tmp_path, resources, clock, ha_transfer_batch_size=300)
    began = clock.ms
    link = stand.peer("10.0.0.7:4000", 100, 700, writes=(312, 312, 312, AGAIN))
    clock.ms += 1000
    stand.log.append(MESSAGE)
    stand.figures.sample()
    clock.ms += 30
    found = stand.connection()
    assert found == {
        "peer": "10.0.0.7:4000",
        "replica": "10.0.0.7",
        "certificate": None,
        "kind": "slave",
        "state": "streaming",
        "connected_ms": clock.ms - began,
        "silent_ms": 1130,
        "request_offset": 100,
        "reported_offset": 700,
        "sent_offset": 1000,
        "ack_offset": 700,
        "lag_bytes": 400,
        "lag_ms": clock.ms - began,
        "acks_per_second": round(600 * 1000 / (clock.ms - began), 1),
    }
    link.close("end_of_stream")
    assert stand.figures.snapshot()["connections"] == []
    clock.ms += 100
    stand.figures.sample()
    assert (stand.figures._rates, stand.figures._sent_ms) == ({}, {})  # a connection that has ended costs nothing


@pytest.mark.parametrize(("reports", "has_reported"), [((), False), ((100, 100), True)])
def test_what_is_no_slave_has_no_lag(
    tmp_path: Path, resources: ExitStack, clock: Clock, reports: tuple[int, ...], has_reported: bool
) -> None:
    stand = Stand(tmp_path, resources, clock)
    stand.peer("10.0.0.7:4000", *reports)
    found = stand.connection()
    assert [found[name] for name in ("ack_offset", "lag_bytes", "lag_ms", "acks_per_second")] == [None] * 4
    assert [found[name] for name in ("request_offset", "reported_offset", "sent_offset")] == (
        [100, 100, 1000] if has_reported else [None] * 3
    )


def test_every_number_of_a_master_stands_in_its_place(tmp_path: Path, resources: ExitStack, clock: Clock) -> None:
    stand = Stand(tmp_path, resources, clock, replicas=3)
    for name, ack in (("a:1", 200), ("a:2", 300), ("b:1", 400), ("c:1", 500), ("d:1", 600)):
        stand.peer(name, 100, ack)
    waiting = [stand.master.service.put(MESSAGE, 0, wait=True) for _ in range(6)]
    assert [one.status for one in waiting] == [None] * 6
    stand.master.limiter.refused.update(allow=7, max_connections=1)
    stand.master.accepted_connections, stand.master.sent_bytes, stand.master.received_bytes = 9, 10, 11
    ok, disk, slave, none = module.PUT_STATUSES
    stand.master.service.tallies += [Counter({ok: 12, slave: 14}), Counter({ok: 1, disk: 15, none: 16})]
    found = stand.figures.snapshot()
    assert {name: found[name] for name in (
        "role", "profile", "broker_role", "slaves", "replicas_needed", "replicas_counted", "push2_slave_max_offset",
        "waiting_puts", "refused_connections", "accepted_connections", "sent_bytes", "received_bytes", "accepting",
        "min_offset", "max_offset", "file_size", "pid", "deleted_files", "deleted_bytes", "disk_full", "format",
    )} == {
        "role": "master", "profile": "hardened", "broker_role": "SYNC_MASTER", "slaves": 5, "replicas_needed": 3,
        "replicas_counted": 4, "push2_slave_max_offset": 400, "waiting_puts": 6, "refused_connections": 8,
        "accepted_connections": 9, "sent_bytes": 10, "received_bytes": 11, "accepting": True, "min_offset": 0,
        "max_offset": 1600, "file_size": FILE_SIZE, "pid": os.getpid(), "deleted_files": 0, "deleted_bytes": 0,
        "disk_full": None, "format": 2,
    }  # fmt: skip
    assert found["puts"] == {
        PutMessageStatus.PUT_OK.value: 13,
        PutMessageStatus.FLUSH_DISK_TIMEOUT.value: 15,
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT.value: 14,
        PutMessageStatus.SLAVE_NOT_AVAILABLE.value: 16,
    }
    assert found["appended_bytes"] == 600
    assert (found["listen"], found["tls_listen"]) == ("{}:{}".format(*stand.master.address), None)


def test_samples_are_taken_every_100_ms(tmp_path: Path, resources: ExitStack, clock: Clock) -> None:
    stand = Stand(tmp_path, resources, clock)
    seen = []
    for ms in (0, 99, 1, 99, 2):
        clock.ms += ms
        seen.append(stand.figures.sample())
    assert seen == [True, False, True, False, True]


def test_what_a_log_that_was_cut_has_grown_by_is_counted_anew() -> None:
    rate, growth = Rate(1000, 0), Growth(1000, 0)
    for now_ms, offset in ((1000, 2000), (2000, 500), (3000, 700)):
        rate.sample(offset, now_ms)
        growth.sample(offset, now_ms)
    assert rate.per_second(700, 3000) == 200.0
    assert [growth.lag_ms(offset, 3000) for offset in (400, 500, 699, 700)] == [1000, 0, 0, 0]


def test_a_rate_looks_back_ten_seconds_and_samples_once_a_second() -> None:
    rate = Rate(0, 0)
    assert rate.per_second(100, 0) == 0.0
    for now_ms in range(0, 20_001, 500):
        rate.sample(now_ms, now_ms)
    assert [now_ms for now_ms, _ in rate._samples] == list(range(10_000, 20_001, 1000))
    assert rate.per_second(30_000, 20_000) == 2000.0


def test_each_state_of_a_slave_has_its_word(tmp_path: Path, resources: ExitStack, clock: Clock) -> None:
    log = resources.enter_context(CommitLog.open(tmp_path, file_size=FILE_SIZE))
    follower = Follower(log, "10.0.0.7", 10912, Settings(FILE_SIZE), HARDENED)
    preparing = ["asking"]
    figures = SlaveFigures(follower, log, "hardened", preparing=lambda: preparing[0])
    states = [figures.snapshot()["state"]]
    preparing[0] = ""
    states.append(figures.snapshot()["state"])
    follower.disk_full = AppendFailed("f", 0, error(errno.ENOSPC))
    states.append(figures.snapshot()["state"])
    preparing[0] = "asking"
    states.append(figures.snapshot()["state"])
    follower.client.on_connect(clock.ms)
    states.append(figures.snapshot()["state"])
    assert states == ["asking", "disconnected", "disk full", "disk full", "connected"]


def test_every_number_of_a_slaves_process_stands_in_its_place(tmp_path: Path, resources: ExitStack, clock: Clock) -> None:
    log = resources.enter_context(CommitLog.open(tmp_path, file_size=FILE_SIZE))
    follower = Follower(log, "10.0.0.7", 10912, Settings(FILE_SIZE), HARDENED)
    figures = SlaveFigures(follower, log, "hardened")
    names = ("connected_ms", "silent_ms", "reported_offset", "unparsed_bytes")
    empty = figures.snapshot()
    assert [empty[name] for name in names] == [None] * 4
    assert (empty["connects"], empty["reconnects"], empty["appended_bytes"], empty["comparing"]) == (0, 0, 0, False)
    log.append_data(FILE_SIZE, [memoryview(bytes(300))])
    follower.client.on_connect(clock.ms + 40)
    follower.client.recv_buffer()[:5] = bytes(5)
    follower.client.on_frames(5, clock.ms + 70)
    follower.connected_timestamp = clock.ms + 50
    follower.connects, follower.failed_connects, follower._carried = 4, 6, (7, 8, None)
    follower.last_close_reason, follower.master_subject = "frame", "CN=m"
    clock.ms += 100
    found = figures.snapshot()
    assert [found[name] for name in names] == [50, 30, FILE_SIZE, 5]
    expected = {
        "role": "slave", "broker_role": "SLAVE", "master": "10.0.0.7:10912", "certificate": "CN=m", "state": "connected",
        "comparing": True, "last_close_reason": "frame", "connects": 4, "reconnects": 3, "sent_bytes": 8,
        "received_bytes": 7, "failed_connects": 6, "appended_bytes": 300, "min_offset": FILE_SIZE,
        "max_offset": FILE_SIZE + 300,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["uptime_s"] <= time.time()
