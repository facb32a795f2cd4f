"""The worlds of name servers, a broker's tables and a remoting server: what their schedules reach, and that they stay the same.

The schedules of the first seeds run in lock-step. They make no transition that transitions.json does not have, and all that it
has but for those named here with a reason.
"""

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from kit.census import census
from rocketmq_ha.fuzz import faults, lockstep, schedule_file
from rocketmq_ha.fuzz.faults import FAULTS, Fault
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import World
from rocketmq_ha.spec.event_log import VERDICT_OK

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Expected:
    """runs: of the census. digest: of the first 50 schedules. rare: what so few runs do not reach, with the reason."""

    runs: int
    digest: str
    rare: Mapping[tuple[str, str, str, str], str] = field(default_factory=dict)


# Replays name a schedule by its seed. A deliberate change of the drawing changes the digest; say so in CHANGELOG.md.
WORLDS: Final = {
    "routes": Expected(
        700,
        "acbe5258cafcff69",
        {
            ("broker_entry", "overdue", "register", "unlisted"): "overdue, and of an older term, at the same time",
            ("registering", "asked_again", "power", "off"): "its power goes in the moment between two registrations",
        },
    ),
    "metadata": Expected(
        1500,
        "4af12d645b8ebe41",
        {
            (
                "consumer_offset",
                "told",
                "failed",
                "ahead",
            ): "an old answer brings an offset back, and a part of it is passed over",
            ("delay_progress", "both", "failed", "usable"): "of another life, whose log is no longer, with a damaged part",
            ("delay_progress", "waiting", "failed", "usable"): "the same",
            ("slave_table", "behind", "answer", "partial"): "an old first part, of a table that the slave had",
            ("slave_table", "behind", "failed", "partial"): "the same, with a damaged part",
            ("slave_table", "behind", "more", "new"): "an old first part, of another life",
            ("slave_table", "in_step", "more", "new"): "the same",
            ("slave_table", "partial", "more", "new"): "the same",
            ("slave_table", "other", "put", "same"): "two masters give the same version in the same ms",
            ("slave_table", "same", "answer", "other"): "a whole table of before comes once more",
            (
                "slave_table",
                "partial",
                "failed",
                "behind",
            ): "the table changes while its last part is on its way, and another is damaged",
            ("slave_table", "partial", "more", "behind"): "the same, and another table has more parts",
            (
                "synchronizing",
                "idle",
                "broken",
                "changes",
            ): "a question of before ends when the next one is due and no turn has come",
            ("synchronizing", "idle", "life", "changes"): "the same",
            ("table_file", "saved", "restart", "unsaved"): "it starts on a full disk, and forgets a deletion",
            ("table_file", "unsaved", "answer", "saved"): "the disk has room again, and an answer comes before the next try",
        },
    ),
    "remoting": Expected(
        3000,
        "ab244f595e39d135",
        {
            (
                "remoting_connection",
                "ready",
                "tick",
                "closed_for_unfinished",
            ): "in one turn another client's end makes room, and its own deadline is over",
            ("remoting_connection", "ready", "tick", "closed_for_idle"): "the same",
            ("remoting_connection", "ready", "tick", "closed_for_stall"): "the same",
            (
                "remoting_connection",
                "broken",
                "tick",
                "closed_for_idle",
            ): "the same, and what waits ends in bytes that are no frame",
            (
                "remoting_connection",
                "broken",
                "tick",
                "closed_for_unfinished",
            ): "the same, of unfinished frames that are too much",
            (
                "remoting_question",
                "waiting",
                "resume",
                "unsent",
            ): "its client has never taken a byte, and sends a frame that is none behind others that had to wait",
            ("remoting_question", "waiting", "tick", "unsent"): "the same, and it stalls before the request is late",
        },
    ),
}
NAMES = tuple(WORLDS)
STILL = ("Disk", "DeliverDelayed", "Send", "Reply")  # what they change moves a machine later


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "spec" / "transitions.json").read_text(encoding="utf-8"))
    return found


def possible(table: dict[str, Any], name: str) -> set[tuple[str, str, str, str, str]]:
    return {
        (actor, before, event, after, profile)
        for actor, machine in table["machines"].items()
        if name in machine["worlds"]
        for before, event, after, profiles in machine["transitions"]
        for profile in profiles
    }


@pytest.mark.parametrize("name", NAMES)
def test_schedules_reach_every_transition_but_the_rare_ones(name: str, table: dict[str, Any]) -> None:
    found, all_of_it = set(census(name, WORLDS[name].runs).rows), possible(table, name)
    assert found <= all_of_it, sorted(found - all_of_it)
    missing = {row[:4] for row in all_of_it - found}
    assert missing <= WORLDS[name].rare.keys(), sorted(missing - WORLDS[name].rare.keys())


@pytest.mark.parametrize("name", NAMES)
def test_schedules_exercise_every_clause_of_the_table(name: str, table: dict[str, Any]) -> None:
    expected = {clause for clause, entry in table["clauses"].items() if name in entry["worlds"]}
    assert set(census(name, WORLDS[name].runs).clauses) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_event_comes_and_does_something(name: str) -> None:
    found = census(name, WORLDS[name].runs)
    for kind in registry.WORLDS[name].event_types:
        moves = found.events[kind.__name__] - found.quiet[kind.__name__]
        assert moves > 20 or (kind.__name__ in STILL and found.events[kind.__name__] > 20), kind


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_draws_the_schedule_that_it_has_always_drawn(name: str) -> None:
    world: World[Any] = registry.WORLDS[name]
    digest = hashlib.blake2b(digest_size=8)
    for seed in range(50):
        digest.update(schedule_file.to_json(world.draw(seed)).encode())
    assert digest.hexdigest() == WORLDS[name].digest


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_in_a_file_is_the_schedule(name: str) -> None:
    world: World[Any] = registry.WORLDS[name]
    for seed in range(30):
        drawn = world.draw(seed)
        assert schedule_file.from_json(schedule_file.to_json(drawn)) == drawn


@pytest.mark.parametrize("name", NAMES)
def test_an_event_of_a_mutation_can_stand_in_its_schedule(name: str) -> None:
    """`draw_event` knows the sizes of the schedule: both sides take each event of a run made of nothing else."""
    world: World[Any] = registry.WORLDS[name]
    rng = random.Random(1)
    kinds = set()
    for seed in range(20):
        drawn = world.draw(seed)
        with lockstep.scratch_directory() as directory:
            both = lockstep.of_schedule(drawn, directory)
            try:
                for _ in range(60):
                    event = world.draw_event(rng, drawn)
                    kinds.add(type(event))
                    outcome = both.apply(event)
                    assert outcome.verdict == VERDICT_OK, (seed, outcome.signature, outcome.detail)
                    cells = world.cells(both.reference)
                    assert len(cells) == len(world.columns(drawn))
                    assert world.describe(event)
            finally:
                both.close()
        assert world.headline(drawn)
    assert kinds == set(world.event_types)


HUNT: Final = """
import logging, sys
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.worlds import registry
logging.disable(logging.CRITICAL)
for seed in range(1500):
    outcome = lockstep.run(registry.WORLDS[sys.argv[1]].draw(seed))
    if outcome.verdict != "ok":
        sys.exit(print(seed, outcome.verdict))
"""


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.world in WORLDS], ids=lambda fault: fault.name)
def test_random_schedules_find_the_planted_fault(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(faults.plant(fault, tmp_path)))
    done = subprocess.run([sys.executable, "-c", HUNT, fault.world], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout, f"no schedule shows {fault.description}"
    assert done.stdout.split()[1] in ("divergence", "error", "invariant")
