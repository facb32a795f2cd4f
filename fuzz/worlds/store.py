"""The world of a store: one machine's commit log, with checkpoint, queues and index, through stops and crashes
(reference/store_life.py).
"""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final, get_args

from rocketmq_ha.fuzz.worlds import store_schedule
from rocketmq_ha.fuzz.worlds.store_schedule import StoreSchedule
from rocketmq_ha.fuzz.worlds.store_sides import ImplementationStore, ReferenceStore
from rocketmq_ha.fuzz.worlds.world import START_MS, World
from rocketmq_ha.reference import store_events as events
from rocketmq_ha.reference import store_state
from rocketmq_ha.reference.store import max_offset
from rocketmq_ha.spec.constants import SECTOR_SIZE

LEGEND: Final = """\
store   the state, as transitions.json names it
log     min to max offset, and !n: the last n bytes are on no disk; +: an empty file behind it
told    what a producer, or who opened the store, was told"""


class StoreWorld(World[StoreSchedule]):
    name = "store"
    whole = "store_life"
    schedule_type = StoreSchedule
    event_types = get_args(events.Event)
    legend = LEGEND

    def draw(self, seed: int) -> StoreSchedule:
        return store_schedule.draw(seed)

    def draw_event(self, rng: Random, schedule: StoreSchedule) -> events.Event:
        return store_schedule.draw_event(rng, schedule)

    def open(self, schedule: StoreSchedule, directory: Path) -> tuple[ReferenceStore, ImplementationStore]:
        settings, profile = schedule.settings, schedule.profile
        return ReferenceStore(settings, profile, START_MS), ImplementationStore(settings, profile, START_MS, directory)

    def describe(self, event: events.Event) -> str:
        return describe(event)

    def fits(self, schedule: StoreSchedule, event: events.Event) -> bool:  # noqa: ARG002
        """Each event fits each schedule: what is too large is refused, and a place in a file counts modulo its size."""
        return True

    def bounds(self, schedule: StoreSchedule) -> Mapping[tuple[type, str], tuple[int, int]]:
        size = schedule.settings.mapped_file_size
        return BOUNDS | {
            (events.Damage, "position"): (0, size - 1),
            (events.Damage, "size"): (1, size),
            (events.Shorten, "length"): (0, size - 1),
            (events.Clean, "needed_size"): (-1, 3 * size),
        }

    def open_reference(self, schedule: StoreSchedule) -> ReferenceStore:
        return ReferenceStore(schedule.settings, schedule.profile, START_MS)

    def fault_of(self, event: events.Event) -> str:
        return store_schedule.fault_of(event)

    def milliseconds(self, event: events.Event) -> int:
        return event.ms if isinstance(event, events.Tick) else 0

    def messages(self, event: events.Event) -> int:
        return len(event.bodies) if isinstance(event, events.PutBatch) else int(isinstance(event, events.Put))

    def headline(self, schedule: StoreSchedule) -> str:
        settings = schedule.settings
        flush = "synchronous" if settings.sync_flush else "asynchronous"
        kept = "for ever" if settings.file_reserved_ms is None else f"{settings.file_reserved_ms} ms"
        return f"files of {settings.mapped_file_size} bytes, {flush} flush, kept {kept}"

    def columns(self, schedule: StoreSchedule) -> tuple[str, ...]:  # noqa: ARG002
        return ("store", "log", "told")

    def cells(self, reference: ReferenceStore) -> list[str]:
        return cells(reference.life)


STORE: Final = StoreWorld()

BOUNDS: Final = {
    (events.Tick, "ms"): (-20_000, 25_000),
    (events.Flush, "least_pages"): (0, 4),
    (events.DiskFails, "after"): (-1, 3),
    (events.Clean, "hour"): (3, 5),
    (events.Clean, "used_percent"): (0, 100),
    (events.PowerCut, "pages"): (0, store_schedule.ALL_PAGES),
    (events.PowerCut, "names"): (0, 9),
    (events.PowerCut, "torn"): (0, SECTOR_SIZE - 1),
    (events.Damage, "file"): (-2, 2),
    (events.Damage, "mask"): (0, 0xFF),
    (events.Shorten, "file"): (-2, 2),
}


def describe(event: events.Event) -> str:
    match event:
        case events.Put():
            return f"put {len(event.body)} B into {event.topic} {event.queue_id}"
        case events.PutBatch():
            return f"put {'+'.join(str(len(body)) for body in event.bodies)} B into {event.topic} {event.queue_id}"
        case events.Tick():
            return f"{event.ms} ms pass" if event.ms >= 0 else f"the clock is set back by {-event.ms} ms"
        case events.Flush():
            return f"flush the log, {event.least_pages} pages at least"
        case events.Dispatch():
            return "dispatch"
        case events.FlushDerived():
            return "flush queues, index and checkpoint"
        case events.Prepare():
            return "prepare the next file"
        case events.DiskFull():
            return f"the disk {'is full' if event.is_full else 'has room again'}"
        case events.WatchSpace():
            return "look at the free space"
        case events.DiskFails():
            return "syncs succeed again" if event.after < 0 else f"{event.after} more syncs succeed"
        case events.Clean():
            needs = "" if event.needed_size < 0 else f", a peer needs the last {event.needed_size} B"
            return f"delete files at {event.hour} h, disk {event.used_percent} % full{needs}"
        case events.Close():
            return "close"
        case events.Kill():
            return "kill"
        case events.PowerCut():
            return f"power cut, pages {event.pages:x}, {event.names} names, {event.torn} B of a sector"
        case events.Open():
            return "open"
        case events.Damage():
            return f"{event.size} B of file {event.file} from {event.position} on change by {event.mask:x}"
        case events.Shorten():
            return f"file {event.file} is cut to {event.length} B"
        case events.Heal():
            return "the files are brought back"


def cells(life: store_state.StoreLife) -> list[str]:
    """The columns of a replay after an event."""
    end = max_offset(life.log)
    log = f"{store_state.min_offset(life)}..{end}"
    if life.is_open and life.flushed_where < end:
        log += f" !{end - life.flushed_where}"
    if life.spare is not store_state.Spare.NONE:
        log += " +"
    return [store_state.classify(life).value, log, " ".join(map(str, life.told))]
