"""The report's plots as inline SVG, which take fonts and colours from the page and have no links.

Matplotlib draws them in placeholder colours. These are replaced by CSS variables of the page, so that one picture serves
both the light and the dark theme. The same data gives the same bytes: ids are salted with a constant, and no date is
written.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

# Placeholder colour -> CSS variable of report.html.j2.
INK: Final = "#010203"
GRID: Final = "#040506"
BAD: Final = "#070809"
SERIES: Final = ("#0a0b0c", "#0d0e0f", "#101112", "#131415")
_VARIABLES: Final[Mapping[str, str]] = {
    INK: "var(--ink)",
    GRID: "var(--line)",
    BAD: "var(--bad)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES, start=1)},
}
_DASHES: Final = ("-", "--", "-.", ":")  # colour is never the only signal

_MAX_NAME: Final = 24  # characters of a campaign's name below a plot
_WIDTH_IN: Final = 4.6  # narrow, so that a phone shows the plot nearly at its drawn size
_STYLE: Final[Any] = {
    "svg.hashsalt": "rocketmq-ha",
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True, slots=True)
class Plot:
    """An SVG element, and its description in words."""

    svg: str
    alt: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One profile's growth: transitions[i] distinct transitions after runs[i] runs."""

    profile: str
    runs: Sequence[int]
    transitions: Sequence[int]
    possible: int


@dataclass(frozen=True, slots=True)
class Bars:
    """The splits of one kind of transfer: counts[i] splits at the place labels[i].

    A label with two words, such as `body 1-3`, is a range of bytes behind those that are counted one by one.
    """

    labels: Sequence[str]
    counts: Sequence[int]
    parts: tuple[str, str]  # of what is split: that of the single bytes, and that of the ranges


def growth(curves: Sequence[Curve], alt: str, name: str = "growth") -> Plot:
    """Plot distinct transitions over runs: for each profile a stepped line, and a thin line at the possible number.

    Args: name: of the plot, unique on the page.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, 3.2), layout="constrained")
        axes = figure.add_subplot()
        for number, curve in enumerate(curves):
            colour, dash = SERIES[number % len(SERIES)], _DASHES[number % len(_DASHES)]
            label = f"{curve.profile}: {curve.transitions[-1]} of {curve.possible}"
            axes.step(curve.runs, curve.transitions, where="post", color=colour, linestyle=dash, linewidth=1.8, label=label)
            axes.axhline(curve.possible, color=colour, linestyle=dash, linewidth=0.7)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=10))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("runs (logarithmic)")
        axes.set_ylabel("distinct transitions")
        # Above the axes: a curve and its thin line may come to any corner within them.
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)
        return Plot(_svg(figure, name), alt)


def trend(names: Sequence[str], transitions: Sequence[int], alt: str) -> Plot:
    """Plot the transitions that campaigns saw, in their order. The first and the last campaign are named."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, 2.2), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(names))
        axes.plot(places, transitions, color=SERIES[0], linewidth=1.8, marker="o", markersize=3)
        ends = (0, len(names) - 1)
        axes.set_xticks(ends, [_shortened(names[end]) for end in ends])
        oldest, newest = axes.get_xticklabels()
        oldest.set_horizontalalignment("left")
        newest.set_horizontalalignment("right")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.set_ylabel("transitions seen")
        return Plot(_svg(figure, "trend"), alt)


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def splits(bars: Bars, name: str, alt: str) -> Plot:
    """Plot splits by place, as bars on a logarithmic scale. A cross marks a place without splits."""
    with matplotlib.rc_context(_STYLE):
        # The margins are fixed, because the automatic layouts leave no room for the names of the parts.
        is_range = [" " in label for label in bars.labels]
        below_in = 0.8 if any(is_range) else 0.3
        height_in = 1.5 + below_in
        figure = Figure(figsize=(_WIDTH_IN, height_in))
        figure.subplots_adjust(left=0.15, right=0.995, top=0.97, bottom=below_in / height_in)
        axes = figure.add_subplot()
        # A gap sets the ranges apart from the single bytes.
        places = [at + 0.8 * is_one for at, is_one in enumerate(is_range)]
        axes.bar(places, bars.counts, width=0.72, color=SERIES[0])
        missing = [at for at, count in zip(places, bars.counts, strict=True) if count == 0]
        top = max(*bars.counts, 1)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(0, top * 2)
        axes.plot(missing, [0.25] * len(missing), linestyle="none", marker="x", color=BAD, markersize=6, markeredgewidth=1.8)
        _count_axis(axes, top)
        axes.set_xticks(places, [label.rpartition(" ")[2] for label in bars.labels])
        if any(is_range):
            axes.tick_params(axis="x", labelrotation=90)
            first = is_range.index(True)
            for at, part in zip(((first - 1) / 2, (places[first] + places[-1]) / 2), bars.parts, strict=True):
                axes.text(at, -0.46, f"bytes of the {part}", transform=axes.get_xaxis_transform(), ha="center", va="top")
        axes.set_ylabel("splits")
        return Plot(_svg(figure, name), alt)


def _count_axis(axes: Axes, top: int) -> None:
    powers = [0, *(10**power for power in range(len(str(top))))]
    kept = powers if len(powers) <= 6 else powers[:1] + powers[1::2]
    axes.set_yticks(kept, [f"{value:,}" for value in kept])
    axes.yaxis.set_minor_locator(NullLocator())


def _svg(figure: Figure, name: str) -> str:
    """Return the figure as an SVG element for a page with several of them, scaled by CSS."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\s+(xmlns(:xlink)?|version|width|height)="[^"]*"', "", text[: text.index(">")]) + text[text.index(">") :]
    text = text.replace("xlink:href", "href")
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: (\d+)px [^;\"]*", r"font-size: \1px", text)
    for placeholder, variable in _VARIABLES.items():
        text = text.replace(placeholder, variable)
    text = re.sub(r"\n\s*", "\n", text)
    return text.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1).strip()
