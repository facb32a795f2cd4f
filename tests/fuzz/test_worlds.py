"""Every world of a campaign keeps what the machinery asks of it: both sides agree, the rows are possible, mutations fit."""

import json
import random
from functools import cache
from importlib import resources
from typing import Any

import pytest

from kit import second_verdicts
from rocketmq_ha.fuzz import lockstep, mutate, recorder, schedule_file
from rocketmq_ha.fuzz.lockstep import RunOutcome
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import World
from rocketmq_ha.spec.event_log import TRANSITIONS_FILE

SEEDS = 30
WORLDS = pytest.mark.parametrize("world", registry.WORLDS.values(), ids=list(registry.WORLDS))


@cache
def outcomes(name: str) -> tuple[RunOutcome, ...]:
    return tuple(lockstep.run(registry.WORLDS[name].draw(seed)) for seed in range(SEEDS))


@WORLDS
def test_both_sides_agree_over_the_first_seeds(world: World[Any]) -> None:
    for outcome in outcomes(world.name):
        assert outcome.verdict == "ok", (outcome.schedule.seed, outcome.last)
    assert {outcome.schedule.profile.name for outcome in outcomes(world.name)} == {"classic", "hardened"}
    assert len({recorder.digest(outcome.schedule) for outcome in outcomes(world.name)}) == SEEDS


@WORLDS
def test_each_row_is_one_that_the_table_of_transitions_has(world: World[Any]) -> None:
    table = json.loads((resources.files("rocketmq_ha.spec") / TRANSITIONS_FILE).read_text(encoding="utf-8"))
    seen = 0
    for outcome in outcomes(world.name):
        for row in (row for step in outcome.steps for row in step.transitions):
            machine = table["machines"][row.actor]
            seen += 1
            assert world.name in machine["worlds"], row
            profiles = [found for *place, found in machine["transitions"] if place == [row.from_state, row.event, row.to_state]]
            assert profiles and outcome.schedule.profile.name in profiles[0], row
            assert all(world.name in table["clauses"][clause]["worlds"] for clause in row.clauses), row
    assert seen > 10 * SEEDS


@WORLDS
def test_the_second_verdict_finds_nothing_in_them(world: World[Any]) -> None:
    log = second_verdicts.log_of(outcomes(world.name))
    judged = second_verdicts.judged(log)
    assert not judged.broken, [run.first for run in judged.runs if run.first]
    assert judged.premises["state_continues"] == len(log.events)
    assert not second_verdicts.rerun_rules(log, range(5))


@WORLDS
def test_mutated_schedules_agree_too(world: World[Any]) -> None:
    for seed in range(12):
        made = mutate.mutate(seed, world.draw(seed), world.draw(seed + 1), -seed - 1)
        outcome = lockstep.run(made)
        assert outcome.verdict == "ok", (seed, outcome.last)


@WORLDS
def test_a_schedule_that_comes_from_its_file_has_the_same_digest(world: World[Any]) -> None:
    """So a run finds its schedule in corpus/ and failures/."""
    for seed in range(100):
        drawn = world.draw(seed)
        again = schedule_file.from_json(schedule_file.to_json(drawn), "")
        assert again == drawn
        assert recorder.digest(again) == recorder.digest(drawn), seed


@WORLDS
def test_an_event_is_drawn_and_described(world: World[Any]) -> None:
    drawn = world.draw(3)
    rng = random.Random(1)
    events = [world.draw_event(rng, drawn) for _ in range(200)]
    assert {type(event) for event in events} <= set(world.event_types)
    assert all(world.describe(event) for event in events)
    assert len(world.columns(drawn)) == len(world.cells(world.open_reference(drawn)))


def test_every_world_has_its_share_of_the_seeds() -> None:
    found = [registry.world_of(registry.draw(seed)).name for seed in range(400)]
    assert {name for name in registry.WORLDS if found.count(name) >= 20} == set(registry.WORLDS)
