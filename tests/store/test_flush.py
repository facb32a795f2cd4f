"""Flushes from the page cache to the disk: which puts wait, and the state after a failure.

HA-ST-24 to HA-ST-28, HA-ST-60, HA-ST-61.
"""

import contextlib
import errno
import logging
import os
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.command_line import invoke
from kit.nodes import follow, serve, serving
from kit.waiting import PATIENCE_S, await_end, wait_for
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.status_socket import ask
from rocketmq_ha.impl.store.log import mapped_file
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint, mark_running, mark_stopped, was_aborted
from rocketmq_ha.impl.store.log.flush import FlushRealTimeService, GroupCommitService
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.pending_put import waits_for_store
from rocketmq_ha.impl.wire.message import Message

MESSAGE = Message("t", b"body")
SMALL = StoreOptions(file_size=1 << 16, queue_file_size=2000, floor_size=0)
SYNC = StoreOptions(file_size=1 << 16, queue_file_size=2000, floor_size=0, sync_flush=True)


class Disk:
    """A log whose flush ends when the test says so."""

    def __init__(self) -> None:
        self.max_offset = self.flushed_offset = 0
        self.flushes: list[int] = []  # the least number of pages of each call
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.errors: list[OSError] = []

    def flush(self, least_pages: int = 0) -> int:
        self.flushes.append(least_pages)
        end = self.max_offset
        self.entered.release()
        assert self.gate.wait(PATIENCE_S)
        if self.errors:
            raise self.errors.pop(0)
        self.flushed_offset = max(self.flushed_offset, end)
        return self.flushed_offset


def eio() -> OSError:
    return OSError(errno.EIO, "Input/output error")


# --- Synchronous -----------------------------------------------------------------------------------------------------


def test_all_that_gather_during_a_flush_share_the_next_one() -> None:
    """HA-ST-27 "one thread flushes for all that have gathered, and wakes them"."""
    disk = Disk()
    service = GroupCommitService(disk)
    service.start()
    disk.gate.clear()
    disk.max_offset = 1
    first = service.put_request(1)
    assert disk.entered.acquire(timeout=PATIENCE_S)
    disk.max_offset = 100
    others = [service.put_request(offset) for offset in range(2, 101)]
    assert first.status is None
    disk.gate.set()
    assert {request.wait(PATIENCE_S) for request in (first, *others)} == {PutMessageStatus.PUT_OK}
    assert len(disk.flushes) == 2
    assert service.put_request(50).wait(PATIENCE_S) is PutMessageStatus.PUT_OK  # already on the disk
    assert len(disk.flushes) == 2
    service.shutdown()


def test_a_put_ends_with_flush_disk_timeout_when_the_disk_is_late_and_no_sooner() -> None:
    disk = Disk()
    disk.gate.clear()
    service = GroupCommitService(disk)
    service.start()
    disk.max_offset = 1
    request = service.put_request(1)
    started = time.monotonic()
    assert request.wait(0.1) is PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert time.monotonic() - started >= 0.1
    disk.gate.set()
    assert request.wait(PATIENCE_S) is PutMessageStatus.PUT_OK  # it is on the disk now
    service.shutdown()


def test_a_flush_is_tried_twice_then_those_that_wait_are_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    service = GroupCommitService(disk)
    service.start()
    disk.max_offset = 5
    disk.errors = [eio()]
    assert service.put_request(5).wait(PATIENCE_S) is PutMessageStatus.PUT_OK
    assert (len(disk.flushes), service.error) == (2, None)
    disk.max_offset = 9
    disk.errors = [eio(), eio()]
    with caplog.at_level(logging.ERROR):
        assert service.put_request(9).wait(PATIENCE_S) is PutMessageStatus.FLUSH_DISK_TIMEOUT
    assert disk.flushed_offset == 5
    assert service.error is not None
    assert "flushed to 5" in caplog.text
    assert service.put_request(9).wait(PATIENCE_S) is PutMessageStatus.PUT_OK
    assert service.error is None
    service.shutdown()


def test_a_shutdown_flushes_for_those_that_wait() -> None:
    disk = Disk()
    service = GroupCommitService(disk)
    disk.max_offset = 3
    requests = [service.put_request(offset) for offset in (1, 2, 3)]
    service.start()
    service.shutdown()
    assert [request.status for request in requests] == [PutMessageStatus.PUT_OK] * 3


