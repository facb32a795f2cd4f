"""Remoting in lock-step: the model's server and ours, without sockets, get the same bytes, answers and time.

HA-RM-10 to HA-RM-12, HA-RM-15 to HA-RM-18, and HA-RM-23 to HA-RM-26, with limits of a few requests and bytes.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rocketmq_ha.impl.errors import FrameInvalid, RequestFailed
from rocketmq_ha.impl.net.peer_log import PeerLog
from rocketmq_ha.impl.remoting import dispatch as dispatch_module
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.channel import Channel, Totals
from rocketmq_ha.impl.remoting.command import RemotingCommand, decode, request, response_to
from rocketmq_ha.impl.remoting.dispatch import Dispatcher
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.reference import remoting as model
from rocketmq_ha.reference import remoting_server as reference
from rocketmq_ha.reference.remoting_server import Answered, Closed, Output, Told

NOW, LATER, FAILING, UNKNOWN, ASKED = 10, 11, 12, 4242, 307
NAMES = st.sampled_from([0, 1])
LIMITS = reference.Limits(
    pending=3, pending_in_all=4, unsent=300, unfinished=90, stall_ms=20_000, frame_ms=60_000, idle_ms=120_000
)
OURS = RemotingLimits(
    max_pending=LIMITS.pending,
    max_pending_in_all=LIMITS.pending_in_all,
    max_unsent=LIMITS.unsent,
    max_unfinished=LIMITS.unfinished,
    write_stall_ms=LIMITS.stall_ms,
    frame_deadline_ms=LIMITS.frame_ms,
    idle_ms=LIMITS.idle_ms,
)
REASONS = {"it has taken no byte": "stall", "its frame is not": "unfinished", "idle for": "idle"}

commands = st.builds(
    model.Command,
    code=st.sampled_from([NOW, LATER, LATER, FAILING, UNKNOWN]),
    opaque=st.integers(1, 4),
    flag=st.sampled_from([0, 0, 0, 1, 2]),
    body=st.sampled_from([b"", b"x" * 20]),
    serialize_type=st.sampled_from([model.JSON, model.ROCKETMQ, model.ROCKETMQ]),
)
bad = st.sampled_from([b"\0\0\0\5\0\0\0\1[", b"\0\0\0\4\7\0\0\0", b"\0\0\0\1", b"GET / HTTP/1.1\r\n"])
frames = st.integers(0, 29).flatmap(lambda kind: commands.map(model.encode) if kind else bad)
streams = st.lists(frames, min_size=1, max_size=4).map(b"".join)
sizes = st.sampled_from([2_000, 400, 120, 50, 7])  # of one read


class LockStep(RuleBasedStateMachine):
    """`coming` are the bytes that a client has sent and that neither server has read yet; `found` is what ours has done."""

    @initialize()
    def begin(self) -> None:
        self.now_ms = 1_000
        unsupported = "request code {} is not supported"
        failed = "field topic: found nothing, expected text"
        self.model = reference.Server(LIMITS, frozenset({NOW}), frozenset({LATER}), frozenset({FAILING}), unsupported, failed)
        self.totals, self.peers = Totals(), PeerLog(dispatch_module.log)
        self.dispatcher = Dispatcher()
        self.dispatcher.handlers |= {
            NOW: lambda _c, asked, _n: response_to(asked),
            LATER: self.later,
            FAILING: lambda _c, asked, _n: response_to(asked, body=fields.text(asked, "topic").encode()),
        }
        self.ours: dict[int, Channel] = {}
        self.coming: dict[int, bytes] = {}
        self.asked: list[tuple[int, RemotingCommand]] = []
        self.found: list[Output] = []
        for name in (0, 1):
            self.connect(name)

    def name_of(self, channel: Channel) -> int:
        return int(channel.peer)

    def later(self, channel: Channel, asked: RemotingCommand, _now_ms: int) -> None:
        self.asked.append((self.name_of(channel), asked))

    def on_output(self, channel: Channel) -> None:
        written = decode(bytes(channel.out[-1])[4:])
        if written.is_response:
            self.found.append(Answered(self.name_of(channel), written.opaque, written.code, written.serialize_type))

    def connect(self, name: int) -> None:
        self.ours[name] = Channel(("127.0.0.1", 1), str(name), OURS, self.totals, self.on_output, self.now_ms)
        self.coming[name] = b""
        self.model = reference.on_connect(self.model, name, self.now_ms)

    def close(self, name: int, reason: str) -> None:
        self.found.append(Closed(name, reason))
        self.ours.pop(name).close(reason)

    def dispatch(self, name: int) -> None:
        try:
            self.dispatcher.dispatch(self.ours[name], self.peers, self.now_ms, 1_000)
        except FrameInvalid:
            self.close(name, "frame")

    def agree(self, step: reference.Step) -> None:
        """Both have done the same; then both go on with what may be served now, until nothing may."""
        self.model, expected = step
        found, self.found = self.found, []
        assert found == list(expected)
        for name in sorted(self.ours):
            if self.ours[name].frames and self.ours[name].may_take:
                self.dispatch(name)
                self.agree(reference.serve(self.model, name))
                return

    @rule(name=NAMES, stream=streams, size=sizes)
    def send(self, name: int, stream: bytes, size: int) -> None:
        """A client sends frames. Both servers read some bytes of what it has sent, unless they may not."""
        if name not in self.ours:
            return
        self.coming[name] += stream
        self.read(name, size)

    @rule(name=NAMES, size=sizes)
    def read(self, name: int, size: int) -> None:
        if name not in self.ours or not self.ours[name].may_take or not self.coming[name]:
            return
        data, self.coming[name] = self.coming[name][:size], self.coming[name][size:]
        self.ours[name].on_bytes(data, self.now_ms)
        self.dispatch(name)
        self.agree(reference.on_bytes(self.model, name, data, self.now_ms))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def serve_later(self, data: st.DataObject) -> None:
        """A handler answers a request that it was given before; perhaps the client has gone, or wants no answer."""
        name, asked = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        channel = self.ours.get(name)
        if channel is None:
            return
        channel.answer(response_to(asked))
        plain = model.Command(asked.code, asked.opaque, asked.flag, serialize_type=asked.serialize_type)
        self.agree(reference.on_served(self.model, name, plain))

    @rule(name=NAMES, in_ms=st.sampled_from([0, 1_000, 30_000]))
    def invoke(self, name: int, in_ms: int) -> None:
        """Ask the client."""
        channel = self.ours.get(name)
        if channel is None or channel.unsent > LIMITS.unsent:
            return
        command = request(ASKED)
        deadline_ms, before = self.now_ms + in_ms, channel.unsent
        channel.invoke(
            command,
            deadline_ms,
            lambda told: self.found.append(Told(name, command.opaque, not isinstance(told, RequestFailed))),
        )
        self.model = reference.on_invoke(self.model, name, command.opaque, channel.unsent - before, deadline_ms)

    @rule(name=NAMES, most=st.sampled_from([2_000, 200, 1]))
    def take(self, name: int, most: int) -> None:
        """The client takes some bytes of what it has to take."""
        channel = self.ours.get(name)
        if channel is None or not channel.unsent:
            return
        nbytes = min(most, channel.unsent)
        channel.on_sent(nbytes, self.now_ms)
        self.agree((reference.on_sent(self.model, name, nbytes, self.now_ms), ()))

    @rule(ms=st.sampled_from([1, 1, 1, 999, 1_000, 10_000, 20_000, 40_000, 60_000, 120_000]), name=NAMES)
    def tick(self, ms: int, name: int) -> None:
        self.now_ms += ms
        channel = self.ours.get(name)
        if channel is None:
            return
        channel.on_tick(self.now_ms)
        if why := channel.missed_deadline(self.now_ms, is_ready=False):
            self.close(name, next(reason for start, reason in REASONS.items() if why.startswith(start)))
        self.agree(reference.on_tick(self.model, name, self.now_ms))

    @rule(name=NAMES, goes=st.sampled_from([False, False, False, True]))
    def end(self, name: int, goes: bool) -> None:
        """The client goes, or a new one comes in its place."""
        if name in self.ours and not goes:
            return
        if name in self.ours:
            self.close(name, "end")
            self.agree(reference.close(self.model, name, "end"))
        else:
            self.asked = [(other, asked) for other, asked in self.asked if other != name]
            self.connect(name)

    @invariant()
    def same(self) -> None:
        assert set(self.ours) == set(self.model.connections)
        for name, channel in self.ours.items():
            conn = self.model.connections[name]
            shown = sorted(opaque for opaque, count in channel.pending.items() for _ in range(count))
            assert shown == sorted(conn.pending)
            assert channel.pending_count == len(conn.pending)
            assert (channel.unsent, list(channel.frames)) == (conn.unsent, list(conn.frames))
            assert channel.unsent == sum(map(len, channel.out))
            assert channel.may_take is reference.may_take(self.model, name)
        assert self.totals.pending == sum(len(conn.pending) for conn in self.model.connections.values())
        assert self.totals.unfinished == sum(len(conn.left) for conn in self.model.connections.values())


TestLockStep = LockStep.TestCase
