"""Which topics and queues a store has, noted in `config/topics.json` before the first message of each is acknowledged.

A broker makes a topic, and writes so, before it stores a message of it. So where a process is killed at any moment, a broker
that takes over its store serves every message that was acknowledged. What a master has sent is noted within a second: a slave
gets the file itself from the master, too, and later (chapter 6).

Source: 4.9.8 TopicConfigManager.createTopicInSendMessageMethod.
"""

import logging
import threading
from pathlib import Path

from rocketmq_ha.impl.errors import RocketmqHaError
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable, is_directory_name
from rocketmq_ha.impl.store.derived.topic_config import write_topics
from rocketmq_ha.impl.store.log.commit_log import CommitLog

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())


class TopicNotes:
    """Writes the file for one store. Any thread may call anything here.

    known: the log's queue count up to which all was noted, or its failure was told.
    """

    def __init__(self, store_dir: Path, log: CommitLog, queues: ConsumeQueueTable) -> None:
        self._store_dir, self._log, self._queues = store_dir, log, queues
        self._guard = threading.Lock()
        self._written: tuple[int, int] | None = None  # queues of the log and of the table that the file names
        self.known = -1

    def note(self) -> None:
        """`write`, for a put: that the file cannot be written is told once, and tried again by whoever calls `write`.

        Who comes while another writes waits for it, and so is not acknowledged before.
        """
        with self._guard:
            count = self._log.queue_count
            if count == self.known:
                return
            try:
                self._write()
            except (OSError, RocketmqHaError) as error:
                logger.error("topics are not noted, which is tried again: %s", error)
            self.known = count

    def write(self) -> None:
        """Have the file name all that there is; nothing where it does. Raises: ConfigInvalid, OSError with a path."""
        with self._guard:
            self._write()

    def _write(self) -> None:
        counts = (self._log.queue_count, self._queues.count)
        if counts == self._written:
            return
        keys = [(topic, queue_id) for queue_id, topic in self._log.queue_keys()] + [key for key, _ in self._queues]
        queue_nums: dict[str, int] = {}
        for topic, queue_id in keys:
            name = topic.decode("utf-8", "replace")
            if is_directory_name(topic) and name.encode() == topic:  # what is no text no broker finds a queue for
                queue_nums[name] = max(queue_nums.get(name, 0), queue_id + 1)
        if queue_nums:
            write_topics(self._store_dir, queue_nums)
        self._written = counts
