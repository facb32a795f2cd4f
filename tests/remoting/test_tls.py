"""TLS on a remoting port: one port for both, in each of RocketMQ's three modes. HA-RM-19."""

import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.certificates import Certificates
from kit.remoting import Client, Stand
from kit.waiting import wait_for
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.remoting import connections as connections_module
from rocketmq_ha.impl.remoting.channel import Channel, Totals
from rocketmq_ha.impl.remoting.command import RemotingCommand, decode, encode_whole, request, response_to
from rocketmq_ha.impl.remoting.connection import Connection
from rocketmq_ha.impl.remoting.frames import FrameReader
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.tls import RemotingTls, TlsMode

ECHO, LATER = 10, 11


class TlsClient:
    """A client with TLS over a bare one's socket; the test turns the server."""

    def __init__(self, client: Client, context: ssl.SSLContext, stand: Stand) -> None:
        self._client, self._stand = client, stand
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._reader = FrameReader()
        self.received: list[RemotingCommand] = []

    def move(self) -> None:
        """Move encrypted bytes both ways, and turn the server."""
        if self._outgoing.pending:
            self._client.send_bytes(self._outgoing.read())
        self._stand.turn(1)
        try:
            data = self._client.sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._incoming.write(data)
        else:
            self._client.is_closed = True
            self._incoming.write_eof()

    def handshake(self) -> None:
        def done() -> bool:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            return True

        wait_for(done, self.move)

    def send(self, *commands: RemotingCommand) -> None:
        self._tls.write(b"".join(map(encode_whole, commands)))

    def await_answers(self, count: int) -> list[RemotingCommand]:
        def come() -> bool:
            try:
                while data := self._tls.read(1 << 16):
                    self.received += map(decode, self._reader.feed(data))
            except ssl.SSLWantReadError:
                pass
            return len(self.received) >= count

        wait_for(come, self.move)
        found, self.received = self.received[:count], self.received[count:]
        return found

    def ask(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        return self.await_answers(1)[0]

    def await_end(self) -> None:
        def over() -> bool:
            try:
                return self._client.is_closed or not self._tls.read(1)
            except ssl.SSLWantReadError:
                return self._client.is_closed
            except ssl.SSLError:
                return True

        wait_for(over, self.move)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class TlsStand(Stand):
    """A server with TLS, and clients of it."""

    def __init__(
        self,
        resources: ExitStack,
        certificates: Certificates,
        mode: TlsMode,
        *,
        ca: Path | None = None,
        limits: RemotingLimits | None = None,
    ) -> None:
        self.certificates = certificates
        files = certificates.master
        super().__init__(resources, limits, tls=RemotingTls(mode, files.cert, files.key, ca))
        self.server.handlers[ECHO] = lambda _channel, asked, _now_ms: response_to(asked, body=asked.body)

    def connect_tls(self, *, known: bool = False) -> TlsClient:
        """known: with a certificate of its own."""
        context = self.certificates.bare_context(self.certificates.slave if known else None)
        return TlsClient(self.connect(), context, self)


def test_permissive_serves_both_on_one_port(resources: ExitStack, certificates: Certificates) -> None:
    """HA-RM-19 "whose first byte is 0x16 MUST be served with TLS, and every other without it, on the same port"."""
    stand = TlsStand(resources, certificates, TlsMode.PERMISSIVE)
    with_tls, plain = stand.connect_tls(), stand.connect()
    with_tls.handshake()
    body = bytes(range(256)) * 12_000
    assert with_tls.ask(request(ECHO, body=body)).body == body
    assert plain.ask(request(ECHO, body=b"plain")).body == b"plain"
    with_tls.send(*(request(ECHO, body=b"%d" % number) for number in range(500)))
    assert [answer.body for answer in with_tls.await_answers(500)] == [b"%d" % number for number in range(500)]


def test_enforcing_closes_those_without_tls(
    resources: ExitStack, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-RM-19 "Where it is *enforcing* the others are closed"."""
    stand = TlsStand(resources, certificates, TlsMode.ENFORCING)
    plain = stand.connect()
    plain.send(request(ECHO))
    plain.await_close()
    assert plain.received == []
    assert "closed: no TLS handshake, and TLS is enforced here" in caplog.text
    with_tls = stand.connect_tls()
    with_tls.handshake()
    assert with_tls.ask(request(ECHO)).code == 0


@pytest.mark.parametrize("has_files", [True, False])
def test_disabled_closes_those_with_tls(
    resources: ExitStack, certificates: Certificates, caplog: pytest.LogCaptureFixture, has_files: bool
) -> None:
    """HA-RM-19 "where it is *disabled* those with 0x16"."""
    stand = TlsStand(resources, certificates, TlsMode.DISABLED) if has_files else Stand(resources)
    client = stand.connect()
    client.send_bytes(b"\x16\x03\x01\x02\x00")
    client.await_close()
    assert "closed: a TLS handshake, and TLS is disabled here" in caplog.text


def test_a_client_may_be_asked_for_a_certificate(resources: ExitStack, certificates: Certificates) -> None:
    """As `tls.server.need.client.auth` asks."""
    stand = TlsStand(resources, certificates, TlsMode.PERMISSIVE, ca=certificates.ca_file)
    known, unknown = stand.connect_tls(known=True), stand.connect_tls()
    known.handshake()
    assert known.ask(request(ECHO)).code == 0
    unknown.handshake()  # TLS 1.3 ends it only now
    unknown.send(request(ECHO))
    unknown.await_end()
    assert unknown.received == []
    assert stand.server.requests == {ECHO: 1}


def test_a_handshake_that_never_ends_is_closed_after_10_s(resources: ExitStack, certificates: Certificates) -> None:
    stand = TlsStand(resources, certificates, TlsMode.PERMISSIVE)
    client = stand.connect()
    client.send_bytes(b"\x16\x03\x01\x02\x00\x01")
    stand.turns(5)
    stand.pass_time(9_000)
    assert len(stand.server.channels) == 1
    stand.pass_time(2_000)
    assert stand.server.channels == []
    client.await_close()


@pytest.mark.parametrize("since_ms", [0, 123_456])
def test_the_deadline_of_a_handshake_is_kept_to_the_millisecond(
    resources: ExitStack, certificates: Certificates, since_ms: int
) -> None:
    """It is at 10,000 ms after the accept, for TLS alone."""
    ours, theirs = socket.socketpair()
    resources.callback(theirs.close)
    resources.callback(ours.close)
    ours.setblocking(False)
    channel = Channel(("127.0.0.1", 1), "0", RemotingLimits(), Totals(), lambda _: None, since_ms)
    connection = Connection(channel, ours, "127.0.0.1")
    assert connection.missed_deadline(since_ms + 10_000, is_ready=False) is None
    files = certificates.master
    connection.tls = RemotingTls(TlsMode.PERMISSIVE, files.cert, files.key).wrap(ours, "0")
    assert connection.missed_deadline(since_ms + 9_999, is_ready=False) is None
    assert connection.missed_deadline(since_ms + 10_000, is_ready=False) == "no TLS within 10000 ms"


@pytest.mark.parametrize("data", [b"\x16" + bytes(600), b"\x16\x03\x01\x00\x02\xff\xff", b"\x16\x16\x16\x16" * 9_000])
def test_what_only_begins_as_tls_is_closed(resources: ExitStack, certificates: Certificates, data: bytes) -> None:
    stand = TlsStand(resources, certificates, TlsMode.PERMISSIVE)
    client = stand.connect()
    client.send_bytes(data)
    stand.turns()
    stand.pass_time(11_000)
    client.await_close()
    assert stand.server.failures == 0
    assert stand.connect().ask(request(ECHO)).code == 0


def test_a_client_with_tls_that_waits_for_answers_goes_on_when_it_may(resources: ExitStack, certificates: Certificates) -> None:
    """Requests that were decrypted before the pause are served after it, though nothing more comes from the socket."""
    stand = TlsStand(resources, certificates, TlsMode.PERMISSIVE, limits=RemotingLimits(max_pending=2))
    asked: list[RemotingCommand] = []
    stand.server.handlers[LATER] = lambda _channel, command, _now_ms: asked.append(command)
    client = stand.connect_tls()
    client.handshake()
    client.send(*(request(LATER, body=bytes(60_000)) for _ in range(6)))
    for _ in range(6):
        wait_for(lambda: asked, client.move)
        (channel,) = stand.server.channels
        channel.answer(response_to(asked.pop(0)))
    assert len(client.await_answers(6)) == 6


def test_what_tls_has_decrypted_already_is_read_though_the_socket_has_no_more(
    resources: ExitStack, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read takes a part of a record where many connections share a turn; here 100 bytes."""
    for size in ("READ_SIZE", "LEAST_READ"):
        monkeypatch.setattr(connections_module, size, 100)
    stand = TlsStand(resources, certificates, TlsMode.PERMISSIVE)
    client = stand.connect_tls()
    client.handshake()
    client.send(*(request(ECHO, body=bytes(30)) for _ in range(50)))
    assert len(client.await_answers(50)) == 50


def test_files_that_are_no_certificate_are_refused_in_one_line(tmp_path: Path, certificates: Certificates) -> None:
    ours, other = certificates.master, certificates.slave
    none = tmp_path / "none"
    for files, says in (
        ((ours.cert, none), f"{none}: No such file or directory: expected a private key in PEM (--tls-key)"),
        ((none, ours.key), f"{none}: No such file or directory: expected a certificate in PEM (--tls-cert)"),
        ((ours.cert, other.key), f"{other.key}: found another's key, expected that of {ours.cert}"),
        ((ours.cert, ours.key, none), f"{none}: No such file or directory: expected the certificate of a CA in PEM (--tls-ca)"),
        ((ours.cert, ours.key, ours.cert), f"{ours.cert}: found a certificate that may sign no others, expected that of a CA"),
    ):
        with pytest.raises(ConfigInvalid) as caught:
            RemotingTls(TlsMode.PERMISSIVE, *files)
        assert str(caught.value).startswith(says)
        assert "\n" not in str(caught.value)
