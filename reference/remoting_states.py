"""The names of the discrete states of a remoting server's connections and requests, and the rows of a step.

remoting_clients.py has the steps. An instance of a connection or an output is a client; one of a request is its number in the
run.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from rocketmq_ha.reference import remoting_server
from rocketmq_ha.reference.remoting_server import Connection, Server
from rocketmq_ha.reference.step import Transition, unique

if TYPE_CHECKING:
    from rocketmq_ha.reference.remoting_clients import Remoting


class ConnectionState(Enum):
    """Whether a connection is read from, and how it has ended.

    `_behind`: whole frames wait behind those that were served.
    """

    ABSENT = "absent"
    RESTING = "resting"  # between two frames, and every request has its answer
    ASKING = "asking"  # between two frames, and a request has no answer yet
    WITHIN = "within"  # a frame has begun and is not whole
    # It may not be read from: as many of its requests as may have no answer; or of those of all connections; or it has too
    # much to take. Of several causes the first one counts.
    FULL = "full"
    FULL_BEHIND = "full_behind"
    ALL_FULL = "all_full"
    ALL_FULL_BEHIND = "all_full_behind"
    UNTAKEN = "untaken"
    UNTAKEN_BEHIND = "untaken_behind"
    READY = "ready"  # whole frames wait, and there is room for them now
    BROKEN = "broken"  # behind the frames that wait comes what is none
    ENDED = "ended"
    CLOSED_FOR_FRAME = "closed_for_frame"
    CLOSED_FOR_STALL = "closed_for_stall"
    CLOSED_FOR_UNFINISHED = "closed_for_unfinished"
    CLOSED_FOR_IDLE = "closed_for_idle"


class OutputState(Enum):
    """What a client has to take."""

    EMPTY = "empty"
    UNTAKEN = "untaken"
    STALLED = "stalled"  # a look at the time has found bytes, and the client has taken none since
    OVER = "over"  # more than it may have to take: it gets no more requests, and is not read from
    OVER_STALLED = "over_stalled"
    LOST = "lost"  # its connection has ended before it took all


class RequestState(Enum):
    """A request of a client."""

    ARRIVED = "arrived"
    ANSWERED = "answered"
    UNREAD = "unread"  # answered with an error: its number is missing, or none
    FAULTY = "faulty"  # the same: its handler has met a bug of the program
    UNSUPPORTED = "unsupported"  # the same: no handler knows its code
    UNFIT = "unfit"  # the same: what its handler has answered fits no frame
    PENDING = "pending"
    PENDING_TWICE = "pending_twice"  # when it came, another one with its opaque was pending on its connection
    ONEWAY = "oneway"  # served
    ONEWAY_HELD = "oneway_held"  # a handler has it, and will make an answer of it, which nobody gets
    LEFT = "left"  # a handler has it, and its connection has ended
    UNTOLD = "untold"  # a handler has answered, and nobody got it


class QuestionState(Enum):
    """A request of ours to a client."""

    NEW = "new"
    WAITING = "waiting"
    ANSWERED = "answered"
    ANSWERED_LATE = "answered_late"  # after its deadline, and before a look at the time
    LATE = "late"
    LOST = "lost"
    UNSENT = "unsent"


_ENDS = {
    "end": ConnectionState.ENDED,
    "frame": ConnectionState.CLOSED_FOR_FRAME,
    "stall": ConnectionState.CLOSED_FOR_STALL,
    "unfinished": ConnectionState.CLOSED_FOR_UNFINISHED,
    "idle": ConnectionState.CLOSED_FOR_IDLE,
}


def of_connection(state: "Remoting", client: int) -> ConnectionState:
    server, conn = state.server, state.server.connections.get(client)
    if conn is None:
        end = state.ends[client]
        return _ENDS[end] if end else ConnectionState.ABSENT
    if conn.broken:
        return ConnectionState.BROKEN
    if not remoting_server.may_take(server, client):
        return _of_held_up(server, conn)
    if conn.frames:
        return ConnectionState.READY
    if conn.left:
        return ConnectionState.WITHIN
    return ConnectionState.ASKING if conn.pending else ConnectionState.RESTING


def _of_held_up(server: Server, conn: Connection) -> ConnectionState:
    if len(conn.pending) >= server.limits.pending:
        name = "FULL"
    elif len(conn.out) <= server.limits.unsent:
        name = "ALL_FULL"
    else:
        in_all = sum(len(each.pending) for each in server.connections.values())
        name = "ALL_FULL" if in_all >= server.limits.pending_in_all else "UNTAKEN"
    return ConnectionState[f"{name}_BEHIND" if conn.frames else name]


def of_output(state: "Remoting", client: int) -> OutputState:
    conn = state.server.connections.get(client)
    if conn is None:
        return OutputState.LOST if state.lost[client] else OutputState.EMPTY
    if not conn.out:
        return OutputState.EMPTY
    is_stalled = conn.stalled_ms is not None
    if len(conn.out) > state.server.limits.unsent:
        return OutputState.OVER_STALLED if is_stalled else OutputState.OVER
    return OutputState.STALLED if is_stalled else OutputState.UNTAKEN


def rows_of_connections(
    before: "Remoting",
    after: "Remoting",
    event: str,
    subject: int,
    read: tuple[int, int] | None,
    clauses: Sequence[str],
) -> Iterable[Transition]:
    """The connections and outputs that have changed, and the subject if `read` is there.

    subject: the client that the event is about; what it does to another one is `others`. read: how many bytes were read from
    it, and how many could have been; none and -1 where a look at the time has spared it. clauses: of the subject's connection.
    """
    for client in range(len(after.ends)):
        conn, old = after.server.connections.get(client), before.server.connections.get(client)
        was, now = of_connection(before, client), of_connection(after, client)
        if client != subject:
            if was is not now:
                met = _clauses_of_connection(now)
                yield Transition("remoting_connection", client, "others", was.value, now.value, -1, 0, -1, 0, met)
            continue
        if was is not now or read is not None:
            nbytes, fragment = read or (0, -1)
            split_at = len(conn.left) if conn is not None else 0
            met = unique((*clauses, *_clauses_of_connection(now)))
            yield Transition("remoting_connection", client, event, was.value, now.value, -1, nbytes, fragment, split_at, met)
        output, found = of_output(before, client), of_output(after, client)
        lengths = [len(each.out) if each is not None else 0 for each in (old, conn)]
        if output is not found or lengths[0] != lengths[1]:
            met = ("HA-RM-24",) if found in (OutputState.OVER, OutputState.OVER_STALLED) else ()
            nbytes = abs(lengths[1] - lengths[0])
            yield Transition("remoting_output", client, event, output.value, found.value, -1, nbytes, -1, 0, met)


def _clauses_of_connection(state: ConnectionState) -> tuple[str, ...]:
    match state:
        case ConnectionState.FULL | ConnectionState.FULL_BEHIND | ConnectionState.ALL_FULL | ConnectionState.ALL_FULL_BEHIND:
            return ("HA-RM-23",)
        case ConnectionState.UNTAKEN | ConnectionState.UNTAKEN_BEHIND:
            return ("HA-RM-24",)
        case _:
            return ()
