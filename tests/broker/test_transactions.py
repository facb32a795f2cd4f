"""Transactions at their limits: ends amid a round, op messages of RocketMQ, bounds, and what a send becomes."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.broker_store import BrokerStore, as_record, broker_store
from kit.channels import Channel
from kit.sends import MemoryFile, fields_of
from rocketmq_ha.impl.broker import transaction_check, transaction_ops
from rocketmq_ha.impl.broker.clients import ClientChannelInfo, ProducerManager
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.groups import SubscriptionGroupManager
from rocketmq_ha.impl.broker.send import Refusal
from rocketmq_ha.impl.broker.send_back import SendBackProcessor
from rocketmq_ha.impl.broker.send_prepare import SendPreparation
from rocketmq_ha.impl.broker.send_request import SendRequest
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.broker.transaction_check import CID_SYS_RMQ_TRANS, TransactionalMessageCheckService
from rocketmq_ha.impl.broker.transaction_ops import OpReader, RecentOps, ended_offsets
from rocketmq_ha.impl.broker.transactions import EndTransactionProcessor, committed, op_message, to_half_topic
from rocketmq_ha.impl.errors import MessageIllegal, RequestInvalid
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.results import AppendResult
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.reference import transactions as model
from rocketmq_ha.reference.delayed import Refusal as ModelRefusal
from rocketmq_ha.spec.role import BrokerRole

HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
LEVELS = DelayLevels.parse()
HOST = ("127.0.0.1", 10911)
PREPARED = {"TRAN_MSG": "true", "PGROUP": "group", "UNIQ_KEY": "U"}


class Stand:
    """The transactions of one master. dispatched: what counts as dispatched, if it is set."""

    def __init__(self, store: BrokerStore, role: BrokerRole = BrokerRole.ASYNC_MASTER) -> None:
        self.store, self.clocks = store, store.clocks
        tables = TableSettings()
        self.topics = TopicConfigManager(Path(), tables, file=MemoryFile())
        self.offsets = ConsumerOffsetManager(Path(), tables, 0, file=MemoryFile())
        self.producers = ProducerManager()
        self.channel = Channel()
        client = ClientChannelInfo(self.channel, "c", "JAVA", 409, 0)  # type: ignore[arg-type]
        self.producers.register_producer("group", client)
        self.dispatched: int | None = None
        self.recent = RecentOps(self._dispatched_offset)
        is_slave = role is BrokerRole.SLAVE
        self.end_of = EndTransactionProcessor(store, LEVELS, HOST, lambda: self.clocks.wall_ms, self.recent, is_slave=is_slave)
        self.service = TransactionalMessageCheckService(
            store,
            self.topics,
            self.offsets,
            self.producers,
            self.recent,
            self.clocks.now_ms,
            role=role,  # type: ignore[arg-type]
        )

    def _dispatched_offset(self) -> int:
        return self.store.dispatched_offset if self.dispatched is None else self.dispatched

    def prepare(self, body: bytes = b"body", born_ms: int | None = None, **properties: str) -> Message:
        """Put a half message. born_ms: None for now. Returns: it, as it is stored."""
        found = PREPARED | properties
        born_ms = self.clocks.wall_ms if born_ms is None else born_ms
        message = Message("orders", body, 3, born_timestamp=born_ms, properties_string=format_properties(found))
        self.store.append(to_half_topic(message, found))
        [half] = self.store.take()
        return half

    def end(self, half: Message, kind: int = model.COMMIT, **changed: str) -> RemotingCommand | None:
        fields = {
            "producerGroup": "group",
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": str(kind),
        }
        return self.end_of.end_transaction(None, request(RequestCode.END_TRANSACTION, fields | changed), 0)

    def begin_round(self, turns: int = 1) -> None:
        """Wait for the time of a round, and do some turns of it."""
        self.store.dispatch()
        self.clocks.advance(max(0, self.service.next_turn_ms - self.clocks.now_ms))
        for _ in range(turns):
            self.turn()

    def turn(self) -> None:
        self.service.turn(self.clocks.now_ms, self.clocks.wall_ms)

    def round(self) -> list[Message]:
        """A whole round. Returns: what it has put."""
        before = self.service.rounds
        self.begin_round(0)
        while self.service.rounds == before:
            self.turn()
        return self.store.take()

    def outcome(self) -> str:
        """What a round does with the only half message."""
        puts = [message.topic for message in self.round()]
        if not puts:
            return ENDS
        assert puts in ([HALF_TOPIC], [GIVEN_UP])
        return GONE if puts == [GIVEN_UP] else ASKED if self.channel.sent else IMMUNE

    def progress(self) -> tuple[int, int]:
        return (
            self.offsets.query_offset(CID_SYS_RMQ_TRANS, HALF_TOPIC, 0),
            self.offsets.query_offset(CID_SYS_RMQ_TRANS, OP_TOPIC, 0),
        )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BrokerStore]:
    with broker_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def stand(store: BrokerStore) -> Stand:
    return Stand(store)


# --- The request -----------------------------------------------------------------------------------------------------


def test_a_commit_is_the_message_and_then_its_op_message(stand: Stand) -> None:
    """HA-SE-82 "and all else as the half message has it"; HA-SE-83 "with the tag `d`"; HA-SE-84 "MUST NOT be put before"."""
    stand.prepare()
    half = stand.prepare(b"second")
    answer = stand.end(half)
    assert answer is not None and answer.code == 0
    message, op = stand.store.take()
    assert (message.topic, message.queue_id, message.body, message.sys_flag) == ("orders", 3, b"second", 8)
    assert message.prepared_transaction_offset == half.physical_offset
    assert (op.topic, op.queue_id, op.body, op.properties_string) == (OP_TOPIC, 0, b"1", "WAIT\x01true\x02TAGS\x01d")
    assert (op.born_host, op.born_timestamp) == (HOST, stand.clocks.wall_ms)


def test_a_rollback_is_an_op_message_alone(stand: Stand) -> None:
    """HA-SE-83 "and for a rollback at once, the master MUST put an op message"."""
    answer = stand.end(stand.prepare(), model.ROLLBACK)
    assert answer is not None and answer.code == 0
    assert [message.topic for message in stand.store.take()] == [OP_TOPIC]


@pytest.mark.parametrize("first", [model.COMMIT, model.ROLLBACK])
def test_a_second_end_is_taken_like_the_first(stand: Stand, first: int) -> None:
    """HA-SE-97 "A second request 37 for a half message that has ended is taken like the first": the message is there twice."""
    half = stand.prepare()
    stand.end(half, first)
    before = stand.store.take()
    stand.store.dispatch()
    answer = stand.end(half)
    assert answer is not None and answer.code == 0
    message, op = stand.store.take()
    assert (message.topic, message.queue_id, message.body) == ("orders", 3, b"body")
    assert op.body == before[-1].body == b"0"


def test_an_end_that_is_not_known_has_no_answer(stand: Stand) -> None:
    """HA-SE-80 "A request 37 with `commitOrRollback` 0 changes nothing, and has no answer"."""
    assert stand.end(stand.prepare(), model.NOT_KNOWN) is None
    assert stand.store.take() == []


def test_a_slave_ends_nothing(store: BrokerStore) -> None:
    """HA-SE-79 "A slave MUST answer 37 with 11 (SLAVE_NOT_AVAILABLE)"; HA-R-7 "MUST run on masters only"."""
    half = Stand(store).prepare()
    stand = Stand(store, BrokerRole.SLAVE)
    answer = stand.end(half)
    assert answer is not None and answer.code == 11
    stand.clocks.advance(3_600_000)
    stand.turn()
    assert (stand.store.take(), stand.service.rounds) == ([], 0)


@pytest.mark.parametrize("name", ["producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback"])
def test_an_end_without_a_field_is_refused(stand: Stand, name: str) -> None:
    """HA-SE-78 "and answer a request without one that it needs"; the model says the same."""
    stand.prepare()
    fields = dict.fromkeys(("producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback"), "0")
    assert model.parse(fields) == model.End(b"0", 0, 0, 0)
    del fields[name]
    with pytest.raises(RequestInvalid, match=name):
        stand.end_of.end_transaction(None, request(RequestCode.END_TRANSACTION, fields), 0)
    assert model.parse(fields) == ModelRefusal(1)


def test_an_end_needs_no_id_of_the_message(stand: Stand) -> None:
    """HA-SE-78 "MUST take the code 37 (END_TRANSACTION) with the fields of the table": `msgId` is none that it needs."""
    half = stand.prepare()
    answer = stand.end(half)
    assert answer is not None and answer.code == 0
    assert [message.topic for message in stand.store.take()] == ["orders", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]


@pytest.mark.parametrize("kind", ["4", "16", "-8", "x", "9223372036854775807"])
def test_an_end_of_another_kind_is_refused(stand: Stand, kind: str) -> None:
    """HA-SE-78 "or with another `commitOrRollback` than these three, with 1"."""
    half = stand.prepare()
    with pytest.raises(RequestInvalid, match="commitOrRollback"):
        stand.end(half, commitOrRollback=kind)
    assert stand.store.take() == []


@pytest.mark.parametrize(
    "changed", [{"producerGroup": "other"}, {"tranStateTableOffset": "1"}, {"commitLogOffset": "1"}, {"commitLogOffset": "-1"}]
)
def test_an_end_of_what_is_not_there_is_refused(stand: Stand, changed: dict[str, str]) -> None:
    """HA-SE-81 "MUST be answered with 1, and change nothing, unless there is a half message"."""
    half = stand.prepare()
    with pytest.raises(RequestInvalid):
        stand.end(half, **changed)
    assert stand.store.take() == []


def test_what_is_no_half_message_cannot_be_ended(stand: Stand) -> None:
    """HA-SE-81 "unless there is a half message at its `commitLogOffset`": a message elsewhere is none, whatever it has."""
    half = stand.prepare()
    stand.store.append(replace(half, topic="orders"))
    [other] = stand.store.take()
    with pytest.raises(RequestInvalid, match="commitLogOffset"):
        stand.end(other)
    assert stand.store.take() == []


def test_the_answer_of_a_put_that_is_refused(stand: Stand) -> None:
    """HA-SE-85 "A commit that is refused MUST be answered with the code of HA-SE-30": and 0 where the op message alone is."""
    half = stand.prepare()
    for room, code, stored in ((0, 14, 0), (1, 0, 1)):
        stand.store.room = room
        answer = stand.end(half)
        assert (answer and answer.code, len(stand.store.take())) == (code, stored)


def test_a_half_message_without_a_topic_is_refused(stand: Stand) -> None:
    """HA-SE-85 "MUST be answered with the code of HA-SE-30": nothing says where its commit goes."""
    stand.store.append(Message(HALF_TOPIC, b"", properties_string="PGROUP\x01group"))
    [half] = stand.store.take()
    answer = stand.end(half)
    assert answer is not None and answer.code == 13
    assert stand.store.take() == []


# --- The check -------------------------------------------------------------------------------------------------------


def test_a_half_message_is_asked_about_until_it_is_given_up(stand: Stand) -> None:
    """HA-SE-91 "is one more, and a producer of its group be asked about the copy"; HA-SE-94 "have reached 15"."""
    half = stand.prepare()
    for times in range(1, 16):
        [copy] = stand.round()
        assert (copy.topic, copy.properties["TRANSACTION_CHECK_TIMES"]) == (HALF_TOPIC, str(times))
        assert (copy.body, copy.born_timestamp) == (half.body, half.born_timestamp)
        [question] = stand.channel.sent
        assert question.ext_fields["tranStateTableOffset"] == str(copy.queue_offset) == str(times)
        stand.channel.sent.clear()
    [moved] = stand.round()
    assert (moved.topic, moved.queue_id, stand.channel.sent) == (GIVEN_UP, 0, [])
    assert stand.round() == []
    assert stand.progress() == (16, -1)
    assert stand.topics.select_topic_config(GIVEN_UP) is not None
    assert stand.topics.select_topic_config(HALF_TOPIC) is not None


def test_a_round_ends_before_its_own_copies(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-SE-87 "to the first that was stored after its own begin": also where a copy is dispatched at once."""
    append = stand.store.append

    def append_and_dispatch(message: Message) -> AppendResult:
        appended = append(message)
        stand.store.dispatch()
        return appended

    monkeypatch.setattr(stand.store, "append", append_and_dispatch)
    for group in ("group", "other"):
        stand.prepare(PGROUP=group, TRANSACTION_CHECK_TIMES="14")
    assert [copy.properties["TRANSACTION_CHECK_TIMES"] for copy in stand.round()] == ["15", "15"]
    assert [moved.topic for moved in stand.round()] == [GIVEN_UP, GIVEN_UP]


