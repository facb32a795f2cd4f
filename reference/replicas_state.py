"""The state of a master with its puts and its replicas, and the names of its discrete states. replicas.py has the steps.

put:         appended --> disk, slave, both --> put_ok, flush_disk_timeout, flush_slave_timeout, slave_not_available
connection:  await_report --> asked --> started --> acknowledges --> closed
"""

from dataclasses import dataclass
from enum import Enum

from rocketmq_ha.reference import group_transfer_service, master, store
from rocketmq_ha.reference.group_transfer import FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE, is_slave_ok
from rocketmq_ha.reference.master import MasterConnection
from rocketmq_ha.reference.puts import FLUSH_DISK_TIMEOUT, Master, Puts, Slaves, WaitingPut
from rocketmq_ha.reference.step import Done
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import Profile


class PutState(Enum):
    """One put. A wait that ended well leaves no trace in the name: nothing depends on it any more."""

    APPENDED = "appended"
    DISK = "disk"  # it waits for the disk
    SLAVE = "slave"  # it waits for slaves
    BOTH = "both"
    SLAVE_DISK_LATE = "slave_disk_late"  # it waits for slaves; the disk has failed, or was late
    DISK_SLAVE_LATE = "disk_slave_late"  # it waits for the disk; no slave came in time
    DISK_NO_SLAVE = "disk_no_slave"  # it waits for the disk; there was no slave
    PUT_OK = "put_ok"
    FLUSH_DISK_TIMEOUT = "flush_disk_timeout"
    FLUSH_SLAVE_TIMEOUT = "flush_slave_timeout"
    SLAVE_NOT_AVAILABLE = "slave_not_available"
    FORGOTTEN = "forgotten"


class GroupCommitState(Enum):
    """The thread that flushes for those that wait."""

    IDLE = "idle"
    FLUSHING = "flushing"
    FLUSHING_QUEUED = "flushing_queued"  # others have come meanwhile, and wait for the next flush


class ReplicasState(Enum):
    """What a put would find."""

    NONE = "none"  # no connection
    UNCOUNTED = "uncounted"  # connections, and none of them counts (HA-G-5)
    TOO_FEW = "too_few"  # fewer count than are needed
    BEHIND = "behind"  # enough count, and are too far behind for a put that ends at the end of the log
    ENOUGH = "enough"


class ReplicaConnectionState(Enum):
    AWAIT_REPORT = "await_report"
    ASKED = "asked"  # it has reported, and has been sent nothing
    STARTED = "started"  # its transfer has begun, and it has acknowledged nothing
    ACKNOWLEDGES = "acknowledges"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection, and whose it is: HA-G-31 "by what the transport proves", or by the address."""

    number: int
    replica: str
    conn: MasterConnection


@dataclass(frozen=True, slots=True)
class Replicas:
    now_ms: int
    log: Log
    puts: Puts
    connections: tuple[Connection, ...] = ()  # those that are open, in the order of their accepts
    push2_slave_max_offset: int = 0
    flushed_offset: int = 0
    synced_offset: int | None = None  # what the flush under way covers, if it has looked already
    ends: tuple[int, ...] = ()  # the offset behind each message
    next_number: int = 0  # of a connection
    done: tuple[Done, ...] = ()  # of the last step
    waited: tuple[int, ...] = ()  # request ids of those of `done` that had waited
    forgotten: tuple[int, ...] = ()  # request ids, of the last step
    closed: tuple[tuple[int, str], ...] = ()  # (number, reason), of the last step
    told: int = 0  # puts whose producers have heard so far
    lost: int = 0  # puts whose producers never will


def new_replicas(setup: Master, now_ms: int) -> Replicas:
    """An empty log, nobody connected."""
    log = Log(setup.settings.mapped_file_size)
    return Replicas(now_ms, log, Puts(group_transfer_service.new_group(setup.profile)))


# --- States ------------------------------------------------------------------------------------------------------------


def put_state(put: WaitingPut) -> PutState:
    match put.disk, put.slave:
        case (None, None):
            return PutState.BOTH
        case (None, slave):
            late = {FLUSH_SLAVE_TIMEOUT: PutState.DISK_SLAVE_LATE, SLAVE_NOT_AVAILABLE: PutState.DISK_NO_SLAVE}
            return late.get(slave or "", PutState.DISK)
        case (disk, _):
            return PutState.SLAVE_DISK_LATE if disk == FLUSH_DISK_TIMEOUT else PutState.SLAVE
    raise AssertionError


def group_commit_state(now: Puts) -> GroupCommitState:
    if not now.gathered:
        return GroupCommitState.IDLE
    return GroupCommitState.FLUSHING_QUEUED if now.queued else GroupCommitState.FLUSHING


def replicas_state(replicas: Replicas, setup: Master) -> ReplicasState:
    if not replicas.connections:
        return ReplicasState.NONE
    slaves = slaves_of(replicas, setup.profile)
    if slaves.count == 0:
        return ReplicasState.UNCOUNTED
    if slaves.count < setup.settings.replicas:
        return ReplicasState.TOO_FEW
    max_offset, push2 = store.max_offset(replicas.log), slaves.push2_slave_max_offset
    return ReplicasState.ENOUGH if is_slave_ok(slaves.count, max_offset, push2, setup.settings) else ReplicasState.BEHIND


def connection_state(conn: MasterConnection, profile: Profile) -> ReplicaConnectionState:
    if conn.close_reason:
        return ReplicaConnectionState.CLOSED
    if conn.slave_request_offset == -1:
        return ReplicaConnectionState.AWAIT_REPORT
    if conn.start_offset == -1:
        return ReplicaConnectionState.ASKED
    acknowledges = master.acked_offset(conn, profile) > 0
    return ReplicaConnectionState.ACKNOWLEDGES if acknowledges else ReplicaConnectionState.STARTED


# --- Whose acknowledgements count --------------------------------------------------------------------------------------


def acks(replicas: Replicas, profile: Profile) -> list[tuple[str, int]]:
    """(replica, acknowledgement) of each connection."""
    return [(one.replica, master.acked_offset(one.conn, profile)) for one in replicas.connections]


def slaves_of(replicas: Replicas, profile: Profile) -> Slaves:
    """What the puts are told of the slaves.

    Spec: HA-G-4 "a connection counts as a slave from its accept on" in classic; HA-G-5 "a connection MUST count as a slave
    from its first acknowledgement on" in hardened; HA-G-31 "Connections of one replica MUST count once".
    """
    if profile.forgets_lost_slaves:
        count = len({replica for replica, ack in acks(replicas, profile) if ack})
    else:
        count = len(replicas.connections)
    return Slaves(count, replicas.push2_slave_max_offset)
