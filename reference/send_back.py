"""What a consumer sends back: the group's retry topic, or its dead letters.

times the message was tried   0 1 2 ... 15 | 16
where it goes                 %RETRY%group | %DLQ%group
level of its delay            3 4 5 ... 18 | 0
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference.delayed import Refusal, integer, joined, on_put, pairs
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.replace import replace

SUCCESS: Final = 0
SYSTEM_ERROR: Final = 1
NO_PERMISSION: Final = 16
SUBSCRIPTION_GROUP_NOT_EXIST: Final = 26
PERM_WRITE: Final = 2
V3_4_9: Final = 121

# HA-SE-65 "with the header fields of the table below": the name, the bits of a number, whether it must be there.
FIELDS: Final = (
    ("offset", 64, True),
    ("group", 0, True),
    ("delayLevel", 32, True),
    ("maxReconsumeTimes", 32, False),
)


@dataclass(frozen=True, slots=True)
class Group:
    """The settings of a consumer group that count here."""

    name: bytes
    retry_queue_nums: int = 1
    retry_max_times: int = 16


@dataclass(frozen=True, slots=True)
class SendBack:
    """A request 36. unit_mode is of its topic alone, and so not here."""

    offset: int
    group: bytes
    delay_level: int
    max_reconsume_times: int | None = None
    version: int = V3_4_9


def parse(fields: Mapping[str, str], version: int) -> SendBack | Refusal:
    """Read the header of a request."""
    found: dict[str, int | str | None] = {}
    for name, bits, is_needed in FIELDS:
        text = fields.get(name)
        if text is None:
            if is_needed:
                return Refusal(SYSTEM_ERROR)
            found[name] = None
        else:
            found[name] = integer(text.encode(), bits) if bits else text
            if found[name] is None:
                return Refusal(SYSTEM_ERROR)
    offset, group, level, times = found.values()
    assert isinstance(offset, int) and isinstance(level, int) and isinstance(group, str) and not isinstance(times, str)
    return SendBack(offset, group.encode(), level, times, version)


def greatest(group: Group, asked: int | None, version: int) -> int:
    """How often a message is tried. HA-SE-68 "have reached the greatest number"."""
    return group.retry_max_times if asked is None or version < V3_4_9 else asked


def message_id(record: Record) -> bytes:
    return (record.store_host + record.physical_offset.to_bytes(8, "big")).hex().upper().encode()


def on_send_back(
    request: SendBack,
    group: Group | None,
    permission: int,
    retry_permission: int | None,
    dlq_exists: bool,
    record: Record | None,
    draw: int,
    greatest_level: int,
) -> Record | Refusal:
    """What is stored, or the answer if nothing is.

    Args:  permission: of the broker. retry_permission: of the retry topic, None if it cannot be created. dlq_exists: the topic
           of dead letters is there, or can be created. record: at the offset of the request. draw: a number at random.
    Spec: HA-SE-66 "MUST make the checks of the table below in their order, and answer with the code of the first".
    """
    # GUARD
    if group is None:
        return Refusal(SUBSCRIPTION_GROUP_NOT_EXIST)
    if not permission & PERM_WRITE:
        return Refusal(NO_PERMISSION)
    if group.retry_queue_nums <= 0:
        return Refusal(SUCCESS)
    if retry_permission is None or len(group.name) > 127 - len("%RETRY%"):
        return Refusal(SYSTEM_ERROR)
    if not retry_permission & PERM_WRITE:
        return Refusal(NO_PERMISSION)
    if record is None:
        return Refusal(SYSTEM_ERROR)
    # OUTPUT
    # HA-SE-68 "MUST go to queue 0 of `%DLQ%` + group instead, with `DELAY` 0"
    times = record.reconsume_times
    is_dead = request.delay_level < 0 or times >= greatest(group, request.max_reconsume_times, request.version)
    if is_dead and not dlq_exists:
        return Refusal(SYSTEM_ERROR)
    found = pairs(record.properties)
    # HA-SE-67 "MUST be the message at the offset": and these changes
    found.setdefault(b"RETRY_TOPIC", record.topic)
    if not found.get(b"ORIGIN_MESSAGE_ID", b"").strip():
        found[b"ORIGIN_MESSAGE_ID"] = message_id(record)
    found[b"WAIT"] = b"false"
    if is_dead:
        topic, queue_id, level = b"%DLQ%" + group.name, 0, 0
    else:
        topic, queue_id = b"%RETRY%" + group.name, draw % group.retry_queue_nums
        # HA-SE-69 "MUST be the `delayLevel` of the request, or 3 plus the `reconsumeTimes`"
        level = request.delay_level if request.delay_level else 3 + times
    found[b"DELAY"] = b"%d" % level
    stored = replace(
        record,
        topic=topic,
        queue_id=queue_id,
        properties=joined(found),
        queue_offset=0,
        physical_offset=0,
        prepared_transaction_offset=0,
        reconsume_times=times + 1,
    )
    return on_put(stored, found, greatest_level)


def answer(put: Record | Refusal, status: str) -> tuple[int, str | None]:
    """Code and remark. status: of the put, in RocketMQ's word. HA-SE-70 "MUST be 0 if the message was stored, and else 1"."""
    if isinstance(put, Refusal):
        return put.code, None
    return (SUCCESS, None) if status == "PUT_OK" else (SYSTEM_ERROR, status)


def on_retry(
    record: Record, found: Mapping[bytes, bytes], group: Group | None, asked: int | None, version: int, dlq_exists: bool
) -> tuple[Record, Mapping[bytes, bytes]] | Refusal:
    """A send to a retry topic: what is put, and its pairs. HA-SE-71 "MUST be answered with 26 if the group is not known"."""
    if group is None:
        return Refusal(SUBSCRIPTION_GROUP_NOT_EXIST)
    if record.reconsume_times < greatest(group, asked, version):
        return record, found
    if not dlq_exists:
        return Refusal(SYSTEM_ERROR)
    dead = {name: value for name, value in found.items() if name != b"DELAY"}
    stored = {name: value for name, value in dead.items() if name != b"WAIT"}
    return replace(record, topic=b"%DLQ%" + group.name, queue_id=0, properties=joined(stored)), dead
