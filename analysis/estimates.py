"""Growth of the number of transitions over the runs, and estimates of the transitions that are not yet seen.

The sampling unit is a run: steps within one run depend on each other, runs drawn by seed do not. So only runs of the
phase `generate` count for the estimates, and "seen once" means seen in exactly one run, any number of times.
"""

from collections.abc import Sequence
from typing import Final

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Window

from rocketmq_ha.analysis.count_rows import TRANSITION as TRANSITION_ROW
from rocketmq_ha.analysis.coverage import TRANSITION
from rocketmq_ha.spec.event_log import PHASE_GENERATE

ALL_PROFILES: Final = "all"


def growth(seen: DataFrame, ranked: DataFrame) -> DataFrame:
    """The number of distinct transitions after a number of runs. Columns: profile, runs, transitions.

    Each run that showed a new transition has a row. A profile's last run always has one.

    Args: seen: columns of coverage.transitions_seen, of the transitions that are possible.
    """
    return _growth(seen, ranked, ("profile",), "run_rank")


def growth_by_world(seen: DataFrame, ranked: DataFrame) -> DataFrame:
    """The same within each world. Columns: world, profile, runs, transitions.

    Args: seen: columns of coverage.world_transitions_seen, of the transitions that are possible.
    """
    return _growth(seen, ranked, ("world", "profile"), "world_rank")


def _growth(seen: DataFrame, ranked: DataFrame, keys: Sequence[str], rank: str) -> DataFrame:
    first = ranked.select("log", "run_id", sf.col(rank).alias("runs"))
    runs = first.withColumnsRenamed({"log": "first_log", "run_id": "first_run"})
    new = seen.join(runs, on=["first_log", "first_run"], how="inner").groupBy(*keys, "runs").agg(sf.count("*").alias("new"))
    last = ranked.groupBy(*keys).agg(sf.max(rank).alias("runs")).withColumn("new", sf.lit(0).cast("long"))
    so_far = Window.partitionBy(*keys).orderBy("runs").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        new.unionByName(last)
        .groupBy(*keys, "runs")
        .agg(sf.sum("new").alias("new"))
        .select(*keys, "runs", sf.sum("new").over(so_far).alias("transitions"))
    )


def estimates(counts: DataFrame, counted: DataFrame) -> DataFrame:
    """Estimates of the unseen transitions, one row per profile and one for all profiles together.

    Columns: profile, m, seen, q1, q2, unseen_probability, chao2.
    m: runs drawn. q1, q2: transitions seen in exactly one run, in exactly two. unseen_probability: the estimate of Good
    and Turing, q1 / m. chao2: Chao's estimate of the number of transitions that this generator can reach, a lower bound;
    null where m = 0.

    Args: counts: without the transitions that are not possible.
    """
    return _estimates(counts, counted, ())


def estimates_by_world(counts: DataFrame, counted: DataFrame) -> DataFrame:
    """The same within each world. Columns: world, and those of estimates."""
    return _estimates(counts, counted, ("world",))


def _estimates(counts: DataFrame, counted: DataFrame, keys: Sequence[str]) -> DataFrame:
    drawn = sf.col("phase") == PHASE_GENERATE
    taken = counts.where((sf.col("kind") == TRANSITION_ROW) & drawn)
    species = taken.groupBy(*keys, *TRANSITION).agg(sf.sum("n_runs").alias("n_runs"))
    by_frequency = (
        _with_all(species)
        .groupBy(*keys, "profile")
        .agg(
            sf.count("*").alias("seen"),
            sf.count_if(sf.col("n_runs") == 1).alias("q1"),
            sf.count_if(sf.col("n_runs") == 2).alias("q2"),
        )
    )
    sampled = _with_all(counted.where(drawn).select(*keys, "profile")).groupBy(*keys, "profile").agg(sf.count("*").alias("m"))
    filled = sampled.join(by_frequency, on=[*keys, "profile"], how="left").fillna(0, subset=["seen", "q1", "q2"])
    return filled.select(
        *keys,
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
