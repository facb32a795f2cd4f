"""A census of a world: the schedules of the first seeds run in lock-step, and what they reach is counted."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import World
from rocketmq_ha.spec.event_log import NO_FAULT, VERDICT_OK

Row = tuple[str, str, str, str, str]  # actor, from state, event, to state, profile


@dataclass
class Census:
    rows: Counter[Row] = field(default_factory=Counter)
    clauses: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)  # by the name of the class
    quiet: Counter[str] = field(default_factory=Counter)  # those without a transition


@cache
def census(name: str, runs: int) -> Census:
    """Run the seeds from 0 on. Raises: AssertionError, if the two sides of the world ever differ."""
    world: World[Any] = registry.WORLDS[name]
    found = Census()
    for seed in range(runs):
        outcome = lockstep.run(world.draw(seed))
        assert outcome.verdict == VERDICT_OK, f"seed {seed}: {outcome.last.signature}: {outcome.last.detail}"
        for step in outcome.steps:
            kind = type(step.event).__name__
            found.events[kind] += 1
            found.quiet[kind] += not step.transitions
            if (fault := world.fault_of(step.event)) != NO_FAULT:
                found.faults[fault] += 1
            for row in step.transitions:
                key = (row.actor, row.from_state, row.event, row.to_state, outcome.schedule.profile.name)
                found.rows[key] += 1
                found.clauses.update(row.clauses)
    return found
