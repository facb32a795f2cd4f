"""The content of the page, from tables written by hand: each figure, order and limit."""

import re
from collections.abc import Sequence

import pytest

from kit.report_tables import IMPOSSIBLE, POSSIBLE, Rows, arrow, failure, growth, tables
from rocketmq_ha.analysis import requirements, view
from rocketmq_ha.analysis.requirements import Requirement
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.analysis.view import Figures, Reason, View


def build(**changes: Rows) -> View:
    return view.build(arrow(tables() | changes), POSSIBLE, [{"seed": 3}])


@pytest.fixture(scope="module")
def page() -> View:
    return build()


def test_each_figure_is_the_sum_of_its_column(page: View) -> None:
    assert page.figures == Figures(
        runs=71,
        failed_runs=4,
        steps=7001,
        nbytes=3072 + 50_001 + 60_001 + 1023,
        messages=31 + 41 + 29 + 7,
        median_steps=98.5,
        median_ops=61.0,
        seen=3,
        possible=7,
        clauses_exercised=3,
        clauses=4,
        signatures=3,
        impossible=1,
        runs_without_row=0,
        runs_short=0,
        runs_repeated=0,
        runs_missing=0,
    )


def with_figures(required: Sequence[Requirement] = (), **changes: int) -> View:
    """The page of five runs of 2 steps in which nothing has failed, with other numbers."""
    of = {"failed": 0, "runs": 5, "impossible": 0, "runs_without_row": 0, "runs_short": 0, "runs_repeated": 0}
    of |= {"runs_missing": 0} | changes
    ok = of["runs"] - of["failed"]
    summary = [row | {"runs": n} for n, row in zip((of["failed"], ok), tables()["summary"][:2], strict=True) if n]
    names = ("runs_without_row", "runs_short", "runs_repeated", "runs_missing")
    integrity = [tables()["integrity"][0] | {name: of[name] for name in names}]
    made = arrow(tables() | {"integrity": integrity, "transitions_impossible": [IMPOSSIBLE] * of["impossible"] or [IMPOSSIBLE]})
    made["summary"] = arrow({"summary": summary or tables()["summary"]})["summary"].slice(0, len(summary))
    made["transitions_impossible"] = made["transitions_impossible"].slice(0, of["impossible"])
    return view.build(made, POSSIBLE, [], required)


@pytest.mark.parametrize(
    ("changes", "reason", "term"),
    [
        ({}, "reference and implementation agreed in every step of 5 runs", "divergences"),  # though transitions were not seen
        ({"runs": 0}, "the log holds no runs", "runs"),
        ({"failed": 1}, "1 of 5 runs failed, with 3 signatures", "divergences"),
        ({"impossible": 1}, "1 impossible transition was seen", "impossible"),
        ({"impossible": 2}, "2 impossible transitions were seen", "impossible"),
        ({"runs_without_row": 1}, "the log is inconsistent in 1 run", "inconsistent"),
        ({"runs_short": 2}, "the log is inconsistent in 2 runs", "inconsistent"),
        ({"runs_repeated": 1}, "the log is inconsistent in 1 run", "inconsistent"),
        ({"runs_missing": 2}, "the log is inconsistent in 2 runs", "inconsistent"),
    ],
    ids=str,
)
def test_the_verdict_fails_for_each_reason_alone(changes: dict[str, int], reason: str, term: str) -> None:
    page = with_figures(**changes)
    assert page.reasons == (Reason(reason, term),)
    assert page.verdict == ("FAIL" if changes else "PASS")
    assert page.figures.is_consistent == (term != "inconsistent")


def test_a_requirement_is_a_reason_where_it_is_not_met_and_takes_the_place_of_a_standing_one() -> None:
    asked = [requirements.parse(text) for text in ("transitions>=51%", "clauses>=3", "divergences<=1")]
    page = with_figures(failed=1, required=asked)
    assert page.verdict == "FAIL"
    assert page.reasons == (Reason("transitions>=51% is not met: found 4 of 8, 50.00 %", "transitions"),)


def test_a_page_passes_with_the_failures_that_a_requirement_allows() -> None:
    asked = [requirements.parse("divergences<=1")]
    page = with_figures(failed=1, required=asked)
    assert page.verdict == "PASS"
    assert [reason.words for reason in page.reasons] == [
        "1 of 5 runs failed, as a requirement allows",
        "the requirement is met",
    ]
    asked.append(requirements.parse("runs>=5"))
    page = with_figures(failed=0, required=asked)
    assert [(reason.words, reason.term) for reason in page.reasons] == [
        ("reference and implementation agreed in every step of 5 runs", "divergences"),
        ("all 2 requirements are met", "requirement"),
    ]


