"""The deletion of old log files while a master or a slave runs: its settings, its thread and its figures."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.impl.store.clean_commit_log import CleanCommitLogService, clean_closed, nobody_needs
from rocketmq_ha.impl.store.housekeeping import Housekeeping
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.space import Space
from rocketmq_ha.impl.store.retention import Retention

logger = logging.getLogger(__name__)

HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """interval_s: the time between two searches for files to delete. floor_size: bytes of the disk that the log leaves free."""

    retention: Retention
    interval_s: float
    delete_unacknowledged: bool
    floor_size: int


class CleaningFigures:
    """The figures of retention and of the disk, for a status snapshot."""

    def __init__(self, service: CleanCommitLogService, space: Space) -> None:
        self._service, self._space = service, space

    def figures(self) -> dict[str, Any]:
        """The fields of a snapshot."""
        full = self._space.check()
        return {
            "deleted_files": self._service.deleted_files,
            "deleted_bytes": self._service.deleted_size,
            "disk_full": None if full is None else str(full),
        }


@contextmanager
def cleaning(
    log: CommitLog,
    store: Path,
    settings: RetentionSettings,
    space: Space,
    needed_offset: Callable[[], int | None] = nobody_needs,
) -> Iterator[CleaningFigures]:
    """Run a thread that deletes old files, until the context ends. Without a setting that deletes, no thread runs."""
    service = CleanCommitLogService(
        log,
        settings.retention,
        lambda min_offset: clean_closed(store, min_offset),
        nobody_needs if settings.delete_unacknowledged else needed_offset,
    )

    def delete_expired_files() -> None:  # Housekeeping names a task that fails by its function's name
        service.run()

    housekeeping = Housekeeping((delete_expired_files,), settings.interval_s)
    if settings.retention.deletes:
        logger.info("%s: files of the log are deleted: %s", store, _in_words(settings.retention))
        housekeeping.start()
    try:
        yield CleaningFigures(service, space)
    finally:
        housekeeping.shutdown()


def _in_words(retention: Retention) -> str:
    """Return a text that says which files a retention deletes."""
    reserved_ms, hours = retention.file_reserved_ms, retention.delete_when or ()
    when = ";".join(f"{hour:02d}" for hour in sorted(hours))
    reasons = {
        f"{(reserved_ms or 0) // HOUR_MS} h after their last write (hours {when})": reserved_ms is not None,
        "of any age on a disk more than 85 % full": retention.clean_file_forcibly,
        f"beyond {retention.max_log_size} bytes together": retention.max_log_size is not None,
    }
    return ", ".join(text for text, holds in reasons.items() if holds)
