"""A remoting server and its connections: which request is answered, how, and when a connection is read from or closed.

Sockets, names of peers and the handlers themselves are not here: a code is served at once, later, or not at all. What a
connection has to take counts in bytes. Chapter 11, "Requests and answers" and "Limits for peers of a server".
"""

from dataclasses import dataclass, field
from typing import Final

from rocketmq_ha.reference.remoting import ONEWAY, RESPONSE, Command, Refused, decode, encode, split
from rocketmq_ha.reference.replace import replace

SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
REQUEST_CODE_NOT_SUPPORTED: Final = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """HA-RM-23 to HA-RM-26, and HA-RM-17. Bytes and milliseconds."""

    pending: int
    pending_in_all: int
    unsent: int
    unfinished: int
    stall_ms: int
    frame_ms: int
    idle_ms: int


@dataclass(frozen=True, slots=True)
class Connection:
    """frames: whole, and not served yet. left: of the frame that is not whole. pending: opaques of requests without an answer.
    waiting: opaque and deadline of each request of ours. unsent: bytes that the client has not taken.
    """

    frames: tuple[bytes, ...] = ()
    left: bytes = b""
    is_broken: bool = False
    pending: tuple[int, ...] = ()
    waiting: tuple[tuple[int, int], ...] = ()
    unsent: int = 0
    active_ms: int = 0
    frame_since_ms: int = 0
    stalled_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """connections: by a name of the caller's. now: the codes that are answered at once; later: those that are not; failing:
    those whose fields are never right.

    unsupported: the remark of the answer to any other code, with {} for it; failed: that of one that fails.
    """

    limits: Limits
    now: frozenset[int]
    later: frozenset[int]
    failing: frozenset[int] = frozenset()
    unsupported: str = ""
    failed: str = ""
    connections: dict[int, Connection] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer was put behind what a connection has to take."""

    connection: int
    opaque: int
    code: int
    serialize_type: int


@dataclass(frozen=True, slots=True)
class Told:
    """A request of ours has ended: with an answer, or without one."""

    connection: int
    opaque: int
    is_answered: bool


@dataclass(frozen=True, slots=True)
class Closed:
    connection: int
    reason: str


Output = Answered | Told | Closed
Step = tuple[Server, tuple[Output, ...]]


def on_connect(server: Server, name: int, now_ms: int) -> Server:
    return _with(server, name, Connection(active_ms=now_ms, frame_since_ms=now_ms))


def may_take(server: Server, name: int) -> bool:
    """Whether more requests of a connection may be read and served.

    Spec: HA-RM-23 "MUST NOT read from a connection while 4,096 of its requests, or 65,536 of all connections, have no answer
    yet"; HA-RM-24 "MUST NOT read from a connection that has more than 8 MiB of answers to take".
    """
    conn, limits = server.connections[name], server.limits
    pending_in_all = sum(len(each.pending) for each in server.connections.values())
    return len(conn.pending) < limits.pending and pending_in_all < limits.pending_in_all and conn.unsent <= limits.unsent


def on_bytes(server: Server, name: int, data: bytes, now_ms: int) -> Step:
    """Take bytes, and serve the frames that are whole now.

    Spec: HA-RM-26 "MUST close a connection whose unfinished frame would make those of all connections more than 256 MiB".
    """
    conn = server.connections[name]
    frames, left, is_broken = split(conn.left + data)
    since_ms = now_ms if frames or not conn.left else conn.frame_since_ms
    conn = replace(conn, frames=conn.frames + frames, left=left, is_broken=is_broken, active_ms=now_ms, frame_since_ms=since_ms)
    grown = len(left) > len(server.connections[name].left)
    server = _with(server, name, conn)
    if grown and sum(len(each.left) for each in server.connections.values()) > server.limits.unfinished:
        server = _with(server, name, replace(conn, is_broken=True))
    return serve(server, name)


def serve(server: Server, name: int) -> Step:
    """Serve frames, as far as the connection may take them. HA-RM-18 "only a frame that cannot be read ends it"."""
    outputs: tuple[Output, ...] = ()
    while server.connections[name].frames and may_take(server, name):
        conn = server.connections[name]
        frame, rest = conn.frames[0], conn.frames[1:]
        server = _with(server, name, replace(conn, frames=rest))
        try:
            command = decode(frame)
        except Refused:
            server, more = close(server, name, "frame")
            return server, outputs + more
        server, more = on_command(server, name, command)
        outputs += more
    conn = server.connections[name]
    if conn.is_broken and not conn.frames:
        server, more = close(server, name, "frame")
        outputs += more
    return server, outputs


def on_command(server: Server, name: int, command: Command) -> Step:
    """A request, or an answer to one of ours."""
    conn = server.connections[name]
    if command.flag & RESPONSE:
        if command.opaque not in [opaque for opaque, _ in conn.waiting]:
            return server, ()  # HA-RM-15 "that of no request that waits MUST be ignored"
        waiting = tuple(pair for pair in conn.waiting if pair[0] != command.opaque)
        return _with(server, name, replace(conn, waiting=waiting)), (Told(name, command.opaque, True),)
    if command.flag & ONEWAY:
        return server, ()  # HA-RM-11 "A oneway request MUST NOT be answered"
    if command.code in server.now:
        return answer(server, name, command, SUCCESS)
    if command.code in server.later:
        return _with(server, name, replace(conn, pending=(*conn.pending, command.opaque))), ()
    if command.code in server.failing:
        # HA-RM-13 "MUST be answered SYSTEM_ERROR (1), with a remark of one line, and its connection go on"
        return answer(server, name, command, SYSTEM_ERROR, server.failed or None)
    # HA-RM-10 "MUST be answered REQUEST_CODE_NOT_SUPPORTED (3), and its connection go on"
    return answer(server, name, command, REQUEST_CODE_NOT_SUPPORTED, server.unsupported.format(command.code) or None)


def on_served(server: Server, name: int, request: Command) -> Step:
    """A handler has its answer now. HA-RM-12 "Answers MAY come in any order"; HA-RM-11 "A oneway request MUST NOT"."""
    if name not in server.connections or request.flag & ONEWAY or request.opaque not in server.connections[name].pending:
        return server, ()
    conn = server.connections[name]
    pending = list(conn.pending)
    pending.remove(request.opaque)
    return answer(_with(server, name, replace(conn, pending=tuple(pending))), name, request, SUCCESS)


def answer(server: Server, name: int, request: Command, code: int, remark: str | None = None) -> Step:
    """HA-RM-8 "MUST be written in the serialization of its request"; HA-MD-20 "which repeats the `opaque` of its request"."""
    conn = server.connections[name]
    kind = request.serialize_type
    size = len(encode(Command(code, request.opaque, RESPONSE, "PYTHON", 409, remark, serialize_type=kind)))
    return _with(server, name, replace(conn, unsent=conn.unsent + size)), (Answered(name, request.opaque, code, kind),)


def on_invoke(server: Server, name: int, opaque: int, size: int, deadline_ms: int) -> Server:
    """A request of ours, of so many bytes, to the client."""
    conn = server.connections[name]
    return _with(server, name, replace(conn, waiting=(*conn.waiting, (opaque, deadline_ms)), unsent=conn.unsent + size))


def on_sent(server: Server, name: int, nbytes: int, now_ms: int) -> Server:
    """The client has taken bytes."""
    conn = server.connections[name]
    assert 0 < nbytes <= conn.unsent
    return _with(server, name, replace(conn, unsent=conn.unsent - nbytes, active_ms=now_ms, stalled_ms=None))


def on_tick(server: Server, name: int, now_ms: int) -> Step:
    """Look at the time.

    Spec: HA-RM-16 "MUST give up a request that has no answer at its deadline, or whose connection has ended"; HA-RM-17 "MUST
    close a connection that has neither sent nor received a byte for 120 s"; HA-RM-24 "MUST close one that has taken no byte of
    them for 20 s"; HA-RM-25 "whose frame has begun and is not whole after 60 s MUST be closed".
    """
    conn, limits = server.connections[name], server.limits
    late = tuple(Told(name, opaque, False) for opaque, deadline_ms in conn.waiting if now_ms >= deadline_ms)
    stalled_ms = now_ms if conn.unsent and conn.stalled_ms is None else conn.stalled_ms
    conn = replace(
        conn, waiting=tuple(pair for pair in conn.waiting if now_ms < pair[1]), stalled_ms=stalled_ms if conn.unsent else None
    )
    server = _with(server, name, conn)
    if conn.stalled_ms is not None and now_ms - conn.stalled_ms >= limits.stall_ms:
        server, closed = close(server, name, "stall")
    elif conn.left and now_ms - conn.frame_since_ms >= limits.frame_ms:
        server, closed = close(server, name, "unfinished")
    elif now_ms - conn.active_ms >= limits.idle_ms:
        server, closed = close(server, name, "idle")
    else:
        closed = ()
    return server, (*late, *closed)


def close(server: Server, name: int, reason: str) -> Step:
    """Whoever waits for an answer of the client is told; answers that are still to come go nowhere."""
    conn = server.connections[name]
    rest = {other: each for other, each in server.connections.items() if other != name}
    told = tuple(Told(name, opaque, False) for opaque, _ in conn.waiting)
    return replace(server, connections=rest), (Closed(name, reason), *told)


def _with(server: Server, name: int, conn: Connection) -> Server:
    return replace(server, connections=server.connections | {name: conn})
