"""`rocketmq-ha inspect`: show the messages of a store. The store is only read, and may have a live writer."""

from itertools import islice
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.app.message_json import message_line
from rocketmq_ha.impl.cli.message_table import print_messages
from rocketmq_ha.impl.cli.store_options import STORE, body_option, tail_line
from rocketmq_ha.impl.store.log.reader import LogReader

_TABLE_LIMIT: Final = 100


@click.command()
@click.argument("store", metavar="DIR", type=STORE)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line (docs/messages.md).")
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    default=0,
    metavar="OFFSET",
    help="Begin with the first message at this offset or after it.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"At most N. [{_TABLE_LIMIT}; with --json, all]")
@body_option
def inspect(store: Path, as_json: bool, start: int, limit: int | None, body: str) -> None:
    """Show the messages of a store as a table, or as JSON lines.

    DIR is the root of a RocketMQ store, with commitlog/ in it. The table shows the beginning of each body, decompressed if the
    client compressed it. A broker may be writing the store; the list stops at the end of its log.
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
