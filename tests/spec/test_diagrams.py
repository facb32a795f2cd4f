"""The diagrams of the chapters are drawn from the table of transitions, and hold all of its rows."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.reference import diagram
from rocketmq_ha.spec.profile import PROFILES

SPEC = Path(__file__).resolve().parents[2] / "spec"


@cache
def table(name: str) -> dict[str, Any]:
    machine: dict[str, Any] = json.loads((SPEC / "transitions.json").read_text(encoding="utf-8"))["machines"][name]
    return machine


def between_the_markers(name: str) -> str:
    chapter = (SPEC / diagram.CHAPTERS[name]).read_text(encoding="utf-8")
    found = re.search(rf"<!-- diagram: {name} -->\n(.*?)\n<!-- end of diagram -->", chapter, re.DOTALL)
    assert found
    return found[1]


def read_diagram(text: str) -> list[tuple[str, str, str, list[str]]]:
    """Read the transitions from a picture and the text below it."""
    members = {name: group.split(", ") for name, group in re.findall(r"\*(\w+)\* is ([\w, ]+)[;.]", text.partition("```\n")[2])}
    told = {
        (before, after, event): words
        for before, after, event, words in re.findall(r"^- (\w+) to (\w+) on (\w+): (.*)$", text, re.MULTILINE)
    }
    found = []
    for before, after, events in re.findall(r"^    (\w+) --> (\w+): (.*)$", text, re.MULTILINE):
        for label in events.split(", "):
            event, _, profile = label.partition(" ")
            pairs = {(one, other) for one in members.get(before, [before]) for other in members.get(after, [after])}
            words = told.pop((before, after, event), "")
            named = set(re.findall(r"(\w+) to (\w+)", words.removeprefix("only ").removeprefix("not ")))
            if words == "each to itself":
                pairs = {(one, other) for one, other in pairs if one == other}
            elif words:
                assert named <= pairs, words
                pairs = named if words.startswith("only ") else pairs - named
            found += [(one, event, other, [profile.strip("()")] if profile else sorted(PROFILES)) for one, other in pairs]
    assert not told, "exceptions of no arrow"
    return found


@pytest.mark.parametrize("name", diagram.CHAPTERS)
def test_the_diagram_of_the_chapter_is_the_one_that_is_drawn_now(name: str) -> None:
    drawn = diagram.blocks()[name]
    assert between_the_markers(name) == drawn, "python -m rocketmq_ha.reference.diagram --write, and look at the diff"


@pytest.mark.parametrize("name", diagram.CHAPTERS)
def test_the_picture_and_its_exceptions_tell_every_transition_and_no_other(name: str) -> None:
    told = read_diagram(between_the_markers(name))
    assert sorted(told) == sorted((*row[:3], sorted(row[3])) for row in table(name)["transitions"])


@pytest.mark.parametrize("name", diagram.CHAPTERS)
def test_the_picture_has_an_arrow_for_every_transition_and_no_other(name: str) -> None:
    arrows = re.findall(r"^    (\w+) --> (\w+): (.*)$", between_the_markers(name), re.MULTILINE)
    told = {(before, event.split(" ")[0], after) for before, after, events in arrows for event in events.split(", ")}
    together = diagram.TOGETHER
    rows = {(together.get(b, b), event, together.get(a, a)) for b, event, a, _ in table(name)["transitions"]}
    assert told == rows


@pytest.mark.parametrize("name", ["master_connection", "slave_client"])
def test_the_drawing_by_hand_names_every_state(name: str) -> None:
    """Chapters 2 and 3 begin with one."""
    drawing = (SPEC / diagram.CHAPTERS[name]).read_text(encoding="utf-8").split("<!-- diagram")[0]
    assert set(re.findall(r"\b[A-Z]{4,}(?:_[A-Z]+)?\b", drawing)) >= {state.upper() for state in table(name)["states"]}


def test_the_program_names_the_chapters_that_differ(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert diagram.main(["--check"]) == 0
    monkeypatch.setattr(diagram, "TOGETHER", {})
    assert diagram.main(["--check"]) == 1
    told = capsys.readouterr().err
    assert [chapter for chapter in diagram.CHAPTERS.values() if chapter in told] == [
        "2-master.md",
        "3-slave.md",
        "4-group-transfer.md",
    ]
