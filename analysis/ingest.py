"""Read one or more logs: count what their events say, and put what cannot be right into quarantine.

A run is (log, run_id): the number of a run that nobody drew by a seed says nothing outside of its log. A drawn run is its world
and its seed, a guided one these and its schedule's digest. One that is in several logs counts once: from the first log in which
it failed, and from the first of all if it failed in none.

Two passes read the files, both with pyarrow in the executors. The first reads runs/, and finds the runs that are there more
than once. The second condenses events/ (counts.py). What a pass cannot read or believe becomes a row of quarantine, and the
rest counts. So damage never ends a report; only a log of which nothing is left is an error.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession

from rocketmq_ha.analysis import row_checks
from rocketmq_ha.analysis.count_rows import COUNTS_DDL, DAMAGE, RUN, batches_of, rows
from rocketmq_ha.analysis.counts import Source, condense
from rocketmq_ha.analysis.errors import LogInvalid
from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.part_files import DamagedError, empty, numbers, read_file
from rocketmq_ha.analysis.published import Damage, Part, published, shared
from rocketmq_ha.analysis.quarantine import QUARANTINE, quarantine
from rocketmq_ha.analysis.schema import RUNS, WITHOUT_MANIFESTS, check_log, load_possible
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, PHASE_GENERATE, PHASE_GUIDED, RUN_COLUMNS, VERDICT_OK, WORLD_HYPOTHESIS

CHUNK_ROWS: Final = 500_000  # of events that are condensed at once: some 200 MB at work
ROWS_PER_TASK: Final = 2_000_000
TASKS_PER_CORE: Final = 2

_RUN_ROWS_DDL: Final = "log int, source string, reason string, is_row boolean, " + ", ".join(
    f"{one.name} {one.dataType.simpleString()}" for one in RUNS
)


@dataclass(frozen=True, slots=True)
class Log:
    """The input of the tables. The caller closes it."""

    counts: DataFrame  # COUNTS
    runs: DataFrame  # log, RUN_COLUMNS: every sound row of runs/, each run once
    counted: DataFrame  # those of `runs` whose events count: the sample of the estimates
    all_runs: DataFrame  # log, run_id, n_steps, n: for each run of runs/, its rows there; before quarantine
    missing: int  # runs that the campaigns have made and their logs lack
    worlds: tuple[str, ...]  # those that are measured: the tables count what was not seen in these alone
    quarantine: DataFrame  # columns of quarantine.quarantine
    campaigns: tuple[dict[str, Any], ...]  # the campaign.json of each log, in the given order
    places: tuple[str, ...]  # of the logs
    parts: tuple[Part, ...]
    kept: tuple[DataFrame, ...]  # persisted

    def close(self) -> None:
        """Give back what is cached."""
        for frame in self.kept:
            frame.unpersist()


def read_logs(
    spark: SparkSession,
    paths: Sequence[Path | str],
    campaigns: Sequence[dict[str, Any]] | None = None,
    *,
    worlds: Sequence[str] | None = None,
    each_alone: bool = False,
) -> Log:
    """Read the logs as one campaign.

    Args: campaigns: the results of check_log for the paths, if the caller has already checked them.
          worlds: those that exist; by default those of the specification.
          each_alone: a run that is in several logs counts in each of them, for tables that have a row for each log.
    Raises: LogInvalid, for a place that is no log, and for logs of which nothing can be read.
    """
    checked = tuple(campaigns) if campaigns is not None else tuple(check_log(path) for path in paths)
    existing = tuple(worlds if worlds is not None else load_possible().worlds)
    known = frozenset(existing) | {WORLD_HYPOTHESIS}
    places = [LogFiles.at(path) for path in paths]
    found = [published(files, log, checked[log]["schema_version"]) for log, files in enumerate(places)]
    parts = tuple(part for one in found for part in one.parts)
    damages = [(log, damage) for log, one in enumerate(found) for damage in one.damages]
    shown = tuple(files.given.rstrip("/") for files in places)

    run_rows = _run_rows(spark, parts, shown, known).persist(StorageLevel.MEMORY_AND_DISK)
    sound = run_rows.where(sf.col("is_row") & (sf.col("reason") == "")).drop("is_row", "reason")
    left_out = LeftOut.of(sound, len(paths) > 1 and not each_alone)
    while True:
        counts = _counts(spark, parts, shown, known, left_out).persist(StorageLevel.MEMORY_AND_DISK)
        several = _in_several_files(counts)
        if not several:
            break
        counts.unpersist()
        damages += [
            (log, Damage(source, row_checks.SEVERAL_FILES, n, f"run {run_id}", 1)) for log, run_id, source, n in several
        ]
        left_out = left_out.also((log, run_id) for log, run_id, _, _ in several)
    runs = left_out.without_repeated(sound)
    per_world = sound.groupBy("log", "world").agg(sf.countDistinct("run_id").alias("n")).collect()
    counted = _counted(runs, counts, left_out).persist(StorageLevel.MEMORY_AND_DISK)
    listed = spark.createDataFrame([(log, d.source, d.reason, d.n, d.n_runs, d.example) for log, d in damages], QUARANTINE)
    log = Log(
        counts=counts,
        runs=runs.select("log", *RUNS.fieldNames()),
        counted=counted,
        all_runs=_all_runs(left_out.without_repeated_runs(sound)),
        missing=_missing(sound, counts, checked),
        worlds=_measured(per_world, checked, existing),
        quarantine=quarantine(run_rows, left_out.twice(sound), counts, _without_events(runs, counts, left_out), listed),
        campaigns=checked,
        places=shown,
        parts=parts,
        kept=(run_rows, counts, counted),
    )
    _check_that_something_is_left(log, paths)
    return log


def _check_that_something_is_left(log: Log, paths: Sequence[Path | str]) -> None:
    if log.runs.limit(1).count() or not (damages := log.quarantine.sort("log", "source", "reason").limit(1).collect()):
        return
    first = damages[0]
    log.close()
    raise LogInvalid(
        paths[first["log"]],
        f"nothing that can be read ({first['source']}: {first['reason']})",
        "a log with at least one sound run",
    )


# --- The pass over runs/ -----------------------------------------------------------------------------------------------------


def _run_rows(spark: SparkSession, parts: Sequence[Part], shown: tuple[str, ...], worlds: frozenset[str]) -> DataFrame:
    """Every row of runs/, with the reason why it is bad. A file that cannot be read has one row, with is_row false."""
    files = sorted({(part.log, part.place, part.version, name) for part in parts for name in part.runs})
    groups = shared(files, [1] * len(files), spark.sparkContext.defaultParallelism)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for log, place, version, name in groups[number]:
                    yield from batches_of(run_rows_of(log, place, version, name, shown[log], worlds))

    return _over(spark, len(groups)).mapInArrow(read, _RUN_ROWS_DDL)


def run_rows_of(log: int, place: str, version: int, name: str, shown: str, worlds: frozenset[str]) -> pa.Table:
    columns: dict[str, Any]
    try:
        found = row_checks.judge_runs(read_file(LogFiles.at(place), name, RUN_COLUMNS, version), worlds)
        n, reason = found.table.num_rows, pa.array(found.reason, pa.string())
        columns = {name: _plain(found.table[name]) for name in RUNS.fieldNames()}
    except DamagedError as error:
        n, reason = 1, pa.array([str(error)], pa.string())
        columns = {one.name: pa.nulls(1, _ARROW[one.dataType.simpleString()]) for one in RUNS}
    first = {
        "log": pa.repeat(pa.scalar(log, pa.int32()), n),
        "source": pa.repeat(f"{shown}/{name}", n),
        "reason": reason,
        "is_row": pa.repeat(columns["run_id"].null_count == 0, n),
    }
    return pa.table(first | columns)


_ARROW: Final = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64()}


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Runs whose events do not count, as far as the rows of runs/ and files show it."""

    repeated: frozenset[tuple[int, int]]  # (log, run_id) of drawn and guided runs that count from another log
    first_source: dict[tuple[int, int], str]  # of a run with several rows in a log: the file whose row counts
    several: frozenset[tuple[int, int]] = field(default_factory=frozenset)  # with rows in several files of events

    @classmethod
    def of(cls, sound: DataFrame, across: bool) -> "LeftOut":
        twice = sound.groupBy("log", "run_id").agg(sf.count("*").alias("n"), sf.min("source").alias("source"))
        first = {(row["log"], row["run_id"]): row["source"] for row in twice.where(sf.col("n") > 1).collect()}
        if not across:
            return cls(frozenset(), first)
        # A seed draws its schedule; another corpus makes another schedule of it.
        schedule = sf.when(sf.col("phase") == PHASE_GENERATE, 0).otherwise(sf.col("digest")).alias("schedule")
        is_told = (sf.col("phase") == PHASE_GUIDED) & (sf.col("digest") != 0)  # version 1 has no digests
        made = sound.where((sf.col("phase") == PHASE_GENERATE) | is_told)
        is_ok = (sf.col("verdict") == VERDICT_OK).alias("is_ok")
        known = made.select("log", "world", "phase", "run_id", schedule, is_ok)
        same = ["world", "phase", "run_id", "schedule"]
        # A failure counts in whatever order the logs are given: false is less than true.
        owner = sf.min(sf.struct("is_ok", "log")).getField("log").alias("owner")
        owners = known.groupBy(*same).agg(owner, sf.min("log").alias("first"), sf.max("log").alias("last"))
        shared = owners.where(sf.col("first") < sf.col("last"))
        others = known.join(shared, on=same, how="inner").where(sf.col("log") != sf.col("owner"))
        return cls(frozenset((row["log"], row["run_id"]) for row in others.select("log", "run_id").distinct().collect()), first)

    def also(self, several: Iterable[tuple[int, int]]) -> "LeftOut":
        return replace(self, several=self.several | {*several})

    def flags(self, log: int, source: str, run_id: Sequence[int]) -> list[bool]:
        """For each row of a file of runs: its events do not count."""
        if not (self.repeated or self.first_source or self.several):
            return [False] * len(run_id)
        keys = [(log, one) for one in run_id]
        return [k in self.repeated or k in self.several or self.first_source.get(k, source) != source for k in keys]

    def without_repeated_runs(self, sound: DataFrame) -> DataFrame:
        return _minus(sound, self.repeated)

    def without_repeated(self, sound: DataFrame) -> DataFrame:
        """The rows of runs/, each run once."""
        frame = self.without_repeated_runs(sound)
        if not self.first_source:
            return frame
        first = _pairs(frame.sparkSession, self.first_source).withColumnRenamed("text", "first_source")
        single = frame.join(first, on=["log", "run_id"], how="left")
        is_first = sf.col("first_source").isNull() | (sf.col("first_source") == sf.col("source"))
        return single.where(is_first).drop("first_source").dropDuplicates(["log", "run_id"])

    def twice(self, sound: DataFrame) -> DataFrame:
        """The rows of runs/ that repeat another one of their log. Columns: log, source, run_id, n_rows."""
        first = _pairs(sound.sparkSession, self.first_source)
        rows_of = sound.join(first, on=["log", "run_id"], how="inner").groupBy("log", "run_id", "source", "text")
        counted = rows_of.agg(sf.count("*").alias("n_rows"))
        extra = sf.col("n_rows") - (sf.col("source") == sf.col("text")).cast("int")
        return counted.select("log", "source", "run_id", extra.alias("n_rows")).where(sf.col("n_rows") > 0)


