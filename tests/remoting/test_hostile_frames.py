"""Hostile inputs on a remoting port: each ends its own connection, or is answered, and costs nobody else anything."""

import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise

import pytest

from kit.hostile_frames import CLOSED, ECHO, INPUTS
from kit.remoting import Client, Stand
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.net.limits import LOOPBACK, Limits, parse_networks
from rocketmq_ha.impl.remoting.command import RemotingCommand, SerializeType, encode_whole, request, response_to
from rocketmq_ha.impl.remoting.limits import RemotingLimits

HELD = 11


@pytest.fixture
def served(stand: Stand) -> Stand:
    """A server with an echo of fields and body, and a code whose answers never come."""
    stand.server.handlers[ECHO] = lambda _channel, asked, _now_ms: response_to(
        asked, ext_fields=asked.ext_fields, body=asked.body
    )
    stand.server.handlers[HELD] = lambda *_: None
    return stand


def assert_sound(stand: Stand) -> None:
    """Others are served, nothing is left behind, and no bug was met."""
    assert stand.connect().ask(request(ECHO, body=b"still here")).body == b"still here"
    assert stand.server.failures == 0
    assert stand.server.unfinished == 0
    assert stand.server.pending == 0


@pytest.mark.parametrize("name", INPUTS)
def test_one_hostile_input(served: Stand, name: str) -> None:
    """HA-RM-18 "MUST close no connection because a request on it failed": answered and still open, or closed for its frame."""
    data, outcome = INPUTS[name]
    client = served.connect()
    first = request(ECHO, body=b"first")
    client.send_bytes(encode_whole(first) + data)
    assert client.await_answers(1)[0].body == b"first"  # what came before it is answered
    if outcome is CLOSED:
        client.await_close()
        assert client.received == []
        assert served.server.invalid_frames == 1
    else:
        assert client.await_answers(1)[0].code == outcome
        assert client.ask(request(ECHO)).code == 0
    assert_sound(served)


def test_there_are_enough_of_them() -> None:
    assert sum(outcome is CLOSED for _, outcome in INPUTS.values()) >= 40


def answers_to_nobody(client: Client) -> None:
    """HA-RM-15 "MUST be ignored, and its connection go on"."""
    client.send(*(RemotingCommand(0, number, 1) for number in range(3_000)))


def every_flag(client: Client) -> None:
    client.send(RemotingCommand(ECHO, 1, -1), RemotingCommand(ECHO, 1, -2))


def many_codes(client: Client) -> None:
    """Of 2,000 codes that nobody serves the server remembers one number."""
    client.send(*(RemotingCommand(1_000_000 + number, number) for number in range(2_000)))
    assert {answer.code for answer in client.await_answers(2_000)} == {3}


def a_flood_of_requests(client: Client) -> None:
    client.send(*(request(ECHO) for _ in range(5_000)))
    assert len(client.await_answers(5_000)) == 5_000


def a_flood_of_oneway_requests(client: Client) -> None:
    client.send(*(request(code, oneway=True) for code in (ECHO, HELD, 4242) for _ in range(1_000)))
    assert client.ask(request(ECHO)).code == 0


def one_opaque_for_all(client: Client) -> None:
    client.send(*(RemotingCommand(ECHO, 5) for _ in range(1_000)))
    assert {answer.opaque for answer in client.await_answers(1_000)} == {5}


def byte_by_byte(client: Client) -> None:
    for byte in encode_whole(RemotingCommand(ECHO, 1, serialize_type=SerializeType.ROCKETMQ)):
        client.send_bytes(bytes([byte]))
    assert client.await_answers(1)[0].code == 0


def a_reset_within_a_frame(client: Client) -> None:
    client.send_bytes(encode_whole(request(ECHO, body=bytes(1000)))[:500])
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sock.close()


def an_end_with_answers_to_come(client: Client) -> None:
    client.send(request(HELD), request(HELD))
    client.sock.shutdown(socket.SHUT_WR)


def a_reset_with_answers_under_way(client: Client) -> None:
    client.send(*(request(ECHO, body=bytes(1 << 20)) for _ in range(4)))
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sock.close()


