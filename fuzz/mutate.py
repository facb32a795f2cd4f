"""Make a new schedule from some that reached something.

`mutate` keeps the sizes of one schedule and changes its events: delete, repeat, insert, move, change a number, splice with
another. `weave` puts slices of several schedules, one behind the other, under the sizes of one that is drawn.

All choices come from one seed, so that a recipe (the seed, and the digests of its parents) makes the same schedule everywhere.
What an event may be is asked of its world: `draw_event` makes events, `fits` says whether one of another schedule may stand
here, `bounds` says which numbers may be changed and how far.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from rocketmq_ha.fuzz.worlds import registry
from rocketmq_ha.fuzz.worlds.world import Schedule, World

MOST_EVENTS: Final = 400  # of a mutated schedule; a drawn one has 100 to 220
MOST_MUTATIONS: Final = 8
LONGEST_SLICE: Final = 24  # events
WOVEN_EVENTS: Final = 150  # of a woven schedule, at least

Events = list[Any]


def mutate(seed: int, parent: Schedule, other: Schedule, number: int) -> Schedule:
    """The schedule that a seed makes of `parent`, with parts of `other`, which is of the same world. `number`: its own seed."""
    rng = random.Random(seed)
    world = registry.world_of(parent)
    events = list(parent.events)
    for _ in range(rng.randint(1, MOST_MUTATIONS)):
        events = rng.choice(_MUTATIONS)(rng, world, parent, other, events)[:MOST_EVENTS]
    made: Schedule = replace(parent, seed=number, events=tuple(events or parent.events))  # type: ignore[type-var]
    return made


def weave(drawn: Schedule, others: Sequence[Schedule], number: int) -> Schedule:
    """Slices of `others`, as far as they fit, with the sizes of `drawn`, whose seed decides. `number`: the new one's seed."""
    rng = random.Random(f"weave {drawn.seed}")
    world = registry.world_of(drawn)
    fitting = [[event for event in other.events if world.fits(drawn, event)] for other in (*others, drawn)]
    events: Events = []
    while len(events) < WOVEN_EVENTS:
        source = rng.choice(fitting)
        start, stop = _slice(rng, source)
        events += source[start:stop]
    made: Schedule = replace(drawn, seed=number, events=tuple(events))  # type: ignore[type-var]
    return made


def _slice(rng: random.Random, events: Sequence[Any]) -> tuple[int, int]:
    start = rng.randrange(len(events) + 1)
    return start, min(len(events), start + rng.randint(1, LONGEST_SLICE))


def _delete(rng: random.Random, _world: World[Any], _parent: Schedule, _other: Schedule, events: Events) -> Events:
    start, stop = _slice(rng, events)
    return events[:start] + events[stop:]


def _repeat(rng: random.Random, _world: World[Any], _parent: Schedule, _other: Schedule, events: Events) -> Events:
    start, stop = _slice(rng, events)
    at = rng.randrange(len(events) + 1)
    return events[:at] + events[start:stop] + events[at:]


def _move(rng: random.Random, _world: World[Any], _parent: Schedule, _other: Schedule, events: Events) -> Events:
    start, stop = _slice(rng, events)
    rest = events[:start] + events[stop:]
    at = rng.randrange(len(rest) + 1)
    return rest[:at] + events[start:stop] + rest[at:]


def _insert(rng: random.Random, world: World[Any], parent: Schedule, _other: Schedule, events: Events) -> Events:
    for _ in range(rng.randint(1, 6)):
        events = list(events)
        events.insert(rng.randrange(len(events) + 1), world.draw_event(rng, parent))
    return events


def _go_on(rng: random.Random, world: World[Any], parent: Schedule, _other: Schedule, events: Events) -> Events:
    """Go on from where the parent ended, or from somewhere before."""
    kept = events[: rng.choice((len(events), rng.randrange(len(events) + 1)))]
    return kept + [world.draw_event(rng, parent) for _ in range(rng.randint(10, 60))]


def _splice(rng: random.Random, world: World[Any], parent: Schedule, other: Schedule, events: Events) -> Events:
    """The begin of the parent and the end of the other, or a slice of the other amid the parent's."""
    foreign = [event for event in other.events if world.fits(parent, event)]
    if rng.random() < 0.5:
        return events[: rng.randrange(len(events) + 1)] + foreign[rng.randrange(len(foreign) + 1) :]
    start, stop = _slice(rng, foreign)
    at = rng.randrange(len(events) + 1)
    return events[:at] + foreign[start:stop] + events[at:]


def _tweak(rng: random.Random, world: World[Any], parent: Schedule, _other: Schedule, events: Events) -> Events:
    """Change a number of an event a little, much, or to a bound of what it may be."""
    bounds = world.bounds(parent)
    places = [(at, name) for at, event in enumerate(events) for kind, name in bounds if isinstance(event, kind)]
    if not places:
        return events
    events = list(events)
    for at, name in rng.sample(places, min(len(places), rng.randint(1, 3))):
        event = events[at]
        low, high = bounds[type(event), name]
        value = getattr(event, name)
        value = rng.choice((value - 1, value + 1, value * 2, value // 2, low, high, rng.randint(low, high)))
        events[at] = replace(event, **{name: max(low, min(high, value))})
    return events


_MUTATIONS: Final[tuple[Callable[..., Events], ...]] = (
    _delete,
    _repeat,
    _move,
    _insert,
    _insert,
    _go_on,
    _splice,
    _splice,
    _tweak,
)
