"""The index of a store, as a list of index files, oldest first: adding keys, queries, expiry, recovery."""

from collections.abc import Sequence

from rocketmq_ha.reference import dispatch_request, index_file
from rocketmq_ha.reference.dispatch_request import DispatchRequest
from rocketmq_ha.reference.index_file import INVALID_INDEX, IndexEntry, IndexFile
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import Profile

Index = tuple[IndexFile, ...]
MAX_MSGS_NUM_BATCH = 64  # most results of a query
NOTHING = IndexEntry(0, 0, 0, 0)  # no key makes this entry, except one of hash 0 at offset 0


def get_and_create_last_index_file(index: Index, made_at: str, hash_slot_num: int, index_num: int) -> Index:
    """Make sure that the last file has room; if not, add a new one, HA-ST-43 "named by the time of its making".

    HA-ST-88 "MUST be above that of the last one": files are loaded in the order of their names. If the time is not later
    than the last file's name, the new name is that name plus one. RocketMQ would open the old file again, or load the files in
    another order.
    """
    if not index:
        return (index_file.create(made_at, hash_slot_num, index_num),)
    last = index[-1]
    if not index_file.is_write_full(last):
        return index
    name = made_at if made_at > last.name else f"{int(last.name) + 1:0{len(last.name)}d}"
    return (*index, index_file.create(name, hash_slot_num, index_num, last))


def build_index(
    index: Index,
    request: DispatchRequest,
    made_at: str,
    profile: Profile,
    hash_slot_num: int = index_file.MAX_HASH_SLOT_NUM,
    index_num: int = index_file.MAX_INDEX_NUM,
    *,
    counts_every_put: bool = False,
) -> Index:
    """Add every key of a message: its unique key, then the others. Keys that the index has already are not added again.

    One message's keys may lie in two files, so after a crash the index may have only some keys of its last message. If that
    message is dispatched again, classic adds all keys once more, and a query finds its offset twice; hardened adds only the
    missing ones. Classic makes a new file early, even for a message without keys; hardened makes it when a key needs it.
    """
    keys = request.keys
    if not profile.keeps_index_right:
        index = get_and_create_last_index_file(index, made_at, hash_slot_num, index_num)
    elif request.commit_log_offset == end_phy_offset(index):
        keys = keys[_entries_at_the_end(index, request.commit_log_offset) :]
    if request.commit_log_offset < end_phy_offset(index) or not dispatch_request.is_indexed(request.sys_flag):
        return index
    for key in keys:
        index = get_and_create_last_index_file(index, made_at, hash_slot_num, index_num)
        added = index_file.put_key(
            index[-1],
            index_file.build_key(request.topic, key),
            request.commit_log_offset,
            request.store_timestamp,
            counts_every_put=counts_every_put,
        )
        assert added is not None
        index = (*index[:-1], added)
    return index


def _entries_at_the_end(index: Index, phy_offset: int) -> int:
    """Count the last entries that belong to the message at an offset."""
    count = 0
    for file in reversed(index):
        for number in reversed(range(1, index_file.header(file).index_count)):
            if index_file.entry(file, number).phy_offset != phy_offset:
                return count
            count += 1
    return count


def end_phy_offset(index: Index) -> int:
    """The commit-log offset of the last message in the index; 0 if the index is empty."""
    return index_file.header(index[-1]).end_phy_offset if index else 0


def query_offset(index: Sequence[IndexFile], topic: str, key: str, max_num: int, begin: int, end: int) -> list[int]:
    """The offsets of the newest messages that may have the key, newest first: HA-ST-44 "within a span of store times".

    HA-ST-85 "MUST give the newest of the messages that match". HA-ST-86 "MUST be thrown away by their reader": the caller
    does that. RocketMQ sorts them by offset before it answers.
    """
    found: list[int] = []
    max_num = min(max_num, MAX_MSGS_NUM_BATCH)
    for file in reversed(index):
        if index_file.is_time_matched(file, begin, end):
            found += index_file.select_phy_offset(file, index_file.build_key(topic, key), max_num - len(found), begin, end)
        if index_file.header(file).begin_timestamp < begin or len(found) >= max_num:
            break
    return found


def delete_expired_file(index: Index, phy_min_offset: int) -> Index:
    """Delete the files whose messages have all left the log, except the last file."""
    count = 0
    while count < len(index) - 1 and index_file.header(index[count]).end_phy_offset < phy_min_offset:
        count += 1
    return index[count:]


