"""The event log has each transition of each run, with the figures that were counted by hand; no two of them are equal."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kit.schedules import SETTINGS, put, schedule_of
from rocketmq_ha.fuzz import recorder
from rocketmq_ha.fuzz.lockstep import RunOutcome, StepOutcome
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.recorder import EventRecorder
from rocketmq_ha.reference.events import Clog, Event, Tick
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, PHASE_GENERATE, PHASE_REPLAY, RUN_COLUMNS
from rocketmq_ha.spec.profile import CLASSIC, HARDENED


def transition(event: str, nbytes: int, first: int = 100) -> Transition:
    """A transition whose fields all differ; `first` moves them all."""
    return Transition(
        f"actor {first}",
        first + 1,
        event,
        f"from {first}",
        f"to {first}",
        first + 2,
        nbytes,
        first + 3,
        first + 4,
        (f"HA-{first}", f"HA-{first + 1}"),
    )


def run_of(seed: int, *steps: tuple[Event, int, tuple[Transition, ...]], verdict: str = "ok") -> RunOutcome:
    """A run of (event, time in ms, transitions); the last one has the verdict."""
    outcomes = [StepOutcome(at, event, now_ms, rows, "ok") for at, (event, now_ms, rows) in enumerate(steps)]
    if verdict != "ok":
        outcomes[-1] = replace(outcomes[-1], verdict=verdict, signature="link/Tick/room", detail="link 0.room: 1, 2")
    not_reached = () if verdict == "ok" else (Tick(1),) * 3  # a run ends at its first failure
    events = (*(event for event, _, _ in steps), *not_reached)
    return RunOutcome(schedule_of(*events, seed=seed, profile=CLASSIC), tuple(outcomes))


RUN = run_of(
    41,
    (put(1), 2, (transition("put", 1000), transition("transfer", 200, 20))),
    (put(2), 3, ()),
    (Clog(0, 3), 5, (transition("frames", 30, 40), transition("reports", 4, 60), transition("frames", 500, 80))),
    (Tick(4), 7, (transition("connect", 8, 10),)),
    verdict="divergence",
)


def test_each_transition_is_a_row_with_each_of_its_fields() -> None:
    events = EventRecorder()
    assert events.add(RUN) == 6
    rows = events.table().to_pylist()
    assert list(rows[0]) == [name for name, _, _ in EVENT_COLUMNS]
    assert list(rows[0].values()) == [
        *(41, "link", 0, 0, "actor 100", 101, "put", "from 100", "to 100", 102, 1000, 103, 104),
        *("none", ["HA-100", "HA-101"], 2_000_000, "ok"),
    ]
    assert list(rows[3].values()) == [
        *(41, "link", 3, 2, "actor 60", 61, "reports", "from 60", "to 60", 62, 4, 63, 64),
        *("clog", ["HA-60", "HA-61"], 5_000_000, "ok"),
    ]
    assert [(row["step"], row["op_index"], row["event"]) for row in rows] == [
        (0, 0, "put"),
        (1, 0, "transfer"),
        (2, 2, "frames"),
        (3, 2, "reports"),
        (4, 2, "frames"),
        (5, 3, "connect"),
    ]
    assert [row["ts_ns"] // 1_000_000 for row in rows] == [2, 2, 5, 5, 5, 7]
    assert [row["fault"] for row in rows] == ["none", "none", "clog", "clog", "clog", "none"]


def test_the_last_row_of_an_operation_has_its_verdict() -> None:
    events = EventRecorder()
    failed = run_of(1, (Tick(1), 1, (transition("put", 1), transition("put", 2), transition("put", 3))), verdict="error")
    events.add(failed)
    events.add(RUN)
    assert [row["verdict"] for row in events.table().to_pylist()] == ["ok", "ok", "error", *["ok"] * 5, "divergence"]


def test_the_rows_of_several_runs_follow_one_another_each_counted_from_0() -> None:
    events = EventRecorder()
    silent = run_of(42, (put(1), 2, ()))
    assert [events.add(run) for run in (RUN, silent, replace(RUN, schedule=replace(RUN.schedule, seed=43)))] == [6, 0, 6]
    rows = events.table().to_pylist()
    assert [row["run_id"] for row in rows] == [41] * 6 + [43] * 6
    assert [row["step"] for row in rows] == [*range(6), *range(6)]
    assert [row | {"run_id": 41} for row in rows[6:]] == rows[:6]


def test_a_run_has_one_row_with_its_sums() -> None:
    row = recorder.run_row(RUN, PHASE_REPLAY, 6)
    assert row == {
        "run_id": 41,
        "world": "link",
        "phase": "replay",
        "profile": "classic",
        "n_ops": 4,
        "n_steps": 6,
        "nbytes": 534,  # of frames and reports alone: 30 + 4 + 500
        "n_messages": 2,
        "verdict": "divergence",
        "failing_op": 3,
        "signature": "link/Tick/room",
        "detail": "link 0.room: 1, 2",
        "digest": recorder.digest(RUN.schedule),
        "recipe": "",
        "observed": 0,  # it failed
        "elapsed_us": -1,
    }
    assert list(row) == [name for name, _, _ in RUN_COLUMNS]


def test_the_row_of_a_run_without_a_failure_names_no_operation() -> None:
    good = run_of(9, (put(1), 1, (transition("reports", 16),)), (Tick(1), 2, ()))
    row = recorder.run_row(good, PHASE_GENERATE, 1)
    assert (row["verdict"], row["failing_op"], row["signature"], row["detail"]) == ("ok", -1, "", "")
    assert (row["phase"], row["nbytes"], row["n_messages"], row["n_ops"]) == ("generate", 16, 1, 2)


@pytest.mark.parametrize(("event", "counted"), [("frames", True), ("reports", True), ("transfer", False), ("put", False)])
def test_only_what_arrives_is_carried(event: str, counted: bool) -> None:
    """What a master hands to its socket is a transfer; it is carried when it arrives as frames."""
    row = recorder.run_row(run_of(9, (Tick(1), 1, (transition(event, 77),))), PHASE_GENERATE, 1)
    assert row["nbytes"] == (77 if counted else 0)


def test_the_files_hold_all_rows_and_no_unfinished_file_stays(tmp_path: Path) -> None:
    events = EventRecorder()
    many = run_of(5, *((Tick(1), at, (transition("put", at), transition("frames", at))) for at in range(3000)))
    assert events.add(many) == 6000
    store = LogStore(str(tmp_path))
    store.write_table("events/part-5.parquet", events.table())
    store.write_table("events/part-5.parquet", events.table())  # an attempt that is repeated
    table = recorder.run_table([recorder.run_row(many, PHASE_GENERATE, 6000), recorder.run_row(RUN, PHASE_GENERATE, 6)])
    store.write_table("runs/part-5.parquet", table)
    written = sorted(file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*") if file.is_file())
    assert written == ["events/part-5.parquet", "runs/part-5.parquet"]
    found = pq.read_table(tmp_path / "events" / "part-5.parquet")
    assert found.equals(events.table())
    assert found.num_rows == 6000
    assert found["step"].to_pylist() == list(range(6000))
    runs: list[dict[str, Any]] = pq.read_table(tmp_path / "runs" / "part-5.parquet").to_pylist()
    assert [(row["run_id"], row["n_steps"], row["nbytes"]) for row in runs] == [(5, 6000, 3000 * 2999 // 2), (41, 6, 534)]
    column = pq.ParquetFile(tmp_path / "events" / "part-5.parquet").metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"


@pytest.mark.parametrize(
    ("schema", "columns"), [(recorder.EVENT_SCHEMA, EVENT_COLUMNS), (recorder.RUN_SCHEMA, RUN_COLUMNS)], ids=["events", "runs"]
)
def test_no_column_is_nullable_and_each_has_its_type(schema: pa.Schema, columns: tuple[tuple[str, str, str], ...]) -> None:
    assert [(field.name, str(field.type), field.nullable) for field in schema] == [
        (name, {"list<string>": "list<element: string not null>"}.get(kind, kind), False) for name, kind, _ in columns
    ]


def digest(**changes: Any) -> int:
    drawn = replace(schedule_of(put(1), Tick(1), seed=1), **changes)
    return recorder.digest(drawn)


def test_a_digest_is_that_of_the_schedule_without_its_seed() -> None:
    assert digest() == digest(seed=99)
    others = [
        digest(profile=CLASSIC),
        digest(settings=replace(SETTINGS, mapped_file_size=1001)),
        digest(slaves=2),
        digest(events=(put(1), Tick(2))),
        digest(events=(Tick(1), put(1))),
    ]
    assert len({digest(), *others}) == 6
    assert HARDENED is schedule_of().profile


def test_a_digest_is_an_int64_of_either_sign() -> None:
    found = [digest(slaves=slaves) for slaves in range(100)]
    assert len(set(found)) == 100
    assert -(1 << 63) <= min(found) < -(1 << 60)
    assert 1 << 60 < max(found) < 1 << 63
