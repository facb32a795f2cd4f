"""Disks that are full, read-only or broken: real ones, but for system calls that fail (fail_calls.c).

    python tests/crash/disk_faults.py SCENARIO DIRECTORY      of these, or of cut_files.py

Each scenario is a process of its own, so that a SIGBUS ends it and not the tests. Most of them mount something, for which they
must be root. Each asserts that the error names the file, that what was put before is there, and that the store goes on.
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
    """Puts until the last block is gone are there; one that finds no room is refused; more room, and it goes on."""
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
    """Others fill the disk: puts go on where space is allocated, dispatch waits and says why, and goes on by itself."""
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
    """A store that cannot be stopped cleanly says which file, and has lost nothing; neither has one that cannot be opened."""
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
    """EFBIG: a limit on the size of files stops the log with its name, and the index alone where only that is too large."""
    options = replace(OPTIONS, index_geometry=Geometry(1000, 200_000))
    ledger = Ledger(options)
    _limit_files(1 << 17)
    with MessageStore.open(directory / "s", options) as store:
        error = ledger.put_until_error(store)
        expect(error, errno.EFBIG, directory / "s" / "commitlog" / f"{0:020d}")
        assert status_of(error) is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        _limit_files(1 << 19)  # of the log 256 KiB, of the index 4 MB
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
    """EROFS: such a store is not opened for writing, with the file's name, and can be read and verified."""
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
    """EROFS: what is allocated can be written, the next file is refused with its name; writable again, all goes on."""
    ledger, path = Ledger(), directory / "s"
    with MessageStore.open(path, OPTIONS) as store:
        ledger.put(store, 20)
        with mounted(path / "commitlog", "--bind", path / "commitlog"):  # over it: what is open stays writable
            run("mount", "-o", "remount,bind,ro", path / "commitlog")
            refused = ledger.put_until_error(store)
            expect(refused, errno.EROFS, path / "commitlog")
            assert status_of(refused) is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert len(ledger.records) > 200
        ledger.put(store, 300)
        ledger.check(store)
    ledger.check_anew(path)


def read_only_directory(directory: Path) -> None:
    """EACCES: the same for a directory in which this user may make no file."""
    path = directory / "s"
    os.chown(directory, NOBODY, NOBODY)
    if os.geteuid() == 0:
        os.seteuid(NOBODY)  # of root nothing is read-only
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
    """A device that takes no more writes: no put ends with PUT_OK any more, and all that did is there when it works again.

    The device is a file in a file system too small for it: space is allocated, and what is stored there cannot be written back.
    """
    with tmpfs(directory / "small", "6m") as small:
        image = small / "device"
        run("truncate", "--size=64M", image)
        run("mke2fs", "-q", "-F", "-t", "ext4", "-b", 4096, "-N", 256, "-J", "size=4", image)
        ledger = Ledger()
        with mounted(directory / "disk", "-o", "loop", image) as path:
            flushed_offset = _wear_out(ledger, path / "s")
        gc.collect()  # the last mapping
        eventually(lambda: not run("losetup", "-j", image), "the device is free")
        run("mount", "-o", "remount,size=100m", small)
        with mounted(directory / "disk", "-o", "loop", image) as path:  # nothing of the page cache is left
            with MessageStore.open(path / "s", OPTIONS) as store:
                assert store.max_offset >= flushed_offset
                ledger.records = [record for record in ledger.records if record.end <= store.max_offset]
                ledger.check(store)
            ledger.check_anew(path / "s")


def _wear_out(ledger: Ledger, path: Path) -> int:
    """Put until the device has failed for good. Returns: the offset before which all was acknowledged."""
    store = MessageStore.open(path, OPTIONS)
    ledger.put(store, 3)
    failed = 0
    for _ in range(100):
        try:
            failed += ledger.put_as_may_be(store, 200_000) is PutMessageStatus.FLUSH_DISK_TIMEOUT
        except OSError as error:  # the next file cannot be made any more
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
    """EIO from a sync of the log, or of its directory when that has a new file: the same, and the file's name."""
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
    """EIO from a sync of a queue, the index or the checkpoint: the file's name, and the checkpoint vouches for nothing more."""
    ledger, path = Ledger(), directory / "s"
    with MessageStore.open(path, OPTIONS) as store:
        ledger.put(store)
        ledger.check(store)
        store.flush()
        for call, part in (("fdatasync", "/consumequeue/"), ("fdatasync", "/index/"), ("fsync", "/checkpoint")):
            time.sleep(0.01)  # so that the next message has a time of its own
            before = (path / "checkpoint").read_bytes()[8:24]
            ledger.put(store)
            ledger.check(store)
            with failing(call, errno.EIO, part):
                error = error_of(store.flush)
                assert error is not None, f"no error from {call} of {part}"
                expect(error, errno.EIO, Path(f"{path}{part}"))
                if part != "/checkpoint":  # of which the bytes may be there; then they are true
                    assert (path / "checkpoint").read_bytes()[8:24] == before
            store.flush()
            assert (path / "checkpoint").read_bytes()[8:24] != before
        ledger.check(store)
    ledger.check_anew(path)


def failing_write(directory: Path) -> None:
    """EIO from pwritev of replicated bytes: the file's name, and a log as long as before."""
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
