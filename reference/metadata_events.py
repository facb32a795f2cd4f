"""What can happen to the tables of masters and of their slave: a schedule is a sequence of these. Plain data, for both sides.

`master` is the number of one. A process is a master's number, or SLAVE.
"""

from dataclasses import dataclass
from typing import Final, Literal

SLAVE: Final = -1
Field = Literal["from", "changed", "body"]
Part = Literal["deleted", "topics", "groups", "offsets"]


# --- Masters ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PutTopic:
    master: int
    name: str
    queue_nums: int


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    master: int
    name: str


@dataclass(frozen=True, slots=True)
class PutGroup:
    master: int
    name: str
    retry_max_times: int


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """removes: its offsets are removed, too."""

    master: int
    name: str
    removes: bool


@dataclass(frozen=True, slots=True)
class PutMessage:
    """The log of a process grows by a message of a queue: a producer's, or one that its slave link has brought."""

    process: int
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A consumer commits an offset to a process."""

    process: int
    topic: str
    group: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeliverDelayed:
    """The first delay level of a master comes to an offset."""

    master: int
    progress: int


@dataclass(frozen=True, slots=True)
class RestartMaster:
    """It ends, and begins a new life. saves: it is stopped, and not killed."""

    master: int
    saves: bool


# --- The slave and the network ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RestartSlave:
    saves: bool


@dataclass(frozen=True, slots=True)
class Follow:
    """A name server tells the slave the address of its master. master: a number; SLAVE: its own address; -2: of none."""

    master: int


@dataclass(frozen=True, slots=True)
class Reach:
    """The oldest question that no master has answered reaches its master."""


@dataclass(frozen=True, slots=True)
class Arrive:
    """The oldest answer reaches the slave. damage: of which part of it."""

    damage: Field | None = None
    part: Part = "topics"


@dataclass(frozen=True, slots=True)
class Repeat:
    """The oldest question gets what some master has answered to such a question before: the `nth` last."""

    nth: int


@dataclass(frozen=True, slots=True)
class BreakConnection:
    """The connection to a master breaks, with the questions on it."""

    master: int


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a process refuses to write, or takes files again."""

    process: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes; then every loop has a turn."""

    ms: int


Event = (
    PutTopic | DeleteTopic | PutGroup | DeleteGroup | PutMessage | Commit | DeliverDelayed | RestartMaster
    | RestartSlave | Follow | Reach | Arrive | Repeat | BreakConnection | Disk | Tick
)  # fmt: skip
