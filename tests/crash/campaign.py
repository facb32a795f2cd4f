"""Crash a store at many random points, and check after each crash that it kept its promises.

python tests/crash/campaign.py --points 20000 --seed 1
python tests/crash/campaign.py --replay 1/17          one life of a store, step by step; stops at the first broken promise
"""

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from judge import Broken, judge
from scripts import SCRIPTS, play
from workload import PHASES, CrashPoint, Workload

from rocketmq_ha.fuzz.progress import run_progress

LENGTH: Final = 40  # steps of a life


@dataclass
class Failure:
    seed: str
    point: CrashPoint
    what: str
    told: list[str]

    def __str__(self) -> str:
        return f"{self.seed}: {self.point.phase}, {self.point.where}: {self.point.image.how}: {self.what}"


@dataclass
class Outcome:
    points: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def fail(self, failure: Failure) -> None:
        self.failures.append(failure)


class Printed(Outcome):
    """An Outcome that prints each failure at once, as JSON: [life, failure]."""

    def fail(self, failure: Failure) -> None:
        super().fail(failure)
        print(json.dumps([failure.seed, failure.what]), flush=True)  # noqa: T201


def memory_directory() -> str | None:
    """A directory in memory; None: use the default place.

    A caller that may kill this process sets $CRASH_DIR and empties it.
    """
    return os.environ.get("CRASH_DIR") or ("/dev/shm" if Path("/dev/shm").is_dir() else None)


class _Ended(Exception):  # noqa: N818
    """Ends a life early."""


def run_life(seed: str, outcome: Outcome, enough: Callable[[], bool] = lambda: False, *, one_journal: bool = False) -> Workload:
    """Run one life of a store and judge its crashes. It ends early if no crash can be continued from, or at `enough`."""
    try_out = _trying(seed, outcome, enough)
    with tempfile.TemporaryDirectory(prefix="crash-", dir=memory_directory()) as work:
        workload = Workload(seed, Path(work), LENGTH, try_out, one_journal)
        with contextlib.suppress(_Ended):
            workload.run()
    return workload


def run_script(name: str, outcome: Outcome) -> None:
    """Run a scripted life (scripts.py) and judge its crashes."""
    try_out = _trying(name, outcome, lambda: False)
    with tempfile.TemporaryDirectory(prefix="crash-", dir=memory_directory()) as work:
        play(name, Path(work), try_out)


def _trying(seed: str, outcome: Outcome, enough: Callable[[], bool]) -> Callable[[Workload, CrashPoint], None]:
    """Judge each crash point of a life."""
    judged = random.Random(f"{seed} judged")

    def try_out(workload: Workload, point: CrashPoint) -> None:
        if enough():
            raise _Ended
        outcome.points[point.phase] += 1
        now_ms = workload.clock.ms
        try:
            judge(point, workload.records, workload.shape, workload.clock, workload.work, judged)
        except Broken as broken:
            outcome.fail(Failure(seed, point, str(broken), list(workload.told)))
            if point.goes_on:
                raise _Ended from broken
        finally:
            workload.clock.ms = now_ms

    return try_out


def campaign(
    points: int,
    seed: int,
    failures: int = 1,
    told: Callable[[int], None] = lambda _: None,
    *,
    one_journal: bool = False,
    outcome: Outcome | None = None,
) -> Outcome:
    """Run lives until the given number of crash points or failures is reached."""
    outcome, life = outcome or Outcome(), 0

    def enough() -> bool:
        return outcome.points.total() >= points or len(outcome.failures) >= failures

    while not enough():
        run_life(f"{seed}/{life}", outcome, enough, one_journal=one_journal)
        told(outcome.points.total())
        life += 1
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--failures", type=int, default=1, help="stop after so many")
    parser.add_argument("--replay", metavar="SEED/LIFE")
    parser.add_argument("--script", choices=SCRIPTS, help="a life that is written down, of scripts.py")
    parser.add_argument(
        "--one-journal", action="store_true", help="any sync brings all names, as on ext4; POSIX does not promise it"
    )
    parser.add_argument("--json", action="store_true", help="print nothing but [life, what] of each failure")
    arguments = parser.parse_args()
    one_journal = arguments.one_journal
    began = time.monotonic()
    if arguments.replay:
        outcome = Outcome()
        workload = run_life(arguments.replay, outcome, one_journal=one_journal)
        print(*workload.told, sep="\n")  # noqa: T201
    elif arguments.script:
        outcome = Printed() if arguments.json else Outcome()
        run_script(arguments.script, outcome)
    elif arguments.json:
        outcome = campaign(arguments.points, arguments.seed, arguments.failures, one_journal=one_journal, outcome=Printed())
    else:
        with run_progress("crash points", arguments.points) as told:
            outcome = campaign(arguments.points, arguments.seed, arguments.failures, told, one_journal=one_journal)
    if arguments.json:
        return 1 if outcome.failures else 0
    for phase in PHASES:
        print(f"{phase:12} {outcome.points[phase]:7}")  # noqa: T201
    print(f"{'all':12} {outcome.points.total():7}   {time.monotonic() - began:.0f} s, {len(outcome.failures)} broken")  # noqa: T201
    for failure in outcome.failures:
        print(f"BROKEN {failure}")  # noqa: T201
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
