"""Chores that fail and recover, the order of what is flushed, and the times that a flush puts into the checkpoint.

HA-ST-23, HA-ST-24.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.stage import lines
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store import message_store
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.dispatch import ReputMessageService
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.topic_config import read_topics
from rocketmq_ha.impl.store.derived.topic_notes import TopicNotes
from rocketmq_ha.impl.store.housekeeping import Derived, Housekeeping, LogFlush
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.role import BrokerRole

OPTIONS = StoreOptions(file_size=4096, queue_file_size=2000, index_geometry=Geometry(50, 50), floor_size=0)

# --- Chores ----------------------------------------------------------------------------------------------------------


def run_chores(caplog: pytest.LogCaptureFixture, *plays: list[Exception | None]) -> list[str]:
    """Run chores, each with an outcome for each turn. Returns: the lines of the log."""
    turns = len(plays[0])
    done = threading.Event()
    counts = [0] * len(plays)

    def chore(number: int) -> Callable[[], None]:
        def run() -> None:
            turn = counts[number]
            counts[number] += 1
            if number == len(plays) - 1 and turn >= turns - 1:
                done.set()
            if turn < turns and (outcome := plays[number][turn]) is not None:
                raise outcome

        run.__name__ = f"chore{number}"
        return run

    service = Housekeeping([chore(number) for number in range(len(plays))], 0.0)
    with caplog.at_level(logging.ERROR):
        service.start()
        assert done.wait(PATIENCE_S)
        service.shutdown()
    assert len(set(counts)) == 1  # each in each turn
    return lines(caplog, logging.ERROR)


FULL, CORRUPT, INVALID = OSError(28, "No space left on device"), StoreCorrupt("f", 7, "a", "b"), ConfigInvalid("x")


@pytest.mark.parametrize(
    ("plays", "told"),
    [
        ([[None, None]], []),
        ([[FULL, FULL, FULL]], [(0, FULL)]),
        ([[FULL, CORRUPT]], [(0, FULL)]),  # it fails still
        ([[FULL, None, CORRUPT, None, None, INVALID]], [(0, FULL), (0, CORRUPT), (0, INVALID)]),
        ([[FULL, FULL], [CORRUPT, CORRUPT]], [(0, FULL), (1, CORRUPT)]),
        ([[FULL, FULL, FULL], [None, CORRUPT, None]], [(0, FULL), (1, CORRUPT)]),
        ([[FULL, None, FULL], [CORRUPT, CORRUPT, CORRUPT]], [(0, FULL), (1, CORRUPT), (0, FULL)]),
        (
            [[FULL, FULL, FULL], [CORRUPT, None, CORRUPT], [None, None, INVALID]],
            [(0, FULL), (1, CORRUPT), (1, CORRUPT), (2, INVALID)],
        ),
    ],
)
def test_each_chore_that_fails_is_told_once_until_it_succeeds(
    caplog: pytest.LogCaptureFixture, plays: list[list[Exception | None]], told: list[tuple[int, Exception]]
) -> None:
    found = run_chores(caplog, *plays)
    assert found == [f"chore{number} fails, and is tried again: {error}" for number, error in told]


def test_chores_that_were_never_started_can_be_ended() -> None:
    Housekeeping([lambda: None]).shutdown()


# --- The order -------------------------------------------------------------------------------------------------------

STEPS = {
    "dispatch": (ReputMessageService, "shutdown"),
    "log": (CommitLog, "flush"),
    "queues": (ConsumeQueueTable, "flush"),
    "index": (IndexService, "flush"),
    "checkpoint": (StoreCheckpoint, "flush"),
    "topics": (TopicNotes, "write"),
    "stopped": (message_store, "mark_stopped"),
    "queues closed": (ConsumeQueueTable, "close"),
    "index closed": (IndexService, "close"),
    "log closed": (CommitLog, "close"),
}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A store in which nobody but the test flushes."""
    with MessageStore.open(tmp_path / "s", OPTIONS) as store:
        store._housekeeping.shutdown()
        store._flush.shutdown()
        store.put(Message("t", b"x", properties_string="KEYS\x01k"))
        assert store.wait_for_dispatch()
        yield store


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch, store: MessageStore) -> list[str]:
    assert store.dispatcher.behind() == 0
    done: list[str] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            done.append(name)
            return real(*arguments)

        return step

    for name, (owner, attribute) in STEPS.items():
        monkeypatch.setattr(owner, attribute, noted(name, getattr(owner, attribute)))
    return done


FLUSHES = ["log", "queues", "index", "checkpoint"]


def test_a_checkpoint_is_written_behind_what_it_vouches_for(store: MessageStore, order: list[str]) -> None:
    assert store.flush() == store.max_offset == store.flushed_offset
    assert order == FLUSHES


def test_a_stop_flushes_then_tells_of_it_then_lets_go(store: MessageStore, order: list[str]) -> None:
    store.close()
    assert order == ["dispatch", *FLUSHES, "topics", "stopped", "queues closed", "index closed", "log closed"]


