"""A sequence of mapped files of one size: search, roll, truncate, delete, flush.

HA-ST-1, HA-ST-8, HA-ST-13, HA-ST-21, HA-ST-28.
"""

import errno
import gc
import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.waiting import await_end
from rocketmq_ha.impl.errors import StoreCorrupt, StoreFull
from rocketmq_ha.impl.store.log import allocate, mapped_file, space
from rocketmq_ha.impl.store.log.allocate import AllocateService
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.mapped_file_queue import MappedFileQueue

SIZE = 8192


def filled(directory: Path, count: int, *, file_size: int = SIZE) -> MappedFileQueue:
    """A queue with `count` appends of 1,000 bytes, each with its own fill byte; an append that does not fit goes to the next
    file.
    """
    queue = MappedFileQueue(directory, file_size, writable=True)
    for index in range(count):
        data = bytes([index % 255 + 1]) * 1000
        while data:
            file = queue.last()
            part = data[: file.size - file.wrote_position]
            file.append(part)
            data = data[len(part) :]
    return queue


def contents(queue: MappedFileQueue) -> bytes:
    return b"".join(bytes(file.view(0, file.wrote_position)) for file in queue.files)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 150)),
            st.tuples(st.just("truncate"), st.integers(0, 1200)),
            st.tuples(st.just("delete"), st.integers(0, 1200)),
            st.tuples(st.just("flush"), st.integers(0, 2)),
        ),
        max_size=30,
    )
)
@settings(deadline=None, max_examples=150)
def test_a_queue_is_a_sequence_of_bytes_whatever_is_done_to_it(actions: list[tuple[str, int]]) -> None:
    """Compare with a bytearray and its start offset; open the queue again at the end, when every file counts as full."""
    with tempfile.TemporaryDirectory() as directory:
        size = 100
        queue = MappedFileQueue(Path(directory) / "q", size, writable=True)
        model, base, has_files, flushed = bytearray(), 0, False, 0
        for number, (action, amount) in enumerate(actions):
            match action:
                case "append":
                    for _ in range(amount):
                        queue.last().append(bytes([number + 1]))
                    model += bytes([number + 1]) * amount
                    has_files = True
                case "truncate":
                    queue.truncate(base + amount)
                    model = model[:amount]
                    flushed = min(flushed, base + len(model))
                case "delete":
                    last_base = base + max(0, (len(model) - 1) // size) * size
                    kept = queue.files[-1].base if queue.files else 0  # an empty last file counts too
                    assert kept >= last_base or not queue.files
                    start = min(kept, max(base, (base + amount) // size * size)) if queue.files else base
                    assert queue.delete_before(base + amount) == (start - base) // size
                    model = model[start - base :]
                    base = start
                    flushed = max(flushed, base)
                case "flush":
                    assert queue.flush() == queue.flushed_offset == base + len(model)
                    flushed = base + len(model)
            assert contents(queue) == model
            assert (queue.min_offset, queue.max_offset) == ((base, base + len(model)) if has_files else (0, 0))
            assert queue.flushed_offset >= flushed or not queue.files
            for offset in (base - 1, base, base + len(model) // 2, base + len(queue.files) * size):
                file = queue.find(offset)
                if file is None:
                    assert not base <= offset < base + len(queue.files) * size
                else:
                    assert file.base <= offset < file.base + size
        queue.close()
        again = MappedFileQueue(Path(directory) / "q", size, writable=False)
        assert contents(again)[: len(model)] == model
        assert not any(contents(again)[len(model) :])  # a truncation that clears leaves nothing behind
        again.close()


def test_a_load_takes_every_file_for_full_and_refuses_a_wrong_length_with_file_and_size(tmp_path: Path) -> None:
    """HA-ST-21 "of another length than the others MUST be refused"."""
    filled(tmp_path / "q", 20).close()
    queue = MappedFileQueue(tmp_path / "q", SIZE, writable=False)
    assert (len(queue.files), queue.max_offset) == (3, 3 * SIZE)
    queue.close()
    path = tmp_path / "q" / f"{SIZE:020d}"
    with path.open("r+b") as file:
        file.truncate(SIZE - 1)
    with pytest.raises(StoreCorrupt, match=rf"{path.name}.*{SIZE - 1} bytes.*{SIZE}"):
        MappedFileQueue(tmp_path / "q", SIZE, writable=False)
    with pytest.raises(StoreCorrupt):
        MappedFileQueue(tmp_path / "q", 2 * SIZE, writable=False)


def test_a_truncation_clears_the_tail_or_leaves_it_as_rocketmq_does(tmp_path: Path) -> None:
    """HA-ST-7; quirk 35."""
    for clear in (True, False):
        queue = filled(tmp_path / str(clear), 20)
        queue.truncate(9000, clear=clear)
        assert (queue.max_offset, len(queue.files)) == (9000, 2)
        rest = (tmp_path / str(clear) / f"{SIZE:020d}").read_bytes()[9000 - SIZE :]
        assert any(rest) is not clear
        assert queue.last().base == SIZE
        queue.close()


def test_what_a_truncation_clears_or_removes_is_on_the_disk_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut could bring the old bytes back, where new ones were or will be written."""
    queue = filled(tmp_path / "q", 20)
    synced: list[str] = []
    real = os.fsync

    def note(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(mapped_file, "_sync_data", note)
    monkeypatch.setattr(os, "fsync", note)
    queue.truncate(9000)
    assert synced == [str(tmp_path / "q"), str(tmp_path / "q" / f"{SIZE:020d}")]
    queue.truncate(9000)
    assert len(synced) == 2  # nothing was there to clear
    queue.close()


def test_views_outlive_the_deletion_of_their_file(tmp_path: Path) -> None:
    """The name goes at once, the mapping with the last view: no view outlives its mapping."""
    queue = filled(tmp_path / "q", 20)
    first = queue.files[0]
    view = first.view(0, 3)
    assert queue.delete_before(SIZE) == 1
    assert not first.path.exists()
    assert bytes(view) == b"\1\1\1"
    with pytest.raises(FileNotFoundError, match="removed"):
        first.view(0, 1)
    assert queue.find(0) is None
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(first.path) in maps.read_text()
        del view
        gc.collect()
        assert str(first.path) not in maps.read_text()
    queue.close()


def test_a_file_that_somebody_else_has_cut_is_refused_before_it_is_mapped(tmp_path: Path) -> None:
    """A read through a mapping beyond the end of the file is SIGBUS."""
    filled(tmp_path / "q", 20).close()
    queue = MappedFileQueue(tmp_path / "q", SIZE, writable=False)
    os.truncate(queue.files[1].path, 100)
    with pytest.raises(StoreCorrupt, match=f"100 bytes, expected {SIZE}"):
        queue.files[1].view(0, SIZE)
    queue.close()


# --- Flush -----------------------------------------------------------------------------------------------------------


def test_a_failed_sync_moves_nothing_and_the_next_one_writes_the_pages_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-ST-28 "MUST advance only over bytes that a successful sync has covered"; quirk 36.

    A system may drop a dirty page that it could not write. So after a failure every page must count as dirty
    again: the mapping touches them all.
    """
    queue = filled(tmp_path / "q", 20)
    assert queue.flushed_offset == 0

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(mapped_file, "_sync_data", fail)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error") as failed:
            queue.flush()
        assert failed.value.filename == str(queue.files[0].path)
        assert queue.flushed_offset == 0
    monkeypatch.undo()
    queue.files[0].sync()  # clean now; a sync without touching would have nothing to write
    mapping = queue.files[0].mapping
    touched: list[int] = []

    class Spy:
        def __getitem__(self, position: int) -> int:
            return mapping[position]

        def __setitem__(self, position: int, value: int) -> None:
            assert mapping[position] == value
            touched.append(position // 4096)
            mapping[position] = value

    monkeypatch.setattr(MappedFile, "mapping", property(lambda _: Spy()))
    assert queue.flush() == queue.flushed_offset == 20_000
    assert set(touched) == {0, 1}
    monkeypatch.undo()
    queue.close()


def test_a_flush_waits_for_enough_pages_unless_the_file_is_full(tmp_path: Path) -> None:
    queue = MappedFileQueue(tmp_path / "q", 5 * 4096, writable=True)
    queue.last().append(bytes([1]) * 4096 * 3)
    assert queue.flush(4) == 0
    queue.last().append(bytes([1]) * 4096)
    assert queue.flush(4) == 4 * 4096
    queue.last().append(bytes([1]) * 4096)
    queue.last().append(b"x")
    assert queue.flush(4) == 5 * 4096
    assert queue.flush() == 5 * 4096 + 1
    queue.close()


def test_names_of_new_files_are_on_the_disk_before_what_is_in_them_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(tmp_path / "a" / "q", 20)

    def fail(_directory: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("rocketmq_ha.impl.store.log.mapped_file_queue._sync_directory", fail)
    with pytest.raises(OSError, match="Input/output"):
        queue.flush()
    assert queue.flushed_offset == 0
    monkeypatch.undo()
    assert queue.flush() == 20_000
    queue.close()


def test_a_flush_beside_a_writer_covers_what_was_there_when_it_began(tmp_path: Path) -> None:
    queue = MappedFileQueue(tmp_path / "q", 4096, writable=True)
    stop = threading.Event()
    seen: list[tuple[int, int, int]] = []

    def flush() -> None:
        while not stop.is_set():
            before = queue.max_offset
            seen.append((before, queue.flush(), queue.max_offset))

    thread = threading.Thread(target=flush, daemon=True)
    thread.start()
    for index in range(3000):
        queue.last().append(bytes([index % 255 + 1]) * 64)
    stop.set()
    await_end(thread)
    assert all(before <= flushed <= after for before, flushed, after in seen)
    assert queue.flush() == 3000 * 64
    queue.close()


# --- Space, and files ahead ------------------------------------------------------------------------------------------


def test_no_room_is_a_named_error_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-8 "Space MUST be allocated on the disk before it is mapped"."""

    def no_space(_fd: int, _start: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(mapped_file.os, "posix_fallocate", no_space)
    queue = MappedFileQueue(tmp_path / "q", SIZE, writable=True)
    with pytest.raises(StoreFull, match=f"{0:020d}.*No space.*{SIZE} bytes") as full:
        queue.last()
    assert full.value.errno == errno.ENOSPC
    assert list((tmp_path / "q").iterdir()) == []
    assert queue.files == ()


def test_below_the_floor_no_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = AllocateService(floor_size=1000)
    monkeypatch.setattr(space, "free_size", lambda _: SIZE + 999)
    queue = MappedFileQueue(tmp_path / "q", SIZE, writable=True, create=allocator.create)
    with pytest.raises(StoreFull, match=f"found {SIZE + 999} bytes free, expected {SIZE} for this file, and 1000 to stay free"):
        queue.last()
    monkeypatch.setattr(space, "free_size", lambda _: SIZE + 1000)
    assert queue.last().base == 0
    allocator.check_space(tmp_path)
    assert allocator.full is None
    monkeypatch.setattr(space, "free_size", lambda _: 999)
    allocator.check_space(tmp_path)
    assert "999 bytes free" in str(allocator.full)
    queue.close()


def test_the_next_file_is_made_once_this_one_is_half_full_and_taken_as_it_is(tmp_path: Path) -> None:
    allocator = AllocateService()
    allocator.start()
    queue = MappedFileQueue(tmp_path / "q", SIZE, writable=True, create=allocator.create)
    queue.last().append(bytes([1]) * (SIZE // 2 - 1))
    following = tmp_path / "q" / f"{SIZE:020d}"
    for _ in range(5):
        allocator._stop.wait(0.02)
        assert not following.exists()
    queue.last().append(b"x")
    deadline = threading.Event()
    for _ in range(500):
        if following.exists():
            break
        deadline.wait(0.01)
    assert following.stat().st_size == SIZE
    inode = following.stat().st_ino
    queue.last().append(bytes([1]) * (SIZE // 2))
    assert queue.last().base == SIZE
    assert following.stat().st_ino == inode
    queue.last().append(bytes([1]) * (SIZE // 2))
    allocator.shutdown()
    # no temporary file is left
    assert sorted(path.name for path in (tmp_path / "q").iterdir()) == [f"{0:020d}", f"{SIZE:020d}"]
    queue.close()


def test_populated_pages_keep_what_they_hold(tmp_path: Path) -> None:
    queue = filled(tmp_path / "q", 20)
    before = contents(queue)
    for file in queue.files:
        allocate.populate(file.mapping, 0, file.size)
        allocate.populate(file.mapping, 4096, 4096)
    assert contents(queue) == before
    queue.close()
