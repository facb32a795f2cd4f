"""Compute all tables of a report with Spark, collect them as Arrow tables and write them as Parquet.

Every table is an aggregate. The size of most depends on the model and not on the log; growth and divergences have a row
for each run that showed something new. So all tables are small enough to be collected and written to one file each. They
are sorted, because a shuffle gives rows no fixed order.
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
    """A table to be collected, and the columns by which it is sorted."""

    frame: DataFrame
    order: tuple[str, ...]


# Several jobs run at once, because small jobs leave the cores idle while the driver plans the next one.
CONCURRENT_JOBS: Final = 3

# The name of each table, which is also its file name, and the progress message for it.
TITLES: Final[Mapping[str, str]] = {
    "integrity": "consistency of the log",
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
    """Compute every table of TITLES. Returns: the sorted tables by name.

    One pass over most columns of the events makes run_transitions, which is cached. Clauses, fragmentation, faults and
    integrity each scan two or three columns. To cache the events themselves would cost more than these scans of Parquet.
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
        with ThreadPoolExecutor(CONCURRENT_JOBS) as pool:
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
    """Write each table to its own file, NAME.parquet."""
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
