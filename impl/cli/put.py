"""`rocketmq-ha put`: messages into a running master, and how the put of each has ended."""

import json
import os
import select
import shutil
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from rocketmq_ha.impl.cli.outlet import Outlet
from rocketmq_ha.impl.cli.put_lines import Given, Line, LineSource, json_maker, text_maker
from rocketmq_ha.impl.cli.replication import Stop
from rocketmq_ha.impl.errors import ConfigInvalid, MessageIllegal
from rocketmq_ha.impl.net.put_client import PutService, connect
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.spec.constants import MAX_MESSAGE_SIZE

_OK: Final = PutMessageStatus.PUT_OK.value
_TURN_MS: Final = 100
_SEND_SIZE: Final = 256 * 1024  # bytes that are made ready to be sent, some more if a line is long
_LINES_AHEAD: Final = 4096  # that are read of standard input before they are sent
_AFTER_STOP_S: Final = 10.0  # for the answers to what was sent, once we are told to stop
_WIDE: Final = 110  # columns from which on a terminal is shown the message ids too


@click.command()
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(path_type=Path),
    metavar="STORE|SOCKET",
    help="The store of a running `rocketmq-ha master`, or the socket rocketmq-ha-put.sock in it.",
)
@click.option("--topic", metavar="TOPIC", help="Needed where the messages do not say theirs.")
@click.option("--tags", metavar="TAGS", help="The property TAGS, by which consumers choose.")
@click.option("--keys", metavar="KEYS", help="The property KEYS, by which `query` finds them; several, with blanks between.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="Another property; may be given again.")
@click.option("--queue-id", type=click.IntRange(0, (1 << 31) - 1), metavar="N", help="The queue in the topic. [default: 0]")
@click.option("--no-wait", is_flag=True, help="With the property WAIT=false: the put waits for no slave and no disk.")
@click.option("--body", metavar="TEXT", help="Put one message with this body.")
@click.option(
    "--file",
    "body_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Put one message with the bytes of this file for a body.",
)
@click.option(
    "--lines",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What standard input holds, where there is neither --body nor --file: a body a line; or a message a line, in JSON, "
    "as `tail` prints them.",
)
@click.option(
    "--in-flight",
    type=click.IntRange(min=1),
    default=1024,
    show_default=True,
    metavar="K",
    help="Messages that are sent and not answered; 1: each after the answer to the one before.",
)
@click.option("--json", "as_json", is_flag=True, help="Print an answer as one JSON object a line.")
@click.option("--quiet", is_flag=True, help="Print the answers alone that are not PUT_OK.")
def put(
    target: Path,
    topic: str | None,
    tags: str | None,
    keys: str | None,
    properties: tuple[str, ...],
    queue_id: int | None,
    no_wait: bool,
    body: str | None,
    body_file: Path | None,
    lines: str,
    in_flight: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Put messages into a running master of this machine.

    It connects to a socket in the master's store, which only the master's user may open. Each message is one line of the
    output, in order: its number, how its put has ended, and where it stands. The counts come last, on standard error.

    With --lines json a message has topic and body (or body_json, body_base64, body_hex), and may have queue_id, tags, keys,
    properties, flag, born_timestamp, born_host, reconsume_times. What an option says takes the place of what the line says.

    Exit status 0 if every put ended with PUT_OK, 1 if any did not, 2 if no master takes puts there. A line that is no
    message ends with MESSAGE_ILLEGAL, and those behind it are put all the same.

    \b
        rocketmq-ha put --to STORE --topic orders --keys 4711 --body 'three of them'
        generate | rocketmq-ha put --to STORE --topic orders --quiet
        rocketmq-ha tail --master broker-a:10912 --stop-at-end | rocketmq-ha put --to STORE --lines json
    """
    if body is not None and body_file is not None:
        raise ConfigInvalid("--body and --file: expected one of them")
    is_json = lines == "json" and body is None and body_file is None
    if topic is None and not is_json:
        raise ConfigInvalid("no --topic: expected one, but for --lines json")
    pairs = tuple(_pair(text) for text in properties) + ((("WAIT", "false"),) if no_wait else ())
    given = Given(topic, tags, keys, queue_id, pairs)
    make = json_maker(given) if is_json else text_maker(given)
    one = _one_body(body, body_file)
    service = connect(target)
    with service.sock:
        source = LineSource(sys.stdin.fileno() if one is None else None, make, service.max_line_size, not is_json)
        if one is not None:
            source.lines.append(make(one))
        sys.stdout.flush()
        putter = Putter(
            service, source, Outlet(sys.stdout.fileno()), min(in_flight, service.max_in_flight), _row(as_json), quiet
        )
        started = time.monotonic()
        try:
            putter.run(Stop())
        finally:
            seconds = time.monotonic() - started
            counts = " ".join(f"{name}={count}" for name, count in sorted(putter.counts.items(), key=_by_status))
            done = sum(putter.counts.values())
            click.echo(
                f"put={done} seconds={seconds:.1f} per_second={done / max(seconds, 1e-3):.0f} {counts}".rstrip(), err=True
            )
    if putter.has_lost_master:
        click.echo(f"rocketmq-ha put: {target}: {putter.has_lost_master}", err=True)
    sys.exit(0 if putter.is_ok else 1)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise ConfigInvalid(f"--property {text!r}: expected NAME=VALUE, neither of them empty")
    return name, value


def _one_body(body: str | None, body_file: Path | None) -> bytes | None:
    if body is not None:
        return os.fsencode(body)
    if body_file is None:
        return None
    with body_file.open("rb") as file:
        data = file.read(MAX_MESSAGE_SIZE + 1)
    if len(data) > MAX_MESSAGE_SIZE:
        raise ConfigInvalid(f"{body_file}: found more than {MAX_MESSAGE_SIZE} bytes, expected a body of at most so many")
    return data


def _by_status(item: tuple[str, int]) -> int:
    return [status.value for status in PutMessageStatus].index(item[0])


class Putter:
    """Sends lines and reads answers at the same time: neither end waits for the other while it has something to take."""

    def __init__(
        self,
        service: PutService,
        source: LineSource,
        outlet: Outlet[int],
        in_flight: int,
        row: Callable[[int, dict[str, Any]], str],
        quiet: bool,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.has_lost_master = ""  # why there are no more answers
        self._sock, self._source, self._outlet = service.sock, source, outlet
        self._in_flight, self._row, self._quiet = in_flight, row, quiet
        self._number = 0  # of the last line that was sent, from 1 on
        self._open: deque[tuple[int, MessageIllegal | None]] = deque()  # not answered; or our own answer, in its turn
        self._out = bytearray()
        self._answers = bytearray()
        self._unanswered = PutMessageStatus.UNKNOWN_ERROR  # what the end means for lines that have no answer

    @property
    def is_ok(self) -> bool:
        return not self.has_lost_master and set(self.counts) <= {_OK}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Put all there is. Ends early where the master does, or when told to stop; then with what was sent."""
        until: float | None = None
        while not self.has_lost_master:
            if until is None and stopped():
                until = time.monotonic() + _AFTER_STOP_S
                self._source.fd = None
                self._source.lines.clear()
            self._fill()
            self._send()
            self._answer_own()
            if self._is_done() or (until is not None and time.monotonic() > until):
                break
            self._wait()
            self._receive()
            self._outlet.write()
        status, error = self._unanswered.value, self.has_lost_master or "stopped before the answer came"
        while self._open:
            self._answer_own()
            if self._open:
                self._tell(self._open.popleft()[0], {"status": status, "error": error})
        while not self._outlet.is_empty:
            self._outlet.write(_TURN_MS)

    def _is_done(self) -> bool:
        return self._source.fd is None and not (self._source.lines or self._open or self._out)

    def _fill(self) -> None:
        """Make lines ready to be sent, as far as answers and their reader keep up."""
        lines, opened = self._source.lines, self._open
        while lines and len(opened) < self._in_flight and len(self._out) < _SEND_SIZE and not self._outlet.is_full:
            line: Line = lines.popleft()
            self._number += 1
            if isinstance(line, MessageIllegal):
                opened.append((self._number, line))
            else:
                opened.append((self._number, None))
                self._out += line
                self._out += b"\n"

    def _send(self) -> None:
        if not self._out:
            return
        try:
            del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:  # the answers that have come are still to be read
            self._out.clear()

    def _wait(self) -> None:
        """Until a descriptor has something for us, or takes something."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | (select.POLLOUT if self._out else 0))
        source = self._source
        if source.fd is not None and len(source.lines) < _LINES_AHEAD:
            poll.register(source.fd, select.POLLIN)
        if not self._outlet.is_empty:
            poll.register(self._outlet.fd, select.POLLOUT)
        for fd, events in poll.poll(_TURN_MS):
            if fd == source.fd and events:
                source.read()

    def _receive(self) -> None:
        try:
            data = self._sock.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:  # the master has closed it with lines of ours unread
            data = b""
        *lines, rest = (self._answers + data).split(b"\n")
        self._answers = rest
        for line in lines:
            answer = json.loads(line)
            self._answer_own()
            if "end" in answer:  # its last word, behind all answers
                self.has_lost_master = answer["end"]
                self._unanswered = PutMessageStatus.SERVICE_NOT_AVAILABLE
                break
            self._tell(self._open[0][0], answer)
            self._open.popleft()
        if not data and not self.has_lost_master:
            self.has_lost_master = "the connection has ended: what has no answer may have been put or not"

    def _answer_own(self) -> None:
        while self._open and (own := self._open[0][1]) is not None:
            self._tell(self._open[0][0], {"status": PutMessageStatus.MESSAGE_ILLEGAL.value, "error": str(own)})
            self._open.popleft()

    def _tell(self, number: int, answer: dict[str, Any]) -> None:
        status = answer["status"]
        self.counts[status] += 1
        if not (self._quiet and status == _OK):
            self._outlet.put((self._row(number, answer) + "\n").encode(), number)


def _row(as_json: bool) -> Callable[[int, dict[str, Any]], str]:
    """What an answer looks like in the output."""
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
