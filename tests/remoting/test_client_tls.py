"""TLS of the remoting client, at a server of ours in each mode. HA-RM-28."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.certificates import Certificates
from kit.remoting import Stand
from kit.waiting import accepted, wait_for
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid, RequestFailed
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.tls_files import TlsFiles
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.client_tls import RemotingClientTls
from rocketmq_ha.impl.remoting.command import RemotingCommand, request, response_to
from rocketmq_ha.impl.remoting.tls import RemotingTls, TlsMode

ECHO = 10
PATIENT_MS = 60_000
BODY = bytes(range(256)) * 12_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Ends:
    """A server with TLS and a client, in one thread."""

    def __init__(
        self,
        resources: ExitStack,
        server: TlsFiles,
        client: RemotingClientTls | None,
        mode: TlsMode = TlsMode.ENFORCING,
        clients_ca: Path | None = None,
    ) -> None:
        self.server = Stand(resources, tls=RemotingTls(mode, server.cert, server.key, clients_ca)).server
        self.server.handlers[ECHO] = lambda _channel, asked, _now_ms: response_to(asked, body=asked.body)
        self.client = RemotingClient(tls=client)
        resources.callback(self.client.close)
        self.address = format_address(*self.server.addresses[0])

    def turn(self) -> None:
        self.server.poll(2)
        self.client.poll(2)

    def ask(self, *bodies: bytes, address: str = "") -> list[RemotingCommand | RequestFailed]:
        told: list[RemotingCommand | RequestFailed] = []
        for body in bodies:
            self.client.invoke(address or self.address, request(ECHO, body=body), clock_ms() + PATIENT_MS, told.append)
        wait_for(lambda: len(told) == len(bodies), self.turn)
        return told

    def echoes(self, *bodies: bytes) -> bool:
        """Whether each is answered with itself."""
        answers = self.ask(*bodies)
        return [each.body for each in answers if isinstance(each, RemotingCommand)] == list(bodies)

    def why(self, address: str = "") -> str:
        """Why a request fails, without its address and code."""
        (failure,) = self.ask(b"", address=address)
        assert isinstance(failure, RequestFailed), failure
        return str(failure).partition(": request 10 (SEND_MESSAGE): closed: ")[2]


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
def test_requests_and_answers_of_any_size_go_through_tls(
    resources: ExitStack, certificates: Certificates, mode: TlsMode
) -> None:
    """The first ones wait for the handshake; all share one connection."""
    ends = Ends(resources, certificates.master, RemotingClientTls(certificates.ca_file), mode)
    assert ends.echoes(b"first", BODY, b"", *(b"%d" % number for number in range(200)))
    assert ends.echoes(b"later")
    assert ends.server.accepted_connections == 1
    (connection,) = ends.client._connections.values()
    assert connection.tls is not None
    assert connection.tls.version in ("TLSv1.2", "TLSv1.3")


def test_a_client_waits_for_the_handshake_without_turning(resources: ExitStack, certificates: Certificates) -> None:
    """A request that waits for the handshake asks no select for room to write."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = RemotingClient(tls=RemotingClientTls(certificates.ca_file))
        resources.callback(client.close)
        told: list[RemotingCommand | RequestFailed] = []
        address = format_address(*silent.getsockname())
        client.invoke(address, request(ECHO, body=BODY), clock_ms() + PATIENT_MS, told.append)
        with accepted(silent) as server:
            wait_for(lambda: client.channels and next(iter(client._connections.values())).tls, lambda: client.poll(2))
            client.poll(0)
            (connection,) = client._connections.values()
            assert connection.is_shaking_hands
            assert not connection.events & 2  # selectors.EVENT_WRITE
            assert server.recv(3)[:2] == b"\x16\x03"
    assert told == []


@pytest.mark.parametrize("name", ["", "localhost"])
def test_the_servers_name_is_its_host_or_the_one_that_is_told(
    resources: ExitStack, certificates: Certificates, name: str
) -> None:
    """HA-RM-28 "and that names the host that it asked for or the name that it is told"."""
    files = certificates.issue("named", "localhost") if name else certificates.master
    assert Ends(resources, files, RemotingClientTls(certificates.ca_file, name=name or None)).echoes(b"x")


def test_what_a_server_does_not_prove_ends_before_a_request_is_sent(resources: ExitStack, certificates: Certificates) -> None:
    """HA-RM-28 "MUST send nothing of a request before the server has proven a certificate": one line for each cause."""
    expected = "expected TLS with a certificate of {} that our CA has signed (--tls-ca)"
    wrong_ca = Ends(resources, certificates.master, RemotingClientTls(certificates.other_ca_file))
    assert wrong_ca.why() == (
        "found a certificate that does not hold: unable to get local issuer certificate, " + expected.format("127.0.0.1")
    )
    elsewhere = certificates.issue("elsewhere", "elsewhere.example")
    wrong_name = Ends(resources, elsewhere, RemotingClientTls(certificates.ca_file))
    assert wrong_name.why() == (
        "found a certificate that does not hold: IP address mismatch, certificate is not valid for '127.0.0.1', "
        + expected.format("127.0.0.1")
    )
    expired = certificates.issue("expired", "127.0.0.1", expired=True)
    assert "certificate has expired" in Ends(resources, expired, RemotingClientTls(certificates.ca_file)).why()
    for ends in (wrong_ca, wrong_name):
        assert ends.server.requests == {}


def test_a_server_without_tls_is_named_in_one_line(resources: ExitStack, certificates: Certificates) -> None:
    """One of ours closes; one that answers without TLS is found out by its first bytes."""
    ends = Ends(resources, certificates.master, RemotingClientTls(certificates.ca_file), TlsMode.DISABLED)
    assert ends.why() in {
        f"{how} in the TLS handshake: it may have no TLS, or refuse us" for how in ("end of stream", "its connection broke")
    }
    with socket.create_server(("127.0.0.1", 0)) as plain:
        failures: list[RemotingCommand | RequestFailed] = []
        address = format_address(*plain.getsockname())
        ends.client.invoke(address, request(ECHO), clock_ms() + PATIENT_MS, failures.append)
        wait_for(lambda: ends.client.channels[0].unsent, ends.turn)
        with accepted(plain) as sock:
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            wait_for(lambda: failures, ends.turn)
    assert str(failures[0]).endswith(
        "found bytes that are no TLS (wrong version number), expected TLS with a certificate of 127.0.0.1"
    )


def test_a_server_that_demands_tls_is_told_from_one_that_is_gone(resources: ExitStack, certificates: Certificates) -> None:
    ends = Ends(resources, certificates.master, None)
    assert ends.why() == "it ended before any answer: it may demand TLS, or refuse us"


def test_a_server_may_demand_the_clients_certificate(resources: ExitStack, certificates: Certificates) -> None:
    ca, own = certificates.ca_file, certificates.slave
    known = Ends(resources, certificates.master, RemotingClientTls(ca, own.cert, own.key), clients_ca=ca)
    assert known.echoes(b"x")
    unknown = Ends(resources, certificates.master, RemotingClientTls(ca), clients_ca=ca)
    assert "expected an end that takes our certificate (--tls-cert)" in unknown.why()
    assert unknown.server.requests == {}


def test_files_and_names_that_are_no_use_are_refused(certificates: Certificates) -> None:
    with pytest.raises(ConfigInvalid, match=r"'\.example' is no name that a certificate has"):
        RemotingClientTls(certificates.ca_file, name=".example")
    with pytest.raises(ConfigInvalid, match="expected the certificate of a CA in PEM"):
        RemotingClientTls(certificates.ca_file.with_name("none.pem"))
