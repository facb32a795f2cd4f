"""The results as one HTML page, and as the table of README.md."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import jinja2
from figures import Figures, Span
from mode_faults import FAULTS
from mode_results import Cell, Measured, Results
from promises import AT_ONCE_S, FEW_S, LAG_S, Promise, Verdict

from rocketmq_ha.impl.app.cluster.plan import FLUSHES, MODES

TITLES: Final = {
    "1m": "One master",
    "2m": "Two masters",
    "async-2m-2s": "Two masters with slaves, asynchronous",
    "sync-2m-2s": "Two masters with slaves, both written",
}
MARK: Final = "≠"


@dataclass(frozen=True, slots=True)
class Value:
    """What a cell of the table shows: `amid` the fault, and `after` the mending, which may be empty. is_bad: draws the eye."""

    amid: str
    after: str = ""
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: one fault with one flush."""

    cell: Cell
    values: tuple[Value, ...]
    verdicts: tuple[Verdict, ...]
    rounds: int
    not_measured: tuple[str, ...]
    notes: tuple[str, ...]


def seconds(value: float) -> str:
    """With the digits that matter: `0.25 s`, `3.0 s`, `131 s`."""
    return f"{value:.2f} s" if value < 1 else f"{value:.1f} s" if value < 100 else f"{value:.0f} s"


def _times(values: Sequence[float | None]) -> str:
    """The median of the rounds in which it came, with the least and the greatest; how many these are, if not all."""
    came = sorted(value for value in values if value is not None)
    if not came:
        return "no"
    text = seconds(median(came))
    if len(came) > 1 and seconds(came[0]) != seconds(came[-1]):
        text += f" ({seconds(came[0])} to {seconds(came[-1])})"
    return text if len(came) == len(values) else f"{text} in {len(came)} of {len(values)}"


def _span(rounds: Sequence[Figures], of: Callable[[Figures], Span]) -> Value:
    spans = [of(each) for each in rounds]
    amid = _times([span.in_fault for span in spans])
    if amid != "no":
        return Value(amid)
    after = _times([span.after_mend for span in spans])
    return Value("no", "nor after it was mended" if after == "no" else f"after {after} of mending", is_bad=True)


def _count(rounds: Sequence[Figures], of: Callable[[Figures], int]) -> Value:
    counts = sorted(of(each) for each in rounds)
    text = f"{counts[-1]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
    return Value(text, is_bad=counts[-1] > 0)


def _failed(rounds: Sequence[Figures]) -> Value:
    sends, failed = sum(each.sends for each in rounds), sum(each.failed_sends for each in rounds)
    by_status: dict[str, int] = {}
    for each in rounds:
        for status, count in each.failed.items():
            by_status[status] = by_status.get(status, 0) + count
    share = f"{100 * failed / max(sends, 1):.1f} %" if failed else "0"
    return Value(share, ", ".join(sorted(by_status, key=lambda status: -by_status[status])), is_bad=failed > 0)


COLUMNS: Final[dict[str, Callable[[Sequence[Figures]], Value]]] = {
    "writes, group": lambda rounds: _span(rounds, lambda each: each.writable_hit),
    "writes, any": lambda rounds: _span(rounds, lambda each: each.writable_any),
    "reads, group": lambda rounds: _span(rounds, lambda each: each.readable_hit),
    "failed sends": _failed,
    "lost": lambda rounds: _count(rounds, lambda each: each.lost),
    "unreadable": lambda rounds: _count(rounds, lambda each: each.unreadable),
    "twice": lambda rounds: _count(rounds, lambda each: each.twice),
    "out of order": lambda rounds: _count(rounds, lambda each: each.out_of_order),
}


def _row(results: Results, promises: Sequence[Promise], cell: Cell, measured: Measured) -> Row:
    rounds = measured.figures
    values = tuple(of(rounds) for of in COLUMNS.values()) if rounds else ()
    found = tuple(results.verdicts(promises, cell)) if rounds else ()
    notes = [_note(line) for each in measured.rounds for line in each["ended"]]
    dropped = [each["dropped"] for each in measured.rounds if each["dropped"]]
    if dropped:
        nodes = {node for each in dropped for node in each}
        texts = [f"{node} {max(each.get(node, 0) for each in dropped):,}" for node in sorted(nodes)]
        notes.append(f"the power cut took bytes of the log: {', '.join(texts)}")
    return Row(cell, values, found, len(rounds), tuple(measured.not_measured), tuple(dict.fromkeys(notes)))


