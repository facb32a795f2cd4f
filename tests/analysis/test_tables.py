"""Each table of the report, computed from a few hand-written rows."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kit import event_logs
from rocketmq_ha.analysis import coverage, estimates, fragmentation, outcomes
from rocketmq_ha.analysis.schema import Machine, Possible
from rocketmq_ha.spec.event_log import EVENT_COLUMNS, RUN_COLUMNS

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

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
        )
    },
    clauses={"HA-1": "One.", "HA-2": "Two."},
)


@pytest.fixture
def events(spark: SparkSession) -> Frame:
    return lambda *rows: spark.createDataFrame(event_logs.arrow(rows, EVENT_COLUMNS))


@pytest.fixture
def runs(spark: SparkSession) -> Frame:
    return lambda *rows: spark.createDataFrame(event_logs.arrow(rows, RUN_COLUMNS)).selectExpr("0 AS log", "*")


@pytest.fixture
def five_steps(events: Frame, runs: Frame) -> tuple[DataFrame, DataFrame]:
    """Two classic runs, 3 and 5, and one hardened run, 8.

    Each appends once. Run 5 appends a second time. Run 8 does so too, which hardened cannot do (POSSIBLE).
    """
    again = {"from_state": "holds_data"}
    steps = events(
        event_logs.event_row(5, 0),
        event_logs.event_row(5, 1, **again),
        event_logs.event_row(3, 4),
        event_logs.event_row(8, 2),
        event_logs.event_row(8, 3, **again),
    )
    return steps, runs(event_logs.run_row(3), event_logs.run_row(5), event_logs.run_row(8, profile="hardened"))


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows as sorted tuples, because a DataFrame has no order."""
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def test_runs_rank_by_seed_within_a_profile_and_replays_come_last(runs: Frame) -> None:
    ranked = coverage.ranked_runs(
        runs(
            event_logs.run_row(1, phase="replay"),
            event_logs.run_row(9),
            event_logs.run_row(-4),
            event_logs.run_row(2, profile="hardened"),
            event_logs.run_row(7),
        )
    )
    assert ranked.columns == ["run_id", "profile", "phase", "run_rank"]
    assert {row["run_id"]: row["run_rank"] for row in ranked.collect()} == {-4: 1, 7: 2, 9: 3, 1: 4, 2: 1}


def test_transitions_seen_name_the_first_run_and_step(five_steps: tuple[DataFrame, DataFrame]) -> None:
    steps, sample = five_steps
    ranked = coverage.ranked_runs(sample)
    seen = coverage.transitions_seen(coverage.run_transitions(steps, ranked), ranked)
    assert seen.columns == [*coverage.TRANSITION, "n", "n_runs", "first_run", "first_step"]
    assert rows(seen) == [
        ("classic", "store", "empty", "put", "holds_data", 2, 2, 3, 4),
        ("classic", "store", "holds_data", "put", "holds_data", 1, 1, 5, 1),
        ("hardened", "store", "empty", "put", "holds_data", 1, 1, 8, 2),
        ("hardened", "store", "holds_data", "put", "holds_data", 1, 1, 8, 3),
    ]


def test_first_seen_is_right_for_the_largest_seeds_and_steps(events: Frame, runs: Frame) -> None:
    last_step, largest, smallest = 2**31 - 1, 2**63 - 1, -(2**63)
    ranked = coverage.ranked_runs(runs(event_logs.run_row(largest), event_logs.run_row(smallest)))
    steps = events(event_logs.event_row(largest, 0), event_logs.event_row(smallest, last_step))
    seen = coverage.transitions_seen(coverage.run_transitions(steps, ranked), ranked).head()
    assert seen is not None
    assert (seen["first_run"], seen["first_step"]) == (smallest, last_step)


def test_never_seen_and_impossible_are_the_differences_of_possible_and_seen(
    spark: SparkSession, five_steps: tuple[DataFrame, DataFrame]
) -> None:
    steps, sample = five_steps
    ranked = coverage.ranked_runs(sample)
    seen = coverage.transitions_seen(coverage.run_transitions(steps, ranked), ranked)
    possible = coverage.possible_transitions(spark, POSSIBLE)
    assert rows(coverage.transitions_never_seen(possible, seen)) == [
        ("classic", "store", "holds_data", "recover", "empty"),
        ("hardened", "store", "holds_data", "recover", "empty"),
    ]
    assert rows(coverage.transitions_impossible(seen, possible)) == [
        ("hardened", "store", "holds_data", "put", "holds_data", 1, 1, 8, 3)
    ]


