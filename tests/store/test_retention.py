"""Retention: the choice of files to delete, and everything that must work without them.

HA-ST-13, HA-ST-62 to HA-ST-66, HA-ST-69.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.command_line import invoke
from kit.nodes import follow, serve
from kit.waiting import PATIENCE_S, await_end, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.app.cleaning import RetentionSettings, cleaning
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.net.status_socket import ask
from rocketmq_ha.impl.store import clean_commit_log as clean_module
from rocketmq_ha.impl.store.clean_commit_log import CleanCommitLogService, clean_closed
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.mapped_file_queue import MappedFileQueue
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.space import Space
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.retention import Disk, Retention, files_to_delete
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import retention as model
from rocketmq_ha.reference.store import Log, min_offset
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE = 4096
HOUR_MS = 3_600_000
OLD = Retention(file_reserved_ms=72 * HOUR_MS, delete_when=None)
ROOMY = Disk(10, 90)


def fill(store: Path, files: int, file_size: int = FILE_SIZE) -> Path:
    """Fill a log with the given number of files: eleven messages in each but the last."""
    with CommitLog.open(store, file_size=file_size) as log:
        while log.max_offset < (files - 1) * file_size + 100:
            log.append(Message("topic", bytes(250)))
    return store


def age(store: Path, hours: float, *, before: int = 1 << 62) -> None:
    """Set the modification times of the files that begin before an offset to some hours ago."""
    then = time.time() - hours * 3600
    for path in (store / "commitlog").iterdir():
        if int(path.name) < before:
            os.utime(path, (then, then))


def bases(store: Path) -> list[int]:
    return sorted(int(path.name) // FILE_SIZE for path in (store / "commitlog").iterdir())


def nothing(_: int) -> None:
    pass


# --- The decision ------------------------------------------------------------------------------------------------------------


@given(
    count=st.integers(1, 14),
    first=st.integers(0, 3),
    ages_ms=st.lists(st.integers(0, 6), min_size=14, max_size=14),
    reserved_ms=st.none() | st.integers(0, 5),
    delete_when=st.none() | st.frozensets(st.integers(0, 3), max_size=2),
    hour=st.integers(0, 3),
    forcibly=st.booleans(),
    max_log_size=st.none() | st.integers(0, 1500),
    ratio=st.integers(1, 100),
    used=st.integers(0, 2000),
    total=st.integers(0, 2000),
    needed=st.none() | st.integers(0, 1700),
)
def test_model_and_implementation_delete_the_same_files(
    count: int,
    first: int,
    ages_ms: list[int],
    reserved_ms: int | None,
    delete_when: frozenset[int] | None,
    hour: int,
    forcibly: bool,
    max_log_size: int | None,
    ratio: int,
    used: int,
    total: int,
    needed: int | None,
) -> None:
    """HA-ST-62 "from the first on, at most ten in a round, and never the last one", each with the same reason, and never a file
    that is needed.
    """
    total = max(total, used)
    modified_ms = [1000 - age_ms for age_ms in ages_ms[:count]]
    before = Log(100, 100 * first, bytes(100 * count - 1))
    policy = model.Policy(reserved_ms, delete_when, ratio, forcibly, max_log_size)
    after, reasons, held = model.clean(before, modified_ms, policy, model.Moment(1000, hour, used, total), needed)
    found = files_to_delete(
        Retention(reserved_ms, delete_when, ratio, forcibly, max_log_size),
        [100 * index for index in range(first, first + count)],
        modified_ms,
        100,
        now_ms=1000,
        hour=hour,
        disk=Disk(used, total - used),
        needed_offset=needed,
    )
    assert tuple(reason.name for reason in found.reasons) == reasons
    assert (found.held and found.held.name) == held
    assert min_offset(after) == 100 * (first + len(found.reasons))
    assert len(reasons) < count
    assert len(reasons) <= 10
    assert needed is None or not reasons or min_offset(after) <= needed


def decide(
    retention: Retention, hours: tuple[int, ...], *, hour: int = 12, disk: Disk = ROOMY, needed: int | None = None
) -> Any:
    modified_ms = [100 * HOUR_MS - old * HOUR_MS for old in hours]
    now = {"now_ms": 100 * HOUR_MS, "hour": hour, "disk": disk, "needed_offset": needed}
    found = files_to_delete(retention, [10 * index for index in range(len(hours))], modified_ms, 10, **now)
    return [reason.name for reason in found.reasons], found.held and found.held.name


def test_age_counts_in_the_hour_and_at_any_hour_on_a_full_disk() -> None:
    """HA-ST-63 "MUST be deleted in an hour of delete_when, and at any hour while the disk is fuller than"."""
    aged = Retention(file_reserved_ms=72 * HOUR_MS)
    assert decide(aged, (73, 72, 71, 90, 0), hour=4) == (["AGE", "AGE"], None)
    assert decide(aged, (73, 72, 71, 90, 0), hour=5) == ([], None)
    assert decide(aged, (73, 72, 71, 90, 0), hour=5, disk=Disk(75, 25)) == ([], None)
    assert decide(aged, (73, 72, 71, 90, 0), hour=5, disk=Disk(751, 249))[0][0] == "AGE_AND_SPACE"


def test_a_full_disk_costs_as_many_files_as_it_must() -> None:
    """HA-ST-64 "MUST be deleted whatever its age while the disk is more than 85 % full"; HA-ST-69: only if the operator asked
    for deletion.
    """
    forced = Retention(clean_file_forcibly=True)
    assert decide(forced, (0,) * 20, disk=Disk(86, 14)) == (["SPACE"], None)
    assert decide(forced, (0,) * 20, disk=Disk(95, 5)) == (["SPACE"], None)
    assert decide(forced, (0,) * 20, disk=Disk(960, 40)) == (["SPACE"] * 10, None)  # 96 % until 860 are left, 86 %
    assert decide(forced, (0,) * 20, disk=Disk(85, 15)) == ([], None)
    assert decide(Retention(), (99,) * 20, disk=Disk(100, 0)) == ([], None)


def test_a_log_has_a_size() -> None:
    """HA-ST-65 "MUST be deleted while the files together hold more than max_log_size"."""
    assert decide(Retention(max_log_size=35), (0,) * 6) == (["SIZE"] * 3, None)
    assert decide(Retention(max_log_size=1), (0,) * 6) == (["SIZE"] * 5, None)
    assert decide(Retention(max_log_size=1), (0,) * 6, needed=25) == (["SIZE"] * 2, "SIZE")


# --- The deletion ------------------------------------------------------------------------------------------------------------


def test_a_store_keeps_all_unless_told(tmp_path: Path, nodes: ExitStack) -> None:
    """HA-ST-69 "MUST keep every file"; and HA-ST-62, once an option asks for deletion."""
    age(fill(tmp_path / "m", 6), 1000)
    node, _ = serve(nodes, tmp_path / "m", "--clean-resource-interval", "20", file_size=FILE_SIZE)
    time.sleep(0.3)
    assert ask(tmp_path / "m")["min_offset"] == 0
    node.stop()
    told = ("--file-reserved-time", "72", "--delete-when", ";".join(map(str, range(24))), "--clean-resource-interval", "20")
    node, _ = serve(nodes, tmp_path / "m", *told, file_size=FILE_SIZE)
    wait_for(lambda: ask(tmp_path / "m")["deleted_files"] == 5)
    assert bases(tmp_path / "m") == [5]
    assert (ask(tmp_path / "m")["min_offset"], ask(tmp_path / "m")["deleted_bytes"]) == (5 * FILE_SIZE, 5 * FILE_SIZE)
    text = invoke("status", str(tmp_path / "m")).stdout
    assert "5 files, 20.0 KiB" in text
    log = node.log.read_text()
    assert "files of the log are deleted: 72 h after their last write (hours 00;01;" in log
    assert all(f"deleted {tmp_path}/m/commitlog/{base * FILE_SIZE:020d}: it is older than" in log for base in range(5))


def test_a_slave_that_is_connected_keeps_what_it_needs(tmp_path: Path) -> None:
    """HA-ST-66: "a slave that is connected needs the last byte that it has acknowledged and all behind it"."""
    age(fill(tmp_path / "m", 6), 100)
    with CommitLog.open(tmp_path / "m") as log:
        service = HAService(log, Settings(FILE_SIZE, master_read_buffer_size=64), HARDENED)
        cleaner = CleanCommitLogService(log, OLD, nothing, service.needed_offset)
        conn = service.on_accept("127.0.0.1:1", 0)

        def report(offset: int) -> None:
            conn.recv_buffer()[: REPORT.size] = REPORT.pack(offset)
            conn.on_reports(REPORT.size, 0)
            conn.on_transfer(0)

        def send() -> None:
            while conn.on_transfer(0):
                conn.on_transferred(conn.offered, 0)

        assert service.needed_offset() is None  # it has not reported
        conn.slave_request_offset = 2 * FILE_SIZE
        assert service.needed_offset() == 2 * FILE_SIZE  # the slave has asked for it, and nothing was sent
        conn.slave_request_offset = -1
        report(2 * FILE_SIZE + 5)
        assert cleaner.run() == 2
        send()
        report(4 * FILE_SIZE)  # its last record begins in the file before
        assert service.needed_offset() == 4 * FILE_SIZE - 1
        assert cleaner.run() == 1
        report(4 * FILE_SIZE + 1)
        assert cleaner.run() == 1
        assert bases(tmp_path / "m") == [4, 5]
        service.close(conn, "end_of_stream")
        assert cleaner.run() == 1


@pytest.mark.parametrize(("deleted", "asked"), [(1, 1), (1, 2), (2, 2), (2, 4), (4, 4)])
def test_a_slave_that_comes_between_two_deletions_of_a_round_keeps_what_it_needs(
    tmp_path: Path, deleted: int, asked: int
) -> None:
    """HA-ST-66 "MUST NOT be deleted while a peer needs it": the needed offset is read again for each file.

    deleted: the number of files already deleted when the slave connects. asked: the file in which it asks to begin.
    """
    fill(tmp_path / "m", 6)
    with CommitLog.open(tmp_path / "m") as log:
        service = HAService(log, Settings(FILE_SIZE), HARDENED)

        def needed() -> int | None:
            if log.min_offset == deleted * FILE_SIZE and not service.connections:
                service.on_accept("127.0.0.1:1", 0).slave_request_offset = asked * FILE_SIZE + 5
            return service.needed_offset()

        assert CleanCommitLogService(log, Retention(max_log_size=1), nothing, needed).run() == asked
        assert bases(tmp_path / "m") == list(range(asked, 6))


@pytest.mark.parametrize("delete_unacknowledged", [False, True])
def test_a_master_can_be_told_to_delete_what_a_slave_needs(tmp_path: Path, delete_unacknowledged: bool) -> None:
    """HA-ST-66 "unless the operator has allowed it"."""
    fill(tmp_path / "m", 4)
    settings = RetentionSettings(Retention(max_log_size=1), 0.01, delete_unacknowledged, 0)
    with CommitLog.open(tmp_path / "m") as log:
        asked = threading.Semaphore(0)

        def needed() -> int:
            asked.release()
            return FILE_SIZE

        with cleaning(log, tmp_path / "m", settings, Space(0), needed) as kept:
            wait_for(lambda: kept.figures()["deleted_files"] == (3 if delete_unacknowledged else 1))
            assert delete_unacknowledged or all(asked.acquire(timeout=PATIENCE_S) for _ in range(6))
        assert bases(tmp_path / "m") == ([3] if delete_unacknowledged else [1, 2, 3])


def test_a_deletion_that_fails_is_told_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "m", 3)
    fails = threading.Event()
    fails.set()
    real = Path.unlink

    def refuse(self: Path, **how: bool) -> None:
        if fails.is_set():
            raise OSError(5, "Input/output error", str(self))
        real(self, **how)

    monkeypatch.setattr(Path, "unlink", refuse)
    with CommitLog.open(tmp_path / "m") as log:
        with cleaning(log, tmp_path / "m", RetentionSettings(Retention(max_log_size=1), 0.01, False, 0), Space(0)) as kept:
            wait_for(lambda: "delete_expired_files fails, and is tried again" in caplog.text)
            fails.clear()
            wait_for(lambda: bases(tmp_path / "m") == [2])
        assert kept.figures()["deleted_files"] == 2
    assert caplog.text.count("delete_expired_files fails") == 1


def test_times_that_no_thread_can_wait_for_are_refused(tmp_path: Path) -> None:
    for option in ("--clean-resource-interval", "--file-reserved-time", "--flush-interval-commit-log"):
        for value in (str(10**30), "nan", "-1"):
            result = invoke("master", "--store", str(tmp_path / "m"), option, value)
            assert result.exit_code == 2
            (line,) = result.stderr.splitlines()
            assert option in line
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(("hour", "deleted"), [(16, 0), (17, 2), (18, 0), (22, 0)])
def test_the_hour_of_deletion_is_that_of_local_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hour: int, deleted: int
) -> None:
    """HA-ST-63 "The hour is that of the machine's own clock". It is 22:13 in UTC, and 17:28 in the tests' local time."""
    now_ms = 1_700_000_000_123
    monkeypatch.setattr(clean_module, "wall_clock_ms", lambda: now_ms)
    monkeypatch.setattr(clean_module, "disk_of", lambda _: ROOMY)
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        while log.max_offset < 2 * FILE_SIZE + 100:
            log.append(Message("t", bytes(100)))
        for file in log.queue.files:
            os.utime(file.path, ns=((now_ms - HOUR_MS - 1) * 1_000_000,) * 2)
        retention = Retention(file_reserved_ms=HOUR_MS, delete_when=frozenset({hour}))
        assert CleanCommitLogService(log, retention, lambda _: None).run() == deleted


