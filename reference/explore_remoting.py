"""The transitions of a remoting server's connections and requests, found by exploring small scopes (transitions.py).

A scope has limits, the streams that clients may send, and how many requests handlers and clients may have at a time. Two states
with the same key count as one. A key has what is on the way, byte by byte; of what a client has to take it has whether that is
more than it may be, and of each age whether its deadline has passed. No profile changes any of it: each scope is explored once.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, get_args

from rocketmq_ha.reference import remoting_clients, remoting_server
from rocketmq_ha.reference import remoting_events as events
from rocketmq_ha.reference.remoting_clients import Remoting, Settings
from rocketmq_ha.reference.remoting_events import AT_ONCE, FAULTY, LATER, READS, UNKNOWN, Form, Frame
from rocketmq_ha.reference.remoting_server import Connection
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.spec.profile import Profile

ONEWAY: Final = 2
STALL_MS, FRAME_MS, IDLE_MS = 20, 60, 120
UNFIT: Final = 40_000  # the code of an answer that fits no frame
LITTLE: Final = 10  # bytes of unfinished frames
MUCH: Final = 1 << 20  # bytes: no limit that a scope reaches

Stream = tuple[Frame, ...]


def _asks(code: int, opaque: int = 1, flag: int = 0) -> Frame:
    return Frame(code, opaque, flag, is_binary=True)


NOW, HELD, TOLD = _asks(AT_ONCE), _asks(LATER), _asks(LATER, flag=ONEWAY)
BAD: Final = Frame(0, 0, form="short")
UNREADABLE: Final = Frame(0, 0, form="json")
OF_NOBODY: Final = _asks(0, opaque=99, flag=1)  # an answer to a request that there was not


@dataclass(frozen=True, slots=True)
class Scope:
    """streams: what each client sends. held, asked: the most requests that handlers have, and that wait for each client."""

    settings: Settings
    streams: tuple[tuple[Stream, ...], ...]
    held: int = 1
    asked: int = 0
    pieces: bool = True  # the server also reads a part of what has come
    ticks: tuple[events.Tick, ...] = ()
    codes: tuple[int, ...] = (0,)  # of the handlers' answers
    ends: bool = True  # connections break
    notifies: bool = False
    main: int = 0  # the client that this is about; of another one the key has little


def _limits(clients: int, pending: int, pending_in_all: int, unsent: int, unfinished: int = MUCH) -> Settings:
    return Settings(clients, pending, pending_in_all, unsent, unfinished, STALL_MS, FRAME_MS, IDLE_MS)


_LOOKS: Final = tuple(events.Tick(ms) for ms in (STALL_MS, FRAME_MS, IDLE_MS))
_PASSES: Final = (events.Tick(IDLE_MS, looks=False),)
_EVERY_FORM: Final[tuple[Stream, ...]] = tuple((Frame(READS, 1, form=form),) for form in get_args(Form))
_EVERY_REQUEST: Final = (
    *(_asks(code) for code in (AT_ONCE, LATER, READS, FAULTY, UNKNOWN)),
    *(_asks(code, flag=ONEWAY) for code in (AT_ONCE, LATER)),
    Frame(READS, 1, is_binary=True, number="7"),
)
ONE_ANSWER: Final = 40  # bytes: more than one answer to NOW or HELD, and less than two, or a request of ours
ONE_QUESTION: Final = 150  # more than a request of ours and an answer, and less than two requests
_BEHIND: Final[tuple[Stream, ...]] = (
    (HELD,), (NOW,), (HELD, HELD), (HELD, NOW), (HELD, NOW, NOW), (NOW, HELD), (NOW, HELD, NOW),
    (BAD,), (HELD, BAD), (HELD, HELD, BAD), (NOW, UNREADABLE), (HELD, UNREADABLE), (HELD, HELD, NOW),
)  # fmt: skip
_BESIDE: Final[tuple[Stream, ...]] = (
    (HELD,), (NOW,), (HELD, HELD), (HELD, NOW), (HELD, NOW, NOW), (HELD, NOW, BAD), (NOW, UNREADABLE),
)  # fmt: skip
_OTHER: Final[tuple[Stream, ...]] = ((HELD,), (HELD, HELD))


def _beside_another(settings: Settings, streams: tuple[Stream, ...], main: int = 1) -> Scope:
    """main: 1 where the other client is served first, when there is room."""
    return Scope(settings, (_OTHER, streams) if main else (streams, _OTHER), held=2, ticks=_LOOKS, main=main)


_SCOPES: Final = (
    # Every kind of frame, and every answer to one, at once and when there is room for it.
    Scope(_limits(1, 1, 9, 0), (_EVERY_FORM,), ticks=_LOOKS),
    Scope(_limits(1, 1, 9, MUCH), (tuple((HELD, frame) for frame in _EVERY_REQUEST),), pieces=False, ends=False),
    Scope(_limits(1, 9, 9, MUCH), (tuple((frame,) for frame in _EVERY_REQUEST),), pieces=False, ends=False),
    # Two requests with one opaque; answers that fit no frame.
    Scope(
        _limits(1, 2, 9, MUCH),
        (((HELD,), (HELD, HELD, BAD), (BAD,)),),
        held=3,
        pieces=False,
        ticks=_LOOKS[2:],
        codes=(0, UNFIT),
    ),
    # Frames behind those for which there is no room: of its own requests, of what it has to take.
    Scope(_limits(1, 1, 9, 0), (_BEHIND,), held=2, ticks=_LOOKS),
    Scope(_limits(1, 2, 9, 0), (_BEHIND,), held=2, ticks=_LOOKS),
    Scope(_limits(1, 1, 9, MUCH), (_BEHIND,), held=2, ticks=_LOOKS),
    Scope(_limits(1, 2, 9, MUCH), (_BEHIND,), held=2),
    Scope(_limits(1, 1, 9, MUCH, LITTLE), (((HELD,), (HELD, HELD), (HELD, HELD, HELD)),), held=2, ticks=_LOOKS),
    Scope(_limits(1, 2, 9, ONE_ANSWER), (((NOW,), (NOW, NOW), (HELD,), (BAD,), (NOW, BAD)),), held=2, ticks=_LOOKS),
    # What the server tells and asks.
    Scope(_limits(1, 1, 9, ONE_ANSWER), (((NOW,),),), asked=1, ticks=_LOOKS),
    Scope(_limits(1, 2, 9, ONE_QUESTION), (((HELD,), (NOW,), (BAD,)),), asked=1, ticks=(_LOOKS[0], *_PASSES)),
    Scope(_limits(1, 1, 9, MUCH), (((HELD, NOW, BAD),),), asked=1, pieces=False),
    *(
        Scope(_limits(1, 2, 9, unsent), (((NOW,), (HELD,)),), ticks=_LOOKS[:1], notifies=True)
        for unsent in (ONE_ANSWER, ONE_QUESTION)
    ),
    # No room for the requests of all.
    _beside_another(_limits(2, 1, 1, 0), _BESIDE, main=0),
    _beside_another(_limits(2, 1, 1, 0), _BESIDE),
    _beside_another(_limits(2, 3, 2, MUCH), _BESIDE),
    _beside_another(_limits(2, 2, 2, MUCH, LITTLE), ((HELD, HELD), (HELD, HELD, HELD))),
    _beside_another(_limits(2, 3, 2, ONE_ANSWER), ((HELD,), (NOW, NOW, NOW), (HELD, HELD, NOW), (HELD, NOW, NOW))),
)


# --- What tells states apart -----------------------------------------------------------------------------------------


def _key(state: Remoting, main: int) -> Hashable:
    return (
        tuple(_key_of_client(state, client, is_main=client == main) for client in range(len(state.ends))),
        tuple(
            sorted(
                (
                    one.client,
                    one.connection == state.connections[one.client],
                    one.request.flag,
                    one.request.opaque,
                    one.state.value,
                )
                for one in state.held
                if one.is_pending or len(state.ends) == 1
            )
        ),
        tuple((one.state, *_key_of_age(one.deadline_ms - state.now_ms)) for one in state.questions),
    )


def _key_of_age(ms: int) -> tuple[bool, ...]:
    return tuple(ms > bound for bound in (0, STALL_MS, IDLE_MS))


def _key_of_client(state: Remoting, client: int, *, is_main: bool) -> Hashable:
    conn = state.server.connections.get(client)
    if conn is None:
        return (state.ends[client], state.lost[client]) if is_main else None
    if not is_main:
        return len(conn.frames), state.coming[client], conn.pending, len(conn.out) > state.server.limits.unsent
    now_ms, limits = state.now_ms, state.server.limits
    return (
        conn.frames,
        conn.left,
        state.coming[client],
        bool(conn.broken),
        conn.pending,
        tuple(conn.asked - opaque for opaque, _ in conn.waiting),
        conn.has_taken if conn.waiting else False,
        _key_of_output(state, conn),
        bool(conn.left) and now_ms - conn.frame_since_ms >= limits.frame_ms,
        conn.stalled_ms is not None and now_ms - conn.stalled_ms >= limits.stall_ms,
        now_ms - conn.active_ms >= limits.idle_ms,
    )


def _key_of_output(state: Remoting, conn: Connection) -> Hashable:
    return min(len(conn.out), 2), len(conn.out) > state.server.limits.unsent, conn.stalled_ms is not None


# --- The exploration -------------------------------------------------------------------------------------------------


def rows(_profile: Profile) -> frozenset[Transition]:
    """The rows of all machines of the world, which are the same in every profile."""
    return _rows()


@cache
def _rows() -> frozenset[Transition]:
    found: set[Transition] = set()
    for scope in _SCOPES:
        explore(scope, found)
    return frozenset(found)


def explore(scope: Scope, found: set[Transition]) -> int:
    """Add the rows of a scope. Returns: how many states it has."""
    start = remoting_clients.new_remoting(scope.settings, 0)
    seen, frontier = {_key(start, scope.main)}, [start]
    while frontier:
        state = frontier.pop()
        for event in _events(state, scope):
            after, transitions = remoting_clients.step(state, event)
            found.update(transitions)
            if (name := _key(after, scope.main)) not in seen:
                seen.add(name)
                frontier.append(after)
    return len(seen)


def _events(state: Remoting, scope: Scope) -> Iterator[events.Event]:
    """What may come next. A server that has read all but a byte may be sent more."""
    is_beside = len(scope.streams) > 1  # what handlers have of connections that have ended is in other scopes
    for client, streams in enumerate(scope.streams):
        conn = state.server.connections.get(client)
        if conn is None:
            yield events.Connect(client)
            continue
        if scope.ends:
            yield events.End(client)
        coming = state.coming[client]
        if len(coming) <= (1 if client == scope.main else 0) and not conn.frames:
            is_full = sum(one.is_pending or not is_beside for one in state.held) >= scope.held
            yield from (events.Send(client, stream) for stream in streams if not (is_full and _holds(stream)))
            if conn.asked:
                yield events.Reply(client, 0)
        if coming and remoting_server.may_take(state.server, client):
            yield from (
                events.Read(client, nbytes) for nbytes in _sizes(len(coming), pieces=scope.pieces and client == scope.main)
            )
        if conn.out:
            over = len(conn.out) - scope.settings.unsent
            yield from (events.Take(client, nbytes) for nbytes in {len(conn.out), len(conn.out) - 1, over} if nbytes > 0)
        if conn.asked < scope.asked:
            yield from (events.Invoke(client, in_ms) for in_ms in (STALL_MS, IDLE_MS + 1))
        if scope.notifies and len(conn.out) <= scope.settings.unsent:
            yield events.Notify(client)
    for nth, one in enumerate(state.held):
        if one.is_pending or not is_beside:
            yield from (events.Serve(nth, code) for code in scope.codes)
    yield from scope.ticks


def _holds(stream: Stream) -> bool:
    return any(frame.code == LATER for frame in stream)


def _sizes(coming: int, *, pieces: bool) -> Iterator[int]:
    yield coming
    if pieces and coming > 1:
        yield coming - 1
