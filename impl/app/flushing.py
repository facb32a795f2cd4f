"""A log that is flushed at intervals while a master or a slave runs: RocketMQ's three settings, and the thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import (
    FLUSH_INTERVAL_S,
    FLUSH_LEAST_PAGES,
    FLUSH_THOROUGH_INTERVAL_S,
    FlushRealTimeService,
)


class FlushIntervals(NamedTuple):
    """HA-ST-60 "every `flush_interval_commit_log`, 500 ms by default"."""

    interval_s: float = FLUSH_INTERVAL_S
    least_pages: int = FLUSH_LEAST_PAGES
    thorough_interval_s: float = FLUSH_THOROUGH_INTERVAL_S


@contextmanager
def flushing(log: CommitLog, intervals: FlushIntervals) -> Iterator[FlushRealTimeService]:
    """Run a thread that flushes the log at intervals, until the context ends. The caller flushes the rest after that."""
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
