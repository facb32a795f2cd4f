"""`rocketmq-ha resync`: move a slave's store aside, so that the slave starts again from its master. Nothing is deleted."""

from pathlib import Path

import click

from rocketmq_ha.impl.app.resync import move_aside
from rocketmq_ha.impl.cli.outcome import json_option, line_of, outcome
from rocketmq_ha.impl.cli.store_options import STORE


@click.command()
@click.argument("store", metavar="DIR", type=STORE)
@json_option
def resync(store: Path, as_json: bool) -> None:
    """Move a slave's store aside: DIR becomes DIR.aside-YYYYmmdd-HHMMSS, and the slave can start again.

    Use it for a slave that cannot go on: its log differs from the master's, is ahead of it, or ends in a part that the master
    has deleted. DIR is the root of the slave's store. It is renamed as a whole, on the same file system, and nothing in it is
    changed or deleted; remove it when you no longer need it. While a process has the store open, resync is refused. At its
    next start the slave makes a new store. This begins at the start of its master's last file, as in RocketMQ, or where --from
    says.

    \b
    The last line on stdout has key=value:
        moved   where the store was
        aside   where it is now
    """
    with outcome(("moved", "aside"), as_json=as_json) as fields:
        aside = move_aside(store)
        fields |= {"moved": store, "aside": aside, "verdict": "MOVED"}
    if not as_json:
        click.echo(line_of({"moved": store, "aside": aside}))
