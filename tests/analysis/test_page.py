"""The text of each section of the page, from tables written by hand; and how it says one, none and all."""

import re
from typing import Any

import pytest

from kit.html_pages import plain
from kit.report_tables import IMPOSSIBLE, POSSIBLE, Rows, arrow, tables
from rocketmq_ha.analysis import report, view


def sections(campaigns: list[dict[str, Any]] | None = None, **changes: Rows) -> dict[str, str]:
    """The text of each section by its name; "head" is what stands above the first."""
    made = arrow(tables())
    for name, rows in changes.items():
        made[name] = arrow({name: rows})[name] if rows else made[name].slice(0, 0)
    text = report.build(made, POSSIBLE, campaigns or [{"seed": 3}])
    head, *rest = re.split(r"<section\b", re.sub(r"<nav\b.*?</nav>", "", text.split("<h1>")[1], flags=re.DOTALL))
    found = {re.findall(r'<h2 id="(\w+)"', part)[0]: plain("<section" + part) for part in rest}
    return {"head": plain(head)} | found


EXPECTED = {
    "head": "Fuzz coverage of the HA machines "
    "✗ FAIL: 4 of 71 runs failed, with 3 signatures; 1 impossible transition was seen. "
    "Requirements requirement found met runs>=1 (always) 71 ✓ met inconsistent=0 (always) 0 of 71, 0.00 % ✓ met "
    "divergences=0 (always) 4 of 71, 5.63 % ✗ not met impossible=0 (always) 1 ✗ not met "
    "transitions seen 3 of 7 clauses exercised 3 of 4 runs 71 steps 7,001 operations, median run 61 steps, median run 98.5 "
    "messages put 108 bytes carried 111.4 KiB",
    "impossible": "✗ Impossible transitions 1 A run took these transitions, but the model does not have them. Either "
    "transitions.json is stale or a machine is wrong. "
    "store empty recover → gone hardened: once in 1 run, first in run 601, step 602",
    "never": "Transitions never seen 4 of 7 link 1 up cut → up classic store 3 open put → open hardened, third "
    "open recover → empty classic Not listed: transitions of third, which was not run.",
    "rarest": "Seen in the fewest runs "
    "store open put → open classic once in 1 run, first in run 505, step 506 "
    "store empty recover → gone hardened once in 1 run, first in run 601, step 602 "
    "store empty put → open hardened 800 times in 28 runs, first in run 503, step 504 "
    "store empty put → open classic 900 times in 43 runs, first in run 501, step 502",
    "clauses": "Clauses never exercised 1 of 4 HA-G-1 One. ✗ Exercised, but not in the model's list of clauses: HA-X-1 (24).",
    "counts": "Clauses exercised 3 of 4 All clauses with their counts Clauses, steps that exercised them, and runs "
    "clause steps runs HA-G-1 0 0 HA-M-2 21 6 HA-S-4 23 9 HA-S-14 22 8 HA-X-1 24 10",
    "growth": "Growth over runs Thick lines: distinct transitions seen so far. Thin lines: possible transitions. "
    "classic: half of its 9 transitions by run 5, the last new one in run 1,030 of 2,043. "
    "hardened: half of its 3 transitions by run 2, the last new one in run 2 of 2.",
    "faults": "Injected faults Faults by kind: operations, runs and steps fault times runs of all runs steps "
    "cut_both 1,234 35 49 % 5,678",
    "runs": "Runs by verdict Runs, steps, messages and bytes by profile, phase and verdict "
    "profile, phase verdict runs steps messages bytes classic, generate ✗ divergence 3 301 31 3.0 KiB "
    "classic, generate ✓ ok 40 4,001 41 48.8 KiB hardened, replay ✓ ok 27 2,600 29 58.6 KiB "
    "hardened, generate ✗ error 1 99 7 1023 B",
    "provenance": "Provenance seed 3 Event log schema 2. This page has no scripts and makes no network requests.",
}
PARTS = {
    "divergences": (
        "✗ Failures by signature 3 "
        "b/x/y divergence in 2 runs. Smallest: run 55, classic, 17 operations, fails at operation 16. two of it replay 55 "
        "Its last 30 steps Steps of run 55; 2 before these are in the replay "
        "step operation machine transition offset bytes fragment held fault clauses verdict "
        "2 1 store 0 empty put → open 0 HA-M-2 ok 3 1 store 0 empty put → open 0 HA-M-2 ok 4 2 store 0",
        "30 15 store 0 empty put → open 0 HA-M-2 ok 31 15 store 4 empty put → open 77 0 6 cut_both HA-M-2 HA-X-1 ✗ divergence "
        "a/x/y divergence in 1 run. Smallest: run 56, hardened, 18 operations, fails at operation 13. one of a replay 56 "
        "c/x/y error in 1 run. Smallest: run 57, classic, 19 operations, fails at operation 12. one of c replay 57 "
        "Its last 1 step Steps of run 57; 9 before these are in the replay step operation",
        "verdict 9 4 store 0 empty recover → open 80 8 ok",
    ),
    "glossary": (
        "Profiles run: classic and hardened. transitions seen A transition is a kind of step",
        "transitions_never_seen.parquet: actor, from_state, event, to_state, profile. --require never_seen; a percentage "
        "is one of the possible transitions of the worlds measured and the profiles that were run. impossible transitions",
        "transitions_impossible.parquet: n. --require impossible. clauses exercised",
        "Half of the runs have fewer steps, and half have more. run_sizes.parquet: median_steps. ",
    ),
    "texts": (
        "HA-M-2 Two of M. spec/2-master.md; exercised by link, store "
        "HA-S-4 Four. spec/3-slave.md HA-S-14 Fourteen. spec/3-slave.md HA-G-1 One. spec/4-group-transfer.md "
        "HA-R-1 Elsewhere. spec/7-routes.md; held by tests/a.py, tests/b.py "
        "HA-R-2 Nowhere. spec/7-routes.md; not held by a test: it is late HA-X-1 not in this specification",
    ),
    "matrix": (
        "store 3 of 6 transitions store: steps by state (rows) and event (columns) recover put "
        "open never 11 1/3 empty ! 12k 1,700 link 0 of 1 transitions",
    ),
    "fragmentation": (
        "master reports, by byte of the report. ✗ Never split at byte 1. "
        "slave frames, by byte of the frame. ✓ Split at every byte of the header, and directly after it.",
        "master, reports: splits at byte 1 2 splits 0 1,500 runs 0 33 "
        "slave, frames: splits at byte 1 12 body 1-3 splits 4 6 0 runs 2 3 0",
    ),
    "estimates": (
        "all classic hardened runs drawn by seed m 70 43 27 transitions seen 60 40 20 "
        "transitions seen in exactly one run Q1 5 4 1 transitions seen in exactly two runs Q2 0 2 3 "
        "new transitions expected in the next run Q1/m 0.071 0.093 0.037 "
        "transitions reachable with this generator Chao2 65.5 44.2 none",
        "It is a lower bound, in its bias-corrected form where Q2 is 0.",
    ),
}


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    return sections()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_section_says_what_the_tables_hold(page: dict[str, str], name: str) -> None:
    assert page[name] == EXPECTED[name]


