"""The re-run: the model alone goes through a run's schedule again, and everything that the log says of the run must come out.

It uses the worlds and the model, but neither the implementation, nor the lock-step, nor the recorder: it makes the rows of a
run from the model's transitions by itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from rocketmq_ha.fuzz import corpus, recorder, schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.fingerprint import NOBODY_LOOKED, fingerprint
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.second_verdict.columns import HEADER
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import START_MS, Schedule
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.event_log import (
    CORPUS_DIR,
    FAILURES_DIR,
    PHASE_GENERATE,
    PHASE_GUIDED,
    VERDICT_DIVERGENCE,
    VERDICT_ERROR,
    VERDICT_INVARIANT,
    VERDICT_OK,
)

# The rules, in the order in which a run is judged.
SCHEDULE: Final = "rerun_has_the_schedule"
OPERATIONS: Final = "rerun_has_the_operations"
ROWS: Final = "rerun_has_the_rows"
INVARIANTS: Final = "rerun_keeps_the_invariants"
OBSERVED: Final = "rerun_ends_as_observed"
RULES: Final[Mapping[str, tuple[str, str]]] = {
    SCHEDULE: ("runs.digest", "the run's seed, or its digest, gives its schedule"),
    OPERATIONS: ("runs.n_ops", "a run that is ok has applied its whole schedule"),
    ROWS: ("events", "the model makes the same rows"),
    INVARIANTS: ("chapter 9", "the model breaks an invariant where the log says so, and nowhere else"),
    OBSERVED: ("runs.observed", "the model ends in the state that the implementation showed"),
}
NO_SCHEDULE: Final = "no schedule"  # a run whose schedule the log does not hold, which is counted and is no violation

JUDGED: Final = (VERDICT_OK, VERDICT_DIVERGENCE, VERDICT_ERROR, VERDICT_INVARIANT)
_MOVED: Final = tuple(field.name for field in fields(Transition))  # columns that a transition has


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict of a run that was run again: the first rule that it breaks, if any, and the rules that it reached."""

    reached: tuple[str, ...]
    rule: str = ""
    step: int = -1
    detail: str = ""


Kept = Mapping[int, tuple[str, str]]  # digest: the place of the log that holds such a schedule, and the name of its file


@lru_cache(maxsize=4)
def kept_schedules(places: tuple[str, ...]) -> Kept:
    """The schedules that the logs hold. A file that is no schedule is left out: it replays nowhere."""
    found: dict[int, tuple[str, str]] = {}
    for place in places:
        store = LogStore(place)
        for name in (name for part in (CORPUS_DIR, FAILURES_DIR) for name in store.names(part)):
            try:
                found[recorder.digest(_read(place, name))] = (place, name)
            except FuzzError:
                continue
    return found


def _read(place: str, name: str) -> Schedule:
    """Raises: FuzzError, for a file that is not there or is no schedule."""
    data = LogStore(place).read(name)
    if data is None:
        raise FuzzError(f"{place}/{name}: found nothing, expected a schedule")
    return schedule_file.from_json(data.decode(errors="replace"), f"{place}/{name}")


def schedule_of(run: Mapping[str, Any], kept: Kept) -> Schedule | None:
    """The schedule of a run: drawn from its seed in its world, or one that the log holds. None where there is none."""
    if run["phase"] == PHASE_GENERATE and run["world"] in registry.WORLDS:
        return registry.draw(run["run_id"], (registry.WORLDS[run["world"]],))
    return _kept(kept, run["digest"]) or _of_recipe(run["recipe"], kept)


def _kept(kept: Kept, digest: int) -> Schedule | None:
    return _read(*kept[digest]) if digest in kept else None


def _of_recipe(recipe: str, kept: Kept) -> Schedule | None:
    """The schedule that a recipe makes of some of the corpus. None where the log does not hold them."""
    try:
        return corpus.from_recipe(recipe, lambda name: _kept(kept, recorder.digest_of(name)))
    except FuzzError:
        return None


