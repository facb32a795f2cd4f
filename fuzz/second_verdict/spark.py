"""The second verdict on Spark: each task reads the files of some units, whose runs are whole, and judges them chunk by chunk.

No row leaves its task, since all rows of a run are in the files of one unit; what comes back is a row for each run. What does
not work as well: to let Spark read the files and bring the rows of a run together in a shuffle. It took as much time as the
rules, and no object store without Hadoop's libraries.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession

from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.part_files import DamagedError, empty, read_file
from rocketmq_ha.analysis.published import shared
from rocketmq_ha.analysis.schema import WITHOUT_MANIFESTS
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.second_verdict import chunk, monitor, output, rerun
from rocketmq_ha.fuzz.second_verdict.log_files import Log, Unit, weight_of
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, RUN_COLUMNS, VERDICT_OK

CHUNK_ROWS: Final = 60_000  # that are judged at once: more fit no cache, fewer pay for the calls
TASKS_PER_CORE: Final = 4
SHARES: Final = 1_000_000  # of which `share` takes some
MIXER: Final = 0x9E3779B97F4A7C15  # odd, 2^64 divided by the golden ratio: neighbours get unlike products
POLL_S: Final = 0.2

VIOLATION: Final = "violation"
# A row for each run and check; for each chunk one for each rule, where n_rows is how often its premise was reached, and one for
# each world (in rule) and profile (in verdict); and one for each unit that cannot be read.
_RUN, _RERUN, _RULE, _ABOUT, _DAMAGE = "run", "rerun", "rule", "about", "damage"
RESULT_DDL: Final = (
    "kind string, log int, run_id bigint, verdict string, rule string, step int, detail string, "
    "n_rows bigint, n_violations bigint"
)
_RESULT: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("log", pa.int32()),
        ("run_id", pa.int64()),
        ("verdict", pa.string()),
        ("rule", pa.string()),
        ("step", pa.int32()),
        ("detail", pa.string()),
        ("n_rows", pa.int64()),
        ("n_violations", pa.int64()),
    ]
)


@dataclass(slots=True)
class SecondVerdict:
    """The result of both checks."""

    runs: int = 0  # that the row check judged
    rows: int = 0
    rerun: int = 0  # runs that the model has gone through again
    not_rerun: int = 0  # runs of the share whose schedule the logs do not hold
    wrong: int = 0  # runs with a violation of either check
    premises: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)  # of runs with a violation: a few, by log and run
    profiles: frozenset[str] = frozenset()  # of the runs
    worlds: frozenset[str] = frozenset()
    seconds: float = 0.0


EXAMPLES: Final = 20


def judge(
    spark: SparkSession,
    logs: Sequence[Log],
    *,
    share: float = 0.0,
    out: Path | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> SecondVerdict:
    """Judge all runs of the logs by their rows, and a share of them by the model too. Each log is judged by itself.

    Args: out: gets runs/ and rules/, two tables as Parquet. progress: called with the part of the tasks that is done, 0 to 1.
    Raises: FuzzError for a file that cannot be read, or for one in the place of a table that no second verdict has made;
        OSError, where the tables, or what Spark keeps in between, cannot be written.
    """
    started = time.monotonic()
    spark.sparkContext.setLogLevel("OFF")  # what ends a task comes here as an exception
    scratch = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    units = [unit for log in logs for unit in log.units]
    tasks = shared(units, [*map(weight_of, units)], TASKS_PER_CORE * spark.sparkContext.defaultParallelism)
    places, shown = tuple(log.place for log in logs), tuple(log.shown for log in logs)

    def judge_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for unit in sorted(tasks[number], key=weight_of):
                    yield from judge_unit(unit, places, shown, share)

    results = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(judge_tasks, RESULT_DDL).persist(StorageLevel.DISK_ONLY)
    try:
        with output.naming(scratch):
            found = _collect(spark, results, progress)
        if out is not None:
            _write(results, out)
    finally:
        results.unpersist()
    found.seconds = time.monotonic() - started
    return found


def judge_unit(unit: Unit, places: tuple[str, ...], shown: tuple[str, ...], share: float) -> Iterator[pa.RecordBatch]:
    """The results of both checks of a unit's runs, as _RESULT."""
    try:
        table = table_of(unit, shown)
    except FuzzError as error:
        yield pa.RecordBatch.from_pylist([{"kind": _DAMAGE, "verdict": "", "rule": "", "detail": error.message}], _RESULT)
        return
    for part in whole_runs(iter(table.to_batches(max_chunksize=CHUNK_ROWS)), CHUNK_ROWS):
        yield from check_rows(part)
        if share:
            chosen = part.filter(pa.array(is_chosen(part.column("run_id").to_numpy(), share)))
            yield from rerun_rows(chosen, places)


