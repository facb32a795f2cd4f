"""A round of the dispatch by columns is what its messages are one by one: entries, keys, the last time."""

import pytest

from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest, RequestMaker
from rocketmq_ha.impl.store.derived.dispatch_round import AnyHanded, DispatchRound, Entries, add_entries
from rocketmq_ha.impl.wire.batch import HandedBatch, HandedFields

PLAIN, KEYS, UNIQUE = b"TAGS\x01a", b"TAGS\x01b\x02KEYS\x01k l", b"UNIQ_KEY\x01u"


def single(offset: int, queue_offset: int, properties: bytes = PLAIN, sys_flag: int = 0, topic: bytes = b"t") -> HandedFields:
    """Of 7 bytes, stored at 3 ms a byte of its offset."""
    return (topic, 5, offset, 7, properties, 3 * offset, queue_offset, sys_flag, 11)


def batch(offset: int, queue_offset: int, properties: bytes, count: int) -> HandedBatch:
    """Of messages of 9 bytes."""
    return HandedBatch(b"t", 5, offset, 9 * count, properties, 3 * offset, queue_offset, 0, 0, count)


@pytest.mark.parametrize(
    "handed",
    [
        [single(100, 0)],
        [single(100, 0), single(107, 1, KEYS), single(114, 2, UNIQUE)],
        [single(100, 0, KEYS, 4), single(107, 0, PLAIN, 12), single(114, 0, PLAIN, 8), single(121, 1)],
        [single(100, 0), single(107, 0, KEYS, topic=b"u"), single(114, 1, KEYS)],
        [batch(100, 4, PLAIN, 3)],
        [batch(100, 4, KEYS, 3)],
        [batch(100, 4, UNIQUE, 1)],
        [batch(100, 4, PLAIN, 2), batch(118, 6, KEYS, 2), batch(136, 8, PLAIN, 1)],
        [single(100, 3), batch(107, 4, UNIQUE, 2), single(125, 6, UNIQUE), single(132, 0, KEYS, 12), batch(139, 7, KEYS, 3)],
    ],
)
@pytest.mark.parametrize("parts", [1, 2])
def test_a_round_is_its_messages(handed: list[AnyHanded], parts: int) -> None:
    """Twice, since the second time the tags code of properties without keys is remembered."""
    maker = RequestMaker(DelayLevels.parse())
    for _ in range(2):
        found = DispatchRound(maker)
        for part in ([handed], [handed[:1], handed[1:]])[parts - 1]:
            found.add_handed(part)
        each: list[DispatchRequest] = []
        for one in handed:
            for row in one.each() if isinstance(one, HandedBatch) else [one]:
                each.append(RequestMaker(DelayLevels.parse())(*row))
        assert list(found) == each
        assert len(found) == len(each)
        assert found[0] == each[0]
        assert found[1:] == each[1:]
        entries: Entries = {}
        add_entries(entries, each)
        assert found.entries == entries
        assert found.keyed == [request for request in each if request.keys or request.uniq_key]
        assert found.last_store_timestamp == 3 * handed[-1][2]


def test_a_batch_counts_as_its_messages() -> None:
    found = DispatchRound(RequestMaker(DelayLevels.parse()))
    found.add_handed([batch(100, 4, KEYS, 3)])
    assert [(request.commit_log_offset, request.size, request.queue_offset) for request in found] == [
        (100, 9, 4),
        (109, 9, 5),
        (118, 9, 6),
    ]
    tags_code = ord("b")
    assert found.entries == {(b"t", 5): [4, 100, 9, tags_code, 5, 109, 9, tags_code, 6, 118, 9, tags_code]}


def test_an_empty_round_has_nothing() -> None:
    found = DispatchRound(RequestMaker(DelayLevels.parse()))
    found.add_handed([])
    assert (found.entries, found.keyed, found.last_store_timestamp, len(found)) == ({}, [], 0, 0)


def test_the_part_before_an_offset_is_a_round_of_its_messages() -> None:
    maker = RequestMaker(DelayLevels.parse())
    handed: list[AnyHanded] = [single(100, 3, KEYS), batch(107, 4, UNIQUE, 2), single(125, 6, KEYS, topic=b"u")]
    found, expected = DispatchRound(maker), DispatchRound(maker)
    found.add_handed(handed)
    for fields in found.entries.values():  # the queues have used them up
        fields.clear()
    expected.add_handed([single(100, 3, KEYS), batch(107, 4, UNIQUE, 1)])
    part = found.before(116)
    assert (list(part), part.entries, part.keyed) == (list(expected), expected.entries, expected.keyed)
    assert (part.last_store_timestamp, found.before(100).last_store_timestamp) == (3 * 107, 0)
    assert len(found.before(1000)) == 4
