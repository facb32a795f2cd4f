"""`make hostile`: hostile inputs over TCP against live processes; one row each shows the effect on honest peers.

    python tests/hostile/run_hostile.py
    python tests/hostile/run_hostile.py flood noise     only inputs whose names contain one of these words

Against a master: an honest slave replicates meanwhile, and every put waits for it. The row shows the growth rate of that
slave's log before and during the input, the master's anonymous memory before, at its peak and after, and the hash of both logs.
Against a slave: it replicates from an honest master, is cut off, meets the hostile one, and returns. The row shows the growth
rates of its log before and after, its memory, and the hash.
Against a remoting port, of a name server and of a broker: the row shows how many answers a second an honest client gets
before and during the input (the columns are kilobytes for the others), and the memory of the process.

An input passes if no process ended, only the hostile connection was closed, the honest log grew, memory stayed within its
bounds, and the hashes are equal. The rates are for reading only: on a machine with few cores the hostile program takes its
share of them.

Exit status 1 if an input does not pass.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import hostile_masters
import hostile_remoting
import hostile_slaves
import hostile_tls  # noqa: F401  (its inputs are hostile_slaves')
from hostile_masters import Front, HostileMaster
from hostile_remoting import RemotingStand
from hostile_slaves import Port
from hostile_stand import IN_FLIGHT, MAX_CONNECTIONS, End, Stand, Unexpected, Watch, rate, start_slave, wait_for
from rich.console import Console

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.impl.cli.table import Column, console_for, print_table
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import verify

RATE_S: Final = 0.6
SLACK_KIB: Final = 6 * 1024  # memory that the interpreter allocates and frees by itself
SLAVE_BUFFER_KIB: Final = 5 * 1024  # the largest read buffer, and its copy while it grows
EACH_KIB: Final = 64  # HA-M-55
OPENSSL_KIB: Final = 160  # HA-M-75
REMOTING_RATE_S: Final = 0.2
# 8 MiB of answers that nobody takes, and 24 frames that have begun, are held for a while: HA-RM-24, HA-RM-26.
REMOTING_SLACK_KIB: Final = 64 * 1024
LINES_EACH: Final = 31  # log lines in a window of 10 s: 30 (HA-M-57), and the line that counts the rest
SLAVES_AT_A_TIME: Final = 6


@dataclass
class Row:
    """The effect of one input. Rates in bytes a second, memory in KiB."""

    name: str
    against: str  # "master", "slave", "namesrv" or "broker"
    seconds: float = 0.0
    rate_before: float = 0.0
    rate_with: float = 0.0  # against a master: during the input; against a slave: after it
    rss_before_kib: int = 0
    rss_peak_kib: int = 0
    rss_after_kib: int = 0
    rss_bound_kib: int = 0  # bound of the peak
    offset: int = 0
    sha256: str = ""  # hash of the log up to that offset, equal in both stores
    problem: str = ""

    @property
    def ratio(self) -> float:
        return self.rate_with / self.rate_before if self.rate_before else 0.0


def against_master(stand: Stand, name: str, number: int) -> Row:
    """Run one input of hostile_slaves while the honest slave replicates."""
    row, master = Row(name, "master"), stand.master
    port = Port(stand, f"127.0.{1 + number // 250}.{1 + number % 250}")
    wait_for(lambda: len(master.ask()["connections"]) == 1, "connections of the input before are left")
    row.rate_before = rate(stand.slave, RATE_S)
    connects = stand.slave.ask()["connects"]
    lines, begun_s, begun = master.log_lines(), time.monotonic(), stand.slave.offset
    try:
        with Watch.over(master) as watch:
            hostile_slaves.INPUTS[name](port)
            end = stand.slave.offset
            row.seconds = time.monotonic() - begun_s
            row.rate_with = (end - begun) / row.seconds
        row.rss_before_kib, row.rss_peak_kib, row.rss_after_kib = watch.before_kib, watch.peak_kib, master.rss_kib()
        each_kib = EACH_KIB + OPENSSL_KIB * port.uses_tls
        row.rss_bound_kib = watch.before_kib + SLACK_KIB + each_kib * min(port.connections, MAX_CONNECTIONS)
        wait_for(lambda: stand.slave.offset > end, "the honest log grows no more")
        row.offset, row.sha256 = stand.same()
        if end <= begun:
            raise Unexpected("the honest slave got nothing while it lasted")
        if row.rss_peak_kib > row.rss_bound_kib:
            raise Unexpected(f"the master had {row.rss_peak_kib} KiB, expected {row.rss_bound_kib} at most")
        if (more := stand.slave.ask()["connects"] - connects) != 0:
            raise Unexpected(f"the honest slave had to connect again, {more} times")
        _check_lines(master, lines, begun_s)
    except (Unexpected, OSError, FuzzError) as error:
        row.problem = str(error)
    return row


def against_slave(directory: Path, honest: Stand, given: HostileMaster, number: int) -> Row:
    """Run one input of hostile_masters, with an honest master before and after it."""
    row = Row(given.name, "slave")
    front = Front(honest.address)
    name = f"victim-{number}"
    if given.empty:
        front.attack(given)
    victim = start_slave(directory, name, front.address)
    try:
        victim.ask()  # waits until it runs
        if not given.empty:
            wait_for(lambda: victim.offset > 0 and honest.slave.offset - victim.offset < 1 << 20, "it does not catch up")
        row.rate_before = rate(honest.slave if given.empty else victim, RATE_S)
        lines, begun_s = victim.log_lines(), time.monotonic()
        with Watch.over(victim) as watch:
            if not given.empty:
                front.attack(given)
            if not front.attacked.wait(120):
                raise Unexpected(f"after 120 s it has had {front.served} connections of {given.connections}")
        row.seconds = time.monotonic() - begun_s
        row.rss_before_kib, row.rss_peak_kib = watch.before_kib, watch.peak_kib
        row.rss_bound_kib = watch.before_kib + SLACK_KIB + SLAVE_BUFFER_KIB
        row.rss_after_kib = victim.rss_kib()
        if front.problem:
            raise Unexpected(front.problem)
        _check_lines(victim, lines, begun_s)
        if given.appends:
            victim.node.kill()
            victim = start_slave(directory, name, front.address)
        cut_off = victim.offset
        front.release()
        wait_for(lambda: victim.offset > cut_off, "it does not come back to the honest master")
        wait_for(lambda: honest.slave.offset - victim.offset < 1 << 20, "it does not catch up again")
        row.rate_with = rate(victim, RATE_S)
        row.offset, row.sha256 = victim.offset, ""
        row.sha256 = _hash_of_both(honest.master, victim, row.offset)
        if row.rss_peak_kib > row.rss_bound_kib:
            raise Unexpected(f"it had {row.rss_peak_kib} KiB, expected {row.rss_bound_kib} at most")
        if victim.node.stop() != 0:
            raise Unexpected("it does not end with exit status 0")
    except (Unexpected, OSError, FuzzError) as error:
        row.problem = str(error)
        victim.node.kill()
    finally:
        front.close()
    if b"Traceback" in victim.node.log.read_bytes():
        row.problem = row.problem or f"{victim.node.log}: a traceback"
    shutil.rmtree(victim.store, ignore_errors=True)
    return row


def against_remoting(stand: RemotingStand, name: str, number: int) -> Row:
    """Run one input of hostile_remoting while an honest client asks."""
    row = Row(name, stand.what)
    row.rate_before = stand.rate(REMOTING_RATE_S)
    lines, begun_s, begun = stand.log_lines(), time.monotonic(), stand.answers
    try:
        with Watch.over(stand) as watch:
            hostile_remoting.INPUTS[name](stand, f"127.0.{1 + number // 250}.{1 + number % 250}")
            end = stand.answers
            row.seconds = time.monotonic() - begun_s
            row.rate_with = (end - begun) / row.seconds
        row.rss_before_kib, row.rss_peak_kib, row.rss_after_kib = watch.before_kib, watch.peak_kib, stand.rss_kib()
        row.rss_bound_kib = watch.before_kib + REMOTING_SLACK_KIB
        wait_for(lambda: stand.answers > end or stand.problem, "the honest client gets no answers any more")
        if stand.problem:
            raise Unexpected(stand.problem)
        if row.rss_peak_kib > row.rss_bound_kib:
            raise Unexpected(f"it had {row.rss_peak_kib} KiB, expected {row.rss_bound_kib} at most")
        _check_lines(stand, lines, begun_s)
    except (Unexpected, OSError, FuzzError) as error:
        row.problem = str(error)
    return row


def _check_lines(end: End | RemotingStand, before: int, begun_s: float) -> None:
    """Check the number of log lines. One window may have begun before the input. Raises: Unexpected."""
    told, most = end.log_lines() - before, LINES_EACH * (2 + int((time.monotonic() - begun_s) / 10))
    if told > most:
        raise Unexpected(f"{told} lines in {end.node.log.name}, expected {most} at most")


def _hash_of_both(ours: End, theirs: End, offset: int) -> str:
    """The hash of both logs, from the slave's first byte on. Raises: Unexpected, if they differ."""
    start = int(theirs.ask()["min_offset"])  # a slave begins with the master's last file
    found = [End(end.store, end.node, start).digest(offset) for end in (ours, theirs)]
    if found[0] != found[1]:
        raise Unexpected(f"the logs differ before {offset}: {found[0][:16]} and {found[1][:16]}")
    return found[0]


