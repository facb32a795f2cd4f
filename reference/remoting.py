"""Remoting: commands, their two headers, and frames. Chapter 11, and HA-MD-18 to HA-MD-20 of chapter 6.

`decode` and `encode` are inverse where a command fits its form. What they cannot read or write they refuse, with a reason.
"""

import json
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.spec.codes import LANGUAGES
from rocketmq_ha.spec.constants import REMOTING_FRAME_MAX, REMOTING_HEADER_DEPTH_MAX, REMOTING_HEADER_MAX

JSON: Final = 0
ROCKETMQ: Final = 1
RESPONSE: Final = 1  # HA-MD-20 "The bit of value 1 of `flag` marks an answer"
ONEWAY: Final = 2  # HA-MD-20 "marks a request that wants no answer"
OTHER: Final = "OTHER"
REPLACEMENT: Final = "replace"  # of bytes that are no UTF-8: U+FFFD


class Refused(Exception):  # noqa: N818  (as in impl/errors.py)
    """Bytes that are no frame, or a command that fits none."""


class Number(str):
    """The text of a number in JSON."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A request or an answer. ext_fields: pairs in their order, no name twice."""

    code: int
    opaque: int
    flag: int = 0
    language: str = "JAVA"
    version: int = 0
    remark: str | None = None
    ext_fields: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    serialize_type: int = JSON


# --- Frames ----------------------------------------------------------------------------------------------------------


def split(stream: bytes) -> tuple[tuple[bytes, ...], bytes, bool]:
    """Cut a stream into frames without their lengths. Returns: the frames, the bytes left, and whether what follows is none.

    Spec: HA-MD-18 "MUST be a 4-byte length that does not count itself"; HA-MD-19 "A frame of more than 16 MiB, its length of 4
    bytes included, MUST be refused"; HA-RM-2 "A frame whose length is less than 4".
    """
    frames: list[bytes] = []
    while len(stream) >= 4:
        length = int.from_bytes(stream[:4], signed=True)
        if length < 4 or 4 + length > REMOTING_FRAME_MAX:
            return tuple(frames), b"", True
        if len(stream) < 4 + length:
            break
        frames.append(stream[4 : 4 + length])
        stream = stream[4 + length :]
    return tuple(frames), stream, False


def decode(frame: bytes) -> Command:
    """Read a frame without its length. Raises: Refused.

    Spec: HA-MD-18 "one byte of serialize type, a 3-byte header length, the header and the body"; HA-RM-1 "neither 0 (JSON)
    nor 1 (ROCKETMQ's binary form) MUST be refused"; HA-RM-2 "whose header does not end within it"; HA-RM-20 "more than 256 KiB
    MUST be refused".
    """
    if len(frame) < 4:
        raise Refused("too short")
    size = int.from_bytes(frame[1:4])
    header, body = frame[4 : 4 + size], frame[4 + size :]
    if size > REMOTING_HEADER_MAX:
        raise Refused("long header")
    if len(header) < size:
        raise Refused("header size")
    if frame[0] == JSON:
        return decode_json(header, body)
    if frame[0] == ROCKETMQ:
        return decode_binary(header, body)
    raise Refused("serialize type")


def encode(command: Command) -> bytes:
    """The frame of a command, its length included. Raises: Refused."""
    try:
        header = encode_json(command) if command.serialize_type == JSON else encode_binary(command)
    except UnicodeEncodeError:
        raise Refused("half of a surrogate pair") from None
    rest = bytes([command.serialize_type]) + len(header).to_bytes(4)[1:] + header + command.body
    most = REMOTING_FRAME_MAX if command.flag & 1 else REMOTING_HEADER_MAX  # HA-RM-20: an answer's may be longer
    if len(header) > most or 4 + len(rest) > REMOTING_FRAME_MAX:
        raise Refused("size")
    return len(rest).to_bytes(4) + rest


