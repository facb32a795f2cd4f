"""A file of a consume queue: full length, but space on the disk for its entries alone; no mapping, and few descriptors.

A store has tens of thousands of queues, and most hold few messages. A file of 6,000,000 bytes is made with holes; the file
system adds a block when an entry is written into it. That is done by pwrite, which ends with an error where the disk is full,
and not with a signal. What is read is read by pread: a page of a hole that is read through a mapping takes memory, and a
process may have 65,530 mappings only. The files of a store share a number of descriptors; if all are in use, a file gets that
of the one that was opened first.

Spec: HA-ST-91 "MUST NOT take more space on the disk than its entries need".
Source: this project; 4.9.8 MappedFile, whose files have holes and are mapped.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import NO_ROOM, StoreFull
from rocketmq_ha.impl.store.log.layout import file_name
from rocketmq_ha.impl.store.log.mapped_file import (
    OS_PAGE_SIZE,
    MappedFile,
    create_if_missing,
    force_commit,
    next_data,
    sync_data,
)

# A process that keeps 256 descriptors free of connections (impl/net/limits.py) has enough for the log beside these.
OPEN_FILES: Final = 128


class QueueFiles:
    """Makes and loads the files of one store's queues, and bounds how many of them are open."""

    def __init__(self, root: Path, open_files: int = OPEN_FILES) -> None:
        self._root, self._limit = root, open_files
        self._open: dict[QueueFile, None] = {}  # in the order in which they were opened
        self._guard = threading.Lock()

    def create(self, directory: Path, base: int, size: int) -> "QueueFile":
        """A file of holes, or the one that is there. Raises: StoreFull, OSError; then no file of that name is made."""
        path = directory / file_name(base)
        create_if_missing(path, self._root, size, os.ftruncate)
        return QueueFile(path, base, size, writable=True, files=self)

    def load(self, path: Path, base: int, size: int, writable: bool) -> "QueueFile":
        """A file that is there; all of it counts as written."""
        return QueueFile(path, base, size, writable=writable, files=self, wrote_position=size)

    def opened(self, file: "QueueFile") -> None:
        """Note that a file has a descriptor now, and take that of another one where there are too many."""
        with self._guard:
            self._open[file] = None
            if len(self._open) > self._limit:
                for other in self._open:
                    if other.give_back():
                        del self._open[other]
                        break

    def closed(self, file: "QueueFile") -> None:
        with self._guard:
            self._open.pop(file, None)


class QueueFile(MappedFile):
    """As MappedFile; `view` gives a copy, and there is no `mapping`."""

    __slots__ = ("_files", "_guard", "_has_unsynced_zeros")

    def __init__(self, path: Path, base: int, size: int, *, writable: bool, files: QueueFiles, wrote_position: int = 0) -> None:
        super().__init__(path, base, size, writable=writable, wrote_position=wrote_position)
        self._files = files
        self._guard = threading.Lock()  # held while the descriptor is used
        self._has_unsynced_zeros = False

    @property
    def is_flushed(self) -> bool:
        return not self._has_unsynced_zeros and super().is_flushed

    def append(self, data: bytes | bytearray | memoryview) -> None:
        position = self.wrote_position
        assert len(data) <= self.size - position
        self._write(position, data)
        self.wrote_position = position + len(data)

    def _write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """HA-ST-8 "Space MUST be allocated on the disk before it is mapped": this is not mapped. Raises: StoreFull, OSError."""
        left = memoryview(data)
        with self._guard:
            fd = self._open()
            try:
                self._check_length(os.fstat(fd).st_size)
                while left:
                    written = os.pwrite(fd, left, position)
                    position += written
                    left = left[written:]
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise StoreFull(self.path, "no room", f"{len(left)} bytes for entries") from error
                error.filename = error.filename or str(self.path)
                raise

    def view(self, start: int, stop: int) -> memoryview:
        """A copy of positions start to stop.

        Raises: FileNotFoundError where the file was removed meanwhile; StoreCorrupt where it was cut; OSError.
        """
        with self._guard:
            fd = self._open()
            data = os.pread(fd, stop - start, start)
            while len(data) < stop - start:
                self._check_length(os.fstat(fd).st_size)
                data += os.pread(fd, stop - start - len(data), start + len(data))
        return memoryview(data)

    def chunks(self, start: int) -> Iterator[tuple[int, bytes]]:
        while True:
            with self._guard:
                found = next_data(self._open(), start, self.size)
            if found is None:
                return
            yield found
            start = found[0] + len(found[1])

    def clear(self, start: int) -> bool:
        """As MappedFile.clear; the zeros go to the disk with the next flush."""
        is_changed = False
        for position, chunk in self.chunks(start):
            if any(chunk):
                self._write(position, bytes(len(chunk)))
                is_changed = self._has_unsynced_zeros = True
        return is_changed

    def flush(self, least_pages: int = 0) -> None:
        if self._has_unsynced_zeros:
            self._sync_zeros()
        super().flush(least_pages)

    def _sync_zeros(self) -> None:
        with self._held() as fd:
            try:
                if self._sync_failed:
                    self._sync_again(fd, self.wrote_position, self.data_limit())
                sync_data(fd)
            except OSError as error:
                self._sync_failed = True
                error.filename = error.filename or str(self.path)
                raise
        self._has_unsynced_zeros = False

    @contextmanager
    def _held(self) -> Iterator[int]:
        """A descriptor of the caller's own, since a sync takes long: others must be able to read meanwhile."""
        with self._guard:
            fd = os.dup(self._open())
        try:
            yield fd
        finally:
            os.close(fd)

    def _sync_again(self, fd: int, start: int, stop: int) -> None:
        for position in range(start, stop, OS_PAGE_SIZE):
            with self._guard:  # for both calls: an entry may be written behind the end meanwhile
                os.pwrite(fd, os.pread(fd, min(OS_PAGE_SIZE, stop - position), position), position)
        force_commit(fd)

    def give_back(self) -> bool:
        """Close the descriptor, unless it is in use. Returns: whether it was not."""
        if not self._guard.acquire(blocking=False):
            return False
        try:
            super().close_descriptor()
        finally:
            self._guard.release()
        return True

    def close_descriptor(self) -> None:
        with self._guard:
            super().close_descriptor()
        self._files.closed(self)

    def _open(self) -> int:
        """The descriptor; the caller holds the guard."""
        if self._fd < 0:
            self._fd = self._open_anew()
            self._files.opened(self)
        return self._fd
