"""The two ends of a link: the addresses on which a master listens, and the master that a client connects to; plain or TLS."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.tls_ends import ClientTls, ServerTls
from rocketmq_ha.impl.net.tls_files import TlsFiles, warn_of_readers
from rocketmq_ha.spec.profile import HARDENED, Profile


@dataclass(frozen=True, slots=True)
class TlsListening:
    """The address on which a master speaks TLS, and the files that it needs for that."""

    address: tuple[str, int]
    files: TlsFiles


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a master accepts slaves: on a plain address, on one for TLS, or on both."""

    address: tuple[str, int] | None
    tls: TlsListening | None = None


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """The certificate files of a client. name: expected in the master's certificate; None: the name of the master's host."""

    files: TlsFiles
    name: str | None = None


@dataclass(frozen=True, slots=True)
class MasterEndpoint:
    """The HA address of a master to connect to. identity: None for a plain connection."""

    host: str
    port: int
    identity: TlsIdentity | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    def client_tls(self, profile: Profile = HARDENED) -> ClientTls | None:
        """Load the TLS files. Raises: ConfigInvalid if they are not usable, or if the profile has no TLS."""
        return None if self.identity is None else _client_tls(self.identity, self.host, profile)


@dataclass(frozen=True, slots=True)
class HaTls:
    """The TLS of a slave broker to its master. port: that of the master's --tls-listen, at the host of its HA address.

    identity: the name is expected in the master's certificate; None: the host that is connected to.
    """

    port: int
    identity: TlsIdentity

    def client_tls(self, profile: Profile) -> ClientTls:
        """As MasterEndpoint.client_tls."""
        return _client_tls(self.identity, None, profile)


def _client_tls(identity: TlsIdentity, host: str | None, profile: Profile) -> ClientTls:
    _refuse_classic(profile)
    tls = ClientTls(identity.files, identity.name if identity.name is not None else host)
    warn_of_readers(identity.files.key)
    return tls


@contextmanager
def tls_listener(listening: TlsListening | None, profile: Profile) -> Iterator[ServerTls | None]:
    """Listen for TLS until the context ends. Yields None if the master listens without TLS. Raises: ConfigInvalid."""
    if listening is None:
        yield None
        return
    _refuse_classic(profile)
    with listen(*listening.address, "--tls-listen") as listener:
        tls = ServerTls(listener, listening.files)
        warn_of_readers(listening.files.key)
        yield tls


def _refuse_classic(profile: Profile) -> None:
    """Classic has no TLS, as RocketMQ has none. It has no handshake deadline either, and counts every connection as a slave."""
    if not profile.offers_tls:
        raise ConfigInvalid(
            f"--profile {profile.name} has no TLS, as RocketMQ has none: expected --profile hardened with --tls-*"
        )
