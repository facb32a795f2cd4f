"""A master whose puts wait for its disk and for any number of replicas: `step(replicas, event, setup)`.

Chapter 4 as a whole: what a put waits for (puts.py), whose acknowledgements count, and what ends a wait. A report comes whole,
and a socket takes all that it is offered: reference/cluster.py has the bytes in between, and the slaves.
"""

from typing import Final, assert_never

from rocketmq_ha.reference import group_transfer, group_transfer_service, master, puts, store, wire
from rocketmq_ha.reference import replica_events as events
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.puts import Master, Puts
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.replicas_state import (
    Connection,
    PutState,
    ReplicaConnectionState,
    Replicas,
    acks,
    connection_state,
    group_commit_state,
    put_state,
    replicas_state,
    slaves_of,
)
from rocketmq_ha.reference.step import Acked, Done, Step, Transition
from rocketmq_ha.spec.role import BrokerRole

ROOM: Final = 1 << 30  # bytes: what a socket takes
FLUSH_TRIES: Final = 2  # HA-ST-27: a flush, for a put that waits, is tried twice


def step(replicas: Replicas, event: events.Event, setup: Master) -> tuple[Replicas, tuple[Transition, ...]]:
    """One event, and everything that it sets in motion. An event that does not apply (nothing to flush, say) does nothing."""
    work = _Work(replicas, setup)
    match event:
        case events.Put():
            work.put(event)
        case events.Accept():
            work.accept(event)
        case events.Transfer():
            work.transfer(event.connection)
        case events.Report():
            work.report(event)
        case events.Close():
            work.close(event.connection)
        case events.Sync():
            if work.now.puts.gathered and work.now.synced_offset is None:
                work.now = replace(work.now, synced_offset=store.max_offset(work.now.log))
        case events.Flush():
            work.flush(event.failures)
        case events.Tick():
            work.tick(event.ms)
        case events.Restart():
            work.restart(event.clean, event.flushes)
        case _:
            assert_never(event)
    return work.now, tuple(work.transitions)


# Of a step of the puts: the clauses about the put itself. All others are about the group transfer, and HA-G-6 is about both.
_OF_PUTS: Final = frozenset(f"HA-G-{number}" for number in (8, 40, 41, 42, 43, 44, 45, 46))


