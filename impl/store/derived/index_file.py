"""One index file: slots by hash, each the head of a chain of entries, newest first.

    header, 40 bytes = begin timestamp i64, end timestamp i64, begin offset i64, end offset i64, slots used i32, entries i32
    slot, 4 bytes    = number of the newest entry of its hashes, or 0
    entry, 20 bytes  = hash i32, commit-log offset i64, seconds since the begin timestamp i32, number of the entry before i32

The count of entries starts at 1, so entry 0 is never used. The file has its full length from the start, 420,000,040 bytes, and
is sparse: space for header and slots is allocated when it is made, space for entries as they come (HA-ST-8).

A batch is written in an order that a reader beside it can stand: entries, then the header with their count, then the slots
that lead to them.

Spec: HA-ST-39 "The header of an index file MUST be 40 bytes"; HA-ST-40 "A slot MUST hold the number of the newest entry of its
hash"; HA-ST-41 "An entry MUST be 20 bytes: the hash as an i32".
Source: article 003 section 1.3; 4.9.8 IndexFile and IndexHeader.
"""

import errno
import mmap
import os
import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.log.creation import create_whole
from rocketmq_ha.impl.store.log.mapped_file import sync_again

HEADER_SIZE: Final = 40
SLOT_SIZE: Final = 4
ENTRY_SIZE: Final = 20
HASH_SLOT_NUM: Final = 5_000_000
INDEX_NUM: Final = 20_000_000
_HEADER: Final = struct.Struct(">qqqqii")
_ENTRY: Final = struct.Struct(">iqii")
_INT: Final = struct.Struct(">i")
_MAX_INT: Final = 2**31 - 1
_ALLOCATED_AHEAD: Final = 1 << 20
_PACKED_AT_ONCE: Final = 256
_CLEAR_SIZE: Final = 1 << 20
_sync_data: Final = getattr(os, "fdatasync", os.fsync)


