"""What queues and index need to know of a record, made from what a put hands over or read from the log's bytes.

The bytes are walked as RocketMQ's dispatch walks them: lengths and places are checked, the body's CRC is not (quirk 29); a
record that is not all there yet ends the walk without an error.

Source: 4.9.8 CommitLog.checkMessageAndReturnSize; MessageDecoder.string2messageProperties.
"""

from enum import Enum
from itertools import repeat
from typing import Final, NamedTuple

from rocketmq_ha.impl.store.derived.delay import SCHEDULE_TOPIC, DelayLevels
from rocketmq_ha.impl.store.derived.java_hash import java_hash, java_text
from rocketmq_ha.impl.store.log.uniform_run import AFTER, BEFORE, RECORDS, run_like
from rocketmq_ha.impl.wire.batch import HandedFields
from rocketmq_ha.impl.wire.record_layout import (
    BODY_LENGTH,
    BODY_POSITION,
    HOSTS_FLAGS,
    HOSTS_SHIFT,
    HOSTS_V6,
    MAGIC,
    MAGICS,
    PHYSICAL_OFFSET,
    PREPARED_TRANSACTION_OFFSET,
    PROPERTIES_LENGTH_SIZE,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE_AND_MAGIC,
    SMALLEST_RECORD,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOPIC_FORMS,
    TOTAL_SIZE,
    body_length_at,
    struct_of,
)
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_SIZE, MAX_PROPERTIES_LENGTH


class DispatchRequest(NamedTuple):
    """What queues and index need to know of one record."""

    topic: bytes
    queue_id: int
    commit_log_offset: int
    size: int  # bytes of the record
    tags_code: int  # i64: the hash of the tags, or the time of delivery
    store_timestamp: int  # ms
    queue_offset: int
    keys: str  # the property KEYS, separated by blanks; "" if none
    uniq_key: str | None
    sys_flag: int
    prepared_transaction_offset: int


class RequestMaker:
    """Makes requests from fields and properties. One thread's own: it remembers the codes of the tags that it has met."""

    _REMEMBERED: Final = 4096

    def __init__(self, delay_levels: DelayLevels) -> None:
        self._delay_levels = delay_levels
        self._tags_codes: dict[bytes, int] = {}
        self._without_keys: dict[bytes, int] = {b"": 0}  # whole properties without keys and delay -> tags code
        # The tags code of properties that are known to have no keys and no delay, else None.
        self.tags_code_without_keys: Final = self._without_keys.get

    def __call__(
        self,
        topic: bytes,
        queue_id: int,
        commit_log_offset: int,
        size: int,
        properties: bytes,
        store_timestamp: int,
        queue_offset: int,
        sys_flag: int,
        prepared_transaction_offset: int,
    ) -> DispatchRequest:
        """The request of a record with these fields; arguments in the order of `Handed`. Raises: nothing."""
        tags_code, keys, uniq_key, delay = 0, "", None, None
        known = self._without_keys.get(properties)
        if known is not None:
            tags_code = known
        else:
            # As parse_properties does, for the four names that count here.
            for pair in properties.split(b"\x02"):
                name, _, value = pair.partition(b"\x01")
                if not value:
                    continue
                if name == b"TAGS":
                    code = self._tags_codes.get(value)
                    tags_code = self._tags_code(value) if code is None else code
                elif name == b"KEYS":
                    keys = java_text(value)
                elif name == b"UNIQ_KEY":
                    uniq_key = java_text(value)
                elif name == b"DELAY":
                    delay = value
            if not (keys or uniq_key or delay) and len(self._without_keys) < self._REMEMBERED:
                self._without_keys[properties] = tags_code
            if delay is not None and topic == SCHEDULE_TOPIC:
                due = self._delay_levels.deliver_timestamp(delay, store_timestamp)
                tags_code = tags_code if due is None else due
        return _new(
            DispatchRequest,
            (
                *(topic, queue_id, commit_log_offset, size, tags_code, store_timestamp, queue_offset, keys, uniq_key),
                *(sys_flag, prepared_transaction_offset),
            ),
        )

    def _tags_code(self, tags: bytes) -> int:
        code = java_hash(java_text(tags))
        if len(self._tags_codes) < self._REMEMBERED:
            self._tags_codes[tags] = code
        return code


_new: Final = tuple.__new__  # of a NamedTuple's own constructor this is the quick part


class Read(Enum):
    """Why a walk over the log's bytes ended."""

    BOUND = "the caller's bound, or all that was given"
    BLANK = "the file ends with a BLANK"
    PART = "the next record is not all there yet"
    BAD = "bytes that are no record of this place"


_HEAD_FIELDS: Final = (
    *(TOTAL_SIZE, MAGIC, QUEUE_ID, QUEUE_OFFSET, PHYSICAL_OFFSET, SYS_FLAG),
    *(STORE_TIMESTAMP, PREPARED_TRANSACTION_OFFSET, BODY_LENGTH),
)
_HEADS: Final = tuple(struct_of(*_HEAD_FIELDS, sys_flag=sys_flag) for sys_flag in HOSTS_FLAGS)


