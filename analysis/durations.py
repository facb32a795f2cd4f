"""Tables of how long the runs were: in time, in steps and in operations."""

from typing import Final

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Window

MEASURES: Final = ("elapsed_us", "n_steps", "n_ops")
QUANTILES: Final = (0.0, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
NAMES: Final = ("least", "q25", "median", "q75", "q95", "q99", "most")
SLOWEST: Final = 10  # runs of each world


def run_durations(runs: DataFrame) -> DataFrame:
    """Quantiles of the runs of each world. Columns: world, measure, runs, least, q25, median, q75, q95, q99, most, total,
    timed_steps.

    measure: one of MEASURES. Quantiles are interpolated between neighbours. A run whose time nobody measured (-1) does not
    count for elapsed_us; a world without a measured run has no row for it. total: the sum of the values. timed_steps: the steps
    of the runs whose time was measured, for elapsed_us; 0 for the others.
    """
    pairs = [sf.struct(sf.lit(m).alias("measure"), sf.col(m).cast("bigint").alias("value")) for m in MEASURES]
    long = runs.select("world", "n_steps", sf.explode(sf.array(*pairs)).alias("of")).select("world", "n_steps", "of.*")
    quantiles = sf.percentile("value", [float(q) for q in QUANTILES])
    found = (
        long.where(sf.col("value") >= 0)
        .groupBy("world", "measure")
        .agg(
            sf.count("*").alias("runs"),
            quantiles.alias("quantiles"),
            sf.sum("value").alias("total"),
            sf.sum(sf.when(sf.col("measure") == "elapsed_us", sf.col("n_steps")).otherwise(0)).alias("timed_steps"),
        )
    )
    columns = [sf.col("quantiles")[at].alias(name) for at, name in enumerate(NAMES)]
    return found.select("world", "measure", "runs", *columns, "total", "timed_steps")


def slowest_runs(runs: DataFrame, replay: Column) -> DataFrame:
    """The runs of each world that took longest.

    Columns: world, place, log, run_id, profile, verdict, elapsed_us, n_ops, n_steps, replay.
    place: from 1 to SLOWEST within its world. Runs whose time nobody measured are not listed.
    """
    order = Window.partitionBy("world").orderBy(sf.desc("elapsed_us"), "log", "run_id")
    ranked = runs.where(sf.col("elapsed_us") >= 0).withColumn("place", sf.row_number().over(order))
    return ranked.where(sf.col("place") <= SLOWEST).select(
        "world", "place", "log", "run_id", "profile", "verdict", "elapsed_us", "n_ops", "n_steps", replay.alias("replay")
    )
