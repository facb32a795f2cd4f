"""The bytes of frames, reports and commands at which the channel split them, and the bytes at which it never did.

The bytes of a header are counted one by one, because the parser is in another state after each. The bytes of a body
differ only in their number, so they are counted in buckets by powers of four. A remoting command begins with two lengths of 4
bytes; its header may have any size, and is counted as a body is.
"""

from collections.abc import Sequence
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
COMMAND: Final = "command"
READ: Final = "read"  # the event of a server's connection that takes bytes of commands
COMMAND_LENGTHS_SIZE: Final = 8  # bytes: HA-MD-18 "a 4-byte length that does not count itself", then a word with the header's

# Buckets of a body: (first byte, range).
BODY_BUCKETS: Final = ((1, "1-3"), (4, "4-15"), (16, "16-63"), (64, "64-255"), (256, "256+"))


def _places(unit: str, size: int, first: str, rest: str) -> tuple[tuple[str, int, str, str], ...]:
    """The places of a unit whose first part has `size` bytes. Returns: (unit, place, bucket, part)."""
    return (
        *((unit, at, str(at), first) for at in range(1, size)),
        (unit, size, str(size), f"after {first}"),
        *((unit, size + 1 + n, f"{rest} {name}", rest) for n, (_, name) in enumerate(BODY_BUCKETS)),
    )


# (unit, place, bucket, part) of every possible split. A stop after the last byte of a unit is a boundary, not a split.
PLACES: Final = (
    *_places(FRAME, TRANSFER_HEADER_SIZE, "header", "body"),
    *((REPORT, at, str(at), "report") for at in range(1, REPORT_SIZE)),
    *_places(COMMAND, COMMAND_LENGTHS_SIZE, "lengths", "rest"),
)
# The bytes of a unit that are counted one by one.
_COUNTED: Final = {FRAME: TRANSFER_HEADER_SIZE, REPORT: np.iinfo(np.int32).max, COMMAND: COMMAND_LENGTHS_SIZE}

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
    """Return what is split in an event: COMMAND where a server reads, REPORT where the name contains it, and else FRAME."""
    return COMMAND if event == READ else REPORT if REPORT in event else FRAME


def places_of(split_at: Ints, units: Sequence[str], unit: Ints) -> Ints:
    """Return the place of each split: the byte itself as far as bytes are counted one by one, and behind them the bucket.

    Args: unit: for each split, which of `units` was split.
    """
    counted = np.array([_COUNTED[one] for one in units], np.int64)[unit]
    rest = split_at - counted
    bucket = counted.copy()
    for first, _ in BODY_BUCKETS:
        bucket += rest >= first
    return np.where(rest > 0, bucket, split_at)


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
    """The bytes that are counted one by one and at which there was no split. Columns: actor, event, unit, n_never, never."""
    by_byte = fragmentation.where(~sf.col("part").isin("body", "rest"))
    missing = sf.when(sf.col("n") == 0, sf.col("place"))
    return (
        by_byte.groupBy("actor", "event", "unit")
        .agg(sf.count(missing).alias("n_never"), sf.array_sort(sf.collect_list(missing)).alias("never"))
        .select("actor", "event", "unit", "n_never", "never")
    )
