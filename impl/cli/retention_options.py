"""The options for deleting old files and for keeping disk space free: RocketMQ's settings, and a few of our own."""

import click

from rocketmq_ha.impl.app.cleaning import HOUR_MS, RetentionSettings
from rocketmq_ha.impl.cli.flush_options import MAX_INT
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.store.housekeeping import EXPIRY_INTERVAL_S
from rocketmq_ha.impl.store.log.space import FLOOR_SIZE
from rocketmq_ha.impl.store.retention import DELETE_WHEN, DISK_MAX_USED_SPACE_RATIO, Retention


def hours(text: str) -> str:
    """Convert an option: hours of the day as deleteWhen has them, 04, or 04;16. Raises: click.BadParameter."""
    words = str(text).rstrip(";").split(";")  # TOML gives a number; Java ignores a ';' at the end
    if not all(word.isascii() and word.isdigit() and int(word) < 24 for word in words):
        raise click.BadParameter(f"{text!r}: expected hours of the day from 00 to 23, with ';' between them")
    return ";".join(words)


def _settings(
    file_reserved_time: int | None,
    delete_when: str,
    disk_max_used_space_ratio: int,
    clean_file_forcibly: bool | None,
    max_log_size: int | None,
    clean_resource_interval: int,
    delete_unacknowledged: bool,
    min_free_space: int,
) -> RetentionSettings:
    if clean_file_forcibly is None:  # HA-ST-69 "`clean_file_forcibly` MUST be on"
        clean_file_forcibly = file_reserved_time is not None
    retention = Retention(
        file_reserved_ms=None if file_reserved_time is None else file_reserved_time * HOUR_MS,
        delete_when=frozenset(map(int, delete_when.split(";"))),
        disk_max_used_space_ratio=disk_max_used_space_ratio,
        clean_file_forcibly=clean_file_forcibly,
        max_log_size=max_log_size,
    )
    return RetentionSettings(retention, clean_resource_interval / 1000, delete_unacknowledged, min_free_space)


retention_options = option_group(
    "retention",
    _settings,
    click.option(
        "--file-reserved-time",
        type=click.IntRange(0, MAX_INT),
        metavar="HOURS",
        help="Delete a file of the log this time after its last write; RocketMQ's default is 72. [default: files are kept]",
    ),
    click.option(
        "--delete-when",
        type=hours,
        default=";".join(f"{hour:02d}" for hour in sorted(DELETE_WHEN)),
        show_default=True,
        metavar="HH[;HH]",
        help="The hours of the day in which old files are deleted.",
    ),
    click.option(
        "--disk-max-used-space-ratio",
        type=click.IntRange(1, 100),
        default=DISK_MAX_USED_SPACE_RATIO,
        show_default=True,
        metavar="PERCENT",
        help="While the disk is fuller than this, old files are deleted at any hour.",
    ),
    click.option(
        "--clean-file-forcibly/--no-clean-file-forcibly",
        default=None,
        help="Delete files of any age while the disk is more than 85 % full. [default: if --file-reserved-time is given, as in "
        "RocketMQ]",
    ),
    click.option(
        "--max-log-size",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="Delete the oldest files while the log is larger than this. [default: no limit]",
    ),
    click.option(
        "--clean-resource-interval",
        type=click.IntRange(1, MAX_INT),
        default=round(EXPIRY_INTERVAL_S * 1000),
        show_default=True,
        metavar="MS",
        # HA-ST-62 "MUST begin every `clean_resource_interval`, 10 s by default"
        help="Look for files to delete at this interval, and delete at most ten.",
    ),
    click.option(
        "--delete-unacknowledged",
        is_flag=True,
        help="Delete files even if a connected slave has not acknowledged them. That slave is then out of range.",
    ),
    click.option(
        "--min-free-space",
        type=click.IntRange(min=0),
        default=FLOOR_SIZE,
        show_default=True,
        metavar="BYTES",
        help="Create no file that would leave less than this of the disk free.",
    ),
)
