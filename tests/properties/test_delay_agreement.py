"""Chapter 13: what becomes of a delayed, a returned and a prepared message is the same in the model and the implementation."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from hypothesis import example, given
from hypothesis import strategies as st

from kit.broker_store import as_pairs, as_record, sorted_properties
from rocketmq_ha.impl.broker.delayed import time_up, to_schedule_topic
from rocketmq_ha.impl.broker.groups import SubscriptionGroupConfig
from rocketmq_ha.impl.broker.send_back import max_reconsume_times, sent_back
from rocketmq_ha.impl.broker.transaction_listener import check_request
from rocketmq_ha.impl.broker.transaction_ops import ended_offsets
from rocketmq_ha.impl.broker.transactions import committed, is_prepared, op_message, to_half_topic
from rocketmq_ha.impl.errors import MessageIllegal, RequestInvalid
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.wire.message import Message, decode
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.reference import delayed, send_back, transactions
from rocketmq_ha.reference.delayed import Refusal
from rocketmq_ha.reference.message import Record

LEVELS = DelayLevels.parse()
VALUES = {
    "DELAY": ["0", "1", "3", "18", "19", "2147483647", "2147483648", "-1", "-2147483648", "+2", "x", "1.5", " 1", "007"],
    "TIMER_DELIVER_MS": ["1700000000000"],
    "TIMER_DELAY_MS": ["5"],
    "TIMER_DELAY_SEC": ["5", "x"],
    "REAL_TOPIC": ["orders", "%RETRY%g", "RMQ_SYS_TRANS_HALF_TOPIC"],
    "REAL_QID": ["0", "7", "-1", "2147483648", "x"],
    "RETRY_TOPIC": ["first"],
    "ORIGIN_MESSAGE_ID": ["7F00000100002A9F0000000000000000", "  "],
    "WAIT": ["true", "false"],
    "TRAN_MSG": ["true", "TRUE", "false", "yes"],
    "PGROUP": ["g", "other"],
    "UNIQ_KEY": ["C0000202"],
    "KEYS": ["k1 k2", "\u0394"],
}
properties = st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()})
messages = st.builds(
    Message,
    topic=st.sampled_from(["orders", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"]),
    body=st.binary(max_size=8),
    queue_id=st.integers(-1, 9),
    flag=st.integers(-2, 5),
    queue_offset=st.integers(0, 2**40),
    physical_offset=st.integers(0, 2**50),
    sys_flag=st.sampled_from([0, 1, 2, 4, 8, 12, 0x301, 0x30B]),
    born_timestamp=st.integers(0, 2**41),
    born_host=st.sampled_from([("127.0.0.1", 4711), ("10.0.0.9", 1)]),
    store_timestamp=st.integers(0, 2**41),
    store_host=st.just(("127.0.0.1", 10911)),
    reconsume_times=st.integers(-1, 20),
    prepared_transaction_offset=st.integers(0, 99),
    properties_string=properties.map(format_properties),
)

T = TypeVar("T")


def outcome(call: Callable[[], T]) -> T | Refusal:
    """What a function gives, or the code with which a request is answered for its error."""
    try:
        return call()
    except RequestInvalid:
        return Refusal(1)
    except MessageIllegal:
        return Refusal(13)


def told(message: Message | Refusal) -> Record | Refusal:
    return message if isinstance(message, Refusal) else as_record(message)


def expected(record: Record | Refusal) -> Record | Refusal:
    return record if isinstance(record, Refusal) else sorted_properties(record)


@given(messages, properties)
@example(Message("orders", b"", queue_id=3), {"DELAY": "19", "WAIT": "true"})
@example(Message("orders", b""), {"DELAY": "0", "TIMER_DELAY_MS": "5"})
@example(Message("orders", b"", sys_flag=4), {"DELAY": "x"})
def test_what_is_put_of_a_delayed_message(message: Message, changed: dict[str, str]) -> None:
    """HA-SE-50 "with the topic and the queue id that it had in the properties"; HA-SE-51 "A level above the greatest MUST count
    as the greatest"; HA-SE-52 "is no i32 MUST be answered with 1"; HA-SE-53 "and no `DELAY` above 0, MUST be answered with
    1"."""
    found = outcome(lambda: to_schedule_topic(message, changed, LEVELS))
    assert told(found) == expected(delayed.on_put(as_record(message), as_pairs(changed), LEVELS.max_level))


