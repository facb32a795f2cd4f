"""A store for the parts of a broker: its time of day is the test's, and so are its room and what of it is on the disk."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from rocketmq_ha.impl.errors import StoreFull
from rocketmq_ha.impl.store import message_store
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.index_geometry import Geometry
from rocketmq_ha.impl.store.get_result import GetMessageResult
from rocketmq_ha.impl.store.log.results import AppendResult
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.query import Found
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.impl.wire.properties import parse_properties
from rocketmq_ha.reference import message as model
from rocketmq_ha.reference.delayed import joined, pairs
from rocketmq_ha.reference.message import Record

START_MS = 1_700_000_000_000
OPTIONS = StoreOptions(file_size=1 << 20, queue_file_size=20 * 100, index_geometry=Geometry(20, 100), floor_size=0)


class Clocks:
    """The time of day, which may step, and a clock that does not. Only the test moves them."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.now_ms = 5_000

    def advance(self, ms: int) -> None:
        self.wall_ms += ms
        self.now_ms += ms


class BrokerStore:
    """A MessageStore with limits that the test sets.

    room: messages that it takes, then it is full; None for all. flushed_offset: what counts as flushed, if it is set.
    appended: every message that was put, in order, with its place.
    """

    def __init__(self, store: MessageStore, clocks: Clocks) -> None:
        self.store, self.clocks = store, clocks
        self.room: int | None = None
        self.flushed: int | None = None
        self.appended: list[Message] = []

    @property
    def queues(self) -> ConsumeQueueTable:
        return self.store.queues

    @property
    def max_offset(self) -> int:
        return self.store.max_offset

    @property
    def flushed_offset(self) -> int:
        return self.store.flushed_offset if self.flushed is None else self.flushed

    @property
    def dispatched_offset(self) -> int:
        return self.store.dispatcher.reput_from_offset

    def append(self, message: Message) -> AppendResult:
        if self.room is not None:
            if self.room == 0:
                raise StoreFull("the disk", "0 bytes", "1 byte")
            self.room -= 1
        append = self.store.append(message)
        found = self.store.message_at(append.offset)
        assert found is not None
        self.appended.append(found[2])
        return append

    def message_at(self, offset: int) -> Found | None:
        return self.store.message_at(offset)

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int = 32, max_size: int = 256 << 10
    ) -> GetMessageResult:
        return self.store.get(topic, queue_id, queue_offset, max_messages, max_size)

    def flush(self) -> int:
        if self.flushed is None:
            return self.store.flush()
        self.flushed = self.store.max_offset
        return self.flushed

    def take(self) -> list[Message]:
        """What was put since the last call."""
        found, self.appended = self.appended, []
        return found

    def dispatch(self) -> None:
        """Wait until the queues have every message."""
        assert self.store.wait_for_dispatch()

    def queue(self, topic: str, queue_id: int = 0) -> list[Message]:
        """All messages of a queue."""
        self.dispatch()
        found, offset = [], 0
        while (result := self.store.get(topic, queue_id, offset)).records:
            found += result.messages()
            offset = result.next_begin_offset
        return found


@contextmanager
def broker_store(directory: Path, clocks: Clocks | None = None, options: StoreOptions = OPTIONS) -> Iterator[BrokerStore]:
    """Open a store whose messages get the time of `clocks`."""
    clocks = clocks or Clocks()
    with (
        patch.object(message_store, "wall_clock_ms", lambda: clocks.wall_ms),
        MessageStore.open(directory, options) as store,
    ):
        yield BrokerStore(store, clocks)


def as_record(message: Message) -> Record:
    """The model's record of a message, with its properties in order of their names: RocketMQ promises no order."""
    found = model.decode(encode(message))
    assert found is not None
    return sorted_properties(found[0])


def sorted_properties(record: Record) -> Record:
    return replace(record, properties=joined(dict(sorted(pairs(record.properties).items()))))


def as_pairs(properties: Mapping[str, str]) -> dict[bytes, bytes]:
    """Properties as the model has them."""
    return {name.encode(): value.encode() for name, value in properties.items()}


def text_pairs(properties_string: str) -> dict[str, str]:
    """Properties by name; a dict of its own."""
    return dict(parse_properties(properties_string))
