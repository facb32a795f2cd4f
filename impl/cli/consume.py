"""`rocketmq-ha consume`: the messages of a topic as JSON lines, pulled from its brokers."""

import sys
from dataclasses import dataclass
from typing import Final

import click

from rocketmq_ha.impl.app.client_session import NameServers
from rocketmq_ha.impl.app.run_consume import ConsumeOptions, run_consume
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.broker.groups import check_group_name
from rocketmq_ha.impl.cli.client_options import name_servers_option
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.cli.query import Time
from rocketmq_ha.impl.cli.store_options import body_option
from rocketmq_ha.impl.client.decisions import ConsumeFromWhere
from rocketmq_ha.impl.client.pull_consumer import ConsumerSettings
from rocketmq_ha.impl.errors import RequestInvalid

_NO_GROUP: Final = "rocketmq-ha-consume"  # a pull has to name one


class Where(Time):
    """first, last or a time."""

    name = "where"

    def convert(  # type: ignore[override]
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[ConsumeFromWhere, int]:
        if value in ("first", "last"):
            return ConsumeFromWhere(str(value)), 0
        return ConsumeFromWhere.TIMESTAMP, super().convert(value, param, ctx)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The messages of the topic that are wanted. queues: none for all."""

    tags: str
    queues: tuple[int, ...]


wanted_options = option_group(
    "wanted",
    Wanted,
    click.option("--tags", default="*", show_default=True, metavar="TAGS", help="Only messages with these tags: 'a || b'."),
    click.option(
        "--queue-id", "queues", multiple=True, type=click.IntRange(min=0), metavar="N", help="Only this queue; may be repeated."
    ),
)


@click.command()
@name_servers_option
@click.option("--topic", required=True, metavar="TOPIC", help="The topic.")
@click.option(
    "--group",
    metavar="GROUP",
    help="The consumer's group: begin where it has come to, and commit. Without it nothing is committed.",
)
@click.option(
    "--from",
    "where",
    type=Where(),
    default="last",
    show_default=True,
    metavar="first|last|TIME",
    help="Where to begin a queue in which the group has no offset: at its first message, behind its last one, or at a time: ms"
    " since 1970, or like 2024-01-31T12:00:00 (UTC).",
)
@wanted_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="End after N messages.")
@click.option("--stop-at-end", is_flag=True, help="End when there are no more messages.")
@body_option
def consume(
    name_servers: NameServers,
    topic: str,
    group: str | None,
    where: tuple[ConsumeFromWhere, int],
    wanted: Wanted,
    limit: int | None,
    stop_at_end: bool,
    body: str,
) -> None:
    """Pull the messages of a topic and print them as JSON lines.

    The lines are those of tail and query (docs/messages.md), and of put and send with --lines json. It pulls all queues of the
    topic, of a slave where the master says so or is gone, and waits for new messages. All queues are read at the same time; the
    order within a queue is kept.

    With --group it begins where the group has come to, and commits every 5 s, and at its end, what was written to standard
    output. It shares the queues with no other consumer: two of one group get every message both. A broker that has all messages
    of a queue gives a new group offset 0, whatever --from says.

    SIGINT and SIGTERM end it, with exit status 0 if neither --limit nor --stop-at-end gives it an end. The end of its reader
    ends it too. Exit status 2 if no name server knows the topic.

    \b
        rocketmq-ha consume --namesrv 127.0.0.1:9876 --topic orders --from first --stop-at-end
        rocketmq-ha consume --namesrv 127.0.0.1:9876 --topic orders --group billing --tags 'paid || refunded' | process
    """
    start, timestamp = where
    if group is not None:
        try:
            check_group_name(group)
        except RequestInvalid as error:
            raise click.BadParameter(f"found {error.found}, expected {error.expected}", param_hint="--group") from error
    settings = ConsumerSettings(
        group or _NO_GROUP,
        topic,
        wanted.tags,
        start,
        timestamp,
        frozenset(wanted.queues) or None,
        commits=group is not None,
        waits=not stop_at_end,
    )
    sys.stdout.flush()
    stopped = Stop()
    is_done = run_consume(ConsumeOptions(name_servers, settings, body, limit, stop_at_end), stopped, sys.stdout.fileno())
    click.get_current_context().exit(stopped.status if not is_done and (limit is not None or stop_at_end) else 0)
