"""The options for role and flush: `rocketmq-ha master` as a process, and a store that is opened with the role of a slave."""

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kit.command_line import COMMAND, Start, invoke
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.app.roles import end_all, putting, without_wait
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.errors import RoleRefuses
from rocketmq_ha.impl.ha.puts import Puts
from rocketmq_ha.impl.net import server as server_module
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log import mapped_file
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.flush import FlushIntervals
from rocketmq_ha.impl.store.log.results import PutMessageStatus, status_of
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings
from rocketmq_ha.spec.role import BrokerRole

FILE_SIZE = 1 << 20
PATIENT = ("--sync-flush-timeout", "1000000")
MESSAGE = Message("t", b"body")
NO_WAIT = Message("t", b"body", properties_string="WAIT\x01false")
OK, NO_SLAVE = PutMessageStatus.PUT_OK, PutMessageStatus.SLAVE_NOT_AVAILABLE


# --- A store by itself -----------------------------------------------------------------------------------------------


def options(role: BrokerRole, *, sync_flush: bool = False) -> StoreOptions:
    return StoreOptions(file_size=1 << 16, queue_file_size=2000, floor_size=0, role=role, sync_flush=sync_flush)


@pytest.mark.parametrize("sync_flush", (False, True), ids=("async", "sync"))
def test_a_slaves_store_refuses_puts_and_takes_replicated_bytes(tmp_path: Path, sync_flush: bool) -> None:
    """HA-R-5 "A slave MUST refuse puts, with SERVICE_NOT_AVAILABLE", by every kind of put, and stores none of them."""
    with MessageStore.open(tmp_path / "m", options(BrokerRole.ASYNC_MASTER)) as master:
        end = master.put(MESSAGE).append.next_offset
        sent = bytes(master.log.data_at(0, end) or b"")
    with MessageStore.open(tmp_path / "s", options(BrokerRole.SLAVE, sync_flush=sync_flush)) as slave:
        for put in (lambda: slave.put(MESSAGE), lambda: slave.put_batch([MESSAGE, MESSAGE]), lambda: slave.submit(NO_WAIT)):
            with pytest.raises(RoleRefuses, match="found the role SLAVE, expected ASYNC_MASTER or SYNC_MASTER") as raised:
                put()
            assert status_of(raised.value) is PutMessageStatus.SERVICE_NOT_AVAILABLE
            assert slave.max_offset == 0
        slave.append_data(0, [sent])
        assert slave.wait_for_dispatch(timeout_s=PATIENCE_S)
        assert [message.body for message in slave.get("t", 0, 0).messages()] == [MESSAGE.body]


@pytest.mark.parametrize("sync_flush", (False, True), ids=("async", "sync"))
def test_a_sync_masters_store_has_no_slaves_by_itself(tmp_path: Path, sync_flush: bool) -> None:
    """HA-G-3 "without waiting, when there is no slave": a put that would wait for slaves ends with that status; one that does
    not wait ends with PUT_OK.
    """
    with MessageStore.open(tmp_path / "s", options(BrokerRole.SYNC_MASTER, sync_flush=sync_flush)) as store:
        assert [store.put(MESSAGE).status, store.put(NO_WAIT).status] == [NO_SLAVE, OK]
        assert store.put_batch([MESSAGE, MESSAGE]).status is NO_SLAVE
        assert store.submit(MESSAGE).result().status is NO_SLAVE
        assert store.flushed_offset == (store.max_offset if sync_flush else 0)
        assert store.get("t", 0, 0) is not None


def test_what_does_not_wait_for_the_disk_gets_there_all_the_same(tmp_path: Path) -> None:
    """HA-G-40 "the property WAIT with the value false" means no wait; with synchronous flush such messages are flushed at
    intervals.
    """
    with MessageStore.open(tmp_path / "s", options(BrokerRole.ASYNC_MASTER, sync_flush=True)) as store:
        for _ in range(400):
            assert store.put(NO_WAIT).status is OK
        wait_for(lambda: store.flushed_offset > 0)


# --- The loop --------------------------------------------------------------------------------------------------------


@contextmanager
def held_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Master, CommitLog, Puts, threading.Event]]:
    """An ASYNC_MASTER that flushes synchronously, and whose disk waits for an event."""
    may_sync = threading.Event()
    real = mapped_file._sync_data

    def sync(fd: int) -> None:
        assert may_sync.wait(PATIENCE_S)
        real(fd)

    monkeypatch.setattr(mapped_file, "_sync_data", sync)
    with ExitStack() as stack:
        log = stack.enter_context(CommitLog.open(tmp_path / "s", file_size=FILE_SIZE))
        master = Master(log, listen("127.0.0.1", 0), Settings(FILE_SIZE), HARDENED)
        stack.callback(master.close)
        puts = stack.enter_context(putting(master, log, BrokerRole.ASYNC_MASTER, "sync", FlushIntervals()))
        stack.callback(may_sync.set)
        yield master, log, puts, may_sync


def test_thousands_that_wait_for_the_disk_end_when_the_master_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-G-45 "MUST flush once more for the puts that wait for the disk", however long that takes."""
    with held_disk(tmp_path, monkeypatch) as (master, log, puts, may_sync):
        waiting = [puts.put(MESSAGE, clock_ms()) for _ in range(4000)]
        assert {put.status for put in waiting} == {None}
        threading.Timer(0.05, may_sync.set).start()
        assert end_all(master, puts, waiting) == [OK] * 4000
        assert log.flushed_offset == log.max_offset


def test_a_flush_that_is_done_ends_the_wait_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flush itself ends the wait, not the next tick: none comes within the time limit."""
    monkeypatch.setattr(server_module, "TICK_MS", 2 * PATIENCE_S * 1000)
    with held_disk(tmp_path, monkeypatch) as (master, log, puts, may_sync):
        master.poll(0)  # the first tick is due at once
        put = puts.put(MESSAGE, clock_ms())
        puts.on_turn(clock_ms())
        assert put.status is None
        threading.Timer(0.05, may_sync.set).start()
        started = time.monotonic()
        master.poll(2 * PATIENCE_S * 1000)
        assert time.monotonic() - started < PATIENCE_S
        puts.on_turn(clock_ms())
        assert put.status is OK
        assert log.flushed_offset == log.max_offset


