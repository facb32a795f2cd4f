"""One queue of a topic: which messages it has, and where in the commit log each of them is.

    entry, 20 bytes = offset in the commit log i64, size i32, tags code i64        file: 300,000 entries, 6,000,000 bytes

Entry n is at byte 20 * n of the queue, so a queue whose first message has another number than 0 begins with fillers, from
the start of a file on (HA-ST-33). The dispatch puts entries, one thread at a time; any thread may read meanwhile.

Spec: HA-ST-29 "MUST have a consume queue of its own, of 20-byte entries"; HA-ST-30 "MUST hold 300,000 entries, 6,000,000
bytes".
Source: article 003 section 1.2; 4.9.8 ConsumeQueue.
"""

import logging
import struct
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY, ENTRY_SIZE, FILLER_SIZE, TORN_FILLERS, Entry, valid_end
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.mapped_file_queue import Creator, MappedFileQueue

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

FILE_ENTRIES: Final = 300_000
FILE_SIZE: Final = FILE_ENTRIES * ENTRY_SIZE
_PACKED_AT_ONCE: Final = 256
# Files of entries that may be missing before one that comes: they are filled up. A flipped bit must not fill the disk.
_LARGEST_GAP: Final = 10
_RECOVERED_FILES: Final = 3  # from the end, after a clean stop


