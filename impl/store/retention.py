"""Which files of a commit log are to be deleted: a decision about numbers. clean_commit_log.py carries it out.

Files go from the first on, so that the log has no gap. Each must have a reason of its own; the first that has none ends the
round, and so does one that somebody still needs.

reference/retention.py says the same in its own words.

Source: 4.9.8 CleanCommitLogService (isTimeToDelete, isSpaceToDelete), MappedFileQueue.deleteExpiredFileByTime.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

DELETE_FILES_BATCH_MAX: Final = 10  # files a round
DELETE_WHEN: Final = frozenset({4})  # the hour of the day, of this machine's clock
DISK_MAX_USED_SPACE_RATIO: Final = 75
DISK_SPACE_CLEAN_FORCIBLY_RATIO: Final = 85


class Reason(Enum):
    """Why a file goes."""

    AGE = "it is older than --file-reserved-time"
    AGE_AND_SPACE = "it is older than --file-reserved-time, and the disk is fuller than --disk-max-used-space-ratio"
    SPACE = "the disk is more than 85 % full"
    SIZE = "the log is larger than --max-log-size"


@dataclass(frozen=True, slots=True)
class Retention:
    """What is to be kept. HA-ST-69 "MUST keep every file": the defaults have no reason to delete one."""

    file_reserved_ms: int | None = None  # after the last write to a file
    delete_when: frozenset[int] | None = DELETE_WHEN  # hours of the day in which files go for their age; None: at any time
    disk_max_used_space_ratio: int = DISK_MAX_USED_SPACE_RATIO  # percent, beyond which they go for their age at any hour
    clean_file_forcibly: bool = False  # whether files of any age go when the disk is more than 85 % full
    max_log_size: int | None = None  # bytes of all files together

    @property
    def deletes(self) -> bool:
        """Whether any file can ever have a reason to go."""
        return self.file_reserved_ms is not None or self.clean_file_forcibly or self.max_log_size is not None


class Disk(NamedTuple):
    """The file system of a log, in bytes. What is reserved for root is in neither."""

    used_size: int
    available_size: int

    def used_percent(self) -> int:
        """How full it is. HA-ST-63 "MUST be counted without the space that is reserved for root"."""
        total_size = self.used_size + self.available_size
        return -(-self.used_size * 100 // total_size) if total_size else 0


class Decision(NamedTuple):
    """The reasons of the files to delete, from the log's first on; and the reason of the first that was held back, if any."""

    reasons: tuple[Reason, ...]
    held: Reason | None = None


def files_to_delete(
    retention: Retention,
    bases: Sequence[int],
    modified_ms: Sequence[int],
    file_size: int,
    *,
    now_ms: int,
    hour: int,
    disk: Disk,
    needed_offset: int | None = None,
) -> Decision:
    """Decide about one round.

    Args:  bases: the start offsets of all files. modified_ms: when each was last written, of the first ten at least, but for
           the last one. needed_offset: a file that holds this offset, or is behind it, stays. None: nobody needs any.
    Spec: HA-ST-62 "MUST be deleted from the first on, at most ten in a round, and never the last one"; HA-ST-66 "MUST NOT be
    deleted while a peer needs it".
    """
    reasons: list[Reason] = []
    for base, written_ms in zip(bases[:-1][:DELETE_FILES_BATCH_MAX], modified_ms, strict=False):
        reason = _reason(retention, (len(bases) - len(reasons)) * file_size, now_ms - written_ms, hour, disk)
        if reason is None:
            break
        if needed_offset is not None and needed_offset < base + file_size:
            return Decision(tuple(reasons), reason)
        reasons.append(reason)
        # HA-ST-64 "what each file frees MUST be counted before the next one is deleted"
        disk = Disk(max(0, disk.used_size - file_size), disk.available_size + file_size)
    return Decision(tuple(reasons))


def _reason(retention: Retention, log_size: int, age_ms: int, hour: int, disk: Disk) -> Reason | None:
    """Why the first file of a log goes; None where it stays.

    Spec: HA-ST-63 "MUST be deleted in an hour of delete_when, and at any hour while the disk is fuller than
    disk_max_used_space_ratio"; HA-ST-64 "MUST be deleted whatever its age while the disk is more than 85 % full"; HA-ST-65
    "MUST be deleted while the files together hold more than max_log_size".
    """
    used_percent = disk.used_percent()
    if retention.file_reserved_ms is not None and age_ms >= retention.file_reserved_ms:
        if retention.delete_when is None or hour in retention.delete_when:
            return Reason.AGE
        if used_percent > retention.disk_max_used_space_ratio:
            return Reason.AGE_AND_SPACE
    if retention.clean_file_forcibly and used_percent > DISK_SPACE_CLEAN_FORCIBLY_RATIO:
        return Reason.SPACE
    if retention.max_log_size is not None and log_size > retention.max_log_size:
        return Reason.SIZE
    return None
