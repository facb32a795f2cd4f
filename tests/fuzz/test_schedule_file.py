"""A schedule comes back from its file as it was, and a file that is none is named with what is wrong in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.fuzz import schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import World

SEEDS = 40


@pytest.mark.parametrize("world", registry.WORLDS.values(), ids=list(registry.WORLDS))
def test_drawn_schedules_of_every_world_come_back(world: World[Any]) -> None:
    kinds = set()
    for seed in range(SEEDS):
        drawn = world.draw(seed)
        kinds |= {type(event) for event in drawn.events}
        text = schedule_file.to_json(drawn)
        assert schedule_file.from_json(text) == drawn
        assert schedule_file.to_json(schedule_file.from_json(text)) == text
    assert kinds <= set(world.event_types)
    assert len(kinds) > len(world.event_types) / 2


def changed(**changes: Any) -> str:
    return json.dumps(json.loads(schedule_file.to_json(registry.WORLDS["link"].draw(5))) | changes)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "found no JSON"),
        ("[]", "found list, expected world, seed, profile, setup and events"),
        ("{}", "found nothing, expected world, seed"),
        (changed(more=1), "found world, seed, profile, setup, events, more"),
        (changed(world="lnik"), "s.json: world 'lnik': expected one of"),
        ("[" * 100_000, "s.json: found no JSON (maximum recursion depth exceeded"),
        (changed(events=[]), "s.json: events: found none, expected at least one"),
        (changed(setup={"slaves": -1}), "s.json: setup.slaves: found -1, expected 0 or more"),
        (
            changed(setup={"slaves": 1, "settings": {"x": [0, {"y": -3}]}}),
            "setup.settings.x[1].y: found -3, expected 0 or more",
        ),
        (changed(profile="soft"), "profile 'soft': expected one of classic, hardened"),
        (changed(seed="5"), "seed: found '5', expected int"),
        (changed(events={}), "events: found dict, expected a list"),
        (changed(events=["Tick"]), "event 0: found None, expected one of Put, "),
        (changed(events=[["Tock", {}]]), "event 0: found 'Tock', expected one of Put, "),
        (changed(events=[["Tick", {"ms": 1}], ["Tick", {}]]), "event 1, Tick: "),
        (changed(events=[["Tick", {"ms": 1.5}]]), "event 0, Tick.ms: found 1.5, expected int"),
        (changed(events=[["Tick", {"ms": True}]]), "event 0, Tick.ms: found True, expected int"),
        (changed(events=[["Tick", {"ms": 1, "us": 2}]]), "event 0, Tick: found field us, expected ms"),
        (changed(events=[["Tick", []]]), "event 0, Tick: found list, expected an object of fields"),
        (changed(events=[["Cut", {"slave": 0, "tell": "none"}]]), "Cut.tell: found 'none', expected one of 'both', "),
        (changed(events=[["Put", {"topic": "T", "body": "xy"}]]), "Put.body: found 'xy', expected bytes in hexadecimal"),
        (changed(setup={"slaves": 1}), "setup: "),
        (changed(setup={"slaves": 1, "settings": 3}), "setup.settings: found int, expected an object of fields"),
    ],
)
def test_what_is_wrong_is_named(text: str, told: str) -> None:
    with pytest.raises(FuzzError) as caught:
        schedule_file.from_json(text, "s.json")
    assert told in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    with pytest.raises(FuzzError, match=r"s\.json: found No such file or directory, expected a schedule as JSON"):
        schedule_file.read(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(FuzzError, match=r"s\.json: found no UTF-8"):
        schedule_file.read(file)
    drawn = registry.WORLDS["link"].draw(1)
    file.write_text(schedule_file.to_json(drawn))
    assert schedule_file.read(file) == drawn
