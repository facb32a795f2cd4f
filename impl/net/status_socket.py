"""The status socket of a running master or slave: a Unix socket of mode 0600 in the store's directory.

A client connects, sends nothing, and receives one JSON object and the end of the stream. The process answers from its own loop,
between two turns, so that no other thread reads the log. local_socket.py makes the address and sets the mode.
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
_TURN_S: Final = 0.1  # timeout of one recv of the client: the deadline is checked this often
_ANSWER_S: Final = 10.0  # a slave that is connecting polls this socket every 5 s only

log = logging.getLogger(__name__)


class NotRunning(RocketmqHaError):  # noqa: N818  (says whose fault it is)
    """No process serves the store."""


class StatusSocket:
    """The server's end. Call `poll` in every turn of the loop, and `close` at the end."""

    def __init__(self, store_dir: Path, snapshot: Callable[[], dict[str, Any]]) -> None:
        """Listen. If that fails, log it and serve no status: replication goes on without it.

        The caller holds the store's lock.
        """
        self._store_dir, self._snapshot = store_dir, snapshot
        self._clients: list[tuple[socket.socket, memoryview, float]] = []
        self._listener: socket.socket | None = None
        try:
            self._listener = listen_locally(store_dir, SOCKET_NAME, _CLIENTS)
        except (OSError, ConfigInvalid) as error:
            log.warning("%s: no status is served: %s", store_dir / SOCKET_NAME, error)

    def poll(self) -> None:
        """Accept a client and send answers, without waiting."""
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
        """Close the clients and remove the socket."""
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
    """Send as much as the socket takes. Returns: the client with the rest of its answer; None if it is done, and closed."""
    now = time.monotonic()  # read before the socket is used (HA-T-20)
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
    """Ask the process that serves a store for its status. Raises: NotRunning, ConfigInvalid, OSError."""
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
        except ConnectionResetError:
            raise NotRunning(f"{store_dir}: its process ended before it answered") from None
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
    """Receive until the deadline. Raises: TimeoutError; OSError."""
    while not deadline.has_passed():
        with suppress(TimeoutError):
            return client.recv(1 << 16)
    raise TimeoutError
