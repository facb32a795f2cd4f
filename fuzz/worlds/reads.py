"""The world of reads: a broker's queues, the consumers that pull from them, and the pulls that it holds."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final, get_args

from rocketmq_ha.fuzz.worlds import reads_schedule
from rocketmq_ha.fuzz.worlds.reads_schedule import ReadsSchedule
from rocketmq_ha.fuzz.worlds.reads_sides import ImplementationReads, ReferenceReads
from rocketmq_ha.fuzz.worlds.world import START_MS, World
from rocketmq_ha.reference import read_events as events
from rocketmq_ha.reference.reads_state import GROUP, TOPIC, answered, hold_state

LEGEND: Final = """\
cN       of an event: the connection of consumer N; qN: queue N
log      min and max offset
queues   min and max offset of each that has messages
tables   the topic's and the group's permissions, and what the consumers want; - where there is none
hold     how full it is, and the pulls in it
answers  of this step: the number of the pull, its code, its outcome and the number of its records"""


class ReadsWorld(World[ReadsSchedule]):
    name = "reads"
    whole = "broker"
    schedule_type = ReadsSchedule
    event_types = get_args(events.Event)
    legend = LEGEND

    def draw(self, seed: int) -> ReadsSchedule:
        return reads_schedule.draw(seed)

    def draw_event(self, rng: Random, schedule: ReadsSchedule) -> events.Event:
        return reads_schedule.draw_event(rng, schedule)

    def fits(self, schedule: ReadsSchedule, event: events.Event) -> bool:
        return reads_schedule.fits(schedule.setup, event)

    def fitting(self, event: events.Event) -> str:
        match event:
            case events.Dispatch():
                return "queues of the setup, and sizes that fit a file of its log"
            case events.MasterLink():
                return "it only where setup.setup.is_slave"
            case _:
                return "at most as many queues as the setup has"

    def bounds(self, schedule: ReadsSchedule) -> Mapping[tuple[type, str], tuple[int, int]]:
        return {**reads_schedule.BOUNDS, (events.SetTopic, "read_queue_nums"): (0, schedule.setup.queues)}

    def open(self, schedule: ReadsSchedule, directory: Path) -> tuple[ReferenceReads, ImplementationReads]:
        return ReferenceReads(schedule.setup, START_MS), ImplementationReads(schedule.setup, START_MS, directory)

    def describe(self, event: events.Event) -> str:
        return describe(event)

    def fault_of(self, event: events.Event) -> str:
        return reads_schedule.fault_of(event)

    def milliseconds(self, event: events.Event) -> int:
        return event.ms if isinstance(event, events.Tick) else 0

    def messages(self, event: events.Event) -> int:
        return len(event.messages) if isinstance(event, events.Dispatch) else 0

    def headline(self, schedule: ReadsSchedule) -> str:
        setup = schedule.setup
        held = (
            f"{setup.max_parked} pulls held" if setup.long_polling_enable else f"held for {setup.short_polling_time_mills} ms"
        )
        return (
            f"{'slave' if setup.is_slave else 'master'}, {setup.queues} queue(s) of files of {setup.file_entries} entries, "
            f"{setup.memory} bytes count as in memory, {held}"
        )

    def columns(self, schedule: ReadsSchedule) -> tuple[str, ...]:  # noqa: ARG002
        return ("log", "queues", "tables", "hold", "answers")

    def cells(self, reference: ReferenceReads) -> list[str]:
        now, setup = reference.reads, reference.setup
        broker = now.broker
        queues = (f"{queue.min_offset}-{queue.max_offset}" for queue in broker.queues.values())
        topic, group, consumers = broker.topics.get(TOPIC), broker.groups.get(GROUP), broker.consumers.get(GROUP)
        wanted = consumers.subscriptions.get(TOPIC) if consumers else None
        tables = (
            topic.perm if topic else "-",
            int(group.consume_enable) if group else "-",
            wanted.sub_string if wanted else "-",
        )
        held = " ".join(str(poll.poll_id) for poll in now.hold.parked)
        return [
            f"{broker.log.min_offset}-{broker.log.max_offset}",
            " ".join(queues),
            " ".join(map(str, tables)),
            f"{hold_state(now.hold, setup).value} {held}".rstrip(),
            ", ".join(f"{poll}: {one.code} {answered(one).value} {len(one.records)}" for poll, one in now.answers),
        ]


READS: Final = ReadsWorld()


def describe(event: events.Event) -> str:
    match event:
        case events.Dispatch():
            return "dispatched: " + ", ".join(
                f"{one.size} B of {one.tag or 'no tag'} to q{one.queue_id}" for one in event.messages
            )
        case events.Pull():
            place = f"{event.at}{event.more:+}" if event.more else event.at
            return f"c{event.channel} pulls {event.max_msg_nums} of q{event.queue_id} from {place}, flags {event.sys_flag}"
        case events.Tick():
            return f"{event.ms} ms pass"
        case events.CloseChannel():
            return f"connection of c{event.channel} ends"
        case events.Expire():
            return f"{event.files} file(s) of the log expire{'' if event.queues else ', not yet those of the queues'}"
        case events.SetTopic():
            return f"topic: permission {event.perm}, {event.read_queue_nums} read queue(s)" if event.exists else "topic deleted"
        case events.SetGroup():
            may = "may" if event.consume_enable else "may not"
            return f"group: {may} consume" if event.exists else "group deleted"
        case events.SetConsumers():
            return f"heartbeat: {event.sub_string} of version {event.sub_version}" if event.connected else "no consumer is left"
        case events.MasterLink():
            return f"connection to the master {'comes' if event.is_connected else 'goes'}"
        case events.Restart():
            return "broker stopped and started"
