"""The parts of a usual record, for a writer that is in a hurry: V1, both hosts IPv4, no part of a transaction.

    88 bytes of head | body | tail: topic length, topic, properties length, properties

`encode` makes every record there can be, in one go. These parts are the same bytes, but what messages share, topics, hosts
and properties, is made once, and a writer lays a record straight into a mapping by one call, of which the fewest arguments
are numbers: to lay out a number of 8 bytes costs as much as a copy of 500. A property test holds the two together.

Spec: HA-ST-2.  Source: 4.9.8 CommitLog.MessageExtEncoder.
"""

import struct
from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, Host, Message, encode
from rocketmq_ha.impl.wire.record_layout import (
    AFTER_HOSTS,
    BODY_CRC,
    BODY_POSITION,
    BORN_HOST,
    BORN_TIMESTAMP,
    FLAG,
    HEAD,
    HOSTS_V6,
    PHYSICAL_OFFSET,
    PREPARED_TRANSACTION_OFFSET,
    PROPERTIES_LENGTH_SIZE,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    SIZE_AND_MAGIC,
    STORE_HOST,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOPIC_FORMS,
    format_of,
    struct_of,
)
from rocketmq_ha.spec.constants import (
    MAX_MESSAGE_SIZE,
    MAX_PROPERTIES_LENGTH,
    MESSAGE_FIXED_SIZE,
    MESSAGE_MAGIC_CODE,
    SECTOR_SIZE,
)

USUAL_HEAD: Final = struct_of(*HEAD)
USUAL_MAGIC: Final = MESSAGE_MAGIC_CODE
# Bits of sysFlag that a usual record has not.
UNUSUAL_FLAGS: Final = TRANSACTION_MASK | HOSTS_V6
# A usual record is this and its body, topic and properties.
USUAL_SIZE: Final = MESSAGE_FIXED_SIZE

# The same head, in which neighbouring fields that many records share are packed beforehand, each group as one string of bytes.
_PLACE, _STORED, _REST = struct_of(QUEUE_ID, FLAG), struct_of(STORE_TIMESTAMP, STORE_HOST), struct_of(*AFTER_HOSTS)
_SHAPE_HEAD: Final = (
    f">{SIZE_AND_MAGIC.size}s{format_of(BODY_CRC)}{_PLACE.size}s"
    f"{format_of(QUEUE_OFFSET, PHYSICAL_OFFSET, SYS_FLAG, BORN_TIMESTAMP, BORN_HOST)}{_STORED.size}s{_REST.size}s"
)
pack_place: Final = _PLACE.pack
pack_stored: Final = _STORED.pack
pack_rest: Final = _REST.pack

_INTEGERS: Final = struct_of(
    QUEUE_ID, FLAG, SYS_FLAG, BORN_TIMESTAMP, STORE_TIMESTAMP, RECONSUME_TIMES, PREPARED_TRANSACTION_OFFSET
)
_ZERO_SECTOR: Final = bytes(SECTOR_SIZE)
_TOPIC_POSITION: Final = BODY_POSITION + TOPIC_FORMS[USUAL_MAGIC][0]  # where there is no body
_REMEMBERED: Final = 4096
_REMEMBERED_SIZE: Final = 256  # bytes of properties

# The properties of a record, and its whole tail.
Tail = tuple[bytes, bytes]
# Packs a whole record into a buffer: its head by _SHAPE_HEAD, body, tail. The size of the record. Its total size and magic.
# The end of its head, if it was not reconsumed and has no prepared offset.
Shape = tuple[Callable[..., None], int, bytes, bytes]


class TopicPart:
    """What a topic looks like in a record: itself, and behind its length. `tails`: by properties, those that come again."""

    __slots__ = ("prefix", "tails", "topic")

    def __init__(self, topic: bytes, prefix: bytes) -> None:
        self.topic, self.prefix = topic, prefix
        self.tails: dict[str, Tail] = {"": (b"", prefix + bytes(PROPERTIES_LENGTH_SIZE))}


