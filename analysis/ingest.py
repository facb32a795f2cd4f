"""Read one or more logs into two DataFrames, one of events and one of runs, in which each run_id is one run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from rocketmq_ha.analysis.schema import EVENTS, PARQUET_GLOB, RUNS, check_log
from rocketmq_ha.spec.event_log import EVENTS_DIR, RUNS_DIR


@dataclass(frozen=True, slots=True)
class Log:
    """The input of the tables."""

    events: DataFrame  # EVENT_COLUMNS
    runs: DataFrame  # log (index of the run's log, from 0), RUN_COLUMNS
    campaigns: tuple[dict[str, Any], ...]  # the campaign.json of each log, in the given order


def read_logs(spark: SparkSession, paths: Sequence[Path], campaigns: Sequence[dict[str, Any]] | None = None) -> Log:
    """Read the logs as one campaign. A seed that is in several logs counts once, from the first of them.

    Args: campaigns: the results of check_log for the paths, if the caller has already checked them.
    Raises: LogInvalid.
    """
    checked = tuple(campaigns) if campaigns is not None else tuple(check_log(path) for path in paths)
    events = _union([_read(spark, path / EVENTS_DIR, EVENTS, number) for number, path in enumerate(paths)])
    runs = _union([_read(spark, path / RUNS_DIR, RUNS, number) for number, path in enumerate(paths)])
    if len(paths) > 1:
        first = runs.groupBy("run_id").agg(sf.min("log").alias("log"))
        repeated = runs.select("run_id", "log").join(first, on=["run_id", "log"], how="left_anti")
        runs = runs.join(first, on=["run_id", "log"], how="left_semi")
        events = events.join(repeated, on=["run_id", "log"], how="left_anti")
    return Log(
        events=events.select(*EVENTS.fieldNames()),
        runs=runs.select("log", *RUNS.fieldNames()),
        campaigns=checked,
    )


def _read(spark: SparkSession, folder: Path, schema: StructType, number: int) -> DataFrame:
    frame = spark.read.schema(schema).option("pathGlobFilter", PARQUET_GLOB).parquet(_literal(folder))
    return frame.withColumn("log", sf.lit(number))


def _literal(folder: Path) -> str:
    """Escape brackets, stars and the like in a folder's path, because Spark reads paths as patterns."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", str(folder.absolute()))


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)
