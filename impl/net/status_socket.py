"""A running process tells how it stands, to whoever may open its store: a Unix socket in the store's directory, mode 0600.

A client connects, and gets one JSON object and the end of the stream; it need not say anything. The process serves it from its
own loop, between two turns, so no other thread looks at the log.

How such a socket gets its address and its mode: local_socket.py.
"""

import json
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.impl.errors import ConfigInvalid, RocketmqHaError
from rocketmq_ha.impl.net.local_socket import listen_locally, local_address
from rocketmq_ha.impl.net.pause import Deadline

SOCKET_NAME: Final = "rocketmq-ha.sock"
_CLIENTS: Final = 8
_GIVE_UP_S: Final = 5.0
_TURN_S: Final = 0.1  # how often who asks looks at the time
_ANSWER_S: Final = 10.0  # a slave that is connecting looks at its socket every 5 s

log = logging.getLogger(__name__)


class NotRunning(RocketmqHaError):  # noqa: N818  (says whose fault it is)
    """No process serves the store."""


class StatusSocket:
    """The server's end. `poll` often; `close` at the end."""

    def __init__(self, store_dir: Path, snapshot: Callable[[], dict[str, Any]]) -> None:
        """Listen; where that cannot be, say so in the log and do nothing: no replication stops for the want of a status.

        The caller has the store's lock.
        """
        self._store_dir, self._snapshot = store_dir, snapshot
        self._clients: list[tuple[socket.socket, memoryview, float]] = []
        self._listener: socket.socket | None = None
        try:
            self._listener = listen_locally(store_dir, SOCKET_NAME, _CLIENTS)
        except (OSError, ConfigInvalid) as error:
            log.warning("%s: no status is served: %s", store_dir / SOCKET_NAME, error)

    def poll(self) -> None:
        """Answer who has come; never wait."""
        if self._listener is None:
            return
        if len(self._clients) < _CLIENTS:
            try:
                client, _ = self._listener.accept()
            except OSError:
                pass
            else:
                client.setblocking(False)
                answer = memoryview(json.dumps(self._snapshot()).encode() + b"\n")
                self._clients.append((client, answer, time.monotonic() + _GIVE_UP_S))
        if self._clients:
            self._clients = [left for client in self._clients if (left := _send(*client)) is not None]

    def close(self) -> None:
        """Take the socket away."""
        if self._listener is None:
            return
        for client, _, _ in self._clients:
            client.close()
        self._listener.close()
        self._listener = None
        try:
            (self._store_dir / SOCKET_NAME).unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s: left behind: %s", self._store_dir / SOCKET_NAME, error.strerror or error)


def _send(client: socket.socket, answer: memoryview, until: float) -> tuple[socket.socket, memoryview, float] | None:
    """Send what goes. Returns: what is left, if anything is."""
    now = time.monotonic()  # before the look at the socket (HA-T-20)
    try:
        answer = answer[client.send(answer) :]
    except BlockingIOError:
        pass
    except OSError:
        answer = answer[:0]
    if len(answer) and now < until:
        return client, answer, until
    client.close()
    return None


def ask(store_dir: Path, timeout_s: float = _ANSWER_S) -> dict[str, Any]:
    """How the process that has a store open stands. Raises: NotRunning, ConfigInvalid, OSError."""
    if not store_dir.is_dir():
        found = "not a directory" if store_dir.exists() else "no such directory"
        raise ConfigInvalid(f"{store_dir}: {found}, expected the root of a store")
    answer = bytearray()
    with local_address(store_dir, SOCKET_NAME) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_TURN_S)
        deadline = Deadline(timeout_s)
        try:
            client.connect(address)
            while data := _receive(client, deadline):
                answer += data
        except FileNotFoundError:
            raise NotRunning(f"{store_dir}: no process serves it: there is no {SOCKET_NAME} in it") from None
        except ConnectionRefusedError:
            raise NotRunning(f"{store_dir}: no process serves it: {SOCKET_NAME} is what a killed one has left") from None
        except TimeoutError:
            raise NotRunning(
                f"{store_dir}: its process has not answered for {timeout_s:g} s; it hangs, or is stopped"
            ) from None
        except PermissionError:
            raise ConfigInvalid(f"{store_dir / SOCKET_NAME}: only the user whose process it is may ask") from None
    try:
        found = json.loads(answer)
        assert isinstance(found, dict)
    except (ValueError, AssertionError):
        raise NotRunning(f"{store_dir}: its process ended in the middle of its answer") from None
    return found


def _receive(client: socket.socket, deadline: Deadline) -> bytes:
    """What comes next. Raises: TimeoutError; what a socket raises."""
    while not deadline.has_passed():
        with suppress(TimeoutError):
            return client.recv(1 << 16)
    raise TimeoutError
