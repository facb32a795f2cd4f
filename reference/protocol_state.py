"""The data of the protocol level: the constants of a scope and the parts of a state, as spec/protocol.md lists them."""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.replace import replace
from rocketmq_ha.spec.profile import Profile

FORGED_REPORT: Final = 99  # beyond every log
NO_BOUND: Final = 99  # fall_behind_max of a scope without this bound
SLOTS: Final = (1, 2)  # the master has at most two connections of a slave; all but the current one are stale

Units = bytes  # a run of log; a unit is the epoch in which it was put, or, in the refinement (refinement.py), the byte itself


@dataclass(frozen=True, slots=True)
class Scope:
    """The constants that bound a run, and the profile."""

    slaves: int = 1
    max_puts: int = 0
    max_cuts: int = 0
    max_master_crashes: int = 0
    max_slave_crashes: int = 0
    max_deletes: int = 0
    max_forgeries: int = 0
    file_size: int = 2  # units
    batch: int = 2  # units
    sync_puts: bool = False
    replicas: int = 1  # slaves that must hold a waiting put (HA-G-30); 1 in classic
    fall_behind_max: int = NO_BOUND  # units; a put whose end is at least this far beyond push2 is refused (HA-G-3)
    acks_flushed: bool = False  # a slave flushes before it reports (HA-S-60)
    frame_window: int = 1  # frames in flight on a connection
    report_window: int = 1  # reports in flight on a connection
    # The profile: all False in classic, all True in hardened.
    checks: bool = False  # Profile.checks_reports
    forgets: bool = False  # Profile.forgets_lost_slaves
    at_once: bool = False  # Profile.reports_on_connect
    ignores_heartbeats: bool = False  # Profile.ignores_heartbeats
    coalesces: bool = False  # Profile.coalesces_reports
    overlaps: bool = False  # Profile.checks_overlap


def of_profile(scope: Scope, profile: Profile) -> Scope:
    """The scope with the switches of a profile; the other switches of a profile are below this level."""
    return replace(
        scope,
        checks=profile.checks_reports,
        forgets=profile.forgets_lost_slaves,
        at_once=profile.reports_on_connect,
        ignores_heartbeats=profile.ignores_heartbeats,
        coalesces=profile.coalesces_reports,
        overlaps=profile.checks_overlap,
    )


@dataclass(frozen=True, slots=True)
class Frame:
    """A transfer frame; one without units is a heartbeat."""

    offset: int
    units: Units


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection as the master holds it, with what is in flight on it."""

    req: int = -1  # slave_request_offset; set once
    ack: int = -1  # slave_ack_offset
    start: int = -1  # where the transfer started; set with the first `next`
    next: int = -1  # next_transfer_from_where; then only grows
    frames: tuple[Frame, ...] = ()  # to the slave; at most Scope.frame_window
    reports: tuple[int, ...] = ()  # to the master; at most Scope.report_window
    stale: bool = False  # the slave's end is gone, and the master has not noticed


@dataclass(frozen=True, slots=True)
class SlaveNode:
    """A slave's log and its end of a connection."""

    base: int = -1  # offset of the first file; -1: no files
    units: Units = b""
    slot: int = 0  # slot of its connection; 0: none
    reported: int = 0  # current_reported_offset; while it holds a connection, where its next unit belongs
    flushed: int = 0  # a crash loses nothing before it; stays 0 without Scope.acks_flushed


@dataclass(frozen=True, slots=True)
class Used:
    """The number of puts and of each fault so far."""

    puts: int = 0
    cuts: int = 0
    mcrashes: int = 0
    scrashes: int = 0
    deletes: int = 0
    forgeries: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """One master, its slaves, and the frames and reports in flight."""

    log: Units  # the master's, deleted units included
    flushed: int  # <= len(log); a crash may lose units beyond it
    epoch: int  # number of crashes of the master
    push2: int  # push2_slave_max_offset
    min: int  # units below it are deleted; a multiple of file_size
    waiting: tuple[int, ...]  # next offsets of the puts that wait, ascending
    conn: tuple[tuple[Connection | None, ...], ...]  # [slave - 1][slot - 1]
    slave: tuple[SlaveNode, ...]  # [slave - 1]
    used: Used


def initial(scope: Scope) -> State:
    """Empty logs, nobody connected."""
    conn = ((None,) * len(SLOTS),) * scope.slaves
    return State(b"", 0, 0, 0, 0, (), conn, (SlaveNode(),) * scope.slaves, Used())


def warm(scope: Scope) -> State:
    """A later start: one unit is put, and every slave is connected, holds it and has acknowledged it.

    The initial state reaches it, too; a scope that starts here spends its bounds on later events.
    """
    conn = Connection(req=0, ack=1, start=0, next=1)
    push2 = 1 if scope.slaves >= scope.replicas else 0
    none = (None,) * (len(SLOTS) - 1)
    slaves = (SlaveNode(0, b"\0", 1, 1, 1 if scope.acks_flushed else 0),) * scope.slaves
    return State(b"\0", 0, 0, push2, 0, (), ((conn, *none),) * scope.slaves, slaves, Used(puts=1))
