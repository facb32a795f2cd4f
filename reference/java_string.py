"""Java's strings, as far as the bytes of a store depend on them: how they are read from UTF-8, and their hash code.

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

ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
REPLACEMENT = "\ufffd".encode()


def text(data: bytes) -> str:
    """The string that Java makes of UTF-8: what is malformed becomes U+FFFD, an encoded surrogate one of them and not three."""
    return ENCODED_SURROGATE.sub(REPLACEMENT, data).decode("utf-8", "replace")


def hash_code(string: str) -> int:
    """`String.hashCode`, an i32: over UTF-16 units, so that a character beyond U+FFFF counts as two."""
    units = string.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    return value - (value >> 31 << 32)
