"""The commit log: one sequence of bytes over files of one size, appended at the end, by records or by replicated bytes.

A file k holds offsets k * file_size to (k + 1) * file_size. A record never crosses a file: where it does not fit with 8
bytes to spare, a BLANK record takes the rest of the file. Not thread-safe: one thread owns a log.

Spec: HA-ST-1, HA-ST-3, HA-ST-5 to HA-ST-9.
Source: article 003 section 1.1; 4.9.8 CommitLog and MappedFileQueue; quirks 17, 18 and 35.
"""

import logging
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from rocketmq_ha.impl.errors import AppendRefused, ConfigInvalid, MessageIllegal, StoreLocked
from rocketmq_ha.impl.store.fragment import is_fragment
from rocketmq_ha.impl.store.layout import Layout, check_file_size, file_name, read_layout
from rocketmq_ha.impl.store.lock import StoreLock
from rocketmq_ha.impl.store.mapped_file import MappedFile
from rocketmq_ha.impl.store.recovery import Recovery, recover
from rocketmq_ha.impl.wire.message import Message, decode, encode, read_header
from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    COMMIT_LOG_DIR,
    END_FILE_MIN_BLANK_SIZE,
    LOCK_FILE,
    MAPPED_FILE_SIZE_COMMIT_LOG,
)

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())  # silent where nobody has set logging up, as a library should be
_BLANK: Final = struct.Struct(">iI")


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where a message went."""

    offset: int  # commit-log offset of its first byte
    size: int  # bytes
    queue_offset: int  # its index in its queue; 0 for prepared and rolled-back messages


class CommitLog:
    """A store's log, open for appending by this process alone. Make one with `open`."""

    def __init__(self, directory: Path, file_size: int, files: list[MappedFile], found: Recovery, lock: StoreLock) -> None:
        self.file_size: Final = file_size
        self.recovery: Final = found
        self._directory, self._files, self._lock = directory, files, lock
        self._queue_offsets = found.queue_offsets
        self._flushed_files = 0  # files before this index are on the disk
        self._names_flushed = False
        self._closed = False

    @classmethod
    def open(cls, store_dir: Path, *, file_size: int | None = None, clear_tail: bool = True) -> "CommitLog":
        """Lock a store, find the end of its log, and make ready to append there. All is checked before any change.

        Where the log ends, and what is a tear and what is damage, is decided in recovery.py: what stands behind the
        last whole valid record counts as torn only if no whole valid record follows it; else the open is refused.

        Args:  store_dir: the store's root. It is made where only its parent exists; commitlog/ and lock are made in it.
               file_size: bytes. By default that of the files there are, or 1 GiB for a new store.
               clear_tail: make all bytes of the last file beyond the end zero; without a whole record, remove all files
               (HA-ST-7). If False they stay, as RocketMQ leaves them (quirk 35), and the end is where RocketMQ finds it
               (recovery.py, `strict`). Files that begin beyond the end are removed in any case, as in RocketMQ.
        Raises: ConfigInvalid, StoreCorrupt (file and offset), StoreLocked, OSError. Then nothing changed on disk.
        """
        if file_size is not None:
            check_file_size(file_size)
        if not store_dir.exists() and not store_dir.parent.is_dir():
            raise ConfigInvalid(f"{store_dir}: its parent directory does not exist, expected a place for a new store")
        # Without a lock file nobody else has the store: look first, so that a refusal need not make one.
        lock = StoreLock(store_dir, create=False) if (store_dir / LOCK_FILE).exists() else None
        files: list[MappedFile] = []
        try:
            layout, files, found = _look(store_dir, file_size, clear_tail)
            if lock is None:
                store_dir.mkdir(exist_ok=True)
                lock = StoreLock(store_dir, create=True)
                again = _look(store_dir, file_size, clear_tail)
                _close(again.files)
                if (again.layout, again.found) != (layout, found):
                    raise StoreLocked(f"{store_dir}: another process has just changed it, expected a store at rest")
            directory = store_dir / COMMIT_LOG_DIR
            directory.mkdir(exist_ok=True)
            for leftover in layout.leftovers if layout is not None else ():
                leftover.unlink(missing_ok=True)
            kept = _cut(files, found, clear_tail)
        except BaseException:
            _close(files)
            if lock is not None:
                lock.release()
            raise
        size = (layout.file_size if layout is not None else None) or file_size or MAPPED_FILE_SIZE_COMMIT_LOG
        return cls(directory, size, kept, found, lock)

    @property
    def min_offset(self) -> int:
        """The offset at which the first file starts; 0 where there is none."""
        return self._files[0].base if self._files else 0

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte of the log; 0 where there are no files."""
        return self._files[-1].end if self._files else 0

    def append(self, message: Message) -> AppendResult:
        """Put one message at the end, giving it its physical offset and its index in its queue.

        Raises: MessageIllegal for what no record holds, a record that fits no file of this log, or one that could not
        be told from its own beginning (it ends in a zero byte); OSError where a new file cannot be allocated. Then
        nothing was written.
        """
        assert not self._closed
        key = (message.queue_id, message.topic_bytes)
        queue_offset = self._queue_offsets.get(key, 0) if message.is_queued else 0
        file = self._files[-1] if self._files else None
        record = encode(message, queue_offset, file.end if file is not None else 0)
        size = len(record)
        if record[-1] == 0 and (message.properties_string or key[1][-1] == 0):
            raise MessageIllegal("topic or properties", "a zero byte at the end", "none: recovery would cut it off")
        if file is None or size + END_FILE_MIN_BLANK_SIZE > file.size - file.wrote_position:
            if size + END_FILE_MIN_BLANK_SIZE > self.file_size:
                limit = self.file_size - END_FILE_MIN_BLANK_SIZE
                raise MessageIllegal("size", f"{size} bytes", f"at most {limit}, a file of this log less its BLANK")
            file = self._roll(file)
            record = encode(message, queue_offset, file.end)
        offset = file.end
        file.append(record)
        if message.is_queued:
            self._queue_offsets[key] = queue_offset + 1
        return AppendResult(offset, size, queue_offset)

    def append_data(self, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        """Append replicated bytes at max_offset, by one pwritev.

        Without files, offset says which file to begin: the one that would hold it, and the bytes go to the start of
        that file even if offset is inside (quirk 18); no bytes at all still make the file (quirk 17). With
        files, offset is not looked at: the caller has compared it. A full last file rolls to the next first.

        Args:  offset: commit-log bytes, from the frame. buffers: views of bytes, in order; all go into one file.
        Raises: AppendRefused for bytes that cross the end of a file, or an offset before file 0; OSError. Then the log
        is as long as before.
        """
        assert not self._closed
        total = sum(map(len, buffers))
        last = self._files[-1] if self._files else None
        if last is not None and not last.is_full:
            base, room = last.base, last.size - last.wrote_position
        else:
            base, room = (_base_of(offset, self.file_size) if last is None else last.base + last.size), self.file_size
        if total > room or base < 0:
            path = self._directory / file_name(base)
            raise AppendRefused(path, offset, f"{total} bytes", f"at most {room}: a frame lies in one file")
        if last is None or last.is_full:
            last = self._add_file(base)
        if total:
            last.append_vectors(buffers, total)

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        """The log's bytes from an offset on, in place: read-only, within one file, at most limit bytes.

        Returns: None where offset is outside min_offset to max_offset. At the end of a full file its BLANK and padding
        are bytes like others. The view may outlive the log.
        """
        assert not self._closed
        if not self.min_offset <= offset < self.max_offset:
            return None
        index, position = divmod(offset - self.min_offset, self.file_size)
        file = self._files[index]
        return file.view(position, min(position + limit, file.wrote_position))

    def records(self, start: int | None = None) -> Iterator[tuple[int, int, Message]]:
        """Every message from an offset on, which must be a record's; by default from the first.

        Returns: (offset, size in bytes, message). Ends before a record that is not whole yet.
        Raises: MessageMalformed for bytes that are no record.
        """
        offset = self.min_offset if start is None else start
        while (data := self.data_at(offset, self.file_size)) is not None:
            if len(data) < END_FILE_MIN_BLANK_SIZE:
                return
            size, magic = read_header(data)
            if magic == BLANK_MAGIC_CODE:
                size = self.file_size - (offset - self.min_offset) % self.file_size
            elif size > len(data):
                return
            else:
                yield offset, size, decode(data)
            offset += size

    def flush(self) -> None:
        """Force what was appended, and the names of new files, to the disk: only then does it outlive a power cut."""
        for file in self._files[self._flushed_files :]:
            file.flush()
        self._flushed_files = max(0, len(self._files) - 1)
        if not self._names_flushed:
            for directory in (self._directory, self._directory.parent):
                fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            self._names_flushed = True

    def close(self) -> None:
        """Unmap, unlock; a second call does nothing. It does not flush: that is the caller's decision."""
        self._closed = True
        _close(self._files)
        self._lock.release()

    def __enter__(self) -> "CommitLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _roll(self, last: MappedFile | None) -> MappedFile:
        """Begin the file behind the last one. It is allocated first: where that fails, no BLANK is written."""
        if last is None:
            return self._add_file(0)
        room = last.size - last.wrote_position
        if 0 < room < END_FILE_MIN_BLANK_SIZE:  # replicated bytes can end anywhere, records cannot
            raise AppendRefused(last.path, last.end, f"{room} bytes to the end of the file", "8, for a BLANK")
        file = MappedFile.create(self._directory, last.base + last.size, self.file_size)
        if room:
            last.append_blank(_BLANK.pack(room, BLANK_MAGIC_CODE))
        return self._take(file)

    def _add_file(self, base: int) -> MappedFile:
        return self._take(MappedFile.create(self._directory, base, self.file_size))

    def _take(self, file: MappedFile) -> MappedFile:
        if self._files:
            self._files[-1].close_descriptor()
        self._files.append(file)
        self._names_flushed = False
        return file


