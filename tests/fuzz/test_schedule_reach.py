"""What schedules reach: the model runs those of fixed seeds; splits, states of faults and transitions are counted.

The event log's report shows the same of a campaign. Here a scheduler that no longer reaches a place is a failure.
"""

import statistics
from collections import Counter
from dataclasses import dataclass, field

import pytest

from rocketmq_ha.fuzz import schedule
from rocketmq_ha.fuzz.schedule import fault_of
from rocketmq_ha.fuzz.world import ReferenceWorld
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.reference import master, slave, store
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import PROFILES

RUNS = 150
CUTS = ("cut_both", "cut_slave", "cut_master")
ENDS = ("restart_slave", "stop_master", "kill_master", "lose_tail")
FAULTS = (*CUTS, *ENDS, "forge_report", "forge_header", "clog", "fill_disk", "delete_file")
SLAVE_STATES = ("disconnected", "connected", "header_partial", "body_partial")
MASTER_STATES = ("await_report", "caught_up", "frame_waiting", "header_partial", "body_partial")


@dataclass
class Reached:
    splits: Counter[tuple[str, str, int]] = field(default_factory=Counter)  # by machine, event and place
    slaves: Counter[tuple[str, str]] = field(default_factory=Counter)  # by fault, and the state of its slave before
    masters: Counter[tuple[str, str]] = field(default_factory=Counter)  # ... and the state of the master's end of its link
    transitions: set[tuple[str, ...]] = field(default_factory=set)
    highest: dict[str, list[int]] = field(default_factory=dict)  # by profile: the greatest max offset of a slave in each run


@pytest.fixture(scope="module")
def reached() -> Reached:
    found = Reached()
    for seed in range(RUNS):
        drawn = schedule.draw(seed)
        world = ReferenceWorld(drawn.slaves, drawn.settings, drawn.profile, START_MS)
        highest = 0
        for event in drawn.events:
            if (fault := fault_of(event)) != NO_FAULT:
                index = getattr(event, "slave", 0)
                found.slaves[fault, slave.classify(world.cluster.slaves[index]).value] += 1
                for link in world.cluster.links:
                    if link.slave == index and link.slave_open:
                        found.masters[fault, master.classify(link.conn).value] += 1
            for row in world.apply(event):
                found.splits[row.actor, row.event, row.split_at] += 1
                found.transitions.add((drawn.profile.name, row.actor, row.from_state, row.event, row.to_state))
            highest = max(highest, *(store.max_offset(node.log) for node in world.cluster.slaves))
        found.highest.setdefault(drawn.profile.name, []).append(highest)
    return found


@pytest.mark.parametrize(
    ("actor", "event", "bytes_of_it"),
    [
        ("slave_client", "frames", range(14)),  # all of a header, directly behind it, and in a body
        ("master_connection", "transfer", range(14)),
        ("master_connection", "reports", range(8)),
    ],
)
def test_frames_and_reports_are_split_at_every_byte(reached: Reached, actor: str, event: str, bytes_of_it: range) -> None:
    counts = {at: reached.splits[actor, event, at] for at in bytes_of_it}
    assert min(counts.values()) >= 5, counts
    largest = max(at for name, kind, at in reached.splits if (name, kind) == (actor, event))
    assert largest == 7 if event == "reports" else largest > 300


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_happens_in_each_state(reached: Reached, fault: str) -> None:
    assert [state for state in SLAVE_STATES if not reached.slaves[fault, state]] == []
    assert [state for state in MASTER_STATES if not reached.masters[fault, state]] == []


def test_no_fault_is_missing_in_the_list() -> None:
    assert {fault_of(event) for seed in range(100) for event in schedule.draw(seed).events} == {NO_FAULT, *FAULTS}


def test_most_transitions_are_seen_in_a_few_runs(reached: Reached) -> None:
    assert len(reached.transitions) > 215  # of 280; 233 when this was written


@pytest.mark.parametrize("profile", PROFILES)
def test_most_slaves_get_a_message_in_each_profile(reached: Reached, profile: str) -> None:
    """In classic a slave waits for an interval before it reports: without that in the schedules half of them had no byte."""
    assert statistics.median(reached.highest[profile]) > 500
