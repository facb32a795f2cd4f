"""The client's end of a master's socket for puts: connect, read the greeting, and explain a failure in one line."""

import json
import socket
import stat
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net import status_socket
from rocketmq_ha.impl.net.local_socket import local_address
from rocketmq_ha.impl.net.put_socket import MAX_CLIENTS, SOCKET_NAME, VERSION
from rocketmq_ha.impl.net.status_socket import NotRunning

GREETING_S: Final = 20.0  # a master that serves MAX_CLIENTS already greets a further client only when one leaves
_LONGEST_GREETING: Final = 4096


class PutService(NamedTuple):
    """A connection to a master that takes puts."""

    sock: socket.socket  # non-blocking
    max_line_size: int  # bytes, without the newline
    max_in_flight: int


def connect(target: Path, patience_s: float = GREETING_S) -> PutService:
    """Connect to the master that serves a store. target: the store's directory, or the socket in it.

    Raises: NotRunning, if no master takes puts there; ConfigInvalid; OSError.
    """
    store_dir, name = (target, SOCKET_NAME) if target.is_dir() else (target.parent, target.name)
    if not store_dir.is_dir():
        raise ConfigInvalid(f"{target}: no such file or directory, expected a store, or the socket {SOCKET_NAME} in one")
    path = store_dir / name
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigInvalid(f"{path}: found something that is no socket, expected that of a master for puts")
    except FileNotFoundError:
        raise _why_not(store_dir, path) from None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(patience_s)
        with local_address(store_dir, name) as address:
            sock.connect(address)
        greeting = _greeting(sock, path)
        sock.setblocking(False)
    except PermissionError:
        sock.close()
        raise ConfigInvalid(f"{path}: only the user whose process it is may put there") from None
    except ConnectionRefusedError:
        sock.close()
        raise NotRunning(f"{path}: no process serves it: it is what a killed one has left") from None
    except ConnectionResetError:
        sock.close()
        raise NotRunning(f"{path}: the master has ended before it answered") from None
    except (TimeoutError, BlockingIOError):
        sock.close()
        raise NotRunning(
            f"{path}: no answer for {patience_s:g} s: its master serves {MAX_CLIENTS} clients at a time, or it hangs"
        ) from None
    except BaseException:
        sock.close()
        raise
    return PutService(sock, greeting["max_line_size"], greeting["max_in_flight"])


def _greeting(sock: socket.socket, path: Path) -> dict[str, Any]:
    """Read a master's first line. Raises: ConfigInvalid, if it is no greeting; NotRunning, if the stream ends first."""
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _LONGEST_GREETING:
        if not (data := sock.recv(1)):  # byte by byte: the bytes behind the newline are answers
            raise NotRunning(f"{path}: the master has ended, or does not take puts there")
        line += data
    try:
        found = json.loads(line)
        if found["rocketmq_ha_put"] == VERSION:
            return {name: int(found[name]) for name in ("max_line_size", "max_in_flight")}
    except (ValueError, KeyError, TypeError):
        pass
    raise ConfigInvalid(f"{path}: found {bytes(line[:40])!r}, expected a master's socket for puts, version {VERSION}")


def _why_not(store_dir: Path, path: Path) -> NotRunning | ConfigInvalid:
    """Explain why a store has no socket for puts, by the status of its process."""
    if path.name != SOCKET_NAME:
        return ConfigInvalid(f"{path}: no such file, expected a master's socket for puts")
    try:
        role = status_socket.ask(store_dir)["role"]
    except NotRunning as error:
        return error
    if role == "slave":
        return NotRunning(f"{store_dir}: its process is a slave, which takes no puts: put to its master (HA-R-5)")
    return NotRunning(f"{store_dir}: its master has no {SOCKET_NAME}; its log says why")