class _Look(NamedTuple):
    layout: Layout | None
    files: list[MappedFile]
    found: Recovery


def _look(store_dir: Path, file_size: int | None, clear_tail: bool) -> _Look:
    """List, check and recover a store. Changes nothing."""
    layout = read_layout(store_dir)
    if layout is None or layout.file_size is None:
        return _Look(layout, [], recover([], strict=clear_tail))
    directory, size = layout.directory, layout.file_size
    if file_size not in (None, size):
        raise ConfigInvalid(f"{directory}: found files of {size} bytes, expected {file_size}")
    files = [MappedFile(directory / file_name(base), base, size, writable=True) for base in layout.bases]
    try:
        return _Look(layout, files, recover(files, strict=clear_tail))
    except BaseException:
        _close(files)
        raise


def _close(files: Sequence[MappedFile]) -> None:
    for file in files:
        file.close()


def _cut(files: list[MappedFile], found: Recovery, clear_tail: bool) -> list[MappedFile]:
    """Set the positions to the recovered end and, where asked, clear what is beyond. HA-ST-5, HA-ST-7.

    Returns: the files that hold the log. Files go from the last on, so that an interruption leaves no gap.
    """
    if found.cut_size:
        last = files[found.files - 1]
        position = found.end - last.base
        # That a slave holds part of a record is nothing to worry about: the master will send it again.
        is_usual = found.cut_size <= last.size - position and is_fragment(
            last.view(position, last.size), found.cut_size, found.end
        )
        level = logging.INFO if is_usual else logging.WARNING
        logger.log(level, "%s: cut off %d bytes behind the last whole record", last.path, found.cut_size)
    is_empty = not files or found.end == files[0].base
    kept = 0 if is_empty and clear_tail else found.files
    for file in reversed(files[kept:]):
        file.close()
        file.path.unlink()
    for file in files[:kept]:
        file.wrote_position = min(file.size, found.end - file.base)
    if kept and clear_tail and found.cut_size:
        files[kept - 1].clear(files[kept - 1].wrote_position)
    return files[:kept]


def _base_of(offset: int, file_size: int) -> int:
    """The start of the file that would hold an offset, divided as Java divides: towards zero, so -1 is in file 0."""
    return offset - offset % file_size if offset >= 0 else -(-offset // file_size * file_size)
