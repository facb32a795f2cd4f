"""A pull: the checks, what is read of the queue, and the answer.

    request -> check -> get_message (which entries, from where to go on) -> answer (code, fields, records)

A queue is its entries, and a log is the range of its offsets. An entry says where a message is and what hash its tag has; a
pull looks at nothing else. Records are named by the offsets at which they begin.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from rocketmq_ha.reference.consume_queue import Entry, is_filler
from rocketmq_ha.reference.java_string import hash_code
from rocketmq_ha.spec.role import BrokerRole

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4  # HA-P-2 "MUST read three bits of sysFlag"
READ = 4  # the bit of a permission
LOOKED_AT = 800  # entries: 16,000 bytes of them
MASTER_ID = 0

SUCCESS, SYSTEM_ERROR, NO_PERMISSION, TOPIC_NOT_EXIST = 0, 1, 16, 17
PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED = 19, 20, 21
SUBSCRIPTION_PARSE_FAILED, SUBSCRIPTION_NOT_EXIST, SUBSCRIPTION_NOT_LATEST, GROUP_NOT_EXIST = 23, 24, 25, 26


class Status(Enum):
    """RocketMQ's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


# --- What a broker has -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queue:
    """The entries from `first` on. `min_offset`: the first whose message the log still has; `file_entries`: of a file."""

    entries: tuple[Entry, ...] = ()
    first: int = 0
    min_offset: int = 0
    file_entries: int = 300_000

    @property
    def max_offset(self) -> int:
        return self.first + len(self.entries)


@dataclass(frozen=True, slots=True)
class LogRange:
    """The bytes that the commit log has."""

    min_offset: int = 0
    max_offset: int = 0

    def has(self, entry: Entry) -> bool:
        return self.min_offset <= entry.offset and entry.offset + entry.size <= self.max_offset


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a batch holds, and how far from the end of the log a message still counts as in memory, in bytes."""

    memory: int
    messages_in_memory: int = 32
    bytes_in_memory: int = 262_144
    messages_on_disk: int = 8
    bytes_on_disk: int = 65_536


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a consumer wants of a topic. `codes`: the hashes of its tags."""

    sub_string: str = "*"
    codes: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str | None = "TAG"
    class_filter_mode: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """The settings of a consumer group that a pull looks at, with RocketMQ's defaults."""

    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    broker_id: int = MASTER_ID
    which_broker_when_consume_slowly: int = 1


@dataclass(frozen=True, slots=True)
class Topic:
    perm: int = 6
    read_queue_nums: int = 4


@dataclass(frozen=True, slots=True)
class Consumers:
    """What the heartbeats of a group have told: how it consumes, and its subscriptions by topic."""

    is_broadcasting: bool = False
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broker:
    """All that the decision of a pull depends on."""

    bounds: Bounds
    role: BrokerRole = BrokerRole.ASYNC_MASTER
    permission: int = 6
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False
    is_connected_to_master: bool = False
    groups: Mapping[str, Group] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    consumers: Mapping[str, Consumers] = field(default_factory=dict)
    queues: Mapping[tuple[str, int], Queue] = field(default_factory=dict)
    log: LogRange = LogRange()

    @property
    def corrects_offsets(self) -> bool:
        """HA-R-31 "does not correct the offset of the pull": a slave, unless it is told to."""
        return self.role is not BrokerRole.SLAVE or self.offset_check_in_slave


# --- The request -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The fields of a request. HA-P-1 "by the same rules", whatever its code is."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int = 32
    sys_flag: int = 0
    commit_offset: int = 0
    suspend_timeout_millis: int = 0
    sub_version: int = 0
    subscription: str | None = None
    expression_type: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """code, and what the remark begins with; for an answer that looked into the queue, its fields and its records."""

    code: int
    status: Status | None = None
    suggest_which_broker_id: int | None = None
    next_begin_offset: int | None = None
    min_offset: int | None = None
    max_offset: int | None = None
    records: tuple[int, ...] = ()  # the offsets at which they stand
    is_parked: bool = False  # there is no answer yet
    commits: int | None = None  # the offset that the broker stores


def tags(sub_string: str | None) -> tuple[str, ...] | None:
    """The tags of an expression; none of them for `*`. None if it cannot be built.

    Spec: HA-P-4 "Any other is split at `||`; blanks around a tag are dropped, and so are empty tags".

    >>> tags("a || b||"), tags("*"), tags(" "), tags("||||"), tags("|||")
    (('a', 'b'), (), (), None, ('|',))
    """
    if sub_string in (None, "", "*"):
        return ()
    assert sub_string is not None
    parts = sub_string.split("||")
    while parts and not parts[-1]:  # as Java's split leaves them out
        parts.pop()
    if not parts:
        return None
    blanks = "".join(map(chr, range(0x21)))
    return tuple(tag for part in parts if (tag := part.strip(blanks)))


