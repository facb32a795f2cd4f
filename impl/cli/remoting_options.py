"""The options of a remoting port: who may connect, how often, and TLS."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.app.remoting_tls import RemotingTlsFiles
from rocketmq_ha.impl.cli.limit_options import changed, connection_options, most_options
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.tls_options import tls_file_options
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.remoting.limits import CONNECTIONS, RemotingLimits
from rocketmq_ha.impl.remoting.tls import TlsMode

_MODES: Final = tuple(mode.value for mode in TlsMode)


def _limits(allow: tuple[str, ...], max_connections: int | None, max_connections_per_address: int | None) -> RemotingLimits:
    most = {"max_connections": max_connections, "max_connections_per_address": max_connections_per_address}
    return RemotingLimits(connections=changed(CONNECTIONS, allow, **most))


remoting_limit_options: Final = option_group("limits", _limits, *connection_options(CONNECTIONS, unless_classic=False))


# Those of a broker, which has --max-connections for its HA port, and one --allow for all its ports.
_OF_CLIENTS: Final = replace(CONNECTIONS, option="--max-client-connections")


def _client_limits(max_client_connections: int | None, max_client_connections_per_address: int | None) -> Limits:
    most = {"max_connections": max_client_connections, "max_connections_per_address": max_client_connections_per_address}
    return changed(_OF_CLIENTS, (), **most)


client_limit_options: Final = option_group("client_limits", _client_limits, *most_options(_OF_CLIENTS, " of clients"))


def remoting_tls_files(
    tls_mode: str | None, tls_cert: Path | None, tls_key: Path | None, tls_ca: Path | None
) -> RemotingTlsFiles | None:
    """Raises: ConfigInvalid for options that do not fit together."""
    mode = TlsMode.DISABLED if tls_mode is None and tls_cert is None else TlsMode(tls_mode or TlsMode.PERMISSIVE.value)
    given = {"--tls-cert": tls_cert, "--tls-key": tls_key, "--tls-ca": tls_ca}
    if mode is TlsMode.DISABLED:
        if found := next((option for option, file in given.items() if file is not None), None):
            raise ConfigInvalid(f"{found} is given: expected --tls-cert and --tls-key with it, and a --tls-mode that has TLS")
        return None
    if tls_cert is None or tls_key is None:
        raise ConfigInvalid(f"TLS is {mode.value}: expected --tls-cert and --tls-key")
    return RemotingTlsFiles(mode, tls_cert, tls_key, tls_ca)


tls_mode_option: Final = click.option(
    "--tls-mode",
    type=click.Choice(_MODES),
    help="TLS on the same port: for clients that begin with it (permissive), or for all (enforcing), as tls.server.mode."
    " [default: permissive with --tls-cert, else disabled]",
)
remoting_tls_options: Final = option_group(
    "tls",
    remoting_tls_files,
    tls_mode_option,
    *tls_file_options("The CA that has signed the certificates of the clients; PEM. Without it they need none."),
)
