"""Run random sequences of faults on each way to deploy, and look whether what may not happen has happened.

    PYTHONPATH=tests python tests/modes/run_sequences.py --sequences 50 --jobs 2 --only 'sync-2m-2s/*'
    PYTHONPATH=tests python tests/modes/run_sequences.py --replay sync-2m-2s/async/17

It writes build/sequences.json after each one. The exit status is 1 if one went wrong or was not measured.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from cell import (
    BACKLOG_S,
    PATIENCE_S,
    NotMeasuredError,
    drain,
    restore_topic,
    routed_ids,
    start,
    stored_numbers,
    warm_up,
    watch,
)
from figures import out_of_order
from our_cluster import RESYNC
from power import compile_library
from products import OURS, make_cluster
from rich import box
from rich.console import Console
from rich.table import Table
from run_modes import RATE, directory_of
from sequence import Actor, Step, draw, may_diverge, may_lose
from side_by_side import side_by_side
from traffic import OK, Sent, Traffic, read_all
from under_test import ClusterUnderTest, Group

from rocketmq_ha.impl.app.cluster.plan import FLUSHES, MODES
from rocketmq_ha.impl.client.route_data import MASTER_ID
from rocketmq_ha.impl.errors import RocketmqHaError

WHOLE_S: Final = 60.0  # clients ask for routes every 30 s, and a promoted slave is told within 30 s more
OVERHEAD_S: Final = 40.0  # of a sequence, beside its pauses
WIDTH: Final = 132  # of the table
LEAST_RECORD: Final = 200  # bytes; a message of the traffic has more
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Task:
    """A sequence that is to be run. seed: what `draw` is given."""

    mode: str
    flush: str
    seed: str
    rate: int
    work: Path
    library: Path
    product: str = OURS

    def __str__(self) -> str:
        return f"{self.mode}/{self.flush}/{self.seed}"

    @property
    def expected_s(self) -> float:
        return OVERHEAD_S + sum(step.pause_s for step in draw(self.mode, self.seed))


def run_sequence(
    cluster: ClusterUnderTest, steps: Sequence[Step], rate: int, told: Callable[[str], object], *, lossy: bool
) -> dict[str, Any]:
    """Run one; the cluster is new, and is down when this returns. Raises: NotMeasuredError, RocketmqHaError, OSError.

    Args:  lossy: whether acknowledged messages may be gone (`may_lose`).

    Returns: the steps with their times, the counts, and `wrong`: a line for each thing that may not be.
    """
    ended, taken = list[str](), []
    actor = Actor(cluster)
    try:
        told("starting")
        start(cluster)
        traffic = Traffic(cluster.name_server, rate)
        try:
            began = warm_up(cluster, traffic)
            for step in steps:
                told(str(step))
                watch(cluster, traffic, ended, time.monotonic() + step.pause_s)
                at = time.monotonic()
                actor.take(step)
                if step.act in ("promote", "replace"):
                    restore_topic(cluster, actor.groups[step.group])
                taken.append({"step": str(step), "at_s": round(at - began, 2), "took_s": round(time.monotonic() - at, 2)})
            told("waiting until it is whole")
            wrong = _await_whole(cluster, traffic, ended, actor.groups)
            traffic.stop_sending(PATIENCE_S)
            drain(traffic)
        finally:
            traffic.close()
        if traffic.error is not None:
            raise NotMeasuredError(f"a client ended: {traffic.error!r}")
        told("reading all")
        readable = read_all(cluster.name_server, PATIENCE_S)
        ended += cluster.ended()
    finally:
        cluster.down()
    acknowledged = {each.number for each in traffic.sent if each.status == OK}
    found, got = Counter(each.number for each in readable), Counter(each.number for each in traffic.delivered)
    missing = {
        "lost": len(acknowledged.difference(stored_numbers(cluster))),
        "unreadable": len(acknowledged - found.keys()),
        "unconsumed": len(acknowledged - got.keys()),
    }
    wrong += [line for line in ended if RESYNC not in line or not may_diverge(steps)]
    if not lossy:
        allowed = {"unconsumed": actor.dropped // LEAST_RECORD}
        wrong += [
            f"{count} acknowledged messages are {what}" for what, count in missing.items() if count > allowed.get(what, 0)
        ]
    return {
        "steps": taken,
        "may_lose": lossy,
        "wrong": wrong,
        "resynced": sum(RESYNC in line for line in ended),
        "acknowledged": len(acknowledged),
        "failed": dict(sorted(Counter(each.status for each in traffic.sent if each.status != OK).items())),
        **missing,
        "twice": sum(count > 1 for count in got.values()),
        "stored_twice": sum(count > 1 for count in found.values()),
        "out_of_order": out_of_order(traffic.delivered),
        "dropped": actor.dropped,
        "longest_pause_s": round(longest_pause(traffic.sent), 2),
    }


def _await_whole(cluster: ClusterUnderTest, traffic: Traffic, ended: list[str], groups: Sequence[Group]) -> list[str]:
    """Wait until all groups take and give messages, and new clients are told of their masters.

    Returns: a line for each of these that a group does not do in WHOLE_S.
    """
    mended, names = time.monotonic(), {group.name for group in groups}
    unrouted = list(groups)

    def missing() -> list[str]:
        unrouted[:] = [group for group in unrouted if MASTER_ID not in (routed_ids(cluster, group) or ())]
        takes = {each.group for each in traffic.sent if each.begun >= mended and each.status == OK}
        gives = {each.group for each in traffic.delivered if each.at >= mended}
        return [
            *(f"{name} takes no messages" for name in sorted(names - takes)),
            *(f"{name} gives no messages" for name in sorted(names - gives)),
            *(f"a new client is told of no master of {group.name}" for group in unrouted),
        ]

    while missing() and time.monotonic() < mended + WHOLE_S:
        watch(cluster, traffic, ended, time.monotonic() + _POLL_S)
    watch(cluster, traffic, ended, time.monotonic() + BACKLOG_S)
    return [f"{WHOLE_S:.0f} s after the last step {each}" for each in missing()]


def longest_pause(sent: Iterable[Sent]) -> float:
    """The longest time between two SEND_OK, in s."""
    ends = sorted(each.ended for each in sent if each.status == OK)
    return max((later - sooner for sooner, later in pairwise(ends)), default=0.0)


def measure(task: Task, told: Callable[[str], object]) -> dict[str, Any] | str:
    """One sequence. Returns: why there is none, if it could not be measured."""
    try:
        cluster = make_cluster(task.product, task.mode, task.flush, directory_of(task.work, str(task)), task.library)
        steps = draw(task.mode, task.seed)
        found = run_sequence(cluster, steps, task.rate, told, lossy=may_lose(task.mode, task.flush, steps))
        return {"mode": task.mode, "flush": task.flush, "seed": task.seed, **found}
    except (NotMeasuredError, RocketmqHaError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def table(results: list[dict[str, Any]]) -> Table:
    """A line for each way to deploy and flush; the counts are sums, but for the longest pause."""
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("cluster", no_wrap=True)
    for name in ("runs", "steps", "SEND_OK", "failed", "lost", "allowed", "skipped", "twice", "resynced", "pause", "wrong"):
        found.add_column(name, justify="right", no_wrap=True)
    for mode in MODES:
        for flush in FLUSHES:
            of_mode = [each for each in results if (each["mode"], each["flush"]) == (mode, flush)]
            if of_mode:
                total = partial(_total, of_mode)
                found.add_row(
                    f"{mode}/{flush}",
                    str(len(of_mode)),
                    str(sum(len(each["steps"]) for each in of_mode)),
                    f"{total('acknowledged'):,}",
                    f"{sum(sum(each['failed'].values()) for each in of_mode):,}",
                    f"{total('lost'):,}",
                    f"{sum(each['lost'] for each in of_mode if each['may_lose']):,}",
                    f"{sum(each['unconsumed'] for each in of_mode if not each['may_lose']):,}",
                    f"{total('twice'):,}",
                    f"{total('resynced'):,}",
                    f"{max(each['longest_pause_s'] for each in of_mode):.1f} s",
                    str(sum(bool(each["wrong"]) for each in of_mode)),
                )
    return found


def _total(results: list[dict[str, Any]], name: str) -> int:
    return sum(each[name] for each in results)


def run(arguments: argparse.Namespace, work: Path) -> int:
    library, file = compile_library(work), arguments.out / "sequences.json"
    arguments.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = json.loads(file.read_text("utf-8")) if arguments.missing and file.exists() else []
    known = {f"{each['mode']}/{each['flush']}/{each['seed']}" for each in results}
    names = arguments.replay or [
        f"{mode}/{FLUSHES[number % 2]}/{arguments.seed + number}" for number in range(arguments.sequences) for mode in MODES
    ]
    chosen = [name for name in names if any(fnmatch(name, f"{pattern}*") for pattern in arguments.only or ["*"])]
    tasks = [Task(*_parts(name), arguments.rate, work, library) for name in chosen if name not in known]
    failed = 0
    for task, result in side_by_side(measure, tasks, arguments.jobs):
        if isinstance(result, str):
            failed += 1
            print(f"not measured: {task}: {result}", file=sys.stderr)  # noqa: T201
        else:
            results.append(result)
            for line in result["wrong"]:
                print(f"{task}: {line}", file=sys.stderr)  # noqa: T201
            new = file.with_suffix(".new")
            new.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
            new.replace(file)
        if arguments.keep is None:
            shutil.rmtree(directory_of(work, str(task)), ignore_errors=True)
    Console(width=max(Console().width, WIDTH)).print(table(results))
    wrong = sum(bool(each["wrong"]) for each in results)
    print(f"results={file} sequences={len(results)} wrong={wrong} not_measured={failed}")  # noqa: T201
    return 1 if failed or wrong else 0


def _parts(name: str) -> tuple[str, str, str]:
    """Raises: ValueError if it is no MODE/FLUSH/SEED."""
    parts = name.split("/")
    if len(parts) != 3 or parts[0] not in MODES or parts[1] not in FLUSHES:
        raise ValueError(f"--replay {name}: expected MODE/FLUSH/SEED, as sync-2m-2s/async/17")
    return parts[0], parts[1], parts[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sequences", type=int, default=2, metavar="N", help="of each mode; the flush changes from one to the next"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first one; the next have the numbers behind it")
    parser.add_argument("--replay", action="append", metavar="MODE/FLUSH/SEED", help="this one alone; can be repeated")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="those whose name begins with it; * stands for any")
    parser.add_argument("--missing", action="store_true", help="only those that the file does not have yet")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="sequences side by side")
    parser.add_argument("--rate", type=int, default=RATE, help="sends a second")
    parser.add_argument("--out", type=Path, default=Path("build"))
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the clusters' directories here")
    arguments = parser.parse_args()
    try:
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            return run(arguments, arguments.keep)
        with tempfile.TemporaryDirectory(prefix="sequences-") as work:
            return run(arguments, Path(work))
    except ValueError as error:
        print(f"run_sequences.py: {error}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
