"""Walk the records of one file as fast as Python can, and say why the walk stopped.

The walk checks what `decode` checks, and the physical offset, but makes no Message: recovery and verify read every byte
of a log. Its checks repeat those of wire/message.py by intent; a property test holds the two together.

Spec: HA-ST-5 "the first record that is not whole, and all beyond it, is cut off".  Source: 4.9.8
CommitLog.checkMessageAndReturnSize; article 003 section 1.1.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rocketmq_ha.impl.store.log.uniform_run import AFTER, BEFORE, Run, run_like
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, UNQUEUED_TYPES
from rocketmq_ha.impl.wire.record_layout import (
    BODY_CRC,
    BODY_LENGTH,
    BODY_POSITIONS,
    HOSTS_SHIFT,
    HOSTS_V6,
    MAGIC,
    PHYSICAL_OFFSET,
    PROPERTIES_LENGTH_SIZE,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE_AND_MAGIC,
    SMALLEST_RECORD,
    SYS_FLAG,
    TOPIC_FORMS,
    TOTAL_SIZE,
    Buffer,
    store_timestamp_at,
    struct_of,
)
from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    BODY_CRC_MASK,
    END_FILE_MIN_BLANK_SIZE,
    MAX_PROPERTIES_LENGTH,
    SECTOR_SIZE,
)

# The smallest record is as long as this, too. The body's length stands here only where both hosts are IPv4.
_CHECKED_HEAD: Final = struct_of(TOTAL_SIZE, MAGIC, BODY_CRC, QUEUE_ID, QUEUE_OFFSET, PHYSICAL_OFFSET, SYS_FLAG, BODY_LENGTH)
_I32_AT: Final = struct.Struct(">i").unpack_from
_BODY_LENGTH_SIZE: Final = BODY_LENGTH.size

QueueOffsets = dict[tuple[int, bytes], int]  # (queue id, topic) -> the next queue offset


class Stop(Enum):
    """Why a walk ended."""

    BOUND = "reached the bound that the caller set"
    FULL = "the file ends here, by a BLANK record or by a record that fills it"
    ZERO = "eight zero bytes, or zero bytes to the end of the file"
    BAD = "bytes that are no record of this place"


@dataclass(frozen=True, slots=True)
class Scan:
    """How far a walk came. position: bytes from the start of the file, behind the last whole record."""

    position: int
    stop: Stop
    messages: int
    last_position: int | None  # of the last message found
    blank_position: int | None  # of the BLANK record that ends the file


def scan(
    buffer: Buffer,
    base: int,
    start: int = 0,
    bound: int | None = None,
    queue_offsets: QueueOffsets | None = None,
    suspect_from_ms: int | None = None,
) -> Scan:
    """Walk from a record's position to the first bytes that are no whole valid record of this place.

    Records mostly look like the one before: the same sizes, flags and topic. For such a record one comparison of the
    bytes between body and properties answers what else takes a dozen; and where many follow one another, they are looked at
    together (run.py).

    Args:  buffer: the whole file, which starts at commit-log offset base. start: where a record starts.
           bound: stop at the first record at or beyond it. queue_offsets: raised as the messages found demand.
           suspect_from_ms: a record that was stored at this time or later is not whole where a sector of its topic or its
           properties is missing, which no length and no CRC shows: HA-ST-10 "from a multiple of 512 in its file to the next
           one, or to the end of the record".
    Raises: nothing, whatever the bytes.
    """
    size = len(buffer)
    position, previous, messages = start, start, 0
    last = size - SMALLEST_RECORD if bound is None else min(size - SMALLEST_RECORD, bound - 1)
    unpack_head, crc32 = _CHECKED_HEAD.unpack_from, zlib.crc32
    # The shape of the record before, as distances from its start. No record has this total size, so the first one has another.
    shape_size = shape_body = shape_flag = shape_magic = -1
    body_from = topic_from = topic_to = hole_from = hole_size = 0
    shape_topic: Buffer = b""
    run_from = size  # where to look for a run
    counts: dict[int, int] = {}  # queue id -> queue offset of its last message, of the shape's topic
    found: dict[bytes, dict[int, int]] = {}
    is_queued = False
    view = memoryview(buffer)
    try:
        while position <= last:
            if position >= run_from:
                run = run_like(view, previous, topic_from, topic_to)
                run_from = size
                if run is not None:
                    hole = (hole_from, hole_size, suspect_from_ms)
                    end = _take_runs(run, buffer, view, base, position, last, hole, counts if is_queued else {})
                    messages += (end - position) // shape_size
                    previous, position = previous + end - position, end
                    run_from = position + AFTER * shape_size
                if position > last:
                    break
            total_size, magic, body_crc, queue_id, queue_offset, physical_offset, sys_flag, body_length = unpack_head(
                view, position
            )
            if physical_offset != base + position:
                break
            end = position + total_size
            if (
                total_size != shape_size
                or body_length != shape_body
                or sys_flag != shape_flag
                or magic != shape_magic
                or end > size
                or buffer[position + topic_from : position + topic_to] != shape_topic
            ):
                shape = _shape_at(view, position)
                if shape is None:
                    break
                shape_size, shape_body, shape_flag, shape_magic = total_size, body_length, sys_flag, magic
                body_from, topic_from, topic_to, topic = shape
                shape_topic = bytes(view[position + topic_from : position + topic_to])
                # What no check covers: the topic and the properties, if there are any; see _has_hole.
                hole_from = topic_to - PROPERTIES_LENGTH_SIZE - len(topic)
                hole_size = len(topic) if topic_to == total_size else total_size - hole_from
                is_queued = sys_flag & TRANSACTION_MASK not in UNQUEUED_TYPES
                counts = found.setdefault(topic, {})
                run_from = position + BEFORE * total_size
                if sys_flag & HOSTS_V6:  # the body's length stands elsewhere: look at each
                    shape_size, run_from = -1, size
            if crc32(view[position + body_from : position + topic_from]) & BODY_CRC_MASK != body_crc:
                break
            if (
                suspect_from_ms is not None
                and -(position + hole_from) % SECTOR_SIZE < hole_size
                and _has_hole(view, position, hole_from, hole_size, suspect_from_ms)
            ):
                break
            if is_queued:
                counts[queue_id] = queue_offset
            previous, position = position, end
            messages += 1
        if queue_offsets is not None:
            queue_offsets.update(
                ((queue_id, topic), queue_offset + 1)
                for topic, ends in found.items()
                for queue_id, queue_offset in ends.items()
            )
        last_position = previous if messages else None
        stop, blank_position = _why(view, position, bound)
        return Scan(len(view) if blank_position is not None else position, stop, messages, last_position, blank_position)
    finally:
        view.release()


def _take_runs(
    run: Run,
    buffer: Buffer,
    view: memoryview,
    base: int,
    position: int,
    last: int,
    hole: tuple[int, int, int | None],
    counts: dict[int, int],
) -> int:
    """Walk whole runs from a position on, and stop before the first run with a record that is not in order.

    Args:  view: of the buffer; slices of the buffer itself are compared faster. last: the last place where a record may begin.
           hole: hole_from, hole_size and suspect_from_ms of `_has_hole`.
           counts: queue id -> queue offset of its last message; brought up to date.
    Returns: the position behind the last run.
    """
    hole_from, hole_size, suspect_from_ms = hole
    while position + run.size - run.record_size <= last and position + run.size <= len(view):
        offsets = _run_at(run, buffer, position, base)
        if offsets is None:
            break
        if suspect_from_ms is not None:
            places = range(position + hole_from, position + run.size, run.record_size)
            starts = [at - hole_from for at in places if -at % SECTOR_SIZE < hole_size]
            if any(_has_hole(view, at, hole_from, hole_size, suspect_from_ms) for at in starts):
                break
        counts.update(offsets)
        position += run.size
    return position


def _run_at(run: Run, buffer: Buffer, position: int, base: int) -> Iterator[tuple[int, int]] | None:
    """Check the records of a run at a position, behind which there are bytes enough.

    Returns: queue id and queue offset of each; None where one of them is no valid record of its place, or has another shape.
    """
    if not run.is_at(buffer, position):
        return None
    fields = run.checked(buffer, position)
    offset = base + position
    if fields[3::5] != tuple(range(offset, offset + run.size, run.record_size)):
        return None
    if tuple([crc & BODY_CRC_MASK for crc in map(zlib.crc32, fields[4::5])]) != fields[::5]:
        return None
    return zip(fields[1::5], fields[2::5], strict=True)


def _shape_at(view: memoryview, position: int) -> tuple[int, int, int, bytes] | None:
    """Check all sizes of the record at a position, of which 88 bytes are there.

    Returns: the distances from its start to its body, to the length of its topic and to its properties, and the topic;
    None where they do not fit together.
    """
    total_size, magic, *_, sys_flag, _ = _CHECKED_HEAD.unpack_from(view, position)
    form = TOPIC_FORMS.get(magic)
    if form is None:
        return None
    end = position + total_size
    body_start = position + BODY_POSITIONS[sys_flag >> HOSTS_SHIFT & 3]
    if end > len(view) or body_start >= end:
        return None
    (body_length,) = _I32_AT(view, body_start - _BODY_LENGTH_SIZE)
    topic_length_size, topic_limit = form
    topic_length_position = body_start + body_length
    topic_position = topic_length_position + topic_length_size
    if body_length < 0 or topic_position + 1 + PROPERTIES_LENGTH_SIZE > end:
        return None
    topic_length = view[topic_length_position]
    if topic_length_size == 2:
        topic_length = topic_length << 8 | view[topic_length_position + 1]
    topic_end = topic_position + topic_length
    properties_position = topic_end + PROPERTIES_LENGTH_SIZE
    if not 0 < topic_length <= topic_limit or properties_position > end:
        return None
    properties_length = view[topic_end] << 8 | view[topic_end + 1]
    if properties_length > MAX_PROPERTIES_LENGTH or properties_position + properties_length != end:
        return None
    distances = body_start - position, topic_length_position - position, properties_position - position
    return *distances, bytes(view[topic_position:topic_end])


def _has_hole(view: memoryview, start: int, hole_from: int, hole_size: int, suspect_from_ms: int) -> bool:
    """Whether a record that was stored at a time or later lacks a sector of its topic or its properties.

    A sector that has not come to the disk is zeros. It is larger than what stands before a body, so it takes a magic, a length
    or a part of the body with it, unless it begins in the topic or in the properties. Without properties the record ends in two
    zero bytes of its own, which are no hole. Not seen: a sector that begins at the low byte of a topic's length, where that
    byte is 0, as in a V2 record with a topic of 512 bytes.

    Args:  view: the file. start: position of the record. hole_from, hole_size: where a sector may be missing, from there on.
    """
    first, stop = start + hole_from, start + hole_from + hole_size
    sectors = range(first + -first % SECTOR_SIZE, stop, SECTOR_SIZE)
    if all(view[at] or any(view[at : min(at + SECTOR_SIZE, stop)]) for at in sectors):
        return False
    return store_timestamp_at(view, start) >= suspect_from_ms


def _why(view: memoryview, position: int, bound: int | None) -> tuple[Stop, int | None]:
    """Why no message was found at a position, and the position of a BLANK."""
    left = len(view) - position
    if bound is not None and position >= bound:
        return Stop.BOUND, None
    if left == 0:
        return Stop.FULL, None
    head = bytes(view[position : position + END_FILE_MIN_BLANK_SIZE])
    if not any(head):
        return Stop.ZERO, None
    if left >= END_FILE_MIN_BLANK_SIZE and SIZE_AND_MAGIC.unpack(head) == (left, BLANK_MAGIC_CODE):
        return Stop.FULL, position
    return Stop.BAD, None
