"""A consume queue keeps entry n for message n through repeated puts, truncation, deletion and torn writes.

HA-ST-29 to HA-ST-38.
"""

import logging
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.files import contents
from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store.derived.consume_queue import FILE_SIZE, ConsumeQueue
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable, is_directory_name
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY_SIZE, FILLER_SIZE, Entry

ENTRIES = 4  # entries in a file
SIZE = ENTRIES * ENTRY_SIZE
FILLER = struct.pack(">qiq", 0, 2147483647, 0)


def opened(directory: Path, *, writable: bool = True) -> ConsumeQueue:
    queue = ConsumeQueue(directory, SIZE, writable=writable)
    queue.recover()
    return queue


def filled(directory: Path, count: int, first: int = 0, at: int = 1000) -> ConsumeQueue:
    """A queue of consecutive messages of 100 bytes, from queue offset `first` on."""
    queue = opened(directory)
    for index in range(count):
        queue.put(at + 100 * index, 100, index, first + index)
    return queue


def overwrite(directory: Path, index: int, *fields: int) -> None:
    """Put an entry (offset, size, tags code) in the place of another one of a closed queue; without fields, zeros."""
    with (directory / f"{index // ENTRIES * SIZE:020d}").open("r+b") as file:
        file.seek(index % ENTRIES * ENTRY_SIZE)
        file.write(struct.pack(">qiq", *(fields or (0, 0, 0))))


def state(queue: ConsumeQueue) -> tuple[int, int, int, list[tuple[int, Entry]]]:
    return queue.min_offset, queue.max_offset, queue.max_physic_offset, list(queue.entries())


def request(topic: bytes, queue_id: int, offset: int, queue_offset: int, sys_flag: int = 0) -> DispatchRequest:
    return DispatchRequest(topic, queue_id, offset, 100, 7, 1, queue_offset, "", None, sys_flag, 0)


def test_a_hole_among_expired_messages_is_not_the_end_of_a_queue_after_the_next_clean_stop(tmp_path: Path) -> None:
    """HA-ST-33 "an entry that names no message". Pages of entries that the checkpoint does not vouch for are lost; their
    messages have expired.

    The crash campaign found this (seed 3, life 18, one journal): the queue was cut at the hole, and dispatch continued after
    it.
    """
    filled(tmp_path / "0", 11).close()
    for index in (1, 2, 5):
        overwrite(tmp_path / "0", index)
    queue = ConsumeQueue(tmp_path / "0", SIZE, writable=True)
    queue.keep_expired(2000, 10)  # the log now begins at 2000, with message 10
    queue.put(2000, 100, 10, 10)
    queue.correct_min_offset(2000)
    before = state(queue)
    assert before[:3] == (10, 11, 2100)
    assert [index for index, entry in queue.entries() if entry.is_filler] == [1, 2, 5]
    queue.close()
    queue = opened(tmp_path / "0")
    queue.correct_min_offset(2000)
    assert state(queue) == before
    queue.close()


def test_a_filler_beside_the_tags_code_of_a_lost_entry_is_a_filler(tmp_path: Path) -> None:
    """HA-ST-33: a power cut between two sectors leaves it. It names no message, so no queue ends with it."""
    filled(tmp_path / "0", 3).close()
    overwrite(tmp_path / "0", 1, 0, FILLER_SIZE, 97)
    queue = opened(tmp_path / "0")
    assert [index for index, entry in queue.entries() if entry.is_filler] == [1]
    queue.truncate_dirty(1200)
    assert (queue.max_offset, queue.max_physic_offset) == (1, 1100)
    queue.close()


def test_an_expired_entry_behind_one_of_a_later_message_becomes_a_filler(tmp_path: Path) -> None:
    """HA-ST-97 "each begins behind the message of the one kept before it": searches rely on the order of offsets."""
    filled(tmp_path / "0", 11).close()
    overwrite(tmp_path / "0", 3, 1450, 50, 3)  # a sector of an earlier history; 4 begins at 1400 and 5 at 1500
    queue = ConsumeQueue(tmp_path / "0", SIZE, writable=True)
    queue.keep_expired(3000, None)
    assert [index for index, entry in queue.entries() if entry.is_filler] == [4]
    assert (queue.max_offset, queue.max_physic_offset) == (11, 2100)
    queue.close()


