"""The files of TLS and its two ends: each rule of the files with its words, renewed certificates, and how a handshake ends."""

import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.certificates import Certificates
from kit.stage import lines
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net import tls_ends as module
from rocketmq_ha.impl.net import tls_files
from rocketmq_ha.impl.net.tls_ends import ClientTls, ServerTls
from rocketmq_ha.impl.net.tls_files import TlsFiles, client_context, server_context, subject_of

# --- Files ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def made(certs: Certificates, tmp_path: Path) -> dict[str, Path]:
    """Files by name, good ones and bad ones."""
    garbled = tmp_path / "garbled.pem"
    garbled.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n", "ascii")
    garbled_key = tmp_path / "garbled.key"
    garbled_key.write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n", "ascii")
    empty, both = tmp_path / "empty.pem", tmp_path / "both.pem"
    empty.touch()
    both.write_bytes(certs.master.cert.read_bytes() + certs.ca_file.read_bytes())
    return {
        "cert": certs.master.cert, "key": certs.master.key, "ca": certs.ca_file, "another's": certs.slave.key,
        "garbled": garbled, "garbled key": garbled_key, "empty": empty, "both": both, "gone": tmp_path / "gone",
        "directory": tmp_path,
    }  # fmt: skip


CERTIFICATE = "a certificate in PEM (--tls-cert)"
KEY = "a private key in PEM (--tls-key)"
CA = "the certificate of a CA in PEM (--tls-ca)"


