"""The threads beside the puts, turn by turn: when they flush, make a file ahead, refuse for want of space, and delete.

No test here waits for a time: each thread's loop runs in the test, on a clock that the test moves.
"""

import errno
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.files import log_file
from rocketmq_ha.impl.errors import StoreFull
from rocketmq_ha.impl.store.clean_commit_log import CleanCommitLogService, clean_closed
from rocketmq_ha.impl.store.log import allocate, flush, mapped_file_queue, space
from rocketmq_ha.impl.store.log.allocate import AllocateService
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import FlushRealTimeService, GroupCommitRequest, GroupCommitService
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.mapped_file_queue import MappedFileQueue
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.store.log.space import Space
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.retention import Retention
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.constants import MAPPED_FILE_SIZE_COMMIT_LOG

OK, LATE = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT
SIZE = 4096


class Disk:
    """A log of which each flush reaches as far as the test says, or fails."""

    def __init__(self, *reached: int | OSError) -> None:
        self.flushed_offset = 0
        self.reached = list(reached)
        self.flushes: list[int] = []

    def flush(self, least_pages: int = 0) -> int:
        self.flushes.append(least_pages)
        found = self.reached.pop(0) if self.reached else self.flushed_offset
        if isinstance(found, OSError):
            raise found
        self.flushed_offset = found
        return found


def eio() -> OSError:
    return OSError(errno.EIO, "Input/output error")


# --- Flush at intervals ----------------------------------------------------------------------------------------------


class Turns:
    """An event whose wait lets time pass, and which is set after so many waits."""

    def __init__(self, count: int) -> None:
        self.left, self.now, self.waits = count, 1000.0, set[float]()

    def wait(self, seconds: float) -> bool:
        self.waits.add(seconds)
        self.now += seconds
        self.left -= 1
        return self.left < 0


def run(monkeypatch: pytest.MonkeyPatch, disk: Disk, count: int) -> FlushRealTimeService:
    service = FlushRealTimeService(disk, interval_s=0.5, least_pages=4, thorough_interval_s=2)
    turns = Turns(count)
    service._stop = turns  # type: ignore[assignment]
    monkeypatch.setattr(flush.time, "monotonic", lambda: turns.now)
    service._run()
    assert turns.waits == {0.5}
    return service


def test_every_flush_takes_few_pages_and_now_and_then_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-60 "and every `flush_commit_log_thorough_interval`, 10 s by default, however little is new"."""
    disk = Disk()
    run(monkeypatch, disk, 12)
    assert disk.flushes == [4, 4, 4, 0, 4, 4, 4, 0, 4, 4, 4, 0]


def test_a_thorough_flush_that_failed_is_due_until_it_succeeds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-ST-61: the first error is kept; the log has one line for each time that errors begin."""
    errors = [eio() for _ in range(3)]
    disk = Disk(0, 0, 0, errors[0], errors[1], 7, 7, errors[2])
    with caplog.at_level(logging.ERROR):
        service = run(monkeypatch, disk, 8)
    assert disk.flushes == [4, 4, 4, 0, 0, 0, 4, 4]
    assert service.error is errors[2]
    assert service.first_error is errors[0]
    assert caplog.text.count("flush failed, and is tried again: flushed to 0") == 1
    assert caplog.text.count("flush failed, and is tried again: flushed to 7") == 1
    with pytest.raises(OSError, match="Input/output error") as told:
        service.check()
    assert told.value is errors[0]
    disk = Disk()
    service = run(monkeypatch, disk, 2)
    service.check()
    assert (service.error, service.first_error) == (None, None)


# --- Flush for those that wait ---------------------------------------------------------------------------------------


def test_a_request_ends_as_the_flushed_offset_says() -> None:
    """HA-ST-26 "MUST NOT end with PUT_OK before the disk has its message"."""
    ended: list[list[PutMessageStatus | None]] = []
    service = GroupCommitService(Disk(4, 5), lambda: ended.append([request.status for request in requests]))
    requests = [service.put_request(offset) for offset in (4, 5, 6)]
    service._requests.put(None)
    service._run()
    assert [request.status for request in requests] == [OK, OK, LATE]
    assert ended == [[OK, OK, LATE]]
    assert [request.wait(-1) for request in requests] == [OK, OK, LATE]


@pytest.mark.parametrize("reached", [[eio(), 9], [eio(), eio(), 9], [8, 9], [8, 8, 9]])
def test_a_flush_for_those_that_wait_is_tried_twice(reached: list[int | OSError]) -> None:
    disk = Disk(*reached)
    service = GroupCommitService(disk)
    request = service.put_request(9)
    service._requests.put(None)
    service._run()
    assert request.status is (OK if len(reached) == 2 else LATE)
    assert len(disk.flushes) == 2
    assert (service.error is None) == (disk.flushed_offset > 0)