def test_an_old_half_message_is_given_up_without_a_question(stand: Stand) -> None:
    """HA-SE-94 "or that was born longer ago than `fileReservedTime` (72 hours)"."""
    stand.prepare()
    stand.clocks.advance(72 * 3_600_000 + 1)
    assert [message.topic for message in stand.round()] == [GIVEN_UP]


def test_a_young_half_message_ends_the_round(stand: Stand) -> None:
    """HA-SE-89 "born less than 6 s ago (`transactionTimeOut`) MUST end the round"."""
    stand.clocks.advance(55_000)
    stand.prepare()
    assert (stand.round(), stand.progress()[0]) == ([], -1)
    assert len(stand.round()) == 1


HOURS_72 = 72 * 3_600_000
ASKED, IMMUNE, ENDS, GONE = "its producer is asked", "put again", "ends the round", "given up"
IMMUNITY, TIMES = "CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES"


@pytest.mark.parametrize(
    ("properties", "age_ms", "outcome"),
    [
        *(({}, age, ASKED) for age in (-1, 6_000, 6_001, HOURS_72)),
        *(({}, age, ENDS) for age in (0, 1, 5_999)),
        *(({IMMUNITY: "7"}, age, IMMUNE) for age in (-1, 0, 6_999)),
        *(({IMMUNITY: "7"}, age, ASKED) for age in (7_000, 7_001)),
        *(({IMMUNITY: text}, 5_999, IMMUNE) for text in ("-1", "x")),
        *(({IMMUNITY: text}, 6_000, ASKED) for text in ("-1", "x")),
        ({IMMUNITY: "0"}, -1, IMMUNE),
        ({IMMUNITY: "0"}, 0, ASKED),
        *(({TIMES: text}, 6_000, ASKED) for text in ("0", "14", "-1", "x")),
        *(({TIMES: text}, 6_000, GONE) for text in ("15", "16")),
        ({TIMES: "15"}, 0, GONE),
        ({TIMES: "14"}, 0, ENDS),
        ({TIMES: "15", IMMUNITY: "7"}, 0, GONE),
        ({TIMES: "14", IMMUNITY: "7"}, 6_999, IMMUNE),
        ({}, HOURS_72 + 1, GONE),
        ({IMMUNITY: "999999"}, HOURS_72, IMMUNE),
        ({IMMUNITY: "999999"}, HOURS_72 + 1, GONE),
    ],
)
def test_the_millisecond_and_the_number_that_decide_agree_with_the_model(
    stand: Stand, properties: dict[str, str], age_ms: int, outcome: str
) -> None:
    """HA-SE-89 "born less than 6 s ago (`transactionTimeOut`) MUST end the round"; HA-SE-90 "MUST take the place of the 6 s";
    HA-SE-94 "or that was born longer ago than `fileReservedTime`".
    """
    begin = stand.clocks.wall_ms + stand.service.next_turn_ms - stand.clocks.now_ms
    half = stand.prepare(born_ms=begin - age_ms, **properties)
    expected = model.judge(as_record(half), frozenset(), begin, begin, model.Settings())
    assert stand.outcome() == outcome == told(expected)


