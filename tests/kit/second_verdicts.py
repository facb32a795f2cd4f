"""Logs in memory for the tests of the second verdict, and what its two checks say of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from rocketmq_ha.fuzz import recorder, runner
from rocketmq_ha.fuzz.limits import Limits
from rocketmq_ha.fuzz.lockstep import RunOutcome
from rocketmq_ha.fuzz.recorder import EVENT_SCHEMA, RUN_SCHEMA, EventRecorder
from rocketmq_ha.fuzz.second_verdict import chunk, monitor, rerun
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.spec.event_log import PHASE_GENERATE

Row = dict[str, Any]


@dataclass
class MemoryLog:
    """The rows of a log, to be changed."""

    events: list[Row]
    runs: list[Row]

    def of(self, run_id: int) -> list[Row]:
        return [row for row in self.events if row["run_id"] == run_id]

    def find(self, where: Callable[[Row], bool]) -> Row:
        """The first row for which a condition holds."""
        return next(filter(where, self.events))

    def run(self, run_id: int) -> Row:
        return next(row for row in self.runs if row["run_id"] == run_id)

    def copy(self) -> "MemoryLog":
        return MemoryLog([dict(row) for row in self.events], [dict(row) for row in self.runs])

    def tables(self) -> tuple[pa.Table, pa.Table]:
        return pa.Table.from_pylist(self.events, EVENT_SCHEMA), pa.Table.from_pylist(self.runs, RUN_SCHEMA)


def campaign(seeds: Sequence[int], recorder_of: Callable[[], EventRecorder] = EventRecorder, world: str = "link") -> MemoryLog:
    """What a campaign over these seeds writes, made in this process with whatever is planted in it."""
    among = registry.find([world])
    return log_of((runner.limited_outcome(registry.draw(seed, among), Limits()) for seed in seeds), recorder_of)


def log_of(outcomes: Iterable[RunOutcome], recorder_of: Callable[[], EventRecorder] = EventRecorder) -> MemoryLog:
    """What a campaign writes about runs."""
    events, rows = recorder_of(), []
    for outcome in outcomes:
        rows.append(recorder.run_row(outcome, PHASE_GENERATE, events.add(outcome)))
    return MemoryLog(events.table().to_pylist(), rows)


@cache
def sound(first: int, last: int, world: str = "link") -> MemoryLog:
    """The log of the seeds from `first` to `last`. Not to be changed."""
    return campaign(range(first, last + 1), world=world)


def judged(log: MemoryLog) -> monitor.Judgement:
    """The row check of a log."""
    return monitor.judge(chunk.of_tables(*log.tables()))


def broken_rules(log: MemoryLog) -> set[str]:
    return set(judged(log).broken)


def rerun_rules(log: MemoryLog, run_ids: Sequence[int] | None = None) -> set[str]:
    """The rules that the re-run of some runs breaks."""
    chosen = log
    if run_ids is not None:
        runs = [run for run in log.runs if run["run_id"] in run_ids]
        chosen = MemoryLog([row for row in log.events if row["run_id"] in run_ids], runs)
    found = (rerun.rerun(run, rows, {}) for _, run, rows in rerun.runs_of(chunk.of_tables(*chosen.tables())))
    return {result.rule for result in found if result and result.rule}
