"""Schedules of the world of reads, drawn from a seed: first the broker, its bounds and weights, and then events by those."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from rocketmq_ha.fuzz.worlds.drawing import draw_weights
from rocketmq_ha.fuzz.worlds.reads_sides import CHANNELS
from rocketmq_ha.reference.pull import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from rocketmq_ha.reference.read_events import (
    CloseChannel,
    Dispatch,
    Event,
    Expire,
    MasterLink,
    Message,
    Pull,
    Restart,
    SetConsumers,
    SetGroup,
    SetTopic,
    Tick,
)
from rocketmq_ha.reference.reads_state import ReadsSetup
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

MIN_OPS, MAX_OPS = 50, 120
TAGS: Final = ("a", "b", "c", "")
SUBSCRIPTIONS: Final = ("*", "*", "a", "b", "a||b", " b || c ", "a||", "x", "", None)
UNREAD: Final = ("||", "||||")  # cannot be built
SHORT_MS, CHECK_MS = 1_000, 5_000
LARGEST: Final = 30  # bytes of a record

# The numbers that a mutation may change.
BOUNDS: Final[Mapping[tuple[type, str], tuple[int, int]]] = {
    (Pull, "channel"): (0, CHANNELS - 1),
    (Pull, "queue_id"): (-1, 3),
    (Pull, "more"): (-6, 7),
    (Pull, "max_msg_nums"): (-1, 900),
    (Pull, "sys_flag"): (0, 31),
    (Pull, "suspend_timeout_millis"): (0, 15_000),
    (Pull, "sub_version"): (0, 3),
    (Pull, "commit_offset"): (0, 8),
    (Tick, "ms"): (0, 15_000),
    (CloseChannel, "channel"): (0, CHANNELS - 1),
    (Expire, "files"): (1, 9),
    (SetConsumers, "sub_version"): (0, 3),
    (SetGroup, "broker_id"): (0, 2),
    (SetGroup, "which_broker_when_consume_slowly"): (1, 3),
    (SetTopic, "perm"): (0, 7),
}


@dataclass(frozen=True, slots=True)
class ReadsSchedule:
    """The complete input of a run. The broker behaves alike in both profiles."""

    seed: int
    profile: Profile
    setup: ReadsSetup
    events: tuple[Event, ...]


def draw(seed: int) -> ReadsSchedule:
    """Draw the schedule of a seed."""
    rng = random.Random(seed)
    profile = rng.choice((CLASSIC, HARDENED))
    setup = draw_setup(rng)
    draws = _draws(rng, setup)
    weights = draw_weights(rng, draws)
    chosen = rng.choices([make for _, _, make in draws], weights, k=rng.randint(MIN_OPS, MAX_OPS))
    begin = (SetConsumers(),) if rng.random() < 0.7 else ()
    return ReadsSchedule(seed, profile, setup, (*begin, *(make() for make in chosen)))


def draw_setup(rng: random.Random) -> ReadsSetup:
    """Draw bounds so small that batches end everywhere, and that messages count as on disk soon."""
    return ReadsSetup(
        is_slave=rng.random() < 0.5,
        permission=rng.choice((6, 6, 6, 6, 6, 6, 4, 2)),
        slave_read_enable=rng.random() < 0.5,
        offset_check_in_slave=rng.random() < 0.3,
        queues=rng.choice((1, 2, 3)),
        file_entries=rng.choice((2, 4, 8, 100)),
        log_file_size=rng.choice((64, 200, 1000)),
        memory=rng.choice((0, 40, 150, 1 << 40)),
        messages_in_memory=rng.choice((1, 4, 32)),
        bytes_in_memory=rng.choice((10, 60, 262_144)),
        messages_on_disk=rng.choice((1, 2, 8)),
        bytes_on_disk=rng.choice((10, 30, 65_536)),
        max_parked=rng.choice((1, 2, 6, 6)),
        max_parked_of_connection=rng.choice((1, 4, 4)),
        max_parked_tags=rng.choice((1, 5, 100)),
        long_polling_enable=rng.random() < 0.8,
        short_polling_time_mills=SHORT_MS,
    )


def draw_event(rng: random.Random, drawn: ReadsSchedule) -> Event:
    """Draw an event for a schedule that exists."""
    draws = _draws(rng, drawn.setup)
    return rng.choices([make for _, _, make in draws], [weight for weight, _, _ in draws])[0]()


def largest(setup: ReadsSetup) -> int:
    """The most bytes of a record."""
    return min(LARGEST, setup.log_file_size)


def fits(setup: ReadsSetup, event: Event) -> bool:
    """Return True if an event may stand in a schedule: the queues of its messages are there, and a slave has a master."""
    match event:
        case Dispatch(messages=messages):
            return all(one.queue_id < setup.queues and one.size <= largest(setup) for one in messages)
        case MasterLink():
            return setup.is_slave
        case SetTopic(read_queue_nums=read_queue_nums):
            return read_queue_nums <= setup.queues
        case _:
            return True


def _draws(rng: random.Random, setup: ReadsSetup) -> list[tuple[int, bool, Callable[[], Event]]]:
    """All events as (weight, a schedule may omit it, function that draws one)."""
    most = largest(setup)
    # A schedule asks mostly by requests, mostly by heartbeats, or both; and waits often or seldom.
    by_request, suspending = rng.choice((0.2, 0.7, 0.95)), rng.choice((0.2, 0.7, 0.9))
    harsh = rng.choice((0.02, 0.02, 0.2))  # share of pulls that cannot be answered

    def queue() -> int:
        return rng.randrange(setup.queues)

    def message() -> Message:
        gap, skipped = rng.choice((0, 0, 0, 1, 90)), rng.choice((0,) * 12 + (1, 3))
        return Message(queue(), rng.randint(1, most), rng.choice(TAGS), gap, skipped, rng.choice((0, 0, 0, 1, -256)))

    def dispatch() -> Event:
        return Dispatch(tuple(message() for _ in range(rng.choice((1, 1, 1, 2, 5)))))

    def pull(at: Literal["zero", "min", "max"], more: int) -> Event:
        sys_flag = SUBSCRIPTION * (rng.random() < by_request) + SUSPEND * (rng.random() < suspending)
        sys_flag += COMMIT_OFFSET * (rng.random() < 0.3) + rng.choice((0, 0, 0, 8, 16))
        wrong = rng.random() < harsh
        return Pull(
            channel=rng.randrange(CHANNELS),
            queue_id=rng.choice((-1, 3, queue())) if wrong else queue(),
            at=at,
            more=more,
            max_msg_nums=rng.choice((-1, 0)) if wrong else rng.choice((32, 32, 32, 1, 2, 5, 900)),
            sys_flag=sys_flag,
            suspend_timeout_millis=rng.choice((15_000, 15_000, 5_000, 4_999, 0)),
            subscription=rng.choice(UNREAD) if wrong and rng.random() < 0.5 else rng.choice(SUBSCRIPTIONS),
            expression_type="SQL92" if wrong and rng.random() < 0.5 else rng.choice((None, "TAG", "TAG")),
            sub_version=rng.choice((0, 0, 2, 3)),
            commit_offset=rng.randrange(9),
            lite=rng.random() < 0.2,
        )

    def heartbeat() -> Event:
        says_all = rng.random() < 0.7
        return SetConsumers(
            connected=rng.random() < 0.9,
            is_broadcasting=rng.random() < 0.2,
            has_subscribed=says_all or rng.random() < 0.5,
            sub_string=rng.choice(("*", "a", "a||b", "x")),
            sub_version=rng.choice((2, 2, 3, 0)),
            expression_type="TAG" if says_all else rng.choice(("TAG", "SQL92", "")),
            class_filter_mode=rng.random() < 0.1,
        )

    def set_group() -> Event:
        usual = rng.random() < 0.7
        flags = (True, True, True) if usual else (rng.random() < 0.7, rng.random() < 0.7, rng.random() < 0.5)
        return SetGroup(*flags, rng.choice((0, 0, 2)), rng.choice((1, 1, 3)))

    def set_topic() -> Event:
        if rng.random() < 0.6:
            return SetTopic(True, 6, setup.queues)
        return SetTopic(rng.random() < 0.6, rng.choice((6, 4, 2)), rng.choice((setup.queues, 1, 0)))

    return [
        (14, False, dispatch),
        (12, False, lambda: pull("max", 0)),
        (5, True, lambda: pull("min", rng.choice((0, 0, 1, 2)))),
        (8, True, lambda: pull("max", -rng.randint(1, 6))),
        (2, True, lambda: pull("max", rng.randint(1, 3))),
        (2, True, lambda: pull("min", -1)),
        (2, True, lambda: pull("zero", rng.choice((0, 0, 1, 7)))),
        (6, False, lambda: Tick(rng.choice((0, 1, 100, SHORT_MS - 1, SHORT_MS, CHECK_MS - 1, CHECK_MS, 15_000)))),
        (2, True, lambda: CloseChannel(rng.randrange(CHANNELS))),
        (2, True, lambda: Expire(rng.choice((1, 1, 2, 9)), rng.random() < 0.6)),
        (3, False, heartbeat),
        (2, True, set_topic),
        (2, True, set_group),
        (2 if setup.is_slave else 0, True, lambda: MasterLink(rng.random() < 0.5)),
        (1, True, Restart),
    ]


def fault_of(event: Event) -> str:
    """The name under which the event log counts an event as an injected fault."""
    match event:
        case CloseChannel():
            return "close_channel"
        case Expire(queues=queues):
            return NO_FAULT if queues else "expire_log"
        case MasterLink(is_connected=is_connected):
            return NO_FAULT if is_connected else "lose_master"
        case Restart():
            return "stop_broker"
        case SetTopic(exists=False):
            return "delete_topic"
        case SetGroup(exists=False):
            return "delete_group"
        case _:
            return NO_FAULT
