"""`rocketmq-ha query`: find messages by key. The store is only read, and may have a live writer."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.app.message_json import message_line
from rocketmq_ha.impl.app.query import KeyQuery, find_messages
from rocketmq_ha.impl.cli.message_table import print_messages
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.progress import byte_progress
from rocketmq_ha.impl.cli.store_options import STORE, body_option
from rocketmq_ha.impl.store.query import FOREVER

_LIMIT: Final = 64


class Time(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # newer click has it generic
    """A time in ms since 1970 or in ISO 8601; in UTC unless it names a zone."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if text.removeprefix("-").isdecimal():
            return int(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text!r}: expected ms since 1970, or a time like 2024-01-31T12:00:00", param, ctx)
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)


_query_options = option_group(
    "wanted",
    KeyQuery,
    click.option("--topic", required=True, help="The topic as it is stored."),
    click.option("--key", required=True, help="A unique key (UNIQ_KEY), or one of the words of the property KEYS."),
    click.option("--from", "begin", type=Time(), metavar="TIME", default=0, help="Only messages stored then or later."),
    click.option("--to", "end", type=Time(), metavar="TIME", default=FOREVER, help="Only messages stored then or earlier."),
    click.option(
        "--limit", type=click.IntRange(min=1), default=_LIMIT, show_default=True, metavar="N", help="Only the newest N."
    ),
)


@click.command(name="query")
@click.argument("store", metavar="DIR", type=STORE)
@_query_options
@click.option("--scan", is_flag=True, help="Read the whole log, and do not use the index.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line (docs/messages.md).")
@body_option
@click.pass_context
def query_command(ctx: click.Context, store: Path, wanted: KeyQuery, scan: bool, as_json: bool, body: str) -> None:
    """Find the messages of a topic that have a key.

    DIR is the root of a RocketMQ store. The index says where the messages are. The log after the index's last message is read
    through; without an index, the whole log is. Times are ms since 1970, or like 2024-01-31T12:00:00 (UTC). Messages come in
    the order in which they were stored.

    Exit status 1 if no message is found.
    """
    found = find_messages(store, wanted, byte_progress, scan=scan)
    if as_json:
        for offset, size, message in found:
            click.echo(message_line(offset, size, message, body), nl=False)
    elif found:
        print_messages(iter(found))
    if not found:
        click.echo(f"{store}: no message of topic {wanted.topic!r} with key {wanted.key!r} in that time", err=True)
        ctx.exit(1)
