"""A consume queue: the positions in the commit log of one queue's messages, in the order of their queue offsets.

     0               8           12              20
    +---------------+-----------+---------------+
    | offset i64    | size i32  | tags code i64 |      entry n at byte 20 n of the queue
    +---------------+-----------+---------------+

Spec: HA-ST-29 "of 20-byte entries: the commit-log offset of a message as an i64, its size as an i32 and its tags code as an
i64".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rocketmq_ha.reference import dispatch_request, java_string, mapped_file_queue, store
from rocketmq_ha.reference.mapped_file_queue import MappedFileQueue
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import Profile

CQ_STORE_UNIT_SIZE = 20  # bytes of an entry
MAPPED_FILE_SIZE_CONSUME_QUEUE = 300_000 * CQ_STORE_UNIT_SIZE
RECOVERED_FILES = 3
LARGEST_GAP = 10  # files that hardened fills with fillers
LARGEST_OFFSET = 1 << 58  # beyond it the place of an entry in its queue is no i64


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: the position, size and tags code of one message."""

    offset: int  # in the commit log
    size: int
    tags_code: int


# HA-ST-33 "MUST be offset 0, size 2,147,483,647, tags code 0".
FILLER = Entry(0, (1 << 31) - 1, 0)


@dataclass(frozen=True, slots=True)
class ConsumeQueue:
    """The files of one queue, and two positions that no file holds: recovery computes them again.

    Spec: HA-ST-30 "MUST hold 300,000 entries, 6,000,000 bytes", unless a store was begun with another number.
    """

    topic: str
    queue_id: int
    mapped_file_queue: MappedFileQueue
    max_physic_offset: int = -1  # end offset in the commit log of the last message put
    min_logic_offset: int = 0  # byte position of the first entry whose message the log still has


class Placed(Enum):
    """The outcome of putting an entry."""

    APPENDED = "appended"
    REPEATED = "repeated"  # the queue has the entry already
    FILLED = "filled"  # hardened: appended, and fillers stand in the skipped places
    MISPLACED = "misplaced"  # classic: appended at a wrong place
    REFUSED = "refused"  # hardened: the gap is larger than LARGEST_GAP files


def empty(topic: str, queue_id: int, file_size: int = MAPPED_FILE_SIZE_CONSUME_QUEUE) -> ConsumeQueue:
    assert file_size % CQ_STORE_UNIT_SIZE == 0
    return ConsumeQueue(topic, queue_id, Log(file_size))


# --- Entries as bytes ------------------------------------------------------------------------------------------------


def encode(entry: Entry) -> bytes:
    """The 20 bytes of an entry.

    >>> encode(FILLER).hex(" ", -8)
    '0000000000000000 7fffffff00000000 00000000'
    """
    return (
        entry.offset.to_bytes(8, "big", signed=True)
        + entry.size.to_bytes(4, "big", signed=True)
        + entry.tags_code.to_bytes(8, "big", signed=True)
    )


def decode(data: bytes) -> Entry:
    """Decode 20 bytes into an entry."""
    assert len(data) == CQ_STORE_UNIT_SIZE
    return Entry(*(int.from_bytes(data[at:end], "big", signed=True) for at, end in ((0, 8), (8, 12), (12, 20))))


def entries(data: bytes) -> list[Entry]:
    """Decode consecutive entries."""
    return [decode(data[at : at + CQ_STORE_UNIT_SIZE]) for at in range(0, len(data), CQ_STORE_UNIT_SIZE)]


def is_entry(entry: Entry) -> bool:
    """Return True if the bytes are an entry: a new file consists of zeros, and no message has the size 0."""
    return entry.offset >= 0 and entry.size > 0


def is_filler(entry: Entry) -> bool:
    """Return True if the entry names no message: none has that size. A power cut may leave the tags code of an older entry."""
    return entry.size == FILLER.size


# --- Reading ---------------------------------------------------------------------------------------------------------


def min_offset_in_queue(queue: ConsumeQueue) -> int:
    """The queue offset of the oldest message that the log still has."""
    return queue.min_logic_offset // CQ_STORE_UNIT_SIZE


def max_offset_in_queue(queue: ConsumeQueue) -> int:
    """The queue offset of the next message."""
    return mapped_file_queue.end(queue.mapped_file_queue) // CQ_STORE_UNIT_SIZE


