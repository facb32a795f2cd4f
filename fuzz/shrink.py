"""Make a failing schedule as short as it goes: every event that the failure does not need is removed, and values become simple.

The failure stays the same: what counts is its verdict and its signature (actor, event and field), not the values in which the
sides differ. This is delta debugging over the events, in halves, quarters and so on down to single events, until no single
event can be removed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from rocketmq_ha.fuzz.limits import Limits
from rocketmq_ha.fuzz.lockstep import RunOutcome
from rocketmq_ha.fuzz.runner import limited_outcome
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Schedule
from rocketmq_ha.spec.event_log import VERDICT_OK


@dataclass(frozen=True, slots=True)
class Shrunk:
    outcome: RunOutcome  # of the shortest schedule found
    tries: int  # runs that were made


def run_once(schedule: Schedule) -> RunOutcome:
    return limited_outcome(schedule, Limits())


def shrink(
    schedule: Schedule, run: Callable[[Schedule], RunOutcome] = run_once, progress: Callable[[int, int], None] = lambda *_: None
) -> Shrunk | None:
    """The shortest schedule with the same failure; None if the schedule does not fail.

    Args: progress: called with the number of events and the number of tries so far.
    """
    first = run(schedule)
    if first.verdict == VERDICT_OK:
        return None
    wanted = (first.verdict, first.last.signature)
    best, tries = first, 1

    def fails(candidate: Schedule) -> bool:
        nonlocal best, tries
        if not candidate.events:
            return False
        tries += 1
        outcome = run(candidate)
        if (outcome.verdict, outcome.last.signature) != wanted:
            return False
        best = _cut(outcome)
        progress(len(best.schedule.events), tries)
        return True

    best = _cut(first)
    while True:
        before = best.schedule
        _remove_events(fails, lambda: best.schedule)
        _simplify_values(fails, lambda: best.schedule)
        if best.schedule == before:
            return Shrunk(best, tries)


def _cut(outcome: RunOutcome) -> RunOutcome:
    """The outcome of a schedule that ends at its failure: nothing behind it was ever applied."""
    if outcome.last.op_index < 0:
        return outcome
    events = outcome.schedule.events[: outcome.last.op_index + 1]
    return RunOutcome(replace(outcome.schedule, events=events), outcome.steps)  # type: ignore[type-var]


def _remove_events(fails: Callable[[Schedule], bool], now: Callable[[], Schedule]) -> None:
    size = max(1, len(now().events) // 2)
    while size:
        start = max(0, len(now().events) - size)
        while start >= 0:
            events = now().events
            fails(_with(now(), (*events[:start], *events[start + size :])))
            start -= size
        size //= 2


def _simplify_values(fails: Callable[[Schedule], bool], now: Callable[[], Schedule]) -> None:
    for at in range(len(now().events)):
        if at >= len(now().events):
            return
        event = now().events[at]
        bounds = registry.world_of(now()).bounds(now())
        for name, simpler in _simpler(event, bounds):
            events = now().events
            if at < len(events) and fails(
                _with(now(), (*events[:at], replace(events[at], **{name: simpler}), *events[at + 1 :]))
            ):
                break


def _simpler(event: Any, bounds: Any) -> Iterator[tuple[str, Any]]:
    """Simpler values of the fields of an event, the simplest first."""
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, bytes) and value:
            yield from (
                (field.name, body) for body in (b"", b"x", b"x" * len(value)) if body != value and len(body) <= len(value)
            )
        elif isinstance(value, bool) and value:
            yield field.name, False
        elif (type(event), field.name) in bounds:
            low, high = bounds[type(event), field.name]
            yield from ((field.name, simple) for simple in _numbers(value, low, high))


def _numbers(value: int, low: int, high: int) -> Sequence[int]:
    """Numbers nearer to 0, the nearest first, each in half the distance of the one before. None is farther, so shrinking ends.

    >>> _numbers(20, 0, 100), _numbers(-9, -40, 5), _numbers(1, 1, 9)
    ([0, 10, 15, 18, 19], [0, -5, -7, -8], [])
    """
    distance, nearer = abs(value), []
    while distance:
        nearer.append(value - distance if value > 0 else value + distance)
        distance //= 2
    return [number for number in dict.fromkeys(nearer) if low <= number <= high]


def _with(schedule: Schedule, events: tuple[Any, ...]) -> Schedule:
    made: Schedule = replace(schedule, events=events)  # type: ignore[type-var]
    return made
