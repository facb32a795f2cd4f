"""One entry of a consume queue, and the search for the end of the entries in a file.

    entry, 20 bytes = offset in the commit log i64, size i32, tags code i64

Spec: HA-ST-29 "MUST have a consume queue of its own, of 20-byte entries".
Source: article 003 section 1.2; 4.9.8 ConsumeQueue.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from rocketmq_ha.impl.store.log.mapped_file import MappedFile

ENTRY_SIZE: Final = 20
FILLER_SIZE: Final = 2**31 - 1
ENTRY: Final = struct.Struct(">qiq")


class Entry(NamedTuple):
    """The entry of a message. offset, size: its bytes in the commit log. tags_code: a filter checks it first."""

    offset: int
    size: int
    tags_code: int

    @property
    def is_filler(self) -> bool:
        """HA-ST-33 "MUST be offset 0, size 2,147,483,647, tags code 0": a power cut may leave another tags code there."""
        return self.size == FILLER_SIZE

    def ends_by(self, offset: int) -> bool:
        """Return True if its message ends by a commit-log offset, or if it is a filler."""
        return self.is_filler or (self.offset >= 0 < self.size and self.offset + self.size <= offset)


FILLER: Final = Entry(0, FILLER_SIZE, 0)
# The possible remains of a filler after a crash. One would pass for a message of 2 GiB at offset 0.
TORN_FILLERS: Final = frozenset(ENTRY.pack(0, FILLER_SIZE >> missing << missing, 0) for missing in (8, 16, 24))


def valid_end(file: MappedFile) -> int:
    """The position of the first invalid entry in a file.

    A file has 300,000 entries, and a broker hundreds of queues. So entries are not checked one by one: the bytes of all sizes
    are combined by OR as columns, and the first zero byte marks the first size of zero.
    """
    end = 0
    for position, chunk in _entry_chunks(file):
        if position != end:
            break  # zero bytes: never written
        count = len(chunk) // ENTRY_SIZE
        columns = [chunk[column : count * ENTRY_SIZE : ENTRY_SIZE] for column in range(12)]
        sizes = 0
        for column in columns[8:]:
            sizes |= int.from_bytes(column, "big")
        valid = sizes.to_bytes(count, "big").find(0)
        valid = count if valid < 0 else valid
        if max(columns[0][:valid], default=0) > 127 or max(columns[8][:valid], default=0) > 127:
            pairs = zip(columns[0], columns[8], strict=True)
            valid = next(index for index, pair in enumerate(pairs) if max(pair) > 127)
        at = columns[8].find(0x7F, 0, valid)
        while at >= 0:
            if chunk[at * ENTRY_SIZE : (at + 1) * ENTRY_SIZE] in TORN_FILLERS:
                valid = at
            at = columns[8].find(0x7F, at + 1, valid)
        end += valid * ENTRY_SIZE
        if valid < count:
            break
    return end


def _entry_chunks(file: MappedFile) -> Iterator[tuple[int, bytes]]:
    """The chunks of a file, aligned to entries. Holes of the file may be left out."""
    rest = b""
    begin = 0
    for position, chunk in file.chunks(0):
        if position != begin + len(rest):
            rest, begin = b"", position  # a hole: the caller stops there
        data = rest + chunk
        whole = len(data) - len(data) % ENTRY_SIZE
        yield begin, data[:whole]
        rest, begin = data[whole:], begin + whole
