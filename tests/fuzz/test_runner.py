"""What an executor does with a partition: rows, files, one manifest; and a verdict for each run that its limits break off."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from kit.schedules import put, schedule_of
from kit.waiting import PATIENCE_S
from rocketmq_ha.fuzz import corpus, lockstep, recorder, replay, runner, schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.limits import Limits
from rocketmq_ha.fuzz.runner import Task, limited_outcome, run_partition
from rocketmq_ha.fuzz.world import ImplementationWorld, ReferenceWorld
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.reference.events import Tick
from rocketmq_ha.spec.event_log import MANIFEST_KEYS

LINK = registry.find(["link"])


def task(place: Path, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "campaign": str(place),
        "place": str(place),
        "seed": 7,
        "runs": 8,
        "runs_per_partition": 3,
        "worlds": ("link",),
    }
    return Task(**values | changes)


def rows(log: Path, part: str) -> list[dict[str, Any]]:
    """The rows of the files that the manifests name."""
    named = [json.loads(file.read_text()) for file in sorted((log / "manifest").iterdir())]
    return [row for one in named for row in pq.read_table(log / part / one[part]).to_pylist()]


def files(log: Path) -> list[str]:
    return sorted(path.relative_to(log).parts[0] for path in log.rglob("*") if path.is_file())


def test_a_partition_has_its_runs_their_rows_and_a_manifest(tmp_path: Path) -> None:
    manifests = [run_partition(task(tmp_path), number) for number in (2, 0)]
    assert [one and (one["partition"], one["seed"], one["n_runs"]) for one in manifests] == [(2, 13, 2), (0, 7, 3)]
    assert all(one is not None and tuple(one) == MANIFEST_KEYS for one in manifests)
    assert [row["run_id"] for row in rows(tmp_path, "runs")] == [7, 8, 9, 13, 14]
    events = rows(tmp_path, "events")
    for row in rows(tmp_path, "runs"):
        outcome = lockstep.run(registry.draw(row["run_id"], LINK))
        mine = [event for event in events if event["run_id"] == row["run_id"]]
        assert row["n_steps"] == len(mine) == sum(len(step.transitions) for step in outcome.steps)
        assert (row["phase"], row["world"], row["recipe"], row["verdict"]) == ("generate", "link", "", "ok")
        assert row["digest"] == recorder.digest(outcome.schedule)
        assert row["n_ops"] == len(outcome.schedule.events)
        assert row["elapsed_us"] > 0
        assert row["nbytes"] == sum(event["nbytes"] for event in mine if event["event"] in ("frames", "reports"))
    assert files(tmp_path) == ["events"] * 2 + ["manifest"] * 2 + ["runs"] * 2  # and nothing is left in started/
    first = manifests[1]
    assert first is not None
    assert first["n_steps"] == sum(event["run_id"] < 10 for event in events)


def test_a_published_partition_is_not_made_again(tmp_path: Path) -> None:
    first = run_partition(task(tmp_path), 1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run_partition(task(tmp_path), 1) == first
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_two_attempts_of_a_partition_are_in_the_log_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins before the first has published: both write files, and one manifest names those of one of them."""
    one = task(tmp_path)
    begins = lockstep.run
    raced: list[object] = []

    def run(*arguments: Any) -> Any:
        if not raced:
            raced.append(None)
            raced.append(run_partition(one, 0))
        return begins(*arguments)

    monkeypatch.setattr(lockstep, "run", run)
    run_partition(one, 0)
    assert len(raced) == 2
    assert len(list((tmp_path / "events").iterdir())) == 2
    assert [row["run_id"] for row in rows(tmp_path, "runs")] == [7, 8, 9]
    assert len(rows(tmp_path, "events")) == sum(row["n_steps"] for row in rows(tmp_path, "runs"))


