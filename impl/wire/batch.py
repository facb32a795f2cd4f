"""Many messages of one queue, laid behind one another at once: what a batch put writes by one copy.

The messages of a batch mostly share all but body and properties, and often their sizes too. Then the records differ in known
columns only, and each column is laid by strided assignments, not field by field. RocketMQ's clients send batches of that shape:
one message whose body is a list of bodies and properties; `MessageBatch` is it.

Spec: HA-ST-2.  Source: 4.9.8 MessageExtBatch, CommitLog.MessageExtBatchEncoder.
"""

import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count, repeat
from operator import attrgetter
from sys import byteorder
from typing import Final, NamedTuple, TypeAlias

from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, Message, encode, with_store_host
from rocketmq_ha.impl.wire.parts import (
    UNUSUAL_FLAGS,
    USUAL_HEAD,
    USUAL_MAGIC,
    Parts,
    check_body,
    check_zeros,
    no_integer,
    properties_part,
)
from rocketmq_ha.impl.wire.record_layout import BODY_CRC, PHYSICAL_OFFSET, PROPERTIES_LENGTH_SIZE, QUEUE_OFFSET
from rocketmq_ha.spec.constants import MAX_BATCH_SIZE

_shared: Final = attrgetter(
    *("topic", "queue_id", "flag", "sys_flag", "magic", "born_timestamp", "born_host", "store_timestamp", "store_host"),
    *("reconsume_times", "prepared_transaction_offset"),
)
_body: Final = attrgetter("body")
_properties: Final = attrgetter("properties_string")
# The first byte of a CRC without its highest bit.
_WITHOUT_TOP_BIT: Final = bytes(byte & 0x7F for byte in range(256))

# The fields of a Handed as a plain tuple: to make a named one for each message would cost a put 3% of its time.
HandedFields = tuple[bytes, int, int, int, bytes, int, int, int, int]


class Handed(NamedTuple):
    """The fields of one message that a put hands to the dispatch. The dispatch parses the properties; the put does not."""

    topic: bytes
    queue_id: int
    commit_log_offset: int
    size: int
    properties: bytes
    store_timestamp: int
    queue_offset: int
    sys_flag: int
    prepared_transaction_offset: int


class HandedBatch(NamedTuple):
    """One Handed for several messages of one size with the same properties: offsets of the first message, size of all."""

    topic: bytes
    queue_id: int
    commit_log_offset: int
    size: int
    properties: bytes
    store_timestamp: int
    queue_offset: int
    sys_flag: int
    prepared_transaction_offset: int
    messages: int

    def each(self) -> Iterator[HandedFields]:
        """The fields of each message."""
        topic, queue_id, offset, total, properties, time_ms, queue_offset, sys_flag, prepared, messages = self
        size = total // messages
        for at, number in zip(range(offset, offset + total, size), count(queue_offset), strict=False):
            yield topic, queue_id, at, size, properties, time_ms, number, sys_flag, prepared


# Where these two fields stand in Handed, HandedBatch and HandedFields.
COMMIT_LOG_OFFSET: Final = 2
SIZE: Final = 3
assert Handed._fields[COMMIT_LOG_OFFSET : SIZE + 1] == ("commit_log_offset", "size")

