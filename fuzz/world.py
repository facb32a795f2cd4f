"""Both sides of the world of the link: the reference cluster, and the implementation over scripted sockets and real files.

Each takes the same events (reference/events.py) and returns its state by `observe()`. The implementation's world plays network
and operating system: connections, notices of a break, ends of processes. The implementation makes all decisions itself.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from rocketmq_ha.fuzz.channel import Channel
from rocketmq_ha.fuzz.observe import Observation, ObservedLink, ObservedSlave
from rocketmq_ha.impl.errors import AppendFailed
from rocketmq_ha.impl.ha.five_waits import FiveWaits
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest, GroupTransfer
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.link import MasterLink, SlaveLink
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import cluster, events, five_waits, invariants, master, slave, store
from rocketmq_ha.reference.cluster import Cluster, Link
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR
from rocketmq_ha.spec.profile import Profile, Settings


class ReferenceWorld:
    """The model. Its states are frozen: what was seen of an object stays true as long as the same object is there."""

    def __init__(self, slaves: int, settings: Settings, profile: Profile, now_ms: int) -> None:
        self._settings, self._profile = settings, profile
        self.cluster: Cluster = cluster.new_cluster(slaves, settings, profile, now_ms)
        self._observed: tuple[Cluster, Observation] | None = None
        self._links: dict[int, tuple[Link, ObservedLink]] = {}
        self._slaves: dict[int, tuple[Slave, ObservedSlave]] = {}
        self._judged: tuple[Cluster, tuple[str, ...]] | None = None

    def apply(self, event: events.Event) -> tuple[Transition, ...]:
        self.cluster, transitions = cluster.step(self.cluster, event, self._settings, self._profile)
        return transitions

    def broken(self) -> tuple[str, ...]:
        """The invariants of chapter 9 that do not hold."""
        now = self.cluster
        if self._judged is None or self._judged[0] is not now:
            self._judged = now, invariants.broken(now, self._settings)
        return self._judged[1]

    def observe(self) -> Observation:
        now = self.cluster
        if self._observed is None or self._observed[0] is not now:
            self._observed = now, self._observe(now)
        return self._observed[1]

    def _observe(self, now: Cluster) -> Observation:
        service = five_waits.service_of(now.group)
        return Observation(
            store.min_offset(now.log),
            store.max_offset(now.log),
            now.log.data,
            now.push2_slave_max_offset,
            tuple([next_offset for _, next_offset in now.paused]),
            tuple([request.next_offset for request in now.group.requests]),
            tuple([request.next_offset for request in service.requests_write]),
            tuple([request.next_offset for request in service.requests_read]),
            service.waits,
            service.has_notified,
            tuple(sorted([(done.next_offset, done.status) for done in now.done])),
            tuple([self._observe_link(link) for link in now.links]),
            tuple([self._observe_slave(index, node) for index, node in enumerate(now.slaves)]),
        )

    def _observe_link(self, link: Link) -> ObservedLink:
        known = self._links.get(link.link_id)
        if known is not None and known[0] is link:
            return known[1]
        found = ObservedLink(
            link.link_id,
            link.slave,
            link.to_slave,
            link.to_master,
            link.room,
            link.conn.close_reason,
            link.conn.slave_request_offset,
            link.conn.slave_ack_offset,
            link.conn.next_transfer_from_where,
            link.conn.last_write_over or bool(link.conn.close_reason),
            0 if link.conn.close_reason else master.taken(link.conn),
            len(link.conn.byte_buffer_read) - link.conn.process_position,
            link.slave_open,
        )
        self._links[link.link_id] = link, found
        return found

    def _observe_slave(self, index: int, node: Slave) -> ObservedSlave:
        known = self._slaves.get(index)
        if known is not None and known[0] is node:
            return known[1]
        found = ObservedSlave(
            node.connected,
            node.close_reason,
            store.min_offset(node.log),
            store.max_offset(node.log),
            node.log.data,
            node.current_reported_offset,
            slave.unparsed(node),
            node.deaf,
        )
        self._slaves[index] = node, found
        return found


class _Log(CommitLog):
    """A slave's log on a disk that a schedule may fill; a full disk takes neither a byte nor a file."""

    is_full = False

    def append_data(self, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        if self.is_full and any(map(len, buffers)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append_data(offset, buffers)


class _Connection:
    """Both ends of one connection in the implementation's world."""

    def __init__(self, channel: Channel, at_master: MasterLink, at_slave: SlaveLink) -> None:
        self.channel, self.at_master, self.at_slave = channel, at_master, at_slave
        self.slave_open = True

    @property
    def master_open(self) -> bool:
        return not self.at_master.conn.close_reason


class ImplementationWorld:
    """The implementation with files in `directory`. The caller must close it."""

    def __init__(self, slaves: int, settings: Settings, profile: Profile, now_ms: int, directory: Path) -> None:
        self._settings, self._profile, self._now_ms = settings, profile, now_ms
        self._directory = directory
        self._service = HAService(self._open("master", settings.mapped_file_size), settings, profile)
        self._logs = [self._open_slave(index) for index in range(slaves)]
        self._clients = [self._client(log) for log in self._logs]
        self._of_master, self._of_slaves = _LogReader(), [_LogReader() for _ in self._logs]
        self._connections: dict[int, _Connection] = {}
        self._next_link_id = 0
        self._paused: list[GroupCommitRequest] = []
        self._waiting: list[GroupCommitRequest] = []
        self._done: list[GroupCommitRequest] = []

    def _open(self, name: str, size: int) -> CommitLog:
        profile = self._profile
        return CommitLog.open(
            self._directory / name, file_size=size, clear_tail=profile.clears_tail, strict=profile.checks_recovery
        )

    def _open_slave(self, index: int) -> _Log:
        """Open a slave. Without a given file size it takes the size of its file, or a first guess."""
        size: int | None = self._settings.slave_file_size or self._settings.mapped_file_size
        directory = self._directory / f"slave-{index}"
        if self._settings.adopts_file_size and any(directory.glob(f"{COMMIT_LOG_DIR}/*")):
            size = None
        profile = self._profile
        return _Log.open(directory, file_size=size, clear_tail=profile.clears_tail, strict=profile.checks_recovery)

    def _client(self, log: CommitLog) -> SlaveClient:
        return SlaveClient("master", log, self._settings, self._profile)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.at_master.conn.close("shutdown")
        for log in (self._service.log, *self._logs):
            log.close()

    def apply(self, event: events.Event) -> None:
        """Apply one event and everything that it triggers."""
        self._done = []
        match event:
            case events.Put():
                self._put(event)
            case events.Resume():
                if event.nth < len(self._paused):
                    self._wait(self._paused.pop(event.nth))
            case events.Tick():
                self._tick(event.ms)
            case events.Connect():
                self._connect(event)
            case events.Grant():
                if connection := self._of(event.slave):
                    connection.channel.at_master.room = event.room
            case events.DeliverFrames():
                self._deliver_frames(event)
            case events.DeliverReports():
                self._deliver_reports(event)
            case events.ForgeReport():
                connection = self._of(event.slave)
                if connection and not connection.channel.at_slave.severed:
                    connection.channel.at_slave.in_flight += REPORT.pack(event.offset)
            case events.ForgeHeader():
                self._forge_header(event)
            case events.Clog():
                if connection := self._of(event.slave):
                    connection.channel.at_slave.room = event.room
            case events.DiskFull():
                self._logs[event.slave].is_full = event.is_full
            case events.Cut():
                self._cut(event)
            case events.RestartSlave():
                self._restart_slave(event.slave)
            case events.RestartMaster():
                self._restart_master(event.clean, event.lost)
            case events.DeleteFile():
                self._delete_file()
            case _:
                assert_never(event)
        for connection in self._connections.values():
            if connection.master_open:
                while connection.at_master.on_transfer(self._now_ms):
                    pass
        self._settle()
        if self._waiting:
            self._done += [request for request in self._waiting if request.status is not None]
            self._waiting = [request for request in self._waiting if request.status is None]

    def _put(self, event: events.Put) -> None:
        message = Message(
            topic=event.topic,
            body=event.body,
            queue_id=event.queue_id,
            properties_string=event.properties,
            born_timestamp=self._now_ms,
            born_host=("127.0.0.1", 10911),
            store_timestamp=self._now_ms,
            store_host=("127.0.0.1", 10911),
        )
        if not event.wait:
            self._service.put(message, self._now_ms, wait=False)
        elif event.pauses and not self._profile.joins_at_append:
            self._paused.append(self._service.append(message))
        else:
            self._waiting.append(self._service.put(message, self._now_ms, wait=True))

    def _wait(self, request: GroupCommitRequest) -> None:
        self._service.handle_ha(request, self._now_ms)
        self._waiting.append(request)

    def _forge_header(self, event: events.ForgeHeader) -> None:
        connection = self._of(event.slave)
        if connection and not connection.channel.at_master.severed and connection.at_master.conn.last_write_over:
            offset = max(0, connection.at_master.conn.next_transfer_from_where)
            connection.channel.at_master.in_flight += HEADER.pack(offset, event.body_size)

    def _tick(self, ms: int) -> None:
        self._now_ms += ms
        silent = self._service.on_tick(self._now_ms)
        for connection in list(self._connections.values()):
            if connection.at_master.conn in silent:
                connection.at_master.close("housekeeping")
        self._settle()
        for index, client in enumerate(self._clients):
            if client.connected and (own := self._of(index)):
                own.at_slave.on_tick(self._now_ms)
        self._settle()

    def _connect(self, event: events.Connect) -> None:
        client = self._clients[event.slave]
        if client.connected:
            return
        channel = Channel(self._next_link_id, event.slave, event.room, event.slave_room)
        conn = self._service.on_accept(f"slave-{event.slave}", self._now_ms)
        at_master = MasterLink(channel.at_master, conn, self._service)
        at_slave = SlaveLink(channel.at_slave, client)
        self._connections[self._next_link_id] = _Connection(channel, at_master, at_slave)
        self._next_link_id += 1
        at_slave.on_connect(self._now_ms)

    def _deliver_frames(self, event: events.DeliverFrames) -> None:
        connection = self._of(event.slave)
        if connection and connection.channel.deliver(connection.channel.at_master, event.nbytes):
            try:
                while connection.channel.at_slave.arrived and connection.at_slave.client.connected:
                    connection.at_slave.on_frames(self._now_ms)
            except AppendFailed as error:  # as net/client.py does: HA-ST-68
                assert error.is_for_want_of_room
                connection.at_slave.close("disk_full")

    def _deliver_reports(self, event: events.DeliverReports) -> None:
        connection = self._of(event.slave)
        if connection and connection.channel.deliver(connection.channel.at_slave, event.nbytes):
            while connection.channel.at_master.arrived and not connection.at_master.conn.close_reason:
                connection.at_master.on_reports(self._now_ms)  # HA-M-54 may end a turn before all reports are read

    def _cut(self, event: events.Cut) -> None:
        connection = self._of(event.slave)
        if connection is None:
            return
        connection.channel.sever()
        if event.tell != "slave" and connection.master_open:
            self._tell_master(connection)
        if event.tell != "master":
            self._tell_slave(connection)

    def _restart_slave(self, index: int) -> None:
        if connection := self._of(index):
            connection.slave_open = False
            if connection.master_open and not connection.channel.at_master.severed:
                self._tell_master(connection)
        is_full = self._logs[index].is_full
        self._logs[index].close()
        self._logs[index] = self._open_slave(index)
        self._logs[index].is_full = is_full
        self._clients[index] = self._client(self._logs[index])

    def _restart_master(self, clean: bool, lost: int) -> None:
        if clean:
            self._service.group_transfer.on_shutdown()
        self._paused = []
        self._waiting = [request for request in self._waiting if request.status is not None]  # the others never get a status
        for connection in self._connections.values():
            if connection.master_open and not connection.channel.at_master.severed:
                self._tell_master(connection)
                self._tell_slave(connection)  # of an intact connection both ends are open
            elif connection.master_open:
                connection.at_master.close("end_of_stream")
        log = self._service.log
        records = [offset for offset, _, _ in log.records()] if lost else []
        if log.min_offset:
            records = records[1:]  # the first one behind deleted files was flushed before them
        log.close()
        if lost:
            self._now_ms += 1
        if taken := records[-lost:] if lost else []:
            self._zero("master", taken[0])
        self._service = HAService(self._open("master", self._settings.mapped_file_size), self._settings, self._profile)

    def _delete_file(self) -> None:
        """A file of which nothing is written yet may follow the last byte; that byte's file is not deleted before it."""
        log = self._service.log
        if log.max_offset > log.min_offset + log.file_size:
            log.delete_before(log.min_offset + log.file_size)

    def _zero(self, name: str, offset: int) -> None:
        """A power cut: the unflushed bytes from an offset on become zeros."""
        size = self._settings.mapped_file_size
        for file in (self._directory / name / COMMIT_LOG_DIR).iterdir():
            start = max(0, offset - int(file.name))
            if start < size:
                with file.open("r+b") as opened:
                    opened.seek(start)
                    opened.write(bytes(size - start))

    # --- The network ---------------------------------------------------------------------------------------------------

    def _of(self, index: int) -> _Connection | None:
        """The connection whose slave's end is open, if any: a slave has at most one."""
        return next((c for c in self._connections.values() if c.channel.slave == index and c.slave_open), None)

    def _tell_master(self, connection: _Connection) -> None:
        connection.channel.at_master.end_of_stream = True
        connection.at_master.on_reports(self._now_ms)
        self._lose_what_is_in_flight(connection)

    def _tell_slave(self, connection: _Connection) -> None:
        connection.channel.at_slave.end_of_stream = True
        connection.at_slave.on_frames(self._now_ms)
        connection.slave_open = False
        self._lose_what_is_in_flight(connection)

    def _lose_what_is_in_flight(self, connection: _Connection) -> None:
        for end in (connection.channel.at_master, connection.channel.at_slave):
            end.in_flight.clear()

    def _settle(self) -> None:
        """Notify the other end of every end that has closed."""
        for connection in list(self._connections.values()):
            channel = connection.channel
            if not connection.master_open and connection.slave_open and not channel.at_slave.severed:
                self._tell_slave(connection)
            if connection.slave_open and channel.at_slave.closed:
                connection.slave_open = False
                self._lose_what_is_in_flight(connection)
                if connection.master_open and not channel.at_master.severed:
                    self._tell_master(connection)
            if not connection.slave_open and not connection.master_open:
                del self._connections[channel.link_id]

    # --- Observation ---------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        log, group_transfer = self._service.log, self._service.group_transfer
        write, read, waits, has_notified = _of_thread(group_transfer)
        return Observation(
            log.min_offset,
            log.max_offset,
            self._of_master.read(log),
            self._service.push2_slave_max_offset,
            tuple([request.next_offset for request in self._paused]),
            tuple([request.next_offset for request in group_transfer]),
            write,
            read,
            waits,
            has_notified,
            tuple(sorted([(done.next_offset, done.status.value) for done in self._done if done.status])),
            tuple([_observe_connection(connection) for connection in self._connections.values()]),
            tuple([self._observe_slave(index) for index in range(len(self._clients))]),
        )

    def _observe_slave(self, index: int) -> ObservedSlave:
        client, log = self._clients[index], self._logs[index]
        return ObservedSlave(
            client.connected,
            client.close_reason,
            log.min_offset,
            log.max_offset,
            self._of_slaves[index].read(log),
            client.current_reported_offset,
            client.unparsed,
            client.deaf,
        )


def _observe_connection(connection: _Connection) -> ObservedLink:
    channel, conn = connection.channel, connection.at_master.conn
    return ObservedLink(
        channel.link_id,
        channel.slave,
        bytes(channel.at_master.in_flight),
        bytes(channel.at_slave.in_flight),
        channel.at_master.room,
        conn.close_reason,
        conn.slave_request_offset,
        conn.slave_ack_offset,
        conn.next_transfer_from_where,
        conn.last_write_over,
        conn.taken,
        conn.unparsed,
        connection.slave_open,
    )


def _of_thread(group_transfer: GroupTransfer | FiveWaits) -> tuple[tuple[int, ...], tuple[int, ...], int, bool]:
    """The observed state of classic's service thread: requests_write, requests_read, waits, has_notified."""
    if isinstance(group_transfer, GroupTransfer):
        return (), (), 0, False
    service = group_transfer.service
    write = tuple([request.next_offset for request in service.requests_write])
    read = tuple([request.next_offset for request in service.requests_read])
    return write, read, service.waits, service.has_notified


class _LogReader:
    """Reads all bytes of a log, after every event. The views of its files are kept as long as it has them."""

    def __init__(self) -> None:
        self._files: tuple[MappedFile, ...] = ()
        self._views: dict[MappedFile, memoryview] = {}

    def read(self, log: CommitLog) -> bytes:
        files = log.queue.files  # a tuple that is replaced, never changed
        if files is not self._files:
            known, self._files = self._views, files
            self._views = {file: known[file] if file in known else file.view(0, file.size) for file in files}
        return b"".join([view[: file.wrote_position] for file, view in self._views.items()])