def rerun(run: Mapping[str, Any], logged: list[dict[str, Any]], kept: Kept) -> Result | None:
    """Run a run again and compare. None: its schedule is not in the log, or its verdict is about the machine that it ran on.

    Args: run: its row in runs; observed is None where the log has no such column. logged: its rows, in order.
    """
    if run["verdict"] not in JUDGED:
        return None
    schedule = schedule_of(run, kept)
    if schedule is None:
        return None
    reached = [SCHEDULE]
    digest = recorder.digest(schedule)
    if run["digest"] and digest != run["digest"]:
        return Result(tuple(reached), SCHEDULE, -1, f"digest {run['digest']}, its schedule has {digest}")
    if schedule.profile.name != run["profile"]:
        return Result(tuple(reached), SCHEDULE, -1, f"profile {run['profile']}, its schedule has {schedule.profile.name}")
    if run["verdict"] == VERDICT_OK:
        reached.append(OPERATIONS)
        if run["n_ops"] != len(schedule.events):
            return Result(tuple(reached), OPERATIONS, -1, f"n_ops {run['n_ops']}, its schedule has {len(schedule.events)}")
    reached.append(ROWS)
    again = Again(schedule, run["n_ops"])
    for step, expected in enumerate(again.rows()):
        found = logged[step] if step < len(logged) else None
        if found is None:
            return Result(tuple(reached), ROWS, step, f"no such row; the model makes {_told(expected)}")
        for name, value in expected.items():
            if found[name] != value:
                return Result(tuple(reached), ROWS, step, f"{name} {found[name]!r}, the model makes {value!r}")
    if again.made < len(logged):
        return Result(tuple(reached), ROWS, again.made, f"{len(logged)} rows, the model makes {again.made}")
    if schedule.profile.keeps_invariants and run["verdict"] in (VERDICT_OK, VERDICT_INVARIANT):
        reached.append(INVARIANTS)
        where = run["n_ops"] - 1 if run["verdict"] == VERDICT_INVARIANT else None
        if again.broken_at != where:
            told = f"{', '.join(again.broken)} broken at operation {again.broken_at}" if again.broken else "none broken"
            return Result(tuple(reached), INVARIANTS, -1, f"verdict {run['verdict']}, and {told}")
    is_whole = run["verdict"] in (VERDICT_OK, VERDICT_INVARIANT) and run["phase"] in (PHASE_GENERATE, PHASE_GUIDED)
    if is_whole and run["observed"] is not None:
        reached.append(OBSERVED)
        ends = fingerprint(again.reference.observe())
        if run["observed"] != ends:
            told = "nobody looked" if run["observed"] == NOBODY_LOOKED else f"the implementation ended in {run['observed']}"
            return Result(tuple(reached), OBSERVED, -1, f"{told}, the model in {ends}")
    return Result(tuple(reached))


class Again:
    """One run of the model through the first operations of a schedule."""

    def __init__(self, schedule: Schedule, n_ops: int) -> None:
        self._schedule, self._n_ops = schedule, n_ops
        self._world = registry.world_of(schedule)
        self.reference = self._world.open_reference(schedule)
        self.made = 0
        self.broken: tuple[str, ...] = ()
        self.broken_at: int | None = None  # the first operation after which an invariant does not hold

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows by the names of the columns, but without verdict, which the row check compares."""
        world, now_ms = self._world, START_MS
        for op_index, event in enumerate(self._schedule.events[: self._n_ops]):
            now_ms += world.milliseconds(event)
            transitions = self.reference.apply(event)
            if self.broken_at is None and self._schedule.profile.keeps_invariants and (broken := self.reference.broken()):
                self.broken, self.broken_at = broken, op_index
            fault = world.fault_of(event)
            for transition in transitions:
                row = {name: getattr(transition, name) for name in _MOVED}
                row |= {"clauses": list(transition.clauses), "step": self.made, "op_index": op_index}
                self.made += 1
                yield row | {"world": world.name, "fault": fault, "ts_ns": now_ms * 1_000_000}


def _told(row: Mapping[str, Any]) -> str:
    return f"{row['actor']}: {row['from_state']} {row['event']} {row['to_state']}"


def runs_of(table: pa.Table) -> Iterator[tuple[int, dict[str, Any], list[dict[str, Any]]]]:
    """(log, row in runs, rows) of each run of a chunk that has one row in runs; the row check names the others."""
    rows: list[dict[str, Any]] = []
    present: tuple[int, int] | None = None
    for row in [*table.to_pylist(), None]:
        at = (row["log"], row["run_id"]) if row else None
        if at != present:
            if present and rows and rows[0]["actor"] == HEADER:
                yield present[0], _of_header(rows[0]), rows[1:]
            rows, present = [], at
        if row:
            rows.append(row)


def _of_header(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of runs that the re-run needs. columns.RUN_AS_EVENT says where they are."""
    recipe, observed = row["clauses"]
    return {
        "run_id": row["run_id"],
        "world": row["world"],
        "phase": row["event"],
        "profile": row["from_state"],
        "n_ops": row["op_index"],
        "verdict": row["verdict"],
        "digest": row["ts_ns"],
        "recipe": recipe,
        "observed": int(observed) if observed else None,
    }
