"""The commit log: one sequence of bytes over files of one size, appended at the end, by records or by replicated bytes.

A file k holds offsets k * file_size to (k + 1) * file_size. A record never crosses a file: where it does not fit with 8
bytes to spare, a BLANK record takes the rest of the file.

Threads: any may append, one lock orders them; any may read what was appended before; one flushes at a time. After `close` all
raise StoreClosed; no flush may be under way then.

Source: article 003 section 1.1; 4.9.8 CommitLog and MappedFileQueue; quirks 17, 18 and 35.
"""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rocketmq_ha.impl.errors import StoreClosed
from rocketmq_ha.impl.store.log.layout import check_file_size
from rocketmq_ha.impl.store.log.lock import StoreLock
from rocketmq_ha.impl.store.log.log_writer import LogWriter
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.mapped_file_queue import Creator
from rocketmq_ha.impl.store.log.opening import HintSource, Opened, no_hint, open_files
from rocketmq_ha.impl.wire.message import Message, decode, read_header
from rocketmq_ha.impl.wire.record_layout import MAGICS
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, END_FILE_MIN_BLANK_SIZE

# HA-S-82 "the byte 0x00, the first of a record's size": a record is smaller than 16 MiB.
FIRST_BYTE: Final = b"\0"


class CommitLog(LogWriter):
    """A store's log, open for appending by this process alone. Make one with `open`."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.queue, opened.found.queue_offsets)
        self.recovery: Final = opened.found
        self._lock = opened.lock
        self._closed = False

    @classmethod
    def open(
        cls,
        store_dir: Path,
        *,
        file_size: int | None = None,
        clear_tail: bool = True,
        strict: bool | None = None,
        hint: HintSource = no_hint,
        create: Creator = MappedFile.create,
        lock: StoreLock | None = None,
    ) -> Self:
        """Lock a store, find the end of its log, and make ready to append there. All is checked before any change.

        Where the log ends, and what is a tear and what is damage, is decided in recovery.py: what stands behind the
        last whole valid record counts as torn only if no whole valid record follows it; else the open is refused.

        Args:  store_dir: the store's root. It is made where only its parent exists; commitlog/ and lock are made in it.
               file_size: bytes. By default that of the files there are, or 1 GiB for a new store.
               clear_tail: make all bytes of the last file beyond the end zero; without a whole record, remove all files
               (HA-ST-7). If False they stay, as RocketMQ leaves them (quirk 35). Files that begin beyond the end are
               removed in any case, as in RocketMQ.
               strict: see recovery.py; if False, the end is where RocketMQ finds it. By default the same as clear_tail.
               hint: what a checkpoint says; see recovery.py. create: makes new files.
               lock: of a caller who holds it already; the log takes it over.
        Raises: ConfigInvalid, StoreCorrupt (file and offset), StoreLocked, OSError. Then nothing changed on disk.
        """
        opened = open_files(
            store_dir,
            file_size=file_size,
            clear_tail=clear_tail,
            strict=clear_tail if strict is None else strict,
            hint=hint,
            create=create,
            lock=lock,
        )
        return cls(opened)

    @property
    def min_offset(self) -> int:
        """HA-ST-13 "MUST be the start of its first file"; 0 where there is none."""
        return self.queue.min_offset

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte of the log; 0 where there are no files."""
        return self.queue.max_offset

    @property
    def flushed_offset(self) -> int:
        """The log before this offset is on the disk."""
        return self.queue.flushed_offset

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        """The log's bytes from an offset on, in place: read-only, within one file, at most limit bytes.

        Returns: None where offset is outside min_offset to max_offset. At the end of a full file its BLANK and padding
        are bytes like others. The view may outlive the log.
        Spec: HA-W-4 "MUST NOT cross the end of a commit-log file"; HA-W-10 "MAY begin and end anywhere in a record"; HA-M-29
        "The master MAY send bytes that are not yet on its own disk", for no flushed position is looked at.
        """
        if self._closed:
            raise self._closed_error()
        file = self.queue.find(offset)
        if file is None:
            return None
        position = offset - file.base
        if position >= file.wrote_position:
            return None
        try:
            return file.view(position, min(position + limit, file.wrote_position))
        except FileNotFoundError:  # removed since it was found
            return None

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

    def begin_at(self, base: int) -> None:
        """Have a log that holds no byte begin at the start of a file, so that its max offset says so.

        Where the process ends before a whole record has come, the next opening takes the file away again (HA-ST-7); without
        `clear_tail` it stays, and may give way to another here.

        Spec: HA-S-81 "MUST make that file, empty, and nothing else"; HA-S-82 "A log that is to begin at offset 0 MUST hold one
        byte".
        Raises: OSError; StoreClosed. Then the log holds no byte, as before.
        """
        assert base >= 0 == base % self.file_size, base
        with self._put_lock:
            assert self.max_offset == self.min_offset, "a log with bytes in it"
            if self.queue.files and self.min_offset != base:
                self.queue.remove_all()
                self._last = self._mapping = None
        self.append_data(base, [] if base else [FIRST_BYTE])

    def adopt_file_size(self, file_size: int) -> None:
        """Go on with files of another size, in a log that has one file at most. That file becomes shorter.

        At every moment the store on the disk is one that opens, with the one size or the other; an opening without a size takes
        that of the file. Not for a log whose files are made ahead (allocate.py). Another process that reads the store meanwhile
        meets a file that changes its length once.

        Args:  file_size: bytes. The log's first offset is a multiple of it. Where there is a file, it is at most that file's
               size, and no less than the log's bytes.
        Raises: ConfigInvalid for a size that no file can have; OSError; StoreClosed. The log's bytes stay as they are.
        Spec: HA-S-91 "MUST make its one file as long as the master's are".
        """
        check_file_size(file_size)
        with self._put_lock:
            if self._refusal is not None:
                raise self._refusal()
            assert self.min_offset % file_size == 0, (self.min_offset, file_size)
            try:
                self.queue.adopt_file_size(file_size)
            finally:
                self.file_size = self.queue.file_size
                if self.queue.files:
                    self._take(self.queue.files[0])

    def delete_before(self, offset: int) -> int:
        """Remove the files that lie wholly before an offset, never the last one; the min offset moves. HA-ST-13.

        Returns: how many. Views of them that others hold stay valid.
        """
        return self.queue.delete_before(offset)

    def first_needed_offset(self) -> int | None:
        """From where on the log itself needs its bytes: where its last file may hold no whole record, the file before it too.

        A slave that comes back asks for its last whole record again (HA-S-61), and the next opening cuts off what is not whole.
        """
        files = self.queue.files
        if len(files) < 2:
            return None
        last = files[-1]
        if last.wrote_position >= END_FILE_MIN_BLANK_SIZE:
            size, magic = read_header(last.view(0, END_FILE_MIN_BLANK_SIZE))
            if magic in MAGICS and size <= last.wrote_position:
                return last.base
        return files[-2].base

    def flush(self, least_pages: int = 0) -> int:
        """Force what was appended, and the names of new files, to the disk: only then does it outlive a power cut.

        Args:  least_pages: of 4 KiB; nothing is done where fewer have something new.
        Returns: flushed_offset.
        Raises: OSError; then flushed_offset is still behind the last byte that a sync has covered.
        """
        return self.queue.flush(least_pages)

    def close(self) -> None:
        """Unmap, unlock; a second call does nothing. It does not flush: that is the caller's decision."""
        with self._put_lock:
            self._closed = True
            self._refusal = self._refusal or self._closed_error
            self._last = self._mapping = None
        self.queue.close()
        self._lock.release()

    def __enter__(self) -> "CommitLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _closed_error(self) -> StoreClosed:
        return StoreClosed(f"{self.queue.directory}: the log is closed")
