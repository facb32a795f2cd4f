"""Measure each way to deploy under each fault, and compare it with what the articles promise.

    PYTHONPATH=tests python tests/modes/run_modes.py --rounds 3 --seed 1 --only 'sync-2m-2s/*/kill'

It writes build/modes.json, after each round, and build/modes.html. The exit status is 0 if all rounds were measured, whatever
they have shown; 1 if some were not.
"""

import argparse
import logging
import multiprocessing
import queue
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Final

from cell import NotMeasuredError, Round, run_round
from mode_faults import FAULTS
from mode_results import Cell, Results, all_cells
from modes_page import markdown, render
from our_cluster import OurCluster
from power import compile_library
from promises import load
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from rocketmq_ha.impl.errors import RocketmqHaError

RATE: Final = 500
OVERHEAD_S: Final = 35.0  # of a round, beside the time for which something is broken
_TOLD_S: Final = 0.2


def chosen(only: list[str]) -> list[Cell]:
    """The cells that match any of the patterns MODE/FAULT or MODE/FLUSH/FAULT; all for none. Raises: ValueError."""
    cells = all_cells()
    for pattern in only:
        if not any(_matches(cell, pattern) for cell in cells):
            raise ValueError(
                f"--only {pattern}: found no cell, expected MODE/FAULT or MODE/FLUSH/FAULT, as 2m/kill or '*/sync/*'"
            )
    return [cell for cell in cells if not only or any(_matches(cell, pattern) for pattern in only)]


def _matches(cell: Cell, pattern: str) -> bool:
    return fnmatch(str(cell), pattern) or (pattern.count("/") == 1 and fnmatch(f"{cell.mode}/{cell.fault}", pattern))


def expected_s(cell: Cell) -> float:
    return OVERHEAD_S + FAULTS[cell.fault].window_s


@contextmanager
def progress(total_s: float, jobs: int) -> Iterator[Callable[[str, float], None]]:
    """Yield a function that tells what is being done, and how many of the expected seconds are over."""
    console, began = Console(stderr=True), time.monotonic()
    if not console.is_terminal:
        last = [0.0, began]  # how much was done, and since when

        def line(what: str, done_s: float) -> None:
            now = time.monotonic()
            if done_s != last[0]:
                last[:] = done_s, now
            speed = last[0] / (last[1] - began) if last[0] else float(jobs)
            left_s = max(0.0, (total_s - done_s) / speed - (now - last[1]))
            console.print(f"{what}; {left_s / 60:.0f} min left", highlight=False, soft_wrap=True)

        yield line
        return
    columns = (BarColumn(20), TaskProgressColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, speed_estimate_period=3600) as bar:
        task = bar.add_task("", total=total_s)
        yield lambda what, done_s: bar.update(task, description=what, completed=done_s)


def directory_of(work: Path, seed: str) -> Path:
    return work / seed.replace("/", "-")


@dataclass(frozen=True, slots=True)
class Task:
    """A round that is to be run. number: from 0, of its cell."""

    cell: Cell
    number: int
    seed: str
    rate: int
    work: Path
    library: Path


_TOLD: Final[list["Queue[tuple[Task, str]]"]] = []  # in a process that runs rounds: where it says what it does


def _begin(told: "Queue[tuple[Task, str]]") -> None:
    """What a process does before its first round."""
    _TOLD.append(told)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that gives the tasks ends all
    logging.disable(logging.WARNING)  # the clients say that brokers do not answer


def measure(task: Task) -> Round | str:
    """One round. Returns: why there is none, if it could not be measured."""

    def tell(what: str) -> None:
        for told in _TOLD:
            told.put((task, what))

    try:
        cluster = OurCluster(task.cell.mode, task.cell.flush, directory_of(task.work, task.seed), task.library)
        return run_round(cluster, FAULTS[task.cell.fault], task.seed, task.rate, tell)
    except (NotMeasuredError, RocketmqHaError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def measured(tasks: list[Task], jobs: int, told: Callable[[str, float], None]) -> Iterator[tuple[Task, Round | str]]:
    """Run rounds, `jobs` of them side by side, each in a process. Yield each one that has ended."""
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    texts, done = context.Queue(), 0.0
    with ProcessPoolExecutor(jobs, context, _begin, (texts,)) as pool:
        waiting = {pool.submit(measure, task): task for task in tasks}
        try:
            while waiting:
                with suppress(queue.Empty):
                    while True:
                        task, what = texts.get(timeout=_TOLD_S)
                        told(f"{len(tasks) - len(waiting)} of {len(tasks)} done; {task.cell}: {what}", done)
                for future in [each for each in waiting if each.done()]:
                    task = waiting.pop(future)
                    done += expected_s(task.cell)
                    yield task, future.result(0)
        finally:
            pool.shutdown(cancel_futures=True)


def run(arguments: argparse.Namespace, work: Path) -> int:
    promises, cells = load(), chosen(arguments.only)
    library = compile_library(work)
    arguments.out.mkdir(parents=True, exist_ok=True)
    file, page = arguments.out / "modes.json", arguments.out / "modes.html"
    goes_on = (arguments.add or arguments.missing) and file.exists()
    results = Results.read(file) if goes_on else Results.new(OurCluster.product(), arguments.rate, arguments.jobs)
    known = {cell: len(of_cell.rounds) for cell, of_cell in results.in_order()} if arguments.missing else {}
    tasks = [
        Task(cell, number, f"{arguments.seed}/{number}/{cell}", arguments.rate, work, library)
        for number in range(arguments.rounds)
        for cell in cells
        if number >= known.get(cell, 0)
    ]
    failed = 0
    with progress(sum(expected_s(task.cell) for task in tasks), arguments.jobs) as told:
        for task, result in measured(tasks, arguments.jobs, told):
            results.add(task.cell, result)
            if arguments.keep is None:
                shutil.rmtree(directory_of(work, task.seed), ignore_errors=True)
            results.write(file, promises)
            page.write_text(render(results, promises), "utf-8")
            if isinstance(result, str):
                failed += 1
                print(f"not measured: {task.cell}, seed {task.seed}: {result}", file=sys.stderr)  # noqa: T201
    print(markdown(results, promises))  # noqa: T201
    print(f"results={file} page={page} rounds={len(tasks)} not_measured={failed}")  # noqa: T201
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="rounds side by side; each keeps half a processor busy"
    )
    parser.add_argument("--rate", type=int, default=RATE, help="sends a second")
    parser.add_argument(
        "--only", action="append", default=[], metavar="MODE/FAULT", help="or MODE/FLUSH/FAULT; * stands for any"
    )
    parser.add_argument("--add", action="store_true", help="add the rounds to those in the file")
    parser.add_argument("--missing", action="store_true", help="only the rounds that the file does not have yet")
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the clusters' directories here")
    parser.add_argument("--page", action="store_true", help="make the page from the file again, and print the table")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)  # the clients say that brokers do not answer
    if arguments.page:
        results = Results.read(arguments.out / "modes.json")
        (arguments.out / "modes.html").write_text(render(results, load()), "utf-8")
        print(markdown(results, load()))  # noqa: T201
        return 0
    try:
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            return run(arguments, arguments.keep)
        with tempfile.TemporaryDirectory(prefix="modes-") as work:
            return run(arguments, Path(work))
    except ValueError as error:
        print(f"run_modes.py: {error}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
