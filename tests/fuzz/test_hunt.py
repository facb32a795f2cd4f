"""A hunt keeps the shortest of the failures it meets, and goes on for 50 seeds after the first."""

from collections.abc import Callable, Mapping

import pytest

from kit.schedules import outcome_of
from rocketmq_ha.fuzz import hunt
from rocketmq_ha.fuzz.lockstep import RunOutcome
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.spec.event_log import VERDICT_DIVERGENCE, VERDICT_ERROR, VERDICT_INVARIANT

NEVER = 1e9


def runs_of(failures: Mapping[int, tuple[int, str]], tried: list[int]) -> Callable[[int], RunOutcome]:
    """Runs of 6 operations; those of `failures` have other numbers of operations, and fail. Each seed goes to `tried`."""

    def run(seed: int) -> RunOutcome:
        tried.append(seed)
        assert len(tried) <= 200, "the hunt does not end"
        return outcome_of(seed, *failures.get(seed, (6, "ok")))

    return run


@pytest.mark.parametrize(
    ("failures", "found", "runs"),
    [
        ({10: (9, VERDICT_ERROR)}, 10, 51),
        ({13: (9, VERDICT_DIVERGENCE), 20: (5, VERDICT_ERROR), 30: (7, VERDICT_DIVERGENCE)}, 20, 54),
        ({13: (9, VERDICT_DIVERGENCE), 63: (8, VERDICT_INVARIANT), 64: (1, VERDICT_ERROR)}, 63, 54),
        ({13: (5, VERDICT_ERROR), 20: (5, VERDICT_ERROR), 30: (9, VERDICT_ERROR)}, 13, 54),
        ({75: (9, VERDICT_ERROR), 76: (8, VERDICT_ERROR)}, 76, 116),
        ({30: (9, VERDICT_ERROR), 70: (8, VERDICT_ERROR), 80: (7, VERDICT_ERROR)}, 80, 71),
    ],
    ids=[
        "the first alone",
        "the second is the shortest",
        "the last seed counts",
        "the first of equals",
        "none of the first fifty",
        "one fails late",
    ],
)
def test_the_shortest_failure_of_fifty_more_seeds_is_kept(
    failures: Mapping[int, tuple[int, str]], found: int, runs: int
) -> None:
    tried: list[int] = []
    result = hunt.hunt(10, NEVER, runs_of(failures, tried))
    assert result is not None
    assert (result.outcome.schedule.seed, result.runs) == (found, runs)
    assert len(result.outcome.steps) == failures[found][0]
    assert tried == list(range(10, 10 + runs))


@pytest.mark.parametrize(("more", "found", "runs"), [(0, 12, 3), (1, 13, 4), (2, 13, 5)])
def test_a_hunt_goes_on_for_as_many_seeds_as_it_is_told(more: int, found: int, runs: int) -> None:
    tried: list[int] = []
    failures = {12: (9, VERDICT_ERROR), 13: (8, VERDICT_ERROR), 15: (7, VERDICT_ERROR)}
    result = hunt.hunt(10, NEVER, runs_of(failures, tried), go_on=more)
    assert result is not None
    assert (result.outcome.schedule.seed, result.runs) == (found, runs)
    assert tried == list(range(10, 10 + runs))


def ticking(step: float) -> Callable[[], float]:
    """A clock that goes on by `step` seconds each time that somebody looks; it does not start at 0."""
    now = [100.0]

    def clock() -> float:
        now[0] += step
        return now[0]

    return clock


def test_a_hunt_without_a_failure_ends_with_its_time() -> None:
    tried: list[int] = []
    # It looks once at the start and once before each run: 1 to 4 seconds have passed, and at 5 it ends.
    assert hunt.hunt(3, 5.0, runs_of({}, tried), ticking(1.0)) is None
    assert tried == [3, 4, 5, 6]


def test_a_failure_counts_if_the_time_ends_before_the_fifty_seeds() -> None:
    tried: list[int] = []
    result = hunt.hunt(3, 5.0, runs_of({4: (2, VERDICT_ERROR)}, tried), ticking(1.0))
    assert result is not None
    assert (result.outcome.schedule.seed, result.runs, result.seconds) == (4, 4, 6.0)


def test_a_seed_runs_the_schedule_that_it_draws() -> None:
    outcome = hunt.run_seed(registry.find(["link"]), 21)
    assert outcome.schedule.seed == 21
    assert len(outcome.steps) == len(outcome.schedule.events) > 99
    assert outcome.verdict == "ok"
