"""Read the messages of a queue that a consumer has subscribed to: its entries by tags code, then the records, without a copy.

Records that follow one another in the log come as one view. So the messages of a busy queue are few buffers of the answer,
whatever their number.

Source: 4.9.8 DefaultMessageStore.getMessage.
"""

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY_SIZE, FILLER_SIZE
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.log.commit_log import CommitLog

LOOKED_AT: Final = 800  # entries; 4.9.8 counts them as 16,000 bytes
MOST_LOOKED_AT: Final = 2_048  # entries of one pull, whatever it asks for: a quarter of a millisecond
_ENTRY: Final = struct.Struct(">qi4xi")  # offset, size, the lower half of the tags code
_TAGS_CODE: Final = struct.Struct(">16xi")

TagCodes = frozenset[int] | None  # the hashes of the tags that a consumer wants; None for all messages


@dataclass(frozen=True, slots=True)
class PullBounds:
    """How much one pull reads: in memory, and further than `memory` bytes before the end of the log, on disk.

    Spec: HA-P-9; the defaults are RocketMQ's.
    """

    memory: int  # bytes
    messages_in_memory: int = 32
    bytes_in_memory: int = 256 << 10
    messages_on_disk: int = 8
    bytes_on_disk: int = 64 << 10


class PullResult(NamedTuple):
    """What a pull has found.

    buffers: views of whole records, one after the other, not copied and not checked; they stay valid while they are
    referenced. lag: bytes from the last message that was looked at to the end of the log; 0 if none was.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    buffers: tuple[memoryview, ...] = ()
    messages: int = 0  # in the buffers
    lag: int = 0


def pull_messages(
    log: CommitLog, queue: ConsumeQueue, queue_offset: int, max_msg_nums: int, codes: TagCodes, bounds: PullBounds
) -> PullResult:
    """Read what a consumer wants of a queue, from a queue offset on. HA-ST-37 "through the consume queue".

    Spec: HA-P-7 "MUST be those of the first row of the table that applies"; HA-P-5 "the lower 32 bits of the tags code in its
    queue entry, as an i32".

    Returns: as for a master: the next offset corrects one that is outside the queue.
    """
    first, last = queue.min_offset, queue.max_offset
    if not first <= queue_offset < last:
        return _outside(queue_offset, first, last)
    # HA-P-8 "as many entries as the greater of 800 and `maxMsgNums`", "it MAY stop before".
    limit = LOOKED_AT if max_msg_nums <= LOOKED_AT else min(max_msg_nums, MOST_LOOKED_AT)
    try:
        entries = queue.read(queue_offset, limit)
    except FileNotFoundError:
        entries = memoryview(b"")
    if not entries:  # its file was deleted meanwhile
        next_begin_offset = queue_offset - queue_offset % queue.file_entries + queue.file_entries
        return PullResult(GetMessageStatus.OFFSET_FOUND_NULL, next_begin_offset, first, last)
    max_offset = log.max_offset
    in_memory_from = max_offset - bounds.memory  # HA-P-10 "further from its offset than the memory bound"
    # HA-P-9 "has `maxMsgNums` of them, or would be larger than the bounds of the table with the next".
    most_in_memory, most_on_disk = min(max_msg_nums, bounds.messages_in_memory), min(max_msg_nums, bounds.messages_on_disk)
    bytes_in_memory, bytes_on_disk = bounds.bytes_in_memory, bounds.bytes_on_disk
    buffers: list[memoryview] = []
    view = memoryview(b"")  # bytes of the log from `begin` on
    begin = there = run_start = run_end = 0  # the run: records in `view` that follow one another
    looked = count = total = 0
    last_offset = max_offset  # of the last message that was looked at
    is_removing = False
    for offset, size, code in _ENTRY.iter_unpack(entries):
        looked += 1
        if size == FILLER_SIZE:  # HA-P-12 "A filler (HA-ST-33) MUST be passed over, and MUST NOT count"
            continue
        last_offset = offset  # HA-R-21 "whether or not it matched the subscription"
        if count:  # HA-P-9 "The batch MUST be full before an entry if it has a message already"
            if offset >= in_memory_from:
                is_full = count >= most_in_memory or total + size > bytes_in_memory
            else:
                is_full = count >= most_on_disk or total + size > bytes_on_disk
            if is_full:
                looked -= 1
                break
        if codes is not None and code not in codes:
            continue
        start = offset - begin
        end = start + size
        if start < 0 or end > there:
            found = log.data_at(offset, log.file_size)
            if found is None or len(found) < size:  # HA-P-11 "whose message the log does not have any more"
                is_removing = True
                continue
            if run_end:
                buffers.append(view[run_start:run_end])
            view, begin, there, start, end = found, offset, len(found), 0, size
            run_start, run_end = 0, end
        elif start == run_end:
            run_end = end
        else:
            buffers.append(view[run_start:run_end])
            run_start, run_end = start, end
        count += 1
        total += size
    if count:
        buffers.append(view[run_start:run_end])
        status = GetMessageStatus.FOUND
    else:
        status = GetMessageStatus.MESSAGE_WAS_REMOVING if is_removing else GetMessageStatus.NO_MATCHED_MESSAGE
    return PullResult(status, queue_offset + looked, first, last, tuple(buffers), count, max_offset - last_offset)


def has_message_for(queue: ConsumeQueue, queue_offset: int, codes: TagCodes) -> tuple[bool, int]:
    """Whether a message for a consumer is in a queue from an offset on, and the offset up to which it was looked for.

    A file of the queue that was deleted meanwhile counts as such a message: the pull itself finds out.
    """
    last = queue.max_offset
    if codes is None or queue_offset >= last:
        return queue_offset < last, max(queue_offset, last)  # a pull from beyond the end waits for what it wants
    at = max(queue_offset, queue.min_offset)
    while at < last:
        try:
            entries = queue.read(at, min(last - at, MOST_LOOKED_AT))
        except FileNotFoundError:
            entries = memoryview(b"")
        if not entries or any(code in codes for (code,) in _TAGS_CODE.iter_unpack(entries)):
            return True, at
        at += len(entries) // ENTRY_SIZE
    return False, last


def _outside(queue_offset: int, first: int, last: int) -> PullResult:
    """The result for an offset without an entry."""
    if last == 0:
        return PullResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, first, last)
    if queue_offset < first:
        return PullResult(GetMessageStatus.OFFSET_TOO_SMALL, first, first, last)
    if queue_offset == last:
        return PullResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, last, first, last)
    return PullResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, last, first, last)
