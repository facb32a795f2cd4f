"""Make the rows of a chunk from the tables of a log: the rows of events, and before those of a run its row in runs."""

import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_ha.fuzz.second_verdict.columns import CHUNK_SCHEMA, HEADER, HEADER_STEP, RUN_AS_EVENT


def of_tables(events: pa.Table, runs: pa.Table, log: int = 0) -> pa.Table:
    """CHUNK_SCHEMA in order of (log, run_id, step), from tables with the columns of version 2."""
    rows = {name: events.column(name) for name in CHUNK_SCHEMA.names if name != "log"}
    headers = {field.name: pa.nulls(len(runs), field.type) for field in CHUNK_SCHEMA} | {
        name: runs.column(column) for name, column in RUN_AS_EVENT.items()
    }
    of_run = zip(runs.column("recipe").to_pylist(), runs.column("observed").to_pylist(), strict=True)
    size = len(runs)
    headers |= {
        "run_id": runs.column("run_id"),
        "step": pa.array([HEADER_STEP] * size, pa.int32()),
        "actor": pa.array([HEADER] * size, pa.string()),
        "split_at": pa.array([0] * size, pa.int32()),
        "clauses": pa.array([[recipe or "", str(observed or 0)] for recipe, observed in of_run], pa.list_(pa.string())),
    }
    parts = [
        pa.table([columns[field.name].cast(field.type) for field in CHUNK_SCHEMA], schema=CHUNK_SCHEMA)
        for columns in (
            {"log": pa.array([log] * len(events), pa.int32())} | rows,
            headers | {"log": pa.array([log] * size, pa.int32())},
        )
    ]
    table = pa.concat_tables(parts)
    order = pc.sort_indices(table, [("log", "ascending"), ("run_id", "ascending"), ("step", "ascending")])
    return table.take(order).combine_chunks()