def table_of(unit: Unit, shown: Sequence[str]) -> pa.Table:
    """The rows of a unit as CHUNK_SCHEMA. Raises: FuzzError, for a file that cannot be read."""
    first = unit[0]
    files = LogFiles.at(first.place)

    def read(name: str, columns: Sequence[tuple[str, str, str]]) -> pa.Table:
        try:
            return read_file(files, name, columns, first.version)
        except DamagedError as error:
            raise FuzzError(f"{shown[first.log]}/{name}: found {error}, expected a sound Parquet file") from error

    events = pa.concat_tables([read(part.events, EVENT_COLUMNS) for part in unit] or [empty(EVENT_COLUMNS)])
    runs = pa.concat_tables([read(name, RUN_COLUMNS) for name in dict.fromkeys(name for part in unit for name in part.runs)])
    return chunk.of_tables(events, runs, first.log, has_observed=first.version != WITHOUT_MANIFESTS)


def is_chosen(run_id: Any, share: float) -> Any:
    """For each run_id whether it is in the share: by a hash, so that it is the same runs in every log."""
    return (run_id.astype(np.uint64) * np.uint64(MIXER) >> np.uint64(32)) % SHARES < int(share * SHARES)


def check_rows(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Judge whole runs by their rows."""
    judgement = monitor.judge(table)
    firsts = [run.first for run in judgement.runs]
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([_RUN] * len(firsts)),
            pa.array([run.log for run in judgement.runs], pa.int32()),
            pa.array([run.run_id for run in judgement.runs], pa.int64()),
            pa.array([VIOLATION if first else VERDICT_OK for first in firsts]),
            pa.array([first.rule if first else "" for first in firsts]),
            pa.array([first.step if first else -1 for first in firsts], pa.int32()),
            pa.array([first.detail if first else "" for first in firsts]),
            pa.array([run.rows for run in judgement.runs], pa.int64()),
            pa.array([run.violations for run in judgement.runs], pa.int64()),
        ],
        schema=_RESULT,
    )
    yield from _counts(judgement.premises, judgement.broken)
    abouts = chunk.worlds_and_profiles(table)
    yield pa.RecordBatch.from_pylist(
        [{"kind": _ABOUT, "rule": world, "verdict": profile, "detail": ""} for world, profile in abouts], _RESULT
    )


def whole_runs(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Tables of whole runs of some `size` rows, from batches that may end within a run."""
    held: list[pa.RecordBatch] = []
    n = 0
    for batch in batches:
        held.append(batch)
        n += len(batch)
        if n < size:
            continue
        table = pa.Table.from_batches(held).combine_chunks()
        log, run_id = (table.column(name).to_numpy() for name in ("log", "run_id"))
        # The last run may go on in the next batch.
        last = int(((log == log[-1]) & (run_id == run_id[-1])).argmax())
        if last:
            yield table.slice(0, last)
        held = table.slice(last).to_batches()
        n = len(table) - last
    if n:
        yield pa.Table.from_batches(held).combine_chunks()


def _counts(premises: dict[str, int], broken: dict[str, int]) -> Iterator[pa.RecordBatch]:
    none = {"kind": _RULE, "verdict": "", "detail": ""}
    rows = [none | {"rule": rule, "n_rows": n, "n_violations": broken.get(rule, 0)} for rule, n in premises.items()]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, _RESULT)


