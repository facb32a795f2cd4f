"""The server over real sockets: who is answered, how, and when."""

import selectors
import socket
from contextlib import ExitStack

import pytest

from kit.remoting import Client, Stand
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import RequestFailed, RequestInvalid, StoreClosed
from rocketmq_ha.impl.net.limits import LOOPBACK, Limits
from rocketmq_ha.impl.net.waker import Waker
from rocketmq_ha.impl.remoting import connections as connections_module
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.command import RemotingCommand, SerializeType, encode_whole, request, response_to
from rocketmq_ha.impl.remoting.connection import Connection
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX

ECHO, LATER, BROKEN = 10, 11, 12


def echo(_channel: Channel, asked: RemotingCommand, _now_ms: int) -> RemotingCommand:
    return response_to(asked, 0, None, asked.ext_fields, asked.body)


class Later:
    """A handler that answers when the test wants it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Channel, RemotingCommand]] = []

    def __call__(self, channel: Channel, asked: RemotingCommand, _now_ms: int) -> None:
        self.asked.append((channel, asked))

    def answer(self, index: int) -> None:
        channel, asked = self.asked.pop(index)
        channel.answer(response_to(asked, body=asked.body))


@pytest.fixture
def later(stand: Stand) -> Later:
    stand.server.handlers[ECHO] = echo
    handler = stand.server.handlers[LATER] = Later()
    return handler


@pytest.fixture
def client(stand: Stand, later: Later) -> Client:
    assert stand.server.handlers[LATER] is later
    return stand.connect()


@pytest.mark.parametrize("kind", SerializeType)
def test_a_request_is_answered_in_its_serialization_with_its_opaque(client: Client, kind: SerializeType) -> None:
    """HA-RM-8 "MUST be written in the serialization of its request"."""
    answer = client.ask(RemotingCommand(ECHO, 77, ext_fields={"a": "b"}, body=b"x" * 100_000, serialize_type=kind))
    assert (answer.opaque, answer.code, answer.is_response, answer.serialize_type) == (77, 0, True, kind)
    assert (answer.ext_fields, answer.body) == ({"a": "b"}, b"x" * 100_000)


@pytest.mark.parametrize("kind", SerializeType)
def test_an_unknown_code_is_answered_3_and_the_connection_goes_on(stand: Stand, client: Client, kind: SerializeType) -> None:
    """HA-RM-10 "MUST be answered REQUEST_CODE_NOT_SUPPORTED (3), and its connection go on"."""
    answer = client.ask(RemotingCommand(4242, 5, serialize_type=kind))
    assert (answer.code, answer.opaque, answer.serialize_type) == (3, 5, kind)
    assert "4242" in (answer.remark or "")
    assert client.ask(request(ECHO)).code == 0
    assert stand.server.requests == {"unsupported": 1, ECHO: 1}


def test_a_oneway_request_is_never_answered(stand: Stand, client: Client, later: Later) -> None:
    """HA-RM-11 "MUST NOT be answered, whatever has become of it": served, deferred, failed or unknown."""

    def broken(*_: object) -> RemotingCommand:
        raise RequestInvalid("field x", "nothing", "text")

    stand.server.handlers[BROKEN] = broken
    client.send(*(request(code, oneway=True) for code in (ECHO, LATER, BROKEN, 4242)))
    wait_for(lambda: later.asked, stand.turn)
    later.answer(0)
    last = request(ECHO, body=b"last")
    assert client.ask(last).opaque == last.opaque
    assert client.received == []
    assert stand.server.pending == 0


@pytest.mark.parametrize("code", [ECHO, 4242])
def test_a_oneway_request_with_the_opaque_of_another_is_not_answered_in_its_place(
    stand: Stand, client: Client, later: Later, code: int
) -> None:
    client.send(RemotingCommand(LATER, 9), RemotingCommand(code, 9, 2), RemotingCommand(ECHO, 10))
    assert [answer.opaque for answer in client.await_answers(1)] == [10]
    later.answer(0)
    assert [answer.opaque for answer in client.await_answers(1)] == [9]
    assert stand.server.pending == 0


def test_answers_come_when_they_are_ready_and_the_opaque_tells_whose_they_are(
    stand: Stand, client: Client, later: Later
) -> None:
    """HA-RM-12 "MAY come in any order, and any time after their request"."""
    asked = [request(LATER, body=b"%d" % number) for number in range(3)]
    client.send(*asked)
    wait_for(lambda: len(later.asked) == 3, stand.turn)
    assert client.ask(request(ECHO)).code == 0
    assert stand.server.pending == 3
    for index in (2, 0, 0):
        later.answer(index)
    found = client.await_answers(3)
    assert [answer.opaque for answer in found] == [asked[2].opaque, asked[0].opaque, asked[1].opaque]
    assert [answer.body for answer in found] == [b"2", b"0", b"1"]
    assert stand.server.pending == 0


def test_an_answer_is_given_once_for_each_request_of_an_opaque(stand: Stand, client: Client, later: Later) -> None:
    """A client that uses an opaque twice gets two answers, and no third."""
    client.send(RemotingCommand(LATER, 9), RemotingCommand(LATER, 9))
    wait_for(lambda: len(later.asked) == 2, stand.turn)
    channel, asked = later.asked[0]
    for _ in range(3):
        channel.answer(response_to(asked))
    assert [answer.opaque for answer in client.await_answers(2)] == [9, 9]
    assert client.ask(RemotingCommand(ECHO, 10)).opaque == 10
    assert client.received == []


@pytest.mark.parametrize(
    ("error", "remark"),
    [
        (RequestInvalid("field queueId", "'x'", "an i32"), "field queueId: found 'x', expected an i32"),
        (StoreClosed("closed\nand gone"), "closed and gone"),
        (StoreClosed("x" * 500), "x" * 400),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_a_request_that_fails_is_answered_1_and_the_connection_goes_on(
    stand: Stand, client: Client, caplog: pytest.LogCaptureFixture, error: Exception, remark: str
) -> None:
    """HA-RM-13 "MUST be answered SYSTEM_ERROR (1), with a remark of one line"; HA-RM-18 "a request on it failed".

    What the system refuses is logged too; what the client has done wrong is between it and us.
    """

    def broken(*_: object) -> RemotingCommand:
        raise error

    stand.server.handlers[BROKEN] = broken
    answer = client.ask(request(BROKEN))
    assert (answer.code, answer.remark) == (1, remark)
    assert client.ask(request(ECHO)).code == 0
    assert stand.server.failures == 0
    assert ([record.levelname for record in caplog.records] == ["ERROR"]) is isinstance(error, OSError)
    assert (remark in caplog.text) is isinstance(error, OSError)


def test_a_bug_in_a_handler_is_answered_logged_and_counted(
    stand: Stand, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> RemotingCommand:
        raise KeyError("topic")

    stand.server.handlers[BROKEN] = broken
    answer = client.ask(request(BROKEN))
    assert (answer.code, answer.remark) == (1, "internal error: KeyError")
    assert stand.server.failures == 1
    assert "Traceback" in caplog.text
    assert client.ask(request(ECHO)).code == 0


def test_an_assertion_in_a_handler_ends_the_loop(stand: Stand, client: Client) -> None:
    def broken(*_: object) -> RemotingCommand:
        raise AssertionError("the log has moved back")

    stand.server.handlers[BROKEN] = broken
    client.send(request(BROKEN))
    with pytest.raises(AssertionError, match="moved back"):
        wait_for(lambda: False, stand.turn)


def test_an_answer_that_fits_no_frame_becomes_an_error(stand: Stand, client: Client) -> None:
    log = memoryview(bytes(REMOTING_FRAME_MAX))
    stand.server.handlers[BROKEN] = lambda _channel, asked, _now_ms: response_to(asked, buffers=[log])
    answer = client.ask(request(BROKEN))
    assert answer.code == 1
    assert "remoting frame: found 16777" in (answer.remark or "")


def test_a_missing_field_is_answered_by_its_name(stand: Stand, client: Client) -> None:
    """HA-RM-13 "without a field that its code needs"."""
    stand.server.handlers[BROKEN] = lambda _channel, asked, _now_ms: response_to(asked, fields.i32(asked, "queueId"))
    assert client.ask(request(BROKEN)).remark == "field queueId: found nothing, expected an i32"


def test_a_buffer_behind_the_body_is_sent_with_it(stand: Stand, client: Client) -> None:
    log = memoryview(bytes(range(256)) * 20_000)
    stand.server.handlers[BROKEN] = lambda _channel, asked, _now_ms: response_to(asked, body=b"-", buffers=[log[:7], log[7:]])
    answers = [client.ask(request(BROKEN)) for _ in range(3)]
    assert {answer.body for answer in answers} == {b"-" + log}


def test_a_channel_names_its_client(stand: Stand, client: Client, later: Later) -> None:
    client.send(request(LATER))
    wait_for(lambda: later.asked, stand.turn)
    host, port = client.sock.getsockname()
    assert (later.asked[0][0].address, later.asked[0][0].peer) == ((host, port), f"127.0.0.1:{port}")


def test_on_close_gets_each_channel_once_and_late_answers_are_dropped(stand: Stand, client: Client, later: Later) -> None:
    closed: list[Channel] = []
    stand.server.on_close.append(closed.append)
    client.send(request(LATER))
    wait_for(lambda: later.asked, stand.turn)
    channel = later.asked[0][0]
    assert channel.is_open
    client.sock.close()
    wait_for(lambda: closed, stand.turn)
    assert closed == [channel]
    assert not channel.is_open
    assert stand.server.pending == 0
    later.answer(0)
    channel.send(request(40, oneway=True))
    stand.turns()
    assert closed == [channel]
    assert stand.server.channels == []


def test_the_server_sends_requests_of_its_own_to_a_client(stand: Stand, client: Client, later: Later) -> None:
    client.send(request(LATER))
    wait_for(lambda: later.asked, stand.turn)
    channel = later.asked[0][0]
    channel.send(request(40, {"consumerGroup": "g"}, oneway=True))
    told: list[RemotingCommand | RequestFailed] = []
    for _ in range(2):
        channel.invoke(request(307), clock_ms() + 60_000, told.append)
    pushed, *asked = client.await_answers(3)
    assert (pushed.code, pushed.is_oneway, pushed.ext_fields) == (40, True, {"consumerGroup": "g"})
    client.send(response_to(asked[0], 0, "fine"), response_to(asked[0], 0, "again"), RemotingCommand(0, 12345, 1))
    wait_for(lambda: told, stand.turn)
    assert client.ask(request(ECHO)).code == 0  # HA-RM-15 "MUST be ignored, and its connection go on"
    client.sock.close()
    wait_for(lambda: len(told) == 2, stand.turn)
    assert isinstance(told[0], RemotingCommand)
    assert told[0].remark == "fine"
    assert isinstance(told[1], RequestFailed)
    assert "request 307 (GET_CONSUMER_RUNNING_INFO): closed" in str(told[1])


def test_a_request_to_a_client_that_does_not_answer_fails_at_its_deadline(stand: Stand, client: Client, later: Later) -> None:
    """HA-RM-16 "MUST give up a request that has no answer at its deadline"."""
    client.send(request(LATER))
    wait_for(lambda: later.asked, stand.turn)
    told: list[RemotingCommand | RequestFailed] = []
    later.asked[0][0].invoke(request(307), clock_ms(), told.append)
    wait_for(lambda: told, stand.turn)
    assert "no answer in time" in str(told[0])


def test_frames_in_any_pieces_are_served(stand: Stand, client: Client) -> None:
    data = b"".join(encode_whole(request(ECHO, body=b"%d" % number)) for number in range(20))
    for at in range(0, len(data), 7):
        client.send_bytes(data[at : at + 7])
        stand.server.poll(0)
    assert [answer.body for answer in client.await_answers(20)] == [b"%d" % number for number in range(20)]


def test_two_ports_are_one_server(resources: ExitStack) -> None:
    """The VIP port: same handlers, one count of connections."""
    stand = Stand(resources, listeners=2)
    stand.server.handlers[ECHO] = echo
    assert stand.connect(0).ask(request(ECHO, body=b"0")).body == b"0"
    assert stand.connect(1).ask(request(ECHO, body=b"1")).body == b"1"
    assert len(stand.server.channels) == 2


def test_another_loop_can_hold_this_one(stand: Stand, later: Later) -> None:
    """As `Master.wake_by`: the outer loop waits for the server's descriptor, and calls `turn`."""
    with selectors.DefaultSelector() as outer, socket.create_connection(stand.server.addresses[0], PATIENCE_S) as sock:
        outer.register(stand.server, selectors.EVENT_READ, stand.server)

        def turn() -> None:
            for key, _ in outer.select(0.05):
                key.data.on_readable()
            stand.server.turn(clock_ms())

        client = Client(sock, turn)
        assert client.ask(request(ECHO, body=b"a" * 3_000_000)).body == b"a" * 3_000_000
        client.send(request(LATER))
        wait_for(lambda: later.asked, turn)
        later.answer(0)  # between two turns: it is sent at once
        client.read()
        wait_for(lambda: client.received, client.read)