# --- The program -----------------------------------------------------------------------------------------------------


def serving(store: Path, *more: object) -> tuple[object, ...]:
    return ("master", "--store", store, "--listen", "127.0.0.1:0", "--file-size", FILE_SIZE, "--size", 10, *more)


@pytest.mark.parametrize(
    ("more", "told"),
    (
        ((), {"SLAVE_NOT_AVAILABLE": "100"}),
        (("--sync", 0.25), {"PUT_OK": "75", "SLAVE_NOT_AVAILABLE": "25"}),
        (("--role", "ASYNC_MASTER"), {"PUT_OK": "100"}),
        (("--role", "ASYNC_MASTER", "--flush", "sync"), {"PUT_OK": "100"}),
        (("--flush", "sync"), {"SLAVE_NOT_AVAILABLE": "100"}),
    ),
    ids=("SYNC_MASTER", "some say WAIT=false", "ASYNC_MASTER", "ASYNC_MASTER, flush", "SYNC_MASTER, flush"),
)
def test_the_role_says_whether_puts_wait_for_a_slave(
    start: Start, tmp_path: Path, more: tuple[object, ...], told: dict[str, str]
) -> None:
    """HA-G-8 "if the broker is a SYNC_MASTER and the message does not carry the property WAIT with the value false"."""
    master = start(*serving(tmp_path / "m", "--put", 100, *more))
    master.line("listening")
    found = master.words("put")
    assert {status: count for status, count in found.items() if status.isupper()} == told
    assert found["put"] == "100"
    assert master.end() == 0
    with CommitLog.open(tmp_path / "m") as log:
        texts = [message.properties_string for _, _, message in log.records()]
    saying = sum("\x02WAIT\x01false" in text for text in texts)
    assert (len(texts), saying) == (100, 75 if "--sync" in more else 0)


@pytest.mark.parametrize("profile", (CLASSIC, HARDENED), ids=lambda profile: profile.name)
def test_puts_wait_for_disk_and_slave_together(start: Start, tmp_path: Path, profile: Profile) -> None:
    """HA-G-42, HA-G-43: all end with PUT_OK if both succeed; more are in flight than one turn of the loop puts."""
    waiting = ("--put", 3000, "--in-flight", 1000, "--flush", "sync", "--await-slaves", 1, "--profile", profile.name, *PATIENT)
    master = start(*serving(tmp_path / "m", *waiting))
    address = master.line("listening")
    start("slave", "--store", tmp_path / "s", "--master", address, "--file-size", FILE_SIZE, "--profile", profile.name)
    found = master.words("put")
    assert (found["put"], sum(int(count) for status, count in found.items() if status.isupper())) == ("3000", 3000)
    if profile is HARDENED:  # in classic five reports can end a put (HA-G-15)
        assert found["PUT_OK"] == "3000"


@pytest.mark.parametrize("flush", ("async", "sync"))
def test_thousands_of_waiting_puts_end_when_a_master_is_stopped(start: Start, tmp_path: Path, flush: str) -> None:
    """HA-G-6 "Every waiting put MUST end exactly once": the slave acknowledges the first message and falls silent."""
    waiting = ("--put", 10**6, "--in-flight", 4000, "--await-slaves", 1, "--flush", flush)
    patient = ("--sync-flush-timeout", 10**6, "--ha-housekeeping-interval", 10**6, "--write-stall-deadline", 1000)
    master = start(*serving(tmp_path / "m", *waiting, *patient))
    host, _, port = master.line("listening").rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as slave:
        slave.sendall(REPORT.pack(0))
        size = HEADER.unpack(received(slave, HEADER.size))[1]
        received(slave, size)
        slave.sendall(REPORT.pack(size))
        wait_for(lambda: waiting_puts(tmp_path / "m") == 4000)
        master.process.send_signal(signal.SIGTERM)
        found = master.words("put")
    assert int(found["FLUSH_SLAVE_TIMEOUT"]) == 4000
    assert found["put"] == str(sum(int(count) for status, count in found.items() if status.isupper())) == "4000"
    assert found["unwaited"] == "1"
    assert master.end() == 0
    with CommitLog.open(tmp_path / "m") as log:
        assert sum(1 for _ in log.records()) == 4001


def received(sock: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        data += (found := sock.recv(nbytes - len(data)))
        assert found
    return data


def waiting_puts(store: Path) -> int:
    found = invoke("status", str(store), "--json")
    return int(json.loads(found.stdout)["waiting_puts"]) if found.exit_code == 0 else -1


def test_a_slaves_role_is_no_masters(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "master", "--store", str(tmp_path / "m"), "--role", "SLAVE"],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    expected = (
        "rocketmq-ha: role SLAVE: expected ASYNC_MASTER or SYNC_MASTER for `rocketmq-ha master`; see `rocketmq-ha slave`\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    assert not (tmp_path / "m").exists()


def test_a_message_is_told_not_to_wait_whatever_else_it_says() -> None:
    assert without_wait(MESSAGE) == NO_WAIT
    assert without_wait(Message("t", b"", properties_string="KEYS\x017")).properties_string == "KEYS\x017\x02WAIT\x01false"