@pytest.mark.parametrize("torn", [(0, 0x7FFFFF00, 0), (0, 0x7F000000, 0), (0, FILLER_SIZE, 97)], ids=str)
def test_what_is_left_of_a_filler_is_no_message_of_2_gib(torn: tuple[int, int, int], tmp_path: Path) -> None:
    """HA-ST-97, in a log that begins behind 2 GiB: all of these end before it."""
    filled(tmp_path / "0", 6, at=3 << 30).close()
    overwrite(tmp_path / "0", 0, *torn)
    queue = ConsumeQueue(tmp_path / "0", SIZE, writable=True)
    queue.keep_expired(4 << 30, None)
    queue.close()
    queue = opened(tmp_path / "0")
    assert next(entry for _, entry in queue.entries()) == (0, FILLER_SIZE, 0)
    assert queue.max_offset == 6
    queue.close()


def test_an_entry_of_a_message_of_the_log_among_expired_ones_becomes_a_filler(tmp_path: Path) -> None:
    """HA-ST-97 "fillers (HA-ST-33) take all other places", in any file of the queue."""
    filled(tmp_path / "0", 11).close()
    for index in (2, 6):
        overwrite(tmp_path / "0", index, 5000, 100, index)
    queue = ConsumeQueue(tmp_path / "0", SIZE, writable=True)
    queue.keep_expired(3000, None)
    assert [index for index, entry in queue.entries() if entry.is_filler] == [2, 6]
    assert (queue.max_offset, queue.max_physic_offset) == (11, 2100)
    queue.close()


@pytest.mark.parametrize("first", [0, 2])
def test_a_torn_entry_of_a_message_of_the_log_is_none_of_an_expired_message(first: int, tmp_path: Path) -> None:
    """HA-ST-97 "come before the queue's first message in the log": kept, it would hide that message from consumers."""
    filled(tmp_path / "0", 3).close()
    overwrite(tmp_path / "0", first, 5, 100, first)  # the high bytes of its offset are lost
    queue = ConsumeQueue(tmp_path / "0", SIZE, writable=True)
    queue.keep_expired(1000 + 100 * first, first)
    queue.put(1000 + 100 * first, 100, first, first)
    assert [entry.offset for _, entry in queue.entries()] == [1000, 1100, 1200][: first + 1]
    queue.close()


# --- Layout ----------------------------------------------------------------------------------------------------------


def test_entry_n_is_at_byte_20_n_of_the_queue(tmp_path: Path) -> None:
    """HA-ST-29, HA-ST-31."""
    filled(tmp_path / "0", 6).close()
    files = contents(tmp_path / "0")
    assert list(files) == ["00000000000000000000", "00000000000000000080"]
    entries = list(struct.iter_unpack(">qiq", b"".join(files.values())))
    assert entries[:6] == [(1000 + 100 * index, 100, index) for index in range(6)]
    assert entries[6:] == [(0, 0, 0)] * 2


def test_a_file_has_300000_entries_by_default(tmp_path: Path) -> None:
    """HA-ST-30."""
    queue = ConsumeQueue(tmp_path / "0", writable=True)
    queue.put(0, 92, -1, 0)
    assert [len(data) for data in contents(tmp_path / "0").values()] == [FILE_SIZE] == [6_000_000]
    queue.close()


def test_a_size_that_cuts_entries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="multiple of 20"):
        ConsumeQueue(tmp_path, 50, writable=True)


def test_a_new_queue_begins_with_entries_that_stand_for_nothing(tmp_path: Path) -> None:
    """HA-ST-33: fillers start at the beginning of the file that holds the first message's entry."""
    queue = filled(tmp_path / "0", 1, first=10)
    assert state(queue) == (
        10,
        11,
        1100,
        [(8, Entry(0, FILLER_SIZE, 0)), (9, Entry(0, FILLER_SIZE, 0)), (10, Entry(1000, 100, 0))],
    )
    queue.close()
    assert contents(tmp_path / "0") == {f"{2 * SIZE:020d}": 2 * FILLER + struct.pack(">qiq", 1000, 100, 0) + bytes(ENTRY_SIZE)}
    again = opened(tmp_path / "0")
    again.correct_min_offset(0)
    assert (again.min_offset, again.max_offset, again.max_physic_offset) == (10, 11, 1100)
    assert again.entry(9) is None
    again.close()


