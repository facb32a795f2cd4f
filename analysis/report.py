"""Render the report as one HTML page without scripts or network access. The same tables give the same bytes."""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from rocketmq_ha.analysis import view
from rocketmq_ha.analysis.requirements import Requirement, found
from rocketmq_ha.analysis.schema import Possible
from rocketmq_ha.spec.event_log import SCHEMA_VERSION

PARTS: Final = ("head", "sections")  # of the page; each is a template
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# What neither HTML nor XML may hold, and what UTF-8 cannot: control characters and halves of surrogate pairs.
_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010fffd]")
# Code, in which stars are stars; italics; and the text of a link, whose target is not on the page.
_MARKS: Final = re.compile(r"`([^`]+)`|\*([^*`]+)\*|\[([^\]`]+)\]\([^)\s]*\)")
_HEADING: Final = re.compile(r'<h2 id="([^"]+)">(.*?)(?: <small>.*)?</h2>')


def render(page: view.View) -> str:
    """Return the page as HTML. The template engine escapes every value. The list of sections is made of their headings."""
    environment = Environment(
        loader=PackageLoader("rocketmq_ha.analysis", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"n": number, "size": size, "short": short, "name": name, "prose": prose, "heat": heat, "found": found}
    filters |= {"chance": chance, "duration": duration}
    environment.filters |= filters | {"term": partial(_defined, frozenset(term.name for term in page.terms))}
    environment.globals["share"] = share
    values: dict[str, Any] = {"page": page, "figures": page.figures, "schema_version": SCHEMA_VERSION}
    head, sections = (Markup(environment.get_template(f"{part}.html.j2").render(values)) for part in PARTS)
    headings = [(id, Markup(text)) for id, text in _HEADING.findall(sections)]
    html = environment.get_template("report.html.j2").render(values, head=head, sections=sections, headings=headings)
    return printable(re.sub(r"\n{2,}", "\n", html))


def build(
    tables: Mapping[str, pa.Table],
    possible: Possible,
    campaigns: Sequence[Mapping[str, Any]],
    required: Sequence[Requirement] = (),
) -> str:
    """Return the page for the given tables as HTML."""
    return render(view.build(tables, possible, campaigns, required))


def printable(text: str) -> str:
    """Replace each character that cannot be printed, as a wrong byte is in UTF-8.

    >>> printable("a\\x00b\\ud800c")
    'a\ufffdb\ufffdc'
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def _defined(terms: frozenset[str], name: str) -> str:
    """Check that the glossary of this page has a term, so that no link goes nowhere."""
    assert name in terms, f"{name}: the glossary of this page does not define it"
    return name


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


def chance(value: float) -> str:
    """Format a probability.

    >>> chance(0.5), chance(0.0123), chance(1e-12), chance(0.99999)
    ('50 %', '1.2 %', 'under 0.1 %', 'over 99.9 %')
    """
    percent = 100 * value
    if percent < 0.1:
        return "under 0.1 %"
    if percent > 99.9:
        return "over 99.9 %"
    return f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def duration(us: float) -> str:
    """Format microseconds.

    >>> duration(12), duration(1234), duration(2_345_678), duration(125_000_000)
    ('12 us', '1.2 ms', '2.3 s', '125 s')
    """
    if us < 1000:
        return f"{us:.0f} us"
    if us < 1_000_000:
        return f"{us / 1000:.1f} ms"
    return f"{us / 1_000_000:.1f} s" if us < 100_000_000 else f"{us / 1_000_000:,.0f} s"


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
    return Markup(_MARKS.sub(_element, str(escape(value))))


def _element(found: re.Match[str]) -> str:
    code, italic, link = found.groups()
    return f"<code>{code}</code>" if code else f"<i>{italic}</i>" if italic else str(link)
