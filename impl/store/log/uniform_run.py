"""Records of one shape behind one another, looked at many at once.

A log is mostly made of such runs: producers send messages of one kind, and each of them has the sizes, the flags and the topic
of the one before. What such records share stands in them at the same places, so the bytes at one of these places, a record's
length apart, are one byte many times over. To compare them so takes a few nanoseconds a record, where a step of Python from
record to record takes a thousand. What they do not share is unpacked for all of them by one call.

Only records whose hosts are both IPv4 are looked at so, and of no more than LARGEST bytes: a larger one costs more than the
step to it.
"""

import struct
from functools import lru_cache
from typing import Any, Final

from rocketmq_ha.impl.wire.record_layout import (
    BODY_CRC,
    BODY_LENGTH,
    BODY_POSITION,
    HOSTS_V6,
    PHYSICAL_OFFSET,
    PREPARED_TRANSACTION_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE_AND_MAGIC,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOTAL_SIZE,
    Buffer,
    format_of,
)

RECORDS: Final = 128  # of a run: what is looked at stays in the processor's second cache
LARGEST: Final = 4096  # bytes of a record
# A run is looked for behind so many records of one shape, and so far behind a place where there was none.
BEFORE: Final = 4
AFTER: Final = 32
_CHECKED: Final = format_of(BODY_CRC, QUEUE_ID, QUEUE_OFFSET, PHYSICAL_OFFSET, start=0)
_DISPATCHED: Final = format_of(
    *(QUEUE_ID, QUEUE_OFFSET, PHYSICAL_OFFSET, STORE_TIMESTAMP, PREPARED_TRANSACTION_OFFSET), start=0
)


class Run:
    """So many records of one shape, wherever they may be. record_size: bytes of one; size: of all.

    checked: unpacks of each record body CRC, queue id, queue offset, physical offset and body. dispatched: queue id, queue
    offset, physical offset, store timestamp, prepared transaction offset and properties. Each of all records in a row.
    """

    __slots__ = ("_constants", "_last", "checked", "dispatched", "record_size", "size")

    def __init__(self, head: bytes, sys_flag: bytes, body_length: bytes, middle: bytes) -> None:
        size = int.from_bytes(head[: TOTAL_SIZE.end], "big")
        self.record_size: Final = size
        self.size: Final = size * RECORDS
        body_size = int.from_bytes(body_length, "big")
        body_end = BODY_POSITION + body_size
        shared = ((0, head), (SYS_FLAG.position, sys_flag), (BODY_LENGTH.position, body_length), (body_end, middle))
        self._constants = [
            (start + index, bytes((octet,)) * RECORDS) for start, octets in shared for index, octet in enumerate(octets)
        ]
        self._last = self.size - size
        properties_size = size - body_end - len(middle)
        self.checked = _unpacker(f"{_CHECKED}{BODY_POSITION - PHYSICAL_OFFSET.end}x{body_size}s{size - body_end}x")
        before_properties = size - properties_size - PREPARED_TRANSACTION_OFFSET.end
        self.dispatched = _unpacker(f"{_DISPATCHED}{before_properties}x{properties_size}s")

    def is_at(self, buffer: Buffer, position: int) -> bool:
        """Whether at a position, behind which there are bytes enough, each record has what all of them share."""
        size, end = self.record_size, position + self.size
        first, octets = self._constants[3]  # the byte of the size that tells most
        if buffer[position + self._last + first] != octets[0]:
            return False
        return all(buffer[position + distance : end : size] == octets for distance, octets in self._constants)


def run_like(view: memoryview, position: int, body_end: int, topic_to: int) -> Run | None:
    """The run of records like the one at a position; None where such are not looked at many at once.

    Args:  view: the file. body_end, topic_to: distances from the record's start, to the length of its topic and behind that of
           its properties.
    """
    head = bytes(view[position : position + SIZE_AND_MAGIC.size])
    sys_flag = bytes(view[position + SYS_FLAG.position : position + SYS_FLAG.end])
    if int.from_bytes(head[: TOTAL_SIZE.end], "big") > LARGEST or sys_flag[-1] & HOSTS_V6:
        return None
    body_length = bytes(view[position + BODY_LENGTH.position : position + BODY_LENGTH.end])
    return _run(head, sys_flag, body_length, bytes(view[position + body_end : position + topic_to]))


_run: Final = lru_cache(maxsize=64)(Run)


@lru_cache(maxsize=64)
def _unpacker(record: str) -> Any:
    return struct.Struct(">" + record * RECORDS).unpack_from
