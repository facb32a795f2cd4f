"""Both worlds observe what is there: in states made for it, each field has a value computed by hand, and no neighbour has it.

A field that a world reports as a constant, or from its neighbour, would compare as equal for ever.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kit.schedules import ALL, SETTINGS, put
from rocketmq_ha.fuzz.differences import differences
from rocketmq_ha.fuzz.lockstep import LinkLockstep, of_link, scratch_directory
from rocketmq_ha.fuzz.observe import Observation, ObservedLink, ObservedSlave
from rocketmq_ha.fuzz.world import ImplementationWorld, ReferenceWorld
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference.events import (
    Connect,
    Cut,
    DeliverFrames,
    DeliverReports,
    Event,
    ForgeHeader,
    ForgeReport,
    Grant,
    Tick,
)
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile


def header(offset: int, size: int) -> bytes:
    return HEADER.pack(offset, size)


@dataclass(frozen=True)
class State:
    """Events, and what is then observed. Records have 92 bytes and their body, batches 100 bytes; files have 1000 bytes."""

    name: str
    profile: Profile
    events: Sequence[Event]
    master: dict[str, object] = field(default_factory=dict)
    links: Sequence[dict[str, object]] = ()
    slaves: Sequence[dict[str, object]] = ({}, {})
    frames: bytes = b""  # all that the master has sent on the last link but the log's bytes themselves


STATES = (
    State(
        "classic puts wait behind one another, and others have paused",
        CLASSIC,
        (
            *(put(10), put(20)),  # end at 102 and 214
            *(Connect(0, ALL, ALL), Connect(1, 20, ALL)),
            Tick(5001),  # both slaves report 0; a heartbeat becomes due
            *(DeliverReports(0, 8), DeliverReports(1, 8)),
            *(DeliverFrames(0, 112), DeliverFrames(0, 50)),  # a heartbeat, a frame, and 38 bytes of the second
            Grant(0, 7),
            *(put(30, wait=True), put(40, wait=True), put(50, wait=True)),  # end at 336, 468, 610
            *(put(60, wait=True, pauses=True), put(70, wait=True, pauses=True)),  # end at 762, 924
            DeliverReports(0, 8),  # of 100: the first wait ends
            Tick(1000),  # the second wait ends
        ),
        master={
            "max_offset": 924,
            "push2_slave_max_offset": 100,
            "paused": (762, 924),
            "waiting": (336, 468, 610),
            "requests_write": (468, 610),
            "requests_read": (336,),
            "waits": 2,
            "has_notified": False,
            "done": (),
        },
        links=(
            {
                "slave_request_offset": 0,
                "slave_ack_offset": 100,
                "next_transfer_from_where": 314,
                "last_write_over": False,
                "taken": 7,
                "room": 0,
                "slave_open": True,
            },
            {"slave": 1, "next_transfer_from_where": 100, "taken": 8},  # 20 bytes are the heartbeat and 8 of a header
        ),
        slaves=({"connected": True, "max_offset": 100, "current_reported_offset": 100, "deaf": False}, {"max_offset": 0}),
    ),
    State(
        "the second link of a slave that compares its last record, with reports and frames cut",
        HARDENED,
        (
            *(put(10), put(20), put(30)),  # end at 102, 214 and 336
            Connect(1, ALL, ALL),
            *(DeliverReports(1, 8), DeliverFrames(1, ALL), DeliverReports(1, 8)),
            Cut(1, "both"),
            Connect(1, ALL, ALL),
            DeliverReports(1, 8),  # of 214, the start of the last record
            *(put(40), put(50)),  # end at 468 and 610
            DeliverFrames(1, 112 + 34),  # the overlap: a report of 336 follows
            Grant(1, 20),
            put(60),  # ends at 762; 8 bytes of its first frame, 610 to 710, are taken
            DeliverFrames(1, 112 + 17),  # a frame, 336 to 436, and 17 bytes of the next
            DeliverReports(1, 11),  # of the two reports one and 3 bytes
        ),
        master={"max_offset": 762, "push2_slave_max_offset": 336},
        links=(
            {
                "link_id": 1,
                "slave": 1,
                "slave_request_offset": 214,
                "slave_ack_offset": 336,
                "next_transfer_from_where": 710,
                "last_write_over": False,
                "taken": 20,
                "unparsed_report": 3,
                "to_master": REPORT.pack(436)[3:],
                "master_close_reason": "",
            },
        ),
        slaves=(
            {"connected": False},
            {"connected": True, "max_offset": 436, "current_reported_offset": 436, "close_reason": ""},
        ),
    ),
    State(
        "a slave that has just reported where its last record starts",
        HARDENED,
        (
            *(put(10), put(20)),
            *(Connect(0, ALL, ALL), DeliverReports(0, 8), DeliverFrames(0, ALL), Cut(0, "both"), Connect(0, 35, ALL)),
        ),
        master={"max_offset": 214},
        links=(
            {
                "link_id": 1,
                "slave": 0,
                "room": 35,
                "slave_request_offset": -1,
                "slave_ack_offset": -1,
                "next_transfer_from_where": -1,
                "last_write_over": True,
                "to_master": REPORT.pack(102),
            },
        ),
        slaves=({"max_offset": 214, "current_reported_offset": 102}, {}),
    ),
    State(
        "a deaf slave, to which a header is in flight",
        CLASSIC,
        (
            put(10),
            *(Connect(1, ALL, ALL), Tick(5001), DeliverReports(1, 8)),
            ForgeHeader(1, (1 << 31) - 1),
            DeliverFrames(1, ALL),
            ForgeHeader(1, -4),
        ),
        links=(
            {"slave": 1, "to_slave": header(102, -4), "to_master": REPORT.pack(100) + REPORT.pack(102), "unparsed_report": 0},
        ),
        slaves=({"deaf": False}, {"deaf": True, "connected": True, "max_offset": 102, "current_reported_offset": 102}),
    ),
    State(
        "a log that begins at its second file, and a forged report",
        CLASSIC,
        (
            *(put(900), put(10)),  # the second record opens a file: ends at 1102
            *(Connect(1, ALL, ALL), Tick(5001), DeliverReports(1, 8), DeliverFrames(1, ALL), DeliverReports(1, ALL)),
            *(Connect(0, 5, ALL), ForgeReport(0, 500), DeliverReports(0, 8)),
        ),
        master={
            "max_offset": 1102,
            "push2_slave_max_offset": 1102,
            "paused": (),
            "requests_write": (),
            "requests_read": (),
            "has_notified": True,
        },
        links=(
            {"link_id": 0, "slave": 1, "slave_ack_offset": 1102, "slave_request_offset": 0},
            {"link_id": 1, "slave": 0, "slave_request_offset": 500, "slave_ack_offset": 500, "to_slave": header(500, 100)[:5]},
        ),
        slaves=({"min_offset": 0, "max_offset": 0}, {"min_offset": 1000, "max_offset": 1102, "current_reported_offset": 1102}),
    ),
    State(
        "the master alone was told of a cut",
        HARDENED,
        (put(10), Connect(1, 50, ALL), DeliverReports(1, ALL), Cut(1, "master")),
        links=(
            {
                "master_close_reason": "end_of_stream",
                "slave_open": True,
                "last_write_over": True,
                "taken": 0,
                "to_slave": b"",
                "next_transfer_from_where": 100,
                "room": 0,
            },
        ),
        slaves=({"connected": False, "close_reason": ""}, {"connected": True, "close_reason": ""}),
    ),
    State(
        "the slave alone was told of a cut",
        HARDENED,
        (put(10), Connect(1, 50, ALL), DeliverReports(1, ALL), Cut(1, "slave")),
        links=({"master_close_reason": "", "slave_open": False, "last_write_over": False, "taken": 50},),
        slaves=({"close_reason": ""}, {"connected": False, "close_reason": "end_of_stream"}),
    ),
    State(
        "the master was told of a cut, and the slave gives up later",
        HARDENED,
        (put(10), Connect(1, 50, ALL), DeliverReports(1, ALL), Cut(1, "master"), Tick(20_001)),
        slaves=({"close_reason": ""}, {"connected": False, "close_reason": "housekeeping"}),
    ),
    State(
        "the slave was told of a cut, and the master gives up later",
        HARDENED,
        (put(10), Connect(1, 50, ALL), DeliverReports(1, ALL), Cut(1, "slave"), Tick(20_001)),
        slaves=({"close_reason": ""}, {"connected": False, "close_reason": "end_of_stream"}),
    ),
    State(
        "a report ends two puts of three",
        HARDENED,
        (
            *(put(10), Connect(0, ALL, ALL), DeliverReports(0, ALL), DeliverFrames(0, ALL), DeliverReports(0, ALL)),
            *(put(20, wait=True), put(30, wait=True)),  # end at 214 and 336
            DeliverFrames(0, ALL),
            put(40, wait=True),  # ends at 468
            DeliverReports(0, ALL),
        ),
        master={"done": ((214, "PUT_OK"), (336, "PUT_OK")), "waiting": (468,), "push2_slave_max_offset": 336, "waits": 0},
        links=({"slave_ack_offset": 336},),
    ),
)


@contextmanager
def applied(state: State) -> Iterator[tuple[LinkLockstep, Path]]:
    with scratch_directory() as directory:
        both = of_link(2, SETTINGS, state.profile, directory)
        try:
            for event in state.events:
                outcome = both.apply(event)
                assert outcome.verdict == "ok", outcome
            yield both, directory
        finally:
            both.close()


def log_in_files(directory: Path, size: int) -> bytes:
    """The first `size` bytes of the files of a log, in order."""
    return b"".join(file.read_bytes() for file in sorted((directory / "commitlog").glob("*")))[:size]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_both_worlds_observe_what_is_there(state: State) -> None:
    with applied(state) as (both, directory):
        for world in (both.reference, both.implementation):
            found = world.observe()
            assert {name: getattr(found, name) for name in state.master} == state.master
            assert len(found.links) == len(state.links)
            assert len(found.slaves) == 2
            for actual, expected in zip((*found.links, *found.slaves), (*state.links, *state.slaves), strict=True):
                assert {name: getattr(actual, name) for name in expected} == expected
            # The logs are those of the files.
            assert found.log == log_in_files(directory / "master", found.max_offset)
            assert len(found.log) == found.max_offset > 0
            for index, node in enumerate(found.slaves):
                size = node.max_offset - node.min_offset
                assert node.log == log_in_files(directory / f"slave-{index}", size)
                assert len(node.log) == size


def test_the_bytes_in_flight_and_the_unparsed_ones_are_those_of_the_frames() -> None:
    with applied(STATES[0]) as (both, _):
        for world in (both.reference, both.implementation):
            found = world.observe()
            frames = header(0, 0)  # the heartbeat
            for start, size in ((0, 100), (100, 100), (200, 14)):
                frames += header(start, size) + found.log[start : start + size]
            frames += header(214, 100)[:7]
            assert found.slaves[0].unparsed == frames[124 : 112 + 50]
            assert found.links[0].to_slave == frames[112 + 50 :]
            assert found.links[1].to_slave == frames[:20]
            assert found.slaves[1].unparsed == b""


def holders(state: State) -> Iterator[tuple[type, dict[str, object]]]:
    yield Observation, state.master
    yield from ((ObservedLink, link) for link in state.links)
    yield from ((ObservedSlave, node) for node in state.slaves)


# The logs and the bytes in flight are compared with files and frames. A schedule's master never loses its first file; the test
# below makes one that has lost it.
ELSEWHERE = {"log", "unparsed", "links", "slaves"}
NEVER_MOVED = {(Observation, "min_offset")}


@pytest.mark.parametrize("kind", [Observation, ObservedLink, ObservedSlave], ids=lambda kind: kind.__name__)
def test_the_states_give_each_field_a_value_of_its_own(kind: Any) -> None:
    """The states above tell each field from a constant and from every other field of its type."""
    told: dict[str, set[object]] = {}
    alone: set[str] = set()
    for holder, values in (pair for state in STATES for pair in holders(state)):
        if holder is not kind:
            continue
        for name, value in values.items():
            told.setdefault(name, set()).add(value)
            if value and not any(other == value and type(other) is type(value) for at, other in values.items() if at != name):
                alone.add(name)
    expected = {name for name in kind._fields if name not in ELSEWHERE and (kind, name) not in NEVER_MOVED}
    assert set(told) == expected
    for name in expected:
        assert len(told[name]) > 1, name
        assert name in alone or told[name] == {True, False}, name


def a_message(nbytes: int) -> Message:
    host = ("127.0.0.1", 10911)
    return Message("T", bytes(nbytes), born_host=host, store_host=host)


def test_the_start_of_the_masters_log_is_observed(tmp_path: Path) -> None:
    """A master that has lost its first file, as after a deletion; no event of a schedule does this."""
    with_two = CommitLog.open(tmp_path / "master", file_size=1000)
    with_two.append(a_message(900))
    with_two.append(a_message(10))
    with_two.close()
    first, second = sorted((tmp_path / "master" / "commitlog").iterdir())
    first.unlink()
    data = second.read_bytes()[:102]
    reference = ReferenceWorld(1, SETTINGS, HARDENED, START_MS)
    before = reference.observe()
    reference.cluster = replace(reference.cluster, log=Log(1000, 1000, data))
    implementation = ImplementationWorld(1, SETTINGS, HARDENED, START_MS, tmp_path)
    try:
        for found in (reference.observe(), implementation.observe()):
            assert (found.min_offset, found.max_offset, found.log) == (1000, 1102, data)
            assert [one.field for one in differences(before, found)] == ["min_offset", "max_offset", "log"]
    finally:
        implementation.close()


def test_an_observation_has_a_slave_for_each_of_the_cluster() -> None:
    for slaves in (1, 2, 3):
        with scratch_directory() as directory:
            both = of_link(slaves, SETTINGS, HARDENED, directory)
            found: list[Any] = [world.observe().slaves for world in (both.reference, both.implementation)]
            both.close()
            assert [len(one) for one in found] == [slaves, slaves]
