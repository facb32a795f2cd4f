"""A log that is flushed at intervals while a master or a slave runs: the thread."""

from collections.abc import Iterator
from contextlib import contextmanager

from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import FlushIntervals, FlushRealTimeService


@contextmanager
def flushing(log: CommitLog, intervals: FlushIntervals) -> Iterator[FlushRealTimeService]:
    """Run a thread that flushes the log at intervals, until the context ends. The caller flushes the rest after that."""
    service = FlushRealTimeService(log, **intervals._asdict())
    service.start()
    try:
        yield service
    finally:
        service.shutdown()
