"""The observation of a store that the lock-step compares after every event, of the reference and of the implementation."""

from dataclasses import dataclass
from typing import ClassVar

from rocketmq_ha.reference import consume_queue
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.store import max_offset, min_offset
from rocketmq_ha.reference.store_state import StoreLife, images

Times = tuple[int, int, int, int]  # the fields of a checkpoint


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """A file of the commit log: its first offset, and all its bytes, written or not."""

    start: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ObservedQueue:
    """A consume queue: its bounds as queue offsets, and the bytes of its entries."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    entries: bytes


@dataclass(frozen=True, slots=True)
class ObservedProcess:
    """What a process that has the store open knows of it."""

    min_offset: int
    max_offset: int
    flushed_offset: int
    checkpoint: Times
    last_stored_ms: int
    reput_from_offset: int
    recovery_start: int
    queue_offsets: tuple[tuple[str, int, int], ...]  # topic, queue id, queue offset of the next message
    queues: tuple[ObservedQueue, ...]
    index: tuple[bytes, ...]  # of each file


@dataclass(frozen=True, slots=True)
class ObservedStore:
    ACTOR: ClassVar[str] = "store"

    told: tuple[object, ...]  # what the last event told a producer or an operator
    abort: bool
    checkpoint_file: Times | None
    files: tuple[ObservedFile, ...]
    process: tuple[ObservedProcess, ...]  # one, or none


def times_of(checkpoint: StoreCheckpoint) -> Times:
    return (
        checkpoint.physic_msg_timestamp,
        checkpoint.logics_msg_timestamp,
        checkpoint.index_msg_timestamp,
        checkpoint.logics_physical_offset,
    )


def observe(life: StoreLife) -> ObservedStore:
    """The model's side."""
    found = images(life) if life.log.base is not None else {}
    if life.shortened is not None:
        start, length = life.shortened
        found[start] = found[start][:length]
    files = tuple(ObservedFile(start, found[start]) for start in sorted(found))
    told = None if life.checkpoint_file is None else times_of(life.checkpoint_file)
    process = (_process(life),) if life.is_open else ()
    return ObservedStore(life.told, life.abort, told, files, process)


def _process(life: StoreLife) -> ObservedProcess:
    queues = [
        ObservedQueue(
            *key,
            consume_queue.min_offset_in_queue(queue),
            consume_queue.max_offset_in_queue(queue),
            queue.mapped_file_queue.data,
        )
        for key, queue in sorted(life.dispatched.queues.items())
    ]
    return ObservedProcess(
        min_offset(life.log),
        max_offset(life.log),
        life.flushed_where,
        times_of(life.checkpoint),
        life.last_stored_ms,
        life.dispatched.reput_from_offset,
        life.recovery_start,
        tuple((*key, number) for key, number in sorted(life.queue_offsets.items()) if number),
        tuple(queues),
        tuple(file.data for file in life.dispatched.index),
    )
