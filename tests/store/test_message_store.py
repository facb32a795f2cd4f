"""The store's public API: put, get and query, from many threads and over restarts. HA-ST-12, HA-ST-22, HA-ST-31 to 44."""

import errno
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.waiting import await_end
from rocketmq_ha.impl.errors import ConfigInvalid, MessageIllegal, StoreClosed, StoreFull, StoreLocked
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY_SIZE
from rocketmq_ha.impl.store.derived.topic_config import read_topics
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.log import mapped_file, space
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.results import PutMessageStatus, status_of
from rocketmq_ha.impl.store.log.verify import verify
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.batch import HandedBatch, MessageBatch
from rocketmq_ha.impl.wire.message import Message, decode, encode
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.spec.constants import MESSAGE_MAGIC_CODE_V2

OPTIONS = StoreOptions(file_size=1 << 16, queue_file_size=2000, index_geometry=Geometry(500, 5000), floor_size=0)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
V4 = st.tuples(st.sampled_from(["127.0.0.1", "255.255.255.255", "0.0.0.0"]), I32)
TEXT = st.text(max_size=20).filter(lambda text: not text.endswith("\0"))

MESSAGES = st.builds(
    Message,
    topic=st.text(min_size=1, max_size=20).filter(lambda text: not text.endswith("\0")),
    body=st.binary(max_size=300),
    queue_id=I32,
    flag=I32,
    sys_flag=I32.map(lambda flags: flags & ~0x30),
    born_timestamp=I64,
    born_host=V4,
    reconsume_times=I32,
    prepared_transaction_offset=I64,
    properties_string=TEXT,
    magic=st.sampled_from([0xDAA320A7, MESSAGE_MAGIC_CODE_V2]),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """Every message of a queue, read as a consumer reads."""
    found, offset = [], 0
    while (result := store.get(topic, queue_id, offset)).status is GetMessageStatus.FOUND:
        found += [message.body for message in result.messages()]
        offset = result.next_begin_offset
    return found


def test_a_torn_entry_of_the_first_message_of_the_log_is_made_again(path: Path) -> None:
    """HA-ST-97 "come before the queue's first message in the log": it looks like the entry of one that has expired.

    The first file of the log has expired, the checkpoint is lost, and recovery begins at the first file that is there.
    """
    with MessageStore.open(path, OPTIONS) as store:
        for number in range(3):  # one a file
            store.put(Message("T", bytes([number]) * 60_000))
    (path / "commitlog" / f"{0:020d}").unlink()
    (path / "checkpoint").unlink()
    (path / "abort").touch()
    with (path / "consumequeue" / "T" / "0" / f"{0:020d}").open("r+b") as file:
        file.seek(ENTRY_SIZE)
        file.write((5).to_bytes(8, "big"))
    with MessageStore.open(path, OPTIONS) as store:
        queue = store.queues.get(b"T", 0)
        assert queue is not None
        assert [entry.offset for _, entry in queue.entries()] == [0, 1 << 16, 2 << 16]


# --- What is written -------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(MESSAGES, st.lists(MESSAGES, min_size=1, max_size=5)), max_size=8), st.booleans())
@settings(deadline=None, max_examples=150)
def test_what_is_put_is_the_record_that_encode_makes(puts: list[Message | list[Message]], keeps_times: bool) -> None:
    """The fast writers, single and batch, write the same bytes as `encode`, with offsets, time and host filled in."""
    with tempfile.TemporaryDirectory() as directory, CommitLog.open(Path(directory) / "s", file_size=1 << 16) as log:
        counts: dict[tuple[int, str], int] = defaultdict(int)
        stored_ms = None if keeps_times else 1_700_000_000_000
        store_host = None if keeps_times else bytes([10, 0, 0, 7, 0, 0, 0, 9])
        handed: list[tuple[object, ...]] = []
        log.dispatch_to(handed.append, lambda batch: handed.extend(batch.each() if isinstance(batch, HandedBatch) else batch))
        expected_handed = []
        for put in puts:
            messages = (
                [replace(one, topic=put[0].topic, queue_id=put[0].queue_id) for one in put] if isinstance(put, list) else [put]
            )
            try:
                if isinstance(put, list):
                    result = log.append_batch(messages, stored_ms, store_host)
                else:
                    result = log.append(put, stored_ms, store_host)
            except MessageIllegal:
                assert isinstance(put, list)
                assert any(message.sys_flag & 0xC for message in messages)
                continue
            offset = result.offset
            assert result.messages == len(messages)
            for index, message in enumerate(messages):
                key = (message.queue_id, message.topic)
                expected = replace(
                    message,
                    physical_offset=offset,
                    queue_offset=counts[key] if message.is_queued else 0,
                    store_timestamp=message.store_timestamp if stored_ms is None else stored_ms,
                    store_host=("10.0.0.7", 9) if store_host else message.store_host,
                )
                record = encode(expected)
                assert bytes(log.data_at(offset, len(record)) or b"") == record
                if index == 0:
                    assert result.queue_offset == expected.queue_offset
                counts[key] += message.is_queued
                expected_handed.append(
                    (
                        *(message.topic_bytes, message.queue_id, offset, len(record), message.properties_bytes),
                        *(expected.store_timestamp, expected.queue_offset, message.sys_flag),
                        message.prepared_transaction_offset,
                    )
                )
                offset += len(record)
            assert offset == result.next_offset == log.max_offset
        assert handed == expected_handed


@given(
    MESSAGES, st.lists(st.tuples(st.binary(max_size=5), st.sampled_from(["", "A\x01b", "A\x01c"])), min_size=1, max_size=300)
)
@settings(deadline=None, max_examples=100)
def test_a_batch_that_says_what_it_shares_is_its_messages(head: Message, parts: list[tuple[bytes, str]]) -> None:
    """Also for long batches, whose queue offsets overflow their lowest byte."""
    head = replace(head, sys_flag=head.sys_flag & ~0xC)
    batch = MessageBatch(head, [body for body, _ in parts], [properties for _, properties in parts])
    with tempfile.TemporaryDirectory() as directory:
        logs = [CommitLog.open(Path(directory) / name, file_size=1 << 20) for name in ("a", "b", "c")]
        for log in logs:
            log.append(replace(head, body=bytes(200)))
        assert logs[0].append_batch(batch) == logs[1].append_batch(batch.messages())
        for message in batch.messages():
            logs[2].append(message)
        contents = {bytes(log.data_at(0, 1 << 20) or b"") for log in logs}
        assert len(contents) == 1
        for log in logs:
            log.close()


def test_a_batch_is_in_one_file_or_nowhere(path: Path) -> None:
    with CommitLog.open(path, file_size=1024) as log:
        log.append(Message("t", bytes(500)))
        result = log.append_batch([Message("t", bytes(200))] * 2)
        assert result.offset == 1024
        with pytest.raises(MessageIllegal, match="at most 1016"):
            log.append_batch([Message("t", bytes(200))] * 4)
        assert log.max_offset == result.next_offset
        assert [message.queue_offset for _, _, message in log.records()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ([], "at least one"),
        (MessageBatch(Message("t", b""), [b"a"], []), "1 bodies"),
        ([Message("a", b""), Message("b", b"")], "topic 'b', queue 0"),
        ([Message("a", b""), Message("a", b"", queue_id=1)], "topic 'a', queue 1"),
        ([Message("a", b"", sys_flag=4)], "transaction"),
        ([Message("a", bytes(3 << 20))] * 6, "at most 16777216"),
        ([Message("a", b""), Message("a", b"", properties_string="A\x01\0")], "zero byte"),
    ],
)
def test_a_batch_that_is_none_is_refused_whole(path: Path, batch: list[Message] | MessageBatch, text: str) -> None:
    with MessageStore.open(path, replace(OPTIONS, file_size=1 << 23)) as store:
        with pytest.raises(MessageIllegal, match=text):
            store.put_batch(batch)
        assert store.max_offset == 0


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (Message("t", bytes((4 << 20) + 1)), PutMessageStatus.MESSAGE_ILLEGAL),
        (Message("t" * 128, b""), PutMessageStatus.MESSAGE_ILLEGAL),
        (Message("", b""), PutMessageStatus.MESSAGE_ILLEGAL),
        (Message("t", b"", properties_string="p" * 32_768), PutMessageStatus.PROPERTIES_SIZE_EXCEEDED),
        (Message("t", b"", queue_id=1 << 31), PutMessageStatus.MESSAGE_ILLEGAL),
        (Message("t", b"", born_timestamp=1 << 63), PutMessageStatus.MESSAGE_ILLEGAL),
        (Message("t", b"", born_host=("::1", 1)), PutMessageStatus.MESSAGE_ILLEGAL),
    ],
)
def test_what_is_over_its_limit_is_refused_and_nothing_is_written(
    path: Path, message: Message, status: PutMessageStatus
) -> None:
    """Message 4 MiB, topic 127 bytes, properties 32,767 bytes."""
    with MessageStore.open(path, replace(OPTIONS, file_size=1 << 23)) as store:
        first = store.put(Message("t", b"x")).append
        with pytest.raises(MessageIllegal) as refused:
            store.put(message)
        assert status_of(refused.value) is status
        assert not status.is_stored
        assert store.max_offset == first.next_offset
        file = store.log.queue.files[0]
        assert not any(file.view(first.size, first.size + 4096))
        assert store.put(Message("t" * 127, bytes(4 << 20), properties_string="p" * 32_767)).is_ok


