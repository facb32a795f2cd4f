"""The report as one HTML page: no script, no network, no clock; the same tables give the same bytes."""

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
    """The page as text; every value is escaped by the template engine."""
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
    """The page of these tables."""
    return render(view.build(tables, possible, campaigns))


def last_line(figures: view.Figures, path: object) -> str:
    """One line of key=value for a program to read."""
    return (
        f"report={path} runs={figures.runs} steps={figures.steps} transitions={figures.seen}/{figures.possible} "
        f"divergences={figures.failed_runs} impossible={figures.impossible}"
    )


def number(value: float | None) -> str:
    """
    >>> number(1234567), number(51.0), number(0.0049), number(None)
    ('1,234,567', '51', '0.0049', 'none')
    """
    if value is None:
        return "none"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def short(value: int) -> str:
    """A count that fits a cell.

    >>> short(9999), short(12345), short(2_400_000)
    ('9,999', '12k', '2.4M')
    """
    if value < 10_000:
        return f"{value:,}"
    if value < 1_000_000:
        return f"{value // 1000}k"
    return f"{value / 1_000_000:.1f}M" if value < 1_000_000_000 else f"{value / 1_000_000_000:.1f}G"


def size(value: float) -> str:
    """
    >>> size(512), size(3 * 1024 * 1024)
    ('512 B', '3.0 MiB')
    """
    power = 0
    while value >= 1024 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.0f} B" if power == 0 else f"{value:.1f} {_UNITS[power]}"


def share(part: int, whole: int) -> str:
    """Rounded down, so that 100 % means all.

    >>> share(999, 1000), share(0, 0)
    ('99 %', '0 %')
    """
    return f"{part * 100 // whole if whole else 0} %"


def heat(value: int) -> int:
    """How dark a cell is, 1 to 4, by order of magnitude.

    >>> [heat(value) for value in (1, 10, 99, 100, 10_000, 10_000_000)]
    [1, 2, 2, 3, 4, 4]
    """
    return min(4, 1 + int(math.log10(value))) if value > 0 else 0


def name(value: str) -> Markup:
    """A long identifier that may break behind its underscores, slashes and dots, and nowhere else."""
    text = str(escape(value))
    for mark in ("_", "/", "."):
        text = text.replace(mark, f"{mark}<wbr>")
    return Markup(text)


def prose(value: str) -> Markup:
    """A clause's sentence with the little Markdown that it holds.

    >>> str(prose("*(classic)* ends as `stalled` if 1 < 2"))
    '<i>(classic)</i> ends as <code>stalled</code> if 1 &lt; 2'
    """
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(value)))
    return Markup(re.sub(r"\*([^*]+)\*", r"<i>\1</i>", text))
