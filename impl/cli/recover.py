"""`rocketmq-ha recover`: show what recovery would do to a store; with --write, recover it."""

from pathlib import Path
from typing import Any, Final

import click

from rocketmq_ha.impl.app.recover import recover_store, verdict_of
from rocketmq_ha.impl.cli.outcome import json_option, line_of, outcome
from rocketmq_ha.impl.cli.progress import byte_progress
from rocketmq_ha.impl.cli.store_options import STORE
from rocketmq_ha.impl.store.recovery_plan import RecoveryPlan

_NAMES: Final = (
    *("store", "stop", "held_by", "files", "min_offset", "looked_from", "messages", "max_offset", "cut", "entries_cut"),
    *("keys_cut", "dispatch_from", "files_removed"),
)


@click.command()
@click.argument("store", metavar="DIR", type=STORE)
@click.option("--dry-run/--write", default=True, show_default=True, help="Only report, or recover the store.")
@json_option
def recover(store: Path, dry_run: bool, as_json: bool) -> None:
    """Tell what recovery would do to a store: where its log ends, and what is beyond.

    DIR is the root of a RocketMQ store. Without --write nothing is changed. With --write the log is cut after its last whole
    record, consume queues and index are made to match it, missing entries are dispatched, and everything is flushed. It is
    refused for a store that a process has open. A dry run of such a store reports how far it has come, and that nothing would
    be cut.

    Damage with whole messages behind it is refused, after a clean stop wherever it is. After any other stop this holds for
    messages that were stored more than 3 s before the checkpoint's time. Later ones may be missing after a power cut, so there
    damage counts as the end of the log, and whole messages behind it are cut off. `verify` names damage anywhere: run it first.

    \b
    The last line on stdout has key=value:
        stop            running while a process has the store open; unclean if there is a file `abort`: the last stop was not
                        clean, or `master` or `slave` have appended to the log without queues and index; else clean
        held_by         the id of that process, or none
        looked_from     the offset from which records were looked at
        max_offset      where the log ends
        cut             bytes after that
        entries_cut     entries of consume queues that point beyond that; keys_cut: keys of the index that do
        dispatch_from   the offset from which messages would be dispatched again; for an open store, how far they are dispatched
        files_removed   the number of files, if the log holds no whole record: all are removed, its offsets begin at 0 again,
                        and min_offset and max_offset say so
        verdict         NOTHING_TO_DO, WOULD_CHANGE, RECOVERED, or HELD if a process has the store open
    """
    with outcome(_NAMES, as_json=as_json) as fields:
        fields["store"] = store
        plan = recover_store(store, dry_run=dry_run, show_progress=byte_progress)
        fields.update(_fields(plan), verdict=verdict_of(plan, dry_run=dry_run))
    if not as_json:
        del fields["error"]
        click.echo(line_of(fields))


def _fields(plan: RecoveryPlan) -> dict[str, Any]:
    values = (
        *(plan.store_dir, plan.stop, plan.holder, plan.files, plan.min_offset, plan.start, plan.messages),
        *(plan.end, plan.cut_size, plan.entries_cut, plan.keys_cut, plan.dispatch_from, plan.files_removed),
    )
    return dict(zip(_NAMES, values, strict=True))
