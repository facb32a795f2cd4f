"""Tables of pairs, of what is rare, of durations, of a comparison and of a trend, from a few hand-written rows."""

import threading
import time
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kit import counted, event_logs
from kit.counted import numbered, rows
from rocketmq_ha.analysis import clauses, coverage, durations, outcomes, pairs, starved, tables, trend
from rocketmq_ha.analysis.comparison import LOST, TOO_FEW_RUNS
from rocketmq_ha.analysis.quarantine import QUARANTINE
from rocketmq_ha.analysis.schema import Elsewhere, Machine, Possible

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

BOTH = ("classic", "hardened")
POSSIBLE = Possible(
    machines={
        "m": Machine(
            states=("a", "b"),
            events=("e", "f"),
            transitions=(("a", "e", "b", BOTH), ("b", "f", "a", BOTH), ("b", "e", "b", ("classic",))),
            worlds=("link", "store"),
        )
    },
    clauses={"HA-1": "One.", "HA-2": "Two."},
    worlds_of={"HA-1": ("link", "store"), "HA-2": ("store",)},
    elsewhere={"HA-3": Elsewhere("Three.", ("tests/a.py",), ""), "HA-4": Elsewhere("Four.", (), "a wish")},
)


def step(run_id: int, names: str, **changes: Any) -> dict[str, Any]:
    from_state, event, to_state = names.split()
    return event_logs.event_row(run_id, 0, actor="m", from_state=from_state, event=event, to_state=to_state, **changes)


def test_pairs_follow_one_instance_in_the_order_of_steps(spark: SparkSession) -> None:
    """Instance 1 takes a step between the two of instance 0; run 2 begins anew, and the two runs are no pair."""
    steps = numbered(
        step(1, "a e b"), step(1, "a e b", instance=1), step(1, "b f a"), step(1, "b e b", instance=1), step(1, "a e b"),
        step(2, "b f a"), step(2, "b f a"), step(2, "a e b"), step(2, "b f a"), step(2, "a e b"),
    )  # fmt: skip
    of = counted.counts(spark, steps, [event_logs.run_row(1), event_logs.run_row(2)])
    seen = pairs.pairs_seen(of)
    assert rows(seen) == [
        ("classic", "m", "a", "e", "b", "e", "b", 1, 1),
        ("classic", "m", "a", "e", "b", "f", "a", 2, 2),
        ("classic", "m", "b", "f", "a", "e", "b", 3, 2),
    ]
    possible = pairs.possible_pairs(coverage.possible_transitions(spark, POSSIBLE))
    # classic: a e b meets b f a and b e b; b f a meets a e b; b e b meets b f a and itself. hardened has no b e b.
    assert rows(pairs.pairs_by_machine(seen, possible)) == [("classic", "m", 5, 3, 2, 0), ("hardened", "m", 2, 0, 2, 0)]


def test_a_pair_of_an_impossible_transition_is_told(spark: SparkSession) -> None:
    steps = numbered(step(1, "a f a"), step(1, "a e b"))
    seen = pairs.pairs_seen(counted.counts(spark, steps, [event_logs.run_row(1, profile="hardened")]))
    possible = pairs.possible_pairs(coverage.possible_transitions(spark, POSSIBLE))
    assert ("hardened", "m", 2, 0, 2, 1) in rows(pairs.pairs_by_machine(seen, possible))


def test_starved_is_what_fewer_than_five_drawn_runs_took(spark: SparkSession) -> None:
    """Of ten drawn runs four take b f a, five a e b, one b e b. A guided run takes b f a too: it is no sample."""
    assert starved.ENOUGH_RUNS == 5
    sample = [event_logs.run_row(n, world="store" if n % 2 else "link") for n in range(10)]
    sample += [event_logs.run_row(-1, phase="guided"), event_logs.run_row(20, profile="hardened")]
    steps = [step(n, "b f a", world="store" if n % 2 else "link") for n in range(4)]
    steps += [step(n, "a e b", world="store" if n % 2 else "link") for n in range(5)]
    steps += [step(9, "b e b", world="store"), step(9, "b e b", world="store"), step(-1, "b f a")]
    steps += [step(0, "a gone b")]
    found = starved.starved(
        counted.counts(spark, numbered(*steps), sample),
        counted.runs_frame(spark, *sample),
        coverage.possible_transitions(spark, POSSIBLE),
        starved.machine_worlds(spark, POSSIBLE),
    )
    assert rows(found) == [
        ("classic", "m", "b", "e", "b", 2, 1, 10, pytest.approx(0.9**10), 44),  # 0.9 ** 43 > 1 % > 0.9 ** 44
        ("classic", "m", "b", "f", "a", 4, 4, 10, pytest.approx(0.6**10), 10),
    ]


