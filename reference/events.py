"""What can happen to a cluster: a schedule is a sequence of these. Plain data, for both worlds."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Put:
    """A producer's message reaches the master.

    wait: it waits for a slave (SYNC_MASTER). pauses: its thread stops between the append and the wait, until a `Resume`, as
    RocketMQ's may to wait for the disk; others overtake it then. In hardened append and wait are one step, and nothing pauses.
    """

    topic: str
    body: bytes
    properties: str  # as stored: name 0x01 value 0x02 ...
    queue_id: int
    wait: bool
    pauses: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """The `nth` of the producers that have paused, from 0 in the order of their appends, goes on and begins to wait."""

    nth: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes."""

    ms: int


@dataclass(frozen=True, slots=True)
class Connect:
    """A slave that has no connection opens one. The sockets then take `room` and `slave_room` bytes before they would block."""

    slave: int
    room: int
    slave_room: int


@dataclass(frozen=True, slots=True)
class Grant:
    """From now on the master's socket of a slave's link takes `room` bytes before it would block."""

    slave: int
    room: int


@dataclass(frozen=True, slots=True)
class DeliverFrames:
    """The network delivers up to `nbytes` of what the master has sent; a negative number: all but so many."""

    slave: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class DeliverReports:
    """The network delivers up to `nbytes` of what the slave has sent; a negative number: all but so many."""

    slave: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ForgeReport:
    """Eight bytes that no honest slave would send follow what the slave has sent: there is no authentication."""

    slave: int
    offset: int


@dataclass(frozen=True, slots=True)
class ForgeHeader:
    """A header that no honest master would send follows the last whole frame: of the next offset, and of any size."""

    slave: int
    body_size: int


@dataclass(frozen=True, slots=True)
class Clog:
    """The slave's socket takes `room` bytes and no more until its link ends: a report may be cut."""

    slave: int
    room: int


@dataclass(frozen=True, slots=True)
class DiskFull:
    """From now on the slave's disk takes no byte of what is appended, or takes all again. Its process goes on (quirk 42)."""

    slave: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """The link breaks and what is in flight is lost. `tell`: the ends that notice; the other holds a stale connection."""

    slave: int
    tell: Literal["both", "slave", "master"]


@dataclass(frozen=True, slots=True)
class RestartSlave:
    """The slave's process ends at once, and starts again over what its files hold."""

    slave: int


@dataclass(frozen=True, slots=True)
class RestartMaster:
    """The master's process ends and starts again over what its files hold. `clean`: it ends its waiting puts first.

    lost: records at the end of its log that had not been flushed, and that a power cut takes; that takes a millisecond, too.
    The first record behind files that were deleted is none of them.
    """

    clean: bool
    lost: int = 0


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """The master deletes the first file of its log, unless it is the last. A slave may still need it (HA-ST-66)."""


Event = (
    Put
    | Resume
    | Tick
    | Connect
    | Grant
    | DeliverFrames
    | DeliverReports
    | ForgeReport
    | ForgeHeader
    | Clog
    | DiskFull
    | Cut
    | RestartSlave
    | RestartMaster
    | DeleteFile
)
