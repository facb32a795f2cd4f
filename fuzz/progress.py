"""Progress of long work on stderr: a bar with rate and time left on a terminal, a line every few seconds elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY_S: Final = 5.0
LATER_LINE_EVERY_S: Final = 60.0  # after a minute: a night's work is no page of lines
STARTING_SPARK: Final = "starting Spark, which takes some seconds"


@dataclass(frozen=True, slots=True)
class LogProgress:
    """What the log of a campaign holds at a moment."""

    runs: int
    steps: int
    failed: int  # runs
    total: int | None  # runs of the plan


@contextmanager
def run_progress(what: str, total: int, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int], None]]:
    """Return a function to call with the amount done of `total`."""
    console = Console(stderr=True)
    started = last = clock()
    if not console.is_terminal:

        def line(done: int) -> None:
            nonlocal last
            now = clock()
            if now - last >= LINE_EVERY_S and 0 < done < total:
                last = now
                rate = done / (now - started)
                console.print(f"{what}: {done} of {total}, {rate:.0f}/s, {(total - done) / rate:.0f} s left", highlight=False)

        yield line
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=total, rate="")

        def bar(done: int) -> None:
            progress.update(task, completed=done, rate=f"{done / max(clock() - started, 0.001):.0f}/s")

        yield bar


@contextmanager
def campaign_progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[LogProgress], None]]:
    """Return a function to call with what the log of a campaign holds: runs, steps, failures, rate, time left.

    What the log held at the first call, from an earlier sitting, counts for no rate. Until it holds more there is no rate: the
    progress says that no partition is complete.
    """
    console = Console(stderr=True)
    started = last = clock()
    first: int | None = None

    def rate_of(now: LogProgress) -> float | None:
        """Runs a second; None before the first new run of a campaign that lacks some."""
        nonlocal first, started
        if first is None:
            first, started = now.runs, clock()
        if now.runs == first and now.runs != now.total:
            return None
        return (now.runs - first) / max(clock() - started, 0.001)

    if not console.is_terminal:

        def line(now: LogProgress) -> None:
            nonlocal last
            rate = rate_of(now)
            every = LINE_EVERY_S if clock() - started < LATER_LINE_EVERY_S else LATER_LINE_EVERY_S
            if clock() - last >= every:
                last = clock()
                of = "" if now.total is None else f" of {now.total:,}"
                if rate is None:
                    told = f"runs: {now.runs:,}{of}; no partition of this sitting is complete yet"
                    console.print(told, highlight=False, soft_wrap=True)
                    return
                left = "" if now.total is None or not rate else f", {_duration((now.total - now.runs) / rate)} left"
                told = f"runs: {now.runs:,}{of}, {rate:.1f}/s, {now.steps:,} steps, {now.failed:,} failed{left}"
                console.print(told, highlight=False, soft_wrap=True)

        yield line
        return
    with Progress(
        TextColumn("runs"), BarColumn(), TextColumn("{task.fields[figures]}"), TimeRemainingColumn(), console=console
    ) as shown:
        task = shown.add_task("runs", total=None, figures="")

        def bar(now: LogProgress) -> None:
            rate = rate_of(now)
            of = "" if now.total is None else f"/{now.total:,}"
            told = "no partition yet" if rate is None else f"{rate:.1f}/s"
            figures = f"{now.runs:,}{of} {told} {now.failed:,} failed"
            shown.update(task, total=now.total, completed=now.runs, figures=figures)

        yield bar


def _duration(seconds: float) -> str:
    """Format a duration.

    >>> _duration(45), _duration(125), _duration(7260)
    ('45 s', '2 min', '2 h 01 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


@contextmanager
def shrink_progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int, int], None]]:
    """Return a function to call with the number of events that are left and the number of runs that were made."""
    console = Console(stderr=True)
    last = clock()
    with console.status("shrinking") as status:

        def told(events: int, tries: int) -> None:
            nonlocal last
            text = f"shrinking: {events} events left, {tries} runs"
            if console.is_terminal:
                status.update(text)
            elif clock() - last >= LINE_EVERY_S:
                last = clock()
                console.print(text, highlight=False)

        yield told
