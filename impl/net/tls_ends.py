"""The two ends of TLS: what a master and a slave prove to each other, and what they demand."""

import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.pause import Deadline
from rocketmq_ha.impl.net.tls import TlsSocket
from rocketmq_ha.impl.net.tls_files import TlsFiles, client_context, server_context

log = logging.getLogger(__name__)

_TURN_MS: Final = 100
HANDSHAKE_TIMEOUT_S: Final = 5.0  # of a slave, as for a connect
_MASTERS_FETCH: Final = 8 * 1024
_SLAVES_FETCH: Final = 256 * 1024
_SESSIONS: Final = 64


class ServerTls:
    """A listening socket for TLS, and what a master proves and demands there.

    Spec: HA-M-70 "MUST NOT send a byte of its log there to a peer that has not proven a certificate": before the handshake is
    done no report is read.
    """

    def __init__(self, listener: socket.socket, files: TlsFiles) -> None:
        """Raises: ConfigInvalid."""
        self.listener: Final = listener
        self._files = files
        self._context = server_context(files)
        self._scratch = memoryview(bytearray(_MASTERS_FETCH))

    def renewed(self) -> Callable[[], None]:
        """Read the files anew. Returns: what takes them over, for the handshakes from then on. Raises: ConfigInvalid."""
        context = server_context(self._files)

        def take_over() -> None:
            self._context = context

        return take_over

    def wrap(self, sock: socket.socket, peer: str) -> TlsSocket:
        """A connection that has been accepted.

        OpenSSL remembers the sessions of TLS 1.2 (of peers that were let in), up to 20,480 of them, and nothing of Python's
        forbids it. So a context that has some is given up for a new one.
        """
        if self._context.session_stats()["number"] > _SESSIONS:
            try:
                self._context = server_context(self._files)
            except ConfigInvalid as error:
                log.warning("the old certificate is used further on: %s", error)
        return TlsSocket(sock, peer, self._context, self._scratch, None)


class ClientTls:
    """What a slave proves to its master, and demands of it."""

    def __init__(self, files: TlsFiles, name: str | None) -> None:
        """name: that the master's certificate must have; None: that of the host of each connection. Raises: ConfigInvalid."""
        self._files = files
        self._context = client_context(files)
        self._scratch = memoryview(bytearray(_SLAVES_FETCH))
        self._name = name
        if name is None:
            return
        try:
            self._context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
        except (ValueError, TypeError):  # a name that the ssl module cannot encode
            raise ConfigInvalid(f"{_no_name(name)}: expected a host's, or an address") from None

    def renewed(self) -> Callable[[], None]:
        """As ServerTls.renewed."""
        context = client_context(self._files)

        def take_over() -> None:
            self._context = context

        return take_over

    def open(self, sock: socket.socket, peer: str, host: str, stopped: Callable[[], bool] = lambda: False) -> TlsSocket | None:
        """Shake hands, on a socket that is connected to a host. Returns: None where told to stop.

        Raises: PeerViolation, OSError.

        Spec: HA-S-71 "not finished after 5 s MUST be given up"; HA-S-70 "MUST verify that its master's certificate is signed by
        the CA that it is told", and "before it sends a byte of its own".
        """
        sock.setblocking(False)
        name = host if self._name is None else self._name
        try:
            tls = TlsSocket(sock, peer, self._context, self._scratch, name)
        except (ValueError, TypeError):  # a host that somebody else has told
            raise OSError(_no_name(name)) from None
        deadline = Deadline(HANDSHAKE_TIMEOUT_S)
        while not tls.handshake():
            if tls.has_ended:
                raise ConnectionError("closed in the handshake, no TLS: is it the port of --tls-listen?")
            if deadline.has_passed():
                raise TimeoutError(f"no TLS within {HANDSHAKE_TIMEOUT_S:g} s: is it the port of --tls-listen?")
            if stopped():
                return None
            tls.wait(_TURN_MS)
        return tls


def _no_name(name: str) -> str:
    return f"{name!r} is no name that a certificate has"
