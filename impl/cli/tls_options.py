"""The options of TLS: those of a master that listens, and those of a command that connects to a master."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.app.endpoints import Listening, TlsIdentity, TlsListening
from rocketmq_ha.impl.cli.option_group import Command, option_group
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.tls_files import TlsFiles


def tls_file_options(ca_help: str) -> tuple[Callable[[Command], Command], ...]:
    """--tls-cert, --tls-key and --tls-ca. Args:  ca_help: whose certificates the CA has signed."""
    path = click.Path(path_type=Path)
    cert_help = "Our certificate, followed by those between it and the CA; PEM."
    return (
        click.option("--tls-cert", type=path, metavar="FILE", help=cert_help),
        click.option("--tls-key", type=path, metavar="FILE", help="Its private key; PEM."),
        click.option("--tls-ca", type=path, metavar="FILE", help=ca_help),
    )


def tls_name_option(default: str) -> Callable[[Command], Command]:
    """--tls-name. Args:  default: what the name is without it."""
    return click.option("--tls-name", metavar="NAME", help=f"The name in the master's certificate. [default: {default}]")


_FILE_OPTIONS: Final = tls_file_options("The CA that has signed the other end's certificate; PEM. No other is trusted.")
CLIENT_OPTIONS: Final[tuple[Callable[[Command], Command], ...]] = (*_FILE_OPTIONS, tls_name_option("the host of --master"))


def tls_identity(tls_cert: Path | None, tls_key: Path | None, tls_ca: Path | None, tls_name: str | None) -> TlsIdentity | None:
    """Make a value from CLIENT_OPTIONS; None if no option asks for TLS. Raises: ConfigInvalid."""
    files = tls_files(tls_cert, tls_key, tls_ca, needed_by="--tls-name" if tls_name is not None else None)
    return None if files is None else TlsIdentity(files, tls_name)


def _listening(
    listen: str, tls_listen: str | None, tls_cert: Path | None, tls_key: Path | None, tls_ca: Path | None
) -> Listening:
    if listen == "none" and tls_listen is None:
        raise ConfigInvalid("--listen none: expected --tls-listen with it, or nobody can connect")
    files = tls_files(tls_cert, tls_key, tls_ca, needed_by="--tls-listen" if tls_listen else None)
    address = None if listen == "none" else parse_address(listen, "--listen")
    if files is None:
        return Listening(address)
    if tls_listen is None:
        raise ConfigInvalid("--tls-cert is given and --tls-listen is not: expected the address where TLS is spoken")
    return Listening(address, TlsListening(parse_address(tls_listen, "--tls-listen"), files))


listen_options = option_group(
    "listening",
    _listening,
    # HA-M-14 "a port of its own, ha_listen_port, 10912 by default".
    click.option(
        "--listen",
        default="127.0.0.1:10912",
        show_default=True,
        metavar="HOST:PORT",
        help="The address where slaves connect; none: only --tls-listen.",
    ),
    click.option(
        "--tls-listen",
        metavar="HOST:PORT",
        help="The address where slaves connect with TLS, and with a certificate that --tls-ca has signed; beside --listen, or"
        " instead of it with --listen none.",
    ),
    *_FILE_OPTIONS,
)


def tls_files(cert: Path | None, key: Path | None, ca: Path | None, needed_by: str | None) -> TlsFiles | None:
    """Return all three files, or None if none is given.

    Args:  needed_by: another option that is given and needs the files.
    Raises: ConfigInvalid if some files are missing.
    """
    if cert is not None and key is not None and ca is not None:
        return TlsFiles(cert, key, ca)
    given = {"--tls-cert": cert, "--tls-key": key, "--tls-ca": ca}
    missing = [option for option, file in given.items() if file is None]
    found = needed_by or next((option for option, file in given.items() if file is not None), None)
    if found is None:
        return None
    lacking = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not"
    raise ConfigInvalid(f"{found} is given and {lacking}: expected --tls-cert, --tls-key and --tls-ca together")
