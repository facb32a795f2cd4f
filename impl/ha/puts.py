"""A master's puts: which of them wait for the disk, which for a slave, and what their producers hear.

The thread that puts drives the loop, and ends every put: nothing here is thread-safe. The thread that flushes only says so, by
its request's status and by waking the loop.

Source: article 001 `handleHA`; 4.5.2 CommitLog.putMessage; 4.9.8 CommitLog.asyncPutMessage.
"""

from collections import deque
from typing import Final

from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.store.log.flush import GroupCommitRequest as FlushRequest
from rocketmq_ha.impl.store.log.flush import GroupCommitService
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageStatus, outcome
from rocketmq_ha.impl.store.pending_put import waits_for_store
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.role import BrokerRole

_OK: Final = PutMessageStatus.PUT_OK
_TIMEOUT: Final = PutMessageStatus.FLUSH_DISK_TIMEOUT


class FlushedPut:
    """A put that waits for the disk, and where the master is a SYNC_MASTER for a slave too."""

    __slots__ = ("deadline_ms", "disk_status", "flush", "slave")

    def __init__(self, flush: FlushRequest, slave: GroupCommitRequest, deadline_ms: int) -> None:
        self.flush = flush  # its status is set by another thread, and may be PUT_OK when this put has given up
        self.slave = slave  # its status is set when that wait ends, or was found needless
        self.deadline_ms = deadline_ms  # the last instant at which it waits for the disk
        self.disk_status: PutMessageStatus | None = None  # set once, by the thread that puts

    @property
    def next_offset(self) -> int:
        """The offset behind its message."""
        return self.slave.next_offset

    @property
    def append(self) -> AppendResult:
        """Where its message went."""
        return self.slave.append

    @property
    def status(self) -> PutMessageStatus | None:
        """How it ended; None while it waits for either."""
        disk, slave = self.disk_status, self.slave.status
        return None if disk is None or slave is None else outcome(disk, slave)


WaitingPut = GroupCommitRequest | FlushedPut


class Puts:
    """The puts of one master.

    Args:  service: of the connections, and of those that wait for a slave. role: a master's.
           group_commit: flushes for those that wait for the disk; its owner starts it, `shutdown` ends it. None where the
           master flushes asynchronously.
    """

    def __init__(self, service: HAService, role: BrokerRole, group_commit: GroupCommitService | None = None) -> None:
        assert role is not BrokerRole.SLAVE  # HA-R-5 "A slave MUST refuse puts": it has no HAService to put through
        self.service: Final = service
        self.role: Final = role
        self._is_sync_master = role is BrokerRole.SYNC_MASTER
        self._group_commit = group_commit
        self._asks_at_once = service.profile.waits_at_once
        self._checks_flush = service.profile.checks_flush
        self._flushing: deque[FlushedPut] = deque()  # wait for the disk; by ascending offsets

    @property
    def flushing(self) -> int:
        """Puts that wait for the disk."""
        return len(self._flushing)

    def put(self, message: Message, now_ms: int) -> WaitingPut:
        """Append a message, and let its put wait for what it must. Twin: reference.puts.on_put.

        Returns: what will have a status, or has it already, where it waits for nothing.
        Raises: what CommitLog.append raises; nothing is stored then.
        Spec: HA-G-8 "MUST wait for a slave if the broker is a SYNC_MASTER and the message does not carry the property WAIT with
        the value false, and only then"; HA-G-40 "MUST wait for the disk if the master flushes synchronously and the message
        does not carry the property WAIT with the value false, and only then".
        """
        waits = waits_for_store(message.properties_string)
        if self._group_commit is None or not waits:
            return self.service.put(message, now_ms, wait=waits and self._is_sync_master)
        return self._flushed(self._group_commit, self.service.append(message), now_ms)

    def after_append(self, append: AppendResult, now_ms: int, *, waits: bool) -> WaitingPut:
        """`put` for a caller that has appended the message, or a batch of them, by itself.

        Args:  waits: whether the put waits for anything: see `put`.
        """
        request = GroupCommitRequest(append.next_offset)
        request.append = append
        if self._group_commit is not None and waits:
            return self._flushed(self._group_commit, request, now_ms)
        if waits and self._is_sync_master:
            self.service.handle_ha(request, now_ms)
        else:
            request.status = _OK
        return request

    def _flushed(self, group_commit: GroupCommitService, slave: GroupCommitRequest, now_ms: int) -> FlushedPut:
        """Let the put of an appended message wait for the disk, and on a SYNC_MASTER for a slave."""
        if not self._is_sync_master:
            slave.status = _OK
        elif self._asks_at_once:  # HA-G-42 "MUST begin both waits when its message is appended"
            self.service.handle_ha(slave, now_ms)
        flush = group_commit.put_request(slave.next_offset)
        put = FlushedPut(flush, slave, now_ms + self.service.settings.sync_flush_timeout_ms)
        self._flushing.append(put)
        return put

    def on_turn(self, now_ms: int) -> None:
        """End the waits for the disk that are over. Twin: reference.puts.on_flush, reference.puts.on_tick.

        Time is `HAService.expired_ms` if a loop has set it: after a pause of the process that is not now.
        Spec: HA-G-44 "with PUT_OK when a sync has covered the message", "or more than sync_flush_timeout has passed since the
        put"; HA-G-46 "A flush that fails counts as done" in classic. That thread ends requests in the order of the log, so the
        first that must wait ends the search.
        """
        flushing, expired_ms = self._flushing, self.service.expired_ms
        while flushing:
            put = flushing[0]
            status = put.flush.status
            if status is None:
                if (now_ms if expired_ms is None else expired_ms) <= put.deadline_ms:
                    return
                status = _TIMEOUT
            elif not self._checks_flush:
                status = _OK
            flushing.popleft()
            self._on_disk_end(put, status, now_ms)

    def _on_disk_end(self, put: FlushedPut, status: PutMessageStatus, now_ms: int) -> None:
        """End the wait for the disk; in classic the wait for a slave begins now. Twin: reference.puts.on_disk_end.

        Spec: HA-G-43 "waits for the disk first, and looks for slaves when that wait is over".
        """
        put.disk_status = status
        if self._is_sync_master and not self._asks_at_once:
            self.service.handle_ha(put.slave, now_ms)

    def shutdown(self, now_ms: int) -> None:
        """End every wait for the disk; call HAService.shutdown next, for those for a slave. Twin: reference.puts.on_shutdown.

        Spec: HA-G-45 "MUST flush once more for the puts that wait for the disk, before it lets go of them".
        """
        if self._group_commit is not None:
            self._group_commit.shutdown()
        self.on_turn(now_ms)
        while self._flushing:  # where the thread was never started
            self._on_disk_end(self._flushing.popleft(), _TIMEOUT, now_ms)
