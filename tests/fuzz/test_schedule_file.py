"""A schedule comes back from its file as it was, and a file that is none is named with what is wrong in it."""

import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.fuzz import schedule_file
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.schedule_texts import EVENTS
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


def changed(name: str = "link", **changes: Any) -> str:
    return json.dumps(json.loads(schedule_file.to_json(registry.WORLDS[name].draw(5))) | changes)


SETUP = json.loads(changed())["setup"]
PUT = {"topic": "T", "body": "", "properties": "", "queue_id": 0, "wait": False}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "found no JSON"),
        ("[]", "found [], expected world, seed, profile, setup and events"),
        ("{}", "found nothing, expected world, seed"),
        (changed(more=1), "found world, seed, profile, setup, events, more"),
        (changed(world="lnik"), "s.json: world 'lnik': expected one of"),
        ("[" * 100_000, "s.json: found JSON that is nested too deep, expected a schedule"),
        (changed(events=[]), "s.json: events: found none, expected at least one"),
        (changed(setup=SETUP | {"slaves": 0}), "s.json: setup.slaves: found 0, expected 1 to 9"),
        (
            changed(setup=SETUP | {"settings": SETUP["settings"] | {"replicas": -3}}),
            "s.json: setup.settings.replicas: found -3, expected 1 to 9",
        ),
        (
            changed(setup={"slaves": 1, "settings": {}}),
            "setup.settings.mapped_file_size: found 1073741824, expected 200 to 65536",
        ),
        (
            changed(profile="classic", setup=SETUP | {"settings": SETUP["settings"] | {"replicas": 2}}),
            "s.json: setup.settings.replicas: found 2 with the profile classic, expected 1",
        ),
        (
            changed(setup=SETUP | {"settings": SETUP["settings"] | {"master_read_buffer_size": 12}}),
            "s.json: setup.settings.master_read_buffer_size: found 12, expected a multiple of 8",
        ),
        (
            changed(setup=SETUP | {"settings": SETUP["settings"] | {"slave_file_size": 7}}),
            "s.json: setup.settings.slave_file_size: found 7, expected 0 or at least 8",
        ),
        (changed(profile="soft"), 'profile: found "soft", expected one of classic, hardened'),
        (changed(profile=[1]), "profile: found [1], expected one of classic, hardened"),
        (changed(seed="5"), 'seed: found "5", expected an integer'),
        (changed(seed=None), "seed: found null, expected an integer"),
        (changed(events={}), "events: found {}, expected a list"),
        (changed(events=["Tick"]), 'event 0: found "Tick", expected [NAME, FIELDS] of Put, '),
        (changed(events=[["Tock", {}]]), 'event 0: found ["Tock", {}], expected [NAME, FIELDS] of Put, '),
        (changed(events=[[["Tick"], {}]]), 'event 0: found [["Tick"], {}], expected [NAME, FIELDS] of Put, '),
        (changed(events=[["Tick", {"ms": 1}], ["Tick", {}]]), "event 1, Tick: found no field ms, expected ms"),
        (changed(events=[["Tick", {"ms": 1.5}]]), "event 0, Tick.ms: found 1.5, expected an integer"),
        (changed(events=[["Tick", {"ms": True}]]), "event 0, Tick.ms: found true, expected an integer"),
        (changed(events=[["Tick", {"ms": -1}]]), "event 0, Tick.ms: found -1, expected 0 to "),
        (
            changed(events=[["RestartSlave", {"slave": 2}]]),
            'event 0, RestartSlave: found {"slave": 2}, expected a slave of the setup',
        ),
        (
            changed(events=[["Put", PUT | {"topic": "U", "body": "00" * 999}]]),
            'event 0, Put: found {"topic": "U", "body": "0000000000000000000..., "properties": "", "queue_id": 0,',
        ),
        (
            changed(events=[["Put", PUT | {"topic": "U"}]]),
            "expected the topic T or orders, at most 8 characters of properties, ",
        ),
        (
            changed(events=[["ForgeReport", {"slave": 0, "offset": 7}]]),
            "expected a slave of the setup, and an offset that campaigns forge under its profile",
        ),
        (
            changed(profile="hardened", events=[["ForgeHeader", {"slave": 0, "body_size": 0}]]),
            "expected a slave of the setup, and a body_size that hardened refuses",
        ),
        (changed("reads", events=[["SetTopic", {"read_queue_nums": 9}]]), "expected at most as many queues as the setup has"),
        (changed("routes", events=[["Disk", {"server": 9, "is_full": True}]]), "expected a name server and a broker of the"),
        (
            changed("metadata", events=[["RestartMaster", {"master": 9, "saves": True}]]),
            "expected a master or a process of the setup",
        ),
        (changed("remoting", events=[["End", {"client": 9}]]), "expected a client of the setup"),
        (changed(events=[["DeleteFile", {"ms": 1}]]), "event 0, DeleteFile: found field ms, expected no field"),
        (
            changed(events=[["Tick", {"ms": 1}]]).replace('"ms": 1', '"ms": 1, "ms": 2'),
            "s.json: event 0, Tick: found field ms twice, expected it once",
        ),
        (
            changed(events=[["Tick", {"ms": 1}]]).replace('"ms": 1', '"ms": ' + "1" * 5_000),
            "s.json: event 0, Tick.ms: found a number of 5000 digits, expected an integer of at most 20 digits",
        ),
        (
            changed(seed=None).replace("null", "-" + "1" * 5_000),
            "seed: found a number of 5000 digits, expected an integer from -",
        ),
        (changed(events=[[None, {}]]).replace("null", "1" * 50), 'event 0: found ["a number of 50 digits", {}], expected'),
        (
            changed(events=[["Put", PUT | {"body": None}]]).replace("null", "1" * 50),
            "Put.body: found a number of 50 digits, expected bytes in hexadecimal",
        ),
        ("1" * 5_000, "s.json: found a number of 5000 digits, expected world, seed, "),
        (changed().replace('"world":', '"world": "store", "world":'), "s.json: found field world twice, expected it once"),
        (changed(world=None), "s.json: world: found null, expected a text"),
        (changed(world="x" * 1_000), "s.json: world 'xxx"),
        (changed(**{"a\nb": 1}), 'found world, seed, profile, setup, events, "a\\nb", expected world'),
        (changed(events=[["Tick", {"ms": 1, "a\nb": 2}]]), 'event 0, Tick: found field "a\\nb", expected ms'),
        (changed(events=[["Tick", {"ms": 1, "x" * 1_000: 2}]]), f"event 0, Tick: found field {'x' * 60}..., expected ms"),
        (changed(events=[["Tick", None]]), "event 0, Tick: found null, expected an object of fields"),
        (changed(events=[["Tick", {"ms": None}]]), "event 0, Tick.ms: found null, expected an integer"),
        (changed(events=[["Put", PUT | {"body": None}]]), "event 0, Put.body: found null, expected bytes in hexadecimal"),
        (changed(events=[["Tick", {"ms": 1, "us": 2}]]), "event 0, Tick: found field us, expected ms"),
        (changed(events=[["Tick", []]]), "event 0, Tick: found [], expected an object of fields"),
        (changed(events=[["Cut", {"slave": 0, "tell": "none"}]]), 'Cut.tell: found "none", expected one of "both", '),
        (changed(events=[["Put", PUT | {"body": "xy"}]]), 'Put.body: found "xy", expected bytes in hexadecimal'),
        (changed(setup={"slaves": 1}), "setup: found no field settings, expected settings, slaves"),
        (changed(setup={"slaves": 1, "settings": 3}), "setup.settings: found 3, expected an object of fields"),
    ],
)
def test_what_is_wrong_is_named(text: str, told: str) -> None:
    with pytest.raises(FuzzError) as caught:
        schedule_file.from_user(text, "s.json")
    assert told in caught.value.message
    assert caught.value.message.startswith("s.json: ")
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


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


