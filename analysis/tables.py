"""All tables of a report, computed by Spark, collected as Arrow and written as Parquet.

Every table is an aggregate whose size depends on the model and not on the log, growth and divergences aside, which
have a row for each run that brought something new. So they are collected, put in a written order (a shuffle has
none), and each makes one file.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from rocketmq_ha.analysis import coverage, estimates, fragmentation, outcomes
from rocketmq_ha.analysis.ingest import Log
from rocketmq_ha.analysis.schema import Possible

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Table:
    """One table to be collected, and the columns that put it in order."""

    frame: DataFrame
    order: tuple[str, ...]


# Small jobs leave the cores idle while the driver plans the next one.
JOBS_AT_ONCE: Final = 3

# What is shown when a table is done; the names are the file names.
TITLES: Final[Mapping[str, str]] = {
    "integrity": "is the log whole",
    "summary": "runs by verdict",
    "run_sizes": "sizes of the runs",
    "divergences": "divergences by signature",
    "transitions_seen": "transitions seen",
    "transitions_never_seen": "transitions never seen",
    "transitions_impossible": "impossible transitions",
    "matrix": "state-by-event matrix",
    "clauses": "clauses",
    "fragmentation": "fragmentation",
    "never_split": "bytes never split at",
    "growth": "growth over runs",
    "estimates": "estimates",
    "faults": "faults",
}


def compute(
    spark: SparkSession, log: Log, possible: Possible, progress: Callable[[str], object] = lambda _: None
) -> dict[str, pa.Table]:
    """Every table of TITLES, by name, in a written order.

    One wide pass over the events leaves run_transitions, which is kept; clauses, fragmentation, faults and integrity
    read two or three columns each. Keeping the events themselves would cost more than these narrow scans of Parquet.
    """
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return kept[-1]

    def collect(name: str) -> pa.Table:
        arrow = tables[name].frame.toArrow()
        order = [(column, "ascending") for column in tables[name].order]
        progress(TITLES[name])
        return arrow.sort_by(order) if order else arrow

    tables = _tables(spark, log, possible, keep)
    try:
        with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
            return dict(zip(tables, pool.map(collect, tables), strict=True))
    finally:
        for frame in kept:
            frame.unpersist()


def _tables(spark: SparkSession, log: Log, possible: Possible, keep: Callable[[DataFrame], DataFrame]) -> dict[str, Table]:
    runs = keep(log.runs)
    ranked = keep(coverage.ranked_runs(runs))
    per_run = keep(coverage.run_transitions(log.events, ranked))
    seen = keep(coverage.transitions_seen(per_run, ranked))
    all_possible = coverage.possible_transitions(spark, possible)
    expected = keep(coverage.in_profiles_run(all_possible, runs))
    known = per_run.join(all_possible, on=list(coverage.TRANSITION), how="left_semi")
    splits = keep(fragmentation.fragmentation(log.events, fragmentation.places(spark)))
    return {
        "integrity": Table(outcomes.integrity(log.events, runs), ()),
        "summary": Table(outcomes.summary(runs), ("profile", "phase", "verdict")),
        "run_sizes": Table(outcomes.run_sizes(runs), ()),
        "divergences": Table(outcomes.divergences(runs), ("verdict", "signature")),
        "transitions_seen": Table(seen, coverage.BY_NAME),
        "transitions_never_seen": Table(coverage.transitions_never_seen(expected, seen), coverage.BY_NAME),
        "transitions_impossible": Table(coverage.transitions_impossible(seen, all_possible), coverage.BY_NAME),
        "matrix": Table(coverage.matrix(expected, seen), ("actor", "from_state", "event")),
        "clauses": Table(coverage.clause_coverage(log.events, coverage.possible_clauses(spark, possible)), ("clause",)),
        "fragmentation": Table(splits, ("actor", "event", "unit", "place")),
        "never_split": Table(fragmentation.never_split(splits), ("actor", "event", "unit")),
        "growth": Table(estimates.growth(known, ranked), ("profile", "runs")),
        "estimates": Table(estimates.estimates(known, runs), ("profile",)),
        "faults": Table(outcomes.faults(log.events), ("fault",)),
    }


def write(tables: Mapping[str, pa.Table], folder: Path) -> None:
    """One file a table, NAME.parquet."""
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
