"""The two algorithms that end a waiting put, tested alone: their promises, and that model and implementation agree."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rocketmq_ha.impl.ha.five_waits import FiveWaits
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.ha.group_transfer import GroupTransfer as ImplGroupTransfer
from rocketmq_ha.reference import five_waits, group_transfer_service
from rocketmq_ha.reference.five_waits import FiveWaitsState, ServiceThread
from rocketmq_ha.reference.group_transfer import (
    FLUSH_SLAVE_TIMEOUT,
    PUT_OK,
    SLAVE_NOT_AVAILABLE,
    GroupTransfer,
    GroupTransferState,
)
from rocketmq_ha.reference.step import Done
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

SETTINGS = Settings(1000)
PROFILES = (CLASSIC, HARDENED)
WAIT_MS = 1000

Event = tuple[str, int]  # put OFFSET, ack OFFSET, tick MS, shutdown 0


@dataclass
class Model:
    """The model's algorithm, driven as by a cluster with one slave."""

    profile: Profile
    group: GroupTransfer = field(init=False)
    push2: int = 0
    now_ms: int = 0
    puts: int = 0

    def __post_init__(self) -> None:
        self.group = group_transfer_service.new_group(self.profile)

    @property
    def service(self) -> ServiceThread:
        return five_waits.service_of(self.group)

    def do(self, event: str, number: int) -> list[tuple[int, str]]:
        """Returns: (next offset, status) of the puts that ended."""
        match event:
            case "put":
                step = group_transfer_service.on_put(self.group, self.puts, number, 1, self.push2, self.now_ms, SETTINGS)
                self.puts += 1
            case "ack":
                if number <= self.push2:
                    return []
                self.push2 = number
                step = group_transfer_service.on_ack(self.group, number, self.now_ms)
            case "tick":
                self.now_ms += number
                step = group_transfer_service.on_tick(self.group, self.push2, self.now_ms)
            case _:
                step = group_transfer_service.on_shutdown(self.group)
        self.group = step.state
        return [(output.next_offset, output.status) for output in step.outputs if isinstance(output, Done)]

    def ends(self, *events: Event) -> list[tuple[int, str]]:
        """The puts that the events end."""
        return [done for event in events for done in self.do(*event)]

    @property
    def state(self) -> FiveWaitsState | GroupTransferState:
        return group_transfer_service.classify(self.group)


class Implementation:
    """The implementation's algorithm, driven as HAService drives it."""

    def __init__(self, profile: Profile) -> None:
        self.machine = FiveWaits() if profile is CLASSIC else ImplGroupTransfer()
        self.profile, self.push2, self.now_ms = profile, 0, 0
        self.waiting: list[GroupCommitRequest] = []

    def do(self, event: str, number: int) -> list[tuple[int, str]]:
        match event:
            case "put":
                request = GroupCommitRequest(number)
                self.waiting.append(request)
                self.machine.on_put(request, True, self.push2, self.now_ms, SETTINGS)
            case "ack" if number > self.push2:
                self.push2 = number
                self.machine.on_ack(number, self.now_ms)
            case "tick":
                self.now_ms += number
                self.machine.on_tick(self.now_ms)
            case "shutdown":
                self.machine.on_shutdown()
        done = [(request.next_offset, request.status.value) for request in self.waiting if request.status]
        self.waiting = [request for request in self.waiting if request.status is None]
        return done


def agree(profile: Profile, events: Sequence[Event]) -> None:
    model, implementation = Model(profile), Implementation(profile)
    for event in events:
        assert sorted(model.do(*event)) == sorted(implementation.do(*event)), event
        assert [request.next_offset for request in model.group.requests] == [
            request.next_offset for request in implementation.machine
        ]
        if isinstance(implementation.machine, FiveWaits):
            service, machine = model.service, implementation.machine.service
            of_model = (service.requests_write, service.requests_read)
            offsets = [[request.next_offset for request in requests] for requests in of_model]
            of_machine = (machine.requests_write, machine.requests_read)
            assert offsets == [[request.next_offset for request in requests] for requests in of_machine]
            assert (service.waits, service.has_notified) == (machine.waits, machine.has_notified)
        assert len(implementation.machine) == len(model.group.requests)


@pytest.mark.parametrize("kind", [Model, Implementation])
def test_a_put_waits_for_what_lies_behind_the_acknowledgement_alone(kind: type[Model] | type[Implementation]) -> None:
    """HA-G-1 "when push2_slave_max_offset is at least the offset after its message"."""
    machine = kind(HARDENED)
    machine.do("ack", 20)
    assert [machine.do("put", offset) for offset in (19, 20, 21)] == [[(19, PUT_OK)], [(20, PUT_OK)], []]
    assert machine.do("ack", 21) == [(21, PUT_OK)]


