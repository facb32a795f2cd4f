"""The names under which the event log counts events as faults, and that the draws hold each of them."""

from collections import Counter

import pytest

from kit.schedules import drawn_schedules
from rocketmq_ha.fuzz.schedule import fault_of
from rocketmq_ha.reference import events
from rocketmq_ha.reference.events import (
    Clog,
    Connect,
    Cut,
    DeliverFrames,
    DeliverReports,
    DiskFull,
    ForgeHeader,
    ForgeReport,
    Grant,
    Put,
    RestartMaster,
    RestartSlave,
    Resume,
    Tick,
)


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (Put("T", b"", "", 0, wait=True), "none"),
        (Resume(0), "none"),
        (Tick(20_001), "none"),
        (Connect(0, 0, 0), "none"),
        (Grant(0, 1), "none"),
        (DeliverFrames(0, -1), "none"),
        (DeliverReports(0, 1), "none"),
        (ForgeReport(0, -5), "forge_report"),
        (ForgeHeader(0, -4), "forge_header"),
        (Clog(0, 3), "clog"),
        (DiskFull(0, is_full=True), "fill_disk"),
        (DiskFull(0, is_full=False), "none"),
        (Cut(0, "both"), "cut_both"),
        (Cut(0, "slave"), "cut_slave"),
        (Cut(0, "master"), "cut_master"),
        (RestartSlave(0), "restart_slave"),
        (RestartMaster(clean=True), "stop_master"),
        (RestartMaster(clean=False), "kill_master"),
        (RestartMaster(clean=False, lost=1), "lose_tail"),
        (RestartMaster(clean=True, lost=1), "lose_tail"),
    ],
    ids=str,
)
def test_the_event_log_names_each_fault(event: events.Event, name: str) -> None:
    assert fault_of(event) == name


def test_the_draws_hold_every_fault() -> None:
    found = Counter(fault_of(event) for drawn in drawn_schedules() for event in drawn.events)
    cuts = {"cut_both", "cut_slave", "cut_master"}
    ends = {"restart_slave", "stop_master", "kill_master", "lose_tail"}
    assert set(found) == {"none", *cuts, *ends, "forge_report", "forge_header", "clog", "fill_disk"}
