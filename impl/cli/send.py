"""`rocketmq-ha send`: send messages to the brokers of a topic, and print the outcome of each."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

from rocketmq_ha.impl.app.client_session import NameServers, client_session, message_ids
from rocketmq_ha.impl.app.put_lines import LineSource, MessageFields, json_maker, text_maker
from rocketmq_ha.impl.app.sender import Sender, timed
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.cli.client_options import name_servers_option
from rocketmq_ha.impl.cli.message_options import Source, field_options, source_options
from rocketmq_ha.impl.cli.option_group import option_group
from rocketmq_ha.impl.client.producer import SEND_MSG_TIMEOUT_MS, SENT, Producer
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.put_socket import MAX_LINE_SIZE

_WIDE: Final = 110  # from this number of columns on, a terminal shows the message ids too


@dataclass(frozen=True, slots=True)
class Sending:
    """How messages are sent. timeout: of a send, ms."""

    group: str
    in_flight: int
    batch: int
    oneway: bool
    timeout: int


sending_options = option_group(
    "sending",
    Sending,
    click.option("--group", default="rocketmq-ha", show_default=True, metavar="GROUP", help="The producer's group."),
    click.option(
        "--in-flight",
        type=click.IntRange(min=1),
        default=256,
        show_default=True,
        metavar="K",
        help="How many sends may have no answer yet. 1: each message waits for the answer to the one before.",
    ),
    click.option(
        "--batch",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="Send up to N messages of one topic in one request, to one queue.",
    ),
    click.option("--oneway", is_flag=True, help="Wait for no answers: nobody learns whether a message is stored."),
    click.option(
        "--timeout",
        type=click.IntRange(min=1),
        default=SEND_MSG_TIMEOUT_MS,
        show_default=True,
        metavar="MS",
        help="The time of a send, with all its attempts. While the topic has no master, because it restarts for example, a send"
        " waits for it this long.",
    ),
)


@click.command()
@name_servers_option
@field_options("the queues take turns")
@source_options
@sending_options
@click.option("--json", "as_json", is_flag=True, help="Print each outcome as one JSON object a line.")
@click.option("--quiet", is_flag=True, help="Print only the outcomes that are not SEND_OK.")
def send(
    name_servers: NameServers,
    fields: MessageFields,
    source: Source,
    sending: Sending,
    as_json: bool,
    quiet: bool,
) -> None:
    """Send messages to the brokers of their topic.

    The name servers say which brokers have the topic; one that makes topics gets those that nobody has yet. A send that fails
    is tried again at another broker, twice at most. For each message, in order, it prints a line: the message's number, the
    status, and its place. The counts come last, on standard error.

    Messages come as in put: --body, --file, or the lines of standard input, with --lines json as tail and consume print them. A
    message goes to the queue that it names, or else to the next one in turn.

    Exit status 0 if every send ended with SEND_OK, 1 if any did not, 130 or 143 if SIGINT or SIGTERM ended it. A line
    that is not a message ends with MESSAGE_ILLEGAL, and the lines after it are sent all the same.

    A message that ends with NO_ROUTE found no master within its --timeout. One that ends with NO_ANSWER may be stored.

    \b
        rocketmq-ha send --namesrv 127.0.0.1:9876 --topic orders --keys 4711 --body 'three of them'
        generate | rocketmq-ha send --namesrv 127.0.0.1:9876 --topic orders --batch 32 --quiet
    """
    if fields.topic is None and not source.is_json:
        raise ConfigInvalid("no --topic: expected one, but for --lines json")
    if sending.oneway and sending.batch > 1:
        raise ConfigInvalid("--oneway and --batch: expected one of them")
    make = json_maker(fields) if source.is_json else text_maker(fields)
    lines = LineSource(sys.stdin.fileno() if source.body is None else None, make, MAX_LINE_SIZE, not source.is_json)
    if source.body is not None:
        lines.lines.append(make(source.body))
    sys.stdout.flush()
    writer: StdoutWriter[int] = StdoutWriter(sys.stdout.fileno())
    stopped = Stop()
    with client_session(name_servers) as session:
        ids = message_ids(session.name_servers[0])
        limits = {"timeout_ms": sending.timeout, "max_in_flight": sending.in_flight}
        producer = Producer(session.client, session.routes, sending.group, ids, **limits)
        row, batch, oneway = _row(as_json), sending.batch, sending.oneway
        sender = Sender(session.client, producer, lines, writer, row, quiet=quiet, batch=batch, oneway=oneway)
        timed(sender, stopped, lambda line: click.echo(line, err=True))
    is_ok = sender.is_ok or (oneway and set(sender.counts) <= {SENT})
    sys.exit(stopped.status if sender.is_cut else 0 if is_ok else 1)


def _row(as_json: bool) -> Callable[[int, dict[str, Any]], str]:
    """Return a function that formats a line's number and its outcome as a line of the output."""
    if as_json:
        return lambda number, outcome: json.dumps({"line": number, **outcome})
    shows_id = not sys.stdout.isatty() or shutil.get_terminal_size().columns >= _WIDE

    def row(number: int, outcome: dict[str, Any]) -> str:
        status = outcome["status"]
        text = f"{number:>7}  {status:<19}"
        if "queue_offset" in outcome:
            text += f"  {outcome['broker_name']} queue {outcome['queue_id']}  queue offset {outcome['queue_offset']}"
            text += f"  {outcome['msg_id']}" if shows_id else ""
        elif (error := outcome.get("error")) is not None:
            text += "  " + "".join(each if each.isprintable() else "·" for each in error)
        return text.rstrip()

    return row
