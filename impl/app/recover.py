"""A plan of what recovery would do to a store, and the recovery itself."""

from contextlib import nullcontext
from pathlib import Path

from rocketmq_ha.impl.app.progress import ShowBytes
from rocketmq_ha.impl.store.log.opening import lock_existing
from rocketmq_ha.impl.store.log.reader import read_layout_patiently
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.store.recovery_plan import RecoveryPlan, plan_recovery


def recover_store(store: Path, *, dry_run: bool, show_progress: ShowBytes) -> RecoveryPlan:
    """Plan the recovery of a store and, unless it is a dry run, recover it.

    Raises: ConfigInvalid, StoreLocked, StoreCorrupt; OSError.
    """
    lock = None if dry_run else lock_existing(store)  # HA-ST-49 "MUST look for the lock before anything else"
    with lock or nullcontext():
        layout = read_layout_patiently(store)
        size = len(layout.bases) * (layout.file_size or 0)
        first = layout.bases[0] if layout.bases else 0
        with show_progress(f"looking at {store}", size) as progress:
            plan = plan_recovery(store, lambda offset: progress(offset - first), is_ours=not dry_run)
            progress(size)
        if not dry_run:
            MessageStore.open(store, lock=lock).close()
    return plan


def verdict_of(plan: RecoveryPlan, *, dry_run: bool) -> str:
    """RECOVERED, HELD, WOULD_CHANGE or NOTHING_TO_DO."""
    if not dry_run:
        return "RECOVERED"
    if plan.holder is not None:
        return "HELD"
    return "WOULD_CHANGE" if plan.changes_something else "NOTHING_TO_DO"
