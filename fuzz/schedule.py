"""Schedules of the link: the events of a run as plain data, drawn from a seed.

Each seed first draws sizes, intervals and weights, and then events by those weights. This is swarm testing: a schedule that
never cuts a link gets further into the transfer than one in which any event may happen. The same seed gives the same schedule
on every machine.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference import events
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.spec.constants import END_FILE_MIN_BLANK_SIZE, MESSAGE_FIXED_SIZE, TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.event_log import NO_FAULT
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

TOPICS: Final = ("T", "orders")
MIN_OPS, MAX_OPS = 100, 220
UNBOUNDED_ROOM: Final = 1 << 18  # bytes: the socket hardly ever blocks, but an endless sender still stops
MOST_FRAMES: Final = 150  # that a room holds: thousands of frames in one event show nothing more, and took a third of the time


@dataclass(frozen=True, slots=True)
class LinkSchedule:
    """The complete input of a run."""

    seed: int
    profile: Profile
    settings: Settings
    slaves: int
    events: tuple[events.Event, ...]


def draw(seed: int) -> LinkSchedule:
    """Draw the schedule of a seed."""
    rng = random.Random(seed)
    profile = rng.choice((CLASSIC, HARDENED))
    settings = draw_settings(rng)
    slaves = rng.choice((1, 1, 2))
    draws = event_draws(rng, slaves, settings, profile)
    weights = [weight * rng.choice((0, 1, 1, 1, 3)) if optional else weight for weight, optional, _ in draws]
    choices = rng.choices([make for _, _, make in draws], weights, k=rng.randint(MIN_OPS, MAX_OPS))
    drawn = [make() for make in choices]
    # Drawn last, so that what the other seeds do does not depend on it. HA-G-33 "in classic other than 1, MUST be refused".
    replicas = rng.choice((1, 2)) if slaves > 1 and profile.counts_replicas else 1
    if replicas > 1:
        drawn = _with_rounds(rng, drawn, slaves)
    slave_file_size, adopts_file_size = draw_slave_file_size(rng, settings.mapped_file_size)
    settings = replace(settings, replicas=replicas, slave_file_size=slave_file_size, adopts_file_size=adopts_file_size)
    if rng.random() < 0.15:
        drawn = _with_full_disks(rng, drawn, slaves)
    if rng.random() < 0.15:
        drawn = _with_deletions(rng, drawn)
    if not profile.reports_on_connect:
        drawn = _with_first_reports(rng, drawn, settings)
    drawn = [within(settings, event) for event in drawn]
    return LinkSchedule(seed, profile, settings, slaves, tuple(drawn))


def draw_slave_file_size(rng: random.Random, file_size: int) -> tuple[int, bool]:
    """Draw a slave's file size, and whether it was given one: mostly the master's, else a multiple, a divisor, or neither."""
    if rng.random() < 0.85:
        return 0, False
    sizes = (file_size, 2 * file_size, 3 * file_size, 16 * file_size, file_size // 2, file_size // 4, file_size + 100, 700)
    return rng.choice(sizes), rng.random() < 0.6


def _with_rounds(rng: random.Random, drawn: list[events.Event], slaves: int) -> list[events.Event]:
    """Add rounds in which one slave catches up; otherwise two slaves hardly ever do."""
    found: list[events.Event] = []
    for event in drawn:
        found.append(event)
        if rng.random() < 0.2:
            slave = rng.randrange(slaves)
            found += (events.Connect(slave, UNBOUNDED_ROOM, UNBOUNDED_ROOM), events.DeliverReports(slave, UNBOUNDED_ROOM))
            found += (
                events.Grant(slave, UNBOUNDED_ROOM),
                events.DeliverFrames(slave, UNBOUNDED_ROOM),
                events.DeliverReports(slave, UNBOUNDED_ROOM),
            )
    return found


def _with_full_disks(rng: random.Random, drawn: list[events.Event], slaves: int) -> list[events.Event]:
    """Add periods in which a slave's disk is full."""
    found: list[events.Event] = []
    for event in drawn:
        found.append(event)
        if rng.random() < 0.1:
            found.append(events.DiskFull(rng.randrange(slaves), rng.random() < 0.5))
    return found


