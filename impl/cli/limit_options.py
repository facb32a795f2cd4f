"""The options that limit what the peers of an open port may cost."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import click

from rocketmq_ha.impl.cli.finite_range import FiniteRange
from rocketmq_ha.impl.cli.option_group import Command, option_group
from rocketmq_ha.impl.net.limits import HARDENED_LIMITS, Limits, limits_of, parse_networks
from rocketmq_ha.spec.profile import PROFILES, Profile

_LEAST_RATE: Final = 1024  # bytes a second; a heartbeat and the answer to a report still arrive before the slave gives up
_SECONDS: Final = FiniteRange(min=0, min_open=True)


def _default(value: object) -> str:
    return f"[default: {value}; classic: none]"


def connection_options(limits: Limits, of: str = "", *, unless_classic: bool) -> tuple[Callable[[Command], Command], ...]:
    """--allow, --max-connections and --max-connections-per-address.

    Args:  limits: the defaults. of: whose connections they are. unless_classic: whether the classic profile has no limits.
    """

    def default(value: object, classic: str = "none") -> str:
        return f"[default: {value}; classic: {classic}]" if unless_classic else f"[default: {value}]"

    return (
        click.option(
            "--allow",
            multiple=True,
            metavar="NETWORK",
            help="A network whose addresses may connect, such as 10.1.0.0/16; may be repeated. " + default("loopback", "all"),
        ),
        *most_options(limits, of, default),
    )


def most_options(
    limits: Limits, of: str = "", default: Callable[[object], str] = "[default: {}]".format
) -> tuple[Callable[[Command], Command], ...]:
    """How many connections there may be. Args: as `connection_options`."""
    return (
        click.option(
            limits.option,
            type=click.IntRange(min=1),
            metavar="N",
            help=f"The most connections{of} at a time. {default(limits.max_connections)}",
        ),
        click.option(
            f"{limits.option}-per-address",
            type=click.IntRange(min=1),
            metavar="N",
            help=f"The most connections{of} of one address at a time. {default(limits.max_connections_per_address)}",
        ),
    )


def changed(limits: Limits, allow: tuple[str, ...], **said: int | None) -> Limits:
    """Return the limits, changed by the options that are given: those that are not None. Raises: ConfigInvalid."""
    values: dict[str, Any] = {"allow": parse_networks(allow) or None, **said}
    return replace(limits, **{name: value for name, value in values.items() if value is not None})


def limits_from(
    profile: Profile,
    allow: tuple[str, ...],
    max_connections: int | None,
    max_connections_per_address: int | None,
    report_deadline: float | None,
    write_stall_deadline: float | None,
    max_transfer_rate: int | None,
) -> Limits:
    """Return the profile's limits, changed by the options that are given. Raises: ConfigInvalid."""
    return changed(
        limits_of(profile),
        allow,
        max_connections=max_connections,
        max_connections_per_address=max_connections_per_address,
        report_deadline_ms=_milliseconds(report_deadline),
        write_stall_deadline_ms=_milliseconds(write_stall_deadline),
        max_transfer_rate=max_transfer_rate,
    )


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))


def _limits(
    allow: tuple[str, ...],
    max_connections: int | None,
    max_connections_per_address: int | None,
    report_deadline: float | None,
    write_stall_deadline: float | None,
    max_transfer_rate: int | None,
) -> Limits:
    profile = PROFILES[click.get_current_context().params["profile"]]
    addresses = allow, max_connections, max_connections_per_address
    return limits_from(profile, *addresses, report_deadline, write_stall_deadline, max_transfer_rate)


limit_options = option_group(
    "limits",
    _limits,
    *connection_options(HARDENED_LIMITS, " of slaves", unless_classic=True),
    click.option(
        "--report-deadline",
        type=_SECONDS,
        metavar="SECONDS",
        help="Close a connection that has not reported within this time. RocketMQ's slaves may take 6 s. "
        f"{_default((HARDENED_LIMITS.report_deadline_ms or 0) // 1000)}",
    ),
    click.option(
        "--write-stall-deadline",
        type=_SECONDS,
        metavar="SECONDS",
        help="Close a connection that takes no byte of what it is sent for this time. "
        f"{_default((HARDENED_LIMITS.write_stall_deadline_ms or 0) // 1000)}",
    ),
    click.option(
        "--max-transfer-rate",
        type=click.IntRange(min=_LEAST_RATE),
        metavar="BYTES",
        help="The most bytes a second to each slave, headers and bodies together. [default: no limit]",
    ),
)
