"""Accepting connections: every result of accept and of the options of a socket, and what is counted and said for each."""

import errno
import logging
import selectors
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kit.played import AGAIN, error
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.limits import ConnectionLimiter, Limits, parse_networks
from rocketmq_ha.impl.net.listeners import Accepted, Listeners, listen
from rocketmq_ha.impl.net.peer_log import PeerLog

NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class PlayedListener(socket.socket):
    """A listening socket whose accepts give what the test lists; behind the last one nothing waits."""

    def play(self, *results: OSError | tuple[socket.socket, tuple[Any, ...]]) -> None:
        self.results = deque(results)
        self.asked = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.asked += 1
        result = self.results.popleft() if self.results else AGAIN
        if isinstance(result, OSError):
            raise result
        return result


class Refusing(socket.socket):
    """A socket that takes no option, as some systems have it if the peer has gone already."""

    def setsockopt(self, *_: Any) -> None:  # type: ignore[override]
        raise error(errno.EINVAL)


class Door:
    """Listeners over played sockets, with the log and the limiter that they use."""

    def __init__(self, resources: ExitStack, *, ports: int = 1, **limits: Any) -> None:
        self._resources = resources
        self.selector = resources.enter_context(selectors.DefaultSelector())
        self.sockets = [self._keep(PlayedListener()) for _ in range(ports)]
        for sock in self.sockets:
            sock.bind(("127.0.0.1", 0))
            sock.listen()
            sock.play()
        self.limiter = ConnectionLimiter(Limits(**limits))
        self.peers = PeerLog(logging.getLogger("rocketmq_ha.test"))
        plain, tls = [*self.sockets, None][:2]
        self.listeners = Listeners(self.selector, plain, tls, self.limiter, self.peers)

    def _keep(self, sock: Any) -> Any:
        return self._resources.enter_context(sock)

    def peer(self, host: str = "127.0.0.1", port: int = 4000, kind: type[socket.socket] = socket.socket) -> Any:
        """What accept gives for a peer of an address."""
        return self._keep(kind(socket.AF_INET, socket.SOCK_STREAM)), (host, port)

    def accept(self, index: int = 0, now_ms: int = 0) -> list[Accepted]:
        return list(self.listeners.accept(self.sockets[index], now_ms))

    @property
    def open(self) -> dict[str, int]:
        """Connections by address, as the limiter counts them."""
        return dict(self.limiter._open)

    @property
    def watched(self) -> int:
        return len(self.selector.get_map())


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_peer_is_made_ready_counted_and_named(resources: ExitStack) -> None:
    """HA-M-17 "MUST be non-blocking, with TCP_NODELAY set"."""
    door = Door(resources, ports=2)
    for index, has_tls in enumerate((False, True)):
        door.sockets[index].play(door.peer("10.0.0.7", 4000 + index))
        (found,) = door.accept(index)
        assert (found.host, found.peer, found.has_tls) == ("10.0.0.7", f"10.0.0.7:{4000 + index}", has_tls)
        assert (found.sock.getblocking(), found.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) == (False, 1)
    assert door.open == {"10.0.0.7": 2}


def test_a_peer_of_ipv6_is_named_with_brackets_and_counted_without_its_scope(resources: ExitStack) -> None:
    door = Door(resources)
    sock, _ = door.peer()
    door.sockets[0].play((sock, ("fe80::1", 4000, 0, 3)))
    (found,) = door.accept()
    assert (found.host, found.peer, door.open) == ("fe80::1", "[fe80::1]:4000", {"fe80::1": 1})


def test_a_peer_that_has_gone_already_leaves_no_count(resources: ExitStack) -> None:
    """A socket that takes no option is closed, its place is free again, and the next peer is served in the same turn."""
    door = Door(resources, max_connections=1)
    gone = [door.peer("10.0.0.7", kind=Refusing) for _ in range(3)]
    door.sockets[0].play(*gone, door.peer("10.0.0.8"))
    (found,) = door.accept()
    assert (found.host, door.open, door.limiter.refused.total()) == ("10.0.0.8", {"10.0.0.8": 1}, 0)
    assert [sock.fileno() for sock, _ in gone] == [-1] * 3


@pytest.mark.parametrize(
    ("limits", "open_ones", "option", "line"),
    [
        ({"allow": parse_networks(["10.0.0.0/24"])}, 0, "allow", "it is in no network that --allow names"),
        ({"max_connections": 2}, 2, "max_connections", "2 connections are open (--max-connections)"),
        (
            {"max_connections_per_address": 3},
            3,
            "max_connections_per_address",
            "its address has 3 connections open (--max-connections-per-address)",
        ),
    ],
)
def test_a_refusal_closes_counts_and_says_why(
    resources: ExitStack, caplog: pytest.LogCaptureFixture, limits: Any, open_ones: int, option: str, line: str
) -> None:
    """HA-M-51 "MUST be closed as it is accepted"; a refused peer takes no place, and a place that is given back is free."""
    door = Door(resources, **limits)
    host = "10.0.1.9"
    for _ in range(open_ones):
        assert door.limiter.refusal(host) is None
    refused = [door.peer(host, 4001), door.peer(host, 4002)]
    door.sockets[0].play(*refused)
    assert door.accept() == []
    assert [sock.fileno() for sock, _ in refused] == [-1, -1]
    assert door.limiter.refused == {option: 2}
    assert door.open == ({host: open_ones} if open_ones else {})
    assert [record.getMessage() for record in caplog.records] == [f"{host}:{port}: refused: {line}" for port in (4001, 4002)]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    if open_ones:
        door.limiter.release(host)
        door.sockets[0].play(door.peer(host, 4003))
        assert len(door.accept()) == 1