def rerun_rows(table: pa.Table, places: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Let the model go through whole runs again. places: of the logs, which hold schedules."""
    premises: dict[str, int] = {}
    broken: dict[str, int] = {}
    found = []
    for log, run, logged in rerun.runs_of(table):
        result = rerun.rerun(run, logged, rerun.kept_schedules(places))
        if result is None:
            premises[rerun.NO_SCHEDULE] = premises.get(rerun.NO_SCHEDULE, 0) + 1
            continue
        for rule in result.reached:
            premises[rule] = premises.get(rule, 0) + 1
        row = {"kind": _RERUN, "log": log, "run_id": run["run_id"], "verdict": VIOLATION if result.rule else VERDICT_OK}
        row |= {"rule": result.rule, "step": result.step, "detail": result.detail, "n_rows": len(logged)}
        found.append(row | {"n_violations": int(bool(result.rule))})
        if result.rule:
            broken[result.rule] = broken.get(result.rule, 0) + 1
    if found:
        yield pa.RecordBatch.from_pylist(found, _RESULT)
    yield from _counts(premises, broken)


def _collect(spark: SparkSession, results: DataFrame, progress: Callable[[float], None]) -> SecondVerdict:
    of_rules = sf.col("kind").isin(_RULE, _ABOUT)
    grouped = results.groupBy("kind", sf.when(of_rules, sf.col("rule")).alias("rule"), _if_about("verdict")).agg(
        sf.count("*").alias("n"),
        sf.sum("n_rows").alias("n_rows"),
        sf.sum("n_violations").alias("n_violations"),
        sf.min("detail").alias("detail"),
    )
    found = SecondVerdict()
    for row in _while_showing(spark, grouped.collect, progress):
        if row.kind == _DAMAGE:
            raise FuzzError(row.detail)
        if row.kind == _ABOUT:
            found.worlds |= {row.rule}
            found.profiles |= {row.about}
        elif row.kind == _RUN:
            found.runs, found.rows = found.runs + row.n, found.rows + row.n_rows
        elif row.kind == _RERUN:
            found.rerun += row.n
        elif row.rule == rerun.NO_SCHEDULE:
            found.not_rerun = row.n_rows
        else:
            found.premises[row.rule], found.broken[row.rule] = row.n_rows, row.n_violations
    wrong = results.where(sf.col("verdict") == VIOLATION)
    found.wrong = wrong.select("log", "run_id").distinct().count()
    if found.wrong:
        rows = wrong.orderBy("log", "run_id", sf.desc("kind")).limit(EXAMPLES).collect()
        found.examples = [row.asDict() for row in rows]
    return found


def _if_about(name: str) -> Column:
    return sf.when(sf.col("kind") == _ABOUT, sf.col(name)).alias("about")


def _write(results: DataFrame, out: Path) -> None:
    """Write runs/ and rules/: a row a run and check, and a row a rule."""
    runs = results.where(sf.col("kind").isin(_RUN, _RERUN)).withColumnRenamed("kind", "check")
    of_rules = results.where(sf.col("kind") == _RULE).groupBy("rule")
    rules = of_rules.agg(sf.sum("n_rows").alias("premises"), sf.sum("n_violations").alias("violations")).orderBy("rule")
    with output.replacing(out.absolute()) as folder:
        try:
            _write_table(runs, folder / output.RUNS)
            _write_table(rules.coalesce(1), folder / output.RULES)
        except BaseException:
            results.sparkSession.sparkContext.cancelAllJobs()  # no task makes a file in a folder that is being deleted
            raise


def _write_table(table: DataFrame, folder: Path) -> None:
    table.write.parquet(str(folder))


def _while_showing(spark: SparkSession, work: Callable[[], list[Any]], progress: Callable[[float], None]) -> list[Any]:
    """Call `work` in a thread, and show how far its tasks are."""
    done: list[list[Any]] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # carried over to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="second-verdict")
    thread.start()
    while thread.is_alive():
        thread.join(POLL_S)
        progress(_share_of_tasks(spark))
    if failure:
        raise failure[0]
    progress(1.0)
    return done[0]


def _share_of_tasks(spark: SparkSession) -> float:
    """Which part of the tasks of the running jobs has ended; 0 without a job."""
    tracker: Any = spark.sparkContext.statusTracker()
    stages = [
        tracker.getStageInfo(stage)
        for job in tracker.getActiveJobsIds()
        if (info := tracker.getJobInfo(job))
        for stage in info.stageIds
    ]
    tasks = sum(stage.numTasks for stage in stages if stage)
    return sum(stage.numCompletedTasks for stage in stages if stage) / tasks if tasks else 0.0