def test_matrix_cells_are_seen_partly_seen_never_seen_or_impossible(
    spark: SparkSession, five_steps: tuple[DataFrame, DataFrame], events: Frame
) -> None:
    steps, sample = five_steps
    partly = events(event_logs.event_row(3, 5, from_state="holds_data", event="recover", to_state="empty"))
    ranked = coverage.ranked_runs(sample)
    possible = coverage.possible_transitions(spark, POSSIBLE)

    def matrix(log: DataFrame) -> list[tuple[Any, ...]]:
        seen = coverage.transitions_seen(coverage.run_transitions(log, ranked), ranked)
        return rows(coverage.matrix(possible, seen))

    assert matrix(steps) == [
        ("store", "empty", "put", 3, 2, 2, "seen"),
        ("store", "holds_data", "put", 2, 1, 1, "impossible"),
        ("store", "holds_data", "recover", 0, 0, 2, "never"),
    ]
    assert matrix(steps.unionByName(partly))[2] == ("store", "holds_data", "recover", 1, 1, 2, "partly")


def test_possible_transitions_are_limited_to_the_profiles_that_were_run(spark: SparkSession, runs: Frame) -> None:
    possible = coverage.in_profiles_run(coverage.possible_transitions(spark, POSSIBLE), runs(event_logs.run_row(1)))
    assert {row["profile"] for row in possible.collect()} == {"classic"}


def test_clauses_count_steps_and_runs_and_keep_unknown_clauses(spark: SparkSession, events: Frame) -> None:
    steps = events(
        event_logs.event_row(1, 0, clauses=["HA-1", "HA-9"]),
        event_logs.event_row(1, 1, clauses=["HA-1"]),
        event_logs.event_row(1, 2),
        event_logs.event_row(2, 0, clauses=["HA-1"]),
    )
    assert rows(coverage.clause_coverage(steps, coverage.possible_clauses(spark, POSSIBLE))) == [
        ("HA-1", "One.", 3, 2),
        ("HA-2", "Two.", 0, 0),
        ("HA-9", "", 1, 1),
    ]


def test_the_places_of_a_split_are_those_between_the_bytes_of_a_unit() -> None:
    """A frame has 12 bytes before its body, a report 8. A stop behind the last byte of a report is no split."""
    header = [(fragmentation.FRAME, at, str(at), "header") for at in range(1, 12)]
    bodies = ["body 1-3", "body 4-15", "body 16-63", "body 64-255", "body 256+"]
    assert list(fragmentation.PLACES) == [
        *header,
        (fragmentation.FRAME, 12, "12", "after header"),
        *((fragmentation.FRAME, 13 + number, name, "body") for number, name in enumerate(bodies)),
        *((fragmentation.REPORT, at, str(at), "report") for at in range(1, 8)),
    ]
    firsts = [first for first, _ in fragmentation.BODY_BUCKETS]
    assert [name for _, name in fragmentation.BODY_BUCKETS] == bodies
    assert firsts == [int(name.removeprefix("body ").rstrip("+").partition("-")[0]) for name in bodies]
    ends = [int(name.rpartition("-")[2]) for name in bodies[:-1]]
    assert [end + 1 for end in ends] == firsts[1:]


# The first and the last byte of each bucket of a body, behind the 12 bytes of the header.
BODIES = (13, 15, 16, 27, 28, 75, 76, 267, 268, 9999)


