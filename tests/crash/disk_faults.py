"""Scenarios with full, read-only and broken disks: real mounts, and system calls made to fail (fail_calls.c).

    python tests/crash/disk_faults.py SCENARIO DIRECTORY      one scenario, of this file or of cut_files.py

Each scenario runs in its own process, so that a SIGBUS does not end the tests. Most scenarios mount a file system and need
root. Each asserts that the error names the file, that all earlier messages are there, and that the store goes on.
"""

import errno
import gc
import logging
import os
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import cut_files
from fault_kit import OPTIONS, Ledger, error_of, eventually, expect, failing, mounted, run, tmpfs, told

from rocketmq_ha.impl.errors import StoreFull
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.results import PutMessageStatus, status_of
from rocketmq_ha.impl.store.log.verify import verify
from rocketmq_ha.impl.store.message_store import MessageStore

NOBODY: Final = 65534


# --- Full ------------------------------------------------------------------------------------------------------------


def full_file_system(directory: Path) -> None:
    """Put until the disk is full: a put without room is refused, earlier messages stay; with new room the store goes on."""
    with tmpfs(directory / "small", "8m") as path:
        ledger = Ledger()
        with MessageStore.open(path / "s", OPTIONS) as store:
            error = ledger.put_until_error(store)
            expect(error, errno.ENOSPC, path / "s" / "commitlog")
            assert isinstance(error, StoreFull)
            assert status_of(error) is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert len(ledger.records) > 5000
            assert isinstance(ledger.put_until_error(store), StoreFull)
            run("mount", "-o", "remount,size=16m", path)
            ledger.put(store, 300)
            ledger.check(store)
        ledger.check_anew(path / "s")


def no_room_for_queues(directory: Path) -> None:
    """Another program fills the disk: puts go on in allocated space; dispatch waits, logs why, and resumes by itself."""
    with tmpfs(directory / "small", "8m") as path:
        ledger = Ledger()
        with MessageStore.open(path / "s", OPTIONS) as store:
            ledger.put(store)
            ledger.check(store)
            _fill(path / "filler")
            ledger.put(store, topic="new")
            eventually(lambda: told.has("dispatch fails", path / "s" / "consumequeue" / "new"), f"an error: {told.lines}")
            ledger.put(store, 5)
            assert not store.wait_for_dispatch(timeout_s=0.2)
            (path / "filler").unlink()
            ledger.check(store)
        ledger.check_anew(path / "s")


def no_room_to_stop(directory: Path) -> None:
    """Without room a store cannot stop cleanly, or be opened: the error names the file, and nothing is lost."""
    with tmpfs(directory / "small", "8m") as path:
        ledger = Ledger()
        store = MessageStore.open(path / "s", OPTIONS)
        ledger.put(store, 10)
        _fill(path / "filler")
        ledger.put(store, topic="new")
        try:
            store.close()
        except OSError as error:
            expect(error, errno.ENOSPC, path / "s")
        assert (path / "s" / "abort").exists()
        try:
            MessageStore.open(path / "s", OPTIONS).close()
        except OSError as error:
            expect(error, errno.ENOSPC, path / "s")
        else:
            raise AssertionError("opened, though the new topic's queue has no room")
        (path / "filler").unlink()
        ledger.check_anew(path / "s")


def file_size_limit(directory: Path) -> None:
    """EFBIG: a limit on file sizes stops the log with the file's name, or only the index, if only its files are too large."""
    options = replace(OPTIONS, index_geometry=Geometry(1000, 200_000))
    ledger = Ledger(options)
    _limit_files(1 << 17)
    with MessageStore.open(directory / "s", options) as store:
        error = ledger.put_until_error(store)
        expect(error, errno.EFBIG, directory / "s" / "commitlog" / f"{0:020d}")
        assert status_of(error) is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        _limit_files(1 << 19)  # the log's files have 256 KiB, the index files 4 MB
        ledger.put(store, 600)
        eventually(lambda: told.has("dispatch fails", directory / "s" / "index"), f"an error: {told.lines}")
        _limit_files(resource.RLIM_INFINITY)
        ledger.check(store)
    ledger.check_anew(directory / "s")


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


def _limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


# --- Read-only -------------------------------------------------------------------------------------------------------


