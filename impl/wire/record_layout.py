"""Where each field of a commit-log record stands. All code that reads or writes records takes positions and formats from here.

    0 total size i32 | 4 magic u32 | 8 body CRC u32 | 12 queue id i32 | 16 flag i32 | 20 queue offset i64 |
    28 physical offset i64 | 36 sysFlag i32 | 40 born timestamp i64 | 48 born host | 56 store timestamp i64 |
    64 store host | 72 reconsume times i32 | 76 prepared transaction offset i64 | 84 body length i32 | 88 body |
    topic length | topic | properties length i16 | properties

All integers are big-endian. The positions are those of a record whose two hosts are IPv4: a host is 4 bytes of address and an
i32 port. An IPv6 host is 12 bytes longer and moves all fields behind it (`Field.position_in`). The topic's length is one byte
in a V1 record and two bytes in a V2 record; the magic says which.

Spec: HA-ST-2 "A message MUST be one record: total size, magic, body CRC, queue id, flag".
Source: 4.9.8 CommitLog.MessageExtEncoder; 5.1.0 MessageVersion.

>>> struct_of(MAGIC, QUEUE_ID).format
'>I4xi'
>>> STORE_TIMESTAMP.position_in(SYS_FLAG_BORN_HOST_V6)
68
"""

import mmap
import struct
from typing import Final, NamedTuple, TypeAlias

from rocketmq_ha.spec.constants import (
    BLANK_MAGIC_CODE,
    END_FILE_MIN_BLANK_SIZE,
    IPV6_EXTRA_SIZE,
    MAX_PROPERTIES_LENGTH,
    MAX_TOPIC_LENGTH,
    MESSAGE_FIXED_SIZE,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_STORE_HOST_V6,
)

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap

# --- The fields before the body --------------------------------------------------------------------------------------


class Field(NamedTuple):
    """A field of fixed size. position: bytes from the start of a record whose hosts are IPv4. code: of the struct module."""

    position: int
    code: str

    @property
    def size(self) -> int:
        return struct.calcsize(">" + self.code)

    @property
    def end(self) -> int:
        return self.position + self.size

    def position_in(self, sys_flag: int) -> int:
        """The position in a record with this sysFlag. HA-ST-14 "MUST take 8 bytes, or 20 where its bit of sysFlag"."""
        born_extra = IPV6_EXTRA_SIZE if sys_flag & SYS_FLAG_BORN_HOST_V6 and self.position > BORN_HOST.position else 0
        store_extra = IPV6_EXTRA_SIZE if sys_flag & SYS_FLAG_STORE_HOST_V6 and self.position > STORE_HOST.position else 0
        return self.position + born_extra + store_extra


TOTAL_SIZE: Final = Field(0, "i")
MAGIC: Final = Field(4, "I")
BODY_CRC: Final = Field(8, "I")
QUEUE_ID: Final = Field(12, "i")
FLAG: Final = Field(16, "i")
QUEUE_OFFSET: Final = Field(20, "q")
PHYSICAL_OFFSET: Final = Field(28, "q")
SYS_FLAG: Final = Field(36, "i")
BORN_TIMESTAMP: Final = Field(40, "q")
BORN_HOST: Final = Field(48, "8s")
STORE_TIMESTAMP: Final = Field(56, "q")
STORE_HOST: Final = Field(64, "8s")
RECONSUME_TIMES: Final = Field(72, "i")
PREPARED_TRANSACTION_OFFSET: Final = Field(76, "q")
BODY_LENGTH: Final = Field(84, "i")

BEFORE_HOSTS: Final = (*(TOTAL_SIZE, MAGIC, BODY_CRC, QUEUE_ID, FLAG, QUEUE_OFFSET, PHYSICAL_OFFSET, SYS_FLAG, BORN_TIMESTAMP),)
AFTER_HOSTS: Final = (RECONSUME_TIMES, PREPARED_TRANSACTION_OFFSET, BODY_LENGTH)
HEAD: Final = (*BEFORE_HOSTS, BORN_HOST, STORE_TIMESTAMP, STORE_HOST, *AFTER_HOSTS)  # every field before the body


