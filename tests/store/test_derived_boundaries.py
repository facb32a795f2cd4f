"""Entries of consume queues, levels of delay, keys of the index: the last that counts, and its neighbours."""

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.files import patch
from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.java_hash import index_key_hash
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY, FILLER_SIZE, Entry, valid_end
from rocketmq_ha.impl.store.log import mapped_file
from rocketmq_ha.impl.store.log.mapped_file import MappedFile

MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1

# --- One entry -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "end", "is_so"),
    [
        ((0, 1, 0), 0, False),
        ((0, 1, 0), 1, True),
        ((0, 1, 0), 2, True),
        ((900, 100, 5), 999, False),
        ((900, 100, 5), 1000, True),
        ((-1, 100, 5), 1000, False),
        ((900, 0, 5), 1000, False),
        ((900, -1, 5), 1000, False),
        ((0, MAX_INT, 0), 0, True),  # a filler
        ((0, MAX_INT, 1), 0, True),  # the same beside the tags code of a lost entry
        ((1, MAX_INT, 0), 0, True),  # no message has that size
        ((0, MAX_INT - 1, 0), 0, False),
    ],
)
def test_an_entry_ends_by_an_offset(entry: tuple[int, int, int], end: int, is_so: bool) -> None:
    assert Entry(*entry).ends_by(end) == is_so


# What may stand in a file of a queue, and whether it is an entry.
POOL = {
    (1000, 100, 7): True,
    (0, 1, 0): True,
    (MAX_LONG, 1, -1): True,  # its first byte is 127
    (-(1 << 63), 100, 7): False,  # 128
    (-1, 100, 7): False,
    (1000, MAX_INT, 7): True,
    (1000, 0, 7): False,
    (1000, -1, 7): False,
    (1000, -(1 << 31), 7): False,
    (1000, 256, 0): True,  # a size with zero bytes in it
    (1000, 1 << 24, 0): True,
    (0, FILLER_SIZE, 0): True,
    (0, 0x7FFFFF00, 0): False,  # a filler of which the last bytes are missing
    (0, 0x7FFF0000, 0): False,
    (0, 0x7F000000, 0): False,
    (0, 0x7F000000, 1): True,
    (1, 0x7FFFFF00, 0): True,
    (0, 0x7FFFFE00, 0): True,
    (0, 0, 0): False,
}


@given(
    entries=st.lists(st.sampled_from(sorted(entry for entry, is_valid in POOL.items() if is_valid)), max_size=12),
    other=st.sampled_from(sorted(entry for entry, is_valid in POOL.items() if not is_valid)),
    behind=st.lists(st.sampled_from(sorted(POOL)), max_size=5),
    chunk_size=st.sampled_from([20, 33, 64, 1 << 20]),
)
@settings(deadline=None, max_examples=150)
def test_entries_end_before_the_first_that_is_none(
    entries: list[tuple[int, int, int]],
    other: tuple[int, int, int],
    behind: list[tuple[int, int, int]],
    chunk_size: int,
) -> None:
    """HA-ST-33, and the table of what recovery looks at: "offset not negative, size above 0". In chunks of any size."""
    data = b"".join(ENTRY.pack(*entry) for entry in (*entries, other, *behind))
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        patched.setattr(mapped_file, "_CHUNK_SIZE", chunk_size)
        for tail in (b"", bytes(200)):
            path = Path(directory) / f"{len(tail)}"
            path.write_bytes(data + tail)
            file = MappedFile(path, 0, len(data + tail), writable=False)
            assert valid_end(file) == 20 * len(entries)
            file.close()


@pytest.mark.parametrize("entry", POOL)
@pytest.mark.parametrize("count", [1, 3])
def test_a_file_full_of_one_kind_of_entry(tmp_path: Path, entry: tuple[int, int, int], count: int) -> None:
    (tmp_path / "0").write_bytes(ENTRY.pack(*entry) * count)
    file = MappedFile(tmp_path / "0", 0, 20 * count, writable=False)
    assert valid_end(file) == (20 * count if POOL[entry] else 0)
    file.close()


def test_a_hole_in_a_file_ends_its_entries(tmp_path: Path) -> None:
    """A file system that knows holes leaves them out: what is behind one is not taken for the next entry."""
    size = 1 << 16
    with (tmp_path / "0").open("wb") as data:
        data.write(ENTRY.pack(1, 1, 1) * 5)
        data.seek(size - 4000)
        data.write(ENTRY.pack(1, 1, 1) * 200)
    file = MappedFile(tmp_path / "0", 0, size, writable=False)
    assert valid_end(file) == 100
    file.close()


