"""Both sides of the world `queues`: the model's life of queues and index, and a store of real files without its threads.

The implementation's side plays operating system and machine: what a kill leaves, what a power cut leaves, what somebody damages.
It believes a file to be on the disk when the store believes so after a flush. All decisions are the store's own.
"""

import json
import operator
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final, assert_never

from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.log.allocate import AllocateService
from rocketmq_ha.impl.store.log.checkpoint import was_aborted
from rocketmq_ha.impl.store.log.checkpoint_hint import recovery_hint
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.store.store_options import StoreOptions
from rocketmq_ha.impl.wire.batch import COMMIT_LOG_OFFSET, SIZE, AllHanded, HandedBatch, HandedFields
from rocketmq_ha.impl.wire.message import Host, Message, encode
from rocketmq_ha.reference import consume_queue, derived_disk, derived_events, derived_reads, derived_states
from rocketmq_ha.reference import index_file as model_index
from rocketmq_ha.reference.derived_life import Life, Phase, Sizes, missing_of
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.reference.store import Log, max_offset, min_offset
from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    COMMIT_LOG_DIR,
    CONSUME_QUEUE_DIR,
    END_FILE_MIN_BLANK_SIZE,
    INDEX_DIR,
)
from rocketmq_ha.spec.profile import Profile

