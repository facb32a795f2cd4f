"""A remoting server and its clients: `step(remoting, event, settings)`.

Chapter 11: bytes of clients come in pieces, handlers answer at once, later or never, the server asks its clients, and each
limit closes a connection or keeps the server from reading it. The limits are those of a hardened server; no switch of a
profile changes what stands here.
"""

from dataclasses import dataclass
from typing import Final, TypeVar, assert_never

from rocketmq_ha.reference import remoting, remoting_server, remoting_states
from rocketmq_ha.reference import remoting_events as events
from rocketmq_ha.reference.remoting import RESPONSE, Command
from rocketmq_ha.reference.remoting_server import (
    FIELD,
    Answered,
    Closed,
    Ending,
    Given,
    Ignored,
    Limits,
    Output,
    Passed,
    Server,
    Spared,
    Told,
)
from rocketmq_ha.reference.remoting_states import QuestionState, RequestState
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.constants import REMOTING_HEADER_DEPTH_MAX, REMOTING_HEADER_MAX

ASKED: Final = 307  # the codes of our requests: GET_CONSUMER_RUNNING_INFO, NOTIFY_CONSUMER_IDS_CHANGED
NOTIFIED: Final = 40
FILLING: Final = b"x"

# Of requests that were answered at once, and with an error.
_ANSWERS: Final[dict[int, tuple[RequestState, tuple[str, ...]]]] = {
    events.READS: (RequestState.UNREAD, ("HA-RM-13", "HA-RM-18")),
    events.FAULTY: (RequestState.FAULTY, ("HA-RM-18",)),
}
_ENDINGS: Final = {
    Ending.ANSWERED: QuestionState.ANSWERED,
    Ending.LATE: QuestionState.LATE,
    Ending.LOST: QuestionState.LOST,
    Ending.UNSENT: QuestionState.UNSENT,
}


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """What does not change in a run. Bytes and milliseconds, as in remoting_server.Limits."""

    clients: int
    pending: int
    pending_in_all: int
    unsent: int
    unfinished: int
    stall_ms: int = 20_000
    frame_ms: int = 60_000
    idle_ms: int = 120_000

    @property
    def limits(self) -> Limits:
        return Limits(
            self.pending,
            self.pending_in_all,
            self.unsent,
            self.unfinished,
            self.stall_ms,
            self.frame_ms,
            self.idle_ms,
        )


@dataclass(frozen=True, slots=True)
class Held:
    """A request that a handler has. connection: the number of the one that it came on."""

    number: int
    client: int
    connection: int
    request: Command
    state: RequestState

    @property
    def is_pending(self) -> bool:
        return self.state in (RequestState.PENDING, RequestState.PENDING_TWICE)


@dataclass(frozen=True, slots=True)
class Question:
    """A request of ours, also one that has ended, as long as its connection is there."""

    number: int
    client: int
    opaque: int
    deadline_ms: int
    state: QuestionState


@dataclass(frozen=True, slots=True)
class Remoting:
    """Of each client: coming, the bytes that it has sent and the server has not read; connections, how many it has had; ends,
    why the last one has ended; lost, whether it had bytes to take then. requests, asked: how many there were of the clients,
    and of ours. outputs: of the last step.
    """

    now_ms: int
    server: Server
    coming: tuple[bytes, ...]
    connections: tuple[int, ...]
    ends: tuple[str, ...]
    lost: tuple[bool, ...]
    held: tuple[Held, ...] = ()
    questions: tuple[Question, ...] = ()
    requests: int = 0
    asked: int = 0
    outputs: tuple[Output, ...] = ()


def new_remoting(settings: Settings, now_ms: int) -> Remoting:
    """A server to which nobody has connected."""
    server = Server(
        settings.limits,
        now=frozenset({events.AT_ONCE}),
        later=frozenset({events.LATER}),
        reading=frozenset({events.READS}),
        faulty=frozenset({events.FAULTY}),
        unsupported="request code {} is not supported",
        unread=f"field {FIELD}: found {{}}, expected an i32",
        bug="internal error: KeyError",
        unfit="remoting code: found {}, expected an i16",
    )
    count = settings.clients
    return Remoting(now_ms, server, (b"",) * count, (0,) * count, ("",) * count, (False,) * count)


