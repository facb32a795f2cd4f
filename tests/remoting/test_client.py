"""The client over real sockets: every request's caller is told exactly once."""

import errno
import select
import socket
import threading
from contextlib import ExitStack

import pytest

from kit.remoting import Stand
from kit.sockets import kept_port
from kit.waiting import PATIENCE_S, accepted, wait_for
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid, RequestFailed
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.remoting import client as client_module
from rocketmq_ha.impl.remoting import resolver as resolver_module
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.command import RemotingCommand, request, response_to

ECHO, SILENT, CLOSING = 10, 11, 12
PATIENT_MS = 60_000


class Both:
    """A server and a client in one thread; `told` is what the callers were told."""

    def __init__(self, stand: Stand, resources: ExitStack) -> None:
        self.server, self.client = stand.server, RemotingClient()
        resources.callback(self.client.close)
        self.address = format_address(*self.server.addresses[0])
        self.told: list[RemotingCommand | RequestFailed] = []
        self.server.handlers[ECHO] = lambda _channel, asked, _now_ms: response_to(asked, body=asked.body)
        self.server.handlers[SILENT] = lambda *_: None

    def turn(self) -> None:
        self.server.poll(2)
        self.client.poll(2)

    def client_has_event(self) -> bool:
        return bool(select.select([self.client], [], [], 0.005)[0])

    def invoke(self, code: int, body: bytes = b"", timeout_ms: int = PATIENT_MS, address: str = "") -> None:
        self.client.invoke(address or self.address, request(code, body=body), clock_ms() + timeout_ms, self.told.append)

    def await_told(self, count: int) -> list[RemotingCommand | RequestFailed]:
        wait_for(lambda: len(self.told) >= count, self.turn)
        return self.told

    def why(self) -> str:
        (told,) = self.await_told(1)
        assert isinstance(told, RequestFailed)
        return str(told)


@pytest.fixture
def both(stand: Stand, resources: ExitStack) -> Both:
    return Both(stand, resources)


@pytest.fixture
def closed_port(resources: ExitStack) -> str:
    """An address where nobody listens."""
    return format_address(*resources.enter_context(kept_port()))


def test_requests_to_an_address_share_one_connection(both: Both) -> None:
    for number in range(50):
        both.invoke(ECHO, b"%d" % number)
    told = both.await_told(50)
    assert [answer.body for answer in told if isinstance(answer, RemotingCommand)] == [b"%d" % number for number in range(50)]
    assert both.server.accepted_connections == 1


def test_one_command_can_be_sent_again(both: Both) -> None:
    """Each time with an opaque of its own, so that a late answer is never taken for that of the next try."""
    command = request(ECHO)
    for _ in range(2):
        both.client.invoke(both.address, command, clock_ms() + PATIENT_MS, both.told.append)
    first, second = both.await_told(2)
    assert isinstance(first, RemotingCommand)
    assert isinstance(second, RemotingCommand)
    assert first.opaque != second.opaque


def test_a_large_body_goes_both_ways(both: Both) -> None:
    both.invoke(ECHO, bytes(range(256)) * 40_000)
    (answer,) = both.await_told(1)
    assert isinstance(answer, RemotingCommand)
    assert answer.body == bytes(range(256)) * 40_000


