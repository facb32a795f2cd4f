"""Where a report is written: what is refused before anything is computed, and that each file is whole or not there."""

import errno
import os
import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketmq_ha.analysis import tables
from rocketmq_ha.analysis.errors import OutputInvalid
from rocketmq_ha.analysis.output import STDOUT, Output

TABLES = {"one": pa.table({"n": [1]})}


def refused(output: Output) -> str:
    with pytest.raises(OutputInvalid) as caught:
        output.check()
    return caught.value.message


def test_output_in_a_new_folder_of_a_writable_one_is_taken(tmp_path: Path) -> None:
    Output(tmp_path / "a" / "b" / "r.html", tmp_path / "c" / "r.json", tmp_path / "r.xml").check()
    (tmp_path / "r-tables").mkdir()
    Output(tmp_path / "r.html", STDOUT).check()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r-tables"]


@pytest.mark.parametrize("part", ["page", "json", "junit"])
def test_each_file_is_refused_where_it_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    def at(path: Path) -> Output:
        return Output(**{"page": tmp_path / "sound.html", part: path})  # type: ignore[arg-type]

    what = "report" if part == "page" else "file"
    (tmp_path / "plain").write_text("")
    assert refused(at(tmp_path)) == f"{tmp_path}: found a directory, expected the name of a file to write"
    assert refused(at(tmp_path / "plain" / "a" / "x")) == (
        f"{tmp_path / 'plain'}: found a file, expected a directory for the {what}"
    )
    locked = tmp_path / "locked"
    locked.mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (locked, os.W_OK | os.X_OK))
    assert refused(at(locked / "new" / "x")) == (
        f"{locked}: found a directory without write permission, expected one for the {what}"
    )


def test_a_file_in_the_place_of_the_tables_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r-tables").write_text("")
    assert refused(Output(tmp_path / "r.html")) == f"{tmp_path / 'r-tables'}: found a file, expected a directory for the tables"


def test_two_outputs_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = "found the name of two outputs, expected a file for each"
    assert refused(Output(tmp_path / "r.html", junit=Path("r.html"))) == f"r.html: {told}"
    assert refused(Output(Path("r.html"), Path("x"), Path("x"))) == f"x: {told}"


@pytest.mark.parametrize("output", [Output(STDOUT), Output(Path("r.html"), junit=STDOUT)])
def test_only_json_goes_to_stdout(output: Output) -> None:
    assert refused(output) == "-: found the sign of stdout, which --json alone takes, expected the name of a file to write"


@pytest.mark.parametrize(("page", "folder"), [("r.html", "r-tables"), ("a/b.c.html", "a/b.c-tables"), ("r", "r-tables")])
def test_the_tables_lie_beside_the_page(page: str, folder: str) -> None:
    assert Output(Path(page)).tables == Path(folder)


def test_each_file_is_written_in_its_place_and_an_older_one_replaced(tmp_path: Path) -> None:
    output = Output(tmp_path / "a" / "r.html", tmp_path / "b" / "r.json", tmp_path / "b" / "r.xml")
    assert output.page.parent != output.files()[1].parent
    texts = {file: f"é {file.name}" for file in output.files()}
    for _ in range(2):
        output.write(TABLES, texts)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {
        *("a/r.html", "a/r-tables/one.parquet", "b/r.json", "b/r.xml"),
    }
    assert [file.read_text(encoding="utf-8") for file in output.files()] == ["é r.html", "é r.json", "é r.xml"]
    assert pq.read_table(output.tables / "one.parquet").to_pylist() == [{"n": 1}]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let writes fail behind `size` bytes of a file, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_tables_of_options_that_a_report_was_not_given_do_not_stay(tmp_path: Path) -> None:
    """A reader of the folder would take a comparison of the older report for one of this report."""
    output = Output(tmp_path / "r.html")
    output.write(TABLES | dict.fromkeys(tables.OPTIONAL, TABLES["one"]), {output.page: "older"})
    (output.tables / "notes.txt").write_text("of the user")
    output.write(TABLES | {"rates": TABLES["one"]}, {output.page: "newer"})
    assert sorted(file.name for file in output.tables.iterdir()) == ["notes.txt", "one.parquet", "rates.parquet"]


@pytest.mark.parametrize(("large", "named"), [(None, "a/r-tables"), ("a/r.html", "a/r.html"), ("b/r.json", "b/r.json")])
def test_a_full_disk_is_told_with_the_output_and_leaves_none(tmp_path: Path, large: str | None, named: str) -> None:
    output = Output(tmp_path / "a" / "r.html", tmp_path / "b" / "r.json")
    texts = {file: "é" * 5000 if large is not None and file == tmp_path / large else "é" for file in output.files()}
    tables = TABLES if large is not None else {"one": pa.table({"n": list(range(10_000))})}
    with files_up_to(8000), pytest.raises(OSError, match=re.escape(str(tmp_path / named))) as caught:
        output.write(tables, texts)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / named))
    assert [path for path in tmp_path.rglob("*") if path.name not in ("a", "b")] == []
    output.write(tables, texts)
    assert sorted(path.name for path in tmp_path.rglob("*.*")) == ["one.parquet", "r.html", "r.json"]


def test_the_page_comes_last(tmp_path: Path) -> None:
    """A folder in the place of another file ends a report in the middle."""
    output = Output(tmp_path / "r.html", tmp_path / "r.json")
    (tmp_path / "r.json").mkdir()
    with pytest.raises(IsADirectoryError):
        output.write(TABLES, dict.fromkeys(output.files(), "p"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r-tables", "r.json"]


def test_json_on_stdout_is_no_file(tmp_path: Path) -> None:
    output = Output(tmp_path / "r.html", STDOUT)
    output.write(TABLES, {output.page: "p", STDOUT: "j"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r-tables", "r.html"]