def build(sub_string: str | None, expression_type: str | None) -> Subscription | None:
    """The subscription of a request. HA-P-4 "A subscription in the request MUST be built as follows". None: it cannot."""
    if expression_type not in (None, "TAG"):
        return Subscription(sub_string, expression_type=expression_type) if sub_string else None
    found = tags(sub_string)
    if found is None:
        return None
    return Subscription(sub_string or "*", frozenset(map(hash_code, found)))


def is_tag_type(expression_type: str | None) -> bool:
    """HA-P-6 "An `expressionType` that is missing or empty counts as TAG"."""
    return expression_type in (None, "", "TAG")


def check(broker: Broker, request: PullRequest) -> Answer | tuple[Group, Subscription]:
    """The refusal, or what is needed to go on. HA-P-3 "MUST make the checks of the table in its order"; HA-R-30.

    HA-R-30 "A pull that is refused is answered with another code".
    """
    # HA-P-13 "A pull with a negative `maxMsgNums` MUST be answered with SYSTEM_ERROR".
    if request.max_msg_nums < 0:
        return Answer(SYSTEM_ERROR)
    if not broker.permission & READ:
        return Answer(NO_PERMISSION)
    group = broker.groups.get(request.consumer_group)
    if group is None:
        return Answer(GROUP_NOT_EXIST)
    if not group.consume_enable:
        return Answer(NO_PERMISSION)
    topic = broker.topics.get(request.topic)
    if topic is None:
        return Answer(TOPIC_NOT_EXIST)
    if not topic.perm & READ:
        return Answer(NO_PERMISSION)
    if not 0 <= request.queue_id < topic.read_queue_nums:
        return Answer(SYSTEM_ERROR)
    if request.sys_flag & SUBSCRIPTION:
        subscription = build(request.subscription, request.expression_type)
        if subscription is None:
            return Answer(SUBSCRIPTION_PARSE_FAILED)
    else:
        consumers = broker.consumers.get(request.consumer_group)
        if consumers is None:
            return Answer(SUBSCRIPTION_NOT_EXIST)
        if consumers.is_broadcasting and not group.consume_broadcast_enable:
            return Answer(NO_PERMISSION)
        subscription = consumers.subscriptions.get(request.topic)
        if subscription is None:
            return Answer(SUBSCRIPTION_NOT_EXIST)
        if subscription.sub_version < request.sub_version:
            return Answer(SUBSCRIPTION_NOT_LATEST)
    # HA-P-6 "MUST answer a pull that has one with SYSTEM_ERROR".
    if not is_tag_type(subscription.expression_type):
        return Answer(SYSTEM_ERROR)
    return group, subscription


# --- Reading ---------------------------------------------------------------------------------------------------------


def matches(subscription: Subscription, tags_code: int) -> bool:
    """Whether a consumer gets a message. HA-P-5 "A message MUST be given to a consumer if its expression is `*`"."""
    if subscription.sub_string == "*" or subscription.class_filter_mode:
        return True
    low = tags_code % (1 << 32)
    return (low if low < 1 << 31 else low - (1 << 32)) in subscription.codes


@dataclass(frozen=True, slots=True)
class Got:
    """What was read of a queue. `lag`: bytes of the log from the last message whose entry was looked at to the end."""

    status: Status
    next_begin_offset: int
    min_offset: int
    max_offset: int
    records: tuple[int, ...] = ()
    lag: int = 0


