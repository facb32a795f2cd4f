"""The table below HA-R-26: which code the outcome of a pull is answered with."""

import re
from functools import cache
from pathlib import Path
from typing import Final

CHAPTER: Final = Path(__file__).parents[2] / "spec" / "7-routes.md"
_ROW: Final = re.compile(r"^\| ([^|]*[A-Z]{2}[^|]*) \| (\d+) \|$", re.MULTILINE)
_TABLE: Final = re.compile(r"^\| outcome \(`GetMessageStatus`\) .*?\n\n", re.MULTILINE | re.DOTALL)
_NAME: Final = re.compile(r"\b[A-Z]+(?:_[A-Z]+)*\b")
_CONDITIONS: Final = {"where offset 0 was asked for": (True,), "where another offset was asked for": (False,)}


@cache
def read() -> dict[tuple[str, bool], int]:
    """The code by the name of the outcome, and whether offset 0 was asked for."""
    return in_text(CHAPTER.read_text(encoding="utf-8"))


def in_text(text: str) -> dict[tuple[str, bool], int]:
    found: dict[tuple[str, bool], int] = {}
    for outcomes, code in _ROW.findall(_TABLE.findall(text)[0]):
        for part in outcomes.split(";"):
            offsets = next((which for words, which in _CONDITIONS.items() if words in part), (True, False))
            for name in _NAME.findall(part):
                for is_from_0 in offsets:
                    if (name, is_from_0) in found:
                        raise ValueError(f"HA-R-26: {name} stands twice in the table")
                    found[name, is_from_0] = int(code)
    return found
