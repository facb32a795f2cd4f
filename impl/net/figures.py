"""The status of a running master or slave, as figures.

The thread that owns the log takes a snapshot of plain values, which any thread may read.

A slave's lag in time is how long the master has held the first byte that the slave has not acknowledged. For this the master
samples its max offset every 100 ms while the log grows.
"""

import os
import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.store.log.space import free_size
from rocketmq_ha.spec.role import BrokerRole

FORMAT: Final = 2  # version of the snapshot's fields; raised when a name or a meaning changes
SAMPLE_MS: Final = 100
_RATE_WINDOW_MS: Final = 10_000
_RATE_SAMPLE_MS: Final = 1_000
_REMEMBERED: Final = 6_000  # samples of growth: ten minutes of a log that grows all the time

# Kinds of connection, as a master sees them. Only SLAVE counts as a slave in hardened (HA-G-5); in classic all kinds count.
SLAVE: Final = "slave"  # the peer has acknowledged bytes that this connection sent to it
READER: Final = "reader"  # the peer was sent bytes and has reported since, but acknowledges none of them: tail, doctor, a probe
NEW: Final = "new"  # slave or reader, not known yet: nothing was sent, or the peer has not reported since
NOT_REPORTED: Final = "not reported"  # no report has come
KINDS: Final = (SLAVE, READER, NEW, NOT_REPORTED)
# States of a slave. While it prepares an empty log its state is ASKING or WAITING (fresh.py): those connections append nothing.
CONNECTED: Final = "connected"
DISK_FULL: Final = "disk full"
DISCONNECTED: Final = "disconnected"
# How a put that a master has stored can end.
PUT_STATUSES: Final = (
    PutMessageStatus.PUT_OK,
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
)

Snapshot = dict[str, Any]


def nothing_kept() -> Snapshot:
    """The retention figures of a process without retention and without a check for free space."""
    return {"deleted_files": 0, "deleted_bytes": 0, "disk_full": None}


class Rate:
    """The growth of an offset in bytes a second, over ten samples, one a second. Cheap enough for one per connection."""

    def __init__(self, offset: int, now_ms: int) -> None:
        self._samples: deque[tuple[int, int]] = deque([(now_ms, offset)])

    def sample(self, offset: int, now_ms: int) -> None:
        if offset < self._samples[-1][1]:  # a log that was cut
            self._samples.clear()
        elif now_ms - self._samples[-1][0] < _RATE_SAMPLE_MS:
            return
        self._samples.append((now_ms, offset))
        while now_ms - self._samples[0][0] > _RATE_WINDOW_MS:
            self._samples.popleft()

    def per_second(self, offset: int, now_ms: int) -> float:
        """Bytes a second over the last ten seconds, or since the first sample."""
        first_ms, first = self._samples[0]
        return round((offset - first) * 1000 / (now_ms - first_ms), 1) if now_ms > first_ms else 0.0


class Growth:
    """Remembers at which time the log reached which max offset."""

    def __init__(self, offset: int, now_ms: int) -> None:
        self._offsets: deque[int] = deque([offset], _REMEMBERED)
        self._times: deque[int] = deque([now_ms], _REMEMBERED)

    def sample(self, offset: int, now_ms: int) -> None:
        if offset < self._offsets[-1]:  # a log that was cut
            self._offsets.clear()
            self._times.clear()
        elif offset == self._offsets[-1]:
            return
        self._offsets.append(offset)
        self._times.append(now_ms)

    def lag_ms(self, offset: int, now_ms: int) -> int:
        """How long the log has reached beyond an offset; 0 if it does not. At most the age of the oldest sample."""
        index = bisect_right(self._offsets, offset)
        return 0 if index == len(self._offsets) else max(0, now_ms - self._times[index])