def read_handed(
    view: memoryview, offset: int, room: int, bound: int, limit: int, handed: list[HandedFields]
) -> tuple[int, Read]:
    """Append what dispatch needs of the records that begin in a view before a bound, at most until there are `limit`.

    Args:  view: the log's bytes from `offset` on, as many as it has. room: bytes from `offset` to the end of its file.
    Returns: the offset behind the last record taken, or behind the file for a BLANK, and why the walk ended.
    Raises: nothing, whatever the bytes.
    """
    there = len(view)
    position = 0
    unpack_head = _HEADS[0].unpack_from
    bound = min(bound - offset, there)
    alike = size_before = 0  # how many records in a row have the size of the one before them
    while position < bound and len(handed) < limit:
        left = there - position
        if left < SMALLEST_RECORD:
            return _small(view, position, room, offset)
        size, magic, queue_id, queue_offset, physical_offset, sys_flag, store_timestamp, prepared, body_length = unpack_head(
            view, position
        )
        form = TOPIC_FORMS.get(magic)
        if form is None:
            return _small(view, position, room, offset)
        topic_length_size, topic_limit = form
        if not SMALLEST_RECORD <= size <= room - position or physical_offset != offset + position:
            return offset + position, Read.BAD
        if size > left:
            return offset + position, Read.PART
        end = position + size
        at = position + BODY_POSITION
        if sys_flag & HOSTS_V6:
            head = _HEADS[sys_flag >> HOSTS_SHIFT & 3]
            at = position + head.size
            if at > end:
                return offset + position, Read.BAD
            *_, store_timestamp, prepared, body_length = head.unpack_from(view, position)
        at += body_length + topic_length_size
        if body_length < 0 or at + 1 + PROPERTIES_LENGTH_SIZE > end:
            return offset + position, Read.BAD
        topic_length = view[at - 1]
        if topic_length_size == 2:
            topic_length |= view[at - 2] << 8
        properties_at = at + topic_length + PROPERTIES_LENGTH_SIZE
        if not 0 < topic_length <= topic_limit or properties_at > end:  # HA-ST-72: RocketMQ reads a signed length
            return offset + position, Read.BAD
        properties_length = view[properties_at - 2] << 8 | view[properties_at - 1]
        if properties_length > MAX_PROPERTIES_LENGTH or properties_at + properties_length != end:
            return offset + position, Read.BAD
        topic, properties = bytes(view[at : properties_at - 2]), bytes(view[properties_at:end])
        handed.append((topic, queue_id, physical_offset, size, properties, store_timestamp, queue_offset, sys_flag, prepared))
        if size == size_before:
            alike += 1
        else:
            alike, size_before = 0, size
        if alike >= BEFORE:
            end = _take_runs(view, position, offset, bound, limit, properties_at - position, handed)
            alike = -AFTER
        position = end
    return offset + position, Read.BOUND


def _take_runs(
    view: memoryview, like: int, offset: int, bound: int, limit: int, topic_to: int, handed: list[HandedFields]
) -> int:
    """Append what dispatch needs of the runs behind the record that was appended last, as `read_handed` does.

    Args:  like: where that record is. topic_to: distance from there to its properties.
    Returns: the position behind what was appended.
    """
    topic, _, _, size, _, _, _, sys_flag, _ = handed[-1]
    body_size = body_length_at(view, sys_flag, like)
    run = run_like(view, like, BODY_POSITION + body_size, topic_to)
    position = like + size
    while (
        run is not None
        and position + run.size <= len(view)
        and position + run.size - run.record_size < bound
        and len(handed) + RECORDS <= limit
        and run.is_at(view, position)
    ):
        fields = run.dispatched(view, position)
        offsets, properties = fields[2::6], fields[5::6]
        begin = offset + position
        if offsets != tuple(range(begin, begin + run.size, size)):
            break
        if properties.count(properties[0]) == RECORDS:  # one object: its hash is made once
            properties = repeat(properties[0])
        handed += zip(
            *(repeat(topic), fields[::6], offsets, repeat(size), properties, fields[3::6], fields[1::6]),
            *(repeat(sys_flag), fields[4::6]),
            strict=False,
        )
        position += run.size
    return position


def read_requests(
    view: memoryview, offset: int, room: int, bound: int, limit: int, make: RequestMaker, requests: list[DispatchRequest]
) -> tuple[int, Read]:
    """`read_handed` that appends requests."""
    handed: list[HandedFields] = []
    found = read_handed(view, offset, room, bound, limit, handed)
    requests += [make(*each) for each in handed]
    return found


def _small(view: memoryview, position: int, room: int, offset: int) -> tuple[int, Read]:
    """Judge what is no whole message: a BLANK, the beginning of something, or neither."""
    left = len(view) - position
    if left < END_FILE_MIN_BLANK_SIZE:
        return offset + position, Read.PART if left < room - position else Read.BAD
    size, magic = SIZE_AND_MAGIC.unpack_from(view, position)
    if magic == BLANK_MAGIC_CODE and size == room - position:
        return offset + room, Read.BLANK
    is_part = magic in MAGICS and left < size <= room - position
    return offset + position, Read.PART if is_part else Read.BAD