class Parts:
    """Makes parts, and remembers what comes again. Any thread may use it: at worst one part is made twice."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicPart] = {}
        self.hosts: dict[Host, bytes] = {}
        self.shapes: dict[tuple[int, int], Shape] = {}  # by the sizes of body and tail
        self._tails = 0

    def topic(self, topic: str) -> TopicPart:
        """Raises: MessageIllegal for a topic that no V1 record holds, or that recovery would not take for whole."""
        record = encode(Message(topic, b""))  # its checks are the checks
        if record[-PROPERTIES_LENGTH_SIZE - 1] == 0:
            raise MessageIllegal("topic", "a zero byte at the end", "none: recovery may cut it off")
        part = TopicPart(record[_TOPIC_POSITION:-PROPERTIES_LENGTH_SIZE], record[BODY_POSITION:-PROPERTIES_LENGTH_SIZE])
        if len(self.topics) < _REMEMBERED:
            self.topics[topic] = part
        return part

    def tail(self, topic_part: TopicPart, properties_string: str) -> Tail:
        """Properties and the whole tail. Keys do not come again: properties with such are not remembered.

        Raises: MessageIllegal; see properties_part.
        """
        properties = properties_part(properties_string)
        tail = properties, topic_part.prefix + len(properties).to_bytes(PROPERTIES_LENGTH_SIZE, "big") + properties
        if self._tails < _REMEMBERED and len(properties) <= _REMEMBERED_SIZE and "KEY" not in properties_string:
            self._tails += 1
            topic_part.tails[properties_string] = tail
        return tail

    def shape(self, body_size: int, tail_size: int) -> Shape:
        """Raises: MessageIllegal for a body that is too long."""
        check_body(body_size)
        record = struct.Struct(f"{_SHAPE_HEAD}{body_size}s{tail_size}s")
        shape = record.pack_into, record.size, SIZE_AND_MAGIC.pack(record.size, USUAL_MAGIC), pack_rest(0, 0, body_size)
        if len(self.shapes) < _REMEMBERED:
            self.shapes[body_size, tail_size] = shape
        return shape

    def host(self, host: Host) -> bytes:
        """Raises: MessageIllegal for a host that is not IPv4."""
        part = encode(Message("t", b"", born_host=host))[BORN_HOST.position : BORN_HOST.end]
        if len(self.hosts) < _REMEMBERED:
            self.hosts[host] = part
        return part


def properties_part(properties_string: str) -> bytes:
    """The properties as a record has them, behind their length of two bytes.

    Raises: MessageIllegal where there are too many bytes of them, or where recovery would not take them for whole.
    """
    try:
        properties = properties_string.encode()
    except UnicodeEncodeError:
        properties = Message("t", b"", properties_string=properties_string).properties_bytes
    if len(properties) > MAX_PROPERTIES_LENGTH:
        raise MessageIllegal("properties", f"{len(properties)} bytes", f"at most {MAX_PROPERTIES_LENGTH} bytes")
    check_zeros("properties", properties)
    return properties


def check_zeros(field: str, text: bytes) -> None:
    """Refuse a topic, or properties if there are any, that recovery might take for such as have not come to the disk whole.

    Spec: HA-ST-89 "MUST be refused when its topic or properties end in a zero byte, or have 512 zero bytes in a row": where a
    record will stand is not known yet, and so not which zeros HA-ST-10 takes for a hole.
    Raises: MessageIllegal.
    """
    if text and not text[-1]:
        raise MessageIllegal(field, "a zero byte at the end", "none: recovery may cut it off")
    if len(text) > SECTOR_SIZE and _ZERO_SECTOR in text:
        raise MessageIllegal(field, f"{SECTOR_SIZE} zero bytes in a row", "fewer: recovery may cut them off after a crash")


def check_integers(message: Message, time_ms: int) -> None:
    """Raises: MessageIllegal for a number that its field of a record does not hold."""
    try:
        _INTEGERS.pack(
            *(message.queue_id, message.flag, message.sys_flag, message.born_timestamp, time_ms),
            *(message.reconsume_times, message.prepared_transaction_offset),
        )
    except struct.error as error:
        raise no_integer(error) from None


def no_integer(error: struct.error) -> MessageIllegal:
    return MessageIllegal("integer field", error, "an i32 (i64 for offsets and timestamps)")


def check_body(size: int) -> None:
    """Raises: MessageIllegal for a body that is too long."""
    if size > MAX_MESSAGE_SIZE:
        raise MessageIllegal("body", f"{size} bytes", f"at most {MAX_MESSAGE_SIZE} bytes")