class ConsumeQueue:
    """The entries of one queue. Positions are indices of entries, that is queue offsets, never bytes.

    Args:  directory: consumequeue/{topic}/{queueId}; it is made with the first entry. file_size: bytes.
           writable: if not, nothing on the disk is changed, and `recover` looks how far a live writer has come.
           create: makes new files.
    Raises: ConfigInvalid for a file size that cuts an entry in two; StoreCorrupt for files of another size; OSError.
    After the constructor the queue counts as full to the end of its last file: call `recover`.
    """

    def __init__(
        self, directory: Path, file_size: int = FILE_SIZE, *, writable: bool, create: Creator = MappedFile.create
    ) -> None:
        if file_size < ENTRY_SIZE or file_size % ENTRY_SIZE:
            raise ConfigInvalid(f"{directory}: file size {file_size}, expected a multiple of {ENTRY_SIZE} bytes")
        self.directory: Final = directory
        self._queue = MappedFileQueue(directory, file_size, writable=writable, create=create)
        self._writable = writable
        self._guard = threading.Lock()  # of what changes the files: the dispatch, and the deletion of old ones
        self._file_entries = file_size // ENTRY_SIZE
        self._end = self._queue.max_offset  # bytes; of a queue that others write, as far as was seen
        self.max_physic_offset = 0  # commit-log offset behind the last message that has an entry
        self.min_offset = self._queue.min_offset // ENTRY_SIZE  # the first entry whose message is in the log

    @property
    def max_offset(self) -> int:
        """The queue offset that the next message gets: one more than that of the last."""
        return self._end // ENTRY_SIZE

    # --- Writing -----------------------------------------------------------------------------------------------------

    def put(self, offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """Add the entry of one message; see `put_all`."""
        self.put_all([queue_offset, offset, size, tags_code])

    def put_all(self, fields: list[int]) -> None:
        """Add the entries of messages, in the order of the log. HA-ST-31 "MUST be entry n of its queue".

        A message that the queue knows, by its place in the log or by its number, is skipped: a dispatch may be repeated. If
        its entry was torn by a crash, it is mended on this occasion. Where the queue is new, or messages before this one are
        missing, fillers take their places: HA-ST-75 "MUST fill the places between".

        Args:  fields: queue offset, commit-log offset, size and tags code, of one message after the other; they are used up.
        Raises: OSError where a file cannot be made, and StoreCorrupt for a queue offset that no queue of ours can have
        reached. Then the messages before are in, and the whole may be put again.
        """
        first, count = fields[0], len(fields) // 4
        with self._guard:
            is_next = first * ENTRY_SIZE == self._end and fields[1] + fields[2] > self.max_physic_offset
            if is_next and self._queue.files and fields[::4] == list(range(first, first + count)):
                del fields[::4]
                self._append(fields)
                return
            for index in range(0, len(fields), 4):
                self._put(*fields[index : index + 4])

    def _put(self, queue_offset: int, offset: int, size: int, tags_code: int) -> None:
        if self._first() <= queue_offset < self.max_offset:
            self._repeat(queue_offset, Entry(offset, size, tags_code))
            return
        if offset + size <= self.max_physic_offset:
            return
        if not 0 <= queue_offset < 1 << 58:
            raise StoreCorrupt(self.directory, offset, f"queue offset {queue_offset}", f"{self.max_offset}, the next one")
        is_new = not self._queue.files
        begin = queue_offset // self._file_entries * self._file_entries if is_new else self.max_offset
        if queue_offset < begin:
            return  # of a file that was deleted
        if queue_offset - begin > _LARGEST_GAP * self._file_entries:
            raise StoreCorrupt(self.directory, offset, f"queue offset {queue_offset}", f"{begin}, the next one")
        if is_new:
            self._queue.last(create_at=queue_offset * ENTRY_SIZE)
            self._end = begin * ENTRY_SIZE
        elif queue_offset > begin:
            logger.error("%s: messages %d to %d are missing in the log", self.directory, begin, queue_offset - 1)
        has_none = is_new or self.min_offset == begin  # no message of which the log has anything
        for _ in range(queue_offset - begin):
            self._append([0, FILLER_SIZE, 0])
        if has_none:
            self.min_offset = queue_offset
        self._append([offset, size, tags_code])

    def _repeat(self, queue_offset: int, entry: Entry) -> None:
        found = self._entry(queue_offset)
        if found == entry:
            return
        if found.offset != entry.offset:
            logger.warning("%s: has entry %d already, skipped offset %d", self.directory, queue_offset, entry.offset)
            return
        file = self._queue.find(queue_offset * ENTRY_SIZE)
        assert file is not None
        ENTRY.pack_into(file.mapping, queue_offset * ENTRY_SIZE - file.base, *entry)
        logger.info("%s: mended entry %d", self.directory, queue_offset)
        if queue_offset == self.max_offset - 1:
            self.max_physic_offset = entry.offset + entry.size

    def _append(self, fields: list[int]) -> None:
        """Write entries at the end, a file's share and at most so many at once."""
        done = 0
        while done < len(fields):
            file = self._queue.last(create_at=self._end)
            room = (file.size - file.wrote_position) // ENTRY_SIZE
            part = fields[done : done + 3 * min(room, _PACKED_AT_ONCE)]
            file.append(_packer(len(part) // 3).pack(*part))
            done += len(part)
            self._end = file.end
            if part[-2] != FILLER_SIZE:
                self.max_physic_offset = part[-3] + part[-2]

    def truncate_dirty(self, offset: int) -> None:
        """Remove the entries of messages at or behind a commit-log offset. HA-ST-38 "MUST NOT name a message beyond the end".

        A queue ends with a message: the fillers before a removed entry go too. Where nothing but fillers is left, the queue is
        new again.
        """
        with self._guard:
            count = self._first_at_or_behind(offset)
            while count > self._first() and self._entry(count - 1).is_filler:
                count -= 1
            if count < self.max_offset:
                # Without its last file empty: deletion spares the last one, which is then one with entries.
                self._queue.truncate(count * ENTRY_SIZE if count > self._first() else -1, keep_empty=False)
                self._end = self._queue.max_offset
                self._after_cut()

    def correct_min_offset(self, min_physic_offset: int) -> None:
        """Move the first queue offset to the first message that the log still has, which now begins at `min_physic_offset`."""
        with self._guard:
            self.min_offset = self._first_at_or_behind(min_physic_offset)

    def delete_expired(self, min_physic_offset: int) -> int:
        """Remove the files whose messages all lie before the log's first offset; never the last. Returns: how many.

        Spec: HA-ST-71 "MUST be deleted when all its messages have been deleted from the log".
        """
        self.correct_min_offset(min_physic_offset)
        with self._guard:
            return self._queue.delete_before(self.min_offset * ENTRY_SIZE)

    def destroy(self) -> None:
        """Remove all files."""
        with self._guard:
            self._queue.remove_all()
            self._end = self.min_offset = self.max_physic_offset = 0

    def flush(self, least_pages: int = 0) -> None:
        """Force the entries to the disk. Raises: OSError."""
        self._queue.flush(least_pages)

    def close(self) -> None:
        """Unmap the files; a second call does nothing."""
        self._queue.close()

    # --- Recovery ----------------------------------------------------------------------------------------------------

    def keep_before(self, offset: int, is_true: Callable[[int, Entry], bool]) -> None:
        """After a stop that was not clean: keep the entries of messages that end by a commit-log offset, and no others.

        Spec: HA-ST-82 "MUST keep the entries that the checkpoint vouches for, and no other".

        Those messages were dispatched, and their entries flushed, before the checkpoint said so. Whatever is behind them may
        have come to the disk or not, in any order, over any number of files: some of it may pass for an entry by chance.
        So the search ends at or behind the last entry of such a message, and goes back from there to one that is true.

        Args:  is_true: whether the log has the message of an entry, in this queue, with this queue offset.
        """
        with self._guard:
            first, last = self._first(), self._queue.max_offset // ENTRY_SIZE
            self._end = self._queue.max_offset
            count = bisect_left(range(first, last), True, key=lambda index: not self._entry(index).ends_by(offset)) + first
            while count > first:
                found = self._entry(count - 1)
                if not found.is_filler and found.ends_by(offset) and is_true(count - 1, found):
                    break
                count -= 1
            self._queue.sweep()
            self._queue.truncate(count * ENTRY_SIZE if count > first else -1)
            self._end = self._queue.max_offset
            self._after_cut()

    def fill_holes(self) -> None:
        """After `keep_before`, where all kept entries are of messages that have expired: replace what is no entry by fillers.

        They are kept for their number alone: the next message has the next one. Nobody vouches for each of them, and the next
        `recover` would take the first hole for the end of the queue, and all behind it for nothing.
        """
        with self._guard:
            for file in self._queue.files:
                end = min(file.size, self._end - file.base)
                for position in range(valid_end(file), end, ENTRY_SIZE):
                    data = file.mapping[position : position + ENTRY_SIZE]
                    offset, size, _ = ENTRY.unpack(data)
                    if offset < 0 or size <= 0 or data in TORN_FILLERS:
                        ENTRY.pack_into(file.mapping, position, 0, FILLER_SIZE, 0)

    def recover(self) -> None:
        """Find the last entry: before the first one, of the last three files, with a negative offset or a size not above 0.

        What is behind is cut off and made zero, unless this queue is not writable.
        """
        files = self._queue.files
        for file in files[-_RECOVERED_FILES:]:
            position = valid_end(file)
            self._end = file.base + position
            if position < file.size:
                break
        if self._writable:
            self._queue.sweep()
            if files:
                self._queue.truncate(self._end if self._end > files[0].base else -1)
                self._end = self._queue.max_offset
        self._after_cut()

    def _after_cut(self) -> None:
        last = self._entry(self.max_offset - 1) if self.max_offset > self._first() else None
        self.max_physic_offset = last.offset + last.size if last is not None and not last.is_filler else 0
        self.min_offset = min(max(self.min_offset, self._first()), self.max_offset)

    # --- Reading -----------------------------------------------------------------------------------------------------

    def entry(self, queue_offset: int) -> Entry | None:
        """The entry of a message; None where the queue has none, or has it no more."""
        return self._entry_or_none(queue_offset) if self.min_offset <= queue_offset < self.max_offset else None

    def read(self, queue_offset: int, limit: int) -> memoryview:
        """The bytes of the entries from a message on, in place, within one file, at most `limit` entries; b"" if none.

        Raises: FileNotFoundError where the file was removed since it was found.
        """
        if not self.min_offset <= queue_offset < self.max_offset:
            return memoryview(b"")
        position = queue_offset * ENTRY_SIZE
        file = self._queue.find(position)
        if file is None:  # deleted at this moment
            return memoryview(b"")
        start = position - file.base
        return file.view(start, min(start + limit * ENTRY_SIZE, file.size, self._end - file.base))

    def entries(self, start: int | None = None, stop: int | None = None) -> Iterator[tuple[int, Entry]]:
        """(queue offset, entry) of every message from a queue offset on, before another; and every filler there."""
        index = self._first() if start is None else max(start, self._first())
        stop = self.max_offset if stop is None else min(stop, self.max_offset)
        while index < stop:
            file = self._queue.find(index * ENTRY_SIZE)
            until = min(stop, index - index % self._file_entries + self._file_entries)
            try:
                if file is None:
                    raise FileNotFoundError
                data = file.view(index * ENTRY_SIZE - file.base, until * ENTRY_SIZE - file.base)
            except FileNotFoundError:  # deleted at this moment, here or by the process whose store it is, with its messages
                index = until
                continue
            for found in ENTRY.iter_unpack(data):
                yield index, Entry._make(found)
                index += 1

    def count_at_or_behind(self, offset: int) -> int:
        """How many entries are of messages at or behind a commit-log offset."""
        return self.max_offset - self._first_at_or_behind(offset)

    def offset_by_time(
        self, timestamp: int, store_timestamp_of: Callable[[int, int], int | None], min_physic_offset: int = 0
    ) -> int:
        """The message whose store timestamp is nearest to a time, as 4.9.8 searches for it.

        The file is the first whose last message is not before the time, else the last one (4.9.8 asks the file system when
        the file was written; the messages say it better). In the file by halving: an equal timestamp ends the search, of
        several any; else the nearer neighbour, the earlier where both are as near. Messages no longer in the log count as
        earlier than all others.

        Spec: HA-ST-80 "begins at the nearest message of one file of the queue".

        Args:  store_timestamp_of: of (commit-log offset, size), in ms; None where the log has no such message.
        Returns: a queue offset; 0 where the queue is empty, or the log lacks a message that the search asks for.
        """
        files = [file for file in self._queue.files if file.base < self._end]
        if not files:
            return 0
        chosen = files[-1]
        for file in files[:-1]:
            last = self._entry_or_none((file.base + file.size) // ENTRY_SIZE - 1)
            is_there = last is not None and last.offset >= min_physic_offset
            time = store_timestamp_of(*last[:2]) if last is not None and is_there else None
            if time is not None and time >= timestamp:
                chosen = file
                break
        low = max(chosen.base // ENTRY_SIZE, self.min_offset)
        high = min((chosen.base + chosen.size) // ENTRY_SIZE, self.max_offset) - 1
        left = right = left_time = right_time = None
        while low <= high:
            middle = (low + high) // 2
            found = self._entry_or_none(middle)
            if found is None or found.offset < min_physic_offset:
                left, low = middle, middle + 1
                continue
            time = store_timestamp_of(found.offset, found.size)
            if time is None:
                return 0
            if time == timestamp:
                return middle
            if time > timestamp:
                right, right_time, high = middle, time, middle - 1
            else:
                left, left_time, low = middle, time, middle + 1
        if left_time is not None and right_time is not None:
            found_at = right if timestamp - left_time > right_time - timestamp else left
        else:
            found_at = right if left_time is None else left
        return found_at if found_at is not None else self.min_offset

    def lower_offset_by_time(self, timestamp: int, store_timestamp_of: Callable[[int, int], int | None]) -> int:
        """The first message that was stored at a time or later; max_offset if none was. 5.3.3 calls it the LOWER bound.

        Spec: HA-ST-81 "MUST begin at the first message of the queue that is not older".

        Args:  store_timestamp_of: of (commit-log offset, size), in ms; None where the log has no such message any more.
        """

        def stored_ms(index: int) -> int:
            found = self._message_at_or_before(index)
            time = None if found is None else store_timestamp_of(found.offset, found.size)
            return -(1 << 63) if time is None else time

        first, last = self.min_offset, self.max_offset
        return first + bisect_left(range(first, last), timestamp, key=stored_ms)

    def _first(self) -> int:
        return self._queue.min_offset // ENTRY_SIZE

    def _entry(self, index: int) -> Entry:
        position = index * ENTRY_SIZE
        file = self._queue.find(position)
        assert file is not None
        return Entry._make(ENTRY.unpack_from(file.mapping, position - file.base))

    def _entry_or_none(self, index: int) -> Entry | None:
        """An entry, for those who read beside a deletion: None where its file was deleted at this moment."""
        position = index * ENTRY_SIZE
        file = self._queue.find(position)
        try:
            return Entry._make(ENTRY.unpack_from(file.mapping, position - file.base)) if file is not None else None
        except FileNotFoundError:
            return None

    def _message_at_or_before(self, index: int) -> Entry | None:
        """The entry at an index or, where that is a filler, the last one before it that is no filler; None if there is none.

        So fillers do not break the order in which all other entries are.
        """
        while index >= self._first():
            found = self._entry_or_none(index)
            if found is None or not found.is_filler:
                return found
            index -= 1
        return None

    def _first_at_or_behind(self, offset: int) -> int:
        """The index of the first message at or behind a commit-log offset, or max_offset. Offsets ascend in a queue."""

        def offset_of(index: int) -> int:
            found = self._message_at_or_before(index)
            return -1 if found is None else found.offset

        first = self._first()
        return first + bisect_left(range(first, self.max_offset), offset, key=offset_of)


@lru_cache(maxsize=_PACKED_AT_ONCE)
def _packer(count: int) -> struct.Struct:
    return struct.Struct(">" + count * "qiq")
