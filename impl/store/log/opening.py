"""Open a log for writing: lock the store, find the end, cut off what is beyond. All is checked before any change.

Source: 4.9.8 DefaultMessageStore.load and start, CommitLog.recoverNormally, MappedFileQueue.truncateDirtyFiles; quirk 35.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rocketmq_ha.impl.errors import ConfigInvalid, StoreLocked
from rocketmq_ha.impl.store.log.creation import sweep_creating
from rocketmq_ha.impl.store.log.deleted_places import take_back
from rocketmq_ha.impl.store.log.fragment import is_fragment
from rocketmq_ha.impl.store.log.layout import Layout, check_file_size, check_is_no_part, read_layout
from rocketmq_ha.impl.store.log.lock import StoreLock
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.mapped_file_queue import Creator, MappedFileQueue
from rocketmq_ha.impl.store.log.recovery import Recovery, recover
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR, LOCK_FILE, MAPPED_FILE_SIZE_COMMIT_LOG

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())  # silent where nobody has set logging up, as a library should be


class RecoveryHint(NamedTuple):
    """What is known of a log before it is read."""

    first: int = 0  # index of the file at which recovery begins; what is before it is taken as it is
    flushed_before_ms: int | None = None  # messages that were stored before this time were on the disk; None: who knows
    keeps_place: bool = False  # where no whole record is left, offsets go on from the first file's, which stays, empty


# Says what is known, given all files; called with the lock, where there is one already.
HintSource = Callable[[Sequence[MappedFile]], RecoveryHint]


class Opened(NamedTuple):
    """A log that is locked, recovered and cut."""

    queue: MappedFileQueue
    found: Recovery
    lock: StoreLock


class Examined(NamedTuple):
    """What a store holds, before any change."""

    layout: Layout | None
    queue: MappedFileQueue
    found: Recovery
    keeps_place: bool


def no_hint(_: Sequence[MappedFile]) -> RecoveryHint:
    """Give no hint, so that recovery reads every record."""
    return RecoveryHint()


def open_files(
    store_dir: Path,
    *,
    file_size: int | None,
    clear_tail: bool,
    strict: bool,
    hint: HintSource = no_hint,
    create: Creator = MappedFile.create,
    lock: StoreLock | None = None,
) -> Opened:
    """Lock a store and make its log ready for appending. CommitLog.open says what its arguments and errors are.

    Args:  hint: what a checkpoint says. create: makes new files. lock: of a caller who holds it already; it is released
           where the opening fails.
    """
    queue: MappedFileQueue | None = None
    try:
        if file_size is not None:
            check_file_size(file_size)
        check_is_no_part(store_dir)
        if not store_dir.exists() and not store_dir.parent.is_dir():
            raise ConfigInvalid(f"{store_dir}: its parent directory does not exist, expected a place for a new store")
        lock = lock or lock_existing(store_dir)
        layout, queue, found, keeps_place = examine(store_dir, file_size, strict, hint, create)
        if lock is None:
            store_dir.mkdir(exist_ok=True)
            lock = StoreLock(store_dir, create=True)
            again = examine(store_dir, file_size, strict, hint, create)
            again.queue.close()
            if (again.layout, again.found) != (layout, found):
                raise StoreLocked(f"{store_dir}: another process has just changed it, expected a store at rest")
        queue.directory.mkdir(exist_ok=True)
        queue.sweep()
        sweep_creating(store_dir)
        _cut(queue, found, clear_tail, keeps_place)
        take_back(store_dir, found.end if queue.files else 0)
    except BaseException:
        if queue is not None:
            queue.close()
        if lock is not None:
            lock.release()
        raise
    return Opened(queue, found, lock)


def lock_existing(store_dir: Path) -> StoreLock | None:
    """Lock a store that has a lock file; None for one without: nobody has it, so a refusal need not make one.

    Raises: StoreLocked, OSError.
    """
    return StoreLock(store_dir, create=False) if (store_dir / LOCK_FILE).exists() else None


def examine(
    store_dir: Path,
    file_size: int | None,
    strict: bool,
    hint: HintSource = no_hint,
    create: Creator = MappedFile.create,
) -> Examined:
    """List, check and recover a store. Changes nothing. Close the queue."""
    layout = read_layout(store_dir)
    # HA-ST-11 "1 GiB, 1,073,741,824 bytes, by default; a store MUST keep the size with which it was begun".
    size = (layout.file_size if layout is not None else None) or file_size or MAPPED_FILE_SIZE_COMMIT_LOG
    if file_size not in (None, size):
        assert layout is not None
        raise ConfigInvalid(
            f"{store_dir / COMMIT_LOG_DIR}: found files of {size} bytes, expected {file_size}; {_way_out(layout)}"
        )
    queue = MappedFileQueue(store_dir / COMMIT_LOG_DIR, size, writable=True, create=create)
    try:
        found_hint = hint(queue.files)
        found = recover(queue.files, strict=strict, first=found_hint.first, flushed_before_ms=found_hint.flushed_before_ms)
        return Examined(layout, queue, found, found_hint.keeps_place)
    except BaseException:
        queue.close()
        raise


def _way_out(layout: Layout) -> str:
    """What to do where a store was begun with another size than it is opened with. HA-S-91, HA-ST-11."""
    resync = "`rocketmq-ha resync` moves this store aside, to start anew"
    if len(layout.bases) > 1:
        return f"leave --file-size away: a store keeps its size; or {resync}"
    return f"leave --file-size away: a slave whose one file is not full takes its master's size at that file's end; or {resync}"


def _cut(queue: MappedFileQueue, found: Recovery, clear_tail: bool, keeps_place: bool) -> None:
    """Make the recovered end the end, and where asked, clear what is beyond.

    Spec: HA-ST-7 "What recovery cuts off MUST be set to zero, and a store without a whole record MUST have no files".
    """
    files = queue.files
    if found.cut_size:
        last = files[found.files - 1]
        position = found.end - last.base
        # That a slave holds part of a record is nothing to worry about: the master will send it again.
        is_usual = found.cut_size <= last.size - position and is_fragment(
            last.view(position, last.size), found.cut_size, found.end
        )
        level = logging.INFO if is_usual else logging.WARNING
        logger.log(level, "%s: cut off %d bytes behind the last whole record", last.path, found.cut_size)
    if files and found.end == files[0].base and clear_tail and not keeps_place:
        if found.end:  # what stood here is forgotten
            logger.warning(
                "%s: removed, for the log holds no whole record, and there are no consume queues to keep its place for: its "
                "offsets begin at 0 again, or a slave's where its master says (HA-ST-7)",
                files[0].path,
            )
        queue.remove_all()
        found.queue_offsets.clear()  # of a record that was cut off: a log that begins anew knows no queue
    else:
        queue.truncate(found.end, clear=clear_tail and bool(found.cut_size))
