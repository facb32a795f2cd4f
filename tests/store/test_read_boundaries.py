"""Reads by queue offset, by key, by time and by place: the first and the last that is found, and their neighbours."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.files import delete_log_files, log_file, patch
from rocketmq_ha.impl.store import message_store, recovery_plan
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.log import reader as reader_module
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.recovery_plan import RecoveryPlan, plan_recovery
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.constants import MESSAGE_MAGIC_CODE_V2

FILE_SIZE = 4096
RECORD = 1000  # bytes: four in a file, and a BLANK of 96
OPTIONS = StoreOptions(
    file_size=FILE_SIZE, queue_file_size=200, index_geometry=Geometry(50, 1000), floor_size=0, reserved_ms=None
)


def record(number: int) -> Message:
    return Message("t", bytes([number]) * (RECORD - 98), properties_string=f"KEYS\x01{number % 2}")


def fill(path: Path) -> MessageStore:
    """Messages 0 to 24, of 1,000 bytes, stored at 10,000, 10,400, 10,800 ms, and so on."""
    store = MessageStore.open(path, OPTIONS)
    with pytest.MonkeyPatch.context() as clock:
        for number in range(25):
            clock.setattr(message_store, "wall_clock_ms", lambda number=number: 10_000 + 400 * number)
            assert store.put(record(number)).append.size == RECORD
    assert store.wait_for_dispatch()
    return store


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    """For tests that only read."""
    with fill(tmp_path_factory.mktemp("shared") / "s") as store:
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with fill(tmp_path / "s") as store:
        yield store


def offset_of(number: int) -> int:
    return number // 4 * FILE_SIZE + number % 4 * RECORD


# --- By queue offset -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("begin", "most", "max_size", "found"),
    [
        (3, 0, 9999, range(3, 3)),  # nothing is passed over
        (3, -1, 9999, range(3, 3)),
        (0, 1, 9999, range(1)),
        (0, 3, 9999, range(3)),
        (3, 2, 9999, range(3, 5)),  # of two files of the log
        (0, 32, 2999, range(2)),
        (0, 32, 3000, range(3)),
        (0, 32, 3001, range(3)),
        (0, 32, 0, range(1)),  # the first message comes whatever its size
        (0, 32, 99_999, range(10)),  # to the end of a file of the queue
        (9, 32, 99_999, range(9, 10)),
        (10, 32, 99_999, range(10, 20)),
        (24, 32, 99_999, range(24, 25)),
    ],
)
def test_messages_of_a_queue(shared: MessageStore, begin: int, most: int, max_size: int, found: range) -> None:
    result = shared.get("t", 0, begin, most, max_size)
    assert [message.body[0] for message in result.messages()] == list(found)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.FOUND, found.stop)
    assert (result.min_offset, result.max_offset) == (0, 25)


@pytest.mark.parametrize(
    ("begin", "status", "next_begin"),
    [
        (-1, GetMessageStatus.OFFSET_TOO_SMALL, 12),
        (11, GetMessageStatus.OFFSET_TOO_SMALL, 12),
        (12, GetMessageStatus.FOUND, 13),
        (24, GetMessageStatus.FOUND, 25),
        (25, GetMessageStatus.OFFSET_OVERFLOW_ONE, 25),
        (26, GetMessageStatus.OFFSET_OVERFLOW_BADLY, 25),
    ],
)
def test_a_read_outside_a_queue_says_where_to_go_on(
    store: MessageStore, begin: int, status: GetMessageStatus, next_begin: int
) -> None:
    store.log.delete_before(3 * FILE_SIZE)
    store._clean_derived(store.min_offset)
    result = store.get("t", 0, begin, 1)
    assert (result.status, result.next_begin_offset, result.min_offset, result.max_offset) == (status, next_begin, 12, 25)
    assert store.get("t", 1, begin).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    assert store.get("u", 0, begin).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE


def test_a_message_whose_file_has_gone_is_passed_over(store: MessageStore) -> None:
    """The queue follows the log a moment later."""
    store.log.delete_before(FILE_SIZE)
    result = store.get("t", 0, 2, 9)
    assert (result.status, result.next_begin_offset, result.records) == (GetMessageStatus.MESSAGE_WAS_REMOVING, 3, ())
    assert [message.body[0] for message in store.get("t", 0, 4, 3).messages()] == [4, 5, 6]
    store.log.delete_before(1 << 40)
    store._clean_derived(store.log.max_offset)
    result = store.get("t", 0, 2)
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_a_read_ends_before_a_message_that_is_not_there(store: MessageStore) -> None:
    queue = store.queues.get(b"t", 0)
    assert queue is not None
    file = queue._queue.files[0]
    ENTRY.pack_into(file.mapping, 4 * ENTRY.size, store.max_offset - RECORD, RECORD + 1, 0)  # it ends behind the log
    result = store.get("t", 0, 2, 9)
    assert ([message.body[0] for message in result.messages()], result.next_begin_offset) == ([2, 3], 4)
    assert store.get("t", 0, 4, 9).status is GetMessageStatus.MESSAGE_WAS_REMOVING
    ENTRY.pack_into(file.mapping, 4 * ENTRY.size, offset_of(3), RECORD, 0)  # backwards
    assert [message.body[0] for message in store.get("t", 0, 2, 4).messages()] == [2, 3, 3, 5]


# --- By key and time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dispatched", [True, False])
@pytest.mark.parametrize(
    ("begin", "end", "most", "numbers"),
    [
        (0, 1 << 62, 64, range(1, 25, 2)),
        (10_400, 10_400, 64, [1]),
        (10_401, 11_199, 64, []),
        (10_401, 11_200, 64, [3]),
        (10_400, 11_199, 64, [1]),
        (10_399, 11_201, 64, [1, 3]),
        (0, 10_399, 64, []),
        (19_200, 1 << 62, 64, [23]),
        (19_201, 1 << 62, 64, []),
        (0, 1 << 62, 1, [23]),
        (0, 1 << 62, 11, range(3, 25, 2)),
        (0, 12_000, 2, [3, 5]),
        (0, 12_000, 0, []),
    ],
)
def test_a_key_is_found_between_two_times(
    shared: MessageStore, begin: int, end: int, most: int, numbers: list[int], dispatched: bool
) -> None:
    """HA-ST-44 "within a span of store times", both included, to the ms; HA-ST-85 "the newest of the messages that match"."""
    end_of_dispatch = shared.dispatcher.reput_from_offset
    if not dispatched:
        shared.dispatcher.reput_from_offset = offset_of(6)  # what is behind is searched one by one
    found = shared.query("t", "1", most, begin, end)
    shared.dispatcher.reput_from_offset = end_of_dispatch
    assert [message.body[0] for _, _, message in found] == list(numbers)
    assert [(offset, size) for offset, size, _ in found] == [(offset_of(number), RECORD) for number in numbers]
    assert shared.query("u", "1", most, begin, end) == []


@pytest.mark.parametrize("clear_tail", [True, False], ids=["hardened", "classic"])
@pytest.mark.parametrize(
    ("time_ms", "first", "nearest"),
    [
        (0, 0, 0),
        (9_999, 0, 0),
        (10_000, 0, 0),
        (10_001, 1, 0),
        (10_200, 1, 0),
        (10_201, 1, 1),
        (13_600, 9, 9),
        (13_601, 10, 10),  # classic looks in one file of the queue, that with the first entry not before
        (13_799, 10, 10),
        (19_600, 24, 24),
        (19_601, 25, 24),
    ],
)
def test_a_queue_is_read_from_a_time_on(shared: MessageStore, time_ms: int, first: int, nearest: int, clear_tail: bool) -> None:
    shared.options = replace(OPTIONS, clear_tail=clear_tail)  # type: ignore[misc]
    assert shared.offset_by_time("t", 0, time_ms) == (first if clear_tail else nearest)
    assert shared.offset_by_time("t", 9, time_ms) == 0


@pytest.mark.parametrize("clear_tail", [True, False], ids=["hardened", "classic"])
@pytest.mark.parametrize(
    ("time_ms", "last"),
    [
        (0, 0),
        (9_999, 0),
        (10_000, 0),
        (10_399, 0),
        (10_400, 1),
        (13_599, 8),
        (13_600, 9),
        (13_999, 9),
        (14_000, 10),
        (19_599, 23),
        (19_600, 24),
        (1 << 62, 24),
    ],
)
def test_a_queue_is_read_up_to_a_time(shared: MessageStore, time_ms: int, last: int, clear_tail: bool) -> None:
    """HA-ST-94 "MUST find the last message of the queue that is not newer": in all its files; classic has no such end."""
    shared.options = replace(OPTIONS, clear_tail=clear_tail)  # type: ignore[misc]
    nearest = shared.offset_by_time("t", 0, time_ms)
    assert shared.offset_by_time("t", 0, time_ms, upper=True) == (last if clear_tail else nearest)
    assert shared.offset_by_time("t", 9, time_ms, upper=True) == 0


# --- By place --------------------------------------------------------------------------------------------------------


def test_a_message_is_read_at_its_place_alone(store: MessageStore) -> None:
    store.log.delete_before(FILE_SIZE)
    with LogReader(store.store_dir) as reader:
        for read in (store.message_at, reader.message_at):
            assert read(FILE_SIZE - 1) is None
            for number in (4, 7, 24):
                found = read(offset_of(number))
                assert found is not None
                assert (found[0], found[1], found[2].body[0]) == (offset_of(number), RECORD, number)
                assert read(offset_of(number) - 1) is None
                assert read(offset_of(number) + 1) is None
            assert read(offset_of(7) + RECORD) is None  # a BLANK
            assert read(store.max_offset) is None
            assert read(7 * FILE_SIZE) is None
            assert read(1 << 40) is None


def test_a_record_of_another_place_is_no_message(store: MessageStore) -> None:
    at = store.max_offset
    store.append_data(at, [encode(record(99), 25, at + 1)])
    assert store.message_at(at) is None


@pytest.mark.parametrize(
    ("start", "first"),
    [
        *((-5, 4), (0, 4), (FILE_SIZE, 4), (FILE_SIZE + 1, 5), (offset_of(5), 5), (offset_of(7), 7), (offset_of(7) + 1, 8)),
        *((2 * FILE_SIZE - 1, 8), (2 * FILE_SIZE, 8), (offset_of(24), 24), (offset_of(24) + 1, None), (1 << 40, None)),
    ],
)
def test_a_reader_begins_at_or_behind_an_offset(store: MessageStore, start: int, first: int | None) -> None:
    store.log.delete_before(FILE_SIZE)
    with LogReader(store.store_dir) as reader:
        numbers = [message.body[0] for _, _, message in reader.records(start)]
        assert numbers == ([] if first is None else list(range(first, 25)))
        assert reader.max_offset == (store.max_offset if start < 7 * FILE_SIZE else FILE_SIZE)


@pytest.mark.parametrize("variant", [{"magic": MESSAGE_MAGIC_CODE_V2}, {"born_host": ("::1", 1), "sys_flag": 0x10}])
def test_a_reader_counts_each_record_and_blank(tmp_path: Path, variant: dict[str, object]) -> None:
    with CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as log:
        for number in range(10):
            log.append(replace(record(number), **variant))  # type: ignore[arg-type]
        end, size = log.max_offset, log.append(record(10)).offset
        assert end == size
    reached: list[int] = []
    with LogReader(tmp_path / "s") as reader:
        assert reader.data_size() == log.recovery.end + end + RECORD
        reader.walk(reached.append)
        assert (reader.messages, reader.max_offset, reader.tail_size) == (11, end + RECORD, 0)
        assert [stop for _, stop in reader.blanks] == [FILE_SIZE, 2 * FILE_SIZE]
        assert [FILE_SIZE - begin % FILE_SIZE for begin, _ in reader.blanks] == [
            int.from_bytes(reader.data_at(begin, 4), "big") for begin, _ in reader.blanks
        ]
        assert reached == [FILE_SIZE, 2 * FILE_SIZE, end + RECORD]
        assert [reader.file_at(at).name for at in (0, FILE_SIZE - 1, FILE_SIZE)] == [
            f"{base:020d}" for base in (0, 0, FILE_SIZE)
        ]
        assert len(reader.data_at(FILE_SIZE - 3, 99)) == 3


def test_a_reader_tells_how_far_it_has_come(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "STRIDE", 1500)
    reached: list[int] = []
    with LogReader(store.store_dir) as reader:
        reader.walk(reached.append)
        assert reader.messages == 25
    assert reached[:4] == [2000, 4000, FILE_SIZE, FILE_SIZE + 2000]
    assert reached[-1] == store.max_offset


# --- What an opening would do ----------------------------------------------------------------------------------------


def plan_of(store: Path) -> RecoveryPlan:
    return plan_recovery(store, is_ours=True)


def test_a_plan_of_a_store_at_rest(store: MessageStore) -> None:
    held = plan_recovery(store.store_dir)
    assert (held.stop, held.end, held.dispatch_from) == ("running", offset_of(25), offset_of(25))
    assert (held.cut_size, held.entries_cut, held.keys_cut, held.files_removed) == (0, 0, 0, 0)
    store.close()
    plan = plan_of(store.store_dir)
    assert (plan.files, plan.min_offset, plan.start, plan.end) == (7, 0, 4 * FILE_SIZE, offset_of(25))
    assert (plan.messages, plan.cut_size, plan.dispatch_from) == (9, 0, offset_of(25))
    assert (plan.entries_cut, plan.keys_cut, plan.files_removed) == (0, 0, 0)
    assert (plan.stop, plan.changes_something) == ("clean", False)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("abort", {"is_clean": False}),
        ("tail", {"cut_size": 3}),
        (
            "last record",
            {
                "end": offset_of(24),
                "cut_size": 500,
                "entries_cut": 1,
                "keys_cut": 1,
                "messages": 8,
                "dispatch_from": offset_of(23),
            },
        ),
        ("queues", {"dispatch_from": 0}),
        ("queue entry", {"dispatch_from": offset_of(23)}),  # the last record before the BLANK at which the queue ends
        ("first files", {"min_offset": 2 * FILE_SIZE, "files": 5}),
    ],
)
def test_a_plan_tells_each_thing_that_an_opening_would_change(
    store: MessageStore, change: str, expected: dict[str, object]
) -> None:
    path = store.store_dir
    store.close()
    last = log_file(path, 6 * FILE_SIZE)
    match change:
        case "abort":
            (path / "abort").touch()
        case "tail":
            patch(last, RECORD, b"\0\0\7")
        case "last record":
            patch(last, 500, bytes(FILE_SIZE - 500))
        case "queues":
            for file in (path / "consumequeue").rglob("0*"):
                if file.is_file():
                    file.unlink()
        case "queue entry":
            patch(path / "consumequeue" / "t" / "0" / f"{400:020d}", 80, bytes(20))
        case "first files":
            delete_log_files(path, 2 * FILE_SIZE)
    plan = plan_of(path)
    for name, value in expected.items():
        assert getattr(plan, name) == value, name
    assert plan.changes_something == (change != "first files")
    with MessageStore.open(path, OPTIONS) as again:
        assert (again.min_offset, again.max_offset) == (plan.min_offset, plan.end)
        assert again.log.recovery.messages == plan.messages
        assert [found[2].body[0] for found in again.query("t", "0")][-1] == (22 if change == "last record" else 24)
        queue = again.queues.get(b"t", 0)
        assert queue is not None
        assert queue.max_offset == (24 if change == "last record" else 25)


@pytest.mark.parametrize("change", ["no queues", "an entry beyond the end"])
def test_an_open_store_is_dispatched_within_its_log(store: MessageStore, change: str) -> None:
    """HA-ST-49 "MUST report how far that store has come"; its owner deletes queues, and dispatches what came since."""
    path, end = store.store_dir, offset_of(24) + RECORD
    store.close()
    if change == "no queues":
        delete_log_files(path, 2 * FILE_SIZE)
        shutil.rmtree(path / "consumequeue")
    else:
        patch(path / "consumequeue" / "t" / "0" / f"{400:020d}", 100, ENTRY.pack(end, 9, 0))
    plan = recovery_plan._plan(path, 1, lambda _: None)
    assert (plan.dispatch_from, plan.end, plan.entries_cut) == (2 * FILE_SIZE if change == "no queues" else end, end, 0)
