"""The options of the asynchronous flush, for a master or a slave: RocketMQ's three settings."""

from typing import Final

import click

from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.store.log.flush import FlushIntervals

MAX_INT: Final = 2**31 - 1  # RocketMQ's settings are Java ints; Python's waits cannot be much longer either
_DEFAULT: Final = FlushIntervals()


def _intervals(
    flush_interval_commit_log: int, flush_commit_log_least_pages: int, flush_commit_log_thorough_interval: int
) -> FlushIntervals:
    return FlushIntervals(
        flush_interval_commit_log / 1000, flush_commit_log_least_pages, flush_commit_log_thorough_interval / 1000
    )


flush_options = option_group(
    "flush_intervals",
    _intervals,
    click.option(
        "--flush-interval-commit-log",
        type=click.IntRange(1, MAX_INT),
        default=round(_DEFAULT.interval_s * 1000),
        show_default=True,
        metavar="MS",
        help="Force the log to the disk at this interval. No put and no acknowledgement waits for it.",
    ),
    click.option(
        "--flush-commit-log-least-pages",
        type=click.IntRange(min=0),
        default=_DEFAULT.least_pages,
        show_default=True,
        metavar="N",
        help="Skip a flush for which fewer pages of 4 KiB have new data.",
    ),
    click.option(
        "--flush-commit-log-thorough-interval",
        type=click.IntRange(1, MAX_INT),
        default=round(_DEFAULT.thorough_interval_s * 1000),
        show_default=True,
        metavar="MS",
        help="Force all new data to the disk at this interval, however few pages have some.",
    ),
)
