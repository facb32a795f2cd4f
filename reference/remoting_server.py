"""A remoting server and its connections: which request is answered, how, and when a connection is read from or closed.

Sockets, names of peers and the handlers themselves are not here: a code is served at once, later, or not at all. What a
connection has to take counts in bytes. Chapter 11, "Requests and answers" and "Limits for peers of a server".
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rocketmq_ha.reference import remoting
from rocketmq_ha.reference.remoting import ONEWAY, RESPONSE, Command, Refused, decode, encode, split
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.spec.constants import REMOTING_VERSION

SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
REQUEST_CODE_NOT_SUPPORTED: Final = 3
LANGUAGE: Final = "PYTHON"
FIELD: Final = "queueId"  # what the codes that read a number read
_SHOWN: Final = 60  # characters of a value that a remark repeats

# HA-MD-20 where no reason of `remoting.decode` stands here: the header is no JSON object that has what it must have.
_CLAUSE_OF_FRAME: Final = {
    "serialize type": "HA-RM-1",
    "too short": "HA-RM-2",
    "header size": "HA-RM-2",
    "bytes behind the fields": "HA-RM-7",
    "a field cut off": "HA-RM-7",
    "long header": "HA-RM-20",
    "depth": "HA-RM-21",
}


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
    waiting: opaque and deadline of each request of ours. out: bytes that the client has not taken.
    """

    frames: tuple[bytes, ...] = ()
    left: bytes = b""
    broken: str = ""  # the clause by which what follows the frames is refused; nothing more is read then
    pending: tuple[int, ...] = ()
    waiting: tuple[tuple[int, int], ...] = ()
    asked: int = 0  # requests of ours so far: the last one has this opaque
    out: bytes = b""
    has_taken: bool = False  # the client has taken a byte of anything
    active_ms: int = 0
    frame_since_ms: int = 0
    stalled_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """connections: by a name of the caller's. now: the codes that are answered at once; later: those that are not; reading:
    those that are answered with the number in FIELD; faulty: those whose handler meets a bug of the program.

    The remarks are ours, not the specification's; {} stands for what is named. unsupported: of the answer to any other code.
    unread: of that to a request without its number. bug: of that to a faulty one. unfit: of the answer that stands for one
    whose code fits no frame.
    """

    limits: Limits
    now: frozenset[int]
    later: frozenset[int]
    reading: frozenset[int] = frozenset()
    faulty: frozenset[int] = frozenset()
    unsupported: str = ""
    unread: str = ""
    bug: str = ""
    unfit: str = ""
    connections: dict[int, Connection] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request was put behind what its connection has to take. frame: as it is written."""

    connection: int
    request: Command
    code: int
    frame: bytes


@dataclass(frozen=True, slots=True)
class Given:
    """A handler has a request that it answers later, or never, as one that is oneway."""

    connection: int
    request: Command


@dataclass(frozen=True, slots=True)
class Passed:
    """A oneway request was served, and nothing shows it."""

    connection: int
    opaque: int


@dataclass(frozen=True, slots=True)
class Ignored:
    """An answer came that nobody waits for."""

    connection: int
    opaque: int


class Ending(Enum):
    """How a request of ours ends."""

    ANSWERED = "answered"
    LATE = "late"  # no answer by its deadline
    LOST = "lost"  # its connection has ended
    UNSENT = "unsent"  # nobody can have got it: the connection took no more requests, or its client never took a byte


@dataclass(frozen=True, slots=True)
class Told:
    """A request of ours has ended. body: of the answer."""

    connection: int
    opaque: int
    ending: Ending
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Closed:
    """clause: why, where a clause says so. untaken: bytes that its client had to take."""

    connection: int
    reason: str
    clause: str
    untaken: int


@dataclass(frozen=True, slots=True)
class Spared:
    """A deadline for bytes of a client has passed, and the server does not read from it."""

    connection: int


Output = Answered | Given | Passed | Ignored | Told | Closed | Spared
Step = tuple[Server, tuple[Output, ...]]


def on_connect(server: Server, name: int, now_ms: int) -> Server:
    return _with(server, name, Connection(active_ms=now_ms, frame_since_ms=now_ms))


def may_take(server: Server, name: int) -> bool:
    """Whether more requests of a connection may be read and served.

    Spec: HA-RM-23 "MUST NOT read from a connection while 4,096 of its requests, or 65,536 of all connections, that want an
    answer have none yet"; HA-RM-24 "MUST NOT read from a connection that has more than 8 MiB to take".
    """
    conn, limits = server.connections[name], server.limits
    pending_in_all = sum(len(each.pending) for each in server.connections.values())
    return len(conn.pending) < limits.pending and pending_in_all < limits.pending_in_all and len(conn.out) <= limits.unsent


def on_bytes(server: Server, name: int, data: bytes, now_ms: int) -> Step:
    """Take bytes, and serve the frames that are whole now.

    Spec: HA-RM-26 "MUST close a connection whose unfinished frame would make those of all connections more than 256 MiB".
    """
    conn = server.connections[name]
    stream = conn.left + data
    frames, left, is_broken = split(stream)
    since_ms = now_ms if frames or not conn.left else conn.frame_since_ms
    broken = _clause_of_length(stream[sum(4 + len(frame) for frame in frames) :]) if is_broken else ""
    conn = replace(conn, frames=conn.frames + frames, left=left, broken=broken, active_ms=now_ms, frame_since_ms=since_ms)
    grown = len(left) > len(server.connections[name].left)
    server = _with(server, name, conn)
    if grown and sum(len(each.left) for each in server.connections.values()) > server.limits.unfinished:
        server = _with(server, name, replace(conn, broken="HA-RM-26"))
    return serve(server, name)


def _clause_of_length(stream: bytes) -> str:
    """HA-RM-2 "A frame whose length is less than 4"; HA-MD-19 "A frame of more than 16 MiB"."""
    return "HA-RM-2" if int.from_bytes(stream[:4], signed=True) < 4 else "HA-MD-19"


def serve(server: Server, name: int) -> Step:
    """Serve frames, as far as the connection may take them, and close it at one that cannot be read."""
    outputs: tuple[Output, ...] = ()
    while server.connections[name].frames and may_take(server, name):
        conn = server.connections[name]
        frame, rest = conn.frames[0], conn.frames[1:]
        server = _with(server, name, replace(conn, frames=rest))
        try:
            command = decode(frame)
        except Refused as refused:
            server, more = close(server, name, "frame", _CLAUSE_OF_FRAME.get(str(refused), "HA-MD-20"))
            return server, outputs + more
        server, more = on_command(server, name, command)
        outputs += more
    conn = server.connections[name]
    if conn.broken and not conn.frames:
        server, more = close(server, name, "frame", conn.broken)
        outputs += more
    return server, outputs


def on_command(server: Server, name: int, command: Command) -> Step:
    """A request, or an answer to one of ours."""
    conn = server.connections[name]
    if command.flag & RESPONSE:
        if command.opaque not in [opaque for opaque, _ in conn.waiting]:
            return server, (Ignored(name, command.opaque),)  # HA-RM-15 "that waits on its connection MUST be ignored"
        waiting = tuple(pair for pair in conn.waiting if pair[0] != command.opaque)
        told = Told(name, command.opaque, Ending.ANSWERED, command.body)
        return _with(server, name, replace(conn, waiting=waiting)), (told,)
    is_oneway = bool(command.flag & ONEWAY)
    if command.code in server.later:
        if not is_oneway:
            server = _with(server, name, replace(conn, pending=(*conn.pending, command.opaque)))
        return server, (Given(name, command),)
    if is_oneway:
        return server, (Passed(name, command.opaque),)  # HA-RM-11 "A oneway request MUST NOT be answered"
    if command.code in server.now:
        return answer(server, name, command, SUCCESS)
    if command.code in server.reading:
        return _on_number(server, name, command)
    if command.code in server.faulty:  # HA-RM-18 "MUST close no connection because a request on it failed"
        return answer(server, name, command, SYSTEM_ERROR, server.bug or None)
    # HA-RM-10 "MUST be answered REQUEST_CODE_NOT_SUPPORTED (3), and its connection go on"
    return answer(server, name, command, REQUEST_CODE_NOT_SUPPORTED, server.unsupported.format(command.code) or None)


def _on_number(server: Server, name: int, command: Command) -> Step:
    """HA-RM-13 "MUST be answered SYSTEM_ERROR (1), with a remark of one line, and its connection go on"."""
    text = dict(command.ext_fields).get(FIELD)
    number = None if text is None else remoting.read_number(text, 32)
    if number is not None:
        return answer(server, name, command, SUCCESS, body=b"%d" % number)
    why = server.unread.format("nothing" if text is None else repr(text[:_SHOWN]))
    return answer(server, name, command, SYSTEM_ERROR, " ".join(why.split()) or None)


def on_served(server: Server, name: int, request: Command, code: int = SUCCESS, body: bytes = b"") -> Step:
    """A handler has its answer now. HA-RM-12 "Answers MAY come in any order"; HA-RM-11 "A oneway request MUST NOT"."""
    if name not in server.connections or request.flag & ONEWAY or request.opaque not in server.connections[name].pending:
        return server, ()
    conn = server.connections[name]
    pending = list(conn.pending)
    pending.remove(request.opaque)
    return answer(_with(server, name, replace(conn, pending=tuple(pending))), name, request, code, body=body)


def answer(server: Server, name: int, request: Command, code: int, remark: str | None = None, body: bytes = b"") -> Step:
    """HA-RM-8 "MUST be written in the serialization of its request"; HA-MD-20 "which repeats the `opaque` of its request"."""
    conn, kind = server.connections[name], request.serialize_type
    try:
        frame = encode(_ours(code, request.opaque, RESPONSE, remark, body, kind))
    except Refused:  # whoever asked is told all the same
        remark, code = server.unfit.format(code) or None, SYSTEM_ERROR
        frame = encode(_ours(code, request.opaque, RESPONSE, remark, b"", kind))
    return _with(server, name, replace(conn, out=conn.out + frame)), (Answered(name, request, code, frame),)


def _ours(code: int, opaque: int, flag: int, remark: str | None, body: bytes, kind: int) -> Command:
    return Command(code, opaque, flag, LANGUAGE, REMOTING_VERSION, remark, body=body, serialize_type=kind)


def on_invoke(server: Server, name: int, code: int, deadline_ms: int, body: bytes = b"") -> Step:
    """A request of ours to the client. HA-RM-24 "MUST NOT send it requests of its own": whoever asks is told so."""
    conn = server.connections[name]
    if len(conn.out) > server.limits.unsent:
        return server, (Told(name, 0, Ending.UNSENT),)
    opaque = conn.asked + 1
    frame = encode(_ours(code, opaque, 0, None, body, remoting.JSON))
    waiting = (*conn.waiting, (opaque, deadline_ms))
    return _with(server, name, replace(conn, asked=opaque, waiting=waiting, out=conn.out + frame)), ()


def on_notify(server: Server, name: int, code: int) -> Server:
    """A oneway request of ours to the client. HA-RM-24 "MUST NOT send it requests of its own": it is left out."""
    conn = server.connections[name]
    if len(conn.out) > server.limits.unsent:
        return server
    return _with(server, name, replace(conn, out=conn.out + encode(_ours(code, 0, ONEWAY, None, b"", remoting.JSON))))


def on_sent(server: Server, name: int, nbytes: int, now_ms: int) -> Server:
    """The client has taken bytes."""
    conn = server.connections[name]
    assert 0 < nbytes <= len(conn.out)
    return _with(server, name, replace(conn, out=conn.out[nbytes:], has_taken=True, active_ms=now_ms, stalled_ms=None))


def on_tick(server: Server, name: int, now_ms: int, *, is_ready: bool = False) -> Step:
    """Look at the time. is_ready: bytes have come that may be read and were not yet; their connection is not idle.

    Spec: HA-RM-16 "MUST give up a request that has no answer at its deadline, or whose connection has ended"; HA-RM-17 "MUST
    close a connection that has neither sent nor received a byte for 120 s"; HA-RM-24 "MUST close one that has taken no byte of
    what it has to take for 20 s"; HA-RM-25 "whose frame has begun and is not whole after 60 s MUST be closed"; HA-RM-29 "MUST
    NOT close a connection for what it has not read".
    """
    conn, limits, is_read = server.connections[name], server.limits, may_take(server, name)
    late = tuple(Told(name, opaque, Ending.LATE) for opaque, deadline_ms in conn.waiting if now_ms >= deadline_ms)
    is_unfinished = bool(conn.left) and now_ms - conn.frame_since_ms >= limits.frame_ms
    is_idle = now_ms - conn.active_ms >= limits.idle_ms and not is_ready
    stalled_ms = now_ms if conn.out and conn.stalled_ms is None else conn.stalled_ms
    conn = replace(
        conn,
        waiting=tuple(pair for pair in conn.waiting if now_ms < pair[1]),
        stalled_ms=stalled_ms if conn.out else None,
        frame_since_ms=conn.frame_since_ms if is_read else now_ms,
    )
    server = _with(server, name, conn)
    closed: tuple[Output, ...] = ()
    if conn.stalled_ms is not None and now_ms - conn.stalled_ms >= limits.stall_ms:
        server, closed = close(server, name, "stall", "HA-RM-24")
    elif not is_read:
        closed = (Spared(name),) if is_unfinished or is_idle else ()
    elif is_unfinished:
        server, closed = close(server, name, "unfinished", "HA-RM-25")
    elif is_idle:
        server, closed = close(server, name, "idle", "HA-RM-17")
    return server, (*late, *closed)


def close(server: Server, name: int, reason: str, clause: str = "") -> Step:
    """Whoever waits for an answer of the client is told; answers that are still to come go nowhere."""
    conn = server.connections[name]
    rest = {other: each for other, each in server.connections.items() if other != name}
    ending = Ending.LOST if conn.has_taken else Ending.UNSENT
    told = tuple(Told(name, opaque, ending) for opaque, _ in conn.waiting)
    return replace(server, connections=rest), (Closed(name, reason, clause, len(conn.out)), *told)


def _with(server: Server, name: int, conn: Connection) -> Server:
    return replace(server, connections=server.connections | {name: conn})
