"""The event log's schema for Spark, and the check that a directory is an event log.

Both follow spec/event_log.py. The check reads only the Parquet footers, with pyarrow and before Spark starts, so that a
wrong path costs milliseconds instead of a start of Java. It also makes it safe for Spark to read with an explicit schema,
which fills missing columns with nulls.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as T  # noqa: N812

from rocketmq_ha.analysis.errors import LogInvalid
from rocketmq_ha.spec.event_log import (
    CAMPAIGN_FILE,
    EVENT_COLUMNS,
    EVENTS_DIR,
    RUN_COLUMNS,
    RUNS_DIR,
    SCHEMA_VERSION,
    TRANSITIONS_FILE,
    TRANSITIONS_VERSION,
)

Columns = Sequence[tuple[str, str, str]]

PARQUET_GLOB: Final = "*.parquet"
_SPARK_TYPES: Final[Mapping[str, T.DataType]] = {
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "string": T.StringType(),
    "list<string>": T.ArrayType(T.StringType()),
}


def spark_schema(columns: Columns) -> T.StructType:
    """Return columns of spec.event_log as a Spark schema. All are nullable: Spark reads every Parquet column as nullable."""
    return T.StructType([T.StructField(name, _SPARK_TYPES[kind]) for name, kind, _ in columns])


EVENTS: Final = spark_schema(EVENT_COLUMNS)
RUNS: Final = spark_schema(RUN_COLUMNS)


def arrow_type_name(kind: pa.DataType) -> str:
    """Return spec.event_log's name of an Arrow type. Encodings that Spark reads as one type have one name."""
    if pa.types.is_dictionary(kind):
        return arrow_type_name(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{arrow_type_name(kind.value_type)}>"
    return "string" if pa.types.is_large_string(kind) else str(kind)


def check_log(path: Path) -> dict[str, Any]:
    """Check that a directory is an event log of this version. Returns: its campaign.json.

    Raises: LogInvalid, which names the first wrong path.
    """
    if not path.exists():
        raise LogInvalid(path, "nothing", "the directory of an event log")
    if not path.is_dir():
        raise LogInvalid(path, "a file", "the directory of an event log")
    for name in (EVENTS_DIR, RUNS_DIR):
        if not (path / name).is_dir():
            raise LogInvalid(path, f"no {name}/ in it", f"an event log: {EVENTS_DIR}/, {RUNS_DIR}/ and {CAMPAIGN_FILE}")
    campaign = _check_campaign(path / CAMPAIGN_FILE)
    _check_parquet(path / EVENTS_DIR, EVENT_COLUMNS)
    _check_parquet(path / RUNS_DIR, RUN_COLUMNS)
    return campaign


def _check_campaign(file: Path) -> dict[str, Any]:
    campaign = _read_json(file, "the campaign's settings as a JSON object")
    version = campaign.get("schema_version", "none")
    if version != SCHEMA_VERSION:
        raise LogInvalid(file, f"schema_version {version}", f"schema_version {SCHEMA_VERSION}")
    return campaign


def _check_parquet(folder: Path, columns: Columns) -> None:
    files = sorted(folder.glob(PARQUET_GLOB))
    if not files:
        raise LogInvalid(folder, f"no {PARQUET_GLOB} file", "at least one Parquet file")
    expected = {name: kind for name, kind, _ in columns}
    for file in files:
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise LogInvalid(file, "a file that is not Parquet", "a Parquet file") from error
        found = {field.name: arrow_type_name(field.type) for field in schema}
        missing = [name for name in expected if name not in found]
        if missing:
            raise LogInvalid(file, f"no column {', '.join(missing)}", f"the {len(expected)} columns of a {folder.name} file")
        extra = [name for name in found if name not in expected]
        if extra:
            raise LogInvalid(file, f"column {', '.join(extra)}", f"the {len(expected)} columns of a {folder.name} file")
        for name, kind in expected.items():
            if found[name] != kind:
                raise LogInvalid(file, f"column {name} of type {found[name]}", f"type {kind}")


@dataclass(frozen=True, slots=True)
class Machine:
    """One state machine of the model. States and events are in the order of their declaration in the model."""

    states: tuple[str, ...]
    events: tuple[str, ...]
    transitions: tuple[tuple[str, str, str, tuple[str, ...]], ...]  # from_state, event, to_state, profiles
    worlds: tuple[str, ...] = ()  # in whose runs it takes part


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A clause that no schedule exercises, and what holds it instead: tests, or a reason why there is none."""

    sentence: str
    tests: tuple[str, ...]  # files that quote it
    reason: str


@dataclass(frozen=True, slots=True)
class Possible:
    """All possible transitions and clauses, from spec/transitions.json."""

    machines: Mapping[str, Machine]
    clauses: Mapping[str, str]  # clause id: its sentence; the clauses that a schedule can exercise
    worlds_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # clause id: the worlds that exercise it
    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)  # every other clause


def load_possible(file: Path | None = None) -> Possible:
    """Read the table of possible transitions from a file, or from the installed specification.

    Raises: LogInvalid if the file is missing or has another shape.
    """
    path = file or Path(str(resources.files("rocketmq_ha.spec") / TRANSITIONS_FILE))
    expected = "the possible transitions, as spec/event_log.py describes them"
    document = _read_json(path, expected)
    if document.get("version") != TRANSITIONS_VERSION:
        raise LogInvalid(path, f"version {document.get('version', 'none')}", f"version {TRANSITIONS_VERSION}")
    try:
        machines = {
            str(actor): Machine(
                states=tuple(machine["states"]),
                events=tuple(machine["events"]),
                transitions=tuple((f, e, t, tuple(profiles)) for f, e, t, profiles in machine["transitions"]),
                worlds=tuple(machine["worlds"]),
            )
            for actor, machine in document["machines"].items()
        }
        clauses = {str(clause): str(found["sentence"]) for clause, found in document["clauses"].items()}
        worlds_of = {str(clause): tuple(map(str, found["worlds"])) for clause, found in document["clauses"].items()}
        elsewhere = {
            str(clause): Elsewhere(str(found["sentence"]), tuple(map(str, found["tests"])), str(found["reason"]))
            for clause, found in document["elsewhere"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LogInvalid(path, "another shape", expected) from error
    return Possible(machines, clauses, worlds_of, elsewhere)


def _read_json(file: Path, expected: str) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LogInvalid(file, "nothing", expected) from error
    except (OSError, ValueError) as error:
        raise LogInvalid(file, "no JSON", expected) from error
    if not isinstance(document, dict):
        raise LogInvalid(file, "JSON that is no object", expected)
    return document
