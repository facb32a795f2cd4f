"""`rocketmq-ha cluster-demo`: a campaign, its second verdict and its report on a standalone cluster of Spark.

A worker is killed with `kill -9` while the campaign runs. Nothing of that may show: the rows are those of one process, and the
tables of the report those that `local[2]` makes, row by row.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import click
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.log_store import LogStore
from rocketmq_ha.fuzz.standalone import SparkCluster
from rocketmq_ha.spec.event_log import EVENTS_DIR, MANIFEST_DIR, RUNS_DIR

SEED: Final = 1
LIMIT_S: Final = 1800.0  # of each command
POLL_S: Final = 0.1
LOCAL: Final = "local[2]"


@click.command(name="cluster-demo")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("build/cluster-demo"), show_default=True)
@click.option("--runs", type=click.IntRange(min=40), default=400, show_default=True, help="Schedules of the campaign.")
def cluster_demo(out: Path, runs: int) -> None:
    """Run a campaign, its second verdict and its report on a Spark cluster of two workers, one of which is killed.

    Its last line says what was seen; exit status 1 with verdict=FAIL if the result differs from that of local[2].
    """
    console = Console(highlight=False, soft_wrap=True)
    if out.exists() and any(out.iterdir()) and not (out / "cluster-demo").exists():
        raise FuzzError(f"{out}: found other files, expected an empty directory or one of an earlier cluster-demo")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "cluster-demo").touch()
    log, alone = out / "log", out / "alone"
    console.print(f"1. Spark's master and two workers start; a campaign of {runs} runs begins on them", style="bold")
    with SparkCluster(out / "spark") as cluster:
        console.print(f"   {cluster.url}")
        size = max(2, runs // 40)  # of a partition
        arguments = ("fuzz", "run", "--runs", str(runs), "--seed", str(SEED), "--partition-runs", str(size))
        campaign = _begin(out, "campaign", *arguments, "--out", str(log), "--master", cluster.url)
        published = _await_partitions(log, 8, campaign)
        cluster.kill_worker(0)
        console.print(f"2. A worker was killed with kill -9 after {published} of {-(-runs // size)} partitions", style="bold")
        _join(out, "campaign", campaign)
        console.print("3. The second verdict and the report, on the worker that is left", style="bold")
        _run(out, "second-verdict", "second-verdict", str(log), "--out", str(out / "second-verdict"), "--master", cluster.url)
        _run(out, "report", "report", str(log), "--out", str(out / "report.html"), "--master", cluster.url)
    console.print(f"4. The same on {LOCAL}", style="bold")
    _run(out, "campaign-alone", *arguments, "--out", str(alone), "--master", LOCAL)
    _run(out, "report-alone", "report", str(log), "--out", str(out / "alone.html"), "--master", LOCAL)
    problems = [*_different_rows(log, alone), *_different_tables(out / "report-tables", out / "alone-tables")]
    for problem in problems:
        console.print(f"   {problem}", style="red")
    rows = sum(table.num_rows for table in map(pq.read_table, sorted((out / "report-tables").glob("*.parquet"))))
    tables = len(list((out / "report-tables").glob("*.parquet")))
    verdict = "FAIL" if problems else "PASS"
    click.echo(f"runs={runs} killed_after={published} tables={tables} rows={rows} different={len(problems)} verdict={verdict}")
    sys.exit(1 if problems else 0)


def _begin(out: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A command in a process of its own. What it prints goes to NAME.txt."""
    with (out / f"{name}.txt").open("wb") as printed:
        command = [sys.executable, "-m", "rocketmq_ha.impl.cli", *arguments]
        return subprocess.Popen(command, env=os.environ, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed)


def _join(out: Path, name: str, process: subprocess.Popen[bytes]) -> None:
    """Raises: FuzzError, where a command fails or does not end."""
    try:
        status = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(LIMIT_S)
        raise FuzzError(f"{out}/{name}.txt: the command has not ended within {LIMIT_S:g} s") from None
    if status:
        last = ((out / f"{name}.txt").read_text(encoding="utf-8").splitlines() or ["nothing"])[-1]
        raise FuzzError(f"{out}/{name}.txt: the command ended with status {status}; it said: {last}")


def _run(out: Path, name: str, *arguments: str) -> None:
    _join(out, name, _begin(out, name, *arguments))


def _await_partitions(log: Path, number: int, campaign: subprocess.Popen[bytes]) -> int:
    """Wait until a campaign has published at least so many partitions. Returns: how many."""
    until = time.monotonic() + LIMIT_S
    while (found := len(list((log / MANIFEST_DIR).glob("*.json")))) < number:
        if campaign.poll() is not None or time.monotonic() > until:
            raise FuzzError(f"{log}: found {found} partitions, expected {number} while the campaign runs")
        time.sleep(POLL_S)
    return found


def _different_rows(log: Path, alone: Path) -> list[str]:
    """In which parts two logs have different rows. The duration of a run is the only column that may differ."""
    found = []
    for part, order in ((EVENTS_DIR, ("run_id", "step")), (RUNS_DIR, ("run_id",))):
        ours, theirs = (_rows(place, part, order) for place in (log, alone))
        if not ours.equals(theirs):
            found.append(f"{part}: {ours.num_rows} rows on the cluster, {theirs.num_rows} on {LOCAL}; expected equal ones")
    return found


def _rows(log: Path, part: str, order: tuple[str, ...]) -> pa.Table:
    store = LogStore(str(log))
    named = [json.loads(store.read(name) or b"{}") for name in store.names(MANIFEST_DIR)]
    table = pa.concat_tables([store.read_table(f"{part}/{manifest[part]}") for manifest in named])
    kept = [name for name in table.column_names if name != "elapsed_us"]
    return table.select(kept).sort_by([(name, "ascending") for name in order]).combine_chunks()


def _different_tables(ours: Path, theirs: Path) -> list[str]:
    """The names of the report's tables that differ in a row."""
    names = sorted({file.name for folder in (ours, theirs) for file in folder.glob("*.parquet")})
    if not names:
        return [f"{ours}: found no tables"]
    found = []
    for name in names:
        files = [folder / name for folder in (ours, theirs)]
        if not all(file.is_file() for file in files):
            found.append(f"{name}: only one of the two reports has it")
        elif not pq.read_table(files[0]).equals(pq.read_table(files[1])):
            found.append(f"{name}: its rows differ")
    return found