def test_durations_leave_out_what_nobody_measured(spark: SparkSession) -> None:
    times = (10, 20, 30, 40, -1)
    sample = [event_logs.run_row(n, elapsed_us=us, n_steps=n + 1, n_ops=7) for n, us in enumerate(times)]
    runs = counted.runs_frame(spark, *sample, event_logs.run_row(9, world="store", elapsed_us=-1))
    found = {(row["world"], row["measure"]): row for row in durations.run_durations(runs).collect()}
    assert {*found} == {
        ("link", "elapsed_us"),
        ("link", "n_steps"),
        ("link", "n_ops"),
        ("store", "n_steps"),
        ("store", "n_ops"),
    }
    time, steps = found["link", "elapsed_us"], found["link", "n_steps"]
    assert (time["runs"], time["least"], time["median"], time["most"], time["total"]) == (4, 10, 25, 40, 100)
    assert (time["timed_steps"], steps["timed_steps"]) == (1 + 2 + 3 + 4, 0)
    assert (steps["runs"], steps["q25"], steps["median"], steps["total"]) == (5, 2, 3, 15)


def test_the_slowest_runs_come_first_in_each_world(spark: SparkSession) -> None:
    sample = [event_logs.run_row(n, elapsed_us=100 - n) for n in range(12)]
    runs = counted.runs_frame(
        spark, *sample, event_logs.run_row(50, world="store", elapsed_us=1), event_logs.run_row(51, elapsed_us=-1)
    )
    found = durations.slowest_runs(runs, outcomes.replay_line(("l",))).sort("world", "place").collect()
    assert [(row["world"], row["place"], row["run_id"]) for row in found] == [
        *(("link", n + 1, n) for n in range(10)),
        ("store", 1, 50),
    ]
    assert found[0]["replay"] == "rocketmq-ha fuzz replay 0 --world link"


def test_clauses_are_held_by_schedules_by_tests_or_by_a_reason(spark: SparkSession) -> None:
    steps = numbered(
        step(1, "a e b", clauses=["HA-1", "HA-9"]),
        step(1, "a e b", clauses=["HA-1"]),
        step(2, "a e b", clauses=["HA-1", "HA-4"], world="store"),
    )
    sample = [event_logs.run_row(1), event_logs.run_row(2, world="store")]
    of = counted.counts(spark, steps, sample)
    found = clauses.clause_coverage(of, clauses.possible_clauses(spark, POSSIBLE))
    assert rows(found) == [("HA-1", "One.", 3, 2), ("HA-2", "Two.", 0, 0), ("HA-4", "", 1, 1), ("HA-9", "", 1, 1)]
    worlds = coverage.worlds_measured(spark, ("link", "store"), counted.runs_frame(spark, *sample))
    assert rows(worlds) == [("link", 1), ("store", 1)]
    by_world = clauses.clauses_by_world(of, clauses.possible_clause_worlds(spark, POSSIBLE), worlds)
    assert rows(by_world) == [
        ("HA-1", "link", 2, 1, True),
        ("HA-1", "store", 1, 1, True),
        ("HA-2", "store", 0, 0, True),
        ("HA-4", "store", 1, 1, False),
        ("HA-9", "link", 1, 1, False),
    ]
    held = clauses.clauses_held(found, clauses.clauses_elsewhere(spark, POSSIBLE), clauses.possible_clauses(spark, POSSIBLE))
    assert rows(held) == [
        ("HA-1", "One.", "schedule", 3, 2, [], ""),
        ("HA-2", "Two.", "schedule, never", 0, 0, [], ""),
        ("HA-3", "Three.", "tests", 0, 0, ["tests/a.py"], ""),
        ("HA-4", "Four.", "schedule", 1, 1, [], "a wish"),
        ("HA-9", "", "unknown", 1, 1, [], ""),
    ]


def test_a_clause_is_not_expected_in_a_world_that_is_not_measured(spark: SparkSession) -> None:
    of = counted.counts(spark, numbered(step(1, "a e b")), [event_logs.run_row(1)])
    worlds = coverage.worlds_measured(spark, ("link",), counted.runs_frame(spark))
    assert rows(worlds) == [("link", 0)]
    by_world = clauses.clauses_by_world(of, clauses.possible_clause_worlds(spark, POSSIBLE), worlds)
    assert rows(by_world) == [("HA-1", "link", 0, 0, True)]
    found = clauses.clause_coverage(of, clauses.possible_clauses(spark, POSSIBLE))
    could = clauses.possible_clauses(spark, POSSIBLE.in_worlds(("link",)))
    assert rows(clauses.in_worlds_measured(found, could)) == [("HA-1", "One.", 0, 0)]
    held = clauses.clauses_held(found, clauses.clauses_elsewhere(spark, POSSIBLE), could).collect()
    assert {row["clause"]: row["held"] for row in held} == {
        "HA-1": "schedule, never",
        "HA-2": "schedule, other world",
        "HA-3": "tests",
        "HA-4": "reason",
    }


