"""The message record of the commit log: a value, its bytes, and nothing between them that is lost.

record_layout.py says where each field stands. `encode(decode(x)) == x` for every record, byte by byte: strings pass as UTF-8
with surrogateescape, so that bytes which are no UTF-8 survive, and the properties stay the string that they were (see
properties.py).

Spec: HA-ST-2 "A message MUST be one record: total size, magic, body CRC, queue id, flag".
Source: article 003 section 1.1; 4.9.8 CommitLog.MessageExtEncoder and checkMessageAndReturnSize.
"""

import socket
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from rocketmq_ha.impl.errors import MessageIllegal, MessageMalformed
from rocketmq_ha.impl.wire.properties import parse_properties
from rocketmq_ha.impl.wire.record_layout import (
    AFTER_HOSTS,
    BEFORE_HOSTS,
    MAGICS,
    PROPERTIES_LENGTH_SIZE,
    SIZE_AND_MAGIC,
    STORE_TIMESTAMP,
    TOPIC_FORMS,
    Buffer,
    body_position,
    struct_of,
)
from rocketmq_ha.spec.constants import (
    BODY_CRC_MASK,
    MAX_MESSAGE_SIZE,
    MAX_PROPERTIES_LENGTH,
    MESSAGE_FIXED_SIZE,
    MESSAGE_MAGIC_CODE,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_STORE_HOST_V6,
)

Host: TypeAlias = tuple[str, int]  # ip address as text, port

# sysFlag bits 2 and 3 say what part a message has in a transaction (4.9.8 MessageSysFlag). A prepared or rolled-back
# message is in the log but in no queue.
TRANSACTION_MASK: Final = 0xC
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_ROLLBACK: Final = 0xC
UNQUEUED_TYPES: Final = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
# sysFlag bits 8 to 10 name the compressor (MessageSysFlag): 4.9.8 writes 3, zlib; 0, of older clients, means zlib too.
COMPRESSION_TYPE_MASK: Final = 0x700
COMPRESSION_TYPES: Final = {0x000: "zlib", 0x100: "LZ4", 0x200: "ZSTD", 0x300: "zlib"}

_BEFORE_HOSTS: Final = struct_of(*BEFORE_HOSTS)
_STORE_TIMESTAMP: Final = struct_of(STORE_TIMESTAMP)  # stands between the two hosts
_AFTER_HOSTS: Final = struct_of(*AFTER_HOSTS)
_SIZE_WITHOUT_HOSTS: Final = _BEFORE_HOSTS.size + _STORE_TIMESTAMP.size + _AFTER_HOSTS.size
_PORT: Final = struct.Struct(">i")  # of a host
_PROPERTIES_LENGTH: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Message:
    """One record of the commit log as a value; two equal messages have equal bytes.

    `body` is the stored body, compressed where sysFlag bit 0 says so; its CRC is over these bytes. Integers are signed,
    i32 unless said otherwise, as Java has them. A host's address must be of the family that its sysFlag bit says.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0  # i64, an index, not bytes; 0 for prepared and rolled-back messages
    physical_offset: int = 0  # i64, commit-log bytes; the record's own place
    sys_flag: int = 0
    born_timestamp: int = 0  # i64, ms since 1970
    born_host: Host = ("127.0.0.1", 0)
    store_timestamp: int = 0  # i64, ms since 1970
    store_host: Host = ("127.0.0.1", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0  # i64
    properties_string: str = ""
    magic: int = MESSAGE_MAGIC_CODE

    @property
    def body_crc(self) -> int:
        """HA-ST-4 "MUST be the CRC-32 of the stored body, without its highest bit"."""
        return zlib.crc32(self.body) & BODY_CRC_MASK

    @property
    def topic_bytes(self) -> bytes:
        """The topic as the record has it. Raises: MessageIllegal for text that UTF-8 cannot hold."""
        return _utf8("topic", self.topic)

    @property
    def properties_bytes(self) -> bytes:
        """The properties as the record has them. Raises: MessageIllegal for text that UTF-8 cannot hold."""
        return _utf8("properties", self.properties_string)

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties by name, parsed anew at each call."""
        return parse_properties(self.properties_string)

    @property
    def is_queued(self) -> bool:
        """Whether the message counts in its queue: a prepared or rolled-back one does not."""
        return self.sys_flag & TRANSACTION_MASK not in UNQUEUED_TYPES