def test_a_request_without_an_answer_fails_at_its_deadline_and_the_connection_goes_on(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-RM-16 "MUST give up a request that has no answer at its deadline"."""
    monkeypatch.setattr(client_module, "SILENT_MS", PATIENCE_S * 1000)
    both.invoke(ECHO)
    both.await_told(1)
    both.told.clear()
    both.invoke(SILENT, timeout_ms=0)
    assert both.why() == f"{both.address}: request 11 (PULL_MESSAGE): no answer in time"
    assert isinstance(both.told[0], RequestFailed) and both.told[0].is_late and not both.told[0].is_unsent
    both.invoke(ECHO)
    both.await_told(2)
    assert both.server.accepted_connections == 1


def test_a_silent_connection_is_given_up_with_its_late_request(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-RM-30 "MUST close its connection if nothing has come over it for 3 s"; here 0 s."""
    assert client_module.SILENT_MS == 3_000
    monkeypatch.setattr(client_module, "SILENT_MS", 0)
    both.invoke(SILENT, timeout_ms=0)
    both.await_told(1)
    both.invoke(ECHO)
    both.await_told(2)
    assert both.server.accepted_connections == 2


@pytest.mark.parametrize(("heard_ms", "connections"), [(None, 2), (500, 2), (2_000, 2), (2_500, 1), (4_500, 1)])
def test_a_connection_that_has_said_something_is_kept_though_a_request_is_late(
    both: Both, heard_ms: int | None, connections: int
) -> None:
    """It is given up when a request is late and nothing came for 3 s: here 5 s after the start, with an answer or none."""
    began_ms = clock_ms()
    both.client.invoke(both.address, request(SILENT), began_ms + 5_000, both.told.append)
    wait_for(lambda: both.server.requests.get(SILENT), both.turn)
    for passed_ms in range(0, 5_500, 500):
        if passed_ms == heard_ms:
            both.invoke(ECHO)
            wait_for(lambda: both.server.requests.get(ECHO), lambda: both.server.poll(2))
            wait_for(both.client_has_event, lambda: None)
        both.client.on_readable()
        both.client.turn(began_ms + passed_ms)
    assert any(isinstance(told, RequestFailed) for told in both.told)
    both.told.clear()
    both.invoke(ECHO)
    both.await_told(1)
    assert both.server.accepted_connections == connections


def test_the_end_of_the_connection_fails_its_requests(both: Both) -> None:
    """HA-RM-16 "or whose connection has ended"."""
    closed: list[Channel] = []
    both.client.on_close.append(closed.append)
    both.invoke(SILENT)
    wait_for(lambda: both.server.requests.get(SILENT), both.turn)
    (channel,) = both.server.channels
    both.server.allow(())  # closes it
    assert (
        both.why()
        == f"{both.address}: request 11 (PULL_MESSAGE): closed: it ended before any answer: it may demand TLS, or refuse us"
    )
    assert [channel.peer for channel in closed] == [both.address]
    assert not channel.is_open


def test_a_connect_that_fails_at_once_is_told_from_within_a_turn(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable(socket.socket):
        def connect_ex(self, _address: object) -> int:
            return errno.ENETUNREACH

    monkeypatch.setattr(client_module.socket, "socket", Unreachable)
    both.invoke(ECHO, address="192.0.2.1:9876")
    assert both.told == []
    assert both.why() == "192.0.2.1:9876: request 10 (SEND_MESSAGE): closed: cannot connect: Network is unreachable"


def test_where_nobody_listens_the_request_fails_from_within_a_turn(both: Both, closed_port: str) -> None:
    both.invoke(ECHO, address=closed_port)
    assert both.told == []
    assert both.why() == f"{closed_port}: request 10 (SEND_MESSAGE): closed: cannot connect: Connection refused"


def test_a_caller_may_ask_again_from_its_own_callback(both: Both, closed_port: str) -> None:
    address, tries = closed_port, 5

    def again(_: RemotingCommand | RequestFailed) -> None:
        nonlocal tries
        tries -= 1
        if tries:
            both.client.invoke(address, request(ECHO), clock_ms() + PATIENT_MS, again)

    both.client.invoke(address, request(ECHO), clock_ms() + PATIENT_MS, again)
    wait_for(lambda: not tries, both.turn)


def test_a_connect_that_takes_too_long_is_given_up(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "CONNECT_MS", 0)
    monkeypatch.setattr(RemotingClient, "_on_writable", lambda *_: None)
    both.invoke(ECHO)
    assert "cannot connect: no answer within 0 ms" in both.why()


def test_a_name_is_looked_up_in_a_thread(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "CONNECT_MS", PATIENCE_S * 1000)
    port = both.server.addresses[0][1]
    both.invoke(ECHO, address=f"localhost:{port}")
    (answer,) = both.await_told(1)
    assert isinstance(answer, RemotingCommand)


def test_a_name_that_is_none_fails_its_request(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(resolver_module.socket, "getaddrinfo", unknown)
    both.invoke(ECHO, address="nowhere.example:9876")
    assert both.why() == "nowhere.example:9876: request 10 (SEND_MESSAGE): closed: cannot connect: Name or service not known"


def test_an_address_that_is_none_is_refused_at_once(both: Both) -> None:
    with pytest.raises(ConfigInvalid, match="nonsense"):
        both.invoke(ECHO, address="nonsense")


def test_a_server_that_sends_no_frames_fails_the_request(both: Both) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = format_address(*listener.getsockname())
        both.invoke(ECHO, address=address)
        both.turn()
        with accepted(listener) as sock:
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert both.why().startswith(
                f"{address}: request 10 (SEND_MESSAGE): closed: remoting frame: found a length of 1213486160, expected"
            )
    assert both.client.invalid_frames == 1


def test_the_server_can_ask_the_client(both: Both) -> None:
    seen: list[tuple[str, int]] = []

    def served(channel: Channel, asked: RemotingCommand, _now_ms: int) -> RemotingCommand:
        seen.append((channel.peer, asked.code))
        return response_to(asked, 0, "running")

    both.client.handlers[307] = served
    both.invoke(ECHO)
    both.await_told(1)
    (channel,) = both.server.channels
    channel.invoke(request(307), clock_ms() + PATIENT_MS, both.told.append)
    both.await_told(2)
    assert isinstance(both.told[1], RemotingCommand)
    assert both.told[1].remark == "running"
    assert seen == [(both.address, 307)]


def test_a_oneway_request_arrives_and_nobody_is_told(both: Both) -> None:
    both.client.send(both.address, request(ECHO, oneway=True))
    wait_for(lambda: both.server.requests.get(ECHO), both.turn)
    both.turn()
    assert both.told == []


def test_close_fails_what_is_under_way(both: Both) -> None:
    both.invoke(SILENT)
    both.client.disconnect(both.address)
    assert both.why() == f"{both.address}: request 11 (PULL_MESSAGE): closed: this end has closed it"


def test_a_name_that_is_found_after_the_end_is_connected_to_no_more(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is forgotten: nobody would close the socket."""
    may_find = threading.Event()
    look_up = resolver_module._look_up

    def slow(_host: str, port: int, flags: int) -> resolver_module.Found:
        if flags:
            raise OSError(errno.EINVAL, "no number")
        assert may_find.wait(PATIENCE_S)
        return look_up("127.0.0.1", port, 0)

    monkeypatch.setattr(resolver_module, "_look_up", slow)
    monkeypatch.setattr(client_module, "CONNECT_MS", PATIENCE_S * 1000)
    address = f"broker-a:{both.server.addresses[0][1]}"
    both.invoke(ECHO, address=address)
    both.client.disconnect(address)
    assert "this end has closed it" in both.why()
    may_find.set()
    wait_for(lambda: not any(each.name == "resolve broker-a" for each in threading.enumerate()), both.turn)
    for _ in range(10):
        both.turn()
    assert both.server.accepted_connections == 0
    both.invoke(ECHO, address=address)
    assert isinstance(both.await_told(2)[1], RemotingCommand)
    assert both.server.accepted_connections == 1