@dataclass
class Clock:
    ms: int

    def time_ns(self) -> int:
        return self.ms * 1_000_000


def test_times_ascend_with_offsets_even_where_the_clock_steps_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search by time, the index and the checkpoint rely on ascending times, also over a restart."""
    clock = Clock(0)
    monkeypatch.setattr(time, "time_ns", clock.time_ns)
    with MessageStore.open(path, OPTIONS) as store:
        stored = []
        for clock.ms in (5_000, 3_000, 7_000):
            stored.append(store.put(Message("t", b"")).append.store_timestamp)
        clock.ms = 6_999
    with MessageStore.open(path, OPTIONS) as store:
        stored.append(store.put_batch([Message("t", b"")]).append.store_timestamp)
        assert stored == [5_000, 5_000, 7_000, 7_000]
        assert [message.store_timestamp for _, _, message in store.log.records()] == stored


def test_a_store_of_ipv6_marks_its_messages(path: Path) -> None:
    options = replace(OPTIONS, store_host=("::1", 10911))
    with MessageStore.open(path, options) as store:
        store.put(Message("t", b"one"))
        store.put_batch(
            [Message("t", b"two", properties_string="TAGS\x01a"), Message("t", b"three", born_host=("::2", 3), sys_flag=0x10)]
        )
        found = [message for _, _, message in store.log.records()]
        assert [message.body for message in found] == [b"one", b"two", b"three"]
        assert [message.sys_flag for message in found] == [0x20, 0x20, 0x30]
        assert {message.store_host for message in found} == {("::1", 10911)}
        store.wait_for_dispatch()
        assert bodies(store, "t", 0) == [b"one", b"two", b"three"]
    with pytest.raises(ConfigInvalid, match="store host"):
        MessageStore.open(path, replace(OPTIONS, store_host=("nowhere", 1)))
    MessageStore.open(path, OPTIONS).close()  # the refusal has released the lock


# --- Threads ---------------------------------------------------------------------------------------------------------


def test_puts_of_many_threads_are_all_there_each_queue_in_order(path: Path) -> None:
    """HA-ST-12 "one at a time, whatever their topic", HA-ST-31 "MUST be entry n of its queue"."""
    with MessageStore.open(path, OPTIONS) as store:
        results: dict[int, list[int]] = defaultdict(list)

        def put(number: int) -> None:
            for index in range(150):
                body = b"%d-%d" % (number, index)
                if index % 10 == 9:
                    append = store.put_batch([Message("t", body, queue_id=index % 3)] * 3).append
                else:
                    append = store.put(Message("t", body, queue_id=index % 3, properties_string=f"KEYS\x01{number}")).append
                results[number] += [append.offset, append.queue_offset]

        threads = [threading.Thread(target=put, args=(number,), daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await_end(thread)
        assert store.wait_for_dispatch(timeout_s=30)
        by_queue: dict[int, list[int]] = defaultdict(list)
        for offset, size, message in store.log.records():
            by_queue[message.queue_id].append(message.queue_offset)
            found = store.get("t", message.queue_id, message.queue_offset, 1)
            assert bytes(found.records[0]) == bytes(store.log.data_at(offset, size) or b"")
        assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())
        assert sum(map(len, by_queue.values())) == 8 * (135 + 15 * 3)
        for number in range(8):
            assert len(store.query("t", str(number), max_num=1000)) == 135
    with LogReader(path) as reader:
        assert verify(reader).messages == 8 * (135 + 15 * 3)


def test_a_close_beside_puts_refuses_or_keeps_each_of_them(path: Path) -> None:
    """HA-ST-22. A message whose put returned is in the store afterwards; a refused one is not."""
    store = MessageStore.open(path, OPTIONS)
    put: list[bytes] = []
    refused = threading.Event()

    def work(number: int) -> None:
        for index in range(100_000):
            body = b"%d-%d" % (number, index)
            try:
                store.put(Message("t", body))
            except StoreClosed:
                refused.set()
                return
            put.append(body)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    store.close()
    for thread in threads:
        await_end(thread)
    assert refused.is_set()
    for call in (
        lambda: store.get("t", 0, 0),
        lambda: store.query("t", "k"),
        lambda: store.append_data(store.max_offset, [b"x"]),
        lambda: store.put_batch([Message("t", b"")]),
        lambda: store.delete_expired(0),
        store.flush,
        store.wait_for_dispatch,
    ):
        with pytest.raises(StoreClosed, match=str(path)) as error:
            call()
        assert status_of(error.value) is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.close()
    with MessageStore.open(path, OPTIONS) as again:
        assert sorted(bodies(again, "t", 0)) == sorted(put)


def test_reads_beside_deletion_end_well(path: Path) -> None:
    """A record that was read stays valid; a read of a deleted message ends with a status; no thread crashes."""
    with MessageStore.open(path, replace(OPTIONS, file_size=4096)) as store:
        for index in range(400):
            store.put(Message("t", b"%03d" % index * 30))
        store.wait_for_dispatch()
        held = store.get("t", 0, 0, 10)
        seen: set[GetMessageStatus] = set()
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                for offset in range(0, 400, 7):
                    result = store.get("t", 0, offset, 3)
                    seen.add(result.status)
                    for message in result.messages():
                        assert message.body == b"%03d" % message.queue_offset * 30

        threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for offset in range(0, store.max_offset, 4096):
            store.log.delete_before(offset)
            time.sleep(0.002)
        store.queues.delete_expired(store.log.min_offset)
        time.sleep(0.02)
        stop.set()
        for thread in threads:
            await_end(thread)
        assert GetMessageStatus.FOUND in seen
        assert store.get("t", 0, 0).status is GetMessageStatus.OFFSET_TOO_SMALL
        assert [message.queue_offset for message in held.messages()] == list(range(10))


# --- Reading ---------------------------------------------------------------------------------------------------------


def test_a_read_says_what_it_found_or_where_to_go_on(path: Path) -> None:
    """HA-ST-37 "MUST go through the consume queue"."""
    with MessageStore.open(path, OPTIONS) as store:
        assert store.get("t", 0, 0).status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
        for index in range(50):
            store.put(Message("t", bytes([index]) * 1000))
        store.wait_for_dispatch()
        result = store.get("t", 0, 10, 5)
        assert (result.status, result.next_begin_offset, result.min_offset, result.max_offset) == (
            GetMessageStatus.FOUND,
            15,
            0,
            50,
        )
        assert [message.body[0] for message in result.messages()] == [10, 11, 12, 13, 14]
        assert len(store.get("t", 0, 0, 100, max_size=3 * 1092).records) == 3
        assert len(store.get("t", 0, 0, 100, max_size=1).records) == 1
        assert store.get("t", 0, 50).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        assert store.get("t", 0, 51).status is GetMessageStatus.OFFSET_OVERFLOW_BADLY
        assert store.get("t", 0, -1).status is GetMessageStatus.OFFSET_TOO_SMALL


def test_a_message_is_found_by_key_as_soon_as_it_is_put(path: Path) -> None:
    """HA-ST-44 "MUST find messages by key within a span of store times": the messages that are not in the index yet are
    searched one by one.
    """
    with MessageStore.open(path, OPTIONS) as store:
        for index in range(200):
            properties = format_properties({"KEYS": f"order{index} all", "UNIQ_KEY": f"u{index}"})
            append = store.put(Message("t", b"%d" % index, properties_string=properties)).append
            [(offset, size, message)] = store.query("t", f"u{index}")
            assert (offset, size, message.body) == (append.offset, append.size, b"%d" % index)
        assert len(store.query("t", "all", max_num=1000)) == 200
        assert [message.body for _, _, message in store.query("t", "all", max_num=2)] == [b"198", b"199"]
        assert store.query("other", "all") == []
        assert store.query("t", "all", end=append.store_timestamp - 1_000_000) == []


def test_offsets_are_found_by_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(path, OPTIONS) as store:
        for index in range(20):
            monkeypatch.setattr(time, "time_ns", lambda index=index: (10_000 + 100 * index) * 1_000_000)
            store.put(Message("t", b""))
        store.wait_for_dispatch()
        assert store.offset_by_time("t", 0, 10_700) == 7
        assert store.offset_by_time("t", 0, 10_701) == 8  # a consumer that starts there misses none
        assert store.offset_by_time("t", 0, 99_999) == 20
        assert store.offset_by_time("unknown", 0, 10_700) == 0
    with MessageStore.open(path, replace(OPTIONS, clear_tail=False)) as store:
        assert store.offset_by_time("t", 0, 10_701) == 7  # as 4.9.8: the nearest
        assert store.offset_by_time("t", 0, 99_999) == 19


def test_a_damaged_message_is_not_served_as_one(path: Path) -> None:
    with MessageStore.open(path, OPTIONS) as store:
        append = store.put(Message("t", b"body", properties_string="KEYS\x01k")).append
        store.wait_for_dispatch()
        store.log.queue.files[0].mapping[append.offset + 88] ^= 1
        with pytest.raises(Exception, match="body CRC"):
            list(store.get("t", 0, 0).messages())
        assert store.message_at(append.offset) is None
        assert store.query("t", "k") == []
        store.log.queue.files[0].mapping[append.offset + 88] ^= 1
        assert store.message_at(append.offset + 1) is None
        assert store.message_at(1 << 40) is None


def test_replicated_records_are_dispatched_too(tmp_path: Path) -> None:
    """HA-ST-36 "MUST dispatch the records that it has appended, as a master does": an incomplete record waits for its rest."""
    with MessageStore.open(tmp_path / "a", OPTIONS) as master, MessageStore.open(tmp_path / "b", OPTIONS) as slave:
        for index in range(300):
            master.put(Message("t", b"%d" % index * 100, queue_id=index % 2, properties_string=f"KEYS\x01{index}"))
        sent = 0
        while (part := master.log.data_at(sent, 777)) is not None:
            slave.append_data(sent, [part])
            sent += len(part)
        assert slave.wait_for_dispatch(timeout_s=30)
        master.wait_for_dispatch()
        for queue_id in (0, 1):
            assert bodies(slave, "t", queue_id) == bodies(master, "t", queue_id)
        assert len(slave.query("t", "77")) == 1
        assert slave.put(Message("t", b"", queue_id=1)).append.queue_offset == 0  # it was opened as an empty store


# --- Restarts and housekeeping ---------------------------------------------------------------------------------------


def test_a_topic_is_noted_before_its_first_message_is_acknowledged(path: Path) -> None:
    """After a kill a broker may open the store, and it serves only topics that its configuration names."""
    with MessageStore.open(path, OPTIONS) as store:
        store.put(Message("one", b""))
        assert read_topics(path) == {"one": 1}
        store.submit(Message("one", b"", queue_id=3))
        assert read_topics(path) == {"one": 4}
        store.put_batch([Message("two", b""), Message("two", b"")])
        assert read_topics(path) == {"one": 4, "two": 1}
        before = (path / "config" / "topics.json").stat().st_ino
        store.put(Message("one", b"", queue_id=3))
        store.put(Message("two", b"", properties_string="TAGS\1x"))
        assert (path / "config" / "topics.json").stat().st_ino == before
    (path / "config" / "topics.json").unlink()
    with MessageStore.open(path, OPTIONS):
        assert read_topics(path) == {"one": 4, "two": 1}


def test_topics_that_cannot_be_noted_stop_no_put_and_are_noted_later(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (path / "config").mkdir(parents=True)
    (path / "config" / "topics.json").write_text("{")
    store = MessageStore.open(path, OPTIONS)
    assert store.put(Message("one", b"")).is_ok
    assert store.put(Message("one", b"")).is_ok
    told = [record for record in caplog.records if "topics are not noted" in record.getMessage()]
    assert len(told) == 1
    assert str(path / "config" / "topics.json") in told[0].getMessage()
    (path / "config" / "topics.json").unlink()
    store.close()
    assert read_topics(path) == {"one": 1}


def test_a_topic_that_is_no_text_is_not_noted(path: Path) -> None:
    with MessageStore.open(path, OPTIONS) as store:
        store.put(Message("\udcff", b""))
        store.put(Message("one", b""))
    assert read_topics(path) == {"one": 1}


def test_a_reopened_store_goes_on_where_it_was(path: Path) -> None:
    with MessageStore.open(path, OPTIONS) as store:
        for index in range(1000):
            store.put(Message(f"topic{index % 2}", b"%d" % index, queue_id=index % 3, properties_string=f"KEYS\x01{index}"))
        end = store.max_offset
        with pytest.raises(StoreLocked):
            MessageStore.open(path, OPTIONS)
    assert read_topics(path) == {"topic0": 3, "topic1": 3}
    with MessageStore.open(path, OPTIONS) as store:
        assert store.max_offset == end
        assert store.dispatcher.reput_from_offset == end
        assert bodies(store, "topic1", 1) == [b"%d" % index for index in range(1000) if index % 2 == 1 and index % 3 == 1]
        assert len(store.query("topic0", "500")) == 1
        assert store.put(Message("topic1", b"", queue_id=1)).append.queue_offset == 167


def test_what_has_expired_goes_file_by_file_and_the_last_one_stays(path: Path) -> None:
    """HA-ST-13 "MUST be the start of its first file"; the queues lose the same messages, and the others keep their queue
    offsets.
    """
    options = replace(OPTIONS, file_size=4096, queue_file_size=200)
    with MessageStore.open(path, options) as store:
        for index in range(200):
            store.put(Message("t", b"%03d" % index * 30))
        store.wait_for_dispatch()
        store.flush()
        assert store.delete_expired(0) == 0
        assert store.min_offset == 0
        files = len(store.log.queue.files)
        count = 0
        while deleted := store.delete_expired(time.time_ns() // 1_000_000 + 60_000):
            assert deleted <= 10  # in one round
            count += deleted
        assert count == files - 1
        assert store.min_offset == store.log.queue.files[0].base > 0
        queue = store.queues.get(b"t", 0)
        assert queue is not None
        first = store.get("t", 0, queue.min_offset, 1)
        assert next(first.messages()).body == b"%03d" % queue.min_offset * 30
        last_offset = store.put(Message("t", b"")).append.queue_offset
        assert last_offset == 200
    with MessageStore.open(path, options) as store:
        assert store.get("t", 0, 0).status is GetMessageStatus.OFFSET_TOO_SMALL
        assert store.put(Message("t", b"")).append.queue_offset == 201


def test_a_store_below_its_floor_refuses_puts_until_there_is_room_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(path, replace(OPTIONS, floor_size=1000)) as store:
        assert store.put(Message("t", b"")).is_ok
        monkeypatch.setattr(space, "free_size", lambda _: 999)
        store._allocator.check_space(path)
        store._watch_space()
        with pytest.raises(StoreFull, match="999 bytes free, expected 1000 at least") as full:
            store.put(Message("t", b""))
        assert status_of(full.value) is PutMessageStatus.SERVICE_NOT_AVAILABLE
        monkeypatch.setattr(space, "free_size", lambda _: 1 << 30)
        store._allocator.check_space(path)
        store._watch_space()
        assert store.put(Message("t", b"")).is_ok


def test_no_room_for_a_file_refuses_the_put_and_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(path, replace(OPTIONS, file_size=4096)) as store:
        for _ in range(3):
            store.put(Message("t", bytes(500)))
        end = store.max_offset

        def no_space(_fd: int, _start: int, _size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(mapped_file.os, "posix_fallocate", no_space)
        for _ in range(3):
            with pytest.raises(StoreFull, match="No space left"):
                store.put(Message("t", bytes(3000)))
            assert store.max_offset == end
        assert store.put(Message("t", b"small")).append.offset == end
        monkeypatch.undo()
        assert store.put(Message("t", bytes(3000))).append.offset == 4096
        assert [decode(store.log.data_at(at, size) or b"").physical_offset for at, size, _ in store.log.records()]
    with MessageStore.open(path, replace(OPTIONS, file_size=4096)) as store:
        assert len(list(store.log.records())) == 5
