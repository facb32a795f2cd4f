"""The header of a command as a JSON object.

What RocketMQ's own reader takes is taken: a header without the fields that have a default, numbers as values of extFields, and
bytes that are no UTF-8. Everything else that is no such object is refused.
"""

import re
from typing import Annotated, Final

import msgspec

from rocketmq_ha.impl.errors import FrameInvalid
from rocketmq_ha.impl.remoting.header import Fields, Header
from rocketmq_ha.impl.remoting.json_faults import found_and_expected
from rocketmq_ha.spec.constants import REMOTING_HEADER_DEPTH_MAX

_I32_MIN: Final = -(2**31)
_I32_MAX: Final = 2**31 - 1
_I32 = Annotated[int, msgspec.Meta(ge=_I32_MIN, le=_I32_MAX)]
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_OPENS: Final = b"[{"
_CLOSES: Final = b"]}"


class _Written(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The fields in the order in which RocketMQ writes them. HA-MD-20 "`remark` and `extFields` may be left out"."""

    code: int
    extFields: dict[str, str] | None = None  # noqa: N815  (the name on the wire)
    flag: int
    language: str
    opaque: int
    remark: str | None = None
    serializeTypeCurrentRPC: str  # noqa: N815
    version: int


class _Read(msgspec.Struct):
    """HA-RM-3 "MUST take a JSON header that has `code` and `opaque` alone": the other fields have these defaults."""

    code: _I32
    opaque: _I32
    flag: _I32 | None = 0
    language: str | None = "JAVA"
    version: _I32 | None = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815


class _ReadRaw(msgspec.Struct):
    """As _Read, for a header whose extFields hold values that are no strings."""

    code: _I32
    opaque: _I32
    flag: _I32 | None = 0
    language: str | None = "JAVA"
    version: _I32 | None = 0
    remark: str | None = None
    extFields: dict[str, msgspec.Raw] | None = None  # noqa: N815


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Read)
_raw_decoder: Final = msgspec.json.Decoder(_ReadRaw)
_text_decoder: Final = msgspec.json.Decoder(str)


def encode(command: Header) -> bytes:
    """The JSON text of a header. Raises: FrameInvalid."""
    for name, value in (
        ("code", command.code),
        ("opaque", command.opaque),
        ("flag", command.flag),
        ("version", command.version),
    ):
        if not _I32_MIN <= value <= _I32_MAX:
            raise FrameInvalid(name, value, "an i32")
    try:
        return _encoder.encode(
            _Written(
                code=command.code,
                extFields=command.ext_fields or None,
                flag=command.flag,
                language=command.language,
                opaque=command.opaque,
                remark=command.remark,
                serializeTypeCurrentRPC="JSON",
                version=command.version,
            )
        )
    except UnicodeEncodeError:
        raise FrameInvalid("header", "half of a surrogate pair", "text") from None


def decode(header: bytes) -> Fields:
    """Read the JSON text of a header. Raises: FrameInvalid.

    Spec: HA-RM-21 "of more than 32 levels, one within the other, MUST be refused".
    """
    if header.count(b"{") + header.count(b"[") > REMOTING_HEADER_DEPTH_MAX and _depth(header) > REMOTING_HEADER_DEPTH_MAX:
        raise FrameInvalid("header", f"more than {REMOTING_HEADER_DEPTH_MAX} levels", f"at most {REMOTING_HEADER_DEPTH_MAX}")
    try:
        found = _decoder.decode(header)
    except UnicodeDecodeError:
        # HA-RM-4 "MUST read bytes that are no UTF-8 as U+FFFD"
        return decode(header.decode("utf-8", "replace").encode())
    except msgspec.ValidationError:
        return _decode_lenient(header)
    except msgspec.DecodeError as error:
        raise FrameInvalid("header", *found_and_expected(error, "a JSON object")) from None
    return _fields(found, found.extFields or {})


def _decode_lenient(header: bytes) -> Fields:
    """HA-RM-5 "a number, `true` or `false` there MUST count as its text"."""
    try:
        found = _raw_decoder.decode(header)
        texts = {key: _text(raw) for key, raw in (found.extFields or {}).items()}
    except UnicodeDecodeError:
        return decode(header.decode("utf-8", "replace").encode())
    except msgspec.DecodeError as error:
        raise FrameInvalid("header", *found_and_expected(error, "a JSON object with code and opaque")) from None
    return _fields(found, {key: text for key, text in texts.items() if text is not None})


def _fields(found: _Read | _ReadRaw, ext_fields: dict[str, str]) -> Fields:
    language = "JAVA" if found.language is None else found.language
    return found.code, found.opaque, found.flag or 0, language, found.version or 0, found.remark, ext_fields


def _text(raw: msgspec.Raw) -> str | None:
    """The value of a field of extFields. None: as if the field were not there. Raises: FrameInvalid, msgspec.DecodeError."""
    value = bytes(raw)
    if value[:1] == b'"':
        return _text_decoder.decode(value)
    if value == b"null":
        return None
    if value[:1] in (b"{", b"["):
        raise FrameInvalid("extFields", "an array or an object", "text or a number")
    return value.decode("ascii")


def _depth(text: bytes) -> int:
    """How many arrays and objects are open at once, at most; brackets within strings do not count."""
    depth = deepest = 0
    for byte in _STRING.sub(b"", text):
        if byte in _OPENS:
            depth += 1
            deepest = max(deepest, depth)
        elif byte in _CLOSES:
            depth -= 1
    return deepest
