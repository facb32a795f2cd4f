"""Every kind of message in one store: however it came there, log, queues, index and readers have the same of it.

The messages are put, put in batches, or sent by a master; the store is then used as it is, opened again after a clean stop, or
recovered after another. HA-ST-29 to HA-ST-36, HA-ST-44, HA-ST-78.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kit.variant_tables import VARIANTS
from kit.variants import STORE, STORED_MS, Variant, log_of
from rocketmq_ha.impl.store import message_store
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.topic_config import read_topics
from rocketmq_ha.impl.store.derived.verify import DerivedSummary, verify_derived
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import Summary, verify
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.batch import MessageBatch
from rocketmq_ha.impl.wire.message import Message

FILE_SIZE, ONE_FILE = 1 << 16, 1 << 20
OPTIONS = StoreOptions(
    file_size=FILE_SIZE, queue_file_size=2000, index_geometry=Geometry(500, 5000), floor_size=0, store_host=STORE[0][0]
)
NAME_LIMIT = 255  # bytes of a topic that has a queue: a file system allows no longer name


def put(store: MessageStore, message: Message) -> None:
    for _ in range(2):
        assert store.put(message).is_ok


def submit(store: MessageStore, message: Message) -> None:
    pending = [store.submit(message) for _ in range(2)]
    assert all(each.result().is_ok for each in pending)


def put_list(store: MessageStore, message: Message) -> None:
    if message.sys_flag & 0xC:
        put(store, message)
    else:
        assert store.put_batch([message, message]).append.messages == 2


def put_message_batch(store: MessageStore, message: Message) -> None:
    if message.sys_flag & 0xC:
        put(store, message)
    else:
        assert store.put_batch(MessageBatch(message, [message.body] * 2, [message.properties_string] * 2)).is_ok


Fill = Callable[[MessageStore, Message], None]
PUTS: tuple[Fill, ...] = (put, submit, put_list, put_message_batch)


@dataclass
class Filled:
    """A store, what its log must hold, and where each variant stands in it."""

    store: MessageStore
    file_size: int
    stored: list[Variant]
    log: bytes

    @property
    def offsets(self) -> list[tuple[Variant, int, int]]:
        """Each message with its offset and its number among those of its variant."""
        found, at, numbers = [], 0, dict.fromkeys((each.name for each in self.stored), 0)
        for each in self.stored:
            if each.size + 8 > self.file_size - at % self.file_size:
                at += self.file_size - at % self.file_size
            found.append((each, at, numbers[each.name]))
            numbers[each.name] += 1
            at += each.size
        return found


def in_pairs(change: Callable[[int], int]) -> list[Variant]:
    """Each variant twice, with its sysFlag as the store changes it."""
    return [replace(each, sys_flag=change(each.sys_flag)) for each in VARIANTS for _ in range(2)]


def as_they_are(sys_flag: int) -> int:
    return sys_flag


def by_ipv4(sys_flag: int) -> int:
    return sys_flag & ~0x20


def by_ipv6(sys_flag: int) -> int:
    return sys_flag | 0x20


def fill(directory: Path, options: StoreOptions, way: Fill) -> None:
    with MessageStore.open(directory, options) as store:
        for variant in VARIANTS:
            way(store, variant.message())


def send(directory: Path, log: bytes) -> None:
    """Append the log as a master sends it, in pieces that end anywhere in a record."""
    with MessageStore.open(directory, OPTIONS) as store:
        for base in range(0, len(log), FILE_SIZE):
            for start in range(base, min(base + FILE_SIZE, len(log)), 3001):
                store.append_data(start, [log[start : min(start + 3001, base + FILE_SIZE)]])
        assert store.wait_for_dispatch()


CASES = [
    *(f"{way.__name__} by IPv4" for way in PUTS),
    *("put by IPv6", "put_message_batch by IPv6", "sent", "after an unclean stop", "its log alone", "classic"),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.replace(" ", "-"))
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    directory, options, change = tmp_path_factory.mktemp("variants") / "store", OPTIONS, as_they_are
    case = str(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_store, "wall_clock_ms", lambda: STORED_MS)
        if " by " in case:
            name, host = case.split(" by ")
            change = by_ipv4 if host == "IPv4" else by_ipv6
            options = replace(OPTIONS, store_host=STORE[host == "IPv6"][0])
            if "list" in name or "batch" in name:  # a batch is in one file
                options = replace(options, file_size=ONE_FILE)
            fill(directory, options, next(way for way in PUTS if way.__name__ == name))
        stored = in_pairs(change)
        assert options.file_size is not None
        log = log_of(stored, 0, options.file_size)
        if " by " not in case:
            send(directory, log)
        if case != "sent" and " by " not in case:
            (directory / "abort").touch()
            (directory / "checkpoint").unlink()
        if case == "its log alone":
            for path in sorted((directory / "index").iterdir()) + sorted((directory / "consumequeue").rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
        options = replace(options, clear_tail=case != "classic")
        with MessageStore.open(directory, options) as store:
            yield Filled(store, options.file_size, stored, log)


def test_the_log_holds_each_record_byte_by_byte(filled: Filled) -> None:
    log = filled.store.log
    bases = range(0, log.max_offset, filled.file_size)
    found = b"".join(bytes(log.data_at(base, filled.file_size) or b"") for base in bases)
    assert (found, log.max_offset) == (filled.log, len(filled.log))
    messages = [(offset, each.size) for each, offset, _ in filled.offsets]
    assert [(offset, size) for offset, size, _ in log.records()] == messages


def test_each_message_is_found_by_its_offset_and_nowhere_else(filled: Filled) -> None:
    for each, offset, number in filled.offsets:
        expected = replace(each.message(), physical_offset=offset, queue_offset=number if each.is_queued else 0)
        assert filled.store.message_at(offset) == (offset, each.size, expected), each.name
        assert filled.store.message_at(offset + 1) is None, each.name


def test_each_queue_has_its_messages(filled: Filled) -> None:
    """HA-ST-29 "of 20-byte entries", HA-ST-32 the tags code, HA-ST-34 "MUST NOT be in any consume queue", HA-ST-96 "A message
    whose topic cannot be the name of a directory MUST NOT be in any consume queue".
    """
    assert filled.store.wait_for_dispatch()
    for each, offset, number in filled.offsets:
        result = filled.store.get(each.topic.decode("utf-8", "surrogateescape"), each.queue_id, number)
        path = filled.store.queues.directory / each.topic[:NAME_LIMIT].decode("utf-8", "surrogateescape") / str(each.queue_id)
        if not each.is_queued or len(each.topic) > NAME_LIMIT or b"\0" in each.topic:
            assert result.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, each.name
            continue
        later = [at for other, at, _ in filled.offsets if other.name == each.name and at >= offset]
        records = [filled.log[at : at + each.size] for at in later]
        assert [bytes(record) for record in result.records] == records, each.name
        assert (result.min_offset, result.max_offset, result.next_begin_offset) == (0, 2, 2), each.name
        entry = offset.to_bytes(8, "big") + each.size.to_bytes(4, "big") + each.tags_code.to_bytes(8, "big")
        [file] = path.iterdir()
        data = file.read_bytes()
        assert data[20 * number : 20 * number + 20] == entry, each.name
        assert not any(data[40:]), each.name


def test_each_key_finds_its_messages(filled: Filled) -> None:
    """HA-ST-44 "MUST find messages by key"; HA-ST-78 "A prepared message MUST be in the index, and a rolled-back one MUST NOT
    be".
    """
    assert filled.store.wait_for_dispatch()
    keys = {(each.topic, key) for each in filled.stored for key in each.keys}
    assert len(keys) == 6
    for topic, key in keys:
        expected = [at for each, at, _ in filled.offsets if each.topic == topic and key in each.keys and each.is_indexed]
        found = filled.store.query(topic.decode(), key, max_num=1000)
        assert [offset for offset, _, _ in found] == expected, key
        name = topic.decode()
        assert sorted(set(filled.store.index.offsets(name, key, 0, STORED_MS))) == expected, key
        assert filled.store.query(name, key, begin=STORED_MS + 1) == filled.store.query(name, key, end=STORED_MS - 1) == []


def test_the_next_message_of_each_queue_is_its_third(filled: Filled) -> None:
    """But for a topic without a queue, of which nothing tells after a clean stop if its messages are in an early file."""
    known = filled.store.log._queue_ends
    for each in filled.stored:
        if each.is_queued and (len(each.topic) <= NAME_LIMIT or filled.store.log.recovery.start == 0):
            assert known[each.queue_id, each.topic].next_offset == 2, each.name


def test_topics_are_named_with_their_queues(filled: Filled) -> None:
    """HA-ST-52: but for a topic that no broker can have a queue of."""
    filled.store._topics.write()
    found = read_topics(filled.store.store_dir)
    expected: dict[str, int] = {}
    for each in filled.stored:
        if len(each.topic) <= NAME_LIMIT and each.topic.isascii() and b"\0" not in each.topic and each.is_queued:
            expected[each.topic.decode()] = max(expected.get(each.topic.decode(), 0), each.queue_id + 1)
    expected["Größe☃"] = next(each.queue_id + 1 for each in VARIANTS if each.topic.startswith(b"Gr"))
    assert found == expected


def test_a_reader_beside_the_store_finds_all_of_it_right(filled: Filled) -> None:
    assert filled.store.wait_for_dispatch()
    directory, count = filled.store.store_dir, len(filled.stored)
    blanks = sum(
        1 for (each, at, _), (_, after, _) in zip(filled.offsets, filled.offsets[1:], strict=False) if at + each.size != after
    )
    with LogReader(directory) as reader:
        found, files = verify(reader), -(-len(filled.log) // filled.file_size)
        assert found == Summary(directory, found.files, count, blanks, 0, len(filled.log), 0)
        assert found.files in (files, files + 1)  # the next file may be made ahead
        queued = [each for each in filled.stored if each.is_queued]
        named = [each for each in queued if len(each.topic) <= NAME_LIMIT and b"\0" not in each.topic]
        keys = sum(len(each.keys) for each in filled.stored if each.is_indexed)
        expected = DerivedSummary(len(named) // 2, len(named), len(queued) - len(named), 1, keys, 0, "4.3.0-5.3.4")
        assert verify_derived(reader) == expected
        for each, offset, number in filled.offsets:
            message = replace(each.message(), physical_offset=offset, queue_offset=number if each.is_queued else 0)
            assert reader.message_at(offset) == (offset, each.size, message)
            assert next(reader.records(offset - 1 if offset else 0)) == (offset, each.size, message)
