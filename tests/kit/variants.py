"""A message of any kind, and the bytes of its record by arithmetic of its own. variant_tables.py has all kinds."""

import struct
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.wire.message import Message

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
STORED_MS: Final = 1_700_000_000_123
# A host as text, and its bytes in a record; by whether it is an IPv6 host.
BORN: Final = (
    (("10.1.2.3", 41000), bytes.fromhex("0a010203 0000a028")),
    (("2001:db8::7", 41001), bytes.fromhex("20010db8000000000000000000000007 0000a029")),
)
STORE: Final = (
    (("10.9.8.7", 10911), bytes.fromhex("0a090807 00002a9f")),
    (("2001:db8::9", 10912), bytes.fromhex("20010db8000000000000000000000009 00002aa0")),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A message, what its record says, and what queues and index must have of it.

    tags_code, keys: as the dispatch must find them; the unique key is one of the keys. *_length: what a length field says in
    place of the right length. size_off: what the total size is too large by. refusal: what a put says of it.
    """

    name: str
    topic: bytes = b"topic"
    body: bytes = b"body"
    properties: bytes = b""
    magic: int = V1
    sys_flag: int = 0
    queue_id: int = 0
    flag: int = 7
    born_timestamp: int = 1_699_999_999_999
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0
    keys: tuple[str, ...] = ()
    topic_length: int | None = None
    body_length: int | None = None
    properties_length: int | None = None
    size_off: int = 0
    crc_change: int = 0
    refusal: str = ""

    @property
    def born_host(self) -> tuple[str, int]:
        return BORN[self.sys_flag >> 4 & 1][0]

    @property
    def store_host(self) -> tuple[str, int]:
        return STORE[self.sys_flag >> 5 & 1][0]

    @property
    def body_position(self) -> int:
        """Bytes from the start of the record to its body."""
        return 88 + 12 * (self.sys_flag >> 4 & 1) + 12 * (self.sys_flag >> 5 & 1)

    @property
    def topic_position(self) -> int:
        return self.body_position + len(self.body) + (1 if self.magic == V1 else 2)

    @property
    def size(self) -> int:
        """Bytes of the record."""
        return self.topic_position + len(self.topic) + 2 + len(self.properties)

    @property
    def is_queued(self) -> bool:
        """Whether its queue has it: a prepared or rolled-back message is in none."""
        return self.sys_flag & 0xC not in (0x4, 0xC)

    @property
    def is_indexed(self) -> bool:
        """Whether the index has its keys: a rolled-back message has none there."""
        return self.sys_flag & 0xC != 0xC and bool(self.keys)

    @property
    def is_batchable(self) -> bool:
        """Whether a batch takes it: one that has a part in a transaction is put alone."""
        return not self.sys_flag & 0xC

    def message(self) -> Message:
        """As a value of the implementation."""
        return Message(
            self.topic.decode("utf-8", "surrogateescape"),
            self.body,
            self.queue_id,
            self.flag,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
            store_timestamp=STORED_MS,
            store_host=self.store_host,
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
            properties_string=self.properties.decode("utf-8", "surrogateescape"),
            magic=self.magic,
        )

    def record(self, offset: int, queue_offset: int = 0, stored_ms: int = STORED_MS) -> bytes:
        """The bytes of the record at a commit-log offset, as the figure of HA-ST-2 has them."""
        topic_length = len(self.topic) if self.topic_length is None else self.topic_length
        properties_length = len(self.properties) if self.properties_length is None else self.properties_length
        return b"".join(
            (
                (self.size + self.size_off).to_bytes(4, "big"),
                self.magic.to_bytes(4, "big"),
                (zlib.crc32(self.body) % (1 << 31) ^ self.crc_change).to_bytes(4, "big"),
                self.queue_id.to_bytes(4, "big", signed=True),
                self.flag.to_bytes(4, "big", signed=True),
                queue_offset.to_bytes(8, "big"),
                offset.to_bytes(8, "big"),
                self.sys_flag.to_bytes(4, "big", signed=True),
                self.born_timestamp.to_bytes(8, "big", signed=True),
                BORN[self.sys_flag >> 4 & 1][1],
                stored_ms.to_bytes(8, "big"),
                STORE[self.sys_flag >> 5 & 1][1],
                self.reconsume_times.to_bytes(4, "big", signed=True),
                self.prepared_transaction_offset.to_bytes(8, "big", signed=True),
                (len(self.body) if self.body_length is None else self.body_length).to_bytes(4, "big", signed=True),
                self.body,
                topic_length.to_bytes(1 if self.magic == V1 else 2, "big"),
                self.topic,
                properties_length.to_bytes(2, "big"),
                self.properties,
            )
        )


def blank(size: int) -> bytes:
    """A BLANK that takes so many bytes."""
    return struct.pack(">iI", size, BLANK) + bytes(size - 8)


def log_of(variants: Iterable[Variant], start: int = 0, file_size: int = 1 << 30, first_number: int = 0) -> bytes:
    """The records behind one another from a commit-log offset on, with a BLANK at the end of each file but the last.

    The n-th record of a variant has the queue offset n, counted from first_number on, if its queue has it.
    """
    log = bytearray()
    numbers: Counter[str] = Counter()
    for variant in variants:
        room = file_size - (start + len(log)) % file_size
        if variant.size + 8 > room:
            log += blank(room)
        log += variant.record(start + len(log), first_number + numbers[variant.name] if variant.is_queued else 0)
        numbers[variant.name] += 1
    return bytes(log)


def name_of(value: object) -> str | None:
    """An id for pytest."""
    return value.name.replace(" ", "-") if isinstance(value, Variant) else None
