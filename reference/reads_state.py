"""The state of a broker that consumers read from, and the names of its discrete states. reads.py has the steps."""

from dataclasses import dataclass
from enum import Enum

from rocketmq_ha.reference import consume_queue, mapped_file_queue, pull, pull_hold
from rocketmq_ha.reference.consume_queue import CQ_STORE_UNIT_SIZE, ConsumeQueue
from rocketmq_ha.reference.pull import Answer, Broker, LogRange, PullRequest, Queue, Status
from rocketmq_ha.reference.pull_hold import Hold
from rocketmq_ha.spec.role import BrokerRole

TOPIC, GROUP = "t", "g"
_EMPTY = Hold()


@dataclass(frozen=True, slots=True)
class ReadsSetup:
    """What does not change while a broker runs. Bounds as in reference/pull.py and pull_hold.py; sizes in bytes."""

    is_slave: bool = False
    permission: int = 6
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False
    queues: int = 3
    file_entries: int = 8  # of a file of a queue
    log_file_size: int = 64
    memory: int = 1 << 40
    messages_in_memory: int = 32
    bytes_in_memory: int = 262_144
    messages_on_disk: int = 8
    bytes_on_disk: int = 65_536
    max_parked: int = 6
    max_parked_of_connection: int = 4
    max_parked_tags: int = 5
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000

    @property
    def role(self) -> BrokerRole:
        return BrokerRole.SLAVE if self.is_slave else BrokerRole.ASYNC_MASTER

    @property
    def hold(self) -> pull_hold.Settings:
        return pull_hold.Settings(
            self.max_parked,
            self.max_parked_of_connection,
            self.max_parked_tags,
            self.long_polling_enable,
            self.short_polling_time_mills,
        )

    @property
    def bounds(self) -> pull.Bounds:
        return pull.Bounds(
            self.memory, self.messages_in_memory, self.bytes_in_memory, self.messages_on_disk, self.bytes_on_disk
        )


@dataclass(frozen=True, slots=True)
class Reads:
    """broker: its tables, and the queues as a pull sees them. files: the same queues with their files."""

    now_ms: int
    broker: Broker
    files: tuple[ConsumeQueue, ...]
    sizes: tuple[tuple[int, int], ...] = ()  # (offset, size) of each record in the log
    hold: Hold = _EMPTY
    requests: tuple[tuple[int, PullRequest], ...] = ()  # of the parked pulls, by poll id
    polls: int = 0  # the next poll id
    answers: tuple[tuple[int, Answer], ...] = ()  # of the last step, by poll id
    committed: tuple[int, ...] = ()  # offsets that consumers committed in the last step


def new_reads(setup: ReadsSetup, now_ms: int) -> Reads:
    """An empty store, a topic and a group with the usual settings, and no consumer connected."""
    files = tuple(consume_queue.empty(TOPIC, number, setup.file_entries * CQ_STORE_UNIT_SIZE) for number in range(setup.queues))
    broker = Broker(
        setup.bounds,
        setup.role,
        setup.permission,
        setup.slave_read_enable,
        setup.offset_check_in_slave,
        groups={GROUP: pull.Group()},
        topics={TOPIC: pull.Topic(read_queue_nums=setup.queues)},
        log=LogRange(),
    )
    return Reads(now_ms, broker, files)


def as_read(queue: ConsumeQueue, before: Queue) -> Queue:
    """A queue as a pull sees it. before: the same queue, before entries were appended or files deleted."""
    files = queue.mapped_file_queue
    first, min_offset = (files.base or 0) // CQ_STORE_UNIT_SIZE, consume_queue.min_offset_in_queue(queue)
    known = before.entries[first - before.first :] if before.entries else ()
    entries = (*known, *consume_queue.entries(files.data[len(known) * CQ_STORE_UNIT_SIZE :]))
    assert mapped_file_queue.end(files) == (first + len(entries)) * CQ_STORE_UNIT_SIZE
    return Queue(entries, first, min_offset, files.file_size // CQ_STORE_UNIT_SIZE)


class PullState(Enum):
    """One pull: how it was answered, if it was. `_at_slave`: by a slave, which corrects no offset (HA-R-31)."""

    ARRIVED = "arrived"
    PARKED = "parked"
    DROPPED = "dropped"  # its connection has closed, or the broker
    FOUND = "found"
    NO_MATCHED_MESSAGE = "no_matched_message"
    MESSAGE_WAS_REMOVING = "message_was_removing"
    OFFSET_OVERFLOW_ONE = "offset_overflow_one"
    OFFSET_OVERFLOW_BADLY = "offset_overflow_badly"
    OFFSET_TOO_SMALL = "offset_too_small"
    NO_MESSAGE_IN_QUEUE = "no_message_in_queue"  # asked for from 0 on
    NO_MESSAGE_MOVED = "no_message_moved"  # asked for from elsewhere
    OFFSET_OVERFLOW_BADLY_AT_SLAVE = "offset_overflow_badly_at_slave"
    OFFSET_TOO_SMALL_AT_SLAVE = "offset_too_small_at_slave"
    NO_MESSAGE_MOVED_AT_SLAVE = "no_message_moved_at_slave"
    SYSTEM_ERROR = "system_error"
    SYSTEM_BUSY = "system_busy"
    NO_PERMISSION = "no_permission"
    TOPIC_NOT_EXIST = "topic_not_exist"
    GROUP_NOT_EXIST = "group_not_exist"
    SUBSCRIPTION_PARSE_FAILED = "subscription_parse_failed"
    SUBSCRIPTION_NOT_EXIST = "subscription_not_exist"
    SUBSCRIPTION_NOT_LATEST = "subscription_not_latest"


SYSTEM_BUSY = 2
_REFUSALS = {
    pull.SYSTEM_ERROR: PullState.SYSTEM_ERROR,
    SYSTEM_BUSY: PullState.SYSTEM_BUSY,
    pull.NO_PERMISSION: PullState.NO_PERMISSION,
    pull.TOPIC_NOT_EXIST: PullState.TOPIC_NOT_EXIST,
    pull.GROUP_NOT_EXIST: PullState.GROUP_NOT_EXIST,
    pull.SUBSCRIPTION_PARSE_FAILED: PullState.SUBSCRIPTION_PARSE_FAILED,
    pull.SUBSCRIPTION_NOT_EXIST: PullState.SUBSCRIPTION_NOT_EXIST,
    pull.SUBSCRIPTION_NOT_LATEST: PullState.SUBSCRIPTION_NOT_LATEST,
}


def answered(answer: Answer) -> PullState:
    """The state of a pull that is answered."""
    if answer.status is None:
        return _REFUSALS[answer.code]
    moved = answer.code in (pull.PULL_OFFSET_MOVED, pull.PULL_RETRY_IMMEDIATELY)
    name = answer.status.name
    if answer.status is Status.NO_MESSAGE_IN_QUEUE and moved:
        name = "NO_MESSAGE_MOVED"
    outside = answer.status in (Status.NO_MESSAGE_IN_QUEUE, Status.OFFSET_TOO_SMALL, Status.OFFSET_OVERFLOW_BADLY)
    return PullState[f"{name}_AT_SLAVE" if outside and answer.code == pull.PULL_RETRY_IMMEDIATELY else name]


class HoldState(Enum):
    EMPTY = "empty"
    HOLDING = "holding"
    FULL = "full"  # as many as it may hold in all


def hold_state(hold: Hold, setup: ReadsSetup) -> HoldState:
    if not hold.parked:
        return HoldState.EMPTY
    return HoldState.FULL if len(hold.parked) >= setup.max_parked else HoldState.HOLDING
