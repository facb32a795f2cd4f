"""The steps of failed runs: what the machines did before reference and implementation parted."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

MAX_RUNS: Final = 50  # as many as the page has signatures
MAX_STEPS: Final = 200  # of one run, the last ones

COLUMNS: Final = (
    *("run_id", "step", "op_index", "actor", "instance", "event", "from_state", "to_state", "offset", "nbytes"),
    *("fragment_len", "split_at", "fault", "clauses", "verdict"),
)


def failing_runs(divergences: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the smallest run of each of the first MAX_RUNS signatures, those with the most failed runs first."""
    ordered = sorted(divergences, key=lambda row: (-row["n"], row["signature"]))
    return list(dict.fromkeys(row["smallest_run"] for row in ordered[:MAX_RUNS]))


def failing_steps(events: DataFrame, runs: Sequence[int]) -> pa.Table:
    """The last MAX_STEPS steps of each of the runs, in order. Columns: COLUMNS.

    The numbers of the runs are literals of the query, so that Spark skips the Parquet pages without any of them.
    """
    of_runs = events.where(sf.col("run_id").isin([int(run) for run in runs]))
    last = of_runs.groupBy("run_id").agg(sf.max("step").alias("last"))
    kept = of_runs.join(sf.broadcast(last), on="run_id", how="inner").where(sf.col("step") > sf.col("last") - MAX_STEPS)
    return kept.select(*COLUMNS).toArrow().sort_by([("run_id", "ascending"), ("step", "ascending")])
