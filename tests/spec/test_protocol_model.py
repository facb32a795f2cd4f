"""The protocol level in Python: its graphs equal TLC's, and each property holds or is listed as broken.

`pytest tests/spec/test_protocol_model.py -s -k catalogued` prints the traces.
"""

import itertools
import json
import sys
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from formal import dump, equality, graph, mutants
from formal.level_protocol import PROTOCOL, canonical
from rocketmq_ha.reference import protocol
from rocketmq_ha.reference.protocol_properties import (
    CATALOGUE,
    CLASSIC_KEEPS,
    EXCEPTIONS,
    OF_EDGES,
    OF_STATES,
    EdgeProperty,
    Excused,
    StateProperty,
    Violation,
)
from rocketmq_ha.reference.protocol_state import Connection, Scope, SlaveNode, State, initial, of_profile
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.xdist_group("protocol-graphs")  # the state graphs are explored once

PROPERTIES: tuple[StateProperty | EdgeProperty, ...] = (*OF_STATES, *OF_EDGES)
SCOPES = graph.load_scopes()
SMALL_STATES = 26_000  # in total, of the scopes that are explored here for a profile; make formal explores all


def small(profile: Profile) -> list[graph.NamedScope]:
    """The smallest scopes of a profile whose graphs are checked in."""
    of_level = [named for named in SCOPES.values() if named.level is PROTOCOL and named.profile == profile.name]
    checked_in = [named for named in of_level if named.graph and named.hash]
    sizes = sorted((named.states or 0, named.name) for named in checked_in)
    totals = itertools.accumulate(states for states, _ in sizes)
    return [SCOPES[name] for (_, name), total in zip(sizes, totals, strict=True) if total <= SMALL_STATES]


SMALL = [*small(CLASSIC), *small(HARDENED)]

# These are small enough for every test run, and together they take every action.
OWN = (
    Scope(slaves=1, max_puts=1, max_cuts=1, max_forgeries=1, batch=1, sync_puts=True),
    Scope(slaves=1, max_puts=2, max_cuts=1, max_deletes=1, file_size=1, batch=1),
    Scope(slaves=1, max_puts=3, max_master_crashes=1, max_deletes=1),
    Scope(slaves=1, max_puts=3, sync_puts=True),
    Scope(slaves=1, max_puts=2, max_slave_crashes=1, sync_puts=True),
    Scope(slaves=2, max_puts=1, sync_puts=True),
    Scope(slaves=1, max_puts=2, max_slave_crashes=1, sync_puts=True, acks_flushed=True),
    Scope(slaves=1, max_puts=3, sync_puts=True, file_size=4, fall_behind_max=2),
)


@cache
def explored(scope: Scope) -> graph.Graph:
    return graph.explore(scope)


@cache
def explored_as_it_begins(name: str) -> graph.Graph:
    return graph.explore_named(SCOPES[name])


def graphs(profile: Profile) -> list[graph.Graph]:
    """The graphs of OWN, and the graphs that are checked in."""
    checked_in = [explored_as_it_begins(named.name) for named in SMALL if named.profile == profile.name and not named.durable]
    return [*(explored(of_profile(scope, profile)) for scope in OWN), *checked_in]


def by_json(state: State) -> str:
    """The canonical line of a state (canonical.md)."""

    def of_conn(conn: Connection | None) -> object:
        if conn is None:
            return None
        frames = [[frame.offset, list(frame.units)] for frame in conn.frames]
        return [conn.req, conn.ack, conn.start, conn.next, frames, list(conn.reports), conn.stale]

    def of_slave(node: SlaveNode) -> object:
        return [node.base, list(node.units), node.slot, node.reported, node.flushed]

    names = ("flushed", "min", "epoch", "push2", "waiting")
    line = {"log": list(state.log)} | {name: getattr(state, name) for name in names}
    line |= {"conn": [list(map(of_conn, slots)) for slots in state.conn], "slave": list(map(of_slave, state.slave))}
    line["used"] = [getattr(state.used, field.name) for field in fields(state.used)]
    return json.dumps(line, separators=(",", ":"))


def includes(larger: Scope, smaller: Scope) -> bool:
    """Return True if every run of the smaller scope is a run of the larger one."""
    alike = ("file_size", "batch", "checks", "forgets", "at_once", "ignores_heartbeats")
    return all(
        getattr(larger, field.name) == getattr(smaller, field.name)
        if field.name in alike
        else getattr(larger, field.name) >= getattr(smaller, field.name)
        for field in fields(Scope)
    )