def stopped(stand: Stand) -> str | None:
    """Stop a stand. Returns: an error about its puts, its logs or its output; None if there is none."""
    try:
        told = dict(part.split("=") for part in f"put={stand.stop()}".split())
        # A stopping master ends the puts that wait (HA-G-6): at most IN_FLIGHT.
        ended_by_stop = min(IN_FLIGHT, int(told.get("FLUSH_SLAVE_TIMEOUT", 0)))
        if int(told["put"]) != int(told.get("PUT_OK", 0)) + ended_by_stop:
            return f"not every put ended with PUT_OK, but for {IN_FLIGHT} at the stop: {told}"
        for end in (stand.master, stand.slave):
            if b"Traceback" in end.node.log.read_bytes():
                return f"{end.node.log}: a traceback"
            with LogReader(end.store) as reader:
                verify(reader)
    except Exception as error:  # the run reports every error as a row
        return f"{type(error).__name__}: {error}"
    return None


def chosen(names: Iterable[str], words: list[str]) -> list[str]:
    return [name for name in names if not words or any(word in name for word in words)]


def run(words: list[str], directory: Path, console: Console) -> list[Row]:
    rows: list[Row] = []

    def show(row: Row) -> None:
        rows.append(row)
        verdict = f"[red]FAIL: {row.problem}[/]" if row.problem else "ok"
        console.print(f"  {row.against:7}  {row.name:60}  {row.ratio:5.2f}  {verdict}", soft_wrap=True)

    slaves = chosen(hostile_slaves.INPUTS, words)
    if slaves:
        stand = Stand(directory / "slaves")
        try:
            for number, name in enumerate(slaves):
                show(against_master(stand, name, number))
            problem = stopped(stand)
        except BaseException:
            stand.kill()
            raise
        if problem:
            show(Row("the master and its slave, in the end", "master", problem=problem))
    remoting = chosen(hostile_remoting.INPUTS, words)
    for what in ("namesrv", "broker") if remoting else ():
        peer = RemotingStand(directory, what)
        try:
            for number, name in enumerate(remoting):
                show(against_remoting(peer, name, number))
            problem = peer.stop()
        except BaseException:
            peer.kill()
            raise
        if problem:
            show(Row(f"the {what}, in the end", what, problem=problem))
    masters = [given for given in hostile_masters.INPUTS if not words or given.name in chosen([given.name], words)]
    if masters:
        stand = Stand(directory / "masters", prefilled=1 << 20)
        lock = threading.Lock()

        def one(numbered: tuple[int, HostileMaster]) -> None:
            row = against_slave(directory / "masters", stand, numbered[1], numbered[0])
            with lock:
                show(row)

        try:
            # The longest input runs first, so that the others do not wait for it at the end.
            ordered = sorted(enumerate(masters), key=lambda pair: pair[1].name != "silence")
            with ThreadPoolExecutor(SLAVES_AT_A_TIME) as pool:
                list(pool.map(one, ordered))
            problem = stopped(stand)
        except BaseException:
            stand.kill()
            raise
        if problem:
            show(Row("the honest master, in the end", "slave", problem=problem))
    return rows


