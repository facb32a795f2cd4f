"""The delivery of delayed messages in lock-step with its model: puts, clocks that step, a full store, stops and kills."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kit.broker_store import BrokerStore, Clocks, as_record, broker_store, sorted_properties, text_pairs
from rocketmq_ha.impl.broker.config_file import ConfigFile
from rocketmq_ha.impl.broker.delayed import (
    FLUSH_DELAY_OFFSET_INTERVAL,
    LEVEL_TURN,
    PAUSE_MS,
    ScheduleMessageService,
    to_schedule_topic,
)
from rocketmq_ha.impl.remoting import body_json
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.reference import delayed as model
from rocketmq_ha.reference.message import Record

LEVELS = DelayLevels.parse()
USED = (1, 2, 3, 18)  # levels: 1 s, 5 s, 10 s, 2 h
TOPICS = ("orders", "%RETRY%group")
# A message that cannot be delivered: how it got there does not matter, a Java broker may have written it.
BROKEN = ("REAL_TOPIC\x01orders\x02REAL_QID\x01x", "REAL_QID\x010", "REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010")


class Deliveries(RuleBasedStateMachine):
    """HA-SE-54 to HA-SE-62: "MUST be delivered in the order of their queue", and no message is lost, whatever happens."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.directory = Path(self.resources.enter_context(tempfile.TemporaryDirectory()))
        self.clocks = Clocks()
        self.store: BrokerStore = self.resources.enter_context(broker_store(self.directory, self.clocks))
        self.store.flushed = 0
        self.queues: tuple[tuple[model.Waiting, ...], ...] = ((),) * LEVELS.max_level
        self.persist_at = 0
        self.sent: dict[bytes, int] = {}  # the body of each message that can be delivered, and when it is due
        self.delivered: list[Record] = []
        self.was_killed = self.was_stepped = False
        self._start((0,) * LEVELS.max_level)

    def teardown(self) -> None:
        try:
            self._deliver_all()
        finally:
            self.resources.close()

    def _start(self, persisted: tuple[int, ...]) -> None:
        """A master starts: it knows what its file says."""
        self.store.dispatch()
        file = ConfigFile(self.directory / "config" / "delayOffset.json")
        self.service = ScheduleMessageService(self.store, LEVELS, file, self.clocks.now_ms)
        self.service.load()
        self.model = model.begin(LEVELS.delays_ms, persisted, tuple((0, len(queue)) for queue in self.queues))
        self.persist_at = self.clocks.now_ms + FLUSH_DELAY_OFFSET_INTERVAL

    # --- Events ------------------------------------------------------------------------------------------------------

    @rule(level=st.sampled_from([*USED, 1, 1, 99]), topic=st.sampled_from(TOPICS), queue_id=st.integers(0, 2))
    def send(self, level: int, topic: str, queue_id: int) -> None:
        body = b"%d" % len(self.sent)
        properties = {"DELAY": str(level), "KEYS": "k", "WAIT": "true"}
        message = Message(topic, body, queue_id=queue_id, properties_string=format_properties(properties))
        stored = to_schedule_topic(message, properties, LEVELS)
        put = self.store.append(stored)
        due = put.store_timestamp + LEVELS.delays_ms[stored.queue_id]
        self.sent[body] = due
        self._wait(stored.queue_id, model.Waiting(due, as_record(self.store.take()[-1])))

    @rule(properties_string=st.sampled_from(BROKEN))
    def send_what_cannot_be_delivered(self, properties_string: str) -> None:
        """HA-SE-57 "MUST be passed over if it cannot be delivered at any time": those behind it go on."""
        delayed = Message("SCHEDULE_TOPIC_XXXX", b"broken", properties_string=f"DELAY\x011\x02{properties_string}")
        due = self.store.append(delayed).store_timestamp + LEVELS.delays_ms[0]
        self._wait(0, model.Waiting(due, as_record(self.store.take()[-1])))

    def _wait(self, index: int, waiting: model.Waiting) -> None:
        self.queues = (*self.queues[:index], (*self.queues[index], waiting), *self.queues[index + 1 :])

    @rule(ms=st.sampled_from([1, 99, 900, 1000, 4001, 10_000]))
    def time_passes(self, ms: int) -> None:
        self.clocks.advance(ms)

    @rule(ms=st.sampled_from([-3_600_000, -1500, -1, 700, 60_000]))
    def the_clock_steps(self, ms: int) -> None:
        """HA-SE-54 "unless it is ahead by more than the delay of its level": it is due at once if the clock goes back."""
        self.clocks.wall_ms += ms
        self.was_stepped = True

    @rule(room=st.one_of(st.none(), st.integers(0, 3)))
    def turn(self, room: int | None) -> None:
        """HA-SE-58 "that the store does not take now MUST be tried again": `room` is what it takes."""
        self.store.dispatch()
        self.clocks.advance(PAUSE_MS)
        self.store.room = room
        while self.service.next_turn_ms <= self.clocks.now_ms:
            left = len(self.sent) if self.store.room is None else self.store.room
            self.service.turn(self.clocks.now_ms, self.clocks.wall_ms)
            self.model, put = model.deliver(self.model, self.queues, self.clocks.wall_ms, left, LEVEL_TURN)
            found = [as_record(message) for message in self.store.take()]
            assert list(map(_without_place, found)) == [_without_place(sorted_properties(record)) for record in put]
            assert self.was_stepped or all(self.sent[record.body] <= self.clocks.wall_ms for record in found)
            self.delivered += found
        self.store.room = None
        if self.clocks.now_ms >= self.persist_at:
            self.persist_at = self.clocks.now_ms + FLUSH_DELAY_OFFSET_INTERVAL
            self.model = model.on_persist(self.model, self.store.max_offset)
        assert self.store.flushed is not None
        self.model = model.on_flush(self.model, self.store.flushed)

    @rule()
    def flush(self) -> None:
        """HA-SE-60 "MUST NOT be ahead of the disk": the progress is written in the turn after the flush."""
        self.store.flush()

    @rule()
    def stop_and_start(self) -> None:
        """HA-SE-59 "and at the stop"."""
        self.service.shutdown()
        self._start(self.model.progress)

    @precondition(lambda self: self.service.delivered)
    @rule()
    def kill_and_start(self) -> None:
        """HA-SE-62 "a consumer gets these messages twice"."""
        self.was_killed = True
        self._start(self.model.persisted)

    # --- What holds --------------------------------------------------------------------------------------------------

    @invariant()
    def progress_and_file_are_those_of_the_model(self) -> None:
        table = {level: offset for level, offset in enumerate(self.model.progress, 1) if offset}
        assert (
            dict(self.service.offset_table) == table
            or {level: offset for level, offset in self.service.offset_table.items() if offset} == table
        )
        path = self.directory / "config" / "delayOffset.json"
        written = body_json.read(path.read_bytes())["offsetTable"] if path.exists() else {}
        assert {int(level): offset for level, offset in written.items() if offset} == {
            level: offset for level, offset in enumerate(self.model.persisted, 1) if offset
        }

    def _deliver_all(self) -> None:
        """At last everything is due: each message has come once, or more often after a kill."""
        last_due = max(self.sent.values(), default=0)  # a store keeps its time where the clock steps back
        self.clocks.advance(max(LEVELS.delays_ms[-1] * 2, last_due - self.clocks.wall_ms))
        self.turn(None)
        bodies = [record.body for record in self.delivered]
        assert set(bodies) == set(self.sent)
        assert self.was_killed or len(bodies) == len(self.sent)
        if self.was_killed:
            return
        for queue in self.queues:
            waited = [each.record.body for each in queue if each.record is not None and each.record.body != b"broken"]
            assert [body for body in bodies if body in waited] == waited


def _without_place(record: Record) -> tuple[object, ...]:
    properties = text_pairs(record.properties.decode())
    return (record.topic, record.queue_id, record.body, record.flag, record.sys_flag, record.born_timestamp, properties)


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
