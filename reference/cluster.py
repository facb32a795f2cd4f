"""One master, its slaves, and the network between them: `step(cluster, event)`.

A link is one TCP connection. `to_slave` holds the bytes that the master's socket took and the slave has not read; `to_master`
holds reports in flight. `room` is the number of bytes that the master's socket still takes. After every event all machines run
until they would block.
"""

from dataclasses import dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import Final, assert_never

from rocketmq_ha.reference import events, group_transfer, group_transfer_service, master, slave, store, wire
from rocketmq_ha.reference.group_transfer import GroupTransfer
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import Acked, Close, Done, Step, Transition, sent
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import Profile, Settings

STORE_HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")  # the store host of every message of a schedule


class LinkState(Enum):
    UP = "up"
    SEVERED = "severed"


@dataclass(frozen=True, slots=True)
class Link:
    """One connection: both ends and the bytes in flight.

    Spec: HA-W-7 "MUST carry nothing but reports from the slave and frames from the master".
    """

    link_id: int
    slave: int
    conn: MasterConnection
    room: int
    slave_room: int
    slave_open: bool = True  # the slave's end is open
    severed: bool = False  # the network delivers nothing any more; an end that has not noticed holds a stale connection
    to_slave: bytes = b""
    to_master: bytes = b""


def classify(link: Link) -> LinkState:
    return LinkState.SEVERED if link.severed else LinkState.UP


@dataclass(frozen=True, slots=True)
class Cluster:
    now_ms: int  # HA-T-2 "MUST be in milliseconds of one clock on each machine", here of all of them
    log: Log  # the master's
    slaves: tuple[Slave, ...]
    group: GroupTransfer  # classic: a FiveWaits
    # With at least one end open. HA-M-21 "MUST serve any number of slaves at once, each from its own place in the log".
    links: tuple[Link, ...] = ()
    push2_slave_max_offset: int = 0
    queue_offsets: tuple[tuple[str, int, int], ...] = ()  # (topic, queue id, next queue offset)
    next_link_id: int = 0
    puts: int = 0  # the next request id
    paused: tuple[tuple[int, int], ...] = ()  # (request id, next offset) of puts that are appended but do not wait yet
    done: tuple[Done, ...] = ()  # of the last step
    has_lost: bool = False  # the master has lost an unflushed tail


_fields: Final = attrgetter(*(field.name for field in fields(Cluster)))


def new_cluster(slaves: int, settings: Settings, profile: Profile, now_ms: int) -> Cluster:
    """Empty stores, nobody connected."""
    own = _own_log(settings)
    group = group_transfer_service.new_group(profile)
    return Cluster(now_ms, Log(settings.mapped_file_size), tuple(Slave(own) for _ in range(slaves)), group)


def _own_log(settings: Settings) -> Log:
    """The log of a slave without a file: its files will have the size that it was told, or its first guess."""
    return Log(settings.slave_file_size or settings.mapped_file_size)


def step(cluster: Cluster, event: events.Event, settings: Settings, profile: Profile) -> tuple[Cluster, tuple[Transition, ...]]:
    """One event, and everything that it sets in motion. An event that does not apply (no link to cut, say) does nothing."""
    work = _Work(cluster, settings, profile)
    match event:
        case events.Put():
            work.put(event)
        case events.Resume():
            work.resume(event.nth)
        case events.Tick():
            work.tick(event.ms)
        case events.Connect():
            work.connect(event)
        case events.Grant():
            if link := work.link_of(event.slave):
                work.links[link.link_id] = replace(link, room=event.room)
        case events.DeliverFrames():
            work.deliver_frames(event)
        case events.DeliverReports():
            work.deliver_reports(event)
        case events.ForgeReport():
            link = work.link_of(event.slave)
            if link and not link.severed:
                forged = wire.pack_report(event.offset)
                work.disturb("forge_report", link, replace(link, to_master=link.to_master + forged))
        case events.ForgeHeader():
            link = work.link_of(event.slave)
            if link and not link.severed and link.conn.last_write_over:
                forged = wire.pack_header(max(0, link.conn.next_transfer_from_where), event.body_size)
                work.disturb("forge_header", link, replace(link, to_slave=link.to_slave + forged))
        case events.Clog():
            if link := work.link_of(event.slave):
                work.disturb("clog", link, replace(link, slave_room=event.room))
        case events.DiskFull():
            work.slaves[event.slave] = replace(work.slaves[event.slave], disk_full=event.is_full)
        case events.Cut():
            work.cut(event)
        case events.RestartSlave():
            work.restart_slave(event.slave)
        case events.RestartMaster():
            work.restart_master(event.clean, event.lost)
        case events.DeleteFile():
            work.delete_file()
        case _:
            assert_never(event)
    work.transfer()
    return work.cluster(), tuple(work.transitions)


