"""A log changes the size of its only file to its master's; a crash at any moment leaves a store that opens. HA-S-91."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.wire.message import Message, encode

LARGE, SMALL = 1 << 20, 10_000


def bodies(log: CommitLog) -> list[bytes]:
    return [message.body for _, _, message in log.records()]


def filled(store: Path, begin: int = 0) -> tuple[CommitLog, list[bytes]]:
    """A log with large files and 20 messages. Its first bytes are replicated ones, at an offset."""
    log = CommitLog.open(store, file_size=LARGE)
    expected = [bytes([number]) * 100 for number in range(20)]
    offset = begin
    for body in expected:
        record = encode(Message("orders", body), 0, offset)
        log.append_data(offset, [record])
        offset += len(record)
    return log, expected


@pytest.mark.parametrize("begin", [0, 25 * LARGE])
def test_the_one_file_becomes_as_long_as_told_and_the_log_goes_on_behind_it(tmp_path: Path, begin: int) -> None:
    """HA-S-91 "MUST make its one file as long as the master's are"."""
    size = 1 << 14
    log, expected = filled(tmp_path / "store", begin)
    with log:
        end, held = log.max_offset, log.data_at(begin, LARGE)
        log.adopt_file_size(size)
        assert (log.file_size, log.max_offset, log.flushed_offset) == (size, end, begin)
        log.flush()
        assert log.flushed_offset == end
        while log.max_offset < begin + 2 * size:  # past the end of this file and of the next
            expected.append(bytes(200))
            log.append(Message("orders", expected[-1]))
        assert bodies(log) == expected
        assert held is not None and len(held) == end - begin  # a view from before is still valid
        assert bytes(held[4:8]) == bytes.fromhex("daa320a7")
    files = sorted((tmp_path / "store" / "commitlog").iterdir())
    assert [(int(file.name), file.stat().st_size) for file in files] == [(begin + k * size, size) for k in range(3)]
    with CommitLog.open(tmp_path / "store") as log:
        assert (log.file_size, bodies(log)) == (size, expected)


def test_a_log_without_a_file_makes_its_first_one_of_the_new_size(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path / "store", file_size=LARGE) as log:
        log.adopt_file_size(SMALL)
        log.append(Message("orders", b"body"))
    assert [file.stat().st_size for file in (tmp_path / "store" / "commitlog").iterdir()] == [SMALL]


def test_the_store_opens_whenever_the_process_ends_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the store before and after each call that changes the disk: each copy is what a kill -9 there would leave."""
    log, expected = filled(tmp_path / "store")
    copies: list[tuple[str, int]] = []

    def copying(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def copy(moment: str) -> None:
            length = (tmp_path / "store" / "commitlog" / f"{0:020d}").stat().st_size
            copies.append((moment, length))
            shutil.copytree(tmp_path / "store", tmp_path / f"copy{len(copies)}")

        def wrapped(*arguments: object) -> object:
            copy(f"before {name}")
            done = call(*arguments)
            copy(f"after {name}")
            return done

        return wrapped

    monkeypatch.setattr(os, "ftruncate", copying("the cut", os.ftruncate))
    monkeypatch.setattr(MappedFile, "sync", copying("the sync", MappedFile.sync))
    with log:
        log.adopt_file_size(SMALL)
    monkeypatch.undo()
    assert copies == [
        ("before the cut", LARGE),
        ("after the cut", SMALL),
        ("before the sync", SMALL),
        ("after the sync", SMALL),
    ]
    for number, (moment, length) in enumerate(copies, 1):
        with CommitLog.open(tmp_path / f"copy{number}") as found:
            assert (bodies(found), found.file_size) == (expected, length), moment


def test_a_disk_that_refuses_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, expected = filled(tmp_path / "store")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with log:
        with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output error"):
            patch.setattr(os, "ftruncate", refuse)
            log.adopt_file_size(SMALL)
        assert (log.file_size, bodies(log)) == (LARGE, expected)
        with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output error"):
            patch.setattr(MappedFile, "sync", refuse)
            log.adopt_file_size(SMALL)
        assert (log.file_size, bodies(log)) == (SMALL, expected)  # the file has its new size, synced or not
        log.flush()


def test_a_size_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    with CommitLog.open(tmp_path / "store") as log, pytest.raises(ConfigInvalid, match="file size 7: expected 8 to 2147483647"):
        log.adopt_file_size(7)
