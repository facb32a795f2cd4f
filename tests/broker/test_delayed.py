"""Delayed messages at their limits, and beside what RocketMQ itself has stored."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.broker_store import BrokerStore, Clocks, as_record, broker_store
from kit.brokers import LiveBroker
from kit.sends import MemoryFile
from rocketmq_ha.impl.broker import broker as broker_module
from rocketmq_ha.impl.broker import delayed
from rocketmq_ha.impl.broker.config_file import ConfigFile
from rocketmq_ha.impl.broker.delayed import LEVEL_TURN, PAUSE_MS, ScheduleMessageService, time_up, to_schedule_topic
from rocketmq_ha.impl.clock import clock_ms, wall_clock_ms
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import delayed as model
from rocketmq_ha.spec.role import BrokerRole

LEVELS = DelayLevels.parse()
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BrokerStore]:
    with broker_store(tmp_path / "store") as opened:
        yield opened


def put_delayed(store: BrokerStore, level: int, count: int = 1, body: bytes = b"body") -> None:
    for _ in range(count):
        store.append(to_schedule_topic(Message("orders", body), {"DELAY": str(level)}, LEVELS))
    store.dispatch()
    store.take()


def service_of(store: BrokerStore, **more: BrokerRole) -> ScheduleMessageService:
    return ScheduleMessageService(store, LEVELS, MemoryFile(), store.clocks.now_ms, **more)


def turn(service: ScheduleMessageService, clocks: Clocks) -> int:
    clocks.advance(PAUSE_MS)
    return service.turn(clocks.now_ms, clocks.wall_ms)


def test_a_slave_delivers_nothing(store: BrokerStore) -> None:
    """HA-R-7 "The check of transactions and the delivery of delayed messages MUST run on masters only"."""
    put_delayed(store, 1)
    store.clocks.advance(5_000)
    slave = service_of(store, role=BrokerRole.SLAVE)
    assert (turn(slave, store.clocks), slave.next_turn_ms) == (0, delayed.NEVER_MS)
    assert turn(service_of(store), store.clocks) == 1


def test_a_message_is_due_at_its_time_and_not_a_millisecond_before(store: BrokerStore) -> None:
    """HA-SE-54 "MUST NOT be delivered while its time is ahead of the master's clock"."""
    put_delayed(store, 1)
    service, begin = service_of(store), store.clocks.wall_ms
    assert [service.turn(at, begin + at - 5_000) for at in (5_999, 6_098, 6_099)] == [0, 0, 1]


@pytest.mark.parametrize("level", [1, 5, 18])
@pytest.mark.parametrize("later_ms", [-(1 << 40), -1, 0, 1, 1 << 40])
@pytest.mark.parametrize("is_ahead", [False, True])
def test_the_model_delivers_in_the_same_millisecond(store: BrokerStore, level: int, later_ms: int, *, is_ahead: bool) -> None:
    """HA-SE-54 "MUST NOT be delivered while its time is ahead of the master's clock, unless it is ahead by more": around
    the millisecond in which it is due, and around that before which the clock must have been set back.
    """
    put_delayed(store, level)
    delay_ms = LEVELS.delays_ms[level - 1]
    due = store.clocks.wall_ms + delay_ms
    wall_ms = due + later_ms - (delay_ms if is_ahead else 0)
    is_due = wall_ms >= due or wall_ms < due - delay_ms
    assert service_of(store).turn(store.clocks.now_ms, wall_ms) == is_due
    queues = tuple((model.Waiting(due, None),) * (index == level - 1) for index in range(LEVELS.max_level))
    begun = model.begin(LEVELS.delays_ms, (0,) * LEVELS.max_level, ((0, 1),) * LEVELS.max_level)
    after, _ = model.deliver(begun, queues, wall_ms, 1, 1)
    assert after.progress[level - 1] == is_due


def test_a_message_is_due_at_once_when_the_clock_was_set_back(store: BrokerStore) -> None:
    """HA-SE-54 "unless it is ahead by more than the delay of its level; then it is due at once"."""
    put_delayed(store, 1)
    service, begin = service_of(store), store.clocks.wall_ms
    assert service.turn(5_000, begin) == 0
    assert service.turn(5_100, begin - 1) == 1


def test_a_turn_takes_a_bounded_number_of_each_level(store: BrokerStore) -> None:
    """HA-SE-55 "Levels do not wait for each other": the second level is delivered in the turn that leaves some of the first."""
    put_delayed(store, 1, LEVEL_TURN + 3)
    put_delayed(store, 2)
    store.clocks.advance(10_000)
    service = service_of(store)
    assert turn(service, store.clocks) == LEVEL_TURN + 1
    assert service.next_turn_ms == store.clocks.now_ms
    assert service.turn(store.clocks.now_ms, store.clocks.wall_ms) == 3
    assert service.next_turn_ms == store.clocks.now_ms + PAUSE_MS


def test_a_turn_takes_a_bounded_number_of_bytes_and_begins_with_another_level(
    store: BrokerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-SE-55 "Levels do not wait for each other", even if those of the first level fill every turn."""
    monkeypatch.setattr(delayed, "SIZE_TURN", 1000)
    put_delayed(store, 1, 5, bytes(600))
    put_delayed(store, 2, 1, b"small")
    store.clocks.advance(10_000)
    service = service_of(store)
    assert [service.turn(store.clocks.now_ms, store.clocks.wall_ms) for _ in range(3)] == [2, 3, 1]
    assert [len(message.body) for message in store.take()] == [600, 600, 5, 600, 600, 600]


