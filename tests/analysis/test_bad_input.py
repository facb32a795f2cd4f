"""What a user has typed wrong gives one line on stderr that names the fault, exit status 2, no traceback and no files.

Damage inside of a log is none of this: test_quarantine.py.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from kit import event_logs
from rocketmq_ha.analysis.cli import report

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

EVENTS_FILE = "events/part-00000.parquet"
RUNS_FILE = "runs/part-00000.parquet"


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


def to_version_1(log: Path) -> None:
    edit_campaign(log, schema_version=1)


def of_version_1_without(name: str) -> Callable[[Path], object]:
    def damage(log: Path) -> None:
        to_version_1(log)
        remove_folder(log / name)

    return damage


def of_version_1_without_files(log: Path) -> None:
    to_version_1(log)
    (log / EVENTS_FILE).unlink()


def of_nothing(log: Path) -> None:
    for name in ("events", "runs", "manifest"):
        remove_folder(log / name)
    (log / "campaign.json").unlink()


def without_a_sound_file(log: Path) -> None:
    (log / RUNS_FILE).write_text("no Parquet")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another folder": (of_nothing, "{log}: found no campaign.json in it, expected an event log: campaign.json, manifest/,"),
    "no events": (of_version_1_without("events"), "{log}: found no events/ in it, expected an event log"),
    "no runs": (of_version_1_without("runs"), "{log}: found no runs/ in it, expected an event log"),
    "no files": (of_version_1_without_files, "{log}/events: found no *.parquet file, expected at least one Parquet file"),
    "no campaign": (lambda log: (log / "campaign.json").unlink(), "{log}/campaign.json: found nothing"),
    "campaign is no JSON": (lambda log: (log / "campaign.json").write_text("{"), "{log}/campaign.json: found no JSON"),
    "campaign is a list": (
        lambda log: (log / "campaign.json").write_text("[]"),
        "{log}/campaign.json: found JSON that",
    ),
    "future version": (
        lambda log: edit_campaign(log, schema_version=3),
        "{log}/campaign.json: found schema_version 3, expected schema_version 1 or 2",
    ),
    "no version": (
        lambda log: (log / "campaign.json").write_text("{}"),
        "{log}/campaign.json: found schema_version none, expected schema_version 1 or 2",
    ),
    "true is no version": (
        lambda log: edit_campaign(log, schema_version=True),
        "{log}/campaign.json: found schema_version True, expected schema_version 1 or 2",
    ),
    "nothing that can be read": (
        without_a_sound_file,
        "{log}: found nothing that can be read ({log}/events/part-00000.parquet: ",
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
    file.write_text('{"version": 2, "machines": {"store": {}}, "clauses": {}}')
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


def test_a_report_is_made_of_a_log_with_damage_and_names_it(
    spark: SparkSession, transitions_file: Path, tmp_path: Path
) -> None:
    """One of two files of events has broken pages under a sound footer."""
    assert spark is not None  # the command uses this session
    events, runs = event_logs.random_rows(1, 20, 20, failing=False)
    log = event_logs.write_log(tmp_path / "log", events, runs, files=2)
    data = bytearray((log / EVENTS_FILE).read_bytes())
    data[4 : len(data) // 2] = bytes(byte ^ 0xFF for byte in data[4 : len(data) // 2])
    (log / EVENTS_FILE).write_bytes(data)
    out = tmp_path / "report.html"
    result = CliRunner().invoke(report, [str(log), "--out", str(out), "--transitions", str(transitions_file)])
    assert result.exit_code == 0, result.output
    found = pq.read_table(tmp_path / "report-tables" / "quarantine.parquet").to_pylist()
    assert [(row["source"], row["reason"]) for row in found] == [
        (f"{log}/{EVENTS_FILE}", "pages that cannot be read"),
        (f"{log}/runs/part-00000.parquet", "a run without its rows in events/"),
    ]


def test_program_prints_one_line_and_does_not_start_spark(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rocketmq_ha.analysis", "report", "missing", "--out", "report.html"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "rocketmq-ha: missing: found nothing, expected the directory of an event log\n"
    assert list(tmp_path.iterdir()) == []