def entry_at(queue: ConsumeQueue, index: int) -> Entry | None:
    """Entry number `index`, if it is not below the queue's min offset: HA-ST-31 "MUST be entry n of its queue"."""
    files = queue.mapped_file_queue
    if files.base is None or not min_offset_in_queue(queue) <= index < max_offset_in_queue(queue):
        return None
    position = index * CQ_STORE_UNIT_SIZE - files.base
    return decode(files.data[position : position + CQ_STORE_UNIT_SIZE]) if position >= 0 else None


# --- Writing ---------------------------------------------------------------------------------------------------------


def put_message_position_info(
    queue: ConsumeQueue, entry: Entry, cq_offset: int, profile: Profile
) -> tuple[ConsumeQueue, Placed]:
    """Append the entry of the message with queue offset `cq_offset`.

    After a crash the log is dispatched again from before its end, so most calls then repeat existing entries.

    Spec: HA-ST-31 "The entry of the message with queue offset n". Classic breaks it in two ways: HA-ST-74 "takes the next place
    all the same, and so does the entry of queue offset 0". Hardened: HA-ST-75 "MUST fill the places between", "MUST stay as
    it is".
    """
    files = queue.mapped_file_queue
    expect_logic_offset, current_logic_offset = cq_offset * CQ_STORE_UNIT_SIZE, mapped_file_queue.end(files)
    # GUARD
    if entry.offset + entry.size <= queue.max_physic_offset:
        return queue, Placed.REPEATED
    if profile.keeps_queues_right and not 0 <= cq_offset < LARGEST_OFFSET:
        return queue, Placed.REFUSED
    placed = Placed.APPENDED
    if files.base is None:
        files = replace(files, base=expect_logic_offset - expect_logic_offset % files.file_size)
        files = fill_pre_blank(files, expect_logic_offset)
        queue = replace(queue, min_logic_offset=expect_logic_offset)
    elif expect_logic_offset < current_logic_offset and (cq_offset != 0 or profile.keeps_queues_right):
        return queue, Placed.REPEATED
    elif expect_logic_offset != current_logic_offset and not profile.keeps_queues_right:
        placed = Placed.MISPLACED
    elif expect_logic_offset - current_logic_offset > LARGEST_GAP * files.file_size:
        return queue, Placed.REFUSED  # a flipped bit in a queue offset must not fill the disk
    elif expect_logic_offset > current_logic_offset:
        if queue.min_logic_offset == current_logic_offset:  # the log has no other message of this queue
            queue = replace(queue, min_logic_offset=expect_logic_offset)
        files = fill_pre_blank(files, expect_logic_offset)
        placed = Placed.FILLED
    # STATE
    files = mapped_file_queue.append(files, encode(entry))
    return replace(queue, mapped_file_queue=files, max_physic_offset=entry.offset + entry.size), placed


def fill_pre_blank(files: MappedFileQueue, until: int) -> MappedFileQueue:
    """Append fillers, from the end of the files up to `until`: HA-ST-33 "an entry that names no message"."""
    count = (until - mapped_file_queue.end(files)) // CQ_STORE_UNIT_SIZE
    return mapped_file_queue.append(files, encode(FILLER) * count)


# --- Expiry ----------------------------------------------------------------------------------------------------------


def delete_expired_file(queue: ConsumeQueue, phy_min_offset: int, profile: Profile) -> ConsumeQueue:
    """Delete the files whose messages have all left the log, except the last file, and move the queue's min offset.

    Spec: HA-ST-71 "MUST be deleted when all its messages have been deleted", "MUST move to the first message that the log
    still has".

    Classic judges a file by its last entry alone. Where messages are missing in a queue, that entry may be a filler, and then
    the messages before it are lost with the file.
    """
    if profile.keeps_queues_right:
        queue = correct_min_offset(queue, phy_min_offset, profile)
        files = queue.mapped_file_queue
        gone = (queue.min_logic_offset - (files.base or 0)) // files.file_size
        count = min(gone, max(0, mapped_file_queue.file_count(files) - 1))
        return replace(queue, mapped_file_queue=mapped_file_queue.delete_first_files(files, count))
    files = queue.mapped_file_queue
    count = 0
    for index in range(mapped_file_queue.file_count(files) - 1):
        end_of_file = (index + 1) * files.file_size
        if decode(files.data[end_of_file - CQ_STORE_UNIT_SIZE : end_of_file]).offset >= phy_min_offset:
            break
        count += 1
    queue = replace(queue, mapped_file_queue=mapped_file_queue.delete_first_files(files, count))
    return correct_min_offset(queue, phy_min_offset, profile)


