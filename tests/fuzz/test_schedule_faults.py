"""The names under which the event log counts events as faults, and that the draws hold each of them."""

from collections import Counter

import pytest

from kit.schedules import drawn_schedules
from rocketmq_ha.fuzz.schedule import fault_of
from rocketmq_ha.reference import events


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (events.Put("T", b"", "", 0, wait=True), "none"),
        (events.Resume(0), "none"),
        (events.Tick(20_001), "none"),
        (events.Connect(0, 0, 0), "none"),
        (events.Grant(0, 1), "none"),
        (events.DeliverFrames(0, -1), "none"),
        (events.DeliverReports(0, 1), "none"),
        (events.ForgeReport(0, -5), "forge_report"),
        (events.ForgeHeader(0, -4), "forge_header"),
        (events.Clog(0, 3), "clog"),
        (events.DiskFull(0, is_full=True), "fill_disk"),
        (events.DiskFull(0, is_full=False), "none"),
        (events.DeleteFile(), "delete_file"),
        (events.Cut(0, "both"), "cut_both"),
        (events.Cut(0, "slave"), "cut_slave"),
        (events.Cut(0, "master"), "cut_master"),
        (events.RestartSlave(0), "restart_slave"),
        (events.RestartMaster(clean=True), "stop_master"),
        (events.RestartMaster(clean=False), "kill_master"),
        (events.RestartMaster(clean=False, lost=1), "lose_tail"),
        (events.RestartMaster(clean=True, lost=1), "lose_tail"),
    ],
    ids=str,
)
def test_the_event_log_names_each_fault(event: events.Event, name: str) -> None:
    assert fault_of(event) == name


def test_the_draws_hold_every_fault() -> None:
    found = Counter(fault_of(event) for drawn in drawn_schedules() for event in drawn.events)
    cuts = {"cut_both", "cut_slave", "cut_master"}
    ends = {"restart_slave", "stop_master", "kill_master", "lose_tail"}
    assert set(found) == {"none", *cuts, *ends, "forge_report", "forge_header", "clog", "fill_disk", "delete_file"}
