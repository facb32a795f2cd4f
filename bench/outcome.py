"""The results of a run of the benchmarks, one row per measurement, as a table for people and as JSON for programs.

A row is the ratio of two rates that were measured by turns on one machine. A ratio above 1 means that ours is faster.
"""

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

ROUNDS: Final = 9  # of a comparison with a floor
RESULTS: Final = Path(__file__).resolve().parent / "results" / "bench.json"
_COLUMNS: Final = ("what", "beside", "ours", "beside it", "ratio", "middle half", "busy: client+server")


@dataclass(frozen=True, slots=True)
class Row:
    """A comparison: the medians of both sides, and the range of ratios that holds the middle half of the rounds."""

    what: str
    beside: str  # the other side: "floor", "java", ...
    unit: str  # of `ours` and `other`
    ours: float
    other: float
    ratio: float
    ratio_low: float
    ratio_high: float
    rounds: int
    busy: str = ""  # the processors that client+server kept busy, ours; the other


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement without a comparison: the median of the rounds and the range of their middle half. Lower is better."""

    what: str
    unit: str
    value: float
    low: float
    high: float
    at_most: float | None  # the target
    rounds: int


def figure_of(what: str, unit: str, values: Sequence[float], at_most: float | None) -> Figure:
    """Make a Figure from one value per round. There must be at least two."""
    low, middle, high = (float(f"{value:.4g}") for value in statistics.quantiles(values, n=4))
    return Figure(what, unit, middle, low, high, at_most, len(values))


def row_of(what: str, beside: str, unit: str, ours: Sequence[float], others: Sequence[float], busy: str = "") -> Row:
    """Make a Row from rates that were measured in pairs. Higher is better."""
    ratios = [our / other for our, other in zip(ours, others, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    medians = statistics.median(ours), statistics.median(others)
    digits = 4
    return Row(
        *(what, beside, unit, float(f"{medians[0]:.{digits}g}"), float(f"{medians[1]:.{digits}g}")),
        *(round(middle, 3), round(low, 3), round(high, 3), len(ratios), busy),
    )


def busy_of(rounds: Sequence[Mapping[str, float]], *sides: str) -> str:
    """Say how many processors the client and the server of each side kept busy, if that was measured: the medians."""
    if f"{sides[0]} client" not in rounds[0]:
        return ""
    medians = (
        [statistics.median(rates[f"{side} {end}"] for rates in rounds) for end in ("client", "server")] for side in sides
    )
    return "; ".join(f"{client:.2f}+{server:.2f}" for client, server in medians)


def table(rows: Sequence[Row]) -> list[str]:
    """Return the rows as lines of text with aligned columns."""
    cells = [_COLUMNS, *(_cells(row) for row in rows)]
    if not any(row.busy for row in rows):
        cells = [line[:-1] for line in cells]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = []
    for line in cells:
        left = "  ".join(text.ljust(width) for text, width in zip(line[:2], widths[:2], strict=True))
        right = "  ".join(text.rjust(width) for text, width in zip(line[2:], widths[2:], strict=True))
        lines.append(f"{left}  {right}".rstrip())
    return lines


def figure_lines(figures: Sequence[Figure]) -> list[str]:
    """Return the figures as lines of text, one per figure."""
    width = max((len(figure.what) for figure in figures), default=0)
    return [
        f"{figure.what.ljust(width)}  {figure.value:.4g} {figure.unit}, middle half {figure.low:.4g} to {figure.high:.4g}"
        + ("" if figure.at_most is None else f"; target: at most {figure.at_most:g}")
        for figure in figures
    ]


def _cells(row: Row) -> tuple[str, ...]:
    rates = (f"{_short(rate)}{row.unit}" for rate in (row.ours, row.other))
    return (row.what, row.beside, *rates, f"{row.ratio:.3g}", f"{row.ratio_low:.3g} to {row.ratio_high:.3g}", row.busy)


def _short(rate: float) -> str:
    for limit, divisor, suffix in ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if rate >= limit:
            return f"{rate / divisor:.3g}{suffix}"
    return f"{rate:.3g} "


def write(rows: Sequence[Row], figures: Sequence[Figure], notes: Sequence[str], path: Path = RESULTS) -> None:
    """Write a run as JSON, one row per line. It names the Python version, but not the machine."""
    head = json.dumps({"python": platform.python_version(), "notes": list(notes)})
    lists = (("rows", rows), ("figures", figures))
    parts = [f'"{name}": [\n' + ",\n".join(json.dumps(asdict(item)) for item in items) + "\n]" for name, items in lists]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head[:-1]}, {', '.join(parts)}}}\n", encoding="utf-8")
