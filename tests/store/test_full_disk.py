"""A full disk is a temporary state: puts are refused, slaves wait, nothing is lost. HA-ST-67, HA-ST-68."""

import errno
import logging
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from kit.command_line import invoke
from kit.nodes import follow, serving
from kit.waiting import PATIENCE_S, await_end, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.app.producer import put_all
from rocketmq_ha.impl.errors import AppendFailed, StoreFull
from rocketmq_ha.impl.ha.puts import Puts
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.status_socket import ask
from rocketmq_ha.impl.store.log import mapped_file, space
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.store.log.space import Space
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

FILE_SIZE = 4096
MIB = 1 << 20
HAVE_TMPFS = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small file system needs root and `mount`"
)


def fill(log: CommitLog, end: int) -> None:
    while log.max_offset < end:
        log.append(Message("topic", bytes(250)))


def refusing(number: int) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


# --- Space -------------------------------------------------------------------------------------------------------------------


def test_a_file_is_made_above_the_floor_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = Space(1000)
    monkeypatch.setattr(space, "free_size", lambda _: FILE_SIZE + 999)
    with caplog.at_level(logging.INFO), CommitLog.open(tmp_path / "m", file_size=FILE_SIZE, create=room.create) as log:
        for _ in range(3):
            with pytest.raises(StoreFull, match=f"{FILE_SIZE + 999} bytes free, expected {FILE_SIZE} for this file, and 1000"):
                log.append(Message("topic", b""))
        assert room.check() is not None
        assert not room.has_room()
        assert log.queue.files == ()
        monkeypatch.setattr(space, "free_size", lambda _: FILE_SIZE + 1000)
        assert room.has_room()
        log.append(Message("topic", b""))
        assert room.check() is None
    assert sum("the disk is full" in line for line in caplog.messages) == 1
    assert sum("there is room on the disk again" in line for line in caplog.messages) == 1


@pytest.mark.parametrize(("size", "is_new", "told"), [(1 << 30, True, True), (1 << 30, False, False), (4096, True, False)])
def test_a_store_without_a_log_says_that_smaller_files_may_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, size: int, is_new: bool, told: bool
) -> None:
    monkeypatch.setattr(space, "free_size", lambda _: 1000)
    if not is_new:
        (tmp_path / f"{0:020}").touch()
    with pytest.raises(StoreFull):
        Space(0).create(tmp_path, 1 << 30, size)
    (line,) = caplog.messages
    assert f"expected {size} for this file" in line
    assert line.endswith("--file-size may be smaller, a slave's must be its master's") == told


# --- Slaves ------------------------------------------------------------------------------------------------------------------


@contextmanager
def following(
    log: CommitLog, address: tuple[str, int], has_room: Callable[[], bool]
) -> Iterator[tuple[Follower, list[BaseException]]]:
    """Run a slave in a thread. Gives the list of its errors."""
    stopped, raised = threading.Event(), []
    follower = Follower(log, *address, Settings(FILE_SIZE), HARDENED, has_room=has_room)

    def run() -> None:
        try:
            follower.run(stopped.is_set)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield follower, raised
    finally:
        stopped.set()
        await_end(thread)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["posix_fallocate", "pwritev"])
def test_a_slave_waits_for_room_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, call: str
) -> None:
    """HA-ST-68 "MUST close its connection, and connect again when there is room; its store stays as it is"."""
    room = Space(0)
    with (
        serving(tmp_path / "m", FILE_SIZE) as master,
        CommitLog.open(tmp_path / "s", file_size=FILE_SIZE, create=room.create) as log,
    ):
        fill(master.service.log, 100)
        with following(log, master.address, room.has_room) as (follower, raised):
            wait_for(lambda: log.max_offset == master.service.log.max_offset)
            real = getattr(os, call)

            def full(*arguments: object) -> object:
                if threading.current_thread() is threading.main_thread() or is_roomy.is_set() or not is_slaves(arguments[0]):
                    return real(*arguments)
                raise OSError(number, os.strerror(number))

            def is_slaves(fd: object) -> bool:
                return f"{tmp_path}/s/" in str(Path(f"/proc/self/fd/{fd}").readlink())

            is_roomy = threading.Event()
            monkeypatch.setattr(mapped_file.os, call, full)
            fill(master.service.log, 3 * FILE_SIZE)
            wait_for(lambda: follower.disk_full is not None)
            held = log.max_offset
            assert held < master.service.log.max_offset
            wait_for(lambda: follower.last_close_reason == "disk_full")
            time.sleep(0.3)
            assert log.max_offset == held
            is_roomy.set()
            wait_for(lambda: log.max_offset == master.service.log.max_offset)
            assert follower.disk_full is None
        assert not raised
        told = [line for line in caplog.messages if "until there is room" in line]
        assert len(told) == 1, told  # one line for all retries
        log.flush()
        assert log.data_at(0, FILE_SIZE) == master.service.log.data_at(0, FILE_SIZE)


