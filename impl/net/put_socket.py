"""A running master takes messages from its own user: a Unix socket in the store's directory, mode 0600 (docs/put.md).

A client sends JSON lines, each a message, and gets one JSON line for each, in order: how its put has ended. All is done in the
master's loop, between two turns: lines are taken as they come, and answers wait in a queue until their puts have ended.

Nothing here may end the master or hold its loop: what a turn reads is bounded, a line has a greatest size, and who has many
puts waiting or takes no answers is not read from until that changes.
"""

import json
import logging
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid, RocketmqHaError
from rocketmq_ha.impl.ha.puts import Puts, WaitingPut
from rocketmq_ha.impl.net.local_socket import listen_locally
from rocketmq_ha.impl.net.pause import Pauses
from rocketmq_ha.impl.store.log.results import PutMessageStatus, status_of
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.message_id import message_id_prefix
from rocketmq_ha.impl.wire.message_line import parse_message_line

SOCKET_NAME: Final = "rocketmq-ha-put.sock"
VERSION: Final = 1  # of what is spoken
MAX_LINE_SIZE: Final = 6 * 1024 * 1024  # bytes without the newline: a body of 4 MiB in base64, and all properties there can be
MAX_PENDING: Final = 4096  # puts of one client that wait; it is not read from while there are so many
MAX_CLIENTS: Final = 16  # further ones wait for their greeting
BACKLOG: Final = 128
READ_TURN: Final = 32 * 1024  # bytes that a turn reads, of all clients together
LEAST_READ: Final = 4096  # bytes of one of them
MAX_OUT_SIZE: Final = 256 * 1024  # bytes of answers that a client has not taken; it is not read from while there are more
STALL_S: Final = 30.0  # for a client that has sent a part of a line, or takes no answers, to go on
FINISH_S: Final = 1.0  # for all clients to take their last answers, when the master ends
_LOOK_S: Final = 1.0
_MOST_OF_AN_ERROR: Final = 400  # characters

log = logging.getLogger(__name__)


class Client:
    """One connection: what has come of a line, the puts that are not answered yet, the answers that it has not taken."""

    __slots__ = ("ended", "events", "line", "out", "pending", "since_s", "skips", "sock")

    def __init__(self, sock: socket.socket, now_s: float) -> None:
        self.sock = sock
        self.line = bytearray()  # the part of a line that has come
        self.skips = False  # the line was too long, and is passed over to its end
        self.ended = False  # no more lines will come
        self.pending: deque[WaitingPut | bytes] = deque()  # or the answer, behind a put that waits
        self.out = bytearray()
        self.since_s = now_s  # when it last sent or took a byte
        self.events = 0  # that its socket is watched for

    @property
    def is_done(self) -> bool:
        return self.ended and not self.pending and not self.out


