"""Check what a store derives from its log against the log: every entry of every consume queue, every key of the index.

What is wrong raises: an entry that is not that of its message, a key of no message, a chain that does not lead back. What is
only missing is counted: a dispatch that is behind its log, or that was lost, is mended by dispatching again. A live writer
goes on meanwhile, so entries and keys beyond the log's end at the start of the check are left alone.

Spec: HA-ST-29 to HA-ST-34, HA-ST-38 to HA-ST-42.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.consume_queue_table import ConsumeQueueTable, Key
from rocketmq_ha.impl.store.delay import SCHEDULE_TOPIC, DelayLevels
from rocketmq_ha.impl.store.dispatch_request import DispatchRequest, Read, RequestMaker, read_requests
from rocketmq_ha.impl.store.index_file import IndexFile
from rocketmq_ha.impl.store.index_service import IndexService, keys_of
from rocketmq_ha.impl.store.java_hash import index_key_hash
from rocketmq_ha.impl.store.queue_entry import ENTRY_SIZE
from rocketmq_ha.impl.store.reader import LogReader
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

_BATCH: Final = 1024

Progress = Callable[[int], None]  # takes the commit-log offset that was reached


@dataclass(frozen=True, slots=True)
class DerivedSummary:
    """What the derived files of a store hold of its log."""

    queues: int
    queue_entries: int  # that were checked
    queue_entries_missing: int  # of messages in the log
    index_files: int
    index_keys: int  # that were checked
    index_keys_missing: int  # of messages behind the first one in the index


def verify_derived(reader: LogReader, progress: Progress | None = None) -> DerivedSummary:
    """Check consume queues and index of a store whose log was walked.

    Raises: StoreCorrupt (file, commit-log offset), ConfigInvalid, OSError.
    """
    table = ConsumeQueueTable(reader.store_dir, writable=False)
    index = IndexService(reader.store_dir, writable=False)
    try:
        table.recover(reader.min_offset, reader.max_offset)
        queues = _QueueCheck(table)
        keys = _IndexCheck(index, reader)
        for requests in log_requests(reader):
            queues.check(requests)
            keys.check(requests)
            if progress is not None:
                progress(requests[-1].commit_log_offset + requests[-1].size)
        queues.finish(reader.max_offset)
        keys.finish()
        return DerivedSummary(
            *(len(list(table)), queues.checked, queues.missing),
            *(len(index.files), keys.checked, keys.missing),
        )
    finally:
        table.close()
        index.close()


def log_requests(reader: LogReader) -> Iterator[list[DispatchRequest]]:
    """What a dispatch of the log, which was walked, would be told, in batches."""
    make = RequestMaker(DelayLevels.parse())
    offset = reader.min_offset
    while offset < reader.max_offset:
        file = reader.files[(offset - reader.min_offset) // reader.file_size]
        position = offset - file.base
        requests: list[DispatchRequest] = []
        view = file.view(position, file.size)
        reached, why = read_requests(view, offset, file.size - position, reader.max_offset, _BATCH, make, requests)
        if requests:
            yield requests
        if reached == offset:
            raise StoreCorrupt(file.path, offset, f"bytes that are {why.value}", "a record, as a moment ago")
        offset = reached
        if why is Read.BLANK:
            file.close()


class _QueueCheck:
    """Holds the entries of each queue against the messages that come."""

    def __init__(self, table: ConsumeQueueTable) -> None:
        self.checked = self.missing = 0
        self._table = table
        self._reached: dict[Key, int] = {}  # behind the queue offset of the last message that came

    def check(self, requests: list[DispatchRequest]) -> None:
        for request in requests:
            if request.sys_flag & TRANSACTION_MASK in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
                continue
            key = (request.topic, request.queue_id)
            queue = self._table.get(*key)
            entry = queue.entry(request.queue_offset) if queue is not None else None
            self._reached[key] = request.queue_offset + 1
            if queue is None or entry is None:
                self.missing += 1
                continue
            expected = (request.commit_log_offset, request.size, request.tags_code)
            # A broker may have delay levels of its own, of which the store keeps no trace.
            compared = 2 if request.topic == SCHEDULE_TOPIC else 3
            if entry[:compared] != expected[:compared]:
                raise StoreCorrupt(
                    _file_of(queue, request.queue_offset),
                    request.commit_log_offset,
                    f"entry {request.queue_offset} is {tuple(entry)}",
                    f"{expected}: offset, size, tags code",
                )
            self.checked += 1

    def finish(self, max_offset: int) -> None:
        """No entry may be left that names something in the log or, but for a writer's, behind it."""
        for key, queue in self._table:
            first = max(self._reached.get(key, queue.min_offset), queue.min_offset)
            for queue_offset, entry in queue.entries(first):
                if entry.offset >= max_offset:
                    break  # dispatched since the walk ended
                if not entry.is_pre_blank:
                    found = f"entry {queue_offset} names offset {entry.offset}"
                    raise StoreCorrupt(_file_of(queue, queue_offset), entry.offset, found, "a message of this queue")


