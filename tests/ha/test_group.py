"""Chapter 4: the put that waits for a slave. Model and implementation run in lock-step."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.fuzz import schedule
from rocketmq_ha.fuzz.world import ReferenceWorld
from rocketmq_ha.fuzz.worlds.world import START_MS
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import events, master
from rocketmq_ha.reference.cluster import Cluster
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

ALL = 1 << 18
FILE_SIZE = 1000
PROFILES = pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
PUT = events.Put("T", bytes(8), "", 0, False)  # 100 bytes
SYNC_PUT = events.Put("T", bytes(8), "", 0, True)


def ended(cluster: Cluster) -> list[tuple[int, str]]:
    """(next offset, status) of the puts that the last event ended."""
    return [(done.next_offset, done.status) for done in cluster.done]


def with_a_slave(worlds: Any, profile: Profile, slaves: int = 1, **settings: int) -> Any:
    """Connect every slave and let it acknowledge the first message, of 100 bytes: HA-G-5 "first acknowledgement on"."""
    both = worlds(profile, slaves, **settings)
    both.happens(*(events.Connect(index, ALL, ALL) for index in range(slaves)), events.Tick(5001))
    for index in range(slaves):
        both.settle(index)
    both.happens(PUT)
    for index in range(slaves):
        both.settle(index)
    assert both.cluster.push2_slave_max_offset == 100
    return both


@PROFILES
def test_a_put_ends_when_its_last_byte_is_reported_and_not_before(profile: Profile, worlds: Any) -> None:
    """HA-G-1 "is at least the offset after its message": 99 of 100 bytes are not enough."""
    both = with_a_slave(worlds, profile, ha_transfer_batch_size=99)
    assert ended(both.happens(SYNC_PUT)) == []
    assert ended(both.happens(events.DeliverFrames(0, 12 + 99), events.DeliverReports(0, 8))) == []
    assert ended(both.happens(events.DeliverFrames(0, ALL), events.DeliverReports(0, 8))) == [(200, "PUT_OK")]


def test_a_put_that_waits_too_long_is_stored_all_the_same(worlds: Any) -> None:
    """HA-G-2 "when more than sync_flush_timeout has passed since the put": 5000 ms are not more."""
    both = with_a_slave(worlds, HARDENED)
    both.happens(SYNC_PUT)
    assert ended(both.happens(events.Tick(5000))) == []
    after = both.happens(events.Tick(1))
    assert ended(after) == [(200, "FLUSH_SLAVE_TIMEOUT")]
    assert len(after.log.data) == 200


@PROFILES
def test_a_slave_that_is_too_far_behind_is_as_good_as_none(profile: Profile, worlds: Any) -> None:
    """HA-G-3 "without waiting, when there is no slave, or when the offset after its message is ha_slave_fallbehind_max or more
    beyond push2_slave_max_offset".
    """
    alone = worlds(profile)
    assert ended(alone.happens(SYNC_PUT)) == [(100, "SLAVE_NOT_AVAILABLE")]
    for limit, outcome in ((100, [(200, "SLAVE_NOT_AVAILABLE")]), (101, [])):
        assert ended(with_a_slave(worlds, profile, ha_slave_fallbehind_max=limit).happens(SYNC_PUT)) == outcome


def test_classic_never_forgets_the_greatest_report_and_counts_those_that_are_silent(worlds: Any) -> None:
    """HA-G-4 "the greatest report ever received from anyone, and a connection counts as a slave from its accept on"."""
    both = worlds(CLASSIC)
    # the put waits for a slave that has reported nothing
    assert ended(both.happens(events.Connect(0, ALL, ALL), SYNC_PUT)) == []
    both.happens(events.ForgeReport(0, 5000), events.DeliverReports(0, 8), events.Cut(0, "both"))
    assert both.cluster.push2_slave_max_offset == 5000


def test_hardened_forgets_with_the_connection_and_counts_those_that_have_acknowledged(worlds: Any) -> None:
    """HA-G-5 "the greatest acknowledgement of the connections that are open, and a connection MUST count as a slave from its
    first acknowledgement on".
    """
    both = worlds(HARDENED, 2)
    both.happens(events.Connect(0, ALL, ALL), events.Connect(1, ALL, ALL))
    assert ended(both.happens(SYNC_PUT)) == [(100, "SLAVE_NOT_AVAILABLE")]
    both.happens(events.DeliverReports(0, ALL), events.DeliverReports(1, ALL))
    # the slaves have asked for data, and acknowledged nothing
    assert ended(both.happens(SYNC_PUT)) == [(200, "SLAVE_NOT_AVAILABLE")]
    both.happens(events.DeliverFrames(0, ALL), events.DeliverReports(0, ALL))
    assert both.cluster.push2_slave_max_offset == 200
    assert ended(both.happens(SYNC_PUT)) == []
    both.happens(events.Cut(0, "both"))
    assert both.cluster.push2_slave_max_offset == 0
    assert ended(both.happens(SYNC_PUT)) == [(400, "SLAVE_NOT_AVAILABLE")]  # the other slave has only asked
    assert ended(both.happens(events.DeliverFrames(1, ALL), events.DeliverReports(1, ALL))) == [(300, "PUT_OK")]


def test_a_first_report_ends_no_put(worlds: Any) -> None:
    """HA-G-5 "greater than the offset at which the transfer of its connection started": a first report only sets that
    offset, even if the slave got the message on its last connection. The slave acknowledges it after the comparison.
    """
    both = with_a_slave(worlds, HARDENED, 2)
    both.happens(SYNC_PUT, events.DeliverFrames(1, ALL), events.Cut(1, "both"), events.Connect(1, ALL, ALL))
    assert ended(both.happens(events.DeliverReports(1, ALL))) == []
    assert both.link(1).conn.slave_ack_offset == 100
    assert both.cluster.push2_slave_max_offset == 100
    assert ended(both.happens(events.DeliverFrames(1, ALL), events.DeliverReports(1, ALL))) == [(200, "PUT_OK")]


def test_a_report_that_is_not_beyond_the_start_acknowledges_nothing(tmp_path: Path) -> None:
    """HA-G-5 "greater than the offset at which": a request of 0 starts at the last file (HA-M-4), and the bytes before
    it are not sent. No lock-step test can do this, for no slave of the model reports bytes that it lacks.
    """
    asked = replace(master.on_accept(0).state, slave_request_offset=0, start_offset=1000, next_transfer_from_where=1300)
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        service = HAService(log, Settings(FILE_SIZE), HARDENED)
        for _ in range(12):
            service.put(Message("T", bytes(8)), 0, wait=False)
        conn = service.on_accept("peer", 0)

        def report(offset: int) -> int:
            conn.recv_buffer()[:8] = REPORT.pack(offset)
            if conn.on_reports(8, 0):
                service.on_ack(conn)
            conn.on_transferred(sum(map(len, conn.on_transfer(0))), 0)
            return service.push2_slave_max_offset

        assert report(0) == 0
        assert conn.start_offset == 1000
        for offset, acknowledged in ((500, 0), (1000, 0), (1100, 1100)):
            assert master.acked_offset(replace(asked, slave_ack_offset=offset), HARDENED) == acknowledged
            assert service.count_slaves() == 0
            if not acknowledged:
                assert service.put(Message("T", b""), 0, wait=True).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
            assert report(offset) == acknowledged
        assert service.count_slaves() == 1


def test_no_put_that_waits_is_forgotten_or_answered_twice() -> None:
    """HA-G-6 "Every waiting put MUST end exactly once", over many schedules. Puts of a master that dies have no outcome."""
    ends = 0
    for seed in range(120):
        drawn = schedule.draw(seed)
        if drawn.profile is not HARDENED:
            continue
        world = ReferenceWorld(drawn.slaves, drawn.settings, drawn.profile, START_MS)
        waited: set[int] = set()
        ended_once: set[int] = set()
        for event in [*drawn.events, events.Tick(drawn.settings.sync_flush_timeout_ms + 1)]:
            world.apply(event)
            done = [done.request_id for done in world.cluster.done]
            assert len(set(done)) == len(done)
            assert ended_once.isdisjoint(done)
            ended_once.update(done)
            if isinstance(event, events.RestartMaster):
                assert not event.clean or waited <= ended_once
                waited.clear()
            waited.update(request.request_id for request in world.cluster.group.requests)
        assert waited <= ended_once
        ends += len(ended_once)
    assert ends > 100


def test_a_put_does_not_wait_for_the_one_behind_it(worlds: Any) -> None:
    """HA-G-7 "MUST NOT wait for an offset greater than its own"."""
    both = with_a_slave(worlds, HARDENED, ha_transfer_batch_size=100)
    both.happens(SYNC_PUT, SYNC_PUT)
    assert ended(both.happens(events.DeliverFrames(0, 112), events.DeliverReports(0, 8))) == [(200, "PUT_OK")]
    assert ended(both.happens(events.DeliverFrames(0, 112), events.DeliverReports(0, 8))) == [(300, "PUT_OK")]


@PROFILES
def test_whatever_its_outcome_a_put_is_in_the_log(profile: Profile, worlds: Any, tmp_path: Path) -> None:
    """HA-G-9 "MUST NOT be given for a message that is not in the master's log"; what the log refuses has no outcome at all."""
    both = worlds(profile)
    assert ended(both.happens(SYNC_PUT)) == [(100, "SLAVE_NOT_AVAILABLE")]
    assert len(both.cluster.log.data) == 100
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        service = HAService(log, Settings(FILE_SIZE), profile)
        with pytest.raises(Exception, match="at most"):
            service.put(Message("T", bytes(FILE_SIZE)), 0, wait=True)
        assert log.max_offset == 0


def test_a_request_carries_the_offset_after_its_message(tmp_path: Path) -> None:
    """HA-G-10 "the offset at which it was written plus its size", also after a BLANK."""
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        service = HAService(log, Settings(FILE_SIZE), HARDENED)
        found = [service.put(Message("T", bytes(size)), 0, wait=False).next_offset for size in (8, 408, 608)]
    assert found == [100, 600, FILE_SIZE + 700]


def test_a_request_is_known_before_anything_can_end_it(worlds: Any, tmp_path: Path) -> None:
    """HA-G-11 "MUST be known to the group transfer, and the write sides be woken, before the put begins to wait"."""
    both = with_a_slave(worlds, HARDENED)
    after = both.happens(SYNC_PUT)
    assert [request.next_offset for request in after.group.requests] == [200]
    assert len(both.link().to_slave) == 112  # in the same step, before its producer could wait
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        service = HAService(log, Settings(FILE_SIZE), CLASSIC)
        service.on_accept("slave", 0)
        request = service.put(Message("T", b""), 0, wait=True)
        assert request.status is None
        assert len(service.group_transfer) == 1


@PROFILES
def test_a_report_that_brings_nothing_new_notifies_nobody(profile: Profile, worlds: Any) -> None:
    """HA-G-17 "MUST be notified when push2_slave_max_offset grows, and only then"."""
    both = with_a_slave(worlds, profile, 2)
    both.happens(SYNC_PUT, events.DeliverFrames(0, ALL))
    assert ended(both.happens(events.DeliverReports(0, ALL))) == [(200, "PUT_OK")]
    before = both.happens(SYNC_PUT).group
    after = both.happens(events.DeliverFrames(1, 112), events.DeliverReports(1, ALL))  # the other slave has 200 now
    assert (after.group, after.push2_slave_max_offset) == (before, 200)
    assert ended(both.happens(events.DeliverFrames(1, ALL), events.DeliverReports(1, ALL))) == [(300, "PUT_OK")]


@PROFILES
def test_the_first_of_two_slaves_is_enough(profile: Profile, worlds: Any) -> None:
    """HA-G-18 "One slave's report MUST be enough to end a put, however many slaves there are"."""
    both = with_a_slave(worlds, profile, 2)
    both.happens(SYNC_PUT, events.DeliverFrames(1, ALL))
    assert ended(both.happens(events.DeliverReports(1, ALL))) == [(200, "PUT_OK")]
    assert len(both.cluster.slaves[0].log.data) == 100


@PROFILES
def test_a_put_that_does_not_wait_knows_nothing_of_slaves(profile: Profile, tmp_path: Path) -> None:
    """HA-G-20 "MUST NOT delay or change the outcome of a put that does not wait for one"."""
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        service = HAService(log, Settings(FILE_SIZE, ha_slave_fallbehind_max=1), profile)
        assert service.put(Message("T", b""), 0, wait=False).status is PutMessageStatus.PUT_OK
        service.on_accept("slave", 0)
        assert service.put(Message("T", b""), 0, wait=False).status is PutMessageStatus.PUT_OK
        assert len(service.group_transfer) == 0
        assert service.put(Message("T", b""), 0, wait=True).status is PutMessageStatus.SLAVE_NOT_AVAILABLE


def test_in_the_model_a_put_that_does_not_wait_makes_no_request(worlds: Any) -> None:
    """HA-G-20 "What slaves hold, or whether there are any": the model makes no request, with a slave or without one."""
    for both in (worlds(HARDENED), with_a_slave(worlds, HARDENED)):
        after = both.happens(PUT)
        assert (ended(after), after.group.requests) == ([], ())
