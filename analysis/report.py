"""Render the report as one HTML page without scripts or network access. The same tables give the same bytes."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from rocketmq_ha.analysis import view
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import SCHEMA_VERSION

TEMPLATE: Final = "report.html.j2"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def render(page: view.View) -> str:
    """Return the page as HTML. The template engine escapes every value."""
    environment = Environment(
        loader=PackageLoader("rocketmq_ha.analysis", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"n": number, "size": size, "short": short, "name": name, "prose": prose, "heat": heat}
    environment.globals["share"] = share
    return environment.get_template(TEMPLATE).render(page=page, figures=page.figures, schema_version=SCHEMA_VERSION)


def build(tables: Mapping[str, pa.Table], possible: Possible, campaigns: Sequence[Mapping[str, Any]]) -> str:
    """Return the page for the given tables as HTML."""
    return render(view.build(tables, possible, campaigns))


def last_line(figures: view.Figures, path: object) -> str:
    """Return the summary line: key=value pairs for other programs."""
    return (
        f"report={path} runs={figures.runs} steps={figures.steps} transitions={figures.seen}/{figures.possible} "
        f"divergences={figures.failed_runs} impossible={figures.impossible}"
    )


def number(value: float | None) -> str:
    """Format a number for a table or a sentence.

    >>> number(1234567), number(51.0), number(0.0049), number(None)
    ('1,234,567', '51', '0.0049', 'none')
    """
    if value is None:
        return "none"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def short(value: int) -> str:
    """Format a count so that it fits a cell of the matrix.

    >>> short(9999), short(12345), short(2_400_000)
    ('9,999', '12k', '2.4M')
    """
    if value < 10_000:
        return f"{value:,}"
    if value < 1_000_000:
        return f"{value // 1000}k"
    return f"{value / 1_000_000:.1f}M" if value < 1_000_000_000 else f"{value / 1_000_000_000:.1f}G"


def size(value: float) -> str:
    """Format a number of bytes.

    >>> size(512), size(3 * 1024 * 1024)
    ('512 B', '3.0 MiB')
    """
    power = 0
    while value >= 1024 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.0f} B" if power == 0 else f"{value:.1f} {_UNITS[power]}"


def share(part: int, whole: int) -> str:
    """Format a percentage, rounded down, so that 100 % means all.

    >>> share(999, 1000), share(0, 0)
    ('99 %', '0 %')
    """
    return f"{part * 100 // whole if whole else 0} %"


def heat(value: int) -> int:
    """Return the shade of a cell, from 1 (light) to 4 (dark), by order of magnitude; 0 if the value is 0.

    >>> [heat(value) for value in (1, 10, 99, 100, 10_000, 10_000_000)]
    [1, 2, 2, 3, 4, 4]
    """
    return min(4, 1 + int(math.log10(value))) if value > 0 else 0


def name(value: str) -> Markup:
    """Escape a long identifier so that lines break only after its underscores, slashes and dots."""
    text = str(escape(value))
    for mark in ("_", "/", "."):
        text = text.replace(mark, f"{mark}<wbr>")
    return Markup(text)


def prose(value: str) -> Markup:
    """Render a clause's sentence, with its Markdown for code and italics, as HTML.

    >>> str(prose("*(classic)* ends as `stalled` if 1 < 2"))
    '<i>(classic)</i> ends as <code>stalled</code> if 1 &lt; 2'
    """
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(value)))
    return Markup(re.sub(r"\*([^*]+)\*", r"<i>\1</i>", text))