COLUMNS: Final = (
    *map(Column, ("against", "input")),
    *(Column(name, is_number=True) for name in ("s", "kB/s alone", "kB/s with", "ratio", "MiB", "peak", "after")),
    *map(Column, ("log", "verdict")),
)


def cells(row: Row) -> list[str]:
    return [
        row.against,
        row.name,
        f"{row.seconds:.1f}",
        f"{row.rate_before / 1000:.0f}",
        f"{row.rate_with / 1000:.0f}",
        f"{row.ratio:.2f}",
        *(f"{kib / 1024:.1f}" for kib in (row.rss_before_kib, row.rss_peak_kib, row.rss_after_kib)),
        row.sha256[:12],
        row.problem or "ok",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only the inputs whose names have one of these")
    parser.add_argument("--out", type=Path, default=Path("build/hostile.json"))
    parser.add_argument("--scratch", type=Path, help="where the stores are made; some hundred MB")
    arguments = parser.parse_args()
    console = console_for()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rocketmq-ha-hostile.", dir=arguments.scratch) as scratch:
        for name in ("slaves", "masters"):
            (Path(scratch) / name).mkdir()
        rows = run(arguments.words, Path(scratch), console)
    print_table(console, COLUMNS, map(cells, rows), ["red" if row.problem else "" for row in rows])
    failed = [row for row in rows if row.problem]
    seconds = time.monotonic() - begun_s
    verdict = "FAIL" if failed or not rows else "PASS"
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    found = {"seconds": seconds, "verdict": verdict, "inputs": [asdict(row) | {"ratio": row.ratio} for row in rows]}
    arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"inputs={len(rows)} failed={len(failed)} seconds={seconds:.0f} verdict={verdict}\n")
    return 1 if verdict == "FAIL" else 0


if __name__ == "__main__":
    sys.exit(main())
