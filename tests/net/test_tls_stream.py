"""One end of TLS over a played socket: where the handshake stops, what comes behind data, and which bytes wait."""

import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator

import pytest

from kit.certificates import Certificates
from kit.played import AGAIN, PlayedSocket, error
from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.net import tls as module
from rocketmq_ha.impl.net.tls import PIECE, TlsBroken, TlsSocket
from rocketmq_ha.impl.net.tls_files import client_context, server_context
from rocketmq_ha.impl.net.tls_record import ALERT

FORGED = b"\x17\x03\x03\x00\x20" + bytes(32)  # a record that nobody has encrypted
SUBJECT = "CN=slave-1,OU=HA,O=tests"


class Line:
    """The master's end over a played socket, and a slave of the standard library in memory."""

    def __init__(self, certs: Certificates, scratch: int = 8192) -> None:
        self.wire = PlayedSocket()
        self.end = TlsSocket(self.wire, "peer", server_context(certs.master), memoryview(bytearray(scratch)), None)  # type: ignore[arg-type]
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.peer = certs.bare_context(certs.slave).wrap_bio(self._in, self._out, server_hostname="localhost")

    def step(self) -> bytes:
        """Let the slave go on with the handshake. Returns: what it sends."""
        self._in.write(bytes(self.wire.sent))
        self.wire.sent.clear()
        with contextlib.suppress(ssl.SSLWantReadError):
            self.peer.do_handshake()
        return self._out.read()

    def shaken(self) -> "Line":
        """Both ends after the handshake."""
        self.wire.reads.append(self.step())
        assert not self.end.handshake()
        self.wire.reads.append(self.step())
        assert self.end.handshake()
        self.wire.sent.clear()
        self.wire.calls.clear()
        return self

    def sealed(self, *parts: bytes) -> bytes:
        """Data as the slave encrypts it, a record for each part."""
        for part in parts:
            self.peer.write(part)
        return self._out.read()

    def farewell(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.peer.unwrap()
        return self._out.read()

    def receive(self, size: int = 100) -> bytes | str:
        """What one call gives: data, b"" at the end, "again", or the text of a violation."""
        buffer = memoryview(bytearray(size))
        try:
            return bytes(buffer[: self.end.recv_into(buffer)])
        except BlockingIOError:
            return "again"
        except PeerViolation as violation:
            return str(violation)

    def opened(self) -> bytes:
        """What the slave can decrypt of what the wire has taken."""
        self._in.write(bytes(self.wire.sent))
        self.wire.sent.clear()
        found = bytearray()
        try:
            while data := self.peer.read(1 << 16):
                found += data
        except ssl.SSLWantReadError:
            pass
        return bytes(found)


@pytest.fixture
def line(certs: Certificates) -> Line:
    return Line(certs).shaken()


# --- The handshake --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 100, 5000])
def test_a_handshake_in_parts_is_one(certs: Certificates, cut: int) -> None:
    """HA-M-71; two reads of the socket in one call, whatever waits."""
    line = Line(certs, scratch=cut)
    known: list[tuple[str, str, bool]] = []
    line.end.on_established = lambda end: known.append((end.subject, end.version, end.is_established))
    calls = 0
    for _ in range(2):
        line.wire.reads.append(line.step())
        while line.wire.reads:
            assert (line.end.is_established, line.end.subject, line.end.version, known) == (False, "", "", [])
            line.wire.calls.clear()
            line.end.handshake()
            calls += 1
            assert line.wire.calls.count("recv") <= 2
    assert line.end.handshake()
    assert known == [(SUBJECT, "TLSv1.3", True)]
    assert calls == 2 or cut < 5000


def test_what_comes_with_the_end_of_the_handshake_is_given_out_behind_the_name(certs: Certificates) -> None:
    """HA-M-74 "MUST NOT be known before the handshake is done": the name is there before the first byte."""
    line = Line(certs)
    seen: list[str] = []
    line.end.on_established = lambda end: seen.append(end.subject)
    line.wire.reads.append(line.step())
    assert line.receive() == "again"
    line.wire.reads.append(line.step() + line.sealed(b"report"))
    assert (line.receive(), seen) == (b"report", [SUBJECT])
    assert line.receive() == "again"


def test_an_answer_that_the_socket_does_not_take_is_kept(certs: Certificates) -> None:
    """The handshake wants to write: what is left goes out later, once and in order."""
    line = Line(certs)
    line.wire.reads.append(line.step())
    line.wire.writes += [100, AGAIN]
    assert (line.end.handshake(), line.end.wants_write, len(line.wire.sent)) == (False, True, 100)
    line.wire.writes.append(AGAIN)
    line.end.flush()
    assert (line.end.wants_write, len(line.wire.sent)) == (True, 100)
    line.end.flush()
    assert not line.end.wants_write
    line.wire.reads.append(line.step())
    assert line.end.handshake()
    assert line.end.subject == SUBJECT


@pytest.mark.parametrize("last", [b"", error(errno.ECONNRESET), error(errno.ETIMEDOUT)])
def test_a_peer_that_goes_in_the_handshake_is_an_end(certs: Certificates, last: bytes | OSError) -> None:
    line = Line(certs)
    line.wire.reads += [line.step()[:50], last]
    assert not line.end.has_ended
    assert (line.receive(), line.end.has_ended, line.end.has_buffered) == (b"", True, True)
    assert (line.end.is_established, line.receive()) == (False, b"")


@pytest.mark.parametrize(("fetched", "is_closed"), [(module.HANDSHAKE_SIZE, False), (module.HANDSHAKE_SIZE + 1, True)])
def test_a_handshake_has_32_kib(certs: Certificates, fetched: int, is_closed: bool) -> None:
    """HA-M-73 "MUST close one that takes more than 32 KiB", and says so."""
    assert module.HANDSHAKE_SIZE == 32_768
    line = Line(certs)
    line.end._fetched = fetched
    told = "peer: found a handshake of more than 32768 bytes, expected one that ends (HA-M-70)"
    assert line.receive() == (told if is_closed else "again")


# --- Reading --------------------------------------------------------------------------------------------------------------


def test_a_record_larger_than_the_buffer_is_given_out_in_parts(line: Line) -> None:
    """has_buffered says so while there is more, which the socket does not show."""
    line.wire.reads.append(line.sealed(b"abcdefghij"))
    found = [(line.receive(4), line.end.has_buffered) for _ in range(3)]
    assert found == [(b"abcd", True), (b"efgh", True), (b"ij", False)]
    assert (line.receive(4), line.end.has_buffered) == ("again", False)


@pytest.mark.parametrize(("parts", "has_buffered"), [((b"abcd",), False), ((b"abcd", b"e"), True)])
def test_a_buffer_that_is_just_full_is_told_from_one_with_more_behind(
    line: Line, parts: tuple[bytes, ...], has_buffered: bool
) -> None:
    line.wire.reads.append(line.sealed(*parts))
    assert (line.receive(4), line.end.has_buffered) == (b"abcd", has_buffered)


def test_a_call_reads_the_socket_twice_at_most(line: Line) -> None:
    """One peer whose socket is always full does not keep the loop for itself."""
    line.end._scratch = line.end._scratch[:40]
    data = line.sealed(*[bytes([65 + number]) for number in range(20)])
    line.wire.reads.append(data)
    found = b""
    while line.wire.reads:
        line.wire.calls.clear()
        part = line.receive()
        found += part if isinstance(part, bytes) else b""
        assert line.wire.calls.count("recv") <= 2
    assert found == bytes(range(65, 85))


ENDS: dict[str, tuple[bytes | OSError | None, str | bytes]] = {
    "end of stream": (b"", b""),
    "reset": (error(errno.ECONNRESET), b""),
    "farewell": (None, b""),
    "forged": (FORGED, "peer: found an error of TLS: decryption failed or bad record mac, "
               "expected TLS with a certificate that our CA has signed (--tls-ca) (HA-M-70)"),
}  # fmt: skip


@pytest.mark.parametrize(("last", "told"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("apart", [True, False], ids=["apart", "at once"])
def test_data_come_out_before_the_end_behind_them(
    line: Line, last: bytes | OSError | None, told: str | bytes, apart: bool
) -> None:
    """The end is told in the next call, and in each one after it; has_buffered asks for that call."""
    data, end = line.sealed(b"report"), line.farewell() if last is None else last
    line.wire.reads += [data + end] if isinstance(end, bytes) and end and not apart else [data, end]
    assert (line.receive(), line.end.has_buffered) == (b"report", True)
    assert [line.receive(), line.receive()] == [told, told]
    assert line.end.has_ended is (last is not FORGED)


def test_the_end_alone_is_told_at_once(line: Line) -> None:
    line.wire.reads.append(line.farewell())
    assert (line.receive(), line.end.has_ended) == (b"", True)


@pytest.mark.parametrize(("over", "is_closed"), [(0, False), (1, True)])
@pytest.mark.parametrize("given", [0, 10])
def test_what_is_no_data_has_64_kib_and_31_parts_of_32(line: Line, over: int, is_closed: bool, given: int) -> None:
    """HA-M-73 "of which less than a 32nd part is data MUST be closed"."""
    line.end._given = given
    line.end._fetched = fetched = 65_536 + 32 * given + over
    told = f"peer: found {fetched} bytes of TLS with {given} of data in them, expected data (HA-M-70)"
    assert line.receive() == (told if is_closed else "again")


@pytest.mark.parametrize(("owed", "is_closed"), [(16_384, False), (16_385, True)])
def test_a_peer_that_takes_no_answers_is_closed_behind_its_data(line: Line, owed: int, is_closed: bool) -> None:
    """HA-M-75: memory for answers has a bound; the data before are given out."""
    line.end._unsent = memoryview(b"x")
    line.end._outgoing.write(bytes(owed))
    line.wire.writes += [AGAIN] * 3
    line.wire.reads.append(line.sealed(b"report"))
    assert (line.receive(), line.end.has_buffered) == (b"report", is_closed)
    told = "peer: found more than it takes the answers to, expected a peer that reads (HA-M-70)"
    assert line.receive() == (told if is_closed else "again")


# --- Writing --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ((), []),
        ((0, 0), []),
        ((1,), [1]),
        ((PIECE,), [PIECE]),
        ((PIECE + 1,), [PIECE, 1]),
        ((12, PIECE), [PIECE, 12]),
        ((12, 0, PIECE - 12, 5), [PIECE, 5]),
        ((3 * PIECE,), [PIECE] * 3),
        ((PIECE - 1, 1, 1), [PIECE, 1]),
    ],
)
def test_pieces_are_full_but_for_the_last(sizes: tuple[int, ...], pieces: list[int]) -> None:
    """A header is encrypted together with what follows it; no byte is lost or doubled."""
    data = bytes(number % 251 for number in range(sum(sizes)))
    buffers, at = [], 0
    for size in sizes:
        buffers.append(memoryview(data)[at : at + size])
        at += size
    found = list(module._pieces(buffers))
    assert [len(piece) for piece in found] == pieces
    assert b"".join(found) == data
    assert PIECE == 16_384


def test_a_piece_that_is_taken_in_part_counts_and_its_rest_goes_first(line: Line) -> None:
    """HA-M-76 "MUST NOT encrypt more for a connection until the socket has taken all that is encrypted already"."""
    data = bytes(range(256)) * 200
    line.wire.writes += [PIECE + 22, 1000, AGAIN]
    assert line.end.sendmsg((memoryview(data),)) == 2 * PIECE
    assert line.end.wants_write
    sent = len(line.wire.sent)
    line.wire.writes += [500, AGAIN]
    with pytest.raises(BlockingIOError):
        line.end.sendmsg((memoryview(data)[2 * PIECE :],))
    assert (len(line.wire.sent), line.end._outgoing.pending) == (sent + 500, 0)
    assert line.end.sendmsg((memoryview(data)[2 * PIECE :],)) == len(data) - 2 * PIECE
    assert (line.opened(), line.end.wants_write) == (data, False)


def test_a_report_is_one_piece_at_most(line: Line) -> None:
    assert [line.end.send(bytes(size)) for size in (8, PIECE, PIECE + 1)] == [8, PIECE, PIECE]
    assert len(line.opened()) == 8 + 2 * PIECE


def test_an_error_of_the_socket_is_raised_as_it_is(line: Line) -> None:
    line.wire.writes.append(error(errno.EPIPE))
    with pytest.raises(BrokenPipeError):
        line.end.send(b"report")


def test_a_close_forgets_what_was_not_taken(line: Line) -> None:
    """No farewell is sent; the socket is closed once."""
    line.wire.writes.append(AGAIN)
    assert line.end.send(b"report") == 6
    line.end.close()
    assert (line.wire.closed, line.wire.sent, line.end.wants_write) == (1, b"", False)


# --- Waiting --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def over(certs: Certificates) -> Iterator[tuple[TlsSocket, socket.socket]]:
    """An end over a real socket, and the other end of that."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for sock in (ours, theirs):
            sock.setblocking(False)
        yield TlsSocket(ours, "peer", server_context(certs.master), memoryview(bytearray(100)), None), theirs


def test_a_wait_ends_for_what_can_be_read_alone(over: tuple[TlsSocket, socket.socket]) -> None:
    """What is left to write goes out meanwhile, and is no reason to read."""
    end, theirs = over
    assert not end.wait(0)
    end._unsent = memoryview(b"rest")
    assert not end.wait(0)
    assert (theirs.recv(100), end.wants_write) == (b"rest", False)
    theirs.send(b"x")
    assert end.wait(0)
    end._unsent = memoryview(b"more")
    assert end.wait(0)
    assert theirs.recv(100) == b"more"
    end.has_buffered = True
    end._unsent = memoryview(b"kept")
    assert end.wait(60_000)
    assert end.wants_write


def test_a_wait_at_a_socket_whose_peer_has_gone_ends_at_once(over: tuple[TlsSocket, socket.socket]) -> None:
    """The write fails there, and the read tells why."""
    end, theirs = over
    theirs.close()
    end._unsent = memoryview(b"rest")
    assert end.wait(60_000)
    assert end.wants_write
    end._unsent = memoryview(b"")
    assert end.wait(60_000)


# --- Words ----------------------------------------------------------------------------------------------------------------

OUR_CA = "TLS with a certificate that our CA has signed (--tls-ca) (HA-M-70)"
THEIR_CA = "TLS with a certificate of m.example that our CA has signed (--tls-ca) (HA-S-70)"
PLAIN = "TLS (a slave's --tls-cert, --tls-key and --tls-ca; the plain port is that of --listen) (HA-M-70)"
WHICH_PORT = "TLS with a certificate of m.example: is it the port of --tls-listen? (HA-S-70)"
OUR_CERTIFICATE = "an end that takes our certificate (--tls-cert)"


@pytest.mark.parametrize(
    ("reason", "found", "of_master", "of_slave"),
    [
        ("WRONG_VERSION_NUMBER", "bytes that are no TLS (wrong version number)", PLAIN, WHICH_PORT),
        ("HTTP_REQUEST", "bytes that are no TLS (http request)", PLAIN, WHICH_PORT),
        ("HTTPS_PROXY_REQUEST", "bytes that are no TLS (https proxy request)", PLAIN, WHICH_PORT),
        ("TLSV1_ALERT_UNKNOWN_CA", "its alert: unknown ca", f"{OUR_CERTIFICATE} (HA-M-70)", f"{OUR_CERTIFICATE} (HA-S-70)"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "its alert: certificate required", f"{OUR_CERTIFICATE} (HA-M-70)",
         f"{OUR_CERTIFICATE} (HA-S-70)"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "its alert: bad certificate", f"{OUR_CERTIFICATE} (HA-M-70)",
         f"{OUR_CERTIFICATE} (HA-S-70)"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "no certificate", OUR_CA, THEIR_CA),
        ("UNSUPPORTED_PROTOCOL", "an error of TLS: unsupported protocol", OUR_CA, THEIR_CA),
        (None, "an error of TLS: without a reason", OUR_CA, THEIR_CA),
    ],
)  # fmt: skip
def test_each_error_of_tls_is_said_with_its_remedy(
    certs: Certificates, reason: str | None, found: str, of_master: str, of_slave: str
) -> None:
    """HA-M-87 "SHOULD send a TLS alert before it closes": only a master, only to a peer without TLS."""
    failed = ssl.SSLError()
    failed.reason = reason  # type: ignore[assignment]
    for name, context, told in ((None, server_context(certs.master), of_master),
                                ("m.example", client_context(certs.slave), of_slave)):  # fmt: skip
        wire = PlayedSocket()
        end = TlsSocket(wire, "peer", context, memoryview(bytearray(100)), name)  # type: ignore[arg-type]
        end._unsent = memoryview(b"theirs")  # an alert of OpenSSL's goes out first
        violation = end._violated(failed)
        assert (str(violation), type(violation)) == (f"peer: found {found}, expected {told}", TlsBroken)
        assert wire.sent == b"theirs" + ALERT * (told is PLAIN)


def test_a_certificate_that_does_not_hold_is_said_without_a_full_stop(certs: Certificates) -> None:
    failed = ssl.SSLCertVerificationError()
    failed.verify_message = "IP address mismatch, certificate is not valid for '127.0.0.1'."  # type: ignore[attr-defined,unused-ignore]
    end = TlsSocket(PlayedSocket(), "peer", server_context(certs.master), memoryview(bytearray(100)), None)  # type: ignore[arg-type]
    end._unsent = memoryview(b"alert")
    end._sock.writes += [error(errno.EPIPE)] * 2  # type: ignore[attr-defined]
    found = "a certificate that does not hold: IP address mismatch, certificate is not valid for '127.0.0.1'"
    assert str(end._violated(failed)) == f"peer: found {found}, expected {OUR_CA}"


def test_a_peer_that_takes_no_alert_is_told_of_all_the_same(certs: Certificates) -> None:
    """The socket is full, or closed already."""
    for number in (errno.EAGAIN, errno.EPIPE):
        line = Line(certs)
        line.wire.writes.append(error(number))
        line.wire.reads.append(bytes(8))
        assert line.receive() == f"peer: found bytes that are no TLS (wrong version number), expected {PLAIN}"
        assert line.wire.sent == b""
