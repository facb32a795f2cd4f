"""The master's HA service, sans-I/O: its connections together, and the puts that wait for them (HAService, handleHA)."""

from collections import Counter
from typing import Final

from rocketmq_ha.impl.ha.five_waits import FiveWaits
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest, GroupTransfer, acknowledged
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import Profile, Settings

_PUT_OK: Final = PutMessageStatus.PUT_OK


class HAService:
    """One master. Not thread-safe: one thread puts and drives the loop."""

    def __init__(self, log: CommitLog, settings: Settings, profile: Profile) -> None:
        self.log, self.settings, self.profile = log, settings, profile
        self.connections: list[MasterConnection] = []  # HA-M-19 "from its accept until it is closed, and no longer"
        self.push2_slave_max_offset = 0
        self.expired_ms: int | None = None  # the time by which a loop has let things expire the last time; it may be paused
        self.tallies: list[Counter[PutMessageStatus]] = []  # how puts have ended, one for each who counts its own
        self.replicas: Final = settings.replicas if profile.counts_replicas else 1
        self._acked: dict[str, int] = {}  # of each replica that has acknowledged anything; kept up where they are counted
        # What a report costs there is nothing to those who need one slave.
        self.on_ack: Final = self._on_ack_of_any if self.replicas == 1 else self._on_ack_of_several
        # One that counts as a slave, so that no put has to look for it. It counts until it is closed: what it has acknowledged
        # does not shrink (HA-M-11), and in classic each connection counts.
        self._slave: MasterConnection | None = None
        self.group_transfer: GroupTransfer | FiveWaits = GroupTransfer() if profile.serves_by_deadline else FiveWaits()

    def put(self, message: Message, now_ms: int, *, wait: bool) -> GroupCommitRequest:
        """Append `message`; with `wait`, let it wait for a slave. Twin: reference.cluster.put.

        Returns: the request, whose status is already set unless it waits.
        Raises: what CommitLog.append raises; nothing is stored then, and there is no status: HA-G-9 "MUST NOT be given for a
        message that is not in the master's log".
        Spec: HA-G-10 "A request MUST carry the offset after its message: the offset at which it was written plus its size";
        HA-G-11 "MUST be known to the group transfer"; the write sides run in the next turn of the loop.
        """
        result = self.log.append(message)
        request = GroupCommitRequest(result.offset + result.size)
        request.append = result
        if wait:
            self.handle_ha(request, now_ms)
        else:  # HA-G-20 "the outcome of a put that does not wait for one"
            request.status = _PUT_OK
        return request

    def append(self, message: Message) -> GroupCommitRequest:
        """The first half of a put that waits, for a producer that waits for something else before the second half."""
        result = self.log.append(message)
        request = GroupCommitRequest(result.offset + result.size)
        request.append = result
        return request

    def handle_ha(self, request: GroupCommitRequest, now_ms: int) -> None:
        """The second half of a put: let it wait for a slave, or set its status. Twin: reference.cluster.resume."""
        self.group_transfer.on_put(request, self._has_slaves(), self.push2_slave_max_offset, now_ms, self.settings)

    def _has_slaves(self) -> bool:
        """Return True if as many slaves count as a put must wait for. HA-G-32 "when fewer than N replicas count"."""
        if self.replicas > 1:
            return len(self._acked) >= self.replicas
        if self._slave is None:  # there may be a hundred that do not count, and this is asked at every put
            self._slave = next(filter(self._counts, self.connections), None)
        return self._slave is not None

    def on_tick(self, now_ms: int) -> list[MasterConnection]:
        """Expire waiting puts (HA-G-2). Twin: reference.cluster.tick.

        Returns: the connections that have been silent for too long (HA-M-9), to be closed.
        """
        self.group_transfer.on_tick(now_ms)
        return [conn for conn in self.connections if conn.on_tick(now_ms)]

    def on_accept(self, peer: str, now_ms: int, replica: str = "") -> MasterConnection:
        """Add a new connection to the list. Twin: reference.cluster.connect.

        Args: peer: its address with the port, for people. replica: as whom its acknowledgements count, whatever the transport
        can prove of the peer, as the subject of its certificate; if it can prove nothing, the peer's address without the port:
        HA-G-31 "the address that the peer connects from, without its port".
        Spec: HA-M-16 "with a read side and a write side of its own".
        """
        conn = MasterConnection(peer, self.log, now_ms, self.settings, self.profile, replica or peer.rpartition(":")[0])
        self.connections.append(conn)
        return conn

    def close(self, conn: MasterConnection, reason: str) -> None:
        conn.close(reason)
        self.connections.remove(conn)
        if conn is self._slave:
            self._slave = None
        if self.replicas > 1:
            acked: dict[str, int] = {}
            for other in self.connections:
                if acked_offset := other.acked_offset:
                    acked[other.replica] = max(acked_offset, acked.get(other.replica, 0))
            self._acked = acked
            self.push2_slave_max_offset = acknowledged(self._acked.values(), self.replicas)
        elif self.profile.forgets_lost_slaves:
            self.push2_slave_max_offset = max((0, *(other.acked_offset for other in self.connections)))

    def shutdown(self) -> None:
        """End every put that waits for a slave, and every connection. Twin: reference.cluster.restart_master."""
        self.group_transfer.on_shutdown()
        for conn in list(self.connections):
            self.close(conn, "shutdown")

    def count_slaves(self) -> int:
        """The number of connections that count as slaves. Twin: reference.cluster.count_slaves.

        Spec: HA-G-4 "from its accept on" in classic; HA-G-5 "from its first acknowledgement on" in hardened.
        """
        return sum(self._counts(conn) for conn in self.connections)

    def count_replicas(self) -> int:
        """The same, but HA-G-31 "Connections of one replica MUST count once"."""
        return len({conn.replica for conn in self.connections if self._counts(conn)})

    def _counts(self, conn: MasterConnection) -> bool:
        return conn.acked_offset > 0 or not self.profile.forgets_lost_slaves

    def count_connected(self) -> int:
        """Connections that have reported: slaves, and whoever else has asked for the log."""
        return sum(conn.slave_request_offset != -1 for conn in self.connections)

    def needed_offset(self) -> int | None:
        """From where on the peers that are connected may still ask for the log; None where none does. Any thread may call it.

        Spec: HA-ST-66 "A file MUST NOT be deleted while a peer needs it".
        """
        found = (conn.needed_offset for conn in list(self.connections))
        return min((offset for offset in found if offset is not None), default=None)

    def _on_ack_of_any(self, conn: MasterConnection) -> None:
        """Use the acknowledgement of `conn` if one slave is enough. Twin: reference.cluster._on_ack.

        Spec: HA-G-18 "enough to end a put, however many slaves there are"; HA-G-17 "MUST be notified when
        push2_slave_max_offset grows, and only then".
        """
        acked_offset = conn.acked_offset
        if acked_offset > self.push2_slave_max_offset:
            self.push2_slave_max_offset = acked_offset
            self.group_transfer.on_ack(self.push2_slave_max_offset, conn.last_read_timestamp)

    def _on_ack_of_several(self, conn: MasterConnection) -> None:
        """Use the acknowledgement of `conn` if more than one replica is needed. Twin: reference.cluster._on_ack.

        Only a replica that passes push2_slave_max_offset by it can move that: it takes one more beyond.
        Spec: HA-G-30 "MUST be the N-th greatest among the acknowledgements of the replicas"; HA-G-31 "MUST count once".
        """
        acked_offset, before = conn.acked_offset, self._acked.get(conn.replica, 0)
        if acked_offset <= before:
            return
        self._acked[conn.replica] = acked_offset
        if before <= self.push2_slave_max_offset < acked_offset:
            push2_slave_max_offset = acknowledged(self._acked.values(), self.replicas)
            if push2_slave_max_offset > self.push2_slave_max_offset:
                self.push2_slave_max_offset = push2_slave_max_offset
                self.group_transfer.on_ack(push2_slave_max_offset, conn.last_read_timestamp)
