"""At which byte of a frame or a report the channel stopped, and at which it never did.

The header's bytes count one by one: each is another state of the parser. A body's bytes are alike but for their
number, so they count by power of four.
"""

from typing import Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE

FRAME: Final = "frame"
REPORT: Final = "report"

# Bodies: (first byte of the bucket, its name).
BODY_BUCKETS: Final = ((1, "body 1-3"), (4, "body 4-15"), (16, "body 16-63"), (64, "body 64-255"), (256, "body 256+"))

# (unit, place, bucket, part): everywhere a split can fall. A unit's last byte is no split but the boundary.
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
    """unit, place, bucket, part: the grid of all places, in order of `place` within a unit."""
    return spark.createDataFrame(pa.table([list(column) for column in zip(*PLACES, strict=True)], _PLACES))


def unit() -> Column:
    """What an event carries: reports where it is named after them, and frames else; nothing else is on the wire."""
    return sf.when(sf.col("event").contains(REPORT), REPORT).otherwise(FRAME)


def place() -> Column:
    """The place of split_at: itself up to the end of the header (or of the report), then the body's bucket."""
    body = sf.col("split_at") - TRANSFER_HEADER_SIZE
    bucket = sf.lit(TRANSFER_HEADER_SIZE)
    for first, _ in BODY_BUCKETS:
        bucket = bucket + (body >= first).cast("int")
    is_body = (sf.col("unit") == FRAME) & (body > 0)
    return sf.when(is_body, bucket).otherwise(sf.col("split_at"))


def fragmentation(events: DataFrame, grid: DataFrame) -> DataFrame:
    """actor, event, unit, place, bucket, part, n, n_runs: where the splits fell.

    A row for every place of every kind of transfer that moved bytes, n = 0 where no split fell. Steps that moved none
    are left out: after them the channel stands where it stood before.
    """
    moved = events.where(sf.col("fragment_len") > 0)
    per_run = (
        moved.withColumn("unit", unit())
        .withColumn("place", place())
        .groupBy("run_id", "actor", "event", "unit", "place")
        .agg(sf.count("*").alias("n"))
    )
    found = per_run.groupBy("actor", "event", "unit", "place").agg(sf.sum("n").alias("n"), sf.count("*").alias("n_runs"))
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
    """actor, event, unit, n_never, never: the single bytes of header or report at which no split fell."""
    by_byte = fragmentation.where(sf.col("part") != "body")
    missing = sf.when(sf.col("n") == 0, sf.col("place"))
    return (
        by_byte.groupBy("actor", "event", "unit")
        .agg(sf.count(missing).alias("n_never"), sf.array_sort(sf.collect_list(missing)).alias("never"))
        .select("actor", "event", "unit", "n_never", "never")
    )
