"""Progress on stderr. On a terminal it is a bar with the rate and the time left; elsewhere, for bytes, a log line now and then.

Work on bytes that takes less than a second shows nothing.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_QUIET_S: Final = 1.0
_LOG_EVERY_S: Final = 10.0

logger = logging.getLogger(__name__)


@contextmanager
def byte_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress over bytes. Yields: a function to call with the number of bytes that are done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(what, total=total)
    started = logged = time.monotonic()
    shown = False

    def update(done: int) -> None:
        nonlocal shown, logged
        now = time.monotonic()
        if console.is_terminal:
            bar.update(task, completed=done, total=max(total, done))
            if not shown and now - started > _QUIET_S:
                shown = True
                bar.start()
        elif now - logged > _LOG_EVERY_S:
            logged = now
            rate = done / (now - started)
            left = max(0, total - done) / rate if rate else 0.0
            logger.info("%s: %d of %d bytes, %.0f MB/s, %.0f s left", what, done, total, rate / 1e6, left)

    try:
        yield update
    finally:
        if shown:
            bar.stop()


@contextmanager
def put_progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar for messages that are put, on a terminal only. Yields: a function to call with the number that were put."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("put"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn()
    started = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("put", total=total, rate="")  # no rate before the first put
        yield lambda put: bar.update(task, completed=put, rate=f"{put / max(time.monotonic() - started, 0.001):.0f}/s")