def test_another_thread_wakes_a_poll(stand: Stand) -> None:
    waker = Waker()
    stand.server.wake_by(waker)
    waker.wake()
    before = clock_ms()
    stand.server.poll(60_000)
    assert clock_ms() - before < 60_000
    waker.close()


def test_a_client_that_asks_too_much_at_once_waits_for_answers(resources: ExitStack) -> None:
    """HA-RM-23 "MUST NOT read from a connection while 4,096 of its requests"; here 3, and 5 of all connections."""
    stand = Stand(resources, RemotingLimits(max_pending=3, max_pending_in_all=5))
    later = stand.server.handlers[LATER] = Later()
    first, second = stand.connect(), stand.connect()
    for client in (first, second):
        client.send(*(request(LATER, body=b"%d" % number) for number in range(6)))
        stand.turns()
    assert [asked.body for _, asked in later.asked] == [b"0", b"1", b"2", b"0", b"1"]
    for done in range(12):
        assert later.asked, done
        later.answer(0)
        stand.turns(3)
        assert stand.server.pending <= 5
    assert [answer.body for answer in first.await_answers(6)] == [b"%d" % number for number in range(6)]
    assert [answer.body for answer in second.await_answers(6)] == [b"%d" % number for number in range(6)]
    assert stand.server.pending == 0


