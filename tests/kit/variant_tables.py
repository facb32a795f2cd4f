"""Every kind of message, and every kind of record that is none, a line each.

`VARIANTS` are messages that a put takes and recovery keeps. `BROKEN` are records that neither does. `GARBLED` are records of
which a length or a sum is wrong by a little. `UNPUTTABLE` are messages that a put refuses, although their records are whole.
"""

import zlib
from dataclasses import replace
from typing import Final

from kit.variants import STORED_MS, V1, V2, Variant

SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
_TAGGED = b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02UNIQ_KEY\x010A01"
_TAG_A = 2598919  # Java's "TagA".hashCode()
_ALL_KEYS = ("k1", "k2", "0A01")
_HOSTS = {"": 0, " born IPv6": 0x10, " store IPv6": 0x20, " both IPv6": 0x30}
_PARTS = {" prepared": 0x4, " committed": 0x8, " rolled back": 0xC}
_ZLIB = zlib.compress(b"a body of a client " * 20)

_table = (
    *(
        Variant(f"V{number}{name}", properties=_TAGGED, magic=magic, sys_flag=bits, tags_code=_TAG_A, keys=_ALL_KEYS)
        for number, magic in ((1, V1), (2, V2))
        for name, bits in _HOSTS.items()
    ),
    *(
        Variant(
            f"V{number}{part}{name}",
            properties=_TAGGED,
            magic=magic,
            sys_flag=bits | hosts,
            prepared_transaction_offset=4_000_000_007,
            tags_code=_TAG_A,
            keys=_ALL_KEYS,
        )
        for number, magic, name, hosts in (
            (1, V1, "", 0),
            (1, V1, " born IPv6", 0x10),
            (2, V2, "", 0),
            (2, V2, " both IPv6", 0x30),
        )
        for part, bits in _PARTS.items()
    ),
    Variant("no properties"),
    Variant("V2 no properties", magic=V2),
    Variant("both IPv6 no properties", sys_flag=0x30),
    Variant("smallest", topic=b"t", body=b""),
    Variant("V2 smallest", topic=b"t", body=b"", magic=V2),
    Variant("both IPv6 smallest", topic=b"t", body=b"", sys_flag=0x30),
    Variant("no body", body=b"", properties=b"TAGS\x01a", tags_code=97),
    Variant("zeros as body", body=bytes(1500), properties=b"TAGS\x01a", tags_code=97),
    Variant("body of several sectors", body=bytes(range(256)) * 20, properties=b"KEYS\x01k1", keys=("k1",)),
    Variant("topic of 127", topic=b"x" * 127),
    Variant("V2 topic of 127", topic=b"x" * 127, magic=V2),
    Variant("V2 topic of 128", topic=b"y" * 128, properties=b"TAGS\x01a", magic=V2, tags_code=97),
    Variant("V2 topic of 255", topic=b"z" * 255, properties=b"TAGS\x01a", magic=V2, tags_code=97),
    Variant("V2 topic of 256", topic=b"w" * 256, magic=V2),
    Variant("V2 both IPv6 topic of 300", topic=b"v" * 300, magic=V2, sys_flag=0x30),
    Variant("V2 topic of 32767", topic=b"u" * 32767, properties=b"p", magic=V2),
    Variant("properties of 32767", properties=b"TAGS\x01a\x02X\x01" + b"v" * 32757, tags_code=97),
    Variant("V2 born IPv6 properties of 32767", properties=b"K\x01" + b"v" * 32765, magic=V2, sys_flag=0x10),
    Variant("separator behind the last property", properties=b"TAGS\x01a\x02", tags_code=97),
    Variant("keys only", properties=b"KEYS\x01k1  k2 ", keys=("k1", "k2")),
    Variant("unique key only", properties=b"UNIQ_KEY\x01u1", keys=("u1",)),
    Variant("properties without a value", properties=b"TAGS\x01\x02KEYS\x02X"),
    Variant(
        "text of several bytes a letter",
        "Größe☃".encode(),
        properties="TAGS\x01ß\x02KEYS\x01ключ".encode(),
        tags_code=223,
        keys=("ключ",),
    ),
    Variant("bytes that are no UTF-8", b"t\xff\x80", properties=b"X\x01\xfe"),
    Variant("zeros inside topic and properties", b"t\0" * 5 + b"t", properties=b"X\x01" + bytes(511) + b"v"),
    Variant("compressed", body=_ZLIB, sys_flag=0x1),
    Variant("compressed as 4.9.8 marks it", body=_ZLIB, sys_flag=0x301),
    Variant("compressed by LZ4", body=b"\x04\x22\x4d\x18", sys_flag=0x101),
    Variant("compressed born IPv6", body=_ZLIB, sys_flag=0x311),
    Variant("delayed", topic=SCHEDULE_TOPIC, properties=b"TAGS\x01a\x02DELAY\x013", tags_code=STORED_MS + 10_000),
    Variant(
        "half of a transaction", topic=b"RMQ_SYS_TRANS_HALF_TOPIC", properties=b"TRAN_MSG\x01true\x02UNIQ_KEY\x01h", keys=("h",)
    ),
    Variant("all other bits of sysFlag", sys_flag=0x7FFFF8C2),
    Variant(
        "negative numbers", sys_flag=-(1 << 31), flag=-1, born_timestamp=-1, reconsume_times=-2, prepared_transaction_offset=-3
    ),
    Variant(
        "born IPv6 and reconsumed", sys_flag=0x10, flag=(1 << 31) - 1, reconsume_times=14, prepared_transaction_offset=1 << 40
    ),
)

