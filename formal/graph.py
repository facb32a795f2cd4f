"""Explore the labelled state graph of a scope breadth-first from the reference model, in the form of canonical.md.

python -m formal.graph                       one line for each scope: the counts found, and the checked-in ones
python -m formal.graph pair-hardened         these scopes alone
python -m formal.graph --catalogue           the shortest trace of each violation, and of each exception, of the model
"""

import argparse
import hashlib
import json
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from formal.level import EdgeProperty, Edges, Level, StateProperty
from formal.level_protocol import PROTOCOL
from formal.levels import LEVELS, level_of
from rocketmq_ha.reference import protocol, protocol_durability, reading_properties
from rocketmq_ha.reference.protocol_properties import CATALOGUE, EXCEPTIONS
from rocketmq_ha.reference.protocol_state import Scope, State, warm
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, PROFILES, Profile

SCOPES_FILE = Path(__file__).with_name("scopes.toml")
STEP = "Step"  # spec/tla/HADurable.tla has this label on every edge

Edge = tuple[str, int, int]  # label, index of the state before, index of the state after


class GraphTooLargeError(Exception):
    """A scope has more states than the caller's limit."""


@dataclass(frozen=True)
class NamedScope:
    """One table [scope.NAME] of scopes.toml. scope: the constants, of the class of its level."""

    name: str
    scope: Any
    profile: str
    graph: bool  # compare its graph with TLC's
    states: int | None = None
    edges: int | None = None
    hash: str | None = None
    max_steps: int | None = None  # explore no further than this many steps from the initial state
    max_used: int | None = None  # and no further than this many puts and faults
    warm: bool = False  # in the initial state every slave has acknowledged one unit
    durable: bool = False  # its states remember the acknowledged units
    patient: bool = False  # no put times out

    @property
    def level(self) -> Level:
        return level_of(self.scope)

    def start(self) -> Any:
        """The initial state."""
        state = warm(self.scope) if self.warm else self.level.initial(self.scope)
        return protocol_durability.remembering(state) if self.durable else state

    @property
    def results(self) -> tuple[int | None, int | None, str | None]:
        return self.states, self.edges, self.hash


def load_scopes(file: Path = SCOPES_FILE) -> dict[str, NamedScope]:
    """Every scope, in the order of the file."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))["scope"]
    found = {}
    for name, table in tables.items():
        level = LEVELS[table.get("level", PROTOCOL.name)]
        scope = level.of_profile(level.scope(**table["constants"]), PROFILES[table["profile"]])
        keys = ("states", "edges", "hash", "max_steps", "max_used", "warm", "durable", "patient")
        more = {key: table[key] for key in keys if key in table}
        found[name] = NamedScope(name, scope, table["profile"], table.get("graph", False), **more)
    return found


# --- The graph ---------------------------------------------------------------------------------------------------------------


@dataclass
class Graph:
    """All reachable states. Index 0 is the initial state; indices ascend with the distance from it."""

    scope: Any
    states: list[Any] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    parents: list[tuple[int, str]] = field(
        default_factory=list
    )  # previous state on a shortest path, and the label of the edge from it
    depth: int = 0  # greatest distance from the initial state, in edges

    @property
    def level(self) -> Level:
        return level_of(self.scope)

    def canonical(self, index: int) -> str:
        """The canonical line of a state."""
        return self.level.canonical(self.states[index])

    def path(self, index: int) -> list[tuple[str, str]]:
        """A shortest path of (label, canonical line of the state reached). Its first label is empty: the initial state."""
        found = []
        while index >= 0:
            parent, label = self.parents[index]
            found.append((label, self.canonical(index)))
            index = parent
        return found[::-1]

    def lines(self) -> list[str]:
        """The canonical lines of all states, by index."""
        return list(map(self.level.canonical, self.states))

    def edge_lines(self) -> set[str]:
        """The edge lines of canonical.md, rule 6."""
        lines = self.lines()
        return {f"{label}\t{lines[before]}\t{lines[after]}" for label, before, after in self.edges}

    def hash(self) -> str:
        """The hash of canonical.md, rule 7, without building the edge lines, which would take hundreds of megabytes.

        Sorting by ranks gives the order of the lines, since TAB is less than any character of a label or a state.
        """
        lines = self.lines()
        by_rank = sorted(range(len(lines)), key=lines.__getitem__)
        rank = [0] * len(lines)
        for position, index in enumerate(by_rank):
            rank[index] = position
        digest = hashlib.sha256()
        newline = ""
        for label, before, after in sorted((label, rank[before], rank[after]) for label, before, after in self.edges):
            digest.update(f"{newline}{label}\t{lines[by_rank[before]]}\t{lines[by_rank[after]]}".encode("ascii"))
            newline = "\n"
        return digest.hexdigest()


def hash_of_lines(lines: Iterable[str]) -> str:
    """The hash of canonical.md, rule 7."""
    return hashlib.sha256("\n".join(sorted(lines)).encode("ascii")).hexdigest()


def explore(
    scope: Any,
    limit: int | None = None,
    edges: Edges | None = None,
    *,
    start: Any = None,
    max_steps: int | None = None,
    max_used: int | None = None,
) -> Graph:
    """Explore the graph of a scope breadth-first.

    Args: start: the initial state; None: the scope's own. edges: None: those of the scope's level.
    limit: raise GraphTooLargeError beyond this number of states.
    max_steps: do not expand states at this distance. max_used: leave out states with more puts and faults than this.
    """
    level = level_of(scope)
    start = level.initial(scope) if start is None else start
    edges = edges or level.edges
    graph = Graph(scope, [start], [], [(-1, "")])
    index_of = {start: 0}
    distance = [0]
    for before, state in enumerate(graph.states):  # the list grows during the loop: it is the queue
        if distance[before] == max_steps:
            break
        for label, after in edges(state, scope):
            if max_used is not None and level.used(after) > max_used:
                continue
            index = index_of.setdefault(after, len(graph.states))
            if index == len(graph.states):
                graph.states.append(after)
                graph.parents.append((before, label))
                distance.append(distance[before] + 1)
            graph.edges.append((label, before, index))
        if limit is not None and len(graph.states) > limit:
            raise GraphTooLargeError(f"more than {limit} states, at distance {distance[before]} from the initial one")
    graph.depth = distance[-1]
    return graph


def explore_named(named: NamedScope, limit: int | None = None) -> Graph:
    """Explore the graph of a table of scopes.toml within that table's bounds."""
    edges = protocol_durability.edges if named.durable else patient_edges if named.patient else None
    found = explore(named.scope, limit, edges, start=named.start(), max_steps=named.max_steps, max_used=named.max_used)
    if named.durable:  # HADurable.tla has one label for all edges
        found.edges = sorted({(STEP, before, after) for _, before, after in found.edges})
    return found


