"""A socket with TLS around it, which looks to a link as a plain one does (`link.Socket`): it never waits.

OpenSSL works on memory here (`MemoryBIO`), and this moves the encrypted bytes. Around the socket itself, as `SSLSocket` has it,
it would go on reading for as long as there is something that is no data (key updates), so that one peer could keep the loop for
itself; a write that would block would have to be tried again with the same bytes, which a master that gathers anew does not
have; and how much of a record the socket has taken could not be told.

Memory of ours, a connection: what the socket has not taken yet, PIECE bytes of data and _OWED of answers at most. OpenSSL's:
some 60 KiB, most of it for records and the two memory buffers.
"""

import contextlib
import select
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, Final, cast

from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.net.tls_files import subject_of
from rocketmq_ha.impl.net.tls_record import ALERT

PIECE: Final = 16 * 1024  # bytes of data, one record: encrypted before the socket is asked whether it takes them
HANDSHAKE_SIZE: Final = 32 * 1024  # bytes; certificates are some 1 to 2 KiB each, and OpenSSL takes 100 KiB of them
_OWED: Final = 16 * 1024  # bytes of answers (alerts, key updates) behind a piece that the peer has not taken
_FETCHES: Final = 2  # reads of the socket in one call: it may be full of what is no data
# Encrypted bytes that a peer may send beyond so many for each one of data. A report alone in a record has 4, one in single
# bytes 30. What is no data costs: a key update, of 26 bytes, some 50 us.
_BARE: Final = 64 * 1024
_RATIO: Final = 32
_ALERT: Final = "its alert: "
_NO_TLS: Final = "bytes that are no TLS"


class TlsBroken(PeerViolation):
    """TLS itself has failed: not proven, or not TLS."""


