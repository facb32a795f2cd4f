"""Check a whole store, and two stores against each other: every record of each, then every byte that both hold.

Two logs are compared over the offsets that both have. HA-ST-17 "The part of a BLANK behind its first 8 bytes is padding, and
two logs that differ in padding alone MUST count as equal": RocketMQ may have stale bytes there, and a slave that recovered has
zeros (quirk 38). It is compared, but a difference in it is only counted.

Source: quirks 35 and 38.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.first_difference import first_difference
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.spec.constants import END_FILE_MIN_BLANK_SIZE

_COMPARED_AT_ONCE: Final = 1 << 20

Progress = Callable[[int], None]  # takes the commit-log offset that was reached


@dataclass(frozen=True, slots=True)
class Summary:
    """What a store without damage holds."""

    store_dir: Path
    files: int
    messages: int
    blanks: int
    min_offset: int
    max_offset: int  # behind the last whole record, or behind the padding of a full last file
    tail_size: int  # bytes of an incomplete record at max_offset

    @property
    def log_size(self) -> int:
        """Bytes of the log, its BLANKs and padding included, without the tail."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far two logs are the same: start to stop were compared, up to the first difference if there is one."""

    start: int
    stop: int
    difference: "Difference | None"
    padding_differences: int  # files whose padding differs


@dataclass(frozen=True, slots=True)
class Difference:
    """The first byte that two logs do not share."""

    offset: int
    file_a: Path
    byte_a: int
    file_b: Path
    byte_b: int


def verify(reader: LogReader, progress: Progress | None = None) -> Summary:
    """Check every record, and that nothing follows the last.

    Raises: StoreCorrupt (file, offset).
    """
    reader.walk(progress)
    return Summary(
        reader.store_dir,
        len(reader.files),
        reader.messages,
        len(reader.blanks),
        reader.min_offset,
        reader.max_offset,
        reader.tail_size,
    )


def compare(a: LogReader, b: LogReader, progress: Progress | None = None) -> Comparison:
    """Compare two logs that were walked, incomplete records at their ends included, wherever both have bytes.

    Where the owner of one deletes files meanwhile, the comparison begins again behind them.
    """
    start = max(a.min_offset, b.min_offset)
    stop = max(start, min(a.max_offset + a.tail_size, b.max_offset + b.tail_size))
    paddings = _shared_paddings(a, b)
    offset, padding_differences = start, 0
    while offset < stop:
        room = min(log.file_size - offset % log.file_size for log in (a, b))
        limit = min(_COMPARED_AT_ONCE, room, stop - offset)
        data_a, data_b = (_data_at(log, offset, limit) for log in (a, b))
        if data_a is None or data_b is None:
            gone = a if data_a is None else b
            start = offset = min(stop, offset - offset % gone.file_size + gone.file_size)
            padding_differences = 0
        elif data_a != data_b:
            index = first_difference(data_a, data_b)
            assert index is not None, "both have all bytes to the same offset"
            at = offset + index
            padding_end = next((end for begin, end in paddings if begin <= at < end), None)
            if padding_end is None:
                difference = Difference(at, a.file_at(at), data_a[index], b.file_at(at), data_b[index])
                return Comparison(start, stop, difference, padding_differences)
            padding_differences += 1
            offset = padding_end
        else:
            offset += limit
        if progress is not None:
            progress(min(offset, stop))
    return Comparison(start, stop, None, padding_differences)


def _data_at(log: LogReader, offset: int, limit: int) -> bytes | None:
    """The bytes at an offset; None where their file was deleted since it was listed."""
    try:
        return log.data_at(offset, limit)
    except FileNotFoundError:
        return None


def _shared_paddings(a: LogReader, b: LogReader) -> list[tuple[int, int]]:
    return [(blank + END_FILE_MIN_BLANK_SIZE, end) for blank, end in sorted(set(a.blanks) & set(b.blanks))]