def test_a_reader_keeps_what_it_has_not_been_sent(tmp_path: Path) -> None:
    """HA-ST-66 "and any other peer needs what it has not been sent": a peer that acknowledges nothing does not keep files for
    ever.
    """
    fill(tmp_path / "m", 3)
    with CommitLog.open(tmp_path / "m") as log:
        service = HAService(log, Settings(FILE_SIZE, master_read_buffer_size=64), HARDENED)
        conn = service.on_accept("127.0.0.1:1", 0)
        conn.recv_buffer()[: REPORT.size] = REPORT.pack(1)
        conn.on_reports(REPORT.size, 0)
        conn.on_transfer(0)
        assert service.needed_offset() == 1
        conn.on_transferred(conn.offered, 0)
        assert service.needed_offset() == conn.sent_offset > FILE_SIZE - 1


@pytest.mark.parametrize("there", [0, 7, 40])
def test_the_last_whole_record_stays(tmp_path: Path, there: int) -> None:
    """HA-ST-62 "hardened also keeps the file before the last one, while the last one may hold no whole record"."""
    fill(tmp_path / "m", 5)
    with CommitLog.open(tmp_path / "m") as log, CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as ours:
        for base in range(0, 4 * FILE_SIZE, FILE_SIZE):
            view = log.data_at(base, FILE_SIZE)
            assert view is not None
            ours.append_data(base, [view])
        begin = log.data_at(4 * FILE_SIZE, there)
        ours.append_data(4 * FILE_SIZE, [begin] if there and begin is not None else [])
        cleaner = CleanCommitLogService(ours, Retention(max_log_size=1), nothing)
        cleaner.run()
        assert bases(tmp_path / "s") == [3, 4]
        rest = log.data_at(4 * FILE_SIZE + there, FILE_SIZE)
        assert rest is not None
        ours.append_data(4 * FILE_SIZE + there, [rest])
        cleaner.run()
        assert bases(tmp_path / "s") == [4]