def test_a_client_that_takes_no_answers_is_not_read_from(resources: ExitStack) -> None:
    """HA-RM-24 "MUST NOT read from a connection that has more than 8 MiB to take"; here 1 MiB."""
    stand = Stand(resources, RemotingLimits(max_unsent=1 << 20))
    stand.server.handlers[LATER] = lambda _channel, asked, _now_ms: response_to(asked, body=bytes(1 << 20))
    client = stand.connect()
    client.send(*(request(LATER) for _ in range(40)))
    stand.turns(40)
    (channel,) = stand.server.channels
    served = stand.server.requests[LATER]
    assert served < 40
    assert channel.unsent <= 3 << 20
    assert {len(answer.body) for answer in client.await_answers(40)} == {1 << 20}
    assert channel.unsent == 0


def test_a_connection_whose_answers_were_taken_is_served_without_a_wait(resources: ExitStack) -> None:
    """Its next request is there already, so nothing else wakes the loop for it."""
    stand = Stand(resources, RemotingLimits(max_unsent=1_000))
    stand.server.handlers[ECHO] = lambda _channel, asked, _now_ms: response_to(asked, body=bytes(50_000))
    client = stand.connect()
    stand.turns()
    client.send(*(request(ECHO) for _ in range(3)))
    wait_for(lambda: stand.server.requests.get(ECHO), stand.turn)
    assert stand.server.requests[ECHO] == 1
    assert stand.has_event()
    assert len(client.await_answers(3)) == 3


