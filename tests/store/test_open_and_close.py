"""The start and the stop of a store, with an error at each step: what is released, and what the next start is told.

HA-ST-23, HA-ST-24.
"""

import errno
import gc
import json
import logging
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.files import descriptors_below, log_file
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.errors import ConfigInvalid, StoreClosed, StoreCorrupt
from rocketmq_ha.impl.store import housekeeping, message_store
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.dispatch import ReputMessageService
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.rebuild import DerivedRecovery
from rocketmq_ha.impl.store.derived.topic_notes import TopicNotes
from rocketmq_ha.impl.store.housekeeping import Every, Housekeeping, LogFlush
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint, was_aborted
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.deleted_places import FILES
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.impl.store.log.lock import StoreLock, lock_holder
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message, encode

OPTIONS = StoreOptions(file_size=4096, queue_file_size=2000, index_geometry=Geometry(50, 50), floor_size=0)
KEYED = Message("t", b"body", properties_string="KEYS\x01k")


def eio(*_: object, **__: object) -> Any:
    raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def _nothing_is_left_open(path: Path) -> Any:
    """Whatever a test does: no thread, no descriptor and no lock of the store is left behind."""
    threads = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= threads
    for generation in (1, 2):  # a mapping has a descriptor of its own, which goes with it
        if descriptors_below(path):
            gc.collect(generation)
    assert descriptors_below(path) == []
    if path.exists():
        assert lock_holder(path) is None


# --- The stop --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("present", [0, 1, 8, 60, 98, 99])
@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind a record"])
def test_a_stop_with_part_of_a_record_is_not_clean(path: Path, present: int, behind: bool) -> None:
    """HA-ST-23 "It MUST stay when the broker stops before all has been dispatched": quirk 31."""
    with MessageStore.open(path, OPTIONS) as store:
        begin = store.put(Message("t", b"first")).append.next_offset if behind else 0
        record = encode(Message("t", b"tail", properties_string="K\x01v"), int(behind), begin)
        assert len(record) == 99
        store.append_data(begin, [record[:present]])
        assert was_aborted(path)
    assert was_aborted(path) == (0 < present < 99)
    with MessageStore.open(path, OPTIONS) as store:
        assert store.max_offset == begin + (99 if present == 99 else 0)
    assert not was_aborted(path)


def test_a_stop_at_bytes_that_are_no_record_is_not_clean(path: Path) -> None:
    with MessageStore.open(path, OPTIONS) as store:
        store.append_data(0, [b"\xff" * 200])
        with pytest.raises(StoreCorrupt):
            store.wait_for_dispatch()
    assert was_aborted(path)


def test_a_stop_whose_dispatch_has_ended_with_an_error_is_not_clean(path: Path) -> None:
    """A queue offset that no log would have: the record is whole, and the next start looks at it again."""
    with MessageStore.open(path, OPTIONS) as store:
        begin = store.put(Message("t", b"")).append.next_offset
        store.append_data(begin, [encode(Message("t", b""), 1 << 40, begin)])
        with pytest.raises(StoreCorrupt, match="queue offset"):
            store.wait_for_dispatch()
    assert was_aborted(path)


STEPS_OF_A_STOP = {
    "the log's flush": (CommitLog, "flush"),
    "the queues' flush": (ConsumeQueueTable, "flush"),
    "the index's flush": (IndexService, "flush"),
    "the checkpoint": (StoreCheckpoint, "flush"),
    "the topics": (TopicNotes, "write"),
}


