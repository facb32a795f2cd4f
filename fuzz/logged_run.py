"""The schedule of a run of a log, by the number of the run: drawn again from its seed, read from a file, or made of its recipe.

A guided run that was ok has no file, unless it reached something new. Its recipe and the corpus of its log give its schedule.
"""

import json
from functools import partial
from typing import Any, Final

import pyarrow.compute as pc

from rocketmq_ha.fuzz import corpus, recorder, schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Schedule
from rocketmq_ha.spec.event_log import (
    CAMPAIGN_FILE,
    CORPUS_DIR,
    FAILURES_DIR,
    MANIFEST_DIR,
    PHASE_GENERATE,
    PHASE_GUIDED,
    RUNS_DIR,
)

_COLUMNS: Final = ["run_id", "world", "phase", "digest", "recipe"]


def name_of(log: str, run_id: int) -> str:
    """What `fuzz replay` takes for a run of a log."""
    return f"{log}:{run_id}"


def schedule_of(place: str, run_id: int) -> Schedule:
    """The schedule of a run of the log at a place. Raises: FuzzError, where the log or the code does not give it any more."""
    store, run = LogStore(place), name_of(place, run_id)
    if store.read(CAMPAIGN_FILE) is None:
        raise FuzzError(f"{place}: found no {CAMPAIGN_FILE}, expected the log of a campaign before :{run_id}")
    row = _row_of(store, run_id)
    if row is None:
        raise FuzzError(f"{run}: found no such run, expected the number of a run that the campaign has drawn or made")
    (world,) = registry.find([row["world"]])
    schedule = world.draw(run_id) if row["phase"] == PHASE_GENERATE else _guided(store, row)
    if (found := recorder.digest_name(recorder.digest(schedule))) != (expected := recorder.digest_name(row["digest"])):
        raise FuzzError(f"{run}: found the schedule {found}, expected {expected}: other code than this has made the run")
    return schedule


def _row_of(store: LogStore, run_id: int) -> dict[str, Any] | None:
    """The row of a drawn or guided run, from the one partition that can have it: a guided run is ~seed."""
    seed = run_id if run_id >= 0 else ~run_id
    for name in store.names(MANIFEST_DIR):
        manifest = _manifest(store, name)
        if manifest["seed"] <= seed < manifest["seed"] + manifest["n_runs"]:
            table = store.read_table(f"{RUNS_DIR}/{manifest['runs']}", _COLUMNS)
            rows: list[dict[str, Any]] = table.filter(pc.field("run_id") == run_id).to_pylist()
            return next((row for row in rows if row["phase"] in (PHASE_GENERATE, PHASE_GUIDED)), None)
    return None


def _manifest(store: LogStore, name: str) -> dict[str, Any]:
    try:
        found = json.loads(store.read(name) or b"")
        return {"seed": int(found["seed"]), "n_runs": int(found["n_runs"]), "runs": str(found["runs"])}
    except (ValueError, KeyError, TypeError) as error:
        raise FuzzError(f"{store.place}/{name}: found no manifest, expected what a campaign writes there") from error


def _guided(store: LogStore, row: dict[str, Any]) -> Schedule:
    digest = recorder.digest_name(row["digest"])
    for name in (f"{FAILURES_DIR}/{digest}.json", f"{CORPUS_DIR}/{row['world']}/{digest}.json"):
        if (data := store.read(name)) is not None:
            return schedule_file.from_json(data.decode(errors="replace"), f"{store.place}/{name}")
    try:
        return corpus.from_recipe(row["recipe"], partial(corpus.parent_of, store, row["world"]))
    except FuzzError as error:
        raise FuzzError(f"{name_of(store.place, row['run_id'])}: {error.message}") from error
