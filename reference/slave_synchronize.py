"""When a slave asks its master, and for what; what it makes of whole topics, groups and consumer offsets.

classic    on_tick --> topics --> consumer offsets --> delay offsets --> groups --> the next round, 10 s after this one
                         |              |                  |               |
                         answered, refused or given up: the next table is asked for all the same

hardened   on_tick --> changes --> more to tell: asked at once; else 500 ms after the last question
                         |
                         not supported: rounds of whole tables over this connection, 1 to 10 s apart
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from rocketmq_ha.reference.replace import replace

FIRST_MS: Final = 3_000
PERIOD_MS: Final = 10_000
# HA-MD-1 "topics, consumer offsets, delay offsets, subscription groups"; HA-MD-1 "It MAY ask for more": for their changes
CODES: Final = (21, 43, 45, 201)
CHANGES: Final = -1  # the question for changes, in place of the index of a table
CODE_OF_CHANGES: Final = 30_043
VIP_OFFSET: Final = 2
CHANGES_PERIOD_MS: Final = 500
LEAST_PERIOD_MS: Final = 1_000

Value = TypeVar("Value")
Outcome = Literal["taken", "more", "failed", "not supported"]  # more: taken, and there is more of which the slave can take


@dataclass(frozen=True, slots=True)
class Synchronizing:
    """own, master: host and port. asked: index of the table that has no answer yet, or CHANGES; None between two rounds.

    number: of the last question. asks_changes: as in hardened. whole_link: the connection whose master tells no changes.
    began_ms, size: the begin of the round of whole tables, and the bytes of its answers.
    """

    own: tuple[str, int]
    next_ms: int
    asks_changes: bool = False
    master: tuple[str, int] | None = None
    asked: int | None = None
    number: int = 0
    whole_link: int = 0
    began_ms: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    code: int
    address: tuple[str, int]


Step = tuple[Synchronizing, Question | None]


@dataclass(frozen=True, slots=True)
class Table:
    """Topics or groups, with the counter and the timestamp of their version."""

    version: tuple[int, int]
    entries: Mapping[str, object]


def on_start(own: tuple[str, int], now_ms: int, *, asks_changes: bool = False) -> Synchronizing:
    """HA-MD-2 "MUST come 3 s after the start"; HA-MD-5 "MUST forget the master's address for these requests"."""
    return Synchronizing(own, now_ms if asks_changes else now_ms + FIRST_MS, asks_changes)


def on_master(state: Synchronizing, master: tuple[str, int] | None, now_ms: int = 0) -> Synchronizing:
    """A registration has been answered. HA-MD-5 "learn it anew from its next registration with the name server".

    HA-MD-27 "as soon as it knows the master's address": a question to another master is not waited for.
    """
    if not state.asks_changes or master == state.master:
        return replace(state, master=master)
    return replace(state, master=master, asked=None, whole_link=0, next_ms=now_ms)


def on_tick(state: Synchronizing, now_ms: int, link: int = 0) -> Step:
    """HA-MD-2 "one round every 10 s after that"; HA-MD-3 "the next round MUST still come".

    HA-MD-6 "one that becomes a slave MUST NOT run more than one timer"; HA-MD-6 "MUST stop asking": a master has no such state.
    HA-MD-27 "MUST ask its master for the changes of its tables", "again 500 ms after each such question".
    link: the number of the connection to the master; 0 for none.
    """
    if state.asked is not None or now_ms < state.next_ms:
        return state, None
    if not state.asks_changes:
        return _ask(replace(state, next_ms=now_ms + PERIOD_MS), 0)
    if state.master is None or state.master == state.own:
        return state, None
    if link and link == state.whole_link:
        return _begin_round(state, now_ms)
    return _ask(replace(state, next_ms=now_ms + CHANGES_PERIOD_MS), CHANGES)


def on_end(state: Synchronizing, number: int, now_ms: int, outcome: Outcome = "taken", *, link: int = 0, size: int = 0) -> Step:
    """A question has ended. HA-MD-3 "MUST still ask for the next table".

    number: of the question. HA-MD-31 "if its master is another one by now": then nothing waits for it. size: bytes of the body.
    """
    if state.asked is None or number != state.number:
        return state, None
    if state.asked != CHANGES:
        return _ask(replace(state, size=state.size + size), state.asked + 1)
    state = replace(state, asked=None)
    if outcome == "not supported":  # HA-MD-30 "MUST take whole tables from it"
        return _begin_round(replace(state, whole_link=link), now_ms)
    if outcome == "more":  # HA-MD-29 "the slave asks for the rest at once"
        return _ask(replace(state, next_ms=now_ms + CHANGES_PERIOD_MS), CHANGES)
    return state, None


def _begin_round(state: Synchronizing, now_ms: int) -> Step:
    return _ask(replace(state, began_ms=now_ms, size=0), 0)


def _ask(state: Synchronizing, index: int) -> Step:
    # HA-MD-4 "MUST skip a table when it does not know its master's address, or when that address is its own"
    if index == len(CODES) or state.master is None or state.master == state.own:
        state = replace(state, asked=None)
        if state.asks_changes:
            state = replace(state, next_ms=state.began_ms + _period(state.size))
        return state, None
    host, port = state.master
    state = replace(state, asked=index, number=state.number + 1)
    if index == CHANGES:
        return state, Question(CODE_OF_CHANGES, (host, port))
    # HA-MD-8 "MUST ask for topics at the master's port less 2"
    return state, Question(CODES[index], (host, port - VIP_OFFSET if CODES[index] == 21 else port))


def _period(size: int) -> int:
    """HA-MD-30 "10 ms after the begin of the last for each 1,000 bytes of its answers, but at least 1 s and at most 10 s"."""
    due_ms = size // 1_000 * 10
    if due_ms < LEAST_PERIOD_MS:
        return LEAST_PERIOD_MS
    return due_ms if due_ms < PERIOD_MS else PERIOD_MS


def topics_or_groups(mine: Table, theirs: Table) -> Table:
    """HA-MD-10 "MUST replace all topics"; HA-MD-11 "MUST change nothing on the slave"; HA-MD-15 "MUST replace all groups".

    HA-MD-12 "if their counters and their timestamps are".
    """
    return mine if mine.version == theirs.version else theirs


def consumer_offsets(mine: Mapping[str, Value], theirs: Mapping[str, Value]) -> dict[str, Value]:
    """By topic@group. HA-MD-13 "MUST be merged into the slave's table, whatever it has"."""
    return {**mine, **theirs}
