"""What a slave makes of its master's consumer offsets, and what it tells its master of those that were committed to it.

Tables are flat: from topic@group and queue id to an offset. HA-MD-32, HA-MD-33.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketmq_ha.reference.replace import replace

Key = tuple[str, int]  # topic@group, queue id
MOST_NAMED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Told:
    """told: what the answers of the master's life so far say, put together. committed: where a consumer has committed here."""

    told: Mapping[Key, int] = field(default_factory=dict)
    committed: frozenset[Key] = frozenset()


def on_life(state: Told) -> Told:
    """Another life of the master, or another master: nothing that it told before counts."""
    return replace(state, told={})


def on_commit(state: Told, key: Key) -> Told:
    """A consumer commits to the slave."""
    return replace(state, committed=state.committed | {key})


def merge(
    state: Told, mine: Mapping[Key, int], theirs: Mapping[Key, int], names: Collection[str], *, keeps: bool = True
) -> tuple[Told, dict[Key, int]]:
    """Take an answer.

    Args:  names: the topic@group that the answer is about; `theirs` has all that the master has of them. keeps: False takes
           what comes (HA-MD-13 "MUST be merged into the slave's table, whatever it has").
    Returns: the state, and the slave's table.
    """
    table = {key: offset for key, offset in mine.items() if key[0] not in names}
    for key in sorted({*mine, *theirs, *state.told}):
        if key[0] not in names:
            continue
        if key in theirs:
            table[key] = _later(mine, state.told, theirs, key) if keeps else theirs[key]
        elif key in mine and key not in state.told and keeps:
            table[key] = mine[key]  # a consumer's, or a former master's
    told = {key: offset for key, offset in state.told.items() if key[0] not in names} | dict(theirs)
    reached = {key for key in state.committed if key[0] in names and table.get(key, -1) <= told.get(key, -1)}
    return Told(told, state.committed - reached), table


def _later(mine: Mapping[Key, int], told: Mapping[Key, int], theirs: Mapping[Key, int], key: Key) -> int:
    """HA-MD-32 "MUST NOT make a consumer's offset less than it is", "unless the master itself has gone back"."""
    if key not in mine or (key in told and theirs[key] < told[key]):
        return theirs[key]
    return mine[key] if mine[key] > theirs[key] else theirs[key]


def named(state: Told, mine: Mapping[Key, int]) -> dict[Key, tuple[int, int]]:
    """HA-MD-33 "MUST name in its question the offsets that consumers have committed to it and that are greater".

    Returns: for each, the master's as the slave was told it, or -1, and the slave's.
    """
    return {
        key: (state.told.get(key, -1), mine[key])
        for key in sorted(state.committed)
        if mine.get(key, -1) > state.told.get(key, -1)
    }


def on_committed(
    table: Mapping[Key, int], asked: Mapping[Key, tuple[int, int]], max_offsets: Mapping[Key, int]
) -> dict[Key, int]:
    """A master is told. HA-MD-33 "if its own is still the one that the slave was told, and its queue goes as far"."""
    after = dict(table)
    for key, (told, committed) in asked.items():
        if after.get(key, -1) == told < committed <= max_offsets.get(key, 0):
            after[key] = committed
    return after
