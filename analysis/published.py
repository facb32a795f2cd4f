"""Which files of a log count, and what is wrong with the list of them.

Version 2: the files that the manifests name. Version 1: every Parquet file. A `Part` is the unit in which a log is read: one
file of events, and the files that have the rows of its runs. All rows of a run are in one file of events: the recorder writes
whole runs, and a partition is published whole.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeVar

from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.schema import PARQUET, WITHOUT_MANIFESTS
from rocketmq_ha.spec.event_log import EVENTS_DIR, MANIFEST_DIR, RUNS_DIR

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Damage:
    """Something of a log that cannot be used."""

    source: str  # the file, as a person finds it
    reason: str
    n: int | None  # rows that are left out; None if nobody knows
    example: str = ""
    n_runs: int | None = None  # runs to which they belong; None for a file that is left out as a whole


@dataclass(frozen=True, slots=True)
class Part:
    """A file of events (empty: none that could be read) and the files of its runs. Names are relative to the place."""

    log: int  # number of the log, from 0
    place: str
    version: int
    events: str
    runs: tuple[str, ...]
    weight: int  # rows or bytes: parts of one log compare by it


@dataclass(slots=True)
class Published:
    """What a log consists of."""

    parts: list[Part] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)


def published(files: LogFiles, log: int, version: int) -> Published:
    """The parts of a log that check_log has accepted."""
    if version == WITHOUT_MANIFESTS:
        of_all = tuple(files.sizes(RUNS_DIR, PARQUET))
        sizes = files.sizes(EVENTS_DIR, PARQUET)
        return Published([Part(log, files.place, version, name, of_all, size) for name, size in sizes.items()])
    found = Published()
    there = {**files.sizes(EVENTS_DIR, ""), **files.sizes(RUNS_DIR, "")}
    taken: set[str] = set()
    for manifest in files.sizes(MANIFEST_DIR, ".json"):
        shown = files.shown(manifest)
        row = _manifest(files, manifest)
        if isinstance(row, str):
            found.damages.append(Damage(shown, row, None))
            continue
        n_steps = row["n_steps"] if type(row.get("n_steps")) is int else None
        events, runs = f"{EVENTS_DIR}/{row['events']}", f"{RUNS_DIR}/{row['runs']}"
        if again := [name for name in (events, runs) if name in taken]:
            found.damages.append(Damage(shown, "names a file that another manifest names", n_steps, again[0]))
            continue
        taken |= {events, runs}
        for name in _missing((events, runs), there):
            found.damages.append(Damage(shown, "names a file that is not there", n_steps if name == events else None, name))
        if runs in there:
            part = Part(log, files.place, version, events if events in there else "", (runs,), n_steps or there.get(events, 0))
            found.parts.append(part)
    return found


def _missing(names: tuple[str, ...], there: dict[str, int]) -> Iterator[str]:
    return (name for name in names if name not in there)


def _manifest(files: LogFiles, name: str) -> dict[str, Any] | str:
    """The manifest, or what is wrong with it."""
    try:
        row = json.loads(files.read(name) or b"")
    except (OSError, ValueError):
        return "no JSON"
    if not isinstance(row, dict):
        return "JSON that is no object"
    for key in ("events", "runs"):
        value = row.get(key)
        if not isinstance(value, str) or PurePosixPath(value).name != value:
            return f"a manifest without the name of its file of {key}"
    return row


def shared(items: Sequence[T], weights: Sequence[int], tasks: int) -> list[list[T]]:
    """Share out items so that the tasks have about the same weight: the heaviest first, each to the lightest task."""
    groups: list[list[T]] = [[] for _ in range(max(1, min(tasks, len(items))))]
    loads = [0] * len(groups)
    for number in sorted(range(len(items)), key=lambda n: -weights[n]):
        lightest = loads.index(min(loads))
        groups[lightest].append(items[number])
        loads[lightest] += weights[number] + 1
    return groups