@pytest.mark.parametrize(
    "play",
    [
        *(answers_to_nobody, every_flag, many_codes, a_flood_of_requests, a_flood_of_oneway_requests, one_opaque_for_all),
        *(byte_by_byte, a_reset_within_a_frame, an_end_with_answers_to_come, a_reset_with_answers_under_way),
    ],
)
def test_a_hostile_client(served: Stand, play: Callable[[Client], None]) -> None:
    play(served.connect())
    served.turns()
    assert_sound(served)
    assert len(served.server.requests) <= 3
    served.turns()


def test_a_frame_that_never_ends_is_closed_at_its_deadline(served: Stand) -> None:
    """HA-RM-25 "whose frame has begun and is not whole after 60 s MUST be closed", though a byte comes now and then."""
    slow = served.connect()
    data = encode_whole(request(ECHO, body=bytes(1000)))
    slow.send_bytes(data[:1])
    served.turns()
    for at in range(1, 59):
        slow.send_bytes(data[at : at + 1])
        served.pass_time(1_000)
        assert served.server.channels, at
    served.pass_time(3_000)
    assert served.server.channels == []
    slow.await_close()


def test_an_idle_connection_is_closed_after_120_s(served: Stand) -> None:
    """HA-RM-17 "neither sent nor received a byte for 120 s"."""
    idle, busy = served.connect(), served.connect()
    served.turns()
    for _ in range(2):
        served.pass_time(50_000)
        assert busy.ask(request(ECHO)).code == 0
        assert len(served.server.channels) == 2
    served.pass_time(21_000)
    assert len(served.server.channels) == 1
    idle.await_close()
    assert busy.ask(request(ECHO)).code == 0


def test_a_client_that_reads_nothing_is_closed_after_20_s(resources: ExitStack) -> None:
    """HA-RM-24 "that has taken no byte of what it has to take for 20 s"."""
    stand = Stand(resources, RemotingLimits(max_unsent=1 << 20))
    stand.server.handlers[ECHO] = lambda _channel, asked, _now_ms: response_to(asked, body=bytes(4 << 20))
    client = stand.connect()
    client.send(*(request(ECHO) for _ in range(100)))
    stand.turns(40)
    (channel,) = stand.server.channels
    assert channel.unsent <= 8 << 20
    stand.pass_time(19_000)
    assert stand.server.channels == [channel]
    stand.pass_time(2_000)
    assert stand.server.channels == []


def test_a_client_that_reads_slowly_is_not_closed(resources: ExitStack) -> None:
    """HA-RM-24 "that has taken no byte of what it has to take for 20 s": this one takes some every 15 s."""
    stand = Stand(resources)
    stand.server.handlers[ECHO] = lambda _channel, asked, _now_ms: response_to(asked, body=bytes(15 << 20))
    client = stand.connect()
    client.send(request(ECHO))
    for _ in range(4):
        stand.pass_time(15_000)
        (channel,) = stand.server.channels
        before = channel.unsent
        assert before
        while channel.unsent == before:
            client.read()
            stand.turn(1)
    assert stand.server.channels == [channel]


def test_unfinished_frames_of_all_connections_together_have_a_limit(resources: ExitStack) -> None:
    """HA-RM-26 "MUST close a connection whose unfinished frame would make those of all connections more than 256 MiB"."""
    stand = Stand(resources, RemotingLimits(max_unfinished=1 << 20))
    stand.server.handlers[ECHO] = lambda _channel, asked, _now_ms: response_to(asked)
    begun = encode_whole(request(ECHO, body=bytes(500_000)))[:-1]
    first, second, third = (stand.connect() for _ in range(3))
    for client in (first, second):
        client.send_bytes(begun)
        stand.turns()
    assert len(stand.server.channels) == 3
    third.send_bytes(begun[:100_000])
    third.await_close()
    assert stand.server.unfinished <= 1 << 20
    for client in (first, second):
        client.send_bytes(b"\0")
        assert client.await_answers(1)[0].code == 0
    assert_unharmed(stand)


def assert_unharmed(stand: Stand) -> None:
    assert (stand.server.unfinished, stand.server.failures) == (0, 0)


