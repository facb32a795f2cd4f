"""A fuzz campaign on Spark: its plan, its partitions, its progress, and how it goes on after an end.

Partition `n` has the seeds from `n * runs_per_partition` on, whoever makes it and when: so a repeated or late attempt of a
partition can add nothing to a log that has it (runner.py). What a guided campaign makes of a seed depends on its corpus at that
moment. The size is chosen at the begin so that a partition takes some
seconds. A campaign that ends early, by a signal, a deadline or a power cut, loses the partitions in flight and no others.

`local[*]` by default; on a cluster, `out` must be a directory that all machines share, or a URI of an object store.
"""

import hashlib
import json
import logging
import platform
import re
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession

from rocketmq_ha.fuzz import campaign_file, corpus, runner
from rocketmq_ha.fuzz.campaign_file import manifest_name
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.limits import Limits
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.progress import LogProgress, run_progress
from rocketmq_ha.fuzz.runner import Manifest, Task
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.spec.event_log import (
    CAMPAIGN_FILE,
    CORPUS_DIR,
    EVENTS_DIR,
    FAILURES_DIR,
    FEATURES_DIR,
    MANIFEST_DIR,
    RUNS_DIR,
    SCHEMA_VERSION,
    STARTED_DIR,
    VERDICT_OK,
)

FIRST_SEED: Final = 1
PARTITION_SECONDS: Final = (
    8.0  # of work: the most that a kill loses on each core, and hundreds of times what a task costs Spark
)
SAMPLE: Final = 40  # runs that are timed to choose the size of a partition: those of a world differ tenfold
MOST_RUNS_PER_PARTITION: Final = 5000
WAVE_SECONDS: Final = 600.0  # of work in one job of Spark: at its end cores are idle for half a partition
POLL_S: Final = 1.0
END_S: Final = 30.0  # a task that is cancelled ends with the run that it is making
_TOLD: Final = "rocketmq-ha failure: "  # before the JSON of an executor's error, in the text that Spark makes of it
TASK_TRIES: Final = 4  # as on a cluster
CHECK_FILE: Final = "writable"  # written and deleted, to see early that a place can be written
FOLDERS: Final = (MANIFEST_DIR, EVENTS_DIR, RUNS_DIR, CORPUS_DIR, FEATURES_DIR, FAILURES_DIR, STARTED_DIR)

