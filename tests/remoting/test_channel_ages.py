"""When a connection is closed for what its client does not do: stories by the millisecond, of a channel and of its model.

HA-RM-17, HA-RM-24 to HA-RM-26.
"""

import pytest

from rocketmq_ha.impl.errors import RequestFailed
from rocketmq_ha.impl.remoting.channel import Channel, Totals
from rocketmq_ha.impl.remoting.command import RemotingCommand, encode_whole, request
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.waiting_answers import WaitingAnswers
from rocketmq_ha.reference import remoting_server as model

ASKED = 307
FRAME = encode_whole(request(10, body=b"x" * 100))
HALF, REST = FRAME[:50], FRAME[50:]
BEGUN = FRAME + HALF  # a whole frame, and behind it the beginning of the next
MUCH = 2 << 20  # more than a client may have to take
REASONS = {"it has taken no byte": "stall", "its frame is not": "unfinished", "idle for": "idle"}
LIMITS = model.Limits(
    pending=4096, pending_in_all=65_536, unsent=1 << 20, unfinished=1 << 20, stall_ms=20_000, frame_ms=60_000, idle_ms=120_000
)


class Both:
    """A connection of ours and of the model, from time 0 on."""

    def __init__(self, *, is_ready: bool = False) -> None:
        """is_ready: bytes of the client wait to be read."""
        self._is_ready = is_ready
        limits = RemotingLimits(max_unsent=LIMITS.unsent, max_unfinished=LIMITS.unfinished)
        self.channel = Channel(("127.0.0.1", 1), "0", limits, Totals(), lambda _: None, 0)
        self.server = model.on_connect(model.Server(LIMITS, frozenset(), frozenset({10})), 0, 0)

    def hear(self, data: bytes, now_ms: int) -> None:
        """The client sends bytes. Its frames are left where they are: nothing of them is answered."""
        self.channel.on_bytes(data, now_ms)
        self.server, outputs = model.on_bytes(self.server, 0, data, now_ms)
        assert all(isinstance(output, model.Given) for output in outputs)

    def ask(self, size: int, now_ms: int) -> None:
        """There are about so many bytes more for the client to take."""
        body = bytes(size)
        self.channel.invoke(request(ASKED, body=body), now_ms + 1_000_000, lambda _: None)
        self.server, told = model.on_invoke(self.server, 0, ASKED, now_ms + 1_000_000, body)
        assert told == ()
        assert b"".join(self.channel.out) == self.server.connections[0].out

    def take(self, nbytes: int, now_ms: int) -> None:
        """The client takes bytes: all for 0."""
        nbytes = nbytes or self.channel.unsent
        self.channel.on_sent(nbytes, now_ms)
        self.server = model.on_sent(self.server, 0, nbytes, now_ms)

    def closed(self, now_ms: int) -> str:
        """A tick. Returns: why the connection has to be closed now, "" if it does not have to."""
        self.channel.on_tick(now_ms)
        why = self.channel.missed_deadline(now_ms, is_ready=self._is_ready) or ""
        found = next((reason for start, reason in REASONS.items() if why.startswith(start)), why)
        self.server, outputs = model.on_tick(self.server, 0, now_ms, is_ready=self._is_ready)
        assert [found] * bool(found) == [output.reason for output in outputs if isinstance(output, model.Closed)], now_ms
        return found

    def play(self, story: tuple[tuple[int, str, bytes | int], ...], until_ms: int) -> list[tuple[int, str]]:
        """Tell a story, with a tick every second and in the last two milliseconds. Returns: when it was closed, and why."""
        left = list(story)
        for now_ms in sorted({*range(0, until_ms, 1_000), *(at for at, _, _ in story), until_ms - 1, until_ms}):
            while left and left[0][0] == now_ms:
                _, act, what = left.pop(0)
                getattr(self, act)(what, now_ms)
            if why := self.closed(now_ms):
                return [(now_ms, why)]
        return []