def test_a_synchronous_put_is_on_the_disk_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-26 "MUST NOT end with PUT_OK before the disk has its message"; from 16 threads at once."""
    synced = threading.Event()
    real = mapped_file._sync_data

    def sync(fd: int) -> None:
        time.sleep(0.002)
        real(fd)
        synced.set()

    monkeypatch.setattr(mapped_file, "_sync_data", sync)
    with MessageStore.open(tmp_path / "s", SYNC) as store:
        behind: list[int] = []

        def put() -> None:
            for _ in range(10):
                result = store.put(MESSAGE)
                assert result.is_ok
                if store.flushed_offset < result.append.next_offset:
                    behind.append(result.append.offset)

        threads = [threading.Thread(target=put, daemon=True) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await_end(thread)
        assert synced.is_set()
        assert behind == []


def test_a_message_that_says_wait_false_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    real = mapped_file._sync_data

    def sync(fd: int) -> None:
        gate.wait(PATIENCE_S)
        real(fd)

    with MessageStore.open(tmp_path / "s", SYNC) as store:
        monkeypatch.setattr(mapped_file, "_sync_data", sync)
        result = store.put(Message("t", b"", properties_string="WAIT\x01false"))
        assert result.status is PutMessageStatus.PUT_OK
        assert store.flushed_offset < result.append.next_offset
        waiting = store.submit(MESSAGE)
        assert not waiting.is_done
        gate.set()
        assert waiting.result().is_ok
        assert waiting.is_done


@pytest.mark.parametrize(
    ("properties", "waits"),
    [("", True), ("WAIT\x01true", True), ("WAIT\x01TRUE", True), ("WAIT\x01no", False), ("A\x01WAIT\x02WAIT\x01false", False)],
)
def test_wait_is_true_unless_it_says_otherwise(properties: str, waits: bool) -> None:
    assert waits_for_store(properties) is waits


def test_a_disk_that_fails_is_reported_and_the_message_is_stored_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-ST-28, quirk 36: the flushed offset stays; with the disk back, the next put flushes both."""
    with MessageStore.open(tmp_path / "s", SYNC) as store:
        assert store.put(MESSAGE).is_ok
        flushed = store.flushed_offset

        def fail(_fd: int) -> None:
            raise eio()

        monkeypatch.setattr(mapped_file, "_sync_data", fail)
        late = store.put(MESSAGE)
        assert late.status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert late.status.is_stored
        assert store.flushed_offset == flushed
        with pytest.raises(OSError, match="Input/output"):
            store.flush()
        assert store.checkpoint.physic_msg_timestamp <= late.append.store_timestamp
        monkeypatch.undo()
        again = store.put(MESSAGE)
        assert again.is_ok
        assert store.flushed_offset == again.append.next_offset
    with MessageStore.open(tmp_path / "s", SYNC) as store:
        assert len(list(store.log.records())) == 3


def test_a_store_that_cannot_flush_at_its_end_says_so_and_leaves_abort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MessageStore.open(tmp_path / "s", SMALL)
    store.put(MESSAGE)

    def fail(_fd: int) -> None:
        raise eio()

    monkeypatch.setattr(mapped_file, "_sync_data", fail)
    with pytest.raises(OSError, match="Input/output"):
        store.close()
    monkeypatch.undo()
    assert was_aborted(tmp_path / "s")
    with MessageStore.open(tmp_path / "s", SMALL) as store:  # the first store has released the lock
        assert len(list(store.log.records())) == 1
    assert not was_aborted(tmp_path / "s")


# --- Asynchronous ----------------------------------------------------------------------------------------------------


def test_the_background_flush_goes_by_pages_and_now_and_then_takes_all() -> None:
    """HA-ST-25 "a thread of its own flushes at intervals"."""
    disk = Disk()
    service = FlushRealTimeService(disk, interval_s=0.005, least_pages=4, thorough_interval_s=0.04)
    service.start()
    for _ in range(30):
        assert disk.entered.acquire(timeout=PATIENCE_S)
    service.shutdown()
    assert 4 in disk.flushes
    assert 0 in disk.flushes
    count = len(disk.flushes)
    time.sleep(0.03)
    assert len(disk.flushes) == count


