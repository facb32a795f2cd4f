"""`rocketmq-ha demo`: the main job, end to end.

A name server, a broker and its slave, producers and consumers exchange messages; the broker is killed, and its slave read. Then
a master on a store that RocketMQ wrote and an empty slave, two processes on loopback, replicate under cuts and a kill -9; the
two logs are compared byte by byte. A lock-step campaign on Spark and its report follow. The result line counts only what was
observed.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from rocketmq_ha.fuzz import campaign, golden, pictures, replay
from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.messaging import exchange
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.fuzz.progress import STARTING_SPARK, campaign_progress, run_progress
from rocketmq_ha.fuzz.proxy import CuttingProxy, PlannedCut
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import Comparison, Summary, compare, verify

FILE_SIZE: Final = 1024 * 1024  # file size of the golden store
BODY_SIZE: Final = 1024
IN_FLIGHT: Final = 64
CATCH_UP_SECONDS: Final = 60.0
REPORT_SECONDS: Final = 1800.0
POLL_S: Final = 0.1
CAMPAIGN_SEED: Final = 1
EXCHANGED: Final = 3000  # messages that our producer sends
ESTIMATE: Final = "This takes a minute or two on two processors: messages, a replication, a campaign on Spark, its report."


@dataclass(frozen=True, slots=True)
class Replication:
    """The results of the replication."""

    messages: int  # messages in the slave's log
    nbytes: int  # bytes of its log, from its start offset
    seconds: float  # from the first byte put to the last byte acknowledged
    cuts_in_header: int
    cuts_in_body: int
    outstanding: int  # bytes that the slave lacked when it was killed
    statuses: str
    problems: tuple[str, ...]


@click.command()
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("build/demo"), show_default=True)
@click.option("--messages", type=click.IntRange(min=1000), default=20_000, show_default=True, help="To put; half wait.")
@click.option("--runs", type=click.IntRange(min=1), default=1500, show_default=True, help="Schedules of the campaign.")
def demo(out: Path, messages: int, runs: int) -> None:
    """Exchange messages, replicate a real store under faults, fuzz in lock-step on Spark, and make the report.

    Its last line says what was seen; exit status 1 with verdict=FAIL if anything differed.
    """
    console = Console(highlight=False, soft_wrap=True)
    if out.exists():
        if not (out / "demo").is_file() and any(out.iterdir()):
            raise FuzzError(f"{out}: is not empty and not made by an earlier demo, expected a new directory")
        shutil.rmtree(out)
    out.mkdir(parents=True)
    (out / "demo").touch()

    console.print(ESTIMATE)
    console.print("1. A name server, a broker and its slave; producers and consumers", style="bold")
    messaging = exchange(out, EXCHANGED, console)
    console.print("2. A master on RocketMQ's own store, an empty slave, cuts and a kill", style="bold")
    replication = replicate(out, messages, console)
    console.print("3. A lock-step fuzz campaign on Spark", style="bold")
    from rocketmq_ha.analysis.session import spark_session

    console.print(f"   {STARTING_SPARK}")
    spark = spark_session("rocketmq-ha demo", fast_start=True)
    log = out / "fuzz"
    with campaign_progress() as progress:
        result = campaign.run(spark, campaign.Plan(CAMPAIGN_SEED, runs), str(log), progress)
    spark.stop()
    for row in result.failed[:5]:
        console.print(f"   {row['verdict']}: {row['signature']}: {replay.command(row, str(log))}", style="red")
    console.print(
        f"   {result.distinct} distinct schedules, {result.steps} steps, median {result.median_steps:.0f} a schedule, "
        f"{result.n_failed} failed, {result.seconds:.1f} s"
    )
    console.print("4. The report", style="bold")
    report = out / "report.html"
    summary = make_report(log, report)
    made = pictures.take(report, out)
    console.print(f"   {report}" + (f", as a phone and a desktop show it: {', '.join(map(str, made))}" if made else ""))

    problems = [*messaging.problems, *replication.problems]
    problems += [f"{result.n_failed} schedules failed"] if result.n_failed else []
    problems += [f"only {result.distinct} distinct schedules of {runs}"] if result.distinct < runs else []
    problems += [f"a median of only {result.median_steps:.0f} steps"] if result.median_steps < 50 else []
    problems += [f"report: {key}={summary[key]}" for key in ("divergences", "impossible") if summary[key] != "0"]
    for problem in problems:
        console.print(f"   {problem}", style="red")
    verdict = "FAIL" if problems else "PASS"
    click.echo(
        f"sent={messaging.sent} consumed={messaging.consumed} from_slave={messaging.from_slave} "
        f"messages={replication.messages} bytes={replication.nbytes} "
        f"mb_per_s={replication.nbytes / 1e6 / replication.seconds:.1f} "
        f"cuts={replication.cuts_in_header + replication.cuts_in_body} schedules={result.distinct} steps={result.steps} "
        f"transitions={summary['transitions']} divergences={summary['divergences']} verdict={verdict}"
    )
    sys.exit(1 if problems else 0)


def replicate(out: Path, messages: int, console: Console) -> Replication:
    """Two processes, a cutting proxy between them, a kill -9, a comparison."""
    stores = {name: out / name for name in ("master", "slave")}
    golden.unpack(stores["master"])
    expected = messages * (BODY_SIZE + 110)  # bytes; only to place the faults
    cuts = [PlannedCut(expected * n // 10, (5, 0, 11, 0, 1, 0, 8, 0)[n - 1]) for n in range(1, 9)]
    put = ("--put", str(messages), "--size", str(BODY_SIZE), "--in-flight", str(IN_FLIGHT), "--sync", "0.5")
    serve = ("--store", str(stores["master"]), "--listen", "127.0.0.1:0", "--await-slaves", "1")
    patient = ("--sync-flush-timeout", "60000")  # a busy machine takes seconds to start the slave again
    master = Node(out / "master.log", "master", *serve, *put, *patient)
    slave: Node | None = None
    proxy: CuttingProxy | None = None
    try:
        proxy = CuttingProxy(parse_address(master.line("listening")), cuts)
        follow = ("slave", "--store", str(stores["slave"]), "--master", proxy.address, "--file-size", str(FILE_SIZE))
        started = time.monotonic()
        slave = Node(out / "slave.log", *follow)
        with run_progress("bytes replicated", expected) as progress:

            def wait(done: Callable[[], bool]) -> None:
                deadline = time.monotonic() + CATCH_UP_SECONDS
                while not done():
                    master.check()
                    assert proxy is not None and slave is not None
                    slave.check()
                    progress(min(proxy.body_bytes, expected))
                    if time.monotonic() > deadline:
                        raise FuzzError(f"{stores['slave']}: at {proxy.slave_ack_offset} after {CATCH_UP_SECONDS:.0f} s")
                    time.sleep(POLL_S / 10)

            # The connections on which an empty slave asks about the master's files pass bodies too, and leave it empty.
            wait(lambda: proxy.body_bytes > expected * 0.45 and proxy.slave_ack_offset > 0)
            proxy.hold()
            time.sleep(POLL_S)  # the master goes on until too many puts wait
            slave.kill()
            outstanding = _end(stores["master"]) - _end(stores["slave"])
            slave = Node(out / "slave.log", *follow)
            proxy.release()
            statuses = _line_while(master, "put", wait)
            end = _end(stores["master"])
            wait(lambda: proxy.slave_ack_offset == end)
            seconds = time.monotonic() - started
            progress(expected)
    finally:
        for node in (slave, master):
            if node:
                node.stop()
        if proxy:
            proxy.close()
    with LogReader(stores["master"]) as ours, LogReader(stores["slave"]) as theirs:
        ours_summary, theirs_summary = verify(ours), verify(theirs)
        decoded = sum(1 for _ in theirs.records())
        comparison = compare(ours, theirs)
        nbytes = theirs.max_offset - theirs.min_offset
    seen = (proxy.cuts_in_header, proxy.cuts_in_body), outstanding, statuses
    problems = problems_of(messages, decoded, ours_summary, theirs_summary, comparison, *seen)
    console.print(
        f"   {proxy.cuts_in_header} cuts in a header, {proxy.cuts_in_body} in a body; killed with {outstanding} bytes "
        f"outstanding\n"
        f"   put={statuses}\n"
        f"   master {ours_summary.messages} messages, slave {decoded} from offset {theirs.min_offset}, {nbytes} bytes; "
        f"every CRC is right, the logs are {'not ' if comparison.difference else ''}byte-identical"
    )
    return Replication(
        decoded, nbytes, seconds, proxy.cuts_in_header, proxy.cuts_in_body, outstanding, statuses, tuple(problems)
    )


def problems_of(
    messages: int,
    decoded: int,
    ours: Summary,
    theirs: Summary,
    comparison: Comparison,
    cuts: tuple[int, int],
    outstanding: int,
    statuses: str,
) -> list[str]:
    """What is wrong with a replication, or was not exercised by it.

    Args:  messages: that were put. decoded: that the slave has. ours, theirs: the logs of master and slave. cuts: in a header,
           and in a body. outstanding: bytes that the slave lacked when it was killed. statuses: counts of the puts, as words.
    """
    wrong = {
        f"the logs differ: {comparison.difference}": comparison.difference is not None,
        f"the slave ends at {theirs.max_offset}, not {ours.max_offset}": theirs.max_offset != ours.max_offset,
        f"{decoded} messages decoded of {theirs.messages}": decoded != theirs.messages,
        f"only {decoded} messages on the slave": decoded < messages,
        "no cut in a header": not cuts[0],
        "no cut in a body": not cuts[1],
        "nothing outstanding when the slave was killed": outstanding <= 0,
        f"not every put ended with PUT_OK: {statuses}": f"PUT_OK={messages}" not in statuses.split(),
    }
    return [text for text, holds in wrong.items() if holds]


def _end(store: Path) -> int:
    """The end of the last whole record of a store that is being written."""
    with LogReader(store) as reader:
        reader.walk()
        return reader.max_offset


def _line_while(node: Node, key: str, wait: Callable[[Callable[[], bool]], None]) -> str:
    """Wait for a line of results, showing progress."""
    import threading

    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.append(node.line(key, 2 * CATCH_UP_SECONDS)), daemon=True)
    thread.start()
    wait(lambda: not thread.is_alive())
    if not lines:
        raise FuzzError(f"{node.log}: the process ended before its {key}= line")
    return lines[0]


def make_report(log: Path, report: Path) -> dict[str, str]:
    """Run the report command on a log. Returns: its last line, by key. Raises: FuzzError if it fails."""
    command = [sys.executable, "-m", "rocketmq_ha.analysis", "report", str(log), "--out", str(report)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=REPORT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise FuzzError(f"{report}: the report command has not ended within {REPORT_SECONDS:g} s") from error
    if done.returncode != 0 or not done.stdout.strip():
        raise FuzzError(f"{report}: the report command ended with status {done.returncode}")
    return dict(part.split("=", 1) for part in done.stdout.strip().splitlines()[-1].split())