def test_no_request_is_between_the_queue_and_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread empties the queue and shuts a new gate in one step. A put that came between the two would wait at a gate that
    opens before its flush, and end as if the disk were late.
    """
    disk = Disk(1, 2)
    service = GroupCommitService(disk)
    first = service.put_request(1)
    between: list[GroupCommitRequest] = []
    real = flush._shut_gate

    def shut_gate() -> Any:
        if not between and service._guard.acquire(blocking=False):  # a put could come now
            service._guard.release()
            between.append(service.put_request(2))
            service._requests.put(None)
        return real()

    monkeypatch.setattr(flush, "_shut_gate", shut_gate)
    service._requests.put(None)
    service._run()
    assert first.wait(0) is OK
    for request in between:
        gate = request._gate
        assert gate is not first._gate


def test_a_wait_ends_with_the_status_or_with_its_time() -> None:
    service = GroupCommitService(Disk(1))
    request = service.put_request(1)
    for timeout_s in (-1.0, 0.0):
        assert request.wait(timeout_s) is LATE
        assert request.status is None
    service._requests.put(None)
    service._run()
    assert request.wait(0) is OK


# --- The names of files ----------------------------------------------------------------------------------------------


def test_the_name_of_each_new_file_is_flushed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    failures = [eio()]

    def sync(directory: Path) -> None:
        synced.append(directory)
        if failures and len(synced) == 2:
            raise failures.pop()

    monkeypatch.setattr(mapped_file_queue, "_sync_directory", sync)
    queue = MappedFileQueue(tmp_path / "a" / "b", 100, writable=True)
    assert queue.flush() == 0
    assert synced == []  # no file, no name
    queue.last().append(bytes(50))
    levels = [tmp_path / "a" / "b", tmp_path / "a", tmp_path]
    with pytest.raises(OSError, match="Input/output error"):
        queue.flush()
    assert (synced, queue.flushed_offset) == (levels[:2], 0)
    assert queue.flush() == 50
    assert synced[2:] == levels  # all of them again
    queue.last().append(bytes(50))
    queue.flush()
    assert len(synced) == 5
    queue.last().append(bytes(50))
    assert queue.flush() == 150
    assert synced[5:] == levels[:1]
    queue.close()


# --- Files ahead -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wrote", "is_made"), [(SIZE // 2 - 1, False), (SIZE // 2, True), (SIZE // 2 + 1, True), (SIZE, True)])
def test_the_next_file_is_made_when_one_is_half_full(tmp_path: Path, wrote: int, is_made: bool) -> None:
    allocator = AllocateService()
    file = allocator.create(tmp_path, 0, SIZE)
    file.append(bytes(wrote))
    allocator._prepare_behind(file)
    following = tmp_path / f"{SIZE:020d}"
    assert following.exists() == is_made
    allocator._prepare_behind(file)  # once
    allocator._prepare_behind(MappedFile(tmp_path / "other", 0, SIZE, writable=True, wrote_position=SIZE))
    assert len(list(tmp_path.iterdir())) == 1 + is_made
    allocator.shutdown()
    assert not following.exists()
    file.close()


@pytest.mark.parametrize(
    ("directory", "base", "size", "is_taken"),
    [("a", SIZE, SIZE, True), ("a", 2 * SIZE, SIZE, False), ("a", SIZE, SIZE // 2, False), ("b", SIZE, SIZE, False)],
)
def test_a_file_made_ahead_is_taken_where_it_is_the_one(
    tmp_path: Path, directory: str, base: int, size: int, is_taken: bool
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    allocator = AllocateService()
    allocator.create(tmp_path / "a", 0, SIZE).append(bytes(SIZE))
    assert allocator._current is not None
    allocator._prepare_behind(allocator._current)
    ahead = allocator._next
    assert ahead is not None
    taken = allocator.create(tmp_path / directory, base, size)
    assert (taken is ahead) == is_taken
    assert (allocator._next, allocator._current) == (None, taken)
    assert (taken.base, taken.size, taken.path.stat().st_size) == (base, size, size)
    assert ahead.path.exists() == (is_taken or ahead.path == taken.path)
    allocator.shutdown()
    assert taken.path.exists()


MIB = 1 << 20


@pytest.mark.parametrize(
    ("wrote", "size", "touched"),
    [
        (0, 3 * MIB, [(0, 3 * MIB)]),
        (100, 3 * MIB, [(0, 3 * MIB)]),
        (4096, 3 * MIB, [(4096, 3 * MIB - 4096)]),
        (0, 10 * MIB, [(0, 4 * MIB), (4 * MIB, 4 * MIB), (8 * MIB, 2 * MIB)]),
        (0, 65 * MIB, [(4 * MIB * number, 4 * MIB) for number in range(16)]),
        (3 * MIB, 3 * MIB, []),
    ],
)
def test_pages_are_touched_ahead_of_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrote: int, size: int, touched: list[tuple[int, int]]
) -> None:
    """64 MiB ahead at most, 4 MiB at once."""
    found: list[tuple[int, int]] = []

    def populate(_mapping: object, start: int, count: int) -> bool:
        found.append((start, count))
        return True

    monkeypatch.setattr(allocate, "populate", populate)
    allocator = AllocateService()
    file = allocator.create(tmp_path, 0, size)
    file.wrote_position = wrote
    allocator._can_touch = True
    allocator._touch_ahead(file)
    assert found == touched
    allocator._touch_ahead(file)
    assert found == touched  # nothing twice
    file.wrote_position = min(size, wrote + 4 * MIB)
    allocator._touch_ahead(file)
    assert found[len(touched) :] == ([(64 * MIB, MIB)] if size == 65 * MIB else [])
    allocator.watch(file)
    file.wrote_position = wrote
    allocator._touch_ahead(file)
    assert found[-len(touched) :] == touched  # a file that is taken begins anew
    allocator.shutdown()
    file.close()


# --- Free space ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("free", "fits"), [(1000 + SIZE - 1, False), (1000 + SIZE, True), (1000 + SIZE + 1, True)])
@pytest.mark.parametrize("maker", ["AllocateService", "Space"])
def test_a_file_is_made_where_the_floor_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, fits: bool, maker: str
) -> None:
    create: Callable[..., MappedFile] = (
        AllocateService(floor_size=1000).create if maker == "AllocateService" else Space(1000).create
    )
    monkeypatch.setattr(space, "free_size", lambda _: free)
    if fits:
        create(tmp_path, 0, SIZE).close()
    else:
        with pytest.raises(StoreFull, match=f"found {free} bytes free, expected {SIZE} for this file, and 1000 to stay free"):
            create(tmp_path, 0, SIZE)
    assert (tmp_path / f"{0:020d}").exists() == fits
    MappedFile.create(tmp_path, SIZE, SIZE, tmp_path).close()
    create(tmp_path, SIZE, SIZE).close()  # one that is there already needs no room


@pytest.mark.parametrize(("free", "is_full"), [(999, True), (1000, False), (1001, False)])
def test_puts_are_refused_below_the_floor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, is_full: bool) -> None:
    allocator = AllocateService(floor_size=1000)
    for now_free in (0, free):
        monkeypatch.setattr(space, "free_size", lambda _, now=now_free: now)
        allocator.check_space(tmp_path)
    assert (allocator.full is not None) == is_full


def test_a_full_disk_is_a_state_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-ST-67. It is told once, and its end once."""
    free = [SIZE + 999]
    monkeypatch.setattr(space, "free_size", lambda _: free[0])
    room = Space(1000)
    assert (room.has_room(), room.check()) == (True, None)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            with pytest.raises(StoreFull) as full:
                room.create(tmp_path, 0, SIZE)
            assert room.full is full.value
        assert room.check() is full.value
        assert not room.has_room()
        free[0] += 1
        assert room.has_room()
        assert room.full is full.value
        assert room.check() is None
        assert room.full is None
        free[0] -= 1
        assert (room.has_room(), room.check()) == (True, None)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "smaller" not in caplog.text
    assert "there is room on the disk again" in caplog.text


