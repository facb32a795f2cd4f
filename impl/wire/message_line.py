"""A message as one JSON line, for a put: what impl/app/message_json.py prints, read back (docs/messages.md, docs/put.md).

What the store gives a message (offset, size, queue offset, store time and host) may stand in the line and is passed over, so
that a message that was read can be put as it is. Any other field that a put does not know is refused: it may be a misspelt one.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rocketmq_ha.impl.errors import MessageIllegal
from rocketmq_ha.impl.wire.message import COMPRESSION_TYPE_MASK, Host, Message
from rocketmq_ha.impl.wire.properties import format_properties
from rocketmq_ha.spec.constants import SYS_FLAG_BORN_HOST_V6, SYS_FLAG_COMPRESSED, SYS_FLAG_STORE_HOST_V6

# Given by the store, or drawn from other fields.
PASSED_OVER: Final = frozenset(
    (
        *("commit_log_offset", "store_size", "next_offset", "queue_offset", "store_timestamp", "store_time", "store_host"),
        *("transaction", "body_crc", "body_size"),
    )
)
BODIES: Final = ("body", "body_json", "body_base64", "body_hex")
FIELDS: Final = frozenset(
    (
        *("topic", "queue_id", "tags", "keys", "properties", *BODIES, "body_is_stored"),
        *("born_timestamp", "born_time", "born_host", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset"),
    )
)
_KNOWN: Final = FIELDS | PASSED_OVER
_SHOWN: Final = 60  # characters of what was found
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_HOST: Final = ("127.0.0.1", 0)


def parse_message_line(line: bytes | bytearray, now_ms: int) -> Message:
    """The message of a line. The store's own limits (lengths, the size of a body) are the store's to check.

    Args:  now_ms: the store timestamp, and the born timestamp of a message whose line has none; ms since 1970.
    Raises: MessageIllegal, never anything else, whatever the bytes.
    """
    fields = _object(line)
    topic = fields.get("topic")
    if type(topic) is not str:
        raise _illegal(fields, "topic", "text")
    sys_flag = _integer(fields, "sys_flag", 32)
    body, is_stored = _body(fields)
    if not is_stored:
        sys_flag &= ~(SYS_FLAG_COMPRESSED | COMPRESSION_TYPE_MASK)
    born_host = _NO_HOST
    if (host := fields.get("born_host")) is not None:
        born_host = _host(host)
    is_v6 = ":" in born_host[0]
    sys_flag = sys_flag & ~(SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6) | (SYS_FLAG_BORN_HOST_V6 if is_v6 else 0)
    queue_id = _integer(fields, "queue_id", 32)
    if queue_id < 0:
        raise _illegal(fields, "queue_id", "0 or more")
    return Message(
        topic=_utf8("topic", topic),
        body=body,
        queue_id=queue_id,
        flag=_integer(fields, "flag", 32),
        sys_flag=sys_flag,
        born_timestamp=_born_timestamp(fields, now_ms),
        born_host=born_host,
        store_timestamp=now_ms,
        reconsume_times=_integer(fields, "reconsume_times", 32),
        prepared_transaction_offset=_integer(fields, "prepared_transaction_offset", 64),
        properties_string=_properties(fields),
    )


def _object(line: bytes | bytearray) -> dict[str, Any]:
    """The fields of a line that are given: null means that one is not."""
    try:
        found = _decode(line.decode())
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is one
        raise MessageIllegal("line", _shown(line), f"a JSON object in UTF-8: {error}") from None
    if type(found) is not dict:
        raise MessageIllegal("line", _shown(line), "a JSON object in UTF-8")
    if not found.keys() <= _KNOWN:
        unknown = found.keys() - _KNOWN
        raise MessageIllegal("line", f"the field {_shown(min(unknown))}", f"none but {', '.join(sorted(FIELDS))}")
    return found


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that comes twice")
    return found


def finite(text: str) -> float:
    """The value of a JSON number; one beyond the range of a float would become infinity, which JSON cannot tell.

    >>> finite("-2.5e3")
    -2500.0
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:_SHOWN]} is beyond the range of a number")
    return value


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


_decode: Final = json.JSONDecoder(parse_float=finite, parse_constant=_refuse, object_pairs_hook=_pairs).decode


