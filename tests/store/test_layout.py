"""The names and lengths of commit-log files: which are a log, and the words for those that are none. HA-ST-1, HA-ST-21."""

import os
from pathlib import Path

import pytest

from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.layout import check_file_size, file_name, list_files, read_layout
from rocketmq_ha.impl.wire.message import Message

GREATEST = 2**31 - 1  # Java's int


def make(store: Path, files: dict[int, int]) -> Path:
    """Make files from their first offsets and lengths. They have holes, so that two gigabytes take no room."""
    directory = store / "commitlog"
    directory.mkdir(parents=True)
    for base, length in reversed(files.items()):
        (directory / f"{base:020d}").touch()
        os.truncate(directory / f"{base:020d}", length)
    return directory


@pytest.mark.parametrize(
    ("files", "file_size"),
    [
        ({}, None),
        ({0: 8}, 8),
        ({0: 100}, 100),
        ({300: 100}, 100),
        ({0: GREATEST}, GREATEST),
        ({0: 100, 100: 100}, 100),
        ({200: 100, 300: 100, 400: 100}, 100),
        ({GREATEST: GREATEST, 2 * GREATEST: GREATEST}, GREATEST),
    ],
)
def test_a_log(tmp_path: Path, files: dict[int, int], file_size: int | None) -> None:
    directory = make(tmp_path, files)
    found = read_layout(tmp_path)
    assert found is not None
    assert (found.directory, found.file_size, found.bases, found.leftovers) == (directory, file_size, tuple(files), ())
    if file_size is not None:
        assert list_files(directory, file_size) == (tuple(files), ())


@pytest.mark.parametrize(
    ("files", "base", "found", "expected"),
    [
        ({0: 7}, 0, "a length of 7 bytes", f"8 to {GREATEST}"),
        ({0: GREATEST + 1}, 0, f"a length of {GREATEST + 1} bytes", f"8 to {GREATEST}"),
        ({350: 100}, 350, f"the name {350:020d}", f"{300:020d}: files of 100 bytes, no gap"),
        ({99: 100, 199: 100}, 99, f"the name {99:020d}", f"{0:020d}: files of 100 bytes, no gap"),
        ({0: 100, 100: 100, 300: 100}, 300, f"the name {300:020d}", f"{200:020d}: files of 100 bytes, no gap"),
        ({0: 100, 200: 100}, 0, "a length of 100 bytes", "200, as the file names say"),
        ({0: 100, 100: 99}, 100, "a length of 99 bytes", "100, as the file names say"),
        ({0: 100, 100: 101}, 100, "a length of 101 bytes", "100, as the file names say"),
        ({0: 100, 100: 0}, 100, "a length of 0 bytes", "100, as the file names say"),
    ],
)
def test_no_log(tmp_path: Path, files: dict[int, int], base: int, found: str, expected: str) -> None:
    """HA-ST-21 "of another length than the others MUST be refused"."""
    directory = make(tmp_path, files)
    with pytest.raises(StoreCorrupt) as refused:
        read_layout(tmp_path)
    assert str(refused.value) == str(StoreCorrupt(directory / f"{base:020d}", base, found, expected))


@pytest.mark.parametrize("name", [f"{0:019d}", f"{0:021d}", f"{0:020d}.tmp", "lost+found", f"{0:020x}".replace("0", "a", 1)])
def test_another_name_is_refused(tmp_path: Path, name: str) -> None:
    directory = make(tmp_path, {0: 100})
    (directory / name).touch()
    with pytest.raises(StoreCorrupt) as refused:
        read_layout(tmp_path)
    assert str(refused.value) == str(StoreCorrupt(directory / name, 0, f"the name {name!r}", "a file named by 20 digits"))


def test_a_directory_with_the_name_of_a_file_is_refused(tmp_path: Path) -> None:
    directory = make(tmp_path, {0: 100})
    (directory / file_name(100)).mkdir()
    with pytest.raises(StoreCorrupt, match="expected a file named by 20 digits"):
        read_layout(tmp_path)


def test_the_remains_of_a_creation_are_listed_and_are_no_file(tmp_path: Path) -> None:
    directory = make(tmp_path, {0: 100})
    remains = directory / f"{file_name(100)}.creating"
    remains.touch()
    found = read_layout(tmp_path)
    assert found is not None
    assert (found.bases, found.leftovers) == ((0,), (remains,))
    assert list_files(directory, 100) == ((0,), (remains,))


def test_what_is_not_there_is_no_log(tmp_path: Path) -> None:
    assert read_layout(tmp_path / "none") is None
    assert read_layout(tmp_path) is None
    assert list_files(tmp_path / "commitlog", 100) == ((), ())


@pytest.mark.parametrize(
    ("name", "expected"), [("store", "the root of a RocketMQ store"), ("store/commitlog", "the directory of commit-log files")]
)
def test_a_file_in_place_of_a_directory_is_named(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(ConfigInvalid) as refused:
        read_layout(tmp_path / "store")
    assert str(refused.value) == f"{tmp_path / name}: not a directory, expected {expected}"


@pytest.mark.parametrize(("size", "is_fine"), [(7, False), (8, True), (GREATEST, True), (GREATEST + 1, False)])
def test_the_sizes_that_a_file_can_have(size: int, is_fine: bool) -> None:
    if is_fine:
        check_file_size(size)
        return
    with pytest.raises(ConfigInvalid) as refused:
        check_file_size(size)
    assert str(refused.value) == f"file size {size}: expected 8 to {GREATEST} bytes"


@pytest.mark.parametrize(
    ("messages", "way_out"),
    [
        (1, "a slave whose one file is not full takes its master's size at that file's end"),
        (3, "a store keeps its size"),
    ],
)
def test_a_store_is_opened_with_its_own_size(tmp_path: Path, messages: int, way_out: str) -> None:
    """HA-ST-11 "a store MUST keep the size with which it was begun"."""
    with CommitLog.open(tmp_path, file_size=300) as log:
        for _ in range(messages):
            log.append(Message("t", bytes(100)))
    with CommitLog.open(tmp_path) as log:
        assert log.file_size == 300
    with CommitLog.open(tmp_path, file_size=300) as log:
        assert log.file_size == 300
    with pytest.raises(ConfigInvalid) as refused:
        CommitLog.open(tmp_path, file_size=301)
    assert str(refused.value) == (
        f"{tmp_path / 'commitlog'}: found files of 300 bytes, expected 301; leave --file-size away: {way_out}; or "
        "`rocketmq-ha resync` moves this store aside, to start anew"
    )
