"""Walk the records of one file as fast as Python can, and say why the walk stopped.

The walk checks what `decode` checks, and the physical offset, but makes no Message: recovery and verify read every byte
of a log. Its checks repeat those of wire/message.py by intent; a property test holds the two together.

Spec: HA-ST-2 to HA-ST-5.  Source: 4.9.8 CommitLog.checkMessageAndReturnSize; article 003 section 1.1.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from rocketmq_ha.impl.errors import MessageMalformed, StoreCorrupt
from rocketmq_ha.impl.store.mapped_file import MappedFile
from rocketmq_ha.impl.wire.message import (
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Buffer,
    body_distance,
    decode,
)
from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    BODY_CRC_MASK,
    END_FILE_MIN_BLANK_SIZE,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_FIXED_SIZE,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
)

# total size, magic, body CRC, queue id, (flag), queue offset, physical offset, sysFlag: 40 bytes.
_CHECKED_HEAD: Final = struct.Struct(">iIIi4xqqi")
_I32_AT: Final = struct.Struct(">i").unpack_from
SMALLEST_RECORD: Final = MESSAGE_FIXED_SIZE + 1  # bytes: a topic of one byte, no body, no properties
_MAGICS: Final = (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2)
_BODY_DISTANCES: Final = tuple(body_distance(bits << 4) for bits in range(4))

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
    buffer: Buffer, base: int, start: int = 0, bound: int | None = None, queue_offsets: QueueOffsets | None = None
) -> Scan:
    """Walk from a record's position to the first bytes that are no whole valid record of this place.

    Args:  buffer: the whole file, which starts at commit-log offset base. start: where a record starts.
           bound: stop at the first record at or beyond it. queue_offsets: raised as the messages found demand.
    Raises: nothing, whatever the bytes.
    """
    size = len(buffer)
    position, previous, messages = start, start, 0
    last = size - SMALLEST_RECORD if bound is None else min(size - SMALLEST_RECORD, bound - 1)
    unpack_head, crc32 = _CHECKED_HEAD.unpack_from, zlib.crc32
    view = memoryview(buffer)
    try:
        while position <= last:
            total_size, magic, body_crc, queue_id, queue_offset, physical_offset, sys_flag = unpack_head(view, position)
            if magic not in _MAGICS:
                break
            end = position + total_size
            body_position = position + _BODY_DISTANCES[(sys_flag >> 4) & 3]
            if end > size or body_position >= end or physical_offset != base + position:
                break
            (body_length,) = _I32_AT(view, body_position - 4)
            topic_position = body_position + body_length + 1
            if body_length < 0 or topic_position + 3 > end:
                break
            topic_length, topic_limit = view[topic_position - 1], MAX_TOPIC_LENGTH
            if magic == MESSAGE_MAGIC_CODE_V2:
                topic_length, topic_limit = topic_length << 8 | view[topic_position], MAX_PROPERTIES_LENGTH
                topic_position += 1
            topic_end = topic_position + topic_length
            if not 0 < topic_length <= topic_limit or topic_end + 2 > end:
                break
            properties_length = view[topic_end] << 8 | view[topic_end + 1]
            if properties_length > MAX_PROPERTIES_LENGTH or topic_end + 2 + properties_length != end:
                break
            if crc32(view[body_position : body_position + body_length]) & BODY_CRC_MASK != body_crc:
                break
            if queue_offsets is not None and sys_flag & TRANSACTION_MASK not in (
                TRANSACTION_PREPARED,
                TRANSACTION_ROLLBACK,
            ):
                queue_offsets[queue_id, bytes(view[topic_position:topic_end])] = queue_offset + 1
            previous, position = position, end
            messages += 1
        last_position = previous if messages else None
        stop, blank_position = _why(view, position, bound)
        return Scan(len(view) if blank_position is not None else position, stop, messages, last_position, blank_position)
    finally:
        view.release()


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
    if head == left.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big"):
        return Stop.FULL, position
    return Stop.BAD, None


def explain(file: MappedFile, position: int) -> StoreCorrupt | None:
    """Say what is wrong with the bytes at a position, in the words of `decode`; None where nothing is (any more)."""
    found = scan(file.mapping, file.base, position, position + 1)
    if found.position > position:
        return None
    head = file.mapping[position : position + END_FILE_MIN_BLANK_SIZE]
    if not any(head):
        return StoreCorrupt(file.path, file.base + position, "zero bytes", "a record")
    if head[4:] == BLANK_MAGIC_CODE.to_bytes(4, "big"):
        told, left = int.from_bytes(head[:4], "big"), file.size - position
        return StoreCorrupt(file.path, file.base + position, f"a BLANK of {told} bytes", f"{left}, the rest of the file")
    try:
        message = decode(file.view(position, file.size), 0)
    except MessageMalformed as error:
        return StoreCorrupt(file.path, file.base + position, f"{error.field} {error.found}", error.expected)
    offset = message.physical_offset
    if offset == file.base + position:
        return None  # a writer has completed it in between
    return StoreCorrupt(file.path, file.base + position, f"physical offset {offset}", file.base + position)


def whole_record_at(file: MappedFile, position: int) -> bool:
    """Whether a whole record with a right CRC stands at a position, whatever physical offset it tells."""
    try:
        decode(file.view(position, file.size), 0)
    except MessageMalformed:
        return False
    return True


def find_record(file: MappedFile, start: int) -> int | None:
    """Look for a whole valid record of its own place at or after a position, byte by byte.

    Returns: its position. Size, magic, CRC and physical offset must be right, so no stray bytes pass for one; a record
    image in a message's body tells another physical offset.
    """
    for position in _magic_positions(file, start):
        record = position - 4
        if record >= start and scan(file.mapping, file.base, record, record + 1).messages:
            return record
    return None


def _magic_positions(file: MappedFile, start: int) -> Iterator[int]:
    magics = [magic.to_bytes(4, "big") for magic in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2)]
    common = magics[0][:3]
    kept, kept_position = b"", start  # the last bytes of the chunk before: a magic may lie across
    for position, chunk in file.chunks(start):
        text = kept + chunk if kept_position + len(kept) == position else chunk
        origin = position + len(chunk) - len(text)
        at = text.find(common)
        while at >= 0:
            if text[at : at + 4] in magics:
                yield origin + at
            at = text.find(common, at + 1)
        kept = text[-3:]
        kept_position = origin + len(text) - len(kept)