# --- Delay levels ----------------------------------------------------------------------------------------------------

LEVELS = DelayLevels.parse()


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("-2147483649", None),
        ("-2147483648", None),
        ("-1", None),
        ("-0", None),
        ("0", None),
        ("1", 1_000),
        ("+1", 1_000),
        ("2", 5_000),
        ("4", 30_000),
        ("5", 60_000),
        ("14", 600_000),
        ("15", 1_200_000),
        ("17", 3_600_000),
        ("18", 7_200_000),
        ("19", 7_200_000),
        ("2147483647", 7_200_000),
        ("2147483648", None),
        ("9999999999", None),
        ("10000000000", None),
        ("00000000000000000002", 5_000),
        ("٣", 10_000),  # Arabic 3
        ("1٣", 540_000),
        ("\U0001d7d1", None),  # a digit of two UTF-16 units
        ("1\U0001d7d1", None),
        ("", None),
        ("+", None),
        ("1 ", None),
        ("1.0", None),
    ],
)
def test_a_level_is_what_java_takes_for_one(text: str, delay_ms: int | None) -> None:
    """HA-ST-76 "A greater level counts as level 18, and one below 1 as no level"."""
    expected = None if delay_ms is None else 5 + delay_ms
    assert LEVELS.deliver_timestamp(text.encode(), 5) == expected


@pytest.mark.parametrize(("stored_ms", "due"), [(MAX_LONG - 1000, MAX_LONG), (MAX_LONG - 999, -MAX_LONG - 1)])
def test_a_time_of_delivery_wraps_at_the_end_of_a_long(stored_ms: int, due: int) -> None:
    assert LEVELS.deliver_timestamp(b"1", stored_ms) == due
    assert struct.pack(">q", due)


@pytest.mark.parametrize("text", ["1", "s", "1x", "-1s", "1234567890s", "1.5s", "1s,2s"])
def test_levels_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="delay level"):
        DelayLevels.parse(f"1s {text}")


def test_levels_of_every_unit() -> None:
    assert DelayLevels.parse("0s 7s 7m 7h 7d 999999999s").delays_ms == (
        *(0, 7_000, 420_000, 25_200_000, 604_800_000),
        999_999_999_000,
    )
    assert DelayLevels.parse("").max_level == 0
    assert DelayLevels.parse("").deliver_timestamp(b"1", 5) is None


# --- One queue -------------------------------------------------------------------------------------------------------

ENTRIES = 4  # in a file


def queue_of(path: Path, first: int, count: int) -> ConsumeQueue:
    """Messages of 100 bytes, at offsets 1000, 1100 and so on."""
    queue = ConsumeQueue(path, 20 * ENTRIES, writable=True)
    queue.recover()
    for index in range(count):
        queue.put(1000 + 100 * index, 100, index, first + index)
    return queue


@pytest.mark.parametrize(
    ("offset", "queue_offset", "max_offset", "fillers"),
    [
        (1100, 2, 2, 0),  # it ends where the last one does: dispatched already
        (1101, 2, 3, 0),
        (1200, 3, 4, 1),
        (1200, 2 + 10 * ENTRIES, 3 + 10 * ENTRIES, 10 * ENTRIES),  # the largest gap
        (1200, 3 + 10 * ENTRIES, None, 0),
        (1200, (1 << 58) - 1, None, 0),
        (1200, -1, None, 0),
        (1100, -1, 2, 0),
        (1200, 1, 2, 0),  # a place that is taken
        (1100, 1, 2, 0),
    ],
)
def test_the_entry_of_a_message_behind_two(
    tmp_path: Path, offset: int, queue_offset: int, max_offset: int | None, fillers: int
) -> None:
    queue = queue_of(tmp_path / "0", 0, 2)
    if max_offset is None:
        with pytest.raises(StoreCorrupt, match=f"queue offset {queue_offset}, expected 2, the next one"):
            queue.put(offset, 100, 9, queue_offset)
        max_offset = 2
    else:
        queue.put(offset, 100, 9, queue_offset)
    assert queue.max_offset == max_offset
    assert queue.max_physic_offset == (1200 if max_offset == 2 else offset + 100)
    assert [entry.is_filler for _, entry in queue.entries()].count(True) == fillers
    assert [index for index, entry in queue.entries() if not entry.is_filler] == [0, 1, max_offset - 1][: 2 + (max_offset > 2)]
    queue.close()


