"""`rocketmq-ha put`: put messages into a running master, and print the outcome of each."""

import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from rocketmq_ha.impl.app.put_lines import LineSource, MessageFields, json_maker, text_maker
from rocketmq_ha.impl.app.putter import Putter
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.cli.message_options import Source, field_options, source_options
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.put_client import connect

_WIDE: Final = 110  # from this number of columns on, a terminal shows the message ids too


@click.command()
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(path_type=Path),
    metavar="STORE|SOCKET",
    help="The store of a running `rocketmq-ha master`, or the socket rocketmq-ha-put.sock in it.",
)
@field_options("0")
@source_options
@click.option(
    "--in-flight",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    metavar="K",
    help="How many messages may be sent and not yet answered. 1: each message waits for the answer to the one before.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each answer as one JSON object a line.")
@click.option("--quiet", is_flag=True, help="Print only the answers that are not PUT_OK.")
def put(target: Path, fields: MessageFields, source: Source, in_flight: int, as_json: bool, quiet: bool) -> None:
    """Put messages into a running master of this machine.

    It connects to a socket in the master's store, which only the master's user may open. For each message, in order, it prints
    a line: the message's number, the status of its put, and its position in the log. The counts come last, on standard error.

    With --lines json a message has topic and body (or body_json, body_base64, body_hex), and may have queue_id, tags, keys,
    properties, flag, born_timestamp, born_host, reconsume_times. An option replaces the value in the line.

    Exit status 0 if every put ended with PUT_OK, 1 if any did not, 2 if no master takes puts there, 130 or 143 if SIGINT or
    SIGTERM ended it. A line that is not a message ends with MESSAGE_ILLEGAL, and the lines after it are put all the same.

    \b
        rocketmq-ha put --to STORE --topic orders --keys 4711 --body 'three of them'
        generate | rocketmq-ha put --to STORE --topic orders --quiet
        rocketmq-ha tail --master broker-a:10912 --stop-at-end | rocketmq-ha put --to STORE --lines json
    """
    if fields.topic is None and not source.is_json:
        raise ConfigInvalid("no --topic: expected one, but for --lines json")
    make = json_maker(fields) if source.is_json else text_maker(fields)
    service = connect(target)
    with service.sock:
        fd = sys.stdin.fileno() if source.body is None else None
        lines = LineSource(fd, make, service.max_line_size, not source.is_json)
        if source.body is not None:
            lines.lines.append(make(source.body))
        sys.stdout.flush()
        writer: StdoutWriter[int] = StdoutWriter(sys.stdout.fileno())
        putter = Putter(service, lines, writer, min(in_flight, service.max_in_flight), _row(as_json), quiet)
        started, stopped = time.monotonic(), Stop()
        try:
            putter.run(stopped)
        finally:
            click.echo(putter.counts_line(time.monotonic() - started), err=True)
    if putter.lost_master:
        click.echo(f"rocketmq-ha put: {target}: {putter.lost_master}", err=True)
    sys.exit(stopped.status if putter.is_cut else 0 if putter.is_ok else 1)


def _row(as_json: bool) -> Callable[[int, dict[str, Any]], str]:
    """Return a function that formats a line's number and the master's answer as a line of the output."""
    if as_json:
        return lambda number, answer: json.dumps({"line": number, **answer})
    shows_id = not sys.stdout.isatty() or shutil.get_terminal_size().columns >= _WIDE

    def row(number: int, answer: dict[str, Any]) -> str:
        status = answer["status"]
        if (error := answer.get("error")) is not None:
            return f"{number:>7}  {status:<19}  {''.join(c if c.isprintable() else '·' for c in error)}"
        place = f"{number:>7}  {status:<19}  offset {answer['commit_log_offset']:<13}"
        place += f"  queue offset {answer['queue_offset']:<10}"
        return f"{place}  {answer['msg_id']}" if shows_id else place.rstrip()

    return row
