"""The transitions of a slave's copies of its master's tables, found by exploring small scopes (transitions.py).

A scope is about one machine. It has the events that may come, in any order, and a key: two states with the same key count as
one. The key has the question that the slave waits for, what is on its way, and what this machine depends on. It has no numbers
and no times, but how far one is ahead of another.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from rocketmq_ha.reference import metadata, metadata_entries
from rocketmq_ha.reference import metadata_events as events
from rocketmq_ha.reference.metadata import Answer, Metadata, Settings
from rocketmq_ha.reference.metadata_changes import MOST_GONE, MOST_SIZE
from rocketmq_ha.reference.metadata_events import SLAVE
from rocketmq_ha.reference.metadata_process import FIELDS, Process
from rocketmq_ha.reference.slave_synchronize import CODE_OF_CHANGES
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.profile import Profile

T, G = "orders", "g"
KEY: Final = (f"{T}@{G}", 0)
ENTRY: Final = {"topics": T, "groups": G, "deleted": T}
# Bytes of a part: the topics that every broker has take 1,206, the groups 1,785.
SMALL: Final = 600
ONE_PART: Final = 1_785  # with one group more there are two
ONE_PART_OF_TOPICS: Final = 1_210  # also of one topic more; groups have two

Alphabet = tuple[events.Event, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """key: what tells two states apart, besides what `_key` has for every scope."""

    alphabet: Alphabet
    settings: Settings
    key: Callable[[Metadata], Hashable]


# --- Scopes ----------------------------------------------------------------------------------------------------------

_NETWORK: Final[Alphabet] = (events.Follow(0), events.Reach(), events.Arrive(), events.Tick(10_000))
_BAD: Final[Alphabet] = (events.Arrive("from", "topics"), events.Arrive("body"))
_ENDS: Final[Alphabet] = (events.RestartMaster(0, saves=False), events.RestartSlave(saves=True))
_QUESTIONS: Final[Alphabet] = (
    *_NETWORK,
    *_BAD,
    *_ENDS,
    events.Tick(500),
    events.Follow(1),
    events.Follow(SLAVE),
    events.Follow(-2),
    events.Repeat(0),
    events.BreakConnection(0),
    events.BreakConnection(1),
    events.PutTopic(0, T, 1),
)
_TABLE: Final[Alphabet] = (
    *_NETWORK,
    *_BAD,
    *_ENDS,
    events.Arrive("from", "groups"),
    events.Follow(-2),
    events.Repeat(1),
    events.PutGroup(0, G, 1),
    events.DeleteGroup(0, G, removes=False),
)
_TWO_TABLES: Final[Alphabet] = (*_NETWORK, events.PutTopic(0, T, 1), events.PutGroup(0, G, 1))
_TWO_MASTERS: Final[Alphabet] = (*_NETWORK, events.Follow(1), events.PutTopic(0, T, 1), events.PutTopic(1, T, 1))
_DISKS: Final[Alphabet] = tuple(events.Disk(SLAVE, is_full=is_full) for is_full in (True, False))
_OFFSETS_OF_CLASSIC: Final[Alphabet] = (  # an answer replaces all offsets of a topic and group, also by fewer
    *_NETWORK,
    *_DISKS,
    *(events.Commit(0, T, G, queue_id, 1) for queue_id in (0, 1)),
    *(events.Commit(SLAVE, T, G, 0, offset) for offset in (1, 2)),
    events.DeleteGroup(0, G, removes=True),
    events.RestartSlave(saves=False),
)
_OFFSETS: Final[Alphabet] = (
    *_NETWORK,
    events.Arrive("body"),
    events.BreakConnection(0),
    *(events.Commit(0, T, G, 0, offset) for offset in (0, 2)),
    *(events.Commit(SLAVE, T, G, 0, offset) for offset in (1, 2)),
    events.DeleteGroup(0, G, removes=True),
    events.RestartSlave(saves=False),
)
_OFFSETS_OF_CHANGES: Final[Alphabet] = (*_OFFSETS, _BAD[0], events.PutMessage(0, T, 0), events.RestartMaster(0, saves=False))
_DELAYS: Final[Alphabet] = (
    *_NETWORK,
    *_ENDS,
    events.Follow(1),
    events.DeliverDelayed(0, 1),
    events.PutMessage(0, T, 0),
    events.PutMessage(SLAVE, T, 0),
)
_FILES: Final[Alphabet] = (
    *_NETWORK,
    *_BAD,
    *_DISKS,
    events.Tick(500),
    events.Arrive("from", "groups"),
    events.Follow(-2),
    events.PutTopic(0, T, 1),
    events.DeleteTopic(0, T),
    *_ENDS,
)
_FILES_OF_DELETIONS: Final[Alphabet] = (
    *_NETWORK,
    *_DISKS,
    events.PutTopic(0, T, 1),
    events.PutMessage(0, T, 0),
    events.DeleteTopic(0, T),
    events.RestartSlave(saves=False),
)
_FILES_OF_MASTER: Final[Alphabet] = (
    events.PutTopic(0, T, 1),
    events.DeleteTopic(0, T),
    *(events.Disk(0, is_full=is_full) for is_full in (True, False)),
    events.RestartMaster(0, saves=False),
    events.Tick(500),
    events.Tick(10_000),
)


def _of_questions(state: Metadata) -> Hashable:
    return tuple(metadata_entries.of_table(state, name) for name in ("topics", "offsets")), state.slave.told.life[:2]


def _of_table(state: Metadata) -> Hashable:
    return _key_of_table(state, "groups"), _key_of_answers(state, "groups")


def _of_two_tables(state: Metadata) -> Hashable:
    return tuple((_key_of_table(state, name), _key_of_answers(state, name)) for name in ("topics", "groups"))


def _of_two_masters(state: Metadata) -> Hashable:
    """Two masters may give the same version to other topics, in the same ms."""
    mine, theirs, others = (process.tables["topics"].version for process in (state.slave.process, *state.masters))
    ahead = tuple(max(-2, min(2, version.counter - theirs.counter)) for version in (mine, others))
    return ahead, tuple(version.timestamp == state.now_ms for version in (mine, theirs, others)), mine == theirs, mine == others


def _of_offset(state: Metadata) -> Hashable:
    slave, master = state.slave, state.masters[0]
    return (
        _key_of_table(state, "offsets"),
        *(table.get(KEY) for table in (slave.process.offsets.in_memory, slave.of_offsets.told, master.offsets.in_memory)),
        KEY in slave.process.offsets.on_disk,
        len(master.stored),
        bool(slave.of_offsets.committed),
        slave.process.is_full,
        _key_of_answers(state, "offsets", repeats=False),
    )


def _of_delays(state: Metadata) -> Hashable:
    slave = state.slave
    return (
        metadata_entries.of_delays(slave),
        state.delays[0],
        state.masters[0].max_offset,
        slave.process.max_offset,
        _key_of_answers(state, "delays", repeats=False),
    )


def _of_files(state: Metadata) -> Hashable:
    return _key_of_files(state.slave.process, state.now_ms, "topics"), _key_of_table(state, "topics")


def _of_files_of_deletions(state: Metadata) -> Hashable:
    return (
        _key_of_files(state.slave.process, state.now_ms, "deleted"),
        _key_of_table(state, "deleted"),
        state.masters[0].max_offset,
        tuple(T in process.tables["topics"].entries for process in (state.slave.process, state.masters[0])),
    )


def _of_files_of_master(state: Metadata) -> Hashable:
    return tuple(_key_of_files(state.masters[0], state.now_ms, name) for name in ("topics", "deleted"))


def _whole(*tells: bool) -> Settings:
    return Settings(tells, MOST_SIZE, MOST_GONE)


_SCOPES: Final = (
    Scope(_QUESTIONS, _whole(False, False), _of_questions),
    Scope(_TABLE, _whole(False, False), _of_table),
    Scope(_TWO_MASTERS, _whole(False, False), _of_two_masters),
    Scope(_DELAYS, _whole(False, False), _of_delays),
    Scope(_FILES, _whole(False), _of_files),
    Scope(_FILES_OF_DELETIONS, _whole(False), _of_files_of_deletions),
    Scope(_FILES_OF_MASTER, _whole(False), _of_files_of_master),
)
_SCOPES_OF_CLASSIC: Final = (Scope(_OFFSETS_OF_CLASSIC, _whole(False), _of_offset),)
_SCOPES_OF_HARDENED: Final = (
    Scope(_OFFSETS, _whole(False), _of_offset),
    Scope(_QUESTIONS, Settings((True, False), SMALL), _of_questions),
    Scope(_TABLE, Settings((True,), ONE_PART, 0), _of_table),
    Scope(_TWO_TABLES, Settings((True,), SMALL), _of_two_tables),
    Scope((*_TWO_TABLES, events.Repeat(1)), Settings((True,), ONE_PART_OF_TOPICS), _of_two_tables),
    Scope((*_TWO_TABLES, events.Repeat(1), events.DeleteTopic(0, T)), Settings((True,), MOST_SIZE, 0), _of_two_tables),
    Scope(_OFFSETS_OF_CHANGES, Settings((True,), SMALL), _of_offset),
    Scope(_OFFSETS_OF_CHANGES, _whole(True), _of_offset),
    Scope(_DELAYS, Settings((True, True), SMALL), _of_delays),
    Scope((*_DELAYS, *_BAD), _whole(True, True), _of_delays),
    Scope(_DELAYS, _whole(True, False), _of_delays),
    Scope(_FILES, Settings((True,), SMALL), _of_files),
    Scope(_FILES, _whole(True), _of_files),
    Scope(_FILES_OF_DELETIONS, _whole(True), _of_files_of_deletions),
)


# --- What tells states apart -----------------------------------------------------------------------------------------


def _key(state: Metadata, scope: Scope) -> Hashable:
    slave, asking = state.slave, state.slave.asking
    at = asking.master
    return (
        at,
        metadata_entries.of_asking(slave),
        asking.next_ms > state.now_ms,
        bool(asking.whole_link) and at is not None and state.links[0] == asking.whole_link,
        tuple((asked.master, asked.code, asked.number == asking.number, asked.answer is not None) for asked in slave.sent),
        scope.key(state),
    )


def _key_of_table(state: Metadata, name: str) -> Hashable:
    told, master, mine = state.slave.told, state.masters[0], state.slave.process
    last = master.offsets_log.last if name == "offsets" else master.tables[name].log.last
    found = name == "offsets" or tuple(ENTRY[name] in process.tables[name].entries for process in (master, mine))
    return (
        metadata_entries.of_table(state, name),
        told.life and told.life == f"m0-{master.life}",
        min(2, max(0, last - told.at.get(name, 0))),
        name in told.seen,
        found,
    )


def _key_of_answers(state: Metadata, name: str, *, repeats: bool = True) -> Hashable:
    """What each answer that is on its way, or may come once more, would do to a table."""
    sent = tuple(_key_of_answer(state, asked.code, asked.answer, name) for asked in state.slave.sent)
    again = tuple(_key_of_answer(state, code, answer, name) for code, answer in state.answered)
    return sent, tuple(found for found in again if found is not None)[-2:] if repeats else ()


def _key_of_answer(state: Metadata, code: int, answer: Answer | None, name: str) -> Hashable:
    if answer is None or answer[0] or not isinstance(body := answer[1], dict):
        return None
    if code != CODE_OF_CHANGES:
        if FIELDS.get(name) in body:
            version = state.masters[0].tables[name].version
            return ENTRY[name] in body[FIELDS[name]], body["dataVersion"]["counter"] == version.counter
        return str(body["offsetTable"].get(KEY[0])) if name == "offsets" and code == 43 else None
    told = state.slave.told
    lives = body["life"] == told.life, body["life"] == f"m0-{state.masters[0].life}"
    if name == "delays":
        return lives, body["maxOffset"] > state.slave.process.max_offset, bool(body["delayOffset"]["offsetTable"])
    part = body[name]
    found = part["changed"].get(KEY[0]) if name == "offsets" else ENTRY[name] in part["changed"]
    return lives, part["from"] in (0, told.at.get(name, 0)), part["isEnd"], str(found)


def _key_of_files(process: Process, now_ms: int, name: str) -> Hashable:
    table = process.tables[name]
    return process.is_full, metadata_entries.of_file(process, name), table.file.retry_at > now_ms, T in table.entries


# --- The exploration -------------------------------------------------------------------------------------------------


@cache
def rows(profile: Profile) -> frozenset[Transition]:
    """The rows of all machines of the world."""
    found: set[Transition] = set()
    for scope in (*_SCOPES, *(_SCOPES_OF_HARDENED if profile.asks_changes else _SCOPES_OF_CLASSIC)):
        explore(scope, profile, found)
    return frozenset(found)


def explore(scope: Scope, profile: Profile, found: set[Transition]) -> int:
    """Add the rows of a scope. Returns: how many states it has."""
    start = metadata.new_metadata(scope.settings, profile, 0)
    seen, frontier = {_key(start, scope)}, [start]
    while frontier:
        for after in _successors(frontier.pop(), scope, profile, found):
            if (name := _key(after, scope)) not in seen:
                seen.add(name)
                frontier.append(after)
    return len(seen)


def _successors(state: Metadata, scope: Scope, profile: Profile, found: set[Transition]) -> Iterator[Metadata]:
    for event in scope.alphabet:
        if isinstance(event, events.PutMessage) and len(_process(state, event.process).stored) == 1:
            continue  # a second message would tell nothing new
        if isinstance(event, events.Follow) and len(state.slave.sent) > 1:
            continue
        after, transitions = metadata.step(state, event, scope.settings, profile)
        found.update(transitions)
        yield after


def _process(state: Metadata, number: int) -> Process:
    return state.slave.process if number == SLAVE else state.masters[number]
