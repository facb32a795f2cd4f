"""The background work of a store: write the checkpoint, flush queues and index, delete expired files, check the free space.

A time goes into the checkpoint only after a sync. It is read before the sync begins, and store timestamps ascend with offsets,
so the sync covers every message stored before it.

Source: 4.9.8 FlushConsumeQueueService, CleanCommitLogService, CleanConsumeQueueService, CommitLog.flush.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.dispatch_round import DispatchRound
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint
from rocketmq_ha.impl.store.log.commit_log import CommitLog

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

INTERVAL_S: Final = 1.0
LEAST_PAGES: Final = 2
THOROUGH_INTERVAL_S: Final = 10.0  # RocketMQ's is 60 s; every recovery would then have a tail of that length
EXPIRY_INTERVAL_S: Final = 10.0


class Derived:
    """Flushes consume queues and index. `put_keys` and `note` are dispatchers; `note` must be the last."""

    def __init__(self, queues: ConsumeQueueTable, index: IndexService) -> None:
        self.queues, self.index = queues, index
        self.dispatched_ms = 0  # store timestamp of the last dispatched message

    def put_keys(self, found: DispatchRound) -> None:
        self.index.put(found.keyed)

    def note(self, found: DispatchRound) -> None:
        self.dispatched_ms = max(self.dispatched_ms, found.last_store_timestamp)

    def flush(self, checkpoint: StoreCheckpoint, least_pages: int = 0) -> None:
        """Flush both. The checkpoint's times advance if everything was flushed. Raises: OSError; then they stay."""
        dispatched_ms = self.dispatched_ms
        self.queues.flush(least_pages)
        if least_pages == 0:
            index_ms = self.index.flush()
            checkpoint.logics_msg_timestamp = max(checkpoint.logics_msg_timestamp, dispatched_ms)
            checkpoint.index_msg_timestamp = max(checkpoint.index_msg_timestamp, index_ms)


class LogFlush:
    """The log for the flush services: a flush of the whole log advances the checkpoint's first time."""

    def __init__(self, log: CommitLog, checkpoint: StoreCheckpoint, derived: Derived) -> None:
        self._log, self._checkpoint, self._derived = log, checkpoint, derived

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    def flush(self, least_pages: int = 0) -> int:
        stored_ms = max(self._log.last_stored_ms, self._derived.dispatched_ms)
        end = self._log.max_offset  # everything stored before that time lies before this offset
        flushed_offset = self._log.flush(least_pages)
        if flushed_offset >= end:
            self._checkpoint.physic_msg_timestamp = max(self._checkpoint.physic_msg_timestamp, stored_ms)
        return flushed_offset


class Housekeeping:
    """A thread that runs `chores` at an interval. If one fails, the others still run."""

    def __init__(self, chores: Sequence[Callable[[], object]], interval_s: float = INTERVAL_S) -> None:
        self._chores, self._interval_s = tuple(chores), interval_s
        self._failing: set[int] = set()  # chores whose last run failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="Housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def shutdown(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            for number, chore in enumerate(self._chores):
                try:
                    chore()
                    self._failing.discard(number)
                except (OSError, RocketmqHaError) as error:
                    if number not in self._failing:
                        logger.error("%s fails, and is tried again: %s", chore.__name__, error)
                    self._failing.add(number)


class Every:
    """True at most once per interval."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next = time.monotonic() + interval_s

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._interval_s
        return True
