"""The master's HA service, sans-I/O: its connections together, and the puts that wait for them (HAService, handleHA)."""

from typing import Final

from rocketmq_ha.impl.ha.five_waits import FiveWaits
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest, GroupTransfer
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.store.commit_log import CommitLog
from rocketmq_ha.impl.store.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import Profile, Settings

_PUT_OK: Final = PutMessageStatus.PUT_OK


class HAService:
    """One master. Not thread-safe: one thread puts and drives the loop."""

    def __init__(self, log: CommitLog, settings: Settings, profile: Profile) -> None:
        self.log, self.settings, self.profile = log, settings, profile
        self.connections: list[MasterConnection] = []  # HA-M-19 "from its accept until it is closed, and no longer"
        self.push2_slave_max_offset = 0
        self._slave: MasterConnection | None = None  # one that counts as a slave, so that no put has to look for it
        self.group_transfer: GroupTransfer | FiveWaits = GroupTransfer() if profile.serves_by_deadline else FiveWaits()

    def accept(self, peer: str, now_ms: int) -> MasterConnection:
        """A new connection, in the list. HA-M-16 "with a read side and a write side of its own"."""
        conn = MasterConnection(peer, self.log, now_ms, self.settings, self.profile)
        self.connections.append(conn)
        return conn

    def on_ack(self, conn: MasterConnection) -> None:
        """A report was taken from `conn`.

        Spec: HA-G-18 "enough to end a put, however many slaves there are"; HA-G-17 "MUST be notified when
        push2_slave_max_offset grows, and only then".
        """
        acked_offset = conn.acked_offset
        if conn is self._slave and not self._counts(conn):
            self._slave = None
        if acked_offset > self.push2_slave_max_offset:
            self.push2_slave_max_offset = acked_offset
            self.group_transfer.on_ack(self.push2_slave_max_offset, conn.last_read_timestamp)

    def close(self, conn: MasterConnection, reason: str) -> None:
        conn.close(reason)
        self.connections.remove(conn)
        if conn is self._slave:
            self._slave = None
        if self.profile.forgets_lost_slaves:
            self.push2_slave_max_offset = max((0, *(other.acked_offset for other in self.connections)))

    def count_slaves(self) -> int:
        """Connections that count as slaves.

        Spec: HA-G-4 "from its accept on" in classic; HA-G-5 "from its first acknowledgement on" in hardened.
        """
        return sum(self._counts(conn) for conn in self.connections)

    def _counts(self, conn: MasterConnection) -> bool:
        return conn.acked_offset > 0 or not self.profile.forgets_lost_slaves

    def count_connected(self) -> int:
        """Connections that have reported: slaves, and whoever else has asked for the log."""
        return sum(conn.slave_request_offset != -1 for conn in self.connections)

    def put(self, message: Message, now_ms: int, *, wait: bool) -> GroupCommitRequest:
        """Append `message`; with `wait`, let it wait for a slave.

        Returns: the request, whose status is already set unless it waits.
        Raises: what CommitLog.append raises; nothing is stored then, and there is no status: HA-G-9 "MUST NOT be given for a
        message that is not in the master's log".
        Spec: HA-G-10 "A request MUST carry the offset after its message: the offset at which it was written plus its size";
        HA-G-11 "MUST be known to the group transfer"; the write sides run in the next turn of the loop.
        """
        result = self.log.append(message)
        request = GroupCommitRequest(result.offset + result.size)
        if wait:
            self.handle_ha(request, now_ms)
        else:  # HA-G-20 "the outcome of a put that does not wait for one"
            request.status = _PUT_OK
        return request

    def append(self, message: Message) -> GroupCommitRequest:
        """The first half of a put that waits, where its producer has something else to wait for before the second."""
        result = self.log.append(message)
        return GroupCommitRequest(result.offset + result.size)

    def handle_ha(self, request: GroupCommitRequest, now_ms: int) -> None:
        """The second half: let it wait for a slave, or set its status."""
        request.deadline_ms = now_ms + self.settings.sync_flush_timeout_ms
        if not self._is_slave_ok(request.next_offset):
            request.status = PutMessageStatus.SLAVE_NOT_AVAILABLE
        elif self.profile.serves_by_deadline and request.next_offset <= self.push2_slave_max_offset:
            request.status = PutMessageStatus.PUT_OK
        else:
            self.group_transfer.add(request, now_ms)

    def _is_slave_ok(self, next_offset: int) -> bool:
        """Else the put ends, HA-G-3 "without waiting, when there is no slave, or when the offset after its message is
        ha_slave_fallbehind_max or more beyond push2_slave_max_offset".
        """
        if next_offset - self.push2_slave_max_offset >= self.settings.ha_slave_fallbehind_max:
            return False
        if self._slave is None:  # there may be a hundred that do not count, and this is asked at every put
            self._slave = next(filter(self._counts, self.connections), None)
        return self._slave is not None

    def on_tick(self, now_ms: int) -> list[MasterConnection]:
        """Expire waiting puts. HA-G-2.  Returns: the connections that have been silent for too long (HA-M-9), to be closed."""
        self.group_transfer.on_tick(now_ms)
        return [conn for conn in self.connections if conn.is_silent(now_ms)]

    def shutdown(self) -> None:
        """Nobody waits for a master that is gone."""
        self.group_transfer.on_shutdown()
        for conn in list(self.connections):
            self.close(conn, "shutdown")
