"""The loop of `rocketmq-ha consume`: a line for each message, which counts as consumed when its line is written."""

import select
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.app.client_session import NameServers, client_session
from rocketmq_ha.impl.app.message_json import message_line
from rocketmq_ha.impl.app.stdout_writer import StdoutWriter
from rocketmq_ha.impl.client.pull_consumer import ConsumerSettings, PullConsumer, Received
from rocketmq_ha.impl.client.route_data import MessageQueue
from rocketmq_ha.impl.client.routes import Routes
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.remoting.client import RemotingClient

_TURN_MS: Final = 100
_LAST_MS: Final = 3_000  # for the last lines, and then for the last commits


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """The options of `rocketmq-ha consume`. limit: messages; None for no end."""

    name_servers: NameServers
    consumer: ConsumerSettings
    body: str
    limit: int | None
    stop_at_end: bool


class Consuming:
    """Pulls, and writes a line for each message."""

    def __init__(self, client: RemotingClient, routes: Routes, writer: StdoutWriter[int], options: ConsumeOptions) -> None:
        self._client, self._writer, self._options = client, writer, options
        self._left = options.limit
        self._number = 0  # lines so far
        self._marks: deque[tuple[int, MessageQueue, int]] = deque()  # lines that are not written: number, queue, offset
        self._pending: deque[Received] = deque()  # messages without a line
        self._consumer = PullConsumer(client, routes, options.consumer, self._pending.extend)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Consume until the limit, the end or a stop. Raises: NoRoute if the topic has none at the start; BrokenPipeError."""
        self._consumer.start(clock_ms())
        try:
            while not stopped() and not self.is_done:
                self._consumer.is_paused = self._writer.is_full
                self._consumer.turn(clock_ms())
                if self._consumer.error is not None and not self._consumer.offsets:
                    raise self._consumer.error
                self._write_lines()
                if not self.is_done:
                    self._wait()
            self._finish()
        finally:
            self._commit()

    @property
    def is_done(self) -> bool:
        if self._left == 0:
            return True
        return self._options.stop_at_end and not self._pending and self._consumer.is_at_end

    def _write_lines(self) -> None:
        while self._pending and self._left != 0 and not self._writer.is_full:
            received = self._pending.popleft()
            self._number += 1
            message = received.message
            line = message_line(message.physical_offset, received.size, message, self._options.body)
            self._writer.put(line, self._number)
            self._marks.append((self._number, received.queue, message.queue_offset))
            if self._left is not None:
                self._left -= 1
        self._writer.write()
        self._note_written()

    def _note_written(self) -> None:
        reached = self._writer.reached or 0
        while self._marks and self._marks[0][0] <= reached:
            _, queue, offset = self._marks.popleft()
            self._consumer.consumed(queue, offset)

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._client.fileno(), select.POLLIN)
        if not self._writer.is_empty:
            poll.register(self._writer.fd, select.POLLOUT)
        poll.poll(0 if self._pending and not self._writer.is_full else _TURN_MS)
        self._client.on_readable()
        self._client.turn(clock_ms())

    def _finish(self) -> None:
        """Write what is left, for a short time; a reader that takes nothing gets the rest of its line at most."""
        until_ms = clock_ms() + _LAST_MS
        while not self._writer.is_empty and clock_ms() < until_ms:
            self._writer.write(_TURN_MS)
        self._note_written()

    def _commit(self) -> None:
        """Commit what was written, and wait for the answers."""
        self._note_written()
        self._consumer.commit_last()
        self._consumer.is_ending = True
        until_ms = clock_ms() + _LAST_MS
        while self._consumer.commits_in_flight and clock_ms() < until_ms:
            self._client.poll(_TURN_MS)


def run_consume(options: ConsumeOptions, stopped: Callable[[], bool], fd: int) -> bool:
    """Consume to a descriptor. Returns: False if a stop came before the limit or the end. Raises: NoRoute; BrokenPipeError."""
    with client_session(options.name_servers) as session:
        consuming = Consuming(session.client, session.routes, StdoutWriter(fd), options)
        consuming.run(stopped)
        return consuming.is_done
