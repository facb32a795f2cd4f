"""The socket for puts when its sockets fail: each error, what is watched, and the end of the master."""

import errno
import json
import logging
import selectors
import socket
import threading
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.played import AGAIN, error
from kit.put_stand import Client, Stand, message
from kit.stage import lines
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.app.roles import end_all
from rocketmq_ha.impl.errors import StoreFull
from rocketmq_ha.impl.net import put_socket as module
from rocketmq_ha.impl.net.put_socket import SOCKET_NAME
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.spec.role import BrokerRole

LAST = b'{"end": "the master has ended: what it has not answered it has not put"}\n'


class Faulty(socket.socket):
    """A client's socket at the master's end, whose next calls give what the test lists; behind that it works.

    A number for a write: so many bytes are taken.
    """

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno=fileno)
        self.reads: deque[OSError] = deque()
        self.writes: deque[OSError | int] = deque()
        self.sizes: list[int] = []  # that reads asked for

    def recv(self, size: int, *_: Any) -> bytes:
        self.sizes.append(size)
        if self.reads:
            raise self.reads.popleft()
        return super().recv(size)

    def send(self, data: Any, *_: Any) -> int:
        result = self.writes.popleft() if self.writes else len(data)
        if isinstance(result, OSError):
            raise result
        return super().send(memoryview(bytes(data))[:result])


class Door(socket.socket):
    """The listening socket; it gives faulty sockets, or an error."""

    def play(self) -> "Door":
        self.errors: deque[OSError] = deque()
        self.first_writes: list[OSError | int] = []
        return self

    def accept(self) -> tuple[socket.socket, Any]:
        if self.errors:
            raise self.errors.popleft()
        sock, address = super().accept()
        faulty = Faulty(sock.detach())
        faulty.writes += self.first_writes
        return faulty, address


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> list[Door]:
    """The listening sockets of the stands that a test makes."""
    made: list[Door] = []
    listen = module.listen_locally

    def listening(*arguments: Any) -> Door:
        made.append(Door(fileno=listen(*arguments).detach()).play())
        made[-1].setblocking(False)
        return made[-1]

    monkeypatch.setattr(module, "listen_locally", listening)
    return made


@pytest.fixture
def stand(door: list[Door], stack: ExitStack, tmp_path: Path) -> Stand:  # noqa: ARG001  (its socket is faulty)
    return Stand(stack, tmp_path / "s")


def theirs(stand: Stand, index: int = -1) -> tuple[module.Client, Faulty]:
    client = list(stand.socket._clients.values())[index]
    assert isinstance(client.sock, Faulty)
    return client, client.sock


def watched(stand: Stand) -> int:
    """How many sockets the selector has, the listener among them."""
    return len(stand.socket._selector.get_map())


# --- Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ECONNRESET, errno.ETIMEDOUT, errno.EBADF])
def test_a_read_that_fails_ends_this_client_alone(stand: Stand, number: int, caplog: pytest.LogCaptureFixture) -> None:
    """Its puts stay; no line is written."""
    other, failing = stand.client(), stand.client()
    failing.send(message("first"))
    stand.until(lambda: len(stand.bodies()) == 1)
    theirs(stand)[1].reads.append(error(number))
    failing.send(message("never read"))
    stand.until(lambda: len(stand.socket._clients) == 1)
    assert failing.receive()
    other.send(message("second"))
    assert other.statuses(1) == ["PUT_OK"]
    assert (stand.bodies(), watched(stand), lines(caplog, logging.WARNING)) == ([b"first", b"second"], 2, [])


def test_a_read_that_finds_nothing_changes_nothing(stand: Stand) -> None:
    """The selector may call a socket readable that is not."""
    client = stand.client()
    client.send_raw(b'{"topic')
    stand.until(lambda: theirs(stand)[0].line)
    since_s = theirs(stand)[0].since_s
    theirs(stand)[1].reads.append(AGAIN)
    client.send_raw(b'":')
    stand.until(lambda: not theirs(stand)[1].reads)
    client.send_raw(b'"t","body":"b"}\n')
    assert client.statuses(1) == ["PUT_OK"]
    assert theirs(stand)[0].since_s >= since_s