def test_each_measure_is_a_figure_of_its_own(page: View) -> None:
    assert {name: (one.found, one.whole) for name, one in page.measures.items()} == {
        "transitions": (3, 7),
        "never_seen": (4, 7),
        "impossible": (1, None),
        "clauses": (3, 4),
        "divergences": (4, 71),
        "signatures": (3, None),
        "inconsistent": (0, 71),
        "runs": (71, None),
        "steps": (7001, None),
        "messages": (108, None),
        "bytes": (3072 + 50_001 + 60_001 + 1023, None),
    }
    assert set(page.measures) < set(requirements.NAMES)  # the others are those of further tables


def test_the_figures_of_an_inconsistent_log_have_their_places() -> None:
    integrity = [{"events": 9, "runs": 8, "runs_without_row": 11, "runs_short": 12, "runs_repeated": 13, "runs_missing": 14}]
    found = build(integrity=integrity).figures
    assert (found.steps, found.runs_without_row, found.runs_short, found.runs_repeated) == (9, 11, 12, 13)
    assert (found.runs_missing, found.inconsistent) == (14, 11 + 12 + 13 + 14)


def test_profiles_are_those_that_were_run_and_the_declared_ones_that_were_not(page: View) -> None:
    assert page.profiles == ("classic", "hardened")
    assert page.profiles_not_run == ("third",)


def test_failures_come_by_their_number_and_then_by_name(page: View) -> None:
    assert [failure.row["signature"] for failure in page.failures] == ["b/x/y", "a/x/y", "c/x/y"]


def test_a_failure_has_the_last_thirty_steps_of_its_smallest_run(page: View) -> None:
    assert [([row["step"] for row in one.steps], one.n_steps_before) for one in page.failures] == [
        (list(range(2, 32)), 2),
        ([], 0),
        ([9], 9),
    ]
    assert {row["run_id"] for row in page.failures[0].steps} == {55}


def test_a_page_without_the_steps_of_failures_names_no_term_of_theirs() -> None:
    rows = arrow(tables())
    del rows["failing_steps"]
    found = view.build(rows, POSSIBLE, [])
    assert [one.steps for one in found.failures] == [(), (), ()]
    assert {term.name for term in build().terms} - {term.name for term in found.terms} == {"step_table"}


def test_fifty_signatures_are_shown_and_all_are_counted() -> None:
    many = [failure("error", f"s{at:03}", at, at, 1, 0, "classic", "d", "r") for at in range(1, 53)]
    found = build(divergences=many)
    assert [failure.row["n"] for failure in found.failures] == list(range(52, 2, -1))
    assert found.figures.signatures == 52


def test_transitions_are_listed_once_with_all_their_profiles(page: View) -> None:
    assert [(one.actor, one.from_state, one.event, one.to_state, one.profiles) for one in page.impossible] == [
        ("store", "empty", "recover", "gone", ("hardened",))
    ]
    assert page.impossible[0].rows == (IMPOSSIBLE,)
    assert [(actor, [(one.event, one.profiles) for one in some]) for actor, some in page.never_seen] == [
        ("link", [("cut", ("classic",))]),
        ("store", [("put", ("hardened", "third")), ("recover", ("classic",))]),
    ]
    assert page.n_never_seen == 4


def test_the_rarest_come_by_their_runs_and_then_by_their_steps(page: View) -> None:
    assert [(row["n_runs"], row["n"], row["first_run"]) for row in page.rarest] == [
        (1, 1, 505),
        (1, 1, 601),
        (28, 800, 503),
        (43, 900, 501),
    ]
    rows = [dict(tables()["transitions_seen"][0], n_runs=at % 3, n=100 - at, first_run=at) for at in range(12)]
    found = build(transitions_seen=rows, transitions_impossible=[])
    assert [row["first_run"] for row in found.rarest] == [9, 6, 3, 0, 10, 7, 4, 1, 11, 8]


def test_clauses_are_in_the_order_of_their_numbers(page: View) -> None:
    assert [row["clause"] for row in page.clauses] == ["HA-G-1", "HA-M-2", "HA-S-4", "HA-S-14", "HA-X-1"]
    assert [row["clause"] for row in page.clauses_never] == ["HA-G-1"]
    assert [row["clause"] for row in page.clauses_unknown] == ["HA-X-1"]


