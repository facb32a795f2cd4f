"""Tables of the runs' outcomes: sums, failures by signature, faults, and the consistency of the log."""

import shlex
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession, Window

from rocketmq_ha.analysis.count_rows import FAULT, RUN, STATE_FAULT
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import PHASE_GENERATE, PHASE_GUIDED, VERDICT_OK

REPLAY_COMMAND: Final = "rocketmq-ha fuzz replay"


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


def integrity(counts: DataFrame, all_runs: DataFrame, missing: int) -> DataFrame:
    """A check of the log's consistency, one row.

    Columns: events, runs, runs_without_row, runs_short, runs_repeated, runs_missing. The last four are 0 if the log is
    consistent. It is made before anything goes into quarantine; the table of quarantine says what became of it.
    runs_without_row: runs that have events but no row in runs/. runs_short: runs whose number of events is not their
    n_steps. runs_repeated: runs that have several rows in runs/ of one log. runs_missing: runs that the campaigns have made and
    their logs lack.

    Args: all_runs: log, run_id, n_steps, n (rows in runs/). missing: ingest.Log has it.
    """
    of_runs = counts.where(sf.col("kind") == RUN).select("log", sf.col("first_run").alias("run_id"), "n")
    found = of_runs.groupBy("log", "run_id").agg(sf.sum("n").alias("n_events"))
    expected = all_runs.withColumnRenamed("n", "n_rows")
    both = found.join(expected, on=["log", "run_id"], how="full_outer")
    has_row = sf.col("n_rows").isNotNull()
    n_events = sf.coalesce("n_events", sf.lit(0))
    return both.agg(
        sf.coalesce(sf.sum(n_events), sf.lit(0)).alias("events"),
        sf.count_if(has_row).alias("runs"),
        sf.count_if(~has_row).alias("runs_without_row"),
        sf.count_if(has_row & (n_events != sf.col("n_steps"))).alias("runs_short"),
        sf.count_if(sf.col("n_rows") > 1).alias("runs_repeated"),
        sf.lit(missing).cast("long").alias("runs_missing"),
    ).select("events", "runs", "runs_without_row", "runs_short", "runs_repeated", "runs_missing")


def replay_line(places: Sequence[str]) -> Column:
    """The command that shows a run again; empty for a run that no schedule has made.

    A seed alone gives a drawn run. A guided one is named by its log and its number: it has a file in failures/ if it failed,
    one in corpus/ if it reached something new, and else only a recipe; `fuzz replay` looks for each.

    Args: places: of the logs, in their order. Uses the columns log, run_id, world and phase.
    """
    line = sf.lit(f"{REPLAY_COMMAND} ")
    number = sf.col("run_id").cast("string")
    of_log = sf.element_at(sf.array(*(sf.lit(f"{shlex.quote(place)}:") for place in places)), sf.col("log") + 1)
    return (
        sf.when(sf.col("phase") == PHASE_GENERATE, sf.concat(line, number, sf.lit(" --world "), sf.col("world")))
        .when(sf.col("phase") == PHASE_GUIDED, sf.concat(line, of_log, number))
        .otherwise("")
    )


def divergences(runs: DataFrame, replay: Column) -> DataFrame:
    """The failed runs, one row per signature, with the shortest replay.

    Columns: verdict, signature, n, smallest_run, n_ops, failing_op, profile, detail, replay, world, phase, log, digest. The
    smallest run is the one to read first: it has the fewest operations and, among equals, is the first by log and number.
    """
    group = Window.partitionBy("verdict", "signature")
    failed = runs.where(sf.col("verdict") != VERDICT_OK).select(
        "*",
        sf.count("*").over(group).alias("n"),
        sf.row_number().over(group.orderBy("n_ops", "log", "run_id")).alias("size_rank"),
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
        replay.alias("replay"),
        "world",
        "phase",
        "log",
        "digest",
    )


def faults(counts: DataFrame) -> DataFrame:
    """The injected faults by kind. Columns: fault, n, n_runs, n_steps.

    n counts operations, because one fault may appear in several steps.
    """
    return (
        counts.where(sf.col("kind") == FAULT)
        .groupBy("fault")
        .agg(sf.sum("n").alias("n"), sf.sum("n_runs").alias("n_runs"), sf.sum("n_steps").alias("n_steps"))
        .select("fault", "n", "n_runs", "n_steps")
    )


def machine_states(spark: SparkSession, possible: Possible) -> DataFrame:
    """The states of the machines in each world in which they take part. Columns: world, actor, state."""
    rows = [
        (world, actor, state)
        for actor, machine in possible.machines.items()
        for world in machine.worlds
        for state in machine.states
    ]
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("world", "actor", "state")])
    return spark.createDataFrame(pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * 3, schema))


def state_faults(counts: DataFrame, states: DataFrame) -> DataFrame:
    """Each machine's states under each injected fault. Columns: actor, state, fault, n, n_runs.

    n: steps that a machine took from the state in an operation with the fault. n_runs: runs with such a step. Each state of a
    machine has a row for each fault that was injected in a world with this machine; n is 0 if the fault never met the state. A
    machine that a fault leaves alone takes no step, and so counts as not met.

    Args: states: columns of machine_states.
    """
    injected = counts.where(sf.col("kind") == FAULT).select("world", "fault").distinct()
    grid = states.join(injected, on="world", how="inner").select("actor", "state", "fault").distinct()
    met = (
        counts.where(sf.col("kind") == STATE_FAULT)
        .groupBy("actor", sf.col("from_state").alias("state"), "fault")
        .agg(sf.sum("n").alias("n"), sf.sum("n_runs").alias("n_runs"))
    )
    return grid.join(met, on=["actor", "state", "fault"], how="full_outer").select(
        "actor",
        "state",
        "fault",
        sf.coalesce("n", sf.lit(0)).alias("n"),
        sf.coalesce("n_runs", sf.lit(0)).alias("n_runs"),
    )