_RESULT_DDL: Final = "partition bigint, n_runs bigint"
_RESULT_SCHEMA: Final = pa.schema([("partition", pa.int64()), ("n_runs", pa.int64())])


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign is to do. With neither `runs` nor `seconds` it has no end.

    None and () are what nobody asked for: a new campaign has the default, and one that goes on what it was begun with.
    """

    seed: int | None = None  # of the first run; by default FIRST_SEED
    runs: int | None = None
    seconds: float | None = None
    worlds: tuple[str, ...] = ()  # by default all
    is_guided: bool | None = None  # by default not
    limits: Limits = field(default_factory=Limits)
    corpus: str | None = None  # a log whose corpus a guided campaign begins with
    runs_per_partition: int | None = None  # by default chosen by time

    @property
    def first_seed(self) -> int:
        return FIRST_SEED if self.seed is None else self.seed


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """The summary of a campaign; its log has the rest."""

    runs: int
    distinct: int  # schedules
    operations: int
    steps: int
    median_steps: float  # of a run
    n_failed: int
    failed: tuple[dict[str, Any], ...]  # rows of failed runs, those with the fewest operations first
    seconds: float  # of this sitting
    resumed: int  # runs that the log had before


def run(
    spark: SparkSession,
    plan: Plan,
    place: str,
    progress: Callable[[LogProgress], None] = lambda _: None,
    *,
    resumes: bool = False,
) -> CampaignResult:
    """Make the runs of a plan and write their log to `place`.

    Args: place: a directory or a URI (log_store.py). An older log there is deleted, unless `resumes`: then only what it lacks
              is made, with the settings that it was begun with.
          progress: called about once a second.
    Raises: FuzzError, where `resumes` finds no campaign, or one that cannot go on; OSError, where the log cannot be written.
    """
    began = time.monotonic()
    store = LogStore(place)
    task = _resumed(store, plan) if resumes else _begun(store, plan)
    spark.sparkContext.setLogLevel("OFF")  # what ends a task comes here as an exception; a task that is repeated is no news
    manifests = _Manifests(store)
    manifests.read()
    resumed = manifests.progress(task.runs).runs
    deadline = None if plan.seconds is None else time.time() + plan.seconds
    cores = spark.sparkContext.defaultParallelism
    wave_size = max(1, round(WAVE_SECONDS / PARTITION_SECONDS)) * cores
    for wave in _waves(task, manifests, wave_size, deadline):
        _run_wave(spark, _with(task, deadline), wave, lambda: progress(manifests.read().progress(task.runs)))
    progress(manifests.read().progress(task.runs))
    result = _result(store, manifests, time.monotonic() - began, resumed)
    _write_campaign(store, task, made=result.runs)
    return result


def check(plan: Plan, place: str, *, resumes: bool) -> None:
    """Look at all that can be wrong with a plan before Spark starts. Raises: FuzzError."""
    store = LogStore(place)
    registry.find(plan.worlds)
    if plan.corpus is not None:
        _check_corpus(LogStore(plan.corpus), plan.worlds)
    if resumes:
        settings, runs = _settings_to_resume(store, plan)
        end = campaign_file.check_manifests(store.place, settings["plan"], _Manifests(store).read().by_name)
        if runs is not None and runs < end:  # a campaign with --for has no number of runs in its plan
            raise FuzzError(f"{store.place}: found a campaign of {end} runs, expected that many or more, not {runs}")
        if runs is None and plan.seconds is None:
            raise FuzzError(f"{store.place}: found a campaign with --for and without --runs, expected either beside --resume")
        if settings["plan"]["guided"] and any(True for _ in store.names(CORPUS_DIR)):
            _check_corpus(store)
    store.write(CHECK_FILE, b"")
    store.delete(CHECK_FILE)


def _check_corpus(store: LogStore, worlds: Sequence[str] = ()) -> None:
    files = corpus.files_of(store)
    with run_progress(f"{store.place}: looking at its corpus", len(files)) as progress:
        corpus.check(store.place, files, worlds, progress)


def retrying(master: str) -> str:
    """Spark's local masters as ones that repeat a failed task, as a cluster does: a run may kill the process of its executor.

    >>> retrying("local[*]"), retrying("local"), retrying("local[2,1]"), retrying("spark://hub:7077")
    ('local[*,4]', 'local[1,4]', 'local[2,1]', 'spark://hub:7077')
    """
    if master == "local":
        return f"local[1,{TASK_TRIES}]"
    return f"{master[:-1]},{TASK_TRIES}]" if re.fullmatch(r"local\[[^,]+\]", master) else master


def _begun(store: LogStore, plan: Plan) -> Task:
    """A new campaign at a place, after what was there is deleted."""
    registry.find(plan.worlds)
    taken = {} if plan.corpus is None else corpus.files_of(LogStore(plan.corpus))
    size = plan.runs_per_partition or _partition_size(plan)
    place = store.absolute
    is_guided = bool(plan.is_guided)
    task = Task(secrets.token_hex(8), place, plan.first_seed, plan.runs, size, plan.worlds, is_guided, plan.limits)
    # First: from now on an executor of the older campaign publishes nothing. Without a plan it cannot go on: until the older
    # manifests are gone they would count for it.
    settings = {"schema_version": SCHEMA_VERSION, "campaign": task.campaign, "finished": False}
    store.write(CAMPAIGN_FILE, (json.dumps(settings) + "\n").encode())
    for name in FOLDERS:
        store.delete(name)
    for name, data in taken.items():
        store.write(name, data)
    _write_campaign(store, task)
    return task


def _partition_size(plan: Plan) -> int:
    """How many runs take about PARTITION_SECONDS, judged by the first ones; fewer in a short campaign, for all cores."""
    runs = SAMPLE if plan.runs is None else min(SAMPLE, plan.runs)
    among = registry.find(plan.worlds)
    began = time.perf_counter()
    for seed in range(plan.first_seed, plan.first_seed + runs):
        runner.limited_outcome(registry.draw(seed, among), plan.limits)
    seconds = PARTITION_SECONDS if plan.seconds is None else min(PARTITION_SECONDS, plan.seconds / 4)
    size = seconds * runs / max(1e-6, time.perf_counter() - began)
    if plan.runs is not None:
        size = min(size, plan.runs / 16)
    return max(1, min(MOST_RUNS_PER_PARTITION, round(size)))


def _settings_to_resume(store: LogStore, plan: Plan) -> tuple[dict[str, Any], int | None]:
    """campaign.json, and the runs of a campaign that goes on. Raises: FuzzError, where it cannot, or not with such a plan."""
    settings = read_campaign(store)
    campaign_file.check_settings(store.place, settings)
    found = settings["plan"]
    asked = {"seed": plan.seed, "worlds": list(plan.worlds) or None, "guided": plan.is_guided}
    for name, value in asked.items():
        is_same = set(value) == set(found[name]) if isinstance(value, list) else value == found[name]
        if value is not None and not is_same:
            raise FuzzError(
                f"{store.place}: found a campaign with {name} {_shown(found[name])}, expected {_shown(value)}; "
                "leave it out to go on"
            )
    runs = plan.runs if plan.runs is not None or plan.seconds is not None else found["runs"]
    if runs is not None and found["runs"] is not None and runs < found["runs"]:
        raise FuzzError(f"{store.place}: found a campaign of {found['runs']} runs, expected that many or more, not {runs}")
    return settings, runs


def _resumed(store: LogStore, plan: Plan) -> Task:
    """The campaign at a place, to go on with. `plan` may ask for more runs; all else stays as it was begun."""
    settings, runs = _settings_to_resume(store, plan)
    found = settings["plan"]
    _forget_a_short_end(store, found["runs"], found["runs_per_partition"], runs)
    limits = Limits(found["run_seconds"], found["run_memory"])
    worlds = tuple(found["worlds"])
    task = Task(
        settings["campaign"], store.absolute, found["seed"], runs, found["runs_per_partition"], worlds, found["guided"], limits
    )
    _write_campaign(store, task)
    return task


def _forget_a_short_end(store: LogStore, before: int | None, size: int, runs: int | None) -> None:
    """If a campaign gets more runs, its last partition becomes a full one: take back the manifest, so that it is made again."""
    if before is not None and before % size and runs != before:
        store.delete(manifest_name(before // size))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "all"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def read_campaign(store: LogStore) -> dict[str, Any]:
    """campaign.json. Raises: FuzzError."""
    data = store.read(CAMPAIGN_FILE)
    if data is None:
        raise FuzzError(f"{store.place}/{CAMPAIGN_FILE}: found nothing, expected a campaign that was begun")
    return _json_object(store.place, CAMPAIGN_FILE, data)


def _json_object(store_place: str, name: str, data: bytes) -> dict[str, Any]:
    """Raises: FuzzError, for a file that was damaged: each is written whole."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FuzzError(f"{store_place}/{name}: found no JSON, expected what a campaign writes there") from error
    if not isinstance(found, dict):
        raise FuzzError(f"{store_place}/{name}: found {type(found).__name__}, expected an object")
    return found


