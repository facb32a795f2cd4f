"""Each scenario runs as its file says; `formal/scenarios.py` says how a scenario is written."""

import difflib
from pathlib import Path
from typing import get_args

import pytest

from formal.scenarios import SCENARIOS, parse_event, play
from rocketmq_ha.reference import events


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_the_scenario_happens_as_it_is_told(file: Path, request: pytest.FixtureRequest) -> None:
    told = file.read_text(encoding="utf-8")
    happens = play(told)
    if request.config.getoption("--rewrite-scenarios", default=False):
        file.write_text(happens, encoding="utf-8")
        return
    diff = "\n".join(difflib.unified_diff(told.splitlines(), happens.splitlines(), "told", "happens", lineterm="", n=4))
    assert not diff, f"{file.name}: pytest tests/stateful --rewrite-scenarios, if this is how it should be\n{diff}"


def test_every_scenario_is_headed_by_its_story_and_cites_clauses() -> None:
    assert len(SCENARIOS) >= 8
    for file in SCENARIOS:
        description = file.read_text(encoding="utf-8").split("cluster ")[0]
        assert description.startswith("# "), file.name
        assert "HA-" in description, file.name


def test_the_steps_can_say_every_event() -> None:
    lines = (
        "put 1 wait",
        "tick 1",
        "connect 0",
        "grant 0 1",
        "frames 0 1",
        "reports 0 all",
        "forge 0 -5",
        "forge-header 0 -4",
        "resume 0",
        "clog 0 3",
        "disk-full 0",
        "cut 0 both",
    )
    told = {type(parse_event(line.split())) for line in (*lines, "restart-slave 0", "restart-master clean", "delete-file")}
    assert told == set(get_args(events.Event))