@pytest.mark.parametrize("kind", [Model, Implementation])
def test_a_later_put_may_end_first_after_the_clock_has_stepped_back(kind: type[Model] | type[Implementation]) -> None:
    machine = kind(HARDENED)
    machine.do("put", 10)
    machine.do("tick", -1000)
    machine.do("put", 20)
    assert machine.do("tick", 5000) == []  # for the later one just its deadline
    assert machine.do("tick", 1) == [(20, FLUSH_SLAVE_TIMEOUT)]
    assert machine.do("ack", 20) == [(10, PUT_OK)]


ticks = st.tuples(st.just("tick"), st.sampled_from((1, 100, 999, 1000, 1001, 2500, 5000, 5001, -1000)))
acks = st.tuples(st.just("ack"), st.integers(1, 40))
shutdowns = st.just(("shutdown", 0))
# Single events seldom make five waits in a row, so whole seconds and too small reports come in runs.
seconds = st.integers(3, 6).map(lambda waits: [("tick", WAIT_MS)] * waits)
small_acks = st.integers(3, 6).map(lambda waits: [("ack", offset) for offset in range(1, 1 + waits)])
runs = st.one_of(
    st.one_of(st.tuples(st.just("put"), st.integers(1, 40)), ticks, acks).map(lambda event: [event]), seconds, small_acks
)


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(runs, runs, runs, shutdowns.map(lambda event: [event])), max_size=20))
@example([[("put", 10)], [("tick", WAIT_MS)] * 5, [("ack", 10)]])
@example([[("put", 10)], [("ack", offset) for offset in range(1, 6)], [("ack", 10)]])
def test_classic_is_one_machine_whatever_the_order_of_the_offsets(events: list[list[Event]]) -> None:
    """HA-G-12 to HA-G-15, with requests that come in any order, clocks that step back, and puts after a shutdown."""
    agree(CLASSIC, [event for run in events for event in run])


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.tuples(st.just("put"), st.integers(1, 5)), ticks, acks), max_size=40))
def test_hardened_is_one_machine(events: list[Event]) -> None:
    """HA-G-1, HA-G-2, HA-G-7: the offsets of puts ascend, and no report is beyond the log."""
    end, in_order = 0, []
    for event, number in events:
        if event == "put":
            end += number
        in_order.append((event, {"put": end, "ack": min(number, end)}.get(event, number)))
    agree(HARDENED, [*in_order, ("shutdown", 0)])


# --- Classic -----------------------------------------------------------------------------------------------------------------


def test_five_seconds_are_five_waits() -> None:
    """HA-G-13 "each time for one second", HA-G-15 "whether they were five seconds or five reports": 4,999 ms are too few."""
    model = Model(CLASSIC)
    assert model.ends(("put", 10), *[("tick", WAIT_MS)] * 4, ("tick", WAIT_MS - 1)) == []
    assert model.state is FiveWaitsState.WAIT_5
    assert model.ends(("tick", 1)) == [(10, FLUSH_SLAVE_TIMEOUT)]


def test_a_thread_that_wakes_late_has_waited_once() -> None:
    """HA-G-13: then the producer's own wait decides (HA-G-2), and its request stays."""
    model = Model(CLASSIC)
    assert model.ends(("put", 10), ("tick", 5001)) == [(10, FLUSH_SLAVE_TIMEOUT)]
    assert model.state is FiveWaitsState.WAIT_2
    assert model.group.requests == ()
    assert [request.next_offset for request in model.service.requests_read] == [10]
    assert model.ends(*[("tick", WAIT_MS)] * 4) == []  # its producer is gone, and ends once (HA-G-6)
    assert model.state is FiveWaitsState.NO_WAITERS


def test_a_report_that_is_too_small_uses_up_a_wait() -> None:
    """HA-G-15 "five reports that were too small, the request ends with FLUSH_SLAVE_TIMEOUT": at once."""
    model = Model(CLASSIC)
    assert model.ends(("put", 10), *(("ack", offset) for offset in (1, 2, 3, 4))) == []
    assert model.ends(("ack", 5)) == [(10, FLUSH_SLAVE_TIMEOUT)]
    assert Model(CLASSIC).ends(("put", 10), *(("ack", offset) for offset in (1, 2, 3, 4, 10))) == [(10, PUT_OK)]


