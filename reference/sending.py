"""A send at a master: the checks, the records that it becomes, and the answer when the put of these records has ended.

    parse --> check --> records --> put (puts.py) --> answer
      |         |          |                            |
      1     1, 16, 17    1, 13, 16                 0, 1, 10 to 14

Topics and their creation are in other models: `on_send` is told the topic as it is after a creation.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.message import Record, encode
from rocketmq_ha.reference.puts import waits

SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
MESSAGE_ILLEGAL: Final = 13
NO_PERMISSION: Final = 16
TOPIC_NOT_EXIST: Final = 17

PERM_WRITE: Final = 2
MULTI_TAGS: Final = 2
BORN_HOST_V6: Final = 16
STORE_HOST_V6: Final = 32
TRANSACTION_BITS: Final = 4 | 8
MAX_PROPERTIES: Final = 32767
MAX_BATCH: Final = 16 << 20  # bytes of records

# HA-SE-1 "with the header fields of the table below": the name in a request of code 10, that in 310 and 320, its kind.
FIELDS: Final = (
    ("producerGroup", "a", "text"),
    ("topic", "b", "text"),
    ("defaultTopic", "c", "text"),
    ("defaultTopicQueueNums", "d", "i32"),
    ("queueId", "e", "i32"),
    ("sysFlag", "f", "i32"),
    ("bornTimestamp", "g", "i64"),
    ("flag", "h", "i32"),
    ("properties", "i", "text?"),
    ("reconsumeTimes", "j", "i32?"),
    ("unitMode", "k", "boolean?"),
    ("maxReconsumeTimes", "l", "i32?"),
    ("batch", "m", "boolean?"),
)
SHORT_NAMES: Final = (310, 320)

# HA-SE-5 "No client MUST be able to send to"
NOT_ALLOWED: Final = (
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"),
    *("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
)

# HA-SE-30 "MUST be answered with the code of its put's status"; any other status: SYSTEM_ERROR.
CODES: Final = {
    "PUT_OK": SUCCESS,
    "FLUSH_DISK_TIMEOUT": 10,
    "SLAVE_NOT_AVAILABLE": 11,
    "FLUSH_SLAVE_TIMEOUT": 12,
    "MESSAGE_ILLEGAL": MESSAGE_ILLEGAL,
    "PROPERTIES_SIZE_EXCEEDED": MESSAGE_ILLEGAL,
    "SERVICE_NOT_AVAILABLE": 14,
}
STORED: Final = (SUCCESS, 10, 11, 12)


@dataclass(frozen=True, slots=True)
class Broker:
    """What does not change while a broker runs. store_host: address and port, as a record has them, of 8 or 20 bytes."""

    cluster: str
    store_host: bytes
    permission: int = 6
    max_message_size: int = 4 << 20
    region_id: str = "DefaultRegion"
    trace_on: bool = True


@dataclass(frozen=True, slots=True)
class Topic:
    """What a send asks of a topic's settings."""

    read_queue_nums: int
    write_queue_nums: int
    order: bool = False
    multi_tag: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    unit_mode: bool
    max_reconsume_times: int | None
    batch: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was stored."""

    code: int


@dataclass(frozen=True, slots=True)
class Put:
    """What is to be stored, behind one another. queue_id: that of the answer. waits: for what chapter 4 lets a put wait for."""

    records: tuple[Record, ...]
    queue_id: int
    waits: bool


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    fields: tuple[tuple[str, str], ...]  # sorted


def parse(code: int, fields: Mapping[str, str], body: bytes) -> Send | Refusal:
    """Read the header of a send.

    Spec: HA-SE-1 "MUST take the codes 10 (SEND_MESSAGE), 310 (SEND_MESSAGE_V2) and 320 (SEND_BATCH_MESSAGE)"; HA-SE-2 "MUST be
    answered with 1 (SYSTEM_ERROR), and nothing of it stored".
    """
    found: dict[str, str | int | bool | None] = {}
    for long, short, kind in FIELDS:
        text = fields.get(short if code in SHORT_NAMES else long)
        if text is None:
            if not kind.endswith("?"):
                return Refusal(SYSTEM_ERROR)
            found[long] = {"text?": "", "i32?": None, "boolean?": False}[kind]
        elif kind.startswith("text"):
            found[long] = text
        elif kind.startswith("boolean"):
            found[long] = text.lower() == "true"
        else:
            number = _number(text, 32 if kind.startswith("i32") else 64)
            if number is None:
                return Refusal(SYSTEM_ERROR)
            found[long] = number
    found.pop("producerGroup")
    if found["reconsumeTimes"] is None:
        found["reconsumeTimes"] = 0
    return Send(*found.values(), body)  # type: ignore[arg-type,call-arg]


def _number(text: str, bits: int) -> int | None:
    if not re.fullmatch(r"[+-]?[0-9]{1,40}", text):
        return None
    return value if -(1 << bits - 1) <= (value := int(text)) < 1 << bits - 1 else None


# --- Checks ----------------------------------------------------------------------------------------------------------


def check_name(topic: str) -> Refusal | None:
    """Checks 2 and 3 of HA-SE-4 "MUST make the checks of the table below in their order"."""
    if not re.fullmatch(r"[%|a-zA-Z0-9_-]{1,127}", topic):
        return Refusal(SYSTEM_ERROR)
    return Refusal(NO_PERMISSION) if topic in NOT_ALLOWED else None


def topic_sys_flag(topic: str, unit_mode: bool) -> int:
    """The flag of a topic that a send creates. HA-SE-7 "MUST be 0 where `unitMode` is false"."""
    if not unit_mode:
        return 0
    return 2 if topic.startswith("%RETRY%") else 1


def is_created_for_retries(topic: str) -> bool:
    """Whether a topic that its default topic does not give is created all the same, with one queue.

    Spec: HA-SE-6 "and if that gives none and the name begins with `%RETRY%`".
    """
    return topic.startswith("%RETRY%")


def check(broker: Broker, topic: Topic | None, is_order_topic: bool, send: Send) -> Refusal | None:
    """All checks of HA-SE-4, in their order. topic: as it is after a creation; None where it was not created."""
    if not broker.permission & PERM_WRITE and is_order_topic:
        return Refusal(NO_PERMISSION)
    if refusal := check_name(send.topic):
        return refusal
    if topic is None:
        return Refusal(TOPIC_NOT_EXIST)
    if send.queue_id >= topic.write_queue_nums and send.queue_id >= topic.read_queue_nums:
        return Refusal(SYSTEM_ERROR)
    return None


# --- Records ---------------------------------------------------------------------------------------------------------


def on_send(
    broker: Broker, topic: Topic | None, is_order_topic: bool, send: Send, born_host: bytes, draw: int
) -> Put | Refusal:
    """What is to be stored of a send.

    Args:  born_host: address and port of its connection, of 8 or 20 bytes. draw: a number at random, from 0 on.
    Spec: HA-SE-3 "MUST be taken as a batch if its field `batch` is true"; HA-SE-8 "MUST go to a queue below `writeQueueNums` of
    the topic, chosen at random".
    """
    # GUARD
    if refusal := check(broker, topic, is_order_topic, send):
        return refusal
    assert topic is not None
    if send.queue_id < 0 and topic.write_queue_nums <= 0:
        return Refusal(SYSTEM_ERROR)
    queue_id = send.queue_id if send.queue_id >= 0 else draw % topic.write_queue_nums
    sys_flag = _sys_flag(broker, topic, send, born_host)
    # OUTPUT
    pairs = _pairs(send.properties)
    if send.batch:
        return _batch(broker, send, pairs, queue_id, sys_flag, born_host)
    if pairs.get("TRAN_MSG", "").lower() == "true":  # HA-SE-14 "MUST answer a message whose property TRAN_MSG is true with 16"
        return Refusal(NO_PERMISSION)
    if len(send.body) > broker.max_message_size:  # HA-SE-13 "if its body has more than `maxMessageSize` bytes"
        return Refusal(MESSAGE_ILLEGAL)
    # HA-SE-11 "MUST be the pairs of the send, in any order, without WAIT, and with CLUSTER"
    stored = {name: value for name, value in pairs.items() if name not in ("WAIT", "CLUSTER")}
    properties = _joined({**stored, "CLUSTER": broker.cluster})
    if _are_illegal(properties):
        return Refusal(MESSAGE_ILLEGAL)
    record = _record(broker, send, send.body, send.flag, properties, queue_id, sys_flag, born_host)
    return Put((record,), queue_id, waits(send.properties))


def _sys_flag(broker: Broker, topic: Topic, send: Send, born_host: bytes) -> int:
    """HA-SE-10 "say whether the two hosts are IPv6, whatever the send says of them"."""
    sys_flag = send.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    if topic.multi_tag:
        sys_flag |= MULTI_TAGS
    if len(born_host) > 8:
        sys_flag |= BORN_HOST_V6
    if len(broker.store_host) > 8:
        sys_flag |= STORE_HOST_V6
    return sys_flag


def _record(
    broker: Broker, send: Send, body: bytes, flag: int, properties: bytes, queue_id: int, sys_flag: int, born_host: bytes
) -> Record:
    """HA-SE-9 "MUST have the topic, the body, the `flag`, the `bornTimestamp` and the `reconsumeTimes` of the send"."""
    return Record(
        topic=send.topic.encode(),
        body=body,
        properties=properties,
        queue_id=queue_id,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=send.born_timestamp,
        born_host=born_host,
        store_host=broker.store_host,
        reconsume_times=send.reconsume_times,
    )


def _batch(broker: Broker, send: Send, pairs: dict[str, str], queue_id: int, sys_flag: int, born_host: bytes) -> Put | Refusal:
    """HA-SE-21 "MUST become a record of its own"."""
    # HA-SE-23 "MUST be answered with 13 if its `sysFlag` has the bit 4 or 8"
    if len(send.body) > broker.max_message_size or send.sys_flag & TRANSACTION_BITS:
        return Refusal(MESSAGE_ILLEGAL)
    delay = _number(pairs.get("DELAY", "0"), 32)
    if delay is None:
        return Refusal(SYSTEM_ERROR)
    if delay > 0:
        return Refusal(MESSAGE_ILLEGAL)
    read = items(send.body)
    if read is None:
        return Refusal(SYSTEM_ERROR)
    shared = _joined({**pairs, "CLUSTER": broker.cluster})
    records = []
    for flag, body, own in read:
        # HA-SE-22 "then 0x02 where these are neither empty nor end in one"
        properties = own + (b"\x02" if own and not own.endswith(b"\x02") else b"") + shared
        if _are_illegal(properties):
            return Refusal(MESSAGE_ILLEGAL)
        records.append(_record(broker, send, body, flag, properties, queue_id, sys_flag, born_host))
    if sum(map(len, map(encode, records))) > MAX_BATCH:
        return Refusal(MESSAGE_ILLEGAL)
    return Put(tuple(records), queue_id, waits(send.properties))


def items(body: bytes) -> tuple[tuple[int, bytes, bytes], ...] | None:
    """The items of a batch: flag, body, properties. None for a body that HA-SE-20 has answered with 1.

    Spec: HA-SE-20 "MUST be read as items of the form below, one behind another to the end".
    """
    found, at = [], 0
    while at < len(body):
        flag = int.from_bytes(body[at + 12 : at + 16], "big", signed=True)
        length = int.from_bytes(body[at + 16 : at + 20], "big", signed=True)
        end = at + 20 + length
        if len(body) < at + 20 or length < 0 or end + 2 > len(body):
            return None
        properties_length = int.from_bytes(body[end : end + 2], "big", signed=True)
        if properties_length < 0 or end + 2 + properties_length > len(body):
            return None
        found.append((flag, body[at + 20 : end], body[end + 2 : end + 2 + properties_length]))
        at = end + 2 + properties_length
    return tuple(found) or None


def _are_illegal(properties: bytes) -> bool:
    """Whether no record may hold them: too long, or zeros that recovery would take for a hole (HA-ST-89)."""
    return len(properties) > MAX_PROPERTIES or properties.endswith(b"\0") or bytes(512) in properties


def _pairs(properties: str) -> dict[str, str]:
    """The pairs of a property string. HA-ST-16: one without a name or a value is none; of a repeated name the last counts."""
    pairs: dict[str, str] = {}
    for text in properties.split("\x02"):
        at = text.find("\x01")
        if 0 < at < len(text) - 1:
            pairs[text[:at]] = text[at + 1 :]
    return pairs


def _joined(pairs: Mapping[str, str]) -> bytes:
    return b"\x02".join(name.encode() + b"\x01" + value.encode() for name, value in pairs.items())


# --- Answers ---------------------------------------------------------------------------------------------------------


def answer(broker: Broker, put: Put | Refusal, status: str, offsets: tuple[int, ...], queue_offset: int) -> Answer:
    """The answer to a send that has passed `parse`. Of a Refusal, its code.

    Args:  status: of the put that has ended, in RocketMQ's word. offsets: physical, one for each record.
    Spec: HA-SE-30 "MUST be answered with the code of its put's status"; HA-SE-31 "the id that the store host and the record's
    physical offset make"; HA-SE-32 "MUST be the ids of its messages in order, joined by commas"; HA-SE-33 "MUST have the fields
    `MSG_REGION`, the broker's `regionId`"; HA-SE-34 "MUST be answered when its put has ended".
    """
    fields = {"MSG_REGION": broker.region_id, "TRACE_ON": "true" if broker.trace_on else "false"}
    if isinstance(put, Refusal):
        return Answer(put.code, tuple(sorted(fields.items())))
    code = CODES.get(status, SYSTEM_ERROR)
    if code in STORED:
        ids = [broker.store_host + offset.to_bytes(8, "big") for offset in offsets]
        fields["msgId"] = ",".join(each.hex().upper() for each in ids)
        fields["queueId"] = str(put.queue_id)
        fields["queueOffset"] = str(queue_offset)
    return Answer(code, tuple(sorted(fields.items())))
