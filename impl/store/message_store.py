"""The store of a broker: a commit log, its consume queues and index, and the threads that flush them.

    with MessageStore.open(path) as store:
        result = store.put(Message("orders", b"body", queue_id=2, properties_string="TAGS\\x01new\\x02KEYS\\x0142"))
        found = store.get("orders", 2, result.append.queue_offset)
        [message] = found.messages()
        store.query("orders", "42")

Threads: every method may be called from any thread at any time, `close` included; after it all others but `close` raise
StoreClosed. One lock orders the puts. A put ends when its message is in the page cache (asynchronous flush) or on the disk
(synchronous). Dispatch runs behind the puts: `get` and `query` find a message a moment later; `wait_for_dispatch` waits for it.

After a kill of the process, the store has every message that was put. After a power cut it has every message that was flushed.

Spec: HA-ST-22 to HA-ST-28, HA-ST-35 to HA-ST-38.
Source: articles 000 section 5.1.4 and 003; 4.9.8 DefaultMessageStore.
"""

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final

from rocketmq_ha.impl.clock import wall_clock_ms
from rocketmq_ha.impl.errors import MessageMalformed, RoleRefuses, StoreClosed, StoreFull
from rocketmq_ha.impl.store.clean_commit_log import CleanCommitLogService, nobody_needs
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.dispatch import ReputMessageService
from rocketmq_ha.impl.store.derived.dispatch_round import DispatchRound, QueueKey
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.rebuild import DerivedRecovery, RecoveredLog
from rocketmq_ha.impl.store.derived.topic_notes import TopicNotes
from rocketmq_ha.impl.store.gate import Gate
from rocketmq_ha.impl.store.get import get_messages
from rocketmq_ha.impl.store.get_result import GetMessageResult, GetMessageStatus
from rocketmq_ha.impl.store.housekeeping import (
    INTERVAL_S,
    LEAST_PAGES,
    THOROUGH_INTERVAL_S,
    Derived,
    Every,
    Housekeeping,
    LogFlush,
)
from rocketmq_ha.impl.store.log.allocate import AllocateService
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint, mark_running, mark_stopped, was_aborted
from rocketmq_ha.impl.store.log.checkpoint_hint import recovery_hint
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import FlushRealTimeService, GroupCommitService
from rocketmq_ha.impl.store.log.lock import StoreLock
from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageResult, PutMessageStatus
from rocketmq_ha.impl.store.pending_put import PendingPut, waits_for_store
from rocketmq_ha.impl.store.pull import PullBounds, PullResult, TagCodes, pull_messages
from rocketmq_ha.impl.store.query import FOREVER, Found, query
from rocketmq_ha.impl.store.retention import Retention
from rocketmq_ha.impl.store.store_options import StoreOptions, store_host_part
from rocketmq_ha.impl.wire.batch import MessageBatch
from rocketmq_ha.impl.wire.message import Message, decode, read_header
from rocketmq_ha.spec.constants import SYS_FLAG_STORE_HOST_V6
from rocketmq_ha.spec.role import BrokerRole

__all__ = ["MessageStore", "PendingPut", "StoreOptions"]

_OK: Final = PutMessageStatus.PUT_OK
_NO_SLAVE: Final = PutMessageStatus.SLAVE_NOT_AVAILABLE
_new_result: Final = tuple.__new__