def test_queues_and_index_follow_where_nobody_has_them_open(tmp_path: Path) -> None:
    """HA-ST-13 "older files may have been deleted": queues and index follow, file by file."""
    options = StoreOptions(file_size=FILE_SIZE, queue_file_size=200, index_geometry=Geometry(10, 20), floor_size=0)
    store = tmp_path / "m"
    with MessageStore.open(store, options) as opened:
        for index in range(100):
            opened.put(Message("orders", bytes(200), properties_string=f"KEYS\x01{index}"))
        opened.wait_for_dispatch()
    queue, index_files = store / "consumequeue/orders/0", len(list((store / "index").iterdir()))
    assert len(list(queue.iterdir())) == 10
    with CommitLog.open(store) as log:
        cleaner = CleanCommitLogService(log, Retention(max_log_size=3 * FILE_SIZE), lambda to: clean_closed(store, to))
        assert cleaner.run() > 0
        first = log.min_offset
        messages = sum(1 for _ in log.records())
    assert len(list(queue.iterdir())) == 10 - (100 - messages) // 10
    assert 0 < len(list((store / "index").iterdir())) < index_files
    with MessageStore.open(store, options) as opened:
        assert opened.wait_for_dispatch()
        assert opened.min_offset == first
        assert opened.get("orders", 0, 0).min_offset == 100 - messages
        assert all(opened.get("orders", 0, at).status.name == "FOUND" for at in range(100 - messages, 100))
        assert len(opened.query("orders", "99")) == 1
        assert opened.put(Message("orders", b"")).append.queue_offset == 100


