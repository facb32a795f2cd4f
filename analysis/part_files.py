"""Read one Parquet file of a log with pyarrow, and say what is wrong with it.

What does not work: Spark's own reader. One damaged page ends the whole job, and strings cost it ten times as much: pyarrow
gives the codes of a column's dictionary, and 20 million rows are read in some seconds of processor time.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.schema import Columns, arrow_type_name, columns_of
from rocketmq_ha.spec.event_log import ADDED

Ints = npt.NDArray[np.int64]
_WORDS = pa.dictionary(pa.int32(), pa.string())
TYPES = {"int32": pa.int32(), "int64": pa.int64(), "string": _WORDS, "list<string>": pa.list_(_WORDS)}  # of the tables here
_PLAIN = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string(), "list<string>": pa.list_(pa.string())}


class DamagedError(Exception):
    """A file cannot be used. Its text is the reason."""


def read_file(files: LogFiles, name: str, form: Columns, version: int) -> pa.Table:
    """The rows of a file, with every column of the newest version in its order. Columns of strings are dictionaries.

    Raises: DamagedError.
    """
    expected = columns_of(version, form)
    try:
        with files.system.open_input_file(files.path(name)) as source:
            opened = pq.ParquetFile(source)
            _check_columns(opened.schema_arrow, expected, name.partition("/")[0])
            paths = [opened.schema.column(n).path for n in range(len(opened.schema))]
            words = [path for path in paths if expected[path.partition(".")[0]].endswith(("string", "string>"))]
            try:
                table = pq.ParquetFile(source, metadata=opened.metadata, read_dictionary=words).read(use_threads=False)
                table.validate(full=True)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DamagedError("pages that cannot be read") from error
    except FileNotFoundError as error:
        raise DamagedError("it is not there any more") from error
    except (pa.ArrowException, OSError) as error:
        raise DamagedError("a file that is not Parquet") from error
    columns = [
        same_type(table[name], kind) if name in expected else filled_with(ADDED[name], kind, table.num_rows)
        for name, kind, _ in form
    ]
    return pa.table(columns, names=[name for name, _, _ in form])


def same_type(column: pa.ChunkedArray | pa.Array, kind: str) -> pa.ChunkedArray | pa.Array:
    """The column in the one type that all tables here have for a kind, whatever encoding a file has."""
    if column.type == TYPES[kind]:
        return column
    if kind == "string":
        return column.cast(pa.string()).dictionary_encode()
    if kind == "list<string>":
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        return pa.chunked_array([_list_of_words(chunk) for chunk in chunks], TYPES[kind])
    return column.cast(TYPES[kind])


def _list_of_words(chunk: pa.Array) -> pa.Array:
    """A list column whose elements may have another name or encoding. What does not work: from Python objects, 5 us a row."""
    values = chunk.values
    if not pa.types.is_dictionary(values.type):
        values = values.cast(pa.string()).dictionary_encode()
    mask = chunk.is_null() if chunk.null_count else None
    return pa.ListArray.from_arrays(chunk.offsets.cast(pa.int32()), values.cast(_WORDS), mask=mask)


def filled_with(value: object, kind: str, n: int) -> pa.Array:
    return same_type(pa.repeat(pa.scalar(value, _PLAIN[kind]), n), kind)


def empty(form: Columns) -> pa.Table:
    """A table of the form without rows."""
    return pa.table({name: pa.array([], TYPES[kind]) for name, kind, _ in form})


def _check_columns(schema: pa.Schema, expected: dict[str, str], folder: str) -> None:
    found = {field.name: arrow_type_name(field.type) for field in schema}
    missing, extra = [n for n in expected if n not in found], [n for n in found if n not in expected]
    if missing:
        raise DamagedError(f"no column {', '.join(missing)}; expected the {len(expected)} columns of {folder}/")
    if extra or len(schema) != len(expected):
        raise DamagedError(f"column {', '.join(extra) or 'twice'}; expected the {len(expected)} columns of {folder}/")
    for name, kind in expected.items():
        if found[name] != kind:
            raise DamagedError(f"column {name} of type {found[name]}; expected type {kind}")


def codes(column: pa.ChunkedArray | pa.Array) -> tuple[Ints, tuple[str, ...]]:
    """A column of strings without nulls as numbers, and the string of each number."""
    if isinstance(column, pa.ChunkedArray):
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries().combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    elif not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    return column.indices.to_numpy(zero_copy_only=False).astype(np.int64), tuple(column.dictionary.to_pylist())


def numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of integers without nulls."""
    return np.asarray(column.to_numpy())


def has_nulls(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Where a column has no value, or a list with an element that has none."""
    absent = np.asarray(pc.is_null(column).to_numpy()).astype(bool)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        for start, chunk in _chunks(column):
            inner = pc.list_flatten(chunk)
            if inner.null_count:
                parents = np.asarray(pc.list_parent_indices(chunk))
                absent[start + parents[np.asarray(pc.is_null(inner).to_numpy(zero_copy_only=False))]] = True
    return absent


def _chunks(column: pa.ChunkedArray) -> list[tuple[int, pa.Array]]:
    starts = np.cumsum([0, *(len(chunk) for chunk in column.chunks)])
    return list(zip(starts.tolist(), column.chunks, strict=False))