@pytest.mark.parametrize("name", PARTS)
def test_a_section_with_more_words_holds_the_figures_too(page: dict[str, str], name: str) -> None:
    assert [part for part in PARTS[name] if part not in page[name]] == []


def test_the_page_has_no_other_section(page: dict[str, str]) -> None:
    assert set(page) == {*EXPECTED, *PARTS}


QUIET: dict[str, Rows] = {
    "summary": [dict(tables()["summary"][1], runs=1)],
    "divergences": [],
    "transitions_impossible": [],
    "transitions_seen": tables()["transitions_seen"][:1],
    "transitions_never_seen": [],
    "clauses": [row for row in tables()["clauses"] if row["n"] and row["sentence"]],
    "estimates": tables()["estimates"][1:2],
    "faults": [],
}


def test_a_page_of_one_good_run_says_none_everywhere() -> None:
    page = sections([{"seed": 3}, {"seed": 5}], **QUIET)
    assert page["head"].startswith(
        "Fuzz coverage of the HA machines ✓ PASS: reference and implementation agreed in every step of 1 run. Requirements"
    )
    assert page["never"] == (
        "Transitions never seen 0 of 1 None: the runs took every transition that the model can take. "
        "Not listed: transitions of hardened, third, which were not run."
    )
    # One profile was run: none is named.
    assert page["rarest"] == "Seen in the fewest runs store empty put → open 900 times in 43 runs, first in run 501, step 502"
    assert (
        page["clauses"] == "Clauses never exercised 0 of 3 None: the runs exercised every clause that the model can exercise."
    )
    assert page["runs"].endswith("No run failed.")
    assert "It is a lower bound." in page["estimates"]
    assert page["faults"] == "Injected faults No faults were injected."
    assert page["provenance"].startswith("Provenance Log 1 seed 3 Log 2 seed 5 Event log")
    assert not {"impossible", "divergences", "consistency"} & set(page)