def test_a_reader_sees_the_remaining_files_while_others_are_deleted(tmp_path: Path) -> None:
    """A view of a deleted file stays valid; a reader goes on with the remaining files."""
    fill(tmp_path / "m", 6)
    with CommitLog.open(tmp_path / "m") as log:
        held = log.data_at(0, 100)
        assert held is not None
        before = bytes(held)
        with LogReader(tmp_path / "m") as reader:
            CleanCommitLogService(log, Retention(max_log_size=FILE_SIZE), nothing).run()
            assert bytes(held) == before
            assert log.data_at(0, 100) is None
            reader.walk()
            assert (reader.min_offset, reader.max_offset) == (log.min_offset, log.max_offset)
            assert reader.min_offset > 0


def test_a_file_that_cannot_be_removed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "m", 6)
    with CommitLog.open(tmp_path / "m") as log:
        cleaner = CleanCommitLogService(log, Retention(max_log_size=2 * FILE_SIZE), nothing)

        def refuse(self: Path, **_: bool) -> None:
            raise OSError(5, "Input/output error", str(self))

        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", refuse)
            with pytest.raises(OSError, match="Input/output error"):
                cleaner.run()
        assert bases(tmp_path / "m") == [0, 1, 2, 3, 4, 5]
        cleaner.run()
        assert bases(tmp_path / "m") == [4, 5]


