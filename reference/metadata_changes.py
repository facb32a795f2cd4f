"""What a master tells of the changes of its tables, and what a slave makes of it. HA-MD-28 to HA-MD-36.

    numbers of a master's table:   b=2  c=4  d=5   gone: a=3        a slave at 2 is told: gone a, c, d; it is at 5 then

Two states: the change log of each table of a master, and what a slave knows of its master's numbers.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from rocketmq_ha.reference.replace import replace

TABLES: Final = ("deleted", "topics", "groups", "offsets")
MOST_SIZE: Final = 262_144
MOST_GONE: Final = 10_000

Entry = TypeVar("Entry")


# --- The master ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """The numbers of one table's names, in the order of the numbers.

    last: the greatest number. told: the greatest one that an answer has told of. forgotten: names that are gone may be missing
    up to this number.
    """

    live: Mapping[str, int] = field(default_factory=dict)
    gone: Mapping[str, int] = field(default_factory=dict)
    last: int = 0
    told: int = 0
    forgotten: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """What an answer has of one table. begin: the field `from`. begun: see `part`."""

    begin: int
    at: int
    begun: int
    is_end: bool
    changed: Mapping[str, object]
    gone: tuple[str, ...]


def on_set(log: ChangeLog, name: str) -> ChangeLog:
    """An entry is made or changed. A change of which no answer has told yet does not count again (HA-MD-28, Why)."""
    if log.live.get(name, 0) > log.told:
        return log
    number = log.last + 1
    return replace(log, live=_without(log.live, name) | {name: number}, gone=_without(log.gone, name), last=number)


def on_removed(log: ChangeLog, name: str, most_gone: int = MOST_GONE) -> ChangeLog:
    """An entry is gone. Of too many names that are gone, the oldest is forgotten."""
    number = log.last + 1
    gone = _without(log.gone, name) | {name: number}
    forgotten = log.forgotten
    if len(gone) > most_gone:
        oldest = next(iter(gone))
        forgotten = gone[oldest]
        gone = _without(gone, oldest)
    return replace(log, live=_without(log.live, name), gone=gone, last=number, forgotten=forgotten)


def part(
    log: ChangeLog, entries: Mapping[str, object], since: int, begun: int, most_size: int = MOST_SIZE
) -> tuple[ChangeLog, Part]:
    """HA-MD-28 "MUST have, of each table, the entries that have changed since the number that the slave names".

    Args:  entries: from name to its JSON object. since: 0 for a slave that names another life: HA-MD-28 "is told the whole
           table from its begin". begun: the last number when the slave was told the first part of the table: what was gone by
           then it has never known, so that the master may have forgotten it.
    """
    begin = since if since <= log.last and (log.forgotten <= since or log.forgotten <= begun) else 0
    begun = begun if begin else log.last
    found = [(number, name, True) for name, number in log.live.items() if number > begin]
    if begin:  # a whole table needs no names that are gone
        found += [(number, name, False) for name, number in log.gone.items() if number > begin]
    changed: dict[str, object] = {}
    gone: list[str] = []
    size, at = 0, log.last
    for number, name, is_live in sorted(found):
        if size >= most_size:  # HA-MD-29 "MUST end its part of a table with the first entry or name by which"
            break
        at = number
        size += len(_text(name)) + 1
        if is_live:
            changed[name] = entries[name]
            size += len(_text(entries[name])) + 1
        else:
            gone.append(name)
    is_end = len(changed) + len(gone) == len(found)
    at = log.last if is_end else at
    told = at if at > log.told else log.told
    return replace(log, told=told), Part(begin, at, begun, is_end, changed, tuple(gone))


# --- The slave -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """What a slave knows of its master's numbers.

    at, begun: by table. seen: of a table that is being told from its begin, the names so far.
    """

    life: str = ""
    at: Mapping[str, int] = field(default_factory=dict)
    begun: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, frozenset[str]] = field(default_factory=dict)


def on_life(told: Told, life: str) -> Told:
    """The life that an answer names, "" for an answer 3 (HA-MD-30). The numbers of another life mean nothing."""
    return told if life == told.life else Told(life)


def take(told: Told, table: str, mine: Mapping[str, Entry], found: Part, entries: Mapping[str, Entry]) -> (
    tuple[Told, dict[str, Entry]] | None
):  # fmt: skip
    """A part of deleted topics, topics or groups; None for one that is passed over.

    HA-MD-31 "MUST change nothing on the slave", "if a part of it goes on from a number that the slave has not named". entries:
    `found.changed`, as entries of a table.
    """
    if (after := on_part(told, table, found)) is None:
        return None
    taken = {name: entry for name, entry in mine.items() if name not in found.gone} | dict(entries)
    if found.is_end and table in (seen := _seen(told, table, found)):
        taken = {name: entry for name, entry in taken.items() if name in seen[table]}
    return after, taken


def on_part(told: Told, table: str, found: Part) -> Told | None:
    """The slave's numbers after a part of any table; None if the part is passed over."""
    if found.begin not in (0, told.at.get(table, 0)):
        return None
    seen = _seen(told, table, found)
    if found.is_end:
        seen = {name: names for name, names in seen.items() if name != table}
    return replace(told, at={**told.at, table: found.at}, begun={**told.begun, table: found.begun}, seen=seen)


def _seen(told: Told, table: str, found: Part) -> dict[str, frozenset[str]]:
    """The names of tables that are told from their begin, with those of a part."""
    if found.begin == 0:
        return {**told.seen, table: frozenset(found.changed)}
    if table in told.seen:
        return {**told.seen, table: (told.seen[table] - frozenset(found.gone)) | frozenset(found.changed)}
    return dict(told.seen)


# --- Delay levels ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DelayOffsets:
    """usable: the progress that the slave's log has reached. waiting: one that it has not, with the offset of the log."""

    usable: Mapping[str, int] | None = None
    waiting: tuple[int, Mapping[str, int]] | None = None


def delay_offsets(delays: DelayOffsets, max_offset: int, told: tuple[int, Mapping[str, int]] | None = None) -> DelayOffsets:
    """HA-MD-36 "MUST NOT use the progress of the delay levels before its log has reached the `maxOffset`".

    A progress that waits is not replaced by a later one: under a steady load it would never be reached.
    """
    waiting = delays.waiting or told
    if waiting is not None and waiting[0] <= max_offset:
        return DelayOffsets(waiting[1])
    return replace(delays, waiting=waiting)


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _without(numbers: Mapping[str, int], name: str) -> dict[str, int]:
    return {other: number for other, number in numbers.items() if other != name}