def test_a_store_that_takes_nothing_is_tried_again_and_logged_once(
    store: BrokerStore, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-SE-58 "and the progress of its level stays before it"."""
    put_delayed(store, 1)
    store.clocks.advance(5_000)
    service = service_of(store)
    store.room = 0
    with caplog.at_level(logging.ERROR):
        assert [turn(service, store.clocks) for _ in range(3)] == [0, 0, 0]
    assert len(caplog.records) == 1
    assert dict(service.offset_table) == {1: 0} or not service.offset_table
    store.room = None
    assert turn(service, store.clocks) == 1
    assert dict(service.offset_table) == {1: 1}


def test_a_store_that_is_full_is_not_asked_at_once_though_a_level_has_more(store: BrokerStore) -> None:
    """HA-SE-58 "MUST be tried again": after a pause, or the loop would do nothing else."""
    put_delayed(store, 1, LEVEL_TURN + 1)
    put_delayed(store, 2)
    store.clocks.advance(10_000)
    service = service_of(store)
    store.room = LEVEL_TURN
    assert turn(service, store.clocks) == LEVEL_TURN
    assert service.next_turn_ms == store.clocks.now_ms + PAUSE_MS
    store.room = None
    assert turn(service, store.clocks) == 2


def test_progress_that_waits_for_a_slow_disk_is_written_when_its_part_is_there(store: BrokerStore, tmp_path: Path) -> None:
    """HA-SE-60 "MUST NOT be ahead of the disk": new messages come faster than the disk takes them, and the progress of the ones
    before must not wait for these.
    """
    path = tmp_path / "delayOffset.json"
    service = ScheduleMessageService(store, LEVELS, ConfigFile(path), store.clocks.now_ms)
    store.flushed = 0
    ends = []
    for _ in range(3):
        put_delayed(store, 1)
        store.clocks.advance(10_000)
        assert turn(service, store.clocks) == 1
        ends.append(store.max_offset)
    assert not path.exists()
    for flushed, written in ((ends[0] - 1, None), (ends[0], 1), (ends[2] - 1, 1)):
        store.flushed = flushed
        turn(service, store.clocks)
        found = body_json.read(path.read_bytes())["offsetTable"] if path.exists() else {}
        assert found.get("1") == written, flushed


@pytest.mark.parametrize("properties", ["REAL_QID\x010", "REAL_TOPIC\x01orders\x02REAL_QID\x01x", "REAL_TOPIC\x01orders"])
def test_a_message_that_says_no_topic_or_queue_holds_up_no_other(store: BrokerStore, properties: str) -> None:
    """HA-SE-57 "it has no `REAL_TOPIC`, its `REAL_QID` is no i32"."""
    store.append(Message(SCHEDULE_TOPIC, b"", properties_string=f"DELAY\x011\x02{properties}"))
    put_delayed(store, 1)
    store.clocks.advance(5_000)
    service = service_of(store)
    assert (turn(service, store.clocks), service.passed_over) == (1, 1)


def test_a_message_whose_record_is_damaged_is_passed_over(store: BrokerStore) -> None:
    """HA-SE-57 "its record is gone or damaged"."""
    put_delayed(store, 1, 2)
    store.clocks.advance(5_000)
    queue = store.queues.get(SCHEDULE_TOPIC.encode(), 0)
    assert queue is not None
    first = queue.entry(0)
    assert first is not None
    file = store.store.log.queue.find(first.offset)
    assert file is not None
    file.mapping[first.offset + 90] ^= 0xFF  # in the body, so the CRC is wrong
    service = service_of(store)
    assert (turn(service, store.clocks), service.passed_over) == (1, 1)
    assert dict(service.offset_table) == {1: 2}


@pytest.mark.parametrize(("found", "corrected"), [(-5, 0), (0, 0), (2, 2), (3, 3), (4, 3), (10**12, 3)])
def test_progress_outside_its_queue_is_moved_into_it(store: BrokerStore, tmp_path: Path, found: int, corrected: int) -> None:
    """HA-SE-61 "MUST be moved to the first or the behind-last offset of its queue if it is before or behind it"."""
    put_delayed(store, 1, 3)
    path = tmp_path / "delayOffset.json"
    path.write_bytes(b'{\n\t"offsetTable":{1:%d,7:5}\n}' % found)
    service = ScheduleMessageService(store, LEVELS, ConfigFile(path), 0)
    assert service.load()
    assert dict(service.offset_table) == {1: corrected, 7: 5}
    assert body_json.read(service.encode()) == {"offsetTable": {"1": corrected, "7": 5}}


def test_a_file_of_5_3_3_is_read(store: BrokerStore, tmp_path: Path) -> None:
    """HA-SE-59 "from level to offset": the version that a 5.x broker writes beside the table is left aside."""
    text = b'{"dataVersion":{"counter":11,"stateVersion":0,"timestamp":1795179946931},"offsetTable":{1:13,18:0}}'
    path = tmp_path / "delayOffset.json"
    path.write_bytes(text)
    service = ScheduleMessageService(store, LEVELS, ConfigFile(path), 0)
    service.load()
    assert dict(service.offset_table) == {1: 13, 18: 0}


@pytest.mark.parametrize(
    "text", [b"[]", b"{}", b'{"offsetTable":[]}', b'{"offsetTable":{"x":1}}', b'{"offsetTable":{1:"2"}}', b"{"]
)
def test_a_file_that_is_no_such_table_is_refused(store: BrokerStore, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "delayOffset.json"
    path.write_bytes(text)
    with pytest.raises(ConfigInvalid, match="delayOffset"):
        ScheduleMessageService(store, LEVELS, ConfigFile(path), 0).load()


def test_progress_is_written_at_the_stop_after_a_flush(store: BrokerStore, tmp_path: Path) -> None:
    """HA-SE-59 "every 10 s (`flushDelayOffsetInterval`) and at the stop"; HA-SE-60 "is in the flushed part of the log"."""
    path = tmp_path / "delayOffset.json"
    put_delayed(store, 1)
    store.clocks.advance(5_000)
    store.flushed = 0
    service = ScheduleMessageService(store, LEVELS, ConfigFile(path), store.clocks.now_ms)
    assert turn(service, store.clocks) == 1
    store.clocks.advance(10_000)
    turn(service, store.clocks)
    assert not path.exists()
    service.shutdown()
    assert store.flushed == store.max_offset
    assert body_json.read(path.read_bytes()) == {"offsetTable": {"1": 1}}


def test_what_is_delivered_is_what_rocketmq_delivered(golden: Path) -> None:
    """HA-SE-50 "in the queue `DELAY` - 1"; HA-SE-56 "A delivered record MUST have": of RocketMQ's own records, byte by byte."""
    with LogReader(golden) as reader:
        reader.walk()
        records = [message for _, _, message in reader.records(reader.min_offset)]
    waiting = {_name(message): message for message in records if message.topic == SCHEDULE_TOPIC}
    count = 0
    for message in records:
        before = waiting.get(_name(message))
        if before is None or message.topic == SCHEDULE_TOPIC:
            continue
        count += 1
        ours = time_up(before)
        put_at = {"queue_offset": 0, "physical_offset": 0, "store_timestamp": 0}
        assert as_record(replace(ours, **put_at)) == as_record(replace(message, **put_at))
        assert message.store_timestamp >= before.store_timestamp + LEVELS.delays_ms[before.queue_id]
        level = before.properties["DELAY"]
        original = {name: value for name, value in before.properties.items() if name not in ("REAL_TOPIC", "REAL_QID")}
        again = to_schedule_topic(replace(ours, properties_string=""), original, LEVELS)
        assert (again.topic, again.queue_id, dict(again.properties)) == (
            SCHEDULE_TOPIC,
            int(level) - 1,
            dict(before.properties),
        )
    assert count > 10


def _name(message: Message) -> tuple[str | None, int]:
    return message.properties.get("UNIQ_KEY"), message.reconsume_times


def test_a_backlog_is_delivered_without_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-SE-55 "MUST be delivered in the order of their queue": the broker's loop does not wait while more is due."""
    broker = LiveBroker(tmp_path)
    try:
        for number in range(3 * LEVEL_TURN):
            broker.store.append(to_schedule_topic(Message("orders", b"%d" % number), {"DELAY": "1"}, LEVELS))
        assert broker.store.wait_for_dispatch()
        monkeypatch.setattr(broker_module, "wall_clock_ms", lambda: wall_clock_ms() + 60_000)
        now_ms = clock_ms()
        for turns in range(1, 4):
            assert broker.controller.next_turn_ms <= now_ms
            broker.controller.turn(now_ms)
            assert broker.controller.delayed.delivered == turns * LEVEL_TURN
        broker.controller.turn(now_ms)
        assert broker.controller.next_turn_ms == now_ms + PAUSE_MS
    finally:
        broker.close()