@pytest.mark.parametrize(("later_ms", "outcome"), [(-1, ASKED), (0, ENDS), (1, ENDS)])
def test_a_half_message_that_is_stored_as_the_round_begins_waits_for_the_next(
    stand: Stand, later_ms: int, outcome: str
) -> None:
    """HA-SE-87 "to the first that was stored after its own begin": the clock may have been set back by as much."""
    begin = stand.clocks.wall_ms + stand.service.next_turn_ms - stand.clocks.now_ms
    stand.clocks.wall_ms = begin + later_ms
    half = stand.prepare(born_ms=begin - 6_000)
    stand.clocks.wall_ms = begin - (stand.service.next_turn_ms - stand.clocks.now_ms)
    assert half.store_timestamp == begin + later_ms
    expected = model.judge(as_record(half), frozenset(), begin, begin, model.Settings())
    assert stand.outcome() == outcome == told(expected)


def told(judged: model.Copy | model.GivenUp | str) -> str:
    """What a round does with a half message, as the model says."""
    match judged:
        case model.Copy():
            return ASKED if judged.asks else IMMUNE
        case model.GivenUp():
            return GONE
    return ENDS if judged == "stop" else judged


def test_a_half_message_from_the_future_is_checked(stand: Stand) -> None:
    """HA-SE-89 "born less than 6 s ago (`transactionTimeOut`) MUST end the round": the clock of its producer may be ahead."""
    half = stand.prepare()
    stand.store.append(replace(half, born_timestamp=half.born_timestamp + 3_600_000))
    stand.store.take()
    assert (len(stand.round()), stand.progress()[0]) == (2, 2)


