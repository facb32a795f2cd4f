"""The second verdict on Spark: each run's rows come together in one shuffle, and Python judges chunks of whole runs.

The rows of events and those of runs are one frame (columns.RUN_AS_EVENT), so that a run needs no join: repartition by run,
sort within the partition, and mapInArrow over what comes.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.second_verdict import monitor, rerun
from rocketmq_ha.fuzz.second_verdict.columns import CHUNK_SCHEMA, HEADER, HEADER_STEP, RUN_AS_EVENT
from rocketmq_ha.fuzz.second_verdict.log_files import LogFiles
from rocketmq_ha.spec.event_log import ADDED, EVENT_COLUMNS, RUN_COLUMNS, VERDICT_OK

# 10,000 rows a batch, Spark's default, cost a fifth more.
SESSION_SETTINGS: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": "50000"}
CHUNK_ROWS: Final = 60_000  # that are judged at once: more fit no cache, fewer pay for the calls
ROWS_PER_PARTITION: Final = 400_000
SHARES: Final = 1_000_000  # of which `share` takes some
POLL_S: Final = 0.2

VIOLATION: Final = "violation"
_RUN, _RULE = "run", "rule"
# A row for each run, and for each task one for each rule: n_rows is how often its premise was reached.
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
_SPARK_TYPES: Final[dict[str, T.DataType]] = {
    "int32": T.IntegerType(),
    "int64": T.LongType(),
    "string": T.StringType(),
    "list<string>": T.ArrayType(T.StringType()),
}


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
    logs: Sequence[LogFiles],
    *,
    share: float = 0.0,
    out: Path | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> SecondVerdict:
    """Judge all runs of the logs by their rows, and a share of them by the model too. Each log is judged by itself.

    Args: out: gets runs/ and rules/, two tables as Parquet. progress: called with the number of rows done.
    Raises: FuzzError where a file's pages cannot be read.
    """
    started = time.monotonic()
    n_rows = sum(log.n_events + log.n_runs for log in logs)
    rows = reduce(DataFrame.unionByName, (of_log(spark, log, number) for number, log in enumerate(logs)))
    checked = _by_run(spark, rows, n_rows).mapInArrow(check_rows, RESULT_DDL)
    if share:
        folders = tuple(str(log.path.resolve()) for log in logs)
        chosen = rows.where(sf.pmod(sf.xxhash64("run_id"), sf.lit(SHARES)) < int(share * SHARES))
        again = _by_run(spark, chosen, int(share * n_rows), RERUN_ROWS_PER_PARTITION)
        checked = checked.unionByName(again.mapInArrow(_rerunner(folders), RESULT_DDL))
    results = checked.persist(StorageLevel.DISK_ONLY)
    try:
        found = _collect(spark, results, n_rows, progress)
        if out is not None:
            _write(results, out)
    finally:
        results.unpersist()
    known = [log for log in logs if log.n_runs]
    found.profiles, found.worlds = _profiles_and_worlds(spark, known)
    found.seconds = time.monotonic() - started
    return found


def of_log(spark: SparkSession, log: LogFiles, number: int) -> DataFrame:
    """CHUNK_SCHEMA of a log, in no order."""
    events = _read(spark, log.events, EVENT_COLUMNS, log.lacking)
    runs = _read(spark, log.runs, RUN_COLUMNS, log.lacking - {"observed"})
    as_event = {name: sf.col(column) for name, column in RUN_AS_EVENT.items()} | {
        "run_id": sf.col("run_id"),
        "step": sf.lit(HEADER_STEP),
        "actor": sf.lit(HEADER),
        "split_at": sf.lit(0),
        # Where the log has no column `observed`, an empty text.
        "clauses": sf.array(sf.coalesce("recipe", sf.lit("")), sf.coalesce(sf.col("observed").cast("string"), sf.lit(""))),
    }
    names = [name for name in CHUNK_SCHEMA.names if name != "log"]
    headers = runs.select(*(as_event[name].alias(name) for name in names))
    return events.select(*names).unionByName(headers).select(sf.lit(number).alias("log"), "*")


def _read(
    spark: SparkSession, files: Sequence[Path], columns: Sequence[tuple[str, str, str]], lacking: frozenset[str]
) -> DataFrame:
    schema = T.StructType([T.StructField(name, _SPARK_TYPES[kind]) for name, kind, _ in columns])
    frame = spark.read.schema(schema).parquet(*map(_literal, files))
    defaults: dict[str, Any] = {name: value for name, value in ADDED.items() if name in lacking and name in frame.columns}
    return frame.fillna(defaults) if defaults else frame


def _literal(file: Path) -> str:
    """Escape brackets, stars and the like, because Spark reads paths as patterns."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", str(file.absolute()))