def encode(
    message: Message,
    queue_offset: int | None = None,
    physical_offset: int | None = None,
    *,
    max_body_size: int = MAX_MESSAGE_SIZE,
) -> bytes:
    """Lay a message out as the bytes of its record.

    Args:  queue_offset, physical_offset: taken instead of the message's own where given (a put fixes them last).
           max_body_size: bytes; a broker's maxMessageSize, 4 MiB by default.
    Returns: the record, as long as its first four bytes say.
    Raises: MessageIllegal for an empty topic, a field over its limit, or a host not of the family that sysFlag says.
    """
    body, sys_flag = message.body, message.sys_flag
    topic = message.topic_bytes
    properties = message.properties_bytes
    magic = message.magic
    if magic not in MAGICS:
        raise MessageIllegal("magic", f"{magic:#x}", "one of " + ", ".join(f"{magic:#x}" for magic in MAGICS))
    topic_length_size, topic_limit = TOPIC_FORMS[magic]
    if not 0 < len(topic) <= topic_limit:
        raise MessageIllegal("topic", f"{len(topic)} bytes", f"1 to {topic_limit} bytes")
    if len(properties) > MAX_PROPERTIES_LENGTH:
        raise MessageIllegal("properties", f"{len(properties)} bytes", f"at most {MAX_PROPERTIES_LENGTH} bytes")
    if len(body) > max_body_size:
        raise MessageIllegal("body", f"{len(body)} bytes", f"at most {max_body_size} bytes")
    born_host = pack_host("born host", message.born_host, bool(sys_flag & SYS_FLAG_BORN_HOST_V6))
    store_host = pack_host("store host", message.store_host, bool(sys_flag & SYS_FLAG_STORE_HOST_V6))
    head_size = _SIZE_WITHOUT_HOSTS + len(born_host) + len(store_host)
    total_size = head_size + len(body) + topic_length_size + len(topic) + PROPERTIES_LENGTH_SIZE + len(properties)
    try:
        return b"".join(
            (
                _BEFORE_HOSTS.pack(
                    total_size,
                    magic,
                    zlib.crc32(body) & BODY_CRC_MASK,
                    message.queue_id,
                    message.flag,
                    message.queue_offset if queue_offset is None else queue_offset,
                    message.physical_offset if physical_offset is None else physical_offset,
                    sys_flag,
                    message.born_timestamp,
                ),
                born_host,
                _STORE_TIMESTAMP.pack(message.store_timestamp),
                store_host,
                _AFTER_HOSTS.pack(message.reconsume_times, message.prepared_transaction_offset, len(body)),
                body,
                len(topic).to_bytes(topic_length_size, "big"),
                topic,
                _PROPERTIES_LENGTH.pack(len(properties)),
                properties,
            )
        )
    except struct.error as error:
        raise MessageIllegal("integer field", error, "an i32 (i64 for offsets and timestamps)") from None


def decode(buffer: Buffer, position: int = 0) -> Message:
    """Read the record that starts at a position, and believe nothing: every length, the magic and the CRC are checked.

    Args:  buffer: whatever follows the record is not looked at.
    Raises: MessageMalformed, never anything else, whatever the bytes. The physical offset is the caller's to check.
    """
    total_size, magic = read_header(buffer, position)
    if magic not in TOPIC_FORMS:
        raise MessageMalformed("magic", f"{magic:#010x}", " or ".join(f"{known:#010x}" for known in MAGICS))
    topic_length_size, topic_limit = TOPIC_FORMS[magic]
    available = len(buffer) - position
    smallest = MESSAGE_FIXED_SIZE + topic_length_size
    if not smallest <= total_size <= available:
        raise MessageMalformed("total size", total_size, f"{smallest} to the {available} bytes that are left")
    (_, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp) = _BEFORE_HOSTS.unpack_from(
        buffer, position
    )
    end = position + total_size
    body_start = position + body_position(sys_flag)
    if body_start > end:
        raise MessageMalformed("total size", total_size, f"at least {body_start - position} with these hosts")
    born_host, cursor = _unpack_host(buffer, position + _BEFORE_HOSTS.size, bool(sys_flag & SYS_FLAG_BORN_HOST_V6))
    (store_timestamp,) = _STORE_TIMESTAMP.unpack_from(buffer, cursor)
    store_host, cursor = _unpack_host(buffer, cursor + _STORE_TIMESTAMP.size, bool(sys_flag & SYS_FLAG_STORE_HOST_V6))
    reconsume_times, prepared_transaction_offset, body_length = _AFTER_HOSTS.unpack_from(buffer, cursor)
    topic_length_position = body_start + body_length
    if body_length < 0 or topic_length_position + topic_length_size > end:
        raise MessageMalformed("body length", body_length, f"0 to {end - body_start - topic_length_size}")
    topic_position = topic_length_position + topic_length_size
    topic_length = int.from_bytes(buffer[topic_length_position:topic_position], "big")
    properties_length_position = topic_position + topic_length
    if not 0 < topic_length <= topic_limit or properties_length_position + PROPERTIES_LENGTH_SIZE > end:
        bound = min(topic_limit, end - topic_position - PROPERTIES_LENGTH_SIZE)
        raise MessageMalformed("topic length", topic_length, f"1 to {bound}")
    (properties_length,) = _PROPERTIES_LENGTH.unpack_from(buffer, properties_length_position)
    properties_position = properties_length_position + PROPERTIES_LENGTH_SIZE
    if properties_length < 0 or properties_position + properties_length != end:
        parts = properties_position + properties_length - position
        raise MessageMalformed("total size", total_size, f"{parts}, the sum of the parts")
    body = bytes(buffer[body_start:topic_length_position])
    computed_crc = zlib.crc32(body) & BODY_CRC_MASK
    if computed_crc != body_crc:
        raise MessageMalformed("body CRC", f"{body_crc:#010x}", f"{computed_crc:#010x}, that of the body")
    return Message(
        topic=str(buffer[topic_position:properties_length_position], "utf-8", "surrogateescape"),
        body=body,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        properties_string=str(buffer[properties_position:end], "utf-8", "surrogateescape"),
        magic=magic,
    )


