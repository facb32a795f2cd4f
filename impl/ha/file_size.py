"""The walk from head to head that tells a slave how long its master's files are, before it appends what depends on it.

The heads come in pieces, as the frames fall. Most records have the size of the one before, so that many heads are compared by
one call: to step from each to the next would cost a catch-up a third of its speed.

Spec: HA-S-90 to HA-S-93; reference/file_size.py says the same without a word of speed.
"""

import struct
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rocketmq_ha.impl.wire.record_layout import MAGICS, SIZE_AND_MAGIC, SMALLEST_RECORD, TOTAL_SIZE, Buffer
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_SIZE, MESSAGE_MAGIC_CODE

_HEAD_SIZE: Final = SIZE_AND_MAGIC.size
_TELLING: Final = TOTAL_SIZE.end - 1  # the last byte of the size: it differs most often
_LEAST_RUN, _LARGEST_RUN = 4, 256  # heads compared by one call
_FEW: Final = 48  # heads, up to which it is quicker to unpack them than to compare them byte by byte
_AFTER: Final = 16  # records of one size, in bytes of which no run is looked for behind a place where the sizes change


class Shows(Enum):
    """What a walk ends with."""

    SAME = "same"  # the master's files are as long as the slave's
    OTHER = "other"
    NOTHING = "nothing"  # HA-S-93 "MUST end the walk and nothing else"


class End(NamedTuple):
    """How a walk has ended. position: of the head that it ended at, in bytes from the log's first. size: the master's, if it
    is another one and is known.
    """

    shows: Shows
    position: int
    size: int | None = None


class Walk:
    """A walk over the bytes of a slave's first file, in pieces.

    file_size: bytes, of the slave's files. position: of the next head; end: behind the last byte that was looked at. Both are
    counted from the start of the file.
    """

    __slots__ = ("_alone_to", "_ended", "_file_size", "_head", "end", "position")

    def __init__(self, file_size: int, position: int = 0) -> None:
        """position: where a record begins, before which all is in order."""
        self._file_size = file_size
        self.position = self.end = position
        self._head = b""  # what has come of the next head
        self._alone_to = 0  # up to where no run is looked for
        self._ended: End | None = None

    def take(self, buffer: Buffer, start: int, stop: int) -> End | None:
        """Walk the next bytes, `buffer[start:stop]`. Twin: reference.file_size.walk.

        Returns: how the walk has ended, or None if it goes on.
        Spec: HA-S-90 "MUST walk the heads of the records that it is sent".
        """
        if self._ended is None:
            self._ended = self._take(buffer, start, stop)
        return self._ended

    def _take(self, buffer: Buffer, start: int, stop: int) -> End | None:
        shift = self.end - start  # what is at index x of the buffer belongs at x + shift in the file
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
        most = self._file_size - shift - _HEAD_SIZE  # where the last record of the file may end
        last = min(stop - _HEAD_SIZE, most)  # where a whole head may begin
        unpack_head, usual, smallest, before = SIZE_AND_MAGIC.unpack_from, MESSAGE_MAGIC_CODE, SMALLEST_RECORD, 0
        alone_to = self._alone_to - shift
        while at <= last:
            size, magic = unpack_head(buffer, at)
            behind = at + size
            if (magic != usual and magic not in MAGICS) or size < smallest or behind > most:
                self.position = at + shift
                return self._judge(size, magic)
            if size == before and at >= alone_to and (heads := min((last - at) // size, _LARGEST_RUN)) >= _LEAST_RUN:
                # As many as have their heads here, and so all of them end early enough.
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
        """What the head at the position shows; None where a record follows that fits the slave's file."""
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
    """Whether so many records of one size, the first at a position, have the same head."""
    end = at + size * count
    if buffer[at + _TELLING : end : size] != _REPEATED[buffer[at + _TELLING]][:count]:
        return False
    if count < _FEW:
        heads = _heads(size, count)(buffer, at)
        return bool(heads.count(heads[0]) == count)
    # Byte by byte, in all records at once.
    return all(buffer[start:end:size] == _REPEATED[buffer[start]][:count] for start in range(at, at + _HEAD_SIZE))


@lru_cache(maxsize=256)
def _heads(size: int, count: int) -> Any:
    """Unpacks the heads of so many records of one size."""
    return struct.Struct(f"{_HEAD_SIZE}s" + f"{size - _HEAD_SIZE}x{_HEAD_SIZE}s" * (count - 1)).unpack_from


_REPEATED: Final = [bytes((octet,)) * _LARGEST_RUN for octet in range(256)]
