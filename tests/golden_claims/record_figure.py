"""The figure of a record in chapter 5: where it says that each field stands, and which bits of sysFlag it names."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

CHAPTER: Final = Path(__file__).parents[2] / "spec" / "5-store.md"
_ROW: Final = re.compile(r"^ +(?:(\d+)\*? *)?\| +(\S.*?) +\|$", re.MULTILINE)
_BIT: Final = re.compile(r"\b([0-9A-F]+) (compressed|born v6|store v6)\b")
_MAGIC: Final = re.compile(r"\b([0-9A-F]{8}) \((V\d)")
_SINCE: Final = re.compile(r"V2, from (\d+\.\d+\.\d+) on")


@dataclass(frozen=True, slots=True)
class Figure:
    """What the figure says. The positions are those with IPv4 hosts and, of what stands behind the body, without a body."""

    positions: dict[str, int]  # by the first words of a field
    bits: dict[str, int]
    magics: dict[str, int]
    v2_since: str
    tail: str  # what stands in the last two rows


@cache
def read() -> Figure:
    return in_text(CHAPTER.read_text(encoding="utf-8"))


def in_text(text: str) -> Figure:
    figure = text.partition("### Records\n")[2].partition("\n**HA-ST-2.**")[0]
    rows = _ROW.findall(figure)
    positions = {re.split(r" \(|[:,]| \.\.\.", words)[0]: int(position) for position, words in rows if position}
    tail = " | ".join(words for _, words in rows[-2:])
    return Figure(
        positions,
        {name: int(bit, 16) for bit, name in _BIT.findall(figure)},
        {name: int(magic, 16) for magic, name in _MAGIC.findall(figure)},
        _SINCE.findall(figure)[0],
        tail,
    )