def test_a_clause_that_a_run_exercised_counts_in_whichever_world(spark: SparkSession) -> None:
    """HA-2 belongs to the store, HA-9 to no world: the table of the specification is stale."""
    of = counted.counts(spark, numbered(step(1, "a e b", clauses=["HA-2", "HA-9"])), [event_logs.run_row(1)])
    found = clauses.clause_coverage(of, clauses.possible_clauses(spark, POSSIBLE))
    could = clauses.possible_clauses(spark, POSSIBLE.in_worlds(("link",)))
    assert rows(clauses.in_worlds_measured(found, could)) == [
        ("HA-1", "One.", 0, 0),
        ("HA-2", "Two.", 1, 1),
        ("HA-9", "", 1, 1),
    ]


# --- Two campaigns -----------------------------------------------------------------------------------------------------------


def report(
    runs: int, seen: dict[str, int], *, clause_runs: dict[str, int], failures: dict[str, int], speed: int, paired: bool = True
) -> dict[str, pa.Table]:
    """The tables of a report that a comparison reads: `runs` runs of 10 steps each, of which some saw each transition.

    paired: seven runs saw a pair of transitions; else none did.
    """
    names = ("profile", *coverage.TRANSITION[1:], "n", "n_runs")
    transitions = [("classic", "m", *name.split(), 99, n) for name, n in seen.items()]
    pair = ("classic", "m", "a", "e", "b", "f", "a", 99, 7)
    covered = [(clause, "link", 5 * n, n, True) for clause, n in clause_runs.items()]
    failed = sum(failures.values())
    summed = [("classic", "generate", "ok", runs - failed, (runs - failed) * 10)]
    summed += [("classic", "generate", "divergence", failed, failed * 10)] if failed else []
    times = [("link", "elapsed_us", runs - 1, runs * 1000, (runs - 1) * speed), ("link", "n_steps", runs, runs * 10, 0)]
    return {
        "transitions_seen": table(names, transitions),
        "clauses_by_world": table(("clause", "world", "n", "n_runs", "is_expected"), covered),
        "pairs": table((*pairs.PAIR, "n", "n_runs"), [pair]).slice(0 if paired else 1),
        "divergences": table(
            ("verdict", "signature", "n", "replay", "detail"),
            [("divergence", name, n, f"again {name} {runs}", f"why {runs}") for name, n in failures.items()]
            or [("divergence", "none", 0, "", "")],
        ).slice(0 if failures else 1),
        "summary": table(("profile", "phase", "verdict", "runs", "steps"), summed),
        "run_durations": table(("world", "measure", "runs", "total", "timed_steps"), times),
    }


def table(names: tuple[str, ...], content: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in content])


@pytest.fixture(scope="module")
def compared(spark: SparkSession) -> dict[str, list[dict[str, Any]]]:
    """Of 1,000 runs to 100: b f a was in 500 of them, b e b in 10, HA-1 in 900, HA-2 in 1."""
    before = {"a e b": 1000, "b f a": 500, "b e b": 10}
    older = report(1000, before, clause_runs={"HA-1": 900, "HA-2": 1}, failures={"x": 4, "y": 1}, speed=10)
    now = {"a e b": 100, "a f a": 3}
    newer = report(100, now, clause_runs={"HA-2": 1, "HA-3": 2}, failures={"y": 2, "z": 1}, speed=20, paired=False)
    return {name: found.to_pylist() for name, found in tables.compare(spark, older, newer).items()}


def test_lost_transitions_come_first_and_then_what_chance_explains_least(compared: dict[str, list[dict[str, Any]]]) -> None:
    found = compared["lost_coverage"]
    assert [(row["kind"], row["name"], row["world"], row["judgement"]) for row in found] == [
        ("transition", "m b f a", "", LOST),
        ("transition", "m b e b", "", TOO_FEW_RUNS),
        ("clause", "HA-1", "link", LOST),
        ("pair", "m a e b f a", "", TOO_FEW_RUNS),
    ]
    rare = found[1]
    assert (rare["n_runs"], rare["runs_before"], rare["runs_now"]) == (10, 1000, 100)
    assert rare["miss_probability"] == pytest.approx(0.99**100)
    assert rare["runs_needed"] == 459  # 0.99 ** 459 < 1 % < 0.99 ** 458


