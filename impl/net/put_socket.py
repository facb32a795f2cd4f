"""The server's end of a master's socket for puts: a Unix socket of mode 0600 in the store's directory (docs/put.md).

A client sends messages as JSON lines and receives one JSON line for each put, in order, with the put's status. The master's
loop does this work between two turns: it takes complete lines, and keeps each answer in a queue until its put has ended.

A client can neither end the master nor hold its loop. The bytes read in a turn and the size of a line are bounded. A client
with too many waiting puts, or with answers that it does not read, is not read from until that changes.
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

from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid, RocketmqHaError
from rocketmq_ha.impl.ha.puts import Puts, WaitingPut
from rocketmq_ha.impl.net.listeners import NO_DESCRIPTORS_MS, NO_ROOM
from rocketmq_ha.impl.net.local_socket import listen_locally
from rocketmq_ha.impl.net.pause import Pauses
from rocketmq_ha.impl.net.peer_log import PeerLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus, status_of
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.message_id import message_id_prefix
from rocketmq_ha.impl.wire.message_line import parse_message_line

SOCKET_NAME: Final = "rocketmq-ha-put.sock"
VERSION: Final = 1  # of the protocol on this socket
MAX_LINE_SIZE: Final = 6 * 1024 * 1024  # bytes without the newline: a body of 4 MiB in base64, and the largest properties
MAX_PENDING: Final = 4096  # waiting puts of one client; while it has this many it is not read from
MAX_CLIENTS: Final = 16  # further clients wait in the backlog for their greeting
BACKLOG: Final = 128
READ_TURN: Final = 32 * 1024  # bytes that a turn reads from all clients together
LEAST_READ: Final = 4096  # bytes that a turn reads from one client, if it has them
MAX_OUT_SIZE: Final = 256 * 1024  # bytes of unread answers; a client with more is not read from
STALL_S: Final = 30.0  # a client that stops inside a line, or reads no answers, is closed after this time
FINISH_S: Final = 1.0  # time for all clients to read their last answers when the master ends
_LOOK_S: Final = 1.0
_MOST_OF_AN_ERROR: Final = 400  # characters

log = logging.getLogger(__name__)


class Client:
    """One connection: its partial line, its puts without an answer yet, and the answers not sent yet."""

    __slots__ = ("ended", "events", "line", "out", "pending", "since_s", "skips", "sock")

    def __init__(self, sock: socket.socket, now_s: float) -> None:
        self.sock = sock
        self.line = bytearray()  # the beginning of an incomplete line
        self.skips = False  # the line was too long: skip the rest of it
        self.ended = False  # the client sends no more lines
        self.pending: deque[WaitingPut | bytes] = deque()  # bytes: an answer that is ready but behind a waiting put
        self.out = bytearray()
        self.since_s = now_s  # when it last sent or took a byte
        self.events = 0  # the selector's events for its socket

    @property
    def is_done(self) -> bool:
        return self.ended and not self.pending and not self.out


class PutSocket:
    """The server's end. The master's loop waits for its descriptor too (`Master.wake_by`), and then calls `turn`."""

    def __init__(self, store_dir: Path, puts: Puts) -> None:
        """Listen. If that fails, log it and take no puts: replication goes on without this socket.

        The caller holds the store's lock.
        """
        self._store_dir, self._puts = store_dir, puts
        self._statuses: Counter[PutMessageStatus] = Counter()
        puts.service.tallies.append(self._statuses)
        self._prefix = message_id_prefix(Message("t", b"").store_host)
        self._selector = selectors.DefaultSelector()
        self._clients: dict[socket.socket, Client] = {}
        self._is_ready = False
        self._pauses = Pauses()
        self._peers = PeerLog(log)
        self._accepts_again_ms: int | None = None  # while the system has no descriptors
        self._look_at_s = 0.0
        self._last_ms = 0  # the newest born timestamp: it never goes back, even if the clock does
        self._listener: socket.socket | None = None
        self._accepts = False
        try:
            self._listener = listen_locally(store_dir, SOCKET_NAME, BACKLOG)
        except (OSError, ConfigInvalid) as error:
            log.warning("%s: no puts are taken: %s", store_dir / SOCKET_NAME, error)
        else:
            self._watch_listener()

    def fileno(self) -> int:
        """The selector's descriptor, which is readable if one of its sockets is ready."""
        fd = self._selector.fileno()  # type: ignore[attr-defined,unused-ignore]  # epoll and kqueue have it
        assert isinstance(fd, int)
        return fd

    def on_readable(self) -> None:
        self._is_ready = True

    @property
    def waiting(self) -> int:
        """The number of puts without an answer."""
        return sum(len(client.pending) for client in self._clients.values())

    def turn(self, clock_ms: int) -> None:
        """Read lines, put their messages, and answer the puts that have ended. Never waits.

        Args:  clock_ms: the time by the master's loop.
        """
        if self._accepts_again_ms is not None and clock_ms >= self._accepts_again_ms:
            self._accepts_again_ms = None
            self._watch_listener()
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
            if self._pauses.may_expire(clock_ms) and now_s >= self._look_at_s:  # HA-T-20: the sockets were read after the clock
                self._look_at_s = now_s + _LOOK_S
                self._end_stalled(now_s)

    def _serve(self, clock_ms: int, now_s: float) -> None:
        ready = self._selector.select(0)
        size = max(LEAST_READ, READ_TURN // max(1, len(ready)))
        for key, events in ready:
            client = key.data
            if client is None:
                self._accept(clock_ms, now_s)
                continue
            if events & selectors.EVENT_READ:
                self._read(client, size, clock_ms, now_s)
            self._settle(client, now_s)

    def _accept(self, clock_ms: int, now_s: float) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except OSError as error:  # nothing waits, the client has gone again, or there are no descriptors left
            if error.errno in NO_ROOM:  # the listener stays readable, so the loop would never rest
                self._accepts_again_ms = clock_ms + NO_DESCRIPTORS_MS
                self._watch_listener()
                self._peers.write(
                    clock_ms, logging.WARNING, "%s: cannot accept: %s", self._store_dir / SOCKET_NAME, error.strerror
                )
            return
        sock.setblocking(False)
        client = self._clients[sock] = Client(sock, now_s)
        greeting = {"rocketmq_ha_put": VERSION, "max_line_size": MAX_LINE_SIZE, "max_in_flight": MAX_PENDING}
        client.out += json.dumps(greeting).encode() + b"\n"
        self._watch_listener()
        self._settle(client, now_s)

    def _watch_listener(self) -> None:
        """Watch the listener while there are fewer than MAX_CLIENTS, and descriptors for one more."""
        has_room = len(self._clients) < MAX_CLIENTS and self._accepts_again_ms is None
        accepts = self._listener is not None and has_room
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
        """Put the message of a line. An error of the line or of the store becomes the answer to this line alone."""
        self._last_ms = now_ms = max(self._last_ms, wall_clock_ms())
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
        """Add an answer. It comes after the answers of all earlier lines, so behind those of waiting puts."""
        if client.pending:
            client.pending.append(answer)
        else:
            client.out += answer

    def _answer(self, client: Client, otherwise: PutMessageStatus | None = None) -> None:
        """Answer the puts that have ended. otherwise: the status to give to the others, when no put will end any more."""
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
        """Send answers, update the selector's events, and close the client if it is done."""
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
        """Close clients that hold memory for longer than STALL_S: by an incomplete line, or by unread answers."""
        for client in list(self._clients.values()):
            if (client.out or client.line or client.skips) and now_s - client.since_s > STALL_S:
                what = "takes no answers" if client.out else "has sent a part of a line and no more"
                log.warning("%s: closed a client that %s for %.0f s", self._store_dir / SOCKET_NAME, what, STALL_S)
                self._drop(client)

    def _drop(self, client: Client) -> None:
        """Close a client. Its waiting puts belong to the master and end without it."""
        if client.events:
            self._selector.unregister(client.sock)
            client.events = 0
        client.sock.close()
        del self._clients[client.sock]
        self._watch_listener()

    # --- The end -----------------------------------------------------------------------------------------------------

    def finish(self, end_puts: Callable[[], object]) -> None:
        """Take no more lines, end the waiting puts, send their answers, close the clients and remove the socket.

        A last line tells each client that the master has put none of the lines that it has not answered.
        """
        listener, self._listener = self._listener, None  # a client that is dropped gives its place to nobody
        if listener is not None:
            listener.close()
        end_puts()
        until = time.monotonic() + FINISH_S
        last = json.dumps({"end": "the master has ended: what it has not answered it has not put"}).encode() + b"\n"
        for client in self._clients.values():
            # Classic's service leaves some puts without a status (quirk 33): no slave acknowledged them in time.
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
        if listener is not None:
            try:
                (self._store_dir / SOCKET_NAME).unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s: left behind: %s", self._store_dir / SOCKET_NAME, error.strerror or error)


def _error_line(status: PutMessageStatus, error: str) -> bytes:
    return json.dumps({"status": status.value, "error": error[:_MOST_OF_AN_ERROR]}).encode() + b"\n"