def test_a_campaign_whose_place_another_has_taken_publishes_nothing(tmp_path: Path) -> None:
    (tmp_path / "campaign.json").write_text(json.dumps({"campaign": "another"}))
    with pytest.raises(FuzzError, match=f"{tmp_path}: found another campaign in it by now, expected {tmp_path}"):
        run_partition(task(tmp_path), 0)
    assert not (tmp_path / "manifest").exists()
    (tmp_path / "campaign.json").write_text(json.dumps({"campaign": str(tmp_path)}))
    assert run_partition(task(tmp_path), 0) is not None


def test_no_partition_begins_after_the_deadline(tmp_path: Path) -> None:
    assert run_partition(task(tmp_path, deadline=time.time()), 0) is None
    assert not list(tmp_path.iterdir())
    assert run_partition(task(tmp_path, deadline=time.time() + 600), 0) is not None


def test_a_campaign_without_an_end_has_full_partitions(tmp_path: Path) -> None:
    made = run_partition(task(tmp_path, runs=None), 40)
    assert made is not None
    assert (made["seed"], made["n_runs"]) == (127, 3)


def hangs(self: ImplementationWorld, event: object) -> None:
    del self
    if isinstance(event, Tick):
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # the time of the run is over soon
        while True:
            time.sleep(0.001)


def eats(self: ImplementationWorld, event: object) -> None:
    del self
    if isinstance(event, Tick):
        raise MemoryError


SCHEDULE = schedule_of(put(1), put(2), Tick(3), put(4))


@pytest.mark.parametrize(
    ("apply", "verdict", "told"),
    [(hangs, "timeout", "no end after 60 s"), (eats, "memory", "more than 1,073,741,824 bytes of memory")],
    ids=["hangs", "eats"],
)
def test_a_run_that_is_broken_off_keeps_its_steps(apply: Any, verdict: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ImplementationWorld.apply
    monkeypatch.setattr(ImplementationWorld, "apply", lambda self, event: apply(self, event) or own(self, event))
    outcome = limited_outcome(SCHEDULE, Limits(seconds=60.0))
    assert [step.verdict for step in outcome.steps] == ["ok", "ok", verdict]
    assert (outcome.last.signature, outcome.last.detail) == (f"cluster/Tick/{verdict}", told)
    row = recorder.run_row(outcome, "generate", 2)
    assert (row["n_ops"], row["failing_op"]) == (3, 2)


def test_a_mistake_of_the_model_is_a_verdict_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(self: object, event: object) -> None:
        raise KeyError(f"{type(self).__name__} {type(event).__name__}")

    monkeypatch.setattr(ReferenceWorld, "apply", raises)
    outcome = limited_outcome(SCHEDULE, Limits())
    assert [step.verdict for step in outcome.steps] == ["error"]
    place = f"fuzz/test_runner.py:{raises.__code__.co_firstlineno + 1}"
    assert outcome.last.signature == f"KeyError/Put/{place}"
    assert outcome.last.detail == f"{place}: 'ReferenceWorld Put'"


def test_sides_that_cannot_be_opened_are_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object) -> None:
        raise KeyError("no")

    monkeypatch.setattr(lockstep, "of_schedule", raises)
    outcome = limited_outcome(SCHEDULE, Limits())
    assert [(step.op_index, step.verdict, step.signature) for step in outcome.steps] == [(0, "error", "cluster/Put/error")]
    assert outcome.last.detail.startswith("KeyError at fuzz/test_runner.py:")


