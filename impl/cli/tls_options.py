"""The options of TLS, and what they make: for a master that listens, and for whoever connects to one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.server import listen
from rocketmq_ha.impl.net.tls import ClientTls, ServerTls
from rocketmq_ha.impl.net.tls_files import TlsFiles, warn_of_readers
from rocketmq_ha.spec.profile import PROFILES

_Command = TypeVar("_Command", bound=Callable[..., Any])

_CERT: Final = click.option(
    "--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="Our certificate, and those between it and the CA; PEM."
)
_KEY: Final = click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="Its private key; PEM.")
_CA: Final = click.option(
    "--tls-ca",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The CA that has signed the other end's certificate; PEM. No other is trusted.",
)
_LISTEN: Final = click.option(
    "--tls-listen",
    metavar="HOST:PORT",
    help="Where slaves connect with TLS, with a certificate that --tls-ca has signed; beside --listen, or instead of it with"
    " --listen none.",
)
_NAME: Final = click.option(
    "--tls-name", metavar="NAME", help="The name in the master's certificate. [default: the host of --master]"
)


def tls_server_options(command: _Command) -> _Command:
    """Add the options to a command that listens. The files' are `cert`, `key` and `ca` of `tls_listener`."""
    for option in (_CA, _KEY, _CERT, _LISTEN):
        command = option(command)
    return command


def tls_client_options(command: _Command) -> _Command:
    """Add the options to a command that connects to a master."""
    for option in (_NAME, _CA, _KEY, _CERT):
        command = option(command)
    return command


@contextmanager
def tls_listener(
    address: str | None, cert: Path | None, key: Path | None, ca: Path | None, profile: str = "hardened"
) -> Iterator[ServerTls | None]:
    """Listens for TLS; None where no option asks for it. Raises: ConfigInvalid."""
    files = _files(cert, key, ca, needed="--tls-listen" if address else None)
    if files is None:
        yield None
        return
    if address is None:
        raise ConfigInvalid("--tls-cert is given and --tls-listen is not: expected the address where TLS is spoken")
    _refuse_classic(profile)
    host_port = parse_address(address)
    with listen(*host_port) as listener:
        tls = ServerTls(listener, files)
        warn_of_readers(files.key)
        yield tls


def client_tls(
    host: str, cert: Path | None, key: Path | None, ca: Path | None, name: str | None, profile: str = "hardened"
) -> ClientTls | None:
    """What to prove to a master; None where no option asks for TLS. host: the master's. Raises: ConfigInvalid."""
    files = _files(cert, key, ca, needed="--tls-name" if name is not None else None)
    if files is None:
        return None
    _refuse_classic(profile)
    tls = ClientTls(files, name if name is not None else host)
    warn_of_readers(files.key)
    return tls


def _files(cert: Path | None, key: Path | None, ca: Path | None, needed: str | None) -> TlsFiles | None:
    """All three files, or none. Raises: ConfigInvalid."""
    if cert is not None and key is not None and ca is not None:
        return TlsFiles(cert, key, ca)
    given = {"--tls-cert": cert, "--tls-key": key, "--tls-ca": ca}
    missing = [option for option, file in given.items() if file is None]
    found = needed or next((option for option, file in given.items() if file is not None), None)
    if found is None:
        return None
    lacking = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not"
    raise ConfigInvalid(f"{found} is given and {lacking}: expected --tls-cert, --tls-key and --tls-ca together")


def _refuse_classic(profile: str) -> None:
    """Classic has no deadline for a handshake, counts whoever connects as a slave, and is what RocketMQ does: it has no TLS."""
    if not PROFILES[profile].checks_reports:
        raise ConfigInvalid(f"--profile {profile} has no TLS, as RocketMQ has none: expected --profile hardened with --tls-*")
