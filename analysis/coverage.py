"""Coverage tables: the possible transitions and clauses that the runs took. Each table is one DataFrame -> DataFrame function.

A transition is (profile, actor, from_state, event, to_state). The profile belongs to it, because the same step must be
tested in each profile. All tables of transitions are made from `run_transitions`, which reads the events once and has
one row for each transition of each run.

`first_seen` is the `min` of a packed long, run_rank << 32 | step. What does not work: `min(struct)`. Spark then uses
sort aggregation instead of hash aggregation, and takes four times as long.
"""

from typing import Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession, Window

from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import PHASE_REPLAY

TRANSITION: Final = ("profile", "actor", "from_state", "event", "to_state")
STEP: Final = TRANSITION[1:]
BY_NAME: Final = (*STEP, "profile")  # the order of rows that a person can search

# The status of a matrix cell, worst first.
IMPOSSIBLE: Final = "impossible"
NEVER: Final = "never"
PARTLY: Final = "partly"
SEEN: Final = "seen"

_STEP_BITS: Final = 32
_STEP_MASK: Final = (1 << _STEP_BITS) - 1


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


def possible_clauses(spark: SparkSession, possible: Possible) -> DataFrame:
    """The clauses that the model exercises. Columns: clause, sentence."""
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("clause", "sentence")])
    return spark.createDataFrame(pa.table([list(possible.clauses.keys()), list(possible.clauses.values())], schema))


def in_profiles_run(possible: DataFrame, runs: DataFrame) -> DataFrame:
    """The possible transitions of the profiles that were run. Columns: TRANSITION.

    No transition of another profile could have been seen.
    """
    return possible.join(runs.select("profile").distinct(), on="profile", how="left_semi").select(*TRANSITION)


def ranked_runs(runs: DataFrame) -> DataFrame:
    """The runs with their rank within a profile, from 1. Columns: run_id, profile, phase, run_rank.

    Runs drawn by seed come before replays. Runs are ranked by seed and not by time, because executors take seeds in any
    order and the report must not depend on that order.
    """
    order = Window.partitionBy("profile").orderBy(sf.col("phase") == PHASE_REPLAY, "log", "run_id")
    return runs.select("run_id", "profile", "phase", sf.row_number().over(order).cast("long").alias("run_rank"))


def run_transitions(events: DataFrame, ranked: DataFrame) -> DataFrame:
    """The number of times that each run took each transition. Columns: run_id, phase, TRANSITION, n, first_seen.

    first_seen: run_rank << 32 | step. Values of the same profile can be compared.
    """
    per_run = events.groupBy("run_id", *STEP).agg(sf.count("*").alias("n"), sf.min("step").alias("first_step"))
    first_seen = sf.shiftleft("run_rank", _STEP_BITS).bitwiseOR(sf.col("first_step").cast("long"))
    return per_run.join(ranked, on="run_id", how="inner").select(
        "run_id", "phase", *TRANSITION, "n", first_seen.alias("first_seen")
    )


def transitions_seen(per_run: DataFrame, ranked: DataFrame) -> DataFrame:
    """The transitions that some run took. Columns: TRANSITION, n, n_runs, first_run, first_step.

    first_run: the run_id of the first run that took the transition.
    """
    seen = per_run.groupBy(*TRANSITION).agg(
        sf.sum("n").alias("n"),
        sf.count("*").alias("n_runs"),
        sf.min("first_seen").alias("first_seen"),
    )
    unpacked = seen.withColumns(
        {
            "run_rank": sf.shiftright("first_seen", _STEP_BITS),
            "first_step": sf.col("first_seen").bitwiseAND(_STEP_MASK),
        }
    )
    first = ranked.select("profile", "run_rank", sf.col("run_id").alias("first_run"))
    return unpacked.join(first, on=["profile", "run_rank"], how="inner").select(
        *TRANSITION, "n", "n_runs", "first_run", sf.col("first_step").cast("int").alias("first_step")
    )


def transitions_never_seen(possible: DataFrame, seen: DataFrame) -> DataFrame:
    """The transitions that the model can take and no run took. Columns: TRANSITION."""
    return possible.join(seen, on=list(TRANSITION), how="left_anti").select(*TRANSITION)


def transitions_impossible(seen: DataFrame, possible: DataFrame) -> DataFrame:
    """The transitions that a run took and the model cannot take. Columns: those of transitions_seen.

    For each of them, either the table of possible transitions is stale or a machine is wrong.
    """
    return seen.join(possible, on=list(TRANSITION), how="left_anti").select(
        *TRANSITION, "n", "n_runs", "first_run", "first_step"
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


def clause_coverage(events: DataFrame, clauses: DataFrame) -> DataFrame:
    """The clauses with the number of steps that exercised each. Columns: clause, sentence, n, n_runs.

    n is 0 if no run exercised the clause. sentence is empty if the model does not list the clause.
    """
    per_run = (
        events.select("run_id", sf.explode("clauses").alias("clause")).groupBy("run_id", "clause").agg(sf.count("*").alias("n"))
    )
    exercised = per_run.groupBy("clause").agg(sf.sum("n").alias("n"), sf.count("*").alias("n_runs"))
    return clauses.join(exercised, on="clause", how="full_outer").select(
        "clause",
        sf.coalesce("sentence", sf.lit("")).alias("sentence"),
        sf.coalesce("n", sf.lit(0)).alias("n"),
        sf.coalesce("n_runs", sf.lit(0)).alias("n_runs"),
    )
