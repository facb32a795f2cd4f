"""What a disk has of consume queues and index: as flushed, as written, and after the machine has failed.

    written   | entry | entry | entry | entry |        what the process, and the next one after a kill, finds
    flushed   | entry | entry |   0   |   0   |        what a power cut leaves at least
    left      | entry | entry |   0   | entry |        what it may leave: sectors in any mixture of the two

The files of the commit log are given whole: how a power cut tears them is another world's subject.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketmq_ha.reference import consume_queue, index_file, mapped_file_queue
from rocketmq_ha.reference.consume_queue import CQ_STORE_UNIT_SIZE, ConsumeQueue
from rocketmq_ha.reference.derived_events import Damage, PowerCut
from rocketmq_ha.reference.dispatch import Dispatched, QueueKey
from rocketmq_ha.reference.index_file import IndexFile
from rocketmq_ha.reference.index_service import Index
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.store import Log

Files = Mapping[str, bytes]  # the whole bytes of files by their names


@dataclass(frozen=True, slots=True)
class Disk:
    """The files of queues and index as the last flush has left them."""

    queues: Mapping[QueueKey, Files] = field(default_factory=dict)
    index: Files = field(default_factory=dict)


def flush(disk: Disk, dispatched: Dispatched) -> Disk:
    """All of queues and index is on the disk."""
    queues = {key: {**disk.queues.get(key, {}), **queue_files(queue)} for key, queue in dispatched.queues.items()}
    return Disk({**disk.queues, **queues}, index_files(dispatched.index))


def flush_full_files(disk: Disk, dispatched: Dispatched) -> Disk:
    """Only those files of queues that are full are on the disk: what has fewer new pages than a flush asks for is not."""
    queues = dict(disk.queues)
    for key, queue in dispatched.queues.items():
        end = mapped_file_queue.end(queue.mapped_file_queue)
        size = queue.mapped_file_queue.file_size
        full = {name: data for name, data in queue_files(queue).items() if int(name) + size <= end}
        if full:
            queues[key] = {**queues.get(key, {}), **full}
    return Disk(queues, disk.index)


def queue_files(queue: ConsumeQueue) -> Files:
    return mapped_file_queue.files(queue.mapped_file_queue)


def index_files(index: Index) -> Files:
    return {file.name: file.data for file in index}


def loaded(queue: ConsumeQueue) -> ConsumeQueue:
    """A queue as the next process loads it: every file counts as full."""
    files = queue.mapped_file_queue
    found = mapped_file_queue.load(files.file_size, mapped_file_queue.files(files))
    assert isinstance(found, Log)
    return ConsumeQueue(queue.topic, queue.queue_id, found)


def left(written: bytes, flushed: bytes, cut: PowerCut, name: str) -> bytes:
    """What a power cut leaves of a file. A file that was never flushed is there, full of zeros.

    Most files have either all of what was written, or nothing since the last flush; the others are torn between sectors.
    """
    flushed = flushed or bytes(len(written))
    whole = zlib.crc32(f"{cut.choice} {name}".encode()) % 4
    if whole < 2:
        return written if whole else flushed
    sectors = range(0, len(written), cut.sector_size)
    return b"".join(
        (written if zlib.crc32(f"{cut.choice} {name} {at}".encode()) % 2 else flushed)[at : at + cut.sector_size]
        for at in sectors
    )


def power_cut(dispatched: Dispatched, disk: Disk, cut: PowerCut) -> Dispatched:
    """The queues and the index that the next process finds."""
    queues = {}
    for key, queue in dispatched.queues.items():
        before = disk.queues.get(key, {})
        files = {
            name: left(data, before.get(name, b""), cut, f"{key[0]} {key[1]} {name}")
            for name, data in queue_files(queue).items()
        }
        queues[key] = with_files(queue, files)
    index = tuple(
        replace(file, data=left(file.data, disk.index.get(file.name, b""), cut, f"index {place}"))
        for place, file in enumerate(dispatched.index)
    )
    return replace(dispatched, queues=queues, index=index)


def with_files(queue: ConsumeQueue, files: Files) -> ConsumeQueue:
    """A queue of these files, each loaded as full."""
    found = mapped_file_queue.load(queue.mapped_file_queue.file_size, files)
    assert isinstance(found, Log)
    return ConsumeQueue(queue.topic, queue.queue_id, found)


# --- Damage ----------------------------------------------------------------------------------------------------------


def damaged_queue(files: Files, damage: Damage) -> Files:
    """The files of a queue afterwards; the last entry is the last that is not zero."""
    if damage.what == "queue" or not files:
        return {}
    names = sorted(files)
    last = next((at for at in reversed(range(len(names))) if any(files[names[at]])), 0)
    if damage.what == "last_file":
        return {name: files[name] for name in names[:last]}
    units = range(0, len(files[names[last]]), CQ_STORE_UNIT_SIZE)
    places = [(name, at) for name in names[: last + 1] for at in units if any(files[name][at : at + CQ_STORE_UNIT_SIZE])]
    if damage.at >= len(places):
        return files
    name, at = places[-1 - damage.at]
    data = files[name]
    return {**files, name: data[:at] + bytes(CQ_STORE_UNIT_SIZE) + data[at + CQ_STORE_UNIT_SIZE :]}


def damaged_index(file: IndexFile, damage: Damage) -> IndexFile:
    """The last file of an index afterwards: an entry of those that its header counts is zero."""
    number = index_file.header(file).index_count - 1 - damage.at
    if number < 1:
        return file
    at = index_file.entry_position(file, number)
    return replace(file, data=file.data[:at] + bytes(index_file.INDEX_SIZE) + file.data[at + index_file.INDEX_SIZE :])


def is_broken(queue: ConsumeQueue) -> bool:
    """Whether bytes of the queue's files are neither an entry nor the zeros behind the last one."""
    data = queue.mapped_file_queue.data.rstrip(b"\0")
    data = data.ljust(len(data) + -len(data) % CQ_STORE_UNIT_SIZE, b"\0")
    return not all(map(consume_queue.is_entry, consume_queue.entries(data)))
