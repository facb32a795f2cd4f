"""Lose a master's disk: kill the master, delete its store, open the slave's store. No byte with PUT_OK may be missing.

    python tests/crash/disk_death.py --rounds 200 --seed 1 [--async | --power-cut [--ack appended]]

kill -9 alone proves nothing about replication: the page cache survives a process. With --power-cut the slave dies too and
loses its unflushed bytes: under --ack flushed nothing may be missing; under --ack appended something is.
With --async no put waits for the slave: missing messages are counted, and must be the end of the log.
"""

import argparse
import json
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from judge import Broken
from producer import FILE_SIZE

from rocketmq_ha.fuzz.progress import run_progress
from rocketmq_ha.impl.store.log.commit_log import CommitLog

HERE: Final = Path(__file__).parent
PATIENCE_S: Final = 60
NEW_STORE_EVERY: Final = 10  # rounds
Acknowledged = list[tuple[int, int, int]]  # (end offset of the message, size of its body, CRC of the body)


@dataclass
class Deaths:
    """The results of all rounds."""

    rounds: int = 0
    acknowledged: int = 0
    lost: list[int] = field(default_factory=list)  # number of lost messages in each round
    in_flight: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """The settings of a round."""

    waits: bool = True  # puts wait for the slave
    ack: str = "appended"
    power_cut: bool = False  # the slave loses its unflushed bytes

    @property
    def promises(self) -> bool:
        """Return True if no message may be missing."""
        return self.waits and (self.ack == "flushed" or not self.power_cut)


def run(rounds: int, seed: int, directory: Path, trial: Trial, told: Callable[[int], None] = lambda _: None) -> Deaths:
    """Run the rounds. Each surviving store becomes the next master; its slave starts as a copy.

    Raises: Broken, with the round.
    """
    deaths, acknowledged, store = Deaths(), Acknowledged(), directory / "store"
    for number in range(rounds):
        rng = random.Random(f"{seed}/{number}")
        if number % NEW_STORE_EVERY == 0:
            shutil.rmtree(store, ignore_errors=True)
            (store / "commitlog").mkdir(parents=True)
            acknowledged = []
        slave = directory / "slave"
        shutil.copytree(store, slave, ignore=shutil.ignore_patterns("lock", "abort"))
        try:
            ledger = _die(store, slave, f"{seed}-{number}", rng, trial)
            acknowledged += [(offset, size, body_crc) for offset, size, body_crc, *_ in ledger["acknowledged"]]
            shutil.rmtree(store)
            slave.rename(store)
            kept = compare(store, acknowledged)
        except Broken as broken:
            raise Broken(f"round {number} of seed {seed}: {broken}") from broken
        lost = len(acknowledged) - len(kept)
        if lost and trial.promises:
            raise Broken(f"round {number} of seed {seed}: {lost} puts that ended with PUT_OK are not in the slave's log")
        acknowledged = kept
        deaths.rounds += 1
        deaths.acknowledged += len(ledger["acknowledged"])
        deaths.lost.append(lost)
        deaths.in_flight.append(ledger["begun"] - len(ledger["acknowledged"]))
        told(number + 1)
    return deaths


def _die(store: Path, slave: Path, seed: str, rng: random.Random, trial: Trial) -> dict[str, list[list[int]] | int]:
    """Replicate until the ledger kills the master, then end the slave. Returns: what the ledger kept."""
    flushed = slave.parent / "flushed"
    keeping = [sys.executable, str(HERE / "ledger.py"), str(rng.choice((300, 1000, 3000))), str(rng.uniform(0, 0.02))]
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryFile() as errors:
        port, fd = listener.getsockname()[1], listener.fileno()
        producing = [
            sys.executable,
            str(HERE / "producer.py"),
            str(store),
            str(fd),
            seed,
            *([] if trial.waits else ["--async"]),
        ]
        following = [sys.executable, str(HERE / "replica.py"), str(slave), str(port), str(flushed), trial.ack]
        replica = subprocess.Popen(following, stderr=errors)
        producer = subprocess.Popen(producing, stdout=subprocess.PIPE, stderr=errors, pass_fds=[fd])
        ledger = subprocess.Popen(keeping, stdin=producer.stdout, stdout=subprocess.PIPE)
        assert producer.stdout is not None
        producer.stdout.close()  # or the pipe would not end with the producer
        try:
            out, _ = ledger.communicate(timeout=PATIENCE_S)
            replica.send_signal(signal.SIGKILL if trial.power_cut or rng.random() < 0.5 else signal.SIGTERM)
            replica.wait(PATIENCE_S)
        finally:
            for process in (producer, ledger, replica):
                process.kill()
                process.wait(PATIENCE_S)
        errors.seek(0)
        if said := errors.read().decode(errors="replace"):
            raise Broken(f"master or slave said: {said.strip()[-2000:]}")
    found: dict[str, list[list[int]] | int] = json.loads(out)
    if not found["killed"]:
        raise Broken(f"the master ended by itself, status {producer.returncode}")
    if trial.power_cut:
        cut_power(slave, int.from_bytes(flushed.read_bytes(), "big"))
    return found


def cut_power(store: Path, flushed: int) -> None:
    """Remove from a log every byte that was never flushed."""
    for file in (store / "commitlog").iterdir():
        base = int(file.name)
        if flushed <= base:
            file.unlink()
        elif flushed < base + FILE_SIZE:
            with file.open("r+b") as log:
                log.truncate(flushed - base)
                log.truncate(FILE_SIZE)


def compare(store: Path, acknowledged: Sequence[tuple[int, int, int]]) -> Acknowledged:
    """Return the acknowledged messages that a store has. Raises: Broken, if they are no prefix, or if a message differs."""
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        held = {offset + size: message for offset, size, message in log.records()}
        end = log.max_offset
    kept = [entry for entry in acknowledged if entry[0] <= end]
    for offset, size, body_crc in kept:
        message = held.get(offset)
        if message is None or len(message.body) != size or message.body_crc != body_crc & 0x7FFFFFFF:
            raise Broken(
                f"acknowledged up to {offset}: a body of {size} bytes, CRC {body_crc:08x}; the log has {message!r:.200}"
            )
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--async", dest="waits", action="store_false")
    parser.add_argument("--power-cut", action="store_true")
    parser.add_argument("--ack", choices=("appended", "flushed"), help="flushed with --power-cut, else appended")
    arguments = parser.parse_args()
    ack = arguments.ack or ("flushed" if arguments.power_cut else "appended")
    trial = Trial(arguments.waits, ack, arguments.power_cut)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="disk-death-") as directory, run_progress("deaths", arguments.rounds) as told:
        try:
            deaths = run(arguments.rounds, arguments.seed, Path(directory), trial, told)
        except Broken as broken:
            print(f"BROKEN {broken}")  # noqa: T201
            return 1
    kind = "SYNC_MASTER" if trial.waits else "ASYNC_MASTER"
    cut = ", the slave's unflushed pages gone too" if trial.power_cut else ""
    print(f"{deaths.rounds} deaths of the master's disk ({kind}, ack {ack}{cut}) in {time.monotonic() - began:.0f} s")  # noqa: T201
    in_flight = f"; at least {min(deaths.in_flight)} in flight" if trial.waits else ""
    lost = f"{sum(deaths.lost)} are lost (a round: median {statistics.median(deaths.lost):g}, most {max(deaths.lost)})"
    print(f"{deaths.acknowledged} puts ended with PUT_OK, {lost}{in_flight}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