def _pairs(spark: SparkSession, texts: dict[tuple[int, int], str]) -> DataFrame:
    return spark.createDataFrame([(*key, text) for key, text in texts.items()], "log int, run_id bigint, text string")


def _minus(frame: DataFrame, keys: frozenset[tuple[int, int]]) -> DataFrame:
    if not keys:
        return frame
    without = frame.sparkSession.createDataFrame([*keys], "log int, run_id bigint")
    return frame.join(without, on=["log", "run_id"], how="left_anti")


# --- The pass over events/ ---------------------------------------------------------------------------------------------------


def _counts(
    spark: SparkSession, parts: Sequence[Part], shown: tuple[str, ...], worlds: frozenset[str], left_out: LeftOut
) -> DataFrame:
    with_events = [part for part in parts if part.events]
    weights = [part.weight for part in with_events]
    tasks = max(TASKS_PER_CORE * spark.sparkContext.defaultParallelism, sum(weights) // ROWS_PER_TASK)
    groups = shared(with_events, weights, tasks)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in condensed_parts(groups[number], shown, worlds, left_out):
                    yield from batches_of(table)

    return _over(spark, len(groups)).mapInArrow(count, COUNTS_DDL)


def condensed_parts(
    parts: Sequence[Part], shown: tuple[str, ...], worlds: frozenset[str], left_out: LeftOut
) -> Iterator[pa.Table]:
    """The counts of the parts of a task."""
    for log, mine in groupby(sorted(parts, key=lambda part: (part.log, part.events)), key=lambda part: part.log):
        sources: list[Source] = []
        runs: dict[str, tuple[pa.Table, list[bool]]] = {}
        for part in mine:
            files, name = LogFiles.at(part.place), f"{shown[log]}/{part.events}"
            for file in part.runs:
                if file not in runs:
                    runs[file] = _sound_runs(files, file, part.version, f"{shown[log]}/{file}", log, worlds, left_out)
            try:
                sources.append(Source(name, read_file(files, part.events, EVENT_COLUMNS, part.version)))
            except DamagedError as error:
                n = part.weight if part.version != WITHOUT_MANIFESTS else None
                yield rows(DAMAGE, log, 1, {"source": [name], "reason": [str(error)], "n": [n], "example": [""]})
            if sum(source.table.num_rows for source in sources) >= CHUNK_ROWS:
                yield _of_chunk(log, sources, runs, worlds)
                sources = []
                runs = {} if part.version != WITHOUT_MANIFESTS else runs
        if sources:
            yield _of_chunk(log, sources, runs, worlds)


def _of_chunk(
    log: int, sources: Sequence[Source], runs: dict[str, tuple[pa.Table, list[bool]]], worlds: frozenset[str]
) -> pa.Table:
    table = pa.concat_tables([table for table, _ in runs.values()])
    flags = np.array([flag for _, flags in runs.values() for flag in flags], bool)
    # Of the rows of one run that which counts comes first, and is found.
    order = np.argsort(flags, kind="stable")
    return condense(log, sources, table.take(pa.array(order)), worlds, flags[order])


def _sound_runs(
    files: LogFiles, name: str, version: int, source: str, log: int, worlds: frozenset[str], left_out: LeftOut
) -> tuple[pa.Table, list[bool]]:
    try:
        found = row_checks.judge_runs(read_file(files, name, RUN_COLUMNS, version), worlds)
    except DamagedError:  # the pass over runs/ has told it
        return empty(RUN_COLUMNS), []
    table = found.table.filter(pa.array(found.reason == ""))
    return table, left_out.flags(log, source, numbers(table["run_id"]).tolist())


def _in_several_files(counts: DataFrame) -> list[tuple[int, int, str, int]]:
    """(log, run_id, a file, rows) of each run with rows in several files of events."""
    of_runs = counts.where(sf.col("kind") == RUN).groupBy("log", sf.col("first_run").alias("run_id"))
    summed = of_runs.agg(sf.count("*").alias("files"), sf.max("source").alias("source"), sf.sum("n").alias("n"))
    found = summed.where(sf.col("files") > 1).collect()
    return [(row["log"], row["run_id"], row["source"], row["n"]) for row in found]


# --- Both --------------------------------------------------------------------------------------------------------------------


def _counted(runs: DataFrame, counts: DataFrame, left_out: LeftOut) -> DataFrame:
    """The runs whose events count: all sound ones but those with a bad row, or without their rows."""
    judged = counts.where(sf.col("kind") == RUN).select("log", sf.col("first_run").alias("run_id"), "reason")
    both = _minus(runs, left_out.several).join(judged, on=["log", "run_id"], how="left")
    without_rows = sf.when(sf.col("n_steps") == 0, "")  # a run that ended before its first step has none
    return both.where(sf.coalesce("reason", without_rows) == "").select("log", *RUNS.fieldNames())


def _without_events(runs: DataFrame, counts: DataFrame, left_out: LeftOut) -> DataFrame:
    """The sound runs that should have rows in events/ and have none. Columns: log, source, run_id, n_steps."""
    seen = counts.where(sf.col("kind") == RUN).select("log", sf.col("first_run").alias("run_id"))
    expected = _minus(runs, left_out.several).where(sf.col("n_steps") > 0)
    return expected.join(seen, on=["log", "run_id"], how="left_anti").select("log", "source", "run_id", "n_steps")


def _all_runs(sound: DataFrame) -> DataFrame:
    by_run = sound.groupBy("log", "run_id").agg(sf.max("n_steps").alias("n_steps"), sf.count("*").alias("n"))
    return by_run.select("log", "run_id", "n_steps", "n")


def _missing(sound: DataFrame, counts: DataFrame, campaigns: Sequence[dict[str, Any]]) -> int:
    """The runs that campaigns have made and their logs lack. Each log is asked alone: what it lacks, no copy elsewhere brings.

    A run that has events and no row in runs/ is there. Of a campaign that has not ended nobody knows how many it has made.
    """
    made = {log: one["made"] for log, one in enumerate(campaigns) if one.get("finished") and type(one.get("made")) is int}
    if not made:
        return 0
    with_events = counts.where(sf.col("kind") == RUN).select("log", sf.col("first_run").alias("run_id"))
    runs = sound.select("log", "run_id").union(with_events).distinct()
    found = {row["log"]: row["count"] for row in runs.groupBy("log").count().collect()}
    return sum(max(0, n - found.get(log, 0)) for log, n in made.items())


def _measured(per_world: Sequence[Row], campaigns: Sequence[dict[str, Any]], existing: Sequence[str]) -> tuple[str, ...]:
    """The worlds that the campaigns drew from, and all of which there are runs: of a log without a plan these alone are known.

    Args: per_world: log, world, n (runs).
    """
    found = {row["world"] for row in per_world}
    for campaign in campaigns:
        plan = campaign.get("plan")
        if isinstance(plan, dict) and isinstance(plan.get("worlds"), list):
            found.update(map(str, plan["worlds"] or existing))  # a plan that names none draws from all
    return tuple(world for world in existing if world in found)


def _over(spark: SparkSession, tasks: int) -> DataFrame:
    """A frame of `tasks` partitions, each with its number."""
    return spark.range(0, tasks, 1, max(1, tasks))
