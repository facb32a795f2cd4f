"""Reads by queue and by key over a log and an index that are played: each status, each bound, each deletion meanwhile.

HA-ST-37, HA-ST-44 "A query MUST find messages by key within a span of store times", HA-ST-85.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_ha.impl.store.derived.queue_entry import ENTRY
from rocketmq_ha.impl.store.get import get_messages
from rocketmq_ha.impl.store.get_result import GetMessageStatus as Status
from rocketmq_ha.impl.store.query import FOREVER, Found, has_key, query
from rocketmq_ha.impl.wire.message import Message

# --- By queue --------------------------------------------------------------------------------------------------------


class PlayedQueue:
    """Entries 5 to 9: message n has n bytes, at 100 * n."""

    def __init__(self, read: object = None, last: int = 10) -> None:
        self.min_offset, self.max_offset, self._read = 5, last, read

    def read(self, queue_offset: int, limit: int) -> memoryview:
        if isinstance(self._read, Exception):
            raise self._read
        if self._read is not None:
            return memoryview(b"")
        numbers = range(queue_offset, min(queue_offset + limit, self.max_offset))
        return memoryview(b"".join(ENTRY.pack(100 * number, number, 77) for number in numbers))


class PlayedLog:
    """Byte n of the log is n modulo 251. From each of `ends` on, up to the next multiple of 400, there is nothing."""

    file_size = 400

    def __init__(self, *ends: int) -> None:
        self._ends = ends
        self.asked: list[int] = []

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        self.asked.append(offset)
        assert limit == self.file_size
        stop = offset - offset % 400 + 400
        stop = min([stop, *(end for end in self._ends if end // 400 == offset // 400)])
        return memoryview(bytes(at % 251 for at in range(offset, stop))) if stop > offset else None


def read(log: PlayedLog, queue: PlayedQueue, queue_offset: int, most: int = 32, max_size: int = 999) -> Any:
    return get_messages(log, queue, queue_offset, most, max_size)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("queue_offset", "most", "max_size", "numbers"),
    [
        (5, 32, 999, range(5, 10)),
        (5, 1, 999, range(5, 6)),
        (5, 5, 999, range(5, 10)),
        (9, 32, 999, range(9, 10)),
        (6, 2, 999, range(6, 8)),
        (5, 32, 17, range(5, 7)),
        (5, 32, 18, range(5, 8)),  # 5 + 6 + 7: exactly full
        (5, 32, 19, range(5, 8)),
        (5, 32, 4, range(5, 6)),  # the first comes whatever its size
        (5, 32, 5, range(5, 6)),
        (5, 32, 0, range(5, 6)),
    ],
)
def test_messages_come_in_their_order_up_to_a_bound(queue_offset: int, most: int, max_size: int, numbers: range) -> None:
    log = PlayedLog()
    found = read(log, PlayedQueue(), queue_offset, most, max_size)
    assert found[:4] == (Status.FOUND, numbers.stop, 5, 10)
    assert [bytes(each) for each in found.records] == [bytes((100 * n + at) % 251 for at in range(n)) for n in numbers]
    assert log.asked == sorted({max(100 * numbers.start, 100 * n - 100 * n % 400) for n in numbers})  # once in each file


@pytest.mark.parametrize(
    ("queue_offset", "ends", "status", "next_begin_offset", "count"),
    [
        (5, [], Status.FOUND, 10, 5),
        (5, [705], Status.FOUND, 7, 2),  # 7 is at 700 and has 7 bytes: not all there
        (5, [706], Status.FOUND, 7, 2),
        (5, [707], Status.FOUND, 10, 5),
        (5, [400], Status.MESSAGE_WAS_REMOVING, 6, 0),
        (5, [504], Status.MESSAGE_WAS_REMOVING, 6, 0),
        (5, [505], Status.FOUND, 6, 1),
        (8, [800], Status.MESSAGE_WAS_REMOVING, 9, 0),
        (6, [800], Status.FOUND, 8, 2),  # the next file has gone
    ],
)
def test_a_read_ends_before_a_message_that_the_log_has_not(
    queue_offset: int, ends: list[int], status: Status, next_begin_offset: int, count: int
) -> None:
    found = read(PlayedLog(*ends), PlayedQueue(), queue_offset)
    assert found[:4] == (status, next_begin_offset, 5, 10)
    assert len(found.records) == count


def test_a_record_that_ends_with_the_log_is_not_looked_up_again() -> None:
    log = PlayedLog(707)
    assert read(log, PlayedQueue(), 5, 3).next_begin_offset == 8
    assert log.asked == [500]


@pytest.mark.parametrize(
    ("queue", "queue_offset", "expected"),
    [
        (PlayedQueue(), 4, (Status.OFFSET_TOO_SMALL, 5, 5, 10)),
        (PlayedQueue(), -1, (Status.OFFSET_TOO_SMALL, 5, 5, 10)),
        (PlayedQueue(), 10, (Status.OFFSET_OVERFLOW_ONE, 10, 5, 10)),
        (PlayedQueue(), 11, (Status.OFFSET_OVERFLOW_BADLY, 10, 5, 10)),
        (PlayedQueue(last=5), 4, (Status.NO_MESSAGE_IN_QUEUE, 0, 5, 5)),
        (PlayedQueue(last=5), 5, (Status.NO_MESSAGE_IN_QUEUE, 0, 5, 5)),
        (PlayedQueue(last=5), 6, (Status.NO_MESSAGE_IN_QUEUE, 0, 5, 5)),
        # The file of the queue was deleted between the look at its bounds and the read.
        (PlayedQueue(FileNotFoundError()), 7, (Status.OFFSET_TOO_SMALL, 8, 8, 10)),
        (PlayedQueue(FileNotFoundError()), 9, (Status.NO_MESSAGE_IN_QUEUE, 0, 10, 10)),
        (PlayedQueue("nothing"), 7, (Status.OFFSET_FOUND_NULL, 8, 5, 10)),
    ],
)
def test_a_read_without_a_message_says_where_to_go_on(
    queue: PlayedQueue, queue_offset: int, expected: tuple[Status, int, int, int]
) -> None:
    assert read(PlayedLog(), queue, queue_offset) == (*expected, ())


# --- By key ----------------------------------------------------------------------------------------------------------


def message(number: int, properties: str = "KEYS\x01k", topic: str = "t", sys_flag: int = 0) -> Message:
    """Stored at 1,000 ms a number."""
    return Message(topic, b"", properties_string=properties, sys_flag=sys_flag, store_timestamp=1000 * number)


@pytest.mark.parametrize(
    ("changed", "has_it"),
    [
        (message(1), True),
        (message(1, "KEYS\x01a k b"), True),
        (message(1, "KEYS\x01kk"), False),
        (message(1, "KEYS\x01a,k"), False),
        (message(1, "UNIQ_KEY\x01k"), True),
        (message(1, "UNIQ_KEY\x01k\x02KEYS\x01other"), True),
        (message(1, "UNIQ_KEY\x01other\x02KEYS\x01k"), True),
        (message(1, "UNIQ_KEY\x01a k"), False),  # it is one key
        (message(1, "TAGS\x01k"), False),
        (message(1, ""), False),
        (message(1, topic="T"), False),
        (message(1, sys_flag=4), True),  # prepared
        (message(1, sys_flag=8), True),
        (message(1, sys_flag=12), False),  # rolled back
        (message(1, sys_flag=13), False),
    ],
)
def test_which_messages_have_a_key(changed: Message, has_it: bool) -> None:
    """HA-ST-78 "A prepared message MUST be in the index, and a rolled-back one MUST NOT be"."""
    assert has_key(changed, "t", "k") == has_it


class PlayedIndex:
    """It names the messages at `offsets`, newest first, under the key, and those at `unique` under the form U#key."""

    def __init__(self, offsets: list[int], unique: list[int]) -> None:
        self._offsets = {"k": offsets, "U#k": unique}
        self.asked: list[tuple[str, int, int]] = []

    def offsets(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        assert topic == "t"
        self.asked.append((key, begin, end))
        yield from self._offsets[key]


@pytest.mark.parametrize(
    ("max_num", "begin", "end", "found", "read_at"),
    [
        (99, 0, FOREVER, [1, 2, 4, 5, 7, 8], [6, 5, 4, 3, 2, 1, 0]),
        (6, 0, FOREVER, [1, 2, 4, 5, 7, 8], [6, 5, 4, 3, 2, 1]),  # enough: the next is not read
        (5, 0, FOREVER, [2, 4, 5, 7, 8], [6, 5, 4, 3, 2]),
        (3, 0, FOREVER, [5, 7, 8], [6, 5]),
        (2, 0, FOREVER, [7, 8], []),
        (1, 0, FOREVER, [8], []),
        (0, 0, FOREVER, [], []),
        (99, 2000, 7000, [2, 4, 5, 7], [6, 5, 4, 3, 2, 1, 0]),  # both ends count
        (99, 2001, 6999, [4, 5], [6, 5, 4, 3, 2, 1, 0]),
        (99, 1999, 7001, [2, 4, 5, 7], [6, 5, 4, 3, 2, 1, 0]),
    ],
)
def test_the_newest_messages_with_a_key(max_num: int, begin: int, end: int, found: list[int], read_at: list[int]) -> None:
    """Message n is at n. The index has 0 to 6, and names 7 too; 7 and 8 come from the log behind it."""
    messages = {number: message(number) for number in range(9)}
    messages[3] = message(3, "KEYS\x01other")  # of the same hash
    messages[6] = message(6, topic="u")
    del messages[0]  # the log has it no more
    played = PlayedIndex([7, 6, 4, 3, 1, 0], [5, 2])
    asked: list[int] = []

    def message_at(offset: int) -> Found | None:
        asked.append(offset)
        return (offset, 10 * offset, messages[offset]) if offset in messages else None

    behind = [(number, 10 * number, messages[number]) for number in (7, 8)]
    result = query(played, message_at, "t", "k", max_num=max_num, begin=begin, end=end, unindexed=behind)  # type: ignore[arg-type]
    assert result == [(number, 10 * number, messages[number]) for number in found]
    assert [offset for offset in asked if offset != 7] == read_at
    assert set(played.asked) <= {("k", begin - 999, end), ("U#k", begin - 999, end)}


def test_a_store_without_an_index_is_read_from_its_log() -> None:
    behind = [(number, 1, message(number, f"KEYS\x01{'k' if number % 2 else 'l'}")) for number in range(6)]
    found = query(None, lambda _: None, "t", "k", max_num=2, unindexed=behind)
    assert [offset for offset, _, _ in found] == [3, 5]