def read_only_at_the_start(directory: Path) -> None:
    """EROFS: opening the store for writing fails with the file's name; reading and verifying it works."""
    with tmpfs(directory / "disk", "8m") as path:
        ledger = Ledger()
        with MessageStore.open(path / "s", OPTIONS) as store:
            ledger.put(store, 20)
        del store
        gc.collect()  # a writable mapping keeps a file system writable
        run("mount", "-o", "remount,ro", path)
        try:
            MessageStore.open(path / "s", OPTIONS).close()
        except OSError as error:
            expect(error, errno.EROFS, path / "s")
        else:
            raise AssertionError("opened for writing on a read-only file system")
        with LogReader(path / "s") as log:
            assert verify(log).messages == 20
        run("mount", "-o", "remount,rw", path)
        ledger.check_anew(path / "s")


def read_only_under_a_live_store(directory: Path) -> None:
    """EROFS later: allocated space can be written, the next file is refused; writable again, the store goes on."""
    ledger, path = Ledger(), directory / "s"
    with MessageStore.open(path, OPTIONS) as store:
        ledger.put(store, 20)
        with mounted(path / "commitlog", "--bind", path / "commitlog"):  # mounted over it: open files stay writable
            run("mount", "-o", "remount,bind,ro", path / "commitlog")
            refused = ledger.put_until_error(store)
            expect(refused, errno.EROFS, path / "commitlog")
            assert status_of(refused) is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert len(ledger.records) > 200
        ledger.put(store, 300)
        ledger.check(store)
    ledger.check_anew(path)


def read_only_directory(directory: Path) -> None:
    """EACCES: the same for a directory in which this user may not create files."""
    path = directory / "s"
    os.chown(directory, NOBODY, NOBODY)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)  # root may write everywhere
    ledger = Ledger()
    with MessageStore.open(path, OPTIONS) as store:
        ledger.put(store, 20)
        for name in ("commitlog", "consumequeue"):
            (path / name).chmod(0o555)
        error = ledger.put_until_error(store)
        expect(error, errno.EACCES, path / "commitlog")
        (path / "commitlog").chmod(0o755)
        ledger.put(store, topic="new")
        eventually(lambda: told.has("dispatch fails", path / "consumequeue" / "new"), f"an error: {told.lines}")
        (path / "consumequeue").chmod(0o755)
        ledger.check(store)
    ledger.check_anew(path)


# --- A disk that does not answer -------------------------------------------------------------------------------------


def full_device(directory: Path) -> None:
    """A device fails all writes: no put ends with PUT_OK any more; when it works again, all messages with PUT_OK are there.

    The device is a sparse file on a file system too small for it: space seems allocated, but pages cannot be written back.
    """
    with tmpfs(directory / "small", "6m") as small:
        image = small / "device"
        run("truncate", "--size=64M", image)
        run("mke2fs", "-q", "-F", "-t", "ext4", "-b", 4096, "-N", 256, "-J", "size=4", image)
        ledger = Ledger()
        with mounted(directory / "disk", "-o", "loop", image) as path:
            flushed_offset = _wear_out(ledger, path / "s")
        gc.collect()  # closes the last mapping
        eventually(lambda: not run("losetup", "-j", image), "the device is free")
        run("mount", "-o", "remount,size=100m", small)
        with mounted(directory / "disk", "-o", "loop", image) as path:  # a new mount starts without page cache
            with MessageStore.open(path / "s", OPTIONS) as store:
                assert store.max_offset >= flushed_offset
                ledger.records = [record for record in ledger.records if record.end <= store.max_offset]
                ledger.check(store)
            ledger.check_anew(path / "s")


def _wear_out(ledger: Ledger, path: Path) -> int:
    """Put until the device fails for good. Returns: the offset up to which all messages were acknowledged."""
    store = MessageStore.open(path, OPTIONS)
    ledger.put(store, 3)
    failed = 0
    for _ in range(100):
        try:
            failed += ledger.put_as_may_be(store, 200_000) is PutMessageStatus.FLUSH_DISK_TIMEOUT
        except OSError as error:  # the next file cannot be created
            assert str(path / "commitlog") in str(error), repr(error)
            failed += 1
        if failed > 3:
            break
    assert failed > 3, "the device never failed"
    assert told.has("flush failed", path / "commitlog"), told.lines
    told_of = error_of(store.flush)
    assert told_of is not None
    assert told_of.errno in (errno.EIO, errno.ENOSPC, errno.EROFS)
    assert str(path) in str(told_of)
    flushed_offset = store.flushed_offset
    assert len(ledger.records[0].data) < flushed_offset <= store.max_offset
    assert error_of(store.close) is not None
    return flushed_offset


