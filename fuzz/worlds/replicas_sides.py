"""Both sides of the world of replicas: the model, and the classes of the implementation over a real log.

The implementation's side plays the thread that flushes, in its two halves, and the disk, whose flushes fail and cover what the
schedule says. Everything else decides by itself.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, assert_never

from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.ha.five_waits import FiveWaits
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.puts import FlushedPut, Puts, WaitingPut
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.store.log import flush
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import Gathered, GroupCommitService
from rocketmq_ha.impl.store.pending_put import waits_for_store
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import five_waits, master, replicas, replicas_invariants, store
from rocketmq_ha.reference import puts as reference_puts
from rocketmq_ha.reference import replica_events as events
from rocketmq_ha.reference.group_transfer import PUT_OK
from rocketmq_ha.reference.replicas_state import Replicas, new_replicas, slaves_of
from rocketmq_ha.reference.step import Transition

NOT_YET: Final = "-"  # the outcome of a wait that has not ended


@dataclass(frozen=True, slots=True)
class ObservedConnection:
    """One open connection. All offsets are commit-log offsets."""

    number: int
    slave_request_offset: int
    slave_ack_offset: int
    start_offset: int
    next_transfer_from_where: int
    acked_offset: int


@dataclass(frozen=True, slots=True)
class ObservedPut:
    """A put that waits: the outcome of each of its waits, if that is over."""

    number: int
    next_offset: int
    disk: str
    slave: str


@dataclass(frozen=True, slots=True)
class ReplicasObservation:
    """The observation of a master."""

    max_offset: int
    flushed_offset: int
    push2_slave_max_offset: int
    slaves: int  # how many count
    waiting: tuple[int, ...]  # next offsets of the puts that wait for slaves, in their order
    requests_write: tuple[int, ...]  # classic's service only
    requests_read: tuple[int, ...]
    waits: int  # ended waits for the first of requests_read
    has_notified: bool
    gathered: tuple[int, ...]  # next offsets: what the flush under way is for
    queued: tuple[int, ...]
    done: tuple[tuple[int, str], ...]  # (number, status) of puts that ended in this step
    closed: tuple[tuple[int, str], ...]  # (number, reason) of connections that ended in this step
    puts: tuple[ObservedPut, ...]
    connections: tuple[ObservedConnection, ...]


class ReferenceReplicas:
    """The model."""

    def __init__(self, setup: reference_puts.Master, now_ms: int) -> None:
        self.setup = setup
        self.replicas: Replicas = new_replicas(setup, now_ms)

    def apply(self, event: events.Event) -> tuple[Transition, ...]:
        self.replicas, transitions = replicas.step(self.replicas, event, self.setup)
        return transitions

    def broken(self) -> tuple[str, ...]:
        return replicas_invariants.broken(self.replicas, self.setup)

    def observe(self) -> ReplicasObservation:
        now, profile = self.replicas, self.setup.profile
        service = five_waits.service_of(now.puts.group)
        return ReplicasObservation(
            store.max_offset(now.log),
            now.flushed_offset,
            now.push2_slave_max_offset,
            slaves_of(now, profile).count,
            tuple(request.next_offset for request in now.puts.group.requests),
            tuple(request.next_offset for request in service.requests_write),
            tuple(request.next_offset for request in service.requests_read),
            service.waits,
            service.has_notified,
            tuple(request.next_offset for request in now.puts.gathered),
            tuple(request.next_offset for request in now.puts.queued),
            tuple(sorted((done.request_id, done.status) for done in now.done)),
            tuple(sorted(now.closed)),
            tuple(
                ObservedPut(put.request_id, put.next_offset, put.disk or NOT_YET, put.slave or NOT_YET)
                for put in now.puts.waiting
            ),
            tuple(
                ObservedConnection(
                    one.number,
                    one.conn.slave_request_offset,
                    one.conn.slave_ack_offset,
                    one.conn.start_offset,
                    one.conn.next_transfer_from_where,
                    master.acked_offset(one.conn, profile),
                )
                for one in now.connections
            ),
        )


class _Disk:
    """The disk of the log: the next `failures` flushes fail, and a flush that has looked already covers no more than that."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self.flushed_offset = log.flushed_offset
        self.failures = 0
        self.looked: int | None = None

    def look(self) -> None:
        if self.looked is None:
            self.looked = self._log.flush()

    def flush(self, least_pages: int = 0) -> int:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.flushed_offset = self._log.flush(least_pages) if self.looked is None else self.looked
        self.looked = None
        return self.flushed_offset


