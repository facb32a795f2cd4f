"""A Unix socket of mode 0600 in a store's directory: only the user of the serving process may open it.

The address of a Unix socket holds at most 107 bytes, but a store's path may be longer. So both ends use the path
/proc/self/fd/N/NAME, with N a descriptor of the store's directory. On systems without /proc/self/fd (not Linux) the path itself
must fit.

The caller holds the store's lock, so no other process serves the store, and a socket found there was left by a killed process.
"""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid

_LONGEST_ADDRESS: Final = 107
_BEING_MADE: Final = "~"


def listen_locally(store_dir: Path, name: str, backlog: int) -> socket.socket:
    """Open a non-blocking listening socket. The caller holds the store's lock. Raises: ConfigInvalid; OSError."""
    with local_address(store_dir, name) as address:
        path = Path(address)
        try:
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise ConfigInvalid("something that is no socket has its name")
            path.unlink()
        except FileNotFoundError:
            pass
        made = Path(f"{address}{_BEING_MADE}")
        made.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # bind creates the socket with mode 0600 at once
        try:
            listener.bind(str(made))
            listener.listen(backlog)
            made.rename(path)  # not before: a client would take it for what a killed process has left
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        finally:
            os.umask(before)
    return listener


@contextmanager
def local_address(store_dir: Path, name: str) -> Iterator[str]:
    """Yield an address of a store's socket that fits, even if the store's path is long. Raises: ConfigInvalid; OSError."""
    if not Path("/proc/self/fd").is_dir():
        address = str(store_dir / name)
        if len(os.fsencode(address)) > _LONGEST_ADDRESS:
            raise ConfigInvalid(f"{address}: longer than {_LONGEST_ADDRESS} bytes, the longest address of a socket")
        yield address
        return
    fd = os.open(store_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
