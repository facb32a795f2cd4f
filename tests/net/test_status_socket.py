"""The status socket's serving end: clients that hang up, read slowly, read nothing or wait for a place, and each error."""

import errno
import json
import logging
import os
import socket
import stat
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.played import AGAIN, PlayedSocket, Result, error
from kit.stage import lines
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net import local_socket
from rocketmq_ha.impl.net import status_socket as module
from rocketmq_ha.impl.net.local_socket import listen_locally, local_address
from rocketmq_ha.impl.net.status_socket import SOCKET_NAME, StatusSocket

ANSWER = b'{"turn": 1}\n'


class Asker(PlayedSocket):
    """A client that was accepted."""

    def __init__(self, *writes: Result) -> None:
        super().__init__((), writes)
        self.blocks = True

    def setblocking(self, blocks: bool) -> None:
        self.blocks = blocks


class Door:
    """A listening socket whose accepts give what the test lists; behind the last one nothing waits."""

    def __init__(self) -> None:
        self.results: deque[Asker | OSError] = deque()
        self.asked = self.closed = 0

    def accept(self) -> tuple[Asker, str]:
        self.asked += 1
        result = self.results.popleft() if self.results else AGAIN
        if isinstance(result, OSError):
            raise result
        return result, ""

    def close(self) -> None:
        self.closed += 1


class Serving:
    """A status socket with a played door and clock. Its status says how often it was made."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.door, self.made = 50.0, Door(), 0
        self.asked_for: list[tuple[Any, ...]] = []
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(module, "listen_locally", self._listen)
        self.socket = StatusSocket(directory, self._snapshot)

    def _listen(self, *arguments: Any) -> Door:
        self.asked_for.append(arguments)
        return self.door

    def _snapshot(self) -> dict[str, Any]:
        self.made += 1
        return {"turn": self.made}

    def poll(self, *clients: Asker | OSError) -> int:
        """Run a turn in which these wait. Returns: how many clients have not had their whole answer."""
        self.door.results += clients
        self.socket.poll()
        return len(self.socket._clients)


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serving:
    return Serving(tmp_path, monkeypatch)


def test_eight_clients_may_wait_at_the_socket_of_the_store(serving: Serving, tmp_path: Path) -> None:
    assert serving.asked_for == [(tmp_path, "rocketmq-ha.sock", 8)]


@pytest.mark.parametrize(
    ("writes", "sent", "left"),
    [
        ((), ANSWER, [0]),
        ((5, AGAIN, 6, 1), ANSWER, [1, 1, 1, 0]),
        ((11, 1), ANSWER, [1, 0]),
        ((AGAIN, AGAIN), ANSWER, [1, 1, 0]),
        ((error(errno.EPIPE),), b"", [0]),
        ((5, error(errno.ECONNRESET)), ANSWER[:5], [1, 0]),
        ((5, error(errno.ENOBUFS)), ANSWER[:5], [1, 0]),
    ],
    ids=["at once", "slowly", "but for a byte", "late", "hangs up", "resets", "no buffer"],
)
def test_a_client_has_its_answer_once_and_is_closed(
    serving: Serving, writes: tuple[Result, ...], sent: bytes, left: list[int]
) -> None:
    client = Asker(*writes)
    assert [serving.poll(client), *(serving.poll() for _ in left[1:])] == left
    assert (bytes(client.sent), client.closed, client.blocks, serving.made) == (sent, 1, False, 1)
    assert serving.poll() == 0  # it is asked for nothing more
    assert client.calls.count("send") == len(left)


def test_a_client_that_takes_nothing_is_given_up_after_5_s(serving: Serving) -> None:
    """Its place is free again; another client's time is its own."""
    mute, late = Asker(*[AGAIN] * 9), Asker(*[AGAIN] * 9)
    assert serving.poll(mute) == 1
    serving.now_s += 2.0
    assert serving.poll(late) == 2
    serving.now_s += 2.75
    assert (serving.poll(), mute.closed) == (2, 0)
    serving.now_s += 0.25
    assert (serving.poll(), mute.closed, late.closed) == (1, 1, 0)
    serving.now_s += 2.0
    assert (serving.poll(), late.closed, bytes(mute.sent)) == (0, 1, b"")


def test_what_a_client_takes_in_the_last_moment_counts(serving: Serving) -> None:
    """HA-T-20: the clock is read, then the socket is used, then the client is given up."""
    whole, part = Asker(AGAIN, len(ANSWER)), Asker(AGAIN, 5)
    serving.poll(whole)
    serving.poll(part)
    serving.now_s += 5.0
    assert serving.poll() == 0
    assert (whole.sent, part.sent, whole.closed, part.closed) == (ANSWER, b'{"tur', 1, 1)


def test_eight_clients_are_served_and_the_others_wait(serving: Serving) -> None:
    """One is accepted in a turn. No status is made for a client that waits for a place."""
    counts = [serving.poll(*(Asker(*[AGAIN] * 99) for _ in range(9))), *(serving.poll() for _ in range(9))]
    assert (counts, serving.door.asked) == ([1, 2, 3, 4, 5, 6, 7, 8, 8, 8], 8)
    assert (serving.made, len(serving.door.results)) == (8, 1)
    serving.now_s += 5.0
    assert (serving.poll(), serving.door.asked) == (0, 8)
    assert (serving.poll(), serving.door.asked, serving.made) == (1, 9, 9)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EMFILE, errno.ECONNABORTED])
