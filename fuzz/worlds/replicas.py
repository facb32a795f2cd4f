"""The world of replicas: one master, the puts that wait for its disk and its slaves, and whose acknowledgements count."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final, get_args

from rocketmq_ha.fuzz.worlds import replicas_schedule
from rocketmq_ha.fuzz.worlds.replicas_schedule import ReplicasSchedule
from rocketmq_ha.fuzz.worlds.replicas_sides import ImplementationReplicas, ReferenceReplicas
from rocketmq_ha.fuzz.worlds.world import START_MS, World
from rocketmq_ha.reference import master, store
from rocketmq_ha.reference import replica_events as events
from rocketmq_ha.reference.puts import Master
from rocketmq_ha.reference.replicas_state import connection_state, group_commit_state, put_state, slaves_of

LEGEND: Final = """\
cN       of an event: the connection at place N of those that are open, counted in a circle
master   max offset, and =N push2_slave_max_offset; then how many puts ended in this step, and how
disk     flushed offset, and what the thread that flushes does
waiting  puts that wait, and for what
slaves   how many count, of how many that are needed
links    of each open connection: its replica and state, and =N what it has acknowledged"""


class ReplicasWorld(World[ReplicasSchedule]):
    name = "replicas"
    whole = "master"
    schedule_type = ReplicasSchedule
    event_types = get_args(events.Event)
    legend = LEGEND

    def draw(self, seed: int) -> ReplicasSchedule:
        return replicas_schedule.draw(seed)

    def draw_event(self, rng: Random, schedule: ReplicasSchedule) -> events.Event:
        return replicas_schedule.draw_event(rng, schedule)

    def fits(self, schedule: ReplicasSchedule, event: events.Event) -> bool:  # noqa: ARG002
        """Connections and messages are counted in a circle, so every event may stand everywhere."""
        return True

    def bounds(self, schedule: ReplicasSchedule) -> Mapping[tuple[type, str], tuple[int, int]]:
        longest = max(schedule.settings.sync_flush_timeout_ms, schedule.settings.ha_housekeeping_interval_ms)
        return {**replicas_schedule.BOUNDS, (events.Tick, "ms"): (0, longest + 1)}

    def open(self, schedule: ReplicasSchedule, directory: Path) -> tuple[ReferenceReplicas, ImplementationReplicas]:
        setup = Master(schedule.role, schedule.sync_flush, schedule.settings, schedule.profile)
        return ReferenceReplicas(setup, START_MS), ImplementationReplicas(setup, START_MS, directory)

    def describe(self, event: events.Event) -> str:
        return describe(event)

    def fault_of(self, event: events.Event) -> str:
        return replicas_schedule.fault_of(event)

    def milliseconds(self, event: events.Event) -> int:
        return event.ms if isinstance(event, events.Tick) else 0

    def messages(self, event: events.Event) -> int:
        return int(isinstance(event, events.Put))

    def headline(self, schedule: ReplicasSchedule) -> str:
        settings = schedule.settings
        return (
            f"{schedule.role.value}, {'sync' if schedule.sync_flush else 'async'} flush, {settings.replicas} replica(s), "
            f"waits of {settings.sync_flush_timeout_ms} ms, {settings.ha_slave_fallbehind_max} bytes behind at most"
        )

    def columns(self, schedule: ReplicasSchedule) -> tuple[str, ...]:  # noqa: ARG002
        return ("master", "disk", "waiting", "slaves", "links")

    def cells(self, reference: ReferenceReplicas) -> list[str]:
        now, setup = reference.replicas, reference.setup
        ended = "".join(f" {n}x{status}" for status, n in Counter(done.status for done in now.done).items())
        waiting = Counter(put_state(put).value for put in now.puts.waiting)
        links = [
            f"{one.replica} {connection_state(one.conn, setup.profile).value} ={master.acked_offset(one.conn, setup.profile)}"
            for one in now.connections
        ]
        return [
            f"{store.max_offset(now.log)} ={now.push2_slave_max_offset}{ended}",
            f"{now.flushed_offset} {group_commit_state(now.puts).value}",
            ", ".join(f"{n} {state}" for state, n in waiting.items()),
            f"{slaves_of(now, setup.profile).count} of {setup.settings.replicas}",
            "; ".join(links),
        ]


REPLICAS: Final = ReplicasWorld()


def _at(connection: int) -> str:
    """The place of a connection; the newest ones are counted from the end."""
    return f"c{connection}" if connection >= 0 else f"newest c{connection}"


def describe(event: events.Event) -> str:
    match event:
        case events.Put():
            said = event.properties.replace("\x01", "=").replace("\x02", " ")
            return f"put {event.size} B{f' with {said}' if said else ''}{' by the broker' if event.by_broker else ''}"
        case events.Accept():
            certified = f" with certificate {event.subject}" if event.subject >= 0 else ""
            return f"host {event.address} connects{certified}"
        case events.Transfer():
            return f"{_at(event.connection)} takes all there is"
        case events.Report():
            more = f" and {event.more} B" if event.more else ""
            return f"{_at(event.connection)} reports message -{event.message + 1}{more}"
        case events.Close():
            return f"{_at(event.connection)} ends"
        case events.Sync():
            return "the flush looks for the end of the log"
        case events.Flush():
            return f"the flush ends{f', {event.failures} tries fail' if event.failures else ''}"
        case events.Tick():
            return f"{event.ms} ms pass"
        case events.Restart():
            last = "" if event.flushes or not event.clean else ", its last flush fails"
            return f"master {'stopped' if event.clean else 'killed'} and started{last}"