@pytest.mark.parametrize("step", ["sync_directory", "clean_derived"])
def test_a_step_behind_the_deletion_that_fails_is_done_in_the_next_round(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are gone then, and nothing more is deleted; a third round has nothing to do."""
    fill(tmp_path / "m", 6)
    failures, cleaned = [OSError(5, "Input/output error")], list[int]()
    real = clean_module.sync_directory

    def fail(name: str) -> None:
        if name == step and failures:
            raise failures.pop()

    def sync_directory(directory: Path) -> None:
        fail("sync_directory")
        real(directory)

    def clean_derived(min_offset: int) -> None:
        fail("clean_derived")
        cleaned.append(min_offset)

    monkeypatch.setattr(clean_module, "sync_directory", sync_directory)
    with CommitLog.open(tmp_path / "m") as log:
        cleaner = CleanCommitLogService(log, Retention(max_log_size=2 * FILE_SIZE), clean_derived)
        with pytest.raises(OSError, match="Input/output error"):
            cleaner.run()
        assert (bases(tmp_path / "m"), cleaned) == ([4, 5], [])
        assert [cleaner.run(), cleaner.run()] == [0, 0]
    assert cleaned == [4 * FILE_SIZE]


def test_a_file_that_is_added_while_another_is_deleted_stays(tmp_path: Path) -> None:
    """The deleting thread runs just while the appending thread builds the new list of files."""
    queue = MappedFileQueue(tmp_path / "q", FILE_SIZE, writable=True)
    for _ in range(3):
        queue.last().wrote_position = FILE_SIZE
    deleting = threading.Thread(target=queue.delete_before, args=(2 * FILE_SIZE,), daemon=True)

    class Guard:
        """The lock of flushes. When it is released, the other thread may run."""

        def __init__(self) -> None:
            self.lock = threading.Lock()

        def acquire(self, *, blocking: bool = True) -> bool:
            return self.lock.acquire(blocking=blocking)

        def release(self) -> None:
            self.lock.release()
            if not deleting.is_alive() and deleting.ident is None:
                deleting.start()
                deleting.join(0.3)

        def __enter__(self) -> None:
            assert self.lock.acquire(timeout=PATIENCE_S)

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    queue._flush_guard = Guard()  # type: ignore[assignment]
    queue.last()
    await_end(deleting)
    assert [file.base // FILE_SIZE for file in queue.files] == [2, 3]
    assert sorted(int(path.name) // FILE_SIZE for path in (tmp_path / "q").iterdir()) == [2, 3]
    queue.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from rocketmq_ha.impl.store.clean_commit_log import CleanCommitLogService
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.retention import Retention
left, unlink = [int(sys.argv[2])], Path.unlink
def dying(self, missing_ok=False):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    unlink(self, missing_ok=missing_ok)
Path.unlink = dying
log = CommitLog.open(Path(sys.argv[1]))
CleanCommitLogService(log, Retention(max_log_size=1), lambda to: None).run()
"""


@pytest.mark.parametrize("after", [0, 2])
def test_a_kill_amid_deletions_leaves_a_store_that_opens(tmp_path: Path, after: int) -> None:
    """HA-ST-62 "from the first on": the remaining files have no gap."""
    fill(tmp_path / "m", 6)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "m"), str(after)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert bases(tmp_path / "m") == list(range(after, 6))
    with CommitLog.open(tmp_path / "m") as log:
        assert log.min_offset == after * FILE_SIZE
        assert CleanCommitLogService(log, Retention(max_log_size=1), nothing).run() == 5 - after
    assert bases(tmp_path / "m") == [5]


