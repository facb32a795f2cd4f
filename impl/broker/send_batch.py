"""The body of a batch, and the messages that the broker makes of it."""

import re
from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple

from rocketmq_ha.impl.errors import MessageIllegal, RequestInvalid
from rocketmq_ha.impl.wire.batch import MessageBatch
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, Message
from rocketmq_ha.impl.wire.properties import parse_properties
from rocketmq_ha.spec.constants import (
    IPV6_EXTRA_SIZE,
    MAX_PROPERTIES_LENGTH,
    MESSAGE_FIXED_SIZE,
    PROPERTY_NAME_SEPARATOR,
    PROPERTY_SEPARATOR,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)

# i32 size, i32 0, i32 0, i32 flag, i32 body length. The broker looks at the last two alone.
_HEAD: Final = Struct(">12xii")
_PROPERTIES_LENGTH: Final = Struct(">h")
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_I32: Final = re.compile(r"[+-]?[0-9]{1,20}")


class BatchItem(NamedTuple):
    """One message of a batch; its properties as bytes, as they go into the record."""

    flag: int
    body: bytes
    properties: bytes


class Batch(NamedTuple):
    """What is appended of a batch. sizes: bytes of each record."""

    messages: MessageBatch | Sequence[Message]
    sizes: Sequence[int]


def batch_of(head: Message, properties: str, cluster: str, body: bytes, max_message_size: int) -> Batch:
    """Make the messages of a batch.

    Args:  head: all that they share. properties: of the send. body: of the request. max_message_size: bytes.
    Raises: RequestInvalid for a body that is no batch; MessageIllegal.
    Spec: HA-SE-22 "MUST be those of the item, byte by byte, then 0x02 where these are neither empty nor end in one";
    HA-SE-23 "MUST be answered with 13".
    """
    if len(body) > max_message_size:
        raise MessageIllegal("body", f"{len(body)} bytes", f"at most {max_message_size} bytes")
    if head.sys_flag & TRANSACTION_MASK:
        raise MessageIllegal("sysFlag of a batch", f"{head.sys_flag:#x}", "no part of a transaction")
    pairs = parse_properties(properties)
    if (delay := _delay_level(pairs.get("DELAY", "0"))) > 0:
        raise MessageIllegal("DELAY of a batch", delay, "no delay")
    pairs["CLUSTER"] = cluster
    shared = PROPERTY_SEPARATOR.join(f"{name}{PROPERTY_NAME_SEPARATOR}{value}" for name, value in pairs.items())
    shared_bytes = shared.encode("utf-8", "surrogateescape")
    items = read_items(body)
    stored = [own + (_SEPARATOR if own and not own.endswith(_SEPARATOR) else b"") + shared_bytes for _, _, own in items]
    longest = max(map(len, stored))
    if longest > MAX_PROPERTIES_LENGTH:
        raise MessageIllegal("properties", f"{longest} bytes", f"at most {MAX_PROPERTIES_LENGTH} bytes")
    texts = [each.decode("utf-8", "surrogateescape") for each in stored]
    fixed = _fixed_size(head)
    sizes = [fixed + len(item.body) + len(each) for item, each in zip(items, stored, strict=True)]
    if len({item.flag for item in items}) == 1:
        return Batch(MessageBatch(replace(head, flag=items[0].flag), [item.body for item in items], texts), sizes)
    messages = [
        replace(head, flag=item.flag, body=item.body, properties_string=text) for item, text in zip(items, texts, strict=True)
    ]
    return Batch(messages, sizes)


def read_items(data: bytes) -> list[BatchItem]:
    """Read the body of a batch.

    Raises: RequestInvalid if it has no item, or does not end with one.
    Spec: HA-SE-20 "a body without an item, or whose last item is not whole, is answered with 1".
    """
    items: list[BatchItem] = []
    at, end = 0, len(data)
    while at < end:
        body = at + _HEAD.size
        if body > end:
            raise _cut(len(items), at, end)
        flag, body_length = _HEAD.unpack_from(data, at)
        properties = body + body_length + _PROPERTIES_LENGTH.size
        if body_length < 0 or properties > end:
            raise _cut(len(items), at, end)
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(data, properties - _PROPERTIES_LENGTH.size)
        begin, at = at, properties + properties_length
        if properties_length < 0 or at > end:
            raise _cut(len(items), begin, end)
        items.append(BatchItem(flag, data[body : body + body_length], data[properties:at]))
    if not items:
        raise RequestInvalid("batch", "no messages", "at least one")
    return items


def _cut(number: int, at: int, end: int) -> RequestInvalid:
    return RequestInvalid("batch", f"message {number}, from byte {at} on, that is not whole", f"it to end by byte {end}")


def _fixed_size(head: Message) -> int:
    """The bytes of each record without body and properties."""
    v6 = bool(head.sys_flag & SYS_FLAG_BORN_HOST_V6) + bool(head.sys_flag & SYS_FLAG_STORE_HOST_V6)
    return MESSAGE_FIXED_SIZE + len(head.topic_bytes) + IPV6_EXTRA_SIZE * v6


def _delay_level(text: str) -> int:
    """The property DELAY. Raises: RequestInvalid if it is no i32."""
    if _I32.fullmatch(text) and -(1 << 31) <= int(text) < 1 << 31:
        return int(text)
    raise RequestInvalid("property DELAY", repr(text[:60]), "an i32")
