"""The producer of `master --put`: its messages, its counts, and what it waits for before each put."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketmq_ha.impl.app import producer as producer_module
from rocketmq_ha.impl.app import slave_wait as slave_wait_module
from rocketmq_ha.impl.app.cleaning import HOUR_MS, CleaningFigures, _in_words
from rocketmq_ha.impl.app.producer import PutCounts, messages, put_all
from rocketmq_ha.impl.app.slave_wait import SlaveWait
from rocketmq_ha.impl.errors import StoreFull
from rocketmq_ha.impl.ha.puts import Puts
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.store.pending_put import waits_for_store
from rocketmq_ha.impl.store.retention import Retention
from rocketmq_ha.spec.profile import HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

Status = PutMessageStatus

# --- Messages ------------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_messages() -> None:
    first, again, other = (list(messages(9, 33, seed)) for seed in (5, 5, 6))
    assert [each.body for each in first] == [each.body for each in again] != [each.body for each in other]
    assert {len(each.body) for each in first} == {33}
    assert len({each.body for each in first}) == 9
    assert [each.queue_id for each in first] == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert [each.properties["KEYS"] for each in first] == [str(number) for number in range(9)]
    assert {each.topic for each in first} == {"rocketmq-ha"}
    assert all(each.born_timestamp == each.store_timestamp > 1_600_000_000_000 for each in first)


@pytest.mark.parametrize(
    ("sync", "waiting"),
    [
        (1.0, [True] * 8),
        (0.0, [False] * 8),
        (0.5, [False, True] * 4),
        (0.25, [False, False, False, True] * 2),
        (0.75, [False, True, True, True] * 2),
    ],
)
def test_a_share_of_the_messages_waits_evenly(sync: float, waiting: list[bool]) -> None:
    assert [waits_for_store(each.properties_string) for each in messages(8, 1, 0, sync)] == waiting


@pytest.mark.parametrize(
    ("counts", "seconds", "line"),
    [
        (PutCounts(), 0.04, "put=0 seconds=0.0 per_second=0 "),
        (PutCounts(Counter({Status.PUT_OK: 30})), 4.0, "put=30 seconds=4.0 per_second=8 PUT_OK=30"),
        (
            PutCounts(Counter({Status.SLAVE_NOT_AVAILABLE: 3, Status.PUT_OK: 20, Status.FLUSH_DISK_TIMEOUT: 0}), 2),
            4.0,
            "put=23 unwaited=2 seconds=4.0 per_second=6 PUT_OK=20 SLAVE_NOT_AVAILABLE=3",
        ),
    ],
)
def test_the_line_of_counts(counts: PutCounts, seconds: float, line: str) -> None:
    assert counts.line(seconds) == line


# --- Puts ----------------------------------------------------------------------------------------------------------------


@dataclass
class Produced:
    """What a producer has done over a real log without slaves."""

    counts: PutCounts
    progress: list[int] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)  # the keys


def produced(
    directory: Path, count: int, role: BrokerRole = BrokerRole.ASYNC_MASTER, stop_after: int = 10_000, **options: Any
) -> Produced:
    turns = iter(range(stop_after))
    progress: list[int] = []
    with CommitLog.open(directory / "s", file_size=1 << 16) as log:
        server = Master(log, listen("127.0.0.1", 0), Settings(1 << 16), HARDENED)
        try:
            puts = Puts(server.service, role, None)
            counts, waiting = put_all(
                server, puts, lambda: next(turns, None) is None, messages(count, 10, 0), 4, progress=progress.append, **options
            )
            assert not waiting
        finally:
            server.close()
    with LogReader(directory / "s") as reader:
        return Produced(counts, progress, [message.properties["KEYS"] for _, _, message in reader.records()])


def test_all_messages_are_put_and_counted(tmp_path: Path) -> None:
    found = produced(tmp_path, 130)
    assert found.counts == PutCounts(Counter({Status.PUT_OK: 130}))
    assert found.stored == [str(number) for number in range(130)]
    assert found.progress == [1, 65, 129]


def test_puts_without_a_slave_are_counted_as_they_end(tmp_path: Path) -> None:
    found = produced(tmp_path, 7, BrokerRole.SYNC_MASTER)
    assert found.counts == PutCounts(Counter({Status.SLAVE_NOT_AVAILABLE: 7}))
    assert len(found.stored) == 7


def test_nothing_is_put_while_too_few_slaves_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "POLL_MS", 1)
    for options in ({"await_slaves": 1}, {"await_replicas": 1}):
        found = produced(tmp_path, 3, stop_after=20, **options)
        assert (found.counts, found.stored) == (PutCounts(), [])


def test_a_full_disk_is_a_status_and_the_producer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-67 "MUST end with SERVICE_NOT_AVAILABLE"."""
    monkeypatch.setattr(producer_module, "POLL_MS", 1)
    original, tries = Puts.put, iter(range(100))

    def put(self: Puts, *arguments: Any) -> Any:
        if next(tries) in (1, 2):
            raise StoreFull("f", 1, 2)
        return original(self, *arguments)

    monkeypatch.setattr(Puts, "put", put)
    found = produced(tmp_path, 5)
    assert found.counts == PutCounts(Counter({Status.PUT_OK: 3, Status.SERVICE_NOT_AVAILABLE: 2}))
    assert found.stored == ["0", "3", "4"]


