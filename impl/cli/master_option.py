"""What `slave`, `tail` and `doctor` are told of the master that they connect to."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.net.feed import SETTLE_S

_Command = TypeVar("_Command", bound=Callable[..., Any])


def master_option(text: str) -> Callable[[_Command], _Command]:
    """--master, as `address`; `parse_master` takes it."""
    return click.option("--master", "address", required=True, metavar="HOST:PORT", help=text)


settle_option = click.option(
    "--settle",
    type=click.FloatRange(min=0),
    default=SETTLE_S,
    show_default=True,
    metavar="SECONDS",
    help="How long no put may still wait for a slave (syncFlushTimeout, slaveTimeout), before an older offset is reported.",
)


def parse_master(address: str) -> tuple[str, int]:
    """(host, port) of a master. Raises: ConfigInvalid."""
    host, port = parse_address(address)
    if port == 0:
        raise ConfigInvalid(f"address {address!r}: expected the port of a master, not 0")
    return host, port