def read_header(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Read (total size, magic) alone: enough to walk from record to record.

    Raises: MessageMalformed where fewer than 8 bytes are left.
    """
    if position + SIZE_AND_MAGIC.size > len(buffer):
        raise MessageMalformed("total size and magic", f"{len(buffer) - position} bytes", f"{SIZE_AND_MAGIC.size} bytes")
    total_size, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
    return total_size, magic


def decompress_body(message: Message, max_size: int = 16 * MAX_MESSAGE_SIZE) -> bytes:
    """Give the body as the producer had it; clients compress bodies over 4 KiB and say so in sysFlag bit 0.

    Args:  max_size: bytes; a few compressed bytes can claim gigabytes.
    Raises: MessageMalformed where the bytes are no zlib stream, end early, exceed max_size, or are LZ4 or ZSTD.
    """
    if not message.sys_flag & SYS_FLAG_COMPRESSED:
        return message.body
    compression = COMPRESSION_TYPES.get(message.sys_flag & COMPRESSION_TYPE_MASK, "unknown")
    if compression != "zlib":
        raise MessageMalformed("compression", compression, "zlib")
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(message.body, max_size)
    except zlib.error as error:
        raise MessageMalformed("compressed body", error, "a zlib stream") from None
    if not stream.eof:
        found = f"more than {max_size} bytes" if stream.unconsumed_tail else "a stream that ends early"
        raise MessageMalformed("compressed body", found, f"a whole zlib stream of at most {max_size} bytes")
    return body


def with_store_host(message: Message, store_host: bytes) -> Message:
    """The message as a store whose host is IPv4 stores it. store_host: 8 bytes, address and port."""
    host, sys_flag = _ipv4_host(store_host), message.sys_flag & ~SYS_FLAG_STORE_HOST_V6
    return replace(message, store_host=host, sys_flag=sys_flag)


@lru_cache(maxsize=16)
def _ipv4_host(part: bytes) -> Host:
    return _unpack_host(part, 0, is_v6=False)[0]


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise MessageIllegal(field, error.reason, "text that UTF-8 can hold") from None


@lru_cache(maxsize=1024)
def pack_host(field: str, host: Host, is_v6: bool) -> bytes:
    ip, port = host
    try:
        return socket.inet_pton(socket.AF_INET6 if is_v6 else socket.AF_INET, ip) + _PORT.pack(port)
    except (OSError, UnicodeEncodeError, ValueError):
        raise MessageIllegal(field, ip, "an IPv6 address" if is_v6 else "an IPv4 address, as sysFlag says") from None
    except struct.error:
        raise MessageIllegal(field, f"port {port}", "a port that an i32 holds") from None


def _unpack_host(buffer: Buffer, position: int, is_v6: bool) -> tuple[Host, int]:
    """Read a host; returns it and the position behind it."""
    size = 16 if is_v6 else 4
    ip = socket.inet_ntop(socket.AF_INET6 if is_v6 else socket.AF_INET, buffer[position : position + size])
    (port,) = _PORT.unpack_from(buffer, position + size)
    return (ip, port), position + size + _PORT.size
