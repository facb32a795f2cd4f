"""Recover consume queues and index, so that they agree with a log that has just been recovered.

A clean stop flushes everything: then only entries beyond the end of the log are cut off, and dispatch goes on behind the last
entry. After an unclean stop only the entries covered by the checkpoint are known to be right: those of messages before the file
at which recovery began. They are kept, all others are cut off, and dispatch begins at that file. It skips entries that exist.

Spec: HA-ST-38 "a consume queue MUST NOT name a message beyond the end of the commit log"; HA-ST-45 "MUST keep the entries of
messages before the file at which recovery begins, as far as it is in order".
Source: 4.9.8 DefaultMessageStore.recover, recoverTopicQueueTable; CommitLog.recoverAbnormally.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable, Key
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest, RequestMaker, read_requests
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.lacking import end_of_lacking, requests_from
from rocketmq_ha.impl.store.derived.queue_entry import Entry
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.recovery import Recovery
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, UNQUEUED_TYPES


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """A log whose end is known. found: what recovery has found."""

    files: Sequence[MappedFile]
    found: Recovery
    max_offset: int

    @property
    def min_offset(self) -> int:
        return self.files[0].base

    def file_at(self, offset: int) -> MappedFile | None:
        """The file that holds an offset; None outside of the log."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        return self.files[(offset - self.min_offset) // self.files[0].size]

    def view(self, offset: int) -> memoryview | None:
        """The bytes from an offset to the end of its file, or of the log; None outside of the log."""
        file = self.file_at(offset)
        return None if file is None else file.view(offset - file.base, min(file.size, self.max_offset - file.base))


class DerivedRecovery:
    """One recovery of consume queues and index. Call `run`.

    Args:  queues, index: both writable; or neither, and then nothing is changed, and `run` says what a recovery would do.
    """

    def __init__(
        self,
        log: RecoveredLog,
        queues: ConsumeQueueTable,
        index: IndexService,
        checkpoint: StoreCheckpoint,
        *,
        writable: bool = True,
    ) -> None:
        self._log, self._queues, self._index, self._checkpoint = log, queues, index, checkpoint
        self._writable = writable
        self._make = RequestMaker(DelayLevels.parse())

    def run(self, *, is_clean: bool) -> int:
        """Cut queues and index. Returns: the offset at which dispatch must begin. Raises: OSError."""
        log, queues, index = self._log, self._queues, self._index
        if self._writable:
            index.sweep()
        if not log.files:
            self._vouch_for(0, 0)
            if self._writable:
                queues.recover(0, None)
                index.destroy()
            return 0
        known = min(log.found.start, log.max_offset)
        if is_clean:
            queues.recover(log.min_offset, log.max_offset)
            queues.truncate_dirty(log.max_offset)
            start = queues.max_physic_offset
            if index.end_phy_offset >= log.max_offset:
                whole = sum(file.header.end_phy_offset < log.max_offset for file in index.files)
                self._vouch_for(self._checkpoint.logics_msg_timestamp, whole)
                start = min(start, index.truncate(log.max_offset, self.stored_ms, whole))
        else:
            whole = index.count_vouched(self._checkpoint.index_msg_timestamp, log.max_offset)
            self._vouch_for(min(self._checkpoint.physic_msg_timestamp, self._checkpoint.logics_msg_timestamp), whole)
            if known > log.min_offset:
                queues.keep_before(log.min_offset, known, self._is_true)
            else:
                queues.keep_expired(log.min_offset, self._firsts() if log.min_offset > 0 else {})
            start = min(known, index.truncate(known, self.stored_ms, whole))
            if whole and self._writable:
                index.doubt(whole - 1)
        start = self._first_record(start)
        requests = requests_from(log.files, start, log.max_offset)
        lacking = end_of_lacking(queues, log.found.queue_offsets, requests, is_clean=is_clean)
        if lacking is not None:
            start = min(start, self._first_record(lacking))
        if start < (log.max_offset if is_clean else known):
            self._vouch_for(max(0, self.stored_ms(start)))  # less than 0 after damage
        return start

    def _firsts(self) -> dict[Key, int]:
        """The queue offset of the first message of each queue in the log."""
        found: dict[Key, int] = {}
        for request in requests_from(self._log.files, self._log.min_offset, self._log.max_offset):
            if request.sys_flag & TRANSACTION_MASK not in UNQUEUED_TYPES:
                found.setdefault((request.topic, request.queue_id), request.queue_offset)
        return found

    def _vouch_for(self, logics_msg_timestamp: int, whole: int | None = None) -> None:
        """Lower the checkpoint to the kept part: messages up to a time, and the first `whole` index files; None: all.

        Messages dispatched again are on the disk only after the next flush. If the machine failed before it, a checkpoint that
        still covered them would let the next recovery begin behind them. A cut index file, too, fills up again with times that
        the old checkpoint covered.

        Spec: HA-ST-73 "MUST be dispatched again, to queues and index"; HA-ST-51 "A recovery after which messages are
        dispatched again MUST clear that i64 as well".
        """
        if not self._writable:
            return
        checkpoint, files = self._checkpoint, self._index.files
        checkpoint.logics_msg_timestamp = min(checkpoint.logics_msg_timestamp, logics_msg_timestamp)
        if whole is not None:
            end_timestamp = files[whole - 1].header.end_timestamp if whole else 0
            checkpoint.index_msg_timestamp = min(checkpoint.index_msg_timestamp, end_timestamp)
        checkpoint.logics_physical_offset = 0
        checkpoint.flush()

    def _is_true(self, key: Key, queue_offset: int, entry: Entry) -> bool:
        """Return True if the log has the message of an entry, or if it has expired and cannot be checked."""
        if entry.offset < self._log.min_offset:
            return True
        found = self._request_at(entry.offset)
        told = (*key, queue_offset, entry.size)
        return found is not None and (found.topic, found.queue_id, found.queue_offset, found.size) == told

    def stored_ms(self, offset: int) -> int:
        """The store timestamp of the message at an offset; 0 if there is none."""
        found = self._request_at(offset)
        return 0 if found is None else found.store_timestamp

    def _request_at(self, offset: int) -> DispatchRequest | None:
        """The record at an offset, as the dispatch reads it."""
        file, view = self._log.file_at(offset), self._log.view(offset)
        if file is None or view is None:
            return None
        requests: list[DispatchRequest] = []
        room = file.base + file.size - offset
        read_requests(view, offset, room, offset + 1, 1, self._make, requests)
        return requests[0] if requests else None

    def _first_record(self, offset: int) -> int:
        """Where the dispatch begins to have dispatched what is behind an offset."""
        return max(self._log.min_offset, self._record_at_or_before(min(offset, self._log.max_offset)))

    def _record_at_or_before(self, offset: int) -> int:
        """The start of the record at or before an offset, or the log's end. A damaged index may give an offset between two."""
        file = self._log.file_at(offset)
        if file is None or offset == file.base or self._request_at(offset) is not None:
            return offset
        requests: list[DispatchRequest] = []
        view = file.view(0, min(file.size, self._log.max_offset - file.base))
        read_requests(view, file.base, file.size, offset, 1 << 62, self._make, requests)
        return requests[-1].commit_log_offset if requests else file.base
