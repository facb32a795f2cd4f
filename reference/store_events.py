"""What can happen to a store of one machine: a schedule of the world `store` is a sequence of these. Plain data.

No thread runs: one round of a service is an event, and a crash comes between two events.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Put:
    """A producer's message. sys_flag: 0, or the bits of a part of a transaction."""

    topic: str
    body: bytes
    properties: str  # as stored: name 0x01 value 0x02 ...
    queue_id: int
    sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class PutBatch:
    """A producer's batch: messages of one queue that differ in their bodies."""

    topic: str
    bodies: tuple[bytes, ...]
    properties: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes; a negative number: somebody sets the clock back."""

    ms: int


@dataclass(frozen=True, slots=True)
class Flush:
    """One round of the thread that flushes the log, where `least_pages` pages of a file have new bytes."""

    least_pages: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The dispatch goes on to the end of the log."""


@dataclass(frozen=True, slots=True)
class FlushDerived:
    """One thorough round of the thread that flushes queues and index, and writes the checkpoint."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """One round of the thread that makes the next file ahead of the writer: it does so if the last one is half full."""


@dataclass(frozen=True, slots=True)
class DiskFull:
    """From now on the disk has no room for a file of the log above the space that is to stay free, or it has again."""

    is_full: bool


@dataclass(frozen=True, slots=True)
class WatchSpace:
    """One round of the watch over the free space: puts are refused while there is too little."""


@dataclass(frozen=True, slots=True)
class DiskFails:
    """After `after` more syncs of files of the log all others fail; a negative number: none fails any more."""

    after: int


@dataclass(frozen=True, slots=True)
class Clean:
    """One round of the deletion of files, at an hour of the day.

    used_percent: of the disk, which is as large as a hundred files. needed_size: a peer needs that many bytes of the log's end;
    a negative number: nobody needs any.
    """

    hour: int
    used_percent: int
    needed_size: int


@dataclass(frozen=True, slots=True)
class Close:
    """The process stops by itself. What is not dispatched yet stays so."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The process is killed: what it has written is in the system's memory, and no more of it comes."""


@dataclass(frozen=True, slots=True)
class PowerCut:
    """The machine loses its power, whether the store is open or not. See store_disk.py.

    pages: bit n says whether the sectors of number n, n + 64, ... reach the disk with what was written since their last sync.
    names: how many of the changes of names that no sync has covered reach it. torn: bytes that are new in the first sector of
    the log that is lost; if there are any, what was appended behind that sector is lost as well.
    """

    pages: int
    names: int
    torn: int


@dataclass(frozen=True, slots=True)
class Open:
    """A process opens the store. The disk works again."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The disk of a closed store returns other bytes than were written: in the log's file number `file` (modulo their number)
    from `position` on, each xored with `mask`; 0: zeros in place of them.
    """

    file: int
    position: int
    size: int
    mask: int


@dataclass(frozen=True, slots=True)
class Shorten:
    """Somebody cuts a file of a closed store's log to a length."""

    file: int
    length: int


@dataclass(frozen=True, slots=True)
class Heal:
    """The files of a damaged store are brought back as they were before."""


Event = (
    Put
    | PutBatch
    | Tick
    | Flush
    | Dispatch
    | FlushDerived
    | Prepare
    | DiskFull
    | WatchSpace
    | DiskFails
    | Clean
    | Close
    | Kill
    | PowerCut
    | Open
    | Damage
    | Shorten
    | Heal
)
