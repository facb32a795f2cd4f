"""Files of one size, laid end to end: the commit log is one such queue, and each consume queue another.

Offset x is in the file named x - x % file_size. Files are adjacent; the last one has the end of the data in it. A load takes
every file for full, since nothing in it says how far it is written: whoever knows where the data end says so by `truncate`.

One thread at a time may change a queue (`last`, `truncate`); its owner sees to that. Meanwhile any thread may read, one may
flush, and one may delete (`delete_before`): the list of files is replaced, never changed, so whoever took it can walk it.

Source: 4.9.8 MappedFileQueue; quirks 35, 36 and 39.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.store.log.layout import file_name, list_files
from rocketmq_ha.impl.store.log.layout import sync_directory as _sync_directory
from rocketmq_ha.impl.store.log.mapped_file import MappedFile

# Makes the file of a start offset: MappedFile.create, or whoever has prepared it (allocate.py).
Creator = Callable[[Path, int, int], MappedFile]
# Takes a file that is there, at its full length: path, start offset, size, whether it may be written.
Loader = Callable[[Path, int, int, bool], MappedFile]


def load_mapped(path: Path, base: int, size: int, writable: bool) -> MappedFile:
    return MappedFile(path, base, size, writable=writable, wrote_position=size)


class MappedFileQueue:
    """A directory of mapped files.

    Args:  directory: need not exist; it is made with the first file. file_size: bytes, of every file.
           writable: whether files may be made, written and removed.
    Raises: StoreCorrupt for a file of another name or length, or a gap (file, expected size); OSError. Nothing is changed.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        writable: bool,
        create: Creator = MappedFile.create,
        load: Loader = load_mapped,
    ) -> None:
        self.directory: Final = directory
        self.file_size = file_size  # changed by `adopt_file_size` alone
        bases, self._leftovers = list_files(directory, file_size)
        self._files = tuple(load(directory / file_name(base), base, file_size, writable) for base in bases)
        self._writable, self._create = writable, create
        self.syncs, self.sync_seconds = 0, 0.0  # of file contents, that succeeded
        self._unflushed_files = 0  # files before this index are on the disk
        self._unsynced_levels = 3  # directories whose entries may not be on the disk: this one, and those above it
        self._has_unsynced_removal = False
        self._flush_guard = threading.Lock()  # a flush, or a change of which files there are
        self._list_guard = threading.Lock()  # a change of the list: one thread may add a file while another deletes some

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files, ascending; a value of its own, which later changes leave as it is."""
        return self._files

    @property
    def min_offset(self) -> int:
        """The offset at which the first file starts; 0 where there is none. HA-ST-13."""
        files = self._files
        return files[0].base if files else 0

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte that was written; 0 where there are no files."""
        files = self._files
        return files[-1].end if files else 0

    @property
    def flushed_offset(self) -> int:
        """All bytes before this offset are on the disk, by a sync that succeeded. HA-ST-28."""
        files = self._files
        if not files:
            return 0
        file = files[min(self._unflushed_files, len(files) - 1)]
        return file.base + file.flushed_position

    def find(self, offset: int) -> MappedFile | None:
        """The file in whose range an offset lies, whether written that far or not; None outside all files."""
        files = self._files
        if not files:
            return None
        index = (offset - files[0].base) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def last(self, create_at: int | None = None) -> MappedFile:
        """The file that takes the next byte: the last one, or where that is full, or there is none, a new one.

        Args:  create_at: where there are no files, an offset in the first one to make; by default 0.
        Raises: OSError where the file cannot be allocated; then nothing has changed.
        """
        files = self._files
        if files and not files[-1].is_full:
            return files[-1]
        if files:
            return self.add(files[-1].base + self.file_size)
        offset = create_at or 0
        return self.add(offset - offset % self.file_size)

    def prepare(self, base: int) -> MappedFile:
        """Make the file that starts at an offset, without adding it: `adopt` does. Raises: OSError."""
        assert self._writable
        if not self.directory.is_dir():  # nearly always there, and then mkdir would cost two calls and an exception
            self.directory.mkdir(parents=True, exist_ok=True)
        return self._create(self.directory, base, self.file_size)

    def adopt(self, file: MappedFile) -> MappedFile:
        """Add a file that `prepare` has made behind the last one."""
        files = self._files
        assert not files or file.base == files[-1].base + self.file_size
        # A log can have a thousand files. A flush that is using the descriptor now closes it itself when it is done.
        if files and self._flush_guard.acquire(blocking=False):
            files[-1].close_descriptor()
            self._flush_guard.release()
        with self._list_guard:
            self._files = (*self._files, file)
        self._unsynced_levels = max(1, self._unsynced_levels)
        return file

    def add(self, base: int) -> MappedFile:
        """Make the file that starts at an offset, behind the last one. Raises: OSError."""
        return self.adopt(self.prepare(base))

    def truncate(self, offset: int, *, clear: bool = True, keep_empty: bool = True, sync: bool = True) -> None:
        """Make an offset the end: files that begin beyond it are removed, the one that holds it is written up to it.

        A file that begins at the offset stays, empty, unless `keep_empty` is False and there is one before it. Files go from
        the last on, so that an interruption leaves no gap.

        Args:  offset: beyond what is written, nothing is done. clear: make the rest of the file zero (HA-ST-7); without it
               what was there stays, as RocketMQ leaves it (quirk 35). The zeros go to the disk at once, and so does the
               removal of files: what came back after the next power cut would stand where new bytes are to stand.
               sync: if False, the next flush brings both to the disk; the files then must keep zeros in mind themselves.
        Raises: OSError; then the files that are left are adjacent, and the next `truncate` goes on.
        """
        assert self._writable
        with self._flush_guard:
            is_shorter = False
            spared = offset if keep_empty or len(self._files) < 2 else offset - 1
            while self._files and self._files[-1].base > spared:
                self._files[-1].destroy()
                self._files = self._files[:-1]
                is_shorter = True
            if is_shorter and sync:
                _sync_directory(self.directory)
            elif is_shorter:
                self._has_unsynced_removal = True
            if self._files and offset < self._files[-1].base + self.file_size:
                last = self._files[-1]
                last.truncate(min(last.wrote_position, offset - last.base))
                if clear and last.clear(last.wrote_position) and sync:
                    last.sync()
            self._unflushed_files = min(self._unflushed_files, max(0, len(self._files) - 1))

    def set_aside(self) -> MappedFile:
        """Make the queue empty, and leave its first file where it is, all zero: a new file of that offset takes its place.

        Returns: that file; where no new one is begun, `drop` removes it. Raises: OSError; then the files are still listed.
        """
        assert self._writable
        self.truncate(self._files[0].base, sync=False)
        [file] = self._files
        with self._flush_guard, self._list_guard:
            self._files = ()
        file.close()
        return file

    def drop(self, file: MappedFile) -> None:
        """Remove a file that was set aside; the next flush brings that to the disk. Raises: OSError."""
        file.destroy()
        self._has_unsynced_removal = True

    def data_limit(self) -> int:
        """An offset behind which the files are a hole; it is found without reading."""
        files = self._files
        return files[-1].base + files[-1].data_limit() if files else 0

    def rewrite(self, offset: int, data: bytes) -> None:
        """Change bytes of one file that are written already; the next flush brings them to the disk. Raises: OSError."""
        with self._flush_guard:
            file = self.find(offset)
            assert file is not None
            file.rewrite(offset - file.base, data)
            self._unflushed_files = min(self._unflushed_files, self._files.index(file))

    def count_as_flushed(self) -> None:
        """What is written, and the names of the files, are on the disk: the store that wrote them has flushed them.

        What was changed since the files were loaded is not: zeros, and names that went.
        """
        with self._flush_guard:
            if self._files:
                for file in self._files:
                    file.flushed_position = file.wrote_position
                self._unflushed_files = len(self._files) - 1
                self._unsynced_levels = 0

    @property
    def is_flushed(self) -> bool:
        """Whether a flush would find nothing to do."""
        files = self._files
        has_names = not files or not self._unsynced_levels
        return has_names and not self._has_unsynced_removal and all(file.is_flushed for file in files[self._unflushed_files :])

    def adopt_file_size(self, file_size: int) -> None:
        """Go on with files of another size. Where there is a file, it is the only one; it is cut to this size, on the disk too.

        The length of a file changes at once, so that whoever ends this process leaves a file of the one size or the other.

        Args:  file_size: bytes; at most the size of the file that there is, and at least what is written in it.
        Raises: OSError. The file may have either size then, and so has this queue.
        """
        assert self._writable and len(self._files) <= 1
        with self._flush_guard, self._list_guard:
            if self._files:
                self._files = (self._files[0].cut(file_size),)
            self.file_size = file_size
            if self._files:
                # What is written next must not come to the disk before the length does: it would not fit the longer file.
                self._files[0].sync()

    def remove_all(self) -> None:
        """Remove every file, from the last on."""
        self.truncate(-1)

    def delete_before(self, offset: int) -> int:
        """Remove the files that lie wholly before an offset, from the first on; never the last. Views of them stay valid.

        A file is taken off the list first, so that no new reader finds it, and comes back where it cannot be removed. No flush
        waits for the removal.

        Returns: how many. Raises: OSError; then those before it are gone.
        """
        assert self._writable
        count = 0
        while (first := self._take_first(offset)) is not None:
            try:
                first.destroy()
            except OSError:
                with self._flush_guard, self._list_guard:
                    self._files = (first, *self._files)
                    self._unflushed_files = self._unflushed_files + 1 if first.flushed_position == first.size else 0
                raise
            count += 1
        return count

    def _take_first(self, offset: int) -> MappedFile | None:
        """Take the first file off the list, if it lies wholly before an offset and is not the last."""
        with self._flush_guard, self._list_guard:
            if len(self._files) < 2 or self._files[0].base + self.file_size > offset:
                return None
            first, *rest = self._files
            self._files = tuple(rest)
            self._unflushed_files = max(0, self._unflushed_files - 1)
            return first

    def flush(self, least_pages: int = 0, synced: set[Path] | None = None) -> int:
        """Force what was written, and the names of new files, to the disk: only then does it outlive a power cut.

        Args:  least_pages: do nothing where fewer 4 KiB pages of a file have become dirty, and it is not full.
               synced: directories above this one that had a sync since they have all their names, and need none. Those that
               get one now are added.
        Returns: flushed_offset.
        Raises: OSError; flushed_offset stays behind the last byte that a sync has covered (HA-ST-28).
        """
        with self._flush_guard:
            files = self._files
            if self._has_unsynced_removal:
                _sync_directory(self.directory)
                self._has_unsynced_removal = False
            if files and self._unsynced_levels:
                self._sync_names(set() if synced is None else synced)
            for index in range(self._unflushed_files, len(files)):
                file = files[index]
                before, began_s = file.flushed_position, time.perf_counter()
                file.flush(least_pages)
                if file.flushed_position != before:
                    self.syncs += 1
                    self.sync_seconds += time.perf_counter() - began_s
                if file.flushed_position < file.size:
                    break
                if index + 1 < len(files):
                    file.close_descriptor()  # the mapping stays, and a log can have a thousand files
                    self._unflushed_files = index + 1
            return self.flushed_offset

    def _sync_names(self, synced: set[Path]) -> None:
        """A file whose name is not on the disk is lost with all that was flushed into it."""
        levels, self._unsynced_levels = self._unsynced_levels, 0  # first: a file that is added now counts again
        try:
            for level, directory in enumerate((self.directory, *self.directory.parents)[:levels]):
                if level == 0 or directory not in synced:
                    _sync_directory(directory)
                if level:
                    synced.add(directory)
        except BaseException:
            self._unsynced_levels = max(levels, self._unsynced_levels)
            raise

    def sweep(self) -> None:
        """Remove what interrupted creations have left."""
        for leftover in self._leftovers:
            leftover.unlink(missing_ok=True)
        self._leftovers = ()

    def close(self) -> None:
        """Let go of all files; a second call does nothing. It does not flush. Views that others hold stay valid."""
        for file in self._files:
            file.close()