def correct_min_offset(queue: ConsumeQueue, phy_min_offset: int, profile: Profile) -> ConsumeQueue:
    """Set the queue's min offset to the first entry whose message the log still has.

    Classic reads the first file alone, keeps the old value if no entry of it names such a message, and takes a filler for a
    message, as long as the log begins at 0. Hardened does none of the three: if every message is deleted, the min offset is
    the max offset.
    """
    files = queue.mapped_file_queue
    if files.base is None:
        return queue
    data = files.data if profile.keeps_queues_right else files.data[: files.file_size]
    for index, entry in enumerate(entries(data)):
        if entry.offset >= phy_min_offset and not (profile.keeps_queues_right and is_filler(entry)):
            return replace(queue, min_logic_offset=files.base + index * CQ_STORE_UNIT_SIZE)
    return replace(queue, min_logic_offset=mapped_file_queue.end(files)) if profile.keeps_queues_right else queue


def upper_offset_in_queue_by_time(queue: ConsumeQueue, log: Log, timestamp: int) -> int:
    """Hardened: the queue offset of the last message that was stored at `timestamp` or before; 0 if none was.

    HA-ST-94 "MUST find the last message of the queue that is not newer, or 0": of those that the log still has. 5.3.3 gives the
    same (its UPPER bound).
    """
    found = 0
    for index in range(min_offset_in_queue(queue), max_offset_in_queue(queue)):
        entry = entry_at(queue, index)
        assert entry is not None
        if not is_filler(entry) and entry.offset >= store.min_offset(log):
            if dispatch_request.pickup_store_timestamp(log, entry.offset) > timestamp:
                break
            found = index
    return found


# --- Recovery --------------------------------------------------------------------------------------------------------


def recover(queue: ConsumeQueue, profile: Profile) -> ConsumeQueue:
    """Cut the queue behind its last valid entry, searching from three files before the end.

    HA-ST-77 "counts as the entry of a message that ends at offset 2 GiB": if it is the last one, classic puts
    nothing below that into this queue any more.
    """
    files = queue.mapped_file_queue
    if files.base is None:
        return queue
    position = max(0, mapped_file_queue.file_count(files) - RECOVERED_FILES) * files.file_size
    max_physic_offset = queue.max_physic_offset
    for entry in entries(files.data[position:]):
        if not is_entry(entry):
            break
        position += CQ_STORE_UNIT_SIZE
        if not is_filler(entry) or not profile.keeps_queues_right:
            max_physic_offset = entry.offset + entry.size
    files = mapped_file_queue.truncate_dirty_files(files, files.base + position, profile)
    return replace(queue, mapped_file_queue=files, max_physic_offset=max_physic_offset)


def truncate_dirty_logic_files(queue: ConsumeQueue, phy_offset: int) -> ConsumeQueue:
    """Classic: remove the entries of messages at or beyond `phy_offset`, file by file from the last one backwards.

    Spec: HA-ST-38 "a consume queue MUST NOT name a message beyond the end of the commit log". The first 20 bytes of a file stay
    if their offset is small enough, even zeros, which count as an entry from then on (observed in 4.9.8). The bytes of removed
    entries stay in the file, as in the log (quirk 35): once the log has grown past their offsets, the next recovery takes them
    for entries again.
    """
    files = queue.mapped_file_queue
    image = files.data + files.stale
    for index in reversed(range(mapped_file_queue.file_count(files))):
        start = index * files.file_size
        found = entries((image[start : start + files.file_size]).ljust(files.file_size, b"\0"))
        if found[0].offset >= phy_offset:
            continue
        count = 1
        while count < len(found) and is_entry(found[count]) and found[count].offset < phy_offset:
            count += 1
        wrote = start + count * CQ_STORE_UNIT_SIZE
        stale = image[wrote : start + files.file_size].rstrip(b"\0")
        files = replace(files, data=image[:wrote].ljust(wrote, b"\0"), stale=stale)
        last = found[count - 1]
        return replace(queue, mapped_file_queue=files, max_physic_offset=last.offset + last.size)
    return replace(queue, mapped_file_queue=Log(files.file_size), max_physic_offset=phy_offset)