def test_new_failures_come_before_those_of_both_and_those_that_are_gone(compared: dict[str, list[dict[str, Any]]]) -> None:
    found = [
        (row["change"], row["signature"], row["n_before"], row["n_now"], row["replay"]) for row in compared["failures_compared"]
    ]
    assert found == [
        ("new", "z", 0, 1, "again z 100"),
        ("still", "y", 1, 2, "again y 100"),
        ("gone", "x", 4, 0, "again x 1000"),
    ]


def test_new_coverage_is_what_only_the_newer_one_has(compared: dict[str, list[dict[str, Any]]]) -> None:
    found = [(row["kind"], row["name"], row["n_runs"], row["runs_now"]) for row in compared["new_coverage"]]
    assert found == [("clause", "HA-3", 2, 100), ("transition", "m a f a", 3, 100)]


def test_rates_are_those_of_one_core_and_of_a_million_steps(compared: dict[str, list[dict[str, Any]]]) -> None:
    found = {row["measure"]: (row["before"], row["now"], row["ratio"]) for row in compared["rates"]}
    assert found == {
        "runs": (1000, 100, pytest.approx(0.1)),
        "steps": (10_000, 1000, pytest.approx(0.1)),
        "failed_runs": (5, 3, pytest.approx(0.6)),
        "failures_per_million_steps": (pytest.approx(500), pytest.approx(3000), pytest.approx(6)),
        "steps_per_second": (
            pytest.approx(999 * 10 * 1e6 / 1e6),
            pytest.approx(99 * 20 * 1e6 / 1e5),
            pytest.approx(19800 / 9990),
        ),
    }


def test_equal_campaigns_have_lost_and_gained_nothing(spark: SparkSession) -> None:
    same = report(10, {"a e b": 10}, clause_runs={"HA-1": 3}, failures={}, speed=10)
    found = tables.compare(spark, same, same)
    assert [found[name].num_rows for name in ("lost_coverage", "failures_compared", "new_coverage")] == [0, 0, 0]
    assert {row["ratio"] for row in found["rates"].to_pylist()} == {1.0, None}


def test_progress_is_told_by_one_thread_at_a_time(spark: SparkSession) -> None:
    """Else two numbered lines may come in the wrong order. Each call here lasts longer than a job of Spark."""
    calling = threading.Lock()
    told = []

    def progress(title: str) -> None:
        assert calling.acquire(blocking=False), f"{title}: told beside another"
        time.sleep(1)
        told.append(title)
        calling.release()

    same = report(10, {"a e b": 10}, clause_runs={"HA-1": 3}, failures={}, speed=10)
    tables.compare(spark, same, same, progress)
    assert sorted(told) == sorted(tables.COMPARISON_TITLES.values())


def test_a_trend_has_a_row_for_each_log_and_counts_each_alone(spark: SparkSession) -> None:
    """Both logs have run 1. The third is empty. Two tasks have counted the first, and both saw the same."""
    first = counted.counts(spark, numbered(step(1, "a e b", clauses=["HA-1"]), step(1, "gone e b")), [event_logs.run_row(1)])
    steps = numbered(step(1, "a e b"), step(2, "b f a", clauses=["HA-1", "HA-2"]))
    second = counted.counts(spark, steps, [event_logs.run_row(1), event_logs.run_row(2, profile="hardened")], log=1)
    bad = {"verdict": "error", "signature": "s"}
    runs = counted.runs_frame(spark, event_logs.run_row(1, n_steps=2, elapsed_us=500)).unionByName(
        counted.runs_frame(
            spark,
            event_logs.run_row(1, n_steps=1, elapsed_us=-1, **bad),
            event_logs.run_row(2, n_steps=1, elapsed_us=100, **bad),
            log=1,
        )
    )
    logs = spark.createDataFrame([(0, "mon"), (1, "tue"), (2, "wed")], "log int, name string")
    damaged = spark.createDataFrame([(1, "f", "r", 1, 1, "")], QUARANTINE)
    again = counted.counts(spark, numbered(step(3, "a e b", clauses=["HA-1"])), [event_logs.run_row(3)])
    found = trend.trend(
        first.unionByName(second).unionByName(again), runs, damaged, coverage.possible_transitions(spark, POSSIBLE), logs
    )
    assert found.columns == [
        *(
            "log",
            "name",
            "runs",
            "steps",
            "transitions",
            "clauses",
            "failed_runs",
            "signatures",
            "steps_per_second",
            "quarantined",
        )
    ]
    assert rows(found) == [
        (0, "mon", 1, 2, 1, 1, 0, 0, 4000.0, 0),
        (1, "tue", 2, 2, 2, 2, 2, 1, 10000.0, 1),
        (2, "wed", 0, 0, 0, 0, 0, 0, None, 0),
    ]
