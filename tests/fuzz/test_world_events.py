"""What the implementation's world plays of network and system, event by event: each schedule would differ if it played less."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kit.schedules import ALL, RECORD, SETTINGS, put, schedule_of
from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.world import ReferenceWorld
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference import store
from rocketmq_ha.reference.cluster import Cluster
from rocketmq_ha.reference.events import (
    Clog,
    Connect,
    Cut,
    DeleteFile,
    DeliverFrames,
    DeliverReports,
    DiskFull,
    Event,
    ForgeHeader,
    Grant,
    RestartMaster,
    RestartSlave,
    Resume,
)
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

Tests = Callable[[Cluster], bool]
CONNECT = Connect(0, ALL, ALL)
REPORTS, FRAMES = DeliverReports(0, ALL), DeliverFrames(0, ALL)
ANEW = (CONNECT, REPORTS, FRAMES, REPORTS)


@pytest.mark.parametrize(
    ("profile", "events", "ends"),
    [
        pytest.param(
            HARDENED,
            (put(10), DiskFull(0, True), RestartSlave(0), *ANEW),
            lambda found: found.slaves[0].close_reason == "disk_full" and store.max_offset(found.slaves[0].log) == 0,
            id="a disk that is full is full after a restart",
        ),
        pytest.param(
            HARDENED,
            (put(10), DiskFull(0, True), *ANEW, DiskFull(0, False), *ANEW),
            lambda found: store.max_offset(found.slaves[0].log) == RECORD + 10,
            id="a disk that has room again takes bytes",
        ),
        pytest.param(
            CLASSIC,
            (put(10, wait=True, pauses=True), RestartMaster(True), Resume(0)),
            lambda found: found.paused == found.done == () and not found.group.requests,
            id="puts that pause are gone with their master",
        ),
        pytest.param(
            CLASSIC,
            (*(put(10, wait=True, pauses=True) for _ in range(3)), Resume(1), Resume(2)),
            lambda found: len(found.paused) == 2,
            id="the second of three puts goes on, and then there is no third",
        ),
        pytest.param(
            HARDENED,
            (Connect(0, 5, ALL), put(10), REPORTS, ForgeHeader(0, 7)),
            lambda found: len(found.links[0].to_slave) == 5,
            id="no header is forged within a frame",
        ),
        pytest.param(
            HARDENED,
            (Connect(0, 5, ALL), put(10), REPORTS, Grant(0, ALL), ForgeHeader(0, 7)),
            lambda found: len(found.links[0].to_slave) == 12 + 100 + 12 + 2 + 12,
            id="a header is forged behind whole frames",
        ),
        pytest.param(
            HARDENED,
            (Connect(0, 0, ALL), REPORTS, *(put(700) for _ in range(5)), Grant(0, ALL)),
            lambda found: len(found.links[0].to_slave) > 16 * 112,
            id="one event sends more frames than the master builds at once",
        ),
        pytest.param(
            HARDENED,
            (put(10), put(20), RestartMaster(False, 5), put(30), *ANEW),
            lambda found: store.max_offset(found.log) == store.max_offset(found.slaves[0].log) == RECORD + 30,
            id="a master loses more records than it has",
        ),
        pytest.param(
            HARDENED,
            (*(put(700) for _ in range(3)), RestartMaster(False, 2)),
            lambda found: store.max_offset(found.log) == 1000,  # with the BLANK of the first file
            id="a master loses records of two files",
        ),
        pytest.param(
            HARDENED,
            (*(put(700) for _ in range(3)), DeleteFile(), DeleteFile(), DeleteFile()),
            lambda found: store.min_offset(found.log) == 2000,
            id="a master never deletes its last file",
        ),
        pytest.param(
            HARDENED,
            (*(put(700) for _ in range(3)), RestartMaster(False, 1), DeleteFile(), DeleteFile()),
            lambda found: (store.min_offset(found.log), store.max_offset(found.log)) == (1000, 2000),
            id="a last file without a byte is none",
        ),
        pytest.param(
            HARDENED,
            (*(put(700) for _ in range(3)), DeleteFile(), RestartMaster(False, 5), put(10), *ANEW),
            lambda found: store.max_offset(found.log) == store.max_offset(found.slaves[0].log) == 2000 + RECORD + 10,
            id="a power cut leaves the first record behind a deleted file",
        ),
        pytest.param(
            HARDENED,
            (*(put(700) for _ in range(3)), DeleteFile(), DeleteFile(), RestartMaster(True), put(10)),
            lambda found: found.queue_offsets == (("T", 0, 4),),
            id="a queue goes on behind its last message that the log still has",
        ),
        pytest.param(
            HARDENED,
            (Connect(0, 12 + 100, ALL), put(700), put(700), REPORTS, put(700), DeleteFile(), Grant(0, ALL)),
            lambda found: len(found.links[0].to_slave) > 300,
            id="a frame is sent whole though its file is deleted meanwhile",
        ),
        pytest.param(
            HARDENED,
            (put(10), *ANEW, *(put(700) for _ in range(3)), Cut(0, "both"), DeleteFile(), CONNECT, REPORTS),
            lambda found: found.slaves[0].connected is False and found.links == (),
            id="a first report below the log closes the connection",
        ),
        pytest.param(
            CLASSIC,
            (put(10), *ANEW, *(put(700) for _ in range(3)), DeleteFile(), FRAMES, REPORTS),
            lambda found: found.slaves[0].connected is True,
            id="a slave whose next bytes are deleted keeps its connection in classic",
        ),
        pytest.param(
            HARDENED,
            (*ANEW, Cut(0, "slave"), CONNECT, RestartMaster(False), *ANEW),
            lambda found: len(found.links) == 1 and found.slaves[0].connected,
            id="a master restarts with a stale connection and an intact one",
        ),
        pytest.param(
            HARDENED,
            (*ANEW, put(10), Clog(0, 3), FRAMES, REPORTS, RestartSlave(0), *ANEW),
            lambda found: store.max_offset(found.slaves[0].log) == RECORD + 10,
            id="a part of a report is lost with the slave",
        ),
        pytest.param(
            HARDENED,
            (put(10), *ANEW, put(20, wait=True), RestartMaster(True)),
            lambda found: len(found.done) == 1,
            id="a clean stop ends a put that waits",
        ),
        pytest.param(
            HARDENED,
            (put(10), *ANEW, put(20, wait=True), RestartMaster(False), put(10)),
            lambda found: found.done == () and not found.group.requests,
            id="a kill leaves it without a status",
        ),
        pytest.param(
            HARDENED,
            (put(10), *ANEW, put(20, wait=True), FRAMES, REPORTS, put(20)),
            lambda found: found.done == (),
            id="a put ends in one step alone",
        ),
    ],
)
def test_both_worlds_do_the_same(profile: Profile, events: tuple[Event, ...], ends: Tests) -> None:
    outcome = lockstep.run(schedule_of(*events, profile=profile))
    assert [(step.verdict, step.detail) for step in outcome.steps] == [(VERDICT_OK, "")] * len(events)
    model = ReferenceWorld(1, SETTINGS, profile, START_MS)
    for event in events:
        model.apply(event)
    assert ends(model.cluster)


@pytest.mark.parametrize("size", [500, 1000, 2000])
def test_a_slave_has_the_file_size_that_its_settings_say(size: int) -> None:
    """Two files of the master; the slave stops where it learns that its own files are of another size."""
    events = (put(700), put(700), *ANEW)
    outcome = lockstep.run(schedule_of(*events, settings=replace(SETTINGS, slave_file_size=size)))
    assert {step.verdict for step in outcome.steps} == {VERDICT_OK}
