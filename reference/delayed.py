"""Delayed messages: where they wait, and when they are delivered.

queue of level 1   | delivered | progress ->   due 3  due 4  due 9          a level is in order, so 9 waits for nothing but
queue of level 2   | delivered | progress ->   due 5                        its time; levels do not wait for each other
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.replace import replace

SYSTEM_ERROR: Final = 1
SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = b"RMQ_SYS_TRANS_HALF_TOPIC"
TIMERS: Final = (b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")
PREPARED: Final = 4  # of the two bits of sysFlag that say what part of a transaction a message is
ROLLED_BACK: Final = 12
TRANSACTION_BITS: Final = 12


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing is stored. code: of the answer."""

    code: int


# --- Properties ------------------------------------------------------------------------------------------------------


def pairs(properties: bytes) -> dict[bytes, bytes]:
    """The pairs of a property string; one without a name or a value is none, and of a repeated name the last counts."""
    found = {}
    for text in properties.split(b"\x02"):
        at = text.find(b"\x01")
        if 0 < at < len(text) - 1:
            found[text[:at]] = text[at + 1 :]
    return found


def joined(found: Mapping[bytes, bytes]) -> bytes:
    """The property string of pairs."""
    return b"\x02".join(name + b"\x01" + value for name, value in found.items())


def integer(text: bytes | None, bits: int = 32) -> int | None:
    """A signed integer in decimal digits; None if there is none of so many bits."""
    if text is None or not re.fullmatch(rb"[+-]?[0-9]{1,20}", text):
        return None
    value = int(text)
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


# --- One message -----------------------------------------------------------------------------------------------------


def on_put(record: Record, found: Mapping[bytes, bytes], greatest: int) -> Record | Refusal:
    """What is put of a message, which may be delayed.

    Args:  found: its pairs, WAIT among them; they replace those of the record if it is delayed. greatest: level.
    Spec: HA-SE-50 "MUST be put into `SCHEDULE_TOPIC_XXXX` instead"; HA-SE-51 "MUST count as the greatest"; HA-SE-52 "MUST be
    answered with 1 (SYSTEM_ERROR)"; HA-SE-53 "and no `DELAY` above 0, MUST be answered with 1".
    """
    # GUARD
    if record.sys_flag & TRANSACTION_BITS in (PREPARED, ROLLED_BACK):
        return record
    level = integer(found.get(b"DELAY", b"0"))
    if level is None:
        return Refusal(SYSTEM_ERROR)
    if level <= 0:
        return Refusal(SYSTEM_ERROR) if any(timer in found for timer in TIMERS) else record
    # OUTPUT
    level = min(level, greatest)
    kept = {name: value for name, value in found.items() if name not in TIMERS}
    kept[b"DELAY"] = b"%d" % level
    kept[b"REAL_TOPIC"] = record.topic
    kept[b"REAL_QID"] = b"%d" % record.queue_id
    return replace(record, topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=joined(kept))


def time_up(record: Record) -> Record | None:
    """What is put when a message is due; None for one that cannot be delivered at any time.

    Spec: HA-SE-56 "MUST have the topic `REAL_TOPIC`, the queue `REAL_QID`, and the body, the properties"; HA-SE-57 "MUST be
    passed over if it cannot be delivered at any time".
    """
    found = pairs(record.properties)
    topic, queue_id = found.get(b"REAL_TOPIC"), integer(found.get(b"REAL_QID"))
    if topic in (None, HALF_TOPIC) or queue_id is None:
        return None
    assert topic is not None
    return replace(record, topic=topic, queue_id=queue_id, queue_offset=0, physical_offset=0, prepared_transaction_offset=0)


# --- All of them -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Waiting:
    """An entry in the queue of a level. due: ms since 1970. record: None where the log has it no more."""

    due: int
    record: Record | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """progress: for each level the queue offset of the next message. persisted: what the file says; pending: what it will say
    when the log is flushed up to an offset. HA-R-7 "MUST run on masters only": a slave has none."""

    delays_ms: tuple[int, ...]
    progress: tuple[int, ...]
    persisted: tuple[int, ...]
    pending: tuple[int, tuple[int, ...]] | None = None


def begin(delays_ms: tuple[int, ...], persisted: tuple[int, ...], queues: tuple[tuple[int, int], ...]) -> Delivery:
    """The start of a master. persisted: 0 where the file says nothing. queues: the first offset of each, and the one behind it.

    Spec: HA-SE-61 "MUST be moved to the first or the behind-last offset of its queue"; HA-SE-62 "After a kill the master
    delivers again what it has delivered since it wrote the progress": that is what this function begins with.
    """
    progress = tuple(min(max(at, first), last) for at, (first, last) in zip(persisted, queues, strict=True))
    return Delivery(delays_ms, progress, persisted)


def is_due(due: int, delay_ms: int, now: int) -> bool:
    """HA-SE-54 "MUST NOT be delivered while its time is ahead of the master's clock, unless it is ahead by more"."""
    return due <= now or due > now + delay_ms


def deliver(
    state: Delivery, queues: tuple[tuple[Waiting, ...], ...], now: int, room: int, at_most: int
) -> tuple[Delivery, tuple[Record, ...]]:
    """A turn: what is due, level by level.

    Args:  queues: all entries of each level, from 0 on. room: messages that the store takes. at_most: entries of one level.
    Returns: the next state, and what is put.
    Spec: HA-SE-55 "MUST be delivered in the order of their queue"; HA-SE-58 "the progress of its level stays before it";
    HA-SE-59 "MUST be the queue offset behind the last message that was delivered or passed over".
    """
    put: list[Record] = []
    progress = list(state.progress)
    for index, (delay_ms, queue) in enumerate(zip(state.delays_ms, queues, strict=True)):
        for waiting in queue[progress[index] : progress[index] + at_most]:
            if not is_due(waiting.due, delay_ms, now):
                break
            record = None if waiting.record is None else time_up(waiting.record)
            if record is not None:
                if len(put) == room:
                    return replace(state, progress=tuple(progress)), tuple(put)
                put.append(record)
            progress[index] += 1
    return replace(state, progress=tuple(progress)), tuple(put)


def on_persist(state: Delivery, max_offset: int) -> Delivery:
    """The time to write the progress has come. max_offset: of the log.

    Spec: HA-SE-60 "MUST NOT be ahead of the disk".
    """
    if state.pending is None and state.progress != state.persisted:
        return replace(state, pending=(max_offset, state.progress))
    return state


def on_flush(state: Delivery, flushed_offset: int) -> Delivery:
    """The log is on the disk up to an offset."""
    if state.pending is None or flushed_offset < state.pending[0]:
        return state
    return replace(state, persisted=state.pending[1], pending=None)