@pytest.mark.parametrize("size", [MAPPED_FILE_SIZE_COMMIT_LOG - 1, MAPPED_FILE_SIZE_COMMIT_LOG])
@pytest.mark.parametrize("has_files", [True, False])
def test_smaller_files_are_proposed_where_none_is_there_of_the_default_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, size: int, has_files: bool
) -> None:
    if has_files:
        (tmp_path / "file").touch()
    monkeypatch.setattr(space, "free_size", lambda _: 0)
    with pytest.raises(StoreFull):
        Space().create(tmp_path, 0, size)
    assert ("--file-size may be smaller" in caplog.text) == (size == MAPPED_FILE_SIZE_COMMIT_LOG and not has_files)


# --- Deletion --------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Any:
    """Four files."""
    with CommitLog.open(tmp_path / "s", file_size=SIZE) as log:
        while log.max_offset < 3 * SIZE:
            log.append(Message("t", bytes(900)))
        for file in log.queue.files:
            os.utime(file.path, ns=(0, 5_000_000_000))
        yield log


OLD = Retention(file_reserved_ms=1000, delete_when=None)


@pytest.mark.parametrize(("now_ms", "deleted"), [(5_999, 0), (6_000, 3), (6_001, 3)])
def test_a_file_goes_at_the_age_that_is_told(log: CommitLog, now_ms: int, deleted: int) -> None:
    cleaned: list[int] = []
    service = CleanCommitLogService(log, OLD, cleaned.append)
    assert service.clean(OLD, now_ms, 0) == deleted
    assert (service.deleted_files, service.deleted_size) == (deleted, deleted * SIZE)
    assert log.min_offset == deleted * SIZE
    service.clean(OLD, now_ms, 0)
    assert cleaned == [3 * SIZE] * (deleted > 0)  # once, when the min offset has moved
    assert (service.deleted_files, service.deleted_size) == (deleted, deleted * SIZE)


