"""One file of fixed size: written by memcpy or pwritev, read through its mapping. Both see one page cache.

HA-ST-8 "Space MUST be allocated on the disk before it is mapped": a store into a hole on a full disk is SIGBUS, which kills
Python, where posix_fallocate is an OSError. The file gets its name only at its full length (creation.py), so a
creation that is interrupted leaves no file of a wrong length.

A file that somebody cuts under a live store is SIGBUS, too: its length is looked at before its mapping is used. What is left is
the moment between look and use, and a view that is held meanwhile: a system call that reads them ends with EFAULT, the
process's own reading with SIGBUS. A master ends the one connection that reads it (HA-M-88). Whether it still has a name is
looked at before what goes into it counts as written or flushed (`look`).

No view outlives its unmap: `close` and `destroy` only let go of the mapping, which goes with the last view of it. That is what
RocketMQ counts references for (4.9.8 ReferenceResource, quirk 12); here Python counts them.

Source: article 003 section 1.1; 4.9.8 MappedFile; quirk 36.
"""

import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import NO_ROOM, StoreCorrupt, StoreFull
from rocketmq_ha.impl.store.log.creation import create_whole
from rocketmq_ha.impl.store.log.layout import file_name

# Buffers a pwritev may take. POSIX asks for 16, Linux and macOS have 1024.
IOV_MAX: Final = min(1024, os.sysconf("SC_IOV_MAX")) if "SC_IOV_MAX" in os.sysconf_names else 16
_CHUNK_SIZE: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK_SIZE)
# A page of the operating system, as RocketMQ counts them for `least_pages`, whatever the machine's are.
OS_PAGE_SIZE: Final = 4096
# msync by mmap.flush would keep every other thread of the interpreter waiting for the disk. macOS has fsync only.
_sync_data: Final = getattr(os, "fdatasync", os.fsync)
_opening: Final = threading.Lock()


