"""The reading level in Python: its graphs equal TLC's; a property holds, or is broken by as short a trace as TLC finds."""

import json
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from formal import dump, equality, graph, scopes
from formal.level import EdgeProperty, StateProperty
from formal.level_reading import MENDS, READING, canonical
from rocketmq_ha.reference import reading, reading_properties
from rocketmq_ha.reference.reading_properties import CATALOGUE, OF_EDGES, OF_STATES, Violation
from rocketmq_ha.reference.reading_state import Scope, State, initial, of_profile
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.spec.profile import CLASSIC, HARDENED

pytestmark = pytest.mark.xdist_group("reading-graphs")  # the state graphs are explored once

NAMED = {name: named for name, named in graph.load_scopes().items() if named.level is READING}
TABLES = scopes.load()
PROPERTIES = {found.__name__: found for found in (*OF_STATES, *OF_EDGES)}


@cache
def explored(name: str) -> graph.Graph:
    return graph.explore_named(NAMED[name])


def property_of(name: str) -> StateProperty | EdgeProperty:
    """The twin of a property of HAReading.tla."""
    return PROPERTIES[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()]


def by_json(state: State) -> str:
    """The canonical line of a state (canonical.md)."""
    brokers = {name: [getattr(broker, name) for broker in state.broker] for name in ("log", "topic", "offset")}
    line: Mapping[str, Any] = {
        "master": state.master,
        "up": sorted(state.up),
        **brokers,
        "told": state.told,
        "own": state.own,
        "consumer": [getattr(state.consumer, field.name) for field in fields(state.consumer)],
        "delivered": sorted(state.delivered),
        "done": sorted(state.done),
        "used": [getattr(state.used, field.name) for field in fields(state.used)],
    }
    return json.dumps(line, separators=(",", ":"))


# --- The graphs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_the_graph_is_the_one_that_is_checked_in(name: str) -> None:
    found, named = explored(name), NAMED[name]
    assert (len(found.states), len(found.edges), found.hash()) == (named.states, named.edges, named.hash)


def test_there_is_a_scope_of_each_profile_for_each_scope_of_the_other() -> None:
    of_classic, of_hardened = ({name.rpartition("-")[0] for name in NAMED if name.endswith(each)} for each in ("sic", "ned"))
    assert of_classic == of_hardened
    assert len(of_classic) > 3


def test_a_canonical_line_is_its_json() -> None:
    for name in ("reading-diverge-hardened", "reading-last-classic"):
        states = explored(name).states[::20]
        assert list(map(canonical, states)) == list(map(by_json, states))


def test_the_initial_state_is_the_canonical_one() -> None:
    text = Path(graph.__file__).with_name("canonical.md").read_text(encoding="utf-8")
    assert f"`{canonical(initial(Scope()))}`" in text


def test_every_action_is_taken_in_some_scope_of_each_profile() -> None:
    for profile in ("classic", "hardened"):
        taken = {label for name in NAMED if name.endswith(profile) for label, _, _ in explored(name).edges}
        assert taken == set(READING.labels({}))


def test_all_possible_labels_are_known() -> None:
    names = {label for label, _ in reading.attempts(initial(Scope()), Scope())}
    assert names < set(READING.labels({}))


@pytest.mark.parametrize(
    ("without", "told"),
    [
        ("TakeTopics", "only in Python:\n(start)\nTakeTopics           topic 2 false -> true"),
        ("Lose(2)", "only in Python:\n(start)\nLose(2)              up [1,2] -> [1]"),
    ],
)
def test_an_edge_that_tlc_lacks_is_shown(without: str, told: str) -> None:
    found = explored("reading-last-classic")
    lines = {line for line in found.edge_lines() if not line.startswith(without)}
    tlc = dump.Graph(found.canonical(0), frozenset(found.lines()), tuple(sorted(lines)))
    assert told in equality.difference(found, tlc)
    whole = dump.Graph(found.canonical(0), frozenset(found.lines()), tuple(sorted(found.edge_lines())))
    assert equality.difference(found, whole) == ""


def test_a_state_of_tlc_is_read() -> None:
    text = """/\\ up = {2, 1}\n/\\ master = 1\n/\\ told = -1\n/\\ own = FALSE\n/\\ log = <<<<1, 2>>, <<>>>>
/\\ topic = <<TRUE, FALSE>>\n/\\ offset = <<-1, -1>>\n/\\ delivered = {}\n/\\ done = {}
/\\ consumer = [at |-> 1, held |-> <<<<0, 1>>>>, entry |-> FALSE, node |-> 0]
/\\ used = [puts |-> 2, losses |-> 0, promotions |-> 0, restarts |-> 0]
"""
    assert dump.state(text) in explored("reading-return-classic").lines()


# --- The properties ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_what_a_scope_claims_holds(name: str) -> None:
    for claimed in scopes.claimed(TABLES.scopes[name], TABLES.properties):
        if claimed != "TypeOK":
            path = graph.first_violation(explored(name), property_of(claimed))
            assert path is None, f"{claimed} in {name}\n{graph.show(READING, path)}"


@pytest.mark.parametrize(
    "found", [each for each in TABLES.violations if each.scope in NAMED], ids=lambda each: f"{each.property}-{each.scope}"
)
def test_what_tlc_finds_is_broken_by_as_short_a_trace(found: scopes.Violation) -> None:
    path = graph.first_violation(explored(found.scope), property_of(found.property))
    assert path is not None
    assert len(path) == found.length


def test_every_property_of_tla_has_a_twin() -> None:
    names = {*TABLES.properties.reading_invariants, *TABLES.properties.reading_steps} - {"TypeOK"}
    assert {property_of(name) for name in names} == set(PROPERTIES.values())


@pytest.mark.parametrize("found", CATALOGUE, ids=lambda found: f"quirk-{found.quirk}")
def test_hardened_mends_each_quirk_or_says_why_not(found: Violation) -> None:
    """With `kept` hardened shows it too, in the same scope."""
    for profile, shows in ((CLASSIC, True), (HARDENED, bool(found.kept))):
        path = graph.first_violation(graph.explore(of_profile(found.scope, profile)), found.breaks)
        assert (path is not None) == shows, profile.name


NEEDED = {  # by mend: a scope of hardened, and what breaks in it without the mend
    "keeps_greatest": ("reading-return-hardened", reading_properties.taken_offset_is_no_less),
    "tells_master": ("reading-return-hardened", reading_properties.master_is_told),
    "knows_topics": ("reading-promote-hardened", reading_properties.topic_is_known),
    "holds": ("reading-return-hardened", reading_properties.not_spinning),
    "finishes": ("reading-diverge-hardened", reading_properties.pulled_is_kept),
}


@pytest.mark.parametrize("mend", NEEDED)
def test_each_mend_is_needed(mend: str) -> None:
    """Hardened without it breaks a property that hardened keeps."""
    name, breaks = NEEDED[mend]
    assert graph.first_violation(explored(name), breaks) is None
    found = graph.explore(replace(NAMED[name].scope, **{mend: False}))
    assert graph.first_violation(found, breaks) is not None


def test_each_mend_of_tla_is_one_of_these() -> None:
    assert {re.sub(r"(?<!^)(?=[A-Z])", "_", mend).lower() for mend in MENDS} == set(NEEDED)
