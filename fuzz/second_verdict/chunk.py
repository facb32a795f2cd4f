"""Make the rows of a chunk from the tables of a log: the rows of events, and before those of a run its row in runs."""

import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_ha.fuzz.second_verdict.columns import CHUNK_SCHEMA, HEADER, HEADER_STEP, RUN_AS_EVENT

_PROFILE = next(name for name, column in RUN_AS_EVENT.items() if column == "profile")


def of_tables(events: pa.Table, runs: pa.Table, log: int = 0, *, has_observed: bool = True) -> pa.Table:
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
        "clauses": pa.array(
            [[recipe or "", str(observed or 0) if has_observed else ""] for recipe, observed in of_run], pa.list_(pa.string())
        ),
    }
    parts = [
        pa.table([_as(columns[field.name], field.type) for field in CHUNK_SCHEMA], schema=CHUNK_SCHEMA)
        for columns in (
            {"log": pa.array([log] * len(events), pa.int32())} | rows,
            headers | {"log": pa.array([log] * size, pa.int32())},
        )
    ]
    table = pa.concat_tables(parts)
    order = pc.sort_indices(table, [("log", "ascending"), ("run_id", "ascending"), ("step", "ascending")])
    return table.take(order).combine_chunks()


def _as(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """The column in a type of CHUNK_SCHEMA. Arrow casts no list of dictionaries to one of texts."""
    if not pa.types.is_list(kind) or not isinstance(column, pa.ChunkedArray) or column.type == kind:
        return column.cast(kind)
    return pa.chunked_array(
        [pa.ListArray.from_arrays(one.offsets, one.values.cast(kind.value_type), mask=one.is_null()) for one in column.chunks],
        kind,
    )


def worlds_and_profiles(table: pa.Table) -> set[tuple[str, str]]:
    """(world, profile) of the runs of a chunk, by their rows in runs."""
    headers = table.filter(pc.equal(table.column("actor"), HEADER))
    pairs = zip(headers.column("world").to_pylist(), headers.column(_PROFILE).to_pylist(), strict=True)
    return {(world or "", profile or "") for world, profile in pairs}