def _file_of(queue: ConsumeQueue, queue_offset: int) -> str:
    return f"{queue.directory}, byte {queue_offset * ENTRY_SIZE} of the queue"


class _IndexCheck:
    """Holds the keys in the index, which stand in the order of the log, against those of the messages that come."""

    def __init__(self, index: IndexService, reader: LogReader) -> None:
        self.checked = self.missing = 0
        self._reader = reader
        self._entries = _groups(index.files)
        self._next = self._advance(reader.min_offset)
        self._began = False

    def check(self, requests: list[DispatchRequest]) -> None:
        for request in requests:
            hashes = [index_key_hash(text) for text in keys_of(request)]
            if self._next is not None and self._next[1] < request.commit_log_offset:
                self._refuse(*self._next)
            if self._next is None or self._next[1] > request.commit_log_offset:
                self.missing += len(hashes) if self._began else 0
                continue
            self._began = True
            file, offset, found = self._next
            if set(found) - set(hashes):
                self._refuse(file, offset, found)
            self.checked += len(found)
            self.missing += sum((Counter(hashes) - Counter(found)).values())
            self._next = self._advance(offset + 1)

    def finish(self) -> None:
        if self._next is not None and self._next[1] < self._reader.max_offset:
            self._refuse(*self._next)

    def _advance(self, offset: int) -> tuple[IndexFile, int, list[int]] | None:
        """The keys of the next message at or behind an offset. A dispatch that was repeated leaves earlier ones again."""
        return next((group for group in self._entries if group[1] >= offset), None)

    def _refuse(self, file: IndexFile, offset: int, found: list[int]) -> None:
        raise StoreCorrupt(file.path, offset, f"keys of hashes {found}", "the hashes of a message's keys")


def _groups(files: tuple[IndexFile, ...]) -> Iterator[tuple[IndexFile, int, list[int]]]:
    """(the file in which it ends, commit-log offset, hashes) of each message, from all files.

    Raises: StoreCorrupt where an entry does not point to the one before it in its slot.
    """
    last: tuple[IndexFile, int, list[int]] | None = None
    for file in files:
        slots = array("i", bytes(4 * file.geometry.hash_slot_num))
        for number, (key_hash, offset, _, previous) in enumerate(file.entries(), start=1):
            slot = key_hash % file.geometry.hash_slot_num
            if slots[slot] != previous:
                raise StoreCorrupt(file.path, offset, f"entry {number} points to {previous}", f"{slots[slot]}, as its slot did")
            slots[slot] = number
            if last is not None and last[1] == offset:
                last[2].append(key_hash)
            else:
                if last is not None:
                    yield last
                last = (file, offset, [key_hash])
    if last is not None:
        yield last
