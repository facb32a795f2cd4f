"""What a client decides: the queues of a route, the queue of a send, its retries, the broker of a pull, and where it goes on.

    send:   queue --answer--> stored | failed
              ^         |
              +--- try again, at most twice, within one timeout; without a queue or a connection every second

    pull:   begin --14, 29, 30--> pull at an offset --answer--> pull at the next offset, at the suggested broker

Spec: HA-C-1 to HA-C-14, HA-C-18, HA-R-23, HA-R-25.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from rocketmq_ha.reference.replace import replace

MASTER = 0
READ, WRITE = 4, 2
RETRY_TOPIC = "%RETRY%"


# --- Routes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of a topic."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Group:
    """A group of brokers, and what it has of the topic. brokers: (id, address) of each; None if the group is not listed."""

    name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    brokers: tuple[tuple[int, str], ...] | None


@dataclass(frozen=True, slots=True)
class Route:
    """order: the pairs of orderTopicConf."""

    groups: tuple[Group, ...]
    order: tuple[tuple[str, int], ...] = ()


def default_route(route: Route) -> Route:
    """HA-C-3 "MUST send by the route of TBW102, with no more than 4 queues of each broker"."""

    def reduced(group: Group) -> Group:
        nums = group.read_queue_nums if group.read_queue_nums < 4 else 4
        return replace(group, read_queue_nums=nums, write_queue_nums=nums)

    return replace(route, groups=tuple(map(reduced, route.groups)))


def publish_queues(topic: str, route: Route) -> tuple[Queue, ...]:
    """HA-C-4 "MUST send only to the write queues of groups that may be written"; HA-C-5 "sorted by the name of their group"."""
    if route.order:
        return tuple(Queue(topic, name, number) for name, count in route.order for number in range(count))
    found = [
        (group.name, number)
        for group in route.groups
        if group.perm & WRITE == WRITE and MASTER in dict(group.brokers or ())
        for number in range(group.write_queue_nums)
    ]
    return tuple(Queue(topic, name, number) for name, number in sorted(found))


def subscribe_queues(topic: str, route: Route) -> frozenset[Queue]:
    """The read queues of the groups that may be read."""
    return frozenset(
        Queue(topic, group.name, number)
        for group in route.groups
        if group.perm & READ == READ
        for number in range(group.read_queue_nums)
    )


@dataclass(frozen=True, slots=True)
class Known:
    """What a client knows of a topic's route: the last one, when to ask again (ms), and which name server to ask."""

    route: Route | None = None
    ask_at: int = 0
    name_server: int = 0


def on_route(known: Known, answer: Route | int | None, now_ms: int, name_servers: int) -> Known:
    """The answer to 105: a route, a code, or None if the name server did not answer.

    HA-C-1 "MUST ask a name server for the route of a topic", "every 30 s from then on"; "MUST be followed by the next one".
    HA-C-2 "MUST stay in use while no name server answers, and where the answer is TOPIC_NOT_EXIST".
    """
    if isinstance(answer, Route):
        return Known(answer, now_ms + 30_000, known.name_server)
    if answer is None:
        return Known(known.route, known.ask_at, (known.name_server + 1) % name_servers)
    return Known(known.route, now_ms + 30_000, known.name_server)


# --- Sends -----------------------------------------------------------------------------------------------------------


def select_one_message_queue(queues: tuple[Queue, ...], index: int, last: str | None) -> tuple[Queue, int]:
    """HA-C-5 "MUST take the queues in turn, sorted by the name of their group and their number, and, when it tries again".

    Returns: the queue, and the index of the next call. Where all queues are of the group that failed, RocketMQ has looked at
    each of them, and takes one more.
    """
    turn = [queues[(index + 1 + step) % len(queues)] for step in range(len(queues) + 1)]
    others = [step for step, queue in enumerate(turn[:-1]) if last is None or queue.broker_name != last]
    step = others[0] if others else len(queues)
    return turn[step], index + 1 + step


