"""Find where the log ends, before anything is changed.

The records are walked from the first file; a BLANK counts to the end of its file. HA-ST-5 "Recovery MUST end behind the last
whole record", and before one that has all but the end of its topic or properties (fragment.py). What the walk stopped at
is judged so:

- zero bytes and nothing but zero bytes: the end, a clean stop.
- something else, but no whole valid record of its own place anywhere behind it, in this file or a later one: a tear at
  the tail (a process died in a put, or a slave holds part of a record). The end is here.
- a record that is whole but for its physical offset: StoreCorrupt, for no tear makes such a record. HA-ST-95 "MUST be refused,
  unchanged, with an error that names the file and the offset".
- nothing whole at all, and no magic either at the begin of the first file: StoreCorrupt, for this may be no log (HA-ST-92).
- HA-ST-20 "a whole record of its own place stands behind one that is not whole": StoreCorrupt at the stop. Cutting there
  would throw whole messages away; a flipped bit in the middle looks like this, and so do the stale bytes of an earlier
  truncation (quirk 35).

Where `strict` is False all is as in RocketMQ: a record without the end of its topic or properties is whole, and the first
failure is the end, whatever follows it. One flipped bit then costs all behind it, which is why that is not the default.

Who knows from a checkpoint what was on the disk (`flushed_before_ms`) can tell damage from a tear where this cannot. A machine
that loses its power loses pages in any order, so behind a hole there may be whole records which nobody was promised. Then

- what is whole behind the stop is damage's sign only if it was on the disk before; else the stop is a tear like another.
- a record that was not is torn, too, where a sector of its topic or properties is zeros: no check covers those bytes.

A dry run looks at stores that others write. What was not whole when the walk came there may be so at the next look: then the
walk goes on from there. Whoever owns the store meets no such thing.

Source: 4.9.8 CommitLog.recoverNormally and recoverAbnormally; spec/5-store.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.log.find_record import explain, find_record, whole_record_at
from rocketmq_ha.impl.store.log.fragment import is_fragment
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.scan import QueueOffsets, Stop, scan
from rocketmq_ha.impl.wire.message import Message, decode
from rocketmq_ha.impl.wire.record_layout import MAGIC, MAGIC_BYTES
from rocketmq_ha.spec.constants import SECTOR_SIZE


@dataclass(frozen=True, slots=True)
class Recovery:
    """The end of a log, and what a writer needs to go on from there."""

    end: int  # commit-log offset; 0 where there are no files
    files: int  # how many files hold the log; those behind them are wholly beyond the end
    messages: int  # that were walked over and are kept
    cut_size: int  # bytes from the end to the last byte that is not zero
    queue_offsets: QueueOffsets  # of these messages
    start: int = 0  # commit-log offset at which the look began
    last_offset: int | None = None  # of the last message, if that is known


def recover(files: Sequence[MappedFile], *, strict: bool, first: int = 0, flushed_before_ms: int | None = None) -> Recovery:
    """Walk the files and judge where the walk stops. Reads only; sets no position.

    Args:  strict: see the head of this module. first: index of the file to begin with; those before it are taken as they
           are. flushed_before_ms: messages that were stored before this time were on the disk.
    Raises: StoreCorrupt as the head of this module says, HA-ST-20 "MUST be refused, unchanged, with an error that
    names the file and the offset".
    """
    queue_offsets: QueueOffsets = {}
    messages = 0
    last_offset: int | None = None
    start = files[first].base if files else 0
    suspect_from_ms = flushed_before_ms if strict else None
    for index in range(first, len(files)):
        file, end, cut_size = files[index], 0, None
        last_position: int | None = None  # of the last message in this file
        last_offset_before = last_offset
        while cut_size is None:
            found = scan(file.mapping, file.base, end, queue_offsets=queue_offsets, suspect_from_ms=suspect_from_ms)
            messages += found.messages
            end = found.position
            if found.last_position is not None:
                last_position = found.last_position
                last_offset = file.base + last_position
            is_full = found.stop is Stop.FULL
            cut_size = 0 if is_full else _judge(files, index, end, strict, flushed_before_ms)
        if is_full and index + 1 < len(files):
            # No broker fills a file with a record, so this one has all of its end, or is the last one and lacks a part of it.
            is_cut = found.blank_position is None and last_position is not None and _part_size(file, last_position, end)
            if not (strict and is_cut) or any(later.has_data() for later in files[index + 1 :]):
                file.close()
                continue
        if strict and cut_size == 0 and last_position is not None:
            part_size = _part_size(file, last_position, end)
            if part_size:
                before = scan(file.mapping, file.base, 0, last_position).last_position
                last_offset = last_offset_before if before is None else file.base + before
                end, cut_size, messages = last_position, part_size, messages - 1
                _forget(queue_offsets, decode(file.mapping, end))
        if strict and cut_size and index == end == 0:
            _check_is_log(file)
        return Recovery(file.base + end, index + 1, messages, cut_size, queue_offsets, start, last_offset)
    return Recovery(0, 0, 0, 0, queue_offsets)


def _judge(files: Sequence[MappedFile], index: int, position: int, strict: bool, flushed_before_ms: int | None) -> int | None:
    """Judge why a walk stopped at a position of file `index`.

    Returns: bytes from there to the last byte of all files that is not zero, which can be cut off; None where there is a record
    by now.
    Raises: StoreCorrupt, if `strict`, where to cut there would lose a whole record.
    """
    file = files[index]
    if strict and whole_record_at(file, position):
        if _stands(file, position, flushed_before_ms):
            return None
        error = explain(file, position)
        if error is not None:
            raise error
    cut_size = 0
    for later in files[index:]:
        start = position if later is file else 0
        data_end = later.data_end(start)
        if data_end > start:  # seldom; the files were made of zeros
            record = find_record(later, start, flushed_before_ms) if strict and flushed_before_ms != 0 else None
            if record is not None:
                if _stands(file, position, flushed_before_ms):
                    return None
                raise _damage(file, position, later.base + record)
            cut_size = later.base + data_end - (file.base + position)
        if later is not file:
            later.close()
    return cut_size


def _stands(file: MappedFile, position: int, suspect_from_ms: int | None) -> bool:
    """Whether a walk would get past a position."""
    return scan(file.mapping, file.base, position, position + 1, suspect_from_ms=suspect_from_ms).position > position


def _damage(file: MappedFile, position: int, record: int) -> StoreCorrupt:
    """What stands at a position, where a whole record follows at an offset."""
    error = explain(file, position)
    if error is None:  # whole but for a sector of its topic or its properties
        error = StoreCorrupt(file.path, file.base + position, f"{SECTOR_SIZE} zero bytes in topic or properties", "a record")
    follows = f"{error.expected}: no tear, for a whole record follows at offset {record}"
    return StoreCorrupt(error.file, error.offset, error.found, follows)


def _check_is_log(file: MappedFile) -> None:
    """HA-ST-92 "MUST be refused, unchanged": the first file of a log without a whole record, which would be removed.

    Raises: StoreCorrupt, unless its bytes 4 to 7 are a magic, or the begin of one with zeros behind it.
    """
    magic = bytes(file.view(MAGIC.position, MAGIC.end))
    if not any(known.startswith(magic.rstrip(b"\0")) for known in MAGIC_BYTES.values()):
        expected = "that of a record: no record follows, so that this may be no commit log"
        raise StoreCorrupt(file.path, file.base, f"magic 0x{magic.hex()}", expected)


def _part_size(file: MappedFile, position: int, end: int) -> int:
    """How many bytes of the last record are there, if the end of its topic or properties is missing; else 0."""
    if file.view(end - 1, end)[0]:
        return 0  # it ends as it should, so that its end is there
    size = file.data_end(position) - position
    is_part = size < end - position and is_fragment(file.view(position, file.size), size, file.base + position)
    return size if is_part else 0


def _forget(queue_offsets: QueueOffsets, message: Message) -> None:
    """Take back what a record that is cut off has counted."""
    if message.is_queued:
        queue_offsets[message.queue_id, message.topic_bytes] = message.queue_offset