def test_one_signature_and_two_impossible_transitions_have_their_endings() -> None:
    page = sections(
        divergences=tables()["divergences"][:1],
        transitions_impossible=[IMPOSSIBLE, dict(IMPOSSIBLE, event="put", n=7, n_runs=3)],
    )
    assert "4 of 71 runs failed, with 1 signature; 2 impossible transitions were seen." in page["head"]
    assert "store empty put → gone hardened: 7 times in 3 runs, first in run 601, step 602" in page["impossible"]


def test_more_signatures_than_are_shown_are_told() -> None:
    rows = [dict(tables()["divergences"][0], signature=f"s{at:03}") for at in range(53)]
    assert sections(divergences=rows)["divergences"].endswith("3 more signatures are in divergences.parquet.")


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("runs_without_row", "11 run(s) have events but no row in runs/. Their transitions are not counted."),
        ("runs_short", "11 run(s) have more or fewer events than their row in runs/ says."),
        ("runs_repeated", "11 run(s) have several rows in runs/. Their counts are too high."),
        ("runs_missing", "11 run(s) that the campaign has made are missing: manifest/ or runs/ lacks a file."),
    ],
)
def test_an_inconsistent_log_says_how(column: str, told: str) -> None:
    page = sections(**QUIET | {"integrity": [tables()["integrity"][0] | {column: 11}]})
    assert page["consistency"] == f"✗ The log is inconsistent {told}"
    assert "✗ FAIL: the log is inconsistent in 11 runs. Requirements" in page["head"]


def test_what_is_split_is_described_by_its_own_parts() -> None:
    """A page of the world of remoting says nothing of HA frames, and one of the link nothing of commands."""
    place = {"actor": "remoting_connection", "event": "read", "unit": "command"}
    rows = [
        place | {"place": at, "bucket": bucket, "part": part, "n": 3, "n_runs": 2}
        for at, bucket, part in ((1, "1", "lengths"), (8, "8", "after lengths"), (9, "rest 1-3", "rest"))
    ]
    text = sections(fragmentation=rows, never_split=[place | {"n_never": 0, "never": []}])["fragmentation"]
    assert "From a remoting client to its server: a command begins with two lengths of 4 bytes" in text
    assert "by byte of the command. ✓ Split at every byte of the lengths, and directly after them." in text
    assert "frame has 12 bytes" not in text
    link = sections()["fragmentation"]
    assert "Between master and slave: the header of a frame has 12 bytes, a report has 8." in link
    assert "two lengths" not in link


