"""What an executor of a campaign does with its seeds, without Spark: files, rows and figures."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketmq_ha.fuzz import campaign, lockstep, recorder, schedule
from rocketmq_ha.fuzz.campaign import CampaignResult


def batches(*seeds: list[int]) -> Any:
    return iter(
        [pa.RecordBatch.from_pylist([{"id": seed} for seed in some], pa.schema([("id", pa.int64())])) for some in seeds]
    )


def test_each_batch_writes_one_file_named_by_its_first_seed_and_gives_a_row_for_each_seed(tmp_path: Path) -> None:
    found = list(campaign._runner(str(tmp_path))(batches([7, 8], [], [30])))
    assert [file.name for file in sorted((tmp_path / "events").iterdir())] == [
        "seeds-00000000000000000007.parquet",
        "seeds-00000000000000000030.parquet",
    ]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [batch.num_rows for batch in found] == [2, 1]
    assert [row["run_id"] for row in rows] == [7, 8, 30]
    events = [row for file in sorted((tmp_path / "events").iterdir()) for row in pq.read_table(file).to_pylist()]
    for row in rows:
        outcome = lockstep.run(schedule.draw(row["run_id"]))
        mine = [event for event in events if event["run_id"] == row["run_id"]]
        transitions = [transition for step in outcome.steps for transition in step.transitions]
        assert row["n_steps"] == len(mine) == len(transitions)
        assert row["phase"] == "generate"
        assert row["digest"] == recorder.digest(outcome.schedule)
        assert row["nbytes"] == sum(event["nbytes"] for event in mine if event["event"] in ("frames", "reports"))
        assert row["n_ops"] == len(outcome.schedule.events)


def row(run_id: int, verdict: str, digest: int) -> dict[str, Any]:
    return {"run_id": run_id, "verdict": verdict, "digest": digest}


def test_a_result_counts_failed_runs_and_distinct_schedules() -> None:
    rows = (row(1, "ok", 5), row(2, "error", 6), row(3, "divergence", 5), row(4, "invariant", 7), row(5, "ok", 5))
    result = CampaignResult(rows, 1.0)
    assert [one["run_id"] for one in result.failed] == [2, 3, 4]
    assert result.distinct == 3


def test_the_provenance_names_what_repeats_the_campaign() -> None:
    found = campaign._provenance(60, 9)
    assert list(found) == ["schema_version", "seed", "runs", "versions"]
    assert (found["schema_version"], found["seed"], found["runs"]) == (2, 9, 60)
    versions: Any = found["versions"]
    assert list(versions) == ["python", "rocketmq-ha", "pyspark", "pyarrow"]
    assert versions["pyarrow"] == pa.__version__


def tracker(jobs: dict[int, list[int]], stages: dict[int, int]) -> Any:
    """A status tracker of Spark: stages by job, finished tasks by stage. What it lacks it answers with None, as Spark does."""
    return SimpleNamespace(
        getActiveJobsIds=lambda: [*jobs, 99],
        getJobInfo=lambda job: SimpleNamespace(stageIds=jobs[job]) if job in jobs else None,
        getStageInfo=lambda stage: SimpleNamespace(numCompletedTasks=stages[stage]) if stage in stages else None,
    )


@pytest.mark.parametrize(
    ("jobs", "stages", "finished"),
    [({}, {}, 0), ({1: [3]}, {3: 4}, 4), ({1: [3, 5], 2: [7, 8]}, {3: 4, 7: 10, 8: 20}, 34)],
    ids=["no job", "one stage", "two jobs, one stage unknown"],
)
def test_finished_tasks_are_those_of_all_stages(jobs: dict[int, list[int]], stages: dict[int, int], finished: int) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker(jobs, stages)))
    assert campaign._finished_tasks(spark) == finished


class OneProcess:
    """What a campaign asks of Spark, done in this process: a range of seeds, mapped batch by batch."""

    def __init__(self, *seeds: list[int], error: BaseException | None = None) -> None:
        self.asked: tuple[object, ...] = ()
        self._seeds, self._error = seeds, error
        self.sparkContext = SimpleNamespace(statusTracker=lambda: tracker({1: [3]}, {3: 4}))

    def range(self, *arguments: object) -> "OneProcess":
        self.asked = arguments
        return self

    def mapInArrow(self, run_seeds: Any, _: str) -> "OneProcess":  # noqa: N802  (the library's name)
        self._run_seeds = run_seeds
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802
        if self._error is not None:
            raise self._error
        return pa.Table.from_batches(list(self._run_seeds(batches(*self._seeds))))


@pytest.mark.parametrize(("runs", "partitions"), [(1, 1), (50, 1), (51, 2), (100, 2), (101, 3)])
def test_a_campaign_asks_for_its_seeds_in_portions_of_fifty(runs: int, partitions: int, tmp_path: Path) -> None:
    spark: Any = OneProcess([7])
    campaign.run(spark, runs, 7, tmp_path)
    assert spark.asked == (7, 7 + runs, 1, partitions)


def test_a_campaign_writes_its_runs_in_order_and_deletes_what_an_older_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for part in ("events", "runs"):
        (tmp_path / "log" / part).mkdir(parents=True)
        (tmp_path / "log" / part / "old.parquet").write_text("old")
    (tmp_path / "log" / "notes").write_text("stay")
    spark: Any = OneProcess([9], [7, 8])
    told: list[int] = []
    result = campaign.run(spark, 3, 7, Path("log"), told.append)
    assert [row["run_id"] for row in result.rows] == [7, 8, 9]
    files = sorted(path.relative_to(tmp_path / "log").as_posix() for path in (tmp_path / "log").rglob("*") if path.is_file())
    assert [file for file in files if not file.startswith("runs/")] == [
        "campaign.json",
        "events/seeds-00000000000000000007.parquet",
        "events/seeds-00000000000000000009.parquet",
        "notes",
    ]
    (runs,) = (tmp_path / "log" / "runs").iterdir()
    rows = pq.read_table(runs).to_pylist()
    assert [row["run_id"] for row in rows] == [7, 8, 9]
    assert rows == list(result.rows)
    assert set(told) == {3}  # four tasks of fifty are more than the campaign has
    text = (tmp_path / "log" / "campaign.json").read_text()
    assert json.loads(text) == campaign._provenance(3, 7)
    assert text.endswith("}\n")


def test_a_campaign_that_fails_raises_its_error_and_writes_no_summary(tmp_path: Path) -> None:
    spark: Any = OneProcess(error=RuntimeError("no executors"))
    with pytest.raises(RuntimeError, match="no executors"):
        campaign.run(spark, 3, 7, tmp_path)
    assert not (tmp_path / "campaign.json").exists()
