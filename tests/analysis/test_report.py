"""The report page: no network access, no scripts, sections in a fixed order, the same bytes for the same logs."""

import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from kit import event_logs
from rocketmq_ha.analysis import tables
from rocketmq_ha.analysis.cli import report, tables_folder
from rocketmq_ha.analysis.ingest import read_logs
from rocketmq_ha.analysis.report import build
from rocketmq_ha.analysis.schema import Machine, Possible

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

Report = Callable[..., str]

VOID = {"meta", "br", "wbr", "path", "use", "rect"}


class Page(HTMLParser):
    """Parse a page: collect its ids and attributes, and fail on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def make(spark: SparkSession, transitions_file: Path) -> Report:
    """Run the command and return its last line. The command reuses the session of the fixture."""
    assert spark is not None

    def run(*logs: Path, out: Path) -> str:
        arguments = [*map(str, logs), "--out", str(out), "--transitions", str(transitions_file)]
        result = CliRunner().invoke(report, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        stages = [line.split()[1] for line in result.stderr.splitlines() if line.startswith("report: ") and "/" in line]
        number = len(tables.TITLES) + 2  # Spark, the tables, the page
        assert stages == [f"{stage}/{number}" for stage in range(1, number + 1)]
        return result.stdout.splitlines()[-1]

    return run


@pytest.fixture(scope="module")
def failing_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    events, runs = event_logs.random_rows(3, 120, 40, failing=True)
    return event_logs.write_log(tmp_path_factory.mktemp("failing") / "log", events, runs, files=3)


@pytest.fixture(scope="module")
def failing(failing_log: Path, make: Report, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp("out") / "made" / "report.html"
    return make(failing_log, out=out), out


def test_last_line_has_key_value_pairs(failing: tuple[str, Path]) -> None:
    line, out = failing
    pattern = r"report=\S+ runs=120 steps=\d+ transitions=\d+/\d+ divergences=2 impossible=1"
    assert re.fullmatch(pattern, line)
    assert line.startswith(f"report={out} ")


def test_page_makes_no_network_requests(failing: tuple[str, Path]) -> None:
    text = failing[1].read_text(encoding="utf-8")
    page = Page(text)
    assert "http:" not in text
    assert "https:" not in text
    assert not {tag for tag, _, _ in page.attributes} & {"script", "link", "img", "iframe", "object", "embed"}
    assert not [name for _, name, _ in page.attributes if name in ("src", "action") or name.startswith("on")]
    assert all(value.startswith("#") for _, name, value in page.attributes if name == "href")
    assert "@import" not in text
    assert set(re.findall(r"url\(", text)) == set(re.findall(r"url\((?=#)", text))
    assert len(text.encode()) < 110_000


def test_references_within_the_page_have_targets_and_ids_are_unique(failing: tuple[str, Path]) -> None:
    text = failing[1].read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    targets = {value for _, name, value in page.attributes if name == "aria-labelledby"}
    targets |= {value[1:] for _, name, value in page.attributes if name == "href"}
    targets |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert targets <= set(page.ids)


def test_failures_and_untested_transitions_come_first(failing: tuple[str, Path]) -> None:
    headings = re.findall(r'<h2 id="([a-z]+)"', failing[1].read_text(encoding="utf-8"))
    assert headings == [
        *("divergences", "impossible", "never", "clauses", "matrix", "fragmentation", "growth", "estimates", "faults"),
        *("runs", "reading", "provenance"),
    ]


def test_page_names_failures_and_unseen_transitions(failing: tuple[str, Path]) -> None:
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", failing[1].read_text(encoding="utf-8")))
    assert "✗ FAIL 2 of 120 runs failed" in plain
    assert "1 impossible transition was seen" in plain
    assert "store empty put_roll → file_full" in plain
    assert "heartbeat_partial end_of_stream → closed" in plain
    assert re.search(r"rocketmq-ha fuzz replay 3000\d{3}\b", plain)
    assert all(clause in plain for clause in event_logs.NEVER_EXERCISED)
    assert plain.count("✗ Never split at byte 4, 10") == 2


def test_same_log_gives_the_same_bytes(failing_log: Path, failing: tuple[str, Path], make: Report, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(failing_log, tmp_path / "copy [of] {it} *")
    out = tmp_path / "again.html"
    make(elsewhere, out=out)
    assert out.read_bytes() == failing[1].read_bytes()
    for name in tables.TITLES:
        again, first = (tables_folder(path) / f"{name}.parquet" for path in (out, failing[1]))
        assert again.read_bytes() == first.read_bytes()


def test_output_is_the_page_and_the_folder_of_its_tables(failing: tuple[str, Path]) -> None:
    out = failing[1]
    assert sorted(path.name for path in out.parent.iterdir()) == ["report-tables", "report.html"]
    files = {path.name for path in tables_folder(out).iterdir()}
    assert files == {f"{name}.parquet" for name in tables.TITLES}
    assert pq.read_table(tables_folder(out) / "transitions_never_seen.parquet").num_rows > 0


def test_run_in_two_logs_counts_once_from_the_first_log(spark: SparkSession, tmp_path: Path) -> None:
    steps = [event_logs.event_row(1, step) for step in range(3)]
    first = event_logs.write_log(tmp_path / "1", steps, [event_logs.run_row(1, n_steps=3)])
    both = [event_logs.event_row(1, 0, event="other"), event_logs.event_row(2, 0)]
    again = [event_logs.run_row(1, n_ops=99, n_steps=1), event_logs.run_row(2, n_steps=1)]
    second = event_logs.write_log(tmp_path / "2", both, again)
    log = read_logs(spark, [first, second])
    assert sorted((row["run_id"], row["log"], row["n_ops"]) for row in log.runs.collect()) == [(1, 0, 5), (2, 1, 5)]
    assert sorted((row["run_id"], row["event"]) for row in log.events.collect()) == [*[(1, "put")] * 3, (2, "put")]
    log.close()


@pytest.fixture(scope="module")
def quiet(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    """The tables of one classic run without a failure."""
    steps = [event_logs.event_row(1, step) for step in range(3)]
    log = event_logs.write_log(tmp_path_factory.mktemp("quiet") / "log", steps, [event_logs.run_row(1, n_steps=3)])
    return tables.compute(spark, read_logs(spark, [log]), possible())


def possible() -> Possible:
    document = event_logs.transitions_document()
    machines = {
        actor: Machine(
            tuple(m["states"]), tuple(m["events"]), tuple((*t[:3], tuple(t[3])) for t in m["transitions"]), ("link",)
        )
        for actor, m in document["machines"].items()
    }
    return Possible(machines, event_logs.CLAUSES)


def edited(quiet: dict[str, pa.Table], name: str, **values: object) -> dict[str, pa.Table]:
    """Return the tables with other values in the only row of one of them."""
    table = quiet[name]
    row = (table.to_pylist() or [dict.fromkeys(table.column_names)])[0]
    return quiet | {name: pa.Table.from_pylist([row | values], schema=table.schema)}


def test_page_passes_without_failures_and_names_the_profile_that_was_not_run(quiet: dict[str, pa.Table]) -> None:
    page = build(quiet, possible(), [{"seed": 1}])
    assert "✓ PASS" in page
    assert "Not listed: transitions of hardened, which was not run." in page
    assert re.findall(r'<h2 id="([a-z]+)"', page)[-4:] == ["divergences", "runs", "reading", "provenance"]


@pytest.mark.parametrize("column", ["runs_without_row", "runs_short", "runs_repeated"])
def test_report_fails_when_the_log_is_inconsistent(column: str, quiet: dict[str, pa.Table]) -> None:
    page = build(edited(quiet, "integrity", **{column: 1}), possible(), [])
    Page(page)
    assert "✗ FAIL" in page
    assert "✗ The log is inconsistent" in page


def test_hostile_text_is_escaped(quiet: dict[str, pa.Table]) -> None:
    evil = "<script>alert('x')</script>"
    failed = edited(quiet, "divergences", signature=evil, detail=evil, replay=evil, verdict=evil, profile=evil, n=1)
    for changed in (failed, edited(quiet, "faults", fault=evil, n=1, n_runs=1, n_steps=1)):
        page = build(changed, possible(), [{"seed": evil, evil: 1}])
        Page(page)
        assert "<script" not in page
        assert "&lt;script&gt;" in page


def test_report_of_a_log_without_runs_says_so(make: Report, tmp_path: Path) -> None:
    empty = event_logs.write_log(tmp_path / "empty", [], [])
    line = make(empty, out=tmp_path / "empty.html")
    assert line.endswith("runs=0 steps=0 transitions=0/0 divergences=0 impossible=0")
    page = (tmp_path / "empty.html").read_text(encoding="utf-8")
    Page(page)
    assert "✗ FAIL" in page
    assert "The log holds no runs." in page
