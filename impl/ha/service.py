"""The master's HA service, sans-I/O: its connections together, and the puts that wait for them (HAService, handleHA)."""

from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest, GroupTransfer, PutMessageStatus
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.store.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import Profile, Settings


class HAService:
    """One master. Not thread-safe: one thread puts and drives the loop."""

    def __init__(self, log: CommitLog, settings: Settings, profile: Profile) -> None:
        self.log, self.settings, self.profile = log, settings, profile
        self.connections: list[MasterConnection] = []  # open ones
        self.push2_slave_max_offset = 0
        self.group_transfer = GroupTransfer()

    def accept(self, peer: str, now_ms: int) -> MasterConnection:
        conn = MasterConnection(peer, self.log, now_ms, self.settings, self.profile)
        self.connections.append(conn)
        return conn

    def on_ack(self, conn: MasterConnection) -> None:
        """A report was taken from `conn`. HA-G-4, HA-G-5."""
        if conn.slave_ack_offset > self.push2_slave_max_offset:
            self.push2_slave_max_offset = conn.slave_ack_offset
            self.group_transfer.on_ack(self.push2_slave_max_offset)

    def close(self, conn: MasterConnection, reason: str) -> None:
        conn.close(reason)
        self.connections.remove(conn)
        if self.profile.forgets_lost_slaves:
            self.push2_slave_max_offset = max((0, *(other.slave_ack_offset for other in self.connections)))

    def count_slaves(self) -> int:
        """Connections that count as slaves. HA-G-4, HA-G-5."""
        if self.profile.forgets_lost_slaves:
            return sum(conn.slave_request_offset != -1 for conn in self.connections)
        return len(self.connections)

    def put(self, message: Message, now_ms: int, *, wait: bool) -> GroupCommitRequest:
        """Append `message`; with `wait`, let it wait for a slave. HA-G-3.

        Returns: the request, whose status is already set unless it waits.
        Raises: what CommitLog.append raises; nothing is stored then.
        """
        result = self.log.append(message)
        request = GroupCommitRequest(result.offset + result.size, now_ms + self.settings.sync_flush_timeout_ms)
        if not wait:
            request.status = PutMessageStatus.PUT_OK
        elif not self._is_slave_ok(request.next_offset):
            request.status = PutMessageStatus.SLAVE_NOT_AVAILABLE
        elif request.next_offset <= self.push2_slave_max_offset:  # HA-G-1; in classic a forged report lasts (quirk 1)
            request.status = PutMessageStatus.PUT_OK
        else:
            self.group_transfer.add(request)
        return request

    def _is_slave_ok(self, next_offset: int) -> bool:
        lag = next_offset - self.push2_slave_max_offset
        return self.count_slaves() > 0 and lag < self.settings.ha_slave_fallbehind_max

    def on_tick(self, now_ms: int) -> list[MasterConnection]:
        """Expire waiting puts. HA-G-2.  Returns: the connections that have been silent for too long (HA-M-9), to be closed."""
        self.group_transfer.on_tick(now_ms)
        return [conn for conn in self.connections if conn.is_silent(now_ms)]

    def shutdown(self) -> None:
        """HA-G-6."""
        self.group_transfer.on_shutdown()
        for conn in list(self.connections):
            self.close(conn, "shutdown")
