"""Transitions and clauses are measured against the worlds that a campaign drew from."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kit import event_logs
from rocketmq_ha.analysis import tables, view
from rocketmq_ha.analysis.ingest import read_logs
from rocketmq_ha.analysis.schema import load_possible

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

EVERYWHERE = [clause for clause, worlds in event_logs.WORLDS_OF.items() if "store" in worlds]


def log_of(path: Path, world: str, run_id: int = 1, **campaign: Any) -> Path:
    """A log of one run of a world, with more in its campaign.json."""
    log = event_logs.write_log(
        path,
        [event_logs.event_row(run_id, 0, world=world, clauses=["HA-S-1"])],
        [event_logs.run_row(run_id, n_steps=1, world=world)],
    )
    file = log / "campaign.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | campaign), encoding="utf-8")
    return log


def worlds_of(spark: SparkSession, *logs: Path) -> tuple[str, ...]:
    found = read_logs(spark, logs, worlds=event_logs.WORLDS)
    found.close()
    return found.worlds


@pytest.mark.parametrize(
    ("campaign", "worlds"),
    [
        ({"plan": {"worlds": ["store"]}}, ("store",)),
        ({"plan": {"worlds": ["store", "link"]}}, ("link", "store")),  # though no run of the link was drawn
        ({"plan": {"worlds": []}}, ("link", "store")),
        ({"plan": {"worlds": ["link"]}}, ("link", "store")),  # a run of the store is there all the same
        ({"plan": {"worlds": ["another", {}]}}, ("store",)),
        ({"plan": {}}, ("store",)),
        ({"plan": "all"}, ("store",)),
        ({}, ("store",)),
    ],
    ids=str,
)
def test_the_worlds_are_those_of_the_plan_and_of_the_runs(
    spark: SparkSession, tmp_path: Path, campaign: dict[str, Any], worlds: tuple[str, ...]
) -> None:
    assert worlds_of(spark, log_of(tmp_path / "log", "store", **campaign)) == worlds


def test_the_worlds_of_several_logs_are_those_of_each(spark: SparkSession, tmp_path: Path) -> None:
    store, link = log_of(tmp_path / "a", "store", plan={"worlds": ["store"]}), log_of(tmp_path / "b", "link")
    assert worlds_of(spark, store, link) == ("link", "store")


def test_a_log_without_runs_and_plan_measures_nothing(spark: SparkSession, tmp_path: Path) -> None:
    assert worlds_of(spark, event_logs.write_log(tmp_path / "log", [], [])) == ()


@pytest.fixture(scope="module")
def computed(spark: SparkSession, transitions_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """The tables of a campaign of the store alone."""
    log = log_of(tmp_path_factory.mktemp("one") / "log", "store", plan={"worlds": ["store"]})
    possible = load_possible(transitions_file)
    return tables.compute(spark, read_logs(spark, [log], worlds=possible.worlds), possible)


def test_a_campaign_of_one_world_is_measured_against_this_world(computed: dict[str, pa.Table], transitions_file: Path) -> None:
    possible = load_possible(transitions_file)
    in_store = [t for actor in event_logs.IN_STORE for t in possible.machines[actor].transitions if "classic" in t[3]]
    page = view.build(computed, possible, [])
    assert (page.figures.seen, page.figures.possible) == (1, len(in_store))
    assert {actor for actor, _ in page.never_seen} == {*event_logs.IN_STORE}
    assert [matrix.actor for matrix in page.matrices] == [*event_logs.IN_STORE]
    assert {row["actor"] for row in computed["pairs_by_machine"].to_pylist()} == {*event_logs.IN_STORE}
    assert (page.figures.clauses_exercised, page.figures.clauses) == (1, len(EVERYWHERE))
    assert {row["clause"] for row in page.clauses_never} == {*EVERYWHERE} - {"HA-S-1"}
    assert (page.worlds_measured, page.worlds_not_measured) == (("store",), ("link",))
    assert computed["worlds"].to_pylist() == [{"world": "store", "runs": 1}]


def test_what_holds_a_clause_is_told_of_every_clause(computed: dict[str, pa.Table]) -> None:
    held = {row["clause"]: row["held"] for row in computed["clauses_held"].to_pylist()}
    assert held == {
        **dict.fromkeys(event_logs.CLAUSES, "schedule, other world"),
        **dict.fromkeys(EVERYWHERE, "schedule, never"),
        "HA-S-1": "schedule",
        "HA-X-1": "tests",
        "HA-X-2": "reason",
    }