def format_of(*fields: Field, sys_flag: int = 0, start: int | None = None) -> str:
    """The struct format, without its byte order, of fields in ascending order; bytes between them are skipped.

    Args:  sys_flag: that of the record. start: the position where the format begins, by default that of the first field.
    """
    codes = []
    end = fields[0].position_in(sys_flag) if start is None else start
    for field in fields:
        gap = field.position_in(sys_flag) - end
        codes += [f"{gap}x"] * bool(gap) + [field.code]
        end += gap + field.size
    return "".join(codes)


def struct_of(*fields: Field, sys_flag: int = 0) -> struct.Struct:
    """Packs or unpacks fields, from the first one on; see `format_of`."""
    return struct.Struct(">" + format_of(*fields, sys_flag=sys_flag))


SIZE_AND_MAGIC: Final = struct_of(TOTAL_SIZE, MAGIC)  # these 8 bytes are also all that a BLANK says
assert SIZE_AND_MAGIC.size == END_FILE_MIN_BLANK_SIZE

# --- The body, and what stands behind it -----------------------------------------------------------------------------

BODY_POSITION: Final = BODY_LENGTH.end  # where both hosts are IPv4
PROPERTIES_LENGTH_SIZE: Final = 2  # bytes, in front of the properties
SMALLEST_RECORD: Final = MESSAGE_FIXED_SIZE + 1  # bytes: V1, a topic of one byte, no body, no properties

HOSTS_V6: Final = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
HOSTS_SHIFT: Final = 4  # sysFlag >> HOSTS_SHIFT & 3 is an index into tables by the kinds of the two hosts
HOSTS_FLAGS: Final = tuple(hosts << HOSTS_SHIFT for hosts in range(4))
_BODY_LENGTH_POSITIONS: Final = tuple(BODY_LENGTH.position_in(sys_flag) for sys_flag in HOSTS_FLAGS)
BODY_POSITIONS: Final = tuple(position + BODY_LENGTH.size for position in _BODY_LENGTH_POSITIONS)


def body_position(sys_flag: int) -> int:
    """Bytes from the start of a record to its body: 88, and 12 more for each IPv6 host.

    Spec: HA-ST-14 "MUST take 8 bytes, or 20 where its bit of sysFlag, 0x10 for the born and 0x20 for the store host, says
    IPv6".
    """
    return BODY_POSITIONS[sys_flag >> HOSTS_SHIFT & 3]


# --- Magics ----------------------------------------------------------------------------------------------------------


# By magic: the size of the topic's length, and the longest topic, in bytes. HA-ST-72 "A topic MUST have 1 to 127 bytes in a V1
# record". Plain tuples: they are unpacked faster than named ones.
TOPIC_FORMS: Final = {MESSAGE_MAGIC_CODE: (1, MAX_TOPIC_LENGTH), MESSAGE_MAGIC_CODE_V2: (2, MAX_PROPERTIES_LENGTH)}
MAGICS: Final = tuple(TOPIC_FORMS)
MAGIC_BYTES: Final = {magic: magic.to_bytes(4, "big") for magic in (*MAGICS, BLANK_MAGIC_CODE)}

# --- One field of a record in a buffer -------------------------------------------------------------------------------

_I32_AT: Final = struct.Struct(">i").unpack_from
_I64_AT: Final = struct.Struct(">q").unpack_from


def physical_offset_at(buffer: Buffer, position: int = 0) -> int:
    """The physical offset that the record at a position names."""
    offset: int = _I64_AT(buffer, position + PHYSICAL_OFFSET.position)[0]
    return offset


def sys_flag_at(buffer: Buffer, position: int = 0) -> int:
    """The sysFlag of the record at a position."""
    sys_flag: int = _I32_AT(buffer, position + SYS_FLAG.position)[0]
    return sys_flag


def body_length_at(buffer: Buffer, sys_flag: int, position: int = 0) -> int:
    """The length of the body of the record at a position, whose sysFlag is known."""
    body_length: int = _I32_AT(buffer, position + _BODY_LENGTH_POSITIONS[sys_flag >> HOSTS_SHIFT & 3])[0]
    return body_length


def store_timestamp_at(buffer: Buffer, position: int = 0) -> int:
    """The store timestamp of the record at a position, in ms since 1970."""
    stored_ms: int = _I64_AT(buffer, position + STORE_TIMESTAMP.position_in(sys_flag_at(buffer, position)))[0]
    return stored_ms
