"""Puts from several threads: in whatever order threads run, each put is answered once and rightly, and none waits for ever.

The threads run one at a time, and Hypothesis chooses the switches (kit/scheduler.py): those of the producers, of the flush
services, the dispatch, the preparation of files and the housekeeping, over a real log whose disk may fail. HA-ST-12, HA-ST-26
to HA-ST-28, HA-ST-35, HA-G-40 to HA-G-46.
"""

import contextlib
import errno
import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

import judge
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workload import Clock, Record, at_hand

from kit.examples import machine_settings
from kit.scheduler import Event, Scheduler
from rocketmq_ha.fuzz.lockstep import scratch_directory
from rocketmq_ha.impl.errors import StoreClosed
from rocketmq_ha.impl.ha.puts import Puts, WaitingPut
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.store import gate, housekeeping, message_store, pending_put
from rocketmq_ha.impl.store.derived import (
    consume_queue,
    consume_queue_table,
    dispatch,
    index_service,
    queue_file,
    topic_notes,
)
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log import allocate, flush, log_writer, mapped_file, mapped_file_queue
from rocketmq_ha.impl.store.log.checkpoint import was_aborted
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import GroupCommitService
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageResult, PutMessageStatus
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.profile import PROFILES, Profile, Settings
from rocketmq_ha.spec.role import BrokerRole

OK, LATE = PutMessageStatus.PUT_OK, PutMessageStatus.FLUSH_DISK_TIMEOUT
STORE: Final = (allocate, consume_queue, dispatch, flush, gate, housekeeping, index_service, log_writer, mapped_file)
MODULES: Final = (*STORE, consume_queue_table, mapped_file_queue, message_store, pending_put, queue_file, topic_notes)
OPTIONS: Final = StoreOptions(
    file_size=900, queue_file_size=200, index_geometry=Geometry(4, 20), floor_size=0, sync_flush_timeout_ms=10**9
)
PROMPT_S: Final = 0.5  # of the scheduler's time: the dispatch needs no time-out to see a message
Op = tuple[str, int, int]

choices = st.binary(min_size=500, max_size=500)
ops = st.tuples(st.sampled_from(("put", "put", "submit", "batch", "found", "flush")), st.integers(0, 1), st.integers(0, 300))
failures = st.sampled_from(
    ({0}, {0, 1}, {1, 2}, {2, 3}, {0, 1, 2, 3}, {1, 2, 4, 5})
)  # numbers of syncs; a flush is tried twice


class Disk:
    """A disk on which some syncs fail; other tasks may run before and after each.

    covered: the log before this offset was written when a sync of its file began that succeeded.
    """

    def __init__(self, scheduler: Scheduler, failing: set[int]) -> None:
        self._scheduler, self._failing = scheduler, failing
        self.syncs = self.covered = 0
        self.log: CommitLog | None = None

    def sync(self, fd: int) -> None:
        number, self.syncs = self.syncs, self.syncs + 1
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        file = None if self.log is None else self.log.queue.find(int(name))
        end = 0 if file is None else file.end
        self._scheduler.switch()
        assert Path(f"/proc/self/fd/{fd}").readlink().name == name, "a descriptor that is in use was closed"
        if number in self._failing:
            raise OSError(errno.EIO, "Input/output error")
        self.covered = max(self.covered, end)
        self._scheduler.switch()