def frame_bytes(frame: events.Frame) -> bytes:
    """The bytes that a client sends for a frame."""
    match frame.form:
        case "bare":
            return _json_frame(b'{"code":%d,"opaque":%d}' % (frame.code, frame.opaque))
        case "loose":
            fields = b'{"queueId":7,"other":true,"none":null}'
            given = frame.code, frame.opaque, frame.flag, fields
            return _json_frame(b'{"code":%d,"opaque":%d,"flag":%d,"remark":"\xff","extFields":%b}' % given)
        case "serialize_type":
            return b"\0\0\0\4\7\0\0\0"
        case "short":
            return b"\0\0\0\3abc"
        case "http":
            return b"GET / HTTP/1.1\r\n\r\n"
        case "beyond":
            return b"\0\0\0\6\0\0\0\3{}"
        case "long_header":  # longer than it may be, and so the frame is not looked at
            return b"\0\0\0\4\0" + (REMOTING_HEADER_MAX + 1).to_bytes(3)
        case "deep":
            deep = REMOTING_HEADER_DEPTH_MAX
            return _json_frame(b'{"code":1,"opaque":1,"a":' + b"[" * deep + b"]" * deep + b"}")
        case "json":
            return _json_frame(b"[")
        case "no_opaque":
            return _json_frame(b'{"code":1}')
        case "behind":
            return _longer_header(remoting.encode(Command(1, 1, serialize_type=remoting.ROCKETMQ)))
        case "cut_off":
            return b"\0\0\0\7\1\0\0\3\0\1\0"
        case "command":
            kind = remoting.ROCKETMQ if frame.is_binary else remoting.JSON
            fields_of = () if frame.number is None else ((FIELD, frame.number),)
            body = FILLING * frame.body_size
            return remoting.encode(
                Command(frame.code, frame.opaque, frame.flag, ext_fields=fields_of, body=body, serialize_type=kind)
            )
        case _:
            assert_never(frame.form)


