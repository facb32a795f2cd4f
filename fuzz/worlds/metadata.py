"""The world of metadata: the tables of masters, and the copies that a slave has of its master's (reference/metadata.py)."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from rocketmq_ha.fuzz.worlds.drawing import draw_events, draw_weights
from rocketmq_ha.fuzz.worlds.metadata_sides import ImplementationMetadata, ReferenceMetadata
from rocketmq_ha.fuzz.worlds.world import START_MS, World
from rocketmq_ha.reference import metadata_changes, metadata_entries, metadata_events
from rocketmq_ha.reference import metadata_events as events
from rocketmq_ha.reference.metadata import Metadata, Settings
from rocketmq_ha.reference.metadata_events import SLAVE
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

MIN_OPS, MAX_OPS = 80, 180
TOPICS: Final = ("orders", "refunds", "audit")
GROUPS: Final = ("g", "h")
TICKS: Final = (1, 499, 500, 500, 1_000, 2_999, 3_000, 5_000, 10_000)

LEGEND: Final = """\
mN      life, entries of topics, groups, deleted, offsets; ! a file is not saved; (n) where its log ends
slave   what it asks for, questions and answers on their way; topics, groups, deleted, offsets: . alone, 0 new, + partial,
        < behind, = in step; of a master that tells no changes: ~ other, = same"""

Draw = Callable[[], tuple[events.Event, ...]]


@dataclass(frozen=True, slots=True)
class MetadataSchedule:
    """The complete input of a run."""

    seed: int
    profile: Profile
    settings: Settings
    events: tuple[events.Event, ...]


class MetadataWorld(World[MetadataSchedule]):
    name = "metadata"
    whole = "tables"
    schedule_type = MetadataSchedule
    event_types = get_args(metadata_events.Event)
    legend = LEGEND

    def draw(self, seed: int) -> MetadataSchedule:
        return draw(seed)

    def draw_event(self, rng: random.Random, schedule: MetadataSchedule) -> events.Event:
        draws = event_draws(rng, len(schedule.settings.tells))
        return rng.choice(rng.choices([make for _, _, make in draws], [weight for weight, _, _ in draws])[0]())

    def fits(self, schedule: MetadataSchedule, event: events.Event) -> bool:
        """Return True if the event's master, or the process that it is about, is there."""
        return getattr(event, "master", getattr(event, "process", 0)) < len(schedule.settings.tells)

    def fitting(self, event: events.Event) -> str:  # noqa: ARG002
        return "a master or a process of the setup"

    def bounds(self, schedule: MetadataSchedule) -> Mapping[tuple[type, str], tuple[int, int]]:
        del schedule  # every number may stand in every schedule
        return BOUNDS

    def open(self, schedule: MetadataSchedule, directory: Path) -> tuple[ReferenceMetadata, ImplementationMetadata]:
        del directory  # the files are in memory
        given = schedule.settings, schedule.profile, START_MS
        return ReferenceMetadata(*given), ImplementationMetadata(*given)

    def open_reference(self, schedule: MetadataSchedule) -> ReferenceMetadata:
        return ReferenceMetadata(schedule.settings, schedule.profile, START_MS)

    def describe(self, event: events.Event) -> str:
        return describe(event)

    def fault_of(self, event: events.Event) -> str:
        return fault_of(event)

    def milliseconds(self, event: events.Event) -> int:
        return event.ms if isinstance(event, events.Tick) else 0

    def headline(self, schedule: MetadataSchedule) -> str:
        settings = schedule.settings
        kinds = ", ".join("tells changes" if tells else "tells whole tables" for tells in settings.tells)
        return f"masters: {kinds}; parts of {settings.most_size} B, {settings.most_gone} names that are gone"

    def columns(self, schedule: MetadataSchedule) -> tuple[str, ...]:
        return (*(f"m{at}" for at in range(len(schedule.settings.tells))), "slave")

    def cells(self, reference: ReferenceMetadata) -> list[str]:
        return cells(reference.state)


METADATA: Final = MetadataWorld()


BOUNDS: Final = {
    (events.PutTopic, "queue_nums"): (1, 3),
    (events.PutGroup, "retry_max_times"): (0, 2),
    (events.PutMessage, "queue_id"): (0, 1),
    (events.Commit, "queue_id"): (0, 1),
    (events.Commit, "offset"): (0, 4),
    (events.DeliverDelayed, "progress"): (0, 3),
    (events.Repeat, "nth"): (0, 3),
    (events.Tick, "ms"): (1, 10_000),
}


# --- Schedules -------------------------------------------------------------------------------------------------------


def draw(seed: int) -> MetadataSchedule:
    """Draw the schedule of a seed: first the sizes and the weights, then the events."""
    rng = random.Random(seed)
    profile = rng.choice((CLASSIC, HARDENED, HARDENED))
    settings = Settings(
        rng.choice(((True,), (True, True), (True, False), (False, True), (False,))),
        rng.choice((300, 2_000, metadata_changes.MOST_SIZE)),
        rng.choice((0, 1, metadata_changes.MOST_GONE)),
    )
    draws = event_draws(rng, len(settings.tells))
    weights = draw_weights(rng, draws)
    size = rng.randint(MIN_OPS, MAX_OPS)
    return MetadataSchedule(seed, profile, settings, draw_events(rng, draws, weights, (events.Follow(0),), size))


