"""Transactions: half messages, how they end, and how those that do not are checked.

    half topic    0  1  2  3  4          a half message is passed once: it has ended, it is given up, or a copy of it is put
    op topic      0 -> ends 1            at the end of the same topic
                  1 -> ends 0

The half topic and the op topic are tuples here, from queue offset 0 on; a record's place in the log is its physical offset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.delayed import HALF_TOPIC, TRANSACTION_BITS, Refusal, integer, joined, on_put, pairs
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.send_back import message_id

SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
SLAVE_NOT_AVAILABLE: Final = 11
MESSAGE_ILLEGAL: Final = 13
NOT_KNOWN: Final = 0
COMMIT: Final = 8
ROLLBACK: Final = 12
OP_TOPIC: Final = b"RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = b"TRANS_CHECK_MAX_TIME_TOPIC"
BORN_HOST_V6: Final = 16


# --- Prepared messages -----------------------------------------------------------------------------------------------


def is_prepared(found: Mapping[bytes, bytes], reconsume_times: int) -> bool:
    """HA-SE-75 "MUST count as prepared if its property `TRAN_MSG` is true, in any case of letters"."""
    is_retried = reconsume_times > 0 and (integer(found.get(b"DELAY")) or 0) > 0
    return found.get(b"TRAN_MSG", b"").lower() == b"true" and not is_retried


def on_prepared(record: Record, found: Mapping[bytes, bytes]) -> Record | Refusal:
    """The half message of a prepared one.

    Spec: HA-SE-76 "MUST be put into queue 0 of `RMQ_SYS_TRANS_HALF_TOPIC`"; HA-SE-77 "MUST be answered with 13".
    """
    if (integer(found.get(b"DELAY")) or 0) > 0:
        return Refusal(MESSAGE_ILLEGAL)
    kept = {**found, b"REAL_TOPIC": record.topic, b"REAL_QID": b"%d" % record.queue_id}
    sys_flag = record.sys_flag - (record.sys_flag & TRANSACTION_BITS)
    return replace(record, topic=HALF_TOPIC, queue_id=0, sys_flag=sys_flag, properties=joined(kept))


# --- The end ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class End:
    """A request 37."""

    group: bytes
    queue_offset: int
    offset: int
    kind: int  # COMMIT, ROLLBACK or NOT_KNOWN


@dataclass(frozen=True, slots=True)
class Ended:
    """What a request does: the record of a commit, if it is one, and then the op message."""

    message: Record | None
    op: Record


def parse(fields: Mapping[str, str]) -> End | Refusal:
    """Read the header of a request. HA-SE-78 "with another `commitOrRollback` than these three, with 1"."""
    group = fields.get("producerGroup")
    numbers = [
        integer(fields.get(name, "").encode(), bits)
        for name, bits in (("tranStateTableOffset", 64), ("commitLogOffset", 64), ("commitOrRollback", 32))
    ]
    if group is None:
        return Refusal(SYSTEM_ERROR)
    queue_offset, offset, kind = numbers
    if queue_offset is None or offset is None or kind not in (COMMIT, ROLLBACK, NOT_KNOWN):
        return Refusal(SYSTEM_ERROR)
    assert kind is not None
    return End(group.encode(), queue_offset, offset, kind)


def on_end(
    end: End, half: Record | None, is_slave: bool, broker_host: bytes, now: int, greatest_level: int
) -> Ended | Refusal | None:
    """The end of a half message; None if there is no answer and nothing to do.

    Args:  half: what stands at the offset of the request.
    Spec: HA-SE-79 "MUST answer 37 with 11 (SLAVE_NOT_AVAILABLE)"; HA-SE-80 "changes nothing, and has no answer"; HA-SE-81
    "MUST be answered with 1, and change nothing"; HA-SE-84 "MUST NOT be put before the message itself": the order of `Ended`;
    HA-SE-97 "is taken like the first": op messages are no argument.
    """
    # GUARD
    if is_slave:
        return Refusal(SLAVE_NOT_AVAILABLE)
    if end.kind == NOT_KNOWN:
        return None
    if half is None or half.topic != HALF_TOPIC or half.queue_offset != end.queue_offset:
        return Refusal(SYSTEM_ERROR)
    if pairs(half.properties).get(b"PGROUP") != end.group:
        return Refusal(SYSTEM_ERROR)
    # OUTPUT
    op = op_message(half, broker_host, now)
    if end.kind == ROLLBACK:
        return Ended(None, op)
    message = committed(half, greatest_level)
    return message if isinstance(message, Refusal) else Ended(message, op)


def committed(half: Record, greatest_level: int) -> Record | Refusal:
    """HA-SE-82 "MUST put the message into `REAL_TOPIC` and `REAL_QID`, with the bits 4 and 8 of `sysFlag` set to 8"."""
    found = pairs(half.properties)
    topic, queue_id = found.get(b"REAL_TOPIC"), integer(found.get(b"REAL_QID"))
    if topic is None or queue_id is None:
        return Refusal(MESSAGE_ILLEGAL)
    message = replace(
        half,
        topic=topic,
        queue_id=queue_id,
        sys_flag=half.sys_flag - (half.sys_flag & TRANSACTION_BITS) + COMMIT,
        prepared_transaction_offset=half.physical_offset,
        queue_offset=0,
        physical_offset=0,
    )
    found.pop(b"TRAN_MSG", None)
    return on_put(message, found, greatest_level)


def op_message(half: Record, broker_host: bytes, now: int) -> Record:
    """HA-SE-83 "the master MUST put an op message"."""
    return Record(
        OP_TOPIC,
        b"%d" % half.queue_offset,
        b"WAIT\x01true\x02TAGS\x01d",
        queue_id=half.queue_id,
        sys_flag=BORN_HOST_V6 if len(broker_host) == 20 else 0,
        born_timestamp=now,
        born_host=broker_host,
    )


def code_of(ended: Ended | Refusal, refused: int | None) -> int:
    """The code of the answer. refused: that of the put of the commit (HA-SE-30), None if it was stored.

    Spec: HA-SE-85 "A commit that is refused MUST be answered with the code of HA-SE-30".
    """
    if isinstance(ended, Refusal):
        return ended.code
    return SUCCESS if ended.message is None or refused is None else refused


# --- The check -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settings:
    """In ms."""

    timeout: int = 6_000
    check_max: int = 15
    reserved: int = 72 * 3_600_000


@dataclass(frozen=True, slots=True)
class Progress:
    """The queue offsets of the next half message and of the next op message. HA-SE-96 "MUST keep how far it has come"."""

    half: int = 0
    op: int = 0


@dataclass(frozen=True, slots=True)
class Copy:
    """A half message is put anew; its producer is asked about the copy if `asks`."""

    record: Record
    asks: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    record: Record


def ends_of(op: Record) -> tuple[int, ...]:
    """The half messages that an op message ends. HA-SE-86 "MUST take a body of several queue offsets with commas"."""
    if pairs(op.properties).get(b"TAGS") != b"d":
        return ()
    return tuple(offset for text in op.body.split(b",") if (offset := integer(text, 64)) is not None)


def names_of(half: Record) -> tuple[int, ...]:
    """Its own queue offset, and that of the message it is a copy of. HA-SE-88 "if it has ended"."""
    first = integer(pairs(half.properties).get(b"TRAN_PREPARED_QUEUE_OFFSET"), 64)
    return (half.queue_offset,) if first is None else (half.queue_offset, first)


def judge(half: Record, ended: frozenset[int], begin: int, now: int, settings: Settings) -> Copy | GivenUp | str:
    """What a round does with a half message: "passed" if it has ended, "stop" if it ends the round.

    Spec: HA-SE-87 "to the first that was stored after its own begin"; HA-SE-88 "MUST be passed without more"; HA-SE-89
    "MUST end the round"; HA-SE-90 "MUST take the place of the 6 s"; HA-SE-91 "MUST be put behind the others as a copy";
    HA-SE-94 "MUST be moved to queue 0 of `TRANS_CHECK_MAX_TIME_TOPIC` instead".
    """
    if ended.intersection(names_of(half)):
        return "passed"
    found = pairs(half.properties)
    age = now - half.born_timestamp
    times = 0
    if b"TRANSACTION_CHECK_TIMES" in found:
        read = integer(found[b"TRANSACTION_CHECK_TIMES"])
        times = -1 if read is None else read
        if times >= settings.check_max:
            return GivenUp(given_up(half))
    if age > settings.reserved:
        return GivenUp(given_up(half))
    if half.store_timestamp >= begin:
        return "stop"
    if b"CHECK_IMMUNITY_TIME_IN_SECONDS" in found:
        seconds = integer(found[b"CHECK_IMMUNITY_TIME_IN_SECONDS"], 64)
        immunity = settings.timeout if seconds is None or seconds == -1 else 1000 * seconds
        if age < immunity:
            found.setdefault(b"TRAN_PREPARED_QUEUE_OFFSET", b"%d" % half.queue_offset)
            return Copy(anew(half, found), asks=False)
    elif 0 <= age < settings.timeout:
        return "stop"
    found[b"TRANSACTION_CHECK_TIMES"] = b"%d" % (times + 1)
    return Copy(anew(half, found), asks=True)


def anew(half: Record, found: Mapping[bytes, bytes]) -> Record:
    return replace(half, properties=joined(found), queue_offset=0, physical_offset=0)


def given_up(half: Record) -> Record:
    return replace(half, topic=GIVEN_UP_TOPIC, queue_id=0, queue_offset=0, physical_offset=0)


def check(
    progress: Progress, halves: tuple[Record, ...], ops: tuple[Record, ...], now: int, room: int, settings: Settings
) -> tuple[Progress, tuple[Copy | GivenUp, ...]]:
    """A whole round, in which nobody ends a transaction. room: messages that the store takes.

    Returns: how far it has come, and what is put. HA-SE-95 "MUST end before the half message".
    """
    ended = frozenset(offset for op in ops[progress.op :] for offset in ends_of(op))
    put: list[Copy | GivenUp] = []
    passed: set[int] = set()
    at = progress.half
    for half in halves[progress.half :]:
        verdict = judge(half, ended, now, now, settings)
        if verdict == "stop":
            break
        if verdict == "passed":
            passed.update(names_of(half))
        else:
            assert not isinstance(verdict, str)
            if len(put) == room:
                break
            put.append(verdict)
        at += 1
    # Where the round ended, in the log; its copies stand behind all that was there before.
    stop = halves[at].physical_offset if at < len(halves) else None
    is_done = [all(_is_passed(each, op, at, passed, stop) for each in ends_of(op)) for op in ops[progress.op :]]
    done = is_done.index(False) if False in is_done else len(is_done)
    return Progress(at, progress.op + done), tuple(put)


def _is_passed(half: int, op: Record, at: int, passed: set[int], stop: int | None) -> bool:
    """Whether no later round needs to know that an op message has ended a half message.

    Its copies stand in the log before the op message. So they are passed if the round has come to a place behind that.
    """
    return half < at and (half in passed or stop is None or op.physical_offset < stop)


def request_of(copy: Record) -> tuple[Mapping[str, str], Record] | None:
    """The fields and the record of a request 39 about a copy; None if its topic or queue is not known.

    Spec: HA-SE-92 "as body the record of the copy with the topic `REAL_TOPIC` and the queue id `REAL_QID`".
    """
    found = pairs(copy.properties)
    topic, queue_id = found.get(b"REAL_TOPIC"), integer(found.get(b"REAL_QID"))
    if topic is None or queue_id is None:
        return None
    fields = {
        "tranStateTableOffset": str(copy.queue_offset),
        "commitLogOffset": str(copy.physical_offset),
        "offsetMsgId": message_id(copy).decode(),
    }
    unique = found.get(b"UNIQ_KEY")
    if unique is not None:
        fields["msgId"] = fields["transactionId"] = unique.decode()
    return fields, replace(copy, topic=topic, queue_id=queue_id)


def producer(channels: tuple[int, ...], asked: int) -> int | None:
    """Which of the producers of a group is asked, after so many questions.

    Spec: HA-SE-93 "MUST be one that is connected now; if the group has several, each request goes to the next".
    """
    return channels[(asked + 1) % len(channels)] if channels else None
