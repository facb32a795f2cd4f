"""Frames of counts from a few rows written by hand, by the way that the report takes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from kit import event_logs
from rocketmq_ha.analysis.count_rows import RUN
from rocketmq_ha.analysis.counts import Source, condense
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, RUN_COLUMNS, WORLD_HYPOTHESIS

Row = dict[str, Any]
Frame = Callable[..., DataFrame]


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The rows as sorted tuples, because a DataFrame has no order."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def numbered(*steps: Row) -> list[Row]:
    """Give the rows of each run its steps from 0 on, in the given order."""
    seen: dict[int, int] = {}
    found = []
    for row in steps:
        step = seen.get(row["run_id"], 0)
        seen[row["run_id"]] = step + 1
        found.append(row | {"step": step})
    return found


def counts(spark: SparkSession, steps: Sequence[Row], runs: Sequence[Row], log: int = 0) -> DataFrame:
    """The counts of good runs: each must have as many steps as its row says; here the rows are made to say so."""
    n_steps = {row["run_id"]: 0 for row in runs}
    for row in steps:
        n_steps[row["run_id"]] += 1
    own = [row | {"n_steps": n_steps[row["run_id"]]} for row in runs]
    source = Source("events/part.parquet", event_logs.arrow(steps, EVENT_COLUMNS))
    left_out = np.zeros(len(own), bool)
    table = condense(
        log, [source], event_logs.arrow(own, RUN_COLUMNS), frozenset((*event_logs.WORLDS, WORLD_HYPOTHESIS)), left_out
    )
    assert {
        reason for kind, reason in zip(*(table[n].to_pylist() for n in ("kind", "reason")), strict=True) if kind == RUN
    } == {""}
    return spark.createDataFrame(table.combine_chunks())


def runs_frame(spark: SparkSession, *runs: Row, log: int = 0) -> DataFrame:
    return spark.createDataFrame(event_logs.arrow(runs, RUN_COLUMNS)).selectExpr(f"{log} AS log", "*")
