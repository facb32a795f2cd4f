"""The queues of a store as a pull reads them, and as the hold asks for them. All methods are for the loop's thread.

A topic is text in a request and bytes in the store.

Source: 4.9.8 DefaultMessageStore.
"""

from typing import Final

from rocketmq_ha.impl.store.derived.dispatch_round import QueueKey
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.store.pull import PullBounds, PullResult, TagCodes, has_message_for


def queue_key(topic: str, queue_id: int) -> QueueKey:
    """The name of a queue in the store."""
    return topic.encode("utf-8", "surrogateescape"), queue_id


class StoreQueues:
    """Reads a store by queue. bounds: of a pull, and of what counts as in memory."""

    def __init__(self, store: MessageStore, bounds: PullBounds) -> None:
        self.bounds: Final = bounds
        self._store = store

    def pull(self, topic: str, queue_id: int, queue_offset: int, max_msg_nums: int, codes: TagCodes) -> PullResult:
        """See MessageStore.pull. Raises: StoreClosed."""
        return self._store.pull(topic, queue_id, queue_offset, max_msg_nums, codes, self.bounds)

    def max_offset_of(self, key: QueueKey) -> int:
        """The queue offset of the next message; 0 if none has come."""
        queue = self._store.queues.get(*key)
        return 0 if queue is None else queue.max_offset

    def has_message_for(self, key: QueueKey, queue_offset: int, codes: TagCodes) -> tuple[bool, int]:
        """See impl/store/pull.py; a queue that is not there has no message."""
        queue = self._store.queues.get(*key)
        return (False, queue_offset) if queue is None else has_message_for(queue, queue_offset, codes)
