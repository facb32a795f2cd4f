"""The report page: no network access, no scripts, sections in a fixed order, the same bytes for the same logs."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kit import event_logs
from kit.html_pages import Page, plain
from rocketmq_ha.analysis import steps, tables, view
from rocketmq_ha.analysis.cli import report
from rocketmq_ha.analysis.ingest import read_logs
from rocketmq_ha.analysis.log_files import LogFiles
from rocketmq_ha.analysis.output import Output
from rocketmq_ha.analysis.published import published
from rocketmq_ha.analysis.report import build
from rocketmq_ha.analysis.schema import Machine, Possible

pytestmark = pytest.mark.xdist_group("spark")  # one Spark session for all of these

Report = Callable[..., str]


@pytest.fixture(scope="module")
def make(spark: SparkSession, transitions_file: Path) -> Report:
    """Run the command and return its last line. The command reuses the session of the fixture."""
    assert spark is not None

    def run(*logs: Path, out: Path) -> str:
        result = invoke(*logs, "--out", out, "--transitions", transitions_file)
        assert result.exit_code == 0, result.output
        stages = [line.split()[1] for line in result.stderr.splitlines() if line.startswith("report: ") and "/" in line]
        number = len(tables.TITLES) + 3  # Spark, the tables, the steps of the failures, the page
        assert stages == [f"{stage}/{number}" for stage in range(1, number + 1)]
        return result.stdout.splitlines()[-1]

    return run


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(report, list(map(str, arguments)), catch_exceptions=False)


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


def test_page_is_sound_html_with_links_that_lead_somewhere_and_not_too_large(failing: tuple[str, Path]) -> None:
    text = failing[1].read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    links = {one.attributes["href"] for one in page.elements if "href" in one.attributes}
    assert {link[1:] for link in links} | set(re.findall(r"url\(#([^)]+)\)", text)) <= set(page.ids)
    assert len(text.encode()) < 150_000


def test_failures_and_untested_transitions_come_first(failing: tuple[str, Path]) -> None:
    headings = re.findall(r'<h2 id="([a-z]+)"', failing[1].read_text(encoding="utf-8"))
    assert headings == [
        *("divergences", "impossible", "never", "clauses", "starved", "rarest", "counts", "matrix", "statefaults", "pairs"),
        *("fragmentation", "growth", "estimates", "worldestimates", "durations", "faults", "runs", "quarantine"),
        *("glossary", "texts", "provenance"),
    ]


def test_page_names_failures_and_unseen_transitions(failing: tuple[str, Path]) -> None:
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", failing[1].read_text(encoding="utf-8")))
    assert "✗ FAIL: 2 of 120 runs failed" in plain
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
    for name in (*tables.TITLES, "failing_steps"):
        again, first = (Output(path).tables / f"{name}.parquet" for path in (out, failing[1]))
        assert again.read_bytes() == first.read_bytes()


def test_output_is_the_page_and_the_folder_of_its_tables(failing: tuple[str, Path]) -> None:
    out = failing[1]
    assert sorted(path.name for path in out.parent.iterdir()) == ["report-tables", "report.html"]
    files = {path.name for path in Output(out).tables.iterdir()}
    assert files == {f"{name}.parquet" for name in (*tables.TITLES, "failing_steps")}
    assert pq.read_table(Output(out).tables / "transitions_never_seen.parquet").num_rows > 0


def test_a_report_has_the_last_steps_of_each_failure(failing_log: Path, failing: tuple[str, Path]) -> None:
    tables_ = Output(failing[1]).tables
    smallest = {row["smallest_run"] for row in pq.read_table(tables_ / "divergences.parquet").to_pylist()}
    rows = pq.read_table(failing_log / "events").to_pylist()
    own = [row | {"log": 0} for row in rows if row["run_id"] in smallest]
    expected = sorted(own, key=lambda row: (row["run_id"], row["step"]))
    found = pq.read_table(tables_ / "failing_steps.parquet").to_pylist()
    assert smallest
    assert found == [{name: row[name] for name in steps.FORM.names} for row in expected]


def test_of_a_long_run_the_last_steps_are_kept(tmp_path: Path) -> None:
    """A file that cannot be read is left out; quarantine tells of it."""
    runs = [event_logs.run_row(run) for run in (1, 2, 3)]
    rows = [event_logs.event_row(run, step) for run, n_steps in ((1, 203), (2, 200), (3, 5)) for step in range(n_steps)]
    first = event_logs.write_log(tmp_path / "a", rows, runs, files=2)
    old = event_logs.write_log(tmp_path / "b", rows[-5:], runs[2:], version=1)
    parts = [part for log, place in enumerate((first, old)) for part in published(LogFiles.at(place), log, 2 - log).parts]
    assert len(parts) == 3
    found = steps.failing_steps(parts, [(0, 2), (0, 1), (1, 3), (1, 1)])
    assert found.schema.names == steps.FORM.names
    assert [(row["log"], row["run_id"], row["step"]) for row in found.to_pylist()] == [
        *((0, 1, at) for at in range(3, 203)),
        *((0, 2, at) for at in range(200)),
        *((1, 3, at) for at in range(5)),
    ]
    assert steps.failing_steps(parts, []).num_rows == 0
    damaged = next(file for file in (first / "events").iterdir() if 2 in pq.read_table(file)["run_id"].to_pylist())
    damaged.write_bytes(damaged.read_bytes()[:-30])
    assert set(steps.failing_steps(parts, [(0, 2), (0, 1)])["run_id"].to_pylist()) == {1}


def test_the_runs_of_failures_are_those_that_the_page_shows() -> None:
    rows = [{"signature": f"s{at:03}", "n": at % 7, "log": at % 2, "smallest_run": at // 4} for at in range(120)]
    shown = sorted(rows, key=lambda row: (-row["n"], row["signature"]))[: view.MAX_SIGNATURES]
    assert steps.failing_runs(rows) == list(dict.fromkeys((row["log"], row["smallest_run"]) for row in shown))


@pytest.mark.parametrize(
    ("required", "status", "unmet"),
    [
        (("runs>=120", "divergences<=2", "impossible=1"), 0, []),
        (("runs>=120",), 1, ["divergences=0: found 2 of 120, 1.66 %", "impossible=0: found 1"]),
        (("runs>120", "divergences<=2", "impossible=1"), 1, ["runs>120: found 120"]),
        (("transitions>100%", "divergences<=2%", "impossible<2"), 1, None),
    ],
    ids=str,
)
def test_the_exit_status_is_that_of_the_verdict_where_something_is_required(
    make: Report,
    failing_log: Path,
    transitions_file: Path,
    tmp_path: Path,
    required: list[str],
    status: int,
    unmet: list[str] | None,
) -> None:
    assert make
    out = tmp_path / "r.html"
    options = [word for text in required for word in ("--require", text)]
    result = invoke(failing_log, "--out", out, "--transitions", transitions_file, *options)
    told = [line.removeprefix("not met: ") for line in result.stderr.splitlines() if line.startswith("not met: ")]
    assert result.exit_code == status, result.output
    assert unmet is None or told == unmet
    assert (told != []) == (status == 1)
    assert result.stdout.startswith(f"report={out} runs=120 ")
    assert ("✗ FAIL:" in out.read_text(encoding="utf-8")) == (status == 1)


def test_json_and_junit_say_what_the_page_says(
    make: Report, failing_log: Path, failing: tuple[str, Path], transitions_file: Path, tmp_path: Path
) -> None:
    """With `--json -` stdout holds one JSON object and nothing else."""
    assert make
    out, xml, file = tmp_path / "r.html", tmp_path / "new" / "r.xml", tmp_path / "r.json"
    first = invoke(failing_log, "--out", out, "--transitions", transitions_file, "--junit", xml, "--json", "-")
    again = invoke(failing_log, "--out", out, "--transitions", transitions_file, "--json", file)
    assert (first.exit_code, again.exit_code) == (0, 0)  # nothing was required
    assert file.read_text(encoding="utf-8") == first.stdout
    document = json.loads(first.stdout)
    numbers = dict(re.findall(r"(\w+)=(\d+)", failing[0]))
    assert {key: str(document["figures"][key]["found"]) for key in ("runs", "steps", "divergences", "impossible")} == {
        key: numbers[key] for key in ("runs", "steps", "divergences", "impossible")
    }
    assert document["verdict"] == "FAIL"
    assert [row["replay"] for row in document["failures"]] == re.findall(r"<pre>([^<]*)</pre>", out.read_text("utf-8"))
    cases = ET.parse(xml).getroot().findall(".//testcase")
    assert len(cases) == len(document["requirements"]) + len(document["failures"])
    assert out.read_bytes() == failing[1].read_bytes()


def documented_columns() -> dict[str, list[str]]:
    """The columns of each table, as docs/report-tables.md lists them in front of the colon of its third cell."""
    text = (Path(__file__).parents[2] / "docs" / "report-tables.md").read_text(encoding="utf-8")
    rows = text[text.index("<!-- tables -->") : text.index("<!-- end of tables -->")].splitlines()[3:]
    cells = [row.split("|") for row in rows]
    return {
        re.findall(r"`(\w+)`", name)[0]: re.findall(r"`(\w+)`", columns.partition(":")[0]) for _, name, _, columns, _ in cells
    }


@pytest.fixture(scope="module")
def older_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An older campaign, three times as long and without failures."""
    events, runs = event_logs.random_rows(4, 360, 40, failing=False)
    return event_logs.write_log(tmp_path_factory.mktemp("nights") / "older", events, runs, files=2)


