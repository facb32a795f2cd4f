"""The client of `rocketmq-ha put`: it sends lines to a master's socket, and writes the answers in the order of the lines."""

import json
import select
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from rocketmq_ha.impl.app.put_lines import Line, LineSource
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.net.put_client import PutService
from rocketmq_ha.impl.store.log.results import PutMessageStatus

_OK: Final = PutMessageStatus.PUT_OK.value
_TURN_MS: Final = 100
_SEND_SIZE: Final = 256 * 1024  # bytes in the send buffer; a long line may exceed it
_LINES_AHEAD: Final = 4096  # lines that are read from standard input before they are sent
_AFTER_STOP_S: Final = 10.0  # how long we wait for answers after we are told to stop


class Putter:
    """Sends lines and reads answers at the same time, so that neither end blocks while the other one could go on."""

    def __init__(
        self,
        service: PutService,
        source: LineSource,
        writer: StdoutWriter[int],
        in_flight: int,
        row: Callable[[int, dict[str, Any]], str],
        quiet: bool,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.is_cut = False  # a stop came before the end: of the input, or of the answers
        self.lost_master = ""  # why no more answers come
        self._sock, self._source, self._writer = service.sock, source, writer
        self._in_flight, self._row, self._quiet = in_flight, row, quiet
        self._number = 0  # the number of the last line that was taken; the first one is 1
        self._open: deque[tuple[int, MessageIllegal | None]] = (
            deque()
        )  # lines without an answer; one that was not sent has its error
        self._out = bytearray()
        self._answers = bytearray()
        self._unanswered = PutMessageStatus.UNKNOWN_ERROR  # the outcome of lines that have no answer at the end

    @property
    def is_ok(self) -> bool:
        return not self.lost_master and set(self.counts) <= {_OK}

    def run(self, stopped: Callable[[], bool]) -> None:
        """Put all lines. If the master ends, or if we are told to stop, only the lines that were sent get an answer."""
        until: float | None = None
        while not self.lost_master:
            if until is None and stopped():
                until = time.monotonic() + _AFTER_STOP_S
                self.is_cut = True
                self._source.fd = None
                self._source.lines.clear()
            self._fill()
            self._send()
            self._answer_unsent()
            if self._is_done() or (until is not None and time.monotonic() > until):
                break
            self._wait()
            self._receive()
            self._writer.write()
        status, error = self._unanswered.value, self.lost_master or "stopped before the answer came"
        while self._open:
            self._answer_unsent()
            if self._open:
                self._write_answer(self._open.popleft()[0], {"status": status, "error": error})
        while not self._writer.is_empty:
            self._writer.write(_TURN_MS)

    def _is_done(self) -> bool:
        return self._source.fd is None and not (self._source.lines or self._open or self._out)

    def _fill(self) -> None:
        """Move lines into the send buffer, unless too many are unanswered, or the reader of our output is slow."""
        lines, opened = self._source.lines, self._open
        while lines and len(opened) < self._in_flight and len(self._out) < _SEND_SIZE and not self._writer.is_full:
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
        except OSError:  # answers that have arrived must still be read
            self._out.clear()

    def _wait(self) -> None:
        """Wait until a descriptor is ready, and read standard input if it is."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | (select.POLLOUT if self._out else 0))
        source = self._source
        if source.fd is not None and len(source.lines) < _LINES_AHEAD:
            poll.register(source.fd, select.POLLIN)
        if not self._writer.is_empty:
            poll.register(self._writer.fd, select.POLLOUT)
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
            self._answer_unsent()
            if "end" in answer:  # the last line of the master, after all answers
                self.lost_master = answer["end"]
                self._unanswered = PutMessageStatus.SERVICE_NOT_AVAILABLE
                break
            self._write_answer(self._open[0][0], answer)
            self._open.popleft()
        if not data and not self.lost_master:
            self.lost_master = "the connection has ended: what has no answer may have been put or not"

    def _answer_unsent(self) -> None:
        while self._open and (own := self._open[0][1]) is not None:
            self._write_answer(self._open[0][0], {"status": PutMessageStatus.MESSAGE_ILLEGAL.value, "error": str(own)})
            self._open.popleft()

    def _write_answer(self, number: int, answer: dict[str, Any]) -> None:
        status = answer["status"]
        self.counts[status] += 1
        if not (self._quiet and status == _OK):
            self._writer.put((self._row(number, answer) + "\n").encode(), number)

    def counts_line(self, seconds: float) -> str:
        """How many messages ended in which status, and how fast."""
        order = [status.value for status in PutMessageStatus]
        counts = " ".join(f"{name}={self.counts[name]}" for name in sorted(self.counts, key=order.index))
        done = sum(self.counts.values())
        return f"put={done} seconds={seconds:.1f} per_second={done / max(seconds, 1e-3):.0f} {counts}".rstrip()
