"""Every record is dispatched once, in log order, however the dispatcher learns of it. HA-ST-32 to HA-ST-36."""

import errno
import json
import logging
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.golden import has_keys_of_tags
from kit.waiting import LONG_S, await_end, wait_for
from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store.derived import dispatch as dispatch_module
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.dispatch import DispatchRequest, ReputMessageService
from rocketmq_ha.impl.store.derived.dispatch_request import Read, RequestMaker, read_requests
from rocketmq_ha.impl.store.derived.java_hash import java_hash
from rocketmq_ha.impl.store.derived.topic_config import read_topics, write_topics
from rocketmq_ha.impl.store.derived.verify import verify_derived
from rocketmq_ha.impl.store.log import creation
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.batch import Handed
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.impl.wire.properties import parse_properties
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2

FILE_SIZE = 1024
LEVELS = DelayLevels.parse()


class GrowingLog:
    """A log that grows at the third look at its end."""

    file_size, min_offset = 1024, 0

    def __init__(self) -> None:
        self.looks = 0

    @property
    def max_offset(self) -> int:
        self.looks += 1
        return 0 if self.looks < 3 else 100

    def data_at(self, offset: int, limit: int) -> memoryview | None:  # noqa: ARG002
        return None


def test_what_comes_while_the_dispatch_finds_nothing_is_not_taken_for_seen() -> None:
    service = ReputMessageService(GrowingLog(), (), 0)
    service.dispatch_all()
    assert not service.shutdown()


class FakeLog:
    """A log in memory: files of FILE_SIZE, records and BLANKs."""

    file_size = FILE_SIZE

    def __init__(self) -> None:
        self.data = bytearray()
        self.min_offset = 0
        self.records: list[Handed] = []

    @property
    def max_offset(self) -> int:
        return len(self.data)

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        if not self.min_offset <= offset < len(self.data):
            return None
        stop = min(offset + limit, len(self.data), offset - offset % FILE_SIZE + FILE_SIZE)
        return memoryview(bytes(self.data[offset:stop]))

    def put(self, topic: str = "t", size: int = 50, properties: str = "KEYS\x01k") -> Handed:
        record = encode(Message(topic, bytes(size), queue_offset=len(self.records), properties_string=properties))
        room = FILE_SIZE - len(self.data) % FILE_SIZE
        if len(record) + 8 > room:
            self.data += room.to_bytes(4, "big") + BLANK_MAGIC_CODE.to_bytes(4, "big") + bytes(room - 8)
        offset = len(self.data)
        self.data += encode(
            Message(topic, bytes(size), queue_offset=len(self.records), properties_string=properties), None, offset
        )
        handed = Handed(topic.encode(), 0, offset, len(record), properties.encode(), 0, len(self.records), 0, 0)
        self.records.append(handed)
        return handed


class Told:
    """A dispatcher that records its calls."""

    def __init__(self) -> None:
        self.requests: list[DispatchRequest] = []

    def __call__(self, requests: Sequence[DispatchRequest]) -> None:
        self.requests += requests

    @property
    def offsets(self) -> list[int]:
        return [request.commit_log_offset for request in self.requests]


def offsets(log: FakeLog) -> list[int]:
    return [handed.commit_log_offset for handed in log.records]


# --- Requests --------------------------------------------------------------------------------------------------------

texts = st.text(st.sampled_from("TAGSKEYSUNIQ_DELAY\x01\x02 é1"), max_size=40)
properties = st.lists(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "X", ""]) | texts, max_size=6).map(
    "\x02".join
) | st.lists(st.tuples(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "X", ""]), texts), max_size=6).map(
    lambda pairs: "\x02".join("\x01".join(pair) for pair in pairs)
)


@given(properties)
def test_requests_find_the_properties_that_a_parse_finds(string: str) -> None:
    found = parse_properties(string)
    request = RequestMaker(LEVELS)(b"t", 1, 2, 3, string.encode(), 4, 5, 6, 7)
    tags_code = java_hash(found["TAGS"]) if "TAGS" in found else 0
    assert request == (b"t", 1, 2, 3, tags_code, 4, 5, found.get("KEYS", ""), found.get("UNIQ_KEY"), 6, 7)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("1", 1_000),
        ("3", 10_000),
        ("18", 7_200_000),
        ("19", 7_200_000),
        ("+5", 60_000),
        ("2147483647", 7_200_000),
        ("٣", 10_000),
    ],
)
def test_the_tags_code_of_a_delayed_message_is_its_time_of_delivery(level: str, expected: int) -> None:
    """HA-ST-32 "in `SCHEDULE_TOPIC_XXXX` it is the time of delivery"; HA-ST-76 "A greater level counts as level 18"."""
    string = f"TAGS\x01a\x02DELAY\x01{level}".encode()
    make = RequestMaker(LEVELS)
    assert make(b"SCHEDULE_TOPIC_XXXX", 0, 0, 0, string, 1_700_000_000_000, 0, 0, 0).tags_code == 1_700_000_000_000 + expected
    assert make(b"other", 0, 0, 0, string, 1_700_000_000_000, 0, 0, 0).tags_code == 97