def test_an_older_campaign_is_compared_by_its_log_its_page_or_its_tables(
    make: Report, failing_log: Path, older_log: Path, transitions_file: Path, tmp_path: Path
) -> None:
    assert make
    page, out = tmp_path / "older.html", tmp_path / "r.html"
    make(older_log, out=page)
    shutil.copytree(failing_log, older_log.parent / "newer", dirs_exist_ok=True)
    common = ("--out", out, "--transitions", transitions_file)
    names = ("lost_coverage", "failures_compared", "new_coverage", "rates")
    found = []
    for place, more in ((older_log, ("--trend", older_log.parent)), (page, ()), (Output(page).tables, ())):
        result = invoke(failing_log, *common, "--compare", place, *more, "--require", "new_failures=0", "--json", "-")
        assert result.exit_code == 1
        stages = [line.split()[1].split("/") for line in result.stderr.splitlines() if re.match(r"report: \d", line)]
        assert [int(number) for number, _ in stages] == list(range(1, int(stages[0][1]) + 1))
        document = json.loads(result.stdout)
        found.append((document["comparison"], [pq.read_table(Output(out).tables / f"{name}.parquet") for name in names]))
        if more:
            columns = {file.stem: pq.read_schema(file).names for file in Output(out).tables.iterdir()}
            assert documented_columns() == columns
            assert set(columns) - {*tables.TITLES, "failing_steps"} == tables.OPTIONAL
            trend = pq.read_table(Output(out).tables / "trend.parquet").to_pylist()
            assert [(row["name"], row["runs"]) for row in trend] == [("newer", 120), ("older", 360)]
            text = plain(out.read_text(encoding="utf-8"))
            assert "Trend Campaigns in the order of their names campaign runs" in text
            assert "older 360" in text
    assert found[0] == found[1] == found[2]
    comparison = found[0][0]
    failures = pq.read_table(Output(out).tables / "divergences.parquet").to_pylist()
    signatures = {row["signature"] for row in failures}
    assert {row["signature"] for row in comparison["new_failures"]} == signatures
    runs = next(row for row in comparison["rates"] if row["measure"] == "runs")
    assert (runs["before"], runs["now"]) == (360, 120)
    headings = [one.attributes["id"] for one in Page(out.read_text(encoding="utf-8")).of("h2")]
    assert headings.index("new") < headings.index("never")


