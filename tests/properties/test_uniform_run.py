"""Checking a run of many records at once gives the same results as checking each record alone.

The oracle is a series of walks, each limited to one record: such a walk never checks several records at once.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest, Read, RequestMaker, read_requests
from rocketmq_ha.impl.store.log.scan import QueueOffsets, Scan, Stop, scan
from rocketmq_ha.impl.store.log.uniform_run import BEFORE, RECORDS, Run
from rocketmq_ha.impl.wire.message import Message, encode

BASE = 1 << 40
LONG = 2 * RECORDS + BEFORE + 5  # records: two runs, and some before and behind


def records_of(kinds: Sequence[tuple[Message, int]]) -> bytes:
    """The given numbers of messages of each kind, encoded at consecutive offsets."""
    data = bytearray()
    number = 0
    for message, count in kinds:
        for _ in range(count):
            data += encode(message, number, BASE + len(data))
            number += 1
    return bytes(data)


def step_by_step(data: bytes, suspect_from_ms: int | None) -> tuple[int, int, Stop, QueueOffsets]:
    """Walk record by record.

    Returns: where the walk ends, the number of records, the reason of the end, and the queue offsets.
    """
    position, count = 0, 0
    queue_offsets: QueueOffsets = {}
    while True:
        found = scan(data, BASE, position, position + 1, queue_offsets, suspect_from_ms)
        if found.stop is not Stop.BOUND:
            return found.position, count, found.stop, queue_offsets
        position, count = found.position, count + found.messages


def in_one_go(data: bytes, suspect_from_ms: int | None) -> tuple[int, int, Stop, QueueOffsets]:
    queue_offsets: QueueOffsets = {}
    found: Scan = scan(data, BASE, 0, None, queue_offsets, suspect_from_ms)
    return found.position, found.messages, found.stop, queue_offsets


def dispatched(data: bytes, *, at_once: bool) -> tuple[list[DispatchRequest], int, Read]:
    make = RequestMaker(DelayLevels.parse())
    view, room = memoryview(data), len(data)
    requests: list[DispatchRequest] = []
    offset, why = BASE, Read.BOUND
    while offset < BASE + room:
        start = offset
        bound = BASE + room if at_once else offset + 1
        offset, why = read_requests(view[start - BASE :], start, room - (start - BASE), bound, 1 << 30, make, requests)
        if why is not Read.BOUND or offset == start:
            break
    return requests, offset, why


KINDS = st.builds(
    Message,
    topic=st.sampled_from(["t", "other", "x" * 120]),
    body=st.sampled_from([b"", b"body", b"b" * 400]),
    queue_id=st.integers(0, 3),
    sys_flag=st.sampled_from([0, 0, 1, 4, 8, 12, 0x10]),
    born_host=st.just(("127.0.0.1", 1)),
    store_timestamp=st.sampled_from([5, 50]),
    properties_string=st.sampled_from(["", "TAGS\x01a", "TAGS\x01b", "KEYS\x01k", "A\x01" + "v" * 600]),
    magic=st.sampled_from([0xDAA320A7, 0xDAA320AB]),
).map(lambda message: message if message.sys_flag != 0x10 else _v6(message))


def _v6(message: Message) -> Message:
    return Message("v6", message.body, sys_flag=0x10, born_host=("::1", 1), properties_string=message.properties_string)


LOGS = st.lists(st.tuples(KINDS, st.sampled_from([1, 3, BEFORE, RECORDS, LONG])), min_size=1, max_size=3).map(records_of)


@settings(max_examples=60, deadline=None)
@given(LOGS, st.data())
def test_runs_end_where_their_records_do(log: bytes, data: st.DataObject) -> None:
    """Runs and single checks agree after any changed byte or zeroed sector."""
    damaged = bytearray(log)
    place = data.draw(st.integers(0, len(log) - 1))
    if data.draw(st.booleans()):
        damaged[place] ^= data.draw(st.integers(1, 255))
    else:
        damaged[place - place % 512 : place - place % 512 + 512] = bytes(min(512, len(log) - (place - place % 512)))
    for bytes_of in (log, bytes(damaged)):
        for suspect_from_ms in (None, 0, 20):
            assert in_one_go(bytes_of, suspect_from_ms) == step_by_step(bytes_of, suspect_from_ms)
        assert dispatched(bytes_of, at_once=True) == dispatched(bytes_of, at_once=False)


@pytest.mark.parametrize("distance", range(88 + 4 + 1 + 1 + 2 + 6))
def test_every_byte_of_a_run_is_looked_at_as_that_of_a_record(distance: int) -> None:
    message = Message("t", b"body", queue_id=1, properties_string="TAGS\x01a")
    log = bytearray(records_of([(message, LONG)]))
    size = len(log) // LONG
    assert size == 88 + 4 + 1 + 1 + 2 + 6
    log[(BEFORE + RECORDS + 70) * size + distance] ^= 1
    assert in_one_go(bytes(log), None) == step_by_step(bytes(log), None)
    assert dispatched(bytes(log), at_once=True) == dispatched(bytes(log), at_once=False)


def test_runs_are_what_a_walk_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walks use runs; else the tests above would compare the single check with itself."""
    seen: list[int] = []
    is_at = Run.is_at
    monkeypatch.setattr(Run, "is_at", lambda run, buffer, position: seen.append(position) or is_at(run, buffer, position))
    log = records_of([(Message("t", b"body", properties_string="TAGS\x01a"), LONG)])
    size = len(log) // LONG
    assert scan(log, BASE).messages == LONG
    assert seen == [BEFORE * size, (BEFORE + RECORDS) * size]
    assert len(dispatched(log, at_once=True)[0]) == LONG
    assert len(seen) == 4


def test_a_run_takes_no_more_than_the_caller_asks_for() -> None:
    log = records_of([(Message("t", b"body"), LONG)])
    size = len(log) // LONG
    for count in (RECORDS, RECORDS + BEFORE, RECORDS + BEFORE + 1, 2 * RECORDS + BEFORE):
        assert scan(log, BASE, 0, count * size).messages == count
        assert scan(log, BASE, 0, count * size - 1).messages == count
        requests: list[DispatchRequest] = []
        make = RequestMaker(DelayLevels.parse())
        assert read_requests(memoryview(log), BASE, len(log), BASE + len(log), count, make, requests)[0] == BASE + count * size
        assert len(requests) == count
        part = memoryview(log)[: count * size + size // 2]
        assert scan(part, BASE).messages == count
        del requests[:]
        found = read_requests(part, BASE, len(log), BASE + len(log), 1 << 30, make, requests)
        assert found == (BASE + count * size, Read.PART)
        assert len(requests) == count