def test_a_file_without_an_end_is_refused_after_the_bytes_that_a_schedule_may_have(tmp_path: Path) -> None:
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = f"found more than {schedule_file.MOST_SIZE:,} bytes, expected at most that number"
    with pytest.raises(FuzzError, match=f"^/dev/zero: {told}$"):
        schedule_file.read(Path("/dev/zero"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin < 5 * schedule_file.MOST_SIZE // 1024
    file = tmp_path / "s.json"
    text = schedule_file.to_json(registry.WORLDS["link"].draw(1))
    file.write_text(text.ljust(schedule_file.MOST_SIZE))
    assert schedule_file.read(file) == registry.WORLDS["link"].draw(1)
    file.write_text(text.ljust(schedule_file.MOST_SIZE + 1))
    with pytest.raises(FuzzError, match=f"^{file}: {told}$"):
        schedule_file.read(file)


@pytest.mark.parametrize("world", registry.WORLDS.values(), ids=list(registry.WORLDS))
def test_the_most_events_of_a_drawn_schedule_fit_into_a_file(world: World[Any]) -> None:
    for seed in range(5):
        drawn = world.draw(seed)
        repeated = drawn.events * (EVENTS[1] // len(drawn.events))
        assert len(schedule_file.to_json(replace(drawn, events=repeated))) < schedule_file.MOST_SIZE
