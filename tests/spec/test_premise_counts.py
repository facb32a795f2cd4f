"""Exact counts of each premise on small graphs: a premise whose meaning has changed has another count.

`make formal` requires a minimum of cases. A premise that is met too easily would pass there, but fails here.
"""

from dataclasses import replace
from functools import cache

import pytest

from formal import graph, premise, premises, premises_protocol, premises_reading
from formal.levels import LEVELS
from rocketmq_ha.reference import protocol_durability
from rocketmq_ha.reference.protocol_durability import AckedState
from rocketmq_ha.reference.protocol_state import Scope, SlaveNode, initial, of_profile, warm
from rocketmq_ha.spec.profile import HARDENED

pytestmark = pytest.mark.xdist_group("premise-counts")  # the state graphs are explored once

NAMED = graph.load_scopes()
SCOPES = {
    "crash": Scope(slaves=1, max_puts=2, max_master_crashes=1, batch=1, file_size=4, sync_puts=True),
    "windows": Scope(slaves=1, max_puts=3, batch=2, file_size=2, frame_window=2, sync_puts=True),
}

# For each graph: the premises that it reaches, and how often. It reaches no other premise.
REACHED = {
    "crash": {
        "data_is_in_flight": 64,
        "nothing_is_reported_yet": 19,
        "transfer_moves Transfer Heartbeat": 64,
        "later_report_is_taken DeliverReports": 218,
        "put_begins_to_wait PutSync": 16,
        "put_ends DeliverReports": 10,
        "put_ends Timeout": 40,
        "put_waits_beyond_an_ack": 40,
        "live_slave_has_acked": 156,
        "connection_closes DeliverReports": 1,
        "something_is_acknowledged": 140,
        "something_is_sent": 228,
        "ack_moves DeliverReports": 66,
        "start_is_asked_for": 16,
        "put_finds_a_connection PutSync": 97,
        "put_finds_too_few PutSync": 81,
        "start_is_granted DeliverReports": 2,
        "start_is_refused DeliverReports": 1,
        "live_slave_is_ahead": 22,
        "live_slave_differs": 9,
        "slave_that_differs_is_refused DeliverFrames": 2,
        "slave_differs": 11,
        "slave_has_units": 272,
        "units_are_appended DeliverFrames": 52,
        "slave_without_units_takes_a_heartbeat DeliverFrames": 32,
        "slave_is_behind": 224,
        "ack_is_due": 158,
        "put_waits": 40,
        "put_waits_with_a_live_slave_and_no_fault_left": 16,
        "log_is_beyond_the_slaves": 224,
    },
    "windows": {
        "frame_ends_with_its_file": 38,
        "data_is_in_flight": 120,
        "two_frames_are_in_flight": 140,
        "nothing_is_reported_yet": 3,
        "transfer_moves Transfer Heartbeat": 77,
        "later_report_is_taken DeliverReports": 186,
        "put_begins_to_wait PutSync": 42,
        "put_ends DeliverReports": 27,
        "put_ends Timeout": 122,
        "put_waits_beyond_an_ack": 99,
        "live_slave_has_acked": 176,
        "something_is_acknowledged": 176,
        "something_is_sent": 261,
        "ack_moves DeliverReports": 79,
        "put_finds_a_connection PutSync": 107,
        "put_finds_too_few PutSync": 65,
        "slave_has_units": 207,
        "units_are_appended DeliverFrames": 170,
        "units_are_appended_in_a_later_file DeliverFrames": 55,
        "slave_without_units_takes_a_heartbeat DeliverFrames": 48,
        "slave_has_a_later_file": 153,
        "slave_is_behind": 231,
        "ack_is_due": 83,
        "put_waits": 99,
        "put_waits_with_a_live_slave_and_no_fault_left": 99,
        "log_is_beyond_the_slaves": 231,
    },
    "durable-classic": {
        "data_is_in_flight": 88,
        "put_waits_beyond_an_ack": 64,
        "live_slave_has_acked": 304,
        "something_is_acknowledged": 304,
        "something_is_sent": 304,
        "slave_has_units": 304,
        "slave_is_behind": 216,
        "ack_is_due": 88,
        "put_waits": 64,
        "put_waits_with_a_live_slave_and_no_fault_left": 64,
        "put_ok_is_remembered": 80,
        "log_is_beyond_the_slaves": 72,
    },
    "fair-pair-hardened": {
        "data_is_in_flight": 72,
        "transfer_moves Transfer Heartbeat": 80,
        "later_report_is_taken DeliverReports": 264,
        "put_begins_to_wait PutSync": 16,
        "put_ends DeliverReports": 32,
        "put_ends Timeout": 64,
        "put_waits_beyond_an_ack": 64,
        "live_slave_has_acked": 224,
        "something_is_acknowledged": 224,
        "something_is_sent": 224,
        "ack_moves DeliverReports": 80,
        "put_ends_beside_another_slave DeliverReports": 32,
        "put_finds_a_connection PutSync": 16,
        "slave_has_units": 224,
        "units_are_appended DeliverFrames": 80,
        "slave_is_behind": 168,
        "ack_is_due": 72,
        "put_waits": 64,
        "put_waits_with_a_live_slave_and_no_fault_left": 64,
        "log_is_beyond_the_slaves": 72,
    },
    "patient-hardened": {
        "data_is_in_flight": 88,
        "nothing_is_reported_yet": 24,
        "transfer_moves Transfer Heartbeat": 188,
        "later_report_is_taken DeliverReports": 444,
        "put_begins_to_wait PutSync": 44,
        "put_ends DeliverReports": 44,
        "put_waits_beyond_an_ack": 128,
        "live_slave_has_acked": 260,
        "something_is_acknowledged": 372,
        "something_is_sent": 440,
        "ack_moves DeliverReports": 140,
        "start_is_asked_for": 80,
        "ack_is_forgotten DeliverReports DeliverFrames Cut Reap": 216,
        "put_finds_a_connection PutSync": 66,
        "put_finds_too_few PutSync": 22,
        "start_is_granted DeliverReports": 8,
        "slave_has_units": 499,
        "units_are_appended DeliverFrames": 40,
        "slave_is_behind": 238,
        "ack_is_due": 328,
        "put_waits": 180,
        "stale_connection_stands": 292,
        "put_waits_with_a_live_slave_and_no_fault_left": 165,
        "log_is_beyond_the_slaves": 238,
    },
    "stall-hardened": {
        "data_is_in_flight": 29,
        "nothing_is_reported_yet": 4,
        "transfer_moves Transfer Heartbeat": 24,
        "later_report_is_taken DeliverReports": 97,
        "live_slave_has_acked": 70,
        "something_is_acknowledged": 70,
        "something_is_sent": 121,
        "ack_moves DeliverReports": 43,
        "slave_has_units": 97,
        "units_are_appended DeliverFrames": 29,
        "units_are_appended_in_a_later_file DeliverFrames": 12,
        "slave_without_units_takes_a_heartbeat DeliverFrames": 16,
        "slave_has_a_later_file": 74,
        "live_slave_reads_behind_a_deletion": 51,
        "slave_is_behind": 107,
        "ack_is_due": 48,
        "log_is_beyond_the_slaves": 107,
    },
    "reading-restart-hardened": {
        "message_is_committed": 2226,
        "message_of_both_logs_is_passed": 1378,
        "master_has_messages": 3227,
        "promoted_master_has_messages": 550,
        "slave_lacks_the_topic_of_its_log": 790,
        "message_is_done": 2183,
        "message_is_done_at_the_slave_alone": 212,
        "message_is_done_and_nothing_to_tell": 463,
        "slave_is_behind_a_message_that_its_master_is_not": 326,
        "consumer_is_ahead_of_the_slave_that_it_asks": 232,
        "slave_is_ahead_of_the_offset_that_it_takes TakeOffsets": 161,
        "master_has_gone_back TakeOffsets": 93,
        "master_takes_the_slaves_offset TakeOffsets": 391,
        "consumer_has_begun_anew Deliver": 1256,
        "delivered_message_comes_again Deliver": 938,
    },
    "reading-diverge-hardened": {
        "message_is_committed": 4396,
        "consumer_has_read_what_is_lost": 4455,
        "message_of_both_logs_is_passed": 2289,
        "master_has_messages": 6323,
        "promoted_master_has_messages": 1452,
        "slave_lacks_the_topic_of_its_log": 1379,
        "message_is_done": 5237,
        "message_is_done_at_the_slave_alone": 287,
        "message_is_done_and_nothing_to_tell": 1240,
        "slave_is_behind_a_message_that_its_master_is_not": 646,
        "consumer_is_ahead_of_the_slave_that_it_asks": 588,
        "consumer_is_corrected_while_it_holds Pull": 28,
        "slave_is_ahead_of_the_offset_that_it_takes TakeOffsets": 699,
        "master_has_gone_back TakeOffsets": 311,
        "master_takes_the_slaves_offset TakeOffsets": 664,
        "consumer_has_begun_anew Deliver": 2510,
        "delivered_message_comes_again Deliver": 1618,
    },
}
ALWAYS = "put_ends Timeout"  # every edge of Timeout ends a put


