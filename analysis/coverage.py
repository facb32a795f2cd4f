"""Which of the possible transitions and clauses the runs showed: one DataFrame -> DataFrame function a table.

A transition is (profile, actor, from_state, event, to_state): the same step is another thing to be tested in another
profile. All tables of transitions come from `run_transitions`, one pass over the events that leaves a row for each
transition of each run.

First seen is the `min` of a packed long, run_rank << 32 | step. What does not work: `min(struct)`, which falls back
from hash to sort aggregation and takes four times as long.
"""

from typing import Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession, Window

from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import PHASE_REPLAY

TRANSITION: Final = ("profile", "actor", "from_state", "event", "to_state")
STEP: Final = TRANSITION[1:]
BY_NAME: Final = (*STEP, "profile")  # the order in which a person looks a transition up

# The status of a cell of the matrix, worst first.
IMPOSSIBLE: Final = "impossible"
NEVER: Final = "never"
PARTLY: Final = "partly"
SEEN: Final = "seen"

_STEP_BITS: Final = 32
_STEP_MASK: Final = (1 << _STEP_BITS) - 1


def possible_transitions(spark: SparkSession, possible: Possible) -> DataFrame:
    """TRANSITION: one row for each profile in which the model can take the step."""
    rows = [
        (profile, actor, from_state, event, to_state)
        for actor, machine in possible.machines.items()
        for from_state, event, to_state, profiles in machine.transitions
        for profile in profiles
    ]
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in TRANSITION])
    return spark.createDataFrame(pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * len(schema), schema))


def possible_clauses(spark: SparkSession, possible: Possible) -> DataFrame:
    """clause, sentence: those that the model exercises."""
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("clause", "sentence")])
    return spark.createDataFrame(pa.table([list(possible.clauses.keys()), list(possible.clauses.values())], schema))


def in_profiles_run(possible: DataFrame, runs: DataFrame) -> DataFrame:
    """TRANSITION: what is possible in the profiles that were run; of another nothing could have been seen."""
    return possible.join(runs.select("profile").distinct(), on="profile", how="left_semi").select(*TRANSITION)


def ranked_runs(runs: DataFrame) -> DataFrame:
    """run_id, profile, phase, run_rank: the order in which a profile's runs count, from 1, drawn ones first.

    The order is that of the seeds, not of the clock: executors run seeds as they come, and the report must not show it.
    """
    order = Window.partitionBy("profile").orderBy(sf.col("phase") == PHASE_REPLAY, "log", "run_id")
    return runs.select("run_id", "profile", "phase", sf.row_number().over(order).cast("long").alias("run_rank"))


def run_transitions(events: DataFrame, ranked: DataFrame) -> DataFrame:
    """run_id, phase, TRANSITION, n, first_seen: how often each run took each transition.

    first_seen: run_rank << 32 | step, comparable within a profile.
    """
    per_run = events.groupBy("run_id", *STEP).agg(sf.count("*").alias("n"), sf.min("step").alias("first_step"))
    first_seen = sf.shiftleft("run_rank", _STEP_BITS).bitwiseOR(sf.col("first_step").cast("long"))
    return per_run.join(ranked, on="run_id", how="inner").select(
        "run_id", "phase", *TRANSITION, "n", first_seen.alias("first_seen")
    )


def transitions_seen(per_run: DataFrame, ranked: DataFrame) -> DataFrame:
    """TRANSITION, n, n_runs, first_run, first_step: first_run is the run_id in which it first occurred."""
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
    """TRANSITION: the model can take it, and no run did."""
    return possible.join(seen, on=list(TRANSITION), how="left_anti").select(*TRANSITION)


def transitions_impossible(seen: DataFrame, possible: DataFrame) -> DataFrame:
    """As transitions_seen: a run took it, and the model cannot. Either the table is stale or a machine is wrong."""
    return seen.join(possible, on=list(TRANSITION), how="left_anti").select(
        *TRANSITION, "n", "n_runs", "first_run", "first_step"
    )


def matrix(possible: DataFrame, seen: DataFrame) -> DataFrame:
    """actor, from_state, event, n, n_seen, n_possible, status: the matrix of every machine, a row a cell.

    A cell holds all profiles and all outcomes: n_seen of the n_possible pairs of to_state and profile were seen. A
    cell without a row is impossible, and empty.
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
    """clause, sentence, n, n_runs: n = 0 if no run exercised it; no sentence if the model does not list it."""
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
