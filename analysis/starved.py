"""The table of the possible transitions that few runs take.

A transition that k of m drawn runs take has a rate of about k / m. Another campaign of m runs misses it with a probability of
(1 - k / m) ** m, which is about e ** -k: 5 % for k = 3, 0.7 % for k = 5. Those that a repetition would miss with a probability
of more than 1 % are starved: whether they are seen is chance, and a change of their behaviour may pass a night unseen.
"""

import math
from typing import Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from rocketmq_ha.analysis.count_rows import TRANSITION as TRANSITION_ROW
from rocketmq_ha.analysis.coverage import TRANSITION
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import PHASE_GENERATE

MISS: Final = 0.01
ENOUGH_RUNS: Final = math.ceil(-math.log(MISS))  # 5: fewer make a transition starved


def machine_worlds(spark: SparkSession, possible: Possible) -> DataFrame:
    """The worlds in which each machine takes part. Columns: actor, world."""
    rows = [(actor, world) for actor, machine in possible.machines.items() for world in machine.worlds]
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("actor", "world")])
    return spark.createDataFrame(pa.table([list(column) for column in zip(*rows, strict=True)] or [[]] * 2, schema))


def starved(counts: DataFrame, counted: DataFrame, possible: DataFrame, worlds: DataFrame) -> DataFrame:
    """The possible transitions that some drawn run took, and fewer than ENOUGH_RUNS did.

    Columns: TRANSITION, n, n_runs, m, miss_probability, runs_needed. n: steps. n_runs, m: drawn runs with the transition, and
    drawn runs of its profile in the worlds of its machine. miss_probability: that m other runs miss it. runs_needed: drawn runs
    of its profile and worlds of which one takes it with a probability of 99 %, at the rate of n_runs / m.

    Args: possible: columns of coverage.possible_transitions. worlds: columns of machine_worlds.
    """
    drawn = sf.col("phase") == PHASE_GENERATE
    taken = (
        counts.where((sf.col("kind") == TRANSITION_ROW) & drawn)
        .groupBy(*TRANSITION)
        .agg(sf.sum("n").alias("n"), sf.sum("n_runs").alias("n_runs"))
        .where(sf.col("n_runs") < ENOUGH_RUNS)
        .join(possible, on=list(TRANSITION), how="left_semi")
    )
    of_worlds = counted.where(drawn).groupBy("world", "profile").agg(sf.count("*").alias("m"))
    of_machines = worlds.join(of_worlds, on="world", how="inner").groupBy("actor", "profile").agg(sf.sum("m").alias("m"))
    rate = sf.col("n_runs") / sf.col("m")
    return taken.join(of_machines, on=["actor", "profile"], how="inner").select(
        *TRANSITION,
        "n",
        "n_runs",
        "m",
        sf.pow(1 - rate, sf.col("m")).alias("miss_probability"),
        sf.when(rate == 1, 1).otherwise(sf.ceil(math.log(MISS) / sf.log1p(-rate))).cast("long").alias("runs_needed"),
    )
