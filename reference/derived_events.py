"""What can happen to a store whose consume queues and index are watched: a schedule of the world `queues` is a sequence of these.

Records come into the log; what is derived from it is dispatched, flushed, lost, made again, deleted and read. Plain data, for
both sides. Offsets of queues count entries; times are ms of the model's clock.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Put:
    """A message comes into the log: on a master by a put, on a slave by its bytes.

    count: on a master, that many messages of one size and the same properties, by one append. handed: the put hands over what the
    dispatch needs of it; otherwise the dispatch reads it from the log. skips: on a slave, queue offsets that no message has.
    missing: on a slave, bytes at the record's end that come with the next message.
    """

    topic: str
    queue_id: int
    size: int  # of the body
    properties: str  # as stored: name 0x01 value 0x02 ...
    sys_flag: int = 0
    count: int = 1
    handed: bool = True
    skips: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes; a negative number: somebody sets the clock back."""

    ms: int


@dataclass(frozen=True, slots=True)
class Dispatch:
    """The dispatch goes on by `most` messages at most; 0: by all that are there."""

    most: int


@dataclass(frozen=True, slots=True)
class Flush:
    """A flush of the log; of the full files of queues; or of all queues and the index, and then of the checkpoint."""

    what: Literal["log", "full_files", "all"]


@dataclass(frozen=True, slots=True)
class Expire:
    """The first `files` files of the log are deleted. cleans: queues and index follow; otherwise they do so at a later round."""

    files: int
    cleans: bool


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """A broker deletes a topic: its messages of now are hidden."""

    topic: str


@dataclass(frozen=True, slots=True)
class Get:
    """A consumer reads at most `count` messages of a queue. back: counted from the queue's end backwards."""

    topic: str
    queue_id: int
    back: int
    count: int


@dataclass(frozen=True, slots=True)
class Seek:
    """A consumer asks where in a queue a time is. back_ms: counted from the model's clock backwards."""

    topic: str
    queue_id: int
    back_ms: int
    upper: bool


@dataclass(frozen=True, slots=True)
class Query:
    """An operator asks for the newest `most` messages with a key of a span of time, as in `Seek`."""

    topic: str
    key: str
    most: int
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The process dispatches what is there, flushes all, and ends."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The process ends at once; the operating system keeps what was written."""


@dataclass(frozen=True, slots=True)
class PowerCut:
    """The machine fails. lost: records at the end of the log, of those that were not flushed. choice: says of each sector of
    queues and index whether it is as it was written or as it was flushed.
    """

    lost: int
    choice: int
    sector_size: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Somebody damages files while no process runs.

    entry: the entry `at` places before the last of a queue becomes zeros. last_file: a queue loses its last file. queue: all its
    files. index_entry, index_file: the same with the last file of the index.
    """

    what: Literal["entry", "last_file", "queue", "index_entry", "index_file"]
    topic: str = ""
    queue_id: int = 0
    at: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """A process opens the store and recovers it. most: messages that it dispatches before the next event; 0: all, and it serves."""

    is_master: bool
    most: int


Event = Put | Tick | Dispatch | Flush | Expire | DeleteTopic | Get | Seek | Query | Stop | Kill | PowerCut | Damage | Start