def test_a_slave_that_shows_no_room_does_not_ask_its_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-68: the slave checks the free space, and does not connect while there is too little."""
    room = Space(1000)
    with (
        serving(tmp_path / "m", FILE_SIZE) as master,
        CommitLog.open(tmp_path / "s", file_size=FILE_SIZE, create=room.create) as log,
    ):
        fill(master.service.log, 100)
        monkeypatch.setattr(space, "free_size", lambda _: 999)
        with following(log, master.address, room.has_room) as (follower, raised):
            wait_for(lambda: follower.last_close_reason == "disk_full")
            connects = follower.connects
            time.sleep(0.5)
            assert (follower.connects, log.max_offset, raised) == (connects, 0, [])
            monkeypatch.setattr(space, "free_size", lambda _: 1 << 30)
            wait_for(lambda: log.max_offset == master.service.log.max_offset)
        assert not raised


# --- Masters -----------------------------------------------------------------------------------------------------------------


def test_puts_are_refused_while_slaves_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-67 "MUST end with SERVICE_NOT_AVAILABLE"; "A later put that finds room MUST be stored"."""
    with CommitLog.open(tmp_path / "m", file_size=FILE_SIZE) as log:
        fill(log, FILE_SIZE - 700)
    room = Space(0)
    with CommitLog.open(tmp_path / "m", create=room.create) as log:
        master = Master(log, listen("127.0.0.1", 0), Settings(FILE_SIZE, master_read_buffer_size=4096), HARDENED)
        puts = Puts(master.service, BrokerRole.ASYNC_MASTER)
        with monkeypatch.context() as patched:
            patched.setattr(mapped_file.os, "posix_fallocate", refusing(errno.ENOSPC))
            counts, waiting = put_all(master, puts, lambda: False, iter([Message("topic", bytes(900))] * 3), 8)
            assert (counts.statuses, len(waiting)) == ({PutMessageStatus.SERVICE_NOT_AVAILABLE: 3}, 0)
            counts, _ = put_all(master, puts, lambda: False, iter([Message("topic", bytes(90))]), 8)
            assert counts.statuses == {PutMessageStatus.PUT_OK: 1}  # there is room in the last file
        counts, _ = put_all(master, puts, lambda: False, iter([Message("topic", bytes(900))] * 3), 8)
        assert counts.statuses == {PutMessageStatus.PUT_OK: 3}
        master.close()


# --- Processes, and a file system that is full -------------------------------------------------------------------------------


@pytest.fixture
def small() -> Iterator[Path]:
    """A file system of 4 MiB."""
    with tempfile.TemporaryDirectory(prefix="full-") as directory:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", directory], check=True, timeout=PATIENCE_S)
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", "--lazy", directory], check=True, timeout=PATIENCE_S)


SIZES = ("--file-size", str(MIB), "--min-free-space", "65536")


