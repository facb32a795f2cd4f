"""One file of fixed size: written by memcpy or pwritev, read through its mapping. Both see one page cache.

Space is allocated before it is mapped: a store into a hole on a full disk is SIGBUS, which kills Python, where
posix_fallocate is an OSError. The file gets its name only at its full length, so a creation that is interrupted leaves
no file of a wrong length.

Spec: HA-ST-1, HA-ST-8.  Source: article 003 section 1.1; 4.9.8 MappedFile; design.md, "A full disk".
"""

import contextlib
import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.store.layout import CREATING_SUFFIX, file_name

# Buffers a pwritev may take. POSIX asks for 16, Linux and macOS have 1024.
IOV_MAX: Final = min(1024, os.sysconf("SC_IOV_MAX")) if "SC_IOV_MAX" in os.sysconf_names else 16
_CHUNK_SIZE: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK_SIZE)


class MappedFile:
    """A commit-log file. It is opened and mapped at the first access, and again after `close`.

    base: the commit-log offset of its first byte; positions are bytes from there. wrote_position: where the next append
    goes; bytes beyond it are not part of the log, whatever they hold.
    """

    __slots__ = ("_fd", "_flushed_position", "_map", "_view", "_writable", "base", "path", "size", "wrote_position")

    def __init__(self, path: Path, base: int, size: int, *, writable: bool, wrote_position: int = 0) -> None:
        self.path, self.base, self.size, self.wrote_position = path, base, size, wrote_position
        self._writable = writable
        self._flushed_position = 0
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None

    @classmethod
    def create(cls, directory: Path, base: int, size: int) -> "MappedFile":
        """Allocate a file of zeros, or take the one that is there (a file that a broker prepared ahead).

        Raises: OSError, ENOSPC among them; then no file of that name is made.
        """
        path = directory / file_name(base)
        if not path.exists():
            creating = path.with_name(path.name + CREATING_SUFFIX)
            fd = os.open(creating, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                try:
                    _allocate(fd, size)
                finally:
                    os.close(fd)
                creating.rename(path)
            except BaseException as error:
                creating.unlink(missing_ok=True)
                if isinstance(error, OSError) and error.filename is None:
                    error.filename = str(path)  # posix_fallocate knows a descriptor only, its caller wants a name
                raise
        return cls(path, base, size, writable=True)

    @property
    def end(self) -> int:
        """The commit-log offset behind the last byte of the log in this file."""
        return self.base + self.wrote_position

    @property
    def is_full(self) -> bool:
        return self.wrote_position == self.size

    def append(self, data: bytes) -> None:
        """Copy into the mapping at the wrote position. The caller has checked that it fits."""
        position = self.wrote_position
        assert len(data) <= self.size - position
        self.mapping[position : position + len(data)] = data
        self.wrote_position = position + len(data)

    def append_blank(self, header: bytes) -> None:
        """Write what a BLANK record says and make the rest of the file zero bytes and part of the log."""
        position = self.wrote_position
        self.clear(position + len(header))
        self.mapping[position : position + len(header)] = header
        self.wrote_position = self.size

    def append_vectors(self, buffers: Sequence[bytes | memoryview], total: int) -> None:
        """Write several byte buffers behind one another by pwritev: no page fault, no copy in between.

        Args:  total: their length in bytes, which the caller has summed and checked.
        Raises: OSError; then the wrote position has not moved.
        """
        position = self.wrote_position
        assert total <= self.size - position
        self._open()
        left, written = list(buffers), 0
        while written < total:
            count = os.pwritev(self._fd, left[:IOV_MAX], position + written)
            written += count
            done = 0  # buffers that this call took whole
            while done < len(left) and count >= len(left[done]):
                count -= len(left[done])
                done += 1
            del left[:done]
            if count:
                left[0] = memoryview(left[0])[count:]
        self.wrote_position = position + total

    def view(self, start: int, stop: int) -> memoryview:
        """A read-only view of positions start to stop, no copy. It stays valid after `close`, as long as it is held."""
        if self._view is None:
            self._view = memoryview(self.mapping).toreadonly()
        return self._view[start:stop]

    @property
    def mapping(self) -> mmap.mmap:
        """The whole file in memory; slices of it are copies (bytes)."""
        if self._map is None:
            self._open()
            access = mmap.PROT_READ | (mmap.PROT_WRITE if self._writable else 0)
            self._map = mmap.mmap(self._fd, self.size, mmap.MAP_SHARED, access)
            if self.is_full:  # the mapping has a descriptor of its own, and a log can have a thousand files
                self.close_descriptor()
        return self._map

    def chunks(self, start: int) -> Iterator[tuple[int, bytes]]:
        """The parts of the file from a position on that may hold anything but zero bytes, as (position, bytes) copies.

        Holes and space that is allocated but never written are skipped: the file system knows them, so that looking
        through an empty gigabyte costs microseconds and no memory.
        """
        self._open()
        while start < self.size:
            try:
                start = os.lseek(self._fd, start, os.SEEK_DATA)
                stop = os.lseek(self._fd, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data from here on
                    return
                stop = self.size  # the file system cannot tell
            while start < stop:
                chunk = os.pread(self._fd, min(_CHUNK_SIZE, stop - start), start)
                if not chunk:
                    return
                yield start, chunk
                start += len(chunk)

    def data_end(self, start: int) -> int:
        """The position behind the last non-zero byte from a position on; that position itself where all are zero."""
        end = start
        for position, chunk in self.chunks(start):
            if chunk != _ZEROS[: len(chunk)]:
                end = position + len(chunk.rstrip(b"\0"))
        return end

    def has_data(self) -> bool:
        """Whether any byte of the file is not zero; looks no further than the first."""
        return any(chunk != _ZEROS[: len(chunk)] for _, chunk in self.chunks(0))

    def clear(self, start: int) -> None:
        """Make every byte from a position on zero, writing only where one is not."""
        for position, chunk in self.chunks(start):
            if chunk != _ZEROS[: len(chunk)]:
                self.mapping[position : position + len(chunk)] = _ZEROS[: len(chunk)]

    def flush(self) -> None:
        """Force what was appended to the disk. The flushed position moves only after success (quirk 36)."""
        if self._flushed_position < self.wrote_position:
            if self._map is not None:
                start = self._flushed_position - self._flushed_position % mmap.PAGESIZE
                self._map.flush(start, self.wrote_position - start)
            else:  # recovered and not touched since: what an earlier process left in the page cache
                self._open()
                os.fsync(self._fd)
                self.close_descriptor()
            self._flushed_position = self.wrote_position

    def close_descriptor(self) -> None:
        """Give back a descriptor that a full file needs no more; the mapping stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Let go of the descriptor and the mapping. Views that others hold keep the memory until they go; no error."""
        self._view = None
        if self._map is not None:
            with contextlib.suppress(BufferError):  # somebody holds a view: the mapping goes with the last of them
                self._map.close()
            self._map = None
        self.close_descriptor()

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = os.open(self.path, (os.O_RDWR if self._writable else os.O_RDONLY) | os.O_CLOEXEC)


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    for position in range(0, size, _CHUNK_SIZE):  # macOS has no such call; written zeros are allocated too
        os.pwrite(fd, _ZEROS[: min(_CHUNK_SIZE, size - position)], position)