HOST: Final[Host] = ("127.0.0.1", 10911)
HOST_PART: Final = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
DELETED: Final = "deletedTopics.json"
QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ObservedQueue:
    """One queue that has files."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    first_position: int  # of the first file, in bytes
    data: bytes  # of all files, whole


@dataclass(frozen=True, slots=True)
class ObservedStore:
    """A store. While no process has it, only what was left behind is told."""

    ACTOR: ClassVar[str] = "store"
    phase: str
    refused: bool
    abort: bool
    min_offset: int = 0
    max_offset: int = 0
    log: bytes = b""
    reput_from_offset: int = 0
    times: tuple[int, ...] = ()  # of the checkpoint
    index_names: tuple[str, ...] = ()
    index: tuple[bytes, ...] = ()  # the files, whole
    answer: tuple[object, ...] = ()
    queues: tuple[ObservedQueue, ...] = ()


def name_offset_ms(now_ms: int) -> int:
    """By how much the time of day by which index files are named is ahead of UTC."""
    return time.localtime(now_ms // 1000).tm_gmtoff * 1000


class ReferenceQueues:
    """The model."""

    def __init__(self, sizes: Sizes, profile: Profile, keys: Sequence[QueueKey], now_ms: int, *, is_master: bool) -> None:
        self._sizes, self._profile, self._keys = sizes, profile, tuple(keys)
        self.life = Life(now_ms, Log(sizes.log_file_size))
        self.states = derived_states.classify(self.life, self._keys)
        self._asked: tuple[Life, tuple[str, ...]] = self.life, ()
        self.apply(derived_events.Start(is_master, 0))

    def apply(self, event: derived_events.Event) -> tuple[Transition, ...]:
        stepped = derived_states.step(self.life, self.states, event, self._sizes, self._profile, self._keys)
        self.life, self.states, transitions = stepped
        return transitions

    def broken(self) -> tuple[str, ...]:
        """What does not hold: as before, where nothing has changed that it depends on."""
        life, (before, told) = self.life, self._asked
        parts = ((one.dispatched, one.known, one.injured) for one in (life, before))
        if life.phase is not before.phase or not all(map(operator.is_, *parts)):
            told = derived_states.broken(life)
        self._asked = life, told
        return told

    def observe(self) -> ObservedStore:
        life = self.life
        if life.phase is Phase.DOWN:
            return ObservedStore(life.phase.value, life.refused, life.abort)
        told, log, reached = life.checkpoint, life.log, life.dispatched.reput_from_offset
        if life.refused:  # before the message that it cannot take
            reached = next((known.offset for known in life.known if known.offset >= reached), reached)
        queues = [
            ObservedQueue(
                *key,
                consume_queue.min_offset_in_queue(shown),
                consume_queue.max_offset_in_queue(shown),
                shown.mapped_file_queue.base or 0,
                b"".join(derived_disk.queue_files(shown).values()),
            )
            for key, queue in sorted(life.dispatched.queues.items())
            if queue.mapped_file_queue.base is not None
            for shown in (derived_reads.visible(queue, life.deleted.get(key[0], 0)),)
        ]
        return ObservedStore(
            life.phase.value,
            life.refused,
            life.abort,
            min_offset(log),
            max_offset(log),
            log.data,
            reached,
            (told.physic_msg_timestamp, told.logics_msg_timestamp, told.index_msg_timestamp),
            tuple(file.name for file in life.dispatched.index),
            tuple(file.data for file in life.dispatched.index),
            life.answer,
            tuple(queues),
        )


class _Log(CommitLog):
    """A log of which the dispatch sees a part: as it was when it ended at `window`."""

    window: int | None = None

    @property
    def max_offset(self) -> int:
        end = self.queue.max_offset
        return end if self.window is None else min(end, self.window)


class ImplementationQueues:
    """A store over files in `directory`. The caller must close it."""

    def __init__(self, sizes: Sizes, profile: Profile, now_ms: int, directory: Path, *, is_master: bool) -> None:
        self._sizes, self._profile, self._now_ms = sizes, profile, now_ms
        self._directory = directory / "store"
        (self._directory / "config").mkdir(parents=True)
        self._options = StoreOptions(
            file_size=sizes.log_file_size,
            queue_file_size=sizes.queue_file_size,
            index_geometry=Geometry(sizes.hash_slot_num, sizes.index_num),
            store_host=HOST,
            floor_size=0,
            notes_topics=False,
            clear_tail=profile.clears_tail,
        )
        self._store: MessageStore | None = None
        self._is_serving = self._is_refused = False
        self._deleted: dict[str, int] = {}
        self._flushed_where = self._derived_where = 0
        self._disk: dict[Path, bytes] = {}  # the files of queues and index as the last flush has left them
        self._answer: tuple[object, ...] = ()
        self._start(derived_events.Start(is_master, 0))

    def close(self) -> None:
        if self._store is not None:
            self._release(self._store)

    def apply(self, event: derived_events.Event) -> None:
        self._answer = ()
        store = self._store
        match event:
            case derived_events.Tick():
                self._now_ms += event.ms
            case derived_events.Start():
                if store is None:
                    self._start(event)
            case derived_events.Damage():
                if store is None:
                    self._damage(event)
            case derived_events.Dispatch():
                if store is not None:
                    self._dispatch(store, event.most)
            case derived_events.Kill():
                if store is not None:
                    self._release(store)
            case derived_events.PowerCut():
                if store is not None:
                    self._power_cut(store, event)
            case _:
                if store is not None and self._is_serving:
                    self._serve(store, event)

    def _serve(
        self,
        store: MessageStore,
        event: (
            derived_events.Put
            | derived_events.Flush
            | derived_events.Expire
            | derived_events.DeleteTopic
            | derived_events.Get
            | derived_events.Seek
            | derived_events.Query
            | derived_events.Stop
        ),
    ) -> None:
        match event:
            case derived_events.Put():
                if self._is_master:
                    self._put(store, event)
                else:
                    self._replicate(store, event)
            case derived_events.Flush():
                self._flush(store, event)
            case derived_events.Expire():
                self._expire(store, event)
            case derived_events.DeleteTopic():
                self._deleted[event.topic] = store.log.max_offset
                self._write_deleted()
                self._hide(store)
            case derived_events.Stop():
                self._stop(store)
            case derived_events.Get():
                self._get(store, event)
            case derived_events.Seek():
                timestamp = self._now_ms - event.back_ms
                self._answer = (store.offset_by_time(event.topic, event.queue_id, timestamp, upper=event.upper),)
            case derived_events.Query():
                begin, end = self._now_ms - event.from_ms, self._now_ms - event.to_ms
                found = store.query(event.topic, event.key, event.most, begin, end)
                offsets = store.index.query_offset(event.topic, event.key, event.most, begin, end)
                self._answer = (tuple(offset for offset, _, _ in found), tuple(offsets))
            case _:
                assert_never(event)

    # --- The process -------------------------------------------------------------------------------------------------

    def _start(self, event: derived_events.Start) -> None:
        allocator = AllocateService()
        self._is_master, self._is_refused, self._is_serving = event.is_master, False, False
        try:
            log = _Log.open(
                self._directory,
                file_size=self._options.file_size,
                clear_tail=self._profile.clears_tail,
                hint=lambda files: recovery_hint(self._directory, files, strict=self._profile.checks_recovery),
                create=allocator.create,
            )
        except StoreCorrupt:
            self._is_refused = True
            return
        try:
            store = MessageStore(self._directory, self._options, allocator, log)
        except BaseException:
            log.close()
            raise
        self._store = store
        store.index.clock_ms = lambda: self._now_ms
        store.mark_started()
        self._flushed_where = min(self._flushed_where, log.max_offset)
        self._derived_where = min(self._derived_where, store.dispatcher.reput_from_offset)
        self._disk = {path: data for path, data in self._disk.items() if path.parent.name != INDEX_DIR}
        self._disk |= {file.path: file.image for file in store.index.files if not file.is_dirty}
        self._handed: list[HandedFields | HandedBatch] = []
        self._hands_over = True
        self._rest = b""  # of a slave's last record
        # When the last message was stored, which a slave's master knows.
        self._last_ms = 0 if event.is_master else max([0, *(one.store_timestamp for _, _, one in log.records())])
        self._read_deleted()
        self._hide(store)
        self._numbers = {(topic.decode(), queue_id): end for (queue_id, topic), end in log.recovery.queue_offsets.items()}
        self._dispatch(store, event.most)

    def _dispatch(self, store: MessageStore, most: int) -> None:
        """Have the dispatch go on by some messages: what it sees of the log ends behind them."""
        log = store.log
        assert isinstance(log, _Log)
        if most:
            start = max(store.dispatcher.reput_from_offset, log.min_offset)
            found = list(islice(log.records(start), most))
            if len(found) == most:
                log.window = found[-1][0] + found[-1][1]
        seen = log.max_offset
        given = [handed for handed in self._handed if handed[COMMIT_LOG_OFFSET] + handed[SIZE] <= seen]
        del self._handed[: len(given)]
        for handed in given:
            store.dispatcher.offer_all(handed if isinstance(handed, HandedBatch) else (handed,))
        try:
            store.dispatcher.dispatch_all()
        except StoreCorrupt:
            if not self._is_serving:
                self._release(store)
            self._is_refused = True
            return
        finally:
            log.window = None
        if not self._is_serving and store.dispatcher.reput_from_offset >= log.max_offset:
            store.take_over()
            for (queue_id, topic), end in store.queues.queue_offsets().items():
                key = topic.decode(), queue_id
                self._numbers[key] = max(self._numbers.get(key, 0), end)
            log.dispatch_to(self._hand, self._hand_all)
            self._is_serving = True

    def _stop(self, store: MessageStore) -> None:
        self._dispatch(store, 0)
        self._flush(store, derived_events.Flush("log"))
        self._flush(store, derived_events.Flush("all"))
        store.close()
        self._gone()

    def _release(self, store: MessageStore) -> None:
        """The process ends at once: nothing more is written, and descriptors go back to the system."""
        store.queues.close()
        store.index.close()
        store.log.close()
        self._gone()

    def _gone(self) -> None:
        self._store, self._is_serving, self._is_refused = None, False, False

    # --- The log -----------------------------------------------------------------------------------------------------

    def _message(self, event: derived_events.Put) -> Message:
        return Message(
            event.topic,
            b"x" * event.size,
            event.queue_id,
            sys_flag=event.sys_flag,
            born_host=HOST,
            store_host=HOST,
            properties_string=event.properties,
        )

    def _put(self, store: MessageStore, event: derived_events.Put) -> None:
        message = self._message(event)
        count = event.count if event.sys_flag == 0 else 1
        if count * len(encode(message)) + END_FILE_MIN_BLANK_SIZE > self._sizes.log_file_size:
            return
        self._hands_over = event.handed
        if count == 1:
            store.log.append(message, self._now_ms, HOST_PART)
        else:
            store.log.append_batch([message] * count, self._now_ms, HOST_PART)

    def _hand(self, handed: HandedFields) -> None:
        if self._hands_over:
            self._handed.append(handed)

    def _hand_all(self, handed: AllHanded) -> None:
        if self._hands_over and isinstance(handed, HandedBatch):
            self._handed.append(handed)
        elif self._hands_over:
            self._handed.extend(handed)

    def _replicate(self, store: MessageStore, event: derived_events.Put) -> None:
        """The master's next bytes: the rest of the record before, a BLANK if its file is full, and the record."""
        log, message = store.log, self._message(event)
        size = len(encode(message))
        if size + END_FILE_MIN_BLANK_SIZE > log.file_size:
            return
        if self._rest:
            log.append_data(log.max_offset, [self._rest])
        room = log.file_size - log.max_offset % log.file_size
        if size + END_FILE_MIN_BLANK_SIZE > room:
            blank = room.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big") + bytes(room - END_FILE_MIN_BLANK_SIZE)
            log.append_data(log.max_offset, [blank])
        key = event.topic, event.queue_id
        number = self._numbers.get(key, 0) + event.skips
        self._last_ms = max(self._now_ms, self._last_ms)
        data = encode(self._message_at(message, self._last_ms), number if message.is_queued else 0, log.max_offset)
        if message.is_queued:
            self._numbers[key] = number + 1
        arrived = len(data) - missing_of(event)
        log.append_data(log.max_offset, [data[:arrived]])
        self._rest = data[arrived:]

    @staticmethod
    def _message_at(message: Message, stored_ms: int) -> Message:
        return Message(
            message.topic,
            message.body,
            message.queue_id,
            sys_flag=message.sys_flag,
            born_host=HOST,
            store_timestamp=stored_ms,
            store_host=HOST,
            properties_string=message.properties_string,
        )

    # --- Flush, expiry, deletion -------------------------------------------------------------------------------------

    def _flush(self, store: MessageStore, event: derived_events.Flush) -> None:
        if event.what == "log":
            store.log_flush.flush()
            self._flushed_where = store.flushed_offset
            return
        is_thorough = event.what == "all"
        store.flush_derived(is_thorough=is_thorough)
        for _, queue in store.queues:
            for file in queue.files:
                if file.is_flushed and (is_thorough or file.is_full):
                    self._disk[file.path] = bytes(file.view(0, file.size))
        if is_thorough:
            self._derived_where = self._reached(store)
            self._disk |= {file.path: file.image for file in store.index.files if not file.is_dirty}

    def _expire(self, store: MessageStore, event: derived_events.Expire) -> None:
        log = store.log
        needed = log.first_needed_offset()  # of the log itself, as in CleanCommitLogService
        count = 0 if needed is None else min(event.files, (needed - log.min_offset) // log.file_size)
        if self._reached(store) > self._derived_where:
            count = min(count, (self._derived_where - store.log.min_offset) // store.log.file_size)
        if count > 0:
            log.delete_before(log.min_offset + count * log.file_size)
            self._flushed_where = max(self._flushed_where, store.log.min_offset)
        if event.cleans:
            store.queues.delete_expired(store.log.min_offset)
            store.index.delete_expired(store.log.min_offset)

    def _reached(self, store: MessageStore) -> int:
        """Where the dispatch is; one that cannot go on may be before a BLANK in front of the message that it cannot take."""
        reached = store.dispatcher.reput_from_offset
        if not self._is_refused:
            return reached
        return next((offset for offset, _, _ in store.log.records(max(reached, store.log.min_offset))), reached)

    def _write_deleted(self) -> None:
        table = {topic: {"logOffset": offset} for topic, offset in self._deleted.items()}
        (self._directory / "config" / DELETED).write_text(json.dumps({"deletedTopicTable": table}), encoding="utf-8")

    def _read_deleted(self) -> None:
        """What a broker reads when it starts: the opening of the log may have changed it."""
        if self._deleted:
            found = json.loads((self._directory / "config" / DELETED).read_bytes())["deletedTopicTable"]
            self._deleted = {topic: place["logOffset"] for topic, place in found.items()}

    def _hide(self, store: MessageStore) -> None:
        for topic, offset in self._deleted.items():
            store.queues.hide_before(topic.encode(), offset)

    # --- Reads -------------------------------------------------------------------------------------------------------

    def _get(self, store: MessageStore, event: derived_events.Get) -> None:
        queue = store.queues.get(event.topic.encode(), event.queue_id)
        found = store.get(event.topic, event.queue_id, (queue.max_offset if queue is not None else 0) - event.back, event.count)
        offsets = (message.physical_offset for message in found.messages())
        # A queue that a recovery has emptied is in the table until the next start.
        status = found.status if queue is not None and queue.files else GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
        self._answer = (status.value, found.next_begin_offset, *offsets)

    # --- The machine -------------------------------------------------------------------------------------------------

    def _power_cut(self, store: MessageStore, event: derived_events.PowerCut) -> None:
        starts = [offset for offset, _, _ in store.log.records()][-event.lost :] if event.lost else []
        end = max(self._flushed_where, starts[0]) if starts else store.log.max_offset
        self._release(store)
        for path in (self._directory / COMMIT_LOG_DIR).iterdir():
            self._zero(path, end)
        for directory in (self._directory / CONSUME_QUEUE_DIR).glob("*/*"):
            for path in directory.iterdir():
                name = f"{directory.parent.name} {directory.name} {path.name}"
                self._tear(path, event, name)
        if (index := self._directory / INDEX_DIR).is_dir():
            for place, path in enumerate(sorted(index.iterdir())):
                self._tear(path, event, f"index {place}")

    def _zero(self, path: Path, offset: int) -> None:
        start = max(0, offset - int(path.name))
        if start < self._sizes.log_file_size:
            with path.open("r+b") as file:
                file.seek(start)
                file.write(bytes(self._sizes.log_file_size - start))

    def _tear(self, path: Path, event: derived_events.PowerCut, name: str) -> None:
        written = path.read_bytes()
        left = derived_disk.left(written, self._disk.get(path, b""), event, name)
        if left != written:
            path.write_bytes(left)

    def _damage(self, event: derived_events.Damage) -> None:
        if event.what in ("index_entry", "index_file"):
            index = self._directory / INDEX_DIR
            files = sorted(index.iterdir()) if index.is_dir() else []
            if files and event.what == "index_file":
                files[-1].unlink()
            elif files:
                sizes = self._sizes
                file = model_index.IndexFile(files[-1].name, sizes.hash_slot_num, sizes.index_num, files[-1].read_bytes())
                files[-1].write_bytes(derived_disk.damaged_index(file, event).data)
            return
        directory = self._directory / CONSUME_QUEUE_DIR / event.topic / str(event.queue_id)
        if not directory.is_dir() or (was_aborted(self._directory) and event.what != "queue"):
            return
        before = {path.name: path.read_bytes() for path in directory.iterdir()}
        after = derived_disk.damaged_queue(before, event)
        for name, data in before.items():
            if name not in after:
                (directory / name).unlink()
            elif after[name] != data:
                (directory / name).write_bytes(after[name])

    # --- Observation -------------------------------------------------------------------------------------------------

    def observe(self) -> ObservedStore:
        store = self._store
        if store is None:
            return ObservedStore(Phase.DOWN.value, self._is_refused, was_aborted(self._directory))
        phase = Phase.RUNNING if self._is_serving else Phase.STARTING
        log, told, reached = store.log, store.checkpoint, self._reached(store)
        return ObservedStore(
            phase.value,
            self._is_refused,
            True,
            log.min_offset,
            log.max_offset,
            b"".join([bytes(file.view(0, file.wrote_position)) for file in log.queue.files]),
            reached,
            (told.physic_msg_timestamp, told.logics_msg_timestamp, told.index_msg_timestamp),
            tuple(file.path.name for file in store.index.files),
            tuple(file.image for file in store.index.files),
            self._answer,
            tuple(_observed(key, queue) for key, queue in store.queues if queue.files),
        )


def _observed(key: tuple[bytes, int], queue: ConsumeQueue) -> ObservedQueue:
    """A queue. An empty file behind its last entry does not count."""
    images = [bytes(file.view(0, file.size)) for file in queue.files]
    while len(images) > 1 and not any(images[-1]):
        images.pop()
    return ObservedQueue(key[0].decode(), key[1], queue.min_offset, queue.max_offset, queue.files[0].base, b"".join(images))