# --- Putting again, and gaps -----------------------------------------------------------------------------------------


def test_what_is_put_again_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue = filled(tmp_path / "0", 6)
    before = state(queue)
    for index in range(6):
        queue.put(1000 + 100 * index, 100, index, index)
    with caplog.at_level(logging.WARNING):
        queue.put(9000, 100, 5, 3)
    assert "has entry 3 already" in caplog.text
    assert state(queue) == before
    queue.close()


def test_missing_messages_leave_entries_that_stand_for_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """HA-ST-31: entry n belongs to message n, although the messages before it are not in the log."""
    queue = filled(tmp_path / "0", 2)
    queue.put(5000, 100, 9, 7)
    assert queue.entry(7) == (5000, 100, 9)
    assert [entry.is_filler for _, entry in queue.entries()] == [False] * 2 + [True] * 5 + [False]
    assert "messages 2 to 6 are missing" in caplog.text
    queue.close()


@pytest.mark.parametrize("queue_offset", [-1, 4_000_000, 1 << 60])
def test_a_queue_offset_out_of_reach_is_refused(tmp_path: Path, queue_offset: int) -> None:
    queue = filled(tmp_path / "0", 2)
    before = state(queue)
    with pytest.raises(StoreCorrupt, match=f"queue offset {queue_offset}, expected 2, the next one"):
        queue.put(5000, 100, 9, queue_offset)
    assert state(queue) == before
    queue.close()


@pytest.mark.parametrize("kept", range(9, 20))
def test_a_torn_entry_is_mended_when_it_is_put_again(tmp_path: Path, kept: int) -> None:
    """A crash can leave only the first bytes of the last entry: a right offset, and a wrong size or tags code."""
    queue = filled(tmp_path / "0", 2)
    queue.put(1200, 70_000, -2, 2)
    queue.close()
    path = tmp_path / "0" / f"{0:020d}"
    whole = path.read_bytes()
    path.write_bytes(whole[: 2 * ENTRY_SIZE + kept].ljust(SIZE, b"\0"))
    again = opened(tmp_path / "0")
    again.put_all([0, 1000, 100, 0, 1, 1100, 100, 1, 2, 1200, 70_000, -2])
    assert state(again) == (0, 3, 71_200, [(0, Entry(1000, 100, 0)), (1, Entry(1100, 100, 1)), (2, Entry(1200, 70_000, -2))])
    again.close()
    assert path.read_bytes() == whole


# --- Cutting and deleting --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", range(11))
def test_truncation_removes_the_entries_of_what_the_log_lost(tmp_path: Path, kept: int) -> None:
    """HA-ST-38; no stale entry is left that could come back."""
    queue = filled(tmp_path / "0", 10)
    queue.truncate_dirty(1000 + 100 * kept)
    expected = [(index, Entry(1000 + 100 * index, 100, index)) for index in range(kept)]
    assert state(queue) == (0, kept, 1000 + 100 * kept if kept else 0, expected)
    queue.close()
    again = opened(tmp_path / "0")
    assert state(again) == (0, kept, 1000 + 100 * kept if kept else 0, expected)
    data = b"".join(contents(tmp_path / "0").values())
    assert not any(data[kept * ENTRY_SIZE :])
    again.put(7000, 50, 1, kept)
    assert again.entry(kept) == (7000, 50, 1)
    again.close()


def test_a_queue_whose_messages_are_all_cut_off_is_new_again(tmp_path: Path) -> None:
    queue = filled(tmp_path / "0", 3, first=10)
    queue.truncate_dirty(1000)
    assert contents(tmp_path / "0") == {}
    queue.put(500, 100, 0, 2)
    assert (queue.min_offset, queue.max_offset, queue.entry(2)) == (2, 3, (500, 100, 0))
    queue.close()


