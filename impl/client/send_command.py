"""The requests that carry messages: one message (310) or a batch (320), with their ids, compressed or not.

Source: 4.9.8 DefaultMQProducerImpl.sendKernelImpl, MessageBatch, MessageDecoder.encodeMessage, SendMessageRequestHeaderV2.
"""

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from rocketmq_ha.impl.client.route_data import DEFAULT_TOPIC_QUEUE_NUMS, RETRY_GROUP_TOPIC_PREFIX, TBW102
from rocketmq_ha.impl.client.unique_id import UNIQ_KEY
from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.remoting.codes import RequestCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request
from rocketmq_ha.impl.wire.message import COMPRESSION_TYPE_MASK, TRANSACTION_MASK, Message
from rocketmq_ha.impl.wire.properties import format_properties, parse_properties
from rocketmq_ha.spec.constants import MAX_MESSAGE_SIZE, MAX_PROPERTIES_LENGTH, SYS_FLAG_COMPRESSED

COMPRESS_MSG_BODY_OVER_HOWMUCH: Final = 4096  # bytes
ZLIB: Final = 0x300  # bits of sysFlag
_LEVEL: Final = 5
_ITEM: Final = Struct(">iiiii")  # size, 0, 0, flag, body size
_PROPERTIES_LENGTH: Final = Struct(">h")


class Prepared(NamedTuple):
    """What all attempts of a send have in common: its fields but for the queue, and its body."""

    code: RequestCode
    topic: str
    ext_fields: dict[str, str]
    body: bytes
    uniq_keys: tuple[str, ...]

    def command(self, queue_id: int, *, oneway: bool = False) -> RemotingCommand:
        """The request of one attempt."""
        return request(self.code, {**self.ext_fields, "e": str(queue_id)}, self.body, oneway=oneway)


def prepare(message: Message, group: str, uniq_key: str) -> Prepared:
    """A message as it is sent.

    Args:  uniq_key: used where the message has none. A body that is compressed already (sysFlag) stays as it is.
    Raises: MessageIllegal.
    Spec: HA-C-7 "A message without the property UNIQ_KEY MUST get one"; HA-C-8 "`sysFlag` MUST then have the bits 1".
    """
    properties = _properties(message, uniq_key)
    body, sys_flag = message.body, message.sys_flag & (SYS_FLAG_COMPRESSED | COMPRESSION_TYPE_MASK)
    if not sys_flag & SYS_FLAG_COMPRESSED:
        sys_flag = 0
        if len(body) >= COMPRESS_MSG_BODY_OVER_HOWMUCH:
            body, sys_flag = zlib.compress(body, _LEVEL), SYS_FLAG_COMPRESSED | ZLIB
    text = format_properties(properties)
    _check_sizes(len(message.body), text)
    fields = _fields(message, group, sys_flag, text, is_batch=False)
    return Prepared(RequestCode.SEND_MESSAGE_V2, message.topic, fields, body, (properties[UNIQ_KEY],))


def prepare_batch(messages: Sequence[Message], group: str, uniq_keys: Sequence[str]) -> Prepared:
    """A batch as it is sent. Raises: MessageIllegal. HA-C-9 "A batch MUST have messages of one topic alone"."""
    if not messages:
        raise MessageIllegal("batch", "no messages", "at least one")
    topic = messages[0].topic
    items, keys = [], []
    waits = parse_properties(messages[0].properties_string).get("WAIT", "true")
    for message, uniq_key in zip(messages, uniq_keys, strict=True):
        properties = _properties(message, uniq_key)
        delay = properties.get("DELAY", "0")
        if message.topic != topic:
            raise MessageIllegal("batch", f"the topics {topic} and {message.topic}", "one topic")
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise MessageIllegal("batch", f"the topic {topic}", f"none that begins with {RETRY_GROUP_TOPIC_PREFIX}")
        if not delay.isdecimal() or int(delay) > 0:
            raise MessageIllegal("batch", f"a message with DELAY={delay}", "no delayed messages")
        if properties.get("WAIT", "true") != waits:
            raise MessageIllegal("batch", "messages that wait and others that do not", "one value of WAIT")
        if message.sys_flag & SYS_FLAG_COMPRESSED:
            raise MessageIllegal("batch", "a compressed body", "bodies as they are")
        text = format_properties(properties)
        _check_sizes(len(message.body), text)
        encoded = text.encode("utf-8", "surrogateescape")
        size = _ITEM.size + len(message.body) + _PROPERTIES_LENGTH.size + len(encoded)
        head = _ITEM.pack(size, 0, 0, message.flag, len(message.body))
        items.append(head + message.body + _PROPERTIES_LENGTH.pack(len(encoded)) + encoded)
        keys.append(properties[UNIQ_KEY])
    body = b"".join(items)
    if len(body) > MAX_MESSAGE_SIZE:
        raise MessageIllegal("batch", f"{len(body)} bytes", f"at most {MAX_MESSAGE_SIZE}")
    shared = "WAIT\x01false" if waits == "false" else ""
    fields = _fields(messages[0], group, 0, shared, is_batch=True)
    return Prepared(RequestCode.SEND_BATCH_MESSAGE, topic, fields, body, tuple(keys))


def _properties(message: Message, uniq_key: str) -> dict[str, str]:
    if message.sys_flag & TRANSACTION_MASK:
        raise MessageIllegal("sys_flag", f"{message.sys_flag:#x}, part of a transaction", "an ordinary message")
    properties = parse_properties(message.properties_string)
    properties.setdefault(UNIQ_KEY, uniq_key)
    return properties


def _check_sizes(body_size: int, properties: str) -> None:
    if body_size > MAX_MESSAGE_SIZE:
        raise MessageIllegal("body", f"{body_size} bytes", f"at most {MAX_MESSAGE_SIZE}")
    size = len(properties.encode("utf-8", "surrogateescape"))
    if size > MAX_PROPERTIES_LENGTH:
        raise MessageIllegal("properties", f"{size} bytes", f"at most {MAX_PROPERTIES_LENGTH}")


def _fields(message: Message, group: str, sys_flag: int, properties: str, *, is_batch: bool) -> dict[str, str]:
    """The header of 310 and 320, but for the queue. HA-SE-1 "with the header fields of the table below"."""
    return {
        "a": group,
        "b": message.topic,
        "c": TBW102,
        "d": str(DEFAULT_TOPIC_QUEUE_NUMS),
        "f": str(sys_flag),
        "g": str(message.born_timestamp),
        "h": str(message.flag),
        "i": properties,
        "j": str(message.reconsume_times),
        "k": "false",
        "m": "true" if is_batch else "false",
    }
