"""The topics that were deleted, and where the log ended then: their messages are given to nobody any more.

The messages stay in the log, and in the consume queues as well: each queue counts on, on this broker as on its slaves. So the
number of a message that a consumer has committed never becomes that of another message. A topic of the same name begins behind
the hidden messages.

The file is of this project; RocketMQ deletes the queues. Its offsets mean something only in this log, whose bytes before its
end never change while the process runs. A slave has its master's deletions, whose log is its own.

Spec: HA-BT-77, HA-BT-80, HA-MD-34.  Source: this project.
"""

import logging
from collections.abc import Callable, Collection, Mapping
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

    def load(self, *, topics: Collection[str] | None = None, forgets: bool = False) -> None:
        """Read the file, and hide the messages. Raises: ConfigInvalid, OSError.

        No offset is beyond the end of the log: its opening has seen to that (impl/store/log/deleted_places.py).

        Args:  topics: of a master, those that its `topics.json` has; None if there is no such file. forgets: of a slave that
               will not be told of deletions.
        """
        self.table.load()
        known = {} if forgets else self.table.entries
        self.table.become({topic: now for topic, offset in known.items() if (now := self._at_start(topic, offset, topics))})
        for topic, offset in self.table.entries.items():
            self._hide(topic, offset)

    def _at_start(self, topic: str, offset: int, topics: Collection[str] | None) -> int | None:
        """HA-BT-80 "A restart MUST NOT bring such a topic back". What was delivered to it after the deletion is hidden as well.

        Returns: where its messages begin; None for a deletion that hides nothing any more.
        """
        if topics is not None and topic not in topics and self._has_messages(topic):
            return self._store.max_offset
        return offset if offset > self._store.min_offset else None

    def delete(self, topic: str, *, is_known: bool) -> None:
        """Hide all messages that a topic has now, dispatched or not.

        Args:  is_known: whether the table of topics has it. Without messages it may get some: delayed ones, or retries.
        """
        end = self._store.max_offset
        if (is_known or self._has_messages(topic)) and self.table.get(topic) != end:  # deleted twice: nothing changes
            self.table.put(topic, end)
            self._hide(topic, end)

    # --- A slave -----------------------------------------------------------------------------------------------------

    def take(self, changed: Mapping[str, object], gone: Collection[str]) -> None:
        """Take what a master tells of its deletions. HA-MD-34 "in place of its own". Raises: as ConfigTable.take."""
        before = dict(self.table.entries)
        self.table.take(changed, gone)
        self._hide_as_the_table_says(before)

    def on_topics(self, before: Collection[str] | None, now: Collection[str]) -> None:
        """A master that tells no deletions has told all its topics.

        HA-MD-34 "forgets the deletion of each topic that the master's table has"; HA-MD-34 "a topic that has gone from the
        table between two answers over one connection".

        Args:  before: the topics of the answer before, over this connection; None if there was none.
        """
        known = dict(self.table.entries)
        kept = {topic: offset for topic, offset in known.items() if topic not in now}
        gone = [topic for topic in before or () if topic not in now and self._has_messages(topic)]
        self.table.become(kept | dict.fromkeys(gone, self._store.max_offset))
        self._hide_as_the_table_says(known)

    def _hide_as_the_table_says(self, before: Mapping[str, int]) -> None:
        now = self.table.entries
        for topic in before.keys() - now.keys():
            self._store.queues.hide_before(_name(topic), 0)
            logger.info("the messages of topic %s are not hidden any more: the master has it", topic)
        for topic, offset in now.items():
            if before.get(topic) != offset:
                self._hide(topic, offset)

    def _has_messages(self, topic: str) -> bool:
        name = _name(topic)
        of_log = any(topic_of_queue == name for _, topic_of_queue in self._store.log.queue_keys())  # not dispatched yet, too
        return of_log or bool(self._store.queues.ids(name))

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