@pytest.mark.parametrize(
    ("clause", "key"), [("HA-S-14", ("HA-S", 14)), ("HA-ST-4", ("HA-ST", 4)), ("HA-S-x", ("HA-S", 0)), ("odd", ("", 0))]
)
def test_a_clause_is_sorted_by_its_chapter_and_its_number(clause: str, key: tuple[str, int]) -> None:
    assert view._clause_order(clause) == key


def test_a_matrix_is_in_the_models_order_and_counts_its_own_cells(page: View) -> None:
    assert [(one.actor, one.states, one.events, one.seen, one.possible) for one in page.matrices] == [
        ("store", ("open", "empty"), ("recover", "put"), 3, 6),
        ("link", ("up",), ("cut",), 0, 1),
    ]
    store = page.matrices[0]
    assert {key: row["n"] for key, row in store.cells.items()} == {
        ("empty", "put"): 1700,
        ("empty", "recover"): 12_345,
        ("open", "put"): 11,
        ("open", "recover"): 0,
    }


def test_machines_and_states_that_the_model_does_not_have_come_last() -> None:
    only_store = Possible({"store": POSSIBLE.machines["store"]}, POSSIBLE.clauses)
    rows = tables()["matrix"] + [dict(tables()["matrix"][1], from_state="zz"), dict(tables()["matrix"][1], from_state="aa")]
    found = view.build(arrow(tables() | {"matrix": rows}), only_store, [])
    assert [(one.actor, one.states) for one in found.matrices] == [("store", ("open", "empty", "aa", "zz")), ("link", ("up",))]


def test_splits_tell_their_sum_the_most_and_the_places_without(page: View) -> None:
    assert [(one.actor, one.event, one.unit, one.never, len(one.rows)) for one in page.splits] == [
        ("master", "reports", "report", (1,), 2),
        ("slave", "frames", "frame", (), 3),
    ]
    assert [one.plot.alt for one in page.splits] == [
        "Splits of a report by byte, master, reports: 1,500 in all, most at 2 (1,500), none at 1 of 2 places. "
        "The table below has the numbers.",
        "Splits of a frame by byte, slave, frames: 10 in all, most at 12 (6), none at 1 of 3 places. "
        "The table below has the numbers.",
    ]
    assert 'id="splits-0-' in page.splits[0].plot.svg
    assert 'id="splits-1-' in page.splits[1].plot.svg


def test_growth_tells_when_half_and_when_all_was_seen(page: View) -> None:
    assert page.growth_notes == (
        "classic: half of its 9 transitions by run 5, the last new one in run 1,030 of 2,043.",
        "hardened: half of its 3 transitions by run 2, the last new one in run 2 of 2.",
    )
    assert page.growth is not None
    assert page.growth.alt == "Distinct transitions over runs. classic: 9 after 2,043 runs; hardened: 3 after 2 runs."
    # What is possible is what was seen and what was not: 9 and two of classic, 3 and one of hardened.
    assert legend_of(page.growth.svg) == ["classic: 9 of 11", "hardened: 3 of 4"]


def legend_of(svg: str) -> list[str]:
    return re.findall(r">((?:classic|hardened): \d+ of \d+)<", svg)


def test_half_is_reached_at_exactly_half() -> None:
    found = build(growth=[growth("classic", 1, 4), growth("classic", 2, 5), growth("classic", 3, 10)])
    assert found.growth_notes == ("classic: half of its 10 transitions by run 2, the last new one in run 3 of 3.",)


def test_without_runs_there_is_no_growth() -> None:
    rows = arrow(tables())
    rows["growth"] = rows["growth"].slice(0, 0)
    found = view.build(rows, POSSIBLE, [])
    assert (found.growth, found.growth_notes) == (None, ())


def test_estimates_of_all_profiles_are_left_out_where_there_is_one() -> None:
    rows = tables()["estimates"]
    assert [row["profile"] for row in build().estimates] == ["all", "classic", "hardened"]
    assert [row["profile"] for row in build(estimates=rows[:2]).estimates] == ["classic"]
    empty = arrow(tables())
    empty["estimates"] = empty["estimates"].slice(0, 0)
    assert view.build(empty, POSSIBLE, []).estimates == ()


def test_the_settings_of_each_log_are_flattened_in_order() -> None:
    campaigns = [{"seed": 3, "runs": 4, "versions": {"b": "2", "a": {"x": 1}}, "profiles": ["p", "q"]}, {"seed": 5}]
    found = view.build(arrow(tables()), POSSIBLE, campaigns)
    assert found.provenance == (
        (("profiles", "p, q"), ("runs", "4"), ("seed", "3"), ("versions.a.x", "1"), ("versions.b", "2")),
        (("seed", "5"),),
    )
