"""Every kind of message as JSON: each field as docs/messages.md has it, and put again it is the message that it was.

The fields are those of tests/kit/variants.py; what is expected of a body is said here.
"""

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from kit.variant_tables import VARIANTS
from kit.variants import STORED_MS, Variant, name_of
from rocketmq_ha.impl.app.message_json import message_line
from rocketmq_ha.impl.wire.message import decode
from rocketmq_ha.impl.wire.message_line import parse_message_line

every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
HOSTS = (("10.1.2.3:41000", "[2001:db8::7]:41001"), ("10.9.8.7:10911", "[2001:db8::9]:10912"))
TIMES = {1_699_999_999_999: "2023-11-14T22:13:19.999Z", -1: "1969-12-31T23:59:59.999Z"}
TRANSACTIONS = {0x0: None, 0x4: "prepared", 0x8: "commit", 0xC: "rollback"}
NOW_MS = 1_800_000_000_000


def pairs_of(variant: Variant) -> dict[str, str]:
    """The properties by name; RocketMQ drops what has no value."""
    pairs = [pair.partition(b"\x01") for pair in variant.properties.split(b"\x02")]
    return {name.decode(): value.decode("utf-8", "replace") for name, _, value in pairs if name and value}


def body_of(variant: Variant, kind: str) -> dict[str, Any]:
    stored = base64.b64encode(variant.body).decode()
    is_compressed = bool(variant.sys_flag & 1)
    if kind == "none":
        return {}
    if kind == "raw":
        return {"body_base64": stored, "body_is_stored": is_compressed}
    if is_compressed and variant.sys_flag & 0x700 not in (0, 0x300):
        return {"body_base64": stored, "body_is_stored": True}
    body = zlib.decompress(variant.body) if is_compressed else variant.body
    if kind == "base64" or body == bytes(range(256)) * 20:  # no UTF-8
        return {"body_base64": base64.b64encode(body).decode()}
    return {"body": body.decode()}


@every_variant
@pytest.mark.parametrize("kind", ("text", "json", "base64", "raw", "none"))
def test_a_line_has_every_field_of_its_message(variant: Variant, kind: str) -> None:
    offset, queue_offset = 5_000_000_000, 77
    message = decode(variant.record(offset, queue_offset))
    pairs = pairs_of(variant)
    born = variant.born_timestamp
    expected = {
        "commit_log_offset": offset,
        "store_size": variant.size,
        "next_offset": offset + variant.size,
        "topic": variant.topic.decode("utf-8", "replace"),
        "queue_id": variant.queue_id,
        "queue_offset": queue_offset,
        "tags": pairs.get("TAGS"),
        "keys": pairs.get("KEYS", "").split(),
        "properties": pairs,
        "born_timestamp": born,
        "born_time": TIMES[born],
        "born_host": HOSTS[0][variant.sys_flag >> 4 & 1],
        "store_timestamp": STORED_MS,
        "store_time": "2023-11-14T22:13:20.123Z",
        "store_host": HOSTS[1][variant.sys_flag >> 5 & 1],
        "flag": variant.flag,
        "sys_flag": variant.sys_flag,
        "reconsume_times": variant.reconsume_times,
        "prepared_transaction_offset": variant.prepared_transaction_offset,
        "transaction": TRANSACTIONS[variant.sys_flag & 0xC],
        "body_crc": zlib.crc32(variant.body) % (1 << 31),
        "body_size": len(variant.body),
        **body_of(variant, kind),
    }
    line = message_line(offset, variant.size, message, kind)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert list(json.loads(line).items()) == list(expected.items())


@every_variant
@pytest.mark.parametrize("kind", ("text", "base64", "raw"))
def test_a_line_is_put_again_as_its_message(variant: Variant, kind: str) -> None:
    """The store's own fields are the store's again: place, time, host, and the version of the record."""
    message = decode(variant.record(99, 7))
    shown = body_of(variant, kind)
    is_stored = shown.get("body_is_stored", False)
    expected = replace(
        variant.message(),
        topic=variant.topic.decode("utf-8", "replace"),
        body=shown["body"].encode() if "body" in shown else base64.b64decode(shown["body_base64"]),
        sys_flag=variant.sys_flag & ~(0x20 if is_stored else 0x721),
        store_timestamp=NOW_MS,
        store_host=("127.0.0.1", 0),
        properties_string="\x02".join(f"{name}\x01{value}" for name, value in pairs_of(variant).items()),
        magic=0xDAA320A7,
    )
    assert parse_message_line(message_line(99, variant.size, message, kind), NOW_MS) == expected