# --- The wait for slaves -------------------------------------------------------------------------------------------------


class Service:
    """The figures of a master's connections that a wait looks at."""

    def __init__(self, connected: int, slaves: int, replicas: int, starts: tuple[int, ...] = ()) -> None:
        self.connected, self.slaves, self.replicas = connected, slaves, replicas
        self.connections = [SimpleNamespace(start_offset=start) for start in starts or [499] * connected]
        self.log = SimpleNamespace(max_offset=500)

    def count_connected(self) -> int:
        return self.connected

    def count_slaves(self) -> int:
        return self.slaves

    def count_replicas(self) -> int:
        return self.replicas


@pytest.mark.parametrize(
    ("service", "slaves", "replicas", "for_slave", "turns", "unwaited"),
    [
        pytest.param(Service(0, 0, 0), 0, 0, True, 0, 0, id="nothing is asked for"),
        pytest.param(Service(2, 3, 0), 2, 0, True, 0, 0, id="enough count as slaves"),
        pytest.param(Service(1, 3, 4), 2, 0, True, 5, 0, id="one is not connected"),
        pytest.param(Service(2, 1, 4), 2, 0, True, 5, 0, id="one does not count as a slave yet"),
        pytest.param(Service(2, 1, 0), 2, 0, False, 0, 0, id="the put waits for no slave"),
        pytest.param(Service(2, 2, 2), 0, 2, True, 0, 0, id="enough replicas"),
        pytest.param(Service(2, 2, 1), 0, 2, False, 5, 0, id="one replica too few"),
        pytest.param(Service(2, 1, 0, (499, 501)), 2, 0, True, 5, 0, id="all are sent something"),
        pytest.param(Service(2, 1, 0, (499, 500)), 2, 0, True, 5, 6, id="one has everything"),
        pytest.param(Service(2, 1, 0, (499, 500)), 2, 0, False, 0, 0, id="one has everything, and the put waits for none"),
        pytest.param(Service(0, 0, 0, (500,)), 1, 0, True, 5, 0, id="one has everything, and too few are connected"),
        pytest.param(Service(2, 2, 1, (500,)), 0, 2, True, 5, 6, id="one that has everything is no replica yet"),
    ],
)
def test_a_put_waits_until_enough_slaves_are_there(
    service: Service, slaves: int, replicas: int, for_slave: bool, turns: int, unwaited: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told to stop after five turns; the unwaited message of each look is counted."""
    monkeypatch.setattr(slave_wait_module.time, "monotonic", lambda: 100.0)
    polls: list[int] = []
    puts: list[int] = []
    wait = SlaveWait(service, slaves, replicas, lambda: puts.append(1))  # type: ignore[arg-type]
    wait.wait(lambda: polls.append(1), lambda: len(polls) >= 5, for_slave=for_slave)
    assert (len(polls), len(puts), wait.unwaited) == (turns, unwaited, unwaited)


@pytest.mark.parametrize(("replicas", "is_given_up"), [(0, True), (1, False)])
def test_a_connection_that_never_acknowledges_is_waited_for_ten_seconds(
    replicas: int, is_given_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--await-replicas has no such end. A new connection begins the ten seconds anew."""
    service = Service(2, 1, 0, (100, 200))
    wait = SlaveWait(service, 2, replicas, lambda: None)  # type: ignore[arg-type]

    def is_enough(now_s: float) -> bool:
        monkeypatch.setattr(slave_wait_module.time, "monotonic", lambda: now_s)
        polls: list[int] = []
        wait.wait(lambda: polls.append(1), lambda: bool(polls), for_slave=True)
        return not polls

    assert [is_enough(now_s) for now_s in (50.0, 59.9, 60.0)] == [False, False, is_given_up]
    service.connections = [*service.connections[1:], SimpleNamespace(start_offset=300)]
    assert [is_enough(now_s) for now_s in (70.0, 79.9, 80.0)] == [False, False, is_given_up]


# --- Retention, in words and figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        (Retention(), ""),
        (Retention(file_reserved_ms=72 * HOUR_MS), "72 h after their last write (hours 04)"),
        (Retention(file_reserved_ms=0, delete_when=frozenset({16, 4})), "0 h after their last write (hours 04;16)"),
        (Retention(file_reserved_ms=HOUR_MS, delete_when=None), "1 h after their last write (hours )"),
        (Retention(clean_file_forcibly=True), "of any age on a disk more than 85 % full"),
        (Retention(max_log_size=123), "beyond 123 bytes together"),
        (
            Retention(5 * HOUR_MS, frozenset({7}), 60, True, 99),
            "5 h after their last write (hours 07), of any age on a disk more than 85 % full, beyond 99 bytes together",
        ),
    ],
)
def test_a_retention_in_words(retention: Retention, words: str) -> None:
    assert _in_words(retention) == words


def test_the_figures_of_retention_have_their_names() -> None:
    service: Any = SimpleNamespace(deleted_files=3, deleted_size=4_567)
    for full, told in ((None, None), (StoreFull("f", 1, 2), "f: No space left on device: found 1, expected 2")):
        space: Any = SimpleNamespace(check=lambda full=full: full)
        assert CleaningFigures(service, space).figures() == {"deleted_files": 3, "deleted_bytes": 4_567, "disk_full": told}
