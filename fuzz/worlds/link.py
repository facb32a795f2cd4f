"""The world of the link: one master, its slaves, and the network between them (reference/cluster.py)."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final, get_args

from rocketmq_ha.fuzz import schedule
from rocketmq_ha.fuzz.schedule import UNBOUNDED_ROOM, LinkSchedule
from rocketmq_ha.fuzz.world import ImplementationWorld, ReferenceWorld
from rocketmq_ha.fuzz.worlds.world import START_MS, World
from rocketmq_ha.reference import events, master, slave, store
from rocketmq_ha.reference.cluster import Cluster
from rocketmq_ha.spec.constants import TRANSFER_HEADER_SIZE
from rocketmq_ha.spec.profile import Profile, Settings

LEGEND: Final = """\
sN      of an event: slave N
master  max offset; wN: puts that wait for a slave; then how many ended in this step, and how
sN      max offset, and what its client holds: . nothing, h+n part of a header, b+n part of a body, - no connection
link    the master's end: ? awaits a report, @n next transfer offset, =n bytes of a pending frame taken, x closed
        >n bytes in flight to the slave, <n to the master; ~ severed; +n stale: connections that only the master still holds"""


class LinkWorld(World[LinkSchedule]):
    name = "link"
    whole = "cluster"
    schedule_type = LinkSchedule
    event_types = get_args(events.Event)
    legend = LEGEND

    def draw(self, seed: int) -> LinkSchedule:
        return schedule.draw(seed)

    def draw_event(self, rng: Random, schedule: LinkSchedule) -> events.Event:
        return draw_event(rng, schedule)

    def open(self, schedule: LinkSchedule, directory: Path) -> tuple[ReferenceWorld, ImplementationWorld]:
        return open_sides(schedule.slaves, schedule.settings, schedule.profile, directory)

    def open_reference(self, schedule: LinkSchedule) -> ReferenceWorld:
        return ReferenceWorld(schedule.slaves, schedule.settings, schedule.profile, START_MS)

    def fits(self, schedule: LinkSchedule, event: events.Event) -> bool:
        return fits(schedule, event)

    def fitting(self, event: events.Event) -> str:
        match event:
            case events.Put():
                topics = " or ".join(schedule.TOPICS)
                return f"the topic {topics}, at most {MOST_PROPERTIES} characters of properties, and a body that fits a file"
            case events.ForgeReport():
                return "a slave of the setup, and an offset that campaigns forge under its profile"
            case events.ForgeHeader():
                return "a slave of the setup, and a body_size that hardened refuses"
            case _:
                return "a slave of the setup"

    def bounds(self, drawn: LinkSchedule) -> Mapping[tuple[type, str], tuple[int, int]]:
        room = schedule.ample_room(drawn.settings)
        return BOUNDS | {(events.Grant, "room"): (0, room), (events.Connect, "room"): (0, room)}

    def describe(self, event: events.Event) -> str:
        return describe(event)

    def fault_of(self, event: events.Event) -> str:
        return schedule.fault_of(event)

    def milliseconds(self, event: events.Event) -> int:
        if isinstance(event, events.RestartMaster) and event.lost:
            return 1  # a power cut takes a millisecond
        return event.ms if isinstance(event, events.Tick) else 0

    def messages(self, event: events.Event) -> int:
        return int(isinstance(event, events.Put))

    def headline(self, schedule: LinkSchedule) -> str:
        settings = schedule.settings
        return (
            f"{schedule.slaves} slave(s), files of {settings.mapped_file_size}, batches of {settings.ha_transfer_batch_size}, "
            f"read buffers {settings.master_read_buffer_size} and {settings.slave_read_buffer_size} bytes"
        )

    def columns(self, schedule: LinkSchedule) -> tuple[str, ...]:
        of_slaves = [name for index in range(schedule.slaves) for name in (f"s{index}", f"link of s{index}")]
        return ("master", *of_slaves)

    def cells(self, reference: ReferenceWorld) -> list[str]:
        return cells(reference.cluster)


LINK: Final = LinkWorld()

BOUNDS: Final = {
    (events.Tick, "ms"): (1, 25_000),
    (events.Connect, "slave_room"): (0, 40),
    (events.DeliverFrames, "nbytes"): (-40, UNBOUNDED_ROOM),
    (events.DeliverReports, "nbytes"): (1, 1000),
    (events.Clog, "room"): (0, 40),
    (events.Resume, "nth"): (0, 4),
}


MOST_PROPERTIES: Final = 8  # characters; the body leaves room for as many


def fits(drawn: LinkSchedule, event: events.Event) -> bool:
    """Return True if an event may stand in a schedule: its slave is there, and its message fits a file.

    A forged report of an offset that could be true, and a forged header of a size that a frame may have, are for classic alone:
    hardened cannot detect them, and would break its invariants.
    """
    if getattr(event, "slave", 0) >= drawn.slaves:
        return False
    if isinstance(event, events.Put):
        is_known = event.topic in schedule.TOPICS and len(event.properties) <= MOST_PROPERTIES
        return is_known and len(event.body) <= schedule.largest_body(drawn.settings) - MOST_PROPERTIES
    if isinstance(event, events.ForgeHeader) and drawn.profile.checks_frames:
        return not 0 <= event.body_size <= drawn.settings.slave_read_buffer_size - TRANSFER_HEADER_SIZE
    return not isinstance(event, events.ForgeReport) or event.offset in schedule.forged_offsets(drawn.profile)


def open_sides(
    slaves: int, settings: Settings, profile: Profile, directory: Path
) -> tuple[ReferenceWorld, ImplementationWorld]:
    reference = ReferenceWorld(slaves, settings, profile, START_MS)
    return reference, ImplementationWorld(slaves, settings, profile, START_MS, directory)


def draw_event(rng: Random, drawn: LinkSchedule) -> events.Event:
    """Draw an event for a schedule that exists, with its sizes."""
    draws = schedule.event_draws(rng, drawn.slaves, drawn.settings, drawn.profile)
    event = rng.choices([make for _, _, make in draws], [weight for weight, _, _ in draws])[0]()
    return schedule.within(drawn.settings, event)


def _amount(nbytes: int) -> str:
    return f"all but {-nbytes} B" if nbytes < 0 else f"up to {nbytes} B"


def describe(event: events.Event) -> str:
    match event:
        case events.Put():
            pauses = ", but pause first" if event.pauses else ""
            return f"put {len(event.body)} B{f' and wait{pauses}' if event.wait else ''}"
        case events.Resume():
            return f"paused put {event.nth} goes on"
        case events.Tick():
            return f"{event.ms} ms pass"
        case events.Connect():
            return f"s{event.slave} connects"
        case events.Grant():
            return f"socket to s{event.slave} takes {event.room} B"
        case events.DeliverFrames():
            return f"s{event.slave} receives {_amount(event.nbytes)}"
        case events.DeliverReports():
            return f"master receives {_amount(event.nbytes)} of s{event.slave}"
        case events.ForgeReport():
            return f"forged report {event.offset} on s{event.slave}"
        case events.ForgeHeader():
            return f"forged header of size {event.body_size} to s{event.slave}"
        case events.Clog():
            return f"socket of s{event.slave} takes {event.room} B, no more"
        case events.DiskFull():
            return f"disk of s{event.slave} {'is full' if event.is_full else 'has room again'}"
        case events.Cut():
            return f"link of s{event.slave} cut, told: {event.tell}"
        case events.RestartSlave():
            return f"s{event.slave} killed and restarted"
        case events.RestartMaster():
            cut = f", without its last {event.lost} records" if event.lost else ""
            return f"master {'stopped' if event.clean else 'killed'} and restarted{cut}"
        case events.DeleteFile():
            return "master deletes its first file"


def cells(cluster: Cluster) -> list[str]:
    """The columns of a replay after an event: the master, and of each slave its log and its own link."""
    waiting = f" w{len(cluster.group.requests)}" if cluster.group.requests else ""
    ended = "".join(f" {n}x{status}" for status, n in Counter(done.status for done in cluster.done).items())
    row = [f"{store.max_offset(cluster.log)}{waiting}{ended}"]
    for index, node in enumerate(cluster.slaves):
        held = len(slave.unparsed(node))
        kind = "-" if not node.connected else "." if not held else f"h+{held}"
        if held >= TRANSFER_HEADER_SIZE:
            kind = f"b+{held - TRANSFER_HEADER_SIZE}"
        row += [f"{store.max_offset(node.log)} {kind}", _links(cluster, index)]
    return row


def _links(cluster: Cluster, index: int) -> str:
    """Format the slave's own link, and the number of links whose slave's end is closed."""
    text, stale = "", 0
    for link in cluster.links:
        if link.slave != index:
            continue
        if not link.slave_open:
            stale += 1
            continue
        conn = link.conn
        if conn.close_reason:
            text = "x"
        elif conn.next_transfer_from_where == -1:
            text = "?"
        else:
            text = f"@{conn.next_transfer_from_where}" + ("" if conn.last_write_over else f" ={master.taken(conn)}")
        text += f" >{len(link.to_slave)}" if link.to_slave else ""
        text += f" <{len(link.to_master)}" if link.to_master else ""
        text += " ~" if link.severed else ""
    return text + (f" +{stale} stale" if stale else "")