def _body(fields: dict[str, Any]) -> tuple[bytes, bool]:
    """The body, and whether it is as the store had it, which may be compressed."""
    given = [name for name in BODIES if name in fields]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise MessageIllegal("body", found, f"one of {', '.join(BODIES)}")
    name, value = given[0], fields[given[0]]
    is_stored = fields.get("body_is_stored", False)
    if type(is_stored) is not bool:
        raise _illegal(fields, "body_is_stored", "true or false")
    if name == "body_json":
        return _utf8("body_json", _encode(value)).encode(), is_stored
    if type(value) is not str:
        raise _illegal(fields, name, "text")
    if name == "body":
        return _utf8("body", value).encode(), is_stored
    decode: Callable[[str], bytes] = _base64 if name == "body_base64" else bytes.fromhex
    try:
        return decode(value), is_stored
    except ValueError:
        raise _illegal(fields, name, "base64" if name == "body_base64" else "hexadecimal digits") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(error) from None


def _properties(fields: dict[str, Any]) -> str:
    """The properties' string: `properties`, and what `tags` and `keys` add to it. Raises: MessageIllegal."""
    properties = fields.get("properties")
    if properties is None:
        properties = {}
    elif type(properties) is not dict or any(type(value) is not str for value in properties.values()):
        raise _illegal(fields, "properties", "an object whose values are text")
    tags = fields.get("tags")
    if tags is not None:
        if type(tags) is not str:
            raise _illegal(fields, "tags", "text")
        _agree(properties, "TAGS", tags)
    keys = fields.get("keys")
    if keys is not None:
        if type(keys) is list and all(type(key) is str for key in keys):
            keys = " ".join(keys)
        if type(keys) is not str:
            raise _illegal(fields, "keys", "text, or a list of texts")
        if keys and properties.get("KEYS", keys).split() == keys.split():
            properties.setdefault("KEYS", keys)
        elif keys:
            _agree(properties, "KEYS", keys)
    return _utf8("properties", format_properties(properties)) if properties else ""


def _agree(properties: dict[str, str], name: str, value: str) -> None:
    if properties.setdefault(name, value) != value:
        raise MessageIllegal(name.lower(), _shown(value), f"{_shown(properties[name])}, as the property {name} says")


def _integer(fields: dict[str, Any], name: str, bits: int) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise _illegal(fields, name, f"an integer of {bits} bits")
    return value


def _born_timestamp(fields: dict[str, Any], now_ms: int) -> int:
    """Milliseconds since 1970: born_timestamp, else born_time, which is a number too where the calendar does not reach."""
    if fields.get("born_timestamp") is not None:
        return _integer(fields, "born_timestamp", 64)
    born = fields.get("born_time")
    if born is None:
        return now_ms
    if type(born) is int:
        return _integer(fields, "born_time", 64)
    try:
        moment = datetime.fromisoformat(born)  # a TypeError says so
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).__sub__(_EPOCH) // _MILLISECOND
    except (TypeError, ValueError, OverflowError):
        raise MessageIllegal("born_time", _shown(born), "a time as 2024-05-01T12:00:00Z, or milliseconds since 1970") from None


def _host(text: object) -> Host:
    """(ip, port) of IP:PORT or [IPV6]:PORT; whether the ip is one is for the record's format to say."""
    ip, _, port = text.rpartition(":") if type(text) is str else ("", "", "")
    if ip.startswith("[") and ip.endswith("]"):
        ip = ip[1:-1]
    elif ":" in ip:
        ip = ""
    if not ip or not (port.isascii() and port.isdigit()) or len(port) > 10:
        raise MessageIllegal("born_host", _shown(text), "IP:PORT, as 10.0.0.7:41000")
    return ip, int(port)


def _utf8(field: str, text: str) -> str:
    """The text, if UTF-8 can hold it: a half of a surrogate pair would pass for a byte that is no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MessageIllegal(field, error.reason, "text that UTF-8 can hold") from None
    return text


def _illegal(fields: dict[str, Any], name: str, expected: str) -> MessageIllegal:
    found = "none" if name not in fields else _shown(fields[name])
    return MessageIllegal(name, found, expected)


def _shown(value: object) -> str:
    """What was found, but not all of it."""
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value[: _SHOWN * 4]).decode("utf-8", "backslashreplace")
    text = (value or "''") if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = "".join(character if character.isprintable() else "·" for character in text[: _SHOWN + 1])
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