AllHanded: TypeAlias = HandedBatch | Iterable[HandedFields]  # what a batch put hands over


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages that share all but body and properties."""

    head: Message  # what they share; its body and properties are not looked at
    bodies: Sequence[bytes]
    properties_strings: Sequence[str]  # as many

    def messages(self) -> list[Message]:
        """Them one by one."""
        pairs = zip(self.bodies, self.properties_strings, strict=True)
        return [replace(self.head, body=body, properties_string=properties) for body, properties in pairs]


class Laid:
    """A batch that is ready to be written but for its offsets and its time, which the put knows last: `place` takes them.

    topic, queue_id: of all. size: bytes of all records. count: how many.
    """

    __slots__ = ("count", "queue_id", "size", "topic")

    def __init__(self, first: Message, size: int, messages: int) -> None:
        self.topic, self.queue_id, self.size, self.count = first.topic_bytes, first.queue_id, size, messages
        if size > MAX_BATCH_SIZE:
            raise MessageIllegal("batch", f"{size} bytes of records", f"at most {MAX_BATCH_SIZE}")


class Alike(Laid):
    """Records of one size that differ in columns only."""

    __slots__ = ("_before_properties", "_bodies", "_born_host", "_crcs", "_head", "_properties", "_record_size", "_store_host")

    def __init__(
        self, head: Message, bodies: Sequence[bytes], properties: Sequence[bytes], parts: Parts, store_host: bytes | None
    ) -> None:
        topic_part = parts.topics.get(head.topic) or parts.topic(head.topic)
        check_body(len(bodies[0]))
        self._before_properties = topic_part.prefix + len(properties[0]).to_bytes(PROPERTIES_LENGTH_SIZE, "big")
        self._record_size = USUAL_HEAD.size + len(bodies[0]) + len(self._before_properties) + len(properties[0])
        super().__init__(head, self._record_size * len(bodies), len(bodies))
        self._head, self._bodies, self._properties = head, bodies, properties
        self._born_host = parts.hosts.get(head.born_host) or parts.host(head.born_host)
        self._store_host = store_host or parts.hosts.get(head.store_host) or parts.host(head.store_host)
        self._crcs = array("I", map(zlib.crc32, bodies))
        self._pack(0, 0, head.store_timestamp)  # what no record holds is refused now

    def _pack(self, queue_offset: int, offset: int, stored_ms: int) -> bytes:
        head = self._head
        try:
            return USUAL_HEAD.pack(
                *(self._record_size, head.magic, 0, head.queue_id, head.flag, queue_offset, offset, head.sys_flag),
                *(head.born_timestamp, self._born_host, stored_ms, self._store_host, head.reconsume_times),
                *(head.prepared_transaction_offset, len(self._bodies[0])),
            )
        except struct.error as error:
            raise no_integer(error) from None

    def place(
        self, queue_offset: int, offset: int, stored_ms: int | None
    ) -> tuple[bytes | bytearray, HandedBatch | Iterable[HandedFields]]:
        """The records, the first of which has these offsets, and what dispatch needs of them.

        Args:  stored_ms: the store timestamp of all, by default each message's own.
        """
        head, size, properties = self._head, self._record_size, self._properties
        time_ms = head.store_timestamp if stored_ms is None else stored_ms
        first = self._pack(queue_offset, offset, time_ms)
        pieces = [first, b"", self._before_properties, b""] * self.count
        pieces[1::4], pieces[3::4] = self._bodies, properties
        data = bytearray().join(pieces)
        _lay(data, BODY_CRC.position, size, self._crcs, _WITHOUT_TOP_BIT)
        _lay_range(data, QUEUE_OFFSET.position, size, range(queue_offset, queue_offset + self.count))
        offsets = range(offset, offset + self.size, size)
        _lay_range(data, PHYSICAL_OFFSET.position, size, offsets)
        shared = (head.sys_flag, head.prepared_transaction_offset)
        if properties.count(properties[0]) == self.count:
            fields = (self.topic, self.queue_id, offset, self.size, properties[0], time_ms, queue_offset, *shared, self.count)
            return data, HandedBatch(*fields)
        same = repeat
        handed = zip(
            *(same(self.topic), same(self.queue_id), offsets, same(size), properties, same(time_ms), count(queue_offset)),
            *map(same, shared),
            strict=False,
        )
        return data, handed


class Each(Laid):
    """Records of any kind, each encoded by itself."""

    __slots__ = ("_messages", "_sizes")

    def __init__(self, messages: Sequence[Message], store_host: bytes | None) -> None:
        first = messages[0]
        for message in messages:
            if (message.topic, message.queue_id) != (first.topic, first.queue_id):
                found = f"topic {message.topic!r}, queue {message.queue_id}"
                raise MessageIllegal("batch", found, f"those of its first, {first.topic!r} and {first.queue_id}")
            if message.sys_flag & TRANSACTION_MASK:
                raise MessageIllegal("batch", f"sysFlag {message.sys_flag:#x}", "no part in a transaction")
            properties_part(message.properties_string)
        if store_host is not None:
            messages = [with_store_host(each, store_host) for each in messages]
        self._sizes = [len(encode(message)) for message in messages]
        check_zeros("topic", first.topic_bytes)
        self._messages = messages
        super().__init__(first, sum(self._sizes), len(messages))

    def place(self, queue_offset: int, offset: int, stored_ms: int | None) -> tuple[bytes | bytearray, AllHanded]:
        """As Alike.place."""
        records, handed = [], []
        places = accumulate(self._sizes, initial=offset)
        for number, message, size, at in zip(count(queue_offset), self._messages, self._sizes, places, strict=False):
            time_ms = message.store_timestamp if stored_ms is None else stored_ms
            records.append(encode(replace(message, store_timestamp=time_ms), number, at))
            fields = (time_ms, number, message.sys_flag, message.prepared_transaction_offset)
            handed.append((self.topic, self.queue_id, at, size, message.properties_bytes, *fields))
        return b"".join(records), handed


def lay_batch(batch: Sequence[Message] | MessageBatch, parts: Parts, store_host: bytes | None = None) -> Alike | Each:
    """Make messages of one topic and queue ready to be written.

    Args:  store_host: as CommitLog.append has it.
    Raises: MessageIllegal for what no record holds, for messages of several queues, for a part in a transaction, and for
    records of more than 16 MiB in all: a broker takes a batch with a body of 4 MiB, whose records may be longer.
    """
    if isinstance(batch, MessageBatch):
        head, bodies, texts = batch.head, batch.bodies, batch.properties_strings
        if len(bodies) != len(texts):
            raise MessageIllegal("batch", f"{len(bodies)} bodies", f"as many as there are properties, {len(texts)}")
        is_alike = True
    else:
        head, bodies, texts = batch[0] if batch else Message("t", b""), list(map(_body, batch)), list(map(_properties, batch))
        is_alike = all(map(_shared(head).__eq__, map(_shared, batch)))
    if not bodies:
        raise MessageIllegal("batch", "no messages", "at least one")
    if is_alike and not head.sys_flag & UNUSUAL_FLAGS and head.magic == USUAL_MAGIC and len(set(map(len, bodies))) == 1:
        if texts.count(texts[0]) == len(texts):
            return Alike(head, bodies, [properties_part(texts[0])] * len(texts), parts, store_host)
        properties = list(map(properties_part, texts))
        if len(set(map(len, properties))) == 1:
            return Alike(head, bodies, properties, parts, store_host)
    return Each(batch.messages() if isinstance(batch, MessageBatch) else batch, store_host)


def _lay_range(data: bytearray, position: int, stride: int, numbers: range) -> None:
    """Write ascending integers of 8 bytes as `_lay` does, where the first one stands in every row already."""
    changing = ((numbers[0] ^ numbers[-1]).bit_length() + 7) // 8
    if changing:
        column = array("q", numbers)
        if byteorder == "little":
            column.byteswap()
        octets = column.tobytes()
        for index in range(8 - changing, 8):
            data[position + index :: stride] = octets[index::8]


def _lay(data: bytearray, position: int, stride: int, column: "array[int]", first_byte: bytes | None = None) -> None:
    """Write a column of integers, big-endian, one every `stride` bytes. first_byte: a translation of the highest byte."""
    octets, width = column.tobytes(), column.itemsize
    for index in range(width):
        plane = octets[(width - 1 - index if byteorder == "little" else index) :: width]
        if index == 0 and first_byte is not None:
            plane = plane.translate(first_byte)
        data[position + index :: stride] = plane
