"""The command `rocketmq-ha report LOGS... --out FILE` writes the coverage report of one or more event logs.

Spark is imported only when a report is made, because `rocketmq-ha --help` loads this module too.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from rocketmq_ha.analysis import requirements
from rocketmq_ha.analysis.errors import LogInvalid
from rocketmq_ha.analysis.output import STDOUT, Output
from rocketmq_ha.analysis.requirements import Requirement
from rocketmq_ha.spec.event_log import EVENTS_DIR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_ha.analysis.view import View

PARTITION_SIZE: Final = 32 * 1024 * 1024  # bytes of Parquet on disk for each shuffle partition
MIN_PARTITIONS: Final = 4
SMALL_LOG_SIZE: Final = 64 * 1024 * 1024  # for smaller logs the JVM's optimising compiler costs more time than it saves

NAMES: Final = ", ".join(requirements.NAMES)

ShowStage = Callable[[str], object]


@click.command()
@click.argument("logs", nargs=-1, required=True)
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
@click.option(
    "--compare",
    metavar="LOG",
    help="The older campaign: its log, the page of its report, or the folder with that report's tables.",
)
@click.option(
    "--trend",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A directory of logs. The page gets a row for each, in the order of their names.",
)
@click.option(
    "--require",
    "required",
    metavar="BOUND",
    multiple=True,
    help=f"What the campaign must reach, such as 'transitions>=99%' or divergences=0. Again for more. Names: {NAMES}.",
)
@click.option(
    "--json", "json_file", metavar="FILE|-", type=click.Path(path_type=Path), help="Write the answer as JSON too; - is stdout."
)
@click.option(
    "--junit", "junit_file", metavar="FILE", type=click.Path(path_type=Path), help="Write the answer as JUnit XML too."
)
def report(
    logs: tuple[str, ...],
    out: Path,
    master: str,
    transitions: Path | None,
    compare: str | None,
    trend: Path | None,
    required: tuple[str, ...],
    json_file: Path | None,
    junit_file: Path | None,
) -> None:
    """Write the coverage report of LOGS, the event logs that `fuzz run` and `demo` write.

    The report is one HTML file that needs no network. Each of its tables is also written as Parquet. A drawn or guided run
    that is in several of the logs counts once, as a failure if it failed in any. A log is a directory, or the URI of one on
    an object store.

    The last line on stdout is: report=FILE runs=N steps=N transitions=SEEN/POSSIBLE divergences=N impossible=N. With
    `--json -` stdout holds the JSON object instead.

    Without --require, exit status 0 means that the report was made, not that every run passed. With it, the exit status is
    1 if the page says FAIL. It does if a given requirement is not met, or one of those that stand for every campaign:
    runs>=1, inconsistent=0, divergences=0, impossible=0. One of the same name replaces each of these.
    """
    from rocketmq_ha.analysis.exports import to_json
    from rocketmq_ha.analysis.report import last_line

    asked = [requirements.parse(text) for text in required]
    requirements.check(asked, [name for name, value in (("--compare", compare), ("--trend", trend)) if value is not None])
    page = make_report(
        logs,
        Output(out, json_file, junit_file),
        master=master,
        transitions=transitions,
        required=asked,
        compare=compare,
        trend=trend,
    )
    click.echo(to_json(page) if json_file == STDOUT else last_line(page.figures, out), nl=json_file != STDOUT)
    if asked and page.verdict == requirements.FAIL:
        for result in page.requirements:
            if not result.is_met:
                click.echo(f"not met: {result.requirement}: found {requirements.found(result.measure)}", err=True)
        sys.exit(1)


def make_report(
    logs: Sequence[Path | str],
    output: Output,
    *,
    master: str = "local[*]",
    transitions: Path | None = None,
    required: Sequence[Requirement] = (),
    compare: str | None = None,
    trend: Path | None = None,
) -> "View":
    """Write the report, its tables, and the files for other programs. Returns: the content of the page.

    All input is checked before Spark starts. No file is created before all tables are computed. The page is moved into
    place last.

    Raises: AnalysisError.
    """
    from rocketmq_ha.analysis import exports, ingest, other_campaigns, report, schema, steps, tables, view
    from rocketmq_ha.analysis import trend as trends
    from rocketmq_ha.analysis.session import check_master

    check_master(master)
    output.check()
    campaigns = [schema.check_log(path) for path in logs]
    possible = schema.load_possible(transitions)
    older = other_campaigns.Older.at(compare) if compare is not None else None
    of_trend = other_campaigns.logs_of_trend(trend) if trend is not None else None
    stages = 3 + len(tables.TITLES) + (older.n_stages if older else 0) + (of_trend is not None)
    with _progress(stages) as show_stage, _spark(master, _size(logs), show_stage) as spark, _reading():
        log = ingest.read_logs(spark, logs, campaigns, worlds=possible.worlds)
        computed = tables.compute(spark, log, possible, show_stage)
        failing = steps.failing_runs(computed["divergences"].to_pylist())
        computed["failing_steps"] = steps.failing_steps(log.parts, failing)
        show_stage("steps of the failures")
        if older is not None:
            computed |= older.compare(spark, computed, possible, show_stage)
        if of_trend is not None:
            computed["trend"] = trends.compute(spark, of_trend, possible)
            show_stage("trend")
        page = view.build(computed, possible, campaigns, required)
        texts = {output.page: report.render(page)}
        if output.json is not None:
            texts[output.json] = exports.to_json(page)
        if output.junit is not None:
            texts[output.junit] = exports.to_junit(page)
        output.write(computed, texts)
        show_stage("written")
    return page


def _size(logs: Sequence[Path | str]) -> int:
    from rocketmq_ha.analysis.log_files import LogFiles

    return sum(sum(LogFiles.at(log).sizes(EVENTS_DIR, "").values()) for log in logs)


@contextmanager
def _spark(master: str, log_size: int, show_stage: ShowStage) -> Iterator["SparkSession"]:
    """Yield a Spark session. Stop it at the end, unless the process had it already."""
    from pyspark.sql import SparkSession

    from rocketmq_ha.analysis.session import spark_session, starting

    is_reused = SparkSession.getActiveSession() is not None
    with starting(master):
        spark = spark_session(
            "rocketmq-ha report",
            master=master,
            shuffle_partitions=max(MIN_PARTITIONS, log_size // PARTITION_SIZE),
            fast_start=log_size < SMALL_LOG_SIZE,
        )
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
