"""The world of remoting: a remoting server, its handlers, and its clients (reference/remoting_clients.py)."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final, get_args

from rocketmq_ha.fuzz.worlds import remoting_schedule
from rocketmq_ha.fuzz.worlds.remoting_schedule import WHOLE, RemotingSchedule
from rocketmq_ha.fuzz.worlds.remoting_sides import ImplementationRemoting, ReferenceRemoting
from rocketmq_ha.fuzz.worlds.world import START_MS, World
from rocketmq_ha.reference import remoting_events as events
from rocketmq_ha.reference import remoting_states
from rocketmq_ha.reference.remoting_states import QuestionState

LEGEND: Final = """\
cN       the connection of client N: its state; >n bytes that are on their way to the server; .n of the frame that has begun;
         =n whole frames that wait; ?n requests without an answer; <n bytes that it has to take
held     the numbers of the requests that handlers have
asked    the numbers of our requests that wait for an answer"""


class RemotingWorld(World[RemotingSchedule]):
    name = "remoting"
    whole = "server"
    schedule_type = RemotingSchedule
    event_types = get_args(events.Event)
    legend = LEGEND

    def draw(self, seed: int) -> RemotingSchedule:
        return remoting_schedule.draw(seed)

    def draw_event(self, rng: Random, schedule: RemotingSchedule) -> events.Event:
        return remoting_schedule.draw_event(rng, schedule)

    def fits(self, schedule: RemotingSchedule, event: events.Event) -> bool:
        return remoting_schedule.fits(schedule.settings, event)

    def fitting(self, event: events.Event) -> str:  # noqa: ARG002
        return "a client of the setup"

    def bounds(self, schedule: RemotingSchedule) -> Mapping[tuple[type, str], tuple[int, int]]:
        del schedule  # every number may stand in every schedule
        return remoting_schedule.BOUNDS

    def open(self, schedule: RemotingSchedule, directory: Path) -> tuple[ReferenceRemoting, ImplementationRemoting]:
        del directory  # there are no files
        return ReferenceRemoting(schedule.settings, START_MS), ImplementationRemoting(schedule.settings, START_MS)

    def open_reference(self, schedule: RemotingSchedule) -> ReferenceRemoting:
        return ReferenceRemoting(schedule.settings, START_MS)

    def describe(self, event: events.Event) -> str:
        return describe(event)

    def fault_of(self, event: events.Event) -> str:
        return remoting_schedule.fault_of(event)

    def milliseconds(self, event: events.Event) -> int:
        return event.ms if isinstance(event, events.Tick) else 0

    def headline(self, schedule: RemotingSchedule) -> str:
        limits = schedule.settings
        return (
            f"{limits.clients} client(s); {limits.pending} requests without an answer, {limits.pending_in_all} in all; "
            f"{limits.unsent} B to take; {limits.unfinished} B of unfinished frames"
        )

    def columns(self, schedule: RemotingSchedule) -> tuple[str, ...]:
        return (*(f"c{client}" for client in range(schedule.settings.clients)), "held", "asked")

    def cells(self, reference: ReferenceRemoting) -> list[str]:
        state = reference.state
        row = []
        for client in range(len(state.ends)):
            conn = state.server.connections.get(client)
            text = remoting_states.of_connection(state, client).value
            if conn is not None:
                counts = {
                    ">": len(state.coming[client]),
                    ".": len(conn.left),
                    "=": len(conn.frames),
                    "?": len(conn.pending),
                    "<": len(conn.out),
                }
                text += "".join(f" {mark}{count}" for mark, count in counts.items() if count)
            row.append(text)
        row.append(" ".join(str(one.number) for one in state.held))
        row.append(" ".join(str(one.number) for one in state.questions if one.state is QuestionState.WAITING))
        return row


REMOTING: Final = RemotingWorld()


def _describe_frame(frame: events.Frame) -> str:
    if frame.form not in WHOLE:
        return f"no frame ({frame.form})"
    kind = "an answer" if frame.flag & 1 else "oneway" if frame.flag & 2 else ""
    form = frame.form if frame.form != "command" else "binary" if frame.is_binary else "JSON"
    parts = (f"{frame.code} as {frame.opaque}", kind, form, f"{frame.body_size} B" if frame.body_size else "")
    return " ".join(part for part in parts if part)


def describe(event: events.Event) -> str:
    match event:
        case events.Connect():
            return f"c{event.client} connects"
        case events.End():
            return f"connection of c{event.client} breaks"
        case events.Send():
            return f"c{event.client} sends {', '.join(map(_describe_frame, event.frames)) or 'nothing'}"
        case events.Reply():
            which = "a request that there was not" if event.back < 0 else f"the request {event.back} before the last"
            return f"c{event.client} answers {which}"
        case events.Take():
            return f"c{event.client} takes {event.nbytes} B"
        case events.Read():
            return f"the server reads {event.nbytes} B of c{event.client}"
        case events.Serve():
            return f"a handler answers its request {event.nth} with {event.code}, {event.body_size} B"
        case events.Invoke():
            return f"the server asks c{event.client}, and waits {event.in_ms} ms"
        case events.Notify():
            return f"the server tells c{event.client} something"
        case events.Tick():
            return f"{event.ms} ms pass{'' if event.looks else ', and nobody looks'}"
