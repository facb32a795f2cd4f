"""What those who ask a broker, a status or a socket for puts make of each answer, and the one line that they say."""

import errno
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.limits import Clock
from kit.played import error
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net import broker_info, pause, put_client, remote_status, status_socket
from rocketmq_ha.impl.net.broker_info import BrokerInfo, NotTold, ask_broker
from rocketmq_ha.impl.net.figures import FORMAT
from rocketmq_ha.impl.net.remote_status import ask_remote
from rocketmq_ha.impl.net.status_socket import NotRunning, ask

PEER = ("10.0.0.7", 10911)


def answering(data: bytes, *, ends: bool = True) -> socket.socket:
    """A connected socket at which an answer waits. ends: the other end has closed behind it."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    theirs.settimeout(PATIENCE_S)
    theirs.sendall(data)
    if ends:
        theirs.shutdown(socket.SHUT_WR)
    KEPT.extend((ours, theirs))  # a closed end would make our writes fail
    return ours


KEPT: list[socket.socket] = []
NO_STATUS = f"found no status of format {FORMAT} under /status (HTTP 200)"


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while KEPT:
        KEPT.pop().close()


# --- A broker -------------------------------------------------------------------------------------------------------------


def frame(header: object, body: bytes = b"") -> bytes:
    data = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (4 + len(data) + len(body)).to_bytes(4, "big") + len(data).to_bytes(4, "big") + data + body


TABLE = frame({"code": 0}, b'{"table": {"bootTimestamp": 17, "brokerVersionDesc": "V4_9_8"}}')
RUNTIME = {"bootTimestamp": "17", "brokerVersionDesc": "V4_9_8"}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (frame({"code": 0}, b"a=1\nb=x=y\nno sign\n=empty\n"), {"a": "1", "b": "x=y", "": "empty"}),
        (frame({"code": 16, "remark": "no permission"}), {}),
        (b"", {}),
    ],
)
def test_a_broker_tells_its_figures_and_perhaps_its_configuration(
    monkeypatch: pytest.MonkeyPatch, config: bytes, found: dict[str, str]
) -> None:
    sock = answering(TABLE + config)
    monkeypatch.setattr(broker_info, "connect", lambda *_, **__: sock)
    assert ask_broker(PEER) == BrokerInfo(RUNTIME, found)
    sent = KEPT[-1].recv(10_000)
    codes = []
    while sent:
        size = int.from_bytes(sent[:4], "big")
        asked = json.loads(sent[8 : 4 + size])
        assert len(sent[8 : 4 + size]) == int.from_bytes(sent[4:8], "big")
        codes.append((asked["code"], asked["opaque"], asked["flag"], asked["serializeTypeCurrentRPC"]))
        sent = sent[4 + size :]
    assert codes == [(28, 28, 0, "JSON"), (26, 26, 0, "JSON")]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "closes the connection instead of an answer"),
        (TABLE[:30], "closes the connection instead of an answer"),
        ((3).to_bytes(4, "big"), "found an answer of 3 bytes, expected a remoting frame of at most 16777216"),
        ((16777217).to_bytes(4, "big"), "found an answer of 16777217 bytes, expected a remoting frame of at most 16777216"),
        ((4).to_bytes(4, "big") + bytes(4), "found an answer that is no JSON header, expected a broker's"),
        (frame(b"no JSON"), "found an answer that is no JSON header, expected a broker's"),
        (frame({"remark": "x"}), "found an answer that is no JSON header, expected a broker's"),
        (frame([0]), "found an answer that is no JSON header, expected a broker's"),
        (
            frame({"code": 3, "remark": "no"}),
            "answers request 28 (GET_BROKER_RUNTIME_INFO) with 3 (REQUEST_CODE_NOT_SUPPORTED): no",
        ),
        (frame({"code": 0}, b"{}"), "found figures of another form, expected a table in JSON"),
        (frame({"code": 0}, b'{"table": [1]}'), "found figures of another form, expected a table in JSON"),
        (frame({"code": 0}, b"a=b"), "found figures of another form, expected a table in JSON"),
    ],
)
def test_what_is_no_brokers_answer_is_said(monkeypatch: pytest.MonkeyPatch, data: bytes, told: str) -> None:
    sock = answering(data)
    monkeypatch.setattr(broker_info, "connect", lambda *_, **__: sock)
    with pytest.raises(NotTold) as found:
        ask_broker(PEER)
    assert str(found.value) == f"10.0.0.7:10911: {told}"
    assert sock.fileno() == -1


def test_a_broker_that_is_silent_or_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(pause, "clock_ms", clock)
    monkeypatch.setattr(broker_info, "_TURN_S", 0.001)
    sock = answering(b"", ends=False)
    asked = broker_info.Deadline.has_passed

    def passing(deadline: Any) -> bool:
        clock.ms += 500
        return asked(deadline)

    monkeypatch.setattr(broker_info.Deadline, "has_passed", passing)
    monkeypatch.setattr(broker_info, "connect", lambda *_, **__: sock)
    began = clock.ms
    with pytest.raises(NotTold, match=r"^10\.0\.0\.7:10911: does not answer$"):
        ask_broker(PEER, 5.0)
    assert clock.ms - began == 6000  # strictly more than five seconds, and one more look

    def refuse(*_: Any, **__: Any) -> None:
        raise error(errno.ECONNREFUSED)

    monkeypatch.setattr(broker_info, "connect", refuse)
    with pytest.raises(NotTold, match=r"^10\.0\.0\.7:10911: Connection refused$"):
        ask_broker(PEER)


# --- A status -------------------------------------------------------------------------------------------------------------


def http_answer(body: bytes, code: int = 200) -> bytes:
    return f"HTTP/1.1 {code} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (http_answer(json.dumps({"format": FORMAT, "role": "master"}).encode()), None),
        (http_answer(json.dumps({"format": FORMAT + 1}).encode()), NO_STATUS),
        (http_answer(json.dumps({"format": FORMAT}).encode(), 404), NO_STATUS.replace("200", "404")),
        (http_answer(b"[]"), NO_STATUS),
        (http_answer(b"{"), NO_STATUS),
        (b"\0\1\2\r\n", "found no HTTP (BadStatusLine), expected the address of --metrics"),
        (error(errno.ECONNREFUSED), "Connection refused: expected the address of --metrics of a master or slave"),
        (TimeoutError("timed out"), "no answer for 7 s, expected the address of --metrics"),
    ],
)
def test_a_status_of_another_machine_is_read_or_said_to_be_none(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | OSError, told: str | None
) -> None:
    def connect(connection: http.client.HTTPConnection) -> None:
        if isinstance(answer, OSError):
            raise answer
        connection.sock = answering(answer)

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    if told is None:
        assert ask_remote(PEER, 7) == {"format": FORMAT, "role": "master"}
        assert KEPT[-1].recv(1000).startswith(b"GET /status HTTP/1.1\r\n")
        return
    with pytest.raises(NotRunning) as found:
        ask_remote(PEER, 7)
    assert str(found.value) == f"10.0.0.7:10911: {told}"
    assert remote_status.STATUS_PATH == "/status"


@pytest.mark.parametrize(
    ("failure", "kind", "told"),
    [
        (FileNotFoundError(), NotRunning, "{store}: no process serves it: there is no rocketmq-ha.sock in it"),
        (ConnectionRefusedError(), NotRunning, "{store}: no process serves it: rocketmq-ha.sock is what a killed one has left"),
        (TimeoutError(), NotRunning, "{store}: its process has not answered for 2.5 s; it hangs, or is stopped"),
        (PermissionError(), ConfigInvalid, "{store}/rocketmq-ha.sock: only the user whose process it is may ask"),
    ],
)
def test_a_status_that_cannot_be_asked_for_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: OSError, kind: type[Exception], told: str
) -> None:
    class Refusing(socket.socket):
        def connect(self, *_: Any) -> None:
            raise failure

    fake = SimpleNamespace(socket=Refusing, AF_UNIX=socket.AF_UNIX, SOCK_STREAM=socket.SOCK_STREAM)
    monkeypatch.setattr(status_socket, "socket", fake)
    with pytest.raises(kind) as found:
        ask(tmp_path, 2.5)
    assert str(found.value) == told.format(store=tmp_path)


@pytest.mark.parametrize("answer", [b"", b'{"role": ', b"[1]\n"])
def test_half_a_status_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes) -> None:
    class Answering(socket.socket):
        def connect(self, *_: Any) -> None:
            pass

        def recv(self, *_: Any) -> bytes:
            data, self.left = getattr(self, "left", answer), b""
            return bytes(data)

    fake = SimpleNamespace(socket=Answering, AF_UNIX=socket.AF_UNIX, SOCK_STREAM=socket.SOCK_STREAM)
    monkeypatch.setattr(status_socket, "socket", fake)
    with pytest.raises(NotRunning) as found:
        ask(tmp_path)
    assert str(found.value) == f"{tmp_path}: its process ended in the middle of its answer"


# --- A socket for puts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"rocketmq_ha_put": 1, "max_line_size": 7, "max_in_flight": 9}\n', None),
        (b'{"rocketmq_ha_put": 2, "max_line_size": 7, "max_in_flight": 9}\n', "found b'"),
        (b'{"rocketmq_ha_put": 1, "max_line_size": 7}\n', "found b'"),
        (b"[]\n", "found b'[]\\n', expected a master's socket for puts, version 1"),
        (b"x" * 5000, "found b'" + "x" * 40 + "', expected a master's socket for puts, version 1"),
        (b'{"rocketmq_ha_put"', "the master has ended, or does not take puts there"),
        (b"", "the master has ended, or does not take puts there"),
    ],
)
def test_a_greeting_is_read_to_its_newline_and_no_further(line: bytes, told: str | None) -> None:
    sock = answering(line + b"answers" if told is None else line)
    path = Path("s/put.sock")
    if told is None:
        assert put_client._greeting(sock, path) == {"max_line_size": 7, "max_in_flight": 9}
        assert sock.recv(100) == b"answers"
        return
    with pytest.raises((NotRunning, ConfigInvalid)) as found:
        put_client._greeting(sock, path)
    assert str(found.value).startswith(f"s/put.sock: {told}")
    assert len(line) < 4096 or len(sock.recv(5000)) == len(line) - 4096


def test_what_is_no_socket_for_puts_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for target, told in (
        (tmp_path / "none" / "x", "no such file or directory, expected a store, or the socket rocketmq-ha-put.sock in one"),
        (tmp_path / "file", "found something that is no socket, expected that of a master for puts"),
        (tmp_path / "other", "no such file, expected a master's socket for puts"),
    ):
        with pytest.raises(ConfigInvalid) as found:
            put_client.connect(target)
        assert str(found.value) == f"{target}: {told}"
    with pytest.raises(NotRunning, match="no process serves it: there is no"):
        put_client.connect(tmp_path)


@pytest.mark.parametrize(
    ("role", "told"),
    [
        ("slave", "{store}: its process is a slave, which takes no puts: put to its master (HA-R-5)"),
        ("master", "{store}: its master has no rocketmq-ha-put.sock; its log says why"),
    ],
)
def test_why_a_store_takes_no_puts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, role: str, told: str) -> None:
    monkeypatch.setattr(status_socket, "ask", lambda _: {"role": role})
    with pytest.raises(NotRunning) as found:
        put_client.connect(tmp_path)
    assert str(found.value) == told.format(store=tmp_path)
