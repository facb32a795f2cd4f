"""Room for a file: the space that must stay free on the disk, and a disk without room as a state that ends by itself.

A file is made only where the floor stays free beside it: that is looked at first, since a gigabyte takes long to allocate in
vain. Whoever needs a file that cannot be made is told StoreFull, and may try again.

Spec: HA-ST-8, HA-ST-67 "that finds room MUST be stored as if the disk had never been full", HA-ST-68.
Source: 4.9.8 AllocateMappedFileService, DiskCheckScheduledThread; quirk 25.
"""

import logging
import os
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import StoreFull
from rocketmq_ha.impl.store.log.layout import file_name
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.spec.constants import MAPPED_FILE_SIZE_COMMIT_LOG

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

FLOOR_SIZE: Final = 256 << 20


def free_size(directory: Path) -> int:
    """Bytes that are free for this user on the file system of a directory."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def check_floor(path: Path, size: int, floor_size: int) -> None:
    """Raises: StoreFull where a file of this size would leave less than the floor free."""
    free = free_size(path.parent)
    if free - size < floor_size:
        raise StoreFull(path, f"{free} bytes free", f"{size} for this file, and {floor_size} to stay free")


def _smaller(path: Path, size: int) -> str:
    """What to add where a store without a log finds no room for a file of the default size: smaller ones may do."""
    if size < MAPPED_FILE_SIZE_COMMIT_LOG or (path.parent.is_dir() and any(path.parent.iterdir())):
        return ""
    return f"; files of {size} bytes are the default: --file-size may be smaller, a slave's must be its master's"


class Space:
    """Makes the files of one commit log. `create` is what a MappedFileQueue takes. For one thread at a time."""

    def __init__(self, floor_size: int = FLOOR_SIZE) -> None:
        self.floor_size: Final = floor_size
        self.full: StoreFull | None = None  # why the last file could not be made; None once there is room
        self._wanted: tuple[Path, int] | None = None  # the file that has no room, and its size

    def create(self, directory: Path, base: int, size: int) -> MappedFile:
        """The file that starts at an offset. Raises: StoreFull where there is no room for it above the floor; OSError."""
        path = directory / file_name(base)
        if path.exists():
            return MappedFile.create(directory, base, size)
        try:
            check_floor(path, size, self.floor_size)
            file = MappedFile.create(directory, base, size)
        except StoreFull as error:
            if self.full is None:
                logger.warning("the disk is full: %s%s", error, _smaller(path, size))
            self.full, self._wanted = error, (path, size)
            raise
        self._end()
        return file

    def has_room(self) -> bool:
        """Whether the file that had no room has it now, as far as the file system says: a quota it does not tell."""
        if self._wanted is None:
            return True
        path, size = self._wanted
        return free_size(path.parent) - size >= self.floor_size

    def check(self) -> StoreFull | None:
        """If the disk was full, ask the file system again. Returns: why a file has no room; None if there is room."""
        if self.full is not None and self.has_room():
            self._end()
        return self.full

    def _end(self) -> None:
        if self.full is not None:
            logger.info("%s: there is room on the disk again", self.full.file)
        self.full, self._wanted = None, None
