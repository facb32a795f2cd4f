"""The command `rocketmq-ha report LOGS... --out FILE` writes the coverage report of one or more event logs.

Spark is imported only when a report is made, because `rocketmq-ha --help` loads this module too.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rocketmq_ha.analysis.errors import LogInvalid, OutputInvalid, SparkUnavailable
from rocketmq_ha.spec.event_log import EVENTS_DIR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITION_SIZE: Final = 32 * 1024 * 1024  # bytes of Parquet on disk for each shuffle partition
MIN_PARTITIONS: Final = 4
SMALL_LOG_SIZE: Final = 64 * 1024 * 1024  # for smaller logs the JVM's optimising compiler costs more time than it saves

MASTERS: Final = ("local", "spark://", "yarn", "k8s://")

ShowStage = Callable[[str], object]


@click.command()
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The HTML file. Its tables go beside it, NAME.html to NAME-tables/.",
)
@click.option("--master", default="local[*]", show_default=True, help="Spark's master.")
@click.option(
    "--transitions",
    type=click.Path(path_type=Path),
    help="The possible transitions, as JSON.  [default: those of the specification]",
)
def report(logs: tuple[Path, ...], out: Path, master: str, transitions: Path | None) -> None:
    """Write the coverage report of LOGS, the event logs that `fuzz run` and `demo` write.

    The report is one HTML file that needs no network. Each of its tables is also written as Parquet. A run that is in
    several of the logs counts once. The last line on stdout is: report=FILE runs=N steps=N transitions=SEEN/POSSIBLE
    divergences=N impossible=N. Exit status 0 means that the report was made, not that every run passed.
    """
    click.echo(make_report(logs, out, master=master, transitions=transitions))


def make_report(logs: Sequence[Path], out: Path, *, master: str = "local[*]", transitions: Path | None = None) -> str:
    """Write the report and its tables, and return the summary line.

    All input is checked before Spark starts. No file is created before all tables are computed. The page is moved into
    place last.

    Raises: AnalysisError.
    """
    from rocketmq_ha.analysis import ingest, report, schema, tables, view

    if not master.startswith(MASTERS):
        raise SparkUnavailable(f"--master {master}: found no master of Spark, expected local[*] or spark://HOST:PORT")
    check_output(out)
    campaigns = [schema.check_log(path) for path in logs]
    possible = schema.load_possible(transitions)
    with _progress(2 + len(tables.TITLES)) as show_stage, _spark(master, _size(logs), show_stage) as spark, _reading():
        log = ingest.read_logs(spark, logs, campaigns)
        computed = tables.compute(spark, log, possible, show_stage)
        page = view.build(computed, possible, campaigns)
        html = report.render(page)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".report-") as name:
            unfinished = Path(name)
            tables.write(computed, unfinished)
            folder = tables_folder(out)
            folder.mkdir(exist_ok=True)
            for file in sorted(unfinished.iterdir()):
                file.replace(folder / file.name)
            (unfinished / out.name).write_text(html, encoding="utf-8")
            (unfinished / out.name).replace(out)
        show_stage("written")
    return report.last_line(page.figures, out)


def tables_folder(out: Path) -> Path:
    """Return the folder for the tables of the report at `out`.

    >>> tables_folder(Path("build/report.html")).as_posix()
    'build/report-tables'
    """
    return out.with_name(f"{out.stem}-tables")


def check_output(out: Path) -> None:
    """Check that the report and its tables can be written, before anything is computed.

    Raises: OutputInvalid.
    """
    if out.is_dir():
        raise OutputInvalid(f"{out}: found a directory, expected the name of a file to write")
    folder = tables_folder(out)
    if folder.exists() and not folder.is_dir():
        raise OutputInvalid(f"{folder}: found a file, expected a directory for the tables")
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise OutputInvalid(f"{parent}: found a file, expected a directory for the report")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputInvalid(f"{parent}: found a directory without write permission, expected one for the report")


def _size(logs: Sequence[Path]) -> int:
    return sum(file.stat().st_size for log in logs for file in (log / EVENTS_DIR).iterdir())


@contextmanager
def _spark(master: str, log_size: int, show_stage: ShowStage) -> Iterator["SparkSession"]:
    """Yield a Spark session. Stop it at the end, unless the process had it already."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from rocketmq_ha.analysis.java import JavaNotFound
    from rocketmq_ha.analysis.session import spark_session

    is_reused = SparkSession.getActiveSession() is not None
    try:
        spark = spark_session(
            "rocketmq-ha report",
            master=master,
            shuffle_partitions=max(MIN_PARTITIONS, log_size // PARTITION_SIZE),
            fast_start=log_size < SMALL_LOG_SIZE,
        )
    except JavaNotFound as error:
        raise SparkUnavailable(str(error)) from error
    except PySparkException as error:
        raise SparkUnavailable(f"Spark did not start with the master {master}: {_first_line(error)}") from error
    try:
        if not is_reused:
            spark.sparkContext.setLogLevel("OFF")  # a failed task raises here; Spark's log would only report it again
        show_stage("Spark started")
        yield spark
    finally:
        if not is_reused:
            spark.stop()


@contextmanager
def _reading() -> Iterator[None]:
    """Raise LogInvalid for Spark's error about Parquet pages that it cannot read.

    A file with a sound footer may have damaged pages; only reading the pages shows that. The error has one of two
    unrelated classes: one if Spark raises it in the call, the other if it comes with the Arrow batches. The text is the
    same in both.
    """
    try:
        yield
    except Exception as error:
        found = re.search(r"FAILED_READ_FILE.*? reading file (?:file:/*)?(/.*?)\.\s+SQLSTATE", str(error))
        if found is None:
            raise
        raise LogInvalid(Path(found[1]), "pages that cannot be read", "a sound Parquet file") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextmanager
def _progress(total: int) -> Iterator[ShowStage]:
    """Show progress on stderr: a bar on a terminal, one line per stage elsewhere. stdout has the result alone."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        number = count(1)
        console.print("report: starting Spark, which takes a few seconds", soft_wrap=True)
        yield lambda title: console.print(f"report: {next(number)}/{total} {title}", soft_wrap=True, markup=False)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("report: {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting Spark", total=total)
        yield lambda title: progress.update(task, description=title, advance=1)
