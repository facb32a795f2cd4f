"""Distinguish the beginning of a record from damage: could a valid record at this offset start with these bytes?

A slave takes bytes, not records, so its log may end inside one. Then all bytes behind some point are zero (the file was
allocated as zeros), and those before it are the beginning of a record: each field that is wholly there must be right,
and the record must reach further than the bytes do. Bytes behind that point are not used.

The checks of a record do not see that the end of its topic or properties is missing: lengths and body CRC are right
already. But a topic or properties that end in a zero byte, followed only by zero bytes, are incomplete: HA-ST-10 "A
last record whose topic, or whose properties if it has any, end in a zero byte is not whole".
RocketMQ takes such a record for whole and appends behind it, so its slave differs from its master from then on.

One case cannot be detected: a flipped bit that enlarges the total size of the very last record by at most 32,767 bytes, if that
record has no properties. It looks like a record whose properties are still to come.
"""

import zlib

from rocketmq_ha.impl.wire.record_layout import (
    BODY_CRC,
    BODY_LENGTH,
    MAGIC,
    MAGIC_BYTES,
    MAGICS,
    PHYSICAL_OFFSET,
    PROPERTIES_LENGTH_SIZE,
    SMALLEST_RECORD,
    SYS_FLAG,
    TOPIC_FORMS,
    TOTAL_SIZE,
    Field,
    body_position,
)
from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    BODY_CRC_MASK,
    END_FILE_MIN_BLANK_SIZE,
    MAX_PROPERTIES_LENGTH,
)


def is_fragment(data: bytes | memoryview, present: int, offset: int) -> bool:
    """Return True if the first `present` bytes begin a record without completing it.

    Args:  data: from the record's start to the end of the file. present: bytes, at least 1, up to the last that is not
           zero. offset: the commit-log offset of the start.
    Raises: nothing.
    """
    room = len(data)

    def number(field: Field, sys_flag: int = 0) -> int:
        start = field.position_in(sys_flag)
        return int.from_bytes(data[start : start + field.size], "big")

    total_size = number(TOTAL_SIZE)  # if some of its bytes are still missing, a lower bound of it
    magic = bytes(data[MAGIC.position : min(MAGIC.end, present)])
    is_size_there = present >= TOTAL_SIZE.end
    could_be_blank = MAGIC_BYTES[BLANK_MAGIC_CODE].startswith(magic)
    if present < MAGIC.end and could_be_blank and (not is_size_there or total_size >= END_FILE_MIN_BLANK_SIZE):
        # A BLANK of any size: if a slave's files differ from its master's, the BLANK ends elsewhere, and the log ends in its
        # head (HA-S-92).
        return True
    if total_size > room or not any(MAGIC_BYTES[known].startswith(magic) for known in MAGICS):
        return False
    if not is_size_there:
        return True
    if total_size < SMALLEST_RECORD or total_size <= present:
        return False
    offset_there = bytes(data[PHYSICAL_OFFSET.position : min(PHYSICAL_OFFSET.end, present)])
    if not offset.to_bytes(PHYSICAL_OFFSET.size, "big", signed=True).startswith(offset_there):
        return False
    sys_flag = number(SYS_FLAG)
    body_start = body_position(sys_flag)
    if present < SYS_FLAG.end or present < body_start:
        return True
    topic_length_size, topic_limit = TOPIC_FORMS[int.from_bytes(magic, "big")]
    topic_length_position = body_start + number(BODY_LENGTH, sys_flag)
    topic_position = topic_length_position + topic_length_size
    if topic_position + 1 + PROPERTIES_LENGTH_SIZE > total_size:
        return False
    if present < topic_length_position:
        return True
    if zlib.crc32(data[body_start:topic_length_position]) & BODY_CRC_MASK != number(BODY_CRC):
        return False
    if present < topic_position:
        return True
    topic_length = int.from_bytes(data[topic_length_position:topic_position], "big")
    topic_end = topic_position + topic_length
    properties_length = total_size - topic_end - PROPERTIES_LENGTH_SIZE
    if not 0 < topic_length <= topic_limit or not 0 <= properties_length <= MAX_PROPERTIES_LENGTH:
        return False
    if present < topic_end:
        return True
    # Without properties, zero bytes complete the record: it is whole, and something else must be wrong with it.
    told = bytes(data[topic_end : min(topic_end + PROPERTIES_LENGTH_SIZE, present)])
    return properties_length > 0 and properties_length.to_bytes(PROPERTIES_LENGTH_SIZE, "big").startswith(told)
