"""Every schedule in schedules/ agrees: the shortest ones that showed a mistake, each named after it (`fuzz shrink`).

Each makes possible transitions alone.

The first three showed mistakes that were planted (fuzz/faults.py).
"""

import json
from pathlib import Path

import pytest

from rocketmq_ha.fuzz import lockstep, schedule_file
from rocketmq_ha.spec.event_log import VERDICT_OK

FILES = sorted((Path(__file__).parent / "schedules").glob("*.json"))
TABLE = Path(__file__).parents[2] / "spec" / "transitions.json"


@pytest.fixture(scope="module")
def possible() -> set[tuple[str, str, str, str, str]]:
    """(machine, state, event, state behind it, profile)."""
    machines = json.loads(TABLE.read_text(encoding="utf-8"))["machines"]
    return {
        (actor, before, event, after, profile)
        for actor, machine in machines.items()
        for before, event, after, profiles in machine["transitions"]
        for profile in profiles
    }


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_the_two_sides_agree(file: Path, possible: set[tuple[str, str, str, str, str]]) -> None:
    schedule = schedule_file.read(file)
    outcome = lockstep.run(schedule)
    assert outcome.verdict == VERDICT_OK, outcome.last
    assert len(outcome.steps) == len(outcome.schedule.events)
    rows = [row for step in outcome.steps for row in step.transitions]
    made = {(row.actor, row.from_state, row.event, row.to_state, schedule.profile.name) for row in rows}
    assert made <= possible, sorted(made - possible)