@dataclass
class Life:
    """A store from its opening to its close, with the puts of all producers."""

    root: Path
    scheduler: Scheduler
    disk: Disk
    options: StoreOptions
    can_fail: bool
    records: list[Record] = field(default_factory=list)
    appends: list[tuple[int, AppendResult]] = field(default_factory=list)  # queue id, and where its messages went
    is_closing = False
    answered = 0

    def run(self, producers: list[list[Op]], closes_early: bool) -> None:
        self.store = MessageStore.open(self.root, self.options)
        self.disk.log = self.store.log
        tasks = [
            self.scheduler.spawn(partial(self.produce, number, ops), f"producer {number}")
            for number, ops in enumerate(producers)
        ]
        if not closes_early:
            self.scheduler.join(*tasks)
            if not self.can_fail:
                began_s = self.scheduler.now_s
                assert self.store.wait_for_dispatch()
                assert self.scheduler.now_s - began_s < PROMPT_S or self.scheduler.passes_time
        self.is_closing = True
        try:
            self.store.close()
        except OSError:
            assert self.can_fail
        self.scheduler.join(*tasks)
        for call in (lambda: self.store.put(Message("t", b"")), self.store.flush, lambda: self.store.get("t", 0, 0)):
            with pytest.raises(StoreClosed):
                call()

    def produce(self, number: int, ops: list[Op]) -> None:
        for index, (kind, queue_id, size) in enumerate(ops):
            body = bytes([number + 1, index + 1]) * (size // 2 + 1)
            try:
                getattr(self, kind)(Message("t", body, queue_id, properties_string=f"KEYS\x01{number}-{index}"))
            except StoreClosed:
                assert self.is_closing
            self.answered += 1

    def put(self, message: Message) -> None:
        self.note([message], self.store.put(message))

    def submit(self, message: Message) -> None:
        """Two puts in flight, the first of which does not wait for the disk."""
        first = replace(message, body=b"first " + message.body[:100], properties_string="WAIT\x01false")
        pending = [(one, self.store.submit(one)) for one in (first,)]
        try:
            pending.append((message, self.store.submit(message)))
        finally:
            for one, put in pending:
                self.note([one], put.result())

    def batch(self, message: Message) -> None:
        messages = [replace(message, body=bytes([number]) + message.body[:60]) for number in range(3)]
        self.note(messages, self.store.put_batch(messages))

    def found(self, message: Message) -> None:
        """A message that was put is soon found in its queue."""
        result = self.store.put(message)
        self.note([message], result)
        began_s = self.scheduler.now_s
        assert self.store.wait_for_dispatch(result.append.next_offset)
        assert self.scheduler.now_s - began_s < PROMPT_S or self.scheduler.passes_time
        found = self.store.get("t", message.queue_id, result.append.queue_offset, 1)
        assert [one.body for one in found.messages()] == [message.body]

    def flush(self, _: Message) -> None:
        end = self.store.max_offset
        try:
            assert self.store.flush() >= end
        except OSError:
            assert self.can_fail

    def note(self, messages: list[Message], result: PutMessageResult) -> None:
        """HA-ST-26 "MUST NOT end with PUT_OK before the disk has its message"."""
        append = result.append
        waits = self.options.sync_flush and "WAIT" not in messages[0].properties_string
        if waits and result.status is OK:
            assert self.store.flushed_offset >= append.next_offset
            assert self.disk.covered >= append.next_offset
        if not (waits and self.can_fail):
            assert result.status is OK
        assert result.status in (OK, LATE)
        assert append.messages == len(messages)
        self.appends.append((messages[0].queue_id, append))
        offset = append.offset
        for number, message in enumerate(messages):
            placed = replace(message, store_timestamp=append.store_timestamp, store_host=self.options.store_host)
            self.records.append(Record(offset, encode(placed, append.queue_offset + number, offset), message))
            offset = self.records[-1].end
        assert offset == append.next_offset

    def check(self, calls: int) -> None:
        """Open the store again: it has what was answered, once and in order, and nothing else."""
        assert self.answered == calls
        assert was_aborted(self.root) <= self.can_fail
        self.records.sort(key=lambda record: record.offset)
        ends: dict[int, int] = defaultdict(int)
        last_ms = 0
        for queue_id, append in sorted(self.appends, key=lambda one: one[1].offset):
            assert append.queue_offset == ends[queue_id]  # no hole in a queue, and nothing twice
            ends[queue_id] += append.messages
            assert append.store_timestamp >= last_ms
            last_ms = append.store_timestamp
        with at_hand(Clock()), MessageStore.open(self.root, self.options) as store:
            assert judge.check(store, self.records, random.Random(1)) == self.records


@given(
    choices=choices,
    producers=st.lists(st.lists(ops, min_size=1, max_size=3), min_size=1, max_size=3),
    sync_flush=st.booleans(),
    closes_early=st.booleans(),
    failing=st.sets(st.just(-1), max_size=1).flatmap(lambda some: failures if some else st.just(set())),
    is_slow=st.booleans(),
)
@machine_settings(160, steps=1)
def test_puts_are_answered_once_and_rightly_in_every_order_of_threads(
    choices: bytes, producers: list[list[Op]], sync_flush: bool, closes_early: bool, failing: set[int], is_slow: bool
) -> None:
    """is_slow: time passes although threads could run."""
    scheduler = Scheduler(choices, passes_time=is_slow)
    disk = Disk(scheduler, failing)
    check_file = MappedFile.check_file

    def switch_and_check(file: MappedFile) -> None:
        scheduler.switch()
        check_file(file)

    with scratch_directory() as directory:
        life = Life(directory / "store", scheduler, disk, replace(OPTIONS, sync_flush=sync_flush), bool(failing))
        with (
            scheduler.in_place_of_threads(*MODULES),
            mock.patch.object(mapped_file, "_sync_data", disk.sync),
            mock.patch.object(MappedFile, "check_file", switch_and_check),
            mock.patch.object(message_store, "wall_clock_ms", lambda: 1_700_000_000_000 + scheduler.switches // 8),
        ):
            scheduler.run(lambda: life.run(producers, closes_early))
        life.check(sum(map(len, producers)))


@given(choices=st.binary(min_size=40, max_size=40))
@machine_settings(100, steps=1)
def test_when_a_gate_is_shut_nobody_is_inside(choices: bytes) -> None:
    scheduler = Scheduler(choices)
    is_shut = False

    def call(door: gate.Gate) -> None:
        with contextlib.suppress(StoreClosed), door:
            for _ in range(3):
                assert not is_shut
                scheduler.switch()

    def main() -> None:
        nonlocal is_shut
        door = gate.Gate(lambda: StoreClosed("shut"))
        for number in range(3):
            scheduler.spawn(partial(call, door), f"caller {number}")
        scheduler.switch()
        assert door.shut()
        is_shut = True
        assert not door.shut()
        with pytest.raises(StoreClosed), door:
            pass

    with scheduler.in_place_of_threads(gate):
        scheduler.run(main)


# --- A master's puts -------------------------------------------------------------------------------------------------

LOG: Final = (flush, log_writer, mapped_file, mapped_file_queue)
turns = st.lists(st.sampled_from(("put", "put", "put", "no wait", "ack", "turn", "tick")), min_size=1, max_size=10)


@dataclass
class Loop:
    """The thread that drives a master, and puts; another flushes for it."""

    log: CommitLog
    scheduler: Scheduler
    disk: Disk
    profile: Profile
    role: BrokerRole
    can_fail: bool
    now_ms = 1_000_000
    acked = 0

    def __post_init__(self) -> None:
        self.woken = Event(self.scheduler)
        settings = Settings(OPTIONS.file_size or 0, master_read_buffer_size=64)
        self.service = HAService(self.log, settings, self.profile)
        self.commit = GroupCommitService(self.log, self.woken.set)
        self.puts = Puts(self.service, self.role, self.commit)
        self.conn = self.service.on_accept("slave:1", self.now_ms)
        self.made: list[WaitingPut] = []
        self.waits: list[bool] = []
        self.ended: dict[int, PutMessageStatus] = {}

    def run(self, turns: list[str], ends_early: bool) -> None:
        self.commit.start()
        self.say(0)
        for turn in turns:
            self.do(turn)
            self.puts.on_turn(self.now_ms)
            self.look()
        while self.puts.flushing and not ends_early:  # without a time-out: a wake-up that is lost is the end of it
            self.woken.wait()
            self.woken.clear()
            self.puts.on_turn(self.now_ms)
            self.look()
        if not ends_early:
            self.do("ack")
            self.look()
        self.puts.shutdown(self.now_ms)
        assert self.puts.flushing == 0
        self.service.shutdown()
        self.look(is_shut=ends_early)
        left = [self.made[number] for number in range(len(self.made)) if number not in self.ended]
        if self.profile.serves_by_deadline:
            assert left == []
        else:  # quirk 33: classic lets go of those that its service has not ended
            assert all(put.next_offset > self.acked for put in left)
        self.log.close()

    def do(self, turn: str) -> None:
        if turn in ("put", "no wait"):
            properties = "WAIT\x01false" if turn == "no wait" else ""
            self.made.append(self.puts.put(Message("t", bytes(60), properties_string=properties), self.now_ms))
            self.waits.append(turn == "put")
        elif turn == "ack":
            while self.conn.sent_offset < self.log.max_offset:
                self.conn.on_transferred(sum(map(len, self.conn.on_transfer(self.now_ms))), self.now_ms)
            self.say(self.log.max_offset)
        elif turn == "tick":
            self.now_ms += 1
            self.service.on_tick(self.now_ms)
        self.scheduler.switch()

    def say(self, offset: int) -> None:
        self.acked = offset
        self.conn.recv_buffer()[:8] = REPORT.pack(offset)
        assert self.conn.on_reports(8, self.now_ms)
        self.service.on_ack(self.conn)
        self.conn.on_transferred(sum(map(len, self.conn.on_transfer(self.now_ms))), self.now_ms)

    def look(self, *, is_shut: bool = False) -> None:
        """A status is set once, and is right: HA-G-41, HA-G-44."""
        for number, put in enumerate(self.made):
            status = put.status
            if number in self.ended:
                assert status is self.ended[number]
            elif status is not None:
                self.ended[number] = status
                self.judge(number, put, status, is_shut)

    def judge(self, number: int, put: WaitingPut, status: PutMessageStatus, is_shut: bool) -> None:
        is_flushed = self.log.flushed_offset >= put.next_offset
        is_acked = self.acked >= put.next_offset
        needs_slave = self.role is BrokerRole.SYNC_MASTER
        if not self.waits[number]:
            assert status is OK
        elif status is OK:
            assert is_flushed or not self.profile.checks_flush
            assert self.disk.covered >= put.next_offset or not self.profile.checks_flush
            assert is_acked or not needs_slave
        elif status is LATE:
            assert self.can_fail
            assert self.profile.checks_flush
            # Its own flush has failed. That of a later put may have succeeded since, before this loop looked.
            assert not is_flushed or is_shut or any(self.waits[number + 1 :])
        elif status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT:
            assert needs_slave
            assert is_shut
        else:
            assert status is PutMessageStatus.SLAVE_NOT_AVAILABLE
            assert needs_slave


@given(
    choices=choices,
    profile=st.sampled_from(("hardened", "classic")),
    role=st.sampled_from((BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER)),
    turns=turns,
    ends_early=st.booleans(),
    failing=st.just(set()) | failures,
)
@machine_settings(100, steps=1)
def test_a_masters_puts_end_once_and_rightly_while_another_thread_flushes(
    choices: bytes, profile: str, role: BrokerRole, turns: list[str], ends_early: bool, failing: set[int]
) -> None:
    scheduler = Scheduler(choices)
    disk = Disk(scheduler, failing)

    def main() -> None:
        log = CommitLog.open(directory / "store", file_size=OPTIONS.file_size)
        disk.log = log
        Loop(log, scheduler, disk, PROFILES[profile], role, bool(failing)).run(turns, ends_early)

    with (
        scratch_directory() as directory,
        scheduler.in_place_of_threads(*LOG),
        mock.patch.object(mapped_file, "_sync_data", disk.sync),
    ):
        scheduler.run(main)
