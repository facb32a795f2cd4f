"""What an executor does with a partition of a campaign: make its runs, write their rows, publish them.

A run never raises: whatever happens to it becomes a row, because an exception would lose the other runs of its partition.

A partition is published by its manifest, once (spec/event_log.py). Before its first run a file in started/ says that it has
begun. If an executor finds that file without a manifest, an attempt has died before: the machine was switched off, or a run
killed its process. It then makes each run in a child process, so that such a run is a row too.
"""

import json
import logging
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_ha.fuzz import limits, lockstep, recorder, schedule_file
from rocketmq_ha.fuzz.campaign_file import manifest_name
from rocketmq_ha.fuzz.corpus import Corpus
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.limits import Limits, RunDied, RunTimeout
from rocketmq_ha.fuzz.lockstep import RunOutcome, StepOutcome
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.recorder import EventRecorder
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import START_MS, Schedule
from rocketmq_ha.spec.event_log import (
    CAMPAIGN_FILE,
    EVENTS_DIR,
    FAILURES_DIR,
    PHASE_GENERATE,
    PHASE_GUIDED,
    RUNS_DIR,
    STARTED_DIR,
    VERDICT_CRASH,
    VERDICT_ERROR,
    VERDICT_MEMORY,
    VERDICT_OK,
    VERDICT_TIMEOUT,
)

MOST_FAILURES: Final = 20  # that a manifest lists; the rest are in runs/ and failures/

IMPLEMENTATION: Final = logging.getLogger("rocketmq_ha.impl")

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What all partitions of a campaign have in common. Run `n` of the campaign, from 0, has the seed `seed + n`."""

    campaign: str  # a name that no other campaign has
    place: str
    seed: int
    runs: int | None  # of the whole campaign; None: as many as its time allows
    runs_per_partition: int
    worlds: tuple[str, ...] = ()  # all, if empty
    is_guided: bool = False
    limits: Limits = field(default_factory=Limits)
    deadline: float | None = None  # time.time() from which on no partition begins


def run_partition(task: Task, number: int) -> Manifest | None:
    """Make and publish the runs of a partition. Returns: its manifest; None if the campaign's time was over."""
    store = LogStore(task.place)
    if (published := store.read(manifest_name(number))) is not None:  # by another attempt
        manifest: Manifest = json.loads(published)
        return manifest
    if task.deadline is not None and time.time() >= task.deadline:
        return None
    started = f"{STARTED_DIR}/part-{number:08d}.json"
    is_careful = store.read(started) is not None
    store.write(started, b"{}\n")
    began = time.monotonic()
    first = number * task.runs_per_partition
    last = first + task.runs_per_partition if task.runs is None else min(first + task.runs_per_partition, task.runs)
    events, rows = EventRecorder(), []
    for phase, recipe, schedule in schedules(task, range(task.seed + first, task.seed + last)):
        before = time.perf_counter()
        outcome = _child_outcome(schedule, task.limits) if is_careful else limited_outcome(schedule, task.limits)
        elapsed_us = round(1e6 * (time.perf_counter() - before))
        row = recorder.run_row(outcome, phase, events.add(outcome), recipe, elapsed_us)
        rows.append(row)
        if outcome.verdict != VERDICT_OK:
            store.write(f"{FAILURES_DIR}/{recorder.digest_name(row['digest'])}.json", schedule_file.to_json(schedule).encode())
        if task.is_guided:
            corpus_of(task).learn(outcome, row["digest"], recipe)
    # The name is that of this attempt alone: another one may be writing at this moment.
    name = f"part-{number:08d}-{os.getpid()}-{time.time_ns():x}.parquet"
    store.write_table(f"{EVENTS_DIR}/{name}", events.table())
    store.write_table(f"{RUNS_DIR}/{name}", recorder.run_table(rows))
    failed = [row for row in rows if row["verdict"] != VERDICT_OK]
    manifest = {
        "partition": number,
        "events": name,
        "runs": name,
        "n_runs": len(rows),
        "n_steps": sum(row["n_steps"] for row in rows),
        "n_failed": len(failed),
        "seed": task.seed + first,
        "seconds": round(time.monotonic() - began, 3),
        "failures": [
            {key: row[key] for key in ("run_id", "world", "verdict", "signature", "digest")} for row in failed[:MOST_FAILURES]
        ],
    }
    if (settings := store.read(CAMPAIGN_FILE)) is not None and json.loads(settings).get("campaign") != task.campaign:
        raise FuzzError(f"{task.place}: found another campaign in it by now, expected {task.campaign}: nothing more is written")
    store.write(manifest_name(number), (json.dumps(manifest) + "\n").encode())
    store.delete(started)
    return manifest


def schedules(task: Task, seeds: range) -> Iterator[tuple[str, str, Schedule]]:
    """(phase, recipe, schedule) of each run. A guided run has the negative of its seed, and one less, as its number."""
    among = registry.find(task.worlds)
    corpus = corpus_of(task) if task.is_guided else None
    if corpus is not None:
        corpus.read()
    for seed in seeds:
        drawn = registry.draw(seed, among)
        if corpus is not None and (made := corpus.make(drawn)):
            recipe, schedule = made
            yield PHASE_GUIDED, recipe, schedule
        else:
            yield PHASE_GENERATE, "", drawn


_corpora: dict[str, Corpus] = {}  # by campaign: what this process has read of the corpus of a campaign stays read


def corpus_of(task: Task) -> Corpus:
    return _corpora.setdefault(task.campaign, Corpus(task.place))


def limited_outcome(schedule: Schedule, most: Limits) -> RunOutcome:
    """The outcome of a run within its limits; a broken one ends with a step that says so."""
    steps: list[StepOutcome] = []
    try:
        with limits.limited(most), _without_log_lines():
            return lockstep.run(schedule, steps)
    except RunTimeout:
        verdict, told = VERDICT_TIMEOUT, f"no end after {most.seconds:g} s"
    except MemoryError:
        verdict, told = VERDICT_MEMORY, f"more than {most.memory:,} bytes of memory"
    except Exception as error:  # outside of a step: while the sides are opened, observed or closed. A finding too
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = "/".join(where.filename.split("/")[-2:])
        verdict, told = VERDICT_ERROR, f"{type(error).__name__} at {place}:{where.lineno}: {str(error).partition(chr(10))[0]}"
    steps[:] = [step for step in steps if step.verdict == VERDICT_OK]
    index = len(steps)
    event = schedule.events[min(index, len(schedule.events) - 1)]
    now_ms = steps[-1].now_ms if steps else START_MS
    signature = f"{registry.world_of(schedule).whole}/{type(event).__name__}/{verdict}"
    return RunOutcome(schedule, (*steps, StepOutcome(index, event, now_ms, (), verdict, signature, told)))


@contextmanager
def _without_log_lines() -> Iterator[None]:
    """Drop what the implementation logs: a campaign injects faults into every run, and would print each of them."""
    level = IMPLEMENTATION.level
    IMPLEMENTATION.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        IMPLEMENTATION.setLevel(level)


def _child_outcome(schedule: Schedule, most: Limits) -> RunOutcome:
    """The outcome of a run that is made in a child process."""
    try:
        return limits.in_child(lambda: limited_outcome(schedule, most))
    except RunDied as error:
        signature = f"{registry.world_of(schedule).whole}/process/{error}"
        return RunOutcome(schedule, (StepOutcome(-1, schedule.events[0], START_MS, (), VERDICT_CRASH, signature, str(error)),))