def test_a_late_end_of_an_immune_half_message_is_known(stand: Stand) -> None:
    """HA-SE-88 "or that of the message it is a copy of"; HA-SE-90 "while it lasts, a copy with its queue offset"."""
    half = stand.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="300")
    [copy] = stand.round()
    assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    assert "TRANSACTION_CHECK_TIMES" not in copy.properties
    [again] = stand.round()
    assert again.properties["TRAN_PREPARED_QUEUE_OFFSET"] == "0"
    stand.end(half)
    stand.store.take()
    assert [stand.round(), stand.round(), stand.channel.sent] == [[], [], []]
    assert stand.progress() == (3, 1)


@pytest.mark.parametrize("ended", ["the half message", "its first copy", "its second copy"])
def test_an_end_of_a_copy_is_an_end(stand: Stand, ended: str) -> None:
    """HA-SE-88 "or that of the message it is a copy of", and its own: a producer that was asked names the copy."""
    half = stand.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="150")
    [copy] = stand.round()
    [again] = stand.round()
    stand.end({"the half message": half, "its first copy": copy, "its second copy": again}[ended])
    stand.store.take()
    rounds = [stand.round() for _ in range(2)]
    if ended == "its first copy":  # nobody was asked about it, and the second copy does not name it
        assert [len(puts) for puts in rounds] == [1, 1]
    else:
        assert rounds == [[], []]