def cut(queue: ConsumeQueue, log: Log, phy_offset: int, profile: Profile, *, is_clean: bool = False) -> ConsumeQueue:
    """Hardened: keep the entries of messages that end by `phy_offset`, and check the last of them against the log.

    After a clean stop all entries are on the disk, and none is checked.

    These entries were dispatched and flushed. Each message begins behind the one before, so the search goes forward until an
    entry breaks this order; it starts at the last file whose first entry is of a kept message, so its cost does not grow with
    the queue. A torn entry seldom fits this order. If it does it is the last one, and the log has no message of this queue and
    queue offset at its position. Entries of expired messages cannot be checked any more.

    Spec: HA-ST-82 "MUST keep the entries that the checkpoint vouches for, and no other"; HA-ST-38 "a consume queue MUST NOT
    name a message beyond the end of the commit log".
    """
    files = queue.mapped_file_queue
    if files.base is None:
        return queue
    found = entries(files.data)
    of_a_file = files.file_size // CQ_STORE_UNIT_SIZE
    begins = (first for first in range(0, len(found), of_a_file) if not is_filler(found[first]))
    count = max((first for first in begins if _ends_by(found[first], phy_offset)), default=0)
    last = None  # message
    while count < len(found) and _ends_by(found[count], phy_offset) and _follows(found[count], last):
        last = last if is_filler(found[count]) else found[count]
        count += 1
    first_index = files.base // CQ_STORE_UNIT_SIZE
    while count > 0 and not _is_last(queue, found[count - 1], first_index + count - 1, log, phy_offset, is_clean=is_clean):
        count -= 1
    if count == 0:
        return empty(queue.topic, queue.queue_id, files.file_size)
    files = mapped_file_queue.truncate_dirty_files(files, files.base + count * CQ_STORE_UNIT_SIZE, profile)
    return replace(
        queue,
        mapped_file_queue=files,
        max_physic_offset=found[count - 1].offset + found[count - 1].size,
        min_logic_offset=min(queue.min_logic_offset, mapped_file_queue.end(files)),
    )


def keep_expired(queue: ConsumeQueue, log: Log, before: int | None, profile: Profile) -> ConsumeQueue:
    """Hardened, if recovery begins where the log does: keep the entries of expired messages, with fillers in all other places.

    The checkpoint vouches for none of them. They are kept so that the next message gets the next queue offset. They may be out
    of order: after a power cut the queue gives the numbers of lost messages to others, and a second power cut may take some of
    the new sectors and leave the old ones in their places.

    Args:  before: the queue offset of the first message of this queue in the log; None if it has none.
    Spec: HA-ST-97 "MUST keep its entries of messages that have expired"; HA-ST-33 "an entry that names no message".
    """
    files = queue.mapped_file_queue
    if files.base is None:
        return queue
    found = entries(files.data)
    first_index = files.base // CQ_STORE_UNIT_SIZE
    count = len(found) if before is None else max(0, min(len(found), before - first_index))
    kept: list[Entry] = []
    last = None  # message
    for entry in found[:count]:
        is_expired = not is_filler(entry) and _ends_by(entry, store.min_offset(log)) and _follows(entry, last)
        last = entry if is_expired else last
        kept.append(entry if is_expired else FILLER)
    while kept and kept[-1] == FILLER:
        kept.pop()
    if last is None:
        return empty(queue.topic, queue.queue_id, files.file_size)
    files = mapped_file_queue.truncate_dirty_files(files, files.base + len(kept) * CQ_STORE_UNIT_SIZE, profile)
    return replace(
        queue,
        mapped_file_queue=replace(files, data=b"".join(map(encode, kept))),
        max_physic_offset=last.offset + last.size,
        min_logic_offset=min(queue.min_logic_offset, mapped_file_queue.end(files)),
    )


def _ends_by(entry: Entry, phy_offset: int) -> bool:
    return is_filler(entry) or (is_entry(entry) and entry.offset + entry.size <= phy_offset)