@pytest.mark.parametrize("step", STEPS_OF_A_STOP)
def test_a_stop_that_fails_releases_all_and_leaves_abort(path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    store = MessageStore.open(path, OPTIONS)
    store.put(KEYED)
    with monkeypatch.context() as broken:
        broken.setattr(*STEPS_OF_A_STOP[step], eio)
        with pytest.raises(OSError, match="Input/output error"):
            store.close()
    store.close()  # a second one does nothing
    assert was_aborted(path)
    with pytest.raises(StoreClosed):
        store.put(KEYED)
    with MessageStore.open(path, OPTIONS) as store:
        assert [found[2].body for found in store.query("t", "k")] == [b"body"]
        assert store.put(KEYED).append.queue_offset == 1
    assert not was_aborted(path)


def test_a_clean_stop_has_all_on_the_disk(path: Path) -> None:
    """The log, and the checkpoint's first two times; the third is that of a full index file."""
    with MessageStore.open(path, OPTIONS) as store:
        times = [store.put(KEYED).append.store_timestamp for _ in range(60)]
        assert store.wait_for_dispatch()
    found = StoreCheckpoint(path)
    assert (found.physic_msg_timestamp, found.logics_msg_timestamp) == (times[-1], times[-1])
    assert found.index_msg_timestamp == times[48]  # 49 keys fill a file of 50 entries
    assert store.log.flushed_offset == store.log.max_offset


# --- The start -------------------------------------------------------------------------------------------------------

STEPS_OF_A_START: dict[str, tuple[Any, str]] = {
    "the queues": (ConsumeQueueTable, "__init__"),
    "the index": (IndexService, "__init__"),
    "the recovery of both": (DerivedRecovery, "run"),
    "abort": (message_store, "mark_running"),
    "the checkpoint": (StoreCheckpoint, "flush"),
    "the first dispatch": (ReputMessageService, "dispatch_all"),
    "the first thread": (ReputMessageService, "start"),
    "the last thread": (Housekeeping, "start"),
}


@pytest.mark.parametrize("step", STEPS_OF_A_START)
def test_a_start_that_fails_releases_all_and_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    with MessageStore.open(path, OPTIONS) as store:
        store.put(KEYED)
    before = log_file(path).read_bytes()
    with monkeypatch.context() as broken:
        broken.setattr(*STEPS_OF_A_START[step], eio)
        with pytest.raises(OSError, match="Input/output error"):
            MessageStore.open(path, OPTIONS)
    assert lock_holder(path) is None
    assert log_file(path).read_bytes() == before
    with MessageStore.open(path, OPTIONS) as store:
        assert [found[2].body for found in store.query("t", "k")] == [b"body"]
        assert store.put(KEYED).append.queue_offset == 1


def test_a_start_takes_over_the_lock_of_its_caller_even_where_it_fails(path: Path) -> None:
    MessageStore.open(path, OPTIONS).close()
    with MessageStore.open(path, OPTIONS, StoreLock(path, create=True)):
        assert lock_holder(path) == os.getpid()
    assert lock_holder(path) is None
    (path / "commitlog" / "no-offset").touch()
    with pytest.raises(StoreCorrupt):
        MessageStore.open(path, OPTIONS, StoreLock(path, create=True))
    assert lock_holder(path) is None


def test_abort_is_there_before_anything_is_dispatched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-23 "from the start of a broker to its clean stop": a crash in the first dispatch must not look like one."""
    MessageStore.open(path, OPTIONS).close()
    seen: list[bool] = []
    real = ReputMessageService.dispatch_all

    def dispatch_all(self: ReputMessageService) -> int:
        seen.append(was_aborted(path))
        return real(self)

    monkeypatch.setattr(ReputMessageService, "dispatch_all", dispatch_all)
    MessageStore.open(path, OPTIONS).close()
    assert seen == [True]


@pytest.mark.parametrize("is_clean", [True, False])
def test_no_put_is_stored_before_the_last_one_of_an_earlier_process(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool
) -> None:
    monkeypatch.setattr(message_store, "wall_clock_ms", lambda: 5_000)
    with MessageStore.open(path, OPTIONS) as store:
        for _ in range(60):  # several files: recovery looks at the last three
            store.put(KEYED)
    if not is_clean:
        (path / "abort").touch()
    monkeypatch.setattr(message_store, "wall_clock_ms", lambda: 4_000)
    with MessageStore.open(path, OPTIONS) as store:
        assert store.log.last_stored_ms == 5_000
        assert store.put(KEYED).append.store_timestamp == 5_000


# --- The times of the checkpoint -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "physic"), [(0, 200), (1, 100)])
def test_the_first_time_advances_where_all_that_was_stored_is_flushed(
    path: Path, monkeypatch: pytest.MonkeyPatch, left: int, physic: int
) -> None:
    """A sync covers what was there before it: a message that comes during it does not count, and neither does its time."""
    with MessageStore.open(path, OPTIONS) as store:
        store._flush.shutdown()  # the test flushes, nobody else
        checkpoint = StoreCheckpoint(path)
        flush = LogFlush(store.log, checkpoint, store._derived)
        store.log.append(KEYED, 100)
        flush.flush()
        assert checkpoint.physic_msg_timestamp == 100
        end = store.log.append(KEYED, 200).next_offset
        real = CommitLog.flush

        def during(self: CommitLog, least_pages: int = 0) -> int:
            real(self, least_pages)
            self.append(KEYED, 300)
            return end - left

        monkeypatch.setattr(CommitLog, "flush", during)
        assert flush.flush() == end - left
        assert checkpoint.physic_msg_timestamp == physic
        monkeypatch.undo()
        checkpoint.physic_msg_timestamp = 900
        flush.flush()
        assert checkpoint.physic_msg_timestamp == 900  # it never goes back


@pytest.mark.parametrize(("least_pages", "logics"), [(0, 100), (1, 0), (2, 0)])
def test_the_second_time_advances_where_queues_and_index_are_flushed_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, least_pages: int, logics: int
) -> None:
    with MessageStore.open(path, OPTIONS) as store:
        store._housekeeping.shutdown()
        store.log.append(KEYED, 100)
        assert store.wait_for_dispatch()
        checkpoint, derived = StoreCheckpoint(path), store._derived
        assert checkpoint.logics_msg_timestamp == 0

        def during(*_: object) -> None:
            derived.dispatched_ms = 200  # dispatched while the disk works: not covered

        with monkeypatch.context() as patched:
            patched.setattr(ConsumeQueueTable, "flush", during)
            derived.flush(checkpoint, least_pages)
        assert (checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp) == (logics, 0)
        for part in (ConsumeQueueTable, IndexService):
            with monkeypatch.context() as patched:
                patched.setattr(part, "flush", eio)
                with pytest.raises(OSError, match="Input/output error"):
                    derived.flush(checkpoint)
            assert checkpoint.logics_msg_timestamp == logics
        checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp = 900, 800
        derived.flush(checkpoint)
        assert (checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp) == (900, 800)


@pytest.mark.parametrize("is_thorough", [False, True])
def test_a_chore_flushes_few_pages_now_and_then(path: Path, is_thorough: bool) -> None:
    with MessageStore.open(path, OPTIONS) as store:
        store._housekeeping.shutdown()
        store._is_thorough = lambda: is_thorough  # type: ignore[assignment,method-assign]
        store.log.append(KEYED, 100)
        assert store.wait_for_dispatch()
        store._flush_derived()
        assert StoreCheckpoint(path).logics_msg_timestamp == (100 if is_thorough else 0)
        store.checkpoint.index_msg_timestamp = 50
        store._flush_derived()
        assert StoreCheckpoint(path).index_msg_timestamp == 50  # it is written at each turn


# --- Chores ----------------------------------------------------------------------------------------------------------


def test_every_is_true_once_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 100, 109.5, 110, 110, 119.5, 125, 134.5, 135])
    monkeypatch.setattr(housekeeping.time, "monotonic", lambda: next(times))
    every = Every(10)
    assert [every() for _ in range(8)] == [False, False, True, False, False, True, False, True]


def test_a_chore_that_fails_is_told_once_until_it_has_succeeded_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    results = iter([eio, eio, lambda: None, eio])
    done = threading.Event()
    others = 0

    def shaky() -> None:
        next(results, done.set)()

    def other() -> None:
        nonlocal others
        others += not done.is_set()

    chores = Housekeeping((shaky, other), 0.0)
    with caplog.at_level(logging.ERROR):
        chores.start()
        assert done.wait(60)
        chores.shutdown()
    assert caplog.text.count("shaky fails, and is tried again: [Errno 5] Input/output error") == 2
    assert others == 4


@pytest.mark.parametrize(("expiry_s", "turn_s"), [(30.0, 1.0), (0.25, 0.25)])
def test_a_store_works_at_the_intervals_of_its_options(path: Path, expiry_s: float, turn_s: float) -> None:
    """An interval below that of the other chores is kept too."""
    intervals = FlushIntervals(11.0, 12, 13.0)
    with MessageStore.open(path, replace(OPTIONS, expiry_interval_s=expiry_s, flush_intervals=intervals)) as store:
        flushed = store._flush
        assert (flushed._interval_s, flushed._least_pages, flushed._thorough_interval_s) == intervals
        assert (store._is_expiry_due._interval_s, store._housekeeping._interval_s) == (expiry_s, turn_s)


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "consumequeue/t/0", "index", "config", "c"])
def test_a_part_of_a_store_is_no_store(tmp_path: Path, part: str) -> None:
    """HA-ST-93 "MUST be refused as a store, unchanged": else the store cannot be opened any more."""
    store = tmp_path / "store"
    with MessageStore.open(store, OPTIONS) as opened:
        opened.put(Message("t", b"body", properties_string="KEYS\x01k"))
        assert opened.dispatcher.wait_for(opened.max_offset, PATIENCE_S)
    (store / "config").mkdir(exist_ok=True)
    (store / "c").symlink_to(store / "commitlog")
    before = sorted(path.name for path in store.rglob("*"))
    with pytest.raises(ConfigInvalid, match=rf"store/{part}: found .* expected (that store|STORE) itself"):
        MessageStore.open(store / part, OPTIONS)
    assert sorted(path.name for path in store.rglob("*")) == before
    with MessageStore.open(store, OPTIONS) as opened:
        assert opened.max_offset > 0


PLACES = {"a": {"logOffset": 1 << 40}, "b": {"logOffset": 1, "more": "kept"}}


@pytest.mark.parametrize("name", FILES)
def test_places_of_deletions_beyond_the_end_are_taken_back(tmp_path: Path, name: str) -> None:
    """HA-BT-80 "MUST NOT hide what is stored in its place": also by a slave, which opens the log alone."""
    file = tmp_path / "config" / name
    file.parent.mkdir()
    file.write_text(json.dumps({"dataVersion": {"counter": 1}, "deletedTopicTable": PLACES}))
    with CommitLog.open(tmp_path, file_size=4096) as log:
        assert log.max_offset == 0
    taken_back = {"a": {"logOffset": 0}, "b": {"logOffset": 0, "more": "kept"}}
    assert json.loads(file.read_text()) == {"dataVersion": {"counter": 1}, "deletedTopicTable": taken_back}
    with MessageStore.open(tmp_path, OPTIONS) as store:
        end = store.put(Message("t", b"body")).append.next_offset
    file.write_text(json.dumps({"deletedTopicTable": {"a": {"logOffset": end}, "b": {"logOffset": end + 1}}}))
    with MessageStore.open(tmp_path, OPTIONS):
        assert json.loads(file.read_text()) == {"deletedTopicTable": {"a": {"logOffset": end}, "b": {"logOffset": end}}}


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"deletedTopicTable":[]}', '{"deletedTopicTable":{"a":{"logOffset":"x"}}}']
)
def test_a_damaged_file_of_deletions_is_left_to_the_broker(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config" / FILES[0]
    file.parent.mkdir()
    file.write_text(content)
    with CommitLog.open(tmp_path, file_size=4096):
        assert file.read_text() == content
