"""The schema of the event log: names of types, and what is refused in a table of possible transitions and in a column."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit import event_logs
from rocketmq_ha.analysis import errors, schema
from rocketmq_ha.analysis.errors import AnalysisError, LogInvalid, OutputInvalid, SparkUnavailable
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
    for found, columns in ((schema.EVENTS, EVENT_COLUMNS), (schema.RUNS, RUN_COLUMNS)):
        assert [(one.name, one.dataType.simpleString(), one.nullable) for one in found] == [
            (name, kinds[kind], True) for name, kind, _ in columns
        ]


def document(**changes: Any) -> dict[str, Any]:
    machine = {"states": ["a", "b"], "events": ["e"], "transitions": [["a", "e", "b", ["classic"]], ["b", "e", "a", []]]}
    return {"version": 1, "machines": {"m": machine}, "clauses": {"HA-1": "One."}} | changes


def test_possible_transitions_keep_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps(document()))
    found = schema.load_possible(file)
    assert found.clauses == {"HA-1": "One."}
    assert found.machines == {
        "m": schema.Machine(("a", "b"), ("e",), (("a", "e", "b", ("classic",)), ("b", "e", "a", ()))),
    }


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
        ("{}", "found version none, expected version 1"),
        (json.dumps(document(version=2)), "found version 2, expected version 1"),
        (json.dumps(document(machines={"m": {"states": [], "events": []}})), f"found another shape, {EXPECTED}"),
        (json.dumps(document(machines=[1])), f"found another shape, {EXPECTED}"),
        (json.dumps(document(clauses=None)), f"found another shape, {EXPECTED}"),
        (
            json.dumps(document(machines={"m": {"states": [], "events": [], "transitions": [["a", "b"]]}})),
            f"found another shape, {EXPECTED}",
        ),
    ],
    ids=["missing", "no JSON", "a list", "empty", "version 2", "no transitions", "machines", "clauses", "a short transition"],
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
            "found no column phase, n_ops, expected the 11 columns of a runs file",
        ),
        (
            "events",
            lambda table: table.append_column("x", table["step"]).append_column("y", table["step"]),
            "found column x, y, expected the 16 columns of a events file",
        ),
        (
            "runs",
            lambda table: table.drop_columns(["detail"]).append_column("detail", pa.array([7])),
            "found column detail of type int64, expected type string",
        ),
    ],
    ids=["missing", "too many", "another type"],
)
def test_a_file_with_other_columns_is_named(
    tmp_path: Path, part: str, change: Callable[[pa.Table], pa.Table], told: str
) -> None:
    log = event_logs.write_log(tmp_path / "log", [event_logs.event_row(1, 0)], [event_logs.run_row(1)])
    assert schema.check_log(log)["schema_version"] == 1
    file = log / part / "part-00000.parquet"
    pq.write_table(change(pq.read_table(file)), file)
    with pytest.raises(LogInvalid) as caught:
        schema.check_log(log)
    assert caught.value.message == f"{file}: {told}"
    assert caught.value.path == file


def test_a_log_without_a_version_is_refused(tmp_path: Path) -> None:
    log = event_logs.write_log(tmp_path / "log", [event_logs.event_row(1, 0)], [event_logs.run_row(1)])
    (log / "campaign.json").write_text("{}")
    with pytest.raises(LogInvalid, match="found schema_version none, expected schema_version 1"):
        schema.check_log(log)


@pytest.mark.parametrize(
    "error", [LogInvalid(Path("a"), 1, 2), OutputInvalid("no"), SparkUnavailable("no")], ids=lambda e: type(e).__name__
)
def test_each_error_is_a_line_on_stderr_and_status_2(error: AnalysisError, capsys: pytest.CaptureFixture[str]) -> None:
    error.show()
    captured = capsys.readouterr()
    assert (captured.out, captured.err, error.exit_code) == ("", f"rocketmq-ha: {error.message}\n", 2)
    assert str(errors.LogInvalid(Path("a"), 1, 2).message) == "a: found 1, expected 2"