@pytest.mark.parametrize(
    ("cert", "key", "ca", "told"),
    [
        ("gone", "key", "ca", "{gone}: No such file or directory: expected " + CERTIFICATE),
        ("directory", "key", "ca", "{directory}: Is a directory: expected " + CERTIFICATE),
        ("cert", "gone", "ca", "{gone}: No such file or directory: expected " + KEY),
        ("cert", "key", "gone", "{gone}: No such file or directory: expected " + CA),
        ("empty", "key", "ca", "{empty}: found none, expected " + CERTIFICATE),
        ("key", "key", "ca", "{key}: found none, expected " + CERTIFICATE),
        ("cert", "cert", "ca", "{cert}: found none, expected " + KEY),
        ("cert", "key", "key", "{key}: found none, expected " + CA),
        ("cert", "another's", "ca", "{another's}: found another's key, expected that of {cert}"),
        ("garbled", "key", "ca", "{garbled}, {key}: {reason}: expected a certificate and its key"),
        ("cert", "garbled key", "ca", "{cert}, {garbled key}: {reason}: expected a certificate and its key"),
        ("cert", "key", "garbled", "{garbled}: {reason}: expected " + CA),
        ("cert", "key", "cert", "{cert}: found a certificate that may sign no others, expected that of a CA (--tls-ca)"),
        ("cert", "key", "both", None),
        ("both", "key", "ca", None),
        ("cert", "key", "ca", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", [server_context, client_context])
def test_each_file_is_looked_at_and_named(
    made: dict[str, Path], cert: str, key: str, ca: str, told: str | None, make: Callable[[TlsFiles], ssl.SSLContext]
) -> None:
    """A CA's file may hold others' certificates too. reason: OpenSSL's, in small letters without underscores."""
    files = TlsFiles(made[cert], made[key], made[ca])
    if told is None:
        make(files)
        return
    with pytest.raises(ConfigInvalid) as found:
        make(files)
    text = str(found.value)
    before, reason, after = told.partition("{reason}")
    before, after = before.format(**made), after.format(**made)
    assert text == before + text[len(before) : len(text) - len(after)] + after
    said = text[len(before) : len(text) - len(after)]
    assert bool(said) is bool(reason)
    assert said == said.lower().replace("_", " ")


def test_a_chain_is_the_certificate_first_and_then_who_signed_it(certs: Certificates, tmp_path: Path) -> None:
    """The other way round, the key is that of another certificate."""
    between = certs.ca.create_child_ca()
    issued = between.issue_cert("127.0.0.1", common_name="below")
    key, right, wrong = tmp_path / "k.key", tmp_path / "right.pem", tmp_path / "wrong.pem"
    issued.private_key_pem.write_to_path(str(key))
    own, signer = issued.cert_chain_pems[0].bytes(), between.cert_pem.bytes()
    right.write_bytes(own + signer)
    wrong.write_bytes(signer + own)
    server_context(TlsFiles(right, key, certs.ca_file))
    with pytest.raises(ConfigInvalid, match=rf"^{key}: found another's key, expected that of {wrong}$"):
        server_context(TlsFiles(wrong, key, certs.ca_file))


def test_what_both_ends_demand_and_forbid(certs: Certificates) -> None:
    """HA-M-70 "TLS 1.2 or later"; HA-S-70: of a master's name too. No session is resumed, no ticket is sent."""
    master, slave = server_context(certs.master), client_context(certs.slave)
    for context in (master, slave):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.cert_store_stats() == {"x509": 1, "crl": 0, "x509_ca": 1}  # ours alone, not the system's
    assert (master.protocol, slave.protocol) == (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
    assert (master.num_tickets, bool(master.options & ssl.OP_NO_TICKET)) == (0, True)
    assert (slave.check_hostname, master.check_hostname) == (True, False)


@pytest.mark.parametrize(
    ("kind", "short"),
    [("commonName", "CN"), ("countryName", "C"), ("domainComponent", "DC"), ("localityName", "L"), ("organizationName", "O"),
     ("organizationalUnitName", "OU"), ("stateOrProvinceName", "ST"), ("streetAddress", "STREET"), ("userId", "UID"),
     ("serialNumber", "serialNumber")],
)  # fmt: skip
def test_each_part_of_a_subject_has_its_short_name(kind: str, short: str) -> None:
    """HA-M-74 "as RFC 4514 writes it"."""
    assert subject_of({"subject": (((kind, "x"),),)}) == f"{short}=x"


@pytest.mark.parametrize(
    ("value", "escaped"),
    [("#a#", "\\#a#"), (" a ", "\\ a\\ "), (" ", "\\ "), ("  ", "\\ \\ "), ("a b", "a b"), ("", ""), ("\u200b", "\\E2\\80\\8B"),
     ("a=b", "a=b"), ("\x7f", "\\7F"), ("a\\ ", "a\\\\\\ ")],
)  # fmt: skip
def test_a_value_is_escaped_where_it_must_be(value: str, escaped: str) -> None:
    assert tls_files._escaped(value) == escaped


# --- Renewed certificates -------------------------------------------------------------------------------------------------


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The contexts that the ends make, in order; each is a stand-in."""
    made: list[Any] = []

    def make(_: TlsFiles) -> Any:
        context = SimpleNamespace(number=len(made), session_stats=lambda: {"number": 0}, wrap_bio=lambda *_, **__: None)
        made.append(context)
        return context

    monkeypatch.setattr(module, "server_context", make)
    monkeypatch.setattr(module, "client_context", make)
    return made


FILES = TlsFiles(Path("c"), Path("k"), Path("a"))


@pytest.mark.parametrize("make", [lambda: ServerTls(socket.socket(), FILES), lambda: ClientTls(FILES, "m")])
def test_renewed_files_are_read_first_and_taken_over_later(make: Callable[[], Any], contexts: list[Any]) -> None:
    """Both may fail apart: while one end's files are read, the other's are as they were."""
    end = make()
    assert end._context is contexts[0]
    take_over = end.renewed()
    assert (len(contexts), end._context is contexts[0]) == (2, True)
    later = end.renewed()
    take_over()
    assert end._context is contexts[1]
    later()
    assert (len(contexts), end._context is contexts[2]) == (3, True)
    if isinstance(end, ServerTls):
        end.listener.close()


@pytest.mark.parametrize("end", ["master", "slave"])
def test_files_that_cannot_be_read_leave_what_was(certs: Certificates, end: str) -> None:
    """The error comes as they are read, not as they are taken over."""
    files = certs.issue(f"renewed-{end}", "localhost")
    with socket.socket() as sock:
        both = ServerTls(sock, files) if end == "master" else ClientTls(files, "localhost")
        before = both._context
        files.cert.write_text("", "ascii")
        with pytest.raises(ConfigInvalid, match=rf"^{files.cert}: found none, expected a certificate in PEM \(--tls-cert\)$"):
            both.renewed()
        assert both._context is before


@pytest.mark.parametrize(("sessions", "renews"), [(64, False), (65, True)])
@pytest.mark.parametrize("fails", [False, True])
def test_a_context_with_more_than_64_sessions_is_given_up(
    contexts: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    sessions: int,
    renews: bool,
    fails: bool,
) -> None:
    """HA-M-75; if the files cannot be read then, the old context serves on, and a line says so."""
    used: list[Any] = []
    monkeypatch.setattr(module, "TlsSocket", lambda *arguments: used.append(arguments))
    with socket.socket() as sock:
        tls = ServerTls(sock, FILES)
        contexts[0].session_stats = lambda: {"number": sessions}
        if fails:

            def fail(_: TlsFiles) -> None:
                raise ConfigInvalid("c: found none")

            monkeypatch.setattr(module, "server_context", fail)
        tls.wrap(sock, "peer")
        ((its, peer, context, scratch, name),) = used
        assert (its, peer, len(scratch), name) == (sock, "peer", 8192, None)
        assert context is contexts[1 if renews and not fails else 0]
    assert lines(caplog, logging.WARNING) == ["the old certificate is used further on: c: found none"] * (renews and fails)


# --- A slave's handshake --------------------------------------------------------------------------------------------------


class Handshake:
    """Stands for a TlsSocket: `done` says for each call whether the handshake is done."""

    def __init__(self, *done: bool, ends: bool = False) -> None:
        self.done, self.has_ended, self.waits = list(done), ends, list[int]()

    def handshake(self) -> bool:
        return self.done.pop(0) if self.done else False

    def wait(self, timeout_ms: int) -> bool:
        self.waits.append(timeout_ms)
        return False


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, contexts: list[Any]) -> Iterator[Callable[..., Any]]:
    """Open with a played handshake. lasts: how many looks at the deadline find time left."""
    assert contexts == []
    ours, theirs = socket.socketpair()

    def run(handshake: Handshake, *, lasts: int = 1000, stopped: Callable[[], bool] = lambda: False) -> Any:
        looks: list[float] = []

        class Limited:
            def __init__(self, seconds: float) -> None:
                assert seconds == 5.0

            def has_passed(self) -> bool:
                looks.append(0)
                return len(looks) > lasts

        monkeypatch.setattr(module, "Deadline", Limited)
        monkeypatch.setattr(module, "TlsSocket", lambda *_: handshake)
        found = ClientTls(FILES, "m").open(ours, "peer", "host", stopped)
        assert not ours.getblocking()
        return found

    with ours, theirs:
        yield run


def test_a_handshake_goes_on_until_it_is_done(opened: Callable[..., Any]) -> None:
    """What is done is not stopped any more, nor is it late."""
    handshake = Handshake(False, False, True)
    assert opened(handshake, lasts=2) is handshake
    assert handshake.waits == [100, 100]
    assert opened(done := Handshake(True), lasts=0, stopped=lambda: True) is done


def test_a_handshake_that_is_stopped_gives_nothing(opened: Callable[..., Any]) -> None:
    assert opened(handshake := Handshake(), stopped=lambda: True) is None
    assert handshake.waits == []


@pytest.mark.parametrize(
    ("ends", "lasts", "kind", "told", "waits"),
    [
        (True, 0, ConnectionError, "closed in the handshake, no TLS: is it the port of --tls-listen?", 0),
        (False, 3, TimeoutError, "no TLS within 5 s: is it the port of --tls-listen?", 3),
    ],
)
def test_a_handshake_that_comes_to_nothing_is_said(
    opened: Callable[..., Any], ends: bool, lasts: int, kind: type[Exception], told: str, waits: int
) -> None:
    """HA-S-71 "not finished after 5 s MUST be given up"."""
    handshake = Handshake(ends=ends)
    with pytest.raises(kind) as found:
        opened(handshake, lasts=lasts)
    assert (str(found.value), len(handshake.waits)) == (told, waits)


@pytest.mark.parametrize("name", ["..", "", ".x", "a" * 64])
def test_a_name_that_no_certificate_has_is_refused(certs: Certificates, name: str) -> None:
    with pytest.raises(ConfigInvalid) as found:
        ClientTls(certs.slave, name)
    assert str(found.value) == f"{name!r} is no name that a certificate has: expected a host's, or an address"


@pytest.mark.parametrize(("name", "expected"), [(None, "host"), ("m", "m")])
def test_the_name_of_a_master_is_that_of_its_host_unless_one_was_told(
    certs: Certificates, name: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-S-70 "by default that is the host of the master's address": of each connection, as a slave may get another master."""
    names: list[object] = []

    def make(*arguments: object) -> Handshake:
        names.append(arguments[-1])
        return Handshake(True)

    monkeypatch.setattr(module, "TlsSocket", make)
    with socket.socket() as sock:
        ClientTls(certs.slave, name).open(sock, "peer", "host")
    assert names == [expected]


@pytest.mark.parametrize("host", ["..", "", ".x", "a" * 64])
def test_a_host_that_no_certificate_names_is_no_connection(certs: Certificates, host: str) -> None:
    """It comes from a name server: the slave goes on, and asks again."""
    with socket.socket() as sock, pytest.raises(OSError, match="is no name that a certificate has") as found:
        ClientTls(certs.slave, None).open(sock, "peer", host)
    assert str(found.value) == f"{host!r} is no name that a certificate has"