def test_answers_that_are_taken_in_parts_arrive_whole(stand: Stand) -> None:
    """While there is a rest, room to write is waited for; then no more."""
    client = stand.client()
    their, sock = theirs(stand)
    sock.writes += [5, AGAIN, 1, AGAIN, 7]
    client.send(message(), {"topic": "t"})
    assert client.statuses(2) == ["PUT_OK", "MESSAGE_ILLEGAL"]
    stand.until(lambda: their.events == selectors.EVENT_READ)
    assert their.out == b""


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ECONNRESET, errno.ENOBUFS])
@pytest.mark.parametrize("when", ["greeting", "answer"])
def test_a_write_that_fails_ends_this_client_alone(
    stand: Stand, door: list[Door], number: int, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = stand.client()
    if when == "greeting":
        door[0].first_writes.append(error(number))
        gone = stand.client(waits=False)
    else:
        gone = stand.client()
        theirs(stand)[1].writes.append(error(number))
        gone.send(message())
    stand.until(gone.receive)
    assert gone.lines() == []
    other.send(message())
    assert other.statuses(1) == ["PUT_OK"]
    assert (len(stand.socket._clients), watched(stand), lines(caplog, logging.WARNING)) == (1, 2, [])


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ECONNABORTED])
def test_an_accept_that_fails_is_tried_again(stand: Stand, door: list[Door], number: int) -> None:
    door[0].errors.append(error(number))
    client = stand.client()
    client.send(message())
    assert client.statuses(1) == ["PUT_OK"]
    assert (not door[0].errors, stand.socket._accepts, watched(stand)) == (True, True, 2)


@pytest.mark.parametrize("clients", [0, 1])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM], ids=errno.errorcode.get)
def test_without_descriptors_the_listener_is_left_alone_for_100_ms(
    stand: Stand, door: list[Door], caplog: pytest.LogCaptureFixture, number: int, clients: int
) -> None:
    """A client that waits keeps the listener readable: a loop that asked it again at once would never rest."""
    for _ in range(clients):
        stand.client()
    waiting = stand.client(waits=False)
    door[0].errors += [error(number), error(number)]
    for now_ms, left, has_room in (
        (5000, 1, False),
        (5099, 1, False),
        (5100, 0, False),  # asked again, and refused again
        (5199, 0, False),
        (5200, 0, True),
    ):
        stand.socket.on_readable()
        stand.socket.turn(now_ms)
        assert (len(door[0].errors), watched(stand)) == (left, clients + 2 * has_room)
        assert len(stand.socket._clients) == clients + has_room
    assert lines(caplog, logging.WARNING) == [f"{stand.store / SOCKET_NAME}: cannot accept: {error(number).strerror}"] * 2
    waiting.send(message())
    assert waiting.statuses(1) == ["PUT_OK"]


def test_a_listener_without_descriptors_does_not_wake_the_loop(stand: Stand, door: list[Door]) -> None:
    """Nor does the end of a client have it watched again before its time."""
    other = stand.client()
    stand.client(waits=False)
    door[0].errors.append(error(errno.EMFILE))
    stand.socket.on_readable()
    stand.socket.turn(5000)
    other.sock.close()
    stand.socket.on_readable()
    stand.socket.turn(5001)
    assert (stand.socket._clients, watched(stand), stand.socket._selector.select(0)) == ({}, 0, [])
    stand.socket.turn(5100)  # without a client, and without a socket that is ready
    assert watched(stand) == 1


