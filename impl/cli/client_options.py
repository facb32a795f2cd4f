"""The options that name the name servers, and the TLS of all connections to them and to brokers."""

from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.app.client_session import NameServers, parse_name_servers
from rocketmq_ha.impl.app.remoting_tls import RemotingClientTlsFiles
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.tls_options import tls_file_options
from rocketmq_ha.impl.errors import ConfigInvalid


class Addresses(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # newer click has it generic
    """HOST:PORT, several with ; between."""

    name = "name servers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        try:
            return parse_name_servers(str(value))
        except ConfigInvalid as error:
            self.fail(str(error), param, ctx)


def _name_servers(
    namesrv: tuple[str, ...], tls_ca: Path | None, tls_cert: Path | None, tls_key: Path | None, tls_name: str | None
) -> NameServers:
    if (tls_cert is None) != (tls_key is None):
        raise ConfigInvalid("--tls-cert and --tls-key: expected both, or none")
    if tls_ca is not None:
        return NameServers(namesrv, RemotingClientTlsFiles(tls_ca, tls_cert, tls_key, tls_name))
    if tls_cert is not None or tls_name is not None:
        raise ConfigInvalid(f"--tls-{'name' if tls_cert is None else 'cert'} is given and --tls-ca is not: expected it for TLS")
    return NameServers(namesrv)


name_servers_option: Final = option_group(
    "name_servers",
    _name_servers,
    click.option(
        "--namesrv",
        required=True,
        type=Addresses(),
        metavar="HOST:PORT[;...]",
        help="The name servers; if one does not answer, the next one is asked.",
    ),
    *tls_file_options(
        "Use TLS to name servers and brokers (tls.enable): this CA has signed their certificates; PEM. No other is trusted."
    ),
    click.option("--tls-name", metavar="NAME", help="The name in their certificates. [default: the host of each address]"),
)
