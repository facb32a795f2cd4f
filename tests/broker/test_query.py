"""Messages by key and by offset, queues by time and their ends: against the model, and at each border."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketmq_ha.fuzz.worlds.pull_stand import PlayedChannel, body_of
from rocketmq_ha.impl.broker.query import QueryMessageProcessor, QueueOffsetProcessor
from rocketmq_ha.impl.broker.queue_figures import QueueFigures
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.command import RemotingCommand
from rocketmq_ha.impl.store import message_store
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message, decode
from rocketmq_ha.reference import query as model
from rocketmq_ha.reference.consume_queue import Entry
from rocketmq_ha.reference.pull import Queue

BEGIN_MS = 1_700_000_000_000
CHANNEL = PlayedChannel()
# Queue id, topic, unique key, other keys; each is stored 500 ms behind the one before.
ROWS = [
    (0, "t", "u0", "k"),
    (0, "t", "u1", "k l"),
    (1, "t", "u2", "l"),
    (0, "t", "u3", "k"),
    (0, "other", "u4", "k"),
    (0, "t", "u5", ""),
    (0, "t", "k", "k"),
    (0, "t", "u7", "BB"),
    (0, "t", "u8", "Aa"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    options = StoreOptions(file_size=1 << 16, queue_file_size=2000, floor_size=0)
    clock = iter(range(BEGIN_MS, 1 << 62, 500))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_store, "wall_clock_ms", lambda: next(clock))
        with MessageStore.open(tmp_path_factory.mktemp("store") / "s", options) as found:
            for number, (queue_id, topic, unique, keys) in enumerate(ROWS):
                properties = f"UNIQ_KEY\x01{unique}" + (f"\x02KEYS\x01{keys}" if keys else "")
                found.put(Message(topic, bytes(10 * number), queue_id=queue_id, properties_string=properties))
            assert found.wait_for_dispatch()
            yield found


@pytest.fixture(scope="module")
def stored(store: MessageStore) -> list[model.Stored]:
    """The messages as the model has them, from the log itself."""
    found = []
    for (offset, size, message), (_, topic, unique, keys) in zip(store.log.records(), ROWS, strict=True):
        named = frozenset({unique, *keys.split(" ")} - {""})
        found.append(model.Stored(offset, size, topic, named, message.store_timestamp))
    return found


def asked(handler: object, **fields: object) -> RemotingCommand:
    request = RemotingCommand(12, 7, ext_fields={name: str(value) for name, value in fields.items()})
    answer = handler(CHANNEL, request, 0)  # type: ignore[operator]
    assert isinstance(answer, RemotingCommand)
    assert answer.opaque == 7
    return answer


def offsets_in(answer: RemotingCommand) -> tuple[int, ...]:
    body, found = body_of(answer), []
    while body:
        size = int.from_bytes(body[:4], "big")
        found.append(decode(body[:size]).physical_offset)
        body = body[size:]
    return tuple(found)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    topic=st.sampled_from(["t", "t", "t", "other", "none"]),
    key=st.sampled_from(["k", "k", "l", "u3", "u5", "Aa", "BB", "nothing"]),
    max_num=st.sampled_from([64, 64, 3, 2, 1, 0, -1, 1000]),
    begin=st.integers(0, 20),
    end=st.integers(0, 20),
    unique=st.sampled_from([None, "true", "false", "TRUE"]),
    most_bytes=st.sampled_from([1 << 20, 1 << 20, 500, 300, 0]),
)
def test_queries_are_those_of_the_model(
    store: MessageStore,
    stored: list[model.Stored],
    topic: str,
    key: str,
    max_num: int,
    begin: int,
    end: int,
    unique: str | None,
    most_bytes: int,
) -> None:
    """HA-P-31 "MUST answer a QUERY_MESSAGE (12) with SUCCESS and the records of the newest messages".

    HA-P-32 "MUST be answered as one with a `maxNum` of 32"; HA-P-33 "the oldest first".
    """
    span = (BEGIN_MS + 250 * begin, BEGIN_MS + 250 * end)
    expected = model.query_message(stored, topic, key, max_num, *span, is_unique_key=unique == "true", most_bytes=most_bytes)
    fields = {"topic": topic, "key": key, "maxNum": max_num, "beginTimestamp": span[0], "endTimestamp": span[1]}
    if unique is not None:
        fields["_UNIQUE_KEY_QUERY"] = unique
    answer = asked(QueryMessageProcessor(store, most_bytes).query_message, **fields)
    assert answer.code == (0 if expected else 22)
    assert offsets_in(answer) == expected
    last = stored[-1] if expected else None
    assert answer.ext_fields == {
        "indexLastUpdateTimestamp": str(last.store_timestamp if last is not None else 0),
        "indexLastUpdatePhyoffset": str(last.offset if last is not None else 0),
    }
    assert (answer.remark is None) == bool(expected)


QUERY = {"topic": "t", "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}


def test_a_query_for_the_largest_span(store: MessageStore, stored: list[model.Stored]) -> None:
    for begin in (0, -(1 << 63)):
        answer = asked(QueryMessageProcessor(store).query_message, **QUERY | {"beginTimestamp": begin})
        assert offsets_in(answer) == tuple(stored[at].offset for at in (0, 1, 3, 6))
    nothing = QUERY | {"beginTimestamp": (1 << 63) - 1, "endTimestamp": -(1 << 63)}
    assert asked(QueryMessageProcessor(store).query_message, **nothing).code == 22


def test_no_query_reads_all_messages_of_a_hash(store: MessageStore, stored: list[model.Stored]) -> None:
    """HA-P-33 "MAY stop when it has read 1,024 messages". `Aa` and `BB` have one hash; the message of BB is older."""
    asked_for = QUERY | {"key": "BB"}
    assert offsets_in(asked(QueryMessageProcessor(store, most_read=2).query_message, **asked_for)) == (stored[7].offset,)
    assert asked(QueryMessageProcessor(store, most_read=1).query_message, **asked_for).code == 22
    assert QueryMessageProcessor(store)._most_read == 1024


def test_an_answer_of_the_usual_size_fits_into_a_frame(store: MessageStore) -> None:
    """HA-P-33 "MUST NOT be larger than a frame may be (HA-MD-19)"."""
    assert QueryMessageProcessor(store)._most_bytes == (16 << 20) - (64 << 10)


@pytest.mark.parametrize("name", QUERY)
def test_a_query_needs_each_of_its_fields(store: MessageStore, name: str) -> None:
    with pytest.raises(RequestInvalid, match=f"^field {name}: found nothing"):
        asked(QueryMessageProcessor(store).query_message, **{each: QUERY[each] for each in QUERY if each != name})


def test_a_message_is_viewed_by_its_offset(store: MessageStore, stored: list[model.Stored]) -> None:
    """HA-P-34 "the record that begins at the commit-log offset"."""
    view = QueryMessageProcessor(store).view_message_by_id
    for each in stored:
        found = model.view_message_by_id(stored, each.offset)
        assert found is not None
        answer = asked(view, offset=each.offset)
        assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
        assert body_of(answer) == bytes(store.log.data_at(found.offset, found.size) or b"")
    for offset in (-1, 1, stored[1].offset - 1, stored[1].offset + 4, store.max_offset, 1 << 62):
        assert model.view_message_by_id(stored, offset) is None
        answer = asked(view, offset=offset)
        assert (answer.code, body_of(answer)) == (1, b"")
        assert answer.remark is not None
        assert f"found {offset}" in answer.remark


# --- Queues ----------------------------------------------------------------------------------------------------------


def queue_of(stored: list[model.Stored], topic: str, queue_id: int) -> Queue:
    places = [each for each, row in zip(stored, ROWS, strict=True) if row[:2] == (queue_id, topic)]
    return Queue(tuple(Entry(each.offset, each.size, 0) for each in places))


@pytest.mark.parametrize(("topic", "queue_id"), [("t", 0), ("t", 1), ("other", 0), ("other", 1), ("none", 0), ("t", -1)])
def test_the_ends_of_a_queue_and_its_first_time(
    store: MessageStore, stored: list[model.Stored], topic: str, queue_id: int
) -> None:
    """HA-P-30 "MUST answer the four questions about a queue as the table has them, with SUCCESS"."""
    queue = queue_of(stored, topic, queue_id)
    handlers = QueueOffsetProcessor(QueueFigures(store))
    expected = {
        handlers.get_max_offset: {"offset": str(model.get_max_offset(queue))},
        handlers.get_min_offset: {"offset": str(model.get_min_offset(queue))},
        handlers.get_earliest_msg_storetime: {"timestamp": str(model.get_earliest_msg_storetime(queue, stored))},
    }
    for handler, fields in expected.items():
        answer = asked(handler, topic=topic, queueId=queue_id)
        assert (answer.code, answer.ext_fields) == (0, fields)


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(0, 0), (BEGIN_MS, 0), (BEGIN_MS + 1, 1), (BEGIN_MS + 1500, 2), (BEGIN_MS + 2000, 3), (1 << 62, 7)],
)
def test_a_queue_by_time(store: MessageStore, timestamp: int, offset: int) -> None:
    """HA-P-30: HA-ST-81 "MUST begin at the first message of the queue that is not older"."""
    search = QueueOffsetProcessor(QueueFigures(store)).search_offset_by_timestamp
    assert asked(search, topic="t", queueId=0, timestamp=timestamp).ext_fields == {"offset": str(offset)}
    assert asked(search, topic="none", queueId=0, timestamp=timestamp).ext_fields == {"offset": "0"}


@pytest.mark.parametrize("name", ["UPPER", "upper", "Upper"])
@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [(0, 0), (BEGIN_MS - 1, 0), (BEGIN_MS, 0), (BEGIN_MS + 499, 0), (BEGIN_MS + 500, 1), (BEGIN_MS + 1499, 1), (1 << 62, 6)],
)
def test_the_upper_bound_of_a_time(store: MessageStore, timestamp: int, offset: int, name: str) -> None:
    """HA-P-30 "as the table has them"; HA-ST-94 "MUST find the last message of the queue that is not newer"."""
    search = QueueOffsetProcessor(QueueFigures(store)).search_offset_by_timestamp
    assert asked(search, topic="t", queueId=0, timestamp=timestamp, boundaryType=name).ext_fields == {"offset": str(offset)}
    assert asked(search, topic="none", queueId=0, timestamp=timestamp, boundaryType=name).ext_fields == {"offset": "0"}


@pytest.mark.parametrize("name", ["LOWER", "lower", "", "up", "uppers", "1"])
def test_another_boundary_is_the_lower_one(store: MessageStore, name: str) -> None:
    search = QueueOffsetProcessor(QueueFigures(store)).search_offset_by_timestamp
    for timestamp in (0, BEGIN_MS, BEGIN_MS + 1, BEGIN_MS + 500, 1 << 62):
        found = asked(search, topic="t", queueId=0, timestamp=timestamp, boundaryType=name)
        assert found.ext_fields == asked(search, topic="t", queueId=0, timestamp=timestamp).ext_fields


def test_questions_about_a_queue_name_it(store: MessageStore) -> None:
    handlers = QueueOffsetProcessor(QueueFigures(store))
    for handler in (handlers.get_max_offset, handlers.get_min_offset, handlers.get_earliest_msg_storetime):
        with pytest.raises(RequestInvalid, match=r"^field queueId: found nothing"):
            asked(handler, topic="t")
        with pytest.raises(RequestInvalid, match=r"^field topic: found nothing"):
            asked(handler, queueId=0)
    with pytest.raises(RequestInvalid, match=r"^field timestamp: found nothing"):
        asked(handlers.search_offset_by_timestamp, topic="t", queueId=0)


def test_the_memory_bound_is_a_share_of_the_machines_memory(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-R-21 "`accessMessageInMemoryMaxRatio`, 40 by default, divided by 100"."""
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1001, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert QueueFigures(store).in_memory == 1_640_038
    assert [QueueFigures(store, ratio=ratio).in_memory for ratio in (0, 1, 100)] == [0, 41_000, 4_100_096]


def test_a_queue_whose_first_message_has_gone(tmp_path: Path) -> None:
    options = StoreOptions(file_size=1 << 12, queue_file_size=40, floor_size=0)
    with MessageStore.open(tmp_path / "s", options) as store:
        for _ in range(10):
            store.put(Message("t", bytes(1000)))
        assert store.wait_for_dispatch()
        assert store.delete_expired(1 << 62) == 3
        handlers = QueueOffsetProcessor(QueueFigures(store))
        first = asked(handlers.get_min_offset, topic="t", queueId=0).ext_fields["offset"]
        assert first == "9"
        found = store.message_at(store.min_offset)
        assert found is not None
        time = asked(handlers.get_earliest_msg_storetime, topic="t", queueId=0).ext_fields["timestamp"]
        assert time == str(found[2].store_timestamp)