@pytest.mark.parametrize("level", ["0", "-1", "x", "2147483648", "1.5", "\U0001d7d7"])
def test_a_level_that_is_none_delays_nothing(level: str) -> None:
    string = f"TAGS\x01a\x02DELAY\x01{level}".encode()
    assert RequestMaker(LEVELS)(b"SCHEDULE_TOPIC_XXXX", 0, 0, 0, string, 5, 0, 0, 0).tags_code == 97


def test_a_time_of_delivery_wraps_as_a_java_long() -> None:
    assert LEVELS.deliver_timestamp(b"1", 2**63 - 1) == -(2**63) + 999


def test_delay_levels_are_parsed_or_refused() -> None:
    assert DelayLevels.parse("1s 2m 3h 4d").delays_ms == (1000, 120_000, 10_800_000, 345_600_000)
    for text in ("1x", "s", "1s -2m"):
        with pytest.raises(ConfigInvalid):
            DelayLevels.parse(text)


messages = st.builds(
    Message,
    topic=st.text(min_size=1, max_size=20),
    body=st.binary(max_size=60),
    queue_id=st.integers(0, 9),
    queue_offset=st.integers(0, 2**40),
    sys_flag=st.sampled_from([0, 1, 4, 8, 12]),
    store_timestamp=st.integers(0, 2**45),
    prepared_transaction_offset=st.integers(0, 2**45),
    properties_string=properties,
    magic=st.sampled_from([MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2]),
)


def six(message: Message, born: bool, store: bool) -> Message:
    """The same with IPv6 hosts."""
    fields = {name: getattr(message, name) for name in message.__slots__}
    fields["sys_flag"] |= 0x10 * born | 0x20 * store
    fields["born_host"] = ("::1", 5) if born else ("1.2.3.4", 5)
    fields["store_host"] = ("::2", 6) if store else ("1.2.3.4", 6)
    return Message(**fields)


@given(st.lists(st.builds(six, messages, st.booleans(), st.booleans()), max_size=6), st.data())
def test_requests_are_read_from_the_bytes_up_to_where_they_end(batch: list[Message], data: st.DataObject) -> None:
    """HA-ST-36: a slave dispatches each whole record, and waits for the rest of a partial one."""
    start = data.draw(st.integers(0, 10**9))
    log, expected, ends = b"", [], []
    make = RequestMaker(LEVELS)
    for message in batch:
        record = encode(message, None, start + len(log))
        expected.append(
            make(
                *(message.topic.encode(), message.queue_id, start + len(log), len(record), message.properties_string.encode()),
                *(message.store_timestamp, message.queue_offset, message.sys_flag, message.prepared_transaction_offset),
            )
        )
        log += record
        ends.append(len(log))
    there = data.draw(st.integers(0, len(log)))
    whole = sum(end <= there for end in ends)
    requests: list[DispatchRequest] = []
    room = len(log) + data.draw(st.integers(8, 50))
    found = read_requests(memoryview(log)[:there], start, room, start + there, 100, make, requests)
    assert requests == expected[:whole]
    reached = ends[whole - 1] if whole else 0
    assert found == (start + reached, Read.BOUND if reached == there else Read.PART)


@given(messages, st.data())
def test_whatever_the_bytes_reading_ends(message: Message, data: st.DataObject) -> None:
    record = bytearray(encode(message, None, 0))
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    requests: list[DispatchRequest] = []
    reached, why = read_requests(memoryview(record), 0, len(record), len(record), 9, RequestMaker(LEVELS), requests)
    assert reached in (0, len(record))
    assert (len(requests), why) == (1, Read.BOUND) if why is Read.BOUND else not requests


# --- The service -----------------------------------------------------------------------------------------------------


def test_records_are_read_from_the_log_through_blanks_and_files() -> None:
    log, told = FakeLog(), Told()
    for size in (300, 300, 300, 50, 800, 10, 10, 900):
        log.put(size=size)
    assert any(handed.commit_log_offset % FILE_SIZE == 0 for handed in log.records[1:])
    service = ReputMessageService(log, [told], 0)
    assert service.dispatch_all() == log.max_offset
    assert told.offsets == offsets(log)


