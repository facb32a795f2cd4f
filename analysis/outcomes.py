"""Tables of the runs' outcomes: sums, failures by signature, faults, and the consistency of the log."""

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, Window

from rocketmq_ha.spec.event_log import NO_FAULT, VERDICT_OK

REPLAY_COMMAND = "rocketmq-ha fuzz replay"


def summary(runs: DataFrame) -> DataFrame:
    """The sums of the runs table by profile, phase and verdict.

    Columns: profile, phase, verdict, runs, steps, nbytes, messages.
    """
    return (
        runs.groupBy("profile", "phase", "verdict")
        .agg(
            sf.count("*").alias("runs"),
            sf.sum("n_steps").alias("steps"),
            sf.sum("nbytes").alias("nbytes"),
            sf.sum("n_messages").alias("messages"),
        )
        .select("profile", "phase", "verdict", "runs", "steps", "nbytes", "messages")
    )


def run_sizes(runs: DataFrame) -> DataFrame:
    """The sizes of the runs, one row. Columns: runs, median_steps, median_ops, max_steps; null if there are no runs."""
    return runs.agg(
        sf.count("*").alias("runs"),
        sf.median("n_steps").alias("median_steps"),
        sf.median("n_ops").alias("median_ops"),
        sf.max("n_steps").alias("max_steps"),
    ).select("runs", "median_steps", "median_ops", "max_steps")


def integrity(events: DataFrame, runs: DataFrame) -> DataFrame:
    """A check of the log's consistency, one row. Columns: events, runs, runs_without_row, runs_short, runs_repeated.

    The last three are 0 if the log is consistent.
    runs_without_row: runs that have events but no row in runs/. runs_short: runs whose number of events is not their
    n_steps. runs_repeated: runs that have several rows in runs/ of one log; all their counts are then too high.
    """
    found = events.groupBy("run_id").agg(sf.count("*").alias("n_events"))
    expected = runs.groupBy("run_id").agg(sf.count("*").alias("n_rows"), sf.max("n_steps").alias("n_steps"))
    both = found.join(expected, on="run_id", how="full_outer")
    has_row = sf.col("n_rows").isNotNull()
    n_events = sf.coalesce("n_events", sf.lit(0))
    return both.agg(
        sf.coalesce(sf.sum(n_events), sf.lit(0)).alias("events"),
        sf.count_if(has_row).alias("runs"),
        sf.count_if(~has_row).alias("runs_without_row"),
        sf.count_if(has_row & (n_events != sf.col("n_steps"))).alias("runs_short"),
        sf.count_if(sf.col("n_rows") > 1).alias("runs_repeated"),
    ).select("events", "runs", "runs_without_row", "runs_short", "runs_repeated")


def divergences(runs: DataFrame) -> DataFrame:
    """The failed runs, one row per signature.

    Columns: verdict, signature, n, smallest_run, n_ops, failing_op, profile, detail, replay. The smallest run is the one
    to read first: it has the fewest operations and, among equals, the lowest seed.
    """
    group = Window.partitionBy("verdict", "signature")
    failed = runs.where(sf.col("verdict") != VERDICT_OK).select(
        "*",
        sf.count("*").over(group).alias("n"),
        sf.row_number().over(group.orderBy("n_ops", "run_id")).alias("size_rank"),
    )
    return failed.where(sf.col("size_rank") == 1).select(
        "verdict",
        "signature",
        "n",
        sf.col("run_id").alias("smallest_run"),
        "n_ops",
        "failing_op",
        "profile",
        "detail",
        sf.concat_ws(" ", sf.lit(REPLAY_COMMAND), sf.col("run_id").cast("string")).alias("replay"),
    )


def faults(events: DataFrame) -> DataFrame:
    """The injected faults by kind. Columns: fault, n, n_runs, n_steps.

    n counts operations, because one fault may appear in several steps.
    """
    injected = events.where(sf.col("fault") != NO_FAULT)
    per_op = injected.groupBy("fault", "run_id", "op_index").agg(sf.count("*").alias("n_steps"))
    per_run = per_op.groupBy("fault", "run_id").agg(sf.count("*").alias("n"), sf.sum("n_steps").alias("n_steps"))
    return (
        per_run.groupBy("fault")
        .agg(sf.sum("n").alias("n"), sf.count("*").alias("n_runs"), sf.sum("n_steps").alias("n_steps"))
        .select("fault", "n", "n_runs", "n_steps")
    )
