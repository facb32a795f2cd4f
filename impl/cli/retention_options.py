"""What a master or a slave deletes of its log, and how much of the disk it leaves free: RocketMQ's settings, and two more."""

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from rocketmq_ha.impl.cli.flush_options import MAX_INT
from rocketmq_ha.impl.store.clean_commit_log import CleanCommitLogService, clean_closed, nobody_needs
from rocketmq_ha.impl.store.housekeeping import EXPIRY_INTERVAL_S, Housekeeping
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.space import FLOOR_SIZE, Space
from rocketmq_ha.impl.store.retention import DELETE_WHEN, DISK_MAX_USED_SPACE_RATIO, Retention

logger = logging.getLogger(__name__)

_Command = Callable[..., Any]
_HOUR_MS: Final = 3_600_000


class Keeping(NamedTuple):
    """What the options say."""

    retention: Retention
    interval_s: float
    delete_unacknowledged: bool
    floor_size: int


def hours(text: str) -> str:
    """A type of option: hours of the day as deleteWhen has them, 04, or 04;16. Raises: click.BadParameter."""
    words = str(text).rstrip(";").split(";")  # a number in TOML; Java takes a ';' at the end for nothing
    if not all(word.isascii() and word.isdigit() and int(word) < 24 for word in words):
        raise click.BadParameter(f"{text!r}: expected hours of the day from 00 to 23, with ';' between them")
    return ";".join(words)


_OPTIONS: Final = (
    click.option(
        "--file-reserved-time",
        type=click.IntRange(0, MAX_INT),
        metavar="HOURS",
        help="Delete the log's files so long after their last write. RocketMQ's is 72. [default: they are kept]",
    ),
    click.option(
        "--delete-when",
        type=hours,
        default=";".join(f"{hour:02d}" for hour in sorted(DELETE_WHEN)),
        show_default=True,
        metavar="HH[;HH]",
        help="The hours of the day in which files are deleted for their age.",
    ),
    click.option(
        "--disk-max-used-space-ratio",
        type=click.IntRange(1, 100),
        default=DISK_MAX_USED_SPACE_RATIO,
        show_default=True,
        metavar="PERCENT",
        help="While the disk is fuller, files are deleted for their age at any hour.",
    ),
    click.option(
        "--clean-file-forcibly/--no-clean-file-forcibly",
        default=None,
        help="Whether files of any age are deleted while the disk is more than 85 % full. [default: if --file-reserved-time is "
        "given, as in RocketMQ]",
    ),
    click.option(
        "--max-log-size",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="Delete files while all together take more. [default: no limit]",
    ),
    click.option(
        "--clean-resource-interval",
        type=click.IntRange(1, MAX_INT),
        default=round(EXPIRY_INTERVAL_S * 1000),
        show_default=True,
        metavar="MS",
        # HA-ST-62 "MUST begin every `clean_resource_interval`, 10 s by default"
        help="Look for files to delete at this interval; ten go at most.",
    ),
    click.option(
        "--delete-unacknowledged",
        is_flag=True,
        help="Delete files even if a slave that is connected has not acknowledged them. It is then out of range.",
    ),
    click.option(
        "--min-free-space",
        type=click.IntRange(min=0),
        default=FLOOR_SIZE,
        show_default=True,
        metavar="BYTES",
        help="Make no file that would leave less of the disk free.",
    ),
)


def retention_options(command: _Command) -> _Command:
    """Add the options to a command, which gets them as `keeping`."""

    @functools.wraps(command)
    def with_keeping(
        *arguments: Any,
        file_reserved_time: int | None,
        delete_when: str,
        disk_max_used_space_ratio: int,
        clean_file_forcibly: bool | None,
        max_log_size: int | None,
        clean_resource_interval: int,
        delete_unacknowledged: bool,
        min_free_space: int,
        **options: Any,
    ) -> Any:
        if clean_file_forcibly is None:  # HA-ST-69 "`clean_file_forcibly` MUST be on"
            clean_file_forcibly = file_reserved_time is not None
        retention = Retention(
            file_reserved_ms=None if file_reserved_time is None else file_reserved_time * _HOUR_MS,
            delete_when=frozenset(map(int, delete_when.split(";"))),
            disk_max_used_space_ratio=disk_max_used_space_ratio,
            clean_file_forcibly=clean_file_forcibly,
            max_log_size=max_log_size,
        )
        keeping = Keeping(retention, clean_resource_interval / 1000, delete_unacknowledged, min_free_space)
        return command(*arguments, keeping=keeping, **options)

    for option in reversed(_OPTIONS):
        with_keeping = option(with_keeping)
    return with_keeping


def _told(retention: Retention) -> str:
    """What a retention deletes, for people."""
    reserved_ms, hours = retention.file_reserved_ms, retention.delete_when or ()
    when = ";".join(f"{hour:02d}" for hour in sorted(hours))
    said = {
        f"{(reserved_ms or 0) // _HOUR_MS} h after their last write (hours {when})": reserved_ms is not None,
        "of any age on a disk more than 85 % full": retention.clean_file_forcibly,
        f"beyond {retention.max_log_size} bytes together": retention.max_log_size is not None,
    }
    return ", ".join(text for text, is_so in said.items() if is_so)


class Kept:
    """What `status` tells of it."""

    def __init__(self, service: CleanCommitLogService, space: Space) -> None:
        self._service, self._space = service, space

    def figures(self) -> dict[str, Any]:
        """The figures of a snapshot."""
        full = self._space.check()
        return {
            "deleted_files": self._service.deleted_files,
            "deleted_bytes": self._service.deleted_size,
            "disk_full": None if full is None else str(full),
        }


@contextmanager
def cleaning(
    log: CommitLog, store: Path, keeping: Keeping, space: Space, needed_offset: Callable[[], int | None] = nobody_needs
) -> Iterator[Kept]:
    """A thread that deletes what is to be deleted, as long as this lasts. Without a reason to delete there is none."""
    service = CleanCommitLogService(
        log,
        keeping.retention,
        lambda min_offset: clean_closed(store, min_offset),
        nobody_needs if keeping.delete_unacknowledged else needed_offset,
    )

    def delete_expired_files() -> None:  # the name is what is told if it fails
        service.run()

    housekeeping = Housekeeping((delete_expired_files,), keeping.interval_s)
    if keeping.retention.deletes:
        logger.info("%s: files of the log are deleted: %s", store, _told(keeping.retention))
        housekeeping.start()
    try:
        yield Kept(service, space)
    finally:
        housekeeping.shutdown()
