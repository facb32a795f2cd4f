"""The checkpoint file and the flushed position of a log: they record which data is on the disk.

     0        8        16       24         40       48          4096
    +--------+--------+--------+----------+--------+-----------+
    | physic | logics | index  | zeros    | logics | zeros     |      three times in ms, and an offset, each an i64
    +--------+--------+--------+----------+--------+-----------+

Spec: HA-ST-24 "MUST be a file of 4,096 bytes that begins with three times in ms, each an i64".
"""

from dataclasses import dataclass

from rocketmq_ha.reference import dispatch_request
from rocketmq_ha.reference.dispatch_request import Blank, DispatchRequest
from rocketmq_ha.reference.store import Log, max_offset, min_offset

OS_PAGE_SIZE = 4096
TIMES_SIZE = 3 * 8
OFFSET_AT = 40
MARGIN_MS = 3_000  # several messages may share one ms, and perhaps only some of them are on the disk


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """HA-ST-24 "up to which messages, then consume queues, then the index are on the disk"; 0: unknown."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    # RocketMQ 5.5.1 only: the queues are on the disk up to this log offset. If it is above 0, 5.5.1 uses it and ignores the
    # times.
    logics_physical_offset: int = 0


def encode(checkpoint: StoreCheckpoint) -> bytes:
    """The 4,096 bytes of the file.

    >>> len(encode(StoreCheckpoint(1, 2, 3))), encode(StoreCheckpoint(1, 2, 3))[:24].hex(" ", -8)
    (4096, '0000000000000001 0000000000000002 0000000000000003')
    """
    times = (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp)
    data = b"".join(time.to_bytes(8, "big", signed=True) for time in times).ljust(OFFSET_AT, b"\0")
    return (data + checkpoint.logics_physical_offset.to_bytes(8, "big", signed=True)).ljust(OS_PAGE_SIZE, b"\0")


def decode(data: bytes) -> StoreCheckpoint:
    """Decode the three times and the offset. The two offsets of 5.x between them are ignored. In a file too short for the
    times all fields are 0; a missing offset is 0, too.

    >>> decode(encode(StoreCheckpoint(1, 2, 3, 4))) == StoreCheckpoint(1, 2, 3, 4)
    True
    >>> decode(b"") == decode(encode(StoreCheckpoint(1, 2, 3))[:23]) == StoreCheckpoint()
    True
    """
    if len(data) < TIMES_SIZE:
        return StoreCheckpoint()
    return StoreCheckpoint(*(int.from_bytes(data[at : at + 8], "big", signed=True) for at in (0, 8, 16, OFFSET_AT)))


def flushed_before_ms(checkpoint: StoreCheckpoint) -> int:
    """Every message stored before this time is on the disk; 0 where the checkpoint tells of none.

    >>> flushed_before_ms(StoreCheckpoint(9_000, 0, 0)), flushed_before_ms(StoreCheckpoint())
    (6001, 0)
    """
    return max(0, checkpoint.physic_msg_timestamp - MARGIN_MS + 1)


def vouches_for(checkpoint: StoreCheckpoint, store_timestamp: int) -> bool:
    """Return True if every message stored at or before a time is on the disk.

    >>> vouches_for(StoreCheckpoint(9_000, 0, 0), 6_000), vouches_for(StoreCheckpoint(9_000, 0, 0), 6_001)
    (True, False)
    """
    return store_timestamp < flushed_before_ms(checkpoint)


def min_timestamp(checkpoint: StoreCheckpoint) -> int:
    """The time up to which all messages are on the disk, in the log and in the consume queues.

    Spec: HA-ST-19 "the lesser of the checkpoint's first two times, less 3 s".

    >>> min_timestamp(StoreCheckpoint(9_000, 8_000, 0)), min_timestamp(StoreCheckpoint(9_000, 0, 0))
    (5000, 0)
    """
    return max(0, min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) - MARGIN_MS)


def flush(log: Log, flushed_where: int, least_pages: int, synced: bool) -> int:
    """The flushed position after one round. A round flushes one file, if it is full or has enough unflushed pages.

    `least_pages` 0 flushes any amount. `synced`: the sync succeeded.

    Spec: HA-ST-28 "MUST advance only over bytes that a successful sync has covered". In 4.9.8 it advances after a failed
    sync, too (quirk 36); no profile of ours does.
    """
    base = min_offset(log)
    flushed_where = max(flushed_where, base)
    end_of_file = flushed_where - flushed_where % log.file_size + log.file_size
    end = min(end_of_file, max_offset(log))
    pages = end % log.file_size // OS_PAGE_SIZE - flushed_where % log.file_size // OS_PAGE_SIZE
    is_able = end > flushed_where and (end == end_of_file or pages >= least_pages)
    return end if is_able and synced else flushed_where


def last_store_timestamp(log: Log, until: int) -> int:
    """The store timestamp of the last message that ends by `until`; 0 if there is none.

    It becomes the checkpoint's first time once the log is flushed up to `until`. A 4.5.2 *slave* never sets that time, so after
    every unclean stop it recovers from its first file. In 4.9.8 a slave's dispatch sets it, even before the log is flushed.
    """
    offset, timestamp = min_offset(log), 0
    while offset < until:
        match dispatch_request.check_message_and_return_size(log, offset):
            case DispatchRequest() as request if offset + request.msg_size <= until:
                offset, timestamp = offset + request.msg_size, request.store_timestamp
            case Blank(next_file):
                offset = next_file
            case _:
                break
    return timestamp