def failing_sync_of_the_log(directory: Path) -> None:
    """EIO from a sync of the log, or of its directory after a new file: no PUT_OK any more, and the file's name."""
    ledger, path = Ledger(), directory / "s"
    with MessageStore.open(path, OPTIONS) as store:
        ledger.put(store, 3)
        for call, part, puts in (("fdatasync", "/commitlog/", 3), ("fsync", "/s/commitlog", 300)):
            files = len(store.log.queue.files)
            good = store.max_offset if call == "fdatasync" else files * store.log.file_size
            with failing(call, errno.EIO, part):
                statuses = [ledger.put_as_may_be(store) for _ in range(puts)]
                assert statuses[-1] is PutMessageStatus.FLUSH_DISK_TIMEOUT
                assert told.has("flush failed", "Input/output error", path / "commitlog"), told.lines
                error = error_of(store.flush)
                assert error is not None
                expect(error, errno.EIO, path / "commitlog")
                assert store.flushed_offset <= good < store.max_offset
            told.lines.clear()
            ledger.put(store)
            assert store.flushed_offset == store.max_offset
        ledger.check(store)
    ledger.check_anew(path)


def failing_sync_of_the_derived(directory: Path) -> None:
    """EIO from a sync of a queue, the index or the checkpoint: the error names the file, and the checkpoint claims no more."""
    ledger, path = Ledger(), directory / "s"
    with MessageStore.open(path, OPTIONS) as store:
        ledger.put(store)
        ledger.check(store)
        store.flush()
        for call, part in (("fdatasync", "/consumequeue/"), ("fdatasync", "/index/"), ("fsync", "/checkpoint")):
            time.sleep(0.01)  # the next message gets a later timestamp
            before = (path / "checkpoint").read_bytes()[8:24]
            ledger.put(store)
            ledger.check(store)
            with failing(call, errno.EIO, part):
                error = error_of(store.flush)
                assert error is not None, f"no error from {call} of {part}"
                expect(error, errno.EIO, Path(f"{path}{part}"))
                if part != "/checkpoint":  # its bytes may have reached the file; then they are right
                    assert (path / "checkpoint").read_bytes()[8:24] == before
            store.flush()
            assert (path / "checkpoint").read_bytes()[8:24] != before
        ledger.check(store)
    ledger.check_anew(path)


def failing_write(directory: Path) -> None:
    """EIO from pwritev of replicated bytes: the error names the file, and the log keeps its length."""
    source, path = Ledger(), directory / "s"
    with MessageStore.open(directory / "master", OPTIONS) as master:
        source.put(master, 2)
        data = bytes(master.log.data_at(0, OPTIONS.file_size or 0) or b"")
    with MessageStore.open(path, OPTIONS) as store:
        first = len(source.records[0].data)
        store.append_data(0, [data[:first]])
        with failing("pwritev", errno.EIO, "/commitlog/"):
            error = error_of(lambda: store.append_data(first, [data[first:]]))
            assert error is not None
            expect(error, errno.EIO, path / "commitlog" / f"{0:020d}")
            assert store.max_offset == first
        store.append_data(first, [data[first:]])
        source.check(store)
    source.check_anew(path)


NEED_ROOT: Final = (
    *(full_file_system, no_room_for_queues, no_room_to_stop, full_device),
    *(read_only_at_the_start, read_only_under_a_live_store),
)
NEED_PRELOAD: Final = (failing_sync_of_the_log, failing_sync_of_the_derived, failing_write)
OTHERS: Final = (
    *(file_size_limit, read_only_directory, cut_files.deleted_last_file, cut_files.deleted_first_file),
    *(cut_files.truncated_last_file, cut_files.truncated_first_file, cut_files.truncated_queue, cut_files.truncated_index),
)


def main() -> None:
    logging.getLogger("rocketmq_ha").addHandler(told)
    [scenario] = [one for one in (*NEED_ROOT, *NEED_PRELOAD, *OTHERS) if one.__name__ == sys.argv[1]]
    scenario(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
