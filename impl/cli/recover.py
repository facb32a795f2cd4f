"""`recover`: what opening a store would do to it, and, if told so, open it."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import click

from rocketmq_ha.impl.cli.outcome import json_option, line_of, outcome
from rocketmq_ha.impl.cli.progress import byte_progress
from rocketmq_ha.impl.cli.store import STORE
from rocketmq_ha.impl.store.log.opening import lock_existing
from rocketmq_ha.impl.store.log.reader import read_layout_patiently
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.store.recovery_plan import RecoveryPlan, plan_recovery

_NAMES: Final = (
    *("store", "stop", "held_by", "files", "min_offset", "looked_from", "messages", "max_offset", "cut", "entries_cut"),
    *("keys_cut", "dispatch_from", "files_removed"),
)


@click.command()
@click.argument("store", metavar="DIR", type=STORE)
@click.option("--dry-run/--write", default=True, show_default=True, help="Only look, or recover the store.")
@json_option
def recover(store: Path, dry_run: bool, as_json: bool) -> None:
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
        files_removed   all files of a log that holds no whole record; then its offsets begin at 0 again, and min_offset and
                        max_offset say so
        verdict         NOTHING_TO_DO, WOULD_CHANGE, RECOVERED, or HELD where a process has the store open
    """
    with outcome(_NAMES, as_json=as_json) as fields:
        fields["store"] = store
        lock = None if dry_run else lock_existing(store)  # HA-ST-49 "MUST look for the lock before anything else"
        with lock or nullcontext():
            layout = read_layout_patiently(store)
            size = len(layout.bases) * (layout.file_size or 0)
            first = layout.bases[0] if layout.bases else 0
            with byte_progress(f"looking at {store}", size) as progress:
                plan = plan_recovery(store, lambda offset: progress(offset - first), is_ours=not dry_run)
            if not dry_run:
                MessageStore.open(store, lock=lock).close()
        fields.update(_fields(plan), verdict=_verdict(plan, dry_run=dry_run))
    if not as_json:
        del fields["error"]
        click.echo(line_of(fields))


def _verdict(plan: RecoveryPlan, *, dry_run: bool) -> str:
    if not dry_run:
        return "RECOVERED"
    if plan.holder is not None:
        return "HELD"
    return "WOULD_CHANGE" if plan.changes_something else "NOTHING_TO_DO"


def _fields(plan: RecoveryPlan) -> dict[str, Any]:
    values = (
        *(plan.store_dir, plan.stop, plan.holder, plan.files, plan.min_offset, plan.start, plan.messages),
        *(plan.end, plan.cut_size, plan.entries_cut, plan.keys_cut, plan.dispatch_from, plan.files_removed),
    )
    return dict(zip(_NAMES, values, strict=True))
