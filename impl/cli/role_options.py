"""`--role` and `--flush`, which decide what the puts of a master wait for."""

import click

from rocketmq_ha.impl.app.roles import RoleSettings
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.spec.role import BrokerRole


def _roles(role: str, flush: str) -> RoleSettings:
    broker_role = BrokerRole(role)
    if broker_role is BrokerRole.SLAVE:
        raise ConfigInvalid(
            "role SLAVE: expected ASYNC_MASTER or SYNC_MASTER for `rocketmq-ha master`; see `rocketmq-ha slave`"
        )
    return RoleSettings(broker_role, flush)


role_options = option_group(
    "roles",
    _roles,
    click.option(
        "--role",
        type=click.Choice([role.value for role in BrokerRole]),
        default=BrokerRole.SYNC_MASTER.value,
        show_default=True,
        help="With SYNC_MASTER puts wait for a slave, with ASYNC_MASTER they do not. For a SLAVE run `rocketmq-ha slave`.",
    ),
    click.option(
        "--flush",
        type=click.Choice(["sync", "async"]),
        default="async",
        show_default=True,
        help="With sync, puts also wait for the master's disk. With async, the log is flushed at intervals.",
    ),
)
