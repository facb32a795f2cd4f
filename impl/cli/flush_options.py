"""How often the log is forced to the disk: RocketMQ's three settings of its asynchronous flush, for either end."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import click

from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import (
    FLUSH_INTERVAL_S,
    FLUSH_LEAST_PAGES,
    FLUSH_THOROUGH_INTERVAL_S,
    FlushRealTimeService,
)

MAX_INT: Final = 2**31 - 1  # RocketMQ's settings are of Java's int; a wait of Python's has its bound not far beyond
_Command = Callable[..., Any]


class FlushIntervals(NamedTuple):
    """HA-ST-60 "every `flush_interval_commit_log`, 500 ms by default"."""

    interval_s: float = FLUSH_INTERVAL_S
    least_pages: int = FLUSH_LEAST_PAGES
    thorough_interval_s: float = FLUSH_THOROUGH_INTERVAL_S


_OPTIONS: Final = (
    click.option(
        "--flush-interval-commit-log",
        type=click.IntRange(1, MAX_INT),
        default=round(FLUSH_INTERVAL_S * 1000),
        show_default=True,
        metavar="MS",
        help="Force the log to the disk at this interval. No put waits for it, and no acknowledgement.",
    ),
    click.option(
        "--flush-commit-log-least-pages",
        type=click.IntRange(min=0),
        default=FLUSH_LEAST_PAGES,
        show_default=True,
        metavar="N",
        help="Leave out a turn in which fewer pages of 4 KiB have something new.",
    ),
    click.option(
        "--flush-commit-log-thorough-interval",
        type=click.IntRange(1, MAX_INT),
        default=round(FLUSH_THOROUGH_INTERVAL_S * 1000),
        show_default=True,
        metavar="MS",
        help="Force all that is new to the disk at this interval, however few pages that is.",
    ),
)


def flush_options(command: _Command) -> _Command:
    """Add the options to a command, which gets them as `flush_intervals`."""

    @functools.wraps(command)
    def with_intervals(
        *arguments: Any,
        flush_interval_commit_log: int,
        flush_commit_log_least_pages: int,
        flush_commit_log_thorough_interval: int,
        **options: Any,
    ) -> Any:
        intervals = FlushIntervals(
            *(flush_interval_commit_log / 1000, flush_commit_log_least_pages, flush_commit_log_thorough_interval / 1000)
        )
        return command(*arguments, flush_intervals=intervals, **options)

    for option in reversed(_OPTIONS):
        with_intervals = option(with_intervals)
    return with_intervals


@contextmanager
def flushing(log: CommitLog, intervals: FlushIntervals) -> Iterator[FlushRealTimeService]:
    """A thread that flushes the log at intervals, as long as this lasts. What is new at the end is the caller's to flush."""
    service = FlushRealTimeService(
        log,
        interval_s=intervals.interval_s,
        least_pages=intervals.least_pages,
        thorough_interval_s=intervals.thorough_interval_s,
    )
    service.start()
    try:
        yield service
    finally:
        service.shutdown()