def _json_frame(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header


def _longer_header(frame: bytes) -> bytes:
    """A binary header with a byte behind its fields."""
    header = frame[8:] + b"\0"
    return (4 + len(header)).to_bytes(4) + b"\1" + len(header).to_bytes(3) + header


def reply_bytes(opaque: int, body_size: int) -> bytes:
    """The bytes of a client's answer."""
    return remoting.encode(Command(0, opaque, RESPONSE, body=FILLING * body_size, serialize_type=remoting.ROCKETMQ))


def step(state: Remoting, event: events.Event) -> tuple[Remoting, tuple[Transition, ...]]:
    """One event, and all that it sets in motion. An event that does not apply does nothing."""
    work = _Work(state, event)
    match event:
        case events.Connect():
            work.connect(event.client)
        case events.End():
            if event.client in state.server.connections:
                work.take(remoting_server.close(state.server, event.client, "end"))
        case events.Send():
            work.send(event.client, b"".join(map(frame_bytes, event.frames)))
        case events.Reply():
            conn = state.server.connections.get(event.client)
            if conn is not None:
                work.send(event.client, reply_bytes(conn.asked - event.back, event.body_size))
        case events.Take():
            work.let_take(event)
        case events.Read():
            work.read(event)
        case events.Serve():
            work.serve(event)
        case events.Invoke():
            work.invoke(event)
        case events.Notify():
            if event.client in state.server.connections:
                work.now = replace(work.now, server=remoting_server.on_notify(state.server, event.client, NOTIFIED))
        case events.Tick():
            work.tick(event)
        case _:
            assert_never(event)
    if not isinstance(event, events.Tick):
        work.note()
    work.settle()
    return work.now, tuple(work.rows)


class _Work:
    """What one step has made so far of the state before it."""

    def __init__(self, before: Remoting, event: events.Event) -> None:
        self.now = replace(before, outputs=())
        self.noted = self.now  # the state up to which the rows of connections are there
        self.label = type(event).__name__.lower()
        # The client whose turn it is. Of the others it may be that they have room now, or none.
        self.subject = 0 if isinstance(event, events.Serve | events.Tick) else event.client
        self.clauses: list[str] = []  # of its connection
        self.read_of: tuple[int, int] | None = None
        self.rows: list[Transition] = []

    def note(self) -> None:
        """The rows of all connections, of what has been done since the last ones."""
        if self.noted is not self.now:
            told = self.label, self.subject, self.read_of, self.clauses
            self.rows += remoting_states.rows_of_connections(self.noted, self.now, *told)
        self.noted, self.read_of, self.clauses = self.now, None, []

    def move_request(self, number: int, was: RequestState, now: RequestState, *clauses: str) -> None:
        self.rows.append(Transition("remoting_request", number, self.label, was.value, now.value, -1, 0, -1, 0, clauses))

    def move_question(self, number: int, was: QuestionState, now: QuestionState, *clauses: str) -> None:
        self.rows.append(Transition("remoting_question", number, self.label, was.value, now.value, -1, 0, -1, 0, clauses))

    # --- Events ----------------------------------------------------------------------------------------------------------

    def connect(self, client: int) -> None:
        if client in self.now.server.connections:
            return
        now = self.now
        self.now = replace(
            now,
            server=remoting_server.on_connect(now.server, client, now.now_ms),
            coming=_with(now.coming, client, b""),
            connections=_with(now.connections, client, now.connections[client] + 1),
            questions=tuple(one for one in now.questions if one.client != client),
        )

    def send(self, client: int, data: bytes) -> None:
        if client in self.now.server.connections:
            self.now = replace(self.now, coming=_with(self.now.coming, client, self.now.coming[client] + data))

    def let_take(self, event: events.Take) -> None:
        now = self.now
        conn = now.server.connections.get(event.client)
        if conn is not None and conn.out:
            nbytes = min(event.nbytes, len(conn.out))
            self.now = replace(now, server=remoting_server.on_sent(now.server, event.client, nbytes, now.now_ms))

    def read(self, event: events.Read) -> None:
        now, client = self.now, event.client
        if client not in now.server.connections or not now.coming[client] or not remoting_server.may_take(now.server, client):
            return
        data, rest = now.coming[client][: event.nbytes], now.coming[client][event.nbytes :]
        self.read_of = len(data), event.nbytes
        self.clauses.append("HA-MD-18")
        self.now = replace(now, coming=_with(now.coming, client, rest))
        self.take(remoting_server.on_bytes(now.server, client, data, now.now_ms))

    def serve(self, event: events.Serve) -> None:
        held = self.now.held
        if not held:
            return
        at = event.nth % len(held)
        one = held[at]
        self.subject = one.client
        self.now = replace(self.now, held=(*held[:at], *held[at + 1 :]))
        step: remoting_server.Step = self.now.server, ()
        if self.now.connections[one.client] == one.connection:
            body = FILLING * event.body_size
            step = remoting_server.on_served(self.now.server, one.client, one.request, event.code, body)
        is_refused = any(isinstance(output, Answered) and output.code != event.code for output in step[1])
        after = RequestState.UNFIT if is_refused else RequestState.ANSWERED if step[1] else RequestState.UNTOLD
        told = ("HA-RM-8", "HA-RM-12", "HA-MD-20") if step[1] else ("HA-RM-11",) if one.request.flag & remoting.ONEWAY else ()
        self.move_request(one.number, one.state, after, *told)
        self.now = replace(self.now, server=step[0], outputs=self.now.outputs + step[1])

    def invoke(self, event: events.Invoke) -> None:
        now, client = self.now, event.client
        if client not in now.server.connections:
            return
        deadline_ms = now.now_ms + event.in_ms
        server, outputs = remoting_server.on_invoke(now.server, client, ASKED, deadline_ms)
        if outputs:
            self.move_question(now.asked, QuestionState.NEW, QuestionState.UNSENT, "HA-RM-24")
            questions = now.questions
        else:
            opaque = server.connections[client].asked
            self.move_question(now.asked, QuestionState.NEW, QuestionState.WAITING, "HA-MD-20")
            questions = (*now.questions, Question(now.asked, client, opaque, deadline_ms, QuestionState.WAITING))
        self.now = replace(now, server=server, questions=questions, asked=now.asked + 1, outputs=outputs)

    def tick(self, event: events.Tick) -> None:
        self.now = replace(self.now, now_ms=self.now.now_ms + event.ms)
        for client in sorted(self.now.server.connections) if event.looks else ():
            now = self.now
            is_ready = bool(now.coming[client]) and remoting_server.may_take(now.server, client)
            self.subject = client
            self.take(remoting_server.on_tick(now.server, client, now.now_ms, is_ready=is_ready))
            self.note()

    def settle(self) -> None:
        """What may be served now is served, until nothing may."""
        self.label = "resume"
        while ready := [
            client
            for client, conn in sorted(self.now.server.connections.items())
            if conn.frames and remoting_server.may_take(self.now.server, client)
        ]:
            self.subject = ready[0]
            self.take(remoting_server.serve(self.now.server, ready[0]))
            self.note()

    # --- What the server has done ----------------------------------------------------------------------------------------

    def take(self, step: remoting_server.Step) -> None:
        server, outputs = step
        self.now = replace(self.now, server=server, outputs=self.now.outputs + outputs)
        for output in outputs:
            match output:
                case Answered():
                    self.on_answered(output)
                case Given():
                    self.on_given(output)
                case Passed():
                    self.move_request(self.number(), RequestState.ARRIVED, RequestState.ONEWAY, "HA-RM-11")
                case Ignored():
                    self.on_ignored(output)
                case Told():
                    self.on_told(output)
                case Closed():
                    self.on_closed(output)
                case Spared():
                    self.clauses.append("HA-RM-29")
                    self.read_of = 0, -1  # its row is there though its state stays
                case _:
                    assert_never(output)

    def number(self) -> int:
        """The number of a request that has arrived now."""
        self.now = replace(self.now, requests=self.now.requests + 1)
        return self.now.requests - 1

    def on_answered(self, output: Answered) -> None:
        """At once."""
        state, clauses = _ANSWERS.get(output.request.code, (RequestState.UNSUPPORTED, ("HA-RM-10",)))
        if output.code == remoting_server.SUCCESS:
            state, clauses = RequestState.ANSWERED, ()
        if dict(output.request.ext_fields).get(FIELD) is not None and output.request.code == events.READS:
            clauses += ("HA-RM-14",)
        form = ("HA-RM-6",) if output.request.serialize_type == remoting.ROCKETMQ else ()
        self.move_request(self.number(), RequestState.ARRIVED, state, "HA-RM-8", "HA-MD-20", *form, *clauses)

    def on_given(self, output: Given) -> None:
        client, request = output.connection, output.request
        connection = self.now.connections[client]
        if request.flag & remoting.ONEWAY:
            state = RequestState.ONEWAY_HELD
        else:
            same = {one.request.opaque for one in self.now.held if one.client == client and one.is_pending}
            state = RequestState.PENDING_TWICE if request.opaque in same else RequestState.PENDING
        number = self.number()
        self.move_request(number, RequestState.ARRIVED, state)
        self.now = replace(self.now, held=(*self.now.held, Held(number, client, connection, request, state)))

    def on_ignored(self, output: Ignored) -> None:
        """HA-RM-15; of a request of ours that has ended, it is one more answer, or a late one."""
        self.clauses.append("HA-RM-15")
        for one in self.now.questions:
            if (one.client, one.opaque) == (output.connection, output.opaque):
                self.move_question(one.number, one.state, one.state, "HA-RM-15")

    def on_told(self, output: Told) -> None:
        for at, one in enumerate(self.now.questions):
            if (one.client, one.opaque) == (output.connection, output.opaque):
                state = _ENDINGS[output.ending]
                if output.ending is Ending.ANSWERED and self.now.now_ms >= one.deadline_ms:
                    state = QuestionState.ANSWERED_LATE
                clause = "HA-RM-12" if output.ending is Ending.ANSWERED else "HA-RM-16"
                self.move_question(one.number, one.state, state, clause)
                self.now = replace(self.now, questions=_with(self.now.questions, at, replace(one, state=state)))

    def on_closed(self, output: Closed) -> None:
        """The questions of the connection end in the outputs behind this one."""
        client, now = output.connection, self.now
        if output.clause:
            self.clauses.append(output.clause)
        left = {one.number for one in now.held if one.client == client and one.is_pending}
        for one in now.held:
            if one.number in left:
                self.move_request(one.number, one.state, RequestState.LEFT)
        self.now = replace(
            now,
            held=tuple(replace(one, state=RequestState.LEFT) if one.number in left else one for one in now.held),
            coming=_with(now.coming, client, b""),
            ends=_with(now.ends, client, output.reason),
            lost=_with(now.lost, client, output.untaken > 0),
        )


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])


# --- Invariants ------------------------------------------------------------------------------------------------------


def broken(state: Remoting) -> tuple[str, ...]:
    """Names of the invariants that do not hold: what clients can make a server hold is bounded, and nothing is forgotten."""
    server, names = state.server, []
    limits, connections = server.limits, server.connections
    pending = {client: len(conn.pending) for client, conn in connections.items()}
    if max(pending.values(), default=0) > limits.pending or sum(pending.values()) > limits.pending_in_all:
        names.append("pending_requests_are_bounded")
    if sum(len(conn.left) for conn in connections.values() if not conn.broken) > limits.unfinished:
        names.append("unfinished_frames_are_bounded")
    if sum(one.is_pending for one in state.held) != sum(pending.values()):
        names.append("a_handler_has_each_pending_request")
    waiting = [one for one in state.questions if one.state is QuestionState.WAITING]
    if len(waiting) != sum(len(conn.waiting) for conn in connections.values()):
        names.append("whoever_asks_is_told")
    if any(conn.frames and remoting_server.may_take(server, client) for client, conn in connections.items()):
        names.append("what_may_be_served_is_served")
    return tuple(names)
