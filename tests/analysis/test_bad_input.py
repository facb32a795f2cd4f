"""Bad input gives one line on stderr that names the fault, exit status 2, no traceback and no files."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from kit import event_logs
from rocketmq_ha.analysis.cli import report

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

EVENTS_FILE = "events/part-00000.parquet"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return event_logs.write_log(tmp_path / "log", [event_logs.event_row(1, 0)], [event_logs.run_row(1, n_steps=1)])


def refused(*arguments: Path | str) -> str:
    """Run the command, check that it refuses its input, and return the error line without its prefix."""
    result = CliRunner().invoke(report, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = [
        line for line in result.stderr.splitlines() if not line.startswith("report: ")
    ]  # "report: " begins progress lines
    assert line.startswith("rocketmq-ha: ")
    return line.removeprefix("rocketmq-ha: ")


def remove_folder(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def edit_campaign(log: Path, **changes: object) -> None:
    file = log / "campaign.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def edit_events(log: Path, edit: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(edit(pq.read_table(log / EVENTS_FILE)), log / EVENTS_FILE)


def to_int64(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("step")
    return table.set_column(at, "step", table["step"].cast(pa.int64()))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no events": (lambda log: remove_folder(log / "events"), "{log}: found no events/ in it, expected an event log"),
    "no runs": (lambda log: remove_folder(log / "runs"), "{log}: found no runs/ in it, expected an event log"),
    "no files": (lambda log: (log / EVENTS_FILE).unlink(), "{log}/events: found no *.parquet file"),
    "no campaign": (lambda log: (log / "campaign.json").unlink(), "{log}/campaign.json: found nothing"),
    "campaign is no JSON": (lambda log: (log / "campaign.json").write_text("{"), "{log}/campaign.json: found no JSON"),
    "campaign is a list": (
        lambda log: (log / "campaign.json").write_text("[]"),
        "{log}/campaign.json: found JSON that",
    ),
    "future version": (
        lambda log: edit_campaign(log, schema_version=3),
        "{log}/campaign.json: found schema_version 3, expected schema_version 2",
    ),
    "not Parquet": (
        lambda log: (log / EVENTS_FILE).write_text('{"json": "lines"}\n'),
        "{log}/events/part-00000.parquet: found a file that is not Parquet, expected a Parquet file",
    ),
    "truncated": (
        lambda log: os.truncate(log / EVENTS_FILE, 1000),
        "{log}/events/part-00000.parquet: found a file that is not Parquet",
    ),
    "column missing": (
        lambda log: edit_events(log, lambda table: table.drop_columns(["actor"])),
        "{log}/events/part-00000.parquet: found no column actor, expected the 16 columns",
    ),
    "column too many": (
        lambda log: edit_events(log, lambda table: table.append_column("x", table["step"])),
        "{log}/events/part-00000.parquet: found column x, expected the 16 columns",
    ),
    "column of another type": (
        lambda log: edit_events(log, to_int64),
        "{log}/events/part-00000.parquet: found column step of type int64, expected type int32",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_report_refuses_a_damaged_log(damage: str, log: Path, transitions_file: Path, tmp_path: Path) -> None:
    apply, expected = DAMAGES[damage]
    apply(log)
    out = tmp_path / "new" / "report.html"
    line = refused(log, "--out", out, "--transitions", transitions_file)
    assert line.startswith(expected.format(log=log))
    assert not out.parent.exists()


def test_report_refuses_a_missing_log_and_a_file_as_log(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    file = tmp_path / "file"
    file.touch()
    assert refused(tmp_path / "none", "--out", out) == (
        f"{tmp_path}/none: found nothing, expected the directory of an event log"
    )
    assert refused(file, "--out", out) == f"{file}: found a file, expected the directory of an event log"
    assert not out.exists()


def test_report_refuses_transitions_of_another_shape(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "transitions.json"
    file.write_text('{"version": 1, "machines": {"store": {}}, "clauses": {}}')
    assert refused(log, "--out", tmp_path / "r.html", "--transitions", file).startswith(f"{file}: found another shape")
    file.write_text('{"version": 7}')
    assert refused(log, "--out", tmp_path / "r.html", "--transitions", file).startswith(f"{file}: found version 7")


def test_report_refuses_output_that_cannot_be_written(log: Path, transitions_file: Path, tmp_path: Path) -> None:
    (tmp_path / "r-tables").touch()
    common = ("--transitions", transitions_file)
    assert "found a directory" in refused(log, "--out", tmp_path, *common)
    assert "found a file, expected a directory for the tables" in refused(log, "--out", tmp_path / "r.html", *common)
    assert "found a file, expected a dir" in refused(log, "--out", tmp_path / "r-tables" / "x" / "y.html", *common)
    assert "--master nowhere" in refused(log, "--out", tmp_path / "q.html", "--master", "nowhere", *common)


def test_report_refuses_broken_pages_under_a_sound_footer(spark: SparkSession, transitions_file: Path, tmp_path: Path) -> None:
    events, runs = event_logs.random_rows(1, 20, 20, failing=False)
    log = event_logs.write_log(tmp_path / "log", events, runs)
    data = bytearray((log / EVENTS_FILE).read_bytes())
    data[4 : len(data) // 2] = bytes(byte ^ 0xFF for byte in data[4 : len(data) // 2])
    (log / EVENTS_FILE).write_bytes(data)
    out = tmp_path / "new" / "report.html"
    spark.sparkContext.setLogLevel("OFF")
    try:
        line = refused(log, "--out", out, "--transitions", transitions_file)
    finally:
        spark.sparkContext.setLogLevel("ERROR")
    assert line == f"{log / EVENTS_FILE}: found pages that cannot be read, expected a sound Parquet file"
    assert not out.parent.exists()


def test_program_prints_one_line_and_does_not_start_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rocketmq_ha.analysis", "report", "missing", "--out", "report.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "rocketmq-ha: missing: found nothing, expected the directory of an event log\n"
    assert list(tmp_path.iterdir()) == []
