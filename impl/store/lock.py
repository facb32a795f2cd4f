"""One process owns a store: byte 0 of the file `lock` in its root, locked as Java's FileChannel.tryLock(0, 1) does.

POSIX locks belong to the process, not to the descriptor: a second open in one process would succeed, and closing any
descriptor of the file would release the lock. So a table of this process's own locks stands before the system call, and
nothing else here opens the file.

Spec: HA-ST-9 "One process at a time MUST own a store for writing".  Source: 4.9.8 DefaultMessageStore.start.
"""

import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

from rocketmq_ha.impl.errors import StoreLocked
from rocketmq_ha.spec.constants import LOCK_FILE

_held_here: Final[set[tuple[int, int]]] = set()  # (device, inode) of the store directories that this process has locked
_guard: Final = threading.Lock()


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
            except (BlockingIOError, PermissionError):  # POSIX leaves the choice of EAGAIN or EACCES to the system
                os.close(fd)
                raise StoreLocked(f"{store_dir}: locked by another process, expected a store that nobody has open") from None
            except BaseException:
                os.close(fd)
                raise
            _held_here.add(self._key)
        self._fd = fd

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        with _guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
                _held_here.discard(self._key)

    def __enter__(self) -> "StoreLock":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