STATUSES = {0: "SEND_OK", 10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE", 12: "FLUSH_SLAVE_TIMEOUT"}
TRIED_AGAIN = (1, 2, 14, 16, 17, 204, 205, 1500)


def on_send_answer(code: int | None, attempts: int, left_ms: int, *, is_unsent: bool = False) -> str:
    """Return "stored", "again", "later" or "failed". is_unsent: there was no queue, or no connection.

    HA-C-16 "MUST be tried again every second until its timeout has passed".
    HA-C-6 "MUST be tried again, at most twice, and all its attempts together MUST NOT last longer than one timeout".
    """
    if code in STATUSES:
        return "stored"
    may_again = attempts < 3 and left_ms > 0
    if may_again and (code is None or code in TRIED_AGAIN):
        return "again"
    return "later" if is_unsent and left_ms > 0 else "failed"


def unique_id(ip: bytes, pid: int, number: int, since_month_ms: int, counter: int) -> str:
    """HA-C-7 "MUST get one before its first attempt, of the parts of the table in hexadecimal digits"."""
    ms = 0 if -1_000_000 < since_month_ms < 0 else since_month_ms % 2**32
    numbers = (pid % 2**16, 2), (number % 2**32, 4), (ms, 4), (counter % 2**16, 2)
    return (ip + b"".join(value.to_bytes(size, "big") for value, size in numbers)).hex().upper()


@dataclass(frozen=True, slots=True)
class Sent:
    """The part of a message that a producer looks at."""

    topic: str
    body_size: int
    delay_level: int = 0
    waits: bool = True


def compression_flag(message: Sent) -> int:
    """The bits of sysFlag. HA-C-8 "SHOULD be compressed with zlib, and `sysFlag` MUST then have the bits 1"."""
    return 1 | 3 << 8 if message.body_size >= 4096 else 0


def is_batch(messages: tuple[Sent, ...]) -> bool:
    """HA-C-9 "MUST have messages of one topic alone, none of them delayed or of a topic that begins with %RETRY%"."""
    plain = all(message.delay_level <= 0 and not message.topic.startswith(RETRY_TOPIC) for message in messages)
    alike = len({(message.topic, message.waits) for message in messages}) == 1
    return plain and alike


# --- Pulls -----------------------------------------------------------------------------------------------------------


def pull_broker(addrs: Mapping[int, str], suggested: int, failed: AbstractSet[str] = frozenset()) -> tuple[int, str] | None:
    """The id and address of the broker to pull from. failed: the addresses that have not answered within the last 3 s.

    HA-R-25 "MUST pull from another broker of the same `brokerName`"; HA-C-18 "MUST NOT take a broker that has not answered".
    """
    addrs = {each: address for each, address in addrs.items() if address not in failed} or addrs
    first = [suggested, suggested + 1] if suggested != MASTER else [MASTER]
    found = [each for each in first + sorted(addrs) if each in addrs]
    return (found[0], addrs[found[0]]) if found else None


def commit_broker(addrs: Mapping[int, str]) -> str | None:
    """HA-C-14 "to the broker of id 0 or, where there is none, to another of the group"."""
    return next((addrs[each] for each in sorted(addrs)), None)


def begin(topic: str, committed: int | None, start: str) -> int | str:
    """An offset, or "max" or "time" for the request that gives it. HA-C-10 "it begins as the table says"."""
    if committed is not None:
        return committed
    if topic.startswith(RETRY_TOPIC):
        return "max" if start == "timestamp" else 0
    starts: dict[str, int | str] = {"last": "max", "first": 0, "timestamp": "time"}
    return starts[start]


@dataclass(frozen=True, slots=True)
class Pulled:
    """An answer with code 0, 19, 20 or 21."""

    next_begin_offset: int
    suggested: int
    has_messages: bool


@dataclass(frozen=True, slots=True)
class Pull:
    """The next pull of a queue. node: the id in `pullFromWhichNodeTable`. at: ms, not before."""

    offset: int
    node: int
    at: int


def on_pull_answer(
    pull: Pull, asked_ms: int, answer: Pulled | None, now_ms: int, *, is_instead: bool = False, has_other: bool = False
) -> Pull:
    """How a queue goes on; None for any other answer, or none.

    is_instead: another broker was asked than the one to ask if all answered. has_other: there was no answer, and the route has
    a broker that has not failed.
    HA-C-11 "MUST go on at `nextBeginOffset` of an answer 0, 19, 20 or 21"; HA-C-12 "MUST NOT pull that queue again within 1 s";
    HA-C-18 "MUST at once pull that queue from another broker", "leads to a lesser offset MUST count as none"; HA-R-23 "MUST
    keep the suggested id for each queue, in `pullFromWhichNodeTable`".
    """
    if answer is None or (is_instead and answer.next_begin_offset < pull.offset):
        return replace(pull, at=now_ms if answer is None and has_other else now_ms + 1_000)
    has_changed = answer.has_messages or answer.next_begin_offset != pull.offset
    return Pull(answer.next_begin_offset, answer.suggested, now_ms if has_changed else max(now_ms, asked_ms + 1_000))


def is_wanted(expression: str, tags: str | None) -> bool:
    """HA-C-13 "MUST drop the messages whose TAGS is none of them"."""
    wanted = [] if expression == "*" else [part.strip() for part in expression.split("||") if part.strip()]
    return wanted == [] or tags in wanted


@dataclass(frozen=True, slots=True)
class Progress:
    """A queue: the offsets of the messages that were received and not consumed, and the offset of the next pull."""

    waiting: tuple[int, ...] = ()
    next_offset: int = 0


def on_received(progress: Progress, offsets: tuple[int, ...], next_offset: int) -> Progress:
    """An answer has come: the offsets of the messages that are wanted, and `nextBeginOffset`."""
    return Progress((*progress.waiting, *offsets), next_offset)


def on_consumed(progress: Progress, offset: int) -> Progress:
    """Messages are consumed in the order in which they came: those in front of the first one of this offset, and that one."""
    for index, each in enumerate(progress.waiting):
        if each >= offset:
            return replace(progress, waiting=progress.waiting[index + (each == offset) :])
    return replace(progress, waiting=())


def commit_offset(progress: Progress) -> int:
    """HA-C-14 "MUST NOT commit an offset in front of which a message is still to be consumed"."""
    return min((*progress.waiting, progress.next_offset))