def event_draws(rng: random.Random, masters: int) -> list[tuple[int, bool, Draw]]:
    """All events as (weight, a schedule may omit it, function that draws a sequence)."""

    def master() -> int:
        return rng.randrange(masters)

    def process() -> int:
        return rng.randrange(SLAVE, masters)

    def commit() -> events.Event:
        return events.Commit(process(), rng.choice(TOPICS), rng.choice(GROUPS), rng.randrange(2), rng.randrange(5))

    def arrive() -> events.Event:
        if rng.random() < 0.15:
            damage: events.Field = rng.choice(("from", "from", "changed", "changed", "body"))
            part: events.Part = rng.choice(("deleted", "topics", "groups", "offsets"))
            return events.Arrive(damage, part)
        return events.Arrive()

    def rounds() -> tuple[events.Event, ...]:
        """The slave asks, and its master answers, for a while."""
        answered = (events.Reach(), events.Arrive()) * rng.choice((0, 1, 3, 7))
        return (events.Tick(rng.choice((500, 1_000, 3_000, 10_000))), *answered, events.Reach(), arrive())

    return [
        (5, True, lambda: (events.PutTopic(master(), rng.choice(TOPICS), rng.randint(1, 3)),)),
        (3, True, lambda: (events.DeleteTopic(master(), rng.choice(TOPICS)),)),
        (3, True, lambda: (events.PutGroup(master(), rng.choice(GROUPS), rng.randrange(3)),)),
        (2, True, lambda: (events.DeleteGroup(master(), rng.choice(GROUPS), rng.random() < 0.5),)),
        (5, True, lambda: (events.PutMessage(process(), rng.choice(TOPICS), rng.randrange(2)),)),
        (8, True, lambda: (commit(),)),
        (2, True, lambda: (events.DeliverDelayed(master(), rng.randrange(4)),)),
        (2, True, lambda: (events.RestartMaster(master(), rng.random() < 0.5),)),
        (2, True, lambda: (events.RestartSlave(rng.random() < 0.5), events.Follow(master()))),
        (3, True, lambda: (events.Follow(rng.choice((*range(masters), *range(masters), SLAVE, -2))),)),
        (2, True, lambda: (events.BreakConnection(master()),)),
        (2, True, lambda: (events.Disk(process(), rng.random() < 0.5),)),
        (5, False, lambda: (events.Tick(rng.choice(TICKS)),)),
        (6, False, lambda: (events.Reach(),)),
        (6, False, lambda: (arrive(),)),
        (4, True, lambda: (events.Repeat(rng.randrange(4)),)),
        (8, False, rounds),
    ]


# --- For replays and the event log -----------------------------------------------------------------------------------


def fault_of(event: events.Event) -> str:
    """The name under which the event log counts an event as an injected fault."""
    match event:
        case events.Arrive():
            return f"damage_{event.damage}" if event.damage else NO_FAULT
        case events.Repeat():
            return "repeat_answer"
        case events.RestartMaster():
            return "stop_master" if event.saves else "kill_master"
        case events.RestartSlave():
            return "stop_slave" if event.saves else "kill_slave"
        case events.BreakConnection():
            return "break_connection"
        case events.Disk():
            return "fill_disk" if event.is_full else NO_FAULT
        case _:
            return NO_FAULT


def _name(process: int) -> str:
    return "the slave" if process == SLAVE else f"m{process}"


def describe(event: events.Event) -> str:
    match event:
        case events.PutTopic():
            return f"m{event.master} has {event.name} with {event.queue_nums} queues"
        case events.DeleteTopic():
            return f"m{event.master} deletes {event.name}"
        case events.PutGroup():
            return f"m{event.master} has group {event.name} with {event.retry_max_times} tries"
        case events.DeleteGroup():
            return f"m{event.master} deletes group {event.name}{', with its offsets' if event.removes else ''}"
        case events.PutMessage():
            return f"{_name(event.process)} stores a message of {event.topic}, queue {event.queue_id}"
        case events.Commit():
            return f"{event.group} commits {event.offset} of {event.topic}, queue {event.queue_id}, to {_name(event.process)}"
        case events.DeliverDelayed():
            return f"m{event.master} has delivered {event.progress} delayed messages"
        case events.RestartMaster():
            return f"m{event.master} is {'stopped' if event.saves else 'killed'} and begins a new life"
        case events.RestartSlave():
            return f"the slave is {'stopped' if event.saves else 'killed'} and starts"
        case events.Follow():
            return f"the slave follows {'nobody' if event.master < SLAVE else _name(event.master)}"
        case events.Reach():
            return "the question reaches the master"
        case events.Arrive():
            return f"the answer arrives{f', damaged: {event.damage} of {event.part}' if event.damage else ''}"
        case events.Repeat():
            return f"an older answer arrives, the {event.nth} last"
        case events.BreakConnection():
            return f"the connection to m{event.master} breaks"
        case events.Disk():
            return f"the disk of {_name(event.process)} {'is full' if event.is_full else 'has room again'}"
        case events.Tick():
            return f"{event.ms} ms pass"


_MARKS: Final = {"alone": ".", "new": "0", "partial": "+", "behind": "<", "in_step": "=", "other": "~", "same": "="}


def cells(state: Metadata) -> list[str]:
    """The columns of a replay after an event."""
    row = []
    for process in state.masters:
        counts = [len(process.tables[name].entries) for name in ("topics", "groups", "deleted")]
        unsaved = any(table.file.is_unsaved for table in process.tables.values())
        offsets = len(process.offsets.in_memory)
        row.append(
            f"life {process.life}, {', '.join(map(str, counts))}, {offsets}{' !' if unsaved else ''} ({process.max_offset})"
        )
    asks = metadata_entries.of_asking(state.slave).value
    marks = "".join(_MARKS[metadata_entries.of_table(state, name).value] for name in ("topics", "groups", "deleted", "offsets"))
    answers = sum(asked.answer is not None for asked in state.slave.sent)
    row.append(f"{asks} >{len(state.slave.sent) - answers} <{answers} {marks} ({state.slave.process.max_offset})")
    return row
