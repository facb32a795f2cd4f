"""`resync`: move a slave's store aside, so that it starts again from its master. Nothing is deleted."""

import os
import time
from pathlib import Path

import click

from rocketmq_ha.impl.cli.outcome import json_option, line_of, outcome
from rocketmq_ha.impl.cli.store import STORE
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.log.layout import sync_directory
from rocketmq_ha.impl.store.log.lock import StoreLock
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR, LOCK_FILE


@click.command()
@click.argument("store", metavar="DIR", type=STORE)
@json_option
def resync(store: Path, as_json: bool) -> None:
    """Move a slave's store aside: DIR becomes DIR.aside-YYYYmmdd-HHMMSS, and the slave can start again.

    For a slave that cannot go on from its master: its log is not the master's, is ahead of it, or ends at what the master has
    deleted. DIR is the root of its store. It is renamed as a whole, on the same file system, and nothing in it is changed or
    deleted; remove it when you need it no more. It is refused while a process has the store open. Started again, the slave
    makes a new store, which begins at the start of its master's last file, as in RocketMQ, or where its --from says.

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


def move_aside(store: Path) -> Path:
    """Rename the store, while this process holds its lock. HA-ST-9 "One process at a time MUST own a store for writing".

    Returns: its new path.  Raises: ConfigInvalid where it is no store, or its new name is taken; StoreLocked; OSError.
    """
    store = store.absolute()
    if not (store / COMMIT_LOG_DIR).is_dir():
        raise ConfigInvalid(f"{store}: has no {COMMIT_LOG_DIR}/ in it, expected the root of a store")
    aside = store.with_name(f"{store.name}.aside-{time.strftime('%Y%m%d-%H%M%S')}")
    existed = (store / LOCK_FILE).exists()
    with StoreLock(store, create=True):
        if os.path.lexists(aside):  # rename would take the place of an empty directory
            raise ConfigInvalid(f"{aside}: exists, expected a free name to move {store} to; try again in a second")
        if not existed:
            (store / LOCK_FILE).unlink()
        store.rename(aside)
        sync_directory(aside.parent)
    return aside
