"""A hash of an observation: what a run's row in the log keeps of the implementation, for somebody else to compare later.

Two observations that are equal have the same fingerprint, on every machine: it sees values, not their representation.
"""

import hashlib
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final

NOBODY_LOOKED: Final = 0


def fingerprint(observation: Any) -> int:
    """An int64 that is never NOBODY_LOOKED.

    >>> fingerprint((1, b"a")) == fingerprint([True, bytearray(b"a")]), fingerprint((1, b"a")) == fingerprint((2, b"a"))
    (True, False)
    """
    text = repr(_plain(observation))
    found = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
    return found or 1


def _plain(value: Any) -> Any:
    """The value made of tuples, bytes, numbers, texts and None alone, in one way for all that are equal."""
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, *(_plain(getattr(value, field.name)) for field in fields(value)))
    match value:
        case Enum():
            return _plain(value.value)
        case bool():
            return int(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case tuple() | list():
            return tuple(map(_plain, value))
        case dict():
            return ("dict", *sorted(((_plain(key), _plain(item)) for key, item in value.items()), key=repr))
        case set() | frozenset():
            return ("set", *sorted(map(_plain, value), key=repr))
    return value
