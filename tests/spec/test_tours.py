"""The tours of spec/vectors/tours/: they take every triple of their graphs, and the implementation behaves as they say."""

import json
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from formal import tour_lines, tours
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.lockstep import of_link
from rocketmq_ha.fuzz.world import ImplementationWorld
from rocketmq_ha.reference import cluster, events
from rocketmq_ha.reference.events import Event
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import PROFILES, Profile, Settings

pytestmark = pytest.mark.xdist_group("tours")  # each tour is made once

TOURS = [(name, profile) for name in tours.SCOPES for profile in PROFILES]
REWRITE = "python -m formal.tours --write, if this is how it should be"


@cache
def made(name: str, profile: str) -> tuple[str, tours.Graph, list[list[str]]]:
    return tours.generate(name, PROFILES[profile])


class Vector:
    """A tour file, parsed without the code that wrote it."""

    def __init__(self, name: str, profile: str) -> None:
        text = (tours.DIRECTORY / f"{name}-{profile}.jsonl").read_text(encoding="utf-8")
        head, *lines = map(json.loads, text.splitlines())
        self.head: dict[str, Any] = head
        self.profile: Profile = PROFILES[head["profile"]]
        self.settings = Settings(**head["settings"])
        self.actions = {action: self._event(dict(fields)) for action, fields in head["actions"].items()}
        self.walks: list[list[dict[str, Any]]] = []
        for line in lines:
            if "walk" in line:
                self.walks.append([])
            self.walks[-1].append(line)

    @staticmethod
    def _event(fields: dict[str, Any]) -> Event:
        made: Event = getattr(events, fields.pop("event"))(
            **fields | ({"body": bytes.fromhex(fields["body"])} if "body" in fields else {})
        )
        return made

    def steps(self, walk: list[dict[str, Any]]) -> Iterator[tuple[Event, dict[str, Any]]]:
        for line in walk[1:]:
            yield self.actions[line["do"]], line


@pytest.mark.parametrize(("name", "profile"), TOURS)
def test_the_tour_is_what_is_made_now(name: str, profile: str) -> None:
    told = (tours.DIRECTORY / f"{name}-{profile}.jsonl").read_text(encoding="utf-8").splitlines()
    makes = made(name, profile)[0].splitlines()
    differs = next((number for number, pair in enumerate(zip(told, makes, strict=False), 1) if pair[0] != pair[1]), None)
    assert differs is None, f"{REWRITE}\nline {differs}\ntold  {told[differs - 1][:500]}\nmakes {makes[differs - 1][:500]}"
    assert len(told) == len(makes), REWRITE


@pytest.mark.parametrize(("name", "profile"), TOURS)
def test_the_walks_make_every_triple_of_the_graph(name: str, profile: str) -> None:
    """Replay the file's walks with the model."""
    vector, scope = Vector(name, profile), tours.SCOPES[name]
    missing = set(made(name, profile)[1].triples)
    assert len(missing) == vector.head["triples"] > 150
    for walk in vector.walks:
        now = cluster.new_cluster(scope.slaves, vector.settings, vector.profile, vector.head["start_ms"])
        for event, line in vector.steps(walk):
            after, _ = cluster.step(now, event, vector.settings, vector.profile)
            missing -= set(tours.triples_of(now, line["do"], after, scope))
            now = after
    assert not missing


@pytest.mark.parametrize(("name", "profile"), TOURS)
def test_the_implementation_behaves_as_the_tour_says(name: str, profile: str) -> None:
    """Equal bytes in both directions, equal logs, equal ends of puts and of connections, after every step."""
    vector = Vector(name, profile)
    steps = 0
    for walk in vector.walks:
        with lockstep.scratch_directory() as directory:
            world = ImplementationWorld(
                vector.head["slaves"], vector.settings, vector.profile, vector.head["start_ms"], directory
            )
            teller = tour_lines.Teller()
            try:
                assert {"walk": walk[0]["walk"], **teller.tell(None, world.observe())} == walk[0]
                for event, line in vector.steps(walk):
                    world.apply(event)
                    told = json.loads(tour_lines.line({"do": line["do"], **teller.tell(event, world.observe())}))
                    assert told == line, f"walk {walk[0]['walk']}, step {walk.index(line)}: {event}"
                    steps += 1
            finally:
                world.close()
    assert steps == vector.head["steps"]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_worlds_agree_on_all_that_no_other_endpoint_sees(profile: str) -> None:
    """The lock-step compares every field of the state, as it does for schedules that are drawn."""
    vector = Vector("one", profile)
    for walk in vector.walks:
        with lockstep.scratch_directory() as directory:
            worlds = of_link(vector.head["slaves"], vector.settings, vector.profile, directory)
            try:
                for event, _ in vector.steps(walk):
                    outcome = worlds.apply(event)
                    assert outcome.verdict == VERDICT_OK, (walk[0], event, outcome.detail)
            finally:
                worlds.close()


def test_every_event_of_a_schedule_is_in_a_tour() -> None:
    """Except the pause of a producer, which no other endpoint sees, and what no walk causes: a full disk, a deleted file."""
    told = {fields["event"] for name, profile in TOURS for fields in Vector(name, profile).head["actions"].values()}
    assert {kind.__name__ for kind in events.Event.__args__} - told == {"Resume", "DiskFull", "DeleteFile"}


def record(offset: int, queue_offset: int, now_ms: int) -> bytes:
    """The record of every put of a tour, as the tours' README.md defines it."""
    head = "0000005c daa320a7 00000000 00000000 00000000"
    host = "7f000001 00002a9f"
    text = f"{head} {queue_offset:016x} {offset:016x} 00000000 {now_ms:016x} {host} {now_ms:016x} {host} 00000000 {0:016x}"
    return bytes.fromhex(f"{text} 00000000 01 54 0000")


@pytest.mark.parametrize(("name", "profile"), TOURS)
def test_the_file_and_its_readme_define_every_byte(name: str, profile: str) -> None:
    """The master's log has only records and BLANKs, so a reader gets the bytes of a range without the model."""
    vector = Vector(name, profile)
    logs = ranges = 0
    for walk in vector.walks:
        log, puts, now_ms = b"", 0, vector.head["start_ms"]
        for event, line in vector.steps(walk):
            if isinstance(event, events.Tick):
                now_ms += event.ms
            if isinstance(event, events.Put):
                room = vector.settings.mapped_file_size - len(log) % vector.settings.mapped_file_size
                if room < 92 + 8:
                    log += bytes.fromhex(f"{room:08x} cbd43194") + bytes(room - 8)
                log += record(len(log), puts, now_ms)
                puts += 1
                assert line["log"] == [0, len(log), zlib.crc32(log)]
                logs += 1
            for told in line.values():
                for item in told.get("to_slave", ()) if isinstance(told, dict) else ():
                    if isinstance(item, list):
                        assert 0 <= item[0] < item[1] <= len(log)
                        ranges += 1
    assert logs > 50
    assert ranges > 50