@pytest.mark.parametrize(
    ("story", "closed_ms", "why"),
    [
        pytest.param((), 120_000, "idle", id="nothing ever"),
        pytest.param(((1_500, "hear", FRAME),), 121_500, "idle", id="a request"),
        pytest.param(((1_500, "ask", 9), (2_500, "take", 0)), 122_500, "idle", id="a question that was taken"),
        pytest.param(((1, "hear", HALF),), 60_001, "unfinished", id="half a frame"),
        pytest.param(((1, "hear", b"\0"),), 60_001, "unfinished", id="a byte of a length"),
        pytest.param(((1, "hear", HALF), (60_000, "hear", b"\0")), 60_001, "unfinished", id="half a frame and a byte"),
        pytest.param(((1, "hear", HALF), (60_000, "hear", REST)), 180_000, "idle", id="two halves"),
        pytest.param(((1, "hear", HALF), (60_000, "hear", REST + HALF)), 120_000, "unfinished", id="the next has begun"),
        pytest.param(((5, "hear", BEGUN),), 60_005, "unfinished", id="a frame, and the next has begun"),
        pytest.param(
            ((1, "hear", HALF), *((at * 50_000 + 1, "hear", REST + HALF) for at in (1, 2, 3, 4))),
            260_001,
            "unfinished",
            id="a busy client that always has begun the next",
        ),
        pytest.param(
            ((1, "hear", HALF), (40_000, "hear", REST), (50_000, "hear", HALF)),
            110_000,
            "unfinished",
            id="a frame after a rest",
        ),
        pytest.param(((1_000, "ask", 9),), 21_000, "stall", id="a question that is not taken"),
        pytest.param(((1_000, "ask", 9), (20_999, "take", 5)), 40_999, "stall", id="a question of which a part is taken"),
        pytest.param(((1_000, "ask", 9), (20_999, "take", 0)), 140_999, "idle", id="a question that is taken in time"),
        pytest.param(
            ((1_000, "ask", 9), (2_000, "take", 0), (50_000, "ask", 9)),
            70_000,
            "stall",
            id="the time before a question counts not",
        ),
        pytest.param(
            ((1_000, "ask", 9), *((at * 1_000, "hear", FRAME) for at in range(1, 21))),
            21_000,
            "stall",
            id="it asks all the while",
        ),
        pytest.param(
            ((1, "hear", HALF), (1_000, "ask", MUCH), *((at * 10_000, "take", 1) for at in range(1, 10)), (95_000, "take", 0)),
            154_000,  # the last second in which it was not read from was the 94th
            "unfinished",
            id="half a frame, and then it is not read from for 94 s",
        ),
        pytest.param(
            ((1, "ask", MUCH), *((at * 10_000, "take", 1) for at in range(1, 15)), (141_000, "take", MUCH - 100)),
            161_000,
            "stall",
            id="it has too much to take, and takes it slowly",
        ),
    ],
)
def test_a_connection_is_closed_in_this_millisecond(
    story: tuple[tuple[int, str, bytes | int], ...], closed_ms: int, why: str
) -> None:
    """HA-RM-17 "neither sent nor received a byte for 120 s"; HA-RM-24 "that has taken no byte of what it has to take for
    20 s"; HA-RM-25 "whose frame has begun and is not whole after 60 s": since the frame has begun, not the one before it;
    HA-RM-29 "the 60 s begin anew when it reads again".
    """
    assert Both().play(story, closed_ms) == [(closed_ms, why)]


@pytest.mark.parametrize(
    ("story", "closed"),
    [
        ((), []),
        (((1, "hear", HALF),), [(60_001, "unfinished")]),
        (((1_000, "ask", 9),), [(21_000, "stall")]),
    ],
)
def test_bytes_that_were_not_read_yet_keep_a_connection_from_being_idle_alone(
    story: tuple[tuple[int, str, bytes | int], ...], closed: list[tuple[int, str]]
) -> None:
    """HA-T-20 "each end MUST look at what has come": it waits there, and shows that the client is alive."""
    until_ms = closed[0][0] if closed else 200_000
    assert Both(is_ready=True).play(story, until_ms) == closed