def test_room_among_the_requests_of_all_wakes_those_that_wait_for_it(resources: ExitStack) -> None:
    """HA-RM-23 "or 65,536 of all connections"; here 2, of which the first client has one and may have another."""
    stand = Stand(resources, RemotingLimits(max_pending_in_all=2))
    later = stand.server.handlers[LATER] = Later()
    clients = [stand.connect() for _ in range(3)]
    for client in clients:
        client.send(request(LATER))
        stand.turns()
    assert len(later.asked) == 2
    assert not stand.has_event()
    later.answer(0)
    assert stand.has_event()
    stand.turns(2)  # one watches its socket again, and the next one reads from it
    assert len(later.asked) == 2


def test_where_others_have_taken_the_room_a_connection_is_not_read_from(resources: ExitStack) -> None:
    """HA-RM-23 "MUST NOT read from a connection while": not even once, and whichever connections have the requests."""
    stand = Stand(resources, RemotingLimits(max_pending_in_all=2))
    later = stand.server.handlers[LATER] = Later()
    first, second = stand.connect(), stand.connect()
    first.send(request(LATER), request(LATER))
    stand.turns()
    read = stand.server.received_bytes
    second.send(request(LATER))
    stand.turns()
    assert (len(later.asked), stand.server.received_bytes) == (2, read)
    later.answer(0)
    stand.turns()
    assert len(later.asked) == 2
    assert stand.server.received_bytes > read


