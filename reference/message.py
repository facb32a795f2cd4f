"""The record of a message, as bytes: HA-ST-2 "A message MUST be one record".

    0   i32 total size          20  i64 queue offset        48  i32+8 bytes: born host (16+4 with sysFlag 0x10) from 48,
    4   i32 magic               28  i64 physical offset         then i64 store timestamp, store host, i32 reconsume times,
    8   i32 body CRC            36  i32 sysFlag                 i64 prepared transaction offset, i32 body length, body,
    12  i32 queue id            40  i64 born timestamp          i8 topic length, topic, i16 properties length, properties
    16  i32 flag

The model writes V1 with IPv4 hosts, and reads V1 and V2 with either.
"""

import zlib
from dataclasses import dataclass
from functools import lru_cache

from rocketmq_ha.spec import constants


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of one stored message. Hosts are address + port, as bytes of 8 or 20."""

    topic: bytes
    body: bytes
    properties: bytes = b""  # name 0x01 value 0x02 ..., as stored
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    store_timestamp: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def body_crc(body: bytes) -> int:
    """HA-ST-4 "MUST be the CRC-32 of the stored body, without its highest bit".

    >>> hex(body_crc(b"123456789"))
    '0x4bf43926'
    """
    return zlib.crc32(body) & constants.BODY_CRC_MASK


def encode(record: Record) -> bytes:
    """The bytes of `record`, V1. Source: HA-ST-2."""
    fields = (
        (constants.MESSAGE_MAGIC_CODE, 4),
        (body_crc(record.body), 4),
        (record.queue_id, 4),
        (record.flag, 4),
        (record.queue_offset, 8),
        (record.physical_offset, 8),
        (record.sys_flag, 4),
        (record.born_timestamp, 8),
        (record.born_host, 0),
        (record.store_timestamp, 8),
        (record.store_host, 0),
        (record.reconsume_times, 4),
        (record.prepared_transaction_offset, 8),
        (len(record.body), 4),
        (record.body, 0),
        (len(record.topic), 1),
        (record.topic, 0),
        (len(record.properties), 2),
        (record.properties, 0),
    )
    rest = b"".join(
        value if isinstance(value, bytes) else (value % (1 << 8 * width)).to_bytes(width, "big") for value, width in fields
    )
    return (4 + len(rest)).to_bytes(4, "big") + rest


def decode(data: bytes, position: int = 0) -> tuple[Record, int] | None:
    """Decode the record at `position`. Returns: (record, total size); None if there is no whole record with a right CRC.

    Source: HA-ST-2, HA-ST-4, HA-ST-5.
    """
    if position + 8 > len(data):
        return None
    size = int.from_bytes(data[position : position + 4], "big", signed=True)
    magic = int.from_bytes(data[position + 4 : position + 8], "big")
    versions = {constants.MESSAGE_MAGIC_CODE: 1, constants.MESSAGE_MAGIC_CODE_V2: 2}
    if magic not in versions or size < constants.MESSAGE_FIXED_SIZE or position + size > len(data):
        return None
    return _decode(bytes(data[position : position + size]), versions[magic])


@lru_cache(maxsize=1024)
def _decode(data: bytes, version: int) -> tuple[Record, int] | None:
    """`decode` of the bytes of one record. A recovery reads a record several times."""
    end = len(data)

    def number(at: int, width: int) -> int:
        return int.from_bytes(data[at : at + width], "big", signed=True)

    crc, queue_id, flag = number(8, 4), number(12, 4), number(16, 4)
    queue_offset, physical_offset, sys_flag, born_timestamp = number(20, 8), number(28, 8), number(36, 4), number(40, 8)
    # HA-ST-14 "MUST take 8 bytes, or 20 where its bit of sysFlag" says so.
    at = 48 + (20 if sys_flag & constants.SYS_FLAG_BORN_HOST_V6 else 8)
    born_host, store_timestamp = data[48:at], number(at, 8)
    after = at + 8 + (20 if sys_flag & constants.SYS_FLAG_STORE_HOST_V6 else 8)
    store_host, at = data[at + 8 : after], after
    reconsume_times, prepared_transaction_offset, body_length = number(at, 4), number(at + 4, 8), number(at + 12, 4)
    at += 16
    if body_length < 0 or at + body_length > end:
        return None
    body = data[at : at + body_length]
    at += body_length
    topic_length = number(at, version)  # HA-ST-72 "A topic MUST have 1 to 127 bytes in a V1 record": signed, so no more
    if topic_length <= 0:
        return None
    at += version
    topic = data[at : at + topic_length]
    at += topic_length
    properties_length = number(at, 2)
    at += 2
    if properties_length < 0 or at + properties_length != end or body_crc(body) != crc:
        return None
    return Record(
        topic,
        body,
        data[at:],
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
    ), end
