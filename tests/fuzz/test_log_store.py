"""A file of an event log is there whole or not at all, in a directory and on an object store."""

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.log_store import LogStore


def test_a_written_file_is_read_listed_and_deleted(tmp_path: Path) -> None:
    store = LogStore(str(tmp_path / "log"))
    assert store.read("a/b.json") is None
    assert list(store.names("a")) == []
    store.write("a/b.json", b"one")
    store.write("a/c/d.json", b"two")
    store.write("a/b.json", b"three")
    assert (store.read("a/b.json"), (tmp_path / "log" / "a" / "b.json").read_bytes()) == (b"three", b"three")
    assert list(store.names("a")) == ["a/b.json", "a/c/d.json"]
    store.delete("a/b.json")
    store.delete("a/b.json")
    assert list(store.names("a")) == ["a/c/d.json"]
    store.delete("a")
    assert list(store.names("a")) == []
    assert not list(tmp_path.rglob("*.partial"))


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = LogStore(str(tmp_path))
    table = pa.table({"x": [1, 2], "y": ["a", "b"]})
    store.write_table("t.parquet", table)
    assert store.read_table("t.parquet").equals(table)
    assert store.read_table("t.parquet", ["y"]).column_names == ["y"]


def test_what_a_broken_write_leaves_is_no_file_of_the_log(tmp_path: Path) -> None:
    store = LogStore(str(tmp_path))
    (tmp_path / "manifest").mkdir()
    (tmp_path / "manifest" / "part-1.json.77.partial").write_text("{")
    store.write("manifest/part-2.json", b"{}")
    assert list(store.names("manifest")) == ["manifest/part-2.json"]


def test_a_relative_place_is_that_of_the_process_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = LogStore("log")
    assert store.absolute == str(tmp_path / "log")
    monkeypatch.chdir("/")
    store.write("x", b"1")
    assert (tmp_path / "log" / "x").read_bytes() == b"1"


def test_a_uri_names_a_file_system(tmp_path: Path) -> None:
    """A file:// URI takes the path of object stores: no rename."""
    store = LogStore(f"file://{tmp_path}/log")
    pafs.LocalFileSystem().create_dir(f"{tmp_path}/log")
    assert (store.is_local, store.absolute) == (False, f"file://{tmp_path}/log")
    store.write("x.json", b"1")
    assert store.read("x.json") == b"1"
    assert list(store.names("")) == ["x.json"]


@pytest.mark.parametrize("place", ["gopher://hub/log", "nothing://"])
def test_a_uri_that_nobody_knows_is_refused_in_one_line(place: str) -> None:
    with pytest.raises(FuzzError) as caught:
        LogStore(place)
    assert caught.value.message.startswith(f"{place}: ")
    assert caught.value.message.endswith("expected a directory, or a URI such as s3://bucket/prefix")