@pytest.mark.parametrize(("log_min", "first", "files"), [(0, 0, 3), (1399, 4, 2), (1400, 4, 2), (1401, 5, 2), (9999, 10, 1)])
def test_deletion_follows_the_log(tmp_path: Path, log_min: int, first: int, files: int) -> None:
    queue = filled(tmp_path / "0", 10)
    queue.delete_expired(log_min)
    assert (queue.min_offset, len(contents(tmp_path / "0"))) == (first, files)
    assert [queue_offset for queue_offset, entry in queue.entries(first)] == list(range(first, 10))
    assert queue.entry(first - 1) is None
    queue.put(2000, 100, 0, 10)
    assert queue.entry(10) == (2000, 100, 0)
    queue.close()


# --- Recovery --------------------------------------------------------------------------------------------------------


def test_recovery_ends_before_the_first_entry_that_is_none(tmp_path: Path) -> None:
    filled(tmp_path / "0", 10).close()
    path = tmp_path / "0" / f"{SIZE:020d}"
    for entry in ((0, 0, 0), (-1, 100, 0), (5, -1, 0), (5, 0, 3)):
        data = bytearray(path.read_bytes())
        data[2 * ENTRY_SIZE : 3 * ENTRY_SIZE] = struct.pack(">qiq", *entry)
        path.write_bytes(data)
        looked = opened(tmp_path / "0", writable=False)
        assert (looked.max_offset, looked.max_physic_offset) == (6, 1600)
        looked.close()
    queue = opened(tmp_path / "0")
    assert state(queue)[:3] == (0, 6, 1600)
    queue.close()
    assert list(contents(tmp_path / "0")) == [f"{0:020d}", f"{SIZE:020d}"]


def test_a_reader_changes_nothing_and_sees_a_writer_go_on(tmp_path: Path) -> None:
    queue = filled(tmp_path / "0", 3)
    before = contents(tmp_path / "0")
    reader = opened(tmp_path / "0", writable=False)
    assert reader.max_offset == 3
    assert contents(tmp_path / "0") == before
    queue.put(1300, 100, 3, 3)
    reader.recover()
    assert reader.entry(3) == (1300, 100, 3)
    reader.close()
    queue.close()


@settings(deadline=None)
@given(count=st.integers(0, 14), first=st.integers(0, 9), cut=st.integers(0, 15), log_min=st.integers(0, 15))
def test_reads_agree_with_a_list(
    tmp_path_factory: pytest.TempPathFactory, count: int, first: int, cut: int, log_min: int
) -> None:
    directory = tmp_path_factory.mktemp("queue") / "0"
    queue = filled(directory, count, first)
    queue.truncate_dirty(1000 + 100 * cut)
    queue.correct_min_offset(1000 + 100 * log_min)
    left = [(first + index, (1000 + 100 * index, 100, index)) for index in range(min(count, cut))]
    known = dict(left[log_min:])
    assert {index: found for index in range(30) if (found := queue.entry(index)) is not None} == known
    for start in range(30):
        run = [known[index] for index in range(start, start - start % ENTRIES + ENTRIES) if index in known]
        assert list(struct.iter_unpack(">qiq", queue.read(start, ENTRIES))) == (run if start in known else [])
    if left:
        assert (queue.max_offset, queue.min_offset) == (left[-1][0] + 1, min(left[-1][0] + 1, first + log_min))
    queue.close()


# --- Offset by time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, 0),
        (10, 0),
        (14, 0),
        (15, 0),  # equally near to 10 and 20: the earlier wins
        (16, 1),
        (40, 3),
        (44, 4),  # the file is chosen first, and its first message is the nearest in it
        (45, 4),
        (99, 8),
        (1000, 9),
    ],
)
def test_offset_by_time_is_that_of_the_nearest_message(tmp_path: Path, timestamp: int, expected: int) -> None:
    queue = filled(tmp_path / "0", 10)
    times = {1000 + 100 * index: 10 * (index + 1) for index in range(10)} | {1900: 1000}
    assert queue.offset_by_time(timestamp, lambda offset, _: times[offset]) == expected
    queue.close()


