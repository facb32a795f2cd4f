"""The form of the counts into which counts.py condenses events: rows of several kinds in one table, so that one pass makes
them.

Every row is of one log. world, profile and phase are those of its runs; `run` and `damage` have none.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

# Kinds of rows. The columns of each are those of COUNTS that say something for it; the others are null.
TRANSITION: Final = "transition"  # actor, from_state, event, to_state: n, n_runs, first_run, first_step
CASE: Final = "case"  # the same of a test case of Hypothesis: its property, kind and name
PAIR: Final = "pair"  # actor, from_state, event, to_state, next_event, next_state: n, n_runs
CLAUSE: Final = "clause"  # clause: n, n_runs
SPLIT: Final = "split"  # actor, event, unit, place: n, n_runs
FAULT: Final = "fault"  # fault: n (operations), n_runs, n_steps
STATE_FAULT: Final = "state_fault"  # actor, from_state, fault: n, n_runs
RUN: Final = "run"  # first_run: n, reason, source: a run with its rows; reason is empty if they are right
DAMAGE: Final = "damage"  # source, reason, example, n

COUNTS: Final = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("log", pa.int32(), nullable=False),
        *(pa.field(name, pa.string()) for name in ("world", "profile", "phase")),
        *(pa.field(name, pa.string()) for name in ("actor", "from_state", "event", "to_state", "next_event", "next_state")),
        *(pa.field(name, pa.string()) for name in ("fault", "clause", "unit")),
        pa.field("place", pa.int32()),
        pa.field("n", pa.int64()),
        pa.field("n_runs", pa.int64()),
        pa.field("n_steps", pa.int64()),
        pa.field("first_run", pa.int64()),
        pa.field("first_step", pa.int32()),
        *(pa.field(name, pa.string()) for name in ("source", "reason", "example")),
    ]
)


# The same for Spark.
_SPARK: Final = {pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint"}
COUNTS_DDL: Final = ", ".join(f"{field.name} {_SPARK[field.type]}" for field in COUNTS)


def rows(kind: str, log: int, n: int, columns: Mapping[str, Any]) -> pa.Table:
    """A table of COUNTS with n rows of one kind."""
    arrays = []
    for field in COUNTS:
        if field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        elif field.name in ("kind", "log"):
            arrays.append(pa.repeat(pa.scalar(kind if field.name == "kind" else log, field.type), n))
        else:
            arrays.append(pa.nulls(n, field.type))
    return pa.Table.from_arrays(arrays, schema=COUNTS)


def batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """The batches of a table for Spark: none is empty, because Spark may take an empty one for the end of them all."""
    return [batch for batch in table.combine_chunks().to_batches() if batch.num_rows]