def test_each_address_is_counted_by_itself_and_forgotten_at_zero(resources: ExitStack) -> None:
    limiter = Door(resources, max_connections=3, max_connections_per_address=2).limiter
    hosts = ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert [limiter.refusal(host) is None for host in hosts] == [True, True, False, True, False]
    assert limiter.refused == {"max_connections_per_address": 1, "max_connections": 1}
    limiter.release("10.0.0.1")
    assert dict(limiter._open) == {"10.0.0.1": 1, "10.0.0.2": 1}
    limiter.release("10.0.0.2")
    assert dict(limiter._open) == {"10.0.0.1": 1}
    assert [limiter.refusal(host) is None for host in ("10.0.0.2", "10.0.0.1", "10.0.0.3")] == [True, True, False]


def test_networks_may_change_while_the_counts_stay(resources: ExitStack) -> None:
    """HA-M-80: what is counted belongs to connections that are open, whoever may connect next."""
    limiter = Door(resources, max_connections=2, allow=parse_networks(["10.0.0.1"])).limiter
    assert [limiter.refusal(host) is None for host in ("10.0.0.1", "10.0.0.2")] == [True, False]
    networks = parse_networks(["10.0.0.2"])
    limiter.allow(networks)
    assert limiter.networks == networks
    assert [limiter.refusal(host) is None for host in ("10.0.0.1", "10.0.0.2", "10.0.0.2")] == [False, True, False]
    assert limiter.refused == {"allow": 2, "max_connections": 1}
    limiter.allow(None)
    assert (limiter.networks, limiter.admits("203.0.113.9")) == (None, True)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ECONNABORTED, errno.EPROTO, errno.EPERM])
def test_an_accept_that_fails_ends_the_turn_and_no_more(
    resources: ExitStack, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """HA-M-20 "MUST NOT touch the other connections, nor end the service"."""
    door = Door(resources)
    door.sockets[0].play(door.peer(), error(number), door.peer())
    assert (len(door.accept()), door.sockets[0].asked) == (1, 2)
    assert (door.listeners.is_accepting, door.watched, caplog.records) == (True, 1, [])
    assert len(door.accept()) == 1


@pytest.mark.parametrize("number", NO_ROOM, ids=errno.errorcode.get)
@pytest.mark.parametrize("ports", [1, 2])
def test_without_descriptors_no_port_is_asked_for_100_ms(
    resources: ExitStack, caplog: pytest.LogCaptureFixture, number: int, ports: int
) -> None:
    """HA-M-58 "MUST NOT ask its listening socket again before 100 ms have passed", on either port."""
    door = Door(resources, ports=ports)
    door.sockets[0].play(error(number), *(door.peer() for _ in range(2)))
    assert (door.accept(now_ms=5000), door.listeners.is_accepting, door.watched) == ([], False, 0)
    assert [record.getMessage() for record in caplog.records] == [f"cannot accept: {error(number).strerror}"]
    assert (door.accept(ports - 1, 5050), door.sockets[0].asked, door.sockets[-1].asked <= 1) == ([], 1, True)
    for now_ms, is_accepting in ((5000, False), (5099, False), (5100, True), (5101, True)):
        door.listeners.on_tick(now_ms)
        assert (door.listeners.is_accepting, door.watched) == (is_accepting, ports if is_accepting else 0)
    assert len(door.accept(now_ms=5102)) == 2
    door.sockets[0].play(error(number))
    door.accept(now_ms=6000)
    door.listeners.on_tick(6099)
    assert not door.listeners.is_accepting


@pytest.mark.parametrize(("ports", "most"), [(1, 16), (2, 8)])
def test_a_turn_asks_for_sixteen_on_all_ports_together(resources: ExitStack, ports: int, most: int) -> None:
    """HA-M-54 "MUST accept no more than 16 connections"; refused ones are among them (HA-M-75)."""
    door = Door(resources, ports=ports, max_connections=3)
    door.sockets[0].play(*(door.peer() for _ in range(20)))
    assert (len(door.accept()), door.sockets[0].asked) == (3, most)


def test_the_addresses_are_those_of_the_sockets(resources: ExitStack) -> None:
    both, alone = Door(resources, ports=2), Door(resources)
    plain, tls = (sock.getsockname() for sock in both.sockets)
    assert (both.listeners.address, both.listeners.plain_address, both.listeners.tls_address) == (plain, plain, tls)
    assert (alone.listeners.plain_address, alone.listeners.tls_address) == (alone.sockets[0].getsockname(), None)
    secret = Listeners(selectors.DefaultSelector(), None, alone.sockets[0], alone.limiter, alone.peers)
    address = alone.sockets[0].getsockname()
    assert (secret.address, secret.plain_address, secret.tls_address) == (address, None, address)
    assert [sock.getblocking() for sock in both.sockets] == [False, False]
    both.listeners.close()
    assert [sock.fileno() for sock in both.sockets] == [-1, -1]


def test_an_address_that_cannot_be_listened_on_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigInvalid, match=rf"^cannot listen on 127\.0\.0\.1:{port}: Address already in use$"):
            listen("127.0.0.1", port)
    with pytest.raises(ConfigInvalid, match=r"^cannot listen on 203\.0\.113\.9:0: Cannot assign requested address$"):
        listen("203.0.113.9", 0)
