"""`recover`: what opening a store would do to it, and, if told so, open it."""

import shlex
from contextlib import nullcontext
from pathlib import Path

import click

from rocketmq_ha.impl.cli.progress import byte_progress
from rocketmq_ha.impl.cli.store import STORE
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.store.opening import lock_existing
from rocketmq_ha.impl.store.reader import read_layout_patiently
from rocketmq_ha.impl.store.recovery_plan import RecoveryPlan, plan_recovery


@click.command()
@click.argument("store", metavar="DIR", type=STORE)
@click.option("--dry-run/--write", default=True, show_default=True, help="Only look, or recover the store.")
def recover(store: Path, dry_run: bool) -> None:
    """Tell what recovery would do to a store: where its log ends, and what is beyond.

    DIR is the root of a RocketMQ store. Nothing is changed unless --write is given: then the log is cut behind its last whole
    record, consume queues and index are made to match it, what they lack is dispatched, and all of it is flushed. A log with
    damage in its middle is refused in either case, and --write of a store that a process has open. Of such a store a dry run
    tells how far it has come; nothing of it would be cut.

    \b
    The last line on stdout has key=value:
        stop            running while a process has the store open; else clean, or unclean where there is a file `abort`: the
                        last stop was not clean, or the log was appended to without its queues and index, as `master` and
                        `slave` do
        held_by         the id of that process, or none
        looked_from     the offset from which records were looked at
        max_offset      where the log ends
        cut             bytes beyond that
        entries_cut     of consume queues, and keys_cut of the index, that name what is beyond
        dispatch_from   from where messages would be dispatched again; of a store that is open, how far they are dispatched
        verdict         NOTHING_TO_DO, WOULD_CHANGE, RECOVERED, or HELD where a process has the store open
    """
    lock = None if dry_run else lock_existing(store)  # first: whoever has the store open is told at once
    with lock or nullcontext():
        layout = read_layout_patiently(store)
        size = len(layout.bases) * (layout.file_size or 0)
        first = layout.bases[0] if layout.bases else 0
        with byte_progress(f"looking at {store}", size) as progress:
            plan = plan_recovery(store, lambda offset: progress(offset - first), is_ours=not dry_run)
        if not dry_run:
            MessageStore.open(store, lock=lock).close()
    click.echo(f"{_line(plan)} verdict={_verdict(plan, dry_run=dry_run)}")


def _verdict(plan: RecoveryPlan, *, dry_run: bool) -> str:
    if not dry_run:
        return "RECOVERED"
    if plan.holder is not None:
        return "HELD"
    return "WOULD_CHANGE" if plan.changes_something else "NOTHING_TO_DO"


def _line(plan: RecoveryPlan) -> str:
    values = (
        *(("store", shlex.quote(str(plan.store_dir))), ("stop", plan.stop)),
        ("held_by", "none" if plan.holder is None else plan.holder),
        *(("files", plan.files), ("min_offset", plan.min_offset), ("looked_from", plan.start), ("messages", plan.messages)),
        *(("max_offset", plan.end), ("cut", plan.cut_size), ("entries_cut", plan.entries_cut), ("keys_cut", plan.keys_cut)),
        ("dispatch_from", plan.dispatch_from),
    )
    return " ".join(f"{name}={value}" for name, value in values)
