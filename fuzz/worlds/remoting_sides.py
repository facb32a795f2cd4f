"""Both sides of the world of remoting: the model, and the channels and the dispatcher of a remoting server.

The world plays the sockets, the loop and the clients: it says how many bytes come and are taken, and when the loop looks at the
time. What is not here: TLS, the accepting of connections, and how a turn of the loop shares its work (HA-RM-27).
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final, assert_never

from rocketmq_ha.impl.errors import FrameInvalid, RequestFailed
from rocketmq_ha.impl.net.peer_log import PeerLog
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.channel import Channel, Totals
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Dispatcher
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.reference import remoting_clients, remoting_server
from rocketmq_ha.reference import remoting_events as events
from rocketmq_ha.reference.remoting_clients import ASKED, FILLING, NOTIFIED, Remoting, Settings, frame_bytes, reply_bytes
from rocketmq_ha.reference.remoting_server import (
    FIELD,
    Answered,
    Closed,
    Ending,
    Given,
    Ignored,
    Output,
    Passed,
    Spared,
    Told,
)
from rocketmq_ha.reference.step import Transition

_ONEWAY: Final = 2
_MOST: Final = 1 << 30  # frames that one turn serves: the world has no turns
_REASONS: Final = {"it has taken no byte": "stall", "its frame is not": "unfinished", "idle for": "idle"}

# What a handler has met is in the answer; a campaign prints no line of it.
_log: Final = logging.getLogger(f"{__name__}.silent")
_log.disabled = True


# --- What both sides show --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObservedConnection:
    """frames: whole, and not served. wanted: bytes that the frame which has begun still needs. out: what was not taken yet."""

    link_id: int
    pending: tuple[int, ...]  # opaques, sorted
    frames: tuple[bytes, ...]
    wanted: int
    is_broken: bool
    out: bytes
    may_take: bool
    active_ms: int
    asked: int


@dataclass(frozen=True, slots=True)
class Observation:
    """outputs: of this step, each with its kind first. pending, unfinished: of all connections."""

    ACTOR: ClassVar[str] = "server"
    outputs: tuple[tuple[object, ...], ...]
    pending: int
    unfinished: int
    connections: tuple[ObservedConnection, ...]


def _given(connection: int, code: int, opaque: int, flag: int, body: bytes) -> tuple[object, ...]:
    return "given", connection, code, opaque, flag, body


# --- The model -------------------------------------------------------------------------------------------------------


class ReferenceRemoting:
    """The model. `state` is what it knows."""

    def __init__(self, settings: Settings, now_ms: int) -> None:
        self.state: Remoting = remoting_clients.new_remoting(settings, now_ms)

    def apply(self, event: events.Event) -> tuple[Transition, ...]:
        self.state, transitions = remoting_clients.step(self.state, event)
        return transitions

    def broken(self) -> tuple[str, ...]:
        return remoting_clients.broken(self.state)

    def observe(self) -> Observation:
        server = self.state.server
        connections = sorted(server.connections.items())
        return Observation(
            tuple(_shown(self.state.outputs)),
            sum(len(conn.pending) for _, conn in connections),
            sum(len(conn.left) for _, conn in connections),
            tuple(
                ObservedConnection(
                    client,
                    tuple(sorted(conn.pending)),
                    conn.frames,
                    _wanted(conn.left),
                    bool(conn.broken),
                    conn.out,
                    remoting_server.may_take(server, client),
                    conn.active_ms,
                    conn.asked,
                )
                for client, conn in connections
            ),
        )


def _wanted(left: bytes) -> int:
    if not left:
        return 0
    return 4 + (int.from_bytes(left[:4]) if len(left) >= 4 else 0) - len(left)


def _shown(outputs: Iterable[Output]) -> Iterable[tuple[object, ...]]:
    """What an implementation can show of them, too: nothing shows that a oneway request was served, an answer was ignored, or a
    connection was spared.
    """
    for output in outputs:
        match output:
            case Answered():
                yield "answered", output.connection, output.frame
            case Given():
                request = output.request
                yield _given(output.connection, request.code, request.opaque, request.flag, request.body)
            case Told():
                yield "told", output.connection, output.ending.value, output.body
            case Closed():
                yield "closed", output.connection, output.reason, output.untaken
            case Passed() | Ignored() | Spared():
                pass
            case _:
                assert_never(output)


# --- The implementation ----------------------------------------------------------------------------------------------


class ImplementationRemoting:
    """Channels without sockets, and a dispatcher with five handlers."""

    def __init__(self, settings: Settings, now_ms: int) -> None:
        self._limits = RemotingLimits(
            max_pending=settings.pending,
            max_pending_in_all=settings.pending_in_all,
            max_unsent=settings.unsent,
            max_unfinished=settings.unfinished,
            write_stall_ms=settings.stall_ms,
            frame_deadline_ms=settings.frame_ms,
            idle_ms=settings.idle_ms,
        )
        self._now_ms = now_ms
        self._totals, self._peers, self._dispatcher = Totals(), PeerLog(_log), Dispatcher()
        self._dispatcher.handlers |= {
            events.AT_ONCE: lambda _c, asked, _n: response_to(asked),
            events.LATER: self._later,
            events.READS: lambda _c, asked, _n: response_to(asked, body=b"%d" % fields.i32(asked, FIELD)),
            events.FAULTY: _fail,
        }
        self._channels: dict[int, Channel] = {}
        self._coming: dict[int, bytes] = {}
        self._held: list[tuple[Channel, RemotingCommand]] = []
        self._asked: dict[int, int] = {}
        self._is_ours = False  # what is written is a request of ours
        self._outputs: list[tuple[object, ...]] = []

    def close(self) -> None:
        """Nothing is open."""

    def apply(self, event: events.Event) -> None:
        self._outputs = []
        match event:
            case events.Connect():
                self._connect(event.client)
            case events.End():
                self._close(event.client, "end")
            case events.Send():
                self._send(event.client, b"".join(map(frame_bytes, event.frames)))
            case events.Reply():
                if event.client in self._channels:
                    self._send(event.client, reply_bytes(self._asked[event.client] - event.back, event.body_size))
            case events.Take():
                channel = self._channels.get(event.client)
                if channel is not None and channel.unsent:
                    channel.on_sent(min(event.nbytes, channel.unsent), self._now_ms)
            case events.Read():
                self._read(event)
            case events.Serve():
                if self._held:
                    channel, asked = self._held.pop(event.nth % len(self._held))
                    channel.answer(response_to(asked, event.code, body=FILLING * event.body_size))
            case events.Invoke():
                self._invoke(event)
            case events.Notify():
                channel = self._channels.get(event.client)
                if channel is not None:
                    self._is_ours = True
                    channel.send(RemotingCommand(NOTIFIED, flag=_ONEWAY))
                    self._is_ours = False
            case events.Tick():
                self._tick(event)
            case _:
                assert_never(event)
        self._settle()

    # --- Events ----------------------------------------------------------------------------------------------------------

    def _connect(self, client: int) -> None:
        if client not in self._channels:
            given = ("127.0.0.1", 1), str(client), self._limits, self._totals, self._on_output, self._now_ms
            self._channels[client] = Channel(*given)
            self._coming[client], self._asked[client] = b"", 0

    def _send(self, client: int, data: bytes) -> None:
        if client in self._channels:
            self._coming[client] += data

    def _read(self, event: events.Read) -> None:
        channel, coming = self._channels.get(event.client), self._coming.get(event.client, b"")
        if channel is None or not coming or not channel.may_take:
            return
        data, self._coming[event.client] = coming[: event.nbytes], coming[event.nbytes :]
        channel.on_bytes(data, self._now_ms)
        self._dispatch(event.client)

    def _invoke(self, event: events.Invoke) -> None:
        channel, client = self._channels.get(event.client), event.client
        if channel is None:
            return

        def on_answer(told: RemotingCommand | RequestFailed) -> None:
            if isinstance(told, RemotingCommand):
                self._outputs.append(("told", client, Ending.ANSWERED.value, told.body))
            else:
                ending = Ending.UNSENT if told.is_unsent else Ending.LATE if told.is_late else Ending.LOST
                self._outputs.append(("told", client, ending.value, b""))

        command = RemotingCommand(ASKED)
        self._is_ours = True
        channel.invoke(command, self._now_ms + event.in_ms, on_answer)
        self._is_ours = False
        self._asked[client] = command.opaque or self._asked[client]

    def _tick(self, event: events.Tick) -> None:
        """As a turn of the server's loop does."""
        self._now_ms += event.ms
        for client in sorted(self._channels) if event.looks else ():
            channel = self._channels[client]
            is_ready = bool(self._coming[client]) and channel.may_take
            channel.on_tick(self._now_ms)
            if why := channel.missed_deadline(self._now_ms, is_ready=is_ready):
                self._close(client, next(reason for start, reason in _REASONS.items() if why.startswith(start)))

    def _close(self, client: int, reason: str) -> None:
        channel = self._channels.pop(client, None)
        if channel is not None:
            self._outputs.append(("closed", client, reason, channel.unsent))
            channel.close(reason)

    def _dispatch(self, client: int) -> None:
        try:
            self._dispatcher.dispatch(self._channels[client], self._peers, self._now_ms, _MOST)
        except FrameInvalid:
            self._close(client, "frame")

    def _settle(self) -> None:
        """What may be served now is served, until nothing may, as in the turns of the loop."""
        while ready := [client for client, channel in sorted(self._channels.items()) if channel.frames and channel.may_take]:
            self._dispatch(ready[0])

    # --- What the server calls -------------------------------------------------------------------------------------------

    def _later(self, channel: Channel, asked: RemotingCommand, _now_ms: int) -> None:
        self._held.append((channel, asked))
        self._outputs.append(_given(int(channel.peer), asked.code, asked.opaque, asked.flag, asked.body))

    def _on_output(self, channel: Channel) -> None:
        if not self._is_ours:
            self._outputs.append(("answered", int(channel.peer), bytes(channel.out[-1])))

    # --- Observation -----------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        return Observation(
            tuple(self._outputs),
            self._totals.pending,
            self._totals.unfinished,
            tuple(self._observed(client, channel) for client, channel in sorted(self._channels.items())),
        )

    def _observed(self, client: int, channel: Channel) -> ObservedConnection:
        pending = tuple(sorted(opaque for opaque, count in channel.pending.items() for _ in range(count)))
        assert channel.pending_count == len(pending), (channel.pending_count, pending)
        out = b"".join(channel.out)
        assert channel.unsent == len(out), (channel.unsent, len(out))
        return ObservedConnection(
            client,
            pending,
            tuple(channel.frames),
            channel.wanted,
            channel.error is not None,
            out,
            channel.may_take,
            channel.active_ms,
            self._asked[client],
        )


def _fail(_channel: Channel, asked: RemotingCommand, _now_ms: int) -> RemotingCommand:
    raise KeyError(asked.opaque)
