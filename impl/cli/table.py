"""Tables that fit the terminal and never shorten a number. If the columns do not fit, each row becomes some lines.

A text column may be shortened only if it has a least width, and only down to it. If that is not enough, a row becomes
`name value` pairs, and a line holds all that fit. A pipe has no width, so a table is printed in full.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Final, NoReturn

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

_GAP: Final = 2  # spaces between columns, and before each line of a row except the first
_LONGEST_NAME: Final = 32  # of a pair: the 46 cells for a value on 80 columns take the time that a broker runs, in words
_UNLIMITED: Final = 10_000  # the width of a pipe


@dataclass(frozen=True, slots=True)
class Column:
    """A column. least: the width to which its text may be shortened; None: never shorten it."""

    name: str
    is_number: bool = False
    least: int | None = None


class _Console(Console):
    """A console that leaves a broken pipe to the command, whose exit status tells of it."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console_for(file: IO[str] | None = None) -> Console:
    """Return a console as wide as the terminal; for a pipe, one that shortens nothing."""
    file = file or sys.stdout
    return _Console(file=file, width=None if file.isatty() else _UNLIMITED, highlight=False, soft_wrap=True)


def print_table(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[str]], styles: Iterable[str] | None = None
) -> None:
    """Print rows of cells as a table, or as lines if a table is too wide.

    Args:  styles: one for each row.
    """
    cells = [tuple(row) for row in rows]
    row_styles = list(styles) if styles is not None else [""] * len(cells)
    widths = [max(cell_len(column.name), *(cell_len(row[at]) for row in cells), 0) for at, column in enumerate(columns)]
    room = console.width - _GAP * (len(columns) - 1)
    least = [width if column.least is None else min(width, column.least) for column, width in zip(columns, widths, strict=True)]
    if sum(least) <= room:
        _as_table(console, columns, cells, row_styles, _shared(widths, least, room))
    else:
        for row, style in zip(cells, row_styles, strict=True):
            for line in _as_lines(columns, row, console.width):
                console.print(line, style=Style.parse(style), soft_wrap=True)


def print_pairs(console: Console, pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair a line. A value that is too long is wrapped between words, under its own beginning.

    A few names are much longer than all others: their values stand further to the right, and the other values do not.
    """
    pairs = list(pairs)
    indent = min(max(cell_len(name) for name, _ in pairs), _LONGEST_NAME) + _GAP
    room = max(1, console.width - indent)
    for name, value in pairs:
        start = max(indent, cell_len(name) + _GAP)
        first, *rest = value.split(" ")
        lines = _wrapped([" " * (start - indent) + first, *rest], room, " ")
        if start > indent and cell_len(lines[0]) > room:
            lines = ["", *_wrapped([first, *rest], room, " ")]
        for number, line in enumerate(lines):
            shown = Text().append(name + " " * (indent - cell_len(name)) if number == 0 else " " * indent, "bold")
            console.print(shown.append(line[max(0, cell_len(name) - indent) :] if number == 0 else line), soft_wrap=True)


def _shared(widths: list[int], least: list[int], room: int) -> list[int]:
    """Return widths that fit into the room: shorten the columns that may be shortened, the widest first."""
    widths = list(widths)
    missing = sum(widths) - room
    while missing > 0:
        at = max((at for at in range(len(widths)) if widths[at] > least[at]), key=lambda at: widths[at])
        widths[at] -= 1
        missing -= 1
    return widths


def _as_table(
    console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], styles: Sequence[str], widths: Sequence[int]
) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(
            Text(column.name), justify="right" if column.is_number else "left", no_wrap=True, overflow="ellipsis", width=width
        )
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*map(Text, row), style=style)
    console.print(table)


def _as_lines(columns: Sequence[Column], row: Sequence[str], width: int) -> list[Text]:
    """Return a row as lines of pairs. The first value identifies the row, and stands without its name."""
    pairs = [(column.name, value, column.least is not None) for column, value in zip(columns, row, strict=True) if value]
    texts = []
    for number, (name, value, may_cut) in enumerate(pairs):
        shown = value if number == 0 else f"{name} {value}"
        if may_cut and cell_len(shown) > width - _GAP:
            cut = Text(shown)
            cut.truncate(max(1, width - _GAP), overflow="ellipsis")
            shown = cut.plain
        texts.append(shown)
    lines = _wrapped(texts, width - _GAP, " " * _GAP)
    return [Text(line if number == 0 else " " * _GAP + line) for number, line in enumerate(lines)]


def _wrapped(parts: Iterable[str], width: int, gap: str) -> list[str]:
    """Join parts to lines. A part that is wider than a line gets its own line, which the terminal wraps."""
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(lines[-1]) + len(gap) + cell_len(part) <= width:
            lines[-1] += gap + part
        else:
            lines.append(part)
    return lines
