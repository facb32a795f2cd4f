"""A message as one JSON line, the same in `inspect`, `query` and `tail`. docs/messages.md is its schema.

A field of RocketMQ's MessageExt keeps its name, in snake case. The line holds everything that the producer gave, decoded as far
as possible, and the message's position in the log.
"""

import base64
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from rocketmq_ha.impl.errors import MessageMalformed
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.wire.message import TRANSACTION_MASK, TRANSACTION_PREPARED, Message, decompress_body
from rocketmq_ha.impl.wire.message_line import finite
from rocketmq_ha.spec.constants import SYS_FLAG_COMPRESSED

BODIES: Final = ("text", "json", "base64", "raw", "none")

_TRANSACTIONS: Final = {TRANSACTION_PREPARED: "prepared", 0x8: "commit", 0xC: "rollback"}
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# JSON allows these characters unescaped. But a terminal would execute some of them, and some readers split lines at the others.
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029]")


def message_line(offset: int, size: int, message: Message, body: str) -> bytes:
    """Return one line in UTF-8, newline included.

    Args:  offset, size: those of the record. body: one of BODIES; the help of --body explains them.
    """
    properties = {_clean(name): _clean(value) for name, value in message.properties.items()}
    fields: dict[str, object] = {
        "commit_log_offset": offset,
        "store_size": size,
        "next_offset": offset + size,
        "topic": _clean(message.topic),
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "tags": properties.get("TAGS"),
        "keys": [key for key in properties.get("KEYS", "").split(" ") if key],  # as the index splits them
        "properties": properties,
        "born_timestamp": message.born_timestamp,
        "born_time": _iso(message.born_timestamp),
        "born_host": format_address(*message.born_host),
        "store_timestamp": message.store_timestamp,
        "store_time": _iso(message.store_timestamp),
        "store_host": format_address(*message.store_host),
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "transaction": _TRANSACTIONS.get(message.sys_flag & TRANSACTION_MASK),
        "body_crc": message.body_crc,
        "body_size": len(message.body),
        **_body_fields(message, body),
    }
    text = _encode(fields)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode() + b"\n"


def _body_fields(message: Message, body: str) -> dict[str, object]:
    """`body` as text, `body_json` as a value, or `body_base64`; and `body_is_stored` if it could not be decompressed."""
    if body == "none":
        return {}
    if body == "raw":
        return {"body_base64": _base64(message.body), "body_is_stored": bool(message.sys_flag & SYS_FLAG_COMPRESSED)}
    try:
        data = decompress_body(message)
    except MessageMalformed:  # LZ4 or ZSTD of 5.x, or a broken stream: give the bytes as stored, and mark them
        return {"body_base64": _base64(message.body), "body_is_stored": True}
    if body == "base64":
        return {"body_base64": _base64(data)}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"body_base64": _base64(data)}
    if body == "json":
        try:
            return {"body_json": json.loads(text, parse_float=finite, parse_constant=_refuse)}
        except (ValueError, RecursionError):
            pass
    return {"body": text}


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _clean(text: str) -> str:
    """Make text that UTF-8 can encode: bytes that were not UTF-8 become U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _iso(timestamp_ms: int) -> str | int:
    """Format as ISO 8601 in UTC, to the millisecond; return the number itself if the calendar does not reach so far."""
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return timestamp_ms
