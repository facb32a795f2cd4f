"""Read versions.toml, which lists what each release of RocketMQ does. Its head describes the rows.

Tests call `value_of` to get the behaviour that they expect of a release. `release_texts.py` makes the documents.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

# Each behaviour covers all of these releases.
RELEASES: Final = ("4.3.0", "4.4.0", "4.5.2", "4.9.2", "4.9.8", "5.1.4", "5.3.3", "5.4.0")
ROCKETMQ: Final = "Apache RocketMQ"
TABLE: Final = Path(__file__).parent / "versions.toml"


def number(release: str) -> tuple[int, ...]:
    """Return a release as a tuple of numbers that can be compared.

    >>> number("4.10.0") > number("4.9.8")
    True
    """
    return tuple(map(int, release.split(".")))


@dataclass(frozen=True, slots=True)
class Range:
    """A range of releases with the same behaviour."""

    first: str
    last: str
    value: str
    source: str = ""  # Class.method
    run: Mapping[str, str] = field(default_factory=dict)  # release: what a run of it showed
    without: frozenset[int] = frozenset()  # quirks that these releases do not have
    implementation: str = ROCKETMQ

    def __contains__(self, release: str) -> bool:
        return number(self.first) <= number(release) <= number(self.last)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One behaviour, and what each range of releases does."""

    name: str
    table: str
    classic: str
    hardened: str
    ranges: tuple[Range, ...]
    clauses: tuple[str, ...] = ()
    quirks: tuple[int, ...] = ()

    def of(self, implementation: str = ROCKETMQ) -> tuple[Range, ...]:
        """Return the ranges of one implementation in their order."""
        return tuple(found for found in self.ranges if found.implementation == implementation)


def _range(entry: Mapping[str, Any]) -> Range:
    return Range(
        entry["from"],
        entry["to"],
        entry["value"],
        entry.get("source", ""),
        entry.get("run", {}),
        frozenset(entry.get("without", ())),
        entry.get("implementation", ROCKETMQ),
    )


def read(text: str) -> tuple[Behaviour, ...]:
    """Return the behaviours of a TOML text in their order."""
    return tuple(
        Behaviour(
            entry["name"],
            entry["table"],
            entry["classic"],
            entry["hardened"],
            tuple(map(_range, entry["releases"])),
            tuple(entry.get("clauses", ())),
            tuple(entry.get("quirks", ())),
        )
        for entry in tomllib.loads(text)["behaviour"]
    )


@cache
def load() -> tuple[Behaviour, ...]:
    """Return the behaviours in spec/versions.toml."""
    return read(TABLE.read_text(encoding="utf-8"))


def value_of(name: str, release: str) -> str:
    """Return what a release of RocketMQ does.

    Raises: KeyError if the table does not have the behaviour, or if none of its ranges has the release.

    >>> value_of("0x02 behind the last property", "4.9.8")
    'is not written'
    """
    for behaviour in load():
        if behaviour.name == name:
            for found in behaviour.of():
                if release in found:
                    return found.value
            raise KeyError(f"versions.toml: {name}: no range contains {release}")
    raise KeyError(f"versions.toml: there is no behaviour {name}")


def merge_ranges(ranges: Iterable[Range]) -> list[tuple[str, str, str]]:
    """Merge adjacent ranges of the same value. Returns: (first release, last release, value) of each.

    >>> merge_ranges([Range("4.3.0", "4.9.8", "closes"), Range("5.0.0", "5.4.0", "closes")])
    [('4.3.0', '5.4.0', 'closes')]
    """
    merged: list[tuple[str, str, str]] = []
    for found in ranges:
        if merged and merged[-1][2] == found.value:
            merged[-1] = (merged[-1][0], found.last, found.value)
        else:
            merged.append((found.first, found.last, found.value))
    return merged


def quirks() -> frozenset[int]:
    """Return the numbers of the quirks of all behaviours."""
    return frozenset(quirk for behaviour in load() for quirk in behaviour.quirks)


def releases_with(quirk: int) -> list[tuple[str, str]]:
    """Return the first and the last release of each span that has a quirk in some behaviour."""
    starts = {number(found.first) for behaviour in load() for found in behaviour.of()}
    shown = [
        found for behaviour in load() if quirk in behaviour.quirks for found in behaviour.of() if quirk not in found.without
    ]
    spans: list[tuple[str, str]] = []
    for found in sorted(shown, key=lambda span: (number(span.first), number(span.last))):
        # Two ranges are adjacent if no range of any behaviour begins between them.
        if spans and not any(number(spans[-1][1]) < start < number(found.first) for start in starts):
            spans[-1] = (spans[-1][0], max(spans[-1][1], found.last, key=number))
        else:
            spans.append((found.first, found.last))
    return spans


def runs_of(quirk: int) -> list[str]:
    """Return the releases on which a run showed a quirk, in ascending order."""
    seen = {
        release
        for behaviour in load()
        if quirk in behaviour.quirks
        for found in behaviour.of()
        if quirk not in found.without
        for release in found.run
    }
    return sorted(seen, key=number)
