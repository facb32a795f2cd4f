"""Read messages by consume queue: first the entries, then their records, without a copy.

Most entries of one read name records in the same file. So one view of that file is taken, from the first record to the end of
the data, and each record is a slice of it.

Spec: HA-ST-37.  Source: article 003 section 1.5; 4.9.8 DefaultMessageStore.getMessage.
"""

import struct
from typing import Final

from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.get_result import GetMessageResult, GetMessageStatus
from rocketmq_ha.impl.store.log.commit_log import CommitLog

_PLACE: Final = struct.Struct(">qi8x")  # offset and size of an entry
_FOUND: Final = GetMessageStatus.FOUND
_new: Final = tuple.__new__  # faster than the NamedTuple's own constructor


def get_messages(log: CommitLog, queue: ConsumeQueue, queue_offset: int, max_messages: int, max_size: int) -> GetMessageResult:
    """Read messages of a queue; see MessageStore.get."""
    first, last = queue.min_offset, queue.max_offset
    if not first <= queue_offset < last:
        return _outside(queue_offset, first, last)
    if max_messages <= 0:
        return GetMessageResult(_FOUND, queue_offset, first, last)
    try:
        entries = queue.read(queue_offset, max_messages)
    except FileNotFoundError:  # deleted meanwhile
        return _outside(queue_offset, queue_offset + 1, max(last, queue_offset + 1))
    records: list[memoryview] = []
    view = memoryview(b"")  # bytes of the log from `begin` on
    begin = there = 0
    size_left = max_size
    for offset, size in _PLACE.iter_unpack(entries):
        size_left -= size
        if size_left < 0 and records:
            break
        start = offset - begin
        end = start + size
        if start < 0 or end > there:
            found = log.data_at(offset, log.file_size)
            if found is None or len(found) < size:  # its file was deleted; the queue will follow
                if records:
                    break
                return GetMessageResult(GetMessageStatus.MESSAGE_WAS_REMOVING, queue_offset + 1, first, last)
            view, begin, there, start, end = found, offset, len(found), 0, size
        records.append(view[start:end])
    if not records:
        return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, queue_offset + 1, first, last)
    return _new(GetMessageResult, (_FOUND, queue_offset + len(records), first, last, tuple(records)))


def _outside(queue_offset: int, first: int, last: int) -> GetMessageResult:
    """The result for an offset without a message: its status, and the offset to read instead."""
    if first == last:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, first, last)
    if queue_offset < first:
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, first, first, last)
    if queue_offset == last:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, last, first, last)
    return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, last, first, last)
