"""A file of an event log is there whole or not at all, in a directory and on an object store."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "found nothing, expected the file that a manifest names"), (b"PAR1 and no more", "expected a Parquet file")],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(FuzzError) as caught:
        LogStore(str(tmp_path)).read_table("t.parquet")
    assert str(caught.value).startswith(f"{tmp_path}/t.parquet: found ")
    assert str(caught.value).endswith(told)
    assert "\n" not in str(caught.value)


def test_a_write_that_the_disk_refuses_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LogStore(str(tmp_path))
    store.write("x.json", b"old")

    def refuse(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        store.write("x.json", b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("x.json", b"old")]


def test_a_file_is_on_the_disk_before_its_name_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, bool]] = []  # whether it was a folder, and whether the name was there

    def fsync(fd: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), (tmp_path / "x.json").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    LogStore(str(tmp_path)).write("x.json", b"1")
    assert synced == [(False, False), (True, True)]


class Unreachable:
    """A file system whose errors have no number, as those of pyarrow's object stores."""

    def __getattr__(self, name: str) -> Any:
        def fails(*_arguments: object) -> None:
            raise OSError(f"{name}: curlCode: 7, Could not connect to server\nmore of it")

        return fails


@pytest.mark.parametrize(
    ("use", "call"),
    [
        (lambda store: store.read("x/campaign.json"), "open_input_stream"),
        (lambda store: store.write("x/campaign.json", b"1"), "open_output_stream"),
        (lambda store: store.delete("x/campaign.json"), "get_file_info"),
        (lambda store: list(store.names("x/campaign.json")), "get_file_info"),
    ],
    ids=["read", "write", "delete", "names"],
)
def test_an_error_of_an_object_store_names_its_place_and_file(use: Callable[[LogStore], object], call: str) -> None:
    store = LogStore("file:///nowhere")
    store._files = Unreachable()
    with pytest.raises(FuzzError) as caught:
        use(store)
    assert str(caught.value) == f"file:///nowhere: x/campaign.json: {call}: curlCode: 7, Could not connect to server"


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
