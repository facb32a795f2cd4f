"""A log file is made under a temporary name or without one, and gets its name when it is complete. HA-ST-1, HA-ST-8."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.store.log import creation
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.creation import CREATING_DIR, create_whole, sweep_creating
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message

WAYS = [
    pytest.param("unnamed", marks=pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="Linux has files without a name")),
    "elsewhere",
    "no /proc",
]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files are made: without a name, in a temporary folder, or in that folder because linking fails."""
    chosen: str = request.param
    if chosen == "elsewhere":
        monkeypatch.setattr(creation, "_UNNAMED", None)
    elif chosen == "no /proc":

        def link(_source: str, target: Path, **_: int) -> None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(target))

        monkeypatch.setattr(creation.os, "link", link)
    return chosen


def names(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_file_has_no_name_in_its_folder_before_it_is_whole(tmp_path: Path, way: str) -> None:
    """HA-ST-70 "MUST NOT stand in the folder of the commit log"."""
    place = tmp_path / "a" / "file"
    place.parent.mkdir()
    seen = []

    def fill(fd: int) -> None:
        seen.append(names(tmp_path))
        os.pwrite(fd, b"whole", 0)
        seen.append(names(tmp_path))

    create_whole(place, tmp_path, fill)
    assert place.read_bytes() == b"whole"
    assert names(tmp_path) == {"a/file"}
    for found in seen:
        assert all(name.startswith(f"{CREATING_DIR}/") for name in found)
        assert way != "unnamed" or not found


def test_what_fails_leaves_no_file_and_names_it(tmp_path: Path, way: str) -> None:
    assert way
    place = tmp_path / "a" / "file"
    place.parent.mkdir()

    def fill(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space") as failed:
        create_whole(place, tmp_path, fill)
    assert failed.value.filename == str(place)
    with pytest.raises(OSError, match="b/file"):
        create_whole(tmp_path / "b" / "file", tmp_path, lambda _: None)
    assert names(tmp_path) == set()


def test_a_process_that_is_killed_while_it_makes_a_file_leaves_nothing_in_its_folder(tmp_path: Path, way: str) -> None:
    """The next owner of the store removes its unfinished files, and also those that an older version left."""
    kill = "lambda fd: os.kill(os.getpid(), 9)"
    setting = {"unnamed": "", "elsewhere": "creation._UNNAMED = None", "no /proc": "creation._UNNAMED = None"}[way]
    code = (
        f"import os, sys; from pathlib import Path; from rocketmq_ha.impl.store.log import creation; {setting}\n"
        f"root = Path(sys.argv[1]); creation.create_whole(root / 'commitlog' / f'{{0:020d}}', root, {kill})"
    )
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s")], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == -9, done.stderr
    left = names(tmp_path / "s")
    assert left == (set() if way == "unnamed" else {f"{CREATING_DIR}/0"})
    with CommitLog.open(tmp_path / "s", file_size=4096):
        assert names(tmp_path / "s") == {"lock"}


def test_a_store_works_whichever_way_its_files_are_made(tmp_path: Path, way: str) -> None:
    options = StoreOptions(file_size=4096, queue_file_size=200, floor_size=0)
    with MessageStore.open(tmp_path / "s", options) as store:
        for number in range(30):
            store.put(Message("t" * 127, bytes(500), properties_string=f"KEYS\1{number}"))
        assert store.wait_for_dispatch(timeout_s=60)
    assert (tmp_path / "s" / CREATING_DIR).is_dir() is (way != "unnamed")
    with MessageStore.open(tmp_path / "s", options) as store:
        assert len([*store.get("t" * 127, 0, 0, max_size=1 << 20).records]) > 5
        assert len(store.query("t" * 127, "29")) == 1
    sweep_creating(tmp_path / "s")
    assert not (tmp_path / "s" / CREATING_DIR).exists()