def test_an_end_amid_a_round_counts(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-SE-88 "MUST be passed without more if it has ended": also when the queues do not have its op message yet."""
    monkeypatch.setattr(transaction_check, "STEPS_TURN", 1)
    stand.prepare()
    second, third = stand.prepare(), stand.prepare()
    stand.begin_round(1)
    assert len(stand.store.take()) == 1  # the first is checked
    stand.dispatched = 0  # as long as this holds, the op messages are known from memory alone
    stand.end(second)
    stand.turn()
    stand.dispatched = None
    stand.end(third, model.ROLLBACK)
    stand.store.dispatch()
    for _ in range(6):
        stand.turn()
    assert stand.service.rounds == 1
    assert [message.topic for message in stand.store.take()] == ["orders", OP_TOPIC, OP_TOPIC]
    assert (stand.progress()[0], len(stand.channel.sent)) == (3, 1)
    assert len(stand.recent) == 0 or stand.recent.dispatched_offset() > 0


def test_an_op_message_that_comes_after_its_copy_is_needed_by_the_next_round(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-SE-96 "the first op message whose half messages are not all passed": a copy stands behind the round's end."""
    monkeypatch.setattr(transaction_check, "STEPS_TURN", 1)
    half = stand.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="300")
    stand.clocks.advance(55_000)
    stand.prepare(b"young")
    stand.begin_round(1)
    assert [message.body for message in stand.store.take()] == [half.body]
    stand.end(half)
    stand.store.take()
    stand.store.dispatch()
    while stand.service.rounds == 0:
        stand.turn()
    assert stand.progress() == (1, -1)
    assert [message.body for message in stand.round()] == [b"young"]
    assert stand.progress() == (3, 1)


def test_a_round_waits_for_the_copies_of_the_last(stand: Stand) -> None:
    """HA-SE-87 "from where the last has ended": it cannot go on there before the queue has the copies."""
    stand.prepare()
    stand.round()
    stand.dispatched = 0
    stand.begin_round(3)
    assert stand.service.rounds == 1
    stand.dispatched = None
    assert len(stand.round()) == 1


