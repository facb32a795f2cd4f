"""Measure each way to deploy under each fault, and compare it with what the articles promise.

    PYTHONPATH=tests python tests/modes/run_modes.py --rounds 3 --seed 1 --only 'sync-2m-2s/*/kill'

Other products than ours need tests/interop and tests/interop/golden on that path, too, and a JDK with Maven.

It writes build/modes.json, after each round, and build/modes.html. The exit status is 0 if all rounds were measured, whatever
they have shown; 1 if some were not.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Final

from cell import NotMeasuredError, Round, run_round
from mode_faults import FAULTS, ROUTE_S, Fault
from mode_results import Cell, Results, all_cells
from modes_page import markdown, render
from power import compile_library
from products import OURS, PRODUCTS, clients_of, cluster_of, make_cluster, make_traffic, title_of
from promises import load
from side_by_side import side_by_side

from rocketmq_ha.impl.errors import RocketmqHaError

RATE: Final = 500
OVERHEAD_S: Final = 35.0  # of a round, beside the time for which something is broken
JAVA_S: Final = 40.0  # more than that: five JVMs start, and their slaves ask for topics only after a while


def chosen(only: list[str], products: Collection[str] = (OURS,)) -> list[Cell]:
    """The cells that match any of the patterns MODE/FAULT or MODE/FLUSH/FAULT; all for none. Raises: ValueError."""
    cells = all_cells(products)
    for pattern in only:
        if not any(_matches(cell, pattern) for cell in cells):
            raise ValueError(
                f"--only {pattern}: found no cell, expected MODE/FAULT or MODE/FLUSH/FAULT, as 2m/kill or '*/sync/*'"
            )
    return [cell for cell in cells if not only or any(_matches(cell, pattern) for pattern in only)]


def _matches(cell: Cell, pattern: str) -> bool:
    return fnmatch(cell.name, pattern) or (pattern.count("/") == 1 and fnmatch(f"{cell.mode}/{cell.fault}", pattern))


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

    def __str__(self) -> str:
        return str(self.cell)

    @property
    def fault(self) -> Fault:
        """It lasts longer for clients of RocketMQ."""
        fault = FAULTS[self.cell.fault]
        return replace(fault, window_s=max(fault.window_s, ROUTE_S)) if clients_of(self.cell.product) != OURS else fault

    @property
    def expected_s(self) -> float:
        return OVERHEAD_S + (0.0 if cluster_of(self.cell.product) == OURS else JAVA_S) + self.fault.window_s


def measure(task: Task, told: Callable[[str], object]) -> Round | str:
    """One round. Returns: why there is none, if it could not be measured."""
    try:
        cell = task.cell
        cluster = make_cluster(cell.product, cell.mode, cell.flush, directory_of(task.work, task.seed), task.library)
        return run_round(cluster, task.fault, task.seed, task.rate, told, partial(make_traffic, cell.product))
    except (NotMeasuredError, RocketmqHaError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def run(arguments: argparse.Namespace, work: Path) -> int:
    products = arguments.product or [OURS]
    promises, cells = load(), chosen(arguments.only, products)
    library = compile_library(work)
    arguments.out.mkdir(parents=True, exist_ok=True)
    file, page = arguments.out / "modes.json", arguments.out / "modes.html"
    goes_on = (arguments.add or arguments.missing) and file.exists()
    titles = {product: title_of(product) for product in products}
    results = Results.read(file) if goes_on else Results.new(titles, arguments.rate, arguments.jobs)
    results.products = titles | results.products
    known = {cell: len(of_cell.rounds) for cell, of_cell in results.in_order()} if arguments.missing else {}
    tasks = [
        Task(cell, number, f"{arguments.seed}/{number}/{cell}", arguments.rate, work, library)
        for number in range(arguments.rounds)
        for cell in cells
        if number >= known.get(cell, 0)
    ]
    failed = 0
    for task, result in side_by_side(measure, tasks, arguments.jobs):
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
    parser.add_argument(
        "--product",
        action="append",
        choices=PRODUCTS,
        help="whose clusters, and A+B with whose Java clients, more than one if repeated; ours if left out",
    )
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