class MappedFile:
    """A commit-log file. It is opened and mapped at the first access, and again after `close`.

    base: the offset of its first byte in the log or queue; positions are bytes from there. wrote_position: where the next
    append goes; bytes beyond it are not part of the log, whatever they hold. flushed_position: the bytes before it are on
    the disk. One thread may append and another flush; any may read.
    """

    __slots__ = (
        "_fd",
        "_gone",
        "_map",
        "_sync_failed",
        "_view",
        "_writable",
        "base",
        "flushed_position",
        "path",
        "size",
        "wrote_position",
    )

    def __init__(self, path: Path, base: int, size: int, *, writable: bool, wrote_position: int = 0) -> None:
        self.path, self.base, self.size, self.wrote_position = path, base, size, wrote_position
        self._writable = writable
        self.flushed_position = 0
        self._sync_failed = False
        self._gone = False  # removed: its name may be that of another file by now
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None

    @classmethod
    def create(cls, directory: Path, base: int, size: int, root: Path | None = None) -> "MappedFile":
        """Allocate a file of zeros, or take the one that is there (a file that a broker prepared ahead).

        Args:  root: the store's; by default the directory's parent, as it is for the commit log.
        Raises: StoreFull where the disk has no room; OSError. Then no file of that name is made.
        """
        path = directory / file_name(base)
        create_if_missing(path, root or directory.parent, size, _allocate)
        return cls(path, base, size, writable=True)

    @property
    def end(self) -> int:
        """The commit-log offset behind the last byte of the log in this file."""
        return self.base + self.wrote_position

    @property
    def is_full(self) -> bool:
        return self.wrote_position == self.size

    @property
    def is_flushed(self) -> bool:
        return self.flushed_position >= self.wrote_position

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Copy into the mapping at the wrote position. The caller has checked that it fits. Raises: as `mapping`."""
        position = self.wrote_position
        assert len(data) <= self.size - position
        self.mapping[position : position + len(data)] = data
        self.wrote_position = position + len(data)

    def rewrite(self, position: int, data: bytes) -> None:
        """Change bytes that are written already; the next flush brings them to the disk. No flush may run meanwhile."""
        self._write(position, data)
        self.flushed_position = min(position, self.flushed_position)

    def _write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self.mapping[position : position + len(data)] = data

    def append_blank(self, header: bytes) -> None:
        """Write what a BLANK record says and make the rest of the file zero bytes and part of the log.

        Spec: HA-ST-3 "its size and the BLANK magic followed by padding".
        """
        position = self.wrote_position
        self.clear(position + len(header))
        self.mapping[position : position + len(header)] = header
        self.wrote_position = self.size

    def append_vectors(self, buffers: Sequence[bytes | memoryview], total: int) -> None:
        """Write several byte buffers behind one another by pwritev: no page fault, no copy in between.

        Args:  total: their length in bytes, which the caller has summed and checked.
        Raises: OSError, StoreCorrupt (see `look`); then the wrote position has not moved.
        """
        position = self.wrote_position
        assert total <= self.size - position
        self.check_file()
        left, written = list(buffers), 0
        while written < total:
            try:
                count = os.pwritev(self._fd, left[:IOV_MAX], position + written)
            except OSError as error:
                error.filename = error.filename or str(self.path)
                raise
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
        """A read-only view of positions start to stop, no copy. It stays valid after `close`, as long as it is held.

        Raises: as `mapping`.
        """
        mapping, view = self.mapping, self._view
        if view is None:
            self._view = view = memoryview(mapping).toreadonly()
        return view[start:stop]

    @property
    def mapping(self) -> mmap.mmap:
        """The whole file in memory; slices of it are copies (bytes).

        Raises: FileNotFoundError where it was removed meanwhile; StoreCorrupt where it is shorter than it was: to read
        beyond its end would be SIGBUS.
        """
        mapping = self._map
        if mapping is None:
            fd = self._open_anew()  # its own: another thread may be done with the other one meanwhile
            try:
                self._check_length(os.fstat(fd).st_size)
                access = mmap.PROT_READ | (mmap.PROT_WRITE if self._writable else 0)
                self._map = mapping = mmap.mmap(fd, self.size, mmap.MAP_SHARED, access)
            finally:
                os.close(fd)
        elif (length := mapping.size()) != self.size:  # of the file as it is now
            self._check_length(length)
        return mapping

    def check_file(self) -> None:
        """Check that the file still has its name and its length, without which writes to it would be lost.

        Only the thread that appends or flushes may call it, one at a time.

        Raises: FileNotFoundError where the file has no name any more; StoreCorrupt where it was cut.
        """
        self._check_found(os.fstat(self._open()))

    def _check_found(self, found: os.stat_result) -> None:
        if not found.st_nlink:
            raise FileNotFoundError(errno.ENOENT, "removed under the store", str(self.path))
        self._check_length(found.st_size)

    def _check_length(self, length: int) -> None:
        if length != self.size:
            raise StoreCorrupt(self.path, self.base, f"a length of {length} bytes", self.size)

    def chunks(self, start: int) -> Iterator[tuple[int, bytes]]:
        """The parts of the file from a position on that may hold anything but zero bytes, as (position, bytes) copies.

        Holes and space that is allocated but never written are skipped: the file system knows them, so that looking
        through an empty gigabyte costs microseconds and no memory.
        """
        fd = self._open()
        while (found := next_data(fd, start, self.size)) is not None:
            yield found
            start = found[0] + len(found[1])

    def data_limit(self) -> int:
        """A position behind which all is a hole; it is found without reading."""
        end = 0
        with self._held() as fd:
            try:
                while end < self.size:
                    end = os.lseek(fd, os.lseek(fd, end, os.SEEK_DATA), os.SEEK_HOLE)
            except OSError as error:
                return end if error.errno == errno.ENXIO else self.size
        return self.size

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

    def clear(self, start: int) -> bool:
        """Make every byte from a position on zero, writing only where one is not. Returns: whether there was one."""
        is_changed = False
        for position, chunk in self.chunks(start):
            if chunk != _ZEROS[: len(chunk)]:
                self.mapping[position : position + len(chunk)] = _ZEROS[: len(chunk)]
                is_changed = True
        return is_changed

    def truncate(self, position: int) -> None:
        """Make a position the end of what is written. The bytes behind it stay; see `clear`."""
        self.wrote_position = position
        self.flushed_position = min(self.flushed_position, position)

    def cut(self, size: int) -> "MappedFile":
        """Make the file on the disk shorter, to a length that holds all that is written.

        Returns: the same file at its new length; this object is closed. Views of it that others hold stay valid. `sync` brings
        the length to the disk.
        Raises: OSError; then the file is as it was.
        """
        assert self.wrote_position <= size <= self.size
        os.ftruncate(self._open(), size)
        shorter = MappedFile(self.path, self.base, size, writable=self._writable, wrote_position=self.wrote_position)
        shorter.flushed_position, shorter._sync_failed = self.flushed_position, self._sync_failed
        self.close()
        return shorter

    def flush(self, least_pages: int = 0) -> None:
        """Force what was written to the disk. HA-ST-28 "MUST advance only over bytes that a successful sync has covered" (quirk
        36).

        A system that fails to write a page back may forget that the page was dirty, and the next sync would succeed without
        it; see `sync_again`. A file without a name is not on the disk, whatever is synced.

        Args:  least_pages: do nothing where fewer 4 KiB pages have something new, and the file is not full.
        Raises: OSError; StoreCorrupt where the file was cut.
        """
        start, stop = self.flushed_position, self.wrote_position
        if start >= stop or (stop < self.size and stop // OS_PAGE_SIZE - start // OS_PAGE_SIZE < least_pages):
            return
        with self._held() as fd:
            try:
                if self._sync_failed:
                    self._sync_again(fd, start, stop)
                _sync_data(fd)
                self._check_found(os.fstat(fd))
            except OSError as error:
                self._sync_failed = True
                error.filename = error.filename or str(self.path)
                raise
        self._sync_failed = False
        self.flushed_position = min(stop, self.wrote_position)  # less, if it was truncated meanwhile

    def sync(self) -> None:
        """Force the whole file to the disk, written or not. Raises: OSError."""
        with self._held() as fd:
            _sync_data(fd)

    @contextmanager
    def _held(self) -> Iterator[int]:
        """A descriptor that stays open as long as it is held."""
        yield self._open()

    def _sync_again(self, fd: int, start: int, stop: int) -> None:
        sync_again(fd, self.mapping, start, stop)

    def close_descriptor(self) -> None:
        """Give back a descriptor that a full file needs no more; the mapping stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Let go of the descriptor and the mapping. Views that others hold keep the memory until they go."""
        self._view = None
        self._map = None
        self.close_descriptor()

    def destroy(self) -> None:
        """Remove the file. Views that others hold stay valid; nobody can take a new one.

        Raises: OSError; then it is still there.
        """
        self.path.unlink(missing_ok=True)
        self._gone = True
        self.close()

    def _open(self) -> int:
        if self._fd < 0:
            with _opening:  # two threads must not open two, and forget one
                if self._fd < 0:
                    self._fd = self._open_anew()
        return self._fd

    def _open_anew(self) -> int:
        if self._gone:
            raise FileNotFoundError(errno.ENOENT, "removed from its log", str(self.path))
        return os.open(self.path, (os.O_RDWR if self._writable else os.O_RDONLY) | os.O_CLOEXEC)


def create_if_missing(path: Path, root: Path, size: int, fill: Callable[[int, int], None]) -> None:
    """Make a file, unless there is one. fill: called with its descriptor and size. Raises: as MappedFile.create."""
    if path.exists():
        return
    try:
        create_whole(path, root, lambda fd: fill(fd, size))
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StoreFull(path, "no room", f"{size} bytes for this file") from error
        raise


def sync_data(fd: int) -> None:
    """Force the data of a file to the disk. Raises: OSError."""
    _sync_data(fd)


def next_data(fd: int, start: int, size: int) -> tuple[int, bytes] | None:
    """The next part of a file that may hold anything but zero bytes, as (position, bytes); None where only holes follow."""
    if start >= size:
        return None
    try:
        start = os.lseek(fd, start, os.SEEK_DATA)
        stop = os.lseek(fd, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data from here on
            return None
        stop = size  # the file system cannot tell
    chunk = os.pread(fd, min(_CHUNK_SIZE, min(stop, size) - start), start) if start < size else b""
    return (start, chunk) if chunk else None


def sync_again(fd: int, mapping: mmap.mmap, start: int, stop: int) -> None:
    """After a sync that failed: have the next one fail too, unless all between two positions comes to the disk.

    The pages are made dirty anew; `force_commit` says why that is not all.

    Raises: OSError.
    """
    for position in range(start, stop, mmap.PAGESIZE):
        mapping[position] = mapping[position]
    mapping[stop - 1] = mapping[stop - 1]
    force_commit(fd)


def force_commit(fd: int) -> None:
    """Have the file system commit a change of this file's metadata, or fail.

    That the space allocated for its pages is written by now was perhaps in a transaction of the file system that was aborted,
    and is not told again by the pages alone; ext4 then takes them, and reads zeros after the next mount. A change of metadata
    needs a transaction of its own, which an aborted journal refuses.

    Raises: OSError.
    """
    if os.utime in os.supports_fd:
        os.utime(fd)
    os.fsync(fd)


def _allocate(fd: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    for position in range(0, size, _CHUNK_SIZE):  # macOS has no such call; written zeros are allocated too
        os.pwrite(fd, _ZEROS[: min(_CHUNK_SIZE, size - position)], position)
