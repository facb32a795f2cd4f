"""Kill a process with puts in flight by kill -9, many times on one store: no acknowledged message may be missing.

    python tests/crash/kill9.py --rounds 100 --seed 1

Three processes: a writer, a ledger that kills it (ledger.py says when), and this one, which opens what is left and compares.
The page cache survives a process, so all acknowledged messages must be there, flushed or not.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from judge import Broken, check, check_names
from ledger import AMID_CLOSE, AMID_OPEN, Ledger
from workload import Record
from writer import OPTIONS, THREADS

from rocketmq_ha.fuzz.progress import run_progress
from rocketmq_ha.impl.store.derived.topic_config import read_topics
from rocketmq_ha.impl.store.message_store import MessageStore

HERE: Final = Path(__file__).parent
PATIENCE_S: Final = 60
NEW_STORE_EVERY: Final = 20  # rounds
TOPIC: Final = "orders"


@dataclass
class Killed:
    """The results of all rounds."""

    rounds: Counter[str] = field(default_factory=Counter)  # number of rounds by the moment of the kill
    acknowledged: int = 0
    in_flight: list[int] = field(default_factory=list)  # puts in flight, in the rounds that had any


def kill_once(store: Path, seed: str, after: int, delay_s: float, *, sync: bool) -> Ledger:
    """Let a writer work on a store until the ledger kills it."""
    keeping = [sys.executable, str(HERE / "ledger.py"), str(after), str(delay_s)]
    writing = [sys.executable, str(HERE / "writer.py"), str(store), seed, "40" if after == AMID_CLOSE else "0"]
    told, tells = os.pipe()
    with tempfile.TemporaryFile() as errors:
        ledger = subprocess.Popen(keeping, stdin=told, stdout=subprocess.PIPE)
        writer = subprocess.Popen([*writing, *(["--sync"] if sync else [])], stdout=tells, stderr=errors)
        os.close(told)
        os.close(tells)  # or the pipe would not end with the writer
        try:
            out, _ = ledger.communicate(timeout=PATIENCE_S)
        finally:
            for process in (writer, ledger):
                process.kill()
                process.wait(PATIENCE_S)
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    found = json.loads(out)
    kept = Ledger(found["killed"], found["begun"], [tuple(entry) for entry in found["acknowledged"]])
    if not kept.killed or said:
        raise Broken(f"the writer ended by itself, status {writer.returncode}: {said.strip()[-2000:]}")
    return kept


def compare(path: Path, acknowledged: Sequence[tuple[int, int, int, int, int]], rng: random.Random) -> None:
    """Open the store, find all acknowledged messages in log, queues and index, and check its files. Raises: Broken."""
    if acknowledged and read_topics(path).get(TOPIC, 0) <= max(queue_id for _, _, _, queue_id, _ in acknowledged):
        raise Broken(f"a broker would not serve all that was acknowledged, but {read_topics(path)}")
    check_names(str(found.relative_to(path)) for found in path.rglob("*"))
    with MessageStore.open(path, OPTIONS) as store:
        held = [Record(offset, bytes(store.log.data_at(offset, size) or b""), one) for offset, size, one in store.log.records()]
        by_offset = {record.offset: record for record in held}
        for offset, size, body_crc, queue_id, queue_offset in acknowledged:
            record = by_offset.get(offset)
            if record is None or len(record.data) != size or record.message.body_crc != body_crc:
                raise Broken(f"acknowledged at {offset}: {size} bytes, CRC {body_crc:08x}; the log has {record!r:.200}")
            if (record.message.queue_id, record.message.queue_offset) != (queue_id, queue_offset):
                raise Broken(f"acknowledged at {offset}: queue {queue_id}, number {queue_offset}; the log has {record!r:.200}")
        check(store, held, rng)
        for queue_id in range(THREADS):
            numbers = [one.message.queue_offset for one in held if one.message.queue_id == queue_id]
            if numbers != list(range(len(numbers))):
                raise Broken(f"queue {queue_id}: a queue offset is missing or given twice")


def run(rounds: int, seed: int, directory: Path, told: Callable[[int], None] = lambda _: None) -> Killed:
    """Run the rounds, with a new store every 20. Raises: Broken, with its round."""
    killed = Killed()
    acknowledged: list[tuple[int, int, int, int, int]] = []
    for number in range(rounds):
        rng = random.Random(f"{seed}/{number}")
        store = directory / f"store-{number // NEW_STORE_EVERY}"
        if number % NEW_STORE_EVERY == 0:
            acknowledged = []
        moment = ("puts", "puts", "open", "puts", "close")[number % 5]
        after = {"open": AMID_OPEN, "close": AMID_CLOSE}.get(moment, rng.choice((300, 1000, 2000, 4000)))
        delay_s = rng.uniform(0, 0.3) if moment == "open" else rng.uniform(0, 0.02)
        try:
            ledger = kill_once(store, f"{seed}-{number}", after, delay_s, sync=rng.random() < 0.7)
            acknowledged += ledger.acknowledged
            compare(store, acknowledged, rng)
        except Broken as broken:
            raise Broken(f"round {number} of seed {seed}, killed amid {moment}: {broken}") from broken
        killed.rounds[moment] += 1
        killed.acknowledged += len(ledger.acknowledged)
        if moment == "puts":
            killed.in_flight.append(ledger.in_flight)
        told(number + 1)
    return killed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill9-") as directory, run_progress("rounds", arguments.rounds) as told:
        try:
            killed = run(arguments.rounds, arguments.seed, Path(directory), told)
        except Broken as broken:
            print(f"BROKEN {broken}")  # noqa: T201
            return 1
    moments = ", ".join(f"{count} amid {moment}" for moment, count in sorted(killed.rounds.items()))
    least = min(killed.in_flight, default=0)
    print(f"{killed.rounds.total()} kills ({moments}) in {time.monotonic() - began:.0f} s")  # noqa: T201
    print(f"{killed.acknowledged} puts acknowledged, none missing; at least {least} in flight amid puts")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
