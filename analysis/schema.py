"""The event log's schema for Spark, and the check that a directory is an event log.

Both follow spec/event_log.py. The check reads only campaign.json and names of files, before Spark starts, so that a wrong path
costs milliseconds instead of a start of Java. Damage inside of a log is no error: ingest.py puts it into quarantine.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812

from rocketmq_ha.analysis.errors import LogInvalid
from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.spec.event_log import (
    ADDED,
    CAMPAIGN_FILE,
    EVENTS_DIR,
    MANIFEST_DIR,
    RUN_COLUMNS,
    RUNS_DIR,
    SCHEMA_VERSION,
    TRANSITIONS_FILE,
    TRANSITIONS_VERSION,
)

Columns = Sequence[tuple[str, str, str]]

PARQUET: Final = ".parquet"
WITHOUT_MANIFESTS: Final = 1  # the version in which every file counts, and the columns of ADDED are missing
VERSIONS: Final = (WITHOUT_MANIFESTS, SCHEMA_VERSION)
_SPARK_TYPES: Final[Mapping[str, T.DataType]] = {
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "string": T.StringType(),
    "list<string>": T.ArrayType(T.StringType()),
}


def spark_schema(columns: Columns) -> T.StructType:
    """Return columns of spec.event_log as a Spark schema. All are nullable: Spark reads every Parquet column as nullable."""
    return T.StructType([T.StructField(name, _SPARK_TYPES[kind]) for name, kind, _ in columns])


RUNS: Final = spark_schema(RUN_COLUMNS)


def arrow_type_name(kind: pa.DataType) -> str:
    """Return spec.event_log's name of an Arrow type. Encodings that Spark reads as one type have one name."""
    if pa.types.is_dictionary(kind):
        return arrow_type_name(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{arrow_type_name(kind.value_type)}>"
    return "string" if pa.types.is_large_string(kind) else str(kind)


def columns_of(version: int, columns: Columns) -> dict[str, str]:
    """The columns of a file in a log of some version: their Arrow types by name."""
    return {name: kind for name, kind, _ in columns if version != WITHOUT_MANIFESTS or name not in ADDED}


def check_log(path: Path | str) -> dict[str, Any]:
    """Check that a place is an event log of a version that is known. Returns: its campaign.json.

    A campaign that has published nothing yet is a log. Raises: LogInvalid, which names the first wrong path.
    """
    files = LogFiles.at(path)
    kind = files.kind()
    if kind == "file":
        raise LogInvalid(path, "a file", "the directory of an event log")
    if not kind:
        raise LogInvalid(path, "nothing", "the directory of an event log")
    parts = {name for name in (EVENTS_DIR, RUNS_DIR, MANIFEST_DIR) if files.kind(name) == "directory"}
    if not parts and not files.kind(CAMPAIGN_FILE):
        expected = f"an event log: {CAMPAIGN_FILE}, {MANIFEST_DIR}/, {EVENTS_DIR}/ and {RUNS_DIR}/"
        raise LogInvalid(path, f"no {CAMPAIGN_FILE} in it", expected)
    campaign = _read_json(files, CAMPAIGN_FILE, "the campaign's settings as a JSON object")
    version = campaign.get("schema_version", "none")
    if type(version) is not int or version not in VERSIONS:
        expected = " or ".join(map(str, VERSIONS))
        raise LogInvalid(files.shown(CAMPAIGN_FILE), f"schema_version {version}", f"schema_version {expected}")
    if version == WITHOUT_MANIFESTS:
        for name in (EVENTS_DIR, RUNS_DIR):
            if name not in parts:
                raise LogInvalid(path, f"no {name}/ in it", f"an event log: {EVENTS_DIR}/, {RUNS_DIR}/ and {CAMPAIGN_FILE}")
            if not files.sizes(name, PARQUET):
                raise LogInvalid(files.shown(name), f"no *{PARQUET} file", "at least one Parquet file")
    return campaign


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

    @property
    def worlds(self) -> tuple[str, ...]:
        """All worlds, in the order in which the machines name them."""
        return tuple(dict.fromkeys(world for machine in self.machines.values() for world in machine.worlds))

    def in_worlds(self, worlds: Collection[str]) -> "Possible":
        """What is possible in some worlds: their machines, and the clauses that their schedules exercise."""
        machines = {actor: one for actor, one in self.machines.items() if not set(worlds).isdisjoint(one.worlds)}
        could = {clause for clause, found in self.worlds_of.items() if not set(worlds).isdisjoint(found)}
        clauses = {clause: sentence for clause, sentence in self.clauses.items() if clause in could}
        return replace(self, machines=machines, clauses=clauses)


def load_possible(file: Path | None = None) -> Possible:
    """Read the table of possible transitions from a file, or from the installed specification.

    Raises: LogInvalid if the file is missing or has another shape.
    """
    path = file or Path(str(resources.files("rocketmq_ha.spec") / TRANSITIONS_FILE))
    expected = "the possible transitions, as spec/event_log.py describes them"
    document = _read_json(LogFiles.at(path.parent), path.name, expected)
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


def _read_json(files: LogFiles, name: str, expected: str) -> dict[str, Any]:
    try:
        text = files.read(name)
        document = None if text is None else json.loads(text)
    except (OSError, ValueError) as error:
        raise LogInvalid(files.shown(name), "no JSON", expected) from error
    if text is None:
        raise LogInvalid(files.shown(name), "nothing", expected)
    if not isinstance(document, dict):
        raise LogInvalid(files.shown(name), "JSON that is no object", expected)
    return document
