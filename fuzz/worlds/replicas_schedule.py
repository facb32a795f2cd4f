"""Schedules of the world of replicas, drawn from a seed.

As in fuzz/schedule.py a seed first draws the master, sizes and weights, and then events by those weights. Most events stand in
short rounds, such as a slave that receives and reports: otherwise puts hardly ever find as many replicas as they need.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.fuzz.worlds.drawing import draw_weights
from rocketmq_ha.reference.replica_events import Accept, Close, Event, Flush, Put, Report, Restart, Sync, Tick, Transfer
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings
from rocketmq_ha.spec.role import BrokerRole

MIN_ROUNDS, MAX_ROUNDS = 20, 60
MAX_EVENTS: Final = 160
NEWEST: Final = -1  # of the open connections
NOTHING: Final = 1 << 10  # no schedule has so many messages, so this is offset 0
WAITS: Final = ("", "", "", "K\x01v", "WAIT\x01true", "WAIT\x01TRUE\x02K\x01v", "WAIT\x01", "XWAIT\x01false")
NO_WAITS: Final = ("WAIT\x01false", "WAIT\x01FALSE", "WAIT\x01true\x02WAIT\x01no", "K\x01v\x02WAIT\x01false")

# The numbers that a mutation may change. A file has room for the largest body.
BOUNDS: Final[Mapping[tuple[type, str], tuple[int, int]]] = {
    (Put, "size"): (0, 100),
    (Accept, "address"): (0, 4),
    (Accept, "subject"): (-1, 4),
    **{(kind, "connection"): (-2, 9) for kind in (Transfer, Report, Close)},
    (Report, "message"): (0, 8),
    (Report, "more"): (-(1 << 41), 1 << 41),
    (Flush, "failures"): (0, 2),
}

Round = tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class ReplicasSchedule:
    """The complete input of a run."""

    seed: int
    profile: Profile
    settings: Settings
    sync_master: bool
    sync_flush: bool
    events: tuple[Event, ...]

    @property
    def role(self) -> BrokerRole:
        return BrokerRole.SYNC_MASTER if self.sync_master else BrokerRole.ASYNC_MASTER


def draw(seed: int) -> ReplicasSchedule:
    """Draw the schedule of a seed."""
    rng = random.Random(seed)
    profile = rng.choice((CLASSIC, HARDENED))
    hosts = rng.choice((1, 2, 2, 3, 3, 4, 5))
    replicas = rng.choice((1, 2, 2, 3, hosts)) if profile.counts_replicas else 1  # HA-G-33
    settings = Settings(
        mapped_file_size=rng.choice((700, 4000, 16_000)),
        ha_slave_fallbehind_max=rng.choice((150, 250, 500, 1 << 28, 1 << 28)),
        ha_housekeeping_interval_ms=rng.choice((20_000, 20_000, 4000)),
        sync_flush_timeout_ms=rng.choice((5000, 5000, 3000, 700)),
        master_read_buffer_size=rng.choice((8, 16, 64)),
        replicas=min(replicas, hosts),
    )
    sync_master, sync_flush = rng.choice(((True, True), (True, True), (True, False), (False, True), (False, False)))
    draws = _draws(rng, hosts, settings)
    weights = draw_weights(rng, draws)
    chosen = rng.choices([make for _, _, make in draws], weights, k=rng.randint(MIN_ROUNDS, MAX_ROUNDS))
    first = [event for host in range(rng.randint(0, hosts)) for event in _join(host)]
    events = [*first, *(event for make in chosen for event in make())]
    return ReplicasSchedule(seed, profile, settings, sync_master, sync_flush, tuple(events[:MAX_EVENTS]))


def draw_event(rng: random.Random, drawn: ReplicasSchedule) -> Event:
    """Draw an event for a schedule that exists."""
    hosts = 1 + max((event.address for event in drawn.events if isinstance(event, Accept)), default=2)
    draws = _draws(rng, hosts, drawn.settings)
    make = rng.choices([make for _, _, make in draws], [weight for weight, _, _ in draws])[0]
    return rng.choice(make())


def _join(host: int) -> Round:
    """A host connects and asks for an empty log."""
    return (Accept(host), Report(NEWEST, NOTHING), Transfer(NEWEST))


def _draws(rng: random.Random, hosts: int, settings: Settings) -> list[tuple[int, bool, Callable[[], Round]]]:
    """All rounds as (weight, a schedule may omit it, function that draws one)."""
    waiting_share = rng.choice((0.6, 0.9, 1.0))
    # How far the reports of slaves lie back, in messages: all is acknowledged at once, or little.
    lag = rng.choice((1, 2, 2, 6))
    certified = rng.choice((0.0, 0.0, 0.5))
    timeout_ms = settings.sync_flush_timeout_ms
    ticks = rng.choice(((1, 100, 1000, timeout_ms), (1000, 1000, 1001, 999), (timeout_ms, timeout_ms + 1, 1), (10, 300)))
    shifts = (0, -1, 1, 7, -90, -5000, 1 << 40, -(1 << 41))

    def connection() -> int:
        return rng.randrange(2 * hosts)

    def put() -> Event:
        properties = rng.choice(WAITS if rng.random() < waiting_share else NO_WAITS)
        return Put(rng.choice((0, 8, 8, rng.randrange(100))), properties, rng.random() < 0.3)

    def accept() -> Event:
        return Accept(rng.randrange(hosts), rng.randrange(hosts) if rng.random() < certified else -1)

    def message() -> int:
        return min(rng.randrange(lag) for _ in range(2))

    def served() -> Round:
        one = connection()
        return (Transfer(one), Report(one, message()))

    def asks() -> Round:
        """A connection's first report: of nothing, or of what it holds."""
        one = connection()
        return (Report(one, rng.choice((NOTHING, rng.randrange(8)))), Transfer(one))

    def joins() -> Round:
        """A peer connects, asks, and is sent what it lacks; often it acknowledges a message, or the connection before goes."""
        held = rng.choice((NOTHING, NOTHING, rng.randrange(8)))
        found: Round = (accept(), Report(NEWEST, held), Transfer(NEWEST))
        if rng.random() < 0.6:
            found += (put(), Transfer(NEWEST), Report(NEWEST, message()))
        return (*found, Close(NEWEST - 1)) if rng.random() < 0.2 else found

    def all_served() -> Round:
        """Each of several connections receives and reports, one after the other."""
        found: Round = ()
        for one in range(rng.randint(1, hosts)):
            found += (Transfer(one), Report(one, message()))
        return found

    def covered() -> Round:
        """A flush looks for the end of the log, and another put comes before it ends."""
        return (put(), put(), Sync(), put(), Flush(rng.choice((0, 0, 1, 2))))

    def staggered() -> Round:
        """Two puts, of which the first is late when the second is not."""
        half = timeout_ms // 2
        return (put(), Tick(half), put(), Flush(rng.choice((0, 2))), Tick(half + 1 + timeout_ms % 2))

    def last() -> Event:
        return Restart(rng.random() < 0.7, rng.random() < 0.6)

    def burst() -> Round:
        """A slave that catches up: several reports, each a little further, so that a put's waits are used up (HA-G-15)."""
        one, count = connection(), rng.randint(2, 6)
        puts = tuple(Put(8, NO_WAITS[0]) if rng.random() < 0.8 else put() for _ in range(count))
        reports = tuple(Report(one, back) for back in reversed(range(rng.randint(0, 2), count)))
        return (
            *puts,
            put(),
            Flush(),
            Transfer(one),
            *reports,
            *rng.choice(((), (Tick(1000),), (put(), Tick(1000)), (last(),))),
        )

    return [
        (14, False, lambda: (put(),)),
        (2, True, lambda: tuple(put() for _ in range(rng.randint(2, 5)))),
        (4, True, burst),
        (5, False, lambda: (accept(),)),
        (6, False, asks),
        (4, True, joins),
        (12, False, served),
        (5, True, all_served),
        (3, True, lambda: (Transfer(connection()),)),
        (5, True, lambda: (Report(connection(), message()),)),
        (2, True, lambda: (Report(connection(), message(), rng.choice(shifts), honest=False),)),
        (3, True, lambda: (Close(connection()),)),
        (10, False, lambda: (Flush(rng.choice((0, 0, 0, 0, 1, 2))),)),
        (3, True, lambda: (Flush(2),)),
        (3, True, covered),
        (3, True, staggered),
        (1, True, lambda: (Sync(),)),
        (8, False, lambda: (Tick(rng.choice(ticks)),)),
        (1, True, lambda: (Tick(settings.ha_housekeeping_interval_ms + rng.choice((0, 1))),)),
        (1, True, lambda: (put(), last())),
    ]


def fault_of(event: Event) -> str:
    """The name under which the event log counts an event as an injected fault."""
    match event:
        case Report(honest=honest):
            return NO_FAULT if honest else "forge_report"
        case Flush(failures=failures):
            return "fail_flush" if failures > 1 else "retry_flush" if failures else NO_FAULT
        case Close():
            return "cut_master"
        case Restart(clean=clean):
            return "stop_master" if clean else "kill_master"
        case _:
            return NO_FAULT