def _note(line: str) -> str:
    """The line of a node that has ended: of an error that our program tells, the last part."""
    where, is_ours, what = line.partition(": rocketmq-ha: ")
    return f"{where}: {what.split(': ')[-1]}" if is_ours else line


def _send_times(results: Results) -> list[tuple[str, str, str, str]]:
    """The median time of a send before the fault: (mode, flush, product, ms)."""
    found = []
    for mode in MODES:
        for flush in FLUSHES:
            for product in results.in_use():
                times = [
                    figures.send_ms
                    for cell, measured in results.in_order()
                    if (cell.mode, cell.flush, cell.product) == (mode, flush, product)
                    for figures in measured.figures
                ]
                if times:
                    found.append((mode, flush, product, f"{median(times):.1f}"))
    return found


@dataclass(frozen=True, slots=True)
class Sum:
    """What the page says first of a product."""

    title: str
    rounds: int
    cells: int
    looked: int
    kept: int


def _sum(title: str, rows: Sequence[Row]) -> Sum:
    found = [verdict for row in rows for verdict in row.verdicts]
    return Sum(title, sum(row.rounds for row in rows), len(rows), len(found), sum(verdict.is_kept for verdict in found))


def render(results: Results, promises: Sequence[Promise]) -> str:
    """The page. It has no script, and loads nothing."""
    rows = [_row(results, promises, cell, measured) for cell, measured in results.in_order()]
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    by_promise = {
        promise.id: [(row.cell, verdict) for row in rows for verdict in row.verdicts if verdict.promise.id == promise.id]
        for promise in promises
    }
    return environment.get_template("modes.html.j2").render(
        results=results,
        titles=TITLES,
        columns=list(COLUMNS),
        rows_of={mode: [row for row in rows if row.cell.mode == mode] for mode in MODES},
        faults=FAULTS,
        promises=promises,
        by_promise=by_promise,
        products=results.in_use(),
        sums=[_sum(title, [row for row in rows if row.cell.product == product]) for product, title in results.in_use().items()],
        send_times=_send_times(results),
        mark=MARK,
        at_once=seconds(AT_ONCE_S),
        few=seconds(FEW_S),
        lag=seconds(LAG_S),
    )


def markdown(results: Results, promises: Sequence[Promise]) -> str:
    """A table of the faults by the modes: what is written, read and lost; ≠ where a promise is not kept.

    Of several products each has a line for each fault, and their names are a column.
    """
    products = results.in_use()
    named = len(products) > 1
    lines = ["| | " + "| " * named + " | ".join(f"`{mode}`" for mode in MODES) + " |"]
    lines.append("|---|" + "---|" * (named + len(MODES)))
    for name, fault in FAULTS.items():
        for product in products:
            cells = [_short(results, promises, product, mode, name) for mode in MODES]
            if any(cells):
                lines.append(f"| {fault.title} | " + f"{product} | " * named + " | ".join(cells) + " |")
    return "\n".join(lines)


def _short(results: Results, promises: Sequence[Promise], product: str, mode: str, fault: str) -> str:
    """`w` any group written, `r` the group read, `lost` by flush."""
    of_flush = {}
    for flush in FLUSHES:
        measured = results.cells.get(Cell(mode, flush, fault, product))
        if measured is not None and measured.rounds:
            of_flush[flush] = measured.figures
    if not of_flush:
        return ""
    rounds = [figures for each in of_flush.values() for figures in each]
    lost = [_count(each, lambda found: found.lost).amid for each in of_flush.values()]
    unread = [_count(each, lambda found: found.unreadable).amid for each in of_flush.values()]
    words = [f"w {_brief(rounds, lambda each: each.writable_any)}", f"r {_brief(rounds, lambda each: each.readable_hit)}"]
    words.append(f"lost {' / '.join(dict.fromkeys(lost))}")
    if unread != lost:
        words.append(f"unreadable {' / '.join(dict.fromkeys(unread))}")
    cells = [Cell(mode, flush, fault, product) for flush in of_flush]
    is_kept = all(verdict.is_kept for cell in cells for verdict in results.verdicts(promises, cell))
    return ", ".join(words) + ("" if is_kept else f" {MARK}")


def _brief(rounds: Sequence[Figures], of: Callable[[Figures], Span]) -> str:
    """The greatest time, or `no` if it did not come in each round."""
    times = [of(each).in_fault for each in rounds]
    came = [value for value in times if value is not None]
    return "no" if len(came) < len(times) else seconds(max(came))
