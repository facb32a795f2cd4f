"""Find where the log ends, before anything is changed.

The records are walked from the first file; a BLANK counts to the end of its file. The end is behind the last whole
valid record, and before one that has all but the end of its topic or properties (fragment.py). What the walk stopped at
is judged so:

- zero bytes and nothing but zero bytes: the end, a clean stop.
- something else, but no whole valid record of its own place anywhere behind it, in this file or a later one: a tear at
  the tail (a process died in a put, or a slave holds part of a record). The end is here.
- a whole record whose physical offset is not its place: StoreCorrupt, for no tear makes such a record.
- a whole valid record somewhere behind: StoreCorrupt at the stop. Cutting there would throw whole messages away; a
  flipped bit in the middle looks like this, and so do the stale bytes of an earlier truncation (quirk 35).

Where `strict` is False all is as in RocketMQ: a record without the end of its topic or properties is whole, and the first
failure is the end, whatever follows it. One flipped bit then costs all behind it, which is why that is not the default.

Spec: HA-ST-5.  Source: 4.9.8 CommitLog.recoverAbnormally, without its checkpoint; spec/5-store.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.fragment import is_fragment
from rocketmq_ha.impl.store.mapped_file import MappedFile
from rocketmq_ha.impl.store.scan import QueueOffsets, Stop, explain, find_record, scan, whole_record_at
from rocketmq_ha.impl.wire.message import Message, decode


@dataclass(frozen=True, slots=True)
class Recovery:
    """The end of a log, and what a writer needs to go on from there."""

    end: int  # commit-log offset; 0 where there are no files
    files: int  # how many files hold the log; those behind them are wholly beyond the end
    messages: int
    cut_size: int  # bytes from the end to the last byte that is not zero
    queue_offsets: QueueOffsets


def recover(files: Sequence[MappedFile], *, strict: bool) -> Recovery:
    """Walk all files and judge where the walk stops. Reads only; sets no position.

    Args:  strict: see the head of this module.
    Raises: StoreCorrupt (file, offset) as the head of this module says.
    """
    queue_offsets: QueueOffsets = {}
    messages = 0
    for index, file in enumerate(files):
        found = scan(file.mapping, file.base, queue_offsets=queue_offsets)
        messages += found.messages
        if found.stop is Stop.FULL and index + 1 < len(files):
            file.close()
            continue
        end, cut_size = found.position, 0
        if found.stop is not Stop.FULL:
            if strict and whole_record_at(file, end):
                error = explain(file, end)
                assert error is not None, f"{file.path}: scan and decode disagree at {end}"
                raise error
            cut_size = _judge(files, index, end, refuse=strict)
        if strict and cut_size == 0 and found.last_position is not None:
            part_size = _part_size(file, found.last_position, end)
            if part_size:
                end, cut_size, messages = found.last_position, part_size, messages - 1
                _forget(queue_offsets, decode(file.mapping, end))
        return Recovery(file.base + end, index + 1, messages, cut_size, queue_offsets)
    return Recovery(0, 0, 0, 0, queue_offsets)


def _judge(files: Sequence[MappedFile], index: int, position: int, *, refuse: bool) -> int:
    """Raise, if told to `refuse`, where cutting the log at a position of file `index` would lose a whole record.

    Returns: bytes from there to the last byte of all files that is not zero.
    """
    file = files[index]
    cut_size = 0
    for later in files[index:]:
        start = position if later is file else 0
        record = find_record(later, start) if refuse else None
        if record is not None:
            error = explain(file, position)
            assert error is not None
            follows = f"{error.expected}: no tear, for a whole record follows at offset {later.base + record}"
            raise StoreCorrupt(error.file, error.offset, error.found, follows)
        data_end = later.data_end(start)
        if data_end > start:
            cut_size = later.base + data_end - (file.base + position)
        if later is not file:
            later.close()
    return cut_size


def _part_size(file: MappedFile, position: int, end: int) -> int:
    """How many bytes of the last record are there, if the end of its topic or properties is missing; else 0."""
    size = file.data_end(position) - position
    is_part = size < end - position and is_fragment(file.view(position, file.size), size, file.base + position)
    return size if is_part else 0


def _forget(queue_offsets: QueueOffsets, message: Message) -> None:
    """Take back what a record that is cut off has counted."""
    if message.is_queued:
        queue_offsets[message.queue_id, message.topic_bytes] = message.queue_offset
