"""Compute all tables of a report with Spark, collect them as Arrow tables and write them as Parquet.

Every table is an aggregate. The size of most depends on the model and not on the log; growth and divergences have a row
for each run that showed something new. So all tables are small enough to be collected and written to one file each. They
are sorted, because a shuffle gives rows no fixed order.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as sf
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from rocketmq_ha.analysis import (
    clauses,
    comparison,
    coverage,
    durations,
    estimates,
    fragmentation,
    hypothesis,
    outcomes,
    pairs,
    starved,
)
from rocketmq_ha.analysis.count_rows import TRANSITION
from rocketmq_ha.analysis.errors import LogInvalid
from rocketmq_ha.analysis.ingest import Log
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import PHASE_HYPOTHESIS

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table to be collected, and the columns by which it is sorted."""

    frame: DataFrame
    order: tuple[str, ...]


# Several jobs run at once, because small jobs leave the cores idle while the driver plans the next one.
CONCURRENT_JOBS: Final = 3

# The name of each table, which is also its file name, and the progress message for it.
TITLES: Final[Mapping[str, str]] = {
    "integrity": "consistency of the log",
    "quarantine": "quarantine",
    "worlds": "worlds measured",
    "summary": "runs by verdict",
    "run_sizes": "sizes of the runs",
    "run_durations": "time and steps of the runs",
    "slowest_runs": "slowest runs",
    "divergences": "divergences by signature",
    "transitions_seen": "transitions seen",
    "transitions_never_seen": "transitions never seen",
    "transitions_impossible": "impossible transitions",
    "starved": "transitions that few runs take",
    "matrix": "state-by-event matrix",
    "pairs": "pairs of transitions",
    "pairs_by_machine": "pairs by machine",
    "clauses": "clauses",
    "clauses_by_world": "clauses by world",
    "clauses_held": "what holds each clause",
    "fragmentation": "fragmentation",
    "never_split": "bytes never split at",
    "growth": "growth over runs",
    "growth_by_world": "growth by world",
    "estimates": "estimates",
    "estimates_by_world": "estimates by world",
    "faults": "faults",
    "state_faults": "states under faults",
    "hypothesis_cases": "test cases of Hypothesis",
}

# The tables of a comparison of two reports.
COMPARISON_TITLES: Final[Mapping[str, str]] = {
    "lost_coverage": "lost coverage",
    "failures_compared": "failures compared",
    "new_coverage": "new coverage",
    "rates": "rates",
}
OPTIONAL: Final = frozenset((*COMPARISON_TITLES, "trend"))  # tables that a report has only with --compare or --trend


def compute(
    spark: SparkSession, log: Log, possible: Possible, progress: Callable[[str], object] = lambda _: None
) -> dict[str, pa.Table]:
    """Compute every table of TITLES, and close the log. Returns: the sorted tables by name.

    The events have been condensed when the log was read; the tables are made from these counts and from the rows of runs/.
    Several threads call `progress`, one at a time, each with the title of the table that it has collected.
    """
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return kept[-1]

    try:
        return _collect(_tables(spark, log, possible, keep), TITLES, progress)
    finally:
        for frame in kept:
            frame.unpersist()
        log.close()


def compare(
    spark: SparkSession,
    older: Mapping[str, pa.Table],
    newer: Mapping[str, pa.Table],
    progress: Callable[[str], object] = lambda _: None,
) -> dict[str, pa.Table]:
    """Compute every table of COMPARISON_TITLES from the tables of two reports. Returns: the sorted tables by name.

    `progress` is called as `compute` calls it.

    What tells most comes first: of lost coverage the transitions, then the clauses, then the pairs, which are lost with those,
    and of each kind that which chance explains least; of failures the new ones.
    """
    before, now = comparison.frames(spark, older), comparison.frames(spark, newer)
    lost = comparison.lost_coverage(before, now)
    failures = comparison.failures_compared(before, now)
    tables = {
        "lost_coverage": Table(lost, ("miss_probability", "profile", "world", "name")),
        "failures_compared": Table(failures, ("change", "verdict", "signature")),
        "new_coverage": Table(comparison.new_coverage(before, now), ("kind", "profile", "world", "name")),
        "rates": Table(comparison.rates(before, now), ("measure",)),
    }
    collected = _collect(tables, COMPARISON_TITLES, progress)
    return collected | {
        "lost_coverage": _grouped(collected["lost_coverage"], "kind", comparison.KINDS),
        "failures_compared": _grouped(collected["failures_compared"], "change", ("new", "still", "gone")),
    }


def _grouped(table: pa.Table, column: str, values: Sequence[str]) -> pa.Table:
    """The rows with the first of the values in a column, then those with the next; else in the order that they have."""
    order = [values.index(value) for value in table[column].to_pylist()]
    return table.take(pa.array(sorted(range(len(order)), key=order.__getitem__), pa.int64()))


def _collect(tables: Mapping[str, Table], titles: Mapping[str, str], progress: Callable[[str], object]) -> dict[str, pa.Table]:
    telling = Lock()

    def collect(name: str) -> pa.Table:
        arrow = tables[name].frame.toArrow()
        order = [(column, "ascending") for column in tables[name].order]
        with telling:  # `progress` may number what it shows
            progress(titles[name])
        return arrow.sort_by(order) if order else arrow

    with ThreadPoolExecutor(CONCURRENT_JOBS) as pool:
        return dict(zip(tables, pool.map(collect, tables), strict=True))


