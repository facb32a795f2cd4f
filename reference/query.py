"""Questions about messages and queues besides pulls: by key, by offset, by time.

A log is its messages. `index_service.py` says what the index finds, `consume_queue.py` where a read by time begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_ha.reference.consume_queue import is_filler
from rocketmq_ha.reference.pull import Queue

DEFAULT_QUERY_MAX_NUM = 32
MAX_MSGS_NUM_BATCH = 64


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in the log. `keys`: its unique key and its other keys."""

    offset: int
    size: int
    topic: str
    keys: frozenset[str]
    store_timestamp: int  # ms


def query_message(
    log: Sequence[Stored],
    topic: str,
    key: str,
    max_num: int,
    begin: int,
    end: int,
    *,
    is_unique_key: bool,
    most_bytes: int,
) -> tuple[int, ...]:
    """The offsets of the messages of the answer; none of them stands for QUERY_NOT_FOUND.

    Spec: HA-P-31 "MUST answer a QUERY_MESSAGE (12) with SUCCESS and the records of the newest messages"; HA-P-32 "MUST be
    answered as one with a `maxNum` of 32"; HA-P-33 "MUST NOT be larger than a frame may be".

    Args:  most_bytes: of the records of an answer.
    """
    max_num = DEFAULT_QUERY_MAX_NUM if is_unique_key else min(max_num, MAX_MSGS_NUM_BATCH)
    matching = [
        stored for stored in log if stored.topic == topic and key in stored.keys and begin <= stored.store_timestamp <= end
    ]
    newest = matching[-max_num:] if max_num > 0 else []
    while sum(stored.size for stored in newest) > most_bytes:
        newest = newest[1:]
    return tuple(stored.offset for stored in newest)


def view_message_by_id(log: Sequence[Stored], offset: int) -> Stored | None:
    """HA-P-34 "MUST answer a VIEW_MESSAGE_BY_ID (33) with SUCCESS and the record". None stands for SYSTEM_ERROR."""
    return next((stored for stored in log if stored.offset == offset), None)


def get_max_offset(queue: Queue) -> int:
    """Code 30. HA-P-30 "MUST answer the four questions about a queue as the table has them"."""
    return queue.max_offset


def get_min_offset(queue: Queue) -> int:
    """Code 31."""
    return queue.min_offset


def get_earliest_msg_storetime(queue: Queue, log: Sequence[Stored]) -> int:
    """Code 32: when the first message of the queue was stored; -1 where there is none."""
    if not queue.first <= queue.min_offset < queue.max_offset:
        return -1
    entry = queue.entries[queue.min_offset - queue.first]
    found = view_message_by_id(log, entry.offset) if not is_filler(entry) else None
    return found.store_timestamp if found is not None else -1
