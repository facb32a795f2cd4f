"""DispatchRequest: the fields of a record that queues and index need. They are read even if the CRC of the body is wrong.

The delay levels, as `messageDelayLevel` has them, in ms by level:

>>> levels = delay_levels(MESSAGE_DELAY_LEVEL)
>>> len(levels), levels[1], levels[18]
(18, 1000, 7200000)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rocketmq_ha.reference import java_string, message
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.store import Log, max_offset, min_offset
from rocketmq_ha.spec import constants

# Names of properties, and bits of sysFlag; observed in 4.9.8.
PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_DELAY_TIME_LEVEL = "DELAY"
PROPERTY_UNIQ_KEY = "UNIQ_KEY"
KEY_SEPARATOR = " "
# HA-ST-47 "MUST all be of one of these sets": the further keys that a release puts, or their other form.
PLAIN_KEYS, TAG_KEYS, TYPED_KEYS = "plain", "tags", "typed"
TAG_TYPE, UNIQUE_TYPE = "T", "U"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
MESSAGE_DELAY_LEVEL = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
TRANSACTION_MASK = 0x3 << 2
TRANSACTION_PREPARED = 0x1 << 2
TRANSACTION_ROLLBACK = 0x3 << 2
NAME_LIMIT = 255  # bytes of a name, in the file systems that a store is kept on
UNIT_MS = {"s": 1000, "m": 60 * 1000, "h": 60 * 60 * 1000, "d": 24 * 60 * 60 * 1000}


@dataclass(frozen=True, slots=True)
class DispatchRequest:
    """The fields of one message for queues and index."""

    topic: str
    queue_id: int
    commit_log_offset: int
    msg_size: int
    tags_code: int
    store_timestamp: int
    consume_queue_offset: int
    keys: tuple[str, ...]  # keys for the index; the unique key first, if there is one
    sys_flag: int


@dataclass(frozen=True, slots=True)
class Blank:
    """A BLANK: the rest of the file holds no message."""

    next_file: int  # offset of the next file


def delay_levels(message_delay_level: str) -> dict[int, int]:
    """Map delay level to ms; the first level is 1."""
    return {level: int(word[:-1]) * UNIT_MS[word[-1]] for level, word in enumerate(message_delay_level.split(" "), start=1)}


def parse_properties(properties: bytes) -> dict[str, str]:
    """HA-ST-16 "one string, name 0x01 value 0x02 name 0x01 value"; a name without a value is ignored, and the last value of a
    name counts.

    >>> parse_properties(b"KEYS\\x01a b\\x02TAGS\\x01A\\x02X\\x01") == {"KEYS": "a b", "TAGS": "A"}
    True
    """
    pairs = {}
    for pair in java_string.text(properties).split(constants.PROPERTY_SEPARATOR):
        name, _, value = pair.partition(constants.PROPERTY_NAME_SEPARATOR)
        if name and value:
            pairs[name] = value
    return pairs


def tags_code(
    topic: str, properties: Mapping[str, str], store_timestamp: int, message_delay_level: str = MESSAGE_DELAY_LEVEL
) -> int:
    """HA-ST-32 "The tags code MUST be the Java `String.hashCode` of the message's tags", or the time of delivery.

    HA-ST-76 "MUST be the store timestamp plus the delay of the level", "A greater level counts as level 18, and one below 1
    as no level". If the level is no number, 4.9.8 fails on the record, in dispatch and in recovery; here it counts as no level.
    The time is a Java long and wraps around like one.

    >>> tags_code("T", {"TAGS": "TagA"}, 0), tags_code("T", {}, 0), tags_code(SCHEDULE_TOPIC, {"DELAY": "3"}, 1_000_000)
    (2598919, 0, 1010000)
    >>> tags_code(SCHEDULE_TOPIC, {"DELAY": "+1"}, (1 << 63) - 1000) == -(1 << 63)
    True
    """
    level = java_string.parse_int(properties.get(PROPERTY_DELAY_TIME_LEVEL, ""))
    if topic == SCHEDULE_TOPIC and level is not None and level > 0:
        levels = delay_levels(message_delay_level)
        return java_string.as_long(store_timestamp + levels[min(level, len(levels))])
    return java_string.hash_code(properties.get(PROPERTY_TAGS, ""))


def index_keys(properties: Mapping[str, str], key_set: str = PLAIN_KEYS) -> tuple[str, ...]:
    """The keys of a message, in the order in which a release of that set puts them; the topic comes before each.

    >>> properties = {"UNIQ_KEY": "u", "KEYS": "a b", "TAGS": "t"}
    >>> [index_keys(properties, key_set) for key_set in (PLAIN_KEYS, TAG_KEYS, TYPED_KEYS)]
    [('u', 'a', 'b'), ('u', 'a', 'b', 'T#t'), ('U#u', 'a', 'b', 'T#t')]
    """
    unique, tags = properties.get(PROPERTY_UNIQ_KEY, ""), properties.get(PROPERTY_TAGS, "")
    if unique and key_set == TYPED_KEYS:
        unique = f"{UNIQUE_TYPE}#{unique}"
    typed_tags = f"{TAG_TYPE}#{tags}" if tags and key_set != PLAIN_KEYS else ""
    return tuple(key for key in (unique, *properties.get(PROPERTY_KEYS, "").split(KEY_SEPARATOR), typed_tags) if key)


def is_queued(sys_flag: int) -> bool:
    """HA-ST-34 "Prepared and rolled-back messages of a transaction MUST NOT be in any consume queue"."""
    return sys_flag & TRANSACTION_MASK not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def has_queue(request: DispatchRequest) -> bool:
    """Return True if a message has an entry in a consume queue.

    HA-ST-96 "A message whose topic cannot be the name of a directory MUST NOT be in any consume queue".
    """
    topic = request.topic
    is_name = (
        topic not in ("", ".", "..") and not {"/", "\0"} & {*topic} and len(topic.encode("utf-8", "replace")) <= NAME_LIMIT
    )
    return is_name and is_queued(request.sys_flag)


def is_indexed(sys_flag: int) -> bool:
    """HA-ST-78 "A prepared message MUST be in the index, and a rolled-back one MUST NOT be"."""
    return sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK


def record_at(log: Log, offset: int) -> tuple[Record, int] | None:
    """The record at `offset` and its size; None if there is no record, or only a part of it.

    The CRC of its body is not checked (quirk 29): the record gets the CRC that its body has, not the stored one.
    """
    if log.base is None or not log.base <= offset < max_offset(log):
        return None
    position = offset - log.base
    end_of_file = position - position % log.file_size + log.file_size
    data = log.data[position : min(end_of_file, position + max(0, int.from_bytes(log.data[position : position + 4], "big")))]
    return _record(bytes(data))


def own_record_at(log: Log, offset: int) -> tuple[Record, int] | None:
    """Hardened: `record_at`, and None for a record of another place: its physical offset is not `offset`."""
    found = record_at(log, offset)
    return found if found is not None and found[0].physical_offset == offset else None


@lru_cache(maxsize=1024)
def _record(data: bytes) -> tuple[Record, int] | None:
    """`record_at` for the bytes of one record. A recovery reads it several times."""
    sys_flag = int.from_bytes(data[36:40], "big")
    hosts_v6 = bool(sys_flag & constants.SYS_FLAG_BORN_HOST_V6) + bool(sys_flag & constants.SYS_FLAG_STORE_HOST_V6)
    body_position = 88 + hosts_v6 * constants.IPV6_EXTRA_SIZE
    body_length = int.from_bytes(data[body_position - 4 : body_position], "big")
    crc = message.body_crc(data[body_position : body_position + body_length])
    return message.decode(data[:8] + crc.to_bytes(4, "big") + data[12:])


def check_message_and_return_size(
    log: Log,
    offset: int,
    message_delay_level: str = MESSAGE_DELAY_LEVEL,
    key_set: str = PLAIN_KEYS,
    *,
    is_own: bool = False,
) -> DispatchRequest | Blank | None:
    """Read at `offset`. Returns: the request of a message, a Blank, or None if there is nothing complete yet.

    The keys are those of one of the sets of HA-ST-47. The first 8 bytes of a BLANK identify it; its padding may be missing.
    is_own: a record of another place, whose physical offset is not `offset`, is none.
    """
    position = offset - min_offset(log)
    if int.from_bytes(log.data[position + 4 : position + 8], "big") == constants.BLANK_MAGIC_CODE:
        return Blank(offset - offset % log.file_size + log.file_size)
    found = own_record_at(log, offset) if is_own else record_at(log, offset)
    if found is None:
        return None
    record, size = found
    topic, keys, code = _derived(record.topic, record.properties, record.store_timestamp, message_delay_level, key_set)
    return DispatchRequest(
        topic, record.queue_id, offset, size, code, record.store_timestamp, record.queue_offset, keys, record.sys_flag
    )


@lru_cache(maxsize=1024)
def _derived(
    topic: bytes, properties: bytes, store_timestamp: int, message_delay_level: str, key_set: str
) -> tuple[str, tuple[str, ...], int]:
    """The topic, the keys and the tags code of a message."""
    text, pairs = java_string.text(topic), parse_properties(properties)
    return text, index_keys(pairs, key_set), tags_code(text, pairs, store_timestamp, message_delay_level)


def pickup_store_timestamp(log: Log, offset: int) -> int:
    """The store timestamp of the message at `offset`; -1 if there is none."""
    found = record_at(log, offset)
    return found[0].store_timestamp if found else -1


def stored_ms(log: Log, offset: int) -> int:
    """Hardened: the store timestamp of the record of its own place at `offset`; 0 if there is none."""
    found = own_record_at(log, offset)
    return found[0].store_timestamp if found else 0
