"""Files made before they are needed, and pages touched before they are written: the writer waits for neither.

The first store into a page of a fresh mapping is a fault that costs more than the copy of a message. So a thread keeps a
stretch ahead of the writer populated (`MADV_POPULATE_WRITE`, Linux 5.14 on, outside the interpreter's lock; elsewhere the
writer takes its faults itself). A stretch, not the whole file: populated pages are dirty, and a gigabyte of zeros would go to
the disk first and the messages after it. Once a file is half full the next one is allocated.

Also the floor: the space on the disk that must stay free. Below it no file is made, and `full` says that puts are to be
refused.

Spec: HA-ST-8.  Source: 4.9.8 AllocateMappedFileService, DiskCheckScheduledThread.
"""

import ctypes
import errno
import logging
import mmap
import os
import threading
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import StoreFull
from rocketmq_ha.impl.store.log import space
from rocketmq_ha.impl.store.log.layout import file_name
from rocketmq_ha.impl.store.log.mapped_file import MappedFile

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

_MADV_POPULATE_WRITE: Final = 23
_POLL_S: Final = 0.02
_CHECK_SPACE_EVERY: Final = 50  # polls: once a second
_TOUCH_AHEAD_SIZE: Final = 64 << 20
_TOUCH_SIZE: Final = 4 << 20  # bytes a call, so that closing need not wait for more


class AllocateService:
    """Makes the files of one commit log. `create` is what a MappedFileQueue takes; `start` and `shutdown` bound the thread.

    Args:  floor_size: bytes that must stay free on the disk.
    """

    def __init__(self, *, floor_size: int = 0) -> None:
        self.floor_size: Final = floor_size
        self.full: StoreFull | None = None  # why puts are to be refused; set and taken back about once a second
        self._current: MappedFile | None = None
        self._next: MappedFile | None = None  # prepared behind the current one
        self._making = threading.Lock()  # held by whoever makes a file, so that none is made twice
        self._touched = 0  # position in the current file before which its pages are populated
        self._can_touch = _populate is not None
        self._has_failed = False  # to prepare: said once
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="AllocateService", daemon=True)

    def create(self, directory: Path, base: int, size: int) -> MappedFile:
        """The file that starts at an offset: the one that was prepared, or made now. HA-ST-8.

        Raises: StoreFull where the disk has no room for it above the floor; OSError. Then there is no such file.
        """
        with self._making:
            ready, self._next = self._next, None
            if ready is None or (ready.path.parent, ready.base, ready.size) != (directory, base, size):
                if ready is not None:
                    ready.destroy()
                ready = self._make(directory, base, size)
            self.watch(ready)
        return ready

    def watch(self, file: MappedFile) -> None:
        """Keep the pages ahead of this file's writer touched, and a file behind it prepared."""
        self._current, self._touched = file, 0

    def start(self) -> None:
        self._thread.start()

    def shutdown(self) -> None:
        """End the thread; remove the file that was prepared and not taken."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._making:
            if self._next is not None:
                self._next.destroy()
                self._next = None
            self._current = None

    def check_space(self, directory: Path) -> None:
        """Set `full`, or take it back, by what is free now."""
        free = space.free_size(directory)
        self.full = (
            StoreFull(directory, f"{free} bytes free", f"{self.floor_size} at least") if free < self.floor_size else None
        )

    def _make(self, directory: Path, base: int, size: int) -> MappedFile:
        path = directory / file_name(base)
        if self.floor_size and not path.exists():
            space.check_floor(path, size, self.floor_size)
        return MappedFile.create(directory, base, size)

    def _run(self) -> None:
        polls = 0
        while not self._stop.wait(_POLL_S):
            file = self._current
            if file is None:
                continue
            try:
                self._touch_ahead(file)
                self._prepare_behind(file)
                if self.floor_size and polls % _CHECK_SPACE_EVERY == 0:
                    self.check_space(file.path.parent)
            except OSError as error:  # the writer will meet it too, if it lasts, and has somebody to tell
                if not self._has_failed:
                    logger.warning("nothing is prepared ahead of the writer: %s", error)
                self._has_failed = True
            else:
                self._has_failed = False
            polls += 1

    def _prepare_behind(self, file: MappedFile) -> None:
        if self._next is not None or file.wrote_position * 2 < file.size:
            return
        with self._making:
            if file is self._current and self._next is None:
                self._next = self._make(file.path.parent, file.base + file.size, file.size)

    def _touch_ahead(self, file: MappedFile) -> None:
        """Populate from where that has got to, or from the writer, to a stretch beyond the writer."""
        while self._can_touch and not self._stop.is_set() and file is self._current:
            wrote = file.wrote_position
            start = max(self._touched, wrote)
            goal = min(file.size, wrote + _TOUCH_AHEAD_SIZE)
            if start >= goal:  # asked first: the last page of a file may be a part of one, and is touched once
                return
            start -= start % mmap.PAGESIZE
            if goal - start < min(_TOUCH_SIZE, file.size - start):
                return
            stop = min(goal, start + _TOUCH_SIZE)
            self._can_touch = populate(file.mapping, start, stop - start)
            if file is self._current:
                self._touched = stop


def populate(mapping: mmap.mmap, start: int, size: int) -> bool:
    """Make the pages of a stretch present and writable, contents unchanged. start: a multiple of the page size.

    Returns: False where the system cannot.
    """
    if _populate is None:
        return False
    first = ctypes.c_char.from_buffer(mapping, start)  # holds the mapping
    return _populate(ctypes.addressof(first), size, _MADV_POPULATE_WRITE) == 0 or ctypes.get_errno() in (0, errno.EINTR)


def _find_populate() -> "ctypes._NamedFuncPointer | None":
    """`madvise` of the C library, which ctypes calls outside the interpreter's lock; mmap.madvise would keep it."""
    if not hasattr(mmap, "MADV_POPULATE_WRITE") and os.uname().sysname != "Linux":
        return None
    try:
        found = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return found


_populate: Final = _find_populate()