def _with_deletions(rng: random.Random, drawn: list[events.Event]) -> list[events.Event]:
    """Add deletions of the master's first file."""
    found: list[events.Event] = []
    for event in drawn:
        found.append(event)
        if rng.random() < 0.07:
            found.append(events.DeleteFile())
    return found


def _with_first_reports(rng: random.Random, drawn: list[events.Event], settings: Settings) -> list[events.Event]:
    """Add the silence that classic's first report waits for (HA-S-2); otherwise most of its slaves get no byte."""
    share = rng.choice((0, 0.3, 0.6))
    found: list[events.Event] = []
    for event in drawn:
        found.append(event)
        if isinstance(event, events.Connect) and rng.random() < share:
            found.append(events.Tick(settings.ha_send_heartbeat_interval_ms + 1))
            found.append(events.DeliverReports(event.slave, UNBOUNDED_ROOM))
    return found


def ample_room(settings: Settings) -> int:
    """Bytes of frames with which the master's socket hardly ever blocks."""
    return min(UNBOUNDED_ROOM, MOST_FRAMES * (TRANSFER_HEADER_SIZE + settings.ha_transfer_batch_size))


def within(settings: Settings, event: events.Event) -> events.Event:
    """The event with no more than ample room for the master's frames."""
    most = ample_room(settings)
    if isinstance(event, events.Connect | events.Grant) and event.room > most:
        return replace(event, room=most)
    return event


