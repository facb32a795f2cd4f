"""Search for a failing schedule in this process, without Spark."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_ha.fuzz.limits import Limits
from rocketmq_ha.fuzz.lockstep import RunOutcome
from rocketmq_ha.fuzz.runner import limited_outcome
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import World
from rocketmq_ha.spec.event_log import VERDICT_OK

GO_ON: Final = 50  # seeds to try after the first failure, in search of a shorter one


@dataclass(frozen=True, slots=True)
class Found:
    outcome: RunOutcome  # the failing run with the fewest operations
    runs: int
    seconds: float


def run_seed(among: Sequence[World[Any]], seed: int) -> RunOutcome:
    return limited_outcome(registry.draw(seed, among), Limits())


def hunt(
    seed: int,
    max_seconds: float,
    run: Callable[[int], RunOutcome],
    clock: Callable[[], float] = time.monotonic,
    *,
    go_on: int = GO_ON,
) -> Found | None:
    """The shortest failing run of those from `seed` to `go_on` seeds behind the first failure; None if none failed in time."""
    started = clock()
    best: RunOutcome | None = None
    runs, first_failure = 0, 0
    while clock() - started < max_seconds and (best is None or runs < first_failure + go_on):
        outcome = run(seed + runs)
        runs += 1
        if outcome.verdict != VERDICT_OK and (best is None or len(outcome.steps) < len(best.steps)):
            first_failure = first_failure or runs
            best = outcome
    return Found(best, runs, clock() - started) if best else None
