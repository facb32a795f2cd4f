"""The second verdict on Spark: the command over logs on disk, what it prints, writes and ends with."""

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from py4j.protocol import Py4JError

from kit import second_verdicts
from kit.second_verdicts import MemoryLog
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.second_verdict import monitor, rerun
from rocketmq_ha.fuzz.second_verdict import spark as spark_verdict
from rocketmq_ha.fuzz.second_verdict.cli import second_verdict
from rocketmq_ha.impl.cli import main

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]  # one Spark session for all of these

SEEDS = (1, 30)


def write(log: Path, rows: MemoryLog, version: int = 2) -> Path:
    events, runs = rows.tables()
    if version == 1:
        events, runs = (
            events.drop_columns(["world"]),
            runs.drop_columns(["world", "digest", "recipe", "observed", "elapsed_us"]),
        )
    store = LogStore(str(log))
    middle = runs.column("run_id")[len(runs) // 2]
    for name, keeps in (("a", pc.less), ("b [1]", pc.greater_equal)):
        for part, table in (("events", events), ("runs", runs)):
            store.write_table(f"{part}/{name}.parquet", table.filter(keeps(table.column("run_id"), middle)))
        if version > 1:
            manifest = {"events": f"{name}.parquet", "runs": f"{name}.parquet", "n_steps": 1000}
            store.write(f"manifest/{name}.json", json.dumps(manifest).encode())
    (log / "campaign.json").write_text(json.dumps({"schema_version": version}), encoding="utf-8")
    return log


def call(*arguments: object) -> Result:
    return CliRunner().invoke(second_verdict, [str(argument) for argument in (*arguments, "--master", "local[2]")])


def test_sound_logs_have_status_0(tmp_path: Path, spark: "SparkSession") -> None:
    """Logs of both versions, of which the second has the same runs as the first: each is judged by itself."""
    rows = second_verdicts.sound(*SEEDS)
    logs = [write(tmp_path / "new", rows), write(tmp_path / "old", rows, version=1)]
    result = call(*logs, "--unreached-ok", "--json", "--share", "0.4", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["runs"], told["rows"], told["wrong"], told["not_rerun"]) == (60, 2 * len(rows.events), 0, 0)
    assert told["rules"]["run_has_one_row"]["premises"] == 60
    assert 0 < told["rerun"] < 60 and told["rerun"] % 2 == 0, "a share of the runs, and the same of both logs"
    assert told["rules"][rerun.ROWS]["premises"] == told["rerun"]
    assert told["rules"][rerun.OBSERVED]["premises"] == told["rerun"] / 2, "version 1 has no such column"
    found = spark.read.parquet(str(tmp_path / "out" / "runs"))
    assert found.where("check = 'run'").count() == 60
    assert found.where("check = 'rerun'").count() == told["rerun"]
    rules = {row["rule"] for row in pq.read_table(tmp_path / "out" / "rules").to_pylist()}
    assert {rule.name for rule in monitor.RULES if rule.world in ("", "link")} <= rules


def test_a_violation_is_named_with_its_run_and_has_status_1(tmp_path: Path) -> None:
    rows = second_verdicts.sound(*SEEDS).copy()
    row = rows.find(lambda row: row["run_id"] == 12 and row["event"] == "put" and row["actor"] == "store" and row["step"] > 5)
    row["nbytes"] += 1
    log = write(tmp_path / "log", rows)
    result = call(log, "--unreached-ok")
    assert result.exit_code == 1
    assert f"{log}: run 12, step {row['step']}: a_log_grows_by_what_is_appended: max offset " in result.stdout
    assert "runs=30 " in result.stdout and " wrong=1 " in result.stdout


def test_runs_of_one_number_in_two_logs_are_two_wrong_runs(tmp_path: Path) -> None:
    logs = []
    for number in range(2):
        rows = second_verdicts.sound(*SEEDS).copy()
        rows.find(lambda row: row["run_id"] == 12 and row["event"] == "put" and row["actor"] == "store")["nbytes"] += 1
        logs.append(write(tmp_path / f"log-{number}", rows))
    result = call(*logs, "--unreached-ok")
    assert result.exit_code == 1
    assert " wrong=2 " in result.stdout
    for log in logs:
        assert f"{log}: run 12, step " in result.stdout


def test_a_rule_that_was_never_reached_has_status_1(tmp_path: Path) -> None:
    log = write(tmp_path / "log", MemoryLog(second_verdicts.sound(*SEEDS).of(1), [second_verdicts.sound(*SEEDS).run(1)]))
    result = call(log)
    assert result.exit_code == 1
    assert "never reached: silence_closes" in result.stderr and "wrong=0" in result.stdout


def test_pages_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    log = write(tmp_path / "log", second_verdicts.sound(*SEEDS))
    file = log / "events" / "a.parquet"
    data = bytearray(file.read_bytes())
    data[200:2000] = bytes(1800)
    file.write_bytes(data)
    result = call(log)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith(f"rocketmq-ha: {file}: found pages that cannot be read")


@pytest.mark.parametrize("mine", ["campaign.json", "runs/mine.txt", "rules/mine.txt"])
def test_tables_in_the_place_of_a_log_or_of_foreign_files_are_refused_before_the_work(mine: str, tmp_path: Path) -> None:
    log = write(tmp_path / "log", second_verdicts.sound(*SEEDS))
    out = log if mine == "campaign.json" else tmp_path / "out"
    if out != log:
        (out / mine).parent.mkdir(parents=True)
        (out / mine).write_text("mine", encoding="utf-8")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    result = call(log, "--out", out)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.output
    assert str(out) in result.stderr and mine in result.stderr
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_tables_replace_those_of_an_older_second_verdict(tmp_path: Path) -> None:
    """The columns are those by which older tables are known."""
    out = tmp_path / "out"
    for last in (5, 3):
        log = write(tmp_path / f"log-{last}", second_verdicts.sound(1, last))
        assert call(log, "--unreached-ok", "--out", out).exit_code == 0
        assert len(pq.read_table(out / "runs")) == last
    assert sorted(path.name for path in out.iterdir()) == ["rules", "runs"]


def test_a_full_disk_is_one_line_and_leaves_the_older_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first table is complete when the disk is full. The error has Java's form: words of the system, and no number."""
    out = tmp_path / "out"
    log = write(tmp_path / "log", second_verdicts.sound(1, 3))
    assert call(log, "--unreached-ok", "--out", out).exit_code == 0
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    write_table = spark_verdict._write_table

    def write_the_first(table: "DataFrame", folder: Path) -> None:
        if folder.name == "rules":
            raise Py4JError(
                f"An error occurred\n\tat a.B\nCaused by: java.io.IOException: {os.strerror(errno.ENOSPC)}\n\tat c.D"
            )
        write_table(table, folder)

    monkeypatch.setattr(spark_verdict, "_write_table", write_the_first)
    result = CliRunner().invoke(main, ["second-verdict", str(log), "--unreached-ok", "--out", str(out), "--master", "local[2]"])
    assert (result.exit_code, result.stdout) == (75, ""), result.output
    assert result.stderr.splitlines()[-1] == f"rocketmq-ha: {out}: No space left on device"
    assert "Traceback" not in result.stderr and "at a.B" not in result.stderr
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before
    assert sorted(path.name for path in out.iterdir()) == ["rules", "runs"]
