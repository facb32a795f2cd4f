"""Learn the size of the master's files by a walk over the heads of the records, before the slave appends them.

The heads arrive in pieces, split by frames. Most records have the size of the previous one, so one call compares many heads:
stepping from each head to the next would slow a catch-up down by a third.

Spec: HA-S-90 to HA-S-93; reference/file_size.py does the same, without this optimisation.
"""

import struct
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rocketmq_ha.impl.wire.record_layout import MAGICS, SIZE_AND_MAGIC, SMALLEST_RECORD, TOTAL_SIZE, Buffer
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_SIZE, MESSAGE_MAGIC_CODE

_HEAD_SIZE: Final = SIZE_AND_MAGIC.size
_TELLING: Final = TOTAL_SIZE.end - 1  # last byte of the size, which differs most often
_LEAST_RUN, _LARGEST_RUN = 4, 256  # heads compared by one call
_FEW: Final = 48  # for fewer heads, unpacking is faster than comparing bytes
_AFTER: Final = 16  # after a change of sizes, look for no run within this number of records


class Shows(Enum):
    """The result of a walk."""

    SAME = "same"  # the master's files are as long as the slave's
    OTHER = "other"
    NOTHING = "nothing"  # HA-S-93 "MUST end the walk and nothing else"


class End(NamedTuple):
    """The end of a walk. position: of its last head, in bytes from the start of the log. size: the master's file size, if it
    differs and is known.
    """

    shows: Shows
    position: int
    size: int | None = None


class Walk:
    """A walk over the bytes of a slave's first file, in pieces.

    file_size: of the slave's files, in bytes. position: of the next head. end: behind the last byte walked over. Both count
    from the start of the file.
    """

    __slots__ = ("_alone_to", "_ended", "_file_size", "_head", "end", "position")

    def __init__(self, file_size: int, position: int = 0) -> None:
        """position: the start of a record; everything before it is checked already."""
        self._file_size = file_size
        self.position = self.end = position
        self._head = b""  # the first bytes of an incomplete head
        self._alone_to = 0  # look for no run before this position
        self._ended: End | None = None

    def take(self, buffer: Buffer, start: int, stop: int) -> End | None:
        """Walk the next bytes, `buffer[start:stop]`. Twin: reference.file_size.walk.

        Returns: the end of the walk, or None if it goes on.
        Spec: HA-S-90 "MUST walk the heads of the records that it is sent".
        """
        if self._ended is None:
            self._ended = self._take(buffer, start, stop)
        return self._ended

    def _take(self, buffer: Buffer, start: int, stop: int) -> End | None:
        shift = self.end - start  # index x of the buffer is position x + shift of the file
        self.end = stop + shift
        if self._head:
            missing = _HEAD_SIZE - len(self._head)
            self._head += bytes(buffer[start : min(start + missing, stop)])
            if len(self._head) < _HEAD_SIZE:
                return None
            size, magic = SIZE_AND_MAGIC.unpack(self._head)
            self._head = b""
            if (ended := self._judge(size, magic)) is not None:
                return ended
            self.position += size
        at = self.position - shift
        most = self._file_size - shift - _HEAD_SIZE  # the last possible end of a record in the file
        last = min(stop - _HEAD_SIZE, most)  # the last possible start of a whole head
        unpack_head, usual, smallest, before = SIZE_AND_MAGIC.unpack_from, MESSAGE_MAGIC_CODE, SMALLEST_RECORD, 0
        alone_to = self._alone_to - shift
        while at <= last:
            size, magic = unpack_head(buffer, at)
            behind = at + size
            if (magic != usual and magic not in MAGICS) or size < smallest or behind > most:
                self.position = at + shift
                return self._judge(size, magic)
            if size == before and at >= alone_to and (heads := min((last - at) // size, _LARGEST_RUN)) >= _LEAST_RUN:
                # The number of records whose heads are here; so all of them end early enough.
                if _are_alike(buffer, at, size, heads):
                    at += heads * size
                    continue
                alone_to = at + _AFTER * size
            before = size
            at = behind
        self._alone_to = alone_to + shift
        self.position = at + shift
        if at < stop:
            self._head = bytes(buffer[at:stop])
        return None

    def _judge(self, size: int, magic: int) -> End | None:
        """Judge the head at the position. Returns: None if it is of a record that fits the slave's file."""
        end = self.position + size
        if magic == BLANK_MAGIC_CODE and size >= END_FILE_MIN_BLANK_SIZE:
            if end == self._file_size:
                return End(Shows.SAME, self.position)
            return End(Shows.OTHER, self.position, end)
        if magic not in MAGICS or size < SMALLEST_RECORD:
            return End(Shows.NOTHING, self.position)
        if end + END_FILE_MIN_BLANK_SIZE > self._file_size:
            return End(Shows.OTHER, self.position)
        return None


def _are_alike(buffer: Buffer, at: int, size: int, count: int) -> bool:
    """Return True if `count` records of one size, the first at a position, have the same head."""
    end = at + size * count
    if buffer[at + _TELLING : end : size] != _REPEATED[buffer[at + _TELLING]][:count]:
        return False
    if count < _FEW:
        heads = _heads(size, count)(buffer, at)
        return bool(heads.count(heads[0]) == count)
    # Compare byte by byte, over all records at once.
    return all(buffer[start:end:size] == _REPEATED[buffer[start]][:count] for start in range(at, at + _HEAD_SIZE))


@lru_cache(maxsize=256)
def _heads(size: int, count: int) -> Any:
    """Return a function that unpacks the heads of `count` records of one size."""
    return struct.Struct(f"{_HEAD_SIZE}s" + f"{size - _HEAD_SIZE}x{_HEAD_SIZE}s" * (count - 1)).unpack_from


_REPEATED: Final = [bytes((octet,)) * _LARGEST_RUN for octet in range(256)]
