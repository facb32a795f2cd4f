"""The worlds of a campaign, and which one a seed draws."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.worlds.link import LINK
from rocketmq_ha.fuzz.worlds.metadata import METADATA
from rocketmq_ha.fuzz.worlds.reads import READS
from rocketmq_ha.fuzz.worlds.remoting import REMOTING
from rocketmq_ha.fuzz.worlds.replicas import REPLICAS
from rocketmq_ha.fuzz.worlds.routes import ROUTES
from rocketmq_ha.fuzz.worlds.store import STORE
from rocketmq_ha.fuzz.worlds.world import Schedule, World
from rocketmq_ha.impl.cli.commands import did_you_mean

# A world, and its share of the runs of a campaign.
_SHARES: Final[tuple[tuple[World[Any], int], ...]] = (
    (LINK, 4),
    (REPLICAS, 2),
    (READS, 2),
    (ROUTES, 1),
    (STORE, 1),
    (METADATA, 1),
    (REMOTING, 1),
)
WORLDS: Final = {world.name: world for world, _ in _SHARES}


def world_of(schedule: Schedule) -> World[Any]:
    """The world of a schedule."""
    return next(world for world in WORLDS.values() if isinstance(schedule, world.schedule_type))


def find(names: Iterable[str]) -> tuple[World[Any], ...]:
    """The worlds of these names, without repetition; all of them if there is no name. Raises: FuzzError."""
    for name in names:
        if name not in WORLDS:
            raise FuzzError(f"world {name!r}: expected one of {', '.join(WORLDS)}.{did_you_mean(name, WORLDS)}")
    return tuple(WORLDS[name] for name in dict.fromkeys(names)) or tuple(WORLDS.values())


def draw(seed: int, among: Sequence[World[Any]] = tuple(WORLDS.values())) -> Schedule:
    """Draw the world of a seed, and then its schedule.

    The world comes from a hash of the seed, because the schedule's own first draws come from the seed itself.
    """
    shares = [world for world, share in _SHARES if world in among for _ in range(share)]
    schedule: Schedule = shares[zlib.crc32(b"%d" % seed) % len(shares)].draw(seed)
    return schedule
