"""Tell the beginning of a record from damage: bytes that some valid record of this place could start with.

A slave takes bytes, not records, so its log may end inside one. Then all bytes behind some point are zero (the file was
allocated as zeros), and those before it are the beginning of a record: each field that is wholly there must be right,
and the record must reach further than the bytes do. What is read from behind that point says nothing.

The checks of a record do not see that the end of its topic or properties is missing: lengths and body CRC are right
already. But a topic or properties that end in a zero byte, with nothing but zero bytes behind, are not there yet: HA-ST-10 "A
last record whose topic, or whose properties if it has any, end in a zero byte is not whole".
RocketMQ takes such a record for whole, goes on behind it, and its slave differs from its master from then on.

One case cannot be told: a flipped bit that enlarges the total size of the very last record, when that record has no
properties and the enlargement is at most 32,767 bytes. It looks like a record whose properties have not come yet.
"""

import zlib
from typing import Final

from rocketmq_ha.impl.store.log.scan import SMALLEST_RECORD
from rocketmq_ha.impl.wire.message import body_distance
from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    BODY_CRC_MASK,
    END_FILE_MIN_BLANK_SIZE,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
)

_V1: Final = MESSAGE_MAGIC_CODE.to_bytes(4, "big")
_V2: Final = MESSAGE_MAGIC_CODE_V2.to_bytes(4, "big")
_BLANK: Final = BLANK_MAGIC_CODE.to_bytes(4, "big")


def is_fragment(data: bytes | memoryview, present: int, offset: int) -> bool:
    """Whether the first `present` bytes begin a record without completing it.

    Args:  data: from the record's start to the end of the file. present: bytes, at least 1, up to the last that is not
           zero. offset: the commit-log offset of the start.
    Raises: nothing.
    """
    room = len(data)

    def number(start: int, stop: int) -> int:
        return int.from_bytes(data[start:stop], "big")

    total_size = number(0, 4)  # where bytes of it are still to come, no more than it will be
    magic = bytes(data[4 : min(8, present)])
    if present < 8 and _BLANK.startswith(magic) and (present < 4 or total_size >= END_FILE_MIN_BLANK_SIZE):
        # Of any size: where a slave's files are not as long as its master's, the BLANK ends elsewhere, and the log ends
        # in its head (HA-S-92).
        return True
    if total_size > room or not (_V1.startswith(magic) or _V2.startswith(magic)):
        return False
    if present < 4:
        return True
    if total_size < SMALLEST_RECORD or total_size <= present:
        return False
    if not offset.to_bytes(8, "big", signed=True).startswith(bytes(data[28 : min(36, present)])):
        return False
    body_position = body_distance(number(36, 40))
    if present < 40 or present < body_position:
        return True
    topic_length_position = body_position + number(body_position - 4, body_position)
    topic_position = topic_length_position + (1 if magic == _V1 else 2)
    if topic_position + 3 > total_size:
        return False
    if present < topic_length_position:
        return True
    if zlib.crc32(data[body_position:topic_length_position]) & BODY_CRC_MASK != number(8, 12):
        return False
    if present < topic_position:
        return True
    topic_length = number(topic_length_position, topic_position)
    topic_end = topic_position + topic_length
    topic_limit = MAX_TOPIC_LENGTH if magic == _V1 else MAX_PROPERTIES_LENGTH
    properties_length = total_size - topic_end - 2
    if not 0 < topic_length <= topic_limit or not 0 <= properties_length <= MAX_PROPERTIES_LENGTH:
        return False
    if present < topic_end:
        return True
    # Without properties, zero bytes complete the record: it is whole, and something else must be wrong with it.
    told = bytes(data[topic_end : min(topic_end + 2, present)])
    return properties_length > 0 and properties_length.to_bytes(2, "big").startswith(told)
