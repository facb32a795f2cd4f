"""A Unix socket in a store's directory that only the user of its process may open: mode 0600.

The address of a Unix socket holds 107 bytes, and a store's path may be longer. So both ends go through /proc/self/fd/N, N being
a descriptor of the store's directory: the address is short, whatever the path. Where there is no such directory (not Linux),
the path itself has to be short enough.

The store's lock says that nobody else serves this store: a socket that is there is what a killed process has left.
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


def listen_locally(store_dir: Path, name: str, backlog: int) -> socket.socket:
    """A listening socket of this name, non-blocking. The caller has the store's lock. Raises: ConfigInvalid; OSError."""
    with local_address(store_dir, name) as address:
        path = Path(address)
        try:
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise ConfigInvalid("something that is no socket has its name")
            path.unlink()
        except FileNotFoundError:
            pass
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # the socket never has another mode
        try:
            listener.bind(address)
            listener.listen(backlog)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        finally:
            os.umask(before)
    return listener


@contextmanager
def local_address(store_dir: Path, name: str) -> Iterator[str]:
    """The address of a store's socket, however long the path of the store is. Raises: ConfigInvalid; OSError."""
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
