"""`inspect` and `verify`: look at a store, beside a live writer, without touching it."""

import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.cli.message_json import body_option, message_line
from rocketmq_ha.impl.cli.present import MESSAGE_COLUMNS, message_row
from rocketmq_ha.impl.cli.progress import byte_progress
from rocketmq_ha.impl.store.reader import LogReader
from rocketmq_ha.impl.store.verify import Summary, compare
from rocketmq_ha.impl.store.verify import verify as verify_store
from rocketmq_ha.impl.store.verify_derived import DerivedSummary, verify_derived
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.constants import CONSUME_QUEUE_DIR, INDEX_DIR

_TABLE_LIMIT: Final = 100
STORE: Final = click.Path(path_type=Path)


@click.command()
@click.argument("store", metavar="DIR", type=STORE)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line (docs/messages.md).")
@click.option("--from", "start", type=click.IntRange(min=0), default=0, metavar="OFFSET", help="Begin here or behind.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"At most N. [{_TABLE_LIMIT}; with --json, all]")
@body_option
def inspect(store: Path, as_json: bool, start: int, limit: int | None, body: str) -> None:
    """Show the messages of a store as a table, or as JSON lines.

    DIR is the root of a RocketMQ store, with commitlog/ in it. Bodies are shown by their beginning, decompressed where
    the client compressed them. A store that a broker is writing can be inspected too; the list stops at its end.
    """
    if limit is None and not as_json:
        limit = _TABLE_LIMIT
    with LogReader(store) as reader:
        records = reader.records(start)
        if as_json:
            for offset, size, message in islice(records, limit):
                click.echo(message_line(offset, size, message, body), nl=False)
        else:
            print_messages(islice(records, limit))
        if limit is not None and (following := next(records, None)) is not None:
            click.echo(f"more messages follow: --from {following[0]}, --limit N, or --json", err=True)
        elif reader.tail_size:
            click.echo(_tail_line(store, reader.tail_size, reader.max_offset), err=True)


@click.command()
@click.argument("store", metavar="DIR", type=STORE)
@click.argument("other", metavar="[DIR2]", type=STORE, required=False)
@click.pass_context
def verify(ctx: click.Context, store: Path, other: Path | None) -> None:
    """Check every record of a store, its queues and index; with a second store, that both have the same log.

    Each record must have a right size, magic, body CRC and physical offset, and nothing may follow the last. An
    incomplete record at the end, which a slave can hold, is reported as a tail and is no error. Each entry of a consume
    queue and each key of the index must be that of its message; those that are missing are counted, and are no error,
    for a broker makes them again from the log. Two logs are compared byte by byte over the offsets that both have.

    Releases put different keys into the index: keys_as names those that put these, "," between one and its successor and "/"
    between those that do the same with these messages, or any, or none.

    The last line on stdout is a summary of key=value. Exit status 1 if the logs differ, or have no offset in common; 2,
    and one line that names file and offset, if a record, an entry or a key is wrong.
    """
    with LogReader(store) as reader:
        mine, my_line = _verify_one(reader)
        if other is None:
            click.echo(f"{my_line} verdict=OK")
            return
        with LogReader(other) as other_reader:
            theirs, their_line = _verify_one(other_reader)
            start = max(mine.min_offset, theirs.min_offset)
            with byte_progress("comparing", min(mine.max_offset, theirs.max_offset) - start) as progress:
                found = compare(reader, other_reader, lambda offset: progress(offset - start))
    click.echo(my_line)
    click.echo(their_line)
    if found.difference is not None:
        at = found.difference
        click.echo(f"the logs differ at offset {at.offset}: {at.file_a} has {at.byte_a:#04x}, {at.file_b} has {at.byte_b:#04x}")
    ahead = mine.max_offset - theirs.max_offset
    leader = "neither" if ahead == 0 else shlex.quote(str(mine.store_dir if ahead > 0 else theirs.store_dir))
    if found.difference is not None:
        verdict = "DIFFERENT"
    elif found.start == found.stop and (mine.log_size or theirs.log_size):
        verdict = "NO_OVERLAP"  # nothing was compared, so nothing is shown
    else:
        verdict = "EQUAL"
    click.echo(
        f"compared_from={found.start} compared_to={found.stop} compared_bytes={found.stop - found.start} "
        f"padding_differences={found.padding_differences} ahead={leader} ahead_by={abs(ahead)} verdict={verdict}"
    )
    if verdict != "EQUAL":
        ctx.exit(1)


def _verify_one(reader: LogReader) -> tuple[Summary, str]:
    with byte_progress(f"verifying {reader.store_dir}", reader.data_size()) as progress:
        summary = verify_store(reader, lambda offset: progress(offset - reader.min_offset))
    if summary.tail_size:
        click.echo(_tail_line(summary.store_dir, summary.tail_size, summary.max_offset))
    if not any((reader.store_dir / name).exists() for name in (CONSUME_QUEUE_DIR, INDEX_DIR)):
        return summary, _summary_line(summary)  # a log alone, as replication makes it
    with byte_progress(f"verifying queues and index of {reader.store_dir}", summary.log_size) as progress:
        derived = verify_derived(reader, lambda offset: progress(offset - reader.min_offset))
    return summary, f"{_summary_line(summary)} {_derived_line(derived)}"


def _tail_line(store: Path, size: int, offset: int) -> str:
    return f"{store}: tail of {size} bytes at offset {offset}, an incomplete record; no error"


def _derived_line(found: DerivedSummary) -> str:
    values = (
        *(("queues", found.queues), ("entries", found.queue_entries), ("entries_missing", found.queue_entries_missing)),
        *(("index_files", found.index_files), ("keys", found.index_keys), ("keys_missing", found.index_keys_missing)),
        ("keys_as", found.index_keys_as),
    )
    return " ".join(f"{name}={value}" for name, value in values)


def _summary_line(found: Summary) -> str:
    values = (
        *(("store", shlex.quote(str(found.store_dir))), ("files", found.files), ("messages", found.messages)),
        *(("bytes", found.log_size), ("blanks", found.blanks), ("min_offset", found.min_offset)),
        *(("max_offset", found.max_offset), ("tail", found.tail_size)),
    )
    return " ".join(f"{name}={value}" for name, value in values)


def print_messages(records: Iterator[tuple[int, int, Message]]) -> None:
    """Print what there is, also when the walk ends in an error, which then goes on its way."""
    from rocketmq_ha.impl.cli.table import console_for, print_table

    rows: list[list[str]] = []
    try:
        for offset, size, message in records:
            rows.append(message_row(offset, size, message))
    finally:
        print_table(console_for(), MESSAGE_COLUMNS, rows)