def draw_settings(rng: random.Random) -> Settings:
    """Draw sizes so small that frames, files and buffers end at every possible place within a short run."""
    batch = rng.choice((1, 7, 16, 48, 100, 1000))
    # Mostly room for one or two frames; sometimes too small for any (HA-S-11, HA-S-14).
    slave_buffer = batch + TRANSFER_HEADER_SIZE + rng.choice((0, 1, 12, 40, 400, 4000))
    if rng.random() < 0.04:
        slave_buffer = TRANSFER_HEADER_SIZE + max(1, batch // 2)
    return Settings(
        mapped_file_size=rng.choice((256, 384, 512, 1000, 4096)),
        ha_transfer_batch_size=batch,
        ha_slave_fallbehind_max=rng.choice((300, 1 << 20, 1 << 28)),
        master_read_buffer_size=rng.choice((8, 16, 24, 64, 4096)),
        slave_read_buffer_size=slave_buffer,
    )


def largest_body(settings: Settings) -> int:
    """The largest body in bytes that fits a file, with the longest topic of a schedule and no properties."""
    return settings.mapped_file_size - END_FILE_MIN_BLANK_SIZE - MESSAGE_FIXED_SIZE - max(map(len, TOPICS))


def forged_offsets(profile: Profile) -> tuple[int, ...]:
    """Offsets of forged reports. Classic accepts any; hardened must refuse these, and cannot detect one that is plausible."""
    return (-1, -5, 1 << 40, (1 << 63) - 1) if profile.checks_reports else (-1, -5, 0, 1, 50, 300, 1 << 40, (1 << 63) - 1)


def fault_of(event: events.Event) -> str:
    """The name under which the event log counts an event as an injected fault."""
    match event:
        case events.Cut():
            return f"cut_{event.tell}"
        case events.ForgeReport():
            return "forge_report"
        case events.ForgeHeader():
            return "forge_header"
        case events.Clog():
            return "clog"
        case events.DiskFull():
            return "fill_disk" if event.is_full else NO_FAULT
        case events.RestartSlave():
            return "restart_slave"
        case events.RestartMaster():
            return "lose_tail" if event.lost else "stop_master" if event.clean else "kill_master"
        case events.DeleteFile():
            return "delete_file"
        case _:
            return NO_FAULT


def event_draws(
    rng: random.Random, slaves: int, settings: Settings, profile: Profile
) -> list[tuple[int, bool, Callable[[], events.Event]]]:
    """All events as (weight, a schedule may omit it, function that draws one)."""

    # generous: sockets hardly ever block, so slaves keep up and puts get their acks. exact: sockets stop between frames.
    character = rng.choice(("generous", "exact", "mixed"))
    forged = forged_offsets(profile)
    no_sizes = (-1, -4, -12, -(1 << 31), settings.slave_read_buffer_size - 11, (1 << 31) - 13, (1 << 31) - 12, (1 << 31) - 1)
    waiting_share, pausing_share = rng.choice((0.2, 0.4, 0.9)), 0 if profile.joins_at_append else rng.choice((0, 0, 0.3))

    # With steps of a second or less the service's waits end first (HA-G-15), with longer ones the producers' (HA-G-2).
    ticks = rng.choice(((1, 100, 1000, 2500, 5000, 5001), (1, 100, 2500, 5000, 5001), (100, 1000, 1000, 1000, 1000)))

    def slave() -> int:
        return rng.randrange(slaves)

    def few() -> int:
        """Draw a number of bytes about the size of a header."""
        return rng.randint(1, TRANSFER_HEADER_SIZE + 1)

    def frames() -> int:
        """Draw a number of bytes about the size of one or several frames."""
        frame = TRANSFER_HEADER_SIZE + min(settings.ha_transfer_batch_size, 400)
        return max(1, rng.choice((frame, 2 * frame, 6 * frame)) + rng.randint(-2, 2))

    def grant() -> int:
        frame = TRANSFER_HEADER_SIZE + settings.ha_transfer_batch_size
        return rng.choice((TRANSFER_HEADER_SIZE, frame, 2 * frame)) if character == "exact" else few()

    def put() -> events.Event:
        size = rng.choice((0, rng.randrange(60), rng.randint(0, largest_body(settings)), largest_body(settings)))
        body = rng.randbytes(max(0, min(size, largest_body(settings) - 8)))
        properties = rng.choice(("", "", "K\x01v"))
        return events.Put(
            rng.choice(TOPICS), body, properties, rng.randrange(2), rng.random() < waiting_share, rng.random() < pausing_share
        )

    def connect() -> events.Event:
        room = UNBOUNDED_ROOM if character == "generous" else rng.choice((0, grant(), frames(), UNBOUNDED_ROOM))
        return events.Connect(slave(), room, UNBOUNDED_ROOM if rng.random() < 0.9 else rng.randint(0, 20))

    def restart_master(share: float) -> events.Event:
        """Draw the end of a master: half stop cleanly, a quarter are killed, a quarter lose their last one to four records."""
        return events.RestartMaster(share < 0.5, lost=max(0, int(16 * share) - 11))

    return [
        (12, False, put),
        (4 if pausing_share else 0, False, lambda: events.Resume(rng.choice((0, 0, 1, 2)))),
        (14, False, connect),
        (10, False, lambda: events.Grant(slave(), grant())),
        (16, True, lambda: events.Grant(slave(), frames())),
        (12, True, lambda: events.DeliverFrames(slave(), few())),
        (18, False, lambda: events.DeliverFrames(slave(), frames())),
        (6, True, lambda: events.DeliverFrames(slave(), UNBOUNDED_ROOM)),
        (6, True, lambda: events.DeliverFrames(slave(), -rng.choice((1, TRANSFER_HEADER_SIZE, TRANSFER_HEADER_SIZE + 1)))),
        (8, True, lambda: events.DeliverReports(slave(), rng.randint(1, 9))),
        (14, False, lambda: events.DeliverReports(slave(), rng.choice((8, 16, 24, 1000)))),
        (7, False, lambda: events.Tick(rng.choice(ticks))),
        (1, True, lambda: events.Tick(rng.choice((20_000, 20_001)))),
        (1, True, lambda: events.ForgeReport(slave(), rng.choice(forged))),
        (1, True, lambda: events.ForgeHeader(slave(), rng.choice(no_sizes))),
        (2, True, lambda: events.Clog(slave(), rng.randint(0, 20))),
        (3, True, lambda: events.Cut(slave(), rng.choice(("both", "both", "slave", "master")))),
        (2, True, lambda: events.RestartSlave(slave())),
        (1, True, lambda: restart_master(rng.random())),
    ]