# --- What goes on without the first files ------------------------------------------------------------------------------------


def test_a_slave_without_its_first_files_goes_on(tmp_path: Path, nodes: ExitStack) -> None:
    """HA-ST-13 "The min offset of a log MUST be the start of its first file": a slave's log too, through every command."""
    master, replica = fill(tmp_path / "m", 6), tmp_path / "s"
    arguments = ("master", "--store", str(master), "--role", "ASYNC_MASTER", "--listen", "127.0.0.1:0")
    node = Node(tmp_path / "m.log", *arguments)
    nodes.callback(node.stop)
    address = node.line("listening")
    bound = ("--max-log-size", str(3 * FILE_SIZE), "--clean-resource-interval", "20")
    slave = follow(nodes, replica, address, "--file-size", str(FILE_SIZE), "--from", "min", *bound)
    end = ask(master)["max_offset"]
    wait_for(lambda: (ask(replica)["deleted_files"], ask(replica)["max_offset"]) == (3, end))
    assert ask(replica)["min_offset"] == 3 * FILE_SIZE
    assert (bases(master), bases(replica)) == ([0, 1, 2, 3, 4, 5], [3, 4, 5])
    assert slave.stop() == 0
    for command in (["verify", replica], ["recover", replica, "--dry-run"], ["inspect", replica, "--limit", "1"]):
        result = invoke(*command)
        assert result.exit_code == 0, result.output
    assert node.stop() == 0
    node = Node(tmp_path / "m.log", *arguments, "--put", "20", "--size", "300")
    nodes.callback(node.stop)
    address = node.line("listening")
    slave = follow(nodes, replica, address, *bound)
    node.line("put")
    end = ask(master)["max_offset"]
    wait_for(lambda: ask(replica)["max_offset"] == end and ask(replica)["min_offset"] >= 5 * FILE_SIZE)
    slave.stop()
    moved = invoke("resync", str(replica))
    assert moved.exit_code == 0, moved.output


def test_a_new_slave_begins_at_the_first_file_that_is_left(tmp_path: Path, nodes: ExitStack) -> None:
    """`slave --from min` of a master that has deleted its first files."""
    fill(tmp_path / "m", 6)
    bound = ("--max-log-size", str(3 * FILE_SIZE), "--clean-resource-interval", "20")
    _, address = serve(nodes, tmp_path / "m", *bound, file_size=FILE_SIZE)
    wait_for(lambda: ask(tmp_path / "m")["min_offset"] == 3 * FILE_SIZE)
    follow(nodes, tmp_path / "s", address, "--file-size", str(FILE_SIZE), "--from", "min")
    wait_for(lambda: ask(tmp_path / "s")["max_offset"] == ask(tmp_path / "m")["max_offset"])
    assert bases(tmp_path / "s") == [3, 4, 5]
