"""Schedules of a store, drawn from a seed: sizes, what is deleted, and weights first, then the events by those weights.

This is swarm testing, as in schedule.py. The end of a process is drawn with what follows it: perhaps a power cut, perhaps
damage, and nearly always the next opening; otherwise half of a schedule would meet a closed store.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.fuzz.worlds.drawing import draw_weights
from rocketmq_ha.reference import store_events as events
from rocketmq_ha.reference.store_disk import BITS
from rocketmq_ha.reference.store_recovery import STORE_TIMESTAMP_POSITION
from rocketmq_ha.reference.store_state import StoreSettings
from rocketmq_ha.spec.constants import END_FILE_MIN_BLANK_SIZE, MESSAGE_FIXED_SIZE, SECTOR_SIZE
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

MIN_OPS, MAX_OPS = 50, 120
ALL_PAGES: Final = (1 << BITS) - 1
TOPICS: Final = ("T", "orders")
PROPERTIES: Final = (
    *("", "", "", "TAGS\1a", "WAIT\1false", "KEYS\1k", "UNIQ_KEY\1u\2KEYS\1k l"),
    "KEYS\1m\2note\1" + "n" * 40,
)
LONG: Final = "note\1" + "n" * (2 * SECTOR_SIZE)  # a whole sector of it may be lost
# Position and size, in bytes, of the fields of a record that an opening reads: TOTALSIZE, MAGICCODE, BODYCRC, QUEUEOFFSET,
# PHYSICALOFFSET, STORETIMESTAMP, BODYLENGTH. Damage meets those of the first record of a file, whose place is known.
READ_BY_OPENING: Final = ((0, 4), (4, 4), (8, 4), (20, 8), (28, 8), (STORE_TIMESTAMP_POSITION, 8), (84, 4))
ILLEGAL: Final = ("TAGS\1a\0", "note\1" + "\0" * (SECTOR_SIZE + 1) + "n")  # HA-ST-89


@dataclass(frozen=True, slots=True)
class StoreSchedule:
    """The complete input of a run."""

    seed: int
    profile: Profile
    settings: StoreSettings
    events: tuple[events.Event, ...]


def draw(seed: int) -> StoreSchedule:
    """Draw the schedule of a seed."""
    rng = random.Random(seed)
    profile = rng.choice((CLASSIC, HARDENED, HARDENED))
    settings = draw_settings(rng)
    draws = event_draws(rng, settings)
    weights = draw_weights(rng, draws)
    drawn: list[events.Event] = [events.Open()]
    length = rng.randint(MIN_OPS, MAX_OPS)
    while len(drawn) < length:
        make = rng.choices([make for _, _, make in draws], weights)[0]
        drawn += make()
    return StoreSchedule(seed, profile, settings, tuple(drawn))


def draw_settings(rng: random.Random) -> StoreSettings:
    """Draw sizes so small that files of the log, of queues and of the index end within a short run."""
    file_size = rng.choice((600, 1024, 1500, 2048, 4096, 9000))
    return StoreSettings(
        mapped_file_size=file_size,
        queue_file_size=20 * rng.choice((4, 64, 64)),
        hash_slot_num=rng.choice((3, 20)),
        index_num=rng.choice((5, 40)),
        sync_flush=rng.random() < 0.25,
        file_reserved_ms=rng.choice((None, 0, 2_000, 10_000)),
        delete_when=rng.choice((None, (4,), (4, 5))),
        disk_max_used_space_ratio=rng.choice((75, 90)),
        clean_file_forcibly=rng.random() < 0.4,
        max_log_size=rng.choice((None, None, 2 * file_size, 3 * file_size + 1)),
    )


def draw_event(rng: random.Random, drawn: StoreSchedule) -> events.Event:
    """Draw an event for a schedule that exists, with its sizes."""
    draws = event_draws(rng, drawn.settings)
    made = rng.choices([make for _, _, make in draws], [weight for weight, _, _ in draws])[0]()
    return rng.choice(made)


def fault_of(event: events.Event) -> str:
    """The name under which the event log counts an event as an injected fault."""
    match event:
        case events.Kill():
            return "kill"
        case events.PowerCut():
            return "power_cut"
        case events.DiskFails():
            return "fail_flush" if event.after >= 0 else NO_FAULT
        case events.DiskFull():
            return "fill_disk" if event.is_full else NO_FAULT
        case events.Damage():
            return "damage"
        case events.Shorten():
            return "shorten"
        case events.Tick():
            return "clock_back" if event.ms < 0 else NO_FAULT
        case _:
            return NO_FAULT


def largest_body(settings: StoreSettings) -> int:
    """The largest body in bytes that fits a file, with the longest topic of a schedule and no properties."""
    return settings.mapped_file_size - END_FILE_MIN_BLANK_SIZE - MESSAGE_FIXED_SIZE - max(map(len, TOPICS))


Draw = tuple[int, bool, Callable[[], list[events.Event]]]


def event_draws(rng: random.Random, settings: StoreSettings) -> list[Draw]:
    """All events as (weight, a schedule may omit it, function that draws one, with what follows it)."""
    queues = [(topic, queue_id) for topic in TOPICS for queue_id in range(2)][: rng.choice((1, 2, 3))]
    largest = largest_body(settings)
    usual = min(rng.choice((30, 200, 900)), largest)
    ticks = rng.choice(((1, 100, 1000), (1000, 3000, 5000), (0, 1, 2999, 3000, 3001)))
    odd = rng.choice((0.0, 0.0, 0.15))  # the share of messages with unusual properties or flags
    all_pages = rng.choice((0.1, 0.3, 0.6))

    def body() -> bytes:
        size = rng.choice((0, rng.randint(0, usual), rng.randint(0, usual), usual, rng.randint(0, largest), largest))
        return rng.choice((bytes, lambda count: b"x" * count, rng.randbytes))(size)

    def properties() -> str:
        if rng.random() < odd:
            return rng.choice((LONG, LONG, *ILLEGAL))
        return rng.choice(PROPERTIES)

    def put() -> list[events.Event]:
        topic, queue_id = rng.choice(queues)
        sys_flag = rng.choice((0x4, 0xC)) if rng.random() < odd / 2 else 0
        return [events.Put(topic, body(), properties(), queue_id, sys_flag)]

    def batch() -> list[events.Event]:
        topic, queue_id = rng.choice(queues)
        sizes = [rng.randint(0, usual) for _ in range(rng.randint(1, 4))]
        bodies = tuple(bytes([number]) * (sizes[0] if rng.random() < 0.7 else size) for number, size in enumerate(sizes))
        return [events.PutBatch(topic, bodies, properties(), queue_id)]

    def power_cut() -> events.Event:
        share = rng.random()
        pages = (
            ALL_PAGES
            if share < all_pages
            else rng.choice((0, rng.getrandbits(BITS), rng.getrandbits(BITS) | rng.getrandbits(BITS)))
        )
        return events.PowerCut(pages, rng.choice((0, 1, 2, 9)), rng.choice((0, 0, rng.randint(1, SECTOR_SIZE - 1))))

    def damage() -> events.Event:
        if rng.random() < 0.15:
            return events.Damage(0, 4, 4, 0xFF)  # the first magic of all (HA-ST-92)
        position = rng.choice((rng.randint(0, 120), rng.randrange(settings.mapped_file_size)))
        size = rng.choice((1, 1, 8, 60, SECTOR_SIZE, settings.mapped_file_size))
        if rng.random() < 0.4:
            position, field_size = rng.choice(READ_BY_OPENING)
            size = rng.choice((1, field_size))
        return events.Damage(rng.choice((0, 1, 2, -1, -2)), position, size, rng.choice((0, 1, 0x80, 0xFF)))

    def ended(how: events.Event) -> list[events.Event]:
        """The end of a process, and what follows it."""
        drawn = [how]
        if rng.random() < 0.2:
            drawn.append(power_cut())
        return [*drawn, events.Open()]

    def damaged() -> list[events.Event]:
        harm = rng.choice((damage, damage, damage, lambda: events.Shorten(rng.choice((0, 1, -1)), rng.choice((0, 100, 599)))))
        end = rng.choice((events.Close(), events.Kill()))
        openings: list[events.Event] = [events.Open()] * rng.choice((0, 1, 1, 1, 1, 1, 2))
        return [*ended(end)[:-1], harm(), *openings, events.Heal(), events.Open()]

    def clean() -> list[events.Event]:
        needed = rng.choice((-1, -1, 0, rng.randint(0, 3 * settings.mapped_file_size)))
        return [events.Clean(rng.choice((3, 4, 4, 5)), rng.choice((10, 76, 86, 86, 91, 99)), needed)]

    def settle() -> list[events.Event]:
        """All that is there comes to the disk, and the checkpoint says so."""
        return [events.Dispatch(), events.Flush(0), events.FlushDerived()]

    return [
        (36, False, put),
        (5, True, batch),
        (6, False, lambda: [events.Tick(rng.choice(ticks))]),
        (1, True, lambda: [events.Tick(-rng.choice((1, 2000, 4000, 20_000)))]),
        (5, False, lambda: [events.Flush(rng.choice((0, 0, 1, 4)))]),
        (4, False, lambda: [events.Dispatch()]),
        (3, False, lambda: [events.FlushDerived()]),
        (2, True, settle),
        (3, True, lambda: [events.Prepare()]),
        (2, True, lambda: [events.DiskFull(rng.random() < 0.6), *([events.WatchSpace()] if rng.random() < 0.5 else [])]),
        (1, True, lambda: [events.WatchSpace()]),
        (1, True, lambda: [events.DiskFails(rng.choice((0, 0, 1, 2, -1)))]),
        (4, True, clean),
        (1, True, lambda: ended(events.Close())),
        (1, True, lambda: ended(events.Kill())),
        (2, True, lambda: [power_cut(), events.Open()]),
        (1, True, damaged),
    ]