def test_a_page_without_runs_says_so() -> None:
    empty: dict[str, Rows] = {name: [] for name in tables() if name not in ("integrity", "run_sizes")}
    page = sections(**empty, run_sizes=[dict(tables()["run_sizes"][0], median_steps=None, median_ops=None)])
    assert "✗ FAIL: the log holds no runs." in page["head"]
    assert "operations, median run none steps, median run none" in page["head"]
    assert (
        page["never"]
        == "Transitions never seen 0 of 0 Not listed: transitions of classic, hardened, third, which were not run."
    )
    assert page["growth"] == "Growth over runs There are no runs."
    assert page["fragmentation"].endswith("No step moved bytes.")
    assert "No run was drawn by seed, so there are no estimates." in page["estimates"]
    assert "Profiles run: none." in page["glossary"]


def test_the_heat_of_a_cell_is_its_order_of_magnitude() -> None:
    made = arrow(tables() | {"matrix": [dict(tables()["matrix"][1], n=n, event=f"e{n}") for n in (1, 10, 100, 1000)]})
    text = report.build(made, POSSIBLE, [])
    assert re.findall(r'<td class="h(\d)">([\d,]+)</td>', text) == [("1", "1"), ("2", "10"), ("3", "100"), ("4", "1,000")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "none"), (0, "0"), (0.0, "0"), (1.0, "1"), (999, "999"), (1000, "1,000"), (-1, "-1")),
        *((0.0714, "0.071"), (0.5, "0.5"), (0.999, "1"), (1.04, "1.0"), (1234.56, "1,234.6")),
    ],
)
def test_a_number_of_a_sentence(value: float | None, text: str) -> None:
    assert report.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (9_999, "9,999"), (10_000, "10k"), (999_999, "999k"), (1_000_000, "1.0M"), (2_450_000, "2.5M")),
        *((999_949_999, "999.9M"), (1_000_000_000, "1.0G"), (12_300_000_000, "12.3G")),
    ],
)
def test_a_count_of_a_cell(value: int, text: str) -> None:
    assert report.short(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (3 << 29, "1.5 GiB"), (1 << 40, "1.0 TiB")),
        *((1 << 50, "1.0 PiB"), (1 << 61, "2048.0 PiB")),
    ],
)
def test_a_number_of_bytes(value: int, text: str) -> None:
    assert report.size(value) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"), [(1, 3, "33 %"), (2, 3, "66 %"), (3, 3, "100 %"), (1, 0, "0 %"), (0, 9, "0 %")]
)
def test_a_share_is_rounded_down(part: int, whole: int, text: str) -> None:
    assert report.share(part, whole) == text


@pytest.mark.parametrize(
    ("value", "heat"), [(0, 0), (1, 1), (9, 1), (10, 2), (99, 2), (100, 3), (999, 3), (1000, 4), (10**9, 4)]
)
def test_a_heat_is_from_0_to_4(value: int, heat: int) -> None:
    assert report.heat(value) == heat


def test_a_name_breaks_behind_its_marks_alone() -> None:
    assert report.name("a_b/c.d<e") == "a_<wbr>b/<wbr>c.<wbr>d&lt;e"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`a`, `b` *c* *d*", "<code>a</code>, <code>b</code> <i>c</i> <i>d</i>"),
        ("a < `b", "a &lt; `b"),
        ("2 * 3", "2 * 3"),
        ("`config/*.json` and `*.bak`", "<code>config/*.json</code> and <code>*.bak</code>"),  # stars of code are stars
        ("*a* [the `b`](c.md) [d](e.md#f)", "<i>a</i> [the <code>b</code>](c.md) d"),
    ],
)
def test_prose_has_code_and_italics(text: str, shown: str) -> None:
    assert report.prose(text) == shown


def test_the_last_line_has_each_figure_in_its_place() -> None:
    made = view.build(arrow(tables()), POSSIBLE, [])
    assert report.last_line(made.figures, "x.html") == (
        "report=x.html runs=71 steps=7001 transitions=3/7 divergences=4 impossible=1"
    )