def test_a_replay_shows_a_mistake_of_the_model(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def raises(_: object, event: object) -> None:
        raise KeyError(event)

    monkeypatch.setattr(ReferenceWorld, "apply", raises)
    assert replay.show(SCHEDULE, Console(width=120)).verdict == "error"
    assert "error at operation 0: " in capsys.readouterr().out


def test_a_run_that_kills_its_process_is_a_row_after_an_attempt_has_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process of its own: a fork of this one could wait for ever for a lock that a thread of pyarrow held.
    source = f"""
import os, signal
from rocketmq_ha.fuzz import lockstep, runner
begins = lockstep.run
def run(schedule, steps=None):
    if schedule.seed == 8:
        os.kill(os.getpid(), signal.SIGSEGV)
    return begins(schedule, steps)
lockstep.run = run
runner.run_partition(runner.Task({str(tmp_path)!r}, {str(tmp_path)!r}, 7, 8, 3, ("link",)), 0)
"""
    died = subprocess.run([sys.executable, "-c", source], timeout=PATIENCE_S, check=False)
    assert died.returncode == -signal.SIGSEGV
    assert files(tmp_path) == ["started"]
    begins = lockstep.run

    def run(schedule: Any, steps: Any = None) -> Any:
        if schedule.seed == 8:
            os.kill(os.getpid(), signal.SIGSEGV)
        return begins(schedule, steps)

    monkeypatch.setattr(lockstep, "run", run)
    made = run_partition(task(tmp_path), 0)
    assert made is not None
    assert (made["n_runs"], made["n_failed"]) == (3, 1)
    found = {row["run_id"]: row for row in rows(tmp_path, "runs")}
    assert [found[seed]["verdict"] for seed in (7, 8, 9)] == ["ok", "crash", "ok"]
    assert (found[8]["signature"], found[8]["n_ops"], found[8]["failing_op"]) == ("cluster/process/killed by SIGSEGV", 0, -1)
    name = f"{recorder.digest_name(found[8]['digest'])}.json"
    assert [file.name for file in (tmp_path / "failures").iterdir()] == [name]
    assert schedule_file.read(tmp_path / "failures" / name) == registry.draw(8, LINK)
    assert made["failures"] == [{key: found[8][key] for key in ("run_id", "world", "verdict", "signature", "digest")}]


def test_a_guided_partition_draws_some_runs_and_makes_others_from_its_corpus(tmp_path: Path) -> None:
    guided = task(tmp_path, runs=60, runs_per_partition=30, is_guided=True)
    run_partition(guided, 0)
    run_partition(guided, 1)
    found = rows(tmp_path, "runs")
    phases = [row["phase"] for row in found]
    assert phases[0] == "generate"
    assert 0.1 * len(found) < phases.count("guided") < 0.9 * len(found)
    for row in found:
        assert (row["phase"] == "guided") == (row["run_id"] < 0) == bool(row["recipe"])
        seed = row["run_id"] if row["run_id"] >= 0 else -row["run_id"] - 1
        assert 7 <= seed < 67
    assert len({row["digest"] for row in found}) == len(found)
    store = runner.LogStore(str(tmp_path))
    for row in [row for row in found if row["recipe"]][::7]:
        again = corpus.from_recipe(row["recipe"], partial(corpus.parent_of, store, row["world"]))
        assert (again.seed, recorder.digest(again)) == (row["run_id"], row["digest"])


@pytest.mark.parametrize("is_guided", [False, True])
def test_partitions_in_another_order_have_the_same_seeds_and_without_a_corpus_the_same_runs(
    is_guided: bool, tmp_path: Path
) -> None:
    """A guided run hangs on what the corpus holds when its partition begins (docs/campaigns.md)."""
    found = []
    for name, order in (("first", (0, 1)), ("again", (1, 0))):
        of = task(tmp_path / name, runs=60, runs_per_partition=30, is_guided=is_guided)
        for number in order:
            run_partition(of, number)
        found.append({max(row["run_id"], ~row["run_id"]): row["digest"] for row in rows(tmp_path / name, "runs")})
    first, again = found
    assert [*first] == [*again] == [*range(7, 67)]
    assert (first == again) == (not is_guided)


def test_the_implementation_logs_nothing_in_a_campaign_and_goes_on_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same runs log some lines outside of a campaign."""
    run_partition(task(tmp_path, runs=30, runs_per_partition=30, worlds=("routes",)), 0)
    assert not [record for record in caplog.records if record.name.startswith("rocketmq_ha.impl")]
    for seed in range(7, 37):
        lockstep.run(registry.WORLDS["routes"].draw(seed))
    assert [record for record in caplog.records if record.name.startswith("rocketmq_ha.impl")]
