"""Moving aside the store of a slave that cannot go on, so that the slave starts again from its master. Nothing is deleted."""

import os
import time
from pathlib import Path

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.log.layout import sync_directory
from rocketmq_ha.impl.store.log.lock import StoreLock
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR, LOCK_FILE


def move_aside(store: Path) -> Path:
    """Rename the store, while this process holds its lock. HA-ST-9 "One process at a time MUST own a store for writing".

    Returns: the new path.  Raises: ConfigInvalid if it is no store, or if the new name exists; StoreLocked; OSError.
    """
    store = store.absolute()
    if not (store / COMMIT_LOG_DIR).is_dir():
        raise ConfigInvalid(f"{store}: has no {COMMIT_LOG_DIR}/ in it, expected the root of a store")
    aside = store.with_name(f"{store.name}.aside-{time.strftime('%Y%m%d-%H%M%S')}")
    existed = (store / LOCK_FILE).exists()
    with StoreLock(store, create=True):
        if not existed:  # a refusal, too, leaves the store as it was
            (store / LOCK_FILE).unlink()
        if os.path.lexists(aside):  # rename would silently replace an empty directory
            raise ConfigInvalid(f"{aside}: exists, expected a free name to move {store} to; try again in a second")
        store.rename(aside)
        sync_directory(aside.parent)
    return aside
