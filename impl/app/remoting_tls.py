"""The TLS of a remoting port and of a remoting client, from the files that an operator names."""

from dataclasses import dataclass
from pathlib import Path

from rocketmq_ha.impl.net.tls_files import warn_of_readers
from rocketmq_ha.impl.remoting.client_tls import RemotingClientTls
from rocketmq_ha.impl.remoting.tls import RemotingTls, TlsMode


@dataclass(frozen=True, slots=True)
class RemotingTlsFiles:
    """PEM files. ca: who signs the certificates of the clients; None: they need none."""

    mode: TlsMode
    cert: Path
    key: Path
    ca: Path | None = None


def remoting_tls(files: RemotingTlsFiles | None) -> RemotingTls | None:
    """Load the files; None without any. Raises: ConfigInvalid if they are not usable."""
    if files is None:
        return None
    tls = RemotingTls(files.mode, files.cert, files.key, files.ca)
    warn_of_readers(files.key)
    return tls


@dataclass(frozen=True, slots=True)
class RemotingClientTlsFiles:
    """PEM files. ca: who signs the certificates of the servers. cert, key: the client's own; both or none.
    name: that their certificates must have; None: the host that is connected to.
    """

    ca: Path
    cert: Path | None = None
    key: Path | None = None
    name: str | None = None


def remoting_client_tls(files: RemotingClientTlsFiles | None) -> RemotingClientTls | None:
    """As `remoting_tls`."""
    if files is None:
        return None
    tls = RemotingClientTls(files.ca, files.cert, files.key, files.name)
    if files.key is not None:
        warn_of_readers(files.key)
    return tls