def patient_edges(state: State, scope: Scope) -> Iterator[tuple[str, State]]:
    """The edges on which no put times out."""
    return ((label, after) for label, after in protocol.edges(state, scope) if not label.startswith("Timeout"))


def show(level: Level, path: Sequence[tuple[str, str]]) -> str:
    """Format a path (labels and canonical lines): one line for each step, with what the step changed."""
    lines = []
    before: dict[str, str] = {}
    for label, line in path:
        now = level.shown(json.loads(line))
        changes = (f"{name} {before[name]} -> {value}" for name, value in now.items() if before.get(name, value) != value)
        lines.append(f"{label:<20} {'; '.join(changes)}".rstrip() if label else "(start)")
        before = now
    return "\n".join(lines)


def first_violation(graph: Graph, holds: StateProperty | EdgeProperty) -> list[tuple[str, str]] | None:
    """A shortest path to a violation of a property, or None. If an edge violates it, that edge is the last step."""
    scope = graph.scope
    if holds in graph.level.of_states:
        return next((graph.path(index) for index, state in enumerate(graph.states) if not holds(state, scope)), None)
    of_edge = cast(EdgeProperty, holds)
    for label, before, after in graph.edges:
        if not of_edge(graph.states[before], label, graph.states[after], scope):
            return [*graph.path(before), (label, graph.canonical(after))]
    return None


# --- The program -------------------------------------------------------------------------------------------------------------


def say(text: str, end: str = "\n") -> None:
    """Print a line of progress or results, and flush."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def catalogue() -> int:
    """Print the trace of each violation of classic and each exception of hardened. Returns: 1 if one is not found."""
    status = 0
    shown: list[tuple[Profile, str, StateProperty | EdgeProperty, Any, str]]
    shown = [(CLASSIC, f"quirk {found.quirk}", found.breaks, found.scope, found.description) for found in CATALOGUE]
    shown += [(HARDENED, "exception", found.holds, found.scope, found.reason) for found in EXCEPTIONS]
    for violation in reading_properties.CATALOGUE:
        title = f"quirk {violation.quirk}"
        shown.append((CLASSIC, title, violation.breaks, violation.scope, violation.description))
        if violation.kept:
            shown.append((HARDENED, title, violation.breaks, violation.scope, violation.kept))
    for profile, title, holds, scope, description in shown:
        level = level_of(scope)
        path = first_violation(explore(level.of_profile(scope, profile)), holds)
        status |= path is None
        trace = show(level, path) if path else "NOT FOUND"
        say(f"{profile.name}, {title}: {description}\nbreaks {holds.__name__}\n{trace}\n")
    return status


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="scope")
    parser.add_argument("--catalogue", action="store_true", help="print the shortest traces instead")
    parser.add_argument("--limit", type=int, default=120_000, help="states at most (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.catalogue:
        return catalogue()
    status = 0
    scopes = load_scopes()
    if unknown := set(options.names) - scopes.keys():
        parser.error(f"no such scope: {', '.join(sorted(unknown))}; there are: {', '.join(scopes)}")
    say(f"{'scope':<24} {'states':>8} {'edges':>8} {'depth':>5} {'seconds':>7}  hash")
    for named in [scopes[name] for name in options.names] or [named for named in scopes.values() if named.graph]:
        say(f"{named.name:<24}", end=" ")
        start = time.perf_counter()
        try:
            graph = explore_named(named, options.limit)
        except GraphTooLargeError as error:
            say(str(error))
            status = 1
            continue
        result = (len(graph.states), len(graph.edges), graph.hash())
        seconds = time.perf_counter() - start
        say(f"{result[0]:>8} {result[1]:>8} {graph.depth:>5} {seconds:>7.1f}  {result[2][:16]}", end="  ")
        if result == named.results:
            say("as checked in")
        else:
            say(f"checked in: {named.states} {named.edges} {named.hash}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