class _GroupCommit(GroupCommitService):
    """The service without its thread: `under_way` is the round at which the thread would be."""

    def __init__(self, disk: _Disk) -> None:
        super().__init__(disk)
        self.disk = disk
        self.under_way: Gathered | None = None
        self.queued: list[flush.GroupCommitRequest] = []

    def put_request(self, next_offset: int) -> flush.GroupCommitRequest:
        request = super().put_request(next_offset)
        self.queued.append(request)
        self.go_on()
        return request

    def go_on(self) -> None:
        """Let the thread run to its next flush."""
        while self.under_way is None and self.queued:
            gathered = self.gather()
            self.queued.clear()
            if gathered.requests:
                self.under_way = gathered
            else:
                self.commit(gathered)

    def end_flush(self, failures: int) -> None:
        if self.under_way is not None:
            self.disk.failures = failures
            self.commit(self.under_way)
            self.disk.failures, self.disk.looked = 0, None
            self.under_way = None
            self.go_on()

    def shutdown(self) -> None:
        """End the thread: the flush under way ends, and one more follows."""
        super().shutdown()
        if self.under_way is not None:
            self.commit(self.under_way)
            self.under_way, self.disk.looked = None, None
        self.queued.clear()
        while self.commit(self.gather()):
            pass


class ImplementationReplicas:
    """The implementation with its log in `directory`. The caller must close it."""

    def __init__(self, setup: reference_puts.Master, now_ms: int, directory: Path) -> None:
        self._setup, self._now_ms = setup, now_ms
        self._log = CommitLog.open(directory / "master", file_size=setup.settings.mapped_file_size)
        self._numbers: dict[MasterConnection, int] = {}  # of the open connections
        self._ends: list[int] = []
        self._accepted = 0
        self._waiting: dict[int, WaitingPut] = {}
        self._done: list[tuple[int, str]] = []
        self._closed: list[tuple[int, str]] = []
        self._disk = _Disk(self._log)
        self._start()

    def _start(self) -> None:
        self._service = HAService(self._log, self._setup.settings, self._setup.profile)
        self._commit = _GroupCommit(self._disk) if self._setup.flushes_synchronously else None
        self._puts = Puts(self._service, self._setup.role, self._commit)

    def close(self) -> None:
        for conn in self._numbers:
            conn.close("shutdown")
        self._log.close()

    def apply(self, event: events.Event) -> None:
        """Apply one event and everything that it triggers."""
        self._done, self._closed = [], []
        match event:
            case events.Put():
                self._put(event)
            case events.Accept():
                self._accept(event)
            case events.Transfer():
                if conn := self._connection(event.connection):
                    while buffers := conn.on_transfer(self._now_ms):
                        conn.on_transferred(sum(map(len, buffers)), self._now_ms)
            case events.Report():
                if conn := self._connection(event.connection):
                    self._report(conn, event)
            case events.Close():
                if conn := self._connection(event.connection):
                    self._end(conn, "end_of_stream")
            case events.Sync():
                if self._commit is not None and self._commit.under_way is not None:
                    self._disk.look()
            case events.Flush():
                if self._commit is not None:
                    self._commit.end_flush(event.failures)
            case events.Tick():
                self._now_ms += event.ms
                for conn in self._service.on_tick(self._now_ms):
                    self._end(conn, "housekeeping")
            case events.Restart():
                self._restart(event.clean, event.flushes)
            case _:
                assert_never(event)
        self._puts.on_turn(self._now_ms)
        self._note_ended()

    def _note_ended(self) -> None:
        for number, put in list(self._waiting.items()):
            if put.status is not None:
                self._done.append((number, put.status.value))
                del self._waiting[number]

    def _put(self, event: events.Put) -> None:
        message = Message(topic="T", body=bytes(event.size), properties_string=event.properties)
        if event.by_broker:
            waits = waits_for_store(event.properties)
            put = self._puts.after_append(self._log.append(message), self._now_ms, waits=waits)
        else:
            put = self._puts.put(message, self._now_ms)
        self._waiting[len(self._ends)] = put
        self._ends.append(put.next_offset)

    def _accept(self, event: events.Accept) -> None:
        subject = f"CN={event.subject}" if event.subject >= 0 else ""
        conn = self._service.on_accept(f"10.0.0.{event.address}:{40_000 + self._accepted}", self._now_ms, subject)
        self._numbers[conn] = self._accepted
        self._accepted += 1

    def _connection(self, place: int) -> MasterConnection | None:
        connections = self._service.connections
        return connections[place % len(connections)] if connections else None

    def _report(self, conn: MasterConnection, event: events.Report) -> None:
        """What MasterLink.on_reports does with eight bytes."""
        ends = self._ends
        offset = (ends[-1 - event.message] if event.message < len(ends) else 0) + event.more
        if event.honest and conn.slave_request_offset != -1:
            offset = max(conn.slave_ack_offset, min(offset, conn.sent_offset))
        conn.recv_buffer()[: REPORT.size] = REPORT.pack(offset)
        try:
            if conn.on_reports(REPORT.size, self._now_ms):
                self._service.on_ack(conn)
        except PeerViolation:
            self._end(conn, "report")

    def _end(self, conn: MasterConnection, reason: str) -> None:
        self._service.close(conn, reason)
        self._forget(conn)

    def _forget(self, conn: MasterConnection) -> None:
        self._closed.append((self._numbers.pop(conn), conn.close_reason))

    def _restart(self, clean: bool, flushes: bool) -> None:
        if clean:
            self._disk.failures = 0 if flushes else 1 << 30
            self._puts.shutdown(self._now_ms)
            self._service.shutdown()
            self._note_ended()
        else:
            for conn in self._numbers:
                conn.close("shutdown")
        for conn in list(self._numbers):
            self._forget(conn)
        self._waiting.clear()
        self._disk.failures, self._disk.looked = 0, None
        self._start()

    # --- Observation ---------------------------------------------------------------------------------------------------

    def observe(self) -> ReplicasObservation:
        service, commit = self._service, self._commit
        hardened = self._setup.profile.forgets_lost_slaves
        write, read, waits, has_notified = self._of_thread()
        under_way = commit.under_way.requests if commit is not None and commit.under_way is not None else []
        return ReplicasObservation(
            self._log.max_offset,
            self._disk.flushed_offset,
            service.push2_slave_max_offset,
            service.count_replicas() if hardened else service.count_slaves(),
            tuple(request.next_offset for request in service.group_transfer),
            write,
            read,
            waits,
            has_notified,
            tuple(request.next_offset for request in under_way),
            tuple(request.next_offset for request in commit.queued) if commit is not None else (),
            tuple(sorted(self._done)),
            tuple(sorted(self._closed)),
            tuple(ObservedPut(number, put.next_offset, *_outcomes(put)) for number, put in self._waiting.items()),
            tuple(
                ObservedConnection(
                    self._numbers[conn],
                    conn.slave_request_offset,
                    conn.slave_ack_offset,
                    conn.start_offset,
                    conn.next_transfer_from_where,
                    conn.acked_offset,
                )
                for conn in service.connections
            ),
        )

    def _of_thread(self) -> tuple[tuple[int, ...], tuple[int, ...], int, bool]:
        """The observed state of classic's service thread: requests_write, requests_read, waits, has_notified."""
        group = self._service.group_transfer
        if not isinstance(group, FiveWaits):
            return (), (), 0, False
        write, read = group.service.requests_write, group.service.requests_read
        offsets = [tuple(request.next_offset for request in requests) for requests in (write, read)]
        return offsets[0], offsets[1], group.service.waits, group.service.has_notified


def _outcomes(put: WaitingPut) -> tuple[str, str]:
    """The outcomes of its waits for the disk and for slaves."""
    if isinstance(put, FlushedPut):
        disk, slave = put.disk_status, put.slave.status
        return (disk.value if disk else NOT_YET), (slave.value if slave else NOT_YET)
    assert isinstance(put, GroupCommitRequest)
    return PUT_OK, put.status.value if put.status else NOT_YET
