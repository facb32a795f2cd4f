"""The table of many campaigns: a row for each, in the order of their names."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from rocketmq_ha.analysis import coverage
from rocketmq_ha.analysis.count_rows import CLAUSE, TRANSITION
from rocketmq_ha.analysis.errors import LogInvalid
from rocketmq_ha.analysis.ingest import read_logs
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import CAMPAIGN_FILE, PHASE_HYPOTHESIS, VERDICT_OK


def campaigns_in(directory: Path) -> list[Path]:
    """The logs right in a directory, in the order of their names. Raises: LogInvalid, if there is none."""
    found = sorted(file.parent for file in directory.glob(f"*/{CAMPAIGN_FILE}")) if directory.is_dir() else []
    if not found:
        raise LogInvalid(directory, "no log in it", f"a directory of logs, NAME/{CAMPAIGN_FILE}")
    return found


def trend(counts: DataFrame, runs: DataFrame, quarantine: DataFrame, possible: DataFrame, logs: DataFrame) -> DataFrame:
    """One row a campaign.

    Columns: log, name, runs, steps, transitions, clauses, failed_runs, signatures, steps_per_second, quarantined.
    transitions: possible ones that were seen, once for each profile. clauses: those that were exercised. steps_per_second: of
    one core, over the runs whose time was measured; null without any. quarantined: rows of the table of quarantine.

    Args: logs: log, name. possible: columns of coverage.possible_transitions. The others: those of ingest.Log, read with
    each_alone.
    """
    failed = sf.col("verdict") != VERDICT_OK
    timed = (sf.col("elapsed_us") >= 0) & (sf.col("phase") != PHASE_HYPOTHESIS)
    of_runs = runs.groupBy("log").agg(
        sf.count("*").alias("runs"),
        sf.sum("n_steps").alias("steps"),
        sf.count_if(failed).alias("failed_runs"),
        sf.countDistinct(sf.when(failed, sf.concat_ws(" ", "verdict", "signature"))).alias("signatures"),
        sf.sum(sf.when(timed, sf.col("n_steps"))).alias("timed_steps"),
        sf.sum(sf.when(timed, sf.col("elapsed_us"))).alias("elapsed_us"),
    )
    keys = list(coverage.TRANSITION)
    taken = counts.where(sf.col("kind") == TRANSITION).select("log", *keys).distinct()
    transitions = taken.join(possible, on=keys, how="left_semi").groupBy("log").agg(sf.count("*").alias("transitions"))
    exercised = counts.where(sf.col("kind") == CLAUSE).select("log", "clause").distinct()
    clauses = exercised.groupBy("log").agg(sf.count("*").alias("clauses"))
    damaged = quarantine.groupBy("log").agg(sf.count("*").alias("quarantined"))
    whole = logs
    for part in (of_runs, transitions, clauses, damaged):
        whole = whole.join(part, on="log", how="left")
    named = ("runs", "steps", "transitions", "clauses", "failed_runs", "signatures", "quarantined")
    zero = {name: sf.coalesce(name, sf.lit(0)) for name in named}
    speed = sf.when(sf.col("elapsed_us") > 0, sf.col("timed_steps") * 1e6 / sf.col("elapsed_us"))
    return whole.select(
        "log",
        "name",
        *(zero[name].alias(name) for name in named[:-1]),
        speed.alias("steps_per_second"),
        zero["quarantined"].alias("quarantined"),
    )


def compute(spark: SparkSession, paths: Sequence[Path], possible: Possible) -> pa.Table:
    """The trend of logs, each counted alone. Raises: LogInvalid."""
    log = read_logs(spark, paths, worlds=possible.worlds, each_alone=True)
    try:
        names = spark.createDataFrame([(number, path.name) for number, path in enumerate(paths)], "log int, name string")
        known = coverage.possible_transitions(spark, possible)
        table = trend(log.counts, log.runs, log.quarantine, known, names).toArrow()
        return table.sort_by("log")
    finally:
        log.close()