class Figures(ABC):
    """The figures that master and slave share. Call `sample` every turn of the loop, `snapshot` when somebody asks."""

    role = ""

    def __init__(self, log: CommitLog, profile: str, kept: Callable[[], Snapshot] = nothing_kept) -> None:
        """kept: returns the figures of retention and free space."""
        self.log, self._profile, self._kept = log, profile, kept
        self._started = time.time()
        self._start_offset = log.max_offset or None  # None while the log is empty: a slave's log may begin at any offset
        self._growth = Growth(log.max_offset, clock_ms())
        self._rate = Rate(0, clock_ms())  # of the bytes appended: the offset of a slave's first byte is no growth
        self._next_sample_ms = 0

    def sample(self) -> bool:
        """Take a sample if one is due. Returns: whether a sample was taken."""
        now_ms = clock_ms()
        if now_ms < self._next_sample_ms:
            return False
        self._next_sample_ms = now_ms + SAMPLE_MS
        self._growth.sample(self.log.max_offset, now_ms)
        self._rate.sample(self._appended_bytes(), now_ms)
        self._sample(now_ms)
        return True

    def snapshot(self) -> Snapshot:
        """All figures, as JSON values. Offsets and lags in bytes, times in ms, rates in bytes a second."""
        log, now_ms, appended = self.log, clock_ms(), self._appended_bytes()
        return {
            "format": FORMAT,
            "version": program_version(),
            "role": self.role,
            "profile": self._profile,
            "pid": os.getpid(),
            "uptime_s": round(time.time() - self._started, 1),
            "min_offset": log.min_offset,
            "max_offset": log.max_offset,
            "flushed_offset": log.flushed_offset,
            "file_size": log.file_size,
            "growth_per_second": self._rate.per_second(appended, now_ms),
            "appended_bytes": appended,
            "syncs": log.queue.syncs,
            "sync_seconds": round(log.queue.sync_seconds, 6),
            "free_disk_bytes": _free_disk(log),
            **self._kept(),
        } | self._more(now_ms)

    def _appended_bytes(self) -> int:
        """Bytes appended since the start. Files that retention deletes do not reduce the count."""
        max_offset = self.log.max_offset
        if self._start_offset is None and max_offset:
            self._start_offset = self.log.min_offset
        return 0 if self._start_offset is None else max_offset - self._start_offset

    @abstractmethod
    def _sample(self, now_ms: int) -> None:
        """Sample what only this role has."""

    @abstractmethod
    def _more(self, now_ms: int) -> Snapshot:
        """The figures that only this role has."""


class MasterFigures(Figures):
    """The figures of a master and of all its connections."""

    role = "master"

    def __init__(
        self,
        master: Master,
        profile: str,
        broker_role: BrokerRole = BrokerRole.SYNC_MASTER,
        kept: Callable[[], Snapshot] = nothing_kept,
    ) -> None:
        super().__init__(master.service.log, profile, kept)
        self._master, self._broker_role = master, broker_role
        self._rates: dict[
            MasterConnection, Rate
        ] = {}  # growth of the acknowledged offset, from the offset at which the transfer began
        self._sent_ms: dict[MasterConnection, int] = {}  # when a sample first saw that bytes had been sent

    def _sample(self, now_ms: int) -> None:
        sent = [conn for conn in self._master.service.connections if conn.sent_offset > conn.start_offset]
        self._sent_ms = {conn: self._sent_ms.get(conn, now_ms) for conn in sent}
        self._rates = {conn: self._rate_of(conn) for conn in self._master.service.connections if conn.start_offset != -1}
        for conn, rate in self._rates.items():
            rate.sample(_acknowledged(conn), now_ms)

    def _rate_of(self, conn: MasterConnection) -> Rate:
        return self._rates.get(conn) or Rate(conn.start_offset, conn.connected_timestamp)

    def _more(self, now_ms: int) -> Snapshot:
        service = self._master.service
        return {
            "broker_role": self._broker_role.value,
            "listen": _format(self._master.plain_address),
            "tls_listen": _format(self._master.tls_address),
            "slaves": service.count_slaves(),
            "replicas_needed": service.replicas,
            "replicas_counted": service.count_replicas(),
            "push2_slave_max_offset": service.push2_slave_max_offset,
            "waiting_puts": len(service.group_transfer),
            "refused_connections": self._master.limiter.refused.total(),
            "accepted_connections": self._master.accepted_connections,
            "accepting": self._master.is_accepting,
            "sent_bytes": self._master.sent_bytes,
            "received_bytes": self._master.received_bytes,
            "puts": {status.value: sum(tally[status] for tally in service.tallies) for status in PUT_STATUSES},
            "connections": [self._connection(conn, now_ms) for conn in service.connections],
        }

    def _connection(self, conn: MasterConnection, now_ms: int) -> Snapshot:
        kind = self._kind(conn)
        has_reported, is_slave = kind != NOT_REPORTED, kind == SLAVE
        return {
            "peer": conn.peer,
            "replica": conn.replica,
            "certificate": self._master.subjects.get(conn),
            "kind": kind,
            "state": _state(conn, kind, self.log.max_offset),
            "connected_ms": now_ms - conn.connected_timestamp,
            "silent_ms": now_ms - conn.last_read_timestamp,
            "request_offset": conn.slave_request_offset if has_reported else None,
            "reported_offset": conn.slave_ack_offset if has_reported else None,
            "sent_offset": conn.sent_offset if has_reported else None,
            "ack_offset": conn.slave_ack_offset if is_slave else None,
            "lag_bytes": self.log.max_offset - conn.slave_ack_offset if is_slave else None,
            "lag_ms": self._growth.lag_ms(conn.slave_ack_offset, now_ms) if is_slave else None,
            "acks_per_second": self._rate_of(conn).per_second(_acknowledged(conn), now_ms) if is_slave else None,
        }

    def _kind(self, conn: MasterConnection) -> str:
        """The kind of a connection (KINDS), judged by what it was sent and what it reported."""
        if conn.start_offset == -1:
            return NOT_REPORTED
        if conn.slave_ack_offset > conn.start_offset:
            return SLAVE
        sent_ms = self._sent_ms.get(conn)
        return NEW if sent_ms is None or conn.last_read_timestamp <= sent_ms else READER


