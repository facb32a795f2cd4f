"""Read the objects of JSON bodies as leniently as fastjson does: clients in other languages send numbers as text and enums as
ordinals.

Each function raises RequestInvalid, which the server answers with SYSTEM_ERROR.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting import body_json

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_SHOWN: Final = 60

Fields = Mapping[str, object]


def read_object(body: bytes, what: str) -> Fields:
    """The object that a body is."""
    return as_object(body_json.read(body, what), what)


def as_object(value: object, what: str) -> Fields:
    """A value that must be an object."""
    if not isinstance(value, dict):
        raise RequestInvalid(what, shown(value), "an object")
    return value


def objects(fields: Fields, name: str) -> list[Fields]:
    """The objects of an array; none if it is missing or null."""
    return [as_object(value, name) for value in array(fields, name)]


def array(fields: Fields, name: str) -> list[Any]:
    """The values of an array; none if it is missing or null."""
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestInvalid(name, shown(value), "an array")
    return value


def text(fields: Fields, name: str, missing: str | None = None) -> str:
    """A text; `missing` if it is missing or null, unless that is None."""
    value = fields.get(name)
    if value is None and missing is not None:
        return missing
    if not isinstance(value, str):
        raise RequestInvalid(name, shown(value), "text")
    return value


def integer(fields: Fields, name: str, missing: int, bits: int = 64) -> int:
    """A signed whole number of so many bits, or its text; `missing` if it is missing or null."""
    value = fields.get(name)
    return missing if value is None else as_integer(value, name, bits)


def as_integer(value: object, name: str, bits: int) -> int:
    """A signed whole number of so many bits, or its text."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise RequestInvalid(name, shown(value), f"an i{bits}")
    return value


def boolean(fields: Fields, name: str, *, missing: bool) -> bool:
    """A truth value, or its text, or a number that is not 0; `missing` if it is missing or null."""
    value = fields.get(name)
    if value is None:
        return missing
    if isinstance(value, str):
        return value.lower() == "true"
    if not isinstance(value, int):
        raise RequestInvalid(name, shown(value), "true or false")
    return bool(value)


def enum(fields: Fields, name: str, values: Sequence[str], missing: str) -> str:
    """One of the values, or its ordinal; `missing` if it is missing or null."""
    value = fields.get(name)
    if value is None:
        return missing
    if type(value) is int and 0 <= value < len(values):
        return values[value]
    if not isinstance(value, str) or value not in values:
        raise RequestInvalid(name, shown(value), "one of " + ", ".join(values))
    return value


def shown(value: object) -> str:
    """A value of JSON as an error shows it: its beginning."""
    if value is None:
        return "nothing"
    return (repr(value) if isinstance(value, str) else body_json.write(value).decode(errors="replace"))[:_SHOWN]