def test_splits_are_counted_by_header_byte_and_by_body_bucket(spark: SparkSession, events: Frame) -> None:
    frame = {"actor": "slave_client", "event": "frames", "fragment_len": 9}
    steps = events(
        *(event_logs.event_row(1, at, split_at=at, **frame) for at in (0, 1, 11, 12, *BODIES)),
        event_logs.event_row(2, 0, split_at=11, **frame),
        event_logs.event_row(2, 1, split_at=5, **frame | {"fragment_len": 0}),  # no bytes moved, so this is no new split
        event_logs.event_row(2, 2, split_at=7, actor="master_connection", event="reports", fragment_len=3),
    )
    found = fragmentation.fragmentation(steps, fragmentation.places(spark))
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
    }
    assert len(n) == (11 + 1 + len(fragmentation.BODY_BUCKETS)) + 7
    assert rows(fragmentation.never_split(found)) == [
        ("master_connection", "reports", "report", 6, [1, 2, 3, 4, 5, 6]),
        ("slave_client", "frames", "frame", 9, [2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ]


def test_growth_has_a_point_for_each_run_with_a_new_transition(five_steps: tuple[DataFrame, DataFrame]) -> None:
    steps, sample = five_steps
    ranked = coverage.ranked_runs(sample)
    assert rows(estimates.growth(coverage.run_transitions(steps, ranked), ranked)) == [
        ("classic", 1, 1),
        ("classic", 2, 2),
        ("hardened", 1, 2),
    ]


def test_growth_ends_at_the_last_run_even_without_a_new_transition(events: Frame, runs: Frame) -> None:
    steps = events(*(event_logs.event_row(run_id, 0) for run_id in range(4)))
    ranked = coverage.ranked_runs(runs(*(event_logs.run_row(run_id) for run_id in range(4))))
    assert rows(estimates.growth(coverage.run_transitions(steps, ranked), ranked)) == [
        ("classic", 1, 1),
        ("classic", 4, 1),
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
def test_estimates_count_runs_not_steps_and_no_replays(
    events: Frame, runs: Frame, in_runs: tuple[int, ...], expected: tuple[float, ...]
) -> None:
    steps = [
        event_logs.event_row(run_id, 10 * number + again, to_state=f"state_{number}")
        for number, n_runs in enumerate(in_runs)
        for run_id in range(n_runs)
        for again in range(3)
    ]
    replayed = event_logs.event_row(99, 0, to_state="only_in_a_replay")
    sample = runs(*(event_logs.run_row(run_id) for run_id in range(4)), event_logs.run_row(99, phase="replay"))
    per_run = coverage.run_transitions(events(*steps, replayed), coverage.ranked_runs(sample))
    assert rows(estimates.estimates(per_run, sample)) == [("all", *expected), ("classic", *expected)]


def test_divergences_are_grouped_and_show_the_smallest_run(runs: Frame) -> None:
    same = {"verdict": "divergence", "signature": "slave_client/frames/log"}
    failed = runs(
        event_logs.run_row(1),
        event_logs.run_row(5, n_ops=9, failing_op=8, detail="far", **same),
        event_logs.run_row(7, n_ops=4, failing_op=3, detail="near", **same),
        event_logs.run_row(6, n_ops=4, failing_op=2, detail="near too", **same),
        event_logs.run_row(2, n_ops=1, verdict="error", signature="store/put/ValueError", failing_op=0, detail="oops"),
    )
    found = outcomes.divergences(failed)
    assert rows(found) == [
        ("divergence", same["signature"], 3, 6, 4, 2, "classic", "near too", "rocketmq-ha fuzz replay 6"),
        ("error", "store/put/ValueError", 1, 2, 1, 0, "classic", "oops", "rocketmq-ha fuzz replay 2"),
    ]


def test_faults_count_an_operation_once_for_any_number_of_steps(events: Frame) -> None:
    cut = {"fault": "cut", "op_index": 3}
    found = outcomes.faults(
        events(
            event_logs.event_row(1, 0, **cut),
            event_logs.event_row(1, 1, **cut),
            event_logs.event_row(1, 2, **cut | {"op_index": 4}),
            event_logs.event_row(2, 0, **cut),
            event_logs.event_row(2, 1),
        )
    )
    assert rows(found) == [("cut", 3, 2, 4)]


def test_integrity_counts_missing_rows_in_events_and_in_runs(events: Frame, runs: Frame) -> None:
    steps = events(*(event_logs.event_row(run_id, step) for run_id in (1, 2, 3) for step in range(2)))
    sample = runs(*(event_logs.run_row(run_id, n_steps=n) for run_id, n in ((1, 2), (2, 3), (4, 1), (5, 0), (5, 0))))
    assert rows(outcomes.integrity(steps, sample)) == [(6, 4, 1, 2, 1)]


def test_integrity_counts_what_is_there_too_often(events: Frame, runs: Frame) -> None:
    """Runs of two steps: 1 is right, 2 has its events twice, 3 one too many, 4 two rows, 5 three; 6 has no step, and an event.
    Run 7 has events twice and no row.
    """
    times = {1: 2, 2: 4, 3: 3, 4: 2, 5: 2, 6: 1, 7: 4}
    steps = events(*(event_logs.event_row(run_id, step % 2) for run_id, count in times.items() for step in range(count)))
    sample = runs(*(event_logs.run_row(run_id, n_steps=0 if run_id == 6 else 2) for run_id in (1, 2, 3, 4, 4, 5, 5, 5, 6)))
    assert rows(outcomes.integrity(steps, sample)) == [(18, 6, 1, 3, 2)]


def test_summary_adds_up_and_median_is_exact(runs: Frame) -> None:
    sample = runs(*(event_logs.run_row(run_id, n_steps=steps) for run_id, steps in enumerate((1, 2, 3, 100))))
    assert rows(outcomes.summary(sample)) == [("classic", "generate", "ok", 4, 106, 400, 8)]
    assert rows(outcomes.run_sizes(sample)) == [(4, 2.5, 5.0, 100)]
