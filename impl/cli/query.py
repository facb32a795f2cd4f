"""`query`: find messages by key, beside a live writer, without touching the store."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from rocketmq_ha.impl.cli.message_json import body_option, message_line
from rocketmq_ha.impl.cli.progress import byte_progress
from rocketmq_ha.impl.cli.store import STORE, print_messages
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.query import FOREVER, Found, query

_LIMIT: Final = 64
_REPORTED_EVERY: Final = 4096  # records


class Time(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # newer click has it generic
    """A time in ms since 1970, or as ISO 8601, in UTC where it names no zone."""

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


@click.command(name="query")
@click.argument("store", metavar="DIR", type=STORE)
@click.option("--topic", required=True, help="The topic as it is stored.")
@click.option("--key", required=True, help="A unique key (UNIQ_KEY), or one of the words of the property KEYS.")
@click.option("--from", "begin", type=Time(), metavar="TIME", default=0, help="Stored then or later.")
@click.option("--to", "end", type=Time(), metavar="TIME", default=FOREVER, help="Stored then or earlier.")
@click.option("--limit", type=click.IntRange(min=1), default=_LIMIT, show_default=True, metavar="N", help="The newest N.")
@click.option("--scan", is_flag=True, help="Look through the whole log, and ask no index.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line (docs/messages.md).")
@body_option
@click.pass_context
def query_command(
    ctx: click.Context,
    store: Path,
    topic: str,
    key: str,
    begin: int,
    end: int,
    limit: int,
    scan: bool,
    as_json: bool,
    body: str,
) -> None:
    """Find the messages of a topic that have a key.

    DIR is the root of a RocketMQ store. The index says where the messages are, and the log behind the index's last message is
    looked through; so a store without an index is looked through from its start. Times are ms since 1970, or like
    2024-01-31T12:00:00 (UTC). Messages come in the order in which they were stored.

    Exit status 1 if there is none.
    """
    with LogReader(store) as reader:
        index = None if scan else IndexService(store, writable=False)
        try:
            start = max(index.end_phy_offset if index is not None else 0, reader.min_offset)
            total = reader.min_offset + reader.data_size() - start
            with byte_progress(f"looking through {store}", max(0, total)) as progress:
                found = query(
                    index,
                    reader.message_at,
                    topic,
                    key,
                    max_num=limit,
                    begin=begin,
                    end=end,
                    unindexed=_watched(reader.records(start), lambda offset: progress(offset - start)),
                )
        finally:
            if index is not None:
                index.close()
    if as_json:
        for offset, size, message in found:
            click.echo(message_line(offset, size, message, body), nl=False)
    elif found:
        print_messages(iter(found))
    if not found:
        click.echo(f"{store}: no message of topic {topic!r} with key {key!r} in that time", err=True)
        ctx.exit(1)


def _watched(records: Iterator[Found], progress: Callable[[int], None]) -> Iterator[Found]:
    for number, found in enumerate(records):
        if number % _REPORTED_EVERY == 0:
            progress(found[0])
        yield found
