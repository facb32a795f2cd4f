"""Decide which files of a log a round of cleaning deletes. Time, disk use and the needs of readers are arguments.

| file | file | file | last |
  goes   goes   stays: no reason to delete it, or a peer needs it; then all files behind it stay, too
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_ha.reference.mapped_file_queue import (
    DELETE_FILES_BATCH_MAX,
    MappedFileQueue,
    delete_first_files,
    file_count,
)

CLEAN_FORCIBLY_PERCENT = 85


@dataclass(frozen=True, slots=True)
class Policy:
    """The retention settings. By default HA-ST-69 "MUST keep every file" holds: nothing is deleted."""

    file_reserved_ms: int | None = None
    delete_when: frozenset[int] | None = frozenset({4})
    disk_max_used_space_ratio: int = 75
    clean_file_forcibly: bool = False
    max_log_size: int | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a round, and the disk: `used_size` of `total_size` bytes are used."""

    now_ms: int
    hour: int
    used_size: int
    total_size: int


def is_fuller(used_size: int, total_size: int, percent: int) -> bool:
    """Return True if more than a percentage of the disk is used. Use is rounded up to whole percent, as in RocketMQ."""
    return total_size > 0 and used_size * 100 > percent * total_size


def wants_to_delete(policy: Policy, moment: Moment, modified_ms: int, log_size: int) -> str | None:
    """The reason to delete the first file of a log, or None.

    Spec: HA-ST-63 "MUST be deleted in an hour of delete_when, and at any hour while the disk is fuller than
    disk_max_used_space_ratio"; HA-ST-64 "MUST be deleted whatever its age while the disk is more than 85 % full"; HA-ST-65
    "MUST be deleted while the files together hold more than max_log_size".
    """
    is_old = policy.file_reserved_ms is not None and modified_ms + policy.file_reserved_ms <= moment.now_ms
    if is_old and (policy.delete_when is None or moment.hour in policy.delete_when):
        return "AGE"
    if is_old and is_fuller(moment.used_size, moment.total_size, policy.disk_max_used_space_ratio):
        return "AGE_AND_SPACE"
    if policy.clean_file_forcibly and is_fuller(moment.used_size, moment.total_size, CLEAN_FORCIBLY_PERCENT):
        return "SPACE"
    if policy.max_log_size is not None and log_size > policy.max_log_size:
        return "SIZE"
    return None


def clean(
    queue: MappedFileQueue, modified_ms: Sequence[int], policy: Policy, moment: Moment, needed_offset: int | None
) -> tuple[MappedFileQueue, tuple[str, ...], str | None]:
    """One round. Returns: the log afterwards, the reason for each deleted file, and the reason for a file that a peer still
    needs.

    Spec: HA-ST-62 "MUST be deleted from the first on, at most ten in a round, and never the last one"; HA-ST-66 "MUST NOT be
    deleted while a peer needs it".
    """
    reasons: list[str] = []
    while len(reasons) < DELETE_FILES_BATCH_MAX and file_count(queue) > 1:
        assert queue.base is not None
        gone_size = len(reasons) * queue.file_size
        now = Moment(moment.now_ms, moment.hour, max(0, moment.used_size - gone_size), moment.total_size)
        why = wants_to_delete(policy, now, modified_ms[len(reasons)], file_count(queue) * queue.file_size)
        if why is None:
            break
        if needed_offset is not None and needed_offset < queue.base + queue.file_size:
            return queue, tuple(reasons), why
        queue = delete_first_files(queue, 1)
        reasons.append(why)
    return queue, tuple(reasons), None
