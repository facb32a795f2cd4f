"""What of a store's files a power cut would find on the disk: noted beside the real system calls.

Each sync of a file notes its bytes, each sync of a directory its names. So a sync that the implementation leaves out shows as a
loss at the next power cut. Only the loss is simulated: the store's system calls really happen.
"""

# ruff: noqa: PTH110, PTH112, PTH115, PTH116
# Paths are strings here: a run makes hundreds of these calls, and a Path costs as much as some of them.

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.impl.store.log.layout import CREATING_SUFFIX
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR

Replacement = tuple[Any, str, Any]  # an owner, the name of its attribute, and another value for it


def owners_of(function: Callable[..., Any]) -> list[tuple[Any, str]]:
    """`os`, and the modules of the implementation that have taken a function of it under a name of their own."""
    ours = [module for name, module in sorted(sys.modules.items()) if name.startswith("rocketmq_ha.impl.")]
    return [(owner, name) for owner in (os, *ours) for name, value in vars(owner).items() if value is function]


def path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")


_FSYNC, _FDATASYNC = os.fsync, os.fdatasync
_OWNERS: Final[dict[str, list[tuple[Any, str]]]] = {}


class Synced:
    """The disk under a directory tree. The caller must close it.

    files: path -> inode and bytes of the last sync. names: path of a directory -> its names. Each of these inodes is held open:
    a file system may give the number of a removed file to the next one, which nobody has synced.

    fails_after: syncs of data of the commit log that succeed before all fail; below 0 none fails.
    """

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.files: dict[str, tuple[int, bytes]] = {}
        self.names: dict[str, frozenset[str]] = {}
        self.fails_after = -1
        self._held: dict[int, int] = {}  # inode -> descriptor
        self._log = f"{self.root}/{COMMIT_LOG_DIR}/"

    def replacements(self) -> list[Replacement]:
        """What to replace while the store is at work."""
        if not _OWNERS:
            _OWNERS.update(fsync=owners_of(_FSYNC), fdatasync=owners_of(_FDATASYNC))
        of_fsync: list[Replacement] = [(owner, name, self._fsync) for owner, name in _OWNERS["fsync"]]
        return of_fsync + [(owner, name, self._fdatasync) for owner, name in _OWNERS["fdatasync"]]

    def bytes_of(self, path: str, size: int) -> bytes:
        """The bytes of a file by its last sync: zeros, if there was none."""
        inode, data = self.files.get(path, (-1, b""))
        is_same = inode == os.stat(path).st_ino if os.path.exists(path) else inode >= 0
        return data if is_same else bytes(size)

    def close(self) -> None:
        while self._held:
            os.close(self._held.popitem()[1])

    def note(self, path: str, data: bytes) -> None:
        """A file that is on the disk as it is."""
        self._note(path, os.stat(path).st_ino, data, path)

    def _note(self, path: str, inode: int, data: bytes, present: str) -> None:
        """present: a name of the file now."""
        if inode not in self._held:
            self._held[inode] = os.open(present, os.O_RDONLY)
        self.files[path] = inode, data

    def _fsync(self, fd: int) -> None:
        self._sync(fd, _FSYNC, is_data=False)

    def _fdatasync(self, fd: int) -> None:
        self._sync(fd, _FDATASYNC, is_data=True)

    def _sync(self, fd: int, sync: Callable[[int], None], *, is_data: bool) -> None:
        path = path_of(fd).removesuffix(CREATING_SUFFIX)  # of a file that gets its name once it is whole
        if path.startswith(self._log):
            if self.fails_after == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.fails_after -= is_data and self.fails_after > 0
        found = os.fstat(fd)
        sync(fd)
        if os.path.isdir(path):
            self._sync_names(path)
        elif found.st_nlink:
            self._note(path, found.st_ino, os.pread(fd, found.st_size, 0), f"/proc/self/fd/{fd}")

    def _sync_names(self, directory: str) -> None:
        """Note the names of a directory, and forget what was synced of files that it no longer has."""
        inodes = {entry.path: entry.inode() for entry in os.scandir(directory)}
        self.names[directory] = frozenset(path.rpartition("/")[2] for path in inodes)
        self.files = {
            path: synced
            for path, synced in self.files.items()
            if path.rpartition("/")[0] != directory or inodes.get(path) == synced[0]
        }
