"""`--role` and `--flush`, which decide what the puts of a master wait for."""

from collections.abc import Callable

import click

from rocketmq_ha.impl.app.roles import RoleSettings
from rocketmq_ha.impl.cli.option_group import Command, option_group
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.spec.role import BrokerRole


def _roles(role: str, flush: str) -> RoleSettings:
    broker_role = BrokerRole(role)
    if broker_role is BrokerRole.SLAVE:
        raise ConfigInvalid(
            "role SLAVE: expected ASYNC_MASTER or SYNC_MASTER for `rocketmq-ha master`; see `rocketmq-ha slave`"
        )
    return RoleSettings(broker_role, flush)


def _any_role(role: str, flush: str) -> RoleSettings:
    return RoleSettings(BrokerRole(role), flush)


def _options(default: BrokerRole, make: Callable[[str, str], RoleSettings], slave: str) -> Callable[[Command], Command]:
    return option_group(
        "roles",
        make,
        click.option(
            "--role",
            type=click.Choice([role.value for role in BrokerRole]),
            default=default.value,
            show_default=True,
            help=f"With SYNC_MASTER puts wait for a slave, with ASYNC_MASTER they do not. {slave}",
        ),
        click.option(
            "--flush",
            type=click.Choice(["sync", "async"]),
            default="async",
            show_default=True,
            help="With sync, puts also wait for the master's disk. With async, the log is flushed at intervals.",
        ),
    )


role_options = _options(BrokerRole.SYNC_MASTER, _roles, "For a SLAVE run `rocketmq-ha slave`.")
# RocketMQ's default
broker_role_options = _options(
    BrokerRole.ASYNC_MASTER, _any_role, "A SLAVE follows its master, and gives its messages to consumers."
)
