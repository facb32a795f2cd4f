"""What each release of RocketMQ does, read from versions.toml, whose head says how the rows are made.

Test programs ask `value_of` what to expect of a release; `release_texts.py` makes the documents.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

# Each behaviour says what every one of these does.
RELEASES: Final = ("4.3.0", "4.4.0", "4.5.2", "4.9.2", "4.9.8", "5.1.4", "5.3.3", "5.4.0")
ROCKETMQ: Final = "Apache RocketMQ"
TABLE: Final = Path(__file__).parent / "versions.toml"


def number(release: str) -> tuple[int, ...]:
    """A release, to be compared.

    >>> number("4.10.0") > number("4.9.8")
    True
    """
    return tuple(map(int, release.split(".")))


@dataclass(frozen=True, slots=True)
class Range:
    """Releases that do the same."""

    first: str
    last: str
    value: str
    source: str = ""  # Class.method
    run: Mapping[str, str] = field(default_factory=dict)  # by release: what was seen
    without: frozenset[int] = frozenset()  # quirks that these releases do not show
    implementation: str = ROCKETMQ

    def __contains__(self, release: str) -> bool:
        return number(self.first) <= number(release) <= number(self.last)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One thing that releases do, each in its way."""

    name: str
    table: str
    classic: str
    hardened: str
    ranges: tuple[Range, ...]
    clauses: tuple[str, ...] = ()
    quirks: tuple[int, ...] = ()

    def of(self, implementation: str = ROCKETMQ) -> tuple[Range, ...]:
        """The ranges of one implementation, in their order."""
        return tuple(found for found in self.ranges if found.implementation == implementation)


def _range(told: Mapping[str, Any]) -> Range:
    return Range(
        told["from"],
        told["to"],
        told["value"],
        told.get("source", ""),
        told.get("run", {}),
        frozenset(told.get("without", ())),
        told.get("implementation", ROCKETMQ),
    )


def read(text: str) -> tuple[Behaviour, ...]:
    """The behaviours of a table in TOML, in its order."""
    return tuple(
        Behaviour(
            told["name"],
            told["table"],
            told["classic"],
            told["hardened"],
            tuple(map(_range, told["releases"])),
            tuple(told.get("clauses", ())),
            tuple(told.get("quirks", ())),
        )
        for told in tomllib.loads(text)["behaviour"]
    )


@cache
def load() -> tuple[Behaviour, ...]:
    """The behaviours of this tree."""
    return read(TABLE.read_text(encoding="utf-8"))


def value_of(name: str, release: str) -> str:
    """What a release of RocketMQ does.

    Raises: KeyError for a behaviour that is not in the table, or a release in none of its ranges.

    >>> value_of("0x02 behind the last property", "4.9.8")
    'is not written'
    """
    for behaviour in load():
        if behaviour.name == name:
            for found in behaviour.of():
                if release in found:
                    return found.value
            raise KeyError(f"versions.toml: {name}: {release} is in no range")
    raise KeyError(f"versions.toml: there is no behaviour {name}")


def together(ranges: Iterable[Range]) -> list[tuple[str, str, str]]:
    """First release, last release and value; neighbours of one value as one.

    >>> together([Range("4.3.0", "4.9.8", "closes"), Range("5.0.0", "5.4.0", "closes")])
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
    """The numbers of all quirks that some behaviour has."""
    return frozenset(quirk for behaviour in load() for quirk in behaviour.quirks)


def releases_with(quirk: int) -> list[tuple[str, str]]:
    """The first and the last release of each span that shows a quirk in some behaviour."""
    begun = {number(found.first) for behaviour in load() for found in behaviour.of()}
    shown = [
        found for behaviour in load() if quirk in behaviour.quirks for found in behaviour.of() if quirk not in found.without
    ]
    spans: list[tuple[str, str]] = []
    for found in sorted(shown, key=lambda one: (number(one.first), number(one.last))):
        # No range begins between two that follow one another.
        if spans and not any(number(spans[-1][1]) < first < number(found.first) for first in begun):
            spans[-1] = (spans[-1][0], max(spans[-1][1], found.last, key=number))
        else:
            spans.append((found.first, found.last))
    return spans


def runs_of(quirk: int) -> list[str]:
    """The releases on which the behaviours of a quirk were seen to show it, in their order."""
    seen = {
        release
        for behaviour in load()
        if quirk in behaviour.quirks
        for found in behaviour.of()
        if quirk not in found.without
        for release in found.run
    }
    return sorted(seen, key=number)
