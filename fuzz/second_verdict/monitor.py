"""The row check: apply all rules to a chunk of whole runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_ha.fuzz.second_verdict.columns import HEADER, Rows
from rocketmq_ha.fuzz.second_verdict.rules import GENERAL, Rule, Violation, apply
from rocketmq_ha.fuzz.second_verdict.rules_link import OF_LINK
from rocketmq_ha.fuzz.second_verdict.rules_worlds import OF_WORLDS
from rocketmq_ha.spec.event_log import VERDICT_OK

RULES: Final[tuple[Rule, ...]] = (*GENERAL, *OF_LINK, *OF_WORLDS)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The second verdict of a run: its first violation, or none."""

    log: int
    run_id: int
    rows: int
    violations: int
    first: Violation | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result of a chunk."""

    runs: tuple[RunVerdict, ...]
    premises: dict[str, int]  # rule: rows or runs that it was about
    broken: dict[str, int]  # rule: violations (at most a few for each run)


def judge(table: pa.Table) -> Judgement:
    """Judge whole runs. table: CHUNK_SCHEMA, in order of (log, run_id, step)."""
    runs: list[RunVerdict] = []
    premises: dict[str, int] = {}
    broken: dict[str, int] = {}
    for world, part in by_world(table):
        rows = Rows(part, world)
        violations: dict[int, list[Violation]] = {}
        for rule, found in apply(RULES, rows):
            premises[rule.name] = premises.get(rule.name, 0) + found.premises
            if found.violations:
                broken[rule.name] = broken.get(rule.name, 0) + len(found.violations)
            for violation in found.violations:
                violations.setdefault(violation.run, []).append(violation)
        counts = rows.runs.end - rows.runs.begin
        for run, (log, run_id, count) in enumerate(
            zip(rows.runs.log.tolist(), rows.runs.run_id.tolist(), counts.tolist(), strict=True)
        ):
            mine = violations.get(run, [])
            first = min(mine, key=lambda violation: violation.step, default=None)  # of one step the first rule
            runs.append(RunVerdict(log, run_id, count, len(mine), first))
    return Judgement(tuple(runs), premises, broken)


def by_world(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The runs of each world. A run's world is that of its row in runs, and without one that of its first row."""
    worlds = table.column("world").unique().to_pylist()
    if len(worlds) == 1:
        yield worlds[0] or "?", table
        return
    log, run_id = (table.column(name).to_numpy() for name in ("log", "run_id"))
    first = np.ones(len(table), dtype=np.bool_)
    first[1:] = (log[1:] != log[:-1]) | (run_id[1:] != run_id[:-1])
    names = table.column("world").fill_null("?")
    for world in names.unique().to_pylist():
        is_of = np.asarray(pc.equal(names, world).combine_chunks().to_numpy(zero_copy_only=False))
        chosen = is_of[first][np.cumsum(first) - 1]
        if chosen.any():
            yield world, table.filter(pa.array(chosen))


def is_ok(verdict: RunVerdict) -> str:
    return VERDICT_OK if verdict.first is None else "violation"


__all__ = ["HEADER", "RULES", "Judgement", "RunVerdict", "judge"]
