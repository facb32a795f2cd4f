"""The two plots, as matplotlib has them before they become SVG: bars, crosses, lines, scales and labels; and the SVG's form."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from rocketmq_ha.analysis import plots
from rocketmq_ha.analysis.plots import Bars, Curve, Plot

HEADER_AND_BODY = Bars(["1", "2", "3", "12", "body 1-3", "body 4-15"], [5, 0, 123, 7, 0, 20], ("header", "body"))
REPORT = Bars(["1", "2", "3"], [0, 4, 1], ("report", "report"))

AxesOf = Callable[[Callable[[], Plot]], tuple[Axes, str]]


@pytest.fixture
def axes_of(monkeypatch: pytest.MonkeyPatch) -> AxesOf:
    """(the axes of a plot, the name under which it becomes SVG)."""

    def find(make: Callable[[], Plot]) -> tuple[Axes, str]:
        figures: list[tuple[Figure, str]] = []
        with monkeypatch.context() as patched:
            patched.setattr(plots, "_svg", lambda figure, name: figures.append((figure, name)) or "svg")
            assert make() == Plot("svg", "words")
        figure, name = figures[0]
        return figure.axes[0], name

    return find


def labels(axes: Axes) -> dict[float, str]:
    """The text of each tick of the x axis."""
    ticks = axes.get_xticks()
    return {round(float(at), 2): text.get_text() for at, text in zip(ticks, axes.get_xticklabels(), strict=True)}


def test_each_place_has_a_bar_and_the_body_stands_apart(axes_of: AxesOf) -> None:
    axes, name = axes_of(lambda: plots.splits(HEADER_AND_BODY, "splits-4", "words"))
    assert name == "splits-4"
    bars = [(round(bar.get_x() + bar.get_width() / 2, 2), bar.get_height()) for bar in axes.patches]  # type: ignore[attr-defined]
    assert bars == [(0, 5), (1, 0), (2, 123), (3, 7), (4.8, 0), (5.8, 20)]
    assert labels(axes) == {0: "1", 1: "2", 2: "3", 3: "12", 4.8: "1-3", 5.8: "4-15"}
    assert {to_hex(bar.get_facecolor()) for bar in axes.patches} == {plots.SERIES[0]}


def test_a_place_without_a_split_has_a_cross_in_another_colour(axes_of: AxesOf) -> None:
    axes, _ = axes_of(lambda: plots.splits(HEADER_AND_BODY, "x", "words"))
    (crosses,) = axes.lines
    assert [round(float(x), 2) for x in crosses.get_xdata()] == [1, 4.8]  # type: ignore[union-attr]
    assert list(crosses.get_ydata()) == [0.25, 0.25]  # type: ignore[arg-type]
    assert (crosses.get_marker(), crosses.get_linestyle(), crosses.get_color()) == ("x", "None", plots.BAD)


def test_a_place_with_one_split_has_no_cross(axes_of: AxesOf) -> None:
    axes, _ = axes_of(lambda: plots.splits(REPORT, "x", "words"))
    assert list(axes.lines[0].get_xdata()) == [0]  # type: ignore[arg-type]


def test_the_counts_are_logarithmic_with_room_above(axes_of: AxesOf) -> None:
    axes, _ = axes_of(lambda: plots.splits(HEADER_AND_BODY, "x", "words"))
    assert axes.get_yscale() == "symlog"
    assert axes.yaxis.get_transform().linthresh == 1  # type: ignore[attr-defined]
    assert axes.get_ylim() == (0, 246)
    assert axes.get_ylabel() == "splits"


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0, {0: "0", 1: "1"}),
        (9, {0: "0", 1: "1"}),
        (10, {0: "0", 1: "1", 10: "10"}),
        (99_999, {0: "0", 1: "1", 10: "10", 100: "100", 1000: "1,000", 10_000: "10,000"}),
        (100_000, {0: "0", 1: "1", 100: "100", 10_000: "10,000"}),
        (1_000_000, {0: "0", 1: "1", 100: "100", 10_000: "10,000", 1_000_000: "1,000,000"}),
    ],
)
def test_the_count_axis_has_at_most_six_powers_of_ten(axes_of: AxesOf, most: int, ticks: dict[int, str]) -> None:
    axes, _ = axes_of(lambda: plots.splits(Bars(["1", "2"], [most, 0], ("report", "report")), "x", "words"))
    found = {int(at): text.get_text() for at, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)}
    assert found == ticks
    assert axes.get_ylim() == (0, 2 * max(most, 1))
    assert list(axes.get_yticks(minor=True)) == []


def test_the_parts_of_a_frame_are_named_below_their_middle(axes_of: AxesOf) -> None:
    axes, _ = axes_of(lambda: plots.splits(HEADER_AND_BODY, "x", "words"))
    parts = [(round(float(text.get_position()[0]), 2), text.get_position()[1], text.get_text()) for text in axes.texts]
    assert parts == [(1.5, -0.46, "bytes of the header"), (5.3, -0.46, "bytes of the body")]
    assert {text.get_rotation() for text in axes.get_xticklabels()} == {90}
    figure = axes.figure
    assert isinstance(figure, Figure)
    assert [round(float(inches), 2) for inches in figure.get_size_inches()] == [4.6, 2.3]
    assert round(figure.subplotpars.bottom, 4) == round(0.8 / 2.3, 4)


def test_the_parts_of_a_command_have_their_own_names(axes_of: AxesOf) -> None:
    command = Bars(["1", "8", "rest 1-3"], [1, 2, 3], ("lengths", "rest"))
    axes, _ = axes_of(lambda: plots.splits(command, "x", "words"))
    assert [text.get_text() for text in axes.texts] == ["bytes of the lengths", "bytes of the rest"]
    assert labels(axes) == {0: "1", 1: "8", 2.8: "1-3"}


def test_a_report_has_no_parts_and_is_lower(axes_of: AxesOf) -> None:
    axes, _ = axes_of(lambda: plots.splits(REPORT, "x", "words"))
    assert [bar.get_height() for bar in axes.patches] == [0, 4, 1]  # type: ignore[attr-defined]
    assert labels(axes) == {0: "1", 1: "2", 2: "3"}
    assert (list(axes.texts), {text.get_rotation() for text in axes.get_xticklabels()}) == ([], {0})
    figure = axes.figure
    assert isinstance(figure, Figure)
    assert [round(float(inches), 2) for inches in figure.get_size_inches()] == [4.6, 1.8]
    assert round(figure.subplotpars.bottom, 4) == round(0.3 / 1.8, 4)


CURVES = [Curve("classic", [1, 3, 20], [2, 5, 6], 9), Curve("hardened", [1, 40], [7, 8], 8)]


def test_each_profile_has_a_stepped_line_and_a_thin_one_at_what_is_possible(axes_of: AxesOf) -> None:
    axes, name = axes_of(lambda: plots.growth(CURVES, "words"))
    assert name == "growth"
    lines: list[Any] = list(axes.lines)
    assert [(list(line.get_xdata()), list(line.get_ydata()), line.get_drawstyle()) for line in lines] == [
        ([1, 3, 20], [2, 5, 6], "steps-post"),
        ([0, 1], [9, 9], "default"),
        ([1, 40], [7, 8], "steps-post"),
        ([0, 1], [8, 8], "default"),
    ]
    assert [line.get_linewidth() for line in lines] == [1.8, 0.7, 1.8, 0.7]
    assert [line.get_color() for line in lines] == [plots.SERIES[0], plots.SERIES[0], plots.SERIES[1], plots.SERIES[1]]
    assert [line.get_linestyle() for line in lines] == ["-", "-", "--", "--"]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["classic: 6 of 9", "hardened: 8 of 8"]


@pytest.mark.parametrize("curves", [CURVES[:1], CURVES, [*CURVES, *CURVES]], ids=len)
def test_the_legend_stands_above_the_curves(axes_of: AxesOf, curves: list[Curve]) -> None:
    axes, _ = axes_of(lambda: plots.growth(curves, "words"))
    figure, legend = axes.figure, axes.get_legend()
    assert isinstance(figure, Figure)
    assert legend is not None
    figure.draw_without_rendering()
    below, above = axes.get_window_extent(), legend.get_window_extent()
    assert above.y0 >= below.y1
    assert above.y1 <= figure.bbox.y1
    assert above.x1 <= figure.bbox.x1
    assert below.height > figure.bbox.height / 2


def test_the_axes_of_growth_begin_at_one_run_and_at_no_transition(axes_of: AxesOf) -> None:
    axes, _ = axes_of(lambda: plots.growth(CURVES, "words"))
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")
    assert axes.get_ylim()[0] == 0
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("runs (logarithmic)", "distinct transitions")
    assert axes.xaxis.get_major_formatter()(1000, None) == "1,000"


def test_more_curves_than_colours_begin_again(axes_of: AxesOf) -> None:
    axes, _ = axes_of(lambda: plots.growth([Curve(f"p{at}", [1, 2], [1, 2], 3) for at in range(5)], "words"))
    assert [line.get_color() for line in axes.lines[::2]] == [*plots.SERIES, plots.SERIES[0]]


@pytest.mark.parametrize("make", [lambda: plots.growth(CURVES, "a"), lambda: plots.splits(HEADER_AND_BODY, "growth", "a")])
def test_the_svg_has_the_pages_colours_and_ids_of_its_own(make: Callable[[], Plot]) -> None:
    svg = make().svg
    assert svg == make().svg
    assert svg.startswith('<svg aria-hidden="true" focusable="false" viewBox="0 0 ')
    assert svg.endswith("</svg>")
    assert not re.search(r"#0[0-9a-f]{5}|#1[0-9a-f]{5}", svg)
    assert "var(--ink)" in svg
    assert "var(--series-1)" in svg
    assert "var(--line)" in svg
    for absent in ("metadata", "xmlns", "xlink", "<!--", "DOCTYPE"):
        assert absent not in svg, absent
    assert "width=" not in svg[: svg.index(">")]  # the page gives it one
    ids = re.findall(r'\bid="([^"]*)"', svg)
    used = re.findall(r'(?:href="#|url\(#)([^")]*)', svg)
    assert ids
    assert set(used) <= set(ids)
    assert all(name.startswith("growth-") for name in ids)


def test_each_placeholder_has_a_variable_of_its_own() -> None:
    variables = {plots._VARIABLES[colour] for colour in (plots.INK, plots.GRID, plots.BAD, *plots.SERIES)}
    assert variables == {"var(--ink)", "var(--line)", "var(--bad)", *(f"var(--series-{number})" for number in (1, 2, 3, 4))}
