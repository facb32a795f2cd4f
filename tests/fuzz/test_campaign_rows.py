"""What an executor of a campaign does with its seeds, without Spark: files, rows and figures."""

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
        assert row["digest"] == recorder.digest(outcome)
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
    assert (found["schema_version"], found["seed"], found["runs"]) == (1, 9, 60)
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