def fits(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1


# --- JSON ------------------------------------------------------------------------------------------------------------


def encode_json(command: Command) -> bytes:
    """HA-MD-20 "MUST have `code`, `language`, `version`, `opaque`, `flag` and `serializeTypeCurrentRPC`", in Java's order."""
    if not all(fits(value, 32) for value in (command.code, command.opaque, command.flag, command.version)):
        raise Refused("a number")
    fields = {
        "code": command.code,
        "extFields": dict(command.ext_fields) or None,
        "flag": command.flag,
        "language": command.language,
        "opaque": command.opaque,
        "remark": command.remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    there = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(there, ensure_ascii=False, separators=(",", ":")).encode()


def decode_json(header: bytes, body: bytes) -> Command:
    """HA-RM-3 "MUST take a JSON header that has `code` and `opaque` alone". Raises: Refused.

    Spec: HA-RM-4 "MUST read bytes that are no UTF-8 as U+FFFD"; HA-RM-21 "of more than 32 levels, one within the other, MUST be
    refused".
    """
    text = header.decode("utf-8", REPLACEMENT)
    if depth(text) > REMOTING_HEADER_DEPTH_MAX:
        raise Refused("depth")
    try:
        fields = json.loads(text, parse_int=Number, parse_float=Number, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise Refused(error.msg) from None
    if not isinstance(fields, dict):
        raise Refused("no object")
    extra = fields.get("extFields")
    if extra is not None and not isinstance(extra, dict):
        raise Refused("extFields")
    language = text_or(fields, "language")
    texts = {name: text_of(value) for name, value in (extra or {}).items()}
    command = Command(
        number(fields, "code", None),
        number(fields, "opaque", None),
        number(fields, "flag", 0),
        "JAVA" if language is None else language,
        number(fields, "version", 0),
        text_or(fields, "remark"),
        tuple((name, value) for name, value in texts.items() if value is not None),
        body,
        JSON,
    )
    for part in (command.language, command.remark or "", *(part for pair in command.ext_fields for part in pair)):
        if not is_text(part):
            raise Refused("half of a surrogate pair")
    return command


def refuse(constant: str) -> None:
    raise Refused(constant)


def is_text(text: str) -> bool:
    """Whether no half of a surrogate pair is in it."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def number(fields: dict[str, object], name: str, default: int | None) -> int:
    """An i32 without fraction or exponent. default: what `null` and a missing field stand for; None: they are refused."""
    value = fields.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, Number) or not value.removeprefix("-").isdecimal() or len(value) > len("-2147483648"):
        raise Refused(name)
    if not fits(int(value), 32):
        raise Refused(name)
    return int(value)


def text_or(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, str) or isinstance(value, Number)):
        raise Refused(name)
    return value


def text_of(value: object) -> str | None:
    """HA-RM-5 "a number, `true` or `false` there MUST count as its text, and `null` as if the field were not there"."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return str(value)
    raise Refused("extFields")


def depth(text: str) -> int:
    """How many arrays and objects are open at once, at most; what stands in strings does not count."""
    deepest = level = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            in_string = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            in_string = True
        elif char in "[{":
            level += 1
            deepest = max(deepest, level)
        elif char in "]}":
            level -= 1
    return deepest


# --- ROCKETMQ's binary form ------------------------------------------------------------------------------------------


def encode_binary(command: Command) -> bytes:
    """HA-RM-6 "MUST have the fields of the table below, in this order; a length of 0 stands for no text"."""
    if not (fits(command.code, 16) and fits(command.version, 16) and fits(command.opaque, 32) and fits(command.flag, 32)):
        raise Refused("a number")
    language = LANGUAGES.index(command.language if command.language in LANGUAGES else OTHER)
    pairs = b""
    for name, value in command.ext_fields:
        if name and value:
            if len(name.encode()) > 0x7FFF:
                raise Refused("a name")
            pairs += sized(name, 2) + sized(value, 4)
    return (
        command.code.to_bytes(2, signed=True)
        + bytes([language])
        + command.version.to_bytes(2, signed=True)
        + command.opaque.to_bytes(4, signed=True)
        + command.flag.to_bytes(4, signed=True)
        + sized(command.remark or "", 4)
        + len(pairs).to_bytes(4)
        + pairs
    )


def sized(text: str, width: int) -> bytes:
    return len(text.encode()).to_bytes(width) + text.encode()


def decode_binary(header: bytes, body: bytes) -> Command:
    """HA-RM-7 "whose lengths are negative, or do not fill it exactly, MUST be refused". Raises: Refused.

    Spec: HA-RM-4 "MUST read bytes that are no UTF-8 as U+FFFD".
    """
    code, rest = take(header, 2)
    language, rest = take(rest, 1)
    version, rest = take(rest, 2)
    opaque, rest = take(rest, 4)
    flag, rest = take(rest, 4)
    remark, rest = take_sized(rest, 4)
    pairs, rest = take_sized(rest, 4)
    if rest:
        raise Refused("bytes behind the fields")
    fields: dict[str, str] = {}
    while pairs:
        name, pairs = take_sized(pairs, 2)
        value, pairs = take_sized(pairs, 4)
        fields[name.decode("utf-8", REPLACEMENT)] = value.decode("utf-8", REPLACEMENT)
    index = language[0]
    return Command(
        int.from_bytes(code, signed=True),
        int.from_bytes(opaque, signed=True),
        int.from_bytes(flag, signed=True),
        LANGUAGES[index] if index < len(LANGUAGES) else OTHER,
        int.from_bytes(version, signed=True),
        remark.decode("utf-8", REPLACEMENT) or None,
        tuple((name, value) for name, value in fields.items() if name and value),
        body,
        ROCKETMQ,
    )


def take(data: bytes, size: int) -> tuple[bytes, bytes]:
    if not 0 <= size <= len(data):
        raise Refused("a field cut off")
    return data[:size], data[size:]


def take_sized(data: bytes, width: int) -> tuple[bytes, bytes]:
    size, rest = take(data, width)
    return take(rest, int.from_bytes(size, signed=True))


# --- Fields ----------------------------------------------------------------------------------------------------------


def read_number(text: str, bits: int) -> int | None:
    """The number of a field; None where it is none of its type.

    Spec: HA-RM-14 "MUST be read as Java reads one: an optional sign and decimal digits, within the range of an i32 or an i64".
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or any(digit not in "0123456789" for digit in digits):
        return None
    value = 0
    for digit in digits:
        value = value * 10 + "0123456789".index(digit)
        if value > 1 << bits:
            return None
    value = -value if text.startswith("-") else value
    return value if fits(value, bits) else None


def read_boolean(text: str) -> bool:
    """HA-RM-14 "`true` in any case is true, and all other text is false"."""
    return len(text) == len("true") and all(char in pair for char, pair in zip(text, ("tT", "rR", "uU", "eE"), strict=True))
