"""A level: an abstraction that a page of spec/ defines, and that is written once in TLA+ and once in Python.

The programs of this folder explore, compare and count the graphs of any level; a Level is all that they know of one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketmq_ha.spec.profile import PROFILES, Profile

# In these types a scope, a state and a property are those of the level.
Edges = Callable[[Any, Any], Iterator[tuple[str, Any]]]  # (state, scope) -> label and state after, of each edge
StateProperty = Callable[[Any, Any], bool]  # (state, scope)
EdgeProperty = Callable[[Any, str, Any, Any], bool]  # (state before, label, state after, scope)


@dataclass(frozen=True)
class Constants:
    """The constants of a scope: their names in scopes.toml, and in the TLA+ modules."""

    numbers: Mapping[str, str]
    booleans: Mapping[str, str]  # FALSE where a scope does not say
    switches: Mapping[str, Callable[[Profile], bool]]  # constants that a profile sets, by their names in TLA+
    unsaid: Mapping[str, int]  # defaults of the numbers
    alike: tuple[str, ...] = ()  # a scope includes another one only where both have the same value of each of these
    bounds: tuple[str, ...] = ()  # and where it has at least the other's value of each of these and of the numbers
    head: Callable[[Mapping[str, int | bool]], list[str]] = lambda _values: []  # first lines, of what is no number
    tail: tuple[str, ...] = ()

    def value(self, values: Mapping[str, int | bool], key: str) -> int | bool:
        """The value of a constant in a scope, or its default."""
        return values.get(key, self.unsaid.get(key, False))

    def lines(self, values: Mapping[str, int | bool], profile: str) -> list[str]:
        """All constants, as TLC's configuration file has them."""
        lines = self.head(values)
        lines += [f"{tla} = {self.value(values, key)}" for key, tla in self.numbers.items()]
        lines += [f"{tla} = {_tla(bool(self.value(values, key)))}" for key, tla in self.booleans.items()]
        lines += [f"{tla} = {_tla(switch(PROFILES[profile]))}" for tla, switch in self.switches.items()]
        return [*lines, *self.tail]


@dataclass(frozen=True)
class Level:
    """A level, as the programs see it.

    scope: the class of a scope's constants. of_profile: a scope with the switches of a profile.
    canonical: the line of a state (canonical.md). shown: what a trace shows of such a line, read as JSON: name -> text.
    forms: the variables in TLA+, in the order of the canonical line; each with what makes the canonical value of TLC's.
    labels: all labels that exist with a scope's constants. of_states: the properties of states; all others are of edges.
    quirks: the numbers in spec/violations.md that the level can show.
    """

    name: str
    module: str
    scope: type[Any]
    of_profile: Callable[[Any, Profile], Any]
    initial: Callable[[Any], Any]
    edges: Edges
    canonical: Callable[[Any], str]
    shown: Callable[[Mapping[str, Any]], dict[str, str]]
    forms: Mapping[str, Callable[[Any], Any]]
    constants: Constants
    labels: Callable[[Mapping[str, int | bool]], list[str]]
    of_states: tuple[StateProperty, ...]
    used: Callable[[Any], int]  # the number of puts and faults before a state
    faults: Callable[[Any], int]  # the number of faults alone
    has_faults: Callable[[Any], bool]  # whether a scope has faults
    quirks: frozenset[str]
    ghosts: frozenset[str] = field(default=frozenset())  # variables that not every module of the level has; the last ones


def plain(value: Any) -> Any:
    """The form of a variable whose value in TLC's text is the canonical one."""
    return value


def ascending(value: list[Any]) -> list[Any]:
    """The form of a set."""
    return sorted(value)


def row(record: Mapping[str, Any], keys: tuple[str, ...]) -> list[Any]:
    """The form of a record: its values, in the order of the keys."""
    assert set(record) == set(keys), sorted(record)
    return [record[key] for key in keys]


def _tla(value: bool) -> str:
    return "TRUE" if value else "FALSE"
