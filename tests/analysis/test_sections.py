"""The sections whose tables need not be there: what each says, and that it is left out without its table."""

import json
import re

import pytest

from kit.html_pages import plain
from kit.report_tables import POSSIBLE, Rows, arrow, more_tables, tables
from rocketmq_ha.analysis import exports, report, requirements, sections, view
from rocketmq_ha.analysis.glossary import TERMS
from rocketmq_ha.analysis.schema import Machine, Possible
from rocketmq_ha.analysis.view import View

POSSIBLE_IN = Possible(
    {
        name: Machine(one.states, one.events, one.transitions, (name, "both") if name == "store" else (name,))
        for name, one in POSSIBLE.machines.items()
    },
    POSSIBLE.clauses,
    POSSIBLE.worlds_of,
    POSSIBLE.elsewhere,
)


def build(*required: str, without: str = "", **changes: Rows) -> View:
    made = arrow(tables() | more_tables())
    for name, rows in changes.items():
        made[name] = arrow({name: rows})[name] if rows else made[name].slice(0, 0)
    made.pop(without, None)
    return view.build(made, POSSIBLE_IN, [], [requirements.parse(text) for text in required])


def parts(page: View) -> dict[str, str]:
    text = report.render(page)
    found = {re.findall(r'<h2 id="(\w+)"', part)[0]: plain("<section" + part) for part in re.split(r"<section\b", text)[1:]}
    return found | {"html": text}


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    return parts(build())