@settings(deadline=None)
@given(st.data())
def test_each_record_once_in_order_whatever_is_handed_over(data: st.DataObject) -> None:
    """Appended records are passed on at once, never, late or twice; the service can always read the log itself."""
    log, told = FakeLog(), Told()
    service = ReputMessageService(log, [told], 0)
    for _ in range(data.draw(st.integers(1, 30))):
        match data.draw(st.sampled_from("oooons.")):
            case "o":
                service.offer(log.put(size=data.draw(st.sampled_from((0, 50, 400)))))
            case "n":
                log.put()
            case "s" if log.records:
                service.offer(data.draw(st.sampled_from(log.records)))
            case _:
                assert service.dispatch_all() == log.max_offset
    service.dispatch_all()
    assert told.offsets == offsets(log)
    assert [request.queue_offset for request in told.requests] == list(range(len(log.records)))


def test_what_memory_forgets_is_read_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "_HANDED_LIMIT", 3)
    log, told = FakeLog(), Told()
    service = ReputMessageService(log, [told], 0)
    for _ in range(20):
        service.offer(log.put())
    assert service.dispatch_all() == log.max_offset
    assert told.offsets == offsets(log)


def test_it_waits_at_a_record_that_is_not_whole() -> None:
    """HA-ST-36: a slave's log can end inside a record."""
    whole = FakeLog()
    for size in (300, 300, 300, 50, 800, 10):
        whole.put(size=size)
    log, told = FakeLog(), Told()
    service = ReputMessageService(log, [told], 0)
    for length in range(0, len(whole.data) + 7, 7):
        log.data = whole.data[:length]
        service.dispatch_all()
        assert told.offsets == [
            each.commit_log_offset for each in whole.records if each.commit_log_offset + each.size <= length
        ]
    assert service.dispatch_all() == len(whole.data)


def test_it_goes_on_where_an_earlier_one_ended() -> None:
    log, told = FakeLog(), Told()
    for _ in range(9):
        log.put()
    service = ReputMessageService(log, [told], log.records[4].commit_log_offset)
    service.dispatch_all()
    assert told.offsets == offsets(log)[4:]


def test_it_begins_no_earlier_than_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log, told = FakeLog(), Told()
    while log.max_offset < 3 * FILE_SIZE:
        log.put()
    log.min_offset = FILE_SIZE
    ReputMessageService(log, [told], 0).dispatch_all()
    assert told.offsets == [offset for offset in offsets(log) if offset >= FILE_SIZE]
    assert "but the log begins at 1024" in caplog.text


def test_bytes_that_are_no_record_end_it_behind_those_before() -> None:
    log, told = FakeLog(), Told()
    for _ in range(3):
        log.put()
    end = log.max_offset
    log.data += b"\xff" * 100
    service = ReputMessageService(log, [told], 0)
    service.start()
    with pytest.raises(StoreCorrupt, match=f"at commit-log offset {end}: found bytes that begin ffff"):
        service.wait_for(end + 1, 10)
    assert told.offsets == offsets(log)
    assert service.reput_from_offset == end
    assert not service.shutdown(0.1)


def test_a_full_disk_is_tried_again_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch_module, "_RETRY_S", 0.01)
    log, first, second = FakeLog(), Told(), Told()
    failures = [OSError(28, "No space left on device")] * 3

    def failing(requests: Sequence[DispatchRequest]) -> None:
        if failures:
            raise failures.pop()
        second(requests)

    service = ReputMessageService(log, [first, failing], 0)
    for _ in range(5):
        service.offer(log.put())
    service.start()
    assert service.wait_for(log.max_offset, 10)
    assert second.offsets == offsets(log)
    assert sorted(set(first.offsets)) == offsets(log)  # a repeated dispatch, which it must accept
    assert "tried again" in caplog.text
    assert service.shutdown()


def test_a_stop_does_not_wait_where_the_system_makes_the_dispatch_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """It neither rests nor waits for its time-out: both are longer than a test may last."""
    monkeypatch.setattr(dispatch_module, "_RETRY_S", 3600)
    log, tries = FakeLog(), threading.Semaphore(0)

    def failing(_: object) -> None:
        tries.release()
        raise OSError(28, "No space left on device")

    service = ReputMessageService(log, [failing], 0)
    service.offer(log.put())
    service.start()
    assert tries.acquire(timeout=LONG_S)
    assert not service.shutdown(3600)


