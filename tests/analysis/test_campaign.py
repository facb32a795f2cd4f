"""A campaign on Spark writes the log that spec/event_log.py describes: the same log every time, with every run's verdict."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketmq_ha.fuzz import campaign, faults, lockstep, recorder, schedule
from rocketmq_ha.fuzz.campaign import CampaignResult
from rocketmq_ha.fuzz.recorder import EventRecorder
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, PHASE_GENERATE, RUN_COLUMNS, SCHEMA_VERSION, VERDICT_OK, VERDICTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

SEED, RUNS = 1000, 26
TYPES = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string()}


def read(log: Path, part: str) -> list[dict[str, Any]]:
    """Return all rows of a part of a log, in the order of runs and steps."""
    rows: list[dict[str, Any]] = pa.concat_tables(map(pq.read_table, sorted((log / part).glob("*.parquet")))).to_pylist()
    return sorted(rows, key=lambda row: (row["run_id"], row.get("step", 0)))


@pytest.fixture(scope="module")
def log(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("campaign")
    campaign.run(spark, RUNS, SEED, path)
    return path


@pytest.mark.parametrize(("part", "columns"), [("events", EVENT_COLUMNS), ("runs", RUN_COLUMNS)])
def test_files_have_the_columns_of_the_specification(log: Path, part: str, columns: Sequence[tuple[str, str, str]]) -> None:
    for file in (log / part).glob("*.parquet"):
        schema = pq.read_schema(file)
        assert schema.names == [name for name, _, _ in columns], file.name
        for field, (_, kind, _) in zip(schema, columns, strict=True):
            assert not field.nullable, field.name
            if kind == "list<string>":
                assert pa.types.is_list(field.type) and field.type.value_type == pa.string()
            else:
                assert field.type == TYPES[kind], field.name


def test_every_run_has_one_row_and_all_its_steps(log: Path) -> None:
    runs, events = read(log, "runs"), read(log, "events")
    assert [row["run_id"] for row in runs] == list(range(SEED, SEED + RUNS))
    assert {row["phase"] for row in runs} == {PHASE_GENERATE}
    assert {row["profile"] for row in runs} == {"classic", "hardened"}
    for run in runs:
        steps = [row for row in events if row["run_id"] == run["run_id"]]
        assert [row["step"] for row in steps] == list(range(run["n_steps"]))
        assert [row["op_index"] for row in steps] == sorted(row["op_index"] for row in steps)
        assert [row["ts_ns"] for row in steps] == sorted(row["ts_ns"] for row in steps)
        assert {row["verdict"] for row in steps} <= {*VERDICTS}
        assert run["verdict"] == VERDICT_OK, run["detail"]
        assert (run["failing_op"], run["signature"], run["detail"]) == (-1, "", "")


def test_rows_are_those_of_one_process_for_the_same_seeds(log: Path) -> None:
    """Spark distributes the work, but does not affect the result."""
    events, rows = EventRecorder(), []
    for seed in range(SEED, SEED + RUNS):
        outcome = lockstep.run(schedule.draw(seed))
        rows.append(recorder.run_row(outcome, PHASE_GENERATE, events.add(outcome)))
    assert events.table().to_pylist() == read(log, "events")
    assert rows == read(log, "runs")


def test_same_campaign_writes_the_same_log_and_deletes_an_older_one(log: Path, spark: "SparkSession", tmp_path: Path) -> None:
    result = campaign.run(spark, 2 * RUNS, SEED, tmp_path)
    assert isinstance(result, CampaignResult)
    # A file for each partition of fifty runs or fewer.
    assert [file.name for file in sorted((tmp_path / "events").iterdir())] == [
        "seeds-00000000000000001000.parquet",
        "seeds-00000000000000001026.parquet",
    ]
    progress: list[int] = []
    result = campaign.run(spark, RUNS, SEED, tmp_path, progress.append)
    assert not result.failed
    assert result.distinct == len(result.rows) == RUNS
    assert progress == sorted(progress)
    assert progress[-1] == RUNS
    assert set(progress) <= {0, RUNS}  # one partition: none of it or all
    for part in ("events", "runs"):
        assert read(tmp_path, part) == read(log, part)
    assert (tmp_path / "campaign.json").read_bytes() == (log / "campaign.json").read_bytes()
    provenance = json.loads((log / "campaign.json").read_text(encoding="utf-8"))
    assert (provenance["schema_version"], provenance["seed"], provenance["runs"]) == (SCHEMA_VERSION, SEED, RUNS)


def test_analysis_reads_the_log(log: Path, spark: "SparkSession") -> None:
    """The numbers are those of the log, and no transition was seen that transitions.json does not have."""
    from rocketmq_ha.analysis import ingest, schema, tables

    found = tables.compute(spark, ingest.read_logs(spark, [log]), schema.load_possible())
    runs, events = read(log, "runs"), read(log, "events")
    counted = Counter((run["profile"], run["verdict"]) for run in runs)
    assert {(row["profile"], row["verdict"]): row["runs"] for row in found["summary"].to_pylist()} == counted
    assert found["transitions_impossible"].num_rows == 0
    assert found["divergences"].num_rows == 0
    seen = {(row["actor"], row["from_state"], row["event"], row["to_state"]) for row in events}
    listed = {(row["actor"], row["from_state"], row["event"], row["to_state"]) for row in found["transitions_seen"].to_pylist()}
    assert listed == seen
    exercised = {row["clause"]: row["n"] for row in found["clauses"].to_pylist() if row["n"]}
    assert exercised == Counter(clause for row in events for clause in row["clauses"])


def test_campaign_records_the_verdicts_of_a_faulty_implementation(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A divergence never raises. In a campaign with a planted fault every run has a row; failed runs have both values."""
    fault = faults.find("heartbeat-on-time")
    out = tmp_path / "log"
    arguments = ["run", "--runs", str(RUNS), "--seed", str(SEED), "--out", str(out), "--master", "local[2]"]
    status = faults.run_with(fault, tmp_path, arguments)
    runs = read(out, "runs")
    assert len(runs) == RUNS
    failed = [run for run in runs if run["verdict"] != VERDICT_OK]
    assert failed
    assert status == 1
    events = read(out, "events")
    for run in failed:
        steps = [row for row in events if row["run_id"] == run["run_id"]]
        assert len(steps) == run["n_steps"]
        assert run["signature"].count("/") >= 2
        assert run["detail"]
        assert run["failing_op"] == run["n_ops"] - 1
        if steps[-1]["op_index"] == run["failing_op"]:
            assert steps[-1]["verdict"] == run["verdict"]
    assert [run["run_id"] for run in runs] == list(range(SEED, SEED + RUNS))
    # The command names the first five, and sums up.
    printed = capfd.readouterr()
    told = [line for line in printed.err.splitlines() if "fuzz replay" in line]
    assert told == [f"{run['verdict']}: {run['signature']}: rocketmq-ha fuzz replay {run['run_id']}" for run in failed[:5]]
    summary = (
        f"log={out} schedules={RUNS} distinct={RUNS} operations={sum(run['n_ops'] for run in runs)} "
        f"steps={len(events)} failed={len(failed)} seconds="
    )
    assert printed.out.splitlines()[-1].startswith(summary)
