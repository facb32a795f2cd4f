"""Chapter 4 from the producer's side: the waits of a put, and its status, in model and implementation at once."""

import errno
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.puts import FlushedPut, Puts, WaitingPut
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import GroupCommitService
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.store.log.results import outcome as impl_outcome
from rocketmq_ha.impl.store.pending_put import waits_for_store
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import group_transfer_service
from rocketmq_ha.reference import puts as reference
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings
from rocketmq_ha.spec.role import BrokerRole

FILE_SIZE = 1 << 16
TIMEOUT_MS = 100
PROFILES = pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
NO_WAIT = "WAIT\x01false"
OK, LATE_DISK, LATE_SLAVE, NO_SLAVE = "PUT_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"
Event = tuple[str, Any]


class Disk:
    """The log's disk. The test decides when each flush ends, and whether it succeeds."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.begun: SimpleQueue[None] = SimpleQueue()  # one for each flush
        self.ends: SimpleQueue[bool] = SimpleQueue()  # True: the flush succeeds
        self.always: bool | None = None  # the result of all flushes from now on

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    def flush(self, least_pages: int = 0) -> int:
        self.begun.put(None)
        succeeds = self.ends.get(timeout=PATIENCE_S) if self.always is None else self.always
        if not succeeds:
            raise OSError(errno.EIO, "Input/output error")
        return self._log.flush(least_pages)


class Both:
    """A master with one slave, in the model, and as Puts, HAService and GroupCommitService over a real log."""

    def __init__(
        self, resources: ExitStack, directory: Path, role: BrokerRole, profile: Profile, *, sync_flush: bool, limit: int
    ):
        settings = Settings(
            FILE_SIZE, sync_flush_timeout_ms=TIMEOUT_MS, ha_slave_fallbehind_max=limit, master_read_buffer_size=4096
        )
        self.log = resources.enter_context(CommitLog.open(directory / "store", file_size=FILE_SIZE))
        self.service = HAService(self.log, settings, profile)
        self.disk = Disk(self.log)
        commit = GroupCommitService(self.disk) if sync_flush else None
        self.impl = Puts(self.service, role, commit)
        if commit is not None:
            commit.start()
        resources.callback(self.close)
        self.master = reference.Master(role, sync_flush, settings, profile)
        self.model = reference.Puts(group_transfer_service.new_group(profile))
        self.puts: list[WaitingPut] = []
        self.told: dict[int, str] = {}  # the model's outcomes: request id, status
        self.now_ms = 0
        self.conn: MasterConnection | None = None
        self.acked = self.greatest = 0  # on the open connection; on any connection so far
        self.is_shut = False

    def close(self) -> None:
        if not self.is_shut:
            self._end_impl(True)

    @property
    def slaves(self) -> reference.Slaves:
        """The number of slaves by HA-G-4 and HA-G-5: at most one."""
        if self.master.profile.forgets_lost_slaves:
            return reference.Slaves(int(self.acked > 0), self.acked)
        return reference.Slaves(int(self.conn is not None), self.greatest)

    def happens(self, *events: Event) -> list[str | None]:
        """Apply events. Returns: the statuses of all puts so far.

        Raises: AssertionError if the two disagree, or a status changes.
        """
        for what, value in events:
            before = self.statuses
            getattr(self, f"_{what}")(value)
            self.impl.on_turn(self.now_ms)
            expected = [self.told.get(number) for number in range(len(self.puts))]
            assert self.statuses == expected, (what, value)
            assert all(was in (None, now) for was, now in zip(before, expected, strict=False))
        return self.statuses

    @property
    def statuses(self) -> list[str | None]:
        return [None if put.status is None else put.status.value for put in self.puts]

    def _take(self, step: Any) -> None:
        self.model = step.state
        for request_id, status in reference.statuses(step.outputs):
            assert request_id not in self.told  # HA-G-6 "MUST end exactly once"
            self.told[request_id] = status

    def _put(self, properties: str) -> None:
        was_idle = not self.model.gathered
        put = self.impl.put(Message("T", bytes(8), properties_string=properties), self.now_ms)
        self.puts.append(put)
        assert put.next_offset == self.log.max_offset
        request_id = len(self.puts) - 1
        step = reference.on_put(self.model, self.master, request_id, put.next_offset, properties, self.slaves, self.now_ms)
        self._take(step)
        assert isinstance(put, FlushedPut) is any(
            put.request_id == request_id and put.disk is None for put in self.model.waiting
        )
        if was_idle and self.model.gathered:
            self.disk.begun.get(timeout=PATIENCE_S)

    def _flush(self, succeeds: bool) -> None:
        """End the flush under way, if any. A flush is tried twice before it counts as failed."""
        if not (gathered := self.model.gathered):
            return
        self.disk.ends.put(succeeds)
        if not succeeds:
            self.disk.begun.get(timeout=PATIENCE_S)
            self.disk.ends.put(False)
        ending = [self.puts[request.request_id] for request in (*gathered, *(self.model.queued if succeeds else ()))]
        ended = [put for put in ending if isinstance(put, FlushedPut)]
        wait_for(lambda: all(put.flush.status is not None for put in ended), lambda: time.sleep(0.0005))
        self._take(reference.on_flush(self.model, self.master, self.log.flushed_offset, self.slaves, self.now_ms))
        if self.model.gathered:
            self.disk.begun.get(timeout=PATIENCE_S)

    def _tick(self, ms: int) -> None:
        self.now_ms += ms
        self.service.on_tick(self.now_ms)
        self._take(reference.on_tick(self.model, self.master, self.slaves, self.now_ms))

    def _connect(self, _: Any) -> None:
        if self.conn is None:
            self.conn = self.service.on_accept("slave", self.now_ms)
            self._say(0)

    def _cut(self, _: Any) -> None:
        if self.conn is not None:
            self.service.close(self.conn, "cut")
            self.conn, self.acked = None, 0

    def _report(self, nth: int) -> None:
        """The slave acknowledges the message of the nth put, and all before it, if it has not yet; -1 is the last."""
        ends = [put.next_offset for put in self.puts]
        if self.conn is None or not ends:
            return
        while self.conn.sent_offset < self.log.max_offset:
            self.conn.on_transferred(sum(map(len, self.conn.on_transfer(self.now_ms))), self.now_ms)
        offset = max(ends[nth % len(ends)], self.acked)
        before, self.acked = self.slaves.push2_slave_max_offset, offset
        self.greatest = max(self.greatest, offset)
        self._say(offset)
        if self.slaves.push2_slave_max_offset > before:
            self._take(reference.on_ack(self.model, self.slaves.push2_slave_max_offset, self.now_ms))

    def _say(self, offset: int) -> None:
        assert self.conn is not None
        self.conn.recv_buffer()[:8] = REPORT.pack(offset)
        assert self.conn.on_reports(8, self.now_ms)
        self.service.on_ack(self.conn)
        self.conn.on_transferred(sum(map(len, self.conn.on_transfer(self.now_ms))), self.now_ms)

    def _shutdown(self, flushes: bool) -> None:
        self._end_impl(flushes)
        self._take(reference.on_shutdown(self.model, self.master, self.log.flushed_offset, self.slaves, self.now_ms))

    def _end_impl(self, flushes: bool) -> None:
        self.is_shut = True
        self.disk.always = flushes
        self.disk.ends.put(flushes)  # if a flush is under way
        self.impl.shutdown(self.now_ms)
        self.service.shutdown()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Both]]:
    """Return a factory for masters over an empty log; the default is a hardened SYNC_MASTER that flushes synchronously."""
    with ExitStack() as resources:

        def made(
            role: BrokerRole = BrokerRole.SYNC_MASTER,
            profile: Profile = HARDENED,
            *,
            sync_flush: bool = True,
            limit: int = 1 << 20,
        ) -> Both:
            directory = tmp_path / str(len(list(tmp_path.iterdir())))
            directory.mkdir()
            return Both(resources, directory, role, profile, sync_flush=sync_flush, limit=limit)

        yield made


def with_a_slave(both: Both) -> Both:
    """Connect a slave that has acknowledged the first message."""
    assert both.happens(("connect", None), ("put", NO_WAIT), ("report", 0)) == [OK]
    return both


# --- Agreement -------------------------------------------------------------------------------------------------------

PROPERTIES = (
    "",
    NO_WAIT,
    "WAIT\x01true",
    "WAIT\x01FALSE",
    "WAIT\x01",
    "WAIT\x01false\x02WAIT\x01TRUE",
    "KEYS\x01WAIT",
    "XWAIT\x01false",
)
EVENTS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(("", "", "", *PROPERTIES))),
    st.tuples(st.just("flush"), st.sampled_from((True, True, True, False))),
    st.tuples(st.just("report"), st.integers(-3, 8)),
    st.tuples(st.just("tick"), st.sampled_from((0, 1, 40, TIMEOUT_MS, TIMEOUT_MS + 1, 1000))),
    st.tuples(st.sampled_from(("connect", "connect", "cut")), st.none()),
)


@hypothesis_settings(max_examples=150, deadline=None)
@given(
    role=st.sampled_from((BrokerRole.SYNC_MASTER, BrokerRole.SYNC_MASTER, BrokerRole.ASYNC_MASTER)),
    profile=st.sampled_from((CLASSIC, HARDENED)),
    sync_flush=st.sampled_from((True, True, False)),
    limit=st.sampled_from((250, 1 << 20)),
    events=st.lists(EVENTS, max_size=30),
    ends_well=st.booleans(),
)
@example(  # a put has given up when its flush ends, and the next flush is only for the puts after it
    role=BrokerRole.SYNC_MASTER,
    profile=HARDENED,
    sync_flush=True,
    limit=1 << 20,
    events=[("put", ""), ("tick", 60), ("put", ""), ("tick", 41), ("flush", False), ("flush", True)],
    ends_well=False,
)
def test_model_and_implementation_report_the_same_statuses(
    role: BrokerRole, profile: Profile, sync_flush: bool, limit: int, events: list[Event], ends_well: bool
) -> None:
    """HA-G-6, HA-G-8, HA-G-40 to HA-G-45: compare each put's status after every event. After a shutdown every put has one,
    except, in classic, those that the service forgets (quirk 33).
    """
    with TemporaryDirectory() as directory, ExitStack() as resources:
        both = Both(resources, Path(directory), role, profile, sync_flush=sync_flush, limit=limit)
        both.happens(*events)
        left = both.happens(("shutdown", ends_well))
        assert profile is CLASSIC or None not in left


@pytest.mark.parametrize("properties", PROPERTIES)
def test_model_and_implementation_read_the_property_alike(properties: str) -> None:
    assert waits_for_store(properties) is reference.waits(properties)


def test_model_and_implementation_join_the_two_outcomes_alike() -> None:
    disks = (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT)
    slaves = (PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SLAVE_NOT_AVAILABLE)
    for disk, slave in itertools.product(disks, slaves):
        assert impl_outcome(disk, slave).value == reference.outcome(disk.value, slave.value)


# --- Clauses ---------------------------------------------------------------------------------------------------------


@PROFILES
def test_only_a_sync_master_waits_for_slaves_and_not_for_every_message(make: Any, profile: Profile) -> None:
    """HA-G-8 "if the broker is a SYNC_MASTER and the message does not carry the property WAIT with the value false, and only
    then".
    """
    sync = with_a_slave(make(BrokerRole.SYNC_MASTER, profile, sync_flush=False))
    assert sync.happens(("put", ""), ("put", NO_WAIT)) == [OK, None, OK]
    assert sync.happens(("report", -1)) == [OK, OK, OK]
    assert with_a_slave(make(BrokerRole.ASYNC_MASTER, profile, sync_flush=False)).happens(("put", "")) == [OK, OK]
    assert make(BrokerRole.ASYNC_MASTER, profile, sync_flush=False).happens(("put", "")) == [OK]


@PROFILES
def test_only_with_synchronous_flush_a_put_waits_for_the_disk_and_not_for_every_message(make: Any, profile: Profile) -> None:
    """HA-G-40 "if the master flushes synchronously and the message does not carry the property WAIT with the value false, and
    only then", whatever its role.
    """
    master = make(BrokerRole.ASYNC_MASTER, profile)
    assert master.happens(("put", ""), ("put", NO_WAIT)) == [None, OK]
    assert master.log.flushed_offset == 0
    assert master.happens(("flush", True)) == [OK, OK]
    assert make(BrokerRole.ASYNC_MASTER, profile, sync_flush=False).happens(("put", "")) == [OK]


@PROFILES
def test_if_both_waits_fail_a_put_has_the_outcome_of_the_slave_wait(make: Any, profile: Profile) -> None:
    """HA-G-41 "the outcome of its wait for a slave if that is not PUT_OK, and else with that of its wait for the disk"."""
    both = with_a_slave(make(BrokerRole.SYNC_MASTER, profile))
    failed = LATE_DISK if profile is HARDENED else OK  # HA-G-46
    assert both.happens(("put", ""), ("flush", False), ("report", -1)) == [OK, failed]
    assert both.happens(("put", ""), ("flush", False), ("tick", TIMEOUT_MS + 1)) == [OK, failed, LATE_SLAVE]
    alone = make(BrokerRole.SYNC_MASTER, profile)
    assert alone.happens(("put", ""), ("flush", False)) == [NO_SLAVE]
    assert alone.happens(("put", ""), ("flush", True)) == [NO_SLAVE, NO_SLAVE]


def test_in_hardened_both_waits_begin_at_once(make: Any) -> None:
    """HA-G-42 "MUST begin both waits when its message is appended, and end when both have ended"."""
    both = with_a_slave(make())
    assert both.happens(("put", ""), ("report", -1)) == [OK, None]
    assert both.happens(("flush", True)) == [OK, OK]
    assert both.happens(("put", ""), ("cut", None), ("flush", True)) == [OK, OK, None]  # a slave was there at the append
    assert both.happens(("put", ""), ("connect", None), ("report", -1)) == [OK, OK, OK, None]  # no slave was there
    assert both.happens(("flush", True)) == [OK, OK, OK, NO_SLAVE]


def test_in_classic_slaves_are_looked_for_when_the_disk_is_done(make: Any) -> None:
    """HA-G-43 "waits for the disk first, and looks for slaves when that wait is over, however it has ended"."""
    both = make(profile=CLASSIC)
    assert both.happens(("put", ""), ("connect", None), ("flush", True)) == [None]  # no slave was there at the append
    assert both.happens(("tick", TIMEOUT_MS)) == [None]
    assert both.happens(("report", -1)) == [OK]
    # the disk is late; then the wait for the slave has its own time
    assert both.happens(("put", ""), ("tick", TIMEOUT_MS + 1)) == [OK, None]
    assert both.happens(("tick", TIMEOUT_MS)) == [OK, None]
    assert both.happens(("tick", 1)) == [OK, LATE_SLAVE]


@PROFILES
def test_a_put_waits_for_the_disk_until_it_has_or_has_failed_or_is_late(make: Any, profile: Profile) -> None:
    """HA-G-44 "has failed, or more than sync_flush_timeout has passed since the put": exactly the timeout is not more. Puts
    that come during a flush wait for the next one, unless this one covers them.
    """
    both = make(BrokerRole.ASYNC_MASTER, profile)
    assert both.happens(("put", ""), ("tick", 1), ("put", ""), ("tick", TIMEOUT_MS - 1)) == [None, None]
    assert both.happens(("tick", 1)) == [LATE_DISK, None]
    assert both.happens(("flush", True)) == [LATE_DISK, OK]
    failed = LATE_DISK if profile is HARDENED else OK  # HA-G-46
    assert both.happens(("put", ""), ("put", ""), ("flush", False)) == [LATE_DISK, OK, failed, None]
    assert both.happens(("flush", True)) == [LATE_DISK, OK, failed, OK]
    assert both.log.max_offset == both.log.flushed_offset  # the next flush has also written what failed before


def test_classic_reports_a_failed_flush_as_a_success(make: Any) -> None:
    """HA-G-46 "A flush that fails counts as done, and the wait for the disk ends with PUT_OK" (quirk 36)."""
    classic = make(BrokerRole.ASYNC_MASTER, CLASSIC)
    assert classic.happens(("put", ""), ("flush", False)) == [OK]
    assert classic.log.flushed_offset == 0  # the log's own flushed offset is right in both profiles
    assert make(BrokerRole.ASYNC_MASTER, HARDENED).happens(("put", ""), ("flush", False)) == [LATE_DISK]


@PROFILES
@pytest.mark.parametrize("flushes", (True, False))
def test_a_shutdown_flushes_for_those_that_wait(make: Any, profile: Profile, flushes: bool) -> None:
    """HA-G-45 "MUST flush once more for the puts that wait for the disk, before it lets go of them"."""
    both = make(BrokerRole.ASYNC_MASTER, profile)
    both.happens(*(("put", ""),) * 3)
    told = OK if flushes or profile is CLASSIC else LATE_DISK  # HA-G-46
    assert both.happens(("shutdown", flushes)) == [told] * 3
    assert (both.log.flushed_offset == both.log.max_offset) is flushes


@pytest.mark.parametrize("sync_flush", (False, True), ids=("for a slave", "for both"))
def test_thousands_of_waiting_puts_end_once_when_the_master_stops(make: Any, sync_flush: bool) -> None:
    """HA-G-6 "Every waiting put MUST end exactly once"."""
    both = with_a_slave(make(sync_flush=sync_flush))
    waiting = [both.impl.put(Message("T", b""), 0) for _ in range(3000)]
    assert {put.status for put in waiting} == {None}
    assert len(both.service.group_transfer) == 3000
    both.disk.always = True
    both.disk.ends.put(True)
    both.impl.shutdown(0)
    assert both.impl.flushing == 0
    assert {put.status for put in waiting} == {None}  # all are on the disk, and no slave has any
    both.service.shutdown()
    assert {put.status for put in waiting} == {PutMessageStatus.FLUSH_SLAVE_TIMEOUT}
    both.is_shut = True


# --- Roles -----------------------------------------------------------------------------------------------------------


def test_there_are_three_roles() -> None:
    """HA-R-1 "one of three roles: ASYNC_MASTER, SYNC_MASTER or SLAVE"; a slave of the model takes no put."""
    assert [role.value for role in BrokerRole] == ["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    assert [reference.refusal(role) for role in BrokerRole] == [None, None, "SERVICE_NOT_AVAILABLE"]
