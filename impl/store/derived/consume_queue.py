"""The consume queue of one topic and queue id: the position in the commit log of each of its messages.

    entry, 20 bytes = offset in the commit log i64, size i32, tags code i64        file: 300,000 entries, 6,000,000 bytes

Entry n is at byte 20 * n of the queue. So if a queue's first message has a queue offset above 0, fillers precede it from the
start of its file. One thread at a time puts entries (the dispatch); any thread may read meanwhile.

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
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY, ENTRY_SIZE, FILLER, FILLER_SIZE, TORN_FILLERS, Entry, valid_end
from rocketmq_ha.impl.store.derived.queue_file import QueueFiles
from rocketmq_ha.impl.store.derived.queue_reader import QueueReader
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.mapped_file_queue import MappedFileQueue

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

FILE_ENTRIES: Final = 300_000
FILE_SIZE: Final = FILE_ENTRIES * ENTRY_SIZE
_PACKED_AT_ONCE: Final = 256
# The largest gap that fillers close, in files. The bound keeps a flipped bit in a queue offset from filling the disk.
_LARGEST_GAP: Final = 10
_LEAST_TORN: Final = 0x7F000000  # the least size of TORN_FILLERS
_CLEARED_SIZE: Final = 1 << 16  # bytes; a file with more of them is removed and not cleared
_RECOVERED_FILES: Final = 3  # last files that `recover` reads after a clean stop


class ConsumeQueue(QueueReader):
    """The entries of one queue. Positions are indices of entries, that is queue offsets, never bytes.

    Args:  directory: consumequeue/{topic}/{queueId}; it is made with the first entry. file_size: bytes.
           writable: if False, nothing on the disk changes, and `recover` finds how far a live writer has written.
           files: makes new files, and opens all; queues of one store share them.
    Raises: ConfigInvalid, if the file size is no multiple of 20; StoreCorrupt for files of another size; OSError.
    After the constructor the queue seems full to the end of its last file: call `recover` next.
    """

    def __init__(self, directory: Path, file_size: int = FILE_SIZE, *, writable: bool, files: QueueFiles | None = None) -> None:
        if file_size < ENTRY_SIZE or file_size % ENTRY_SIZE:
            raise ConfigInvalid(f"{directory}: file size {file_size}, expected a multiple of {ENTRY_SIZE} bytes")
        self.directory: Final = directory
        files = files or QueueFiles(directory.parent)
        self._queue = MappedFileQueue(directory, file_size, writable=writable, create=files.create, load=files.load)
        self._writable = writable
        self._guard = threading.Lock()  # taken to change the files: by the dispatch, and by the deletion of old files
        self.file_entries = file_size // ENTRY_SIZE
        self._unused: MappedFile | None = None  # emptied by a recovery, and not taken again yet
        self._end = self._queue.max_offset  # bytes; if another process writes the queue, the end seen so far
        self.max_physic_offset = 0  # end offset in the commit log of the last message with an entry
        self._first_kept = self._queue.min_offset // ENTRY_SIZE  # first entry whose message the log still has
        self._hidden_to = 0  # messages before this offset of the log are hidden
        self.first_visible = 0  # first entry of a message that is not; 0 if none is hidden

    def hide_before(self, offset: int) -> None:
        """Hide the messages before a commit-log offset from all that read the queue. The queue goes on with the next number.

        0 hides none. Spec: HA-BT-80 "MUST give no message of a deleted topic".
        """
        with self._guard:
            self._hidden_to = offset
            self.first_visible = self._first_at_or_behind(offset) if offset else 0

    # --- Writing -----------------------------------------------------------------------------------------------------

    def put(self, offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """Add the entry of one message; see `put_all`."""
        self.put_all([queue_offset, offset, size, tags_code])

    def put_all(self, fields: list[int]) -> None:
        """Add the entries of messages, in the order of the log. HA-ST-31 "MUST be entry n of its queue".

        Messages that the queue has already, by commit-log offset or queue offset, are skipped, since a dispatch may be
        repeated; an entry torn by a crash is repaired then. If the queue is new, or earlier messages are missing, fillers take
        their places: HA-ST-75 "MUST fill the places between".

        Args:  fields: queue offset, commit-log offset, size and tags code of each message in turn. The list may be changed.
        Raises: OSError, if a file cannot be created; StoreCorrupt for an impossible queue offset. Then the messages before the
        failed one are in the queue, and the caller may put all of them again.
        """
        first, count, offset = fields[0], len(fields) // 4, fields[1]
        with self._guard:
            is_next = first * ENTRY_SIZE == self._end and offset + fields[2] > self.max_physic_offset
            if is_next and self._queue.files and fields[::4] == list(range(first, first + count)):
                del fields[::4]
                self._append(fields)
            else:
                for index in range(0, len(fields), 4):
                    self._put(*fields[index : index + 4])
            if offset < self._hidden_to:
                self.first_visible = self._first_at_or_behind(self._hidden_to)

    def _put(self, queue_offset: int, offset: int, size: int, tags_code: int) -> None:
        if self._first() <= queue_offset < self.max_offset:
            self._repeat(queue_offset, Entry(offset, size, tags_code))
            return
        if offset + size <= self.max_physic_offset:
            return
        if not 0 <= queue_offset < 1 << 58:
            raise StoreCorrupt(self.directory, offset, f"queue offset {queue_offset}", f"{self.max_offset}, the next one")
        is_new = not self._queue.files
        begin = queue_offset // self.file_entries * self.file_entries if is_new else self.max_offset
        if queue_offset < begin:
            return  # its file was deleted
        if queue_offset - begin > _LARGEST_GAP * self.file_entries:
            raise StoreCorrupt(self.directory, offset, f"queue offset {queue_offset}", f"{begin}, the next one")
        if is_new:
            self._queue.last(create_at=queue_offset * ENTRY_SIZE)
            self._end = begin * ENTRY_SIZE
            self.drop_unused()  # now: if the dispatch ended here, it would leave a gap, and no start would load the queue
        elif queue_offset > begin:
            logger.error("%s: messages %d to %d are missing in the log", self.directory, begin, queue_offset - 1)
        has_none = is_new or self._first_kept == begin  # the log has no message of this queue
        for index in range(begin, queue_offset, _PACKED_AT_ONCE):
            self._append([*FILLER] * min(_PACKED_AT_ONCE, queue_offset - index))
        if has_none:
            self._first_kept = queue_offset
        self._append([offset, size, tags_code])

    def _repeat(self, queue_offset: int, entry: Entry) -> None:
        found = self._entry(queue_offset)
        if found == entry:
            return
        if found.offset != entry.offset:
            logger.warning("%s: has entry %d already, skipped offset %d", self.directory, queue_offset, entry.offset)
            return
        self._queue.rewrite(queue_offset * ENTRY_SIZE, ENTRY.pack(*entry))
        logger.info("%s: mended entry %d", self.directory, queue_offset)
        if queue_offset == self.max_offset - 1:
            self.max_physic_offset = entry.offset + entry.size

    def _append(self, fields: list[int]) -> None:
        """Write entries at the end, at most up to the end of a file at once."""
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

        A queue ends with a message, so fillers before the removed entries go, too. If only fillers were left, the queue is
        empty again.
        """
        with self._guard:
            count = self._first_at_or_behind(offset)
            while count > self._first() and self._entry(count - 1).is_filler:
                count -= 1
            if count < self.max_offset:
                self._end = count * ENTRY_SIZE
                if self._writable:
                    # The last file must not be empty: deletion spares the last file, which should be one with entries.
                    self._queue.truncate(self._end if count > self._first() else -1, keep_empty=False, sync=False)
                    self._end = self._queue.max_offset
                self._after_cut()

    def correct_min_offset(self, min_physic_offset: int) -> None:
        """Move the begin to the first message that the log still has. min_physic_offset: the log's new min offset."""
        with self._guard:
            self._first_kept = self._first_at_or_behind(min_physic_offset)

    def delete_expired(self, min_physic_offset: int) -> int:
        """Delete the files whose messages all lie before the log's min offset, except the last file. Returns: their number.

        Spec: HA-ST-71 "MUST be deleted when all its messages have been deleted from the log".
        """
        self.correct_min_offset(min_physic_offset)
        with self._guard:
            return self._queue.delete_before(self._first_kept * ENTRY_SIZE)

    def destroy(self) -> None:
        """Remove all files."""
        with self._guard:
            self._queue.remove_all()
            self._end = self._first_kept = self.first_visible = self.max_physic_offset = 0

    def flush(self, least_pages: int = 0, synced: set[Path] | None = None) -> None:
        """Force the entries to the disk. synced: see MappedFileQueue.flush. Raises: OSError."""
        self._queue.flush(least_pages, synced)

    @property
    def is_flushed(self) -> bool:
        """Whether a flush would find nothing to do."""
        return self._queue.is_flushed

    def close(self) -> None:
        """Give back the descriptors; a second call does nothing."""
        self._queue.close()

    # --- Recovery ----------------------------------------------------------------------------------------------------

    def keep_before(self, offset: int, is_true: Callable[[int, Entry], bool]) -> None:
        """Recover after an unclean stop: keep only the entries of messages that end by a commit-log offset.

        Spec: HA-ST-82 "MUST keep the entries that the checkpoint vouches for, and no other".

        The entries of these messages were flushed before the checkpoint was written. Later entries may be on the disk or not,
        in any order, and some garbage may look like an entry. So the binary search ends at or behind the last entry of these
        messages, and the search goes back from there to an entry whose message the log really has.

        Args:  is_true: returns True if the log has the entry's message, with this queue and queue offset.
        """
        with self._guard:
            first, last = self._bounds()
            count = bisect_left(range(first, last), True, key=lambda index: not self._entry(index).ends_by(offset)) + first
            while count > first:
                found = self._entry(count - 1)
                if not found.is_filler and found.ends_by(offset) and is_true(count - 1, found):
                    break
                count -= 1
            self._keep(first, count)
            if self._writable:
                self._queue.count_as_flushed()

    def keep_expired(self, min_offset: int, before: int | None) -> None:
        """Recover after an unclean stop if the checkpoint vouches for no entry: keep those of messages that have expired.

        Spec: HA-ST-97 "MUST keep its entries of messages that have expired".

        They only keep the number of the queue's next message right. Any flush may have missed them, so the next one syncs them.
        Fillers take all other places: the next `recover` would end the queue at the first invalid entry, and searches rely on
        the order of offsets. After a power cut the queue gives the numbers of lost messages to others, and a second power cut
        may take some of the new sectors and leave the old ones in their places.

        Args:  min_offset: of the log. before: the queue offset of the first message that the log has; None if it has none. A
               torn entry from there on may look like that of an expired message.
        """
        with self._guard:
            first, last = self._bounds()
            count = last if before is None else max(first, min(before, last))
            holes: list[int] = []
            kept, end = first, 0  # behind the last entry that is kept; where its message ends
            for index, entry in enumerate(self._unpacked(count), first):
                offset, size, _ = entry
                if end <= offset and 0 < size != FILLER_SIZE and offset + size <= min_offset and _is_whole(entry):
                    kept, end = index + 1, offset + size
                elif entry != FILLER:
                    holes.append(index)
            self._keep(first, kept)
            if self._writable:
                for index in holes[: bisect_left(holes, kept)]:
                    self._queue.rewrite(index * ENTRY_SIZE, ENTRY.pack(*FILLER))

    def _bounds(self) -> tuple[int, int]:
        """The queue offsets of the first entry, and behind the last one that may have been written."""
        self._end = self._queue.max_offset
        return self._first(), -(-self._queue.data_limit() // ENTRY_SIZE)

    def _unpacked(self, count: int) -> Iterator[tuple[int, int, int]]:
        """The entries before a queue offset. A full file takes 0.06 s, where `_entry` for each would take 0.8 s."""
        for file in self._queue.files:
            yield from ENTRY.iter_unpack(file.view(0, max(0, min(file.size, count * ENTRY_SIZE - file.base))))

    def _keep(self, first: int, count: int) -> None:
        """Cut off the entries from a queue offset on."""
        self._end = count * ENTRY_SIZE
        if self._writable:
            self._queue.sweep()
            if count > first:
                self._queue.truncate(self._end, keep_empty=False, sync=False)  # as in truncate_dirty
            else:
                self._empty()
            self._end = self._queue.max_offset
        self._after_cut()

    def _empty(self) -> None:
        """Give up all entries, most likely for the same ones again: the dispatch puts them into the same file.

        To remove a file and to make another takes milliseconds where the file system discards each block that becomes free, and
        there may be 80,000 queues.
        """
        files = self._queue.files
        if files and files[0].data_limit() <= _CLEARED_SIZE:
            try:
                self._unused = self._queue.set_aside()
            except OSError as error:  # a file system that copies on write may need room for zeros
                logger.info("%s: is removed, for it cannot be cleared: %s", files[0].path, error)
            else:
                return
        self._queue.truncate(-1, sync=False)

    def drop_unused(self) -> None:
        """After a recovery: remove the file that it emptied, if no entry has come into it. Raises: OSError."""
        unused, self._unused = self._unused, None
        if unused is not None and (not self._queue.files or self._queue.files[0].base != unused.base):
            self._queue.drop(unused)

    def recover(self) -> None:
        """Find the end of the queue: the first entry in the last three files with a negative offset or a size of 0 or less.

        If the queue is writable, the bytes behind it are set to zero.
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
                self._queue.truncate(self._end if self._end > files[0].base else -1, keep_empty=False, sync=False)
                self._end = self._queue.max_offset
                self._queue.count_as_flushed()  # by the clean stop
        self._after_cut()

    def _after_cut(self) -> None:
        last = self._entry(self.max_offset - 1) if self.max_offset > self._first() else None
        self.max_physic_offset = last.offset + last.size if last is not None and not last.is_filler else 0
        self._first_kept = min(max(self._first_kept, self._first()), self.max_offset)
        self.first_visible = min(self.first_visible, self.max_offset)


def _is_whole(entry: tuple[int, int, int]) -> bool:
    """Return False for what a crash has left of a filler."""
    return entry[1] < _LEAST_TORN or ENTRY.pack(*entry) not in TORN_FILLERS


@lru_cache(maxsize=_PACKED_AT_ONCE)
def _packer(count: int) -> struct.Struct:
    return struct.Struct(">" + count * "qiq")