def test_who_may_connect_is_decided_as_on_the_ha_port(resources: ExitStack) -> None:
    """HA-RM-22 "MUST keep what a master keeps on its HA port": networks, connections in all and by address."""
    limits = Limits(max_connections=3, max_connections_per_address=2, allow=parse_networks(["127.0.0.0/30"]))
    stand = Stand(resources, RemotingLimits(limits), listeners=2)
    stand.server.handlers[ECHO] = lambda _channel, asked, _now_ms: response_to(asked)
    clients = [stand.connect(0), stand.connect(1), stand.connect(0, "127.0.0.2")]
    for client in clients:
        assert client.ask(request(ECHO)).code == 0
    stand.connect(1).await_close()  # beyond those of its address, on both ports together
    stand.connect(0, "127.0.0.3").await_close()  # beyond those of all
    stand.connect(0, "127.0.0.9").await_close()  # of no network that is named
    assert stand.server.limiter.refused == {"max_connections": 2, "allow": 1}
    clients[0].sock.close()
    stand.turns()
    assert stand.connect().ask(request(ECHO)).code == 0


def test_loopback_alone_may_connect_unless_more_is_said() -> None:
    """HA-RM-22: as HA-M-50 "loopback by default"."""
    assert RemotingLimits().connections.allow == LOOPBACK


def test_the_limits_are_those_of_the_chapter() -> None:
    """HA-RM-23 "4,096 of its requests, or 65,536 of all connections"; HA-RM-24 "more than 8 MiB", "for 20 s"; HA-RM-25
    "after 60 s"; HA-RM-26 "more than 256 MiB"; HA-RM-17 "for 120 s". The tests of each limit have smaller ones.
    """
    limits = RemotingLimits()
    assert (limits.max_pending, limits.max_pending_in_all) == (4_096, 65_536)
    assert (limits.max_unsent, limits.max_unfinished) == (8 << 20, 256 << 20)
    assert (limits.write_stall_ms, limits.frame_deadline_ms, limits.idle_ms) == (20_000, 60_000, 120_000)


def test_lines_about_peers_are_few(served: Stand, caplog: pytest.LogCaptureFixture) -> None:
    """HA-RM-22: as HA-M-57 "MUST NOT write more than 30 log lines about its peers"."""
    for _ in range(60):
        client = served.connect()
        client.send_bytes(b"\0\0\0\0")
        client.await_close()
    assert served.server.invalid_frames == 60
    assert len(caplog.records) <= 30
    line = caplog.records[0].getMessage()
    assert line.endswith("closed: remoting frame: found a length of 0, expected 4 to 16777212")


def test_one_that_floods_does_not_hold_up_another(served: Stand) -> None:
    """A turn is bounded: an answer to the second comes while most of the first one's requests wait."""
    flood, other = served.connect(), served.connect()
    served.turns()
    data = encode_whole(RemotingCommand(ECHO, 1, 2, serialize_type=SerializeType.ROCKETMQ)) * 5_000
    flood.sock.setblocking(True)
    flood.sock.settimeout(5)
    sent = flood.sock.send(data)
    other.send(request(ECHO))
    for _ in range(4):
        served.server.poll(1)
        other.read()
    assert len(other.received) == 1
    assert served.server.requests[ECHO] < sent // (len(data) // 5_000)


def test_a_turn_serves_a_bounded_number_of_requests_and_the_next_goes_on(served: Stand) -> None:
    """HA-RM-27 "no more than 512 requests of all connections together"."""
    data = encode_whole(RemotingCommand(ECHO, 1, 2, serialize_type=SerializeType.ROCKETMQ)) * 1_200
    for _ in range(2):
        served.connect().send_bytes(data)
    counts = [served.server.requests.get(ECHO, 0)]
    for _ in range(50):
        served.turn()
        counts.append(served.server.requests.get(ECHO, 0))
    assert max(after - before for before, after in pairwise(counts)) <= 512
    assert counts[-1] == 2_400


def test_requests_before_a_broken_frame_count_in_their_turn(served: Stand) -> None:
    """HA-RM-27 "no more than 512 requests of all connections together": those of connections that end in it, too."""
    clients = [served.connect() for _ in range(4)]
    served.turns()
    data = encode_whole(request(ECHO)) * 300 + b"\xff" * 8
    for client in clients:
        client.sock.setblocking(True)
        client.sock.settimeout(PATIENCE_S)
        client.sock.sendall(data)
        client.sock.setblocking(False)
    counts = [served.server.requests.get(ECHO, 0)]
    for _ in range(50):
        served.turn()
        counts.append(served.server.requests.get(ECHO, 0))
    assert max(after - before for before, after in pairwise(counts)) <= 512
    assert (counts[-1], served.server.invalid_frames) == (4 * 300, 4)