def test_a_failed_background_flush_is_kept_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.max_offset = 7
    disk.errors = [eio(), eio()]
    service = FlushRealTimeService(disk, interval_s=0.005)
    with caplog.at_level(logging.ERROR):
        service.start()
        wait_for(lambda: disk.flushed_offset >= 7)
        service.shutdown()
    assert disk.flushed_offset == 7
    assert service.error is None
    assert caplog.text.count("flush failed") == 1  # one line for one failure, however many retries


def test_an_asynchronous_put_does_not_wait_and_the_disk_has_it_soon(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", SMALL) as store:
        results = [store.put(Message("t", bytes(1000))) for _ in range(40)]
        assert all(result.is_ok for result in results)
        wait_for(lambda: store.flushed_offset >= 8 * 4096)


# --- Checkpoint and abort --------------------------------------------------------------------------------------------


def test_the_checkpoint_is_rocketmqs_file(tmp_path: Path) -> None:
    """HA-ST-24 "a file of 4,096 bytes that begins with three times in ms, each an i64"."""
    checkpoint = StoreCheckpoint(tmp_path)
    assert checkpoint.min_timestamp == 0
    checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp = 10_000, 9_000, 8_000
    checkpoint.flush()
    data = (tmp_path / "checkpoint").read_bytes()
    assert data == struct.pack(">qqq", 10_000, 9_000, 8_000) + bytes(4072)
    again = StoreCheckpoint(tmp_path)
    assert (again.physic_msg_timestamp, again.logics_msg_timestamp, again.index_msg_timestamp) == (10_000, 9_000, 8_000)
    assert again.min_timestamp == 6_000  # the smaller of the first two, less 3 s


@pytest.mark.parametrize("length", [0, 5, 23])
def test_a_checkpoint_that_is_too_short_says_nothing_and_is_made_whole(tmp_path: Path, length: int) -> None:
    """HA-ST-24; RocketMQ leaves an empty one if it is killed just after its start. The store must stay readable."""
    (tmp_path / "checkpoint").write_bytes(b"\x01" * length)
    checkpoint = StoreCheckpoint(tmp_path)
    assert (checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp) == (0, 0, 0)
    checkpoint.flush()
    assert (tmp_path / "checkpoint").read_bytes() == bytes(4096)
    with MessageStore.open(tmp_path / "s", SMALL) as store:
        store.put(Message("t", b""))
    (tmp_path / "s" / "checkpoint").write_bytes(b"\x01" * length)
    (tmp_path / "s" / "abort").touch()
    with MessageStore.open(tmp_path / "s", SMALL) as store:
        assert len(list(store.log.records())) == 1


@pytest.mark.parametrize("stop_at", range(6))
def test_a_checkpoint_has_its_name_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
    """A process that is killed at any system call of the first flush leaves no checkpoint, or a whole one."""
    calls = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls > stop_at:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patched:
        for name in ("open", "pwrite", "fsync", "replace"):
            patched.setattr(os, name, counted(getattr(os, name)))
        with contextlib.suppress(KeyboardInterrupt):
            StoreCheckpoint(tmp_path).flush()
    path = tmp_path / "checkpoint"
    assert calls >= stop_at
    assert not path.exists() or path.read_bytes() == bytes(4096)
    StoreCheckpoint(tmp_path).flush()
    assert path.read_bytes() == bytes(4096)
    assert list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_keeps_the_bytes_after_its_three_times(tmp_path: Path) -> None:
    """RocketMQ 5.x stores more fields after the three times."""
    (tmp_path / "checkpoint").write_bytes(struct.pack(">qqqqqqq", 1, 2, 3, 4, 5, 6, 8) + bytes(4040))
    checkpoint = StoreCheckpoint(tmp_path)
    checkpoint.physic_msg_timestamp = 7
    checkpoint.flush()
    assert (tmp_path / "checkpoint").read_bytes() == struct.pack(">qqqqqqq", 7, 2, 3, 4, 5, 6, 8) + bytes(4040)


def test_abort_is_there_from_the_start_to_the_clean_stop(tmp_path: Path) -> None:
    """HA-ST-23 "MUST exist from the start of a broker to its clean stop"."""
    store = tmp_path / "s"
    with MessageStore.open(store, SMALL):
        assert (store / "abort").read_bytes() == b""
        assert was_aborted(store)
    assert not (store / "abort").exists()
    mark_running(store)
    mark_running(store)
    assert was_aborted(store)
    mark_stopped(store)
    mark_stopped(store)
    assert not was_aborted(store)


def test_the_checkpoint_says_no_more_than_what_was_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message stored at the checkpoint's time may have missed the flush; no earlier message may have."""
    with MessageStore.open(tmp_path / "s", SMALL) as store:
        for _ in range(20):
            store.put(MESSAGE)
        store.wait_for_dispatch()
        store.flush()
        last = store.put(MESSAGE).append
        times = (store.checkpoint.physic_msg_timestamp, store.checkpoint.logics_msg_timestamp)
        assert 0 < max(times) <= last.store_timestamp
        for offset, _, message in store.log.records():
            if message.store_timestamp < store.checkpoint.physic_msg_timestamp:
                assert offset < store.flushed_offset

        def fail(_fd: int) -> None:
            raise eio()

        monkeypatch.setattr(mapped_file, "_sync_data", fail)
        times = (store.checkpoint.physic_msg_timestamp, store.checkpoint.logics_msg_timestamp)
        time.sleep(0.005)
        store.put(MESSAGE)
        with pytest.raises(OSError, match="Input/output"):
            store.flush()
        assert (store.checkpoint.physic_msg_timestamp, store.checkpoint.logics_msg_timestamp) == times
        monkeypatch.undo()


# --- The commands ----------------------------------------------------------------------------------------------------


def test_master_and_slave_flush_while_they_run(tmp_path: Path, nodes: ExitStack) -> None:
    """HA-ST-60 "A log, a slave's as well as a master's, MUST be flushed by a thread of its own"."""
    often = ("--flush-interval-commit-log", "50", "--flush-commit-log-least-pages", "1")
    master, address = serve(nodes, tmp_path / "m", "--put", "40", "--role", "ASYNC_MASTER", *often, file_size=1 << 20)
    master.line("put")
    follow(nodes, tmp_path / "s", address, "--file-size", str(1 << 20), *often)
    for store in (tmp_path / "m", tmp_path / "s"):
        wait_for(lambda store=store: ask(store)["max_offset"] > 40_000)
        wait_for(lambda store=store: ask(store)["flushed_offset"] > 40_000)


def test_few_pages_wait_for_the_thorough_flush(tmp_path: Path, nodes: ExitStack) -> None:
    """HA-ST-60 "and every `flush_commit_log_thorough_interval`, 10 s by default, however little is new"."""
    with serving(tmp_path / "m", 1 << 20) as master:
        master.service.log.append(MESSAGE)
        address = format_address(*master.address)
        rarely = ("--flush-interval-commit-log", "20", "--flush-commit-log-least-pages", "100")
        size = ("--file-size", str(1 << 20))
        follow(nodes, tmp_path / "late", address, *size, *rarely, "--flush-commit-log-thorough-interval", "3600000")
        follow(nodes, tmp_path / "soon", address, *size, *rarely, "--flush-commit-log-thorough-interval", "100")
        wait_for(lambda: ask(tmp_path / "late")["max_offset"])
        wait_for(lambda: ask(tmp_path / "soon")["flushed_offset"])
        assert ask(tmp_path / "late")["flushed_offset"] == 0


def test_a_slave_whose_flush_fails_stops_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-61 "MUST stop with an error that names the file"."""

    def fail(_: int) -> None:
        raise eio()

    with serving(tmp_path / "m", 1 << 16) as master:
        master.service.log.append(MESSAGE)
        monkeypatch.setattr(mapped_file, "_sync_data", fail)
        often = ("--flush-interval-commit-log", "20", "--flush-commit-log-least-pages", "0")
        arguments = ("slave", "--store", tmp_path / "s", "--master", format_address(*master.address), *often)
        result = invoke(*arguments, "--file-size", str(1 << 16))
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"rocketmq-ha: {tmp_path}/s/commitlog/{0:020d}: Input/output error"
    assert "Traceback" not in result.stderr
