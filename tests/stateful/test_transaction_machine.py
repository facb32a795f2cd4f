"""Transactions in lock-step with their model: prepared messages, their ends, rounds of checks, a full store, restarts."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from kit.broker_store import BrokerStore, Clocks, as_record, broker_store, sorted_properties
from kit.channels import Channel
from rocketmq_ha.impl.broker.clients import ClientChannelInfo, ProducerManager
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.broker.transaction_check import CID_SYS_RMQ_TRANS, TransactionalMessageCheckService
from rocketmq_ha.impl.broker.transaction_ops import RecentOps
from rocketmq_ha.impl.broker.transactions import EndTransactionProcessor, to_half_topic
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import request
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.wire.message import Message, decode
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.reference import transactions as model
from rocketmq_ha.reference.delayed import Refusal
from rocketmq_ha.reference.message import Record

HALF_TOPIC = model.HALF_TOPIC.decode()
OP_TOPIC = model.OP_TOPIC.decode()
LEVELS = DelayLevels.parse()
HOST = ("127.0.0.1", 10911)
HOST_BYTES = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
INTERVAL_MS = 60_000
CHECK_MAX = 15
CONNECTED, GONE = "connected", "gone"  # producer groups: one with two connections, one with none


class Transactions(RuleBasedStateMachine):
    """HA-SE-78 to HA-SE-96: what every request and every round puts, asks and remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        directory = Path(self.resources.enter_context(tempfile.TemporaryDirectory()))
        self.clocks = Clocks()
        self.store: BrokerStore = self.resources.enter_context(broker_store(directory, self.clocks))
        tables = TableSettings()
        self.topics = TopicConfigManager(directory, tables)
        self.offsets = ConsumerOffsetManager(directory, tables, self.clocks.now_ms)
        self.producers = ProducerManager()
        self.channels = [Channel(f"127.0.0.1:{port}") for port in (4711, 4712)]
        for channel in self.channels:
            client = ClientChannelInfo(channel, channel.peer, "JAVA", 409, 0)  # type: ignore[arg-type]
            self.producers.register_producer(CONNECTED, client)
        self.asked = 0
        self.halves: list[Record] = []
        self.ops: list[Record] = []
        self.progress = model.Progress()
        self._start()

    def teardown(self) -> None:
        self.resources.close()

    def _start(self) -> None:
        recent = RecentOps(lambda: self.store.dispatched_offset)
        self.end_of = EndTransactionProcessor(self.store, LEVELS, HOST, lambda: self.clocks.wall_ms, recent)
        self.service = TransactionalMessageCheckService(
            self.store,
            self.topics,
            self.offsets,
            self.producers,
            recent,
            self.clocks.now_ms,  # type: ignore[arg-type]
        )

    # --- Events ------------------------------------------------------------------------------------------------------

    @rule(
        group=st.sampled_from([CONNECTED, CONNECTED, GONE]),
        immunity=st.sampled_from([None, None, "0", "7", "100", "-1", "x"]),
        times=st.sampled_from([None, None, "14", "15", "x"]),
        born=st.sampled_from([0, -4_000, -6_000, 5_000, -72 * 3_600_000, -72 * 3_600_000 - 1]),
        flag=st.integers(0, 3),
    )
    def prepare(self, group: str, immunity: str | None, times: str | None, born: int, flag: int) -> None:
        """times: as if it had been checked before. born: ms after now, by the producer's clock."""
        properties = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": f"U{len(self.halves)}", "WAIT": "true"}
        if immunity is not None:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = immunity
        if times is not None:
            properties["TRANSACTION_CHECK_TIMES"] = times
        message = Message(
            "orders",
            b"%d" % len(self.halves),
            queue_id=1,
            flag=flag,
            born_timestamp=self.clocks.wall_ms + born,
            properties_string=format_properties(properties),
        )
        self.store.append(to_half_topic(message, properties))
        self._take_halves()

    @rule(
        which=st.integers(0, 40),
        kind=st.sampled_from([model.COMMIT, model.COMMIT, model.ROLLBACK, model.NOT_KNOWN]),
        wrong=st.sampled_from([None, None, None, "producerGroup", "tranStateTableOffset", "commitLogOffset"]),
        room=st.sampled_from([None, None, 0, 1]),
    )
    @precondition(lambda self: self.halves)
    def end(self, which: int, kind: int, wrong: str | None, room: int | None) -> None:
        """HA-SE-81 "with its `tranStateTableOffset` as queue offset"; HA-SE-84 "nor if that was refused"; HA-SE-85 "MUST be
        answered with the code of HA-SE-30"."""
        half = self.halves[-1 - which % len(self.halves)]
        group = model.pairs(half.properties)[b"PGROUP"].decode()
        fields = {
            "producerGroup": group,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": str(kind),
        }
        if wrong == "producerGroup":
            fields[wrong] = "another"
        elif wrong is not None:
            fields[wrong] = str(int(fields[wrong]) + 1)
        self.store.room = room
        command = request(RequestCode.END_TRANSACTION, fields, oneway=True)
        try:
            response = self.end_of.end_transaction(None, command, self.clocks.now_ms)
            code = None if response is None else response.code
        except RequestInvalid:
            code = model.SYSTEM_ERROR
        self.store.room = None
        found = [as_record(message) for message in self.store.take()]
        parsed = model.parse(fields)
        assert isinstance(parsed, model.End)
        there = half if wrong != "commitLogOffset" else None
        ended = model.on_end(parsed, there, False, HOST_BYTES, self.clocks.wall_ms, LEVELS.max_level)
        if ended is None or isinstance(ended, Refusal):
            assert (code, found) == (None if ended is None else ended.code, [])
            return
        puts = [record for record in (ended.message, ended.op) if record is not None]
        stored = puts if room is None else [] if room == 0 else puts[:1]
        assert list(map(_without_place, found)) == list(map(_without_place, stored))
        assert code == model.code_of(ended, 14 if ended.message is not None and not stored else None)
        if ended.op in stored:
            self.ops.append(found[-1])

    @rule(ms=st.sampled_from([1, 2_000, 6_000, 30_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.clocks.advance(ms)

    @rule(ms=st.sampled_from([-10_000, 10_000]))
    def the_clock_steps(self, ms: int) -> None:
        self.clocks.wall_ms += ms

    @rule(room=st.one_of(st.none(), st.none(), st.integers(0, 3)))
    def check(self, room: int | None) -> None:
        """HA-SE-87 "MUST check its half messages every 60 s"; HA-SE-95 "Where the store takes no copy now": `room` ends it."""
        self.store.dispatch()
        before = self.service.rounds
        if self.clocks.now_ms < self.service.next_turn_ms:
            self.service.turn(self.clocks.now_ms, self.clocks.wall_ms)
            assert self.service.rounds == before
            self.clocks.advance(self.service.next_turn_ms - self.clocks.now_ms)
        self.store.room = room
        while self.service.rounds == before:
            self.service.turn(self.clocks.now_ms, self.clocks.wall_ms)
        self.store.room = None
        taken = self.store.take()
        self.store.dispatch()
        limit = len(self.halves) if room is None else room
        self.progress, puts = model.check(
            self.progress, tuple(self.halves), tuple(self.ops), self.clocks.wall_ms, limit, model.Settings(check_max=CHECK_MAX)
        )
        found = [as_record(message) for message in taken]
        assert list(map(_without_place, found)) == [_without_place(put.record) for put in puts]
        self.halves += [record for record in found if record.topic == model.HALF_TOPIC]
        self._compare_questions(
            [record for record, put in zip(found, puts, strict=True) if isinstance(put, model.Copy) and put.asks]
        )
        for topic, offset in ((HALF_TOPIC, self.progress.half), (OP_TOPIC, self.progress.op)):
            assert max(0, self.offsets.query_offset(CID_SYS_RMQ_TRANS, topic, 0)) == offset

    def _compare_questions(self, copies: list[Record]) -> None:
        """HA-SE-92 "MUST be a oneway 39 (CHECK_TRANSACTION_STATE)"; HA-SE-93 "each request goes to the next"."""
        expected: list[list[tuple[object, Record]]] = [[], []]
        for copy in copies:
            channels = (0, 1) if model.pairs(copy.properties)[b"PGROUP"] == CONNECTED.encode() else ()
            to = model.producer(channels, self.asked)
            asked = model.request_of(copy)
            assert asked is not None
            if to is not None:
                self.asked += 1
                expected[to].append((asked[0], sorted_properties(asked[1])))
        for channel, questions in zip(self.channels, expected, strict=True):
            assert all(question.code == 39 and question.is_oneway for question in channel.sent)
            assert [(question.ext_fields, as_record(decode(question.body))) for question in channel.sent] == questions
            channel.sent.clear()

    @rule()
    def stop_and_start(self) -> None:
        """HA-SE-96 "as the consumer offsets of the group `CID_RMQ_SYS_TRANS`": the next process goes on from there."""
        self.store.dispatch()
        self._start()

    def _take_halves(self) -> None:
        self.halves += [as_record(message) for message in self.store.take()]


def _without_place(record: Record) -> Record:
    """A record without what the store itself sets."""
    return sorted_properties(
        Record(
            record.topic,
            record.body,
            record.properties,
            record.queue_id,
            record.flag,
            0,
            0,
            record.sys_flag,
            record.born_timestamp,
            record.born_host,
            0,
            bytes(8),
            record.reconsume_times,
            record.prepared_transaction_offset,
        )
    )


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
