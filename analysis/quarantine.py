"""The table of what a log holds that cannot be used: files, rows of runs/, and runs whose events are wrong."""

from typing import Final

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from rocketmq_ha.analysis.count_rows import DAMAGE, RUN
from rocketmq_ha.analysis.row_checks import NO_EVENTS, NO_NUMBER, TWICE

QUARANTINE: Final = "log int, source string, reason string, n bigint, n_runs bigint, example string"


def quarantine(
    run_rows: DataFrame, twice: DataFrame, counts: DataFrame, without_events: DataFrame, listed: DataFrame
) -> DataFrame:
    """What is left out of all other tables, one row for each file and reason.

    Columns: log, source, reason, n, n_runs, example. source: the file. n: rows that are left out, null where nobody knows how
    many. n_runs: runs to which they belong; null for a file that is left out as a whole. example: one of them.

    Args: run_rows: log, source, reason, is_row, run_id. twice: log, source, run_id, n_rows. counts: COUNTS.
          without_events: log, source, run_id, n_steps. listed: rows of this table.
    """
    whole_files = run_rows.where(~sf.col("is_row")).select(
        "log", "source", "reason", sf.lit(None).cast("bigint").alias("n"), sf.lit(None).cast("bigint").alias("n_runs"),
        sf.lit("").alias("example"),
    )  # fmt: skip
    bad_rows = run_rows.where(sf.col("is_row") & (sf.col("reason") != "")).withColumn("rows", sf.lit(1))
    repeated = twice.withColumn("reason", sf.lit(TWICE)).withColumn("rows", sf.col("n_rows"))
    lost = without_events.withColumn("reason", sf.lit(NO_EVENTS)).withColumn("rows", sf.col("n_steps"))
    wrong = counts.where((sf.col("kind") == RUN) & (sf.col("reason") != ""))
    events = wrong.select("log", "source", "reason", sf.col("first_run").alias("run_id"), sf.col("n").alias("rows"))
    files = counts.where(sf.col("kind") == DAMAGE).select(
        "log", "source", "reason", "n", sf.when(sf.col("reason") == NO_NUMBER, 0).cast("bigint").alias("n_runs"), "example"
    )
    frame = listed.unionByName(whole_files).unionByName(files)
    for found in (bad_rows, repeated, lost, events):
        frame = frame.unionByName(_summed(found))
    return frame.select("log", "source", "reason", "n", "n_runs", "example")


def _summed(found: DataFrame) -> DataFrame:
    by_reason = found.groupBy("log", "source", "reason").agg(
        sf.sum("rows").cast("bigint").alias("n"), sf.countDistinct("run_id").alias("n_runs"), sf.min("run_id").alias("run_id")
    )
    example = sf.concat(sf.lit("run "), sf.col("run_id").cast("string"))
    return by_reason.select("log", "source", "reason", "n", "n_runs", example.alias("example"))
