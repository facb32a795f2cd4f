"""Each error of the system, at each call on a socket, becomes the one line of the part that met it.

The errors are those of a resolver, of a network, of a peer that is gone, and of a process without descriptors.
"""

import errno
import os
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from kit.command_line import invoke
from kit.option_tables import TAIL_BY_DEFAULT
from rocketmq_ha.impl.app.endpoints import MasterEndpoint
from rocketmq_ha.impl.app.tail import run_tail
from rocketmq_ha.impl.net import client as client_module
from rocketmq_ha.impl.net.broker_info import NotTold, ask_broker
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, Unreachable
from rocketmq_ha.impl.net.remote_status import ask_remote
from rocketmq_ha.impl.net.status_socket import NotRunning
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.profile import HARDENED, Settings

ADDRESS: Final = ("broker-a", 10911)


def of_number(number: int) -> OSError:
    return OSError(number, os.strerror(number))


# Name -> the error, and its text in a line.
AT_CONNECT: Final[dict[str, tuple[OSError, str]]] = {
    "no such name": (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
    "no resolver": (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "Temporary failure"),
    "no answer": (TimeoutError("timed out"), "timed out"),
    **{
        errno.errorcode[number]: (of_number(number), os.strerror(number))
        for number in (
            *(errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT),
            *(errno.EADDRNOTAVAIL, errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOBUFS),
        )
    },
}
LATER: Final = {
    errno.errorcode[number]: (of_number(number), os.strerror(number))
    for number in (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOBUFS)
}
at_connect = pytest.mark.parametrize(("error", "text"), AT_CONNECT.values(), ids=AT_CONNECT)
later = pytest.mark.parametrize(("error", "text"), LATER.values(), ids=LATER)


class Failing:
    """A connection on which one call fails; what it is sent, it takes."""

    def __init__(self, call: str, error: OSError) -> None:
        self.call, self.error, self.closed = call, error, False

    def _do(self, call: str) -> None:
        if call == self.call:
            raise self.error

    def settimeout(self, _: float) -> None: ...
    def setblocking(self, _: bool) -> None: ...
    def setsockopt(self, *_: int) -> None:
        self._do("setsockopt")

    def sendall(self, data: bytes) -> None:
        self.send(data)

    def send(self, data: bytes) -> int:
        self._do("send")
        return len(data)

    def recv(self, _: int) -> bytes:
        self._do("recv")
        return b""

    def recv_into(self, _: memoryview) -> int:
        self._do("recv")
        return 0

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> "Failing":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, OSError], Failing]:
    """Make connections fail at a call."""

    def make(call: str, error: OSError) -> Failing:
        sock = Failing(call, error)

        def connect(*_: object, **__: object) -> Failing:
            if call == "connect":
                raise error
            return sock

        monkeypatch.setattr(socket, "create_connection", connect)
        return sock

    return make


At = Callable[[str, OSError], Failing]


@at_connect
def test_a_broker_that_cannot_be_connected_to(at: At, error: OSError, text: str) -> None:
    at("connect", error)
    with pytest.raises(NotTold) as told:
        ask_broker(ADDRESS)
    assert str(told.value) == f"broker-a:10911: {text}"


@later
@pytest.mark.parametrize("call", ["send", "recv"])
def test_a_broker_that_is_lost(at: At, call: str, error: OSError, text: str) -> None:
    """A socket's own time-out is no error: the deadline ends the wait."""
    sock = at(call, error)
    silent = isinstance(error, TimeoutError) and call == "recv"
    with pytest.raises(NotTold) as told:
        ask_broker(ADDRESS, timeout_s=0.0 if silent else 5.0)
    assert str(told.value) == ("broker-a:10911: does not answer" if silent else f"broker-a:10911: {text}")
    assert sock.closed


@at_connect
def test_a_master_that_cannot_be_connected_to(at: At, error: OSError, text: str) -> None:
    at("connect", error)
    with pytest.raises(Unreachable) as told:
        MasterFeed(ADDRESS, 0)
    assert str(told.value) == f"broker-a:10911: cannot connect: {text}"


@later
@pytest.mark.parametrize("call", ["send", "recv"])
def test_a_master_that_is_lost(at: At, call: str, error: OSError, text: str) -> None:
    sock = at(call, error)
    with pytest.raises(FeedEnded) as told:
        MasterFeed(ADDRESS, 0).read()
    assert str(told.value) == f"broker-a:10911: connection lost: {text}"
    assert sock.closed == (call == "send")  # else its user closes it


@at_connect
def test_a_process_whose_metrics_cannot_be_read(at: At, error: OSError, text: str) -> None:
    at("connect", error)
    silent = isinstance(error, TimeoutError)
    with pytest.raises(NotRunning) as told:
        ask_remote(ADDRESS)
    expected = ": expected the address of --metrics of a master or slave"
    assert str(told.value) == "broker-a:10911: " + (
        "no answer for 10 s, expected the address of --metrics" if silent else f"{text}{expected}"
    )


@at_connect
def test_a_slave_tries_again(
    at: At, error: OSError, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    at("connect", error)
    caplog.set_level("INFO")
    waits: list[Any] = []
    with CommitLog.open(tmp_path, file_size=4096) as log:
        follower = Follower(log, *ADDRESS, Settings(4096), HARDENED)
        monkeypatch.setattr(client_module.BackOff, "wait", lambda *_: waits.append(1))
        follower.run(lambda: len(waits) == 2)
    assert follower.failed_connects == 2
    level, what = (
        ("WARNING", "the host's name cannot be resolved") if isinstance(error, socket.gaierror) else ("INFO", "cannot connect")
    )
    assert (caplog.records[0].levelname, caplog.records[0].getMessage().partition("; ")[0]) == (
        level,
        f"broker-a:10911: {what}: {text}",
    )


# --- The commands --------------------------------------------------------------------------------------------------------

COMMANDS: Final[dict[str, tuple[tuple[str, ...], int]]] = {
    "doctor of a master": (("doctor", "--master", "broker-a:10911"), 1),
    "doctor of a broker": (("doctor", "--master", "broker-a:10911", "--broker", "broker-b:10911"), 1),
    "status": (("status", "--from", "broker-a:10911"), 2),
}


@at_connect
@pytest.mark.parametrize(("words", "status"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_that_cannot_connect_ends_with_its_status_and_the_reason(
    at: At, error: OSError, text: str, words: tuple[str, ...], status: int
) -> None:
    at("connect", error)
    result = invoke(*words)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == status
    shown = " ".join(result.output.split())
    silent = isinstance(error, TimeoutError) and words[0] == "status"
    assert ("no answer for 10 s" if silent else text) in shown
    assert shown.count("broker-b:10911: " + text) == ("--broker" in words)
    assert result.stderr.count("\n") == (0 if words[0] == "doctor" else 1)


@at_connect
@pytest.mark.parametrize("start", ["last", "min", "end", 5])
def test_a_tail_that_never_connected_ends(at: At, error: OSError, text: str, start: str | int) -> None:
    at("connect", error)
    options = replace(TAIL_BY_DEFAULT, master=MasterEndpoint(*ADDRESS), start=start)
    with pytest.raises(Unreachable, match=re.escape(f"broker-a:10911: cannot connect: {text}")):
        run_tail(options)
