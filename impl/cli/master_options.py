"""The options that name the master to which `slave`, `tail` and `doctor` connect."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.app.endpoints import MasterEndpoint
from rocketmq_ha.impl.cli.finite_range import FiniteRange
from rocketmq_ha.impl.cli.option_group import Command, option_group
from rocketmq_ha.impl.cli.tls_options import CLIENT_OPTIONS, tls_identity
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.open_feed import SETTLE_S

settle_option: Final = click.option(
    "--settle",
    type=FiniteRange(min=0),
    default=SETTLE_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait before an older offset is reported, so that no put still waits for a slave then: the master's "
    "syncFlushTimeout or slaveTimeout.",
)


def master_options(text: str) -> Callable[[Command], Command]:
    """Return a decorator that adds --master, with this help, and the TLS options. The command receives them as `master`."""
    address = click.option("--master", "address", required=True, metavar="HOST:PORT", help=text)
    return option_group("master", _endpoint, address, *CLIENT_OPTIONS)


def _endpoint(
    address: str, tls_cert: Path | None, tls_key: Path | None, tls_ca: Path | None, tls_name: str | None
) -> MasterEndpoint:
    host, port = parse_address(address)
    if port == 0:
        raise ConfigInvalid(f"address {address!r}: expected the port of a master, not 0")
    return MasterEndpoint(host, port, tls_identity(tls_cert, tls_key, tls_ca, tls_name))
