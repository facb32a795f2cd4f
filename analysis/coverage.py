"""Coverage tables: the possible transitions that the runs took. Each table is one DataFrame -> DataFrame function.

A transition is (profile, actor, from_state, event, to_state). The profile belongs to it, because the same step must be
tested in each profile. `counts` has the rows of count_rows.py: a few thousand for each task of the pass over the log.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession, Window

from rocketmq_ha.analysis.count_rows import TRANSITION as TRANSITION_ROW
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import PHASE_GENERATE, PHASE_GUIDED

TRANSITION: Final = ("profile", "actor", "from_state", "event", "to_state")
STEP: Final = TRANSITION[1:]
BY_NAME: Final = (*STEP, "profile")  # the order of rows that a person can search

# The status of a matrix cell, worst first.
IMPOSSIBLE: Final = "impossible"
NEVER: Final = "never"
PARTLY: Final = "partly"
SEEN: Final = "seen"


def possible_transitions(spark: SparkSession, possible: Possible) -> DataFrame:
    """The transitions that the model can take, one row for each profile. Columns: TRANSITION."""
    rows = [
        (profile, actor, from_state, event, to_state)
        for actor, machine in possible.machines.items()
        for from_state, event, to_state, profiles in machine.transitions
        for profile in profiles
    ]
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in TRANSITION])
    return spark.createDataFrame(pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * len(schema), schema))


def worlds_measured(spark: SparkSession, worlds: Sequence[str], runs: DataFrame) -> DataFrame:
    """The worlds whose transitions and clauses count as possible. Columns: world, runs.

    runs: 0 for a world that a campaign drew from in vain.

    Args: worlds: ingest.Log has them.
    """
    named = spark.createDataFrame(pa.table([pa.array(list(worlds), pa.string())], ["world"]))
    by_world = runs.groupBy("world").agg(sf.count("*").alias("runs"))
    return named.join(by_world, on="world", how="left").select("world", sf.coalesce("runs", sf.lit(0)).alias("runs"))


def in_profiles_run(possible: DataFrame, runs: DataFrame) -> DataFrame:
    """The possible transitions of the profiles that were run. Columns: TRANSITION.

    No transition of another profile could have been seen.
    """
    return possible.join(runs.select("profile").distinct(), on="profile", how="left_semi").select(*TRANSITION)


def ranked_runs(counted: DataFrame) -> DataFrame:
    """The runs with their ranks from 1. Columns: log, run_id, profile, world, phase, run_rank, world_rank.

    run_rank is the rank within a profile, world_rank within a world and a profile. The runs of a campaign come before all
    others. They are ranked by seed and not by time, because executors take seeds in any order and the report must not depend on
    that order; a guided run has the negative of its seed, less one, as its number.
    """
    order = (is_late(), "log", ordinal(sf.col("run_id")), "run_id")
    by_profile = Window.partitionBy("profile").orderBy(*order)
    by_world = Window.partitionBy("world", "profile").orderBy(*order)
    return counted.select(
        "log",
        "run_id",
        "profile",
        "world",
        "phase",
        sf.row_number().over(by_profile).cast("long").alias("run_rank"),
        sf.row_number().over(by_world).cast("long").alias("world_rank"),
    )


def is_late() -> Column:
    """True for a run that is none of a campaign."""
    return ~sf.col("phase").isin(PHASE_GENERATE, PHASE_GUIDED)


def ordinal(run_id: Column) -> Column:
    return sf.when(run_id < 0, sf.bitwise_not(run_id)).otherwise(run_id)


def transitions_seen(counts: DataFrame) -> DataFrame:
    """The transitions that some run took. Columns: TRANSITION, n, n_runs, first_run, first_step, first_log.

    first_log, first_run: the first run that took the transition, in the order of ranked_runs.
    """
    return _seen(counts, TRANSITION)


def world_transitions_seen(counts: DataFrame) -> DataFrame:
    """The same for each world. Columns: world, and those of transitions_seen."""
    return _seen(counts, ("world", *TRANSITION))


def _seen(counts: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    first = sf.min(sf.struct(is_late(), "log", ordinal(sf.col("first_run")), "first_run", "first_step"))
    seen = (
        counts.where(sf.col("kind") == TRANSITION_ROW)
        .groupBy(*keys)
        .agg(sf.sum("n").alias("n"), sf.sum("n_runs").alias("n_runs"), first.alias("first"))
    )
    return seen.select(
        *keys,
        "n",
        "n_runs",
        sf.col("first.first_run").alias("first_run"),
        sf.col("first.first_step").alias("first_step"),
        sf.col("first.log").alias("first_log"),
    )


def transitions_never_seen(possible: DataFrame, seen: DataFrame) -> DataFrame:
    """The transitions that the model can take and no run took. Columns: TRANSITION."""
    return possible.join(seen, on=list(TRANSITION), how="left_anti").select(*TRANSITION)


def transitions_impossible(seen: DataFrame, possible: DataFrame) -> DataFrame:
    """The transitions that a run took and the model cannot take. Columns: those of transitions_seen.

    For each of them, either the table of possible transitions is stale or a machine is wrong.
    """
    return seen.join(possible, on=list(TRANSITION), how="left_anti").select(
        *TRANSITION, "n", "n_runs", "first_run", "first_step", "first_log"
    )


def matrix(possible: DataFrame, seen: DataFrame) -> DataFrame:
    """The state-by-event matrix of every machine, one row per cell.

    Columns: actor, from_state, event, n, n_seen, n_possible, status. A cell combines all profiles and all next states:
    the runs showed n_seen of its n_possible pairs of to_state and profile. A cell without a row is impossible, and no
    run reached it.
    """
    both = possible.withColumn("is_possible", sf.lit(True)).join(seen, on=list(TRANSITION), how="full_outer")
    is_possible = sf.coalesce("is_possible", sf.lit(False))
    is_seen = sf.col("n").isNotNull()
    cells = both.groupBy("actor", "from_state", "event").agg(
        sf.coalesce(sf.sum("n"), sf.lit(0)).alias("n"),
        sf.count_if(is_possible & is_seen).alias("n_seen"),
        sf.count_if(is_possible).alias("n_possible"),
        sf.count_if(~is_possible).alias("n_impossible"),
    )
    status = (
        sf.when(sf.col("n_impossible") > 0, IMPOSSIBLE)
        .when(sf.col("n_seen") == 0, NEVER)
        .when(sf.col("n_seen") < sf.col("n_possible"), PARTLY)
        .otherwise(SEEN)
    )
    return cells.select("actor", "from_state", "event", "n", "n_seen", "n_possible", status.alias("status"))
