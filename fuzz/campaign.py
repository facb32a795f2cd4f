"""A fuzz campaign on Spark: many seeds in lock-step; executors write the event logs, and return one verdict row for each run.

A run never raises: a divergence becomes a row, because an exception would lose the results of all other runs. Partitions are
small and many, so that progress is visible. `local[*]` by default; on a cluster, `out` must be a directory that all machines
share.
"""

import json
import platform
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from rocketmq_ha.fuzz import lockstep, recorder
from rocketmq_ha.fuzz.recorder import EventRecorder
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.spec.event_log import (
    CAMPAIGN_FILE,
    EVENTS_DIR,
    PHASE_GENERATE,
    RUNS_DIR,
    SCHEMA_VERSION,
    VERDICT_OK,
)

RUNS_PER_PARTITION: Final = 50  # one or two seconds of work: often enough for a progress bar, not too often for Spark
POLL_S: Final = 0.2

_VERDICT_DDL: Final = ", ".join(
    f"{field.name} {str(field.type).replace('int64', 'bigint').replace('int32', 'int')}" for field in recorder.RUN_SCHEMA
)


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """The summary of a campaign; its log has the rest."""

    rows: tuple[dict[str, Any], ...]  # of runs, in order of their seeds
    seconds: float

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["verdict"] != VERDICT_OK]

    @property
    def distinct(self) -> int:
        """The number of distinct schedules."""
        return len({row["digest"] for row in self.rows})


def run(
    spark: SparkSession, runs: int, seed: int, out: Path, progress: Callable[[int], None] = lambda _: None
) -> CampaignResult:
    """Run the schedules of seeds `seed` to `seed + runs - 1` and write their log into `out`, after removing an older log there.

    Args: progress: called with the number of finished runs.
    """
    import time  # the campaign's own duration; no schedule ever sees a clock

    started = time.monotonic()
    for stale in (EVENTS_DIR, RUNS_DIR):
        shutil.rmtree(out / stale, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    partitions = -(-runs // RUNS_PER_PARTITION)
    seeds = spark.range(seed, seed + runs, 1, partitions)
    verdicts = seeds.mapInArrow(_runner(str(out.resolve())), _VERDICT_DDL)
    collected: list[pa.Table] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            collected.append(verdicts.toArrow())
        except BaseException as error:  # carried over to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=work, name="campaign")
    thread.start()
    while thread.is_alive():
        thread.join(POLL_S)
        progress(min(runs, _finished_tasks(spark) * RUNS_PER_PARTITION))
    if failure:
        raise failure[0]
    progress(runs)
    rows = sorted(collected[0].to_pylist(), key=lambda row: int(row["run_id"]))
    recorder.write_runs(rows, out)
    (out / CAMPAIGN_FILE).write_text(json.dumps(_provenance(runs, seed), indent=1) + "\n", encoding="utf-8")
    return CampaignResult(tuple(rows), time.monotonic() - started)


def _runner(out: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that an executor applies to its seeds."""

    def run_seeds(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            events, rows = EventRecorder(), []
            run_ids = batch.column(0).to_pylist()
            for run_id in run_ids:
                outcome = lockstep.run(registry.draw(run_id))
                rows.append(recorder.run_row(outcome, PHASE_GENERATE, events.add(outcome)))
            if run_ids:
                # Named by its seeds: an attempt that Spark repeats writes the same file again.
                events.write(Path(out), f"seeds-{run_ids[0]:020d}")
                yield pa.RecordBatch.from_pylist(rows, recorder.RUN_SCHEMA)

    return run_seeds


def _finished_tasks(spark: SparkSession) -> int:
    tracker = spark.sparkContext.statusTracker()
    stages = (tracker.getStageInfo(stage) for job in _jobs(tracker) for stage in job.stageIds)
    return sum(stage.numCompletedTasks for stage in stages if stage)


def _jobs(tracker: Any) -> list[Any]:
    return [job for job in map(tracker.getJobInfo, tracker.getActiveJobsIds()) if job]


def _provenance(runs: int, seed: int) -> dict[str, object]:
    """Everything needed to repeat the campaign. Without time and host, so that the same campaign writes the same log."""
    packages = ("rocketmq-ha", "pyspark", "pyarrow")
    return {
        "schema_version": SCHEMA_VERSION,
        "seed": seed,
        "runs": runs,
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in packages},
    }
