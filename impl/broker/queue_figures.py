"""Figures of the store's queues for the requests that ask for them: begin, end, and when a message was stored.

Source: 4.9.8 DefaultMessageStore.getMinOffsetInQueue, getMaxOffsetInQueue, getMessageStoreTimeStamp, getEarliestMessageTime,
checkInDiskByConsumeOffset.
"""

import os
from typing import Final

from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.topic_notes import queue_nums
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.wire.record_layout import store_timestamp_at

ACCESS_MESSAGE_IN_MEMORY_MAX_RATIO: Final = 40  # by default


class QueueFigures:
    """The queues of one store.

    Args:  total_memory: bytes of the machine's memory. ratio: accessMessageInMemoryMaxRatio, percent of it (HA-R-21).
    """

    def __init__(
        self, store: MessageStore, total_memory: int | None = None, ratio: int = ACCESS_MESSAGE_IN_MEMORY_MAX_RATIO
    ) -> None:
        self._store = store
        memory = total_memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self.in_memory = memory * ratio // 100

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The offset of the first message; -1 for a queue that has never had one."""
        queue = self._queue(topic, queue_id)
        return -1 if queue is None else queue.min_offset

    def first_visible_in_queue(self, topic: str, queue_id: int) -> int:
        """The offset behind the messages of a deleted topic of this name; 0 if there were none. HA-BT-80."""
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.first_visible

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """The offset of the next message; 0 for a queue that has never had one."""
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a message was stored, ms; -1 if there is no such message."""
        queue = self._queue(topic, queue_id)
        entry = None if queue is None else queue.entry(queue_offset)
        if entry is None or entry.is_filler:
            return -1
        view = self._store.log.data_at(entry.offset, entry.size)
        if view is None or len(view) < entry.size:
            return -1
        return store_timestamp_at(view)

    def earliest_message_time(self, topic: str, queue_id: int) -> int:
        """When the first message of a queue was stored, ms; -1 if it has none."""
        return self.message_store_timestamp(topic, queue_id, self.min_offset_in_queue(topic, queue_id))

    def offset_in_queue_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """See MessageStore.offset_by_time."""
        return self._store.offset_by_time(topic, queue_id, timestamp, upper=upper)

    def check_in_disk_by_consume_offset(self, topic: str, queue_id: int, consume_offset: int) -> bool:
        """Whether a message lies so far behind the log's end that memory no longer has it. False if there is none."""
        queue = self._queue(topic, queue_id)
        entry = None if queue is None else queue.entry(consume_offset)
        return entry is not None and self._store.max_offset - entry.offset > self.in_memory

    def queue_nums(self) -> dict[str, int]:
        """For TopicConfigManager.note_queues: for each topic of the store the greatest id of its queues, plus one."""
        return queue_nums(self._store.log, self._store.queues)

    def queue_nums_of(self, topic: str) -> int:
        """The greatest id of a topic's queues with messages that are not hidden, plus one; 0 for none. HA-MD-35."""
        name, queues = topic.encode("utf-8", "surrogateescape"), self._store.queues
        visible = [each for each in queues.ids(name) if (queue := queues.get(name, each)) is not None and not queue.is_hidden]
        return max(visible, default=-1) + 1

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._store.queues.get(topic.encode("utf-8", "surrogateescape"), queue_id)
