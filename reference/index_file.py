"""An index file: from the hash of `topic#key` to commit-log offsets, as functions of its bytes.

    header 40   begin and end timestamp, begin and end offset (i64 each), hash slot count, index count (i32 each)
    slots       4 each: the number of the newest entry of its hashes, 0 if there is none
    entries     20 each: key hash i32, offset i64, seconds since the begin timestamp i32, number of the entry before i32

Spec: HA-ST-40 "A slot MUST hold the number of the newest entry of its hash", HA-ST-41 "An entry MUST be 20 bytes".

>>> index_file_size(5_000_000, 20_000_000)
420000040
"""

import struct
from dataclasses import dataclass
from functools import lru_cache

from rocketmq_ha.reference import java_string
from rocketmq_ha.reference.replace import replace

INDEX_HEADER_SIZE = 40
HASH_SLOT_SIZE = 4
INDEX_SIZE = 20
MAX_HASH_SLOT_NUM = 5_000_000  # HA-ST-43 "MUST hold 5,000,000 slots and 20,000,000 entries"
MAX_INDEX_NUM = 20_000_000
INVALID_INDEX = 0
I32_MAX = (1 << 31) - 1
HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """HA-ST-39 "MUST be 40 bytes: the store timestamps of its first and its last message, their commit-log offsets"."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1  # HA-ST-39 "how many slots are counted as used, and how many entries"; HA-ST-83 "MUST begin at 1"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One key of one message."""

    key_hash: int
    phy_offset: int
    time_diff: int
    prev_index: int


@dataclass(frozen=True, slots=True)
class IndexFile:
    """`name` is its creation time, `yyyyMMddHHmmssSSS`. The file does not say for how many slots and entries it has room."""

    name: str
    hash_slot_num: int
    index_num: int
    data: bytes


def index_file_size(hash_slot_num: int, index_num: int) -> int:
    return INDEX_HEADER_SIZE + hash_slot_num * HASH_SLOT_SIZE + index_num * INDEX_SIZE


def create(name: str, hash_slot_num: int, index_num: int, before: IndexFile | None = None) -> IndexFile:
    """A new file without entries. HA-ST-83 "its header MUST have the end of the file before it as its begin and its end"."""
    told = header(before) if before else IndexHeader()
    empty = IndexFile(name, hash_slot_num, index_num, bytes(index_file_size(hash_slot_num, index_num)))
    # RocketMQ writes the two counts of a new header with the first entry; until then both are 0 in the file.
    begin = IndexHeader(told.end_timestamp, told.end_timestamp, told.end_phy_offset, told.end_phy_offset, 0, 0)
    return _write(empty, 0, encode_header(begin))


# --- Bytes -----------------------------------------------------------------------------------------------------------


def _number(data: bytes, position: int, width: int) -> int:
    return int.from_bytes(data[position : position + width], "big", signed=True)


def _write(index: IndexFile, position: int, data: bytes) -> IndexFile:
    return replace(index, data=index.data[:position] + data + index.data[position + len(data) :])


def encode_header(header: IndexHeader) -> bytes:
    """40 bytes."""
    times_and_offsets = (header.begin_timestamp, header.end_timestamp, header.begin_phy_offset, header.end_phy_offset)
    counts = (header.hash_slot_count, header.index_count)
    return b"".join(
        [
            *(value.to_bytes(8, "big", signed=True) for value in times_and_offsets),
            *(value.to_bytes(4, "big") for value in counts),
        ]
    )


def header(index: IndexFile) -> IndexHeader:
    """The header of a file. A count of no entries is read as 1."""
    return _decode_header(index.data[:INDEX_HEADER_SIZE])


@lru_cache(maxsize=1024)
def _decode_header(data: bytes) -> IndexHeader:
    *times_and_offsets, hash_slot_count, index_count = HEADER.unpack(data)
    return IndexHeader(*times_and_offsets, hash_slot_count, max(1, index_count))


def encode_entry(entry: IndexEntry) -> bytes:
    """20 bytes."""
    return (
        entry.key_hash.to_bytes(4, "big")
        + entry.phy_offset.to_bytes(8, "big", signed=True)
        + entry.time_diff.to_bytes(4, "big", signed=True)
        + entry.prev_index.to_bytes(4, "big", signed=True)
    )


def entry(index: IndexFile, number: int) -> IndexEntry:
    return IndexEntry(*ENTRY.unpack_from(index.data, entry_position(index, number)))


def entries(index: IndexFile) -> list[IndexEntry]:
    """The entries that the header counts, from the first, as far as the file has room for them."""
    start, count = entry_position(index, 1), min(header(index).index_count, index.index_num) - 1
    return [IndexEntry(*fields) for fields in ENTRY.iter_unpack(index.data[start : start + count * INDEX_SIZE])]


def slot_position(index: IndexFile, key_hash: int) -> int:
    return INDEX_HEADER_SIZE + key_hash % index.hash_slot_num * HASH_SLOT_SIZE


