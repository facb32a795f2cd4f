"""Compare two campaigns: what the newer one has lost, its new failures, what it has gained, and its rates.

The input is the tables of two reports (tables.py), so an older report is enough; its log may be gone.

A newer campaign that has not seen something may have lost it, or may have had too few runs. If k of the m older runs saw it,
the newer one with m' runs misses it by chance with a probability of about (1 - k / m) ** m'. Below MISS it is called lost;
otherwise the table says how many runs would have told.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from rocketmq_ha.analysis.coverage import TRANSITION
from rocketmq_ha.analysis.pairs import PAIR
from rocketmq_ha.analysis.starved import MISS
from rocketmq_ha.spec.event_log import VERDICT_OK, WORLD_HYPOTHESIS

Frames = Mapping[str, DataFrame]

LOST: Final = "lost"
TOO_FEW_RUNS: Final = "too few runs to tell"
KINDS: Final = ("transition", "clause", "pair")
INPUT: Final = ("transitions_seen", "clauses_by_world", "pairs", "divergences", "summary", "run_durations")  # of each side


def frames(spark: SparkSession, tables: Mapping[str, pa.Table]) -> dict[str, DataFrame]:
    """The tables of a report that the comparison reads, as frames."""
    # In one piece: of a table with an empty chunk Spark reads what stands before it.
    return {name: spark.createDataFrame(tables[name].combine_chunks()) for name in INPUT}


def lost_coverage(older: Frames, newer: Frames) -> DataFrame:
    """What the older campaign saw and the newer one did not.

    Columns: kind, profile, world, name, n_runs, runs_before, runs_now, miss_probability, runs_needed, judgement.
    kind: one of KINDS. profile: empty for clauses; world: empty for the others. n_runs of runs_before saw it. miss_probability:
    that runs_now runs miss it by chance. runs_needed: so many miss it with a probability of MISS. judgement: LOST or
    TOO_FEW_RUNS.
    """
    before, now = _covered(older), _covered(newer)
    lost = before.join(now, on=["kind", "profile", "world", "name"], how="left_anti")
    rate = sf.col("n_runs") / sf.col("runs_before")
    judged = (
        lost.join(_runs(older, "runs_before"), on=["profile", "world"], how="inner")
        .join(_runs(newer, "runs_now"), on=["profile", "world"], how="left")
        .fillna(0, subset=["runs_now"])
        .withColumn("miss_probability", sf.pow(1 - rate, sf.col("runs_now")))
    )
    needed = sf.when(rate >= 1, 1).otherwise(sf.ceil(math.log(MISS) / sf.log1p(-rate)))
    return judged.select(
        "kind",
        "profile",
        "world",
        "name",
        "n_runs",
        "runs_before",
        "runs_now",
        "miss_probability",
        needed.cast("long").alias("runs_needed"),
        sf.when(sf.col("runs_now") >= needed, LOST).otherwise(TOO_FEW_RUNS).alias("judgement"),
    )


def new_coverage(older: Frames, newer: Frames) -> DataFrame:
    """What the newer campaign saw and the older one did not. Columns: kind, profile, world, name, n_runs, runs_now."""
    gained = _covered(newer).join(_covered(older), on=["kind", "profile", "world", "name"], how="left_anti")
    return gained.join(_runs(newer, "runs_now"), on=["profile", "world"], how="inner").select(
        "kind", "profile", "world", "name", "n_runs", "runs_now"
    )


def failures_compared(older: Frames, newer: Frames) -> DataFrame:
    """The failures of both by signature. Columns: change, verdict, signature, n_before, n_now, replay, detail.

    change: "new" for one that the older campaign did not have, "gone" for one that only it had, "still" for one of both. replay
    and detail are those of the newer campaign, if it has it.
    """
    keys = ["verdict", "signature"]
    columns = (*keys, "n", "replay", "detail")
    before = older["divergences"].select(*columns).withColumnsRenamed({"n": "n_before", "replay": "r0", "detail": "d0"})
    now = newer["divergences"].select(*columns).withColumnRenamed("n", "n_now")
    change = sf.when(sf.col("n_before").isNull(), "new").when(sf.col("n_now").isNull(), "gone").otherwise("still")
    return before.join(now, on=keys, how="full_outer").select(
        change.alias("change"),
        *keys,
        sf.coalesce("n_before", sf.lit(0)).alias("n_before"),
        sf.coalesce("n_now", sf.lit(0)).alias("n_now"),
        sf.coalesce("replay", "r0").alias("replay"),
        sf.coalesce("detail", "d0").alias("detail"),
    )


def rates(older: Frames, newer: Frames) -> DataFrame:
    """The figures of both. Columns: measure, before, now, ratio. A figure is null where there is nothing to divide by.

    measure: runs, steps, failed_runs, failures_per_million_steps, steps_per_second (of one core).
    """
    before, now = _figures(older).withColumnRenamed("value", "before"), _figures(newer).withColumnRenamed("value", "now")
    ratio = sf.when(sf.col("before") != 0, sf.col("now") / sf.col("before"))
    return before.join(now, on="measure", how="inner").select("measure", "before", "now", ratio.alias("ratio"))


def _figures(tables: Frames) -> DataFrame:
    sums = tables["summary"].agg(
        sf.coalesce(sf.sum("runs"), sf.lit(0)).alias("runs"),
        sf.coalesce(sf.sum("steps"), sf.lit(0)).alias("steps"),
        sf.coalesce(sf.sum(sf.when(sf.col("verdict") != VERDICT_OK, sf.col("runs"))), sf.lit(0)).alias("failed_runs"),
    )
    total = sf.sum(sf.when(sf.col("measure") == "elapsed_us", sf.col("total")))
    timed = tables["run_durations"].where(sf.col("world") != WORLD_HYPOTHESIS)
    measured = timed.agg(sf.sum("timed_steps").alias("timed_steps"), total.alias("elapsed_us"))
    figures = sums.crossJoin(measured)
    values: dict[str, Column] = {name: sf.col(name) for name in ("runs", "steps", "failed_runs")}
    steps, elapsed = sf.col("steps"), sf.col("elapsed_us")
    values["failures_per_million_steps"] = sf.when(steps > 0, sf.col("failed_runs") * 1e6 / steps)
    values["steps_per_second"] = sf.when(elapsed > 0, sf.col("timed_steps") * 1e6 / elapsed)
    rows = sf.array(
        *(sf.struct(sf.lit(name).alias("measure"), value.cast("double").alias("value")) for name, value in values.items())
    )
    return figures.select(sf.explode(rows).alias("row")).select("row.measure", "row.value")


def _covered(tables: Frames) -> DataFrame:
    """Everything that a campaign saw. Columns: kind, profile, world, name, n_runs."""
    none = sf.lit("")
    clauses = tables["clauses_by_world"].where(sf.col("n") > 0)
    return (
        tables["transitions_seen"]
        .select(sf.lit("transition").alias("kind"), "profile", none.alias("world"), _name(TRANSITION).alias("name"), "n_runs")
        .unionByName(
            clauses.select(
                sf.lit("clause").alias("kind"), none.alias("profile"), "world", sf.col("clause").alias("name"), "n_runs"
            )
        )
        .unionByName(
            tables["pairs"].select(
                sf.lit("pair").alias("kind"), "profile", none.alias("world"), _name(PAIR).alias("name"), "n_runs"
            )
        )
    )


def _name(columns: Sequence[str]) -> Column:
    return sf.concat_ws(" ", *columns[1:])  # without the profile


def _runs(tables: Frames, name: str) -> DataFrame:
    """The runs that could have seen something: of a profile, and of a world. Columns: profile, world, `name`."""
    none = sf.lit("")
    profiles = tables["summary"].groupBy("profile").agg(sf.sum("runs").alias(name)).withColumn("world", none)
    of_steps = tables["run_durations"].where(sf.col("measure") == "n_steps")
    worlds = of_steps.select(none.alias("profile"), "world", sf.col("runs").alias(name))
    return profiles.select("profile", "world", name).unionByName(worlds)
