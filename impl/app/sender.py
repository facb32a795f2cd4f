"""The loop of `rocketmq-ha send`: lines become messages, and their outcomes are written in the order of the lines."""

import json
import select
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from rocketmq_ha.impl.app.put_lines import Line, LineSource
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.client.decisions import SendStatus
from rocketmq_ha.impl.client.producer import Producer, SendResult
from rocketmq_ha.impl.clock import clock_ms, wall_clock_ms
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.codes import ResponseCode
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.message_line import parse_message_line

_TURN_MS: Final = 100
_LINES_AHEAD: Final = 4096  # lines that are read from standard input before they are sent
_OPEN: Final = 16_384  # lines whose outcomes wait to be written, behind one that has none yet
_UNSENT: Final = 1 << 20  # bytes
_QUEUE_ID: Final = b'"queue_id"'
_ILLEGAL: Final = ResponseCode.MESSAGE_ILLEGAL.name


class _Open:
    """A line whose outcome is not written yet. outcome: None while there is none."""

    __slots__ = ("number", "outcome")

    def __init__(self, number: int) -> None:
        self.number = number
        self.outcome: dict[str, Any] | None = None


class Sender:
    """Reads, sends and writes in turns, so that none of the three waits for another longer than it must.

    row: formats a line's number and its outcome. batch: the most messages of a request. oneway: no outcome is awaited.
    """

    def __init__(
        self,
        client: RemotingClient,
        producer: Producer,
        source: LineSource,
        writer: StdoutWriter[int],
        row: Callable[[int, dict[str, Any]], str],
        *,
        quiet: bool = False,
        batch: int = 1,
        oneway: bool = False,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.is_cut = False  # a stop came before the end: of the input, or of the outcomes
        self._client, self._producer, self._source, self._writer, self._row = client, producer, source, writer, row
        self._quiet, self._batch, self._oneway = quiet, batch, oneway
        self._number = 0  # of the last line that was taken; the first one is 1
        self._open: deque[_Open] = deque()
        self._held: list[tuple[_Open, Message, int | None]] = []  # the next batch

    @property
    def is_ok(self) -> bool:
        """Whether every message is stored, flushed and replicated as its broker promises."""
        return set(self.counts) <= {SendStatus.SEND_OK.value}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Send all lines. After a stop only those that were taken get outcomes, and none of them waits for a broker."""
        source = self._source
        while True:
            if not self.is_cut and stopped():
                self.is_cut = True
                source.fd = None
                source.lines.clear()
                self._producer.end()
            now_ms = clock_ms()
            self._producer.turn(now_ms)
            self._take_lines(now_ms)
            if source.fd is None and not source.lines:
                self._send_held(now_ms)
            self._write_outcomes()
            if source.fd is None and not (source.lines or self._open or self._held or self._producer.in_flight or self._unsent):
                break
            self._wait()
            self._writer.write()
        while not self._writer.is_empty:
            self._writer.write(_TURN_MS)

    @property
    def _unsent(self) -> int:
        """Bytes of oneway requests that no socket has taken. A channel drops what comes behind 8 MiB of them."""
        return sum(channel.unsent for channel in self._client.channels) if self._oneway else 0

    @property
    def _is_full(self) -> bool:
        is_behind = self._writer.is_full or len(self._open) >= _OPEN
        return self._producer.is_full or is_behind or self._unsent >= _UNSENT

    def _take_lines(self, now_ms: int) -> None:
        lines = self._source.lines
        while lines and not self._is_full:
            line: Line = lines.popleft()
            self._number += 1
            opened = _Open(self._number)
            self._open.append(opened)
            try:
                if isinstance(line, MessageIllegal):
                    raise line
                message = parse_message_line(line, wall_clock_ms())
            except MessageIllegal as error:
                opened.outcome = {"status": _ILLEGAL, "error": str(error)}
                continue
            # A message names its queue only if its line does: the parser gives 0 to one that has none.
            queue_id = message.queue_id if _QUEUE_ID in line and _names_queue(line) else None
            self._send(opened, message, queue_id, now_ms)

    def _send(self, opened: _Open, message: Message, queue_id: int | None, now_ms: int) -> None:
        if self._oneway:
            try:
                self._producer.send_oneway(message, lambda result: _note(opened, message.topic, result), now_ms, queue_id)
            except MessageIllegal as error:
                opened.outcome = {"status": _ILLEGAL, "error": str(error)}
            return
        if self._batch > 1:
            held = self._held
            if held and (held[0][1].topic, held[0][2]) != (message.topic, queue_id):
                self._send_held(now_ms)
            self._held.append((opened, message, queue_id))
            if len(self._held) >= self._batch or sum(len(each[1].body) for each in self._held) >= 1 << 20:
                self._send_held(now_ms)
            return
        self._send_one(opened, message, queue_id, now_ms)

    def _send_one(self, opened: _Open, message: Message, queue_id: int | None, now_ms: int) -> None:
        try:
            self._producer.send(message, lambda result: _note(opened, message.topic, result), now_ms, queue_id)
        except MessageIllegal as error:
            opened.outcome = {"status": _ILLEGAL, "error": str(error)}

    def _send_held(self, now_ms: int) -> None:
        """Send what is held as one batch. Messages that may not be in one batch are sent one by one."""
        held, self._held = self._held, []
        if not held:
            return
        if len(held) == 1:
            self._send_one(*held[0], now_ms)
            return
        opened = [each for each, _, _ in held]
        topic = held[0][1].topic

        def on_result(result: SendResult) -> None:
            for at, each in enumerate(opened):
                _note(each, topic, result, at)

        try:
            self._producer.send_batch([message for _, message, _ in held], on_result, now_ms, held[0][2])
        except MessageIllegal:
            for each, message, queue_id in held:
                self._send_one(each, message, queue_id, now_ms)

    def _write_outcomes(self) -> None:
        while self._open and (outcome := self._open[0].outcome) is not None:
            number = self._open.popleft().number
            self.counts[outcome["status"]] += 1
            if not (self._quiet and outcome["status"] == SendStatus.SEND_OK.value):
                self._writer.put((self._row(number, outcome) + "\n").encode(), number)

    def _wait(self) -> None:
        """Wait until a descriptor is ready, and read standard input and the answers."""
        poll = select.poll()
        poll.register(self._client.fileno(), select.POLLIN)
        source = self._source
        reads = source.fd is not None and len(source.lines) < _LINES_AHEAD
        if reads and source.fd is not None:
            poll.register(source.fd, select.POLLIN)
        if not self._writer.is_empty:
            poll.register(self._writer.fd, select.POLLOUT)
        for fd, events in poll.poll(0 if source.lines and not self._is_full else _TURN_MS):
            if reads and fd == source.fd and events:
                source.read()
        self._client.on_readable()
        self._client.turn(clock_ms())

    def counts_line(self, seconds: float) -> str:
        """How many messages ended in which status, and how fast."""
        counts = " ".join(f"{name}={count}" for name, count in sorted(self.counts.items()))
        done = sum(self.counts.values())
        return f"sent={done} seconds={seconds:.1f} per_second={done / max(seconds, 1e-3):.0f} {counts}".rstrip()


def _names_queue(line: bytes) -> bool:
    """Whether a line that is a message has a queue_id."""
    return json.loads(line).get("queue_id") is not None


def _note(opened: _Open, topic: str, result: SendResult, at: int = 0) -> None:
    """The outcome of one message of a send. at: its place in the batch."""
    uniq_key = result.uniq_keys[at]
    outcome: dict[str, Any] = {"status": result.status, "topic": topic, "uniq_key": uniq_key, "attempts": result.attempts}
    if result.queue is not None and result.queue_offset is not None:
        ids = (result.msg_id or "").split(",")
        outcome |= {
            "broker_name": result.queue.broker_name,
            "queue_id": result.queue.queue_id,
            "queue_offset": result.queue_offset + at,
            "msg_id": ids[at] if at < len(ids) else None,
        }
    if result.error is not None:
        outcome["error"] = result.error
    opened.outcome = outcome


def timed(sender: Sender, stopped: Callable[[], bool], tell: Callable[[str], object]) -> None:
    """Run, and tell the counts at the end, whatever happens."""
    started = time.monotonic()
    try:
        sender.run(stopped)
    finally:
        tell(sender.counts_line(time.monotonic() - started))