def test_a_frame_that_nobody_reads_is_not_late(resources: ExitStack) -> None:
    """HA-RM-29 "MUST NOT close a connection for what it has not read": its second half has come, and waits there."""
    stand = Stand(resources, RemotingLimits(max_pending_in_all=1))
    later = stand.server.handlers[LATER] = Later()
    first, second = stand.connect(), stand.connect()
    frame = encode_whole(request(LATER, body=b"whole"))
    second.sock.sendall(frame[:30])
    stand.turns()
    first.send(request(LATER))
    stand.turns()
    second.sock.sendall(frame[30:])
    stand.pass_time(90_000)
    assert len(stand.server.channels) == 2
    later.answer(0)
    stand.turns()
    assert [asked.body for _, asked in later.asked] == [b"whole"]


@pytest.mark.parametrize("says_something", [False, True])
def test_after_a_pause_of_the_process_nobody_is_closed_at_once(stand: Stand, client: Client, *, says_something: bool) -> None:
    """HA-T-21 "MUST let nothing expire in the second that follows": the client may have been stopped with us. Afterwards it is
    closed if it says nothing.
    """
    stand.pass_time(1_000)
    (channel,) = stand.server.channels
    stand.pause(300_000)
    stand.turn(0)
    stand.pass_time(500)
    assert stand.server.channels == [channel]
    if says_something:
        assert client.ask(request(ECHO)).code == 0
    stand.pass_time(1_500)
    assert stand.server.channels == [channel] * says_something


def test_bytes_that_come_late_in_a_turn_keep_their_connection(
    stand: Stand, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-T-20 "each end MUST look at what has come": a turn that has connections left from the one before asks the system for
    no others before it looks at the time.
    """
    assert stand.server.handlers[LATER] is later
    monkeypatch.setattr(connections_module, "CHANNELS_TURN", 1)
    idle, first, second = stand.connect(), stand.connect(), stand.connect()
    wait_for(lambda: len(stand.server.channels) == 3, stand.turn)
    for _ in range(2):
        stand.pass_time(59_500)
        for client in (first, second):
            client.ask(request(ECHO))
    stand.pass_time(500)
    for client in (first, second):
        client.send(request(ECHO))
        stand.await_bytes(client)
    stand.turn(0)  # it finds both, and serves one
    idle.send(request(ECHO))
    stand.await_bytes(idle)
    stand.pause(900)  # since its connect 120 s have passed
    stand.turn(0)
    assert len(stand.server.channels) == 3
    assert len(idle.await_answers(1)) == 1


def broken_pipe(_connection: Connection, _now_ms: int) -> int:
    raise BrokenPipeError


@pytest.mark.parametrize("first", ["handler", "send"])
def test_a_connection_that_is_dropped_twice_gives_one_place_free(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """By the handler of its request, or where its answer cannot be sent; and by the broken frame behind the request."""
    limits = RemotingLimits(connections=Limits(max_connections=2, allow=LOOPBACK))
    with ExitStack() as resources:
        stand = Stand(resources, limits)
        if first == "handler":
            stand.server.handlers[ECHO] = lambda channel, _asked, _now_ms: stand.server.drop(channel, "test")
        else:
            stand.server.handlers[ECHO] = echo
            monkeypatch.setattr(Connection, "send", broken_pipe)
        stays, goes = stand.connect(), stand.connect()
        stand.turns()
        goes.sock.sendall(encode_whole(request(ECHO)) + b"\0\0\0\1")
        goes.await_close()
        stand.connect()
        stand.turns()
        assert not stand.server.limiter.refused
        stand.connect()
        stand.turns()
        assert stand.server.limiter.refused == {"max_connections": 1}
        assert not stays.is_closed