def get_message(
    queue: Queue, log: LogRange, queue_offset: int, max_msg_nums: int, subscription: Subscription, bounds: Bounds
) -> Got:
    """The outcome for a master: HA-P-7 "MUST be those of the first row of the table that applies".

    Spec: HA-ST-37 "through the consume queue, which says where to read, to the commit log, which has the message".
    """
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return Got(Status.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if queue_offset < low:
        return Got(Status.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return Got(Status.OFFSET_OVERFLOW_ONE, high, low, high)
    if queue_offset > high:
        return Got(Status.OFFSET_OVERFLOW_BADLY, high, low, high)
    end_of_file = queue_offset - queue_offset % queue.file_entries + queue.file_entries
    if queue_offset < queue.first:
        return Got(Status.OFFSET_FOUND_NULL, end_of_file, low, high)
    # HA-P-8 "A broker MUST look at one entry after the other", "the greater of 800 and `maxMsgNums`".
    stop = min(high, end_of_file, queue_offset + max(LOOKED_AT, max_msg_nums))
    records: list[int] = []
    size, lag, is_removing = 0, 0, False
    at = queue_offset
    while at < stop:
        entry = queue.entries[at - queue.first]
        if is_filler(entry):  # HA-P-12 "MUST be passed over, and MUST NOT count for the batch"
            at += 1
            continue
        # HA-R-21 "The lag MUST be counted", "whether or not it matched the subscription", also if it does not fit any more.
        lag = log.max_offset - entry.offset
        if records and is_the_batch_full(len(records), size, entry, max_msg_nums, lag, bounds):
            break
        at += 1
        if not matches(subscription, entry.tags_code):
            continue
        if not log.has(entry):  # HA-P-11 "whose message the log does not have any more, MUST be passed over"
            is_removing = True
            continue
        records.append(entry.offset)
        size += entry.size
    status = Status.FOUND if records else Status.MESSAGE_WAS_REMOVING if is_removing else Status.NO_MATCHED_MESSAGE
    return Got(status, at, low, high, tuple(records), lag)


def is_the_batch_full(count: int, size: int, entry: Entry, max_msg_nums: int, lag: int, bounds: Bounds) -> bool:
    """HA-P-9 "The batch MUST be full before an entry if it has a message already".

    HA-P-10 "MUST count as on disk if the end of the commit log is further from its offset than the memory bound".
    """
    if lag > bounds.memory:
        messages, most = bounds.messages_on_disk, bounds.bytes_on_disk
    else:
        messages, most = bounds.messages_in_memory, bounds.bytes_in_memory
    return count >= max_msg_nums or size + entry.size > most or count >= messages


# --- The answer ------------------------------------------------------------------------------------------------------


def process_request(broker: Broker, request: PullRequest, broker_allow_suspend: bool = True) -> Answer:
    """Answer a pull, or park it. `broker_allow_suspend`: False for one that was parked and is looked at again.

    HA-P-14 "MUST have the name of the outcome as its remark", "Its body MUST be the records of the batch".
    HA-R-26 "MUST answer 0 (SUCCESS) with messages".
    """
    checked = check(broker, request)
    if isinstance(checked, Answer):
        return checked
    group, subscription = checked
    queue = broker.queues.get((request.topic, request.queue_id), Queue())
    got = get_message(queue, broker.log, request.queue_offset, request.max_msg_nums, subscription, broker.bounds)
    looked = (Status.FOUND, Status.NO_MATCHED_MESSAGE, Status.MESSAGE_WAS_REMOVING)
    next_begin_offset = got.next_begin_offset
    if got.status not in looked and not broker.corrects_offsets:
        next_begin_offset = request.queue_offset
    code = code_of(got.status, request.queue_offset)
    suggested = suggest_which_broker_id(broker, group, got.lag)
    # HA-R-31 "A slave answers 20 where a master answers 21".
    is_moved = code == PULL_OFFSET_MOVED and not broker.corrects_offsets
    if is_moved:
        code, suggested = PULL_RETRY_IMMEDIATELY, group.broker_id
    # HA-P-16 "A pull with bit 2 that would be answered 19 MUST be parked"; HA-R-29 "MUST NOT answer 19 to a pull".
    # HA-R-57 "MUST park a pull with bit 2 of `sysFlag` that it would answer 20 in place of 21".
    waits = code == PULL_NOT_FOUND or (is_moved and not broker.is_connected_to_master)
    is_parked = waits and broker_allow_suspend and bool(request.sys_flag & SUSPEND)
    # HA-P-15 "MUST store `commitOffset` as the group's offset of the queue", "A slave MUST NOT store it".
    stores = broker_allow_suspend and bool(request.sys_flag & COMMIT_OFFSET) and broker.role is not BrokerRole.SLAVE
    return Answer(
        code,
        got.status,
        suggested,
        next_begin_offset,
        got.min_offset,
        got.max_offset,
        got.records,
        is_parked,
        request.commit_offset if stores else None,
    )


def code_of(status: Status, queue_offset: int) -> int:
    """The table below HA-R-26. HA-R-6 "A slave answers pulls whatever `slaveReadEnable` says": it is not asked."""
    match status:
        case Status.FOUND:
            return SUCCESS
        case Status.OFFSET_OVERFLOW_ONE | Status.OFFSET_FOUND_NULL:
            return PULL_NOT_FOUND
        case Status.NO_MATCHED_MESSAGE | Status.MESSAGE_WAS_REMOVING:
            return PULL_RETRY_IMMEDIATELY
        case Status.OFFSET_TOO_SMALL | Status.OFFSET_OVERFLOW_BADLY:
            return PULL_OFFSET_MOVED
        case Status.NO_MESSAGE_IN_QUEUE:
            return PULL_OFFSET_MOVED if queue_offset else PULL_NOT_FOUND


def suggest_which_broker_id(broker: Broker, group: Group, lag: int) -> int:
    """HA-R-20 "MUST suggest the `brokerId` to pull from next"; HA-R-24 "MUST NOT suggest more than one slave of its group".

    HA-R-22 "A slave MUST NOT be suggested unless `slaveReadEnable` is set"; HA-R-21 "The bound MUST be the machine's memory".
    """
    if not broker.slave_read_enable:
        return MASTER_ID
    return group.which_broker_when_consume_slowly if lag > broker.bounds.memory else group.broker_id