def entry_position(index: IndexFile, number: int) -> int:
    return INDEX_HEADER_SIZE + index.hash_slot_num * HASH_SLOT_SIZE + number * INDEX_SIZE


def slot_value(index: IndexFile, key_hash: int) -> int:
    """The number of the slot's newest entry; 0 if there is none, or if the number is impossible."""
    value = _number(index.data, slot_position(index, key_hash), HASH_SLOT_SIZE)
    return value if INVALID_INDEX < value <= header(index).index_count else INVALID_INDEX


# --- Keys ------------------------------------------------------------------------------------------------------------


def build_key(topic: str, key: str) -> str:
    """HA-ST-42 "The hash MUST be that of `topic#key`"."""
    return f"{topic}#{key}"


def index_key_hash(key: str) -> int:
    """HA-ST-42 "the absolute value of its Java `String.hashCode`, or 0 where that is still negative".

    >>> index_key_hash("polygenelubricants")
    0
    >>> index_key_hash("refund")
    934813832
    """
    key_hash = abs(java_string.hash_code(key))
    return key_hash if key_hash <= I32_MAX else 0


# --- Writing ---------------------------------------------------------------------------------------------------------


def is_write_full(index: IndexFile) -> bool:
    """Return True if the file is full. Entry 0 counts, so a file for 4,000 entries holds 3,999 keys."""
    return header(index).index_count >= index.index_num


def seconds_since(begin_timestamp: int, store_timestamp: int) -> int:
    """HA-ST-41 "the seconds since the file's first message as an i32"; HA-ST-84 "was stored before the file's first MUST be 0".

    >>> seconds_since(1_000, 4_999), seconds_since(9_000, 1_000), seconds_since(0, 5_000), seconds_since(1, 1 << 62) == I32_MAX
    (3, 0, 0, True)
    """
    if begin_timestamp <= 0:
        return 0
    return min(I32_MAX, max(0, store_timestamp - begin_timestamp) // 1000)


def put_key(
    index: IndexFile, key: str, phy_offset: int, store_timestamp: int, *, counts_every_put: bool = False
) -> IndexFile | None:
    """Add an entry at the head of its slot's chain. Returns: None if the file is full.

    `counts_every_put`: `hash_slot_count` grows with each entry, as in 4.3 and 4.5.2; else with the first of a slot.

    HA-ST-84 "Those of the first entry MUST be counted from the end of the file before": the file's begin timestamp is
    set only afterwards. So after an hour without keys the first message seems an hour younger than it is.
    """
    told = header(index)
    # GUARD
    if told.index_count >= index.index_num:
        return None
    # STATE
    key_hash = index_key_hash(key)
    slot, number = slot_value(index, key_hash), told.index_count
    added = IndexEntry(key_hash, phy_offset, seconds_since(told.begin_timestamp, store_timestamp), slot)
    if number == 1:
        told = replace(told, begin_phy_offset=phy_offset, begin_timestamp=store_timestamp)
    told = replace(
        told,
        end_phy_offset=phy_offset,
        end_timestamp=store_timestamp,
        hash_slot_count=told.hash_slot_count + (counts_every_put or slot == INVALID_INDEX),
        index_count=number + 1,
    )
    index = _write(index, entry_position(index, number), encode_entry(added))
    index = _write(index, slot_position(index, key_hash), number.to_bytes(HASH_SLOT_SIZE, "big"))
    return _write(index, 0, encode_header(told))


# --- Reading ---------------------------------------------------------------------------------------------------------


def is_time_matched(index: IndexFile, begin: int, end: int) -> bool:
    """Return True if the time span of a query and that of the file overlap."""
    told = header(index)
    return (
        (begin < told.begin_timestamp and end > told.end_timestamp)
        or told.begin_timestamp <= begin <= told.end_timestamp
        or told.begin_timestamp <= end <= told.end_timestamp
    )


def select_phy_offset(index: IndexFile, key: str, max_num: int, begin: int, end: int) -> list[int]:
    """The offsets of one file's messages that may have the key, the newest first, `max_num` at most.

    Spec: HA-ST-44 "A query MUST find messages by key within a span of store times". The time of an entry is
    the begin timestamp plus whole seconds. HA-ST-41 "a negative time marks it void", and ends the chain.
    """
    told, key_hash = header(index), index_key_hash(key)
    found: list[int] = []
    number = slot_value(index, key_hash) if told.index_count > 1 else INVALID_INDEX
    while number != INVALID_INDEX and len(found) < max_num:
        read = entry(index, number)
        if read.time_diff < 0:
            break
        time_read = told.begin_timestamp + read.time_diff * 1000
        if read.key_hash == key_hash and begin <= time_read <= end:
            found.append(read.phy_offset)
        # HA-ST-40 "0 ending the chain"; an entry that names itself, or one that is not there yet, ends it as well.
        is_last = not INVALID_INDEX < read.prev_index <= told.index_count or read.prev_index == number
        number = INVALID_INDEX if is_last or time_read < begin else read.prev_index
    return found