class MessageStore:
    """A store that this process owns. Make one with `open`."""

    def __init__(self, store_dir: Path, options: StoreOptions, allocator: AllocateService, log: CommitLog) -> None:
        self.store_dir: Final = store_dir
        self.options: Final = options
        self.log: Final = log
        self._store_host = store_host_part(options.store_host)
        self._allocator = allocator
        self._gate = Gate(self._closed_error)
        is_clean = not was_aborted(store_dir)
        self.checkpoint: Final = StoreCheckpoint(store_dir)
        with ExitStack() as opened:
            self.queues: Final = ConsumeQueueTable(store_dir, options.queue_file_size, writable=True)
            opened.callback(self.queues.close)
            self.index: Final = IndexService(store_dir, options.index_geometry, writable=True)
            opened.callback(self.index.close)
            self._derived = Derived(self.queues, self.index)
            start = self._recover_derived(is_clean)
            opened.pop_all()
        self.on_dispatched: Callable[[Collection[QueueKey]], None] | None = None  # see there
        dispatchers = (self.queues.put, self._tell_arrived, self._derived.put_keys, self._derived.note)
        self.dispatcher: Final = ReputMessageService(log, dispatchers, start)
        log_flush = self.log_flush = LogFlush(log, self.checkpoint, self._derived)
        self._flush = FlushRealTimeService(log_flush, **options.flush_intervals._asdict())
        self._group_commit = GroupCommitService(log_flush) if options.sync_flush else None
        self._topics = TopicNotes(store_dir if options.notes_topics else None, log, self.queues)
        # HA-G-3 "when there is no slave": this store knows no slaves. A master that serves slaves puts through ha/puts.py.
        self._slave_status = _NO_SLAVE if options.role is BrokerRole.SYNC_MASTER else _OK
        self._ends_at_once = not options.sync_flush and self._slave_status is _OK and options.role is not BrokerRole.SLAVE
        retention = options.retention or Retention(file_reserved_ms=options.reserved_ms, delete_when=None)
        # From where on somebody else, such as a slave, still needs the log; None: nobody does. Its owner may set it.
        self.needed_offset: Callable[[], int | None] = nobody_needs
        self._clean = CleanCommitLogService(log, retention, self._clean_derived, self._needed)
        chores = self._flush_derived, self._topics.write, self._watch_space, self._delete_expired
        self._housekeeping = Housekeeping(chores, min(INTERVAL_S, options.expiry_interval_s))
        self._is_thorough, self._is_expiry_due = Every(THOROUGH_INTERVAL_S), Every(options.expiry_interval_s)

    @classmethod
    def open(cls, store_dir: Path, options: StoreOptions | None = None, lock: StoreLock | None = None) -> "MessageStore":
        """Lock a store, recover it, dispatch the remaining records, and start the threads.

        Args:  lock: a lock that the caller holds already; the store takes it over, even if it cannot be opened.
        Raises: ConfigInvalid, StoreCorrupt (file and offset), StoreLocked, StoreFull, OSError; see CommitLog.open.
        """
        options = options or StoreOptions()
        allocator = AllocateService(floor_size=options.floor_size)
        log = CommitLog.open(
            store_dir,
            file_size=options.file_size,
            clear_tail=options.clear_tail,
            hint=lambda files: recovery_hint(store_dir, files, strict=options.clear_tail),
            create=allocator.create,
            lock=lock,
        )
        try:
            store = cls(store_dir, options, allocator, log)
            try:
                store._start()
            except BaseException:
                store._stop_threads()
                store.queues.close()
                store.index.close()
                raise
        except BaseException:
            log.close()
            raise
        return store

    # --- Putting -----------------------------------------------------------------------------------------------------

    def put(self, message: Message) -> PutMessageResult:
        """Append a message to the log. With synchronous flush, wait for the disk.

        The store sets its store timestamp, store host, queue offset and physical offset. A message with the property
        `WAIT=false` does not wait.

        Returns: its position, and PUT_OK, FLUSH_DISK_TIMEOUT, or SLAVE_NOT_AVAILABLE (for a SYNC_MASTER, since no slave is
        asked here). The message is stored in all cases. Spec: HA-ST-26 "MUST NOT end with PUT_OK before the disk has its
        message". Raises: MessageIllegal, StoreFull, StoreClosed, RoleRefuses, OSError: then it is not stored, and
        results.status_of has the status.
        """
        if self._store_host is None:
            message = self._with_ipv6_store_host(message)
        if self._ends_at_once:
            append = self.log.append(message, wall_clock_ms(), self._store_host)
            if self.log.queue_count != self._topics.known:
                self._topics.note()
            return _new_result(PutMessageResult, (_OK, append))
        return self.submit(message).result()

    def put_batch(self, messages: Sequence[Message] | MessageBatch) -> PutMessageResult:
        """Put messages of one topic and queue by one append: all of them, or none.

        The result has the position of the first message and the size of all; its status holds for all of them. Whether the put
        waits depends on the WAIT property of the first message.

        A MessageBatch holds the shared fields once, so it is faster than single messages.

        Raises: also MessageIllegal for messages of several queues, part of a transaction, or more than 16 MiB in all.
        """
        with self._gate:
            append = self.append_batch(messages)
            first = messages.properties_strings[0] if isinstance(messages, MessageBatch) else messages[0].properties_string
            pending = self._wait(append, first)
        return pending.result()

    def submit(self, message: Message) -> PendingPut:
        """`put` without waiting: one thread may have many puts in flight, which share a flush. Raises: as `put`."""
        with self._gate:
            return self._wait(self.append(message), message.properties_string)

    def append(self, message: Message) -> AppendResult:
        """Append a message, and leave it to the caller what its put waits for: a master's puts wait by ha/puts.py.

        Raises: as `put`.
        """
        if self._store_host is None:
            message = self._with_ipv6_store_host(message)
        self._check_role()
        append = self.log.append(message, wall_clock_ms(), self._store_host)
        if self.log.queue_count != self._topics.known:
            self._topics.note()
        return append

    def append_batch(self, messages: Sequence[Message] | MessageBatch) -> AppendResult:
        """Append a batch as `append` does a message. Raises: as `put_batch`."""
        if self._store_host is None:
            messages = [self._with_ipv6_store_host(one) for one in _each(messages)]
        self._check_role()
        append = self.log.append_batch(messages, wall_clock_ms(), self._store_host)
        if self.log.queue_count != self._topics.known:
            self._topics.note()
        return append

    def append_data(self, offset: int, buffers: Sequence[bytes | memoryview]) -> None:
        """Append what a master has sent, at the end. HA-ST-36 "MUST dispatch the records that it has appended".

        Raises: AppendRefused, StoreFull, StoreClosed, OSError; see CommitLog.append_data.
        """
        self.log.append_data(offset, buffers)
        self.dispatcher.wakeup()

    def _check_role(self) -> None:
        """HA-R-5 "A slave MUST refuse puts, with SERVICE_NOT_AVAILABLE", status_of's word for it. Raises: RoleRefuses."""
        if self.options.role is BrokerRole.SLAVE:
            raise RoleRefuses(self.store_dir, self.options.role.value)

    def _wait(self, append: AppendResult, properties_string: str) -> PendingPut:
        group_commit = self._group_commit
        if not waits_for_store(properties_string):
            return PendingPut(append, None, 0)
        if group_commit is None:
            return PendingPut(append, None, 0, self._slave_status)
        timeout_at = time.monotonic() + self.options.sync_flush_timeout_ms / 1000
        return PendingPut(append, group_commit.put_request(append.next_offset), timeout_at, self._slave_status)

    def _with_ipv6_store_host(self, message: Message) -> Message:
        """The message with the store's host, which is IPv6, and the bit that says so."""
        return replace(message, store_host=self.options.store_host, sys_flag=message.sys_flag | SYS_FLAG_STORE_HOST_V6)

    # --- Reading -----------------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """The first offset of the log."""
        return self.log.min_offset

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte of the log."""
        return self.log.max_offset

    @property
    def flushed_offset(self) -> int:
        """The log before this offset is on the disk. HA-ST-28."""
        return self.log.flushed_offset

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int = 32, max_size: int = 256 << 10
    ) -> GetMessageResult:
        """Read messages of a queue, from a queue offset on. HA-ST-37 "through the consume queue".

        Args:  max_messages: for 0 or less there are no records, and the offset stays; RocketMQ gives one message for 0.
               max_size: bytes of records; the first message comes whatever its size.
        Returns: FOUND with the records, or another status with the offset to read instead.
        """
        with self._gate:
            queue = self._queue(topic, queue_id)
            if queue is None:
                return GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
            return get_messages(self.log, queue, queue_offset, max_messages, max_size)

    def pull(
        self, topic: str, queue_id: int, queue_offset: int, max_msg_nums: int, codes: TagCodes, bounds: PullBounds
    ) -> PullResult:
        """Read what a consumer has subscribed to of a queue, from a queue offset on, as a broker answers a pull.

        Args:  codes: the hashes of the tags; None for all messages. See pull.py.
        """
        with self._gate:
            queue = self._queue(topic, queue_id)
            if queue is None:
                return PullResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
            return pull_messages(self.log, queue, queue_offset, max_msg_nums, codes, bounds)

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self.queues.get(topic.encode("utf-8", "surrogateescape"), queue_id)

    def message_at(self, offset: int) -> Found | None:
        """The message at a commit-log offset: (offset, size, message); None if there is none, or if it is damaged."""
        view = self.log.data_at(offset, self.log.file_size)
        if view is None:
            return None
        try:
            message = decode(view)
        except MessageMalformed:
            return None
        return (offset, read_header(view)[0], message) if message.physical_offset == offset else None

    def query(self, topic: str, key: str, max_num: int = 64, begin: int = 0, end: int = FOREVER) -> list[Found]:
        """The newest messages of a topic with a key, stored between two times in ms, both included; oldest first. HA-ST-44.

        Records that are not dispatched yet are searched, too, so a message can be found as soon as it is put.
        """
        with self._gate:
            behind = self.log.records(self.dispatcher.reput_from_offset)
            return query(self.index, self.message_at, topic, key, max_num=max_num, begin=begin, end=end, unindexed=behind)

    def query_index(self, topic: str, key: str, max_num: int, begin: int, end: int, most_read: int) -> list[Found]:
        """`query` for a caller who must not wait long: among messages that are dispatched, reading `most_read` of them at most.

        Any number of messages may have other keys with the hash of this one.
        """
        with self._gate:
            return query(self.index, self.message_at, topic, key, max_num=max_num, begin=begin, end=end, most_read=most_read)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False) -> int:
        """The queue offset of the first message that was stored at a time in ms or later; 0 for an unknown queue.

        A consumer that starts there misses no message. If there is none, it is the queue's max offset. Without `clear_tail` it
        is the offset of the message stored nearest to the time, as in RocketMQ 4.9.8. HA-ST-37 "MUST go through the consume
        queue".

        upper: the last message that was stored at that time or earlier instead, and 0 if there is none. Without `clear_tail` it
        means nothing.
        """

        def stored_ms(offset: int, _size: int) -> int | None:
            found = self.message_at(offset)
            return None if found is None else found[2].store_timestamp

        with self._gate:
            queue = self._queue(topic, queue_id)
            if queue is None:
                return 0
            if self.options.clear_tail and upper:
                return queue.upper_offset_by_time(timestamp, stored_ms)
            if self.options.clear_tail:
                return queue.lower_offset_by_time(timestamp, stored_ms)
            return queue.offset_by_time(timestamp, stored_ms, self.log.min_offset)

    def wait_for_dispatch(self, offset: int | None = None, timeout_s: float = 60.0) -> bool:
        """Wait until queues and index have every message before an offset; default: the log's end. Returns: False at time-out.

        Raises: RocketmqHaError, if an error has ended the dispatch.
        """
        if self._gate.is_shut:
            raise self._closed_error()
        return self.dispatcher.wait_for(self.log.max_offset if offset is None else offset, timeout_s)

    def kept(self) -> dict[str, int | str | None]:
        """How much retention has deleted, and why there is no room for a new file, if there is none; for a status."""
        full = self._allocator.full
        return {
            "deleted_files": self._clean.deleted_files,
            "deleted_bytes": self._clean.deleted_size,
            "disk_full": None if full is None else str(full),
        }

    # --- Keeping -----------------------------------------------------------------------------------------------------

    def flush(self) -> int:
        """Force the log, the queues, the index and the checkpoint to the disk. Returns: the flushed offset. Raises: OSError."""
        with self._gate:
            return self._flush_all()

    def delete_expired(self, stored_before_ms: int) -> int:
        """Delete log files last written before a time, at most ten, with their queue entries and keys. HA-ST-13.

        Returns: the number of log files. Existing views of records stay valid.
        """
        with self._gate:
            # One millisecond earlier: a file written at exactly that time stays.
            return self._clean.clean(Retention(file_reserved_ms=0, delete_when=None), stored_before_ms - 1, 0)

    def close(self) -> None:
        """Refuse further calls, dispatch and flush everything, and release the files; a second call does nothing.

        If something cannot be flushed, `abort` stays, so that the next open recovers as after a crash. Raises: OSError, after
        everything is released.
        """
        if not self._gate.shut():
            return
        self._stop_threads()
        try:
            self._flush_all()
            self._topics.write()
            # Not where part of a record is left (quirk 31), or where an error has ended the dispatch.
            if self.dispatcher.reput_from_offset >= self.log.max_offset:
                mark_stopped(self.store_dir)
        finally:
            self.queues.close()
            self.index.close()
            self.log.close()

    def __enter__(self) -> "MessageStore":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- Starting ----------------------------------------------------------------------------------------------------

    def _recover_derived(self, is_clean: bool) -> int:
        """Recover consume queues and index. Returns: the offset at which dispatch must begin."""
        log = RecoveredLog(self.log.queue.files, self.log.recovery, self.log.max_offset)
        recovery = DerivedRecovery(log, self.queues, self.index, self.checkpoint)
        last_offset = self.log.recovery.last_offset
        stored_ms = 0 if last_offset is None else recovery.stored_ms(last_offset)
        # The checkpoint knows of messages that have expired, and of those before the start of recovery. A message that is
        # stored now must not seem to be one of them, whatever the clock says.
        self.log.last_stored_ms = max(stored_ms, self.checkpoint.physic_msg_timestamp)
        return recovery.run(is_clean=is_clean)

    def _start(self) -> None:
        mark_running(self.store_dir)
        self.checkpoint.flush()
        self.dispatcher.dispatch_all()
        self.queues.drop_unused()
        self.log.take_queue_offsets(self.queues.queue_offsets())
        self._topics.note()
        self.log.dispatch_to(self.dispatcher.offer, self.dispatcher.offer_all)
        if self.log.queue.files:
            self._allocator.watch(self.log.queue.files[-1])
        self.dispatcher.start()
        self._allocator.start()
        self._flush.start()  # with synchronous flush, too: no put waits for messages with WAIT=false
        if self._group_commit is not None:
            self._group_commit.start()
        self._housekeeping.start()

    def _stop_threads(self) -> None:
        """Refuse appends, dispatch what is there, and end the threads that run."""
        self._housekeeping.shutdown()  # first, since it could clear the refusal
        self.log.refuse(self._closed_error)
        self.dispatcher.shutdown()
        for service in (self._group_commit, self._flush, self._allocator):
            if service is not None:
                service.shutdown()

    def _tell_arrived(self, found: DispatchRound) -> None:
        """Name the queues that have just got entries to `on_dispatched`, in the thread of the dispatch.

        It must not raise, and it must not wait. HA-P-17 "When a message of the queue has been dispatched".
        """
        if self.on_dispatched is not None:
            self.on_dispatched(found.entries.keys())

    # --- Chores ------------------------------------------------------------------------------------------------------

    def _flush_derived(self) -> None:
        is_thorough = self._is_thorough()
        self._derived.flush(self.checkpoint, 0 if is_thorough else LEAST_PAGES)
        self.checkpoint.flush()

    def _watch_space(self) -> None:
        full = self._allocator.full
        self.log.refuse(None if full is None else lambda: StoreFull(full.file, full.found, full.expected))

    def _delete_expired(self) -> None:
        if self._clean.retention.deletes and self._is_expiry_due():
            with self._gate:
                self._clean.run()

    def _needed(self) -> int | None:
        return self.needed_offset()

    def _clean_derived(self, min_offset: int) -> None:
        self.queues.delete_expired(min_offset)
        self.index.delete_expired(min_offset)

    def _flush_all(self) -> int:
        flushed_offset = self.log_flush.flush()
        self._derived.flush(self.checkpoint)
        self.checkpoint.flush()
        return flushed_offset

    def _closed_error(self) -> StoreClosed:
        return StoreClosed(f"{self.store_dir}: the store is closed")


def _each(messages: Sequence[Message] | MessageBatch) -> Sequence[Message]:
    return messages.messages() if isinstance(messages, MessageBatch) else messages
