"""A random workload on a store, with crashes: the steps, the promises made, and the points where it can be interrupted.

The store's threads do not run. The workload calls one round of each thread in an order drawn from the seed, so a seed always
gives the same life, and a crash can come between any two system calls. The clock comes from the seed, too, since a checkpoint
is made of times. Everything else is the real store.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from unittest import mock

from pages import Disk, Image, watching

from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.store import message_store
from rocketmq_ha.impl.store.derived import index_service
from rocketmq_ha.impl.store.derived.dispatch import ReputMessageService
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.housekeeping import Housekeeping
from rocketmq_ha.impl.store.log.allocate import AllocateService
from rocketmq_ha.impl.store.log.flush import FlushRealTimeService, GroupCommitRequest, GroupCommitService
from rocketmq_ha.impl.store.log.results import PutMessageResult, PutMessageStatus
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.constants import MESSAGE_MAGIC_CODE_V2

THREADS: Final = (AllocateService, FlushRealTimeService, GroupCommitService, Housekeeping, ReputMessageService)
BEGIN_MS: Final = 1_700_000_000_000
PHASES: Final = ("append", "roll", "flush", "dispatch", "checkpoint", "truncation", "expiry", "stop")
# The share of observations in a phase at which a crash is tried. Appends are frequent, so their share is small.
_SHARES: Final = {
    "append": 0.5,
    "roll": 0.5,
    "flush": 0.4,
    "dispatch": 0.15,
    "checkpoint": 0.8,
    "truncation": 0.25,
    "expiry": 1.0,
}
_COPY: Final = "stores to the mapping"
_STOP_SHARE: Final = 0.2


@dataclass(frozen=True)
class Record:
    """A message that was put, as the log must hold it."""

    offset: int
    data: bytes
    message: Message

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True)
class CrashPoint:
    """The files after a crash, and what must be true of them.

    durable: everything before this offset was promised to be on the disk. min_offset: everything before it was deleted,
    nothing from it on.
    goes_on: the life continues on this image.
    """

    phase: str
    where: str
    image: Image
    durable: int
    min_offset: int
    goes_on: bool = False


@dataclass
class Shape:
    """The sizes of a store; small, so that a short life reaches every boundary."""

    options: StoreOptions
    queues: list[tuple[str, int]]
    largest: int  # usual largest body in bytes
    log_flushes: int  # weight of an asynchronous flush of the log; a put has 12

    @classmethod
    def draw(cls, rng: random.Random) -> "Shape":
        file_size = rng.choice((8192, 10_000, 16_384, 24_576))
        options = StoreOptions(
            file_size=file_size,
            queue_file_size=20 * rng.choice((5, 60, 205, 410, 600)),
            index_geometry=Geometry(rng.choice((4, 50, 1200)), rng.choice((5, 40, 300, 700))),
            sync_flush=rng.random() < 0.4,
            floor_size=0,
        )
        queues = [(topic, queue_id) for topic in ("orders", "t") for queue_id in range(2)]
        return cls(options, queues[: rng.randint(1, 4)], rng.choice((60, 300, 1500, 4000)), rng.choice((0, 1, 4)))


class Clock:
    """The time of day. Only the workload moves it, by steps drawn from the seed."""

    def __init__(self) -> None:
        self.ms = BEGIN_MS


@contextmanager
def at_hand(clock: Clock) -> Iterator[None]:
    """Open stores without threads and with the given clock.

    A put that waits for the disk triggers one round of the GroupCommitService for all puts that wait by then.
    """
    services: dict[int, GroupCommitService] = {}
    put_request, wait = GroupCommitService.put_request, GroupCommitRequest.wait

    def put_request_noted(service: GroupCommitService, next_offset: int) -> GroupCommitRequest:
        request = put_request(service, next_offset)
        services[id(request)] = service
        return request

    def wait_at_hand(request: GroupCommitRequest, timeout_s: float) -> PutMessageStatus:
        service = services.pop(id(request))
        if request.status is None:
            service._requests.put(None)  # ends the round
            service._run()
        return wait(request, timeout_s)

    with ExitStack() as stack:
        for module in (message_store, index_service):
            stack.enter_context(mock.patch.object(module, "wall_clock_ms", lambda: clock.ms))
        for thread in THREADS:
            stack.enter_context(mock.patch.object(thread, "start", lambda _: None))
        stack.enter_context(mock.patch.object(GroupCommitService, "put_request", put_request_noted))
        stack.enter_context(mock.patch.object(GroupCommitRequest, "wait", wait_at_hand))
        yield


@dataclass
class Workload:
    """One life of a store, of `length` steps.

    Args:  try_out: called with each crash point when the current step has ended. one_journal: see Disk.
    """

    seed: str
    work: Path
    length: int
    try_out: Callable[["Workload", CrashPoint], None]
    one_journal: bool = False
    records: list[Record] = field(default_factory=list)  # messages in the log, or deleted from its beginning
    told: list[str] = field(default_factory=list)  # the steps, for a reader

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.shape = Shape.draw(self.rng)
        self.clock = Clock()
        self.durable = 0  # everything before this offset was promised to be on the disk
        self.looks = 0
        self._phase = "append"
        self._disk: Disk | None = None
        self._store: MessageStore | None = None
        self._min_offset = 0
        self._points: list[CrashPoint] = []
        self._number = 0

    # --- The whole ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        with at_hand(self.clock), watching(lambda: self._disk, self._on_call):
            try:
                self._open(Image({}, "a new store"))
                for _ in range(self.length):
                    self._do_something()
                    self._try_out()
            finally:
                self._leave()

    def _open(self, image: Image) -> None:
        """Open the store on the files that a crash left. Its recovery can be interrupted by a crash, too."""
        root = self.work / f"live-{self._number}"
        self._number += 1
        image.write(root)
        self._begin("truncation", f"open: {image.how}")
        self._disk = Disk(root, one_journal=self.one_journal)
        store = MessageStore.open(root, self.shape.options)
        self._store = store
        self._took_over(store)

    def _open_here(self, root: Path) -> None:
        self._begin("truncation", "open again")
        self._store = MessageStore.open(root, self.shape.options)
        self._took_over(self._store)

    def _took_over(self, store: MessageStore) -> None:
        store._is_thorough = lambda: self.rng.random() < 0.5  # type: ignore[assignment]
        self._look("open")
        self._try_out()
        self.records = [record for record in self.records if record.end <= store.max_offset]
        if store.max_offset < self._min_offset:
            self._min_offset = 0  # the log is empty: it begins again at 0

    def _leave(self) -> None:
        """Close the store without crashes, and delete its files."""
        disk, self._disk = self._disk, None
        store, self._store = self._store, None
        if store is not None:
            store.close()
        if disk is not None:
            disk.close()
            shutil.rmtree(disk.root)

    # --- Being interrupted -------------------------------------------------------------------------------------------

    def _begin(self, phase: str, what: str) -> None:
        self._phase = phase
        self.told.append(f"{self.clock.ms - BEGIN_MS:>7} ms  {what}")

    def _on_call(self, call: str, path: str) -> None:
        self._consider(call, path)

    def _look(self, what: str) -> None:
        assert self._disk is not None
        self._disk.observe()
        self._consider(what, "")

    def _consider(self, call: str, path: str) -> None:
        """Perhaps crash here."""
        self.looks += 1
        disk = self._disk
        assert disk is not None
        self._note_promises()
        phase = self._phase
        if path.endswith("/checkpoint"):
            phase = "checkpoint"
        elif phase == "append" and path:
            phase = "flush" if call.endswith("sync") else "roll"
        if self.rng.random() >= _SHARES.get(phase, _STOP_SHARE):
            return
        where = f"look {self.looks}, {call} {Path(path).relative_to(disk.root) if path.startswith(str(disk.root)) else path}"
        is_copy = call == _COPY and self._phase == "append"
        image = disk.crash_amid(self.rng) if is_copy and self.rng.random() < 0.4 else disk.crash(self.rng)
        self._points.append(CrashPoint(phase, where.strip(), image, self.durable, self._min_offset))

    def _note_promises(self) -> None:
        store = self._store
        if store is not None:
            self.durable = max(self.durable, store.flushed_offset)
            self._min_offset = max(self._min_offset, store.min_offset)  # deleted files may come back

    def _try_out(self) -> None:
        points, self._points = self._points, []
        disk, self._disk = self._disk, None
        try:
            for point in points:
                self.try_out(self, point)
        finally:
            self._disk = disk

    # --- Doing -------------------------------------------------------------------------------------------------------

    def _do_something(self) -> None:
        rng = self.rng
        self.clock.ms += rng.choice((0, 1, 3, 40, 900, 2500, 5000))
        kinds = {
            self._put: 12,
            self._flush_log: self.shape.log_flushes,
            self._dispatch: 4,
            self._flush_derived: 3,
            self._flush_all: 1,
        }
        kinds |= {self._prepare: 2, self._expire: 1, self._stop: 1, self._crash: 2}
        rng.choices(list(kinds), list(kinds.values()))[0]()

    def _put(self) -> None:
        """Put a batch, or one to four messages that wait for the disk together."""
        store, rng = self._store, self.rng
        assert store is not None
        messages = [self._message() for _ in range(rng.choice((1, 1, 2, 4)))]
        files = len(store.log.queue.files)
        if rng.random() < 0.2:
            topic, queue_id = messages[0].topic, messages[0].queue_id
            messages = [
                replace(one, topic=topic, queue_id=queue_id, sys_flag=0, born_host=("127.0.0.1", 0)) for one in messages
            ]
            self._begin("append", f"put a batch of {len(messages)}")
            with suppress(MessageIllegal):  # the batch is larger than a file
                self._end_put(messages, store.put_batch(messages))
            self._look_at_mapping(files)
            return
        pending = []
        for message in messages:
            self._begin("append", f"put, a body of {len(message.body)} bytes")
            pending.append((message, store.submit(message)))
            self._look_at_mapping(files)
        self._begin("flush", "wait for the disk")
        for message, put in pending:
            self._end_put([message], put.result())

    def _look_at_mapping(self, files: int) -> None:
        assert self._store is not None
        if len(self._store.log.queue.files) > files:
            self._phase = "roll"
        self._look(_COPY)

    def _end_put(self, messages: list[Message], result: PutMessageResult) -> None:
        """Record the promise, and the message as it should be encoded, independently of the log's bytes."""
        append = result.append
        waits = "WAIT" not in messages[0].properties
        if self.shape.options.sync_flush and waits:
            assert result.status is PutMessageStatus.PUT_OK
            self.durable = max(self.durable, append.next_offset)
        offset, queue_offset = append.offset, append.queue_offset
        for message in messages:
            placed = replace(message, store_timestamp=append.store_timestamp, store_host=self.shape.options.store_host)
            data = encode(placed, queue_offset if message.is_queued else 0, offset)
            self.records.append(Record(offset, data, message))
            offset += len(data)
            queue_offset += message.is_queued

    def _message(self) -> Message:
        rng = self.rng
        topic, queue_id = rng.choice(self.shape.queues)
        size = rng.choice((0, 1, rng.randint(0, 200), rng.randint(0, self.shape.largest), self.shape.largest))
        filling = rng.choice((b"\0", b"x", b""))
        body = (filling * size) if filling else rng.randbytes(size)
        number = len(self.records)
        properties = [f"UNIQ_KEY\1U{number}"] if rng.random() < 0.7 else []
        if rng.random() < 0.5:
            properties.append(f"KEYS\1k{number % 3} only{number}")
        if rng.random() < 0.3:
            properties.append("TAGS\1" + rng.choice(("new", "paid")))
        if rng.random() < 0.15:
            properties.append("note\1" + "n" * rng.choice((400, 1100, 2500)))
        if rng.random() < 0.1:
            properties.append("WAIT\1false")
        rng.shuffle(properties)
        message = Message(topic, body, queue_id=queue_id, properties_string="\2".join(properties))
        unusual = rng.random()
        if unusual < 0.04:
            return replace(message, sys_flag=rng.choice((0x4, 0xC)))  # a prepared or rolled-back message
        if unusual < 0.07:
            return replace(message, sys_flag=0x10, born_host=("::1", 99))
        if unusual < 0.1:
            return replace(message, magic=MESSAGE_MAGIC_CODE_V2)
        return message

    def _flush_log(self) -> None:
        assert self._store is not None
        least_pages = self.rng.choice((0, 0, 2))
        self._begin("flush", f"flush the log, least pages {least_pages}")
        self._store.log_flush.flush(least_pages)
        self._look("flushed")

    def _dispatch(self) -> None:
        assert self._store is not None
        self._begin("dispatch", "dispatch")
        self._store.dispatcher.dispatch_all()
        self._look(_COPY)

    def _flush_derived(self) -> None:
        assert self._store is not None
        self._begin("flush", "flush queues and index")
        self._store._flush_derived()

    def _flush_all(self) -> None:
        assert self._store is not None
        self._begin("flush", "flush all")
        self._store.flush()

    def _prepare(self) -> None:
        """One round of the allocator's thread: create the next file ahead of time."""
        assert self._store is not None
        self._begin("roll", "prepare the next file")
        files = self._store.log.queue.files
        if files:
            self._store._allocator._prepare_behind(files[-1])

    def _expire(self) -> None:
        """Expire some of the first files: give them old modification times. Old files are always flushed."""
        assert self._store is not None
        files = self._store.log.queue.files
        flushed = [file for file in files[:-1] if file.base + file.size <= self._store.flushed_offset]
        count = self.rng.randint(0, len(flushed))
        self._begin("expiry", f"delete {count} files")
        for index, file in enumerate(files):
            changed_s = 0 if index < count else 10**9
            os.utime(file.path, (changed_s, changed_s))
        self._store.delete_expired(1000)
        self._look("deleted")

    def _stop(self) -> None:
        """Stop (cleanly, if everything is dispatched), and start again."""
        store, disk = self._store, self._disk
        assert store is not None
        assert disk is not None
        if self.rng.random() < 0.8:
            self._dispatch()
        self._begin("stop", "close")
        store.close()
        self.durable = max(self.durable, self.records[-1].end if self.records else 0)
        self._store = None
        self._look("closed")
        self._try_out()
        if self.rng.random() < 0.3:
            self._power_cut()
            return
        self._open_here(disk.root)

    def _crash(self) -> None:
        self._try_out()
        self._power_cut()

    def _power_cut(self) -> None:
        assert self._disk is not None
        self._disk.observe()
        image = self._disk.crash(self.rng)
        self._points.append(CrashPoint(self._phase, "power cut", image, self.durable, self._min_offset, goes_on=True))
        self._try_out()
        self._leave()
        self._open(image)