def load(index: Index, last_exit_ok: bool, index_msg_timestamp: int) -> Index:
    """Load the index files. Classic: after an unclean stop keep only the files that end by the checkpoint's third time.

    Spec: HA-ST-87 "the keys of messages between the end of the last index file that was kept"; HA-ST-24 "then the index are on
    the disk": the third time is the end timestamp of a full file. A further file
    with the same ms is kept, too, although nobody knows how much of it reached the disk.
    """
    return tuple(file for file in index if last_exit_ok or index_file.header(file).end_timestamp <= index_msg_timestamp)


def count_vouched(index: Index, index_msg_timestamp: int | None, end: int) -> int:
    """Hardened: count the leading files that are complete on the disk and name no message at or beyond `end`.

    `index_msg_timestamp` None: the stop was clean, so all files are complete. Else the full files are, up to the first that
    ends at that time: files are flushed in order.
    """
    count, end_timestamp = 0, 0
    while count < len(index) and index_file.header(index[count]).end_phy_offset < end:
        if index_msg_timestamp is not None:
            told = index_file.header(index[count]).end_timestamp
            if end_timestamp >= index_msg_timestamp or told > index_msg_timestamp or not index_file.is_write_full(index[count]):
                break
            end_timestamp = told
        count += 1
    return count


def cut(index: Index, log: Log, end: int, vouched: int) -> tuple[Index, int]:
    """Hardened: remove the entries of messages at or beyond `end`, as if they had never been put; the first files stay.

    Classic leaves these entries. Once the log has grown again they point at other messages, and only a reader that checks the
    key of the message notices it. Spec: HA-ST-45 "MUST keep the entries of messages before the file at which recovery begins,
    as far as it is in order". Returns: the index, and the offset from which on a key may be missing: `end`, or that of the last
    message before something that is out of order.
    """
    kept = list(index[:vouched])
    for file in index[vouched:]:
        told = index_file.header(file)
        if told.begin_phy_offset >= end:
            break
        count, is_damaged = _in_order(file, end)
        if count > 1:
            kept.append(_without(file, count, log))
            end = index_file.entry(file, count - 1).phy_offset if is_damaged else end
        else:  # the file begins before `end`, so it had entries
            return tuple(kept), told.begin_phy_offset if told.index_count > 1 else end_phy_offset(tuple(kept))
    return tuple(kept), end


def _in_order(file: IndexFile, end: int) -> tuple[int, bool]:
    """The number of the first entry to remove, and whether the removed ones include one of a message before `end`.

    Zeros are no entry: these bytes have not reached the disk.
    """
    newest: dict[int, int] = {}
    last_offset, count = -1, index_file.header(file).index_count
    for number in range(1, count):
        read = index_file.entry(file, number)
        slot = read.key_hash % file.hash_slot_num
        if read.phy_offset >= end and read != NOTHING:
            return number, False
        is_next = read.phy_offset >= last_offset and read.time_diff >= 0 and read.key_hash >= 0
        if read == NOTHING or not is_next or read.prev_index != newest.get(slot, INVALID_INDEX):
            others = (index_file.entry(file, other).phy_offset for other in range(number + 1, count))
            is_told = read != NOTHING or index_file.header(file).end_phy_offset < end
            return number, is_told or any(last_offset < other < end for other in others)
        newest[slot], last_offset = number, read.phy_offset
    return count, False


def _without(file: IndexFile, count: int, log: Log) -> IndexFile:
    """The file with only its first `count` entries, entry 0 included. Slots point at remaining entries; the rest is zero."""
    told, newest = index_file.header(file), {}
    position = index_file.entry_position(file, 0)
    data = bytearray(file.data[:position].ljust(len(file.data), b"\0"))
    data[index_file.INDEX_HEADER_SIZE : position] = bytes(position - index_file.INDEX_HEADER_SIZE)
    for number in range(1, count):
        read = index_file.entry(file, number)
        at = index_file.slot_position(file, read.key_hash)
        data[at : at + index_file.HASH_SLOT_SIZE] = number.to_bytes(index_file.HASH_SLOT_SIZE, "big")
        newest[at] = number
    end = index_file.entry_position(file, count)
    data[position:end] = file.data[position:end]
    last = index_file.entry(file, count - 1)
    told = replace(
        told,
        end_timestamp=dispatch_request.stored_ms(log, last.phy_offset),
        end_phy_offset=last.phy_offset,
        hash_slot_count=len(newest),
        index_count=count,
    )
    data[: index_file.INDEX_HEADER_SIZE] = index_file.encode_header(told)
    return replace(file, data=bytes(data))
