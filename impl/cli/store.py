"""`inspect`: look at the messages of a store, beside a live writer, without touching it."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.cli.message_json import body_option, message_line
from rocketmq_ha.impl.cli.present import MESSAGE_COLUMNS, message_row
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.message import Message

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
            click.echo(tail_line(store, reader.tail_size, reader.max_offset), err=True)


def tail_line(store: Path, size: int, offset: int) -> str:
    """What is said of an incomplete record at the end of a log."""
    return f"{store}: tail of {size} bytes at offset {offset}, an incomplete record; no error"


def print_messages(records: Iterator[tuple[int, int, Message]]) -> None:
    """Print what there is, also when the walk ends in an error, which then goes on its way."""
    from rocketmq_ha.impl.cli.table import console_for, print_table

    rows: list[list[str]] = []
    try:
        for offset, size, message in records:
            rows.append(message_row(offset, size, message))
    finally:
        print_table(console_for(), MESSAGE_COLUMNS, rows)
