"""Progress of long work on stderr: a bar with rate and time left on a terminal, a line every few seconds elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY_S: Final = 5.0
STARTING_SPARK: Final = "starting Spark, which takes some seconds"


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