# Each has a queue of its own, in whatever topic, so that its queue offsets are its own too.
VARIANTS: Final = tuple(replace(variant, queue_id=number) for number, variant in enumerate(_table, start=1))
LARGEST: Final = Variant("body of 4 MiB", body=b"0123456789abcdef" * (1 << 18), properties=b"TAGS\x01a", tags_code=97)

_TO_127, _TO_32767 = "expected 1 to 127 bytes", "expected 1 to 32767 bytes"
_MOST_32767, _MOST_4_MIB = "expected at most 32767 bytes", "expected at most 4194304 bytes"
_ZERO_END = "a zero byte at the end, expected none: recovery may cut it off"
_ZERO_SECTOR = "512 zero bytes in a row, expected fewer: recovery may cut them off after a crash"

BROKEN: Final = (
    Variant("no topic", topic=b"", refusal=f"topic: found 0 bytes, {_TO_127}"),
    Variant("V2 no topic", topic=b"", properties=b"p", magic=V2, refusal=f"topic: found 0 bytes, {_TO_32767}"),
    Variant("topic of 128", topic=b"x" * 128, refusal=f"topic: found 128 bytes, {_TO_127}"),
    Variant("topic of 255", topic=b"x" * 255, refusal=f"topic: found 255 bytes, {_TO_127}"),
    Variant("born IPv6 topic of 200", topic=b"x" * 200, sys_flag=0x10, refusal=f"topic: found 200 bytes, {_TO_127}"),
    Variant("V2 topic of 32768", topic=b"x" * 32768, magic=V2, refusal=f"topic: found 32768 bytes, {_TO_32767}"),
    Variant("V2 topic of 65535", topic=b"x" * 65535, magic=V2, refusal=f"topic: found 65535 bytes, {_TO_32767}"),
    Variant("properties of 32768", properties=b"p" * 32768, refusal=f"properties: found 32768 bytes, {_MOST_32767}"),
    Variant(
        "V2 properties of 65535", properties=b"p" * 65535, magic=V2, refusal=f"properties: found 65535 bytes, {_MOST_32767}"
    ),
    Variant("magic of no record", magic=V1 + 1, refusal="magic: found 0xdaa320a8, expected one of 0xdaa320a7, 0xdaa320ab"),
)

# What no message says by itself: a length or a sum that is wrong by a little.
GARBLED: Final = (
    Variant("a byte too long", size_off=1),
    Variant("a byte too short", size_off=-1),
    Variant("both IPv6 a byte too short", sys_flag=0x30, size_off=-1),
    Variant("topic length one more", topic_length=6),
    Variant("topic length one less", topic_length=4),
    Variant("V2 topic length one more", magic=V2, topic_length=6),
    Variant("properties length one more", properties=b"TAGS\x01a", properties_length=7),
    Variant("properties length one less", properties=b"TAGS\x01a", properties_length=5),
    Variant("body length one more", body_length=5),
    Variant("body length one less", body_length=3),
    Variant("body length negative", body_length=-1),
    Variant("CRC off by its lowest bit", crc_change=1),
    Variant("CRC with its highest bit", crc_change=1 << 31),
    Variant("no body, CRC not 0", body=b"", crc_change=1),
)

UNPUTTABLE: Final = (
    Variant("topic that ends in zero", b"t\0", refusal=f"topic: found {_ZERO_END}"),
    Variant("V2 topic that ends in zero", b"t\0", magic=V2, refusal=f"topic: found {_ZERO_END}"),
    Variant("properties that end in zero", properties=b"A\x01\0", refusal=f"properties: found {_ZERO_END}"),
    Variant(
        "born IPv6 properties that end in zero", properties=b"A\x01\0", sys_flag=0x10, refusal=f"properties: found {_ZERO_END}"
    ),
    Variant("512 zeros in properties", properties=b"A\x01" + bytes(512) + b"v", refusal=f"properties: found {_ZERO_SECTOR}"),
    Variant("V2 512 zeros in a topic", b"t" + bytes(512) + b"t", magic=V2, refusal=f"topic: found {_ZERO_SECTOR}"),
    Variant("body of 4 MiB and one", body=bytes((1 << 22) + 1), refusal=f"body: found 4194305 bytes, {_MOST_4_MIB}"),
    Variant(
        "V2 body of 4 MiB and one", body=bytes((1 << 22) + 1), magic=V2, refusal=f"body: found 4194305 bytes, {_MOST_4_MIB}"
    ),
)