@pytest.mark.parametrize(
    ("failure", "status", "told"),
    [
        (error(errno.EROFS), "SERVICE_NOT_AVAILABLE", "[Errno 30] Read-only file system"),
        (error(errno.EIO), "CREATE_MAPPED_FILE_FAILED", "[Errno 5] Input/output error"),
        (StoreFull("f", "0 bytes", "1 MiB"), "SERVICE_NOT_AVAILABLE", str(StoreFull("f", "0 bytes", "1 MiB"))),
    ],
)
def test_an_error_of_the_store_is_the_answer_to_its_line_alone(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, failure: Exception, status: str, told: str
) -> None:
    put, failures = stand.puts.put, [failure]

    def failing(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return put(*arguments)

    monkeypatch.setattr(stand.puts, "put", failing)
    client = stand.client()
    client.send(message("fails"), message("works"))
    first, second = client.answers(2)
    assert (first, second["status"]) == ({"status": status, "error": told}, "PUT_OK")


# --- What is read, and what is watched ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ready", "size"), [(1, 32_768), (2, 16_384), (3, 10_922), (8, 4096), (9, 4096), (15, 4096)])
def test_a_turn_reads_32_kib_from_all_and_4_kib_from_each(stand: Stand, ready: int, size: int) -> None:
    """A client that has sent nothing has no share of it."""
    clients = [stand.client() for _ in range(ready + 1)]
    socks = [theirs(stand, index)[1] for index in range(ready)]
    for client in clients[:ready]:
        client.send_raw(b"x")
    stand.socket.on_readable()
    stand.socket.turn(0)
    assert [sock.sizes[-1] for sock in socks] == [size] * ready


READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@pytest.mark.parametrize(
    ("ended", "pending", "out", "events"),
    [
        (False, 0, 0, READ),
        (False, 2, 0, READ),
        (False, 3, 0, 0),
        (False, 4, 0, 0),
        (False, 0, 9, READ | WRITE),
        (False, 0, 10, WRITE),
        (False, 3, 9, WRITE),
        (True, 1, 0, 0),
        (True, 0, 5, WRITE),
        (True, 1, 5, WRITE),
        (True, 0, 0, None),
    ],
)
def test_what_a_client_is_watched_for(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, ended: bool, pending: int, out: int, events: int | None
) -> None:
    """It is read from while it has less than 3 puts and 10 bytes of answers here. None: it is closed, as it is done."""
    monkeypatch.setattr(module, "MAX_PENDING", 3)
    monkeypatch.setattr(module, "MAX_OUT_SIZE", 10)
    stand.client()
    client, sock = theirs(stand)
    for _ in range(2):  # from nothing to these events, and once more
        client.ended = ended
        client.pending.extend([b"answer"] * (pending - len(client.pending)))
        client.out[:] = b"o" * out
        sock.writes.append(AGAIN)
        stand.socket._settle(client, 0.0)
        if events is None:
            assert (stand.socket._clients, sock.fileno()) == ({}, -1)
        else:
            found = {key.events for key in stand.socket._selector.get_map().values() if key.data is client}
            assert (client.events, found) == (events, {events} if events else set())
    client.pending.clear()


def test_lines_behind_a_line_that_was_too_long_are_taken_from_its_newline_on(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty line behind it is a line; its rest is none, even if the stream ends there."""
    monkeypatch.setattr(module, "MAX_LINE_SIZE", 50)
    client = stand.client()
    for data in (b"x" * 51, b"x" * 51, b"x\n\n", b"y" * 51):
        client.send_raw(data)
        read = len(theirs(stand)[1].sizes)
        stand.until(lambda read=read: len(theirs(stand)[1].sizes) >= read and theirs(stand)[0].line == b"")
        for _ in range(3):
            stand.turn()
    client.sock.shutdown(socket.SHUT_WR)
    stand.until(client.receive)
    too_long = "message line: found more than 50 bytes, expected at most 50"
    errors = [answer["error"] for answer in client.lines()]
    assert (len(errors), errors[0], errors[2]) == (3, too_long, too_long)
    assert errors[1] != too_long


# --- The end --------------------------------------------------------------------------------------------------------------


class Ending:
    """The end of a master, with a clock that only waits move."""

    def __init__(self, stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stand, self.now_s = stand, 500.0
        self.waits: list[float] = []
        self.steps: list[str] = []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(stand.socket._selector, "select", self._select)
        self._door = stand.socket._listener
        self.stand.finished = True  # by us

    def _select(self, timeout_s: float) -> list[Any]:
        self.waits.append(timeout_s)
        self.now_s += 0.4
        return []

    def __call__(self) -> None:
        assert self._door is not None
        fileno = self._door.fileno
        self.stand.socket.finish(lambda: self.steps.append(f"puts end, listener {fileno()}"))


def received(client: Client) -> bytes:
    client.receive()
    return client.received[client.received.index(b"\n") + 1 :]


def test_a_client_that_takes_nothing_has_a_second_at_the_end(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have their last line at once; the socket is closed before the puts end, and its name is removed."""
    quick, mute = stand.client(), stand.client()
    theirs(stand)[1].writes += [AGAIN] * 99
    end = Ending(stand, monkeypatch)
    end()
    assert end.steps == ["puts end, listener -1"]
    assert end.waits == pytest.approx([1.0, 0.6, 0.2])
    assert (received(quick), quick.receive()) == (LAST, True)
    assert (received(mute), mute.receive()) == (b"", True)
    assert (stand.socket._clients, (stand.store / SOCKET_NAME).exists()) == ({}, False)


@pytest.mark.parametrize("places", [3, 16])
def test_an_end_that_all_take_at_once_waits_for_nobody(stand: Stand, monkeypatch: pytest.MonkeyPatch, places: int) -> None:
    """Also if all places were taken: the first client that is closed makes room for none."""
    monkeypatch.setattr(module, "MAX_CLIENTS", places)
    clients = [stand.client() for _ in range(3)]
    end = Ending(stand, monkeypatch)
    end()
    assert (end.waits, [received(client) for client in clients]) == ([0], [LAST] * 3)


def test_an_end_without_clients_waits_for_nothing(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    end = Ending(stand, monkeypatch)
    end()
    assert (end.waits, end.steps) == ([], ["puts end, listener -1"])


def test_a_slow_client_has_all_its_last_answers(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    client = stand.client()
    their, sock = theirs(stand)
    sock.writes += [10, AGAIN]
    their.out += b'{"status":"PUT_OK"}\n'
    Ending(stand, monkeypatch)()
    assert received(client) == b'{"status":"PUT_OK"}\n' + LAST


def test_puts_that_no_slave_has_at_the_end_are_answered_and_counted(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quirk 33: classic leaves them without a status."""
    stand = Stand(stack, tmp_path / "s", BrokerRole.SYNC_MASTER)
    stand.slave()
    client = stand.client()
    client.send(message(), {"topic": "t"}, message())
    stand.until(lambda: stand.socket.waiting == 3)
    Ending(stand, monkeypatch)()
    found = [json.loads(line) for line in received(client).splitlines()]
    assert [line.get("status") for line in found] == ["FLUSH_SLAVE_TIMEOUT", "MESSAGE_ILLEGAL", "FLUSH_SLAVE_TIMEOUT", None]
    assert stand.socket._statuses[PutMessageStatus.FLUSH_SLAVE_TIMEOUT] == 2


@pytest.mark.parametrize("there", ["nothing", "a directory"])
def test_a_name_that_cannot_be_removed_is_one_line(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, there: str
) -> None:
    path = stand.store / SOCKET_NAME
    path.unlink()
    if there == "a directory":
        path.mkdir()
    Ending(stand, monkeypatch)()
    assert lines(caplog, logging.WARNING) == ([f"{path}: left behind: Is a directory"] if there == "a directory" else [])


def test_a_store_without_a_directory_is_said(stack: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stand = Stand(stack, tmp_path / "s")
    found = module.PutSocket(tmp_path / "gone", stand.puts)
    found.turn(0)
    found.finish(lambda: None)
    told = f"no puts are taken: [Errno 2] No such file or directory: {str(tmp_path / 'gone')!r}"
    assert lines(caplog, logging.WARNING) == [f"{tmp_path / 'gone' / SOCKET_NAME}: {told}"]


@pytest.mark.parametrize("is_flushed", [True, False], ids=("flushed", "not flushed"))
def test_a_put_that_the_last_flush_covers_is_told_so(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_flushed: bool
) -> None:
    """The puts end before they are answered: HA-G-45 "MUST flush once more for the puts that wait for the disk"."""
    stand = Stand(stack, tmp_path / "s", flush="sync")
    client = stand.client()
    may_flush, flush = threading.Event(), stand.log.flush

    def wait_and_flush(least_pages: int = 0) -> int:
        assert may_flush.wait(PATIENCE_S)
        if not is_flushed:
            raise error(errno.EIO)
        return flush(least_pages)

    monkeypatch.setattr(stand.log, "flush", wait_and_flush)
    client.send(message(), message())
    stand.until(lambda: stand.socket.waiting == 2)

    def end_puts() -> None:
        may_flush.set()
        end_all(stand.master, stand.puts, ())

    stand.finished = True
    stand.socket.finish(end_puts)
    expected = "PUT_OK" if is_flushed else "FLUSH_DISK_TIMEOUT"
    assert [json.loads(line).get("status") for line in received(client).splitlines()] == [expected, expected, None]