def test_offset_by_time_looks_at_no_message_that_the_log_lost(tmp_path: Path) -> None:
    queue = filled(tmp_path / "0", 10)
    times = {1000 + 100 * index: 10 * (index + 1) for index in range(10)}
    queue.correct_min_offset(1200)
    del times[1000], times[1100]
    assert queue.offset_by_time(5, lambda offset, _: times[offset], 1200) == 2
    assert queue.offset_by_time(30, lambda offset, _: times[offset], 1200) == 2
    assert queue.offset_by_time(5, lambda _, __: None, 1200) == 0
    queue.close()
    assert opened(tmp_path / "1").offset_by_time(5, lambda _, __: 0) == 0


@pytest.mark.parametrize(
    ("timestamp", "upper"), [(29, 0), (30, 2), (39, 2), (40, 3), (49, 3), (50, 6), (59, 6), (60, 7), (1000, 8)]
)
def test_the_upper_bound_of_a_time_is_a_message_that_is_there(tmp_path: Path, timestamp: int, upper: int) -> None:
    """HA-ST-94 "the last message of the queue that is not newer": no filler, and none that the log has lost."""
    queue = opened(tmp_path / "0")
    times = {1000 + 100 * index: 10 * (index + 1) for index in range(7)}
    for index, offset in zip((0, 1, 2, 3, 6, 7, 8), times, strict=True):
        queue.put(offset, 100, 0, index)
    del times[1000], times[1100]
    assert queue.upper_offset_by_time(timestamp, lambda offset, _: times.get(offset)) == upper
    queue.close()


# --- All queues of a store -------------------------------------------------------------------------------------------


def test_each_queue_of_a_topic_has_its_own_files(tmp_path: Path) -> None:
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(b"a", 0, 0, 0), request(b"a", 1, 100, 0), request(b"b", 0, 200, 0), request(b"a", 0, 300, 1)])
    found = {key: [entry.offset for _, entry in queue.entries()] for key, queue in table}
    assert found == {(b"a", 0): [0, 300], (b"a", 1): [100], (b"b", 0): [200]}
    assert table.queue_offsets() == {(0, b"a"): 2, (1, b"a"): 1, (0, b"b"): 1}
    assert table.max_physic_offset == 400
    table.close()
    again = ConsumeQueueTable(tmp_path, writable=True)
    again.recover(0, 400)
    assert again.file_size == SIZE
    assert {key: [entry.offset for _, entry in queue.entries()] for key, queue in again} == found
    again.close()


def test_half_and_rolled_back_messages_are_in_no_queue(tmp_path: Path) -> None:
    """HA-ST-34."""
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(b"a", 0, 100 * index, index // 2, flag) for index, flag in enumerate((0, 4, 8, 12, 0x1F0))])
    queue = table.get(b"a", 0)
    assert queue is not None
    assert [entry.offset for _, entry in queue.entries()] == [0, 200, 400]
    table.close()


def test_without_a_log_there_are_no_queues(tmp_path: Path) -> None:
    """HA-ST-38."""
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(b"a", 0, 0, 0)])
    table.close()
    again = ConsumeQueueTable(tmp_path, writable=True)
    again.recover(0, None)
    assert not (tmp_path / "consumequeue").exists()
    assert list(again) == []


@pytest.mark.parametrize("topic", [b"..", b".", b"../../x", b"a/b", b"\0", b"x" * 256])
def test_a_topic_cannot_name_another_place(tmp_path: Path, topic: bytes, caplog: pytest.LogCaptureFixture) -> None:
    table = ConsumeQueueTable(tmp_path / "store", SIZE, writable=True)
    table.put([request(topic, 0, 0, 0), request(b"ok", 0, 100, 0), request(topic, 0, 200, 1)])
    assert [key for key, _ in table] == [(b"ok", 0)]
    assert [path.name for path in (tmp_path / "store" / "consumequeue").iterdir()] == ["ok"]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert caplog.text.count("no name for a directory") == 1
    table.close()


@given(st.binary(max_size=300))
def test_what_counts_as_a_name_stays_in_its_directory(topic: bytes) -> None:
    if is_directory_name(topic):
        assert Path("/a") / topic.decode("utf-8", "surrogateescape") == Path(f"/a/{topic.decode('utf-8', 'surrogateescape')}")
        assert (Path("/a") / topic.decode("utf-8", "surrogateescape")).parent == Path("/a")
        assert topic not in (b".", b"..")
