"""The header of a command in RocketMQ's binary form.

    code i16 | language u8 | version i16 | opaque i32 | flag i32 | remark: i32 + UTF-8 | extFields: i32 + pairs
    pair: name: i16 + UTF-8 | value: i32 + UTF-8

Spec: HA-RM-6 "A binary header MUST have the fields of the table below, in this order".
"""

from struct import Struct
from typing import Final

from rocketmq_ha.impl.errors import FrameInvalid
from rocketmq_ha.impl.remoting.header import Fields, Header
from rocketmq_ha.spec.codes import LANGUAGES

_FIXED: Final = Struct(">hBhiii")  # up to the length of the remark
_SHORT: Final = Struct(">h")
_INT: Final = Struct(">i")
_SHORT_MAX: Final = 2**15 - 1
_LEAST: Final = _FIXED.size + _INT.size
_LANGUAGE_CODES: Final = {name: code for code, name in enumerate(LANGUAGES)}
_OTHER: Final = "OTHER"


def encode(command: Header) -> bytes:
    """The bytes of a header. Raises: FrameInvalid if a number, a key or the text does not fit.

    Spec: HA-RM-6 "a length of 0 stands for no text": an empty remark, and a field without a name or a value, are left out.
    """
    try:
        remark = (command.remark or "").encode()
        parts: list[bytes] = []
        for key, value in command.ext_fields.items():
            if key and value:
                name, text = key.encode(), value.encode()
                if len(name) > _SHORT_MAX:
                    raise FrameInvalid("extFields", f"a name of {len(name)} bytes", f"at most {_SHORT_MAX}")
                parts += (_SHORT.pack(len(name)), name, _INT.pack(len(text)), text)
    except UnicodeEncodeError:
        raise FrameInvalid("header", "half of a surrogate pair", "text") from None
    for name_of, value_of, bits in (
        ("code", command.code, 15),
        ("version", command.version, 15),
        ("opaque", command.opaque, 31),
        ("flag", command.flag, 31),
    ):
        if not -(1 << bits) <= value_of < 1 << bits:
            raise FrameInvalid(name_of, value_of, f"an i{bits + 1}")
    language = _LANGUAGE_CODES.get(command.language, _LANGUAGE_CODES[_OTHER])
    pairs = b"".join(parts)
    fixed = _FIXED.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
    return b"".join((fixed, remark, _INT.pack(len(pairs)), pairs))


def decode(header: bytes) -> Fields:
    """Read the bytes of a header. Raises: FrameInvalid.

    Spec: HA-RM-7 "whose lengths are negative, or do not fill it exactly, MUST be refused".
    """
    if len(header) < _LEAST:
        raise FrameInvalid("header", f"{len(header)} bytes", f"at least {_LEAST}")
    code, language, version, opaque, flag, size = _FIXED.unpack_from(header)
    at = _FIXED.size
    if not 0 <= size <= len(header) - _LEAST:
        raise FrameInvalid("remark", f"{size} bytes in a header of {len(header)}", "a remark within its header")
    # HA-RM-4 "MUST read bytes that are no UTF-8 as U+FFFD"
    remark = header[at : at + size].decode("utf-8", "replace") if size else None
    at += size
    (size,) = _INT.unpack_from(header, at)
    at += _INT.size
    if size != len(header) - at:
        raise FrameInvalid("extFields", f"{size} bytes where {len(header) - at} are left", "all that is left of the header")
    name = LANGUAGES[language] if language < len(LANGUAGES) else _OTHER
    return code, opaque, flag, name, version, remark, _decode_pairs(header, at)


def _decode_pairs(header: bytes, at: int) -> dict[str, str]:
    """The pairs from a position to the end of the header. HA-RM-7: each length is checked before it is used."""
    fields: dict[str, str] = {}
    end = len(header)
    read_short, read_int = _SHORT.unpack_from, _INT.unpack_from
    while at < end:
        if end - at < _SHORT.size:
            raise FrameInvalid("extFields", "a pair cut off", "a whole pair")
        begin = at + _SHORT.size
        (size,) = read_short(header, at)
        middle = begin + size
        if size < 0 or middle > end:
            raise _too_long(size, end - begin)
        if end - middle < _INT.size:
            raise FrameInvalid("extFields", "a pair cut off", "a whole pair")
        (size,) = read_int(header, middle)
        value_begin = middle + _INT.size
        at = value_begin + size
        if size < 0 or at > end:
            raise _too_long(size, end - value_begin)
        key = header[begin:middle].decode("utf-8", "replace")
        if size and key:
            fields[key] = header[value_begin:at].decode("utf-8", "replace")
        else:
            fields.pop(key, None)
    return fields


def _too_long(size: int, left: int) -> FrameInvalid:
    return FrameInvalid("extFields", f"a text of {size} bytes", f"one of at most {left}, which are left")