@given(messages)
@example(Message("SCHEDULE_TOPIC_XXXX", b"b", properties_string="REAL_TOPIC\x01orders\x02REAL_QID\x012\x02DELAY\x013"))
def test_what_is_delivered(message: Message) -> None:
    """HA-SE-56 "and the body, the properties, the `flag`"; HA-SE-57 "its `REAL_TOPIC` is `RMQ_SYS_TRANS_HALF_TOPIC`"."""
    found = outcome(lambda: time_up(message))
    model = delayed.time_up(as_record(message))
    assert told(found) == (Refusal(13) if model is None else sorted_properties(model))


@given(messages, st.integers(-2, 20), st.one_of(st.none(), st.integers(-1, 20)), st.integers(119, 123), st.integers(1, 3))
def test_what_is_stored_of_a_message_that_is_sent_back(
    message: Message, level: int, asked: int | None, version: int, queues: int
) -> None:
    """HA-SE-67 "with the changes of the table below"; HA-SE-68 "MUST go to queue 0 of `%DLQ%` + group instead"; HA-SE-69 "or 3
    plus the `reconsumeTimes` at the offset"."""
    group = SubscriptionGroupConfig("g", retry_queue_nums=queues)

    def stored() -> Message:
        times = max_reconsume_times(group, version, asked)
        return to_schedule_topic(*sent_back(message, group, level, times, 5 % queues), LEVELS)

    request = send_back.SendBack(0, b"g", level, asked, version)
    model = send_back.on_send_back(request, send_back.Group(b"g", queues), 6, 6, True, as_record(message), 5, LEVELS.max_level)
    assert told(outcome(stored)) == expected(model)


@given(messages, properties, st.integers(0, 2))
@example(Message("orders", b""), {"TRAN_MSG": "true", "DELAY": "1"}, 0)
@example(Message("orders", b""), {"TRAN_MSG": "true", "DELAY": "1"}, 1)
def test_what_is_put_of_a_prepared_message(message: Message, changed: dict[str, str], times: int) -> None:
    """HA-SE-75 "unless its `reconsumeTimes` and its `DELAY` are both above 0"; HA-SE-76 "with its topic and queue id in
    `REAL_TOPIC` and `REAL_QID`"; HA-SE-77 "A prepared message whose `DELAY` is above 0 MUST be answered with 13"."""
    assert is_prepared(changed, times) == transactions.is_prepared(as_pairs(changed), times)
    found = outcome(lambda: to_half_topic(message, changed))
    assert told(found) == expected(transactions.on_prepared(as_record(message), as_pairs(changed)))


@given(messages)
@example(
    Message("RMQ_SYS_TRANS_HALF_TOPIC", b"b", properties_string="REAL_TOPIC\x01orders\x02REAL_QID\x012\x02TRAN_MSG\x01true")
)
@example(Message("RMQ_SYS_TRANS_HALF_TOPIC", b"b", properties_string="REAL_TOPIC\x01orders\x02REAL_QID\x012\x02DELAY\x011"))
def test_what_a_commit_and_its_op_message_are(half: Message) -> None:
    """HA-SE-82 "with the bits 4 and 8 of `sysFlag` set to 8"; HA-SE-83 "with the tag `d`"; HA-SE-86 "MUST take a body"."""
    record = as_record(half)
    assert told(outcome(lambda: committed(half, LEVELS))) == expected(transactions.committed(record, LEVELS.max_level))
    op = op_message(half, ("10.0.0.1", 10911), 77)
    model = transactions.op_message(record, bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F)), 77)
    assert as_record(replace(op, store_host=("0.0.0.0", 0))) == sorted_properties(model)
    assert tuple(ended_offsets(op)) == transactions.ends_of(model) == (half.queue_offset,)


@given(st.text("0123456789,-x ", max_size=12), st.sampled_from(["d", "D", "", "k"]))
@example("2,5,8,0,1,", "d")
def test_the_half_messages_that_an_op_message_names(body: str, tag: str) -> None:
    """HA-SE-86 "MUST take a body of several queue offsets with commas between and behind them"."""
    op = Message("RMQ_SYS_TRANS_OP_HALF_TOPIC", body.encode(), properties_string=f"WAIT\x01true\x02TAGS\x01{tag}\x02")
    assert tuple(ended_offsets(op)) == transactions.ends_of(as_record(op))


@given(messages)
def test_the_question_about_a_half_message(copy: Message) -> None:
    """HA-SE-92 "and as body the record of the copy with the topic `REAL_TOPIC`"."""
    found, model = outcome(lambda: check_request(copy)), transactions.request_of(as_record(copy))
    if isinstance(found, Refusal) or model is None:
        assert (found, model) == (Refusal(13), None)
        return
    fields, record = model
    assert (found.code, found.is_oneway, found.ext_fields) == (39, True, fields)
    assert as_record(decode(found.body)) == sorted_properties(record)