class TlsSocket:
    """One end. Raises what a socket raises; and PeerViolation, of recv_into, where the peer breaks TLS or proves nothing.

    is_same_port: servers have TLS on the port that they also have without it.

    Spec: HA-M-71 and HA-S-72: records are read and written as a stream, HA-M-71 "a master MUST NOT depend on how they
    are divided into TLS records" and HA-S-72 "A slave MUST NOT depend on how".
    """

    is_same_port: ClassVar[bool] = False

    def __init__(
        self, sock: socket.socket, peer: str, context: ssl.SSLContext, scratch: memoryview, server_name: str | None
    ) -> None:
        """sock: connected, non-blocking. scratch: where encrypted bytes are read into; may be shared in one thread.
        server_name: whom the other end must prove to be; None: it is the client.
        """
        self._sock, self._peer, self._scratch, self._server_name = sock, peer, scratch, server_name
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_name is None, server_hostname=server_name
        )
        self._read_into = cast(Callable[[int, memoryview], int], self._tls.read)  # typeshed knows no reading into a buffer
        self._unsent = memoryview(b"")  # encrypted; all but the socket's part of one piece, or of answers
        self._fetched = self._given = 0  # bytes, encrypted and of data
        self._ended = False  # nothing more will come
        self._violation: PeerViolation | None = None  # met behind data that were given out first
        self.is_established = False
        self.on_established: Callable[[TlsSocket], object] | None = None  # called before anything behind it is given out
        self.has_buffered = False  # there is something to read that the socket does not show
        self.subject = ""  # of the peer's certificate; "" before the handshake is done
        self.version = ""

    def fileno(self) -> int:
        return self._sock.fileno()

    # --- The handshake -----------------------------------------------------------------------------------------------

    def handshake(self) -> bool:
        """Go on with it as far as the bytes reach. Returns: whether it is done. Raises: PeerViolation, OSError.

        Spec: HA-M-74 "MUST NOT be known before the handshake is done"; HA-M-72 "MUST NOT hold up the loop"; HA-M-73 "MUST close
        one that takes more than 32 KiB".
        """
        fetches = 0
        while not self.is_established:
            if self._fetched > HANDSHAKE_SIZE:
                raise self._broken(f"a handshake of more than {HANDSHAKE_SIZE} bytes", "one that ends")
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush()
                if self._ended or fetches == _FETCHES or not self._fetch():
                    return False
                fetches += 1
                continue
            except ssl.SSLError as error:
                raise self._violated(error) from error
            self.flush()
            self.is_established = True
            self.subject, self.version = self._subject(), self._tls.version() or ""
            if self.on_established is not None:
                self.on_established(self)
        return True

    def _subject(self) -> str:
        return subject_of(self._tls.getpeercert())

    @property
    def has_ended(self) -> bool:
        """Whether the peer will send nothing more."""
        return self._ended

    # --- Reading -----------------------------------------------------------------------------------------------------

    def recv_into(self, buffer: memoryview, /) -> int:
        """Fill the buffer as far as there is something; 0 at the end of the stream, with or without TLS's own end of it.

        TLS need not tell a stream that is cut off from one that ends: frames and reports have their sizes (HA-M-13, HA-S-13).
        """
        if self._violation is not None:
            raise self._violation
        taken = 0
        if self.handshake():
            taken = self._read(buffer)
            if self._outgoing.pending:
                self.flush()
            if self._outgoing.pending > _OWED:
                self._violation = self._broken("more than it takes the answers to", "a peer that reads")
        self.has_buffered = bool(
            self._ended or self._violation or (taken == len(buffer) and (self._tls.pending() or self._incoming.pending))
        )
        if not taken and not self._ended:
            if self._violation is not None:
                raise self._violation
            raise BlockingIOError
        return taken

    def _read(self, buffer: memoryview) -> int:
        """HA-M-73 "of which less than a 32nd part is data MUST be closed"."""
        taken = fetches = 0
        size = len(buffer)
        while taken < size:
            try:
                nbytes = self._read_into(size - taken, buffer[taken:])
                taken += nbytes
                self._given += nbytes
                if not nbytes:  # the peer has said that it ends
                    self._ended = True
                    break
            except ssl.SSLWantReadError:
                if self._fetched > _BARE + _RATIO * self._given:
                    self._violation = self._broken(f"{self._fetched} bytes of TLS with {self._given} of data in them", "data")
                    break
                if self._ended or fetches == _FETCHES or not self._fetch():
                    break
                fetches += 1
            except ssl.SSLError as error:
                self._violation = self._violated(error)
                break
        return taken

    def _fetch(self) -> int:
        """Read encrypted bytes. Returns: how many; 0 where there are none now, or where none will come."""
        try:
            nbytes = self._sock.recv_into(self._scratch)
        except BlockingIOError:
            return 0
        except OSError:
            nbytes = 0  # reset: what came before may still be given out
        self._fetched += nbytes
        if nbytes:
            self._incoming.write(self._scratch[:nbytes])
        else:
            self._ended = True
        return nbytes

    # --- Writing -----------------------------------------------------------------------------------------------------

    @property
    def wants_write(self) -> bool:
        """Whether there are encrypted bytes that the socket has not taken."""
        return bool(self._unsent or self._outgoing.pending)

    def flush(self) -> None:
        """Write what is encrypted, as far as the socket takes it. Raises: OSError, but not BlockingIOError."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return
                self._unsent = memoryview(self._outgoing.read())
            try:
                nbytes = self._sock.send(self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[nbytes:]

    def sendmsg(self, buffers: Iterable[memoryview], /) -> int:
        """Take pieces until the socket has not taken one whole; the rest of that one is kept. Raises: BlockingIOError, OSError.

        So what counts as taken may still be here, as it may be in the system's buffer.

        Spec: HA-M-76 "MUST NOT encrypt more for a connection until the socket has taken all that is encrypted already".
        """
        self.flush()
        if self.wants_write:
            raise BlockingIOError
        taken = 0
        for piece in _pieces(buffers):
            taken += self._tls.write(piece)  # memory takes all of it
            self.flush()
            if self.wants_write:
                break
        return taken

    def send(self, data: bytes, /) -> int:
        """As sendmsg; no more than a piece of it."""
        return self.sendmsg((memoryview(data)[:PIECE],))

    # --- Life --------------------------------------------------------------------------------------------------------

    def wait(self, timeout_ms: int) -> bool:
        """Wait until there is something to read, and write what is left meanwhile. Returns: whether there is something."""
        if self.has_buffered:
            return True
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | (select.POLLOUT if self.wants_write else 0))
        events = sum(found for _, found in poll.poll(timeout_ms))
        if events & select.POLLOUT:
            try:
                self.flush()
            except OSError:
                return True  # the read will tell
        return bool(events & ~select.POLLOUT)

    def close(self) -> None:
        """At once: neither end waits for a word of farewell."""
        self._sock.close()
        self._unsent = memoryview(b"")

    def _violated(self, error: ssl.SSLError) -> PeerViolation:
        with contextlib.suppress(OSError):
            self.flush()  # OpenSSL's alert, which says it to the other end
        found = _explain(error)
        if found.startswith(_NO_TLS):
            if self._server_name is None:
                # HA-M-87 "SHOULD send a TLS alert before it closes": a slave without TLS, or a doctor, can tell it by that.
                with contextlib.suppress(OSError):
                    self._sock.send(ALERT)
                return self._broken(
                    found, "TLS (a slave's --tls-cert, --tls-key and --tls-ca; the plain port is that of --listen)"
                )
            port = "" if self.is_same_port else ": is it the port of --tls-listen?"
            return self._broken(found, f"TLS with a certificate of {self._server_name}{port}")
        if found.startswith(_ALERT):
            return self._broken(found, "an end that takes our certificate (--tls-cert)")
        if self._server_name is None:
            return self._broken(found, "TLS with a certificate that our CA has signed (--tls-ca)")
        return self._broken(found, f"TLS with a certificate of {self._server_name} that our CA has signed (--tls-ca)")

    def _broken(self, found: str, expected: str) -> PeerViolation:
        return TlsBroken("HA-M-70" if self._server_name is None else "HA-S-70", self._peer, found, expected)


def _pieces(buffers: Iterable[memoryview]) -> Iterator[bytes | memoryview]:
    """Their bytes in pieces of PIECE, the last one of less. A header is encrypted together with what follows it."""
    parts: list[memoryview] = []
    size = 0
    for buffer in buffers:
        at = 0
        while at < len(buffer):
            part = buffer[at : at + PIECE - size]
            parts.append(part)
            size += len(part)
            at += len(part)
            if size == PIECE:
                yield b"".join(parts)
                parts, size = [], 0
    if size:
        yield b"".join(parts)


def _explain(error: ssl.SSLError) -> str:
    """What OpenSSL has found, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"a certificate that does not hold: {error.verify_message.rstrip('.')}"
    reason = error.reason or error.strerror or "without a reason"
    for prefix in ("TLSV1_ALERT_", "TLSV13_ALERT_", "SSLV3_ALERT_"):
        if reason.startswith(prefix):
            return f"{_ALERT}{_words(reason.removeprefix(prefix))}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "no certificate"
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"):
        return f"{_NO_TLS} ({_words(reason)})"
    return f"an error of TLS: {_words(reason)}"


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")
