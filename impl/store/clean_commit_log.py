"""Delete the commit-log files that retention.py selects, and the entries derived from them.

No reader may still need a deleted file (HA-ST-66); existing views of it stay valid. Files are deleted from the first on, so a
process that is killed between two deletions leaves adjacent files.

Spec: HA-ST-13, HA-ST-62 to HA-ST-66.  Source: 4.9.8 CleanCommitLogService, CleanConsumeQueueService.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY, Entry
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.layout import sync_directory
from rocketmq_ha.impl.store.retention import DELETE_FILES_BATCH_MAX, Disk, Reason, Retention, files_to_delete
from rocketmq_ha.spec.constants import CONSUME_QUEUE_DIR, INDEX_DIR

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())


def nobody_needs() -> int | None:
    """The needed offset of a log without slaves."""
    return None


class CleanCommitLogService:
    """`run` is one round. Only one thread may call it; any thread may read the figures.

    Args:  clean_derived: called with the log's min offset when it has moved, or may have moved.
           needed_offset: returns the first offset that readers of the log need; None if they need nothing.
    """

    def __init__(
        self,
        log: CommitLog,
        retention: Retention,
        clean_derived: Callable[[int], None],
        needed_offset: Callable[[], int | None] = nobody_needs,
    ) -> None:
        self.retention = retention
        self.deleted_files = self.deleted_size = 0
        self._log, self._clean_derived, self._needed_offset = log, clean_derived, needed_offset
        self._cleaned_to = 0  # the min offset up to which queues and index were cleaned
        self._is_held = False  # a file is kept because a reader needs it; logged once

    def run(self) -> int:
        """One round; the hour is that of local time. Returns: the number of deleted log files. Raises: OSError; the next
        round continues.
        """
        now_ms = wall_clock_ms()
        return self.clean(self.retention, now_ms, time.localtime(now_ms / 1000).tm_hour)

    def clean(self, retention: Retention, now_ms: int, hour: int) -> int:
        """One round at a given time with a given retention."""
        log = self._log
        files = log.queue.files
        modified_ms = [file.path.stat().st_mtime_ns // 1_000_000 for file in files[:-1][:DELETE_FILES_BATCH_MAX]]
        needed_offset = self._needed()
        decision = files_to_delete(
            retention,
            [file.base for file in files],
            modified_ms,
            log.file_size,
            now_ms=now_ms,
            hour=hour,
            disk=disk_of(log.queue.directory),
            needed_offset=needed_offset,
        )
        if decision.held is not None and not self._is_held:
            first = files[len(decision.reasons)]
            logger.warning("%s is kept, though %s: offset %d is still needed", first.path, decision.held.value, needed_offset)
        self._is_held = decision.held is not None
        count = 0
        try:
            for file, reason in zip(files, decision.reasons, strict=False):
                needed_offset = self._needed()  # a slave may have connected during the previous deletion
                if needed_offset is not None and needed_offset < file.base + file.size:
                    break
                log.delete_before(file.base + file.size)
                level = logging.WARNING if reason is Reason.SPACE else logging.INFO
                logger.log(level, "deleted %s: %s", file.path, reason.value)
                count += 1
                self.deleted_files += 1
                self.deleted_size += file.size
        finally:
            if count:
                # Sync first: if a power cut brought log files back but not their queue entries, their messages would be lost.
                sync_directory(log.queue.directory)
        if log.min_offset > self._cleaned_to:
            self._clean_derived(log.min_offset)
            self._cleaned_to = log.min_offset
        return count

    def _needed(self) -> int | None:
        """The first offset that readers, or the next opening of the log, need."""
        found = (self._needed_offset(), self._log.first_needed_offset())
        return min((offset for offset in found if offset is not None), default=None)


def disk_of(directory: Path) -> Disk:
    """The usage of the file system that holds a directory."""
    found = os.statvfs(directory)
    return Disk((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_bavail * found.f_frsize)


def clean_closed(store_dir: Path, min_offset: int) -> None:
    """Delete the files of queues and index whose messages are all deleted, in a store whose queues are not open.

    A queue's last file stays. A file whose last entry is a filler or invalid stays, too, with all files after it: recovery
    must judge the remains of a crash.

    Spec: HA-ST-13 "older files may have been deleted".
    Source: 4.9.8 MappedFileQueue.deleteExpiredFileByOffset.
    """
    for queue in sorted((store_dir / CONSUME_QUEUE_DIR).glob("*/*")):
        for path in sorted(queue.iterdir())[:-1] if queue.is_dir() else []:
            with path.open("rb") as file:
                file.seek(-ENTRY.size, os.SEEK_END)
                last = Entry._make(ENTRY.unpack(file.read(ENTRY.size)))
            if last.is_filler or last.size <= 0 or last.offset < 0 or last.offset >= min_offset:
                break
            path.unlink()
            logger.info("deleted %s: its messages have gone", path)
    if (store_dir / INDEX_DIR).is_dir():
        index = IndexService(store_dir, writable=True)
        try:
            if count := index.delete_expired(min_offset):
                logger.info("deleted %d files of %s: their messages have gone", count, index.directory)
        finally:
            index.close()
