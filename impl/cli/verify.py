"""`rocketmq-ha verify`: check a store, or two against each other. Stores are only read, and may have live writers."""

from pathlib import Path
from typing import Any, Final

import click

from rocketmq_ha.impl.app.verify import Verified, compare_logs, verdict_of, verify_store
from rocketmq_ha.impl.cli.outcome import json_option, line_of, outcome
from rocketmq_ha.impl.cli.progress import byte_progress
from rocketmq_ha.impl.cli.store_options import STORE, tail_line
from rocketmq_ha.impl.store.derived.verify import DerivedSummary
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import Comparison, Summary

Fields = dict[str, Any]
_DERIVED: Final = ("queues", "entries", "entries_missing", "index_files", "keys", "keys_missing", "keys_as")


@click.command()
@click.argument("store", metavar="DIR", type=STORE)
@click.argument("other", metavar="[DIR2]", type=STORE, required=False)
@json_option
@click.pass_context
def verify(ctx: click.Context, store: Path, other: Path | None, as_json: bool) -> None:
    """Check every record of a store, its queues and index; with a second store, that both have the same log.

    Each record must have the right size, magic, body CRC and physical offset, and nothing may follow the last record. An
    incomplete record at the end, which a slave can hold, is reported as a tail and is not an error. Each entry of a consume
    queue and each key of the index must match its message. Missing entries and keys are counted, and are not an error, because
    a broker makes them again from the log; keys are counted only after the first message that the index has. Two logs are
    compared byte by byte, over the offsets that both have.

    Releases put different keys into the index. keys_as names the releases that put these: "," stands between a release and its
    successor, "/" between releases that do the same with these messages; or it is any, or none.

    The last line on stdout is a summary of key=value. Exit status 1 if the logs differ, or have no offset in common; 2,
    and one line that names file and offset, if a record, an entry or a key is wrong.
    """
    with outcome(("stores", "comparison"), as_json=as_json) as fields:
        fields["stores"] = stores = []
        with LogReader(store) as reader:
            mine = verify_store(reader, byte_progress)
            stores.append(_store_fields(mine))
            if other is None:
                fields["verdict"] = "OK"
            else:
                with LogReader(other) as other_reader:
                    theirs = verify_store(other_reader, byte_progress)
                    stores.append(_store_fields(theirs))
                    found = compare_logs(reader, other_reader, byte_progress)
                fields["comparison"] = _comparison_fields(found, mine.summary, theirs.summary)
                fields["verdict"] = verdict_of(found, mine.summary, theirs.summary)
    if not as_json:
        _print(fields)
    if fields["verdict"] not in ("OK", "EQUAL"):
        ctx.exit(1)


def _store_fields(verified: Verified) -> Fields:
    found, derived = verified.summary, verified.derived
    return {
        "store": found.store_dir,
        "files": found.files,
        "messages": found.messages,
        "bytes": found.log_size,
        "blanks": found.blanks,
        "min_offset": found.min_offset,
        "max_offset": found.max_offset,
        "tail": found.tail_size,
        **(dict.fromkeys(_DERIVED) if derived is None else _derived_fields(derived)),
    }


def _derived_fields(found: DerivedSummary) -> Fields:
    values = (
        *(found.queues, found.queue_entries, found.queue_entries_missing),
        *(found.index_files, found.index_keys, found.index_keys_missing, found.index_keys_as),
    )
    return dict(zip(_DERIVED, values, strict=True))


def _comparison_fields(found: Comparison, mine: Summary, theirs: Summary) -> Fields:
    ahead, at = mine.max_offset - theirs.max_offset, found.difference
    return {
        "compared_from": found.start,
        "compared_to": found.stop,
        "compared_bytes": found.stop - found.start,
        "padding_differences": found.padding_differences,
        "ahead": None if ahead == 0 else (mine if ahead > 0 else theirs).store_dir,
        "ahead_by": abs(ahead),
        "difference": at and {"offset": at.offset, "files": [at.file_a, at.file_b], "bytes": [at.byte_a, at.byte_b]},
    }


def _print(fields: Fields) -> None:
    stores, comparison, verdict = fields["stores"], fields["comparison"], {"verdict": fields["verdict"]}
    for each in stores:
        if each["tail"]:
            click.echo(tail_line(each["store"], each["tail"], each["max_offset"]))
    lines = [{name: value for name, value in each.items() if value is not None} for each in stores]
    if comparison is None:
        click.echo(line_of(lines[0] | verdict))
        return
    for line in lines:
        click.echo(line_of(line))
    at = comparison.pop("difference")
    if at is not None:
        (file_a, file_b), (byte_a, byte_b) = at["files"], at["bytes"]
        click.echo(f"the logs differ at offset {at['offset']}: {file_a} has {byte_a:#04x}, {file_b} has {byte_b:#04x}")
    click.echo(line_of(comparison | {"ahead": comparison["ahead"] or "neither"} | verdict))
