"""The transitions of a slave's copies of its master's tables, found by exploring small scopes (transitions.py).

Each scope is a list of events that may come in any order. Two states count as one if all their machines stand alike, with what
is on its way, what is due, and what masters and slave have of one topic and one offset; numbers and times do not count.
"""

from collections.abc import Hashable, Iterator
from functools import cache
from typing import Final

from rocketmq_ha.reference import metadata, metadata_changes, metadata_entries
from rocketmq_ha.reference import metadata_events as events
from rocketmq_ha.reference.metadata import Metadata, Settings
from rocketmq_ha.reference.metadata_events import SLAVE
from rocketmq_ha.reference.metadata_process import VERSIONED, Process
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.profile import Profile

T, G = "orders", "g"
KEY: Final = (f"{T}@{G}", 0)
SMALL: Final = 1_200  # bytes of a part: of the topics that every broker has it takes two
Alphabet = tuple[events.Event, ...]

_NETWORK: Final[Alphabet] = (events.Follow(0), events.Reach(), events.Arrive(), events.Tick(500), events.Tick(10_000))
_QUESTIONS: Final[Alphabet] = (
    *_NETWORK,
    events.Follow(1),
    events.Follow(SLAVE),
    events.Follow(-2),
    events.Arrive("from", "topics"),
    events.Arrive("changed", "topics"),
    events.Arrive("body"),
    events.Repeat(0),
    events.BreakConnection(0),
    events.RestartMaster(0, saves=True),
    events.RestartSlave(saves=False),
    events.PutTopic(0, T, 1),
)
_TOPICS: Final[Alphabet] = (
    *_NETWORK,
    events.Follow(1),
    events.PutTopic(0, T, 1),
    events.PutMessage(SLAVE, T, 0),
    events.PutMessage(0, T, 0),
    events.DeleteTopic(0, T),
    events.PutGroup(0, G, 1),
    events.DeleteGroup(0, G, removes=False),
    events.RestartMaster(0, saves=False),
    events.RestartSlave(saves=True),
)
_OFFSETS: Final[Alphabet] = (
    *_NETWORK,
    *(events.Commit(0, T, G, 0, offset) for offset in (1, 3)),
    *(events.Commit(SLAVE, T, G, 0, offset) for offset in (1, 2)),
    events.DeleteGroup(0, G, removes=True),
    events.RestartMaster(0, saves=False),
    events.RestartSlave(saves=True),
)
_DELAYS: Final[Alphabet] = (
    *_NETWORK,
    events.Follow(1),
    events.DeliverDelayed(0, 1),
    events.PutMessage(0, T, 0),
    events.PutMessage(SLAVE, T, 0),
    events.RestartMaster(0, saves=False),
    events.RestartSlave(saves=True),
)
_FILES: Final[Alphabet] = (
    *_NETWORK,
    events.PutTopic(0, T, 1),
    events.PutMessage(0, T, 0),
    events.DeleteTopic(0, T),
    *(events.Disk(process, is_full=is_full) for process in (0, SLAVE) for is_full in (True, False)),
    events.RestartMaster(0, saves=False),
    events.RestartSlave(saves=False),
)
_MOST: Final = metadata_changes.MOST_SIZE
_SCOPES: Final[tuple[tuple[Alphabet, Settings], ...]] = (
    (_QUESTIONS, Settings((True, False), _MOST)),
    (_OFFSETS, Settings((False,), _MOST)),
    (_FILES, Settings((False,), _MOST)),
    (_TOPICS, Settings((False, True), _MOST)),
)
_SCOPES_OF_CHANGES: Final[tuple[tuple[Alphabet, Settings], ...]] = (
    (_QUESTIONS, Settings((True, True), SMALL)),
    (_TOPICS, Settings((True, False), _MOST, 0)),
    (_OFFSETS, Settings((True,), _MOST)),
    (_DELAYS, Settings((True, False), _MOST)),
    (_FILES, Settings((True,), _MOST)),
)


@cache
def rows(profile: Profile) -> frozenset[Transition]:
    """The rows of all machines of the world."""
    found: set[Transition] = set()
    for alphabet, settings in (*_SCOPES, *(_SCOPES_OF_CHANGES if profile.asks_changes else ())):
        explore(alphabet, settings, profile, found)
    return frozenset(found)


def explore(alphabet: Alphabet, settings: Settings, profile: Profile, found: set[Transition]) -> int:
    """Add the rows of a scope. Returns: how many states it has."""
    start = metadata.new_metadata(settings, profile, 0)
    seen, frontier = {_key(start)}, [start]
    while frontier:
        state = frontier.pop()
        for after in _successors(state, alphabet, settings, profile, found):
            if (name := _key(after)) not in seen:
                seen.add(name)
                frontier.append(after)
    return len(seen)


def _successors(
    state: Metadata, alphabet: Alphabet, settings: Settings, profile: Profile, found: set[Transition]
) -> Iterator[Metadata]:
    for event in alphabet:
        if isinstance(event, events.PutMessage) and _log_of(state, event.process).max_offset:
            continue  # a second message would tell nothing new
        if isinstance(event, events.Follow) and len(state.slave.sent) > 1:
            continue
        after, transitions = metadata.step(state, event, settings, profile)
        found.update(transitions)
        yield after


def _log_of(state: Metadata, process: int) -> Process:
    return state.slave.process if process == SLAVE else state.masters[process]


def _key(state: Metadata) -> Hashable:
    slave, asking = state.slave, state.slave.asking
    at = asking.master
    return (
        at,
        metadata_entries.of_asking(slave),
        asking.next_ms > state.now_ms,
        bool(asking.whole_link) and at is not None and state.links[0] == asking.whole_link,
        tuple(metadata_entries.of_table(state, name) for name in metadata_changes.TABLES),
        slave.told.life != "" and at is not None and slave.told.life[:2],
        _progress(state),
        bool(state.delays[0]),
        tuple((asked.code, asked.number == asking.number, asked.answer is not None) for asked in slave.sent),
        metadata_entries.of_offset(slave, KEY),
        slave.process.offsets.in_memory.get(KEY),
        slave.of_offsets.told.get(KEY),
        bool(slave.of_offsets.committed),
        metadata_entries.of_delays(slave),
        slave.known is not None,
        tuple(_key_of_process(process) for process in (*state.masters[:1], slave.process)),
    )


def _progress(state: Metadata) -> Hashable:
    """How far the first master's numbers are ahead of what the slave was told: parts of an answer differ in nothing else."""
    told, master = state.slave.told, state.masters[0]
    last = {name: table.log.last for name, table in master.tables.items()} | {"offsets": master.offsets_log.last}
    return tuple((name in told.seen, min(2, max(0, last[name] - told.at.get(name, 0)))) for name in metadata_changes.TABLES)


def _key_of_process(process: Process) -> Hashable:
    return (
        tuple(metadata_entries.of_file(process, name) for name in VERSIONED),
        tuple(T in process.tables[name].entries or G in process.tables[name].entries for name in VERSIONED),
        process.offsets.in_memory.get(KEY),
        process.offsets.on_disk.get(KEY),
        process.max_offset,
        process.is_full,
    )
