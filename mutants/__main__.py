"""Plant mistakes one at a time in copies of the tree, and see which test fails.

    python -m mutants                            every edit of mutants/edits/
    python -m mutants --sample 25                25 of those that a known test catches, drawn by the commit
    python -m mutants --only impl/ha/slave.py    those of a file or a folder
    python -m mutants --drawn 100 --seed 7       edits that are drawn from the syntax instead
    python -m mutants --edits FILE.json          edits from elsewhere (JSON or TOML)
    python -m mutants --list                     list them, and run none

Exit status 1 if an edit survives, unless the edit says why it is equivalent; of edits that are drawn or come from elsewhere,
if fewer than the target are caught; 2 if an edit cannot be read.
"""

import argparse
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from rich.console import Console

from formal.tree_copy import ROOT
from mutants import drawn, recording, table
from mutants.edits import Edit, EditError, load_all
from mutants.order import Order
from mutants.results import KILLED, RESULTS, UNDECIDED, Result, Store
from mutants.shard import TEST_BOUND_S, Shard

TARGET: Final = 0.9
KILLERS: Final = Path(__file__).with_name("killers.json")

console: Final = Console(stderr=True, highlight=False, soft_wrap=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=Path, nargs="+", default=[], metavar="FILE", help="edits from elsewhere")
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="draw N edits from the syntax")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn (default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATH", help="only edits of these files or folders")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="N of those with a known test, by the commit")
    parser.add_argument("--list", action="store_true", help="list the edits, and run none")
    parser.add_argument("--shards", type=int, default=os.cpu_count() or 1, help="copies at a time (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="keep results of earlier runs that still hold")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file of results, JSON lines")
    parser.add_argument("--remap", action="store_true", help="first record again which lines each test runs")
    parser.add_argument("--no-map", action="store_true", help="record nothing: use the map as it is, or names of files")
    parser.add_argument("--map", type=Path, default=recording.MAP, help="the file of the map (default: %(default)s)")
    parser.add_argument("--stop-after", default="", metavar="STAGE", help="the last stage of tests to run")
    parser.add_argument("--bound", type=float, default=TEST_BOUND_S, help="seconds for one test (default: %(default)s)")
    parser.add_argument("--target", type=float, default=TARGET, help="the share to be caught (default: %(default)s)")
    parser.add_argument("--write-killers", action="store_true", help="note in killers.json which test caught each edit")
    options = parser.parse_args(arguments)
    try:
        edits = chosen(options)
    except EditError as error:
        console.print(f"mutants: {error}", markup=False)
        return 2
    if options.list:
        for edit in edits:
            print(f"{edit.file}: {edit.story or edit.new.strip()}")  # noqa: T201
        return 0
    if options.write_killers:
        return write_killers(edits, Store(options.results))
    if not options.no_map:
        remake_map(options.remap, options.map)
    store = Store(options.results)
    known = store.read() if options.resume else {}
    kept = [known[edit.key] for edit in edits if edit.key in known]
    results = [*kept, *run([edit for edit in edits if edit.key not in known], options, store)]
    return table.show(results, len(edits), options.target, own=not (options.edits or options.drawn))


def chosen(options: argparse.Namespace) -> list[Edit]:
    """The edits that the options ask for. Raises: EditError."""
    edits = drawn.draw(options.drawn, options.seed, options.only) if options.drawn else load_all(options.edits)
    if options.only:
        edits = [edit for edit in edits if any(edit.file == name or edit.file.startswith(f"{name}/") for name in options.only)]
    if options.sample:
        killers = read_killers()
        mistakes = [edit for edit in edits if edit.key in killers and not edit.equivalent]
        edits = random.Random(commit()).sample(mistakes, min(options.sample, len(mistakes)))
    if not edits:
        raise EditError("there are no such edits")
    return edits


def commit() -> str:
    """The hash of the commit; without git, nothing, and the same sample each time."""
    done = subprocess.run(("git", "rev-parse", "HEAD"), cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def remake_map(everything: bool, path: Path) -> None:
    """Record the tests whose files are not in the map as they are now."""
    files = recording.test_files() if everything else recording.stale_files(path)
    if files:
        console.print(f"mutants: recording which lines the tests of {len(files)} files run")
        recording.record(files, path)


def read_killers() -> dict[str, str]:
    if not KILLERS.exists():
        return {}
    found: dict[str, str] = json.loads(KILLERS.read_text(encoding="utf-8"))
    return found


def write_killers(edits: Sequence[Edit], store: Store) -> int:
    """Note which test caught each edit, so that the next run begins with it. What is known of other edits stays."""
    known = store.read()
    present = {edit.key for edit in load_all(())}
    killers = {key: test for key, test in read_killers().items() if key in present}
    killers |= {edit.key: known[edit.key].test for edit in edits if edit.key in known and known[edit.key].verdict == KILLED}
    KILLERS.write_text(json.dumps(killers, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    console.print(f"mutants: {KILLERS.name} names the test of {len(killers)} of {len(present)} edits")
    return 0


def run(edits: Sequence[Edit], options: argparse.Namespace, store: Store) -> list[Result]:
    """Judge the edits, each in the next shard that is free, and print a line as each ends."""
    waiting: queue.SimpleQueue[Edit] = queue.SimpleQueue()
    for edit in edits:
        waiting.put(edit)
    with closing(recording.open_map(options.map)) as recorded:
        order = Order(recording.test_files(), recorded, read_killers())
    ended: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
    controls: dict[str, bool] = {}
    shards: list[Shard] = []

    def work() -> None:
        try:
            with Shard(order, controls, options.bound) as shard:
                shards.append(shard)
                while True:
                    ended.put(shard.judge(waiting.get_nowait(), options.stop_after))
        except queue.Empty:
            return
        except BaseException as error:
            ended.put(error)

    threads = [threading.Thread(target=work) for _ in range(min(options.shards, len(edits)))]
    for thread in threads:
        thread.start()
    results: list[Result] = []
    began = time.monotonic()
    try:
        while len(results) < len(edits):
            result = ended.get()
            if isinstance(result, BaseException):
                raise result
            results.append(result)
            store.add(result)
            tell(result, len(results), len(edits), time.monotonic() - began)
    except KeyboardInterrupt:
        console.print("mutants: interrupted; --resume takes it up again")
    finally:
        while not waiting.empty():
            waiting.get_nowait()
        for shard in shards:
            if len(results) < len(edits):
                shard.stop()
        for thread in threads:
            thread.join()
    return results


def tell(result: Result, number: int, total: int, seconds: float) -> None:
    left = seconds / number * (total - number)
    where = f"{result.edit.file}: {result.edit.story or result.edit.new.strip()}"
    by = f" by {result.test}" if result.test else ""
    took = f"({result.stage or '-'}, {result.tests} tests, {result.seconds:.1f} s)"
    console.print(f"{number:>3}/{total} {seconds:5.0f} s, {left:.0f} s left  {result.verdict}{by} {took}", markup=False)
    console.print(f"        {where[:150]}", markup=False)
    if result.verdict == UNDECIDED or not result.test:
        console.print(f"        {result.message}", markup=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
