"""The world of queues and index: one store whose log is given, and what is derived from it (reference/derived_life.py).

Each seed first draws sizes and weights, and then events by those weights; an end of the process is followed by the next start.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, get_args

from rocketmq_ha.fuzz.worlds.queues_sides import ImplementationQueues, ReferenceQueues, name_offset_ms
from rocketmq_ha.fuzz.worlds.world import START_MS, World
from rocketmq_ha.reference import consume_queue, derived_events, dispatch_request, index_file
from rocketmq_ha.reference.derived_events import Event
from rocketmq_ha.reference.derived_life import Sizes
from rocketmq_ha.reference.derived_reads import visible
from rocketmq_ha.reference.store import max_offset, min_offset
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

TOPICS: Final = ("T", "orders", dispatch_request.SCHEDULE_TOPIC)
QUEUE_IDS: Final = (0, 1)
QUEUES: Final = tuple((topic, queue_id) for topic in TOPICS for queue_id in QUEUE_IDS)
# Two keys of one hash, one whose hash has no absolute value as an i32, and others that share a slot with them.
KEYS: Final = ("Aa", "BB", "k", "polygenelubricants", "u1")
MIN_OPS, MAX_OPS = 60, 120
PREPARED, COMMITTED, ROLLED_BACK = 4, 8, 12  # of sysFlag

LEGEND: Final = """\
log      from the min offset to the max offset; +n: bytes of the last record that a slave lacks
process  its state, and the offset at which the dispatch is
T/0      of a queue: its state, min offset to max offset
index    its state, and the keys in each file"""


@dataclass(frozen=True, slots=True)
class QueuesSchedule:
    """The complete input of a run. Sizes in bytes, but for the slots and the entries of an index file."""

    seed: int
    profile: Profile
    is_master: bool  # the role of the first process
    log_file_size: int
    queue_file_size: int
    hash_slot_num: int
    index_num: int
    events: tuple[Event, ...]


def draw(seed: int) -> QueuesSchedule:
    """Draw the schedule of a seed."""
    rng = Random(seed)
    profile = rng.choice((CLASSIC, HARDENED))
    is_master = rng.random() < 0.7
    log_file_size = rng.choice((400, 600, 1000, 1600))
    queue_file_size = 20 * rng.choice((1, 2, 3, 5, 8))
    hash_slot_num, index_num = rng.choice((1, 3, 8)), rng.choice((2, 3, 6, 12))
    draws = event_draws(rng, log_file_size)
    weights = [weight * rng.choice((0, 1, 1, 1, 3)) if optional else weight for weight, optional, _ in draws]
    drawn: list[Event] = []
    length = rng.randint(MIN_OPS, MAX_OPS)
    while len(drawn) < length:
        drawn += rng.choices([make for _, _, make in draws], weights)[0]()
    return QueuesSchedule(
        seed, profile, is_master, log_file_size, queue_file_size, hash_slot_num, index_num, tuple(drawn[:length])
    )


def event_draws(rng: Random, log_file_size: int) -> list[tuple[int, bool, Callable[[], list[Event]]]]:
    """All events as (weight, a schedule may omit it, function that draws one, or one with what belongs to it)."""
    topics = rng.choice((TOPICS, TOPICS[:1], TOPICS[:2]))
    keyed_share, handed_share = rng.choice((0.0, 0.4, 0.9)), rng.choice((0.0, 0.5, 1.0))
    gaps, parts = rng.choice((0.0, 0.1, 0.3)), rng.choice((0.0, 0.2))
    slave_share = rng.choice((0.0, 0.3, 0.7))

    def queue() -> tuple[str, int]:
        return rng.choice(topics), rng.choice(QUEUE_IDS)

    def properties() -> str:
        found = []
        if rng.random() < keyed_share:
            found.append(f"KEYS\x01{' '.join(rng.choices(KEYS, k=rng.choice((1, 1, 2, 3))))}")
        if rng.random() < 0.3 * keyed_share:
            found.append(f"UNIQ_KEY\x01{rng.choice(KEYS)}")
        if rng.random() < 0.4:
            found.append(f"TAGS\x01{rng.choice(('A', 'BB', 'Aa', 'é'))}")
        if rng.random() < 0.3:
            found.append(f"DELAY\x01{rng.choice((1, 3, 18, 19, 0, -1))}")
        return "\x02".join(found)

    def put() -> list[Event]:
        topic, queue_id = queue()
        sys_flag = rng.choice((0, 0, 0, 0, 0, PREPARED, COMMITTED, ROLLED_BACK)) if rng.random() < 0.5 else 0
        size = rng.choice((0, rng.randrange(60), rng.randrange(60), rng.randrange(log_file_size)))
        skips = rng.choice((1, 1, 2, 7, 90)) if rng.random() < gaps else 0
        missing = rng.choice((1, 3, 20, 60, 200)) if rng.random() < parts else 0
        count = rng.choice((1, 1, 1, 2, 3))
        return [
            derived_events.Put(
                topic, queue_id, size, properties(), sys_flag, count, rng.random() < handed_share, skips, missing
            )
        ]

    def dispatch(most: tuple[int, ...]) -> Callable[[], list[Event]]:
        return lambda: [derived_events.Dispatch(rng.choice(most))]

    def start() -> list[Event]:
        """The next process; now and then it dies while it dispatches, and another follows."""
        is_master, most = rng.random() >= slave_share, rng.choice((0, 0, 0, 1, 2, 4))
        found: list[Event] = [derived_events.Start(is_master, most)]
        if most:
            found += rng.choice(([derived_events.Dispatch(1)], [derived_events.Dispatch(0)], [], [power_cut()]))
            found += [derived_events.Start(is_master, 0)] if isinstance(found[-1], derived_events.PowerCut) else [
                derived_events.Dispatch(0)
            ]
        return found

    def power_cut() -> Event:
        return derived_events.PowerCut(rng.choice((0, 1, 2, 5)), rng.randrange(1 << 16), rng.choice((44, 64, 128)))

    def damage() -> list[Event]:
        what = rng.choice(("entry", "entry", "last_file", "queue", "index_entry", "index_file"))
        return [derived_events.Damage(what, *queue(), rng.choice((0, 0, 1, 2, 4)))]

    def end(event: Callable[[], Event], damage_share: float) -> Callable[[], list[Event]]:
        return lambda: [event(), *(damage() if rng.random() < damage_share else []), *start()]

    def expire() -> list[Event]:
        found: list[Event] = [derived_events.Expire(rng.choice((0, 1, 1, 2)), rng.random() < 0.8)]
        return found

    def query() -> list[Event]:
        span = rng.choice(((1 << 40, -1), (10_000, 0), (5_000, 2_000), (3_000, 3_000)))
        return [derived_events.Query(rng.choice(topics), rng.choice(KEYS), rng.choice((1, 2, 64)), *span)]

    def seek() -> list[Event]:
        back_ms = rng.choice((0, -1, 1, rng.randrange(20_000), 1_000 * rng.randrange(20)))
        return [derived_events.Seek(*queue(), back_ms, rng.random() < 0.5)]

    return [
        (30, False, put),
        (8, True, dispatch((1, 1, 2, 3))),
        (8, False, dispatch((0,))),
        (5, False, lambda: [derived_events.Tick(rng.choice((1, 1, 300, 1000, 3000, 4000)))]),
        (1, True, lambda: [derived_events.Tick(-rng.choice((1, 1000, 5000)))]),
        (2, True, lambda: [derived_events.Flush("log")]),
        (3, True, lambda: [derived_events.Flush("log"), derived_events.Flush("all")]),
        (1, True, lambda: [derived_events.Flush("all")]),
        (1, True, lambda: [derived_events.Flush("full_files")]),
        (3, True, expire),
        (1, True, lambda: [derived_events.DeleteTopic(rng.choice(topics))]),
        (2, True, lambda: [derived_events.Get(*queue(), rng.choice((-1, 0, 1, 2, 3, 5, 9, 30)), rng.choice((0, 1, 2, 32)))]),
        (2, True, seek),
        (3, True, query),
        (1, True, end(derived_events.Stop, 0.3)),
        (1, True, end(derived_events.Kill, 0.1)),
        (2, True, end(power_cut, 0.1)),
    ]


FAULTS: Final = {
    derived_events.Kill: "kill",
    derived_events.PowerCut: "power_cut",
    derived_events.Damage: "damage",
    derived_events.Stop: "stop",
}


class QueuesWorld(World[QueuesSchedule]):
    name = "queues"
    whole = "store"
    schedule_type = QueuesSchedule
    event_types = get_args(Event)
    legend = LEGEND

    def draw(self, seed: int) -> QueuesSchedule:
        return draw(seed)

    def draw_event(self, rng: Random, schedule: QueuesSchedule) -> Event:
        draws = event_draws(rng, schedule.log_file_size)
        return rng.choices([make for _, _, make in draws], [weight for weight, _, _ in draws])[0]()[0]

    def open(self, schedule: QueuesSchedule, directory: Path) -> tuple[ReferenceQueues, ImplementationQueues]:
        sizes = Sizes(
            schedule.log_file_size,
            schedule.queue_file_size,
            schedule.hash_slot_num,
            schedule.index_num,
            name_offset_ms(START_MS),
        )
        role, profile = schedule.is_master, schedule.profile
        reference = ReferenceQueues(sizes, profile, QUEUES, START_MS, is_master=role)
        return reference, ImplementationQueues(sizes, profile, START_MS, directory, is_master=role)

    def describe(self, event: Event) -> str:
        return describe(event)

    def fault_of(self, event: Event) -> str:
        return FAULTS.get(type(event), NO_FAULT)

    def milliseconds(self, event: Event) -> int:
        return event.ms if isinstance(event, derived_events.Tick) else 0

    def messages(self, event: Event) -> int:
        return event.count if isinstance(event, derived_events.Put) else 0

    def headline(self, schedule: QueuesSchedule) -> str:
        return (
            f"begins as a {'master' if schedule.is_master else 'slave'}, files of {schedule.log_file_size} bytes, queue files of "
            f"{schedule.queue_file_size}, index files of {schedule.hash_slot_num} slots and {schedule.index_num} entries"
        )

    def columns(self, schedule: QueuesSchedule) -> tuple[str, ...]:
        del schedule
        return ("log", "process", *(f"{topic[:6]}/{queue_id}" for topic, queue_id in QUEUES), "index")

    def cells(self, reference: ReferenceQueues) -> list[str]:
        return cells(reference)


QUEUES_WORLD: Final = QueuesWorld()


def _all(most: int) -> str:
    return f"{most} messages" if most else "all"


def describe(event: Event) -> str:
    match event:
        case derived_events.Put():
            few = f"{event.count} of " if event.count > 1 else ""
            extra = (f", skips {event.skips}" if event.skips else "") + (f", lacks {event.missing} B" if event.missing else "")
            kind = {0: "", PREPARED: "prepared ", COMMITTED: "committed ", ROLLED_BACK: "rolled back "}[event.sys_flag]
            properties = event.properties.replace("\x01", "=").replace("\x02", " ")
            return f"put {few}{kind}{event.topic}/{event.queue_id} {event.size} B {properties}{extra}"
        case derived_events.Tick():
            return f"{event.ms} ms pass" if event.ms >= 0 else f"clock back by {-event.ms} ms"
        case derived_events.Dispatch():
            return f"dispatch {_all(event.most)}"
        case derived_events.Flush():
            return f"flush {event.what}"
        case derived_events.Expire():
            return f"{event.files} files expire{'' if event.cleans else ', queues later'}"
        case derived_events.DeleteTopic():
            return f"delete topic {event.topic}"
        case derived_events.Get():
            return f"get {event.count} of {event.topic}/{event.queue_id}, {event.back} before its end"
        case derived_events.Seek():
            side = "upper" if event.upper else "lower"
            return f"seek {event.topic}/{event.queue_id}, {event.back_ms} ms ago, {side}"
        case derived_events.Query():
            return f"query {event.most} of {event.topic}#{event.key}, {event.from_ms} to {event.to_ms} ms ago"
        case derived_events.Stop():
            return "stop"
        case derived_events.Kill():
            return "kill"
        case derived_events.PowerCut():
            return f"power cut, loses {event.lost} records"
        case derived_events.Damage():
            where = f" of {event.topic}/{event.queue_id}" if not event.what.startswith("index") else ""
            return f"damage: {event.what} {event.at}{where}"
        case derived_events.Start():
            return f"start as {'master' if event.is_master else 'slave'}, dispatch {_all(event.most)}"


def cells(reference: ReferenceQueues) -> list[str]:
    """The columns of a replay: the log, the process, each queue, the index."""
    life = reference.life
    lacks = f" +{len(life.missing)}" if life.missing else ""
    process = f"{reference.states.dispatch.value} {life.dispatched.reput_from_offset}"
    row = [f"{min_offset(life.log)} to {max_offset(life.log)}{lacks}", process]
    for key, state in zip(QUEUES, reference.states.queues, strict=True):
        queue = life.dispatched.queues.get(key)
        span = ""
        if queue is not None and queue.mapped_file_queue.base is not None:
            shown = visible(queue, life.deleted.get(key[0], 0))
            span = f" {consume_queue.min_offset_in_queue(shown)} to {consume_queue.max_offset_in_queue(shown)}"
        row.append(state.value + span)
    keys = ",".join(str(index_file.header(file).index_count - 1) for file in life.dispatched.index)
    return [*row, f"{reference.states.index.value} {keys}"]
