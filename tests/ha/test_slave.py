"""Clauses of chapter 3 (the slave's end of a connection) that no other test checks."""

import errno
import itertools
import os
import random
import socket
import struct
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kit.waiting import PATIENCE_S, accepted, await_end, wait_for
from rocketmq_ha.impl.errors import AppendFailed, PeerViolation, StoreCorrupt
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net import back_off as back_off_module
from rocketmq_ha.impl.net import client as client_module
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.reference import events, slave, store, wire
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

ALL = 1 << 18
FILE_SIZE = 1000
MIB = 1 << 20
PROFILES = pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
PUT = events.Put("T", bytes(8), "", 0, False)  # 100 bytes


# --- Connecting ------------------------------------------------------------------------------------------------------


def test_the_slaves_socket_does_not_block_nor_delay_nor_linger(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-S-20 "MUST be non-blocking once connected, with TCP_NODELAY set and without lingering on close"."""
    seen: list[tuple[bool, int, int]] = []
    on_connect = client_module.SlaveLink.on_connect

    def look(link: client_module.SlaveLink, now_ms: int) -> None:
        sock = link.sock
        assert isinstance(sock, socket.socket)
        linger = struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))[0]
        seen.append((sock.getblocking(), sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), linger))
        on_connect(link, now_ms)

    monkeypatch.setattr(client_module.SlaveLink, "on_connect", look)
    listener = net.listener()
    net.follow(listener.getsockname()[1], HARDENED)
    accepted(listener).close()
    wait_for(lambda: seen)
    assert seen[0][0] is False
    assert seen[0][1] != 0
    assert seen[0][2] == 0


def test_a_slave_has_one_connection_at_a_time(net: Any) -> None:
    """HA-S-19 "A slave MUST NOT hold more than one connection": the next one begins when the one before has ended."""
    listener = net.listener()
    net.follow(listener.getsockname()[1], HARDENED)
    for _ in range(3):
        held = accepted(listener)
        listener.settimeout(0.3)
        with pytest.raises(TimeoutError):
            accepted(listener)
        listener.settimeout(20)
        held.close()


def test_a_connect_while_connected_is_none(worlds: Any) -> None:
    """HA-S-19 "MUST NOT hold more than one connection", in both worlds."""
    both = worlds(HARDENED)
    before = both.happens(events.Connect(0, ALL, ALL))
    assert both.happens(events.Connect(0, ALL, ALL)) == before
    assert len(before.links) == 1


def pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tries: int, seed: int) -> list[float]:
    """The pauses of a slave before each retry of an absent master, measured by a simulated clock."""
    now, tried, timeouts = 0.0, [], set()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def create_connection(_address: object, timeout: float, _source_address: object) -> socket.socket:
        tried.append(now)
        timeouts.add(timeout)
        raise ConnectionRefusedError

    monkeypatch.setattr(back_off_module, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(socket, "create_connection", create_connection)
    random.seed(seed)
    with CommitLog.open(tmp_path / f"{seed}", file_size=FILE_SIZE) as log:
        Follower(log, "127.0.0.1", 9, Settings(FILE_SIZE), HARDENED).run(lambda: len(tried) > tries)
    monkeypatch.undo()
    assert timeouts == {5.0}
    return [later - earlier for earlier, later in itertools.pairwise(tried)]


def test_a_slave_waits_longer_and_longer_but_five_seconds_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HA-S-25 "longer after each one that brought nothing, with jitter, and 5 s at most"."""
    waits = [pauses(monkeypatch, tmp_path, 40, seed) for seed in range(5)]
    assert all(min(each) > 0 for each in waits)
    assert max(map(max, waits)) < 5.001
    for each in waits:
        assert each[0] < 0.1
        assert each[8] > 1
        assert sum(each[:4]) < sum(each[4:8]) < sum(each[8:12])
    assert len({tuple(each) for each in waits}) == 5  # no two slaves retry at the same times


def test_a_connect_is_given_up_after_five_seconds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """HA-S-22 "that has not succeeded after 5 s MUST be given up", and tried again. Here the limit is 0.2 s, to save time."""
    assert client_module.CONNECT_TIMEOUT_S == 5.0
    monkeypatch.setattr(client_module, "CONNECT_TIMEOUT_S", 0.2)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    tried: list[float] = []
    stop = time.monotonic() + PATIENCE_S
    queued = [socket.socket() for _ in range(8)]  # they fill the backlog, so that the next connect is not answered
    for sock in queued:
        sock.setblocking(False)
        sock.connect_ex(listener.getsockname())
    connect = socket.create_connection

    def create_connection(address: tuple[str, int], timeout: float, source_address: tuple[str, int] | None) -> socket.socket:
        begun = time.monotonic()
        try:
            return connect(address, timeout, source_address)
        finally:
            tried.append(time.monotonic() - begun)

    monkeypatch.setattr(socket, "create_connection", create_connection)
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        follower = Follower(log, *listener.getsockname(), Settings(FILE_SIZE), HARDENED)
        follower.run(lambda: len(tried) >= 2 or time.monotonic() > stop)
    for sock in (*queued, listener):
        sock.close()
    assert len(tried) >= 2
    assert min(tried) > 0.15 and min(tried) < 4.9


# --- Reports ---------------------------------------------------------------------------------------------------------


@PROFILES
def test_a_report_of_growth_puts_the_next_one_by_time_off(profile: Profile, worlds: Any) -> None:
    """HA-S-27 "MUST set last_write_timestamp, whichever of its reasons it has"; HA-T-1 "strictly more than its length"."""
    both = worlds(profile)
    both.happens(events.Connect(0, ALL, ALL), events.Tick(5001))
    both.settle()
    both.happens(events.Tick(3000), PUT)
    both.settle()  # the slave reports 100 now, 3 s after its last report
    both.happens(events.Tick(5000))
    assert both.link().to_master == b""
    both.happens(events.Tick(1))
    assert both.link().to_master == REPORT.pack(100)


@PROFILES
def test_heartbeats_and_parts_of_frames_are_not_answered(profile: Profile, worlds: Any) -> None:
    """HA-S-28 "MUST NOT report for any reason but these": an interval, growth, a connect in hardened."""
    both = worlds(profile, ha_send_heartbeat_interval_ms=1000)
    both.happens(events.Connect(0, ALL, ALL))
    assert len(both.link().to_master) == (8 if profile is HARDENED else 0)
    both.happens(events.Tick(1001))
    both.settle()
    both.happens(PUT, events.DeliverFrames(0, 111))  # all but its last byte
    assert both.link().to_master == b""
    both.settle()
    both.happens(events.Tick(1001), events.DeliverReports(0, ALL))  # the report by time arrives, the heartbeat is under way
    assert both.link().to_slave == wire.pack_header(100, 0)
    both.happens(events.DeliverFrames(0, ALL))
    assert both.link().to_master == b""


# --- Frames ----------------------------------------------------------------------------------------------------------


@PROFILES
def test_the_largest_body_of_the_default_buffer_is_four_mebibytes_less_a_header(profile: Profile, tmp_path: Path) -> None:
    """HA-S-32 "The read buffer MUST hold 4 MiB by default": that body is appended, and one byte more cannot be."""
    settings = Settings(8 * MIB)
    for size in (4 * MIB - 12, 4 * MIB - 11):
        stream = HEADER.pack(0, size) + bytes(size)
        node = slave.on_frames(Slave(Log(8 * MIB), connected=True), stream, 8, 0, settings, profile).state
        with CommitLog.open(tmp_path / f"{size}", file_size=8 * MIB) as log:
            client = SlaveClient("master", log, settings, profile)
            client.on_connect(0)
            at, refused = 0, ""
            while at < len(stream) and not (refused or client.stalled):
                buffer = client.recv_buffer()
                taken = stream[at : at + len(buffer)]
                buffer[: len(taken)] = taken
                at += len(taken)
                client.on_frames(len(taken), 0)
                try:
                    while client.dispatch():
                        pass
                except PeerViolation as violation:
                    refused = violation.clause
            assert log.max_offset == store.max_offset(node.log) == (size if size == 4 * MIB - 12 else 0)
            ending = "" if log.max_offset else "frame" if refused == "HA-S-11" else "stalled" if client.stalled else "?"
            assert node.close_reason == ending


def test_an_append_that_fails_shows_in_the_header_behind_it(tmp_path: Path) -> None:
    """HA-S-33 "does not look at the outcome of an append": 100 bytes do not fit into the last 50 of the file."""
    settings = Settings(FILE_SIZE)
    crossing, behind = HEADER.pack(950, 100) + bytes(100), HEADER.pack(1050, 1) + b"x"
    node = Slave(Log(FILE_SIZE, 0, bytes(950)), connected=True, current_reported_offset=950)
    node = slave.on_frames(node, crossing, 8, 0, settings, CLASSIC).state
    assert (node.connected, store.max_offset(node.log), slave.unparsed(node)) == (True, 950, b"")
    assert slave.on_frames(node, behind, 8, 0, settings, CLASSIC).state.close_reason == "offset"
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        log.append_data(0, [bytes(950)])
        client = SlaveClient("master", log, settings, CLASSIC)
        client.on_connect(0)
        for stream in (crossing, behind):
            client.recv_buffer()[: len(stream)] = stream
            client.on_frames(len(stream), 0)
            if stream is crossing:
                assert client.dispatch() is None
                assert (log.max_offset, client.unparsed) == (950, b"")
            else:
                with pytest.raises(PeerViolation, match="HA-S-4"):
                    client.dispatch()


@pytest.mark.parametrize("at", [0, 950, FILE_SIZE])
def test_a_slave_whose_disk_fails_stops_and_says_where(
    at: int, net: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """HA-S-34 "MUST stop with an error that names the file and the offset": before its first file, in it, and after it."""
    listener = net.listener()
    overlap = HEADER.pack(1, at - 1) + bytes(at - 1) if at else b""  # HA-S-61: the slave compares its last bytes first
    frames = overlap + HEADER.pack(at, 10) + bytes(10) + HEADER.pack(at + 10, 20) + bytes(20)

    def serve() -> None:
        peer = accepted(listener)
        peer.sendall(frames)
        peer.settimeout(20)
        while peer.recv(100):
            pass
        peer.close()

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    with CommitLog.open(tmp_path / "full", file_size=FILE_SIZE) as log:
        if at:
            log.append_data(0, [bytes(at)])
        monkeypatch.setattr(os, "pwritev", broken)
        with pytest.raises(AppendFailed) as stopped:
            Follower(log, *listener.getsockname(), Settings(FILE_SIZE), HARDENED).run(lambda: False)
        monkeypatch.undo()
        assert log.max_offset == at
    await_end(serving)
    assert stopped.value.offset == at
    assert f"{at - at % FILE_SIZE:020d}: append at commit-log offset {at}: Input/output error" in str(stopped.value)


@PROFILES
def test_a_write_that_fails_is_acknowledged_in_classic_alone(
    profile: Profile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """HA-S-37 "counts an append whose write fails as done"; HA-S-38 "MUST NOT count the bytes as part of its log", on disk."""
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        client = SlaveClient("master", log, Settings(FILE_SIZE), profile)
        client.on_connect(0)
        sent = HEADER.pack(0, 30) + b"x" * 30
        client.recv_buffer()[: len(sent)] = sent
        client.on_frames(len(sent), 0)
        monkeypatch.setattr(os, "pwritev", broken)
        if profile is CLASSIC:
            assert client.dispatch() == REPORT.pack(30)
            monkeypatch.undo()
            assert bytes(log.data_at(0, 100) or b"") == bytes(30)
        else:
            with pytest.raises(AppendFailed):
                client.dispatch()
            monkeypatch.undo()
            assert (log.max_offset, client.report_slave_max_offset_plus()) == (0, None)


@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "cut"])
def test_classic_counts_no_failed_write_into_a_file_that_was_removed_or_cut(is_removed: bool, tmp_path: Path) -> None:
    """HA-S-37 is about a write that the disk refuses. If the file itself is gone or truncated, classic stops with an error."""
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        client = SlaveClient("master", log, Settings(FILE_SIZE), CLASSIC)
        client.on_connect(0)
        log.append_data(0, [bytes(30)])
        [file] = log.queue.files
        if is_removed:
            file.path.unlink()
        else:
            os.truncate(file.path, 0)
        for count in (
            lambda: log.count_as_written(30, 20),
            lambda: receive(client, HEADER.pack(30, 20) + bytes(20)),
        ):
            with pytest.raises((FileNotFoundError, AppendFailed) if is_removed else StoreCorrupt, match=str(file.path)):
                count()
            assert log.max_offset == 30


def receive(client: SlaveClient, sent: bytes) -> None:
    client.recv_buffer()[: len(sent)] = sent
    client.on_frames(len(sent), 0)
    client.dispatch()


@PROFILES
def test_a_put_waits_in_vain_for_a_slave_whose_disk_is_full(profile: Profile, worlds: Any) -> None:
    """HA-S-38 "MUST NOT report any of them", in both worlds; HA-S-37 "it reports them"."""
    both = worlds(profile)
    both.happens(PUT, events.Connect(0, ALL, ALL), events.Tick(5001))
    both.settle()
    both.happens(events.DiskFull(0, True), events.Put("T", bytes(8), "", 0, True))
    both.happens(events.DeliverFrames(0, ALL))
    statuses = [done.status for done in both.happens(events.DeliverReports(0, ALL)).done]
    held = both.cluster.slaves[0].log.data
    if profile is CLASSIC:
        assert (statuses, held[100:]) == (["PUT_OK"], bytes(100))
    else:
        assert (statuses, held, both.cluster.slaves[0].close_reason) == ([], both.cluster.log.data[:100], "disk_full")


def broken(*_: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("size", [-1, -12, -(1 << 31), (1 << 31) - 1, (1 << 31) - 12])
def test_a_size_that_no_array_has_leaves_a_classic_slave_deaf(size: int, worlds: Any) -> None:
    """HA-S-36 "until its connection ends, it reports when its interval has passed, and takes no frame"."""
    both = worlds(CLASSIC)
    both.happens(PUT, events.Connect(0, ALL, ALL), events.Tick(5001))
    both.settle()
    both.happens(events.ForgeHeader(0, size), PUT, events.DeliverFrames(0, ALL))
    assert len(both.cluster.slaves[0].log.data) == 100
    both.happens(events.Tick(5001), events.DeliverFrames(0, ALL))
    assert both.link().to_master == REPORT.pack(100)
    both.happens(events.Cut(0, "both"), events.Connect(0, ALL, ALL), events.Tick(5001))
    both.settle()
    assert both.cluster.slaves[0].log.data == both.cluster.log.data


# --- Life ------------------------------------------------------------------------------------------------------------


@PROFILES
def test_half_a_frame_does_not_outlive_its_connection(profile: Profile, worlds: Any) -> None:
    """HA-S-13 "MUST drop the unparsed bytes and set dispatch_position to 0": the master sends the whole frame again on the next
    connection.
    """
    both = worlds(profile)
    both.happens(
        PUT,
        events.Connect(0, ALL, ALL),
        events.Tick(5001),
        events.DeliverReports(0, ALL),
        events.DeliverFrames(0, 12 + 12 + 50),
    )
    assert slave.unparsed(both.cluster.slaves[0]) != b""
    node = both.happens(events.Cut(0, "both")).slaves[0]
    assert (slave.unparsed(node), node.dispatch_position) == (b"", 0)
    both.happens(events.Connect(0, ALL, ALL), events.Tick(5001))
    both.settle()
    assert both.cluster.slaves[0].log.data == both.cluster.log.data


def test_an_idle_slave_looks_at_the_time(net: Any) -> None:
    """HA-S-35 "MUST look at the time at least once a second": it notices a silent master, and reports while it waits.

    Where the machine stands still it may take longer, so one of three connections is to end in time.
    """
    listener = net.listener()
    settings = Settings(FILE_SIZE, ha_send_heartbeat_interval_ms=50, ha_housekeeping_interval_ms=400)
    net.follow(listener.getsockname()[1], HARDENED, settings)
    found = []
    for _ in range(3):
        with accepted(listener) as held:
            begun, data = time.monotonic(), b""
            while part := held.recv(100):
                data += part
        found.append((time.monotonic() - begun, len(data) // 8))
        if 0.3 < found[-1][0] < 2.4 and found[-1][1] >= 3:
            return
    pytest.fail(f"(seconds, reports) of each connection: {found}")
