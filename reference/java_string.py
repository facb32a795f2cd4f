"""Java's decoding of UTF-8, its String.hashCode and its integer parsing, on which the bytes of a store depend.

>>> hash_code("TagA"), hash_code("refund"), hash_code("")
(2598919, -934813832, 0)
>>> hash_code("Aa") == hash_code("BB")
True
>>> hash_code("\\U0001f600") == hash_code("\\U0001f600"[0]) == 31 * 0xD83D + 0xDE00
True
>>> text(b"Gr\\xc3\\xb6\\xc3\\x9fe \\xff \\xed\\xa0\\x80") == "Gr\\u00f6\\u00dfe \\ufffd \\ufffd"
True
"""

import re
from functools import lru_cache

ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
REPLACEMENT = "\ufffd".encode()


def text(data: bytes) -> str:
    """Decode UTF-8 as Java does: malformed bytes become U+FFFD; an encoded surrogate becomes one U+FFFD, not three."""
    return ENCODED_SURROGATE.sub(REPLACEMENT, data).decode("utf-8", "replace")


@lru_cache(maxsize=1024)
def hash_code(string: str) -> int:
    """`String.hashCode`, an i32: over UTF-16 units, so that a character beyond U+FFFF counts as two."""
    units = string.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (value >> 31 << 32)


def parse_int(string: str) -> int | None:
    """`Integer.parseInt`; None where Java throws. It accepts digits of any script that take one UTF-16 unit.

    >>> parse_int("+5"), parse_int("-0"), parse_int("0" * 40 + "7"), parse_int("\uff13")
    (5, 0, 7, 3)
    >>> [parse_int(string) for string in ("", "+", " 1", "1_0", "2147483648", "-2147483649", "\U0001d7d7")] == [None] * 7
    True
    >>> parse_int("2147483647"), parse_int("-2147483648")
    (2147483647, -2147483648)
    """
    negative, digits = string.startswith("-"), string[1:] if string[:1] in ("+", "-") else string
    if not digits.isdecimal() or max(digits) > "\uffff":
        return None
    value = 0
    for digit in digits:
        value = 10 * value + int(digit)
        if value > 1 << 31:
            return None
    value = -value if negative else value
    return value if value < 1 << 31 else None


def as_long(value: int) -> int:
    """Wrap an integer around like a Java long.

    >>> as_long(1 << 63) == -(1 << 63), as_long(-1)
    (True, -1)
    """
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