RERUN_ROWS_PER_PARTITION: Final = 5_000  # some seconds of the model


def _by_run(spark: SparkSession, rows: DataFrame, n_rows: int, a_partition: int = ROWS_PER_PARTITION) -> DataFrame:
    """All rows of a run in one partition, in order."""
    cores = spark.sparkContext.defaultParallelism
    partitions = max(cores, -(-n_rows // a_partition))
    return rows.repartition(partitions, "log", "run_id").sortWithinPartitions("log", "run_id", "step")


def check_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Judge a partition: the rows of a run come together, but not in one batch."""
    premises: dict[str, int] = {}
    broken: dict[str, int] = {}
    for chunk in whole_runs(batches, CHUNK_ROWS):
        judgement = monitor.judge(chunk)
        for counts, more in ((premises, judgement.premises), (broken, judgement.broken)):
            for rule, n in more.items():
                counts[rule] = counts.get(rule, 0) + n
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
    yield from _counts(premises, broken)


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
    none = {"kind": _RULE, "log": None, "run_id": None, "verdict": "", "step": None, "detail": ""}
    rows = [none | {"rule": rule, "n_rows": n, "n_violations": broken.get(rule, 0)} for rule, n in premises.items()]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, _RESULT)


def _rerunner(folders: tuple[str, ...]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function with which an executor re-runs its runs. folders: of the logs, which all machines share."""

    def rerun_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        premises: dict[str, int] = {}
        broken: dict[str, int] = {}
        for chunk in whole_runs(batches, RERUN_ROWS_PER_PARTITION):
            found = []
            for log, run, logged in rerun.runs_of(chunk):
                result = rerun.rerun(run, logged, rerun.kept_schedules(folders))
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

    return rerun_rows


_RERUN: Final = "rerun"


def _collect(spark: SparkSession, results: DataFrame, n_rows: int, progress: Callable[[int], None]) -> SecondVerdict:
    grouped = results.groupBy("kind", "rule").agg(
        sf.count("*").alias("n"),
        sf.sum("n_rows").alias("n_rows"),
        sf.sum("n_violations").alias("n_violations"),
        sf.count_if(sf.col("verdict") == VIOLATION).alias("wrong"),
    )
    found = SecondVerdict()
    for row in _while_showing(spark, grouped.collect, n_rows, progress):
        if row.kind == _RULE:
            if row.rule == rerun.NO_SCHEDULE:
                found.not_rerun = row.n_rows
            else:
                found.premises[row.rule], found.broken[row.rule] = row.n_rows, row.n_violations
        elif row.kind == _RUN:
            found.runs, found.rows = found.runs + row.n, found.rows + row.n_rows
        else:
            found.rerun += row.n
    wrong = results.where(sf.col("verdict") == VIOLATION)
    found.wrong = wrong.select("log", "run_id").distinct().count()
    if found.wrong:
        rows = wrong.orderBy("log", "run_id", sf.desc("kind")).limit(EXAMPLES).collect()
        found.examples = [row.asDict() for row in rows]
    return found


def _profiles_and_worlds(spark: SparkSession, logs: Sequence[LogFiles]) -> tuple[frozenset[str], frozenset[str]]:
    frames = (_read(spark, log.runs, RUN_COLUMNS, log.lacking).select("profile", "world") for log in logs)
    rows = reduce(DataFrame.unionByName, frames).distinct().collect()
    return frozenset(row.profile for row in rows), frozenset(row.world for row in rows)


def _write(results: DataFrame, out: Path) -> None:
    """Write runs/ and rules/: a row a run and check, and a row a rule."""
    runs = results.where(sf.col("kind") != _RULE).withColumnRenamed("kind", "check")
    runs.write.mode("overwrite").parquet(str((out / "runs").absolute()))
    rules = results.where(sf.col("kind") == _RULE).groupBy("rule")
    rules.agg(sf.sum("n_rows").alias("premises"), sf.sum("n_violations").alias("violations")).orderBy("rule").coalesce(
        1
    ).write.mode("overwrite").parquet(str((out / "rules").absolute()))


def _while_showing(
    spark: SparkSession, work: Callable[[], list[Any]], n_rows: int, progress: Callable[[int], None]
) -> list[Any]:
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
        progress(int(n_rows * _share_of_tasks(spark)))
    if failure:
        raise _readable(failure[0])
    progress(n_rows)
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


def _readable(error: BaseException) -> BaseException:
    """FuzzError for Spark's error about pages that it cannot read, whose class says nothing; the others as they are."""
    text = str(error)
    found = re.search(r"FAILED_READ_FILE.*? reading file (?:file:/*)?(/.*?)\.\s+SQLSTATE", text)
    return FuzzError(f"{found[1]}: found pages that cannot be read, expected a sound Parquet file") if found else error
