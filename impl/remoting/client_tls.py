"""TLS of a remoting client: what it demands of name servers and brokers, and what it shows them."""

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.tls import TlsBroken, TlsSocket
from rocketmq_ha.impl.net.tls_files import remoting_client_context
from rocketmq_ha.impl.remoting.tls import SCRATCH


class RemotingClientTls:
    """As RocketMQ's `tls.enable`: every connection of the client has TLS.

    Spec: HA-RM-28 "MUST send nothing of a request before the server has proven a certificate".
    """

    def __init__(self, ca: Path, cert: Path | None = None, key: Path | None = None, name: str | None = None) -> None:
        """PEM files. ca: who signs the certificates of the servers. cert, key: the client's own; both or none.
        name: that the servers' certificates must have; None: the host that is connected to. Raises: ConfigInvalid.
        """
        self._files = ca, cert, key
        self._context = remoting_client_context(*self._files)
        self._scratch = memoryview(bytearray(SCRATCH))
        self._name: Final = name
        if name is not None:
            self._check(name)

    def renewed(self) -> Callable[[], None]:
        """Read the files anew. Returns: what takes them over, for the connections from then on. Raises: ConfigInvalid."""
        context = remoting_client_context(*self._files)

        def take_over() -> None:
            self._context = context

        return take_over

    def wrap(self, sock: socket.socket, peer: str, host: str) -> TlsSocket:
        """Begin, on a connected socket that never waits. Raises: OSError, PeerViolation; ConfigInvalid for a host that no
        certificate can have.
        """
        name = self._name if self._name is not None else host
        self._check(name)
        tls = _ClientTlsSocket(sock, peer, self._context, self._scratch, name)
        tls.handshake()
        return tls

    def _check(self, name: str) -> None:
        try:
            self._context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
        except (ValueError, TypeError):  # a name that the ssl module cannot encode
            raise ConfigInvalid(f"{name!r} is no name that a certificate has: expected a host's, or an address") from None


class _ClientTlsSocket(TlsSocket):
    """As the HA port's."""

    is_same_port = True

    def _broken(self, found: str, expected: str) -> TlsBroken:
        return TlsBroken("HA-RM-28", self._peer, found, expected)
