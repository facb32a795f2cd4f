"""Each table of coverage, growth and outcomes, computed from a few hand-written rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from kit import counted, event_logs
from kit.counted import numbered, rows
from rocketmq_ha.analysis import coverage, estimates, fragmentation, hypothesis, outcomes
from rocketmq_ha.analysis.count_rows import COUNTS, RUN
from rocketmq_ha.analysis.count_rows import rows as count_rows
from rocketmq_ha.analysis.schema import Machine, Possible

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

Row = dict[str, Any]
Frame = Callable[..., DataFrame]

POSSIBLE = Possible(
    machines={
        "store": Machine(
            states=("empty", "holds_data"),
            events=("put", "recover"),
            transitions=(
                ("empty", "put", "holds_data", ("classic", "hardened")),
                ("holds_data", "put", "holds_data", ("classic",)),
                ("holds_data", "recover", "empty", ("classic", "hardened")),
            ),
            worlds=("link", "store"),
        )
    },
    clauses={"HA-1": "One.", "HA-2": "Two."},
)


@pytest.fixture
def runs(spark: SparkSession) -> Frame:
    return lambda *given, log=0: counted.runs_frame(spark, *given, log=log)


AGAIN = {"from_state": "holds_data"}
FIVE_STEPS = numbered(
    event_logs.event_row(5, 0),
    event_logs.event_row(5, 1, **AGAIN),
    event_logs.event_row(3, 0, event="recover", from_state="holds_data", to_state="empty"),
    event_logs.event_row(3, 1),
    event_logs.event_row(8, 0),
    event_logs.event_row(8, 1, **AGAIN),
)
FIVE_RUNS = [event_logs.run_row(3), event_logs.run_row(5), event_logs.run_row(8, profile="hardened")]


@pytest.fixture
def five(spark: SparkSession) -> DataFrame:
    """Two classic runs, 3 and 5, and one hardened run, 8.

    Each appends once. Run 3 has recovered before. Run 5 appends a second time. Run 8 does so too, which hardened cannot do
    (POSSIBLE).
    """
    return counted.counts(spark, FIVE_STEPS, FIVE_RUNS)


def test_runs_rank_by_seed_and_those_of_no_campaign_come_last(runs: Frame) -> None:
    """Run -5 is guided: it has the place of seed 4."""
    given = runs(
        event_logs.run_row(1, phase="recorded"),
        event_logs.run_row(9),
        event_logs.run_row(-5, phase="guided"),
        event_logs.run_row(2, profile="hardened"),
        event_logs.run_row(7, world="store"),
        event_logs.run_row(0, phase="replay"),
    ).unionByName(runs(event_logs.run_row(3), log=1))
    ranked = coverage.ranked_runs(given)
    assert ranked.columns == ["log", "run_id", "profile", "world", "phase", "run_rank", "world_rank"]
    assert {row["run_id"]: (row["run_rank"], row["world_rank"]) for row in ranked.collect()} == {
        -5: (1, 1),
        7: (2, 1),  # the first of its world
        9: (3, 2),
        3: (4, 3),  # of the second log
        0: (5, 4),
        1: (6, 5),
        2: (1, 1),
    }


def test_transitions_seen_name_the_first_run_and_step(five: DataFrame) -> None:
    seen = coverage.transitions_seen(five)
    assert seen.columns == [*coverage.TRANSITION, "n", "n_runs", "first_run", "first_step", "first_log"]
    assert rows(seen) == [
        ("classic", "store", "empty", "put", "holds_data", 2, 2, 3, 1, 0),
        ("classic", "store", "holds_data", "put", "holds_data", 1, 1, 5, 1, 0),
        ("classic", "store", "holds_data", "recover", "empty", 1, 1, 3, 0, 0),
        ("hardened", "store", "empty", "put", "holds_data", 1, 1, 8, 0, 0),
        ("hardened", "store", "holds_data", "put", "holds_data", 1, 1, 8, 1, 0),
    ]


def test_the_first_run_is_the_lowest_of_a_campaign_over_all_logs_and_tasks(spark: SparkSession) -> None:
    """A replay has the lowest number, the second log the lowest seed, and each part was counted by another task."""
    second = counted.counts(spark, numbered(event_logs.event_row(2, 0)), [event_logs.run_row(2)], log=1)
    later = counted.counts(spark, numbered(event_logs.event_row(6, 0)), [event_logs.run_row(6)])
    guided = counted.counts(spark, numbered(event_logs.event_row(-5, 0)), [event_logs.run_row(-5, phase="guided")])
    replay = counted.counts(spark, numbered(event_logs.event_row(-9, 0)), [event_logs.run_row(-9, phase="replay")])
    for order in ([second, later, guided, replay], [replay, guided, later, second]):
        whole = order[0]
        for part in order[1:]:
            whole = whole.unionByName(part)
        (seen,) = coverage.transitions_seen(whole).collect()
        assert (seen["first_log"], seen["first_run"], seen["n"], seen["n_runs"]) == (0, -5, 4, 4)


def test_the_first_run_is_right_for_the_largest_seeds(spark: SparkSession) -> None:
    largest, smallest = 2**63 - 1, -(2**63)
    steps = [event_logs.event_row(largest, 0), event_logs.event_row(smallest, 0)]
    (seen,) = coverage.transitions_seen(
        counted.counts(spark, steps, [event_logs.run_row(largest), event_logs.run_row(smallest)])
    ).collect()
    assert (seen["first_run"], seen["first_step"]) == (smallest, 0)


def test_transitions_of_each_world_have_their_own_numbers(spark: SparkSession) -> None:
    steps = numbered(event_logs.event_row(1, 0, world="store"), event_logs.event_row(2, 0), event_logs.event_row(3, 0))
    sample = [event_logs.run_row(1, world="store"), event_logs.run_row(2), event_logs.run_row(3)]
    assert rows(coverage.world_transitions_seen(counted.counts(spark, steps, sample))) == [
        ("link", "classic", "store", "empty", "put", "holds_data", 2, 2, 2, 0, 0),
        ("store", "classic", "store", "empty", "put", "holds_data", 1, 1, 1, 0, 0),
    ]


def test_test_cases_of_hypothesis_take_no_transition(spark: SparkSession) -> None:
    rule = {"world": "hypothesis", "actor": "tests/a.py::test", "from_state": "rule", "to_state": "rule", "event": "put"}
    sample = [event_logs.run_row(-1, phase="hypothesis", world="hypothesis", profile=""), event_logs.run_row(2)]
    steps = numbered(event_logs.event_row(-1, 0, **rule), event_logs.event_row(-1, 0, **rule), event_logs.event_row(2, 0))
    of = counted.counts(spark, steps, sample)
    assert [row[1] for row in rows(coverage.transitions_seen(of))] == ["store"]
    assert rows(hypothesis.hypothesis_cases(of)) == [("tests/a.py::test", "rule", "put", 2, 1)]


def test_never_seen_and_impossible_are_the_differences_of_possible_and_seen(spark: SparkSession, five: DataFrame) -> None:
    seen = coverage.transitions_seen(five)
    possible = coverage.possible_transitions(spark, POSSIBLE)
    assert rows(coverage.transitions_never_seen(possible, seen)) == [("hardened", "store", "holds_data", "recover", "empty")]
    assert rows(coverage.transitions_impossible(seen, possible)) == [
        ("hardened", "store", "holds_data", "put", "holds_data", 1, 1, 8, 1, 0)
    ]


def test_matrix_cells_are_seen_partly_seen_never_seen_or_impossible(spark: SparkSession, five: DataFrame) -> None:
    possible = coverage.possible_transitions(spark, POSSIBLE)

    def matrix(of: DataFrame) -> list[tuple[Any, ...]]:
        return rows(coverage.matrix(possible, coverage.transitions_seen(of)))

    without = counted.counts(spark, numbered(*(row for row in FIVE_STEPS if row["event"] != "recover")), FIVE_RUNS)
    assert matrix(five) == [
        ("store", "empty", "put", 3, 2, 2, "seen"),
        ("store", "holds_data", "put", 2, 1, 1, "impossible"),
        ("store", "holds_data", "recover", 1, 1, 2, "partly"),
    ]
    assert matrix(without)[2] == ("store", "holds_data", "recover", 0, 0, 2, "never")


def test_possible_transitions_are_limited_to_the_profiles_that_were_run(spark: SparkSession, runs: Frame) -> None:
    possible = coverage.in_profiles_run(coverage.possible_transitions(spark, POSSIBLE), runs(event_logs.run_row(1)))
    assert {row["profile"] for row in possible.collect()} == {"classic"}


def test_the_places_of_a_split_are_those_between_the_bytes_of_a_unit() -> None:
    """A frame has 12 bytes before its body, a report 8, a command two lengths of 4. A stop behind a report is no split."""
    header = [(fragmentation.FRAME, at, str(at), "header") for at in range(1, 12)]
    lengths = [(fragmentation.COMMAND, at, str(at), "lengths") for at in range(1, 8)]
    ranges = ["1-3", "4-15", "16-63", "64-255", "256+"]
    assert list(fragmentation.PLACES) == [
        *header,
        (fragmentation.FRAME, 12, "12", "after header"),
        *((fragmentation.FRAME, 13 + number, f"body {name}", "body") for number, name in enumerate(ranges)),
        *((fragmentation.REPORT, at, str(at), "report") for at in range(1, 8)),
        *lengths,
        (fragmentation.COMMAND, 8, "8", "after lengths"),
        *((fragmentation.COMMAND, 9 + number, f"rest {name}", "rest") for number, name in enumerate(ranges)),
    ]
    firsts = [first for first, _ in fragmentation.BODY_BUCKETS]
    assert [name for _, name in fragmentation.BODY_BUCKETS] == ranges
    assert firsts == [int(name.rstrip("+").partition("-")[0]) for name in ranges]
    ends = [int(name.rpartition("-")[2]) for name in ranges[:-1]]
    assert [end + 1 for end in ends] == firsts[1:]


# The first and the last byte of each bucket of a body, behind the 12 bytes of the header.
BODIES = (13, 15, 16, 27, 28, 75, 76, 267, 268, 9999)


def test_splits_are_counted_by_header_byte_and_by_body_bucket(spark: SparkSession) -> None:
    frame = {"actor": "slave_client", "event": "frames", "fragment_len": 9}
    command = {"actor": "remoting_connection", "event": "read", "fragment_len": 9}
    steps = numbered(
        *(event_logs.event_row(1, 0, split_at=at, **frame) for at in (0, 1, 11, 12, *BODIES)),
        event_logs.event_row(2, 0, split_at=11, **frame),
        event_logs.event_row(2, 0, split_at=5, **frame | {"fragment_len": 0}),  # no bytes moved, so this is no new split
        event_logs.event_row(2, 0, split_at=7, actor="master_connection", event="reports", fragment_len=3),
        *(event_logs.event_row(2, 0, split_at=at, **command) for at in (1, 8, 9, 12, 13)),
    )
    of = counted.counts(spark, steps, [event_logs.run_row(1), event_logs.run_row(2)])
    found = fragmentation.fragmentation(of, fragmentation.places(spark))
    n = {(row["actor"], row["bucket"]): (row["n"], row["n_runs"]) for row in found.collect()}
    assert {key: value for key, value in n.items() if value != (0, 0)} == {
        ("slave_client", "1"): (1, 1),
        ("slave_client", "11"): (2, 2),
        ("slave_client", "12"): (1, 1),
        ("slave_client", "body 1-3"): (2, 1),
        ("slave_client", "body 4-15"): (2, 1),
        ("slave_client", "body 16-63"): (2, 1),
        ("slave_client", "body 64-255"): (2, 1),
        ("slave_client", "body 256+"): (2, 1),
        ("master_connection", "7"): (1, 1),
        ("remoting_connection", "1"): (1, 1),
        ("remoting_connection", "8"): (1, 1),
        ("remoting_connection", "rest 1-3"): (1, 1),
        ("remoting_connection", "rest 4-15"): (2, 1),
    }
    assert len(n) == (11 + 1 + len(fragmentation.BODY_BUCKETS)) + 7 + (7 + 1 + len(fragmentation.BODY_BUCKETS))
    assert rows(fragmentation.never_split(found)) == [
        ("master_connection", "reports", "report", 6, [1, 2, 3, 4, 5, 6]),
        ("remoting_connection", "read", "command", 6, [2, 3, 4, 5, 6, 7]),
        ("slave_client", "frames", "frame", 9, [2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ]


def test_growth_has_a_point_for_each_run_with_a_new_transition(five: DataFrame, runs: Frame) -> None:
    ranked = coverage.ranked_runs(runs(*FIVE_RUNS))
    seen = coverage.transitions_seen(five)
    assert rows(estimates.growth(seen, ranked)) == [("classic", 1, 2), ("classic", 2, 3), ("hardened", 1, 2)]


def test_growth_ends_at_the_last_run_even_without_a_new_transition(spark: SparkSession, runs: Frame) -> None:
    sample = [event_logs.run_row(run_id) for run_id in range(4)]
    seen = coverage.transitions_seen(counted.counts(spark, [event_logs.event_row(n, 0) for n in range(4)], sample))
    assert rows(estimates.growth(seen, coverage.ranked_runs(runs(*sample)))) == [("classic", 1, 1), ("classic", 4, 1)]


def test_growth_by_world_counts_the_runs_of_the_world_alone(spark: SparkSession, runs: Frame) -> None:
    sample = [event_logs.run_row(n, world=world) for n, world in enumerate(("link", "link", "store", "link", "store"))]
    steps = [event_logs.event_row(row["run_id"], 0, world=row["world"]) for row in sample]
    seen = coverage.world_transitions_seen(counted.counts(spark, steps, sample))
    assert rows(estimates.growth_by_world(seen, coverage.ranked_runs(runs(*sample)))) == [
        ("link", "classic", 1, 1),
        ("link", "classic", 3, 1),
        ("store", "classic", 1, 1),
        ("store", "classic", 2, 1),
    ]


@pytest.mark.parametrize(
    ("in_runs", "expected"),
    [
        # for each state, in how many of the 4 drawn runs it was seen -> m, seen, q1, q2, q1 / m, chao2
        ((1, 1, 2, 4), (4, 4, 2, 1, 0.5, 4 + 3 / 4 * 2 * 2 / 2)),
        ((1, 1, 1, 4), (4, 4, 3, 0, 0.75, 4 + 3 / 4 * 3 * 2 / 2)),  # Q2 = 0: bias-corrected
        ((3, 4), (4, 2, 0, 0, 0.0, 2.0)),
    ],
)
def test_estimates_count_runs_not_steps_and_only_those_drawn(
    spark: SparkSession, runs: Frame, in_runs: tuple[int, ...], expected: tuple[float, ...]
) -> None:
    steps = [
        event_logs.event_row(run_id, 0, to_state=f"state_{number}")
        for number, n_runs in enumerate(in_runs)
        for run_id in range(n_runs)
        for _ in range(3)
    ]
    phases = ("replay", "guided", "recorded", "hypothesis")
    others = [event_logs.event_row(-9 - n, 0, to_state="only in another phase") for n in range(len(phases))]
    sample = [event_logs.run_row(run_id) for run_id in range(4)]
    sample += [event_logs.run_row(-9 - n, phase=phase) for n, phase in enumerate(phases)]
    of = counted.counts(spark, numbered(*steps, *others), sample)
    assert rows(estimates.estimates(of, runs(*sample))) == [("all", *expected), ("classic", *expected)]
    assert rows(estimates.estimates_by_world(of, runs(*sample))) == [
        ("link", "all", *expected),
        ("link", "classic", *expected),
    ]


def test_estimates_of_a_world_have_its_own_runs(spark: SparkSession, runs: Frame) -> None:
    sample = [event_logs.run_row(n, world="store" if n == 2 else "link") for n in range(3)]
    steps = [event_logs.event_row(row["run_id"], 0, world=row["world"]) for row in sample]
    found = estimates.estimates_by_world(counted.counts(spark, steps, sample), runs(*sample))
    assert [row[:6] for row in rows(found) if row[1] == "all"] == [("link", "all", 2, 1, 0, 1), ("store", "all", 1, 1, 1, 0)]


def test_divergences_are_grouped_and_show_the_smallest_run(runs: Frame) -> None:
    same = {"verdict": "divergence", "signature": "slave_client/frames/log"}
    failed = runs(
        event_logs.run_row(1),
        event_logs.run_row(5, n_ops=9, failing_op=8, detail="far", **same),
        event_logs.run_row(7, n_ops=4, failing_op=3, detail="near", **same),
        event_logs.run_row(6, n_ops=4, failing_op=2, detail="near too", digest=66, **same),
        event_logs.run_row(-2, n_ops=1, verdict="error", signature="a", failing_op=0, detail="o", phase="guided", digest=-2),
        event_logs.run_row(-3, n_ops=1, verdict="error", signature="b", failing_op=0, detail="p", phase="recorded", digest=4),
    )
    found = outcomes.divergences(failed, outcomes.replay_line(("logs/a",)))
    again = "rocketmq-ha fuzz replay"
    assert rows(found) == [
        (
            "divergence",
            same["signature"],
            3,
            6,
            4,
            2,
            "classic",
            "near too",
            f"{again} 6 --world link",
            "link",
            "generate",
            0,
            66,
        ),
        ("error", "a", 1, -2, 1, 0, "classic", "o", f"{again} logs/a:-2", "link", "guided", 0, -2),
        ("error", "b", 1, -3, 1, 0, "classic", "p", "", "link", "recorded", 0, 4),
    ]


@pytest.mark.parametrize(
    ("log", "phase", "line"),
    [
        (0, "generate", "rocketmq-ha fuzz replay -2 --world link"),
        (0, "guided", "rocketmq-ha fuzz replay logs/a:-2"),
        (1, "guided", "rocketmq-ha fuzz replay 's3://b/c?x=1&y=2':-2"),
        (0, "recorded", ""),
        (0, "hypothesis", ""),
        (0, "replay", ""),
    ],
)
def test_a_replay_names_a_seed_or_the_log_of_a_guided_run(runs: Frame, log: int, phase: str, line: str) -> None:
    run = runs(event_logs.run_row(-2, phase=phase), log=log)
    (row,) = run.select(outcomes.replay_line(("logs/a", "s3://b/c?x=1&y=2")).alias("replay")).collect()
    assert row["replay"] == line


def test_faults_count_an_operation_once_for_any_number_of_steps(spark: SparkSession) -> None:
    cut = {"fault": "cut", "op_index": 3}
    steps = numbered(
        event_logs.event_row(1, 0, **cut),
        event_logs.event_row(1, 1, **cut),
        event_logs.event_row(1, 2, **cut | {"op_index": 4}),
        event_logs.event_row(2, 0, **cut),
        event_logs.event_row(2, 1),
    )
    assert rows(outcomes.faults(counted.counts(spark, steps, [event_logs.run_row(1), event_logs.run_row(2)]))) == [
        ("cut", 3, 2, 4)
    ]


def test_a_fault_meets_the_state_in_which_a_machine_was(spark: SparkSession) -> None:
    """The link has had a cut, the store a loss. A fault that never met a state has a row, if it was injected there at all."""
    cut = {"fault": "cut", "op_index": 3}
    steps = numbered(
        event_logs.event_row(1, 0, **cut),
        event_logs.event_row(1, 0, **cut | {"op_index": 4}),
        event_logs.event_row(2, 0, **cut),
        event_logs.event_row(3, 0, world="store", fault="loss", from_state="holds_data"),
    )
    sample = [event_logs.run_row(1), event_logs.run_row(2), event_logs.run_row(3, world="store")]
    machines = dict(POSSIBLE.machines) | {"link": Machine(("up",), (), (), ("link",))}
    states = outcomes.machine_states(spark, Possible(machines, {}))
    assert rows(outcomes.state_faults(counted.counts(spark, steps, sample), states)) == [
        ("link", "up", "cut", 0, 0),
        ("store", "empty", "cut", 3, 2),
        ("store", "empty", "loss", 0, 0),
        ("store", "holds_data", "cut", 0, 0),
        ("store", "holds_data", "loss", 1, 1),
    ]


def test_integrity_counts_missing_and_repeated_rows(spark: SparkSession) -> None:
    """Run 1 is right, 2 has an event too few and 6 one too many. 3 has no row in runs/, 5 has two and 6 has three. 4 and 5 have
    no events; 5 needs none.
    """
    seen = {"first_run": [1, 2, 3, 6], "n": [2, 2, 2, 5], "reason": ["", "x", "y", "z"], "source": ["f"] * 4}
    counts = spark.createDataFrame(count_rows(RUN, 0, 4, seen))
    columns = "log int, run_id bigint, n_steps int, n bigint"
    all_runs = spark.createDataFrame([(0, 1, 2, 1), (0, 2, 3, 1), (0, 4, 1, 1), (0, 5, 0, 2), (0, 6, 4, 3)], columns)
    assert rows(outcomes.integrity(counts, all_runs, 7)) == [(11, 5, 1, 3, 2, 7)]
    nothing = spark.createDataFrame(COUNTS.empty_table())
    assert rows(outcomes.integrity(nothing, all_runs.limit(0), 0)) == [(0, 0, 0, 0, 0, 0)]


def test_a_run_of_one_log_is_none_of_another(spark: SparkSession) -> None:
    seen = {"first_run": [-1], "n": [2], "reason": [""], "source": ["f"]}
    both = spark.createDataFrame(count_rows(RUN, 0, 1, seen)).unionByName(spark.createDataFrame(count_rows(RUN, 1, 1, seen)))
    all_runs = spark.createDataFrame([(0, -1, 2, 1), (1, -1, 2, 1)], "log int, run_id bigint, n_steps int, n bigint")
    assert rows(outcomes.integrity(both, all_runs, 0)) == [(4, 2, 0, 0, 0, 0)]


def test_summary_adds_up_and_median_is_exact(runs: Frame) -> None:
    sample = runs(*(event_logs.run_row(run_id, n_steps=steps) for run_id, steps in enumerate((1, 2, 3, 100))))
    assert rows(outcomes.summary(sample)) == [("classic", "generate", "ok", 4, 106, 400, 8)]
    assert rows(outcomes.run_sizes(sample)) == [(4, 2.5, 5.0, 100)]


def test_places_follow_the_unit() -> None:
    """Behind byte 12 a frame has its body, behind byte 8 a command its rest; a report has neither."""
    at = np.array([13, 13, 12, 0, 268, 8, 9, 12, 264])
    units = ("report", "frame", "command")
    unit = np.array([1, 0, 1, 1, 1, 2, 2, 2, 2])
    assert fragmentation.places_of(at, units, unit).tolist() == [13, 13, 12, 0, 17, 8, 9, 10, 13]
    events = ("reports", "forge_report", "frames", "transfer", "read")
    assert [fragmentation.unit(event) for event in events] == ["report", "report", "frame", "frame", "command"]