class _Work:
    """The state of one step while it is being made. Nothing of it outlives the step."""

    def __init__(self, before: Replicas, setup: Master) -> None:
        self.now = replace(before, done=(), waited=(), forgotten=(), closed=())
        self.setup, self.profile, self.settings = setup, setup.profile, setup.settings
        self.transitions: list[Transition] = []

    # --- Events ----------------------------------------------------------------------------------------------------------

    def put(self, event: events.Put) -> None:
        """HA-G-9 "MUST NOT be given for a message that is not in": the append comes first, whatever the put waits for."""
        before = self.now
        record = Record(b"T", bytes(event.size), event.properties.encode())
        log, offset, size = store.append_record(before.log, record)
        next_offset, number = offset + size, len(before.ends)
        self.now = replace(before, log=log, ends=(*before.ends, next_offset))
        self.replicas_row("put", before, ())
        waits = puts.waits(event.properties)
        clauses = ["HA-G-9", "HA-G-10"]
        if not waits or self.setup.role is BrokerRole.ASYNC_MASTER:
            clauses.append("HA-G-20")
        slaves = slaves_of(self.now, self.profile)
        step = puts.on_put(self.now.puts, self.setup, number, next_offset, event.properties, slaves, before.now_ms)
        self.puts_step("put", step, tuple(clauses))

    def accept(self, event: events.Accept) -> None:
        before = self.now
        proven = f"CN={event.subject}" if event.subject >= 0 else f"10.0.0.{event.address}"
        accepted = master.on_accept(before.now_ms)
        one = Connection(before.next_number, proven, accepted.state)
        self.now = replace(before, connections=(*before.connections, one), next_number=one.number + 1)
        state = connection_state(one.conn, self.profile).value
        self.row("replica_connection", one.number, "accept", state, state, -1, accepted.clauses)
        self.replicas_row("accept", before, ("HA-G-4",) if not self.profile.forgets_lost_slaves else ("HA-G-5",))

    def transfer(self, connection: int) -> None:
        if one := self.one(connection):
            step = master.on_transfer(one.conn, self.now.log, ROOM, self.now.now_ms, self.settings)
            self.connection_step(one, "transfer", step)

    def report(self, event: events.Report) -> None:
        if one := self.one(event.connection):
            arrived, log, now_ms = wire.pack_report(self.reported(one.conn, event)), self.now.log, self.now.now_ms
            step = master.on_reports(one.conn, arrived, log, now_ms, self.settings, self.profile)
            self.connection_step(one, "report", step)

    def reported(self, conn: MasterConnection, event: events.Report) -> int:
        """The offset of a report. An honest slave has what it has reported, and nothing that it was not sent."""
        ends = self.now.ends
        offset = (ends[-1 - event.message] if event.message < len(ends) else 0) + event.more
        if not event.honest or conn.slave_request_offset == -1:
            return offset
        sent_offset = -1 if conn.start_offset == -1 else master.sent_offset(conn)
        return max(conn.slave_ack_offset, min(offset, sent_offset))

    def close(self, connection: int) -> None:
        if one := self.one(connection):
            self.connection_step(one, "end_of_stream", master.on_end_of_stream(one.conn))

    def flush(self, failures: int) -> None:
        """HA-ST-28 "MUST advance only over bytes that a successful sync has covered"."""
        now = self.now
        if not now.puts.gathered:
            return
        if failures < FLUSH_TRIES:
            covered = now.synced_offset if now.synced_offset is not None else store.max_offset(now.log)
            self.now = replace(now, flushed_offset=covered)
        self.now = replace(self.now, synced_offset=None)
        flushed_offset, slaves = self.now.flushed_offset, slaves_of(self.now, self.profile)
        step = puts.on_flush(now.puts, self.setup, flushed_offset, slaves, now.now_ms)
        failed = failures >= FLUSH_TRIES and not self.profile.checks_flush
        self.puts_step("flush", step, ("HA-G-46", "HA-ST-27", "HA-ST-28") if failed else ("HA-ST-27", "HA-ST-28"), asks="put")

    def tick(self, ms: int) -> None:
        self.now = replace(self.now, now_ms=self.now.now_ms + ms)
        for one in self.now.connections:
            self.connection_step(one, "tick", master.on_tick(one.conn, self.now.now_ms, self.settings))
        slaves = slaves_of(self.now, self.profile)
        self.puts_step("tick", puts.tick_slaves(self.now.puts, slaves, self.now.now_ms))
        self.puts_step("tick", puts.tick_disk(self.now.puts, self.setup, slaves, self.now.now_ms), asks="put")

    def restart(self, clean: bool, flushes: bool) -> None:
        """HA-G-45 "MUST flush once more for the puts that wait for the disk"; whoever waits behind that is forgotten."""
        now = self.now
        if clean:
            if flushes and now.puts.gathered:
                self.now = replace(now, flushed_offset=self.last_flushed())
            slaves, flushed_offset = slaves_of(now, self.profile), self.now.flushed_offset
            step = puts.shut_disk(now.puts, self.setup, flushed_offset, slaves, now.now_ms)
            failed = not flushes and not self.profile.checks_flush
            self.puts_step("shutdown", step, ("HA-G-46",) if failed else (), asks="put")
            self.puts_step("shutdown", puts.shut_slaves(self.now.puts))
        event = "shutdown" if clean else "kill"
        for put in self.now.puts.waiting:
            self.row("put", put.request_id, event, put_state(put).value, PutState.FORGOTTEN.value, put.next_offset, ())
        forgotten = tuple(put.request_id for put in self.now.puts.waiting)
        before, closed = self.now, []
        for one in before.connections:  # HA-M-37 "A master that shuts down MUST close every connection"
            state, offset = connection_state(one.conn, self.profile).value, one.conn.slave_ack_offset
            self.row("replica_connection", one.number, event, state, ReplicaConnectionState.CLOSED.value, offset, ())
            closed.append((one.number, "shutdown"))
        fresh = Puts(group_transfer_service.new_group(self.profile))
        self.now = replace(
            before,
            puts=fresh,
            connections=(),
            push2_slave_max_offset=0,
            synced_offset=None,
            forgotten=forgotten,
            lost=before.lost + len(forgotten),
            closed=tuple(closed),
        )
        self.replicas_row(event, before, ())
        if not clean:
            self.commit_row(event, before.puts, ())
        old, new = group_transfer_service.classify(before.puts.group), group_transfer_service.classify(fresh.group)
        if old is not new:
            self.row("group_transfer", 0, "restart" if clean else "kill", old.value, new.value, 0, ())

    # --- What the events share -------------------------------------------------------------------------------------------

    def one(self, connection: int) -> Connection | None:
        """The connection at a place among those that are open, counted in a circle."""
        connections = self.now.connections
        return connections[connection % len(connections)] if connections else None

    def connection_step(self, one: Connection, event: str, step: Step[MasterConnection]) -> None:
        """What a step of a connection means to the master: what it acknowledges, and its end.

        Spec: HA-G-5 "push2_slave_max_offset MUST be the greatest acknowledgement of the connections that are open".
        """
        before, conn, profile = self.now, step.state, self.profile
        if conn == one.conn:
            return
        others = [replace(other, conn=conn) if other.number == one.number else other for other in before.connections]
        if conn.close_reason:
            others = [other for other in others if other.number != one.number]
            self.now = replace(self.now, closed=(*self.now.closed, (one.number, conn.close_reason)))
        self.now = replace(self.now, connections=tuple(others))
        states = connection_state(one.conn, profile).value, connection_state(conn, profile).value
        offset = conn.next_transfer_from_where if event == "transfer" else conn.slave_ack_offset
        self.row("replica_connection", one.number, event, *states, offset, step.clauses)
        if conn.close_reason:
            if profile.forgets_lost_slaves:
                self.now = replace(self.now, push2_slave_max_offset=self.acknowledged())
            self.replicas_row(event, before, ("HA-G-5",) if profile.forgets_lost_slaves else ("HA-G-4",))
        elif any(isinstance(output, Acked) for output in step.outputs):
            self.acked(before, conn.slave_ack_offset)

    def last_flushed(self) -> int:
        """Where the last flush ends: that under way, if it covers those behind it too; else one more follows."""
        max_offset, covered = store.max_offset(self.now.log), self.now.synced_offset
        queued = self.now.puts.queued
        is_enough = covered is not None and (not queued or queued[-1].next_offset <= covered)
        return covered if covered is not None and is_enough else max_offset

    def acknowledged(self) -> int:
        """HA-G-30 "MUST be the N-th greatest among the acknowledgements of the replicas"."""
        numbers = {one.replica: one.number for one in self.now.connections}  # one number for each replica
        found = [(numbers[replica], ack) for replica, ack in acks(self.now, self.profile)]
        return group_transfer.acknowledged(found, self.settings.replicas)

    def acked(self, before: Replicas, offset: int) -> None:
        """Move push2_slave_max_offset, and release whom it frees. `offset`: of the report that has come.

        Spec: HA-G-17 "MUST be notified when push2_slave_max_offset grows, and only then"; HA-G-18 "One slave's report MUST be
        enough to end a put".
        """
        clauses = ["HA-G-5" if self.profile.forgets_lost_slaves else "HA-G-4"]
        if self.profile.forgets_lost_slaves:
            offset = self.acknowledged()
            clauses.append("HA-G-30" if self.settings.replicas > 1 else "HA-G-18")
            if len({one.replica for one in self.now.connections}) < len(self.now.connections):
                clauses.append("HA-G-31")
        grows = offset > self.now.push2_slave_max_offset
        if grows:
            self.now = replace(self.now, push2_slave_max_offset=offset)
        self.replicas_row("report", before, (*clauses, "HA-G-17"))
        if grows:
            self.puts_step("ack", puts.on_ack(self.now.puts, offset, self.now.now_ms))

    # --- Rows --------------------------------------------------------------------------------------------------------------

    def row(self, actor: str, number: int, event: str, before: str, after: str, offset: int, clauses: tuple[str, ...]) -> None:
        self.transitions.append(Transition(actor, number, event, before, after, offset, 0, -1, 0, clauses))

    def replicas_row(self, event: str, before: Replicas, clauses: tuple[str, ...]) -> None:
        """A row if a put would find something else than before, or more is acknowledged."""
        states = replicas_state(before, self.setup), replicas_state(self.now, self.setup)
        push2 = self.now.push2_slave_max_offset
        if states[0] is not states[1] or (event == "report" and push2 > before.push2_slave_max_offset):
            self.row("replicas", 0, event, states[0].value, states[1].value, push2, clauses)

    def commit_row(self, event: str, before: Puts, clauses: tuple[str, ...]) -> None:
        states = group_commit_state(before), group_commit_state(self.now.puts)
        if states[0] is not states[1]:
            self.row("group_commit", 0, event, states[0].value, states[1].value, self.now.flushed_offset, clauses)

    def puts_step(self, event: str, step: Step[Puts], clauses: tuple[str, ...] = (), asks: str = "") -> None:
        """Take a step of the puts: rows of the group transfer, of the thread that flushes, and of each put that it moved.

        asks: the event of the group transfer, where that has another: in classic a put asks for slaves behind its flush.
        """
        before, after = self.now.puts, step.state
        done = tuple(output for output in step.outputs if isinstance(output, Done))
        self.now = replace(self.now, puts=after, done=(*self.now.done, *done), told=self.now.told + len(done))
        of_puts = tuple(clause for clause in step.clauses if clause in _OF_PUTS or clause == "HA-G-6")
        of_flush = tuple(clause for clause in clauses if clause.startswith("HA-ST-"))
        self.commit_row(event, before, of_flush)
        if event == "flush" and "HA-G-46" in clauses:  # in classic the failure is what counts as done
            of_puts = tuple(clause for clause in of_puts if clause != "HA-G-44")
        of_puts = (*(clause for clause in clauses if not clause.startswith("HA-ST-")), *of_puts)
        classify = group_transfer_service.classify
        of_group = tuple(clause for clause in step.clauses if clause not in _OF_PUTS)
        if after.group != before.group or any(clause != "HA-G-6" for clause in of_group):
            states, offset = (classify(before.group).value, classify(after.group).value), self.now.push2_slave_max_offset
            self.row("group_transfer", 0, asks or event, *states, offset, of_group)
        self.put_rows(event, before, after, done, of_puts)

    def put_rows(self, event: str, before: Puts, after: Puts, done: tuple[Done, ...], clauses: tuple[str, ...]) -> None:
        """A row for each put whose state has changed."""
        old = {put.request_id: put for put in before.waiting}
        for put in after.waiting:
            was = old.get(put.request_id)
            state, to_state = PutState.APPENDED if was is None else put_state(was), put_state(put)
            if state is not to_state:
                unended = tuple(clause for clause in clauses if clause not in ("HA-G-6", "HA-G-41"))
                self.row("put", put.request_id, event, state.value, to_state.value, put.next_offset, unended)
        for end in done:
            was = old.get(end.request_id)
            state = PutState.APPENDED if was is None else put_state(was)
            if was is not None:
                self.now = replace(self.now, waited=(*self.now.waited, end.request_id))
            self.row("put", end.request_id, event, state.value, PutState[end.status].value, end.next_offset, clauses)
