"""Reads of what is derived from a log: by queue offset, by time, by key.

Each answer is a tuple of plain values; the implementation's side of a lock-step makes the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketmq_ha.reference import consume_queue, index_file, index_service, mapped_file_queue
from rocketmq_ha.reference import query as queries
from rocketmq_ha.reference.consume_queue import CQ_STORE_UNIT_SIZE, FILLER, ConsumeQueue
from rocketmq_ha.reference.derived_events import Get, Query, Seek
from rocketmq_ha.reference.dispatch import Dispatched
from rocketmq_ha.reference.index_file import IndexFile
from rocketmq_ha.reference.index_service import NOTHING
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.store import Log, max_offset, min_offset
from rocketmq_ha.spec.profile import Profile

Answer = tuple[object, ...]
Answered = tuple[Answer, tuple[str, ...]]  # and the clauses


@dataclass(frozen=True, slots=True)
class Known:
    """A message of the log, as it was stored. number: its queue offset; None for one that is in no queue."""

    offset: int
    size: int
    topic: str
    queue_id: int
    number: int | None
    store_timestamp: int
    tags_code: int
    keys: tuple[str, ...]  # of the index; none for a message that is not in it


def visible(queue: ConsumeQueue, hidden_to: int) -> ConsumeQueue:
    """A queue as consumers see it: it begins behind the messages that are hidden. HA-BT-80 "MUST give no message"."""
    if not hidden_to:
        return queue
    base = (queue.mapped_file_queue.base or 0) // CQ_STORE_UNIT_SIZE
    found = consume_queue.entries(queue.mapped_file_queue.data)
    first = next((at for at, entry in enumerate(found) if entry != FILLER and entry.offset >= hidden_to), len(found))
    return replace(queue, min_logic_offset=max(queue.min_logic_offset, (base + first) * CQ_STORE_UNIT_SIZE))


def get(state: Dispatched, log: Log, deleted: Mapping[str, int], event: Get) -> Answered:
    """A consumer's read: its status, the offset to read next, and the log offsets of the messages.

    Spec: HA-ST-37 "MUST go through the consume queue, which says where to read, to the commit log, which has the message".
    """
    queue = state.queues.get((event.topic, event.queue_id))
    if queue is None:
        return ("NO_MATCHED_LOGIC_QUEUE", 0), ("HA-ST-37",)
    queue = visible(queue, deleted.get(event.topic, 0))
    first, end = consume_queue.min_offset_in_queue(queue), consume_queue.max_offset_in_queue(queue)
    at = end - event.back
    if first == end:
        return ("NO_MESSAGE_IN_QUEUE", 0), ("HA-ST-37",)
    if at < first:
        return ("OFFSET_TOO_SMALL", first), ("HA-ST-37",)
    if at >= end:
        return ("OFFSET_OVERFLOW_ONE" if at == end else "OFFSET_OVERFLOW_BADLY", end), ("HA-ST-37",)
    of_a_file = queue.mapped_file_queue.file_size // CQ_STORE_UNIT_SIZE
    found: list[int] = []
    for index in range(at, min(at + event.count, end, at - at % of_a_file + of_a_file)):
        entry = consume_queue.entry_at(queue, index)
        if entry is None or not min_offset(log) <= entry.offset <= entry.offset + entry.size <= max_offset(log):
            break  # a filler, or a message that the log has no more
        found.append(entry.offset)
    if not found:
        return ("MESSAGE_WAS_REMOVING" if event.count > 0 else "FOUND", at + (event.count > 0)), ("HA-ST-37",)
    return ("FOUND", at + len(found), *found), ("HA-ST-37",)


def seek(
    state: Dispatched,
    log: Log,
    deleted: Mapping[str, int],
    known: Sequence[Known],
    now_ms: int,
    event: Seek,
    profile: Profile,
) -> Answered:
    """Where in a queue a time is. Classic: HA-ST-80 "begins at the nearest message of one file of the queue".

    Hardened: HA-ST-81 "MUST begin at the first message of the queue that is not older", HA-ST-94 "the last message of the queue
    that is not newer".
    """
    queue, timestamp = state.queues.get((event.topic, event.queue_id)), now_ms - event.back_ms
    if queue is None:
        return (0,), ("HA-ST-37",)
    queue = visible(queue, deleted.get(event.topic, 0))
    if not profile.clears_tail:
        return (consume_queue.offset_in_queue_by_time(queue, log, timestamp, last_stored(queue, known)),), ("HA-ST-80",)
    if event.upper:
        return (consume_queue.upper_offset_in_queue_by_time(queue, log, timestamp),), ("HA-ST-94",)
    return (consume_queue.lower_offset_in_queue_by_time(queue, log, timestamp),), ("HA-ST-81",)


def last_stored(queue: ConsumeQueue, known: Sequence[Known]) -> list[int]:
    """When the last message of each file of a queue was stored: its file was modified then. 0 where the log has it no more."""
    files, stored = queue.mapped_file_queue, {one.offset: one.store_timestamp for one in known}
    found = []
    for index in range(mapped_file_queue.file_count(files)):
        data = files.data[index * files.file_size : (index + 1) * files.file_size]
        last = consume_queue.entries(data)[-1] if data else FILLER
        found.append(stored.get(last.offset, 0))
    return found


def chain(file: IndexFile, key_hash: int) -> list[int]:
    """The log offsets of the entries with a hash, from the slot on: HA-ST-40 "the one before it in its slot, 0 ending the chain"."""
    found, entries = [], [NOTHING, *index_file.entries(file)]
    number = index_file.slot_value(file, key_hash)
    while 0 < number < len(entries):
        entry = entries[number]
        if entry.key_hash == key_hash:
            found.append(entry.phy_offset)
        number = entry.prev_index if entry.prev_index < number else 0
    return found


def query(state: Dispatched, known: Sequence[Known], now_ms: int, event: Query) -> Answered:
    """Two answers about a key: the messages of a store, which reads its candidates, and the offsets that the index gives.

    Spec: HA-ST-44 "A query MUST find messages by key within a span of store times"; HA-ST-85 "MUST give the newest of the messages
    that match"; HA-ST-86 "MUST be thrown away by their reader". What is not dispatched yet is found as well.
    """
    begin, end = now_ms - event.from_ms, now_ms - event.to_ms
    key_hash = index_file.index_key_hash(index_file.build_key(event.topic, event.key))
    indexed = {offset for file in state.index for offset in chain(file, key_hash)}
    stored = [
        queries.Stored(one.offset, one.size, one.topic, frozenset(one.keys), one.store_timestamp)
        for one in known
        if one.offset in indexed or one.offset >= state.reput_from_offset
    ]
    found = queries.query_message(
        stored, event.topic, event.key, event.most, begin, end, is_unique_key=False, most_bytes=1 << 30
    )
    offsets = index_service.query_offset(state.index, event.topic, event.key, event.most, begin, end)
    clauses = ("HA-ST-44", "HA-ST-85", *(("HA-ST-86",) if {*offsets} - {*found} else ()))
    return (found, tuple(sorted(offsets))), clauses
