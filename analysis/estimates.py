"""How the number of transitions grew with the runs, and what that says about those not seen.

The sampling unit is a run: steps within one run depend on each other, runs drawn by seed do not. So only runs of the
phase `generate` count for the estimates, and "seen once" means: seen in one run, however often there.
"""

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Window

from rocketmq_ha.analysis.coverage import TRANSITION
from rocketmq_ha.spec.event_log import PHASE_GENERATE

ALL_PROFILES = "all"
_RANK_SHIFT = 32


def growth(per_run: DataFrame, ranked: DataFrame) -> DataFrame:
    """profile, runs, transitions: so many distinct transitions after so many runs.

    One row for each run that brought a new one. A profile's last row is its last run, whether it brought one or not.
    """
    first = per_run.groupBy(*TRANSITION).agg(sf.min("first_seen").alias("first_seen"))
    new = (
        first.select("profile", sf.shiftright("first_seen", _RANK_SHIFT).alias("runs"))
        .groupBy("profile", "runs")
        .agg(sf.count("*").alias("new"))
    )
    last = ranked.groupBy("profile").agg(sf.max("run_rank").alias("runs")).withColumn("new", sf.lit(0).cast("long"))
    so_far = Window.partitionBy("profile").orderBy("runs").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        new.unionByName(last)
        .groupBy("profile", "runs")
        .agg(sf.sum("new").alias("new"))
        .select("profile", "runs", sf.sum("new").over(so_far).alias("transitions"))
    )


def estimates(per_run: DataFrame, runs: DataFrame) -> DataFrame:
    """profile, m, seen, q1, q2, unseen_probability, chao2: one row a profile, and one for all of them.

    m: runs drawn. q1, q2: transitions seen in exactly one, two of them. unseen_probability: Good and Turing's q1 / m.
    chao2: Chao's estimate of how many transitions this generator reaches at all, a lower bound; null where m = 0.
    """
    drawn = sf.col("phase") == PHASE_GENERATE
    species = per_run.where(drawn).groupBy(*TRANSITION).agg(sf.count("*").alias("n_runs"))
    counted = (
        _with_all(species)
        .groupBy("profile")
        .agg(
            sf.count("*").alias("seen"),
            sf.count_if(sf.col("n_runs") == 1).alias("q1"),
            sf.count_if(sf.col("n_runs") == 2).alias("q2"),
        )
    )
    sampled = _with_all(runs.where(drawn).select("profile")).groupBy("profile").agg(sf.count("*").alias("m"))
    filled = sampled.join(counted, on="profile", how="left").fillna(0, subset=["seen", "q1", "q2"])
    return filled.select(
        "profile",
        "m",
        "seen",
        "q1",
        "q2",
        (sf.col("q1") / sf.col("m")).alias("unseen_probability"),
        _chao2().alias("chao2"),
    )


def _chao2() -> Column:
    m, q1, q2 = sf.col("m"), sf.col("q1"), sf.col("q2")
    unseen = sf.when(q2 > 0, q1 * q1 / (2 * q2)).otherwise(q1 * (q1 - 1) / 2)
    return sf.col("seen") + (m - 1) / m * unseen


def _with_all(frame: DataFrame) -> DataFrame:
    return frame.unionByName(frame.withColumn("profile", sf.lit(ALL_PROFILES)))
