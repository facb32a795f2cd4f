"""Growth of the number of transitions over the runs, and estimates of the transitions that are not yet seen.

The sampling unit is a run: steps within one run depend on each other, runs drawn by seed do not. So only runs of the
phase `generate` count for the estimates, and "seen once" means seen in exactly one run, any number of times.
"""

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Window

from rocketmq_ha.analysis.coverage import TRANSITION
from rocketmq_ha.spec.event_log import PHASE_GENERATE

ALL_PROFILES = "all"
_RANK_SHIFT = 32


def growth(per_run: DataFrame, ranked: DataFrame) -> DataFrame:
    """The number of distinct transitions after a number of runs. Columns: profile, runs, transitions.

    Each run that showed a new transition has a row. A profile's last run always has one.
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
    """Estimates of the unseen transitions, one row per profile and one for all profiles together.

    Columns: profile, m, seen, q1, q2, unseen_probability, chao2.
    m: runs drawn. q1, q2: transitions seen in exactly one run, in exactly two. unseen_probability: the estimate of Good
    and Turing, q1 / m. chao2: Chao's estimate of the number of transitions that this generator can reach, a lower bound;
    null where m = 0.
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
