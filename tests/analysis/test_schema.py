"""The schema of the event log: names of types, and what is refused in a table of possible transitions and in a column."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit import event_logs
from rocketmq_ha.analysis import errors, part_files, schema
from rocketmq_ha.analysis.errors import AnalysisError, LogInvalid, OutputInvalid, SparkUnavailable
from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.part_files import DamagedError
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, RUN_COLUMNS


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.int32(), "int32"),
        (pa.int64(), "int64"),
        (pa.string(), "string"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.dictionary(pa.int32(), pa.large_string()), "string"),
        (pa.list_(pa.string()), "list<string>"),
        (pa.large_list(pa.large_string()), "list<string>"),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), "list<string>"),
        (pa.list_(pa.int64()), "list<int64>"),
        (pa.binary(), "binary"),
        (pa.int16(), "int16"),
    ],
    ids=str,
)
def test_encodings_that_spark_reads_alike_have_one_name(kind: pa.DataType, name: str) -> None:
    assert schema.arrow_type_name(kind) == name


def test_sparks_columns_are_those_of_the_specification() -> None:
    kinds = {"int32": "int", "int64": "bigint", "string": "string", "list<string>": "array<string>"}
    assert [(one.name, one.dataType.simpleString(), one.nullable) for one in schema.RUNS] == [
        (name, kinds[kind], True) for name, kind, _ in RUN_COLUMNS
    ]


def document(**changes: Any) -> dict[str, Any]:
    machine = {
        "worlds": ["w", "v"],
        "states": ["a", "b"],
        "events": ["e"],
        "transitions": [["a", "e", "b", ["classic"]], ["b", "e", "a", []]],
    }
    held = {"HA-2": {"sentence": "Two.", "tests": ["tests/a.py"], "reason": ""}}
    clauses = {"HA-1": {"sentence": "One.", "worlds": ["w"]}}
    return {"version": 2, "machines": {"m": machine}, "clauses": clauses, "elsewhere": held} | changes


def test_possible_transitions_keep_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(document()))
    found = schema.load_possible(file)
    assert found.clauses == {"HA-1": "One."}
    assert found.machines == {
        "m": schema.Machine(("a", "b"), ("e",), (("a", "e", "b", ("classic",)), ("b", "e", "a", ())), ("w", "v")),
    }
    assert found.worlds_of == {"HA-1": ("w",)}
    assert found.elsewhere == {"HA-2": schema.Elsewhere("Two.", ("tests/a.py",), "")}
    assert found.worlds == ("w", "v")


def test_the_installed_specification_is_the_default() -> None:
    found = schema.load_possible()
    assert {"store", "master_connection", "slave_client", "group_transfer", "network"} <= set(found.machines)
    assert all(profiles for machine in found.machines.values() for *_, profiles in machine.transitions)


EXPECTED = "expected the possible transitions, as spec/event_log.py describes them"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, f"found nothing, {EXPECTED}"),
        ("{", f"found no JSON, {EXPECTED}"),
        ("[1]", f"found JSON that is no object, {EXPECTED}"),
        ("{}", "found version none, expected version 2"),
        (json.dumps(document(version=1)), "found version 1, expected version 2"),
        (json.dumps(document(machines={"m": {"states": [], "events": []}})), f"found another shape, {EXPECTED}"),
        (json.dumps(document(machines=[1])), f"found another shape, {EXPECTED}"),
        (json.dumps(document(clauses=None)), f"found another shape, {EXPECTED}"),
        (
            json.dumps(document(machines={"m": {"states": [], "events": [], "transitions": [["a", "b"]]}})),
            f"found another shape, {EXPECTED}",
        ),
    ],
    ids=["missing", "no JSON", "a list", "empty", "version 1", "no transitions", "machines", "clauses", "a short transition"],
)
def test_a_wrong_file_of_transitions_is_named(tmp_path: Path, text: str | None, told: str) -> None:
    file = tmp_path / "t.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(LogInvalid) as caught:
        schema.load_possible(file)
    assert str(caught.value.message) == f"{file}: {told}"


@pytest.mark.parametrize(
    ("part", "change", "told"),
    [
        (
            "runs",
            lambda table: table.drop_columns(["phase", "n_ops"]),
            "no column phase, n_ops; expected the 16 columns of runs/",
        ),
        (
            "events",
            lambda table: table.append_column("x", table["step"]).append_column("y", table["step"]),
            "column x, y; expected the 17 columns of events/",
        ),
        (
            "runs",
            lambda table: table.drop_columns(["detail"]).append_column("detail", pa.array([7])),
            "column detail of type int64; expected type string",
        ),
    ],
    ids=["missing", "too many", "another type"],
)
def test_a_file_with_other_columns_is_damaged(
    tmp_path: Path, part: str, change: Callable[[pa.Table], pa.Table], told: str
) -> None:
    log = event_logs.write_log(tmp_path / "log", [event_logs.event_row(1, 0)], [event_logs.run_row(1)])
    form = EVENT_COLUMNS if part == "events" else RUN_COLUMNS
    name = f"{part}/part-00000.parquet"
    assert part_files.read_file(LogFiles.at(log), name, form, 2).column_names == [column for column, _, _ in form]
    pq.write_table(change(pq.read_table(log / name)), log / name)
    with pytest.raises(DamagedError, match=f"^{told}$"):
        part_files.read_file(LogFiles.at(log), name, form, 2)


def test_a_file_of_version_1_must_not_have_the_columns_of_version_2(tmp_path: Path) -> None:
    log = event_logs.write_log(tmp_path / "log", [event_logs.event_row(1, 0)], [event_logs.run_row(1)])
    with pytest.raises(DamagedError, match=r"^column world; expected the 16 columns of events/$"):
        part_files.read_file(LogFiles.at(log), "events/part-00000.parquet", EVENT_COLUMNS, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_are_logs(tmp_path: Path, version: int) -> None:
    log = event_logs.write_log(tmp_path / "log", [event_logs.event_row(1, 0)], [event_logs.run_row(1)], version=version)
    assert schema.check_log(log)["schema_version"] == version


def test_a_campaign_that_has_published_nothing_is_a_log(tmp_path: Path) -> None:
    (tmp_path / "campaign.json").write_text('{"schema_version": 2}')
    assert schema.check_log(tmp_path) == {"schema_version": 2}


def test_a_place_that_pyarrow_does_not_know_is_named() -> None:
    with pytest.raises(LogInvalid, match=r"^moon://x: found .*, expected a directory, or a URI such as s3://bucket/prefix$"):
        schema.check_log("moon://x")


@pytest.mark.parametrize(
    "error", [LogInvalid(Path("a"), 1, 2), OutputInvalid("no"), SparkUnavailable("no")], ids=lambda e: type(e).__name__
)
def test_each_error_is_a_line_on_stderr_and_status_2(error: AnalysisError, capsys: pytest.CaptureFixture[str]) -> None:
    error.show()
    captured = capsys.readouterr()
    assert (captured.out, captured.err, error.exit_code) == ("", f"rocketmq-ha: {error.message}\n", 2)
    assert str(errors.LogInvalid(Path("a"), 1, 2).message) == "a: found 1, expected 2"
