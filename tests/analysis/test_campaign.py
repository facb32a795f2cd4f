"""A campaign on Spark writes the log that spec/event_log.py describes: the same log every time, with every run's verdict."""

import json
import logging
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.children import Child
from rocketmq_ha.fuzz import campaign, faults, lockstep, recorder
from rocketmq_ha.fuzz.campaign import Plan
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.limits import Limits
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.progress import LogProgress
from rocketmq_ha.fuzz.recorder import EventRecorder
from rocketmq_ha.fuzz.runner import Task
from rocketmq_ha.fuzz.second_verdict.rules import SETS_THE_CLOCK_BACK
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, PHASE_GENERATE, RUN_COLUMNS, SCHEMA_VERSION, VERDICT_OK, VERDICTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

SEED, RUNS = 1000, 26
TYPES = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string()}


def read(log: Path, part: str) -> list[dict[str, Any]]:
    """Return all rows of a part of a log, in the order of runs and steps: of the files that its manifests name, each once."""
    manifests = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((log / "manifest").glob("*.json"))]
    files = [log / part / manifest[part] for manifest in manifests]
    assert len(set(files)) == len(files)
    rows: list[dict[str, Any]] = pa.concat_tables(map(pq.read_table, files)).to_pylist()
    return sorted(rows, key=lambda row: (row["run_id"], row.get("step", 0)))


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without the only column that is not the same everywhere."""
    return [row | {"elapsed_us": 0} for row in rows]


@pytest.fixture(scope="module")
def log(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("campaign")
    campaign.run(spark, Plan(SEED, RUNS), str(path))
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
        if run["world"] not in SETS_THE_CLOCK_BACK:
            assert [row["ts_ns"] for row in steps] == sorted(row["ts_ns"] for row in steps)
        assert {row["verdict"] for row in steps} <= {*VERDICTS}
        assert run["verdict"] == VERDICT_OK, run["detail"]
        assert (run["failing_op"], run["signature"], run["detail"]) == (-1, "", "")


def test_rows_are_those_of_one_process_for_the_same_seeds(log: Path) -> None:
    """Spark distributes the work, but does not affect the result."""
    events, rows = EventRecorder(), []
    for seed in range(SEED, SEED + RUNS):
        outcome = lockstep.run(registry.draw(seed))
        rows.append(recorder.run_row(outcome, PHASE_GENERATE, events.add(outcome)))
    assert events.table().to_pylist() == read(log, "events")
    assert untimed(rows) == untimed(read(log, "runs"))
    assert all(row["elapsed_us"] > 0 for row in read(log, "runs"))


def test_same_campaign_writes_the_same_log_and_deletes_an_older_one(log: Path, spark: "SparkSession", tmp_path: Path) -> None:
    result = campaign.run(spark, Plan(SEED + 500, 5, runs_per_partition=2), str(tmp_path))
    assert (result.runs, len(list((tmp_path / "manifest").iterdir()))) == (5, 3)
    told: list[LogProgress] = []
    result = campaign.run(spark, Plan(SEED, RUNS, runs_per_partition=9), str(tmp_path), told.append)
    assert (result.n_failed, result.failed, result.resumed) == (0, (), 0)
    assert result.distinct == result.runs == RUNS
    assert [now.runs for now in told] == sorted(now.runs for now in told)
    assert told[-1] == LogProgress(RUNS, result.steps, 0, RUNS)
    assert len(list((tmp_path / "manifest").iterdir())) == 3
    assert not list((tmp_path / "started").iterdir())
    assert read(tmp_path, "events") == read(log, "events")
    assert untimed(read(tmp_path, "runs")) == untimed(read(log, "runs"))
    assert result.operations == sum(row["n_ops"] for row in read(log, "runs"))
    settings = json.loads((tmp_path / "campaign.json").read_text(encoding="utf-8"))
    assert (settings["schema_version"], settings["seed"], settings["runs"], settings["finished"]) == (
        SCHEMA_VERSION,
        SEED,
        RUNS,
        True,
    )
    assert settings["made"] == RUNS
    assert not campaign.has_other_code(str(tmp_path))
    (tmp_path / "campaign.json").write_text(json.dumps(settings | {"code": "another"}))
    assert campaign.has_other_code(str(tmp_path))


# --- A campaign that ends early, and goes on ------------------------------------------------------------------------------

WAIT_S = 240.0


def started(out: Path, *arguments: str, env: Mapping[str, str] = os.environ) -> Child:
    """A campaign in a process of its own, with its children in its group. What it prints goes to files."""
    command = [sys.executable, "-m", "rocketmq_ha.fuzz", "run", "--out", str(out), "--world", "link", *arguments]
    with printed_file(out).open("w") as stdout, told_file(out).open("w") as stderr:
        return Child(command, limit_s=WAIT_S, stdout=stdout, stderr=stderr, start_new_session=True, env=dict(env))


def printed_file(out: Path) -> Path:
    return out.with_name("printed")


def told_file(out: Path) -> Path:
    return out.with_name("told")


def published(out: Path) -> int:
    return len(list((out / "manifest").glob("*.json")))


def await_partitions(out: Path, number: int, process: Child) -> None:
    """Wait until a campaign has published so many partitions. Spark alone may take a minute to start on a busy machine."""
    until = time.monotonic() + WAIT_S
    while published(out) < number:
        assert process.poll() is None, told_file(out).read_text()
        assert time.monotonic() < until, f"{published(out)} of {number} partitions in {WAIT_S} s"
        time.sleep(0.05)


def test_a_killed_campaign_goes_on_and_counts_no_run_twice(tmp_path: Path) -> None:
    out = tmp_path / "log"
    runs = 120
    killed = started(out, "--runs", str(runs), "--seed", "3", "--partition-runs", "4")
    try:
        await_partitions(out, 3, killed)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(WAIT_S)
    before = published(out)
    assert 3 <= before < runs // 4
    refused = started(out, "--runs", str(runs))
    assert refused.wait(WAIT_S) == 2
    told = re.search(rf"has not ended \((\d+) of {runs} runs\)", told_file(out).read_text())
    assert told is not None
    assert 4 * before <= int(told[1]) < runs  # a worker that outlived its driver for a moment may have published
    ended = started(out, "--resume")
    assert ended.wait(WAIT_S) == 0, told_file(out).read_text()
    assert f" schedules={runs} distinct={runs} " in printed_file(out).read_text()
    rows = read(out, "runs")
    assert [row["run_id"] for row in rows] == list(range(3, 3 + runs))
    events = read(out, "events")
    assert len(events) == sum(row["n_steps"] for row in rows)
    assert len({(row["run_id"], row["step"]) for row in events}) == len(events)


def test_a_campaign_goes_on_with_the_limits_that_it_was_begun_with(tmp_path: Path) -> None:
    store, limits = LogStore(str(tmp_path)), Limits(2.5, 2_000_000_000)
    campaign._begun(store, Plan(SEED, 4, worlds=("link",), limits=limits, runs_per_partition=2))
    assert campaign._resumed(store, Plan()).limits == limits
    plan = json.loads((tmp_path / "campaign.json").read_text())["plan"]
    assert (plan["run_seconds"], plan["run_memory"]) == (2.5, 2_000_000_000)


def test_a_campaign_that_died_while_it_deleted_an_older_one_cannot_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifests that are left are those of the older one."""
    store = LogStore(str(tmp_path))
    plan = Plan(SEED, 4, worlds=("link",), runs_per_partition=2)
    campaign._begun(store, plan)
    store.write("manifest/part-00000000.json", b'{"n_runs": 2, "n_steps": 5, "n_failed": 0}')

    def dies(_store: LogStore, _name: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(LogStore, "delete", dies)
        with pytest.raises(KeyboardInterrupt):
            campaign._begun(store, plan)
    with pytest.raises(FuzzError, match=r"campaign\.json: plan: found nothing, expected the plan of a campaign that was begun"):
        campaign._resumed(store, Plan())
    with pytest.raises(FuzzError, match=r"has not ended \(2 runs\)"):
        campaign.check_free(store, overwrites=False)
    campaign._begun(store, plan)
    assert not (tmp_path / "manifest").exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_campaign_in_order(number: signal.Signals, status: int, tmp_path: Path) -> None:
    """No abort of Python at its end, and no traceback."""
    out = tmp_path / "log"
    command = [sys.executable, "-m", "rocketmq_ha.impl.cli", "fuzz", "run", "--out", str(out), "--world", "link"]
    with told_file(out).open("w") as told:
        child = Child(
            [*command, "--runs", "4000", "--partition-runs", "4"],
            limit_s=WAIT_S,
            stderr=told,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # who starts the tests may ignore it
        )
    await_partitions(out, 1, child)
    os.kill(child.pid, number)
    assert child.wait(WAIT_S) == status, told_file(out).read_text()
    text = told_file(out).read_text()
    assert f"stopped; rocketmq-ha fuzz run --resume --out {out} goes on" in text
    assert "Traceback" not in text
    assert "Fatal" not in text


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device", "x.parquet"), "[Errno 28] No space left on device: 'x.parquet'"),
        (FuzzError("corpus/link/x.json: found no JSON"), "corpus/link/x.json: found no JSON"),
    ],
    ids=["a full disk", "a bad file"],
)
def test_an_executors_error_that_a_user_can_cause_comes_as_it_is(
    error: Exception, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> None:
        raise error

    monkeypatch.setattr(campaign.runner, "run_partition", fails)
    logger = logging.getLogger("rocketmq_ha.impl")
    level = logger.level
    try:
        with pytest.raises(RuntimeError) as raised:
            list(campaign._partitions(any_task(tmp_path), [0])(iter([one_index()])))
    finally:
        logger.setLevel(level)  # an executor's process has no other use for the log
    text = f'  File "worker.py", line 1\nRuntimeError: {raised.value}\n\n\tat org.apache.spark'
    cause = campaign._cause(RuntimeError(text))
    assert (type(cause), str(cause)) == (type(error), told)


def test_an_executors_error_that_is_our_mistake_stays_what_it_is() -> None:
    error = ValueError("our own mistake")
    assert campaign._cause(error) is error


def any_task(place: Path) -> Task:
    return Task("c", str(place), SEED, 1, 1)


def one_index() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": [0]})


def test_a_finished_campaign_can_get_more_runs(spark: "SparkSession", tmp_path: Path) -> None:
    campaign.run(spark, Plan(SEED, 5, runs_per_partition=2, worlds=("link",)), str(tmp_path))
    result = campaign.run(spark, Plan(runs=9), str(tmp_path), resumes=True)
    assert (result.runs, result.resumed) == (9, 4)  # the partition of one run is made again, as one of two
    assert [row["run_id"] for row in read(tmp_path, "runs")] == list(range(SEED, SEED + 9))
    for plan, told in (
        (Plan(runs=8), "found a campaign of 9 runs, expected that many or more, not 8"),
        (Plan(seed=77), f"found a campaign with seed {SEED}, expected 77"),
        (Plan(seed=1), f"found a campaign with seed {SEED}, expected 1"),
        (Plan(is_guided=True), "found a campaign with guided no, expected yes"),
    ):
        with pytest.raises(FuzzError, match=told):
            campaign.run(spark, plan, str(tmp_path), resumes=True)
    assert len(read(tmp_path, "runs")) == 9


def test_a_campaign_for_a_time_ends_with_it(spark: "SparkSession", tmp_path: Path) -> None:
    for seconds in (3.0, 30.0, 120.0):  # Spark may take longer than the first to begin
        out = tmp_path / f"{seconds:g}"
        result = campaign.run(spark, Plan(seconds=seconds, runs_per_partition=2, worlds=("link",)), str(out))
        if result.runs:
            break
    assert result.runs > 0
    assert result.runs % 2 == 0
    assert sorted(row["run_id"] for row in read(out, "runs")) == list(range(1, 1 + result.runs))
    assert (json.loads((out / "campaign.json").read_text())["runs"], result.seconds < WAIT_S) == (None, True)


@pytest.mark.parametrize(("what", "verdict"), [("while True: pass", "timeout"), ("os.kill(os.getpid(), 9)", "crash")])
def test_a_run_that_hangs_or_kills_its_executor_is_a_row(what: str, verdict: str, tmp_path: Path) -> None:
    """Each other run of its partition is there, and passed."""
    folder = tmp_path / "first"
    folder.mkdir()
    # Every Python process of the campaign imports this, the executors' too.
    (folder / "sitecustomize.py").write_text(
        "import os\nimport rocketmq_ha.fuzz.lockstep as lockstep\nbegins = lockstep.run\n"
        f"def run(schedule, steps=None):\n    if schedule.seed == 11:\n        {what}\n    return begins(schedule, steps)\n"
        "lockstep.run = run\n"
    )
    out = tmp_path / "log"
    env = os.environ | {"PYTHONPATH": str(folder)}
    child = started(out, "--runs", "8", "--seed", "8", "--partition-runs", "8", "--run-seconds", "20", env=env)
    assert child.wait(WAIT_S) == 1, told_file(out).read_text()
    assert {row["run_id"]: row["verdict"] for row in read(out, "runs")} == dict.fromkeys(range(8, 16), "ok") | {11: verdict}
    assert " failed=1 " in printed_file(out).read_text()
    assert f"{verdict}: cluster/" in told_file(out).read_text()


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
    arguments = ["run", "--runs", str(RUNS), "--seed", str(SEED), "--out", str(out), "--master", "local[2]", "--world", "link"]
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
    shortest = sorted(failed, key=lambda run: (run["n_ops"], run["run_id"]))[:5]
    assert told == [
        f"{run['verdict']}: {run['signature']}: rocketmq-ha fuzz replay {run['run_id']} --world {run['world']}"
        for run in shortest
    ]
    summary = (
        f"log={out} schedules={RUNS} distinct={RUNS} operations={sum(run['n_ops'] for run in runs)} "
        f"steps={len(events)} failed={len(failed)} seconds="
    )
    assert printed.out.splitlines()[-1].startswith(summary)