def name_to_resume(place: str) -> str | None:
    """The name of the campaign at a place that can go on; None if there is none, or not any more."""
    try:
        settings, _ = _settings_to_resume(LogStore(place), Plan())
    except (FuzzError, OSError):
        return None
    name: str = settings["campaign"]
    return name


def check_free(store: LogStore, *, overwrites: bool) -> None:
    """Look at what a new campaign would delete. Raises: FuzzError, for files of no campaign, or of one unless `overwrites`."""
    if store.read(CAMPAIGN_FILE) is None:
        if found := next((name for folder in FOLDERS for name in store.names(folder)), None):
            raise FuzzError(
                f"{store.place}: found {found} and no {CAMPAIGN_FILE}, expected a new place for the log, or a campaign's"
            )
        return
    settings = read_campaign(store)
    if "schema_version" not in settings:
        raise FuzzError(f"{store.place}/{CAMPAIGN_FILE}: found no schema_version in it, expected a campaign's settings")
    if overwrites:
        return
    if settings.get("finished", True):
        raise FuzzError(
            f"{store.place}: found a campaign that has ended; --overwrite deletes it, --resume with --runs adds to it"
        )
    found = settings.get("plan")
    total = found.get("runs") if isinstance(found, dict) else None
    total = total if type(total) is int else None
    done = _Manifests(store).read().progress(total).runs
    runs = f"{done:,} of {total:,} runs" if total is not None else f"{done:,} runs"
    resume = "--resume" if total is not None else "--resume with --for"
    raise FuzzError(
        f"{store.place}: found a campaign that has not ended ({runs}); {resume} goes on with it, --overwrite deletes it"
    )