def _follows(entry: Entry, last: Entry | None) -> bool:
    return is_filler(entry) or last is None or last.offset + last.size <= entry.offset


def _is_last(queue: ConsumeQueue, entry: Entry, cq_offset: int, log: Log, phy_offset: int, *, is_clean: bool) -> bool:
    """Return True if the entry may be the queue's last: the log has its message there, or the message has expired."""
    if is_filler(entry) or not _ends_by(entry, phy_offset):
        return False
    if is_clean or entry.offset < store.min_offset(log):
        return True
    found = dispatch_request.own_record_at(log, entry.offset)
    if found is None:
        return False
    record, size = found
    told = (java_string.text(record.topic), record.queue_id, record.queue_offset, size)
    return told == (queue.topic, queue.queue_id, cq_offset, entry.size)


# --- By time ---------------------------------------------------------------------------------------------------------


def offset_in_queue_by_time(queue: ConsumeQueue, log: Log, timestamp: int, last_modified_ms: Sequence[int]) -> int:
    """Classic: the queue offset of a message stored at about `timestamp`.

    HA-ST-80 "begins at the nearest message of one file": the first file whose last write is at or after that time, else
    the last file. Among several messages of exactly that ms it gives the first that the binary search meets; else the nearer of
    two neighbours, or the earlier one if both are equally near.
    """
    files = queue.mapped_file_queue
    if files.base is None:
        return 0
    count = mapped_file_queue.file_count(files)
    assert len(last_modified_ms) == count
    index = next((index for index in range(count) if last_modified_ms[index] >= timestamp), count - 1)
    base = files.base + index * files.file_size
    data = files.data[index * files.file_size : (index + 1) * files.file_size]
    if not data:
        return 0
    low, high = max(0, queue.min_logic_offset - base), len(data) - CQ_STORE_UNIT_SIZE
    target_offset, left_offset, right_offset, left_index_value, right_index_value = -1, -1, -1, -1, -1
    while high >= low:
        mid_offset = (low + high) // (2 * CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE
        entry = decode(data[mid_offset : mid_offset + CQ_STORE_UNIT_SIZE])
        if entry.offset < store.min_offset(log):
            low, left_offset = mid_offset + CQ_STORE_UNIT_SIZE, mid_offset
            continue
        store_time = dispatch_request.pickup_store_timestamp(log, entry.offset)
        if store_time < 0:
            return 0
        if store_time == timestamp:
            target_offset = mid_offset
            break
        if store_time > timestamp:
            high, right_offset, right_index_value = mid_offset - CQ_STORE_UNIT_SIZE, mid_offset, store_time
        else:
            low, left_offset, left_index_value = mid_offset + CQ_STORE_UNIT_SIZE, mid_offset, store_time
    if target_offset != -1:
        offset = target_offset
    elif left_index_value == -1:
        offset = right_offset
    elif right_index_value == -1:
        offset = left_offset
    else:
        offset = right_offset if timestamp - left_index_value > right_index_value - timestamp else left_offset
    return max(0, base + offset) // CQ_STORE_UNIT_SIZE


def _is_filler_at(queue: ConsumeQueue, index: int) -> bool:
    entry = entry_at(queue, index)
    return entry is not None and is_filler(entry)


def lower_offset_in_queue_by_time(queue: ConsumeQueue, log: Log, timestamp: int) -> int:
    """Hardened: the queue offset of the first message that was stored at `timestamp` or after; the max offset if none was.

    HA-ST-81 "MUST begin at the first message of the queue that is not older": a consumer that starts there misses no
    message, and the modification times of files do not matter. 5.3.3 gives the same (its LOWER bound). A filler
    goes with the message before it.
    """
    low, high = min_offset_in_queue(queue), max_offset_in_queue(queue)
    while low < high:
        middle = told_by = (low + high) // 2
        while told_by > low and _is_filler_at(queue, told_by):
            told_by -= 1
        entry = entry_at(queue, told_by)
        assert entry is not None
        gone = is_filler(entry) or entry.offset < store.min_offset(log)
        if gone or dispatch_request.pickup_store_timestamp(log, entry.offset) < timestamp:
            low = middle + 1
        else:
            high = middle
    return low