def test_a_page_without_an_older_campaign_has_nothing_to_compare(failing: tuple[str, Path]) -> None:
    text = failing[1].read_text(encoding="utf-8")
    assert 'id="new"' not in text
    assert 'id="trend"' not in text


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--require", "speed>=3", "--require 'speed>=3': found the name 'speed', expected one of transitions, "),
        ("--json", ".", ".: found a directory, expected the name of a file to write"),
        (
            "--require",
            "lost=0",
            "--require 'lost=0': found no --compare, expected --compare too, without which there is no lost",
        ),
        ("--compare", "gone", "gone: found nothing, expected the directory of an event log"),
        ("--compare", "gone.html", "gone-tables: found no transitions_seen.parquet in it, expected the tables of a report, "),
        ("--compare", ".", ".: found no campaign.json in it, expected an event log: "),
        ("--trend", ".", ".: found no log in it, expected a directory of logs, NAME/campaign.json"),
        ("--junit", "r.html", "r.html: found the name of two outputs, expected a file for each"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line_before_spark_starts(
    failing_log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(failing_log, "--out", "r.html", option, value)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"rocketmq-ha: {told}")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_run_in_two_logs_counts_once_from_the_first_log(spark: SparkSession, tmp_path: Path) -> None:
    steps = [event_logs.event_row(1, step) for step in range(3)]
    first = event_logs.write_log(tmp_path / "1", steps, [event_logs.run_row(1, n_steps=3)])
    both = [event_logs.event_row(1, 0, event="other"), event_logs.event_row(2, 0)]
    again = [event_logs.run_row(1, n_ops=99, n_steps=1), event_logs.run_row(2, n_steps=1)]
    second = event_logs.write_log(tmp_path / "2", both, again)
    log = read_logs(spark, [first, second])
    assert sorted((row["run_id"], row["log"], row["n_ops"]) for row in log.runs.collect()) == [(1, 0, 5), (2, 1, 5)]
    counted = log.counts.where("kind = 'transition'").groupBy("log", "event").agg({"n": "sum"}).collect()
    assert sorted(tuple(row) for row in counted) == [(0, "put", 3), (1, "put", 1)]
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
    assert 'id="divergences"' not in page


@pytest.mark.parametrize("column", ["runs_without_row", "runs_short", "runs_repeated", "runs_missing"])
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
    assert "the log holds no runs</a>." in page