def test_an_accept_that_fails_holds_up_nobody(serving: Serving, caplog: pytest.LogCaptureFixture, number: int) -> None:
    client = Asker(4)
    assert serving.poll(client) == 1
    assert serving.poll(error(number)) == 0
    assert (client.sent, serving.made, caplog.records) == (ANSWER, 1, [])
    assert serving.poll(Asker()) == 0
    assert serving.made == 2


def test_the_end_closes_who_waits_and_may_come_twice(serving: Serving, tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).touch()
    clients = [Asker(AGAIN), Asker(AGAIN)]
    for client in clients:
        serving.poll(client)
    serving.socket.close()
    assert [client.closed for client in clients] == [1, 1]
    assert (serving.door.closed, (tmp_path / SOCKET_NAME).exists()) == (1, False)
    (tmp_path / SOCKET_NAME).touch()  # of the next process
    serving.socket.close()
    asked = serving.door.asked
    serving.socket.poll()
    assert (serving.door.closed, serving.door.asked, (tmp_path / SOCKET_NAME).exists()) == (1, asked, True)


@pytest.mark.parametrize("there", ["nothing", "a directory"])
def test_a_name_that_cannot_be_removed_is_one_line(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture, there: str
) -> None:
    """A socket that is gone already is not mentioned."""
    path = tmp_path / SOCKET_NAME
    if there == "a directory":
        path.mkdir()
    serving.socket.close()
    assert lines(caplog, logging.WARNING) == ([f"{path}: left behind: Is a directory"] if there == "a directory" else [])


@pytest.mark.parametrize("why", ["is no socket", "no directory"])
def test_a_process_without_status_says_so_once_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str) -> None:
    if why == "is no socket":
        (tmp_path / SOCKET_NAME).write_text("mine")
        told, store = "something that is no socket has its name", tmp_path
    else:
        store = tmp_path / "gone"
        told = f"[Errno 2] No such file or directory: {str(store)!r}"
    serving = StatusSocket(store, dict)
    serving.poll()
    serving.close()
    assert lines(caplog, logging.WARNING) == [f"{store / SOCKET_NAME}: no status is served: {told}"]
    assert why == "no directory" or (tmp_path / SOCKET_NAME).read_text() == "mine"


def test_the_status_is_one_line_of_json(tmp_path: Path) -> None:
    """Over a real socket; a client that sends something has its answer too."""
    serving = StatusSocket(tmp_path, lambda: {"certificate": "CN=ü", "puts": {"PUT_OK": 3}})
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, local_address(tmp_path, SOCKET_NAME) as address:
        client.settimeout(60)
        client.connect(address)
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        serving.poll()
        answer = client.recv(1000)
    serving.close()
    assert (answer.count(b"\n"), answer[-1:]) == (1, b"\n")
    assert json.loads(answer) == {"certificate": "CN=ü", "puts": {"PUT_OK": 3}}


# --- The address ----------------------------------------------------------------------------------------------------------


def test_a_socket_is_its_users_alone_and_replaces_one_that_was_left(tmp_path: Path) -> None:
    """The mask of the process is as before, also behind an error."""
    before = os.umask(0o022)
    try:
        for _ in range(2):
            with listen_locally(tmp_path, "s", 3) as listener:
                assert stat.S_IMODE((tmp_path / "s").lstat().st_mode) == 0o600
                assert not listener.getblocking()
        with pytest.raises(OSError, match="AF_UNIX path too long"):
            listen_locally(tmp_path, "s" * 200, 3)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_socket_has_its_name_once_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that comes earlier would be refused, and say that a killed process has left the socket."""

    class Listener(socket.socket):
        def listen(self, backlog: int = 0, /) -> None:
            assert not os.path.lexists(tmp_path / "s")
            super().listen(backlog)

    (tmp_path / "s~").touch()  # of a process that was killed in between
    monkeypatch.setattr(local_socket.socket, "socket", Listener)
    with listen_locally(tmp_path, "s", 3):
        assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    """A link too, even one to a socket: what it names belongs to somebody else."""
    path = tmp_path / "s"
    with listen_locally(tmp_path, "other", 1):
        if kind == "link":
            path.symlink_to(tmp_path / "other")
        else:
            path.mkdir() if kind == "directory" else path.touch()
        with pytest.raises(ConfigInvalid, match=r"^something that is no socket has its name$"):
            listen_locally(tmp_path, "s", 1)
    assert os.path.lexists(path)


@pytest.mark.parametrize("more", [0, 1])
def test_without_proc_an_address_has_107_bytes(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """Bytes, not characters."""
    monkeypatch.setattr(local_socket, "Path", lambda text: SimpleNamespace(is_dir=lambda: False) if "proc" in text else None)
    store = Path("/s")
    name = "ü" + "x" * (107 - 5 + more)
    address = f"/s/{name}"
    assert len(address.encode()) == 107 + more
    if more:
        with (
            pytest.raises(ConfigInvalid, match=rf"^{address}: longer than 107 bytes, the longest address of a socket$"),
            local_address(store, name),
        ):
            pass
    else:
        with local_address(store, name) as found:
            assert found == address


def test_an_address_holds_a_descriptor_while_it_is_used(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), local_address(tmp_path, "s") as address:
        fd = int(address.split("/")[-2])
        assert Path(f"/proc/self/fd/{fd}").readlink() == tmp_path
        raise ZeroDivisionError
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
