"""Where the tables of a second verdict go: what is refused, what is replaced, and what is left after a failure."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.second_verdict import output

PART = "part-00000-0f5b5f0e-3a0c-4f43-8d6a-5b1f6f9b2c11-c000.snappy.parquet"


def write_table(folder: Path, columns: tuple[str, ...], value: int = 1) -> None:
    """A table as Spark writes it."""
    folder.mkdir(parents=True)
    pq.write_table(pa.table({name: [value] for name in columns}), folder / PART)
    for name in ("_SUCCESS", "._SUCCESS.crc", f".{PART}.crc"):
        (folder / name).write_bytes(b"")


def write_tables(out: Path, value: int = 1) -> None:
    for table, columns in output.COLUMNS.items():
        write_table(out / table, columns, value)


def written(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_new_folder_an_empty_one_and_older_tables_are_taken(tmp_path: Path) -> None:
    output.check(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty" / "runs").mkdir(parents=True)
    output.check(tmp_path / "empty")
    write_tables(tmp_path / "older")
    (tmp_path / "older" / "notes.txt").write_text("beside the tables")
    output.check(tmp_path / "older")


def test_a_log_is_no_place_for_the_tables(tmp_path: Path) -> None:
    (tmp_path / "campaign.json").write_text(json.dumps({"schema_version": 2}))
    with pytest.raises(FuzzError) as error:
        output.check(tmp_path)
    assert error.value.message == f"--out {tmp_path}: found campaign.json, so a log, expected a directory for the tables alone"


FOREIGN: dict[str, Callable[[Path], object]] = {
    "mine.txt": lambda file: file.write_text("mine"),
    "mine.parquet": lambda file: pq.write_table(pa.table({"mine": [1]}), file),
    PART.replace("00000", "00001"): lambda file: pq.write_table(pa.table({"mine": [1]}), file),  # a table of another program
    PART.replace("00000", "00002"): lambda file: file.write_bytes(b"no Parquet"),
    "_temporary": lambda file: file.mkdir(),
    "part-link": lambda file: file.symlink_to(file.with_name(PART)),
    f".{PART.replace('00000', '00003')}.crc": lambda file: file.write_bytes(b"of nothing"),
}


@pytest.mark.parametrize("table", output.COLUMNS)
@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_no_second_verdict_has_made_is_refused(name: str, table: str, tmp_path: Path) -> None:
    write_tables(tmp_path)
    FOREIGN[name](tmp_path / table / name)
    before = written(tmp_path)
    with pytest.raises(FuzzError) as error:
        output.check(tmp_path)
    told = f"--out {tmp_path / table / name}: found a file of no second verdict, expected none where {table}/ is to be"
    assert error.value.message == told
    assert written(tmp_path) == before


@pytest.mark.parametrize("is_link", [False, True], ids=["file", "link"])
def test_what_is_no_folder_is_refused(is_link: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_tables(tmp_path / "elsewhere")
    out.mkdir()
    if is_link:
        (out / "rules").symlink_to(tmp_path / "elsewhere" / "rules")
    else:
        (out / "rules").write_text("mine")
    with pytest.raises(FuzzError, match=r"rules: found a file of no second verdict"):
        output.check(out)


def test_both_tables_replace_the_older_ones_and_nothing_else(tmp_path: Path) -> None:
    write_tables(tmp_path, 1)
    (tmp_path / "notes.txt").write_text("mine")
    with output.replacing(tmp_path) as folder:
        write_tables(folder, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "rules", "runs"]
    for table in output.COLUMNS:
        assert set(pq.read_table(tmp_path / table / PART).to_pylist()[0].values()) == {2}


def test_a_file_that_came_during_the_work_is_kept(tmp_path: Path) -> None:
    write_tables(tmp_path, 1)
    with pytest.raises(FuzzError, match=r"mine\.txt: found a file of no second verdict"), output.replacing(tmp_path) as folder:
        write_tables(folder, 2)
        (tmp_path / "runs" / "mine.txt").write_text("mine")
        before = written(tmp_path / "runs")
    assert written(tmp_path / "runs") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rules", "runs"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_what_the_disk_says_through_java_is_an_error_of_the_place(number: int, tmp_path: Path) -> None:
    write_tables(tmp_path, 1)
    before = written(tmp_path)
    with pytest.raises(OSError, match=str(tmp_path)) as error, output.replacing(tmp_path) as folder:
        write_table(folder / "runs", output.COLUMNS["runs"], 2)
        raise RuntimeError(f"o78.parquet.\n: SparkException\n\tat a.b(C)\nCaused by: {os.strerror(number)}\n\tat d.e(F)")
    assert (error.value.errno, error.value.filename) == (number, str(tmp_path))
    assert written(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rules", "runs"]


def test_a_mistake_of_ours_stays_what_it_is(tmp_path: Path) -> None:
    mistake = ValueError("our own mistake")
    with pytest.raises(ValueError, match="our own mistake") as error, output.replacing(tmp_path):
        raise mistake
    assert error.value is mistake
    assert not list(tmp_path.iterdir())
