"""Compare guided schedules with drawn ones on equal processor time: `python bench/guided_bench.py`.

Each repetition has seeds of its own and does both, by turns. The clock runs while a campaign's work is done: to draw or to make
a schedule, to run it, to make its rows, and, guided, to learn from it. It stands while this program counts what was reached.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from rocketmq_ha.fuzz import corpus, recorder, runner
from rocketmq_ha.fuzz.corpus import Feature
from rocketmq_ha.fuzz.lockstep import run
from rocketmq_ha.fuzz.recorder import EventRecorder
from rocketmq_ha.fuzz.runner import Task

KINDS: Final = ("transition", "clause", "pair", "split")
APART: Final = 10_000_000  # seeds from one repetition to the next
CHUNK: Final = 50  # runs of a partition
POINTS: Final = 8


def kind_of(feature: Feature) -> str:
    return feature[0] if feature[0] in KINDS else "transition"


def reached(is_guided: bool, seed: int, seconds: float, worlds: tuple[str, ...]) -> dict[str, Any]:
    """What the runs of some seconds of processor time reach: the number of features by kind, at POINTS equal distances."""
    with tempfile.TemporaryDirectory(prefix="guided-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        task = Task(place, place, seed, None, CHUNK, worlds, is_guided=is_guided)
        seen: set[Feature] = set()
        curve: list[dict[str, int]] = []
        used, runs, failed = 0.0, 0, []
        number = 0
        while used < seconds:
            rows = EventRecorder()
            schedules = runner.schedules(task, range(seed + number * CHUNK, seed + (number + 1) * CHUNK))
            while used < seconds:
                began = time.process_time()
                made = next(schedules, None)
                if made is None:
                    break
                phase, recipe, schedule = made
                outcome = run(schedule)
                row = recorder.run_row(outcome, phase, rows.add(outcome), recipe)
                if is_guided:
                    runner.corpus_of(task).learn(outcome, row["digest"], recipe)
                used += time.process_time() - began
                runs += 1
                if outcome.verdict != "ok":
                    failed.append(outcome.last.signature)
                seen.update(corpus.features(outcome))
                while used >= seconds * (len(curve) + 1) / POINTS:
                    curve.append(dict(Counter(map(kind_of, seen))))
            number += 1
        return {"runs": runs, "failed": failed, "curve": curve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0, help="of processor time, for each of the two, in a repetition")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--world", action="append", default=[])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {"random": [], "guided": []}
    for repetition in range(options.repetitions):
        for name, results in found.items():
            results.append(reached(name == "guided", 1 + repetition * APART, options.seconds, tuple(options.world)))
            sys.stderr.write(f"{repetition} {name}: {results[-1]['runs']} runs, {results[-1]['curve'][-1]}\n")
    for kind in KINDS:
        for at in (POINTS // 4 - 1, POINTS - 1):
            counts = {name: [one["curve"][at].get(kind, 0) for one in results] for name, results in found.items()}
            medians = {name: statistics.median(values) for name, values in counts.items()}
            wins = sum(a > b for a, b in zip(counts["guided"], counts["random"], strict=True))
            after = options.seconds * (at + 1) / POINTS
            sys.stdout.write(f"{kind} after {after:g} s: {medians}, more guided in {wins} of {options.repetitions}\n")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
