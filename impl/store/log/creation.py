"""Create files atomically: a file gets its name when it is complete, so a kill in between leaves nothing that stops a broker.

RocketMQ parses each name in `commitlog` and in a consume queue's folder as a number, and does not start if one is not. So a
file is created without a name (O_TMPFILE, on Linux and most of its file systems) and linked into its place. Where that is
impossible, it is created in a folder in the store's root, where RocketMQ ignores unknown names, and moved.

Spec: HA-ST-1 "each named by the 20-digit offset of its first byte"; HA-ST-70 "MUST NOT stand in the folder of the commit
log or of a consume queue".
"""

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.store.log.layout import sync_directory

CREATING_DIR: Final = "creating"
_UNNAMED: Final[int | None] = getattr(os, "O_TMPFILE", None)
# Errors of a file system or kernel without O_TMPFILE, or without /proc. After any other cause the move fails, too.
_NOT_POSSIBLE: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EPERM, errno.EXDEV)
_numbers: Final = itertools.count()


def create_whole(path: Path, root: Path, fill: Callable[[int], None]) -> None:
    """Create a new file.

    Args:  root: the store's; on the file system of the path. fill: called with a descriptor; sets the length of the file.
    Raises: OSError with a path, and exceptions of `fill`; then no file has that name.
    """
    try:
        if not _create_unnamed(path, fill):
            _create_elsewhere(path, root, fill)
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)  # the error knows only a descriptor
        raise


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically, and sync it to the disk. Raises: OSError with the path; then it is as it was."""
    new = path.with_name(path.name + ".tmp")
    try:
        is_new = not path.parent.is_dir()
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        for directory in (path.parent, *([path.parent.parent] if is_new else [])):
            sync_directory(directory)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # a failed write knows only the descriptor
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def sweep_creating(root: Path) -> None:
    """Remove the remains of interrupted creations in a store that this process owns."""
    directory = root / CREATING_DIR
    if directory.is_dir():
        shutil.rmtree(directory)


def _create_unnamed(path: Path, fill: Callable[[int], None]) -> bool:
    """Create a file through O_TMPFILE. Returns: False if the system does not support it."""
    if _UNNAMED is None:
        return False
    try:
        fd = os.open(path.parent, _UNNAMED | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in _NOT_POSSIBLE:
            return False
        error.filename = str(path)
        raise
    try:
        fill(fd)
        try:
            # With a descriptor as its place, so that Python follows the link; what is absolute needs no place.
            os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=fd)
        except OSError as error:
            if error.errno in _NOT_POSSIBLE:
                return False
            error.filename, error.filename2 = str(path), None
            raise
    finally:
        os.close(fd)
    return True


def _create_elsewhere(path: Path, root: Path, fill: Callable[[int], None]) -> None:
    creating = root / CREATING_DIR / str(next(_numbers))
    creating.parent.mkdir(exist_ok=True)
    fd = os.open(creating, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            fill(fd)
        finally:
            os.close(fd)
        creating.rename(path)
    except BaseException:
        creating.unlink(missing_ok=True)
        raise