def test_a_failure_that_lasts_is_one_line_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """And one when it is over. The thread's loop runs here, on a clock that its own rests move."""
    log, told = FakeLog(), Told()
    log.put()
    clock = [0.0]

    def rest(seconds: float) -> None:
        clock[0] += seconds

    def full_for_two_minutes(requests: Sequence[DispatchRequest]) -> None:
        if clock[0] < 130:
            raise OSError(28, "No space left on device")
        told(requests)
        service._is_stopped = True

    monkeypatch.setattr(dispatch_module, "time", SimpleNamespace(sleep=rest, monotonic=lambda: clock[0]))
    service = ReputMessageService(log, [full_for_two_minutes], 0)
    monkeypatch.setattr(service, "_is_leaving", SimpleNamespace(wait=rest))
    with caplog.at_level(logging.INFO):
        service._run()
    assert told.offsets == offsets(log)
    again = "dispatch fails at offset 0, and is tried again: [Errno 28] No space left on device"
    end = f"dispatch works again: it is at offset {log.max_offset}"
    assert caplog.messages == [*[again] * 3, end]  # at 0, 60 and 120 s


def test_a_stop_amid_failures_is_no_success(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log, has_failed = FakeLog(), threading.Event()

    def failing(_: Sequence[DispatchRequest]) -> None:
        has_failed.set()
        raise OSError(28, "No space left on device")

    service = ReputMessageService(log, [failing], 0)
    service.offer(log.put())
    service.start()
    assert has_failed.wait(LONG_S)
    service.shutdown()
    assert "tried again" in caplog.text
    assert "works again" not in caplog.text


def test_a_stop_while_it_rests_after_a_failure_tries_nothing_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread's loop runs here; the stop comes within its rest."""
    log = FakeLog()
    log.put()

    def failing(_: Sequence[DispatchRequest]) -> None:
        raise OSError(28, "No space left on device")

    def rest(_seconds: float) -> None:
        service._is_stopped = True

    service = ReputMessageService(log, [failing], 0)
    monkeypatch.setattr(service, "_is_leaving", SimpleNamespace(wait=rest))
    with caplog.at_level(logging.INFO):
        service._run()
    assert caplog.messages == ["dispatch fails at offset 0, and is tried again: [Errno 28] No space left on device"]


def test_in_the_background_beside_a_writer() -> None:
    log, told = FakeLog(), Told()
    service = ReputMessageService(log, [told], 0)
    service.start()

    def write() -> None:
        for index in range(3000):
            handed = log.put()
            if index % 3:
                service.offer(handed)
            elif index % 2:
                service.wakeup()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    await_end(writer)
    assert service.wait_for(log.max_offset, 30)
    assert service.behind() == 0
    log.put()
    assert service.shutdown()
    assert told.offsets == offsets(log)


def test_shutdown_leaves_the_part_of_a_record() -> None:
    log, told = FakeLog(), Told()
    log.put()
    log.put()
    service = ReputMessageService(log, [told], 0)
    service.start()
    end = log.max_offset
    log.data += encode(Message("t", b"abc"), None, end)[:40]
    assert service.wait_for(end, 10)
    assert not service.wait_for(end + 1, 0.05)
    assert service.shutdown(LONG_S)
    assert (told.offsets, service.behind()) == (offsets(log), 40)


def test_a_lone_record_is_dispatched_without_being_asked_for() -> None:
    log, told = FakeLog(), Told()
    service = ReputMessageService(log, [told], 0)
    service.start()
    time.sleep(0.02)
    service.offer(log.put())
    wait_for(lambda: len(told.requests) == 1)
    log.put()  # replicated bytes come without a wake-up
    wait_for(lambda: len(told.requests) == 2)
    assert service.shutdown()


class NotedEvent(threading.Event):
    """Notes when a wait for it has ended because it was set."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self._notes = notes

    def wait(self, timeout: float | None = None) -> bool:
        is_set = super().wait(timeout)
        if is_set:
            self._notes.append("woken")
        return is_set


def test_a_record_that_wakes_the_dispatch_does_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest, in which others gather, comes behind the round: a consumer that waits gets a lone message at once."""
    monkeypatch.setattr(dispatch_module, "_IDLE_S", LONG_S)  # nothing but a put wakes it
    notes: list[str] = []
    log = FakeLog()
    service = ReputMessageService(log, [lambda _: notes.append("dispatched")], 0)
    service._wake = NotedEvent(notes)
    rest = time.sleep

    def noted_rest(seconds: float) -> None:
        notes.append("rest")
        rest(seconds)

    monkeypatch.setattr(dispatch_module, "time", SimpleNamespace(sleep=noted_rest, monotonic=time.monotonic))
    service.start()
    for _ in range(3):
        wait_for(lambda: service._is_idle)
        dispatched = notes.count("dispatched")
        service.offer(log.put())
        wait_for(lambda: notes.count("dispatched") > dispatched)  # noqa: B023
    assert service.shutdown()
    woken = [index for index, note in enumerate(notes) if note == "woken" and "dispatched" in notes[index:]]
    assert [notes[index + 1] for index in woken] == ["dispatched"] * len(woken)
    assert woken


# --- What RocketMQ made of its own log -------------------------------------------------------------------------------


def test_verify_holds_queues_and_index_against_the_log(golden: Path, vectors: Path, tmp_path: Path) -> None:
    messages = json.loads((vectors / "manifest.json").read_text(encoding="utf-8"))["log"]["messages"]
    store = Path(shutil.copytree(golden, tmp_path / "store"))

    def check() -> tuple[int, ...]:
        with LogReader(store) as reader:
            reader.walk()
            found = verify_derived(reader)
        return found.queue_entries, found.queue_entries_missing, found.index_keys, found.index_keys_missing

    keys = 7324 if has_keys_of_tags(vectors) else 5417
    assert check() == (messages, 0, keys, 0)
    entry_file = store / "consumequeue" / "GoldenEvents" / "0" / f"{0:020d}"
    index_file = min((store / "index").iterdir())
    for path, position, error in (
        (entry_file, 20 * 7 + 7, "entry 7 is"),  # the last byte of an offset
        (entry_file, 20 * 7 + 19, "entry 7 is"),  # the last byte of a tags code
        (index_file, 40 + 4000 + 20 * 9 + 3, "keys of hashes|entry 9 points to"),  # the other hash may have another slot
        (index_file, 40 + 4000 + 20 * 900 + 19, "entry 900 points to"),
    ):
        whole = path.read_bytes()
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(StoreCorrupt, match=error):
            check()
        path.write_bytes(whole)
    max(entry_file.parent.iterdir()).unlink()
    max((store / "index").iterdir()).unlink()
    assert check() == (messages - 252, 252, 3999, keys - 3999)


# --- Topics ----------------------------------------------------------------------------------------------------------


def test_topics_are_added_and_what_is_there_stays(golden: Path, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    path = Path(shutil.copy(golden / "config" / "topics.json", tmp_path / "config" / "topics.json"))
    before = json.loads(path.read_text(encoding="utf-8"))
    assert read_topics(tmp_path)["GoldenOrders"] == 4
    assert not write_topics(tmp_path, {"GoldenOrders": 4, "BenchmarkTest": 1})
    assert write_topics(tmp_path, {"GoldenOrders": 6, "новый": 2}, now_ms=77)
    after = json.loads(path.read_text(encoding="utf-8"))
    version = before["dataVersion"]  # 5.x has a stateVersion in it, which is kept
    assert after["dataVersion"] == version | {"counter": version["counter"] + 1, "timestamp": 77}
    changed = {
        name: config for name, config in after["topicConfigTable"].items() if config != before["topicConfigTable"].get(name)
    }
    assert changed["GoldenOrders"] == before["topicConfigTable"]["GoldenOrders"] | {"readQueueNums": 6, "writeQueueNums": 6}
    assert set(changed) == {"GoldenOrders", "новый"}
    assert set(changed["новый"]) == set(changed["GoldenOrders"]) - {"attributes"}  # 5.x has it; empty by default
    assert [entry.name for entry in path.parent.iterdir()] == ["topics.json"]


def test_a_store_without_a_config_gets_one(tmp_path: Path) -> None:
    assert read_topics(tmp_path) == {}
    assert write_topics(tmp_path, {"a": 3})
    assert read_topics(tmp_path) == {"a": 3}


def test_a_config_that_cannot_be_written_is_named_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a system call on a descriptor names no file by itself."""
    assert write_topics(tmp_path, {"a": 3})
    before = (tmp_path / "config" / "topics.json").read_bytes()

    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(creation.os, "fsync", no_space)
    with pytest.raises(OSError, match=f"No space.*{tmp_path}/config/topics.json") as full:
        write_topics(tmp_path, {"a": 4})
    assert full.value.errno == errno.ENOSPC
    assert [entry.name for entry in (tmp_path / "config").iterdir()] == ["topics.json"]
    assert (tmp_path / "config" / "topics.json").read_bytes() == before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"topicConfigTable": []}', '{"topicConfigTable": {"a": 1}}'])
def test_a_config_that_is_none_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ConfigInvalid, match=r"topics\.json"):
        write_topics(tmp_path, {"a": 3})
    assert path.read_text() == text