@pytest.mark.parametrize("named", SMALL, ids=lambda named: named.name)
def test_the_graph_is_the_one_that_is_checked_in(named: graph.NamedScope) -> None:
    found = explored_as_it_begins(named.name)
    assert (len(found.states), len(found.edges), found.hash()) == (named.states, named.edges, named.hash)


def test_there_are_checked_in_graphs_of_both_profiles() -> None:
    assert {named.profile for named in SMALL} == {"classic", "hardened"}


def test_the_initial_state_is_the_canonical_one() -> None:
    text = (ROOT / "formal" / "canonical.md").read_text(encoding="utf-8")
    assert f"`{canonical(initial(Scope(slaves=2)))}`" in text


def test_a_canonical_line_is_its_json() -> None:
    for found in graphs(CLASSIC):
        states = found.states[:: max(1, len(found.states) // 500)]
        assert list(map(canonical, states)) == list(map(by_json, states))


def test_the_hash_is_that_of_the_sorted_lines() -> None:
    found = explored(of_profile(OWN[3], HARDENED))
    assert found.hash() == graph.hash_of_lines(found.edge_lines())


def test_every_action_is_taken_in_some_scope() -> None:
    found = {label for one in graphs(CLASSIC) for label, _, _ in one.edges}
    names = {label.partition("(")[0] for label, _ in protocol.attempts(initial(Scope()), Scope())}
    assert {label.partition("(")[0] for label in found} == names | {"Timeout"}


def test_no_edge_leaves_the_state_as_it_is_and_none_is_double() -> None:
    found = explored(of_profile(OWN[0], CLASSIC))
    assert all(before != after for _, before, after in found.edges)
    assert len(set(found.edges)) == len(found.edges)


def test_hardened_keeps_every_property_but_the_exceptions() -> None:
    excused = {excused.holds for excused in EXCEPTIONS}
    for found in graphs(HARDENED):
        for holds in PROPERTIES:
            if holds not in excused:
                path = graph.first_violation(found, holds)
                assert path is None, f"{holds.__name__} in {found.scope}\n{graph.show(PROTOCOL, path)}"


def test_an_exception_needs_what_it_names() -> None:
    """In a scope that lacks what the exception names, the property holds: the exception excuses nothing else."""
    for found in graphs(HARDENED):
        for holds in {excused.holds for excused in EXCEPTIONS}:
            if not any(excused.excuses(found.scope) for excused in EXCEPTIONS if excused.holds is holds):
                path = graph.first_violation(found, holds)
                assert path is None, f"{holds.__name__} in {found.scope}\n{graph.show(PROTOCOL, path)}"


@pytest.mark.parametrize("excused", EXCEPTIONS, ids=lambda excused: excused.holds.__name__)
def test_hardened_breaks_each_exception(excused: Excused) -> None:
    path = graph.first_violation(explored(of_profile(excused.scope, HARDENED)), excused.holds)
    assert path is not None, "an exception that nothing needs"
    sys.stdout.write(f"\n{excused.reason}: breaks {excused.holds.__name__}\n{graph.show(PROTOCOL, path)}\n")


def test_classic_keeps_what_it_keeps() -> None:
    for found in graphs(CLASSIC):
        for holds in CLASSIC_KEEPS:
            path = graph.first_violation(found, holds)
            assert path is None, f"{holds.__name__} in {found.scope}\n{graph.show(PROTOCOL, path)}"


@pytest.mark.parametrize("violation", CATALOGUE, ids=lambda violation: f"quirk-{violation.quirk}")
def test_classic_shows_each_catalogued_violation(violation: Violation) -> None:
    path = graph.first_violation(explored(of_profile(violation.scope, CLASSIC)), violation.breaks)
    assert path is not None
    sys.stdout.write(
        f"\nquirk {violation.quirk}, {violation.description}: breaks {violation.breaks.__name__}\n"
        f"{graph.show(PROTOCOL, path)}\n"
    )


@pytest.mark.parametrize("violation", CATALOGUE, ids=lambda violation: f"quirk-{violation.quirk}")
def test_hardened_mends_each_catalogued_violation_or_names_it(violation: Violation) -> None:
    path = graph.first_violation(explored(of_profile(violation.scope, HARDENED)), violation.breaks)
    assert (path is not None) == any(excused.holds is violation.breaks for excused in EXCEPTIONS)


@pytest.mark.parametrize(
    "named", [named for named in SMALL if named.profile == "classic" and not named.warm], ids=lambda named: named.name
)
def test_a_classic_scope_shows_what_it_includes(named: graph.NamedScope) -> None:
    found = explored_as_it_begins(named.name)
    for violation in CATALOGUE:
        if includes(named.scope, of_profile(violation.scope, CLASSIC)):
            assert graph.first_violation(found, violation.breaks), f"quirk {violation.quirk}"


def test_a_scope_includes_itself_and_no_larger_one() -> None:
    scope = OWN[0]
    assert includes(scope, scope)
    assert includes(replace(scope, max_puts=3), scope)
    assert not includes(scope, replace(scope, max_puts=3))
    assert not includes(replace(scope, batch=2), scope)


# --- The checks themselves ---------------------------------------------------------------------------------------------------


def dumped(found: graph.Graph, without: str = "", instead: str = "") -> dump.Graph:
    """A graph in the form of TLC's dump, without the edges that begin with `without`, or with their label changed."""
    lines = found.edge_lines()
    hit = {line for line in lines if without and line.startswith(without)}
    lines = (lines - hit) | ({line.replace(without, instead, 1) for line in hit} if instead else set())
    return dump.Graph(found.canonical(0), frozenset(found.lines()), tuple(sorted(lines)))


def test_equal_graphs_are_equal() -> None:
    found = explored(of_profile(OWN[0], HARDENED))
    assert equality.difference(found, dumped(found)) == ""


def test_an_edge_that_is_missing_is_shown_with_the_path_to_it() -> None:
    found = explored(of_profile(OWN[0], HARDENED))
    told = equality.difference(found, dumped(found, without="Heartbeat"))
    assert "a shortest path to it, in both:\n(start)\nConnect(1) " in told
    assert (
        "only in Python:\n(start)\nHeartbeat(1,1)       conn 1,1 [0,0,-1,-1,[],[],false] -> [0,0,0,0,[[0,[]]],[],false]" in told
    )
    assert "only in TLC" not in told


def test_a_label_that_differs_is_shown() -> None:
    found = explored(of_profile(OWN[0], HARDENED))
    told = equality.difference(found, dumped(found, without="Reap", instead="Rip"))
    assert "only in Python:\n(start)\nReap(1,1) " in told
    assert "only in TLC:\n(start)\nRip(1,1) " in told
    assert "CutUnseen(1)" in told


def test_a_hash_alone_that_differs_is_a_difference() -> None:
    """TLC has a state that no edge leads to."""
    found = explored(of_profile(OWN[0], HARDENED))
    tlc = dumped(found)
    larger = dump.Graph(tlc.initial, tlc.states | {tlc.initial.replace("0", "7", 1)}, tlc.edges)
    with pytest.raises(AssertionError, match="no edge does"):
        equality.difference(found, larger)


def test_results_are_written_into_the_table_of_their_scope() -> None:
    text = "# head\n\n[scope.a]\ngraph = true\nstates = 1\n\n[scope.b]\ngraph = true\n"
    written = equality.with_results(text, "a", 5, 6, "ff")
    assert written == '# head\n\n[scope.a]\ngraph = true\nstates = 5\nedges = 6\nhash = "ff"\n\n[scope.b]\ngraph = true\n'
    assert equality.with_results(written, "a", 5, 6, "ff") == written
    assert equality.with_results(text, "b", 5, 6, "ff") == text + 'states = 5\nedges = 6\nhash = "ff"\n'


def test_mutants_are_drawn_from_both_levels_and_the_same_by_the_same_seed() -> None:
    drawn = mutants.draw(60, 1)
    assert drawn == mutants.draw(60, 1) != mutants.draw(60, 2)
    assert len(set(drawn)) == 60
    assert sum(mutant.file in mutants.ABSTRACT for mutant in drawn) == 30


def test_every_mutant_can_be_made_and_is_another_program() -> None:
    for file in (*mutants.ABSTRACT, *mutants.BYTE_FILES):
        source = (ROOT / "reference" / file).read_text(encoding="utf-8")
        as_it_is = compile(source, str(ROOT / "reference" / file), "exec")
        found = mutants.all_mutants(file)[::29] + [mutant for mutant in mutants.PICKED if mutant.file == file]
        assert len(found) > 1
        assert all(mutants.compiled(mutant) != as_it_is for mutant in found), file