@pytest.mark.parametrize(
    ("needed", "deleted"), [(0, 0), (SIZE - 1, 0), (SIZE, 1), (SIZE + 1, 1), (3 * SIZE, 3), (9 * SIZE, 3), (None, 3)]
)
@pytest.mark.parametrize("comes_late", [False, True])
def test_a_file_that_a_reader_needs_stays(log: CommitLog, needed: int | None, deleted: int, comes_late: bool) -> None:
    """HA-ST-66; a reader may come between the decision and the deletion, too."""
    answers = [None] if comes_late else []
    service = CleanCommitLogService(log, OLD, lambda _: None, lambda: answers.pop() if answers else needed)
    assert service.clean(OLD, 10_000, 0) == deleted
    assert log.min_offset == deleted * SIZE
    assert log_file(log.queue.directory.parent, deleted * SIZE).exists()


def test_a_file_that_is_kept_is_told_once_until_it_may_go(log: CommitLog, caplog: pytest.LogCaptureFixture) -> None:
    needed: list[int | None] = [100]
    service = CleanCommitLogService(log, OLD, lambda _: None, lambda: needed[0])
    for needed[0] in (100, 100, SIZE, None):
        service.clean(OLD, 10_000, 0)
    kept = [record.message for record in caplog.records if "is kept" in record.message]
    assert len(kept) == 1
    assert f"{0:020d} is kept, though it is older than --file-reserved-time: offset 100 is still needed" in kept[0]
    while log.max_offset < 5 * SIZE:
        log.append(Message("t", bytes(900)))
    needed[0] = log.min_offset
    service.clean(Retention(max_log_size=1), 10_000, 0)
    assert sum("is kept" in record.message for record in caplog.records) == 2


@pytest.mark.parametrize(("before_ms", "deleted"), [(4_999, 0), (5_000, 0), (5_001, 3)])
def test_a_store_deletes_what_was_stored_before_a_time(tmp_path: Path, before_ms: int, deleted: int) -> None:
    """HA-ST-13. A file that was written at exactly that time stays."""
    with MessageStore.open(tmp_path / "s", StoreOptions(file_size=SIZE, queue_file_size=200, floor_size=0)) as store:
        while store.max_offset < 3 * SIZE:
            store.put(Message("t", bytes(900)))
        assert store.wait_for_dispatch()
        for file in store.log.queue.files:
            os.utime(file.path, ns=(0, 5_000_000_000))
        assert store.delete_expired(before_ms) == deleted
        assert store.min_offset == deleted * SIZE
        queue = store.queues.get(b"t", 0)
        assert queue is not None
        assert queue.min_offset == 4 * deleted


FULL_FILE = struct.pack(">qiq", 0, 100, 0) * 9


@pytest.mark.parametrize(
    ("last", "is_deleted"),
    [
        ((999, 1, 0), True),
        ((1000, 1, 0), False),
        ((1001, 1, 0), False),
        ((0, 1, 0), True),
        ((-1, 1, 0), False),
        ((5, 0, 0), False),
        ((5, -1, 0), False),
        ((0, 2147483647, 0), False),  # a filler
    ],
)
def test_a_closed_queues_file_goes_where_its_last_message_has_gone(
    tmp_path: Path, last: tuple[int, int, int], is_deleted: bool
) -> None:
    queue = tmp_path / "consumequeue" / "t" / "0"
    queue.mkdir(parents=True)
    for number in range(2):
        (queue / f"{200 * number:020d}").write_bytes(FULL_FILE + struct.pack(">qiq", *last))
    clean_closed(tmp_path, 1000)
    assert [int(path.name) for path in sorted(queue.iterdir())] == [0, 200][is_deleted:]
