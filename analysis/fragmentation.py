"""The bytes of frames and reports at which the channel split them, and the bytes at which it never did.

The bytes of a header are counted one by one, because the parser is in another state after each. The bytes of a body
differ only in their number, so they are counted in buckets by powers of four.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from rocketmq_ha.analysis.count_rows import SPLIT
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE

Ints = npt.NDArray[np.int64]

FRAME: Final = "frame"
REPORT: Final = "report"

# Buckets of a body: (first byte, name).
BODY_BUCKETS: Final = ((1, "body 1-3"), (4, "body 4-15"), (16, "body 16-63"), (64, "body 64-255"), (256, "body 256+"))

# (unit, place, bucket, part) of every possible split. A stop after the last byte of a unit is a boundary, not a split.
PLACES: Final = (
    *((FRAME, at, str(at), "header") for at in range(1, TRANSFER_HEADER_SIZE)),
    (FRAME, TRANSFER_HEADER_SIZE, str(TRANSFER_HEADER_SIZE), "after header"),
    *((FRAME, TRANSFER_HEADER_SIZE + 1 + n, name, "body") for n, (_, name) in enumerate(BODY_BUCKETS)),
    *((REPORT, at, str(at), "report") for at in range(1, REPORT_SIZE)),
)

_PLACES: Final = pa.schema(
    [
        pa.field("unit", pa.string(), nullable=False),
        pa.field("place", pa.int32(), nullable=False),
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("part", pa.string(), nullable=False),
    ]
)


def places(spark: SparkSession) -> DataFrame:
    """All places of a possible split. Columns: unit, place, bucket, part. `place` ascends within a unit."""
    return spark.createDataFrame(pa.table([list(column) for column in zip(*PLACES, strict=True)], _PLACES))


def unit(event: str) -> str:
    """Return REPORT for events whose name contains it, and FRAME for all others: the wire carries nothing else."""
    return REPORT if REPORT in event else FRAME


def places_of(split_at: Ints, is_report: npt.NDArray[np.bool_]) -> Ints:
    """Return the place of each split: the byte itself within a header or a report, and the bucket within a body."""
    body = split_at - TRANSFER_HEADER_SIZE
    bucket = np.full(len(split_at), TRANSFER_HEADER_SIZE)
    for first, _ in BODY_BUCKETS:
        bucket += body >= first
    return np.where(~is_report & (body > 0), bucket, split_at)


def fragmentation(counts: DataFrame, grid: DataFrame) -> DataFrame:
    """The number of splits at each place. Columns: actor, event, unit, place, bucket, part, n, n_runs.

    Every kind of transfer that moved bytes has one row for each place; n is 0 if there was no split. Steps that moved no
    bytes are left out, because they do not move the split.
    """
    found = (
        counts.where(sf.col("kind") == SPLIT)
        .groupBy("actor", "event", "unit", "place")
        .agg(sf.sum("n").alias("n"), sf.sum("n_runs").alias("n_runs"))
    )
    kinds = found.select("actor", "event", "unit").distinct()
    return (
        kinds.join(grid, on="unit", how="inner")
        .join(found, on=["actor", "event", "unit", "place"], how="left")
        .select(
            "actor",
            "event",
            "unit",
            "place",
            "bucket",
            "part",
            sf.coalesce("n", sf.lit(0)).alias("n"),
            sf.coalesce("n_runs", sf.lit(0)).alias("n_runs"),
        )
    )


def never_split(fragmentation: DataFrame) -> DataFrame:
    """The bytes of a header or a report at which there was no split. Columns: actor, event, unit, n_never, never."""
    by_byte = fragmentation.where(sf.col("part") != "body")
    missing = sf.when(sf.col("n") == 0, sf.col("place"))
    return (
        by_byte.groupBy("actor", "event", "unit")
        .agg(sf.count(missing).alias("n_never"), sf.array_sort(sf.collect_list(missing)).alias("never"))
        .select("actor", "event", "unit", "n_never", "never")
    )