class PutSocket:
    """The server's end. Its master's loop waits for it (`Master.wake_by`), and then calls `turn`."""

    def __init__(self, store_dir: Path, puts: Puts) -> None:
        """Listen; where that cannot be, say so in the log and do nothing: no replication stops for it.

        The caller has the store's lock.
        """
        self._store_dir, self._puts = store_dir, puts
        self._statuses: Counter[PutMessageStatus] = Counter()
        puts.service.tallies.append(self._statuses)
        self._prefix = message_id_prefix(Message("t", b"").store_host)
        self._selector = selectors.DefaultSelector()
        self._clients: dict[socket.socket, Client] = {}
        self._is_ready = False
        self._pauses = Pauses()
        self._look_at_s = 0.0
        self._last_ms = 0  # of the clock of messages, which does not step back here
        self._listener: socket.socket | None = None
        self._accepts = False
        try:
            self._listener = listen_locally(store_dir, SOCKET_NAME, BACKLOG)
        except (OSError, ConfigInvalid) as error:
            log.warning("%s: no puts are taken: %s", store_dir / SOCKET_NAME, error)
        else:
            self._watch_listener()

    def fileno(self) -> int:
        """Of the selector, which is readable when one of its sockets is ready."""
        fd = self._selector.fileno()  # type: ignore[attr-defined,unused-ignore]  # epoll and kqueue have it
        assert isinstance(fd, int)
        return fd

    def on_readable(self) -> None:
        self._is_ready = True

    @property
    def waiting(self) -> int:
        """Puts that are not answered yet."""
        return sum(len(client.pending) for client in self._clients.values())

    def turn(self, clock_ms: int) -> None:
        """Take what lines there are, put their messages, and answer for puts that have ended. Never waits.

        Args:  clock_ms: of the master's loop.
        """
        if not self._is_ready and not self._clients:
            return
        now_s = time.monotonic()
        if self._is_ready or now_s >= self._look_at_s:
            self._is_ready = False
            self._serve(clock_ms, now_s)
        if self._clients:
            self._puts.on_turn(clock_ms)
            for client in [client for client in self._clients.values() if client.pending]:
                self._answer(client)
                self._settle(client, now_s)
            if self._pauses.may_expire(clock_ms) and now_s >= self._look_at_s:  # what has come was read just now: HA-T-20
                self._look_at_s = now_s + _LOOK_S
                self._end_stalled(now_s)

    def _serve(self, clock_ms: int, now_s: float) -> None:
        ready = self._selector.select(0)
        size = max(LEAST_READ, READ_TURN // max(1, len(ready)))
        for key, events in ready:
            client = key.data
            if client is None:
                self._accept(now_s)
                continue
            if events & selectors.EVENT_READ:
                self._read(client, size, clock_ms, now_s)
            self._settle(client, now_s)

    def _accept(self, now_s: float) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        client = self._clients[sock] = Client(sock, now_s)
        greeting = {"rocketmq_ha_put": VERSION, "max_line_size": MAX_LINE_SIZE, "max_in_flight": MAX_PENDING}
        client.out += json.dumps(greeting).encode() + b"\n"
        self._watch_listener()
        self._settle(client, now_s)

    def _watch_listener(self) -> None:
        """Accept while there is a place."""
        accepts = self._listener is not None and len(self._clients) < MAX_CLIENTS
        if self._listener is not None and accepts != self._accepts:
            if accepts:
                self._selector.register(self._listener, selectors.EVENT_READ)
            else:
                self._selector.unregister(self._listener)
        self._accepts = accepts

    # --- Lines -------------------------------------------------------------------------------------------------------

    def _read(self, client: Client, size: int, clock_ms: int, now_s: float) -> None:
        try:
            data = client.sock.recv(size)
        except BlockingIOError:
            return
        except OSError:
            self._drop(client)
            return
        client.since_s = now_s
        if not data:
            client.ended = True
            if client.line:
                self._refuse(client, "line", "the end of the stream", "a newline")
                client.line.clear()
            return
        start = 0
        if client.skips:
            start = data.find(b"\n") + 1
            if not start:
                return
            client.skips = False
        end = data.rfind(b"\n")
        if end < start:
            client.line += memoryview(data)[start:]
        else:
            lines = data[start:end].split(b"\n")
            if client.line:
                lines[0] = bytes(client.line) + lines[0]
            client.line = bytearray(memoryview(data)[end + 1 :])
            for line in lines:
                self._take(client, line, clock_ms)
        if len(client.line) > MAX_LINE_SIZE:
            self._refuse(client, "line", f"more than {MAX_LINE_SIZE} bytes", f"at most {MAX_LINE_SIZE}")
            client.line = bytearray()
            client.skips = True

    def _take(self, client: Client, line: bytes, clock_ms: int) -> None:
        """Put the message of a line. Whatever is wrong with it, or with the store, is the answer, and no more."""
        self._last_ms = now_ms = max(self._last_ms, time.time_ns() // 1_000_000)
        try:
            put = self._puts.put(parse_message_line(line, now_ms), clock_ms)
        except (RocketmqHaError, OSError) as error:
            self._say(client, _error_line(status_of(error), str(error)))
            return
        if put.status is None or client.pending:
            client.pending.append(put)
        else:
            client.out += self._line_of(put, put.status)

    def _refuse(self, client: Client, field: str, found: str, expected: str) -> None:
        self._say(client, _error_line(PutMessageStatus.MESSAGE_ILLEGAL, f"message {field}: found {found}, expected {expected}"))

    # --- Answers -----------------------------------------------------------------------------------------------------

    def _say(self, client: Client, answer: bytes) -> None:
        """In its turn, behind the answers of puts that wait."""
        if client.pending:
            client.pending.append(answer)
        else:
            client.out += answer

    def _answer(self, client: Client, otherwise: PutMessageStatus | None = None) -> None:
        """Answer for the puts that have ended. otherwise: the status of those that have not, where none will have one."""
        pending = client.pending
        while pending:
            first = pending[0]
            if isinstance(first, bytes):
                client.out += first
            elif (status := first.status or otherwise) is not None:
                client.out += self._line_of(first, status)
            else:
                return
            pending.popleft()

    def _line_of(self, put: WaitingPut, status: PutMessageStatus) -> bytes:
        self._statuses[status] += 1
        append = put.append
        offset = append.offset
        return (
            f'{{"status":"{status.value}","msg_id":"{self._prefix}{offset:016X}","commit_log_offset":{offset},'
            f'"store_size":{append.size},"queue_offset":{append.queue_offset}}}\n'
        ).encode()

    def _settle(self, client: Client, now_s: float) -> None:
        """Send what goes, watch for what may come next, and let go of who is done."""
        if client.sock not in self._clients:
            return
        if client.out:
            try:
                sent = client.sock.send(client.out)
            except BlockingIOError:
                pass
            except OSError:
                self._drop(client)
                return
            else:
                del client.out[:sent]
                client.since_s = now_s
        if client.is_done:
            self._drop(client)
            return
        events = selectors.EVENT_WRITE if client.out else 0
        if not client.ended and len(client.pending) < MAX_PENDING and len(client.out) < MAX_OUT_SIZE:
            events |= selectors.EVENT_READ
        if events != client.events:
            if not client.events:
                self._selector.register(client.sock, events, client)
            elif events:
                self._selector.modify(client.sock, events, client)
            else:
                self._selector.unregister(client.sock)
            client.events = events

    def _end_stalled(self, now_s: float) -> None:
        """A part of a line keeps its bytes, and answers that nobody takes keep theirs: not for longer than STALL_S."""
        for client in list(self._clients.values()):
            if (client.out or client.line or client.skips) and now_s - client.since_s > STALL_S:
                what = "takes no answers" if client.out else "has sent a part of a line and no more"
                log.warning("%s: closed a client that %s for %.0f s", self._store_dir / SOCKET_NAME, what, STALL_S)
                self._drop(client)

    def _drop(self, client: Client) -> None:
        """Its puts that wait end without it: they are the master's."""
        if client.events:
            self._selector.unregister(client.sock)
            client.events = 0
        client.sock.close()
        del self._clients[client.sock]
        self._watch_listener()

    # --- The end -----------------------------------------------------------------------------------------------------

    def finish(self, end_puts: Callable[[], object]) -> None:
        """Take no more lines, end the puts that wait, and tell of each how; then close, and take the socket away.

        Who has taken his answers is told that nothing behind them was put.
        """
        if self._listener is not None:
            self._listener.close()
        end_puts()
        until = time.monotonic() + FINISH_S
        last = json.dumps({"end": "the master has ended: what it has not answered it has not put"}).encode() + b"\n"
        for client in self._clients.values():
            # Classic's service leaves some without a status (quirk 33): no slave has acknowledged them in the time there was.
            self._answer(client, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
            client.out += last
            client.ended = True
        while self._clients and (left_s := until - time.monotonic()) > 0:
            for client in list(self._clients.values()):
                self._settle(client, time.monotonic())
            self._selector.select(left_s if self._clients else 0)
        for client in list(self._clients.values()):
            self._drop(client)
        self._selector.close()
        if self._listener is not None:
            self._listener = None
            try:
                (self._store_dir / SOCKET_NAME).unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s: left behind: %s", self._store_dir / SOCKET_NAME, error.strerror or error)


def _error_line(status: PutMessageStatus, error: str) -> bytes:
    return json.dumps({"status": status.value, "error": error[:_MOST_OF_AN_ERROR]}).encode() + b"\n"