EXPECTED = {
    "new": "New since the last campaign Lost coverage 2 "
    "transition link up cut up classic 40 of 100 older runs saw it; 71 runs miss it by chance with a probability of "
    "under 0.1 % "
    "clause HA-S-4 store 7 of 101 older runs saw it; 72 runs miss it by chance with a probability of 0.5 % "
    "1 more that the older campaign saw, and for which this one had too few runs "
    "pair store open put open put open hardened 1 of 102 older runs saw it; 73 runs miss it by chance with a "
    "probability of 48 %, "
    "468 runs would tell "
    "New failures 2 c/x/y: error in 1 run, its replay and its steps zz/x/y: divergence in 5 runs "
    "Failures that the older campaign had too signature now older runs runs now b/x/y still there 6 2 d/x/y gone 3 0 "
    "New coverage 3 1 transition, 1 clause, 1 pair "
    "transition store empty put open hardened 9 of 76 runs saw it clause HA-M-2 link 6 of 74 runs saw it "
    "pair store empty put open put open classic 8 of 75 runs saw it "
    "Rates Rates of both campaigns measure older now ratio runs 100 71 0.71 failures per million steps 0 571.4 none",
    "starved": "Starved transitions 1 Whether a campaign of this length sees them is chance. Possible transitions "
    "that few drawn "
    "runs took machine transition profile runs of drawn runs missed by chance runs needed "
    "store open put → open classic 2 43 13 % 97",
    "counts": "Clauses exercised 3 of 4 All clauses with their counts by world Clauses, steps that exercised them, and runs "
    "clause steps runs link store HA-G-1 0 0 never HA-M-2 21 6 20 ! 1 HA-S-4 23 9 HA-S-14 22 8 HA-X-1 24 10 "
    "What holds each clause of the specification held by clauses tests 2 schedule 1 schedule, never 1",
    "statefaults": "State by fault store 1 never met store: steps by state (rows) and fault (columns) alarm crash "
    "open 5,555 44 empty never other 0 never met other: steps by state (rows) and fault (columns) crash on 3",
    "pairs": "Pairs of transitions 15 of 30, 50.00 % Pairs by machine and profile machine, profile seen of share impossible "
    "store, classic 12 19 63 % 0 store, hardened 3 11 27 % 4",
    "worlds": "Growth by world Thick lines: distinct transitions seen so far in the world. Thin lines: possible "
    "transitions of its "
    "machines. link store",
    "worldestimates": "Estimates by world Estimates of the runs of each world world, profile m seen Q1 Q2 Q1/m Chao2 "
    "link, all 9 1 0 1 0 1 store, all 62 4 2 0 0.032 none",
    "durations": "Time and steps a run Quantiles over the runs of each world "
    "world, measure runs least 25 % median 75 % 95 % 99 % most "
    "link, time 43 12 us 999 us 1.5 ms 2.0 ms 950.0 ms 61.0 s 125 s store, steps 43 1 2 3 4 5 6 1,234 "
    "The slowest runs The slowest runs of each world world profile time operations steps verdict replay "
    "link classic 125 s 17 18 timeout replay 5 --world link",
    "quarantine": "✗ Quarantine 2 All other tables are made without these. What is left out of the log, and why "
    "source reason rows runs example a/events/x.parquet pages that cannot be read unknown unknown "
    "a/runs/y.parquet twice 3 2 run 17",
    "trend": "Trend Campaigns in the order of their names "
    "campaign runs steps transitions clauses failed runs signatures steps/s quarantine "
    "monday 100 9,000 5 2 0 0 5,321.5 0 tuesday 71 7,001 3 3 4 3 none 2",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_section_says_what_its_tables_hold(page: dict[str, str], name: str) -> None:
    assert page[name] == EXPECTED[name]


SECTION_OF = {
    **dict.fromkeys(("lost_coverage", "failures_compared", "new_coverage", "rates"), "new"),
    "starved": "starved",
    "state_faults": "statefaults",
    "pairs_by_machine": "pairs",
    "growth_by_world": "worlds",
    "estimates_by_world": "worldestimates",
    "run_durations": "durations",
    "quarantine": "quarantine",
    "trend": "trend",
}


@pytest.mark.parametrize("name", SECTION_OF)
def test_without_its_table_a_section_is_left_out_with_its_definitions(page: dict[str, str], name: str) -> None:
    found = parts(build(without=name))
    assert set(page) - set(found) == {SECTION_OF[name]}
    gone = {term.name for term in TERMS.values() if term.table == name}
    assert gone
    assert not [term for term in gone if f'id="def-{term}"' in found["html"]]


def test_the_new_stands_before_the_never_seen_and_that_before_the_rest(page: dict[str, str]) -> None:
    assert list(page)[:7] == ["divergences", "impossible", "new", "never", "clauses", "starved", "rarest"]


QUIET: dict[str, Rows] = {
    "lost_coverage": [],
    "failures_compared": [],
    "new_coverage": [],
    "starved": [],
    "state_faults": [],
    "quarantine": [],
}


@pytest.mark.parametrize(
    ("worlds", "head", "never"),
    [
        (["link", "store", "both"], "Worlds measured: store, both, link.", ""),
        (
            ["both"],
            "Worlds measured: both.",
            "Not listed here and below: transitions and clauses of store, link alone, worlds that the campaign did not draw",
        ),
        (
            ["link", "store"],
            "Worlds measured: store, link.",
            "Not listed here and below: transitions and clauses of both alone, a world that the campaign did not draw from.",
        ),
        ([], "Worlds measured: none.", "Not listed here and below: transitions and clauses of store, both, link alone, worlds"),
    ],
    ids=str,
)
def test_the_page_says_which_worlds_it_measures(worlds: list[str], head: str, never: str) -> None:
    page = build(worlds=[{"world": world, "runs": 1} for world in worlds])
    found = parts(page)
    assert head in plain(found["html"].split("<nav")[0])
    assert never in found["never"]
    assert ("Not listed here" in found["never"]) == bool(never)
    assert json.loads(exports.to_json(page))["worlds"] == list(page.worlds_measured or ())


def test_sections_of_empty_tables_say_none() -> None:
    found = parts(build(**QUIET))
    assert found["new"].startswith(
        "New since the last campaign Lost coverage 0 None that chance does not explain. New failures 0 None. New "
        "coverage 0 None. Rates"
    )
    assert found["starved"] == (
        "Starved transitions 0 None: a campaign as long would see every transition again that this one has seen."
    )
    assert found["statefaults"] == "State by fault No faults were injected."
    assert found["quarantine"] == "Quarantine 0 Nothing is left out of the log."
    assert 'class="alarm" aria-labelledby="new"' not in found["html"]


@pytest.mark.parametrize(("kept", "is_alarm"), [("lost_coverage", True), ("failures_compared", True), ("new_coverage", False)])
def test_lost_coverage_and_new_failures_are_an_alarm(kept: str, is_alarm: bool) -> None:
    text = report.render(build(**{name: rows for name, rows in QUIET.items() if name != kept}))
    assert ('class="alarm" aria-labelledby="new"' in text) == is_alarm


def test_a_long_list_is_cut_and_the_rest_counted() -> None:
    row = more_tables()["lost_coverage"][0]
    many: dict[str, Rows] = {"lost_coverage": [dict(row, name=f"n{at:03}") for at in range(45)]}
    many |= {"new_coverage": [dict(more_tables()["new_coverage"][0], name=f"n{at:03}") for at in range(47)]}
    many |= {"starved": more_tables()["starved"] * 41, "quarantine": more_tables()["quarantine"] * 21}
    built = build(**many)
    found = parts(built)
    assert "Lost coverage 45" in found["new"]
    assert "n039 " in found["new"]
    assert "n040 classic 40" not in found["new"]
    assert "5 more are in lost_coverage.parquet." in found["new"]
    assert "New coverage 47 47 clauses " in found["new"]
    assert "7 more are in new_coverage.parquet." in found["new"]
    assert found["starved"].endswith("1 more are in starved.parquet.")
    assert found["quarantine"].endswith("2 more are in quarantine.parquet.")
    assert {name: built.measures[name].found for name in ("lost", "new_coverage", "starved", "quarantine")} == {
        "lost": 45,
        "new_coverage": 47,
        "starved": 41,
        "quarantine": 42,
    }


def test_what_the_tables_hold_can_be_required() -> None:
    built = build("lost=0", "new_failures=0", "pairs>=50%", "starved<=1", "quarantine<2", "new_coverage>=3")
    assert [(str(one.requirement), one.is_met) for one in built.requirements if one.is_given] == [
        ("lost=0", False),
        ("new_failures=0", False),
        ("pairs>=50%", True),
        ("starved<=1", True),
        ("quarantine<2", False),
        ("new_coverage>=3", True),
    ]
    assert set(built.measures) == set(requirements.NAMES)
    for name, measure in built.measures.items():
        assert (TERMS[name].whole != "") == (measure.whole is not None), name


def test_growth_by_world_has_a_plot_for_each_world_up_to_what_its_machines_can_take() -> None:
    found = build().growth_by_world
    assert found is not None
    assert [(one.world, one.plot.alt) for one in found] == [
        ("link", "Distinct transitions over runs of link. classic: 1 after 9 runs."),
        ("store", "Distinct transitions over runs of store. classic: 3 after 34 runs; hardened: 1 after 28 runs."),
    ]
    legends = [re.findall(r">((?:classic|hardened): \d+ of \d+)<", one.plot.svg) for one in found]
    assert legends == [["classic: 1 of 1"], ["classic: 3 of 3", "hardened: 1 of 2"]]
    assert ['id="growth-0-' in found[0].plot.svg, 'id="growth-1-' in found[1].plot.svg] == [True, True]


def test_growth_of_one_world_is_that_of_all() -> None:
    only = [row for row in more_tables()["growth_by_world"] if row["world"] == "store"]
    assert build(growth_by_world=only).growth_by_world is None


def test_the_trend_is_drawn_from_two_campaigns_on() -> None:
    rows = more_tables()["trend"]
    plot = sections.trend({"trend": rows})
    assert plot is not None
    assert plot.alt == (
        "Transitions seen by 2 campaigns, from monday to tuesday: 5 in the first, 3 in the last. The table below has "
        "the numbers."
    )
    assert ">monday<" in plot.svg
    assert sections.trend({"trend": rows[:1]}) is None
    assert sections.trend({}) is None


def test_a_failure_names_its_world_where_the_table_has_it_and_says_where_there_is_nothing_to_replay() -> None:
    rows = [dict(row, world="store", replay="") for row in tables()["divergences"][:1]]
    text = parts(build(divergences=rows))["divergences"]
    assert "run 55, store, classic, 17 operations" in text
    assert "No schedule made this run, so there is nothing to replay." in text


def test_what_no_table_measures_cannot_be_required() -> None:
    with pytest.raises(requirements.RequirementInvalid) as caught:
        build("pairs>=1%", without="pairs_by_machine")
    assert caught.value.message.startswith(
        "--require 'pairs>=1%': found no table pairs_by_machine, expected one of transitions, "
    )


def test_a_requirement_of_a_comparison_needs_one() -> None:
    asked = [requirements.parse(text) for text in ("runs>=1", "lost=0")]
    requirements.check(asked, ["--compare"])
    requirements.check(asked[:1], [])
    with pytest.raises(requirements.RequirementInvalid) as caught:
        requirements.check(asked, ["--trend"])
    assert caught.value.message == (
        "--require 'lost=0': found no --compare, expected --compare too, without which there is no lost"
    )