@dataclass(frozen=True, slots=True)
class Geometry:
    """How many slots and entries an index file has; the broker's maxHashSlotNum and maxIndexNum."""

    hash_slot_num: int = HASH_SLOT_NUM
    index_num: int = INDEX_NUM  # HA-ST-83 "MUST begin at 1, so that entry 0 is never used"

    @property
    def entries_position(self) -> int:
        return HEADER_SIZE + SLOT_SIZE * self.hash_slot_num

    @property
    def file_size(self) -> int:
        """Bytes.

        >>> Geometry().file_size
        420000040
        """
        return self.entries_position + ENTRY_SIZE * self.index_num


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """What the first 40 bytes say. HA-ST-39."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1


class IndexFile:
    """One file, mapped. One thread puts; any may read meanwhile.

    Raises: StoreCorrupt for a file of another length than the geometry demands; OSError.
    """

    def __init__(self, path: Path, geometry: Geometry, *, writable: bool) -> None:
        self.path, self.geometry, self._writable = path, geometry, writable
        self._fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            self._check_length(os.fstat(self._fd).st_size)
            access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
            self._map = mmap.mmap(self._fd, geometry.file_size, mmap.MAP_SHARED, access)
        except BaseException:
            os.close(self._fd)
            raise
        self._allocated = 0  # the position up to which space for entries is known to be allocated
        self._is_dirty = self._sync_failed = False
        self.header = self._read_header()

    @classmethod
    def create(cls, path: Path, geometry: Geometry, *, end_phy_offset: int, end_timestamp: int) -> "IndexFile":
        """Make a file that begins where the one before it ends (0 and 0 for the first). Raises: OSError."""

        def fill(fd: int) -> None:
            _allocate(fd, 0, geometry.entries_position)
            os.ftruncate(fd, geometry.file_size)

        create_whole(path, path.parent.parent, fill)
        file = cls(path, geometry, writable=True)
        begin_phy_offset, begin_timestamp = max(0, end_phy_offset), max(0, end_timestamp)
        file._write_header(IndexHeader(begin_timestamp, begin_timestamp, begin_phy_offset, begin_phy_offset))
        return file

    @property
    def is_full(self) -> bool:
        return self.header.index_count >= self.geometry.index_num

    @property
    def room(self) -> int:
        """How many keys more it takes."""
        return max(0, self.geometry.index_num - self.header.index_count)

    def put_all(self, keys: list[tuple[int, int, int]]) -> None:
        """Put keys, as many as there is room for at most.

        Args:  keys: (hash, commit-log offset, store timestamp in ms) in the order of the log.
        Raises: OSError where space cannot be allocated, StoreCorrupt where the file was cut; then nothing has changed.
        """
        assert len(keys) <= self.room
        if not keys:
            return
        self._check_length(self._map.size())
        mapping, header, geometry = self._map, self.header, self.geometry
        slot_num, number, slots_used = geometry.hash_slot_num, header.index_count, header.hash_slot_count
        begin = header.begin_timestamp
        position = geometry.entries_position + number * ENTRY_SIZE
        self._allocate(position, position + len(keys) * ENTRY_SIZE)
        read_int = _INT.unpack_from
        heads: dict[int, int] = {}  # slot -> its newest entry, of this batch
        fields: list[int] = []
        for key_hash, offset, timestamp in keys:
            slot = key_hash % slot_num
            previous = heads.get(slot, 0)
            if not previous:
                (previous,) = read_int(mapping, HEADER_SIZE + SLOT_SIZE * slot)
                if not 0 < previous <= number:  # never used, or of entries that were cut off
                    previous = 0
                    slots_used += 1
            seconds = min((timestamp - begin) // 1000, _MAX_INT) if timestamp > begin > 0 else 0
            if number <= 1:  # HA-ST-84 "Those of the first entry MUST be counted from the end of the file before"
                begin = timestamp
            fields += (key_hash, offset, seconds, previous)
            heads[slot] = number
            number += 1
        for start in range(0, len(fields), 4 * _PACKED_AT_ONCE):
            part = fields[start : start + 4 * _PACKED_AT_ONCE]
            struct.pack_into(">" + len(part) // 4 * "iqii", mapping, position, *part)
            position += len(part) // 4 * ENTRY_SIZE
        begin_phy_offset = keys[0][1] if header.index_count <= 1 else header.begin_phy_offset
        self._write_header(IndexHeader(begin, keys[-1][2], begin_phy_offset, keys[-1][1], slots_used, number))
        write_int = _INT.pack_into
        for slot, head in heads.items():
            write_int(mapping, HEADER_SIZE + SLOT_SIZE * slot, head)

    def offsets(self, key_hash: int, begin: int, end: int, *, classic: bool = False) -> Iterator[int]:
        """The commit-log offsets of a hash's messages, newest first, of those that were stored between two times.

        Times are known to the second, rounded down: (begin of the file) + seconds is held against begin and end, in ms. The
        walk ends at the first that is too old, at a void entry, and where a chain does not go back.

        Args:  classic: believe the seconds of the first entry too, as 4.9.8 does, which can miss that message: they count from
               where the file before ends (`put_all`). Its time is the begin of the file.
        """
        self._check_length(self._map.size())
        header = self.header = self._read_header()  # another process may write it
        (number,) = _INT.unpack_from(self._map, HEADER_SIZE + SLOT_SIZE * (key_hash % self.geometry.hash_slot_num))
        bound = min(header.index_count, self.geometry.index_num - 1) + 1
        while 0 < number < bound:
            found, offset, seconds, previous = _ENTRY.unpack_from(
                self._map, self.geometry.entries_position + number * ENTRY_SIZE
            )
            if seconds < 0:
                return
            time = header.begin_timestamp + (seconds * 1000 if number > 1 or classic else 0)
            if found == key_hash and begin <= time <= end:
                yield offset
            if time < begin:
                return
            number, bound = previous, number

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Whether the file has messages stored between two times, in ms."""
        first, last = self.header.begin_timestamp, self.header.end_timestamp  # a clock that was set back can turn them round
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def entries(self) -> Iterator[tuple[int, int, int, int]]:
        """(hash, commit-log offset, seconds, entry before) of every entry, from the first."""
        self._check_length(self._map.size())
        start = self.geometry.entries_position + ENTRY_SIZE
        stop = self.geometry.entries_position + min(self.header.index_count, self.geometry.index_num) * ENTRY_SIZE
        for position in range(start, stop, ENTRY_SIZE * _PACKED_AT_ONCE):
            yield from _ENTRY.iter_unpack(self._map[position : min(stop, position + ENTRY_SIZE * _PACKED_AT_ONCE)])

    def slots(self) -> "array[int]":
        """Every slot: the number of the newest entry of its hashes, or 0."""
        self._check_length(self._map.size())
        slots = array("i", self._map[HEADER_SIZE : self.geometry.entries_position])
        if sys.byteorder == "little":
            slots.byteswap()
        return slots

    def count_now(self) -> int:
        """How many entries the header counts by now: another process may write it."""
        return min(self._read_header().index_count, self.geometry.index_num)

    def offsets_backward(self) -> Iterator[int]:
        """The commit-log offset of every entry, from the last."""
        self._check_length(self._map.size())
        for number in range(min(self.header.index_count, self.geometry.index_num) - 1, 0, -1):
            yield _ENTRY.unpack_from(self._map, self.geometry.entries_position + number * ENTRY_SIZE)[1]

    def truncate(self, offset: int, store_timestamp_of: Callable[[int], int]) -> tuple[int, bool, int]:
        """Keep the entries of messages before a commit-log offset, and make the slots anew from them.

        It believes the entries alone, and those only as far as they are in order: each points to the one before it in its
        slot, and no offset is less than the one before. So it repairs what a crash has left of a file, too.

        Args:  store_timestamp_of: of the message at an offset, in ms.
        Returns: how many entries are left, whether one of a message before `offset` had to go for being out of order, and the
        offset of the last message left. With none left nothing is changed: the file is to be removed. Of a file that is not
        writable nothing is changed either.
        """
        slot_num = self.geometry.hash_slot_num
        slots = array("i", bytes(SLOT_SIZE * slot_num))
        number, last_offset, used, is_damaged = 1, -1, 0, False
        entries = self.entries()
        for key_hash, entry_offset, seconds, previous in entries:
            slot = key_hash % slot_num
            if entry_offset >= offset:
                break
            # What has not come to the disk is zero bytes, and so is no entry: one in 2,147,483,648 is at offset 0.
            is_there = key_hash or entry_offset or seconds or previous
            if not is_there or entry_offset < last_offset or key_hash < 0 or seconds < 0 or slots[slot] != previous:
                # Is anything else here, or an entry of a message before the offset behind it? Or was one, as the header says?
                is_damaged = bool(is_there) or self.header.end_phy_offset < offset
                is_damaged = is_damaged or any(last_offset < other[1] < offset for other in entries)
                break
            used += not previous
            slots[slot] = number
            last_offset = entry_offset
            number += 1
        if number == 1 or not self._writable:
            return number - 1, is_damaged, last_offset
        if sys.byteorder == "little":
            slots.byteswap()
        self._map[HEADER_SIZE : self.geometry.entries_position] = slots.tobytes()
        header, end_timestamp = self.header, store_timestamp_of(last_offset)
        self._clear_from(self.geometry.entries_position + ENTRY_SIZE * number)
        self._write_header(
            IndexHeader(header.begin_timestamp, end_timestamp, header.begin_phy_offset, last_offset, used, number)
        )
        return number - 1, is_damaged, last_offset

    def _clear_from(self, position: int) -> None:
        """Zero all that is there, be it behind the header's count too: were the next entries lost in a crash that kept their
        header, it would stand in their place. What was never written is a hole, and is not read.
        """
        zeros = bytes(_CLEAR_SIZE)
        while position < len(self._map):
            try:
                position = os.lseek(self._fd, position, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole
                    return
                raise
            hole = os.lseek(self._fd, position, os.SEEK_HOLE)
            for start in range(position, hole, _CLEAR_SIZE):
                end = min(start + _CLEAR_SIZE, hole)
                if self._map[start:end] != zeros[: end - start]:
                    self._map[start:end] = zeros[: end - start]
            position = hole

    def doubt(self) -> None:
        """Take the file for one that is not on the disk."""
        self._is_dirty = True

    def flush(self) -> None:
        """Force the file to the disk. Raises: OSError, for a file that was removed too; StoreCorrupt where it was cut."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        try:
            if self._sync_failed:
                self._check_length(self._map.size())
                number = min(self.header.index_count, self.geometry.index_num)
                sync_again(self._fd, self._map, 0, self.geometry.entries_position + ENTRY_SIZE * number)
            _sync_data(self._fd)
            found = os.fstat(self._fd)
            if not found.st_nlink:
                raise FileNotFoundError(errno.ENOENT, "removed under the store", str(self.path))
            self._check_length(found.st_size)
        except BaseException as error:
            self._is_dirty = self._sync_failed = True
            if isinstance(error, OSError):
                error.filename = error.filename or str(self.path)
            raise
        self._sync_failed = False

    def close(self) -> None:
        """Give back the descriptor; a second call does nothing. The mapping goes with the last who reads in it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def destroy(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _check_length(self, length: int) -> None:
        """To use what lies beyond the end of a file would be SIGBUS. The moment between look and use is left."""
        if length != self.geometry.file_size:
            raise StoreCorrupt(self.path, 0, f"a length of {length} bytes", self.geometry.file_size)

    def _read_header(self) -> IndexHeader:
        begin, end, begin_offset, end_offset, hash_slot_count, index_count = _HEADER.unpack_from(self._map)
        return IndexHeader(begin, end, begin_offset, end_offset, hash_slot_count, max(1, index_count))

    def _write_header(self, header: IndexHeader) -> None:
        _HEADER.pack_into(
            self._map,
            0,
            *(header.begin_timestamp, header.end_timestamp, header.begin_phy_offset, header.end_phy_offset),
            *(header.hash_slot_count, header.index_count),
        )
        self.header = header
        self._is_dirty = True

    def _allocate(self, start: int, stop: int) -> None:
        """Have space for the entries between two positions, and for some more."""
        if stop > self._allocated:
            begin = max(self._allocated, start)
            end = min(self.geometry.file_size, stop + _ALLOCATED_AHEAD)
            try:
                _allocate(self._fd, begin, end - begin)
            except OSError as error:
                error.filename = error.filename or str(self.path)
                raise
            self._allocated = end


def _allocate(fd: int, position: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, position, size)
        return
    zeros = bytes(_ALLOCATED_AHEAD)  # macOS has no such call. Behind the entries nothing stands that zeros could hurt
    for start in range(position, position + size, len(zeros)):
        os.pwrite(fd, zeros[: position + size - start], start)