def _write_campaign(store: LogStore, task: Task, *, made: int | None = None) -> None:
    """Everything needed to repeat the campaign. made: how many runs the log has; None until the campaign has ended."""
    packages = ("rocketmq-ha", "pyspark", "pyarrow")
    settings = {
        "schema_version": SCHEMA_VERSION,
        "campaign": task.campaign,
        "finished": made is not None,
        "made": made,
        "seed": task.seed,
        "runs": task.runs,
        "plan": {
            "seed": task.seed,
            "runs": task.runs,
            "runs_per_partition": task.runs_per_partition,
            "worlds": list(task.worlds),
            "guided": task.is_guided,
            "run_seconds": task.limits.seconds,
            "run_memory": task.limits.memory,
        },
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in packages},
        "code": code_digest(),
    }
    store.write(CAMPAIGN_FILE, (json.dumps(settings, indent=1) + "\n").encode())


@cache
def code_digest() -> str:
    """A digest of the project's modules that a run depends on."""
    digest = hashlib.blake2b(digest_size=8)
    for package in ("fuzz", "impl", "reference", "spec"):
        root = Path(str(resources.files(f"rocketmq_ha.{package}")))
        for file in sorted(root.rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()


def has_other_code(place: str) -> bool:
    """Whether the runs of a campaign were made by other code than this."""
    code: str = read_campaign(LogStore(place)).get("code", "")
    return code != code_digest()


class _Manifests:
    """The published partitions of a log, as far as they were read."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._rows: dict[str, Manifest] = {}  # by file name

    def read(self) -> "_Manifests":
        for name in self._store.names(MANIFEST_DIR):
            if name not in self._rows and (data := self._store.read(name)) is not None:
                self._rows[name] = _json_object(self._store.place, name, data)
        return self

    @property
    def by_name(self) -> dict[str, Manifest]:
        return self._rows

    @property
    def rows(self) -> list[Manifest]:
        return list(self._rows.values())

    def has(self, number: int) -> bool:
        return manifest_name(number) in self._rows

    def progress(self, total: int | None) -> LogProgress:
        rows = self.rows
        runs, steps, failed = (sum(row[name] for row in rows) for name in ("n_runs", "n_steps", "n_failed"))
        return LogProgress(runs, steps, failed, total)


def _waves(task: Task, manifests: _Manifests, size: int, deadline: float | None) -> Iterator[list[int]]:
    """The numbers of the partitions that the log lacks, some at a time, until the runs or the time are over."""
    last = None if task.runs is None else -(-task.runs // task.runs_per_partition)
    number = 0
    while deadline is None or time.time() < deadline:
        wave: list[int] = []
        while len(wave) < size and (last is None or number < last):
            if not manifests.has(number):
                wave.append(number)
            number += 1
        if not wave:
            return
        yield wave


def _with(task: Task, deadline: float | None) -> Task:
    return replace(task, deadline=deadline)


def _run_wave(spark: SparkSession, task: Task, numbers: Sequence[int], poll: Callable[[], None]) -> None:
    """Let Spark make some partitions, each in a task of its own."""
    made = spark.range(0, len(numbers), 1, len(numbers)).mapInArrow(_partitions(task, list(numbers)), _RESULT_DDL)
    failure: list[BaseException] = []
    has_ended = threading.Event()  # a join that a signal interrupts takes the thread for ended, up to Python 3.12

    def work() -> None:
        try:
            made.toArrow()
        except BaseException as error:  # carried over to the caller's thread
            failure.append(_cause(error))
        finally:
            has_ended.set()

    thread = threading.Thread(target=work, name="campaign", daemon=True)
    thread.start()
    try:
        while not has_ended.wait(POLL_S):
            poll()
    except BaseException:
        spark.sparkContext.cancelAllJobs()
        has_ended.wait(END_S)  # a thread that reads from the JVM when Python ends would abort the process
        raise
    if failure:
        raise failure[0]


def _cause(error: BaseException) -> BaseException:
    """The error of an executor that a user, a disk or a network can cause; else the error as Spark tells it."""
    found = re.search(rf"{_TOLD}(\{{.*\}})", str(error))
    if found is None:
        return error
    told = json.loads(found[1])
    return FuzzError(told["text"]) if told["errno"] is None else OSError(told["errno"], told["text"], told["file"])


def _partitions(task: Task, numbers: list[int]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that an executor applies to the indices of its partitions."""

    def run_partitions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # In the executor's process. What the implementation warns of is what the schedules are made to do.
        logging.getLogger("rocketmq_ha.impl").setLevel(logging.CRITICAL)
        for batch in batches:
            for index in batch.column(0).to_pylist():
                try:
                    manifest = runner.run_partition(task, numbers[index])
                except FuzzError as error:
                    raise RuntimeError(_TOLD + json.dumps({"errno": None, "text": error.message})) from None
                except OSError as error:
                    told = {
                        "errno": error.errno,
                        "text": error.strerror or str(error),
                        "file": str(error.filename or task.place),
                    }
                    raise RuntimeError(_TOLD + json.dumps(told)) from None
                if manifest:
                    row = {"partition": manifest["partition"], "n_runs": manifest["n_runs"]}
                    yield pa.RecordBatch.from_pylist([row], _RESULT_SCHEMA)

    return run_partitions


def _result(store: LogStore, manifests: _Manifests, seconds: float, resumed: int) -> CampaignResult:
    digests: set[int] = set()
    n_steps: list[int] = []
    failed: list[dict[str, Any]] = []
    operations = 0
    for manifest in manifests.rows:
        table = store.read_table(f"{RUNS_DIR}/{manifest['runs']}")
        digests.update(table["digest"].to_pylist())
        n_steps += table["n_steps"].to_pylist()
        operations += sum(table["n_ops"].to_pylist())
        if manifest["n_failed"]:
            failed += [row for row in table.to_pylist() if row["verdict"] != VERDICT_OK]
    failed.sort(key=lambda row: (row["n_ops"], row["run_id"]))
    return CampaignResult(
        runs=len(n_steps),
        distinct=len(digests),
        operations=operations,
        steps=sum(n_steps),
        median_steps=statistics.median(n_steps) if n_steps else 0.0,
        n_failed=len(failed),
        failed=tuple(failed[:1000]),
        seconds=seconds,
        resumed=resumed,
    )
