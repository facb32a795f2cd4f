"""How a consume queue is read: by queue offset, by commit-log offset, and by time. Nothing here changes the queue.

Any thread may read, while one puts entries and another deletes old files.

Spec: HA-ST-31, HA-ST-80, HA-ST-81, HA-ST-94, HA-BT-80.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from rocketmq_ha.impl.store.derived.queue_entry import ENTRY, ENTRY_SIZE, Entry
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.mapped_file_queue import MappedFileQueue


class QueueReader:
    """What is read of the entries of one queue; ConsumeQueue sets the attributes."""

    _queue: MappedFileQueue
    _end: int  # bytes; if another process writes the queue, the end seen so far
    _first_kept: int  # first entry whose message the log still has
    first_visible: int  # first entry of a message that is not hidden; 0 if none is hidden
    file_entries: int

    @property
    def max_offset(self) -> int:
        """The queue offset of the next message."""
        return self._end // ENTRY_SIZE

    @property
    def min_offset(self) -> int:
        """The first entry whose message the log still has, and that is not hidden; max_offset if there is none."""
        return max(self._first_kept, self.first_visible)

    @property
    def is_hidden(self) -> bool:
        """Whether the queue has messages, and all of them are hidden."""
        return 0 < self.first_visible == self.max_offset

    def entry(self, queue_offset: int) -> Entry | None:
        """The entry of a message; None if the queue does not have it, or has deleted it."""
        return self._entry_or_none(queue_offset) if self.min_offset <= queue_offset < self.max_offset else None

    def read(self, queue_offset: int, limit: int) -> memoryview:
        """The bytes of the entries from a message on, a copy, within one file, at most `limit` entries; b"" if none.

        Raises: FileNotFoundError, if the file was deleted meanwhile.
        """
        if not self.min_offset <= queue_offset < self.max_offset:
            return memoryview(b"")
        position = queue_offset * ENTRY_SIZE
        file = self._queue.find(position)
        if file is None:  # deleted meanwhile
            return memoryview(b"")
        start = position - file.base
        return file.view(start, min(start + limit * ENTRY_SIZE, file.size, self._end - file.base))

    def entries(self, start: int | None = None, stop: int | None = None) -> Iterator[tuple[int, Entry]]:
        """Yield (queue offset, entry) from a queue offset on, up to another; fillers included."""
        index = self._first() if start is None else max(start, self._first())
        stop = self.max_offset if stop is None else min(stop, self.max_offset)
        while index < stop:
            file = self._queue.find(index * ENTRY_SIZE)
            until = min(stop, index - index % self.file_entries + self.file_entries)
            try:
                if file is None:
                    raise FileNotFoundError
                data = file.view(index * ENTRY_SIZE - file.base, until * ENTRY_SIZE - file.base)
            except FileNotFoundError:  # deleted meanwhile with its messages, by this process or by the one that owns the store
                index = until
                continue
            for found in ENTRY.iter_unpack(data):
                yield index, Entry._make(found)
                index += 1

    def count_at_or_behind(self, offset: int) -> int:
        """Count the entries of messages at or behind a commit-log offset."""
        return self.max_offset - self._first_at_or_behind(offset)

    def offset_by_time(
        self, timestamp: int, store_timestamp_of: Callable[[int, int], int | None], min_physic_offset: int = 0
    ) -> int:
        """The message whose store timestamp is nearest to a time, as 4.9.8 searches for it.

        It searches the first file whose last message is not before the time, or the last file. (4.9.8 uses the file's
        modification time; the messages' timestamps are more reliable.) In the file it uses binary search: any message with an
        equal timestamp ends it; else it takes the nearer neighbour, or the earlier one of two equally near. Messages that the
        log no longer has count as earlier than all others.

        Spec: HA-ST-80 "begins at the nearest message of one file of the queue".

        Args:  store_timestamp_of: of (commit-log offset, size), in ms; None where the log has no such message.
        Returns: a queue offset; 0 if the queue is empty, or if the log lacks a message that the search needs.
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
        """The first message stored at or after a time; max_offset if there is none. 5.3.3 calls it the LOWER bound.

        Spec: HA-ST-81 "MUST begin at the first message of the queue that is not older".

        Args:  store_timestamp_of: of (commit-log offset, size), in ms; None where the log has no such message any more.
        """

        first, last = self.min_offset, self.max_offset
        return first + bisect_left(range(first, last), timestamp, key=self._stored_ms(store_timestamp_of))

    def upper_offset_by_time(self, timestamp: int, store_timestamp_of: Callable[[int, int], int | None]) -> int:
        """The last message stored at or before a time; 0 if there is none. 5.3.3 calls it the UPPER bound.

        Spec: HA-ST-94 "MUST find the last message of the queue that is not newer, or 0 if there is none".

        Args:  store_timestamp_of: of (commit-log offset, size), in ms; None where the log has no such message any more.
        """
        first, last = self.min_offset, self.max_offset
        behind = first + bisect_right(range(first, last), timestamp, key=self._stored_ms(store_timestamp_of))
        for index in reversed(range(first, behind)):
            found = self._entry_or_none(index)
            if found is None or not found.is_filler:
                is_there = found is not None and store_timestamp_of(found.offset, found.size) is not None
                return index if is_there else 0
        return 0

    def _stored_ms(self, store_timestamp_of: Callable[[int, int], int | None]) -> Callable[[int], int]:
        """A function from an index to when its message was stored; one that the log has no more was stored before all times."""

        def stored_ms(index: int) -> int:
            found = self._message_at_or_before(index)
            time = None if found is None else store_timestamp_of(found.offset, found.size)
            return -(1 << 63) if time is None else time

        return stored_ms

    def _first(self) -> int:
        return self._queue.min_offset // ENTRY_SIZE

    def _entry(self, index: int) -> Entry:
        file = self._queue.find(index * ENTRY_SIZE)
        assert file is not None
        return _read(file, index)

    def _entry_or_none(self, index: int) -> Entry | None:
        """An entry, read beside a deletion: None if its file was deleted meanwhile."""
        file = self._queue.find(index * ENTRY_SIZE)
        try:
            return _read(file, index) if file is not None else None
        except FileNotFoundError:
            return None

    def _message_at_or_before(self, index: int) -> Entry | None:
        """The entry at an index; for a filler, the last real entry before it; None if there is none.

        So fillers do not disturb the order that binary search needs.
        """
        while index >= self._first():
            found = self._entry_or_none(index)
            if found is None or not found.is_filler:
                return found
            index -= 1
        return None

    def _first_at_or_behind(self, offset: int) -> int:
        """The index of the first message at or behind a commit-log offset, or max_offset. Offsets ascend within a queue."""

        def offset_of(index: int) -> int:
            found = self._message_at_or_before(index)
            return -1 if found is None else found.offset

        first = self._first()
        return first + bisect_left(range(first, self.max_offset), offset, key=offset_of)


def _read(file: MappedFile, index: int) -> Entry:
    position = index * ENTRY_SIZE - file.base
    return Entry._make(ENTRY.unpack(file.view(position, position + ENTRY_SIZE)))
