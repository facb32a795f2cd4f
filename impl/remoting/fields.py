"""Read the fields of a request: text in `ext_fields`, a number or a truth value by what the code says.

Each function raises RequestInvalid for a field that is missing or has no value of its type; the server answers that.
Spec: HA-RM-13 "MUST be answered SYSTEM_ERROR".
"""

import re
from typing import Final, overload

from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.command import RemotingCommand

_NUMBER: Final = re.compile(r"([+-]?)0*([0-9]{1,20})")
_SURE: Final = {31: 10, 63: 19}  # a number of fewer digits is in the range of its type
_SMALL: Final = {str(number): number for number in range(1024)}  # most fields hold one of these
_SHOWN: Final = 60  # characters of a value that a remark repeats
_MISSING: Final = "nothing"


def text(request: RemotingCommand, name: str, expected: str = "text") -> str:
    """The text of a field that must be there. expected: what the error asks for."""
    try:
        return request.ext_fields[name]
    except KeyError:
        raise RequestInvalid(f"field {name}", _MISSING, expected) from None


@overload
def optional_text(request: RemotingCommand, name: str) -> str | None: ...
@overload
def optional_text(request: RemotingCommand, name: str, default: str) -> str: ...
def optional_text(request: RemotingCommand, name: str, default: str | None = None) -> str | None:
    """The text of a field that may be missing."""
    return request.ext_fields.get(name, default)


def i32(request: RemotingCommand, name: str) -> int:
    """The number of a field that must be there, as Java's Integer.parseInt reads it."""
    return _number(text(request, name, "an i32"), name, 31)


def i64(request: RemotingCommand, name: str) -> int:
    """The number of a field that must be there, as Java's Long.parseLong reads it."""
    return _number(text(request, name, "an i64"), name, 63)


@overload
def optional_i32(request: RemotingCommand, name: str) -> int | None: ...
@overload
def optional_i32(request: RemotingCommand, name: str, default: int) -> int: ...
def optional_i32(request: RemotingCommand, name: str, default: int | None = None) -> int | None:
    """The number of a field that may be missing."""
    value = request.ext_fields.get(name)
    return default if value is None else _number(value, name, 31)


@overload
def optional_i64(request: RemotingCommand, name: str) -> int | None: ...
@overload
def optional_i64(request: RemotingCommand, name: str, default: int) -> int: ...
def optional_i64(request: RemotingCommand, name: str, default: int | None = None) -> int | None:
    """The number of a field that may be missing."""
    value = request.ext_fields.get(name)
    return default if value is None else _number(value, name, 63)


def boolean(request: RemotingCommand, name: str) -> bool:
    """The truth value of a field that must be there: `true` in any case is true, all other text is false, as in Java."""
    return text(request, name, "true or false").lower() == "true"


def optional_boolean(request: RemotingCommand, name: str, *, default: bool = False) -> bool:
    """The truth value of a field that may be missing."""
    value = request.ext_fields.get(name)
    return default if value is None else value.lower() == "true"


def _number(value: str, name: str, bits: int) -> int:
    """HA-RM-14 "MUST be read as Java reads": an optional sign and decimal digits, within the range of its type."""
    if (small := _SMALL.get(value)) is not None:
        return small
    if len(value) < _SURE[bits] and value.isdecimal() and value.isascii():
        return int(value)
    if found := _NUMBER.fullmatch(value):
        number = int(found[1] + found[2])
        if -(1 << bits) <= number < 1 << bits:
            return number
    raise RequestInvalid(f"field {name}", repr(value[:_SHOWN]), f"an i{bits + 1}")
