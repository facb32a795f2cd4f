"""Run rounds side by side, each in a process, and show how far they are."""

import logging
import multiprocessing
import queue
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.queues import Queue
from typing import Any, Final, Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

_TOLD_S: Final = 0.2


class Expected(Protocol):
    """What is to be run; `str` names it."""

    @property
    def expected_s(self) -> float: ...


Task = TypeVar("Task", bound=Expected)
Result = TypeVar("Result")

_TOLD: Final[list["Queue[Any]"]] = []  # in a process that runs rounds: where it says what it does


def side_by_side(
    run: Callable[[Task, Callable[[str], object]], Result], tasks: Sequence[Task], jobs: int
) -> Iterator[tuple[Task, Result]]:
    """Run all tasks, `jobs` of them at a time. Yield each one that has ended.

    Args:  run: a function of a module; its second argument says what it is doing.
    """
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    texts, done = context.Queue(), 0.0
    with (
        progress(sum(task.expected_s for task in tasks), jobs) as told,
        ProcessPoolExecutor(jobs, context, _begin, (texts,)) as pool,
    ):
        waiting = {pool.submit(_run, run, task): task for task in tasks}
        try:
            while waiting:
                with suppress(queue.Empty):
                    while True:
                        name, what = texts.get(timeout=_TOLD_S)
                        told(f"{len(tasks) - len(waiting)} of {len(tasks)} done; {name}: {what}", done)
                for future in [each for each in waiting if each.done()]:
                    task = waiting.pop(future)
                    done += task.expected_s
                    yield task, future.result(0)
        finally:
            pool.shutdown(cancel_futures=True)
            texts.close()
            texts.join_thread()


def _begin(told: "Queue[Any]") -> None:
    """What a process does before its first task."""
    _TOLD.append(told)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that gives the tasks ends all
    logging.disable(logging.WARNING)  # the clients say that brokers do not answer


def _run(run: Callable[[Task, Callable[[str], object]], Result], task: Task) -> Result:
    return run(task, lambda what: _TOLD[0].put((str(task), what)))


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
