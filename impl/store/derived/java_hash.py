"""Java's String.hashCode, from which RocketMQ makes tags codes and index keys: of one text, or of many at once.

The hash is a polynomial at 31, modulo 2**32, over the UTF-16 units of the text. A Python loop takes about 80 ns for each unit,
and the index needs the hash of every key. So many texts are packed into one big integer, each in a lane of 64 bytes. Six
rounds evaluate all polynomials: each round combines neighbours (bytes, pairs, ...) by two masks, a shift and a product. Leading
zero bytes do not change a hash, so lanes can be padded; where no text has more than 32 bytes, the lanes have 32, and there are
five rounds.

Source: 4.9.8 MessageExtBrokerInner.tagsString2tagsCode and IndexFile.indexKeyHashMethod.
"""

import re
import struct
from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

_LANE_SIZE: Final = 32  # bytes, one for each unit; a client's unique key has 32
_LONG_LANE_SIZE: Final = 64  # the key of a client whose address is IPv6 has 56
_LANES_AT_ONCE: Final = 512
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_LOW_32: Final = 0xFFFFFFFF


def java_text(data: bytes) -> str:
    """Decode UTF-8 as Java does: U+FFFD for each malformed part, and one, not three, for an encoded surrogate."""
    if data.isascii():
        return data.decode("ascii")
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def java_hash(text: str) -> int:
    """The hash of a text as a signed i32. HA-ST-32 "MUST be the Java String.hashCode of the message's tags", for one.

    >>> java_hash("TagA"), java_hash("refund"), java_hash("")
    (2598919, -934813832, 0)
    """
    value = unsigned_hash(text)
    return value - (value >> 31 << 32)


def unsigned_hash(text: str) -> int:
    """The hash of a text as a u32 with the same bits."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = 31 * value + unit & _LOW_32
    else:
        for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
            value = 31 * value + unit & _LOW_32
    return value


def index_key_hash(text: str) -> int:
    """The hash of a key in the index. HA-ST-42 "the absolute value of its Java String.hashCode, or 0 where that is
    still negative".

    >>> index_key_hash("polygenelubricants")
    0
    """
    return positive(unsigned_hash(text))


def positive(unsigned: int) -> int:
    """The absolute value of an i32, given as a u32 with the same bits; 0 for the smallest i32, which has none."""
    if unsigned < 0x80000000:
        return unsigned
    return 0x100000000 - unsigned if unsigned > 0x80000000 else 0


def unsigned_hashes(texts: Sequence[str]) -> list[int]:
    """The hash of each text, as u32."""
    lane = _LANES[any(len(text) > _LANES[0].size for text in texts)]
    fitting = [text.encode("ascii") for text in texts if len(text) <= lane.size and text.isascii()]
    if len(fitting) < 2:
        return [unsigned_hash(text) for text in texts]
    hashes: list[int] = []
    for start in range(0, len(fitting), _LANES_AT_ONCE):
        hashes += _hash_lanes(lane, fitting[start : start + _LANES_AT_ONCE])
    if len(fitting) == len(texts):
        return hashes
    in_order = iter(hashes)
    return [next(in_order) if len(text) <= lane.size and text.isascii() else unsigned_hash(text) for text in texts]


def power_of_31(exponent: int) -> int:
    """31 ** exponent modulo 2**32: the factor of a prefix's hash if `exponent` units follow."""
    return _POWERS[exponent] if exponent < len(_POWERS) else pow(31, exponent, 1 << 32)


_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in range(256))


class _Lane(NamedTuple):
    """The lanes of one size. levels: for each round the distance of the neighbours, the mask of the lower ones, and the weight
    of the upper ones. hashes: a lane, of which the hash is the end.
    """

    size: int
    levels: tuple[tuple[int, int, int], ...]
    hashes: struct.Struct


def _lane(size: int) -> _Lane:
    """From lanes of 8 bytes on the masks keep only 32 bits, since the hash is modulo 2**32."""
    levels = []
    half = 1  # bytes
    while half < size:
        kept = min(half, 4)
        mask = (bytes(2 * half - kept) + b"\xff" * kept) * (size // (2 * half) * _LANES_AT_ONCE)
        levels.append((8 * half, int.from_bytes(mask, "big"), pow(31, half, 1 << 32)))
        half *= 2
    return _Lane(size, tuple(levels), struct.Struct(f">{size - 4}xI"))


_LANES: Final = (_lane(_LANE_SIZE), _lane(_LONG_LANE_SIZE))


def _hash_lanes(lane: _Lane, texts: Sequence[bytes]) -> list[int]:
    size, levels, hashes = lane
    number = int.from_bytes(b"".join(map(bytes.rjust, texts, repeat(size), repeat(b"\0"))), "big")
    for distance, mask, weight in levels:
        number = (number >> distance & mask) * weight + (number & mask)
    # The last sum may exceed 32 bits, but not its lane.
    found = number.to_bytes(size * len(texts), "big")
    return [value for (value,) in hashes.iter_unpack(found)]