def test_one_notification_is_kept_and_no_more() -> None:
    """HA-G-14 "one is kept, and ends its next wait at once": of three reports for which no put waited."""
    model = Model(CLASSIC)
    model.ends(("ack", 1), ("ack", 2), ("ack", 3), ("put", 10))
    assert model.state is FiveWaitsState.WAIT_2
    assert model.ends(*[("tick", WAIT_MS)] * 3) == []
    assert model.ends(("tick", WAIT_MS)) == [(10, FLUSH_SLAVE_TIMEOUT)]  # after four seconds


def test_a_kept_notification_outlives_a_put_that_need_not_wait() -> None:
    """HA-G-14: the notification ends the next *wait*."""
    model = Model(CLASSIC)
    assert model.ends(("ack", 50), ("put", 10)) == [(10, PUT_OK)]
    assert model.state is FiveWaitsState.NOTIFIED


def test_a_larger_offset_queued_first_blocks_a_smaller_one() -> None:
    """HA-G-12 "in the order of coming" (quirk 32). Hardened: HA-G-7 "MUST NOT wait for an offset greater than its own"."""
    model = Model(CLASSIC)
    assert model.ends(("put", 30), ("put", 10), ("ack", 10)) == []
    assert model.ends(*[("tick", WAIT_MS)] * 3) == []
    assert model.ends(("tick", WAIT_MS)) == [(30, FLUSH_SLAVE_TIMEOUT), (10, PUT_OK)]
    assert Model(HARDENED).ends(("put", 10), ("put", 30), ("ack", 10)) == [(10, PUT_OK)]


def test_a_put_that_a_slave_has_long_had_can_time_out() -> None:
    """HA-G-12, HA-G-2 (quirk 32): its five seconds end while the service waits for two other puts."""
    model = Model(CLASSIC)
    model.ends(("put", 30), ("put", 40), ("put", 10), ("ack", 10))
    ended = model.ends(*[("tick", WAIT_MS)] * 5, ("tick", 1))
    assert (10, FLUSH_SLAVE_TIMEOUT) in ended


def test_what_comes_during_a_batch_is_the_next_batch() -> None:
    """HA-G-12 "ends every request of that list, in the order of coming, before it looks again"."""
    model = Model(CLASSIC)
    model.ends(("put", 10), ("put", 20), ("put", 30))
    service = model.service
    assert [request.next_offset for request in service.requests_read] == [10]
    assert [request.next_offset for request in service.requests_write] == [20, 30]
    assert model.ends(("ack", 10)) == [(10, PUT_OK)]
    assert [request.next_offset for request in model.service.requests_read] == [20, 30]
    assert model.ends(("ack", 30)) == [(20, PUT_OK), (30, PUT_OK)]


def test_a_stopped_service_ends_its_batch_and_no_other() -> None:
    """Quirk 33: the producer of a put in the next batch has only its own clock, HA-G-2 "MUST end with FLUSH_SLAVE_TIMEOUT"."""
    model = Model(CLASSIC)
    assert model.ends(("put", 10), ("put", 20), ("shutdown", 0)) == []
    assert model.ends(("ack", 30)) == [(10, PUT_OK)]
    assert model.state is FiveWaitsState.STOPPED
    assert model.ends(("ack", 40), ("tick", 5000)) == []
    assert model.ends(("tick", 1)) == [(20, FLUSH_SLAVE_TIMEOUT)]
    assert model.ends(("put", 25), ("tick", 5001)) == [(25, FLUSH_SLAVE_TIMEOUT)]


# --- Both --------------------------------------------------------------------------------------------------------------------


def test_hardened_ends_every_put_at_a_shutdown() -> None:
    """HA-G-6 "Every waiting put MUST end exactly once"."""
    assert Model(HARDENED).ends(("put", 10), ("put", 20), ("shutdown", 0)) == [
        (10, FLUSH_SLAVE_TIMEOUT),
        (20, FLUSH_SLAVE_TIMEOUT),
    ]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_without_a_slave_nothing_waits(profile: Profile) -> None:
    """HA-G-3 "without waiting, when there is no slave"."""
    group = group_transfer_service.new_group(profile)
    settings = Settings(1000, ha_slave_fallbehind_max=100)
    for slaves, next_offset, waits in ((0, 50, False), (1, 99, True), (1, 100, False)):
        step = group_transfer_service.on_put(group, 0, next_offset, slaves, 0, 0, settings)
        assert bool(step.state.requests) == waits
        assert step.outputs == (() if waits else (Done(0, next_offset, SLAVE_NOT_AVAILABLE),))