@pytest.mark.parametrize(("size", "fits"), [(0, False), (19, False), (20, True), (21, False), (39, False), (40, True)])
def test_a_file_holds_whole_entries(tmp_path: Path, size: int, fits: bool) -> None:
    if not fits:
        with pytest.raises(ConfigInvalid, match=f"file size {size}, expected a multiple of 20 bytes"):
            ConsumeQueue(tmp_path / "0", size, writable=True)
        return
    queue = ConsumeQueue(tmp_path / "0", size, writable=True)
    queue.recover()
    for index in range(3):
        queue.put(100 * index, 100, 0, index)
    assert len(list((tmp_path / "0").iterdir())) == (3 if size == 20 else 2)
    assert [entry.offset for _, entry in queue.entries()] == [0, 100, 200]
    queue.close()


@pytest.mark.parametrize("queue_offset", [0, 1, 3, 4, 5, (1 << 58) - 1, 1 << 58, -1])
def test_the_first_entry_of_a_queue(tmp_path: Path, queue_offset: int) -> None:
    """HA-ST-33: fillers stand before it, from the start of its file on."""
    queue = queue_of(tmp_path / "0", 0, 0)
    if not 0 <= queue_offset < 1 << 58:
        with pytest.raises(StoreCorrupt, match=f"queue offset {queue_offset}, expected 0, the next one"):
            queue.put(0, 1, 9, queue_offset)
        assert not (tmp_path / "0").exists()
        return
    queue.put(0, 1, 9, queue_offset)
    assert (queue.min_offset, queue.max_offset, queue.max_physic_offset) == (queue_offset, queue_offset + 1, 1)
    assert [index for index, _ in queue.entries()] == list(range(queue_offset - queue_offset % 4, queue_offset + 1))
    assert [(tmp_path / "0" / f"{20 * (queue_offset - queue_offset % 4):020d}").stat().st_size] == [80]
    queue.close()


def test_a_message_of_a_file_that_was_deleted_is_passed_over(tmp_path: Path) -> None:
    queue = queue_of(tmp_path / "0", 0, 6)
    assert queue.delete_expired(1400) == 1
    queue.put(9000, 100, 9, 3)
    assert (queue.min_offset, queue.max_offset, queue.max_physic_offset) == (4, 6, 1600)
    queue.put(9000, 100, 9, 4)
    assert (queue.max_offset, queue.entry(4)) == (6, Entry(1400, 100, 4))
    queue.close()


@pytest.mark.parametrize(
    ("offset", "behind", "min_offset"),
    [(0, 6, 3), (999, 6, 3), (1000, 6, 3), (1001, 5, 4), (1100, 5, 4), (1500, 1, 8), (1501, 0, 9), (9999, 0, 9)],
)
def test_entries_at_or_behind_an_offset(tmp_path: Path, offset: int, behind: int, min_offset: int) -> None:
    """Messages 3 to 8, behind three fillers."""
    queue = queue_of(tmp_path / "0", 3, 6)
    assert queue.count_at_or_behind(offset) == behind
    queue.correct_min_offset(max(1, offset))
    assert queue.min_offset == min_offset
    for index in (min_offset - 1, min_offset, 8, 9):
        assert (queue.entry(index) is not None) == (min_offset <= index < 9), index
        assert len(queue.read(index, 1)) == (20 if min_offset <= index < 9 else 0), index
    assert bytes(queue.read(3, 99)) == (ENTRY.pack(1000, 100, 0) if min_offset == 3 else b"")
    assert [index for index, _ in queue.entries(4, 6)] == [4, 5]
    assert [index for index, _ in queue.entries(-5, 99)] == list(range(9))
    queue.truncate_dirty(max(1, offset))
    assert queue.max_offset == (9 - behind if behind < 6 else 0)
    queue.close()


@pytest.mark.parametrize(("file", "max_offset"), [(0, 20), (1, 20), (2, 8), (3, 12), (4, 16)])
def test_a_recovery_looks_at_the_last_three_files(tmp_path: Path, file: int, max_offset: int) -> None:
    queue_of(tmp_path / "0", 0, 20).close()
    patch(tmp_path / "0" / f"{80 * file:020d}", 0, bytes(20))
    queue = ConsumeQueue(tmp_path / "0", 20 * ENTRIES, writable=True)
    queue.recover()
    assert (queue.max_offset, queue.max_physic_offset) == (max_offset, 1000 + 100 * max_offset)
    queue.close()


# --- The index -------------------------------------------------------------------------------------------------------


def request(offset: int, keys: str, stored_ms: int) -> DispatchRequest:
    return DispatchRequest(b"t", 0, offset, 100, 0, stored_ms, 0, keys, None, 0, 0)