def _tables(spark: SparkSession, log: Log, possible: Possible, keep: Callable[[DataFrame], DataFrame]) -> dict[str, Table]:
    counts, runs = log.counts, log.runs
    counted = log.counted.where(sf.col("phase") != PHASE_HYPOTHESIS)  # test cases are no sample of anything here
    replay = outcomes.replay_line(log.places)
    ranked = keep(coverage.ranked_runs(counted))
    seen = keep(coverage.transitions_seen(counts))
    all_possible = keep(coverage.possible_transitions(spark, possible))
    measured = possible.in_worlds(log.worlds)
    worlds = keep(coverage.worlds_measured(spark, log.worlds, runs))
    expected = keep(coverage.in_profiles_run(coverage.possible_transitions(spark, measured), counted))
    is_transition = list(coverage.TRANSITION)
    known = counts.where(sf.col("kind") == TRANSITION).join(all_possible, on=is_transition, how="left_semi")
    known_seen = seen.join(all_possible, on=is_transition, how="left_semi")
    known_in_worlds = coverage.world_transitions_seen(known)
    splits = keep(fragmentation.fragmentation(counts, fragmentation.places(spark)))
    exercised = keep(clauses.clause_coverage(counts, clauses.possible_clauses(spark, possible)))
    could = clauses.possible_clauses(spark, measured)
    by_world = clauses.clauses_by_world(counts, clauses.possible_clause_worlds(spark, possible), worlds)
    held = clauses.clauses_held(exercised, clauses.clauses_elsewhere(spark, possible), could)
    pairs_seen = keep(pairs.pairs_seen(counts))
    rare = starved.starved(counts, counted, all_possible, starved.machine_worlds(spark, possible))
    return {
        "integrity": Table(outcomes.integrity(counts, log.all_runs, log.missing), ()),
        "quarantine": Table(log.quarantine, ("log", "source", "reason", "example")),
        "worlds": Table(worlds, ("world",)),
        "summary": Table(outcomes.summary(runs), ("profile", "phase", "verdict")),
        "run_sizes": Table(outcomes.run_sizes(runs), ()),
        "run_durations": Table(durations.run_durations(runs), ("world", "measure")),
        "slowest_runs": Table(durations.slowest_runs(runs, replay), ("world", "place")),
        "divergences": Table(outcomes.divergences(runs, replay), ("verdict", "signature")),
        "transitions_seen": Table(seen, coverage.BY_NAME),
        "transitions_never_seen": Table(coverage.transitions_never_seen(expected, seen), coverage.BY_NAME),
        "transitions_impossible": Table(coverage.transitions_impossible(seen, all_possible), coverage.BY_NAME),
        "starved": Table(rare, ("n_runs", *coverage.BY_NAME)),
        "matrix": Table(coverage.matrix(expected, seen), ("actor", "from_state", "event")),
        "pairs": Table(pairs_seen, (*pairs.PAIR[1:], "profile")),
        "pairs_by_machine": Table(pairs.pairs_by_machine(pairs_seen, pairs.possible_pairs(expected)), ("actor", "profile")),
        "clauses": Table(clauses.in_worlds_measured(exercised, could), ("clause",)),
        "clauses_by_world": Table(by_world, ("clause", "world")),
        "clauses_held": Table(held, ("clause",)),
        "fragmentation": Table(splits, ("actor", "event", "unit", "place")),
        "never_split": Table(fragmentation.never_split(splits), ("actor", "event", "unit")),
        "growth": Table(estimates.growth(known_seen, ranked), ("profile", "runs")),
        "growth_by_world": Table(estimates.growth_by_world(known_in_worlds, ranked), ("world", "profile", "runs")),
        "estimates": Table(estimates.estimates(known, counted), ("profile",)),
        "estimates_by_world": Table(estimates.estimates_by_world(known, counted), ("world", "profile")),
        "faults": Table(outcomes.faults(counts), ("fault",)),
        "hypothesis_cases": Table(hypothesis.hypothesis_cases(counts), ("property", "kind", "name")),
        "state_faults": Table(
            outcomes.state_faults(counts, outcomes.machine_states(spark, possible)), ("actor", "state", "fault")
        ),
    }


def write(tables: Mapping[str, pa.Table], folder: Path) -> None:
    """Write each table to its own file, NAME.parquet."""
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")


def read(folder: Path, names: Sequence[str] = comparison.INPUT) -> dict[str, pa.Table]:
    """Read tables that `write` has written, for a comparison with an older report. Raises: LogInvalid."""
    found = {}
    for name in names:
        file = folder / f"{name}.parquet"
        try:
            found[name] = pq.read_table(file)
        except FileNotFoundError as error:
            raise LogInvalid(folder, f"no {file.name} in it", "the tables of a report, NAME-tables/") from error
        except (pa.ArrowException, OSError) as error:
            raise LogInvalid(file, "a file that is not Parquet", "a table of a report") from error
    return found
