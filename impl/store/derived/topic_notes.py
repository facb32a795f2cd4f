"""Keep `config/topics.json` up to date: add each topic and queue before its first message is acknowledged.

A broker creates a topic, in memory and in the file, before it stores the topic's first message. With the same order here, a
broker that takes over a killed process's store serves every acknowledged message. Topics in replicated bytes are added within a
second. A slave later gets the master's whole file, too (chapter 6).

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
    """Writes the file of one store. All methods are thread-safe.

    store_dir: None if somebody else writes the file; then nothing is written here.
    known: the log's count of queues up to which all are in the file, or their failure was logged.
    """

    def __init__(self, store_dir: Path | None, log: CommitLog, queues: ConsumeQueueTable) -> None:
        self._store_dir, self._log, self._queues = store_dir, log, queues
        self._guard = threading.Lock()
        # counts of the log's and the table's queues when the file was last written
        self._written: tuple[int, int] | None = None
        self.known = -1

    def note(self) -> None:
        """`write`, for a put: a failure is logged once, and the next call of `write` tries again.

        A put that comes while another thread writes waits for it, so that it is not acknowledged earlier.
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
        """Add all topics and queues to the file, if any are missing. Raises: ConfigInvalid, OSError with a path."""
        with self._guard:
            self._write()

    def _write(self) -> None:
        counts = (self._log.queue_count, self._queues.count)
        if counts == self._written:
            return
        if self._store_dir is not None and (nums := queue_nums(self._log, self._queues)):
            write_topics(self._store_dir, nums)
        self._written = counts


def queue_nums(log: CommitLog, queues: ConsumeQueueTable) -> dict[str, int]:
    """For each topic with queues in a store: the greatest id of its queues, plus one.

    A queue that hides all its messages does not count. HA-BT-80 "A restart MUST NOT bring such a topic back".
    """
    hidden = {key for key, queue in queues if queue.is_hidden}
    keys = {(topic, queue_id) for queue_id, topic in log.queue_keys()} | {key for key, _ in queues}
    nums: dict[str, int] = {}
    for topic, queue_id in sorted(keys - hidden):
        name = topic.decode("utf-8", "replace")
        if is_directory_name(topic) and name.encode() == topic:  # no broker finds a queue of a topic that is no UTF-8
            nums[name] = max(nums.get(name, 0), queue_id + 1)
    return nums
