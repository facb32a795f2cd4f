"""The topics that were deleted, and where the log ended then: their messages are given to nobody any more.

The messages stay in the log, and in the consume queues as well: each queue counts on, on this broker as on its slaves. So the
number of a message that a consumer has committed never becomes that of another message. A topic of the same name begins behind
the hidden messages.

The file is of this project; RocketMQ deletes the queues. Its offsets mean something only in the log of this master: a broker
that starts as a slave forgets them, since its log may be cut and go on with the messages of another master.

Spec: HA-BT-77, HA-BT-80.  Source: this project.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from rocketmq_ha.impl.broker.config_file import KeptFile
from rocketmq_ha.impl.broker.config_table import ConfigTable, read_int
from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.store.message_store import MessageStore

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

_OFFSETS: Final = range(1 << 63)


class DeletedTopics:
    """The deleted topics of one broker, in `config/deletedTopics.json`. All methods are for the loop's thread."""

    def __init__(self, store: MessageStore, file: KeptFile, wall_clock: Callable[[], int] = wall_clock_ms) -> None:
        self._store = store
        self.table: Final = ConfigTable(file, "deletedTopicTable", _read, _fields, wall_clock)

    def load(self, *, is_slave: bool) -> None:
        """Read the file, and hide the messages. Raises: ConfigInvalid, OSError.

        HA-BT-80 "What the log has lost in a crash MUST NOT hide what is stored in its place"; HA-BT-80 "A slave MUST forget the
        deletions that it knew of as a master".
        """
        self.table.load()
        first, end = self._store.min_offset, self._store.max_offset
        known = {} if is_slave else {topic: min(offset, end) for topic, offset in self.table.entries.items()}
        self.table.become({topic: offset for topic, offset in known.items() if offset > first})
        for topic, offset in self.table.entries.items():
            self._hide(topic, offset)

    def delete(self, topic: str) -> None:
        """Hide all messages that a topic has now, dispatched or not."""
        name, store = _name(topic), self._store
        if any(topic_of_queue == name for _, topic_of_queue in store.log.queue_keys()):
            self.table.put(topic, store.max_offset)
            self._hide(topic, store.max_offset)

    def _hide(self, topic: str, offset: int) -> None:
        self._store.queues.hide_before(_name(topic), offset)
        logger.info("the messages of topic %s before offset %d of the log are hidden: it was deleted", topic, offset)


def _name(topic: str) -> bytes:
    return topic.encode("utf-8", "surrogateescape")


def _read(name: str, fields: Mapping[str, object]) -> int:
    """Where the log ended. Raises: ConfigInvalid. HA-BT-77 "or lacks a `logOffset`": 0 would hide nothing."""
    return read_int(name, fields, "logOffset", None, _OFFSETS)


def _fields(offset: int) -> Mapping[str, object]:
    return {"logOffset": offset}
