"""What a hardened slave asks its master for again: the end of its log, from the start of its last whole record.

Offsets alone do not tell whether a log is the beginning of its master's (quirks 7 and 9). A record says when it was stored, and
where: if the master sends the same one, all before it is the same.

Spec: HA-S-61 to HA-S-63; reference/overlap.py says the same without a word of speed.
"""

from dataclasses import dataclass
from typing import Protocol

from rocketmq_ha.impl.errors import MessageMalformed
from rocketmq_ha.impl.first_difference import first_difference
from rocketmq_ha.impl.wire.message import decode, read_header
from rocketmq_ha.impl.wire.record_layout import MAGICS, SIZE_AND_MAGIC, SMALLEST_RECORD
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_SIZE


class ReadableLog(Protocol):
    """What the search needs of a commit log."""

    @property
    def file_size(self) -> int: ...

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...

    def data_at(self, offset: int, limit: int) -> memoryview | None: ...


@dataclass(slots=True)
class Overlap:
    """The end of a log that is compared. Offsets are of the commit log.

    record: the start of the last whole record, or of the log where it has none. position: as far as it has been compared.
    end: the log's max offset. padding: of the BLANK behind that record, which may differ.
    """

    record: int
    position: int
    end: int
    padding: range


def find_overlap(log: ReadableLog, near: int = 0) -> Overlap | None:
    """Find the overlap of a log; None if the log has no byte. Twin: reference.overlap.first_report.

    Args:  near: where a whole record began when the log was looked at before: the search goes on from there.
    Spec: HA-S-61 "the start of its last whole record, or of its log where it has none, or to 1 where that is 0".
    """
    file_size, end = log.file_size, log.max_offset
    if end == log.min_offset:
        return None
    base = (end - 1) - (end - 1) % file_size
    while base >= log.min_offset and (data := log.data_at(base, file_size)) is not None:
        found = _walk(data, near - base if base < near < base + len(data) else 0)
        if found is not None:
            start, behind = found
            padding = range(0)
            if (
                behind + END_FILE_MIN_BLANK_SIZE <= len(data)
                and SIZE_AND_MAGIC.unpack_from(data, behind)[1] == BLANK_MAGIC_CODE
            ):
                padding = range(base + behind + END_FILE_MIN_BLANK_SIZE, base + file_size)
            # A report of 0 means the master's last file; the first byte of a record is known, for none is so large.
            return Overlap(base + start, max(1, base + start), end, padding)
        base -= file_size
    return Overlap(log.min_offset, max(1, log.min_offset), end, range(0))


def _walk(data: memoryview, position: int) -> tuple[int, int] | None:
    """Where the last whole record of a file begins and ends, from one on. HA-S-61 "the magic of a message"."""
    size, unpack_head, found = len(data), SIZE_AND_MAGIC.unpack_from, None
    while position + END_FILE_MIN_BLANK_SIZE <= size:
        record_size, magic = unpack_head(data, position)
        if magic not in MAGICS or record_size < SMALLEST_RECORD or position + record_size > size:
            break
        found = position
        position += record_size
    return None if found is None else (found, position)


def recovered_end(log: ReadableLog, overlap: Overlap) -> int:
    """Where the log will end when it is opened again: recovery cuts what is behind the last record whose CRC holds.

    Live, no CRC is looked at (quirk 29), so that a slave may hold a body that was garbled on its way.
    """
    data = log.data_at(overlap.record, log.file_size)
    try:
        size = 0 if data is None else read_header(data)[0]
        decode(data[:size] if data is not None else b"")
    except MessageMalformed:
        return overlap.record
    return max(overlap.record + size, overlap.padding.stop)


def first_difference_from_log(log: ReadableLog, overlap: Overlap, body: memoryview) -> int | None:
    """The offset of the first byte of `body` that is not the log's, or None. Twin: reference.overlap.differs.

    `body` belongs at the position of the overlap; the offset is one of the commit log.
    Spec: HA-S-62 "except the padding of a BLANK".
    """
    padding, offset = overlap.padding, overlap.position
    own = log.data_at(offset, len(body))
    assert own is not None, "the overlap is within the log, and a frame within a file"
    size = min(len(own), len(body))
    for start, stop in ((offset, min(offset + size, padding.start)), (max(offset, padding.stop), offset + size)):
        if start < stop:
            index = first_difference(own[start - offset : stop - offset], body[start - offset : stop - offset])
            if index is not None:
                return start + index
    return None
