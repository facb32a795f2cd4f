"""`resync` moves a slave's store aside: nothing is deleted or changed, and an open store is refused."""

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import Result

from kit.command_line import COMMAND, invoke
from kit.files import contents
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.app.resync import move_aside
from rocketmq_ha.impl.errors import ConfigInvalid, StoreLocked
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message

FILE_SIZE = 1024


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with CommitLog.open(path, file_size=FILE_SIZE) as log:
        for _ in range(9):
            log.append(Message("T", bytes(300)))
    return path


def resync(*arguments: object) -> Result:
    return invoke("resync", *arguments)


def test_the_store_is_moved_whole_and_can_be_made_anew(store: Path) -> None:
    before = contents(store)
    done = resync(store)
    assert done.exit_code == 0, done.stderr
    told = re.fullmatch(r"moved=(\S+) aside=(\S+\.aside-\d{8}-\d{6})", done.stdout.strip())
    assert told is not None
    assert told[1] == str(store)
    aside = Path(told[2])
    assert contents(aside) == before
    assert not store.exists()
    with CommitLog.open(store, file_size=FILE_SIZE) as anew, CommitLog.open(aside) as old:
        assert (anew.max_offset, old.max_offset > 0) == (0, True)


def test_a_store_that_is_open_is_refused(store: Path) -> None:
    """HA-ST-9 "One process at a time MUST own a store for writing"; by this process, and by another."""
    with CommitLog.open(store), pytest.raises(StoreLocked):
        move_aside(store)
    with CommitLog.open(store):
        command = [*COMMAND, "resync", str(store)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"rocketmq-ha: {store}: locked by another process, expected a store that nobody has open\n"
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_a_name_that_is_taken_is_not_overwritten(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain rename would replace an empty directory."""
    monkeypatch.setattr(time, "strftime", lambda _: "20260101-000000")
    taken = store.with_name(f"{store.name}.aside-20260101-000000")
    taken.mkdir()
    before = contents(store)
    with pytest.raises(ConfigInvalid, match="exists, expected a free name"):
        move_aside(store)
    assert (contents(store), os.listdir(taken)) == (before, [])  # noqa: PTH208


def test_what_is_no_store_stays(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat").write_text("miaow")
    done = resync(folder)
    assert (done.exit_code, (folder / "cat").read_text()) == (2, "miaow")
    assert "has no commitlog/ in it, expected the root of a store" in done.stderr
    assert resync(tmp_path / "none").exit_code == 2