def _format(address: tuple[str, int] | None) -> str | None:
    return address and format_address(*address)


def _acknowledged(conn: MasterConnection) -> int:
    """The acknowledged offset. A first report of 0 asks for the last file and acknowledges nothing before that file."""
    return max(conn.slave_ack_offset, conn.start_offset)


def _state(conn: MasterConnection, kind: str, max_offset: int) -> str:
    """The state of a connection. `blocked`: the socket is full. `streaming`: bytes remain to be sent or acknowledged."""
    if conn.slave_request_offset == -1:
        return "awaiting report"
    if not conn.last_write_over:
        return "blocked"
    if kind == SLAVE:
        return "in sync" if conn.slave_ack_offset == max_offset else "streaming"
    return "all sent" if conn.sent_offset == max_offset else "sending"


class SlaveFigures(Figures):
    """The figures of a slave. A slave does not know its master's max offset, so the master's figures hold the lag."""

    role = "slave"

    def __init__(
        self,
        follower: Follower,
        log: CommitLog,
        profile: str,
        kept: Callable[[], Snapshot] = nothing_kept,
        preparing: Callable[[], str] = lambda: "",
    ) -> None:
        """preparing: returns the state of the preparation of an empty log (fresh.py); "" if nothing is being prepared."""
        super().__init__(log, profile, kept)
        self._follower, self._preparing = follower, preparing

    def _sample(self, now_ms: int) -> None:
        """A slave has no samples of its own."""

    def _more(self, now_ms: int) -> Snapshot:
        client = self._follower.client
        connected = client.connected
        return {
            "broker_role": BrokerRole.SLAVE.value,
            "master": client.peer,
            "certificate": self._follower.master_subject or None,
            "state": self._state(),
            "connected_ms": now_ms - self._follower.connected_timestamp if connected else None,
            "silent_ms": now_ms - client.last_read_timestamp if connected else None,
            "reported_offset": client.current_reported_offset if connected else None,
            "comparing": client.overlap is not None,  # its last message with the master's (HA-S-62)
            "unparsed_bytes": len(client.unparsed) if connected else None,
            "last_close_reason": self._follower.last_close,
            "connects": self._follower.connects,
            "reconnects": max(0, self._follower.connects - 1),
            "sent_bytes": self._follower.sent_bytes,
            "received_bytes": self._follower.received_bytes,
            "failed_connects": self._follower.failed_connects,
        }

    def _state(self) -> str:
        if self._follower.client.connected:
            return CONNECTED
        return DISK_FULL if self._follower.disk_full else self._preparing() or DISCONNECTED


def _free_disk(log: CommitLog) -> int | None:
    try:
        return free_size(log.queue.directory)
    except OSError:  # the directory has been taken away under us
        return None


def program_version() -> str:
    """The version of this program."""
    try:
        return version("rocketmq-ha")
    except PackageNotFoundError:
        return "unknown"
