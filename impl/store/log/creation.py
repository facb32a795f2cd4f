"""A file gets its name when it is whole, so that who is killed in between leaves none that a broker would stumble over.

RocketMQ takes each name in `commitlog` and in the folder of a consume queue for a number, and does not start where one is none.
So a file is made without a name (O_TMPFILE: Linux, and most of its file systems) and linked into its place. Where that cannot
be, it is made in a folder of the store's root, in which RocketMQ looks at nothing that it does not know, and moved.

Spec: HA-ST-1 "each named by the 20-digit offset of its first byte"; HA-ST-70 "MUST NOT stand in the folder of the commit
log or of a consume queue".
"""

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

CREATING_DIR: Final = "creating"
_UNNAMED: Final[int | None] = getattr(os, "O_TMPFILE", None)
# Of a file system or kernel without unnamed files, or a system without /proc. Where it was something else, moving fails, too.
_NOT_POSSIBLE: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EPERM, errno.EXDEV)
_numbers: Final = itertools.count()


def create_whole(path: Path, root: Path, fill: Callable[[int], None]) -> None:
    """Make a file that is not there yet.

    Args:  root: the store's; on the file system of the path. fill: gets a descriptor and gives the file its length.
    Raises: OSError with a path, what `fill` raises; then there is no file of that name.
    """
    try:
        if not _create_unnamed(path, fill):
            _create_elsewhere(path, root, fill)
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)  # what knows a descriptor only
        raise


def sweep_creating(root: Path) -> None:
    """Remove what interrupted creations have left in a store that this process owns."""
    directory = root / CREATING_DIR
    if directory.is_dir():
        shutil.rmtree(directory)


def _create_unnamed(path: Path, fill: Callable[[int], None]) -> bool:
    """Returns: whether it is possible here."""
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