def test_a_round_remembers_a_bounded_number_of_op_messages(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-SE-88 "MUST be passed without more": what has no room in one round is passed in later ones."""
    monkeypatch.setattr(transaction_ops, "OPS_READ", 2)
    monkeypatch.setattr(transaction_check, "OpReader", lambda store, first: OpReader(store, first, 4))
    halves = [stand.prepare() for _ in range(10)]
    for half in halves:
        stand.end(half, model.ROLLBACK)
    stand.store.take()
    with caplog.at_level(logging.WARNING):
        assert [(stand.round(), stand.progress()) for _ in range(4)] == [([], (at, at)) for at in (4, 8, 10, 10)]
    assert "takes 4 op messages" in caplog.text


def test_a_copy_that_no_record_can_hold_is_given_up(stand: Stand) -> None:
    """HA-SE-94 "MUST be moved to queue 0 of `TRANS_CHECK_MAX_TIME_TOPIC` instead": the round does not stop there for ever."""
    space = 32_767 - len(format_properties(PREPARED | {"REAL_TOPIC": "orders", "REAL_QID": "3", "long": "x"}))
    stand.prepare(long="x" * (space + 1))
    assert [message.topic for message in stand.round()] == [GIVEN_UP]
    assert stand.progress()[0] == 1


def test_progress_behind_the_end_of_a_queue_goes_back(stand: Stand) -> None:
    """HA-SE-96 "MUST keep how far it has come": the offsets may be of a log that has lost its end."""
    half = stand.prepare()
    stand.end(half)
    stand.offsets.commit_offset("", CID_SYS_RMQ_TRANS, HALF_TOPIC, 0, 50)
    stand.offsets.commit_offset("", CID_SYS_RMQ_TRANS, OP_TOPIC, 0, 60)
    stand.store.take()
    assert (stand.round(), stand.progress()) == ([], (1, 1))
    late = stand.prepare()
    assert [message.body for message in stand.round()] == [late.body]


def test_a_round_ends_after_a_minute(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-SE-87 "a *round* goes through them in order": one that takes too long leaves the rest to the next."""
    monkeypatch.setattr(transaction_check, "STEPS_TURN", 1)
    for _ in range(3):
        stand.prepare()
    stand.begin_round(1)
    stand.clocks.advance(transaction_check.ROUND_LIMIT_MS + 1)
    stand.turn()
    assert (stand.service.rounds, stand.progress()[0], len(stand.store.take())) == (1, 1, 1)
    assert len(stand.round()) == 3  # with the copy of the first


def test_a_store_that_is_full_ends_the_round_before_the_half_message(stand: Stand) -> None:
    """HA-SE-95 "the round MUST end before the half message"."""
    stand.prepare()
    stand.prepare()
    stand.store.room = 1
    assert (len(stand.round()), stand.progress()[0]) == (1, 1)
    stand.store.room = None
    assert len(stand.round()) == 2


def test_nobody_is_asked_where_no_producer_is_connected(stand: Stand) -> None:
    """HA-SE-93 "MUST be one that is connected now": and "the check counts all the same"."""
    stand.channel.is_open = False
    stand.prepare()
    [copy] = stand.round()
    assert (copy.properties["TRANSACTION_CHECK_TIMES"], stand.channel.sent) == ("1", [])


# --- RocketMQ's own records --------------------------------------------------------------------------------------------


def test_halves_commits_and_ops_are_those_of_rocketmq(golden: Path, release: str) -> None:
    """HA-SE-76 "MUST be put into queue 0 of `RMQ_SYS_TRANS_HALF_TOPIC`"; HA-SE-82 "MUST put the message into `REAL_TOPIC`";
    HA-SE-83 "with the tag `d`"; HA-SE-86 "MUST take a body of several queue offsets": of the golden stores."""
    with LogReader(golden) as reader:
        reader.walk()
        records = [message for _, _, message in reader.records(reader.min_offset)]
    halves = {message.physical_offset: message for message in records if message.topic == HALF_TOPIC}
    commits = [message for message in records if message.prepared_transaction_offset]
    ops = [message for message in records if message.topic == OP_TOPIC]
    assert halves and commits and ops
    put_at = {"queue_offset": 0, "physical_offset": 0, "store_timestamp": 0}
    for message in commits:
        half = halves[message.prepared_transaction_offset]
        properties = dict(committed(half, LEVELS).properties)
        if release.startswith("5.4"):
            del properties["REAL_TOPIC"], properties["REAL_QID"]
        ours = replace(committed(half, LEVELS), properties_string=format_properties(properties))
        assert as_record(replace(ours, **put_at)) == as_record(replace(message, **put_at))
    for half in halves.values():
        original = dict(half.properties)
        message = replace(half, topic=original.pop("REAL_TOPIC"), queue_id=int(original.pop("REAL_QID")))
        assert as_record(to_half_topic(message, original)) == as_record(half)
    ended = {offset for op in ops for offset in ended_offsets(op)}
    assert {halves[message.prepared_transaction_offset].queue_offset for message in commits} <= ended
    if release.startswith("4."):
        at = {half.queue_offset: half for half in halves.values()}
        for op in ops:
            ours = replace(op_message(at[int(op.body)], op.born_host, op.born_timestamp), store_host=op.store_host)
            assert as_record(ours) == as_record(replace(op, **put_at))


# --- What a send becomes ---------------------------------------------------------------------------------------------


@pytest.fixture
def prepare(store: BrokerStore) -> Callable[..., Message | Refusal]:
    """What a send with these properties becomes."""
    tables = TableSettings()
    topics = TopicConfigManager(Path(), tables, file=MemoryFile())
    groups = SubscriptionGroupManager(Path(), tables, file=MemoryFile())
    send_back = SendBackProcessor(store, topics, groups, LEVELS)

    def call(topic: str = "orders", times: int = 0, *, rejects: bool = False, **properties: str) -> Message | Refusal:
        command = request(RequestCode.SEND_MESSAGE_V2, fields_of(310, topic=topic, reconsumeTimes=str(times)))
        message = Message(topic, b"", 1, reconsume_times=times, properties_string=format_properties(properties))
        preparation = SendPreparation(send_back, LEVELS, reject_transaction_message=rejects)
        return preparation(SendRequest(command), command, message, properties)

    return call


@pytest.mark.parametrize(
    ("topic", "times", "properties", "stored"),
    [
        ("orders", 0, {}, "orders"),
        ("orders", 0, {"DELAY": "0"}, "orders"),
        ("orders", 0, {"DELAY": "4"}, "SCHEDULE_TOPIC_XXXX"),
        ("orders", 0, {"DELAY": "4", "TIMER_DELAY_MS": "5"}, "SCHEDULE_TOPIC_XXXX"),
        ("orders", 0, {"TRAN_MSG": "true"}, HALF_TOPIC),
        ("orders", 0, {"TRAN_MSG": "no"}, "orders"),
        ("%RETRY%group", 2, {"TRAN_MSG": "true", "DELAY": "4"}, "SCHEDULE_TOPIC_XXXX"),
        ("%RETRY%group", 16, {"DELAY": "4"}, "%DLQ%group"),
        ("%RETRY%group", 15, {"DELAY": "4"}, "SCHEDULE_TOPIC_XXXX"),
        ("orders", 16, {}, "orders"),
    ],
)
def test_where_a_send_is_put(
    prepare: Callable[..., Message | Refusal], topic: str, times: int, properties: dict[str, str], stored: str
) -> None:
    """HA-SE-50 "MUST be put into `SCHEDULE_TOPIC_XXXX` instead"; HA-SE-71 "is put into queue 0 of `%DLQ%` + group"; HA-SE-75
    "unless its `reconsumeTimes` and its `DELAY` are both above 0"."""
    found = prepare(topic, times, **properties)
    assert isinstance(found, Message) and found.topic == stored
    assert "TIMER_DELAY_MS" not in found.properties


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"DELAY": "x"}, RequestInvalid),
        ({"TIMER_DELIVER_MS": "1"}, RequestInvalid),
        ({"TIMER_DELAY_SEC": "1", "DELAY": "0"}, RequestInvalid),
        ({"TRAN_MSG": "true", "DELAY": "x"}, RequestInvalid),
        ({"TRAN_MSG": "true", "TIMER_DELAY_MS": "1"}, RequestInvalid),
        ({"TRAN_MSG": "true", "DELAY": "1"}, MessageIllegal),
    ],
)
def test_a_send_with_a_delay_that_is_none_is_refused(
    prepare: Callable[..., Message | Refusal], properties: dict[str, str], error: type[Exception]
) -> None:
    """HA-SE-52 "and not stored"; HA-SE-53 "and no `DELAY` above 0"; HA-SE-77 "MUST be answered with 13"."""
    with pytest.raises(error):
        prepare(**properties)


def test_a_broker_without_transactions_refuses_prepared_messages(prepare: Callable[..., Message | Refusal]) -> None:
    """HA-SE-14 "MUST answer a message whose property TRAN_MSG is true with 16 (NO_PERMISSION), and never store it"."""
    found = prepare(rejects=True, TRAN_MSG="true")
    assert isinstance(found, Refusal) and found.code == 16
    assert isinstance(prepare(rejects=True), Message)
