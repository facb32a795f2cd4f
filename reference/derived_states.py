"""The discrete states of dispatch, consume queues and index, the transitions of a step, and what must always hold.

    dispatch        stopped, crashed, rebuilding | in_step, behind, waiting, stuck
    consume_queue   none, kept, torn, ahead_of_log | in_step, behind, lacking, bare
    index           none, kept, torn, ahead_of_log | open, full, behind

On the left of the line no process serves. A queue is *lacking* where the log has a message of it that is behind the dispatch and
not in the queue; *bare* where it has files and shows no message, since all have expired or are hidden.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from rocketmq_ha.reference import consume_queue, derived_disk, derived_events, derived_life, index_file, mapped_file_queue
from rocketmq_ha.reference.consume_queue import CQ_STORE_UNIT_SIZE, FILLER
from rocketmq_ha.reference.derived_life import Life, Phase, Sizes
from rocketmq_ha.reference.derived_reads import Known, visible
from rocketmq_ha.reference.dispatch import QueueKey
from rocketmq_ha.reference.index_service import Index
from rocketmq_ha.reference.mapped_file_queue import MappedFileQueue
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.reference.store import max_offset
from rocketmq_ha.spec.profile import Profile


class DispatchState(Enum):
    STOPPED = "stopped"
    CRASHED = "crashed"
    REBUILDING = "rebuilding"  # a start dispatches what it has found undispatched
    IN_STEP = "in_step"
    BEHIND = "behind"
    WAITING = "waiting"  # for the rest of a record
    STUCK = "stuck"  # at a message whose queue offset is impossible


class QueueState(Enum):
    NONE = "none"
    KEPT = "kept"
    TORN = "torn"  # bytes in it are no entry
    AHEAD_OF_LOG = "ahead_of_log"  # it names what the log does not have
    IN_STEP = "in_step"
    BEHIND = "behind"
    LACKING = "lacking"
    BARE = "bare"


class IndexState(Enum):
    NONE = "none"
    KEPT = "kept"
    TORN = "torn"
    AHEAD_OF_LOG = "ahead_of_log"
    OPEN = "open"  # the last file has room
    FULL = "full"  # the next key makes a file
    BEHIND = "behind"


EVENT_NAMES = {
    derived_events.Put: "put",
    derived_events.Dispatch: "dispatch",
    derived_events.Flush: "flush",
    derived_events.Expire: "expire",
    derived_events.DeleteTopic: "delete_topic",
    derived_events.Get: "get",
    derived_events.Seek: "seek",
    derived_events.Query: "query",
    derived_events.Stop: "stop",
    derived_events.Kill: "kill",
    derived_events.PowerCut: "power_cut",
    derived_events.Damage: "damage",
    derived_events.Start: "start",
}
# The clauses of a step that are about the index; those about neither it nor the queues are the dispatch's.
OF_INDEX = frozenset(
    f"HA-ST-{number}" for number in (39, 40, 41, 42, 43, 44, 45, 47, 48, 78, 83, 84, 85, 86, 88)
)
OF_QUEUES = frozenset(f"HA-ST-{number}" for number in (29, 30, 31, 32, 33, 34, 37, 38, 71, 75, 76, 80, 81, 82, 90, 94)) | {
    "HA-BT-80"
}


# --- The state of each machine ---------------------------------------------------------------------------------------


def classify_dispatch(life: Life) -> DispatchState:
    if life.phase is Phase.DOWN:
        return DispatchState.CRASHED if life.abort else DispatchState.STOPPED
    if life.phase is Phase.STARTING:
        return DispatchState.REBUILDING
    if life.refused:
        return DispatchState.STUCK
    end = life.dispatched.reput_from_offset
    if life.known and life.known[-1].offset >= end:
        return DispatchState.BEHIND
    return DispatchState.WAITING if life.missing else DispatchState.IN_STEP


def classify_queue(life: Life, key: QueueKey, mine: Sequence[Known]) -> QueueState:
    """The state of a queue. mine: its messages in the log."""
    queue = life.dispatched.queues.get(key)
    if queue is None or queue.mapped_file_queue.base is None:
        if life.phase is Phase.DOWN or not mine:
            return QueueState.NONE
        return QueueState.BEHIND if mine[0].offset >= life.dispatched.reput_from_offset else QueueState.LACKING
    if life.phase is Phase.DOWN:
        if derived_disk.is_broken(queue):
            return QueueState.TORN
        entries = consume_queue.entries(queue.mapped_file_queue.data)
        last = max((entry.offset + entry.size for entry in entries if entry != FILLER), default=0)
        return QueueState.AHEAD_OF_LOG if last > max_offset(life.log) else QueueState.KEPT
    lacks = [known for known in mine if _is_lacking(queue.mapped_file_queue, known)]
    if lacks:
        return QueueState.LACKING if lacks[0].offset < life.dispatched.reput_from_offset else QueueState.BEHIND
    shown = visible(queue, life.deleted.get(key[0], 0))
    is_bare = consume_queue.min_offset_in_queue(shown) == consume_queue.max_offset_in_queue(shown)
    return QueueState.BARE if is_bare else QueueState.IN_STEP


def _is_lacking(files: MappedFileQueue, known: Known) -> bool:
    """Whether a queue does not have the entry of a message in its place."""
    assert known.number is not None
    at = known.number * CQ_STORE_UNIT_SIZE - (files.base or 0)
    return not 0 <= at < len(files.data) or int.from_bytes(files.data[at : at + 8], "big") != known.offset


def classify_index(life: Life) -> IndexState:
    index = life.dispatched.index
    if life.phase is not Phase.DOWN:
        end = life.dispatched.reput_from_offset
        if any(known.keys and known.offset >= end for known in life.known):
            return IndexState.BEHIND
        if not index:
            return IndexState.NONE
        return IndexState.FULL if index_file.is_write_full(index[-1]) else IndexState.OPEN
    if not index:
        return IndexState.NONE
    if _is_torn(index):
        return IndexState.TORN
    ahead = any(index_file.header(file).end_phy_offset >= max_offset(life.log) for file in index)
    return IndexState.AHEAD_OF_LOG if ahead else IndexState.KEPT


def _is_torn(index: Index) -> bool:
    """Whether the entries that a header counts are not all there, or more are there."""
    for file in index:
        told = index_file.header(file)
        count = min(told.index_count, file.index_num)
        offsets = [entry.phy_offset for entry in index_file.entries(file)]
        behind = file.data[index_file.entry_position(file, count) :]
        if any(behind) or offsets != sorted(offsets) or (offsets and offsets[-1] != told.end_phy_offset):
            return True
    return False


@dataclass(frozen=True, slots=True)
class States:
    """The discrete states of a store: of its queues in the order of a schedule."""

    dispatch: DispatchState
    queues: tuple[QueueState, ...]
    index: IndexState


def classify(life: Life, keys: Sequence[QueueKey]) -> States:
    mine: dict[QueueKey, list[Known]] = {key: [] for key in keys}
    for known in life.known:
        if known.number is not None and (known.topic, known.queue_id) in mine:
            mine[known.topic, known.queue_id].append(known)
    queues = tuple(classify_queue(life, key, mine[key]) for key in keys)
    return States(classify_dispatch(life), queues, classify_index(life))


# --- The transitions of a step ---------------------------------------------------------------------------------------


QUESTIONS = (derived_events.Get, derived_events.Seek, derived_events.Query)


def step(
    life: Life, states: States, event: derived_events.Event, sizes: Sizes, profile: Profile, keys: Sequence[QueueKey]
) -> tuple[Life, States, tuple[Transition, ...]]:
    """One event, and the transitions of all machines.

    Args:  states: of `life`. keys: the queues of a schedule; a queue's instance is its place there.
    """
    stepped = derived_life.step(life, event, sizes, profile)
    after = stepped.state
    if isinstance(event, derived_events.Tick) or (not stepped.clauses and after == replace(life, answer=())):
        return after, states, ()
    same = isinstance(event, (*QUESTIONS, derived_events.Flush))
    after_states = states if same else classify(after, keys)
    return after, after_states, tuple(_rows((life, states), (after, after_states), event, stepped.clauses, keys))


def _rows(
    told: tuple[Life, States],
    found: tuple[Life, States],
    event: derived_events.Event,
    clauses: tuple[str, ...],
    keys: Sequence[QueueKey],
) -> Iterator[Transition]:
    (before, old), (after, new) = told, found
    name = EVENT_NAMES[type(event)]
    of_queues = tuple(clause for clause in clauses if clause in OF_QUEUES)
    of_index = tuple(clause for clause in clauses if clause in OF_INDEX)
    others = tuple(clause for clause in clauses if clause not in OF_QUEUES and clause not in OF_INDEX)
    asked = (event.topic, event.queue_id) if isinstance(event, derived_events.Get | derived_events.Seek) else None
    for instance, (key, *states) in enumerate(zip(keys, old.queues, new.queues, strict=True)):
        queue = after.dispatched.queues.get(key)
        if states[0] is not states[1] or before.dispatched.queues.get(key) is not queue or key == asked:
            yield _row("consume_queue", instance, name, states, _end(queue), of_queues)
    changed = before.dispatched.index is not after.dispatched.index
    if old.index is not new.index or changed or isinstance(event, derived_events.Query):
        yield _row("index", 0, name, (old.index, new.index), len(after.dispatched.index), of_index)
    if not isinstance(event, QUESTIONS):
        grown = max(0, max_offset(after.log) - max_offset(before.log))
        held = max_offset(after.log) - derived_life.begin_of_last(after) if after.missing else 0
        states_of_dispatch = old.dispatch.value, new.dispatch.value
        reached = after.dispatched.reput_from_offset
        yield Transition("dispatch", 0, name, *states_of_dispatch, reached, grown, -1, held, others)


def _end(queue: consume_queue.ConsumeQueue | None) -> int:
    return mapped_file_queue.end(queue.mapped_file_queue) if queue else 0


def _row(
    actor: str, instance: int, event: str, states: Sequence[Enum], offset: int, clauses: tuple[str, ...]
) -> Transition:
    return Transition(actor, instance, event, states[0].value, states[1].value, offset, 0, -1, 0, clauses)


# --- What must always hold -------------------------------------------------------------------------------------------


def broken(life: Life) -> tuple[str, ...]:
    """The names of what does not hold, in a process of hardened.

    Spec: HA-ST-31 "MUST be entry n of its queue", HA-ST-38 "MUST NOT name a message beyond the end of the commit log", HA-ST-90
    "MUST begin no later than behind the last message that this queue has", HA-ST-45 "MUST keep the entries of messages".
    """
    if life.phase is Phase.DOWN:
        return ()
    found = []
    at = {known.offset: known for known in life.known}
    if any(_names_another(life, key, at) for key in life.dispatched.queues if f"{key[0]}/{key[1]}" not in life.injured):
        found.append("each_entry_names_its_message")
    served = [known for known in life.known if known.offset < life.dispatched.reput_from_offset]
    if life.phase is Phase.RUNNING:
        if any(_is_out_of_its_queue(life, known) for known in served):
            found.append("each_message_is_in_its_queue")
        if "index" not in life.injured and _lacks_keys(life.dispatched.index, served):
            found.append("each_key_is_in_the_index")
    return tuple(found)


def _names_another(life: Life, key: QueueKey, at: dict[int, Known]) -> bool:
    """Whether a queue names, in a place that it shows, what is not its message of this place."""
    queue = life.dispatched.queues[key]
    first = consume_queue.min_offset_in_queue(queue)
    base = (queue.mapped_file_queue.base or 0) // CQ_STORE_UNIT_SIZE
    for index, entry in enumerate(consume_queue.entries(queue.mapped_file_queue.data), base):
        if index < first or entry == FILLER or entry.offset < (life.log.base or 0):
            continue
        known = at.get(entry.offset)
        told = (entry.size, entry.tags_code, *key, index)
        if known is None or told != (known.size, known.tags_code, known.topic, known.queue_id, known.number):
            return True
    return False


def _is_out_of_its_queue(life: Life, known: Known) -> bool:
    if known.number is None or f"{known.topic}/{known.queue_id}" in life.injured:
        return False
    queue = life.dispatched.queues.get((known.topic, known.queue_id))
    return queue is None or _is_lacking(queue.mapped_file_queue, known)


def _lacks_keys(index: Index, served: Sequence[Known]) -> bool:
    """Whether an index has not just the keys of each message."""
    hashes: dict[int, list[int]] = {known.offset: [] for known in served}
    for file in index:
        for entry in index_file.entries(file):
            if entry.phy_offset in hashes:
                hashes[entry.phy_offset].append(entry.key_hash)
    return any(
        sorted(hashes[known.offset])
        != sorted(index_file.index_key_hash(index_file.build_key(known.topic, key)) for key in known.keys)
        for known in served
    )