@HAVE_TMPFS
def test_a_slave_on_a_full_file_system_goes_on_when_retention_makes_room(tmp_path: Path, small: Path, nodes: ExitStack) -> None:
    """HA-ST-68; retention goes on deleting files meanwhile."""
    with CommitLog.open(tmp_path / "m", file_size=MIB) as log:
        while log.max_offset < 9 * MIB:
            log.append(Message("topic", bytes(60_000)))
    master = Node(tmp_path / "m.log", "master", "--store", str(tmp_path / "m"), "--listen", "127.0.0.1:0")
    nodes.callback(master.stop)
    kept = ("--file-reserved-time", "1", "--delete-when", ";".join(map(str, range(24))), "--clean-resource-interval", "50")
    store = small / "s"
    whose = ("slave", "--store", str(store), "--master", master.line("listening"), "--from", "min")
    slave = Node(tmp_path / "s.log", *whose, *SIZES, *kept, "--no-clean-file-forcibly")
    nodes.callback(slave.stop)
    wait_for(lambda: (store / "rocketmq-ha.sock").exists() or slave.status is not None)
    wait_for(lambda: ask(store)["disk_full"])
    assert ask(store)["state"] == "disk full"
    assert ask(store)["max_offset"] == 3 * MIB
    text = invoke("status", str(store)).stdout
    assert "No space left on device: found" in text
    end = ask(tmp_path / "m")["max_offset"]
    while ask(store)["max_offset"] < end:
        for path in (store / "commitlog").iterdir():
            with suppress(FileNotFoundError):  # retention has deleted it since it was listed
                os.utime(path, (0, 0))
        time.sleep(0.1)
        slave.check()
    wait_for(lambda: ask(store)["disk_full"] is None)
    assert ask(store)["deleted_files"] > 4
    assert slave.stop() == 0
    assert slave.log.read_text().count("until there is room") <= 9


@HAVE_TMPFS
def test_a_slave_that_starts_on_a_full_disk_ends_with_a_status_of_its_own(
    tmp_path: Path, small: Path, nodes: ExitStack
) -> None:
    """The status after bad input is 2, which systemd does not retry; after a full disk it is 75, which systemd retries."""
    (small / "filler").write_bytes(bytes(4 * MIB - 16384))
    with CommitLog.open(tmp_path / "m", file_size=MIB) as log:
        log.append(Message("topic", b""))
    master = Node(tmp_path / "m.log", "master", "--store", str(tmp_path / "m"), "--listen", "127.0.0.1:0")
    nodes.callback(master.stop)
    begin = ("--from", "min", *SIZES)
    slave = Node(tmp_path / "s.log", "slave", "--store", str(small / "s"), "--master", master.line("listening"), *begin)
    wait_for(lambda: slave.status is not None)
    assert slave.stop() == 75
    assert "No space left on device" in slave.log.read_text().splitlines()[-1]


@HAVE_TMPFS
def test_a_master_on_a_full_file_system_takes_puts_again(tmp_path: Path, small: Path, nodes: ExitStack) -> None:
    """HA-ST-67 "Slaves MUST be served all the while": refused puts are counted, and with more room it goes on."""
    store = small / "m"
    put = ("--put", "3000", "--size", "6000", "--role", "ASYNC_MASTER")
    master = Node(tmp_path / "m.log", "master", "--store", str(store), "--listen", "127.0.0.1:0", *SIZES, *put)
    nodes.callback(master.stop)
    address = master.line("listening")
    wait_for(lambda: ask(store)["disk_full"])
    follow(nodes, tmp_path / "s", address, "--file-size", str(MIB), "--from", "min", "--settle", "0")
    wait_for(lambda: ask(tmp_path / "s")["max_offset"] == ask(store)["max_offset"] > 2 * MIB)
    subprocess.run(["mount", "-o", "remount,size=64m", small], check=True, timeout=PATIENCE_S)
    line = master.line("put")
    assert line.startswith("3000 ")
    counts = dict(word.split("=") for word in line.split()[3:])
    assert int(counts["PUT_OK"]) + int(counts["SERVICE_NOT_AVAILABLE"]) == 3000
    assert ask(store)["max_offset"] > 4 * MIB
    assert ask(store)["disk_full"] is None
    wait_for(lambda: ask(tmp_path / "s")["max_offset"] == ask(store)["max_offset"])


def test_an_append_tells_a_full_disk_from_other_disk_errors() -> None:
    """HA-S-34 "MUST stop with an error that names the file": an error of the disk other than a lack of room still stops it."""
    assert AppendFailed("f", 0, OSError(errno.EDQUOT, "")).is_for_want_of_room
    assert not AppendFailed("f", 0, OSError(errno.EIO, "")).is_for_want_of_room
