"""The files of an event log, checked before Spark starts: which are of the log, and whether they can be read as one.

With a folder of manifests only the data files that one of them names count; a data file without one is a remnant of a lost
attempt. Without manifests every Parquet file counts, as in version 1.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.spec.event_log import (
    ADDED,
    CAMPAIGN_FILE,
    EVENT_COLUMNS,
    EVENTS_DIR,
    MANIFEST_DIR,
    RUN_COLUMNS,
    RUNS_DIR,
    SCHEMA_VERSION,
)

Columns = Sequence[tuple[str, str, str]]
READABLE: Final = tuple(range(1, SCHEMA_VERSION + 1))


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The data files of one log."""

    path: Path
    events: tuple[Path, ...]
    runs: tuple[Path, ...]
    n_events: int  # by the footers
    n_runs: int
    lacking: frozenset[str]  # columns of ADDED that some of its files do not have


def find(path: Path) -> LogFiles:
    """The files of the log in a directory. Raises: FuzzError, which names the first wrong path."""
    if not path.is_dir():
        raise FuzzError(f"{path}: found {'a file' if path.exists() else 'nothing'}, expected the directory of an event log")
    _check_version(path / CAMPAIGN_FILE)
    manifests = sorted((path / MANIFEST_DIR).glob("*.json")) if (path / MANIFEST_DIR).is_dir() else None
    events, n_events, lacks_event = _data(path, EVENTS_DIR, EVENT_COLUMNS, manifests)
    runs, n_runs, lacks_run = _data(path, RUNS_DIR, RUN_COLUMNS, manifests)
    return LogFiles(path, events, runs, n_events, n_runs, lacks_event | lacks_run)


def _check_version(file: Path) -> None:
    if not file.is_file():
        return  # a campaign that was killed has none; the columns say what there is
    version = _json(file).get("schema_version", "none")
    if version not in READABLE:
        raise FuzzError(f"{file}: found schema_version {version}, expected {' or '.join(map(str, READABLE))}")


def _json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FuzzError(f"{file}: found no JSON, expected an object") from error
    if not isinstance(document, dict):
        raise FuzzError(f"{file}: found {type(document).__name__}, expected an object")
    return document


def _data(
    path: Path, folder: str, columns: Columns, manifests: Sequence[Path] | None
) -> tuple[tuple[Path, ...], int, frozenset[str]]:
    if manifests is None:
        files = sorted((path / folder).glob("*.parquet"))
    else:
        files = []
        for manifest in manifests:
            name = _json(manifest).get(folder)
            if not isinstance(name, str):
                raise FuzzError(f"{manifest}: found {folder} {name!r}, expected the name of a file")
            files.append(path / folder / Path(name).name)
    if not files:
        raise FuzzError(f"{path / folder}: found no Parquet file, expected at least one")
    rows, lacking = 0, set[str]()
    for file in files:
        n, lacks = _check_file(file, columns)
        rows += n
        lacking |= lacks
    return tuple(files), rows, frozenset(lacking)


def _check_file(file: Path, columns: Columns) -> tuple[int, set[str]]:
    """The number of rows of a file and the columns of ADDED that it lacks, by its footer."""
    try:
        with pq.ParquetFile(file) as parquet:
            schema, rows = parquet.schema_arrow, int(parquet.metadata.num_rows)
    except FileNotFoundError as error:
        raise FuzzError(f"{file}: found nothing, expected the file that a manifest names") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise FuzzError(f"{file}: found a file that is not Parquet, expected a Parquet file") from error
    found = {field.name: _type_name(field.type) for field in schema}
    lacks = set[str]()
    for name, kind, _ in columns:
        if name not in found:
            if name not in ADDED:
                raise FuzzError(
                    f"{file}: found no column {name}, expected the {len(columns)} columns of a file of events or runs"
                )
            lacks.add(name)
        elif found[name] != kind:
            raise FuzzError(f"{file}: found column {name} of type {found[name]}, expected {kind}")
    return rows, lacks


def _type_name(kind: pa.DataType) -> str:
    """The name of an Arrow type in spec/event_log.py. Encodings that Spark reads as one type have one name."""
    if pa.types.is_dictionary(kind):
        return _type_name(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_type_name(kind.value_type)}>"
    return "string" if pa.types.is_large_string(kind) else str(kind)
