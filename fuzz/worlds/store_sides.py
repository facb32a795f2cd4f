"""The two sides of the world of a store: the model, and a MessageStore over real files in the run's directory.

The implementation's side plays clock, disk and operator. It makes one round of a service for an event, takes a killed store
from its process, and changes the files as a power cut would (synced.py).
"""

# ruff: noqa: PTH108, PTH110, PTH112, PTH208
# Paths are strings here: a run makes hundreds of these calls, and a Path costs as much as some of them.

import contextlib
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.fuzz.worlds.at_hand import at_hand
from rocketmq_ha.fuzz.worlds.store_observe import ObservedFile, ObservedProcess, ObservedQueue, ObservedStore, Times, observe
from rocketmq_ha.fuzz.worlds.synced import Synced
from rocketmq_ha.impl.errors import ConfigInvalid, MessageIllegal, StoreCorrupt, StoreFull
from rocketmq_ha.impl.store import clean_commit_log
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log import space
from rocketmq_ha.impl.store.log.checkpoint import ABORT_FILE, CHECKPOINT_FILE, StoreCheckpoint
from rocketmq_ha.impl.store.log.layout import file_name
from rocketmq_ha.impl.store.log.results import PutMessageResult, status_of
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.retention import Disk, Retention
from rocketmq_ha.impl.wire.batch import MessageBatch
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import checkpoint as checkpoints
from rocketmq_ha.reference import java_string, store_events, store_life
from rocketmq_ha.reference.step import Transition
from rocketmq_ha.reference.store_disk import after_power_cut, left_of_cut, names_after_power_cut
from rocketmq_ha.reference.store_state import StoreLife, StoreSettings, new_store
from rocketmq_ha.spec.constants import COMMIT_LOG_DIR, CONSUME_QUEUE_DIR, INDEX_DIR
from rocketmq_ha.spec.profile import Profile

FLOOR_SIZE: Final = 1 << 20  # bytes that are to stay free; the disk has far more, or none at all
_SERVED: Final = ("127.0.0.1", 10911)
_CHECKPOINT: Final = struct.Struct(">6q")  # three times, two numbers of 5.x, an offset


class ReferenceStore:
    """The model."""

    def __init__(self, settings: StoreSettings, profile: Profile, now_ms: int) -> None:
        self._settings, self._profile = settings, profile
        self.life: StoreLife = new_store(settings, now_ms)

    def apply(self, event: store_events.Event) -> tuple[Transition, ...]:
        self.life, transitions = store_life.step(self.life, event, self._settings, self._profile)
        return transitions

    def broken(self) -> tuple[str, ...]:
        return store_life.broken(self.life, self._profile)

    def observe(self) -> ObservedStore:
        return observe(self.life)


