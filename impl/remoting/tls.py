"""TLS on a remoting port: which connections have it, by their first byte.

RocketMQ has one port for both (HA-RM-19), and its clients show no certificate unless they are told so.
"""

import logging
import socket
import ssl
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid, PeerViolation
from rocketmq_ha.impl.net.tls import TlsBroken, TlsSocket
from rocketmq_ha.impl.net.tls_files import remoting_server_context

FIRST_BYTE: Final = 0x16  # of a TLS handshake; as the first byte of a frame's length it is more than a frame may have
HANDSHAKE_MS: Final = 10_000
# Bytes of TLS that one read takes: so few that the end of a handshake, and a large request right behind it, are not taken
# for a handshake without an end (`HANDSHAKE_SIZE` of impl/net/tls.py).
SCRATCH: Final = 8 * 1024
_SESSIONS: Final = 64

log = logging.getLogger(__name__)


class TlsMode(Enum):
    """RocketMQ's `tls.server.mode`."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class RemotingTls:
    """The certificate of a server, and what it demands of its clients."""

    def __init__(self, mode: TlsMode, cert: Path, key: Path, ca: Path | None = None) -> None:
        """PEM files. ca: who signs the certificates of the clients; None: they need none. Raises: ConfigInvalid."""
        self.mode: Final = mode
        self._files = cert, key, ca
        self._context = remoting_server_context(*self._files)
        self._scratch = memoryview(bytearray(SCRATCH))

    def renewed(self) -> Callable[[], None]:
        """Read the files anew. Returns: what takes them over, for the handshakes from then on. Raises: ConfigInvalid."""
        context = remoting_server_context(*self._files)

        def take_over() -> None:
            self._context = context

        return take_over

    def wrap(self, sock: socket.socket, peer: str) -> TlsSocket:
        """A connection that begins as TLS does. A context that remembers many sessions is given up, as in `ServerTls.wrap`."""
        if self._context.session_stats()["number"] > _SESSIONS:
            try:
                self._context = remoting_server_context(*self._files)
            except ConfigInvalid as error:
                log.warning("the old certificate is used further on: %s", error)
        return _RemotingTlsSocket(sock, peer, self._context, self._scratch, None)


class _RemotingTlsSocket(TlsSocket):
    """As the HA port's; a client may be without a certificate."""

    def _subject(self) -> str:
        return super()._subject() if self._tls.getpeercert() else ""

    def _violated(self, error: ssl.SSLError) -> PeerViolation:
        violation = super()._violated(error)
        return self._broken(str(violation.found), "TLS that our certificate and its CA allow (tls.server.*)")

    def _broken(self, found: str, expected: str) -> PeerViolation:
        return TlsBroken("HA-RM-19", self._peer, found, expected)


def refusal(tls: RemotingTls | None, first: int) -> str | None:
    """Why a connection that begins with this byte is closed; None: it is served.

    Spec: HA-RM-19 "Where it is *enforcing* the others are closed, where it is *disabled* those with 0x16".
    """
    mode = TlsMode.DISABLED if tls is None else tls.mode
    if first == FIRST_BYTE and mode is TlsMode.DISABLED:
        return "a TLS handshake, and TLS is disabled here"
    if first != FIRST_BYTE and mode is TlsMode.ENFORCING:
        return "no TLS handshake, and TLS is enforced here"
    return None
