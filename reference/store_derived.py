"""The machines of what a store makes from its log: its consume queues and its index.

consume_queue   none, unsynced, synced, expired, left, left_unsynced: one machine for each queue of a topic
index           none, unsynced, synced, full_unsynced, full, left, left_unsynced

A step is named as that of the store, but for two. A dispatch says what it did: `append`, `roll` to a new file, `fill` places
between. An opening says what recovery and the dispatch behind it left: entries are `kept`, `cut`, `grown`, `made`, `removed`,
or there are others (`anew`).
"""

import zlib
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final

from rocketmq_ha.reference import consume_queue, index_file, index_service, mapped_file_queue
from rocketmq_ha.reference.consume_queue import ConsumeQueue, Entry
from rocketmq_ha.reference.dispatch import QueueKey
from rocketmq_ha.reference.index_file import IndexEntry
from rocketmq_ha.reference.step import Transition, unique
from rocketmq_ha.reference.store_state import StoreLife, min_offset

Entries = Sequence[Entry] | Sequence[IndexEntry]  # of a queue, or of the files of the index

DISPATCH: Final = "dispatch"
OPENINGS: Final = ("recover_normally", "recover_abnormally")
CLAUSES_OF_QUEUES: Final = {"append": ("HA-ST-29", "HA-ST-31"), "flush_derived": ("HA-ST-24",), "expire": ("HA-ST-71",)}
CLAUSES_OF_INDEX: Final = {
    "append": ("HA-ST-39", "HA-ST-40", "HA-ST-41", "HA-ST-42"),
    "flush_derived": ("HA-ST-24",),
    "expire": ("HA-ST-71",),
}


class ConsumeQueueState(Enum):
    """The discrete state of one consume queue, for the table of transitions."""

    NONE = "none"  # no file
    UNSYNCED = "unsynced"  # a power cut could take a part of it
    SYNCED = "synced"  # all of it is on the disk
    EXPIRED = "expired"  # it names no message that the log still has
    LEFT = "left"  # the store is closed, and all of the queue is on the disk
    LEFT_UNSYNCED = "left_unsynced"  # the store is closed, and a power cut could take a part of it


class IndexState(Enum):
    """The discrete state of the index, for the table of transitions."""

    NONE = "none"  # no file
    UNSYNCED = "unsynced"  # the last file has room; a power cut could take a part of the index
    SYNCED = "synced"  # the last file has room; all is on the disk
    FULL_UNSYNCED = "full_unsynced"  # the next key needs a new file
    FULL = "full"
    LEFT = "left"  # the store is closed, and all of the index is on the disk
    LEFT_UNSYNCED = "left_unsynced"


def classify_queue(life: StoreLife, key: QueueKey) -> ConsumeQueueState:
    queue = life.dispatched.queues.get(key)
    if queue is None or queue.mapped_file_queue.base is None:
        return ConsumeQueueState.NONE
    files = mapped_file_queue.files(queue.mapped_file_queue)
    is_synced = all(life.synced_queues.get((*key, name)) == data for name, data in files.items())
    if not life.is_open:
        return ConsumeQueueState.LEFT if is_synced else ConsumeQueueState.LEFT_UNSYNCED
    if consume_queue.min_offset_in_queue(queue) >= consume_queue.max_offset_in_queue(queue):
        return ConsumeQueueState.EXPIRED
    return ConsumeQueueState.SYNCED if is_synced else ConsumeQueueState.UNSYNCED


def classify_index(life: StoreLife) -> IndexState:
    index = life.dispatched.index
    if not index:
        return IndexState.NONE
    is_synced = tuple(file.data for file in index) == life.synced_index
    if not life.is_open:
        return IndexState.LEFT if is_synced else IndexState.LEFT_UNSYNCED
    if index_file.is_write_full(index[-1]):
        return IndexState.FULL if is_synced else IndexState.FULL_UNSYNCED
    return IndexState.SYNCED if is_synced else IndexState.UNSYNCED


def rows(before: StoreLife, after: StoreLife, event: str) -> Iterator[Transition]:
    """The rows of a step of the store: of each queue and of the index, if it has changed, or its store was opened or closed."""
    old, new = before.dispatched, after.dispatched
    is_same_life = before.is_open is after.is_open
    event = "expire" if event == "keep" else event  # a deletion that only catches up with the log
    if old.queues is not new.queues or before.synced_queues is not after.synced_queues or not is_same_life:
        for key in sorted({*old.queues, *new.queues}):
            yield from _rows_of_queue(before, after, event, key)
    if old.index is not new.index or before.synced_index is not after.synced_index or not is_same_life:
        yield from _rows_of_index(before, after, event)


