"""What can happen to a broker that consumers read from: the events of the world `reads`.

There is one topic with a few queues, one group of consumers, and a log whose files begin to go.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Message:
    """A message that is dispatched.

    size: bytes of its record. gap: bytes of the log before it that are of other topics. skipped: queue offsets before it whose
    messages are missing in the log. high: of the upper 32 bits of its tags code.
    """

    queue_id: int
    size: int
    tag: str
    gap: int = 0
    skipped: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A round of the dispatch: messages that reach their queues together."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Pull:
    """A consumer pulls. Its offset is 0, or that of an end of the queue, and `more`. lite: a LITE_PULL_MESSAGE (361)."""

    channel: int
    queue_id: int
    at: Literal["zero", "min", "max"]
    more: int = 0
    max_msg_nums: int = 32
    sys_flag: int = 4
    suspend_timeout_millis: int = 15_000
    subscription: str | None = "*"
    expression_type: str | None = None
    sub_version: int = 0
    commit_offset: int = 0
    lite: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes."""

    ms: int


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """The connection of a consumer ends, and it has another one at once."""

    channel: int


@dataclass(frozen=True, slots=True)
class Expire:
    """The first files of the log are deleted, and then those of the queues. queues: False where these are not yet."""

    files: int
    queues: bool = True


@dataclass(frozen=True, slots=True)
class SetTopic:
    """The topic is created, changed, or deleted (its queues stay for now)."""

    exists: bool = True
    perm: int = 6
    read_queue_nums: int = 3


@dataclass(frozen=True, slots=True)
class SetGroup:
    """The consumer group is created, changed or deleted."""

    exists: bool = True
    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1


@dataclass(frozen=True, slots=True)
class SetConsumers:
    """What the heartbeats of the group's consumers say: nothing, nothing of the topic, or a subscription of it."""

    connected: bool = True
    is_broadcasting: bool = False
    has_subscribed: bool = True
    sub_string: str = "*"
    sub_version: int = 2
    expression_type: str = "TAG"
    class_filter_mode: bool = False


@dataclass(frozen=True, slots=True)
class MasterLink:
    """A slave's connection to its master comes or goes."""

    is_connected: bool


@dataclass(frozen=True, slots=True)
class Restart:
    """The broker shuts down, and starts again over its store."""


Event = Dispatch | Pull | Tick | CloseChannel | Expire | SetTopic | SetGroup | SetConsumers | MasterLink | Restart
