"""A thread that keeps `config/topics.json` up to date for a log without dispatch. A broker serves only the topics in this file.

The log itself knows the topics that a master puts. What a slave appends must be read. Reading and noting take at most a
twentieth of a processor, so that they do not delay a catch-up. Waits for a slow disk do not count: a new queue would stay out
of the file for longer, and after a kill no broker serves a queue that is not in it.
"""

import logging
import threading
import time
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.store.derived.consume_queue_table import is_directory_name
from rocketmq_ha.impl.store.derived.dispatch_request import read_handed
from rocketmq_ha.impl.store.derived.topic_config import write_topics
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.batch import HandedFields

logger = logging.getLogger(__name__)

_INTERVAL_S: Final = 0.2
_SHARE: Final = 0.05  # the share of a processor's time that this may take
_BATCH: Final = 2048  # records that are read at a time
_LAST_S: Final = 10.0  # at the end the rest is read; at most for this time


class TopicWatch:
    """Writes the topics of appended messages to topics.json; with the first of them also the topics that the log had before."""

    def __init__(self, store_dir: Path, log: CommitLog, *, reads: bool) -> None:
        self._store_dir, self._log, self._reads = store_dir, log, reads
        self._began_at = self._offset = log.max_offset  # recovery has read what is before, so the log knows its queues
        self._noted: set[tuple[bytes, int]] = set()
        self._found: set[tuple[bytes, int]] = set()
        self._queue_count = -1
        self._is_failing = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="TopicWatch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Read and note the rest, and end the thread. The writers must have stopped."""
        self._stop.set()
        self._thread.join()
        deadline = time.monotonic() + _LAST_S
        while self._reads and time.monotonic() < deadline and self._read():
            pass
        self._note()

    def _run(self) -> None:
        pause_s = _INTERVAL_S
        while not self._stop.wait(pause_s):
            started = time.thread_time()
            is_more = self._reads and self._read()
            self._note()
            took_s = time.thread_time() - started
            pause_s = took_s * (1 / _SHARE - 1) if is_more else max(_INTERVAL_S, took_s * (1 / _SHARE - 1))

    def _read(self) -> bool:
        """Read a batch of records. Returns: True if there may be more."""
        log, offset = self._log, max(self._offset, self._log.min_offset)
        room = log.file_size - offset % log.file_size
        try:
            data = log.data_at(offset, room)
        except (OSError, RocketmqHaError):  # its file changes its length just now; the writer meets a fault of the disk, too
            return False
        if data is None:
            return False
        handed: list[HandedFields] = []
        self._offset, _ = read_handed(data, offset, room, offset + room, _BATCH, handed)
        self._found.update((topic, queue_id) for topic, queue_id, *_ in handed)
        return self._offset > offset

    def _note(self) -> None:
        """Write new topics. A failure is logged once, and the write is tried again."""
        log = self._log
        if log.max_offset in (self._began_at, log.min_offset):
            return  # HA-ST-50 "If it has appended nothing, it MUST leave the store as it was"
        if log.queue_count != self._queue_count:
            self._queue_count = log.queue_count
            self._found.update((topic, queue_id) for queue_id, topic in log.queue_keys())
        if self._found <= self._noted:
            return
        queue_nums: dict[str, int] = {}
        for topic, queue_id in self._found:
            name = topic.decode("utf-8", "replace")
            if is_directory_name(topic) and name.encode() == topic:  # a broker finds no queue for a name that is not text
                queue_nums[name] = max(queue_nums.get(name, 0), queue_id + 1)
        try:
            write_topics(self._store_dir, queue_nums)
        except (OSError, RocketmqHaError) as error:
            if not self._is_failing:
                logger.error("topics are not noted, which is tried again: %s", error)
            self._is_failing = True
            return
        self._is_failing = False
        self._noted = set(self._found)