def _rows_of_queue(before: StoreLife, after: StoreLife, event: str, key: QueueKey) -> Iterator[Transition]:
    was, now = before.dispatched.queues.get(key), after.dispatched.queues.get(key)
    old, new = classify_queue(before, key), classify_queue(after, key)
    moves = after.is_open and _min_offset(was) != _min_offset(now)
    if old is new and not moves and (was is now or _entries_of_queue(was) == _entries_of_queue(now)):
        return
    clauses = CLAUSES_OF_QUEUES.get(event, ())
    if event == DISPATCH:
        event, clauses = _dispatched(was, now)
    elif event in OPENINGS:
        entries = _entries_of_queue(was), _entries_of_queue(now)
        clauses = ("HA-ST-38", *(_clauses_after_crash(after, entries[1]) if event == "recover_abnormally" else ()))
        event = _recovered(*entries, was is not None, now is not None)
        clauses += ("HA-ST-33",) if entries[1].count(consume_queue.FILLER) > entries[0].count(consume_queue.FILLER) else ()
    instance = zlib.crc32(f"{key[0]}/{key[1]}".encode()) & 0x7FFF_FFFF
    yield Transition("consume_queue", instance, event, old.value, new.value, -1, 0, -1, 0, unique(clauses))


def _clauses_after_crash(after: StoreLife, now: list[Entry]) -> tuple[str, ...]:
    first = min_offset(after)
    keeps_expired = after.recovery_start == first and any(
        not consume_queue.is_filler(entry) and entry.offset < first for entry in now
    )
    return ("HA-ST-73", "HA-ST-82", *(("HA-ST-97",) if keeps_expired else ()))


def _dispatched(was: ConsumeQueue | None, now: ConsumeQueue | None) -> tuple[str, tuple[str, ...]]:
    """What a dispatch did to a queue that has changed, and the clauses that it exercised."""
    assert now is not None, "a dispatch removes no queue"
    entries = _entries_of_queue(now)[len(_entries_of_queue(was)) :]
    clauses = CLAUSES_OF_QUEUES["append"]
    if any(entry.tags_code for entry in entries):
        clauses += ("HA-ST-32",)
    if consume_queue.FILLER in entries:
        return "fill", (*clauses, "HA-ST-33", *(("HA-ST-75",) if was else ()))
    files = [mapped_file_queue.file_count(queue.mapped_file_queue) for queue in (was, now) if queue]
    return "roll" if len(files) == 2 and files[0] < files[1] else "append", clauses


def _rows_of_index(before: StoreLife, after: StoreLife, event: str) -> Iterator[Transition]:
    was, now = before.dispatched.index, after.dispatched.index
    old, new = classify_index(before), classify_index(after)
    if old is new and [file.data for file in was] == [file.data for file in now]:
        return
    clauses = CLAUSES_OF_INDEX.get(event, ())
    if event == DISPATCH:
        event, clauses = "append", CLAUSES_OF_INDEX["append"]
        if was and len(was) < len(now):
            event, clauses = "roll", (*clauses, "HA-ST-83", "HA-ST-84", "HA-ST-88")
    elif event in OPENINGS:
        clauses = ("HA-ST-45", "HA-ST-73") if event == "recover_abnormally" else ()
        event = _recovered(_entries_of_index(was), _entries_of_index(now), bool(was), bool(now))
    yield Transition("index", 0, event, old.value, new.value, -1, 0, -1, 0, unique(clauses))


def _recovered(was: Entries, now: Entries, was_there: bool, is_there: bool) -> str:
    """What an opening left of entries. was_there, is_there: whether there was a file, and is one."""
    if not (was_there and is_there):
        return "made" if is_there else "removed"
    if was == now:
        return "kept"
    if was[: len(now)] == now:
        return "cut"
    return "grown" if now[: len(was)] == was else "anew"


def _min_offset(queue: ConsumeQueue | None) -> int:
    return 0 if queue is None else queue.min_logic_offset


def _entries_of_queue(queue: ConsumeQueue | None) -> list[Entry]:
    """The entries up to the last one: as a closed store is loaded, zeros stand behind it."""
    if queue is None:
        return []
    found = consume_queue.entries(queue.mapped_file_queue.data)
    while found and not consume_queue.is_entry(found[-1]):
        found.pop()
    return found


def _entries_of_index(index: index_service.Index) -> list[IndexEntry]:
    return [index_file.entry(file, number) for file in index for number in range(1, index_file.header(file).index_count)]
