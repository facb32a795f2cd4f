"""The state-by-event tables of spec/snapshots/ match the model, and hold every pair of a state and an event."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from formal import snapshot_machines as machines
from formal import snapshots
from formal.snapshot_recorder import Happening
from rocketmq_ha.reference import master
from rocketmq_ha.reference.step import Step
from rocketmq_ha.spec.profile import CLASSIC, PROFILES

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.xdist_group("snapshots")  # each machine is explored once

REWRITE = "python -m formal.snapshots --write, if this is how it should be"
PAIRS = [(name, profile) for name in machines.MACHINES for profile in PROFILES]

NEVER_REACHED = {
    ("store", "hardened"): {"phantom"},
    ("slave_client", "hardened"): {"deaf"},
    ("group_transfer", "hardened"): {"notified", "stopped", *(f"wait_{number}" for number in range(1, 6))},
    ("group_transfer", "classic"): {"waiting"},
}


@cache
def happenings(name: str, profile: str) -> list[Happening]:
    return machines.MACHINES[name].happenings(PROFILES[profile])


@pytest.mark.parametrize(("name", "profile"), PAIRS)
def test_the_machine_does_what_its_snapshot_tells(name: str, profile: str) -> None:
    diff = snapshots.difference(
        f"{name}.{profile}.txt", snapshots.render(machines.MACHINES[name], PROFILES[profile], happenings(name, profile))
    )
    assert not diff, f"{REWRITE}\n{diff}"


def test_there_is_no_snapshot_of_a_machine_that_is_not_there() -> None:
    assert {file.name for file in snapshots.DIRECTORY.iterdir()} == {f"{name}.{profile}.txt" for name, profile in PAIRS}


@pytest.mark.parametrize(("name", "profile"), PAIRS)
def test_every_event_is_done_in_every_state(name: str, profile: str) -> None:
    """Also events that make no sense in a state. Some states exist in one profile only, and a master has no full file."""
    found = happenings(name, profile)
    events, done = {one.event for one in found}, {(one.state, one.event) for one in found}
    states = {one.state for one in found}
    assert set(machines.MACHINES[name].states) - states == NEVER_REACHED.get((name, profile), set())
    missing = {(state, event) for state in states for event in events} - done
    if name == "store":  # its put events are named by whether they roll
        missing = {pair for pair in missing if not pair[1].startswith("put")}
    assert not missing


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", [name for name in machines.MACHINES if name != "link"])
def test_the_snapshot_and_the_table_of_transitions_agree(name: str, profile: str) -> None:
    """Both explore the same machines, in different scopes; the table has no rows for some events that change nothing."""
    table: dict[str, Any] = json.loads((ROOT / "spec" / "transitions.json").read_text(encoding="utf-8"))
    rows = {tuple(row[:3]) for row in table["machines"][name]["transitions"] if profile in row[3]}
    told = {
        (one.state, one.event, one.state if one.after == "=" else one.after): one.after == "="
        for one in sorted(happenings(name, profile), key=lambda one: one.after != "=")
        if one.possible and one.after != "assertion"
    }
    begins = {"accept", "kill", "restart"}  # a machine begins: no event of its own
    assert {row for row in rows - told.keys() if row[1] not in begins} == set(), "transitions.json has more"
    assert {row for row, unchanged in told.items() if not unchanged} <= rows, "the snapshot has more"


def test_impossible_events_change_nothing_in_a_cluster() -> None:
    """Frames, reports and faults on a link that does not exist; a second connect."""
    for profile in PROFILES:
        outcomes = {(one.state, one.event): set[str]() for one in happenings("link", profile)}
        for one in happenings("link", profile):
            outcomes[one.state, one.event].add(one.after)
        for state in ("none", "stale"):
            for event in ("grant", "frames", "reports", "forge_report", "clog", "cut"):
                assert outcomes[state, event] == {"="}, (profile, state, event)
        for state in ("up", "severed", "up_and_stale", "severed_and_stale"):
            assert outcomes[state, "connect"] == {"="}, (profile, state)


def test_a_machine_that_does_something_else_differs_from_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "on_end_of_stream", Step)
    machine = machines.MACHINES["master_connection"]
    text = snapshots.render(machine, CLASSIC, machine.happenings(CLASSIC))
    diff = snapshots.difference("master_connection.classic.txt", text).splitlines()
    changed = [line.split() for line in diff if line.startswith("-") and not line.startswith("---")]
    assert len(changed) >= len(machine.states) - 1
    assert all("end_of_stream" in words or words[1] == "closed" for words in changed)
