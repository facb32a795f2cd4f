"""One mapped file: its positions at their bounds, and what it holds of the system and gives back."""

import errno
import mmap
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.files import descriptors_below
from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.log import mapped_file
from rocketmq_ha.impl.store.log import mapped_file_queue as queue_module
from rocketmq_ha.impl.store.log.mapped_file import OS_PAGE_SIZE, MappedFile, sync_again
from rocketmq_ha.impl.store.log.mapped_file_queue import MappedFileQueue

SIZE = 4 * OS_PAGE_SIZE


@pytest.fixture
def file(tmp_path: Path) -> Any:
    file = MappedFile.create(tmp_path, 0, SIZE, tmp_path)
    yield file
    file.close()


def held(path: Path) -> tuple[int, int]:
    """How many descriptors and how many mappings of a file this process has."""
    descriptors = descriptors_below(path.parent)
    mappings = Path("/proc/self/maps").read_text().splitlines()
    return descriptors.count(str(path)), sum(line.rstrip().endswith(str(path)) for line in mappings)


# --- What it holds ---------------------------------------------------------------------------------------------------

GIVE_BACK = {
    "close": lambda file: file.close(),
    "destroy": lambda file: file.destroy(),
    "cut": lambda file: file.cut(SIZE // 2).close(),
}


@pytest.mark.parametrize("how", GIVE_BACK)
def test_a_file_that_is_let_go_of_holds_nothing(file: MappedFile, tmp_path: Path, how: str) -> None:
    file.append(b"abc")
    file.flush()
    view = file.view(0, 3)
    assert held(file.path)[1] == 1
    GIVE_BACK[how](file)
    name = f"{file.path} (deleted)" if how == "destroy" else str(file.path)
    assert bytes(view) == b"abc"  # who has a view keeps it
    assert held(tmp_path / name)[1] == 1
    view.release()
    assert held(tmp_path / name) == (0, 0)
    GIVE_BACK["close"](file)


def test_a_closed_file_is_opened_again_when_it_is_used(file: MappedFile) -> None:
    file.append(b"abc")
    file.close()
    assert bytes(file.view(0, 3)) == b"abc"
    file.append(b"def")
    file.flush()
    assert (file.wrote_position, file.flushed_position) == (6, 6)
    file.close_descriptor()
    file.close_descriptor()
    assert bytes(file.view(0, 6)) == b"abcdef"


def test_a_file_that_was_removed_is_not_the_next_one_of_its_name(file: MappedFile) -> None:
    file.append(b"old")
    file.destroy()
    file.path.write_bytes(bytes(SIZE))
    for use in (lambda: file.view(0, 3), lambda: file.mapping, file.check_file, lambda: file.data_end(0)):
        with pytest.raises(FileNotFoundError, match="removed from its log"):
            use()
    file.destroy()
    assert not file.path.exists()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_no_room_is_told_from_other_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def refuse(_fd: int, _start: int, _size: int) -> None:
        raise OSError(error, "refused")

    monkeypatch.setattr(mapped_file.os, "posix_fallocate", refuse)
    expected = "no room, expected 4096 bytes for this file" if error != errno.EIO else "refused"
    with pytest.raises(OSError, match=expected):
        MappedFile.create(tmp_path, 0, 4096, tmp_path)
    assert list(tmp_path.glob("0*")) == []


# --- Positions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "flushed"), [(0, 0), (99, 99), (100, 100), (101, 100), (200, 100)])
def test_what_is_cut_off_is_not_flushed(file: MappedFile, position: int, flushed: int) -> None:
    file.append(bytes(100))
    file.flush()
    file.append(bytes(100))
    file.truncate(position)
    assert (file.wrote_position, file.flushed_position) == (position, flushed)
    file.append(b"x")
    file.flush()
    assert file.flushed_position == position + 1


@pytest.mark.parametrize(
    ("start", "stop", "least_pages", "is_flushed"),
    [
        (0, 0, 0, False),
        (0, 1, 0, True),
        (0, 1, 1, False),
        (0, OS_PAGE_SIZE - 1, 1, False),
        (0, OS_PAGE_SIZE, 1, True),
        (1, OS_PAGE_SIZE, 1, True),
        (OS_PAGE_SIZE - 1, OS_PAGE_SIZE, 1, True),
        (OS_PAGE_SIZE, 2 * OS_PAGE_SIZE - 1, 1, False),
        (0, 2 * OS_PAGE_SIZE - 1, 2, False),
        (0, 2 * OS_PAGE_SIZE, 2, True),
        (0, 2 * OS_PAGE_SIZE, 3, False),
        (SIZE - 1, SIZE, 9, True),  # full
        (SIZE - 2, SIZE - 1, 9, False),
        (SIZE, SIZE, 0, False),
    ],
)
def test_a_flush_waits_for_pages_unless_the_file_is_full(
    file: MappedFile, start: int, stop: int, least_pages: int, is_flushed: bool
) -> None:
    """HA-ST-60 "where a full file or at least `flush_commit_log_least_pages` pages of 4 KiB"."""
    file.append(bytes(start))
    file.flush()
    file.append(bytes(stop - start))
    file.flush(least_pages)
    assert file.flushed_position == (stop if is_flushed else start)


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (4000, 4200), (4095, 4097), (0, SIZE), (1, SIZE - 1), (4096, 8192)])
def test_a_sync_that_is_tried_again_makes_every_page_dirty(file: MappedFile, start: int, stop: int) -> None:
    class Recorded(bytearray):
        pages: set[int]

        def __setitem__(self, key: Any, value: Any) -> None:
            self.pages.add(key // mmap.PAGESIZE)
            super().__setitem__(key, value)

    data = Recorded(range(256)) + Recorded(SIZE)
    recorded = Recorded(data)
    recorded.pages = set()
    fd = os.open(file.path, os.O_RDWR)
    try:
        sync_again(fd, recorded, start, stop)  # type: ignore[arg-type]
    finally:
        os.close(fd)
    assert recorded.pages == set(range(start // mmap.PAGESIZE, (stop - 1) // mmap.PAGESIZE + 1))
    assert recorded == data


def test_pages_are_made_dirty_again_behind_a_sync_that_failed_and_no_longer(
    file: MappedFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-ST-28 "over bytes that a successful sync has covered": until one has succeeded."""
    again: list[tuple[int, int]] = []
    results = iter([errno.EIO, errno.EIO, None, None])

    def sync(_fd: int) -> None:
        if (error := next(results)) is not None:
            raise OSError(error, "refused")

    monkeypatch.setattr(mapped_file, "_sync_data", sync)
    monkeypatch.setattr(mapped_file, "sync_again", lambda _fd, _mapping, start, stop: again.append((start, stop)))
    file.append(b"abc")
    for expected in ([], [(0, 3)]):
        with pytest.raises(OSError, match="refused") as refused:
            file.flush()
        assert refused.value.filename == str(file.path)
        assert (again, file.flushed_position) == (expected, 0)
    shorter = file.cut(SIZE // 2)  # it remembers, too
    shorter.flush()
    assert (again, shorter.flushed_position) == ([(0, 3)] * 2, 3)
    shorter.append(b"d")
    shorter.flush()
    assert (again, shorter.flushed_position) == ([(0, 3)] * 2, 4)
    shorter.close()


@pytest.mark.parametrize(("left", "flushed"), [(0, 0), (99, 99), (100, 100)])
def test_what_is_cut_off_during_a_sync_is_not_flushed(
    file: MappedFile, monkeypatch: pytest.MonkeyPatch, left: int, flushed: int
) -> None:
    file.append(bytes(100))
    monkeypatch.setattr(mapped_file, "_sync_data", lambda _fd: file.truncate(left))
    file.flush()
    assert file.flushed_position == flushed


@pytest.mark.parametrize("length", [SIZE - 1, SIZE + 1])
def test_a_file_of_another_length_is_refused_before_it_is_used(file: MappedFile, length: int) -> None:
    os.truncate(file.path, length)
    uses = (lambda: file.append(b"x"), lambda: file.view(0, 1), file.check_file, lambda: file.append_vectors([b"x"], 1))
    for use in uses:
        with pytest.raises(StoreCorrupt, match=f"a length of {length} bytes, expected {SIZE}"):
            use()
    assert file.wrote_position == 0


# --- Data and holes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end"), [(0, 9001), (99, 9001), (100, 9001), (9000, 9001), (9001, 9001), (9002, 9002), (SIZE, SIZE)]
)
def test_data_end_where_the_last_byte_is_that_is_not_zero(file: MappedFile, start: int, end: int) -> None:
    assert (file.data_end(0), file.data_end(start), file.has_data()) == (0, start, False)
    file.mapping[100] = 1
    file.mapping[9000] = 1
    assert (file.data_end(start), file.has_data()) == (end, True)
    assert file.clear(start) == (start <= 9000)
    assert file.data_end(0) == (0 if start <= 100 else 101 if start <= 9000 else 9001)
    assert file.clear(start) is False


# --- Files end to end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 6, 7, 8, 9, 15, 16, 17, 22, 23, 24, SIZE - 1])
def test_one_byte_near_the_border_of_a_chunk_is_seen(file: MappedFile, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_file, "_CHUNK_SIZE", 8)
    file.mapping[at] = 1
    assert (file.data_end(0), file.data_end(at), file.data_end(at + 1)) == (at + 1, at + 1, at + 1)
    assert file.has_data()
    assert not file.clear(at + 1)
    assert file.mapping[at] == 1
    assert file.clear(0)
    assert (bytes(file.mapping), file.has_data(), file.clear(0)) == (bytes(SIZE), False, False)


def queue_of(tmp_path: Path, count: int, size: int = 100) -> MappedFileQueue:
    queue = MappedFileQueue(tmp_path / "commitlog", size, writable=True)
    for _ in range(count):
        queue.last().append(b"x" * size)
    return queue


@pytest.mark.parametrize(
    ("offset", "keep_empty", "files", "end"),
    [
        (301, True, 3, 300),
        (300, True, 3, 300),
        (299, True, 3, 299),
        (201, True, 3, 201),
        (200, True, 3, 200),
        (200, False, 2, 200),
        (199, False, 2, 199),
        (199, True, 2, 199),
        (100, False, 1, 100),
        (1, False, 1, 1),
        (0, True, 1, 0),
        (0, False, 0, 0),
        (-1, True, 0, 0),
    ],
)
def test_a_truncation_leaves_the_file_that_holds_the_end(
    tmp_path: Path, offset: int, keep_empty: bool, files: int, end: int
) -> None:
    queue = queue_of(tmp_path, 3)
    queue.flush()
    queue.truncate(offset, keep_empty=keep_empty)
    assert (len(queue.files), queue.max_offset, queue.flushed_offset) == (files, end, end)
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir()))
    assert data == (b"x" * end).ljust(files * 100, b"\0")
    assert len(data) == 100 * files
    queue.last().append(b"y")
    assert queue.flush() == end + 1
    queue.close()


@pytest.mark.parametrize(
    ("offset", "deleted"), [(0, 0), (99, 0), (100, 1), (101, 1), (199, 1), (200, 2), (299, 2), (300, 3), (400, 3), (999, 3)]
)
@pytest.mark.parametrize("flushed", [0, 100, 200, 400])
def test_a_deletion_takes_the_files_that_lie_wholly_before(tmp_path: Path, offset: int, deleted: int, flushed: int) -> None:
    """HA-ST-62 "never the last one". What is flushed stays flushed, and what is not is flushed later."""
    queue = queue_of(tmp_path, flushed // 100)
    queue.flush()
    while queue.max_offset < 400:
        queue.last().append(b"x" * 100)
    assert queue.delete_before(offset) == deleted
    assert (queue.min_offset, queue.max_offset, queue.flushed_offset) == (100 * deleted, 400, max(100 * deleted, flushed))
    assert queue.flush() == 400
    assert all(file.flushed_position == 100 for file in queue.files)
    queue.close()


@pytest.mark.parametrize(
    ("offset", "base"), [(-1, None), (199, None), (200, 200), (299, 200), (300, 300), (399, 300), (400, None)]
)
def test_an_offset_is_in_the_file_of_its_range(tmp_path: Path, offset: int, base: int | None) -> None:
    queue = queue_of(tmp_path, 4)
    queue.delete_before(200)
    found = queue.find(offset)
    assert (found and found.base) == base
    queue.close()


@pytest.mark.parametrize("flushed", [True, False])
def test_a_file_that_cannot_be_removed_is_flushed_when_it_is_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    queue = queue_of(tmp_path, 3)
    if flushed:
        queue.flush()

    def refuse(_self: MappedFile) -> None:
        raise OSError(errno.EPERM, "refused")

    with monkeypatch.context() as broken:
        broken.setattr(MappedFile, "destroy", refuse)
        with pytest.raises(OSError, match="refused"):
            queue.delete_before(300)
    assert [file.base for file in queue.files] == [0, 100, 200]
    assert queue.flushed_offset == (300 if flushed else 0)
    syncs = queue.syncs
    assert queue.flush() == 300
    assert queue.syncs - syncs == (0 if flushed else 3)
    assert queue.delete_before(300) == 2
    queue.close()


def test_the_time_of_a_flush_is_the_sum_of_its_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sync takes longer than the one before. The next flush, hours later, syncs the last file alone; a third one none."""
    queue = queue_of(tmp_path, 2)
    queue.last().append(b"x")
    clock, took_s, real = SimpleNamespace(s=500.0), iter((1.0, 2.0, 4.0, 8.0)), MappedFile.flush

    def flush(file: MappedFile, least_pages: int) -> int:
        if file.flushed_position < file.wrote_position:
            clock.s += next(took_s)
        return real(file, least_pages)

    monkeypatch.setattr(MappedFile, "flush", flush)
    monkeypatch.setattr(queue_module, "time", SimpleNamespace(perf_counter=lambda: clock.s))
    found = []
    for appended in (b"", b"x", b""):
        queue.last().append(appended)
        queue.flush()
        found.append((queue.syncs, queue.sync_seconds))
        clock.s += 10_000
    assert found == [(3, 7.0), (4, 15.0), (4, 15.0)]
    queue.close()


def test_full_files_that_are_flushed_give_back_their_descriptors(tmp_path: Path) -> None:
    """A log can have a thousand files."""
    queue = queue_of(tmp_path, 3)
    queue.flush()
    assert [held(file.path)[0] for file in queue.files] == [1, 1, 2]  # each mapping has one of its own
    assert queue.syncs == 3
    assert queue.sync_seconds > 0
    queue.flush()
    assert queue.syncs == 3
    queue.close()
    assert [held(file.path) for file in queue.files] == [(0, 0)] * 3
