"""A file of `config/`: what is read of it and its copy, and that neither a kill nor a full disk loses a table."""

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.impl.broker import config_file
from rocketmq_ha.impl.broker.config_file import ConfigFile
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfig, TopicConfigManager
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.reference import config_file as model

OLDER, OLD, NEW = b'{"table":"older"}', b'{"table":"old"}', b'{"table":"new"}'
DAMAGED = b'{"table":"ne'


class Killed(BaseException):
    """The process was killed here."""


def read(file: ConfigFile) -> bytes | None:
    """What a broker that starts reads."""
    found: list[bytes] = []

    def decode(content: bytes) -> None:
        if content == DAMAGED:
            raise ConfigInvalid("found no end, expected JSON")
        found.append(content)

    return found[0] if file.load(decode) else None


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path / "config" / "topics.json")


@pytest.mark.parametrize(
    ("main", "backup", "expected"),
    [
        (NEW, OLD, NEW),
        (NEW, None, NEW),
        (NEW, DAMAGED, NEW),
        (None, OLD, OLD),
        (b"", OLD, OLD),
        (b"\n", OLD, OLD),
        (DAMAGED, OLD, OLD),
        (None, None, None),
        (b"", None, None),
        (b"", b"", None),
    ],
)
def test_the_copy_is_read_where_the_file_cannot_be(
    file: ConfigFile, main: bytes | None, backup: bytes | None, expected: bytes | None
) -> None:
    """HA-BT-5 "a file missing, empty or damaged MUST read its `.bak`"."""
    file.path.parent.mkdir()
    for path, content in ((file.path, main), (file.backup, backup)):
        if content is not None:
            path.write_bytes(content)
    assert read(file) == expected
    model_reads = model.read(model.Files(main, backup), lambda content: content != DAMAGED)
    assert model_reads == (model.Start.EMPTY if expected is None else expected)


@pytest.mark.parametrize(
    ("main", "backup"), [(DAMAGED, None), (DAMAGED, b""), (DAMAGED, DAMAGED), (None, DAMAGED), (b"", DAMAGED)]
)
def test_nothing_is_read_where_one_is_damaged_and_none_can_be_read(
    file: ConfigFile, main: bytes | None, backup: bytes | None
) -> None:
    """HA-BT-5 "A broker that can read neither, and of which one is damaged, MUST NOT start"."""
    file.path.parent.mkdir()
    for path, content in ((file.path, main), (file.backup, backup)):
        if content is not None:
            path.write_bytes(content)
    with pytest.raises(ConfigInvalid) as raised:
        read(file)
    assert model.read(model.Files(main, backup), lambda content: content != DAMAGED) is model.Start.REFUSE
    damaged = file.path if main == DAMAGED else file.backup
    assert str(raised.value) == (
        f"{damaged}: found no end, expected JSON; no topics.json.bak can be read in its place: restore the file or remove it"
    )


def test_a_damaged_file_is_kept_aside_and_never_becomes_the_copy(file: ConfigFile, caplog: pytest.LogCaptureFixture) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(DAMAGED)
    file.backup.write_bytes(OLD)
    assert read(file) == OLD
    [line] = [record.message for record in caplog.records]
    assert line.startswith(f"{file.path}: found no end, expected JSON; the table before the last change is read from")
    assert file.persist(NEW)
    assert (file.path.read_bytes(), file.backup.read_bytes()) == (NEW, OLD)
    assert file.path.with_name("topics.json.unreadable").read_bytes() == DAMAGED


def calls_of_a_persist(monkeypatch: pytest.MonkeyPatch, fail: Callable[[int, str], None]) -> None:
    """Call `fail` with the number and the name of each system call that changes the disk, before it is made."""
    count = 0

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            fail(count, name)
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(config_file.os, "fsync", watched("fsync", os.fsync))
    monkeypatch.setattr(config_file.os, "link", watched("link", os.link))
    monkeypatch.setattr(Path, "replace", watched("replace", Path.replace))


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("at", range(1, 7))
def test_a_kill_at_any_call_leaves_the_old_table_or_the_new(file: ConfigFile, at: int, has_links: bool) -> None:
    """HA-BT-4 "MUST replace the file atomically": also on a file system without links."""
    assert file.persist(OLDER)
    assert file.persist(OLD)

    def fail(number: int, name: str) -> None:
        if number == at:
            raise Killed
        if name == "link" and not has_links:
            raise OSError(errno.EPERM, "no links here")

    with pytest.MonkeyPatch.context() as patch:
        calls_of_a_persist(patch, fail)
        try:
            file.persist(NEW)
            was_killed = False
        except Killed:
            was_killed = True
    assert was_killed == (at <= 5)  # of the new file, to the copy (two calls), of the new name, of the folder
    contents = (path.read_bytes() if path.exists() else None for path in (file.path, file.backup))
    states = model.after_kill(model.Files(OLD, OLDER), NEW, has_links)
    assert model.Files(*contents) == states[(0, 0, 0, 1, 2, 2)[at - 1]]  # which of them stands before each call
    assert read(ConfigFile(file.path)) in (OLD, NEW)


@pytest.mark.parametrize("at", [1, 3, 4, 5])  # 2 is the link, which may fail
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_costs_one_line_and_no_table(
    file: ConfigFile, at: int, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-BT-6 "MUST keep the change in memory and go on; it MUST try again"."""
    assert file.persist(OLD)

    def fail(number: int, _name: str) -> None:
        if number == at:
            raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        calls_of_a_persist(patch, fail)
        assert not file.persist(NEW)
        assert file.is_unsaved
        assert not file.path.with_name("topics.json.tmp").exists()
        assert read(ConfigFile(file.path)) in (OLD, NEW)
    with pytest.MonkeyPatch.context() as patch:
        calls_of_a_persist(patch, lambda _number, _name: (_ for _ in ()).throw(OSError(code, os.strerror(code))))
        assert not file.persist(NEW)
    errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [f"{file.path} is not saved, which is tried again: {os.strerror(code)}"]
    assert file.persist(NEW)
    assert not file.is_unsaved
    assert read(ConfigFile(file.path)) == NEW


def test_a_table_whose_file_was_refused_is_written_at_a_later_tick(tmp_path: Path) -> None:
    """HA-BT-6 "it MUST try again until the file is written"; HA-BT-3 otherwise at once."""
    topics = TopicConfigManager(tmp_path, TableSettings(), lambda: 5)
    (tmp_path / "config").write_bytes(b"")  # in the place of the directory
    assert topics.update_topic_config(TopicConfig("orders", 4, 4))
    assert topics.select_topic_config("orders") == TopicConfig("orders", 4, 4)
    topics.on_tick(0)
    (tmp_path / "config").unlink()
    topics.on_tick(4_999)  # a disk that is full is not asked all the time
    assert not (tmp_path / "config").exists()
    topics.on_tick(5_000)
    (tmp_path / "config" / "topics.json").unlink()
    topics.table.close()
    assert not (tmp_path / "config" / "topics.json").exists()  # nothing was unsaved
    (tmp_path / "config").rmdir()
    (tmp_path / "config").write_bytes(b"")
    assert topics.update_topic_config(TopicConfig("more"))
    (tmp_path / "config").unlink()
    topics.table.close()
    again = TopicConfigManager(tmp_path, TableSettings(), lambda: 6)
    assert again.load()
    assert again.select_topic_config("more") == TopicConfig("more")
    assert again.select_topic_config("orders") == TopicConfig("orders", 4, 4)
    assert again.data_version == topics.data_version
