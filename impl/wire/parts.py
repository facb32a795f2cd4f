"""The parts of a usual record, for a writer that is in a hurry: V1, both hosts IPv4, no part of a transaction.

    88 bytes of head | body | tail: topic length, topic, properties length, properties

`encode` makes every record there can be, in one go. These parts are the same bytes, but what messages share, topics and
hosts, is made once, and a writer can lay them straight into a mapping. A property test holds the two together.

Spec: HA-ST-2.  Source: 4.9.8 CommitLog.MessageExtEncoder.
"""

import struct
from typing import Final, NamedTuple

from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, Host, Message, encode
from rocketmq_ha.spec.constants import (
    MAX_MESSAGE_SIZE,
    MAX_PROPERTIES_LENGTH,
    MESSAGE_FIXED_SIZE,
    MESSAGE_MAGIC_CODE,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)

# total size, magic, body CRC, queue id, flag, queue offset, physical offset, sysFlag, born timestamp, born host, store
# timestamp, store host, reconsume times, prepared transaction offset, body length: 88 bytes.
USUAL_HEAD: Final = struct.Struct(">iIIiiqqiq8sq8siqi")
USUAL_MAGIC: Final = MESSAGE_MAGIC_CODE
# Bits of sysFlag that a usual record has not.
UNUSUAL_FLAGS: Final = TRANSACTION_MASK | SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
# A usual record is this and its body, topic and properties.
USUAL_SIZE: Final = MESSAGE_FIXED_SIZE

_REMEMBERED: Final = 4096


class TopicPart(NamedTuple):
    """What a topic looks like in a record."""

    topic: bytes
    prefix: bytes  # its length and itself
    alone: bytes  # the whole tail of a record without properties


class Parts:
    """Makes parts, and remembers those of topics and hosts. Any thread may use it: at worst one part is made twice."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicPart] = {}
        self.hosts: dict[Host, bytes] = {}

    def topic(self, topic: str) -> TopicPart:
        """Raises: MessageIllegal for a topic that no V1 record holds, or that recovery would not take for whole."""
        record = encode(Message(topic, b""))  # its checks are the checks
        if record[-3] == 0:
            raise MessageIllegal("topic", "a zero byte at the end", "none: recovery would cut it off")
        part = TopicPart(record[89:-2], record[88:-2], record[88:])
        if len(self.topics) < _REMEMBERED:
            self.topics[topic] = part
        return part

    def host(self, host: Host) -> bytes:
        """Raises: MessageIllegal for a host that is not IPv4."""
        part = encode(Message("t", b"", born_host=host))[48:56]
        if len(self.hosts) < _REMEMBERED:
            self.hosts[host] = part
        return part


def properties_part(properties_string: str) -> bytes:
    """The properties as a record has them, behind their length of two bytes.

    Raises: MessageIllegal where there are too many bytes of them, or where recovery would not take them for whole.
    """
    try:
        properties = properties_string.encode()
    except UnicodeEncodeError:
        properties = Message("t", b"", properties_string=properties_string).properties_bytes
    if len(properties) > MAX_PROPERTIES_LENGTH:
        raise MessageIllegal("properties", f"{len(properties)} bytes", f"at most {MAX_PROPERTIES_LENGTH} bytes")
    if properties and not properties[-1]:
        raise MessageIllegal("properties", "a zero byte at the end", "none: recovery would cut it off")
    return properties


def check_body(size: int) -> None:
    """Raises: MessageIllegal for a body that is too long."""
    if size > MAX_MESSAGE_SIZE:
        raise MessageIllegal("body", f"{size} bytes", f"at most {MAX_MESSAGE_SIZE} bytes")
