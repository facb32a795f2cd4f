"""One process owns a store: byte 0 of the file `lock` in its root, locked as Java's FileChannel.tryLock(0, 1) does.

POSIX locks belong to the process, not to the descriptor: a second lock in one process would succeed, and closing any descriptor
of the file would release the lock. So this module first checks a table of the process's own locks, and no other code opens the
file.

Spec: HA-ST-9 "One process at a time MUST own a store for writing".  Source: 4.9.8 DefaultMessageStore.start.
"""

import fcntl
import os
import struct
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

from rocketmq_ha.impl.errors import StoreLocked
from rocketmq_ha.spec.constants import LOCK_FILE

_held_here: Final[set[tuple[int, int]]] = set()  # (device, inode) of the store directories that this process has locked
_guard: Final = threading.Lock()
# struct flock. Linux: type, whence, start, length, pid; macOS: start, length, pid, type, whence.
_FLOCK: Final = struct.Struct("@qqihh" if sys.platform == "darwin" else "@hhqqi4x")
_ASKED: Final = (0, 1, 0, fcntl.F_WRLCK, os.SEEK_SET) if sys.platform == "darwin" else (fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
_TYPE, _PID = (3, 2) if sys.platform == "darwin" else (0, 4)


class StoreLock:
    """The lock on one store, held from the constructor to `release`.

    Raises: StoreLocked (naming the directory) where this or another process holds it; OSError where the file cannot be
    opened; FileNotFoundError where it does not exist and create is False.
    """

    def __init__(self, store_dir: Path, *, create: bool) -> None:
        status = store_dir.stat()
        self._key = (status.st_dev, status.st_ino)
        with _guard:
            if self._key in _held_here:
                raise StoreLocked(f"{store_dir}: locked by this process, expected a store that nobody has open")
            fd = os.open(store_dir / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
            except (BlockingIOError, PermissionError):  # POSIX allows EAGAIN and EACCES
                os.close(fd)
                raise StoreLocked(f"{store_dir}: locked by another process, expected a store that nobody has open") from None
            except BaseException:
                os.close(fd)
                raise
            _held_here.add(self._key)
        self._fd = fd

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        with _guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                _held_here.discard(self._key)

    def __enter__(self) -> "StoreLock":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


def lock_holder(store_dir: Path) -> int | None:
    """Find the owner of a store without taking the lock, so that a process starting meanwhile is not refused.

    Returns: its process id; 0 or less for a process in another container, which has no id here; None without an owner.
    Raises: OSError.
    """
    with _guard:  # closing a descriptor of the file would release this process's lock
        try:
            status = store_dir.stat()
            if (status.st_dev, status.st_ino) in _held_here:
                return os.getpid()
            fd = os.open(store_dir / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            found = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(*_ASKED)))
        finally:
            os.close(fd)
    return None if found[_TYPE] == fcntl.F_UNLCK else found[_PID]