class _Work:
    """The cluster of one step while it is being made. Nothing of it outlives the step."""

    def __init__(self, cluster: Cluster, settings: Settings, profile: Profile) -> None:
        self.before, self.settings, self.profile = cluster, settings, profile
        self.now_ms = cluster.now_ms
        self.log, self.slaves, self.group = cluster.log, list(cluster.slaves), cluster.group
        self.links = {link.link_id: link for link in cluster.links}
        self.push2_slave_max_offset = cluster.push2_slave_max_offset
        self.queue_offsets = cluster.queue_offsets
        self.next_link_id, self.puts, self.paused = cluster.next_link_id, cluster.puts, cluster.paused
        self.transitions: list[Transition] = []
        self.done: list[Done] = []
        self.has_lost = cluster.has_lost

    def cluster(self) -> Cluster:
        """The cluster behind the step; the same object if nothing has changed, so that nobody need look at it again."""
        after = (
            self.now_ms,
            self.log,
            tuple(self.slaves),
            self.group,
            tuple([link for link in self.links.values() if link.slave_open or not link.conn.close_reason]),
            self.push2_slave_max_offset,
            self.queue_offsets,
            self.next_link_id,
            self.puts,
            self.paused,
            tuple(self.done),
            self.has_lost,
        )
        return self.before if after == _fields(self.before) else Cluster(*after)

    # --- Events ------------------------------------------------------------------------------------------------------

    def put(self, event: events.Put) -> None:
        queue_offsets = {(topic, queue_id): n for topic, queue_id, n in self.queue_offsets}
        queue = (event.topic, event.queue_id)
        record = Record(
            event.topic.encode(),
            event.body,
            event.properties.encode(),
            event.queue_id,
            queue_offset=queue_offsets.get(queue, 0),
            born_timestamp=self.now_ms,
            born_host=STORE_HOST,
            store_timestamp=self.now_ms,
            store_host=STORE_HOST,
        )
        before = self.log  # whatever the put's outcome, it is stored: HA-G-9 "MUST NOT be given for a message that is not in"
        self.log, offset, size = store.append_record(before, record)
        rolls = offset > store.max_offset(before)  # a BLANK stands between
        queue_offsets[queue] = record.queue_offset + 1
        self.queue_offsets = tuple((topic, queue_id, n) for (topic, queue_id), n in queue_offsets.items())
        self._store_row(
            0, before, self.log, "put_roll" if rolls else "put", ("HA-ST-2", "HA-ST-4", *(("HA-ST-3",) if rolls else ()))
        )
        if event.wait:  # else HA-G-20 "MUST NOT delay or change the outcome of a put that does not wait for one"
            self.paused = (*self.paused, (self.puts, offset + size))
            if not event.pauses or self.profile.joins_at_append:
                self.resume(len(self.paused) - 1)
        self.puts += 1

    def resume(self, nth: int) -> None:
        """The rest of a put that waits: what RocketMQ's handleHA does."""
        if nth >= len(self.paused):
            return
        request_id, next_offset = self.paused[nth]
        self.paused = self.paused[:nth] + self.paused[nth + 1 :]
        slaves, push2, now_ms = self.count_slaves(), self.push2_slave_max_offset, self.now_ms
        step = group_transfer_service.on_put(self.group, request_id, next_offset, slaves, push2, now_ms, self.settings)
        self._group_step("put", step)

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        for link in self.open_at_master():
            self._master_step(link, "tick", master.on_tick(link.conn, self.now_ms, self.settings))
        for index, node in enumerate(self.slaves):
            own = self.link_of(index)
            room = own.slave_room if own else 0
            self._slave_step(index, "tick", slave.on_tick(node, room, self.now_ms, self.settings, self.profile))
        self._group_step("tick", group_transfer_service.on_tick(self.group, self.push2_slave_max_offset, self.now_ms))

    def connect(self, event: events.Connect) -> None:
        if self.slaves[event.slave].connected:  # HA-S-19 "MUST NOT hold more than one connection"
            return
        accepted = master.on_accept(self.now_ms)
        link = Link(self.next_link_id, event.slave, accepted.state, event.room, event.slave_room)
        self.next_link_id += 1
        self.links[link.link_id] = link
        state = master.classify(link.conn).value
        self.transitions.append(
            Transition("master_connection", link.link_id, "accept", state, state, -1, 0, -1, 0, accepted.clauses)
        )
        step = slave.on_connect(self.slaves[event.slave], link.slave_room, self.now_ms, self.profile)
        self._slave_step(event.slave, "connect", step)

    def deliver_frames(self, event: events.DeliverFrames) -> None:
        link = self.link_of(event.slave)
        arrived = link.to_slave[: event.nbytes] if link else b""
        if link is None or not arrived:
            return
        self.links[link.link_id] = replace(link, to_slave=link.to_slave[len(arrived) :])
        node = self.slaves[event.slave]
        step = slave.on_frames(node, arrived, link.slave_room, self.now_ms, self.settings, self.profile)
        self._slave_step(event.slave, "frames", step, len(arrived))

    def deliver_reports(self, event: events.DeliverReports) -> None:
        link = self.link_of(event.slave)
        arrived = link.to_master[: event.nbytes] if link else b""
        if link is None or not arrived:
            return
        link = replace(link, to_master=link.to_master[len(arrived) :])
        self.links[link.link_id] = link
        step = master.on_reports(link.conn, arrived, self.log, self.now_ms, self.settings, self.profile)
        self._master_step(link, "reports", step, len(arrived))

    def cut(self, event: events.Cut) -> None:
        link = self.link_of(event.slave)
        if link is None:
            return
        broken = replace(link, severed=True, to_slave=b"", to_master=b"")
        self.disturb("cut", link, broken)
        link = broken
        if event.tell != "slave" and not link.conn.close_reason:
            self._master_step(link, "end_of_stream", master.on_end_of_stream(link.conn))
        if event.tell != "master":
            self._slave_step(event.slave, "end_of_stream", slave.on_end_of_stream(self.slaves[event.slave]))

    def restart_slave(self, index: int) -> None:
        node, link = self.slaves[index], self.link_of(index)
        step = slave.on_restart(node, self.profile)
        if step.state.log.base is None:  # a size that it has learnt (HA-S-91) was in its process alone
            step = replace(step, state=replace(step.state, log=_own_log(self.settings)))
        self._store_row(index + 1, node.log, step.state.log, "recover", step.clauses)
        if link:  # a process that ends closes its sockets
            self.links[link.link_id] = replace(link, slave_open=False)
            self._close_at_master(link.link_id)
        self._slave_step(index, "restart", step)

    def restart_master(self, clean: bool, lost: int) -> None:
        before = kept = self.log
        if lost:
            self.has_lost = True
            self.now_ms += 1
        for _ in range(lost):
            shorter = store.without_last_record(kept)
            if kept.base and not shorter.data:
                break  # the first record behind deleted files was flushed before them
            kept = shorter
        recovered = store.recover(kept, self.profile)
        self.log = recovered.state
        self._store_row(0, before, self.log, "recover", recovered.clauses)
        found = store.next_queue_offsets(self.log)
        self.queue_offsets = tuple((topic, queue_id, n) for (topic, queue_id), n in found.items())
        if clean:
            self._group_step("shutdown", group_transfer_service.on_shutdown(self.group))
        self.paused, self.push2_slave_max_offset = (), 0
        self.group = group_transfer_service.new_group(self.profile)
        # HA-M-37 "A master that shuts down MUST close every connection"; one that dies does too.
        for link in self.open_at_master():  # the stale ones too: their process is gone
            self._master_step(link, "end_of_stream", master.on_end_of_stream(link.conn))
            self._close_at_slave(link.link_id)

    def delete_file(self) -> None:
        """A connection that sends bytes of the file goes on with them, since it holds them."""
        before = self.log
        self.log = store.without_first_file(before)
        if self.log != before:
            self._store_row(0, before, self.log, "delete", ("HA-ST-13",))

    def transfer(self) -> None:
        """Let every write side run until its socket or the log has no more. HA-M-32 "Every put MUST wake the write sides"."""
        for link in self.open_at_master():
            step = master.on_transfer(link.conn, self.log, link.room, self.now_ms, self.settings)
            if step.state is link.conn or step.state == link.conn:
                continue
            data = sent(step)
            to_slave = b"" if link.severed else link.to_slave + data
            sending = replace(link, room=link.room - len(data), to_slave=to_slave)
            self._master_step(sending, "transfer", step, len(data))

    # --- What the events share -----------------------------------------------------------------------------------------

    def link_of(self, index: int) -> Link | None:
        """The link whose slave's end is open: a slave has at most one."""
        return next((link for link in self.links.values() if link.slave == index and link.slave_open), None)

    def open_at_master(self) -> list[Link]:
        """HA-M-19 "MUST be in the list of connections from its accept until it is closed, and no longer"."""
        return [link for link in self.links.values() if not link.conn.close_reason]

    def disturb(self, event: str, link: Link, after: Link) -> None:
        """What the network does to a link."""
        self.links[link.link_id] = after
        before, state = classify(link).value, classify(after).value
        self.transitions.append(Transition("network", link.link_id, event, before, state, -1, 0, -1, 0, ()))

    def count_slaves(self) -> int:
        """How many slaves a put may wait for: in classic connections, in hardened replicas, each of which is one slave.

        Spec: HA-G-4 "a connection counts as a slave from its accept on" in classic; HA-G-5 "a connection MUST count as a slave
        from its first acknowledgement on" in hardened; HA-G-31 "Connections of one replica MUST count once".
        """
        if not self.profile.forgets_lost_slaves:
            return len(self.open_at_master())
        counted = [replica for replica, ack in self.acks() if ack]
        return len(set(counted) if self.profile.counts_replicas else counted)

    def acks(self, but: int = -1) -> list[tuple[int, int]]:
        """(slave, acknowledgement) of each connection that is open at the master, but for that of a link."""
        links = (link for link in self.open_at_master() if link.link_id != but)
        return [(link.slave, master.acked_offset(link.conn, self.profile)) for link in links]

    def _close_at_master(self, link_id: int) -> None:
        link = self.links[link_id]
        if not link.conn.close_reason:
            self._master_step(link, "end_of_stream", master.on_end_of_stream(link.conn))

    def _close_at_slave(self, link_id: int) -> None:
        link = self.links[link_id]
        if link.slave_open and not link.severed:
            self._slave_step(link.slave, "end_of_stream", slave.on_end_of_stream(self.slaves[link.slave]))

    def _master_step(self, link: Link, event: str, step: Step[MasterConnection], nbytes: int = 0) -> None:
        before, conn = link.conn, step.state
        self.links[link.link_id] = replace(link, conn=conn)
        if conn != before or nbytes:
            of_report = len(conn.byte_buffer_read) - conn.process_position
            self.transitions.append(
                Transition(
                    "master_connection",
                    link.link_id,
                    event,
                    master.classify(before).value,
                    master.classify(conn).value,
                    conn.slave_ack_offset if event == "reports" else conn.next_transfer_from_where,
                    nbytes,
                    nbytes if nbytes else -1,
                    of_report if event == "reports" else master.taken(conn),
                    step.clauses,
                )
            )
        for output in step.outputs:
            if isinstance(output, Acked):  # HA-M-24 "MUST be handed to the group transfer before the next read"
                self._on_ack(link, output.offset)
        if conn.close_reason and not before.close_reason:
            self._dropped(link.link_id)
            if self.profile.forgets_lost_slaves:
                self.push2_slave_max_offset = group_transfer.acknowledged(self.acks(), self.settings.replicas)
            if any(isinstance(output, Close) for output in step.outputs):
                self._close_at_slave(link.link_id)

    def _dropped(self, link_id: int) -> None:
        """What is in flight on a closed connection is lost."""
        self.links[link_id] = replace(self.links[link_id], to_slave=b"", to_master=b"")

    def _on_ack(self, link: Link, offset: int) -> None:
        """Move push2_slave_max_offset, and release whom it frees. `offset`: what the link has acknowledged by this report.

        Spec: HA-G-5 "push2_slave_max_offset MUST be the greatest acknowledgement"; HA-G-18 "One slave's report MUST be enough
        to end a put"; HA-G-30 "the N-th greatest among the acknowledgements of the replicas"; HA-G-17 "MUST be notified when
        push2_slave_max_offset grows, and only then".
        """
        if self.profile.forgets_lost_slaves:
            acks = [*self.acks(but=link.link_id), (link.slave, offset)]
            offset = group_transfer.acknowledged(acks, self.settings.replicas)
        if offset > self.push2_slave_max_offset:
            self.push2_slave_max_offset = offset
            of_several = ("HA-G-30",) if self.settings.replicas > 1 else ()
            clauses = ("HA-G-5", *of_several) if self.profile.forgets_lost_slaves else ("HA-G-4",)
            self._group_step("ack", group_transfer_service.on_ack(self.group, offset, self.now_ms), clauses)

    def _slave_step(self, index: int, event: str, step: Step[Slave], nbytes: int = 0) -> None:
        before, node = self.slaves[index], step.state
        self.slaves[index] = node
        link = self.link_of(index)
        reports = sent(step)
        if node != before or nbytes:
            self.transitions.append(
                Transition(
                    "slave_client",
                    index,
                    event,
                    slave.classify(before).value,
                    slave.classify(node).value,
                    store.max_offset(node.log),
                    nbytes or len(reports),
                    nbytes if nbytes else -1,
                    len(slave.unparsed(node)),
                    step.clauses,
                )
            )
        # A size that the slave has learnt (HA-S-91) is no append: its disk may be full.
        if event == "frames" and node.log != replace(before.log, file_size=node.log.file_size):
            appended = len(node.log.data) > len(before.log.data)
            self._store_row(index + 1, before.log, node.log, "append_data", ("HA-ST-6",) if appended else ("HA-S-10",))
        if link is None:
            return
        link = self.links[link.link_id]
        if not link.severed:
            link = replace(link, to_master=link.to_master + reports)
        self.links[link.link_id] = replace(link, slave_room=link.slave_room - len(reports))
        closes = any(isinstance(output, Close) for output in step.outputs)
        if closes or (before.connected and not node.connected):
            self.links[link.link_id] = replace(self.links[link.link_id], slave_open=False)
            if closes:
                self._close_at_master(link.link_id)
            self._dropped(link.link_id)

    def _store_row(self, instance: int, before: Log, after: Log, event: str, clauses: tuple[str, ...]) -> None:
        self.transitions.append(
            Transition(
                "store",
                instance,
                event,
                store.classify(before).value,
                store.classify(after).value,
                store.max_offset(after),
                len(after.data) - len(before.data),
                -1,
                0,
                clauses,
            )
        )

    def _group_step(self, event: str, step: Step[GroupTransfer], clauses: tuple[str, ...] = ()) -> None:
        before = self.group
        self.group = step.state
        done = [output for output in step.outputs if isinstance(output, Done)]
        self.done += done
        if self.group != before or done:
            self.transitions.append(
                Transition(
                    "group_transfer",
                    0,
                    event,
                    group_transfer_service.classify(before).value,
                    group_transfer_service.classify(self.group).value,
                    self.push2_slave_max_offset,
                    0,
                    -1,
                    0,
                    (*clauses, *step.clauses),
                )
            )
