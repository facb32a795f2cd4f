"""The table of a run: by area, and every edit that was not caught."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from mutants.edits import AREAS
from mutants.results import KILLED, STALE, SURVIVED, UNDECIDED, Result

WIDTH: Final = 110


def show(results: Sequence[Result], total: int, target: float, own: bool) -> int:
    """Print the table and the survivors. Returns: the exit status.

    own: the edits are those of the project, of which each survivor must be explained; else the target decides alone.
    """
    console = Console(highlight=False, soft_wrap=True, width=WIDTH)
    rows = Table("area", *(KILLED, SURVIVED, "equivalent", UNDECIDED, STALE, "caught", "s each"))
    for area in [*AREAS, "all"]:
        if of_area := [result for result in results if area in ("all", result.edit.area)]:
            rows.add_row(area, *cells(of_area))
    console.print(rows)
    for result in results:
        if result.verdict == KILLED and result.edit.equivalent:
            console.print(f"said to be equivalent, and caught by {result.test}: {result.edit.file}", markup=False)
        if result.verdict != KILLED:
            console.print(f"{result.verdict}: {result.edit.file}: {result.edit.story}", markup=False)
            console.print(_difference(result), markup=False)
            told = result.edit.equivalent or f"{result.message} {result.test}".strip()
            console.print(f"    {told}" if told else "    not explained", markup=False)
    counts = count(results)
    share = counts[KILLED] / max(1, len(results) - counts["equivalent"])
    seconds = sum(result.seconds for result in results) / max(1, len(results))
    console.print(
        f"edits={len(results)} killed={counts[KILLED]} survived={counts[SURVIVED]} equivalent={counts['equivalent']}"
        f" undecided={counts[UNDECIDED]} stale={counts[STALE]} caught={share:.1%} seconds_each={seconds:.1f}"
    )
    unexplained = counts[SURVIVED] + counts[UNDECIDED] + counts[STALE]
    return int(len(results) < total or (own and unexplained > 0) or counts[STALE] > 0 or share < target)


def count(results: Sequence[Result]) -> Counter[str]:
    """How many results there are of each kind; a survivor that is explained counts as equivalent only."""
    kinds = ("equivalent" if result.edit.equivalent and result.verdict == SURVIVED else result.verdict for result in results)
    return Counter(kinds)


def cells(results: Sequence[Result]) -> list[str]:
    counts = count(results)
    share = counts[KILLED] / max(1, len(results) - counts["equivalent"])
    numbers = [str(counts[name]) for name in (KILLED, SURVIVED, "equivalent", UNDECIDED, STALE)]
    return [*numbers, f"{share:.0%}", f"{sum(result.seconds for result in results) / len(results):.1f}"]


def _difference(result: Result) -> str:
    old = [f"    - {line.strip()}" for line in result.edit.old.strip().splitlines()]
    new = [f"    + {line.strip()}" for line in (result.edit.new.strip() or "(nothing)").splitlines()]
    return "\n".join((*old, *new))