@cache
def explored(name: str) -> graph.Graph:
    return graph.explore(of_profile(SCOPES[name], HARDENED)) if name in SCOPES else graph.explore_named(NAMED[name])


def each_premise(level: str) -> dict[str, premise.Premise]:
    """Yield every premise of a level with its name and the actions whose edges it checks."""
    of_level = {"protocol": premises_protocol.PREMISES, "reading": premises_reading.PREMISES}[level]
    found = (each for of_property in of_level.values() for each in of_property)
    return {" ".join((each.met.__name__, *actions(each))): each for each in found}


def actions(one: premise.Premise) -> tuple[str, ...]:
    """The actions whose edges a premise checks; empty if it checks states."""
    return one.actions if isinstance(one, premise.EdgePremise) else ()


def looked_at(one: premise.Premise, found: graph.Graph) -> int:
    """The number of states or edges on which a premise is evaluated."""
    labels = [label.partition("(")[0] for label, _, _ in found.edges]
    return sum(map(labels.count, actions(one))) if actions(one) else len(found.states)


def reached(one: premise.Premise, found: graph.Graph, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of times that the graph reaches a premise, counted by the function that `make formal` uses."""
    monkeypatch.setitem(premises.PREMISES, "this one", (replace(one, possible=lambda _scope: True),))
    return premises.counted(found, ["this one"])["this one"][0].reached


def level_of(name: str) -> str:
    return explored(name).level.name


@pytest.mark.parametrize("name", REACHED)
def test_each_premise_is_reached_exactly_as_often(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_level = each_premise(level_of(name)).items()
    counts = {told: reached(one, explored(name), monkeypatch) for told, one in of_level}
    assert {told: count for told, count in counts.items() if count} == REACHED[name]


@pytest.mark.parametrize(("level", "told"), [(level, told) for level in LEVELS for told in each_premise(level)])
def test_some_graph_meets_a_premise_and_some_graph_does_not_always(level: str, told: str) -> None:
    rows = {name: row for name, row in REACHED.items() if level_of(name) == level}
    counts = {name: (row.get(told, 0), looked_at(each_premise(level)[told], explored(name))) for name, row in rows.items()}
    assert any(count for count, _ in counts.values())
    assert told == ALWAYS or any(count < of for count, of in counts.values())


@pytest.mark.parametrize("name", ["crash", "windows", "fair-pair-hardened", "patient-hardened"])
def test_a_put_that_finds_a_connection_begins_to_wait_or_finds_too_few(name: str) -> None:
    row = {told: REACHED[name].get(f"{told} PutSync", 0) for told in ("put_finds_a_connection", "put_begins_to_wait")}
    assert REACHED[name].get("put_finds_too_few PutSync", 0) == row["put_finds_a_connection"] - row["put_begins_to_wait"]


def test_where_no_connection_ends_no_put_of_a_warm_start_finds_too_few() -> None:
    assert "put_finds_too_few PutSync" not in REACHED["fair-pair-hardened"]
    assert REACHED["fair-pair-hardened"]["put_begins_to_wait PutSync"] > 0


def test_a_put_with_one_connection_where_it_needs_two_finds_too_few() -> None:
    alone = of_profile(Scope(slaves=1, max_puts=2, sync_puts=True, replicas=2), HARDENED)
    before, after = warm(alone), graph.explore(alone, start=warm(alone))
    [put] = [after.states[end] for label, begin, end in after.edges if label == "PutSync" and begin == 0]
    assert premises_protocol.put_finds_too_few(before, put, alone)
    assert not premises_protocol.put_begins_to_wait(before, put, alone)


def test_of_two_best_slaves_each_must_have_what_was_acknowledged() -> None:
    """HA-G-18: an operator may promote either."""
    scope = of_profile(Scope(slaves=2, max_puts=2), HARDENED)
    unit, other = 7, 8
    state = replace(
        protocol_durability.remembering(initial(scope)),
        slave=(SlaveNode(base=0, units=(unit,)), SlaveNode(base=0, units=(other,))),
        acked=((1, unit),),
    )
    assert isinstance(state, AckedState)
    assert len(protocol_durability.best(state)) == 2
    assert not protocol_durability.acked_is_in_the_best_log(state, scope)
    both = replace(state, slave=(state.slave[0], state.slave[0]))
    assert protocol_durability.acked_is_in_the_best_log(both, scope)
