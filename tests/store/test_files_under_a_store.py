"""Files are removed or truncated under a live store, or a sync fails: the error names the path, and nothing counts as flushed.

HA-ST-8, HA-ST-28. Cases that would end in SIGBUS are in tests/crash/cut_files.py, each in its own process.
"""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived import index_file
from rocketmq_ha.impl.store.derived.index_file import Geometry, IndexFile
from rocketmq_ha.impl.store.log import mapped_file
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message

SIZE = 5 * 4096
GEOMETRY = Geometry(100, 2000)


@pytest.fixture
def file(tmp_path: Path) -> MappedFile:
    return MappedFile.create(tmp_path, 0, SIZE)


@pytest.fixture
def index(tmp_path: Path) -> IndexFile:
    found = IndexFile.create(tmp_path / "index", GEOMETRY, end_phy_offset=0, end_timestamp=0)
    found.put_all([(7, 100, 5000)])
    return found


def fails(number: int) -> Callable[..., None]:
    def call(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


# --- Cut and removed -------------------------------------------------------------------------------------------------


def test_a_file_that_was_cut_is_named_before_its_mapping_is_used(file: MappedFile) -> None:
    file.append(bytes(100))
    held = file.view(0, 100)
    os.truncate(file.path, 4096)
    for use in (
        lambda: file.view(0, 10),
        lambda: file.mapping,
        lambda: file.append(b"x"),
        lambda: file.append_vectors([b"x"], 1),
        file.flush,
    ):
        with pytest.raises(StoreCorrupt, match=rf"{file.path}.*found a length of 4096 bytes, expected {SIZE}"):
            use()
    assert (file.wrote_position, file.flushed_position) == (100, 0)
    assert bytes(held) == bytes(100)  # the part that was not cut off


def test_nothing_goes_into_a_file_without_a_name(file: MappedFile) -> None:
    file.append(bytes(100))
    file.path.unlink()
    for use in (lambda: file.append_vectors([b"x"], 1), file.check_file, file.flush):
        with pytest.raises(FileNotFoundError, match=str(file.path)):
            use()
    assert (file.wrote_position, file.flushed_position) == (100, 0)
    assert bytes(file.view(0, 100)) == bytes(100)  # mapped bytes stay readable


@pytest.mark.parametrize("batch", [False, True])
def test_a_put_that_does_not_wait_for_the_disk_sees_a_file_without_a_name_too(tmp_path: Path, batch: bool) -> None:
    """The file is checked at the first message of a millisecond, and at each batch."""
    with MessageStore.open(tmp_path / "s", StoreOptions(file_size=1 << 18, floor_size=0)) as store:
        message = Message("t", b"x")
        before = store.put(message).append.store_timestamp
        [last] = store.log.queue.files
        last.path.rename(tmp_path / "away")
        (tmp_path / "away").unlink()
        with pytest.raises(FileNotFoundError, match=str(last.path)):
            while True:  # at most to the next millisecond
                after = (store.put_batch([message, message]) if batch else store.put(message)).append.store_timestamp
                assert after == before
        with pytest.raises(FileNotFoundError, match=str(last.path)):
            store.close()
    assert (tmp_path / "s" / "abort").exists()


def test_an_index_file_that_was_cut_or_removed_is_named(index: IndexFile) -> None:
    index.path.rename(index.path.with_name("away"))
    os.truncate(index.path.with_name("away"), 0)
    for use in (
        lambda: list(index.offsets(7, 0, 1 << 60)),
        lambda: list(index.entries()),
        lambda: index.put_all([(7, 200, 5000)]),
        index.flush,
    ):
        with pytest.raises(StoreCorrupt, match=rf"{index.path}.*found a length of 0 bytes, expected {GEOMETRY.file_size}"):
            use()
    os.truncate(index.path.with_name("away"), GEOMETRY.file_size)
    index.path.with_name("away").unlink()
    with pytest.raises(FileNotFoundError, match=str(index.path)):
        index.flush()


# --- A sync that fails -----------------------------------------------------------------------------------------------


def test_a_sync_after_one_that_failed_needs_a_new_transaction(file: MappedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-28 "only over bytes that a successful sync has covered": after a journal abort a retry may succeed."""
    file.append(bytes(range(256)) * 30)
    with monkeypatch.context() as broken:
        broken.setattr(mapped_file, "_sync_data", fails(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            file.flush()
    for call in ("utime", "fsync"):
        with monkeypatch.context() as aborted:
            aborted.setattr(mapped_file.os, call, fails(errno.EROFS))
            if call == "utime":
                aborted.setattr(mapped_file.os, "supports_fd", {mapped_file.os.utime})
            with pytest.raises(OSError, match=f"Read-only file system: '{file.path}'"):
                file.flush()
        assert file.flushed_position == 0
    file.flush()
    assert file.flushed_position == file.wrote_position
    assert file.path.read_bytes()[:7680] == bytes(range(256)) * 30


def test_so_does_that_of_an_index_file(index: IndexFile, monkeypatch: pytest.MonkeyPatch) -> None:
    before = index.path.read_bytes()
    with monkeypatch.context() as broken:
        broken.setattr(index_file, "_sync_data", fails(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            index.flush()
    with monkeypatch.context() as aborted:
        aborted.setattr(mapped_file.os, "fsync", fails(errno.EROFS))
        with pytest.raises(OSError, match=f"Read-only file system: '{index.path}'"):
            index.flush()
    synced: list[int] = []
    monkeypatch.setattr(index_file, "_sync_data", synced.append)
    index.flush()
    index.flush()
    assert len(synced) == 1
    assert index.path.read_bytes() == before


# --- What is left ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="there is no such signal")
def test_a_sigbus_in_the_program_says_where(tmp_path: Path) -> None:
    """A file can still be truncated between the check and the use."""
    with MessageStore.open(tmp_path / "s", StoreOptions(file_size=4096, floor_size=0)) as store:
        store.put(Message("t", b"x"))
    code = (
        "import os, signal, sys; from rocketmq_ha.impl.cli import main\n"
        "main(['verify', sys.argv[1]], standalone_mode=False); os.kill(os.getpid(), signal.SIGBUS)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "s")], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr
    assert 'File "<string>", line 2' in done.stderr