@pytest.mark.parametrize(("is_thorough", "expected"), [(False, ["queues", "checkpoint"]), (True, FLUSHES[1:])])
def test_a_chore_leaves_the_index_for_the_thorough_flush(
    store: MessageStore, order: list[str], monkeypatch: pytest.MonkeyPatch, is_thorough: bool, expected: list[str]
) -> None:
    monkeypatch.setattr(store, "_is_thorough", lambda: is_thorough)
    store._flush_derived()
    assert order == expected


def test_a_store_has_four_chores(store: MessageStore) -> None:
    """Each alone has its tests; here none is forgotten."""
    chores = [store._flush_derived, store._topics.write, store._watch_space, store._delete_expired]
    assert list(store._housekeeping._chores) == chores


# --- Topics ----------------------------------------------------------------------------------------------------------


def test_topics_that_come_by_replication_are_noted_by_a_chore(tmp_path: Path) -> None:
    """Of these the log itself counts no queues."""
    with MessageStore.open(tmp_path / "s", replace(OPTIONS, role=BrokerRole.SLAVE)) as store:
        store._housekeeping.shutdown()
        for queue_id, topics in ((6, {"u": 7}), (2, {"u": 7}), (8, {"u": 9})):
            store.append_data(store.max_offset, [encode(Message("u", b"x", queue_id=queue_id), 0, store.max_offset)])
            assert store.wait_for_dispatch()
            store._topics.write()
            assert read_topics(tmp_path / "s") == topics


# --- The times -------------------------------------------------------------------------------------------------------


class PlayedLog:
    """A log of which the last message was put at a time, 0 for a log that takes replicated bytes alone."""

    def __init__(self, last_stored_ms: int, max_offset: int, flushed: int) -> None:
        self.last_stored_ms, self.max_offset, self.flushed_offset = last_stored_ms, max_offset, flushed
        self.pages: list[int] = []

    def flush(self, least_pages: int) -> int:
        self.pages.append(least_pages)
        return self.flushed_offset


@pytest.mark.parametrize(
    ("stored", "dispatched", "before", "flushed", "physic"),
    [
        (700, 500, 300, 1000, 700),
        (0, 500, 300, 1000, 500),  # a slave's: what it dispatched
        (500, 700, 300, 1000, 700),
        (700, 500, 900, 1000, 900),  # it never goes back
        (700, 500, 300, 999, 300),  # not all was flushed
        (700, 500, 300, 1001, 700),
        (0, 0, 300, 1000, 300),
    ],
)
def test_the_first_time_is_that_of_the_last_message_before_a_whole_flush(
    tmp_path: Path, stored: int, dispatched: int, before: int, flushed: int, physic: int
) -> None:
    checkpoint = StoreCheckpoint(tmp_path)
    checkpoint.physic_msg_timestamp = before
    log, derived = PlayedLog(stored, 1000, flushed), SimpleNamespace(dispatched_ms=dispatched)
    flush = LogFlush(log, checkpoint, derived)  # type: ignore[arg-type]
    assert flush.flushed_offset == flushed
    assert flush.flush(4) == flushed
    assert flush.flush() == flushed
    assert log.pages == [4, 0]
    assert (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp) == (physic, 0, 0)


class PlayedPart:
    """Queues, or an index, whose last full file ends at a time."""

    def __init__(self, end_ms: int = 0) -> None:
        self.flushes: list[int | None] = []
        self._end_ms = end_ms

    def flush(self, least_pages: int | None = None) -> int:
        self.flushes.append(least_pages)
        return self._end_ms


@pytest.mark.parametrize(
    ("least_pages", "dispatched", "index_ms", "expected"),
    [
        (0, 500, 200, (500, 200)),
        (0, 500, 0, (500, 50)),
        (0, 90, 20, (100, 50)),
        (0, 100, 51, (100, 51)),
        (1, 500, 200, (100, 50)),
        (2, 500, 200, (100, 50)),
    ],
)
def test_the_other_times_are_those_of_the_dispatch_and_of_the_index(
    tmp_path: Path, least_pages: int, dispatched: int, index_ms: int, expected: tuple[int, int]
) -> None:
    queues, index = PlayedPart(), PlayedPart(index_ms)
    derived = Derived(queues, index)  # type: ignore[arg-type]
    for ms in (dispatched, dispatched - 1):  # what is dispatched again does not turn it back
        derived.note(SimpleNamespace(last_store_timestamp=ms))  # type: ignore[arg-type]
    assert derived.dispatched_ms == dispatched
    checkpoint = StoreCheckpoint(tmp_path)
    checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp = 100, 50
    derived.flush(checkpoint, least_pages)
    assert (checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp) == expected
    assert checkpoint.physic_msg_timestamp == 0
    assert queues.flushes == [least_pages]
    assert index.flushes == ([] if least_pages else [None])
