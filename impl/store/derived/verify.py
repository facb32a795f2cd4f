"""Check consume queues and index of a store against its log: every entry and every key.

A wrong entry, a key without a message, or a broken chain raises an error. Missing entries and keys are only counted, since
another dispatch repairs them. A live writer may go on meanwhile, so entries and keys beyond the log's end at the start of the
check are ignored.

Spec: HA-ST-29 to HA-ST-34, HA-ST-38; the index: verify_index.py.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable, Key
from rocketmq_ha.impl.store.derived.delay import SCHEDULE_TOPIC, DelayLevels
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest, Read, RequestMaker, read_handed
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY_SIZE
from rocketmq_ha.impl.store.derived.verify_index import IndexCheck
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.batch import Handed, HandedFields
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

_BATCH: Final = 1024

Progress = Callable[[int], None]  # called with the commit-log offset reached


@dataclass(frozen=True, slots=True)
class DerivedSummary:
    """The counts of a check of consume queues and index."""

    queues: int
    queue_entries: int  # entries checked
    queue_entries_missing: int  # messages in the log without an entry
    index_files: int
    index_keys: int  # keys checked
    index_keys_missing: int  # missing keys of messages behind the first one in the index
    index_keys_as: str  # the releases that put these sets of keys, in the order of the log; see index_keys.py


def verify_derived(reader: LogReader, progress: Progress | None = None) -> DerivedSummary:
    """Check consume queues and index of a store whose log was verified.

    Raises: StoreCorrupt (file, commit-log offset), ConfigInvalid, OSError.
    """
    table = ConsumeQueueTable(reader.store_dir, writable=False)
    index = IndexService(reader.store_dir, writable=False)
    try:
        table.recover(reader.min_offset, reader.max_offset)
        queues = _QueueCheck(table)
        keys = IndexCheck(index, reader)
        for requests, properties in log_requests(reader):
            queues.check(requests)
            keys.check(requests, properties)
            if progress is not None:
                progress(requests[-1].commit_log_offset + requests[-1].size)
        queues.finish(reader.max_offset)
        keys.finish()
        counts = (len(list(table)), queues.checked, queues.missing, len(index.files), keys.checked, keys.missing)
        return DerivedSummary(*counts, keys.releases)
    finally:
        table.close()
        index.close()


def log_requests(reader: LogReader) -> Iterator[tuple[list[DispatchRequest], list[bytes]]]:
    """Yield batches of dispatch requests of the log, with the properties of each message."""
    make = RequestMaker(DelayLevels.parse())
    offset = reader.min_offset
    while offset < reader.max_offset:
        file = reader.files[(offset - reader.min_offset) // reader.file_size]
        position = offset - file.base
        handed: list[HandedFields] = []
        view = file.view(position, file.size)
        reached, why = read_handed(view, offset, file.size - position, reader.max_offset, _BATCH, handed)
        if handed:
            yield [make(*each) for each in handed], [Handed._make(each).properties for each in handed]
        if reached == offset:
            raise StoreCorrupt(file.path, offset, why.value, "a record, as a moment ago")
        offset = reached
        if why is Read.BLANK:
            file.close()


class _QueueCheck:
    """Compares the entries of each queue with the messages of the log."""

    def __init__(self, table: ConsumeQueueTable) -> None:
        self.checked = self.missing = 0
        self._table = table
        self._reached: dict[Key, int] = {}  # next queue offset behind the last message seen

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
            # A broker may have other delay levels, which the store does not record.
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
        """Check the entries behind the last message: none may name a message before the log's end."""
        for key, queue in self._table:
            first = max(self._reached.get(key, queue.min_offset), queue.min_offset)
            for queue_offset, entry in queue.entries(first):
                if entry.offset >= max_offset:
                    break  # dispatched by a live writer meanwhile
                if not entry.is_filler:
                    found = f"entry {queue_offset} names offset {entry.offset}"
                    raise StoreCorrupt(_file_of(queue, queue_offset), entry.offset, found, "a message of this queue")


def _file_of(queue: ConsumeQueue, queue_offset: int) -> str:
    return f"{queue.directory}, byte {queue_offset * ENTRY_SIZE} of the queue"