class ImplementationStore:
    """The implementation with files in `directory`. The caller must close it."""

    def __init__(self, settings: StoreSettings, profile: Profile, now_ms: int, directory: Path) -> None:
        self._now_ms, self._profile = now_ms, profile
        self._root = directory / "store"
        self._root.mkdir()
        self._log_dir = str(self._root / COMMIT_LOG_DIR)
        self._size = settings.mapped_file_size
        self._options = StoreOptions(
            file_size=settings.mapped_file_size,
            queue_file_size=settings.queue_file_size,
            index_geometry=Geometry(settings.hash_slot_num, settings.index_num),
            sync_flush=settings.sync_flush,
            floor_size=FLOOR_SIZE,
            notes_topics=False,
            clear_tail=profile.clears_tail,
            retention=Retention(
                settings.file_reserved_ms,
                None if settings.delete_when is None else frozenset(settings.delete_when),
                settings.disk_max_used_space_ratio,
                settings.clean_file_forcibly,
                settings.max_log_size,
            ),
        )
        self._disk = Synced(self._root)
        self._is_full, self._used_percent = False, 0
        self._at_hand = at_hand(
            lambda: self._now_ms,
            [
                *self._disk.replacements(),
                (space, "free_size", lambda _: 0 if self._is_full else 1 << 40),
                (clean_commit_log, "disk_of", lambda _: self._disk_use()),
            ],
        )
        self._store: MessageStore | None = None
        self._told: tuple[object, ...] = ()
        self._files: dict[int, bytes] = {}  # of the commit log, as they were after the last event
        self._modified_ms: dict[int, int] = {}
        self._healthy: dict[int, tuple[bytes, bytes]] | None = None  # bytes in memory, and on the disk

    def close(self) -> None:
        self._leave()
        self._disk.close()

    def apply(self, event: store_events.Event) -> None:
        """Apply one event. An event that does not apply to the present state does nothing."""
        self._told = ()
        match event:
            case store_events.Tick():
                self._now_ms += event.ms
                return
            case store_events.DiskFull():
                self._is_full = event.is_full
                return
            case _:
                pass
        does = (_WHILE_CLOSED if self._store is None else _WHILE_OPEN).get(type(event))
        if does is not None:
            with self._at_hand:
                does(self, event)
            self._look()

    @property
    def _open_store(self) -> MessageStore:
        assert self._store is not None
        return self._store

    # --- While it is open --------------------------------------------------------------------------------------------

    def _put(self, event: store_events.Put) -> None:
        message = self._message(event.topic, event.body, event.properties, event.queue_id, event.sys_flag)
        self._tell_put(lambda store: store.put(message))

    def _put_batch(self, event: store_events.PutBatch) -> None:
        head = self._message(event.topic, b"", event.properties, event.queue_id)
        batch = MessageBatch(head, event.bodies, [event.properties] * len(event.bodies))
        self._tell_put(lambda store: store.put_batch(batch))

    def _message(self, topic: str, body: bytes, properties: str, queue_id: int, sys_flag: int = 0) -> Message:
        return Message(
            topic,
            body,
            queue_id=queue_id,
            properties_string=properties,
            sys_flag=sys_flag,
            born_timestamp=self._now_ms,
            born_host=_SERVED,
        )

    def _tell_put(self, put: Callable[[MessageStore], PutMessageResult]) -> None:
        begin = self._open_store.max_offset
        try:
            status, append = put(self._open_store)
        except MessageIllegal:
            self._told = ("illegal",)
        except StoreFull as error:
            self._told = (status_of(error).value,)
        else:
            self._told = (status.value, *append)
        end = self._open_store.max_offset
        if end > begin:  # its bytes may be those that a recovery has left there, which _look does not take for written
            self._modified_ms |= dict.fromkeys(range(begin - begin % self._size, end, self._size), self._now_ms)

    def _flush(self, event: store_events.Flush) -> None:
        try:
            self._open_store.log_flush.flush(event.least_pages)
        except OSError:
            self._told = ("flush failed",)

    def _dispatch(self, _: store_events.Dispatch) -> None:
        with contextlib.suppress(StoreCorrupt):  # its thread ends where it cannot go on; the model's stays there
            self._open_store.dispatcher.dispatch_all()

    def _flush_derived(self, _: store_events.FlushDerived) -> None:
        store = self._open_store
        store._is_thorough = lambda: True  # type: ignore[assignment]
        store._flush_derived()

    def _prepare(self, _: store_events.Prepare) -> None:
        store = self._open_store
        files = store.log.queue.files
        try:
            if files:
                store._allocator._prepare_behind(files[-1])
        except StoreFull as error:
            self._told = (status_of(error).value,)

    def _watch_space(self, _: store_events.WatchSpace) -> None:
        store = self._open_store
        store._allocator.check_space(self._root)
        store._watch_space()

    def _disk_fails(self, event: store_events.DiskFails) -> None:
        self._disk.fails_after = event.after

    def _clean(self, event: store_events.Clean) -> None:
        store = self._open_store
        for start, modified_ms in self._modified_ms.items():  # the files have the modification times of the run's clock
            os.utime(f"{self._log_dir}/{file_name(start)}", ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        self._used_percent = event.used_percent
        needed = None if event.needed_size < 0 else max(store.min_offset, store.max_offset - event.needed_size)
        store.needed_offset = lambda: needed
        self._told = (store._clean.clean(store._clean.retention, self._now_ms, event.hour),)

    def _disk_use(self) -> Disk:
        return Disk(self._used_percent * self._size, (100 - self._used_percent) * self._size)

    def _close(self, _: store_events.Close) -> None:
        store, self._store = self._open_store, None
        try:
            store.close()
        except OSError:
            self._told = ("flush failed",)
        self._disk.fails_after = -1

    def _kill(self, _: store_events.Kill) -> None:
        self._leave()

    def _leave(self) -> None:
        """Take the store from its process: nothing more is written. Its lock and its descriptors go."""
        store, self._store = self._store, None
        self._disk.fails_after = -1
        if store is not None:
            store.log.close()
            store.queues.close()
            store.index.close()

    # --- While it is closed ------------------------------------------------------------------------------------------

    def _open(self, _: store_events.Open) -> None:
        try:
            self._store = MessageStore.open(self._root, self._options)
        except ConfigInvalid:
            self._told = ("refused", "length")
        except StoreCorrupt as error:
            self._told = ("refused", self._where(error))
        else:
            self._healthy = None

    def _where(self, error: StoreCorrupt) -> str:
        """The file that an opening has refused, and the offset in it if its length is right."""
        if all(len(data) == self._size for data in self._files.values()):  # of a record, wherever it was to be dispatched
            return f"{file_name(error.offset - error.offset % self._size)} at {error.offset}"
        return Path(str(error.file)).name if len(self._files) > 1 else "length"

    def _damage(self, event: store_events.Damage) -> None:
        starts = sorted(self._files)
        if not starts or any(len(data) != self._size for data in self._files.values()):
            return
        start, position = starts[event.file % len(starts)], event.position % self._size
        damaged = self._files | {start: store_life.damage(self._files[start], position, event.size, event.mask)}
        is_aborted = os.path.exists(f"{self._root}/{ABORT_FILE}")
        told = checkpoints.StoreCheckpoint(*(self._checkpoint_file() or ()))
        if is_aborted and store_life.moves_recovery(self._files, damaged, told, self._profile):
            return
        self._keep_healthy()
        path = f"{self._log_dir}/{file_name(start)}"
        synced = self._disk.bytes_of(path, self._size)
        self._files = damaged  # nobody has written
        _write(path, self._files[start])
        self._disk.note(path, store_life.damage(synced, position, event.size, event.mask))

    def _shorten(self, event: store_events.Shorten) -> None:
        starts = sorted(self._files)
        if starts and all(len(data) == self._size for data in self._files.values()):
            self._keep_healthy()
            start = starts[event.file % len(starts)]
            os.truncate(f"{self._log_dir}/{file_name(start)}", event.length % self._size)

    def _keep_healthy(self) -> None:
        if self._healthy is None:
            paths = {start: f"{self._log_dir}/{file_name(start)}" for start in self._files}
            self._healthy = {
                start: (self._files[start], self._disk.bytes_of(path, self._size)) for start, path in paths.items()
            }

    def _heal(self, _: store_events.Heal) -> None:
        for start, (now, synced) in (self._healthy or {}).items():
            self._files[start] = now  # as if nobody had written
            self._modified_ms.setdefault(start, self._now_ms)
            path = f"{self._log_dir}/{file_name(start)}"
            _write(path, now)
            self._disk.note(path, synced)
        self._healthy = None

    def _power_cut(self, event: store_events.PowerCut) -> None:
        if self._healthy is not None:
            return
        self._leave()
        self._lose_pages_of_log(event)
        for path in sorted((self._root / CONSUME_QUEUE_DIR).glob("*/*/*")):
            topic, queue_id, name = path.parts[-3:]
            size = self._options.queue_file_size
            assert size is not None
            self._lose_pages(str(path), event.pages, store_life.sectors_of_queue(topic, int(queue_id), name, size))
        for number, path in enumerate(sorted((self._root / INDEX_DIR).glob("*"))):
            self._lose_pages(str(path), event.pages, store_life.sectors_of_index(number))
        self._lose_what_is_in_the_root()
        self._files = self._read_files()  # nobody has written
        self._modified_ms = {start: at for start, at in self._modified_ms.items() if start in self._files}

    def _lose_pages_of_log(self, event: store_events.PowerCut) -> None:
        now = self._read_files()
        named = [int(name) for name in self._disk.names.get(self._log_dir, ())]
        left = names_after_power_cut(now, named, event.names)
        for start in now.keys() - set(left):
            os.unlink(f"{self._log_dir}/{file_name(start)}")
        is_lost = False
        for start in left:
            path = f"{self._log_dir}/{file_name(start)}"
            pages, torn = left_of_cut(event.pages, event.torn, is_lost=is_lost)
            is_lost |= self._lose_pages(path, pages, store_life.sectors_of_log(start, self._size), torn)
        if os.path.isdir(self._log_dir):
            self._disk.names[self._log_dir] = frozenset(os.listdir(self._log_dir))

    def _lose_pages(self, path: str, pages: int, first_sector: int, torn: int = 0) -> bool:
        now = Path(path).read_bytes() if os.path.exists(path) else None
        synced = self._disk.bytes_of(path, self._size if now is None else len(now))
        left, is_lost = after_power_cut(synced if now is None else now, synced, pages, first_sector, torn)
        if left != now:
            _write(path, left)
        self._disk.note(path, left)
        return is_lost

    def _lose_what_is_in_the_root(self) -> None:
        names = self._disk.names.get(str(self._root), frozenset())
        for name in (ABORT_FILE, CHECKPOINT_FILE):
            path = f"{self._root}/{name}"
            if name not in names:
                Path(path).unlink(missing_ok=True)
            elif name == CHECKPOINT_FILE:
                _write(path, self._disk.files.get(path, (-1, b""))[1])
            elif not os.path.exists(path):
                _write(path, b"")
        for path, (_, data) in list(self._disk.files.items()):
            if path.endswith(CHECKPOINT_FILE) and os.path.exists(path):
                self._disk.note(path, data)

    # --- Observation -------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read the files of the log, and note which were written."""
        found = self._read_files()
        for start, data in found.items():
            if self._files.get(start) != data and len(data) == self._size:
                self._modified_ms[start] = self._now_ms
        for start in self._files.keys() - found.keys():
            self._modified_ms.pop(start, None)
        self._files = found

    def _read_files(self) -> dict[int, bytes]:
        """The files of the log: of an open store through its mappings, which show the same bytes."""
        try:
            starts = sorted(int(name) for name in os.listdir(self._log_dir))
        except FileNotFoundError:
            return {}
        found: dict[int, bytes] = {}
        if self._store is not None:
            found = {file.base: bytes(file.mapping) for file in self._store.log.queue.files}
        for start in starts:
            if start not in found:
                found[start] = _read(f"{self._log_dir}/{file_name(start)}")
        return {start: found[start] for start in starts}

    def observe(self) -> ObservedStore:
        files = tuple(ObservedFile(start, data) for start, data in self._files.items())
        abort = os.path.exists(f"{self._root}/{ABORT_FILE}")
        process = (_process(self._store),) if self._store is not None else ()
        return ObservedStore(self._told, abort, self._checkpoint_file(), files, process)

    def _checkpoint_file(self) -> Times | None:
        try:
            fd = os.open(f"{self._root}/{CHECKPOINT_FILE}", os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            physic, logics, index, *_, offset = _CHECKPOINT.unpack(os.pread(fd, _CHECKPOINT.size, 0))
        finally:
            os.close(fd)
        return physic, logics, index, offset


def _process(store: MessageStore) -> ObservedProcess:
    log = store.log
    queues = [
        ObservedQueue(java_string.text(topic), queue_id, queue.min_offset, queue.max_offset, _entries(queue))
        for (topic, queue_id), queue in store.queues
        if queue.max_offset
    ]
    ends = sorted((java_string.text(topic), queue_id, end.next_offset) for (queue_id, topic), end in log._queue_ends.items())
    return ObservedProcess(
        log.min_offset,
        log.max_offset,
        log.flushed_offset,
        _times(store.checkpoint),
        log.last_stored_ms,
        store.dispatcher.reput_from_offset,
        log.recovery.start,
        tuple(end for end in ends if end[2]),
        tuple(queues),
        tuple(bytes(file._map) for file in store.index.files),
    )


def _entries(queue: Any) -> bytes:
    """The bytes of a queue's entries."""
    return b"".join(bytes(file.view(0, file.wrote_position)) for file in queue._queue.files)


def _times(checkpoint: StoreCheckpoint) -> Times:
    return (
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
        checkpoint.logics_physical_offset,
    )


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)


def _write(path: str, data: bytes) -> None:
    Path(path).write_bytes(data)


_WHILE_OPEN: Final[dict[type, Callable[[ImplementationStore, Any], None]]] = {
    store_events.Put: ImplementationStore._put,
    store_events.PutBatch: ImplementationStore._put_batch,
    store_events.Flush: ImplementationStore._flush,
    store_events.Dispatch: ImplementationStore._dispatch,
    store_events.FlushDerived: ImplementationStore._flush_derived,
    store_events.Prepare: ImplementationStore._prepare,
    store_events.WatchSpace: ImplementationStore._watch_space,
    store_events.DiskFails: ImplementationStore._disk_fails,
    store_events.Clean: ImplementationStore._clean,
    store_events.Close: ImplementationStore._close,
    store_events.Kill: ImplementationStore._kill,
    store_events.PowerCut: ImplementationStore._power_cut,
}
_WHILE_CLOSED: Final[dict[type, Callable[[ImplementationStore, Any], None]]] = {
    store_events.Open: ImplementationStore._open,
    store_events.PowerCut: ImplementationStore._power_cut,
    store_events.Damage: ImplementationStore._damage,
    store_events.Shorten: ImplementationStore._shorten,
    store_events.Heal: ImplementationStore._heal,
}
