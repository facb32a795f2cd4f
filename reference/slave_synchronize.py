"""When a slave asks its master for the four tables, and what it makes of an answer.

on_tick --> topics --> consumer offsets --> delay offsets --> groups --> the next round
              |              |                  |               |
              answered, refused or given up: the next table is asked for all the same
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from rocketmq_ha.reference.replace import replace

FIRST_MS: Final = 3_000
PERIOD_MS: Final = 10_000
# HA-MD-1 "topics, consumer offsets, delay offsets, subscription groups"; HA-MD-1 "It MAY ask for more": not this one
CODES: Final = (21, 43, 45, 201)
VIP_OFFSET: Final = 2

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Synchronizing:
    """own, master: host and port. asked: index of the table that has no answer yet; None between two rounds."""

    own: tuple[str, int]
    next_ms: int
    master: tuple[str, int] | None = None
    asked: int | None = None


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


def on_start(own: tuple[str, int], now_ms: int) -> Synchronizing:
    """HA-MD-2 "MUST come 3 s after the start"; HA-MD-5 "MUST forget the master's address for these requests"."""
    return Synchronizing(own, now_ms + FIRST_MS)


def on_master(state: Synchronizing, master: tuple[str, int] | None) -> Synchronizing:
    """A registration has been answered. HA-MD-5 "learn it anew from its next registration with the name server"."""
    return replace(state, master=master)


def on_tick(state: Synchronizing, now_ms: int) -> Step:
    """HA-MD-2 "one round every 10 s after that"; HA-MD-3 "the next round MUST still come".

    HA-MD-6 "one that becomes a slave MUST NOT run more than one timer"; HA-MD-6 "MUST stop asking": a master has no such state.
    """
    if state.asked is not None or now_ms < state.next_ms:
        return state, None
    return _ask(replace(state, next_ms=now_ms + PERIOD_MS), 0)


def on_end(state: Synchronizing) -> Step:
    """The question for one table has ended, in whatever way. HA-MD-3 "MUST still ask for the next table"."""
    assert state.asked is not None
    return _ask(state, state.asked + 1)


def _ask(state: Synchronizing, index: int) -> Step:
    # HA-MD-4 "MUST skip a table when it does not know its master's address, or when that address is its own"
    if index == len(CODES) or state.master is None or state.master == state.own:
        return replace(state, asked=None), None
    host, port = state.master
    # HA-MD-8 "MUST ask for topics at the master's port less 2"
    address = (host, port - VIP_OFFSET if CODES[index] == 21 else port)
    return replace(state, asked=index), Question(CODES[index], address)


def topics_or_groups(mine: Table, theirs: Table) -> Table:
    """HA-MD-10 "MUST replace all topics"; HA-MD-11 "MUST change nothing on the slave"; HA-MD-15 "MUST replace all groups".

    HA-MD-12 "if their counters and their timestamps are".
    """
    return mine if mine.version == theirs.version else theirs


def consumer_offsets(mine: Mapping[str, Value], theirs: Mapping[str, Value]) -> dict[str, Value]:
    """By topic@group. HA-MD-13 "MUST be merged into the slave's table, whatever it has"."""
    return {**mine, **theirs}
