"""Search for a failing schedule in this process, without Spark."""

import time
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.fuzz import lockstep, schedule
from rocketmq_ha.fuzz.lockstep import RunOutcome
from rocketmq_ha.spec.event_log import VERDICT_OK

GO_ON: Final = 50  # seeds to try after the first failure, in search of a shorter one


@dataclass(frozen=True, slots=True)
class Found:
    outcome: RunOutcome  # the failing run with the fewest operations
    runs: int
    seconds: float


def hunt(seed: int, max_seconds: float) -> Found | None:
    """The shortest failing run among the first ones from `seed` on, or None if none failed in time."""
    started = time.monotonic()
    best: RunOutcome | None = None
    runs, first_failure = 0, 0
    while time.monotonic() - started < max_seconds and (best is None or runs < first_failure + GO_ON):
        outcome = lockstep.run(schedule.draw(seed + runs))
        runs += 1
        if outcome.verdict != VERDICT_OK and (best is None or len(outcome.steps) < len(best.steps)):
            first_failure = first_failure or runs
            best = outcome
    return Found(best, runs, time.monotonic() - started) if best else None