def test_a_connection_is_not_closed_for_the_unfinished_frames_of_others() -> None:
    """HA-RM-26 "MUST close a connection whose unfinished frame would make those of all connections more than 256 MiB"; here
    200 bytes: who fills them may stay, and so may who sends whole frames, or the last bytes of one.
    """
    totals, limits = Totals(), RemotingLimits(max_unfinished=200)
    first, second, third = (Channel(("127.0.0.1", port), str(port), limits, totals, lambda _: None, 0) for port in (1, 2, 3))
    first.on_bytes(FRAME[:120], 0)
    second.on_bytes(FRAME[:80], 0)
    assert (totals.unfinished, first.error, second.error) == (200, None, None)
    third.on_bytes(FRAME[:100], 0)
    assert (third.error is not None, totals.unfinished) == (True, 300)
    second.on_bytes(FRAME[80:], 0)
    first.on_bytes(FRAME[120:] + FRAME, 0)
    assert (first.error, second.error) == (None, None)


def test_a_client_that_takes_nothing_gets_no_more_requests() -> None:
    """HA-RM-24: what waits for a client is bounded, whoever has put it there."""
    both = Both()
    told: list[RemotingCommand | RequestFailed] = []
    both.ask(LIMITS.unsent - both.channel.unsent, 0)
    assert both.channel.unsent > LIMITS.unsent
    unsent = both.channel.unsent
    both.channel.send(request(40, oneway=True))
    both.channel.invoke(request(ASKED), 1_000, told.append)
    assert both.channel.unsent == unsent
    assert "it takes no more requests" in str(told[0])
    both.take(0, 0)
    both.channel.send(request(40, oneway=True))
    assert both.channel.unsent > 0


def test_an_opaque_that_waits_is_given_to_no_other_request() -> None:
    """HA-RM-12: the opaque alone says whose an answer is, also after so many requests that they begin anew."""
    waiting = WaitingAnswers("here")
    waiting._last_opaque = 0x7FFFFFFD
    opaques = []
    for _ in range(4):
        command = RemotingCommand(ASKED, waiting.next_opaque())
        waiting.add(command, 1_000, lambda _: None)
        opaques.append(command.opaque)
    assert opaques == [0x7FFFFFFE, 0x7FFFFFFF, 0, 1]
    waiting._last_opaque = 0x7FFFFFFD
    assert waiting.next_opaque() == 2


@pytest.mark.parametrize(("now_ms", "late"), [(999, 0), (1_000, 1), (1_001, 2), (9_999, 2)])
def test_a_request_of_ours_is_given_up_in_the_millisecond_of_its_deadline(now_ms: int, late: int) -> None:
    """HA-RM-16 "MUST give up a request that has no answer at its deadline"."""
    waiting, told = WaitingAnswers("here"), list[RemotingCommand | RequestFailed]()
    for deadline_ms in (1_000, 1_001, 10_000):
        waiting.add(RemotingCommand(ASKED, waiting.next_opaque()), deadline_ms, told.append)
    assert waiting.on_tick(now_ms) == len(told) == late
    assert len(waiting) == 3 - late


def test_whoever_is_told_that_a_request_is_late_may_end_the_connection() -> None:
    """HA-RM-16 "and tell whoever asked": each of them once, by the first end that its request meets."""
    waiting, told = WaitingAnswers("here"), list[str]()

    def on_answer(failed: RemotingCommand | RequestFailed) -> None:
        told.append(str(failed))
        waiting.on_close("closed: too late")

    for _ in range(3):
        waiting.add(RemotingCommand(ASKED, waiting.next_opaque()), 1_000, on_answer)
    waiting.on_tick(1_000)
    assert ["no answer in time" in each for each in told] == [True, False, False]
    assert ["too late" in each for each in told] == [False, True, True]
    assert len(waiting) == 0