@pytest.mark.parametrize(("begin", "end"), [(9, 10), (10, 10), (10, 11), (11, 19), (19, 20), (20, 20), (20, 21), (9, 21)])
def test_a_file_is_looked_at_where_its_times_meet_the_span(tmp_path: Path, begin: int, end: int) -> None:
    """The first message was stored at 10 s, the last at 20 s."""
    index = IndexService(tmp_path, Geometry(7, 100), writable=True)
    index.put([request(100 * number, "k", 10_000 + 5_000 * number) for number in range(3)])
    (file,) = index.files
    for begin_ms, end_ms in ((1000 * begin, 1000 * end), (1000 * begin + 1, 1000 * end), (1000 * begin, 1000 * end - 1)):
        if begin_ms <= end_ms:
            assert file.is_time_matched(begin_ms, end_ms) == (begin_ms <= 20_000 and end_ms >= 10_000), (begin_ms, end_ms)
    found = sorted(index.offsets("t", "k", 1000 * begin, 1000 * end))
    assert found == [offset for offset, second in ((0, 10), (100, 15), (200, 20)) if begin <= second <= end]
    index.close()


@pytest.mark.parametrize(
    ("stored_ms", "seconds"), [(9_000, 0), (10_000, 0), (10_999, 0), (11_000, 1), (11_999, 1), (10**16, 2**31 - 1)]
)
def test_seconds_count_from_the_first_message(tmp_path: Path, stored_ms: int, seconds: int) -> None:
    """HA-ST-84 "of a message that was stored before the file's first MUST be 0"."""
    index = IndexService(tmp_path, Geometry(7, 100), writable=True)
    index.put([request(0, "a", 10_000), request(100, "b", stored_ms)])
    assert [entry[2] for entry in index.files[0].entries()] == [0, seconds]
    index.close()


@pytest.mark.parametrize(
    ("offset", "put_keys", "found"),
    [(99, "k", []), (100, "k", []), (100, "k l", ["l"]), (101, "k", ["k"]), (100, "", []), (101, "", [])],
)
def test_keys_that_the_index_has_are_not_put_again(tmp_path: Path, offset: int, put_keys: str, found: list[str]) -> None:
    index = IndexService(tmp_path, Geometry(7, 100), writable=True)
    index.put([request(0, "j", 1), request(100, "k", 1)])
    index.put([request(offset, put_keys, 1)])
    hashes = [entry[0] for entry in index.files[0].entries()][2:]
    assert hashes == [index_key_hash(f"t#{key}") for key in found]
    assert index.count_at_or_behind(100) == 1 + len(found)
    assert index.count_at_or_behind(101) == (len(found) if offset == 101 else 0)
    assert index.count_at_or_behind(0) == 2 + len(found)
    index.close()


@pytest.mark.parametrize(
    ("time", "max_offset", "vouched"),
    [
        (0, 9999, 0),
        (2, 9999, 0),
        (3, 9999, 1),
        (5, 9999, 1),
        (6, 9999, 2),
        (99, 9999, 2),
        (99, 501, 2),
        (99, 500, 1),
        (99, 200, 0),
    ],
)
def test_full_files_that_end_by_the_checkpoints_time_are_vouched_for(
    tmp_path: Path, time: int, max_offset: int, vouched: int
) -> None:
    """Two full files, of three messages each, and a third with one; message n is at 100 * n and was stored at n + 1 ms."""
    index = IndexService(tmp_path, Geometry(7, 4), writable=True)
    index.put([request(100 * number, "k", number + 1) for number in range(7)])
    assert [file.is_full for file in index.files] == [True, True, False]
    assert index.count_vouched(time, max_offset) == vouched
    assert index.flush() == 6
    index.close()


def test_of_full_files_that_end_in_the_same_millisecond_the_first_alone_is_vouched_for(tmp_path: Path) -> None:
    index = IndexService(tmp_path, Geometry(7, 4), writable=True)
    index.put([request(100 * number, "k", stored_ms) for number, stored_ms in enumerate((1, 2, 3, 3, 3, 3))])
    assert [file.header.end_timestamp for file in index.files if file.is_full] == [3, 3]
    assert [index.count_vouched(time, 9999) for time in (2, 3, 4)] == [0, 1, 2]
    index.close()


def test_a_query_looks_into_a_file_that_ends_when_the_next_begins(tmp_path: Path) -> None:
    index = IndexService(tmp_path, Geometry(7, 4), writable=True)
    index.put([request(100 * number, "k", 1000 * second) for number, second in enumerate((8, 9, 10, 10, 11, 12))])
    assert list(index.offsets("t", "k", 10_000, 99_000)) == [500, 400, 300, 200]
    index.close()
