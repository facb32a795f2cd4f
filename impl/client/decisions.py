"""What a client decides: the queue of a send, whether to try again, the broker of a pull, and where a queue goes on.

Pure functions. Source: 4.9.8 TopicPublishInfo, DefaultMQProducerImpl, MQClientInstance, PullAPIWrapper, RebalancePushImpl.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from rocketmq_ha.impl.client.route_data import MASTER_ID, RETRY_GROUP_TOPIC_PREFIX, MessageQueue
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode

RETRY_TIMES_WHEN_SEND_FAILED: Final = 2
PULL_TIME_DELAY_MILLS_WHEN_EXCEPTION: Final = 1_000
AVOIDED_MS: Final = 3_000  # HA-C-18, a broker that has not answered
WAIT_FOR_MASTER_MS: Final = 1_000  # HA-C-16
IDLE_PULL_MS: Final = 1_000  # the least time between two pulls of a queue of which the first has changed nothing


class SendStatus(StrEnum):
    """The outcome of a message that is stored."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"


# HA-C-6, the table.
STORED: Final[Mapping[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}
RETRIED: Final[frozenset[int]] = frozenset(
    (
        *(ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION),
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_BUYER_ID, ResponseCode.NOT_IN_CURRENT_UNIT, ResponseCode.GO_AWAY),
    )
)
_MOVED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def select_one_message_queue(
    queues: Sequence[MessageQueue], index: int, last_broker_name: str | None = None
) -> tuple[MessageQueue, int]:
    """The queue of the next attempt.

    Args:  queues: not empty. index: what the call before returned; any number at first. last_broker_name: the group that has
    failed just now. Returns: the queue, and the next index.
    Spec: HA-C-5 "MUST take the queues in turn", "the next one of another group if there is one".
    """
    size = len(queues)
    for step in range(1, size + 1) if last_broker_name is not None else ():
        queue = queues[(index + step) % size]
        if queue.broker_name != last_broker_name:
            return queue, index + step
    index += 1 if last_broker_name is None else size + 1
    return queues[index % size], index


def is_tried_again(code: int | None, attempts: int, left_ms: int) -> bool:
    """Whether a send that has failed is tried again.

    Args:  code: of the answer; None if there was none. attempts: made so far. left_ms: of the one timeout.
    Spec: HA-C-6 "MUST be tried again, at most twice", "MUST NOT last longer than one timeout".
    """
    return (code is None or code in RETRIED) and attempts <= RETRY_TIMES_WHEN_SEND_FAILED and left_ms > 0


def is_waited_for(left_ms: int, *, is_unsent: bool) -> bool:
    """Whether a send that is not tried again at once is tried again later.

    Args:  is_unsent: there was no queue to send to, or no connection. left_ms: of the one timeout.
    Spec: HA-C-16 "MUST be tried again every second until its timeout has passed".
    """
    return is_unsent and left_ms > 0


class Broker(NamedTuple):
    """The broker to ask."""

    address: str
    is_slave: bool


def find_broker_address_in_subscribe(addrs: Mapping[int, str], broker_id: int, failed: Collection[str] = ()) -> Broker | None:
    """The broker of a group to pull from; None if the route has none.

    Args:  broker_id: the one that the last answer suggested. failed: addresses that have not answered within the last 3 s.
    Spec: HA-R-25 "MUST pull from another broker of the same `brokerName`"; of several, the one of the least id. HA-C-18 "MUST
    NOT take a broker that has not answered within the last 3 s while it has another".
    """
    if failed:
        addrs = {each: address for each, address in addrs.items() if address not in failed} or addrs
    wanted = (broker_id,) if broker_id == MASTER_ID else (broker_id, broker_id + 1)
    for each in (*wanted, *sorted(addrs)):
        if each in addrs:
            return Broker(addrs[each], each != MASTER_ID)
    return None


class ConsumeFromWhere(StrEnum):
    """Where a group begins a queue of which the broker knows no offset of it."""

    LAST = "last"
    FIRST = "first"
    TIMESTAMP = "timestamp"


def pull_from_where(topic: str, committed: int | None, start: ConsumeFromWhere) -> int | RequestCode:
    """Where to begin a queue: an offset, or the request to a broker that gives it.

    Args:  committed: the broker's answer to 14; None for 22.
    Spec: HA-C-10 "MUST begin a queue at the offset that the broker has of its group", "it begins as the table says".
    """
    if committed is not None:
        return committed
    is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    match start:
        case ConsumeFromWhere.FIRST:
            return 0
        case ConsumeFromWhere.LAST:
            return 0 if is_retry else RequestCode.GET_MAX_OFFSET
        case ConsumeFromWhere.TIMESTAMP:
            return RequestCode.GET_MAX_OFFSET if is_retry else RequestCode.SEARCH_OFFSET_BY_TIMESTAMP


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """The fields of an answer that has looked into the queue. code: 0, 19, 20 or 21."""

    code: int
    next_begin_offset: int
    suggest_which_broker_id: int
    has_messages: bool


@dataclass(frozen=True, slots=True)
class NextPull:
    """How a queue goes on. delay_ms: from the answer on."""

    offset: int
    broker_id: int
    delay_ms: int


def has_looked(code: int) -> bool:
    """Whether an answer with this code has the fields of `PullAnswer`. HA-R-26."""
    return code in _MOVED


def leads_back(offset: int, answer: PullAnswer, *, is_instead: bool) -> bool:
    """Whether an answer counts as none, since the broker may lack the end of the queue.

    Args:  is_instead: it is the answer of a broker that was asked because another one had failed.
    Spec: HA-C-18 "An answer of that other broker that leads to a lesser offset MUST count as none".
    """
    return is_instead and answer.next_begin_offset < offset


def next_pull(
    offset: int,
    broker_id: int,
    answer: PullAnswer | None,
    elapsed_ms: int,
    *,
    has_other: bool = False,
) -> NextPull:
    """How a queue goes on after a pull.

    Args:  offset, broker_id: of the pull. answer: None for any other answer, or none. elapsed_ms: since the question.
        has_other: there was no answer, and the route has a broker that has not failed.
    Spec: HA-C-11 "MUST go on at `nextBeginOffset`", "and at the same offset 1 s after any other answer"; HA-C-12 "MUST NOT pull
    that queue again within 1 s of its question"; HA-C-18 "MUST at once pull that queue from another broker"; HA-R-23 "MUST
    keep the suggested id for each queue".
    """
    if answer is None:
        return NextPull(offset, broker_id, 0 if has_other else PULL_TIME_DELAY_MILLS_WHEN_EXCEPTION)
    is_idle = not answer.has_messages and answer.next_begin_offset == offset
    delay_ms = max(0, IDLE_PULL_MS - elapsed_ms) if is_idle else 0
    return NextPull(answer.next_begin_offset, answer.suggest_which_broker_id, delay_ms)


def tags_of(expression: str) -> frozenset[str]:
    """The tags of a subscription: `*` or `a || b`. Empty for all messages.

    >>> sorted(tags_of("a || b"))
    ['a', 'b']
    """
    if expression in ("", "*"):
        return frozenset()
    return frozenset(tag for part in expression.split("||") if (tag := part.strip()))


def is_wanted(tags: frozenset[str], message_tags: str | None) -> bool:
    """HA-C-13 "MUST drop the messages whose TAGS is none of them"."""
    return not tags or message_tags in tags


def commit_broker(addrs: Mapping[int, str]) -> str | None:
    """Where offsets are read and committed. HA-C-14 "to the broker of id 0 or, where there is none, to another"."""
    return addrs[min(addrs)] if addrs else None
