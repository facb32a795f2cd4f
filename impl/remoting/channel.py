"""One connection of a remoting server, without its socket: bytes come in, requests come out, and answers wait to be sent."""

from collections import deque
from collections.abc import Callable

from rocketmq_ha.impl.errors import FrameInvalid, RequestFailed
from rocketmq_ha.impl.remoting.codes import ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, encode, response_to
from rocketmq_ha.impl.remoting.frames import FrameReader
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.waiting_answers import OnAnswer, WaitingAnswers


class Totals:
    """What the connections of a server hold together."""

    __slots__ = ("pending", "unfinished")

    def __init__(self) -> None:
        self.pending = 0  # requests without an answer
        self.unfinished = 0  # bytes of frames that have begun


class Channel:
    """What a handler knows of the client, and how it answers. Handlers use `peer`, `address`, `is_open`, `answer`, `send`
    and `invoke`; the rest is the server's. A channel is hashable and equals only itself.
    """

    def __init__(
        self,
        address: tuple[str, int],
        peer: str,
        limits: RemotingLimits,
        totals: Totals,
        on_output: "Callable[[Channel], object]",
        now_ms: int,
    ) -> None:
        """address: the client's IP address and port. peer: both as text. on_output: called when there is something to send."""
        self.address, self.peer = address, peer
        self.is_open = True
        self.close_reason = ""
        self._limits, self._totals, self._on_output = limits, totals, on_output
        self._reader = FrameReader()
        self._waiting = WaitingAnswers(peer)
        self.frames: deque[bytes] = deque()  # whole, and not dispatched yet
        self.error: FrameInvalid | None = None  # what follows them
        self.pending: dict[int, int] = {}  # requests without an answer: how many have each opaque
        self._pending = 0
        self.out: deque[bytes | memoryview] = deque()
        self.unsent = 0  # bytes of `out`
        self.active_ms = now_ms  # the last byte that came or went
        self.heard_ms = now_ms  # the last byte that came
        self._frame_since_ms = now_ms  # when the frame began that is not whole
        self._has_sent = False  # the socket has taken bytes
        self._stalled_ms: int | None = None  # since when the client has taken no byte; None: it has, or there is none

    # --- For the handlers --------------------------------------------------------------------------------------------

    def answer(self, response: RemotingCommand) -> None:
        """Answer a request, at any time after its handler was called. Where the client has gone, nothing happens.

        Spec: HA-RM-11 "A oneway request MUST NOT be answered": such an answer is dropped here; HA-RM-12 "any time after their
        request".
        """
        count = self.pending.get(response.opaque, 0)
        if not self.is_open or not count or response.is_oneway:
            return
        if count == 1:
            del self.pending[response.opaque]
        else:
            self.pending[response.opaque] = count - 1
        self._pending -= 1
        self._totals.pending -= 1
        try:
            buffers = encode(response)
        except FrameInvalid as error:
            failed = RemotingCommand(0, response.opaque, serialize_type=response.serialize_type)
            buffers = encode(response_to(failed, ResponseCode.SYSTEM_ERROR, str(error)[:200]))
        self._put(buffers)

    def send(self, command: RemotingCommand) -> None:
        """Send a oneway request to the client, such as NOTIFY_CONSUMER_IDS_CHANGED. A client that reads too little gets none.

        Spec: HA-RM-24 "MUST NOT send it requests of its own". Raises: FrameInvalid.
        """
        assert command.is_oneway
        if self.is_open and self.unsent <= self._limits.max_unsent:
            self._put(encode(command))

    def invoke(self, command: RemotingCommand, deadline_ms: int, on_answer: OnAnswer) -> None:
        """Ask the client, as by GET_CONSUMER_RUNNING_INFO. on_answer gets the answer or RequestFailed. Raises: FrameInvalid."""
        if not self.is_open or self.unsent > self._limits.max_unsent:
            why = "it takes no more requests" if self.is_open else f"closed: {self.close_reason}"
            on_answer(RequestFailed(self.peer, command.code, why, is_unsent=True))
            return
        command.opaque = self._waiting.next_opaque()
        buffers = encode(command)
        self._waiting.add(command, deadline_ms, on_answer)
        self._put(buffers)

    # --- For the server ----------------------------------------------------------------------------------------------

    @property
    def pending_count(self) -> int:
        return self._pending

    @property
    def may_take(self) -> bool:
        """Whether more requests may be read and dispatched.

        Spec: HA-RM-23 "MUST NOT read from a connection while 4,096 of its requests, or 65,536 of all connections"; HA-RM-24
        "MUST NOT read from a connection that has more than 8 MiB to take".
        """
        limits = self._limits
        return (
            self._pending < limits.max_pending
            and self._totals.pending < limits.max_pending_in_all
            and self.unsent <= limits.max_unsent
        )

    @property
    def wanted(self) -> int:
        """Bytes that the frame which has begun still needs; 0 between two frames."""
        return self._reader.wanted

    def on_bytes(self, data: bytes, now_ms: int) -> None:
        """Take bytes; whole frames go to `frames`, and what is wrong behind them to `error`.

        Spec: HA-RM-26 "MUST close a connection whose unfinished frame would make those of all connections more than 256 MiB".
        """
        before = self._reader.buffered
        frames = self._reader.feed(data)
        left = self._reader.buffered
        self.error = self._reader.error
        if frames or not before:
            self._frame_since_ms = now_ms
        self.frames.extend(frames)
        self.active_ms = self.heard_ms = now_ms
        self._totals.unfinished += left - before
        if left > before and self._totals.unfinished > self._limits.max_unfinished:
            most = self._limits.max_unfinished
            self.error = FrameInvalid("frame", f"{self._totals.unfinished} bytes of unfinished ones", f"at most {most} in all")

    def on_request(self, request: RemotingCommand) -> None:
        """Note that a request wants an answer."""
        if not request.is_oneway:
            self.pending[request.opaque] = self.pending.get(request.opaque, 0) + 1
            self._pending += 1
            self._totals.pending += 1

    def on_answer(self, answer: RemotingCommand) -> bool:
        """Returns: False for an answer that nobody waits for. HA-RM-15."""
        return self._waiting.on_answer(answer)

    def on_sent(self, nbytes: int, now_ms: int) -> None:
        """The socket has taken the first bytes of `out`."""
        self.unsent -= nbytes
        self._has_sent = True
        self.active_ms, self._stalled_ms = now_ms, None
        out = self.out
        while nbytes:
            first = out[0]
            if len(first) > nbytes:
                out[0] = memoryview(first)[nbytes:]
                return
            nbytes -= len(out.popleft())

    def on_tick(self, now_ms: int) -> int:
        """Give up requests of ours that are late. Returns: how many."""
        return self._waiting.on_tick(now_ms) if len(self._waiting) else 0

    def missed_deadline(self, now_ms: int, *, is_ready: bool) -> str | None:
        """Why the connection has to be closed by now; called at each tick. is_ready: there are bytes that were not read yet.

        Spec: HA-RM-17 "MUST close a connection that has neither sent nor received a byte for 120 s"; HA-RM-24 "MUST close one
        that has taken no byte of what it has to take for 20 s"; HA-RM-25 "whose frame has begun and is not whole after 60 s
        MUST be closed"; HA-RM-29 "MUST NOT close a connection for what it has not read".
        """
        limits = self._limits
        if self.unsent:
            if self._stalled_ms is None:
                self._stalled_ms = now_ms
            elif now_ms - self._stalled_ms >= limits.write_stall_ms:
                return f"it has taken no byte of what it has to take for {limits.write_stall_ms} ms"
        if not self.may_take:
            self._frame_since_ms = now_ms
            return None
        if self._reader.buffered and now_ms - self._frame_since_ms >= limits.frame_deadline_ms:
            return f"its frame is not whole after {limits.frame_deadline_ms} ms"
        if now_ms - self.active_ms >= limits.idle_ms and not is_ready:
            return f"idle for {limits.idle_ms} ms"
        return None

    def close(self, reason: str) -> None:
        """Forget what it holds, and tell those who wait for an answer of the client. The server closes the socket."""
        if not self.is_open:
            return
        self.is_open, self.close_reason = False, reason
        self._totals.pending -= self._pending
        self._totals.unfinished -= self._reader.buffered
        self._pending = 0
        self.pending.clear()
        self.frames.clear()
        self.out.clear()
        self.unsent = 0
        self._waiting.on_close(f"closed: {reason}", is_unsent=not self._has_sent)

    def _put(self, buffers: list[bytes | memoryview]) -> None:
        self.out.extend(buffers)
        self.unsent += sum(map(len, buffers))
        self._on_output(self)
