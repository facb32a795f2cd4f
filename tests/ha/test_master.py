"""Clauses of chapter 2 (the master's end of a connection) that no other test checks."""

import errno
import os
import resource
import socket
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.cli.master import master as master_command
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.net.link import MAX_REPORTS_TURN
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import events, master, wire
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec import constants
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

ALL = 1 << 18
FILE_SIZE = 1000
PROFILES = pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
PUT = events.Put("T", bytes(8), "", 0, False)  # 100 bytes


def message(size: int = 8) -> Message:
    return Message("T", bytes(size))


# --- Settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, 4_194_293])
def test_a_batch_that_no_link_can_carry_is_refused_before_the_master_starts(net: Any, size: int) -> None:
    """HA-M-38 "A ha_transfer_batch_size below 1, or above the read buffer of a slave less the 12 bytes of a header"."""
    with pytest.raises(ConfigInvalid, match=rf"^batch size {size} \(--ha-transfer-batch-size\): expected 1 to 4194292 bytes"):
        net.serve(HARDENED, Settings(FILE_SIZE, ha_transfer_batch_size=size))


def test_the_largest_batch_that_a_slave_takes_is_served(net: Any) -> None:
    net.serve(HARDENED, Settings(FILE_SIZE, ha_transfer_batch_size=4_194_292))


@pytest.mark.parametrize(("heartbeat_ms", "warns"), [(5_000, False), (18_999, False), (19_000, True), (20_000, True)])
def test_intervals_that_close_idle_connections_are_warned_of(
    net: Any, caplog: pytest.LogCaptureFixture, heartbeat_ms: int, warns: bool
) -> None:
    """HA-T-6 "SHOULD be less than the housekeeping interval of the other, by more than a second"."""
    net.serve(HARDENED, Settings(FILE_SIZE, ha_send_heartbeat_interval_ms=heartbeat_ms))
    assert ("again and again" in caplog.text) == warns


# --- Accept ----------------------------------------------------------------------------------------------------------


def test_the_port_is_10912_unless_another_is_asked_for() -> None:
    """HA-M-14 "a port of its own, ha_listen_port, 10912 by default"."""
    (listen,) = [option for option in master_command.params if option.name == "listen"]
    assert listen.default == f"127.0.0.1:{constants.HA_LISTEN_PORT}" == "127.0.0.1:10912"


def test_sockets_do_not_block_nor_delay_nor_linger(net: Any) -> None:
    """HA-M-15 "The listening socket MUST be non-blocking"; HA-M-17 "with TCP_NODELAY set and without lingering on close"."""
    serving = net.serve(HARDENED)
    net.connect(serving)
    listener, (accepted,) = serving._listeners._plain, serving._links
    assert listener is not None
    assert not listener.getblocking()
    assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) != 0
    assert not accepted.getblocking()
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    assert struct.unpack("ii", accepted.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))[0] == 0


def test_each_socket_has_a_connection_of_its_own_and_its_own_place_in_the_log(net: Any) -> None:
    """HA-M-16 "Each accepted socket MUST become one connection"; HA-M-21 "each from its own place in the log"."""
    serving = net.serve(HARDENED)
    for _ in range(4):
        serving.put(message(), wait=False)
    data = bytes(serving.service.log.data_at(0, 400))
    places = (100, 350, 1)
    socks = [net.connect(serving) for _ in places]
    silent = net.connect(serving)
    assert len(set(map(id, serving.service.connections))) == len(serving.service.connections) == 4
    for sock, place in zip(socks, places, strict=True):
        sock.sendall(REPORT.pack(place))
    for sock, place in zip(socks, places, strict=True):
        assert net.receive(sock, serving, 12 + 400 - place) == HEADER.pack(place, 400 - place) + data[place:]
    silent.setblocking(False)
    with pytest.raises(BlockingIOError):  # the reports of the others do not affect it
        silent.recv(1)


def test_an_accept_that_fails_leaves_the_others_and_the_service_as_they_are(net: Any) -> None:
    """HA-M-20 "MUST NOT touch the other connections, nor end the service": the process runs out of descriptors, then has one
    again.
    """
    serving = net.serve(HARDENED)
    serving.put(message(), wait=False)
    first = net.connect(serving)
    late = socket.create_connection(serving.address, timeout=PATIENCE_S)  # it is in the listener's backlog
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 32, hard))
        while True:
            try:
                taken.append(os.dup(late.fileno()))
            except OSError as error:
                assert error.errno == errno.EMFILE
                break
        for _ in range(3):
            serving.poll(5)
        assert len(serving.service.connections) == 1
        first.sendall(REPORT.pack(0))
        assert len(net.receive(first, serving, 112)) == 112
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_for(lambda: len(serving.service.connections) == 2, lambda: serving.poll(5))
    late.close()


# --- Read side -------------------------------------------------------------------------------------------------------


def test_a_part_of_a_report_is_a_sign_of_life(worlds: Any) -> None:
    """HA-M-23 "A read that returns bytes MUST set last_read_timestamp, whether or not they complete a report"."""
    for nbytes, lives in ((0, False), (3, True)):
        both = worlds(CLASSIC)
        both.happens(events.Connect(0, ALL, ALL), events.Tick(15_000), events.DeliverReports(0, nbytes), events.Tick(5_001))
        assert (both.link() is not None) == lives
        assert not lives or both.link().conn.slave_ack_offset == -1


# --- Write side ------------------------------------------------------------------------------------------------------


@PROFILES
def test_the_start_is_fixed_when_the_first_report_is_found_and_not_when_data_is(profile: Profile, worlds: Any) -> None:
    """HA-M-27 "from then on only frames move next_transfer_from_where": the last file was file 0 at the first report, and is a
    later one at the first data.
    """
    both = worlds(profile)
    both.happens(events.Connect(0, 0, ALL), events.Tick(5001), events.DeliverReports(0, ALL))
    assert both.link().conn.next_transfer_from_where == 0
    both.happens(*[PUT] * 12)
    assert len(both.cluster.log.data) > FILE_SIZE
    both.happens(events.Grant(0, ALL))
    both.settle()
    assert both.cluster.slaves[0].log.data == both.cluster.log.data


@PROFILES
@pytest.mark.parametrize("waited_ms", [5000, 5001])
def test_a_first_report_after_the_interval_is_answered_with_a_heartbeat_before_data(
    waited_ms: int, profile: Profile, worlds: Any
) -> None:
    """HA-M-40 "MUST set its last_read_timestamp and its last_write_timestamp to now": the accept counts as a write."""
    both = worlds(profile)
    both.happens(
        events.Tick(60_000),
        PUT,
        events.Connect(0, ALL, ALL),
        events.Tick(waited_ms),
        events.ForgeReport(0, 0),
        events.DeliverReports(0, ALL),
    )
    beat = wire.pack_header(0, 0) if waited_ms > 5000 else b""
    assert both.link().to_slave[: len(beat) + 12] == beat + wire.pack_header(0, 100)


@PROFILES
def test_the_silence_of_a_peer_counts_from_its_accept(profile: Profile, worlds: Any) -> None:
    """HA-M-40 "MUST set its last_read_timestamp": a peer that never reports is closed after the whole interval."""
    both = worlds(profile)
    both.happens(events.Tick(60_000), events.Connect(0, ALL, ALL), events.Tick(20_000))
    assert both.link() is not None
    both.happens(events.Tick(1))
    assert both.link() is None


def test_a_byte_that_is_taken_puts_the_next_heartbeat_off_and_a_write_that_takes_none_does_not(tmp_path: Path) -> None:
    """HA-M-34 "at least one byte MUST set last_write_timestamp", in both worlds."""
    settings = Settings(FILE_SIZE)
    fifty = Log(FILE_SIZE, 0, bytes(50))
    modelled = master.on_reports(master.on_accept(0).state, bytes(8), fifty, 0, settings, HARDENED).state
    with CommitLog.open(tmp_path / "store", file_size=FILE_SIZE) as log:
        log.append_data(0, [bytes(50)])
        conn = MasterConnection("slave", log, 0, settings, HARDENED)
        conn.recv_buffer()[:8] = bytes(8)
        conn.on_reports(8, 0)
        for now_ms, room in ((1000, 0), (2000, 1), (3000, 0), (4000, 15), (4500, 0), (4900, ALL)):
            before = modelled.last_write_timestamp
            modelled = master.on_transfer(modelled, fifty, room, now_ms, settings).state
            conn.on_transferred(min(room, sum(map(len, conn.on_transfer(now_ms)))), now_ms)
            assert conn.last_write_timestamp == modelled.last_write_timestamp == (now_ms if room else before)
        conn.close("end")


@pytest.mark.parametrize("offset", [5000, -5, 1 << 62])
def test_where_the_log_has_no_byte_there_are_heartbeats_alone(offset: int, worlds: Any) -> None:
    """HA-M-35 "the slave gets only heartbeats"."""
    both = worlds(CLASSIC, ha_housekeeping_interval_ms=1 << 40)
    both.happens(PUT, events.Connect(0, ALL, ALL), events.ForgeReport(0, offset), events.DeliverReports(0, ALL))
    assert both.link().to_slave == b""
    for beats in range(1, 4):
        both.happens(PUT, events.Tick(5001))
        assert both.link().to_slave == wire.pack_header(offset, 0) * beats


def test_a_deleted_offset_is_served_heartbeats_alone() -> None:
    """HA-M-35 "deleted, beyond the end or negative", in both worlds."""

    class FromTheSecondFileOn:
        min_offset, max_offset = FILE_SIZE, FILE_SIZE + 100

        def data_at(self, offset: int, limit: int) -> memoryview | None:
            return memoryview(bytes(min(limit, 100))) if offset == FILE_SIZE else None

    settings = Settings(FILE_SIZE)
    log = Log(FILE_SIZE, FILE_SIZE, bytes(100))
    for request, found in ((10, HEADER.pack(10, 0)), (FILE_SIZE, HEADER.pack(FILE_SIZE, 0))):
        modelled = master.on_reports(master.on_accept(0).state, REPORT.pack(request), log, 0, settings, CLASSIC).state
        conn = MasterConnection("slave", FromTheSecondFileOn(), 0, settings, CLASSIC)
        conn.recv_buffer()[:8] = REPORT.pack(request)
        conn.on_reports(8, 0)
        step = master.on_transfer(modelled, log, ALL, 5001, settings)
        sent = b"".join(output.data for output in step.outputs)  # type: ignore[union-attr]
        assert b"".join(conn.on_transfer(5001)) == sent
        assert sent[:12] == found
        assert len(sent) == (12 if request == 10 else 12 + 112)


def test_what_is_put_is_sent_in_the_next_turn(net: Any) -> None:
    """HA-M-32 "Every put MUST wake the write sides", also one that does not wait for a slave."""
    serving = net.serve(HARDENED)
    sock = net.connect(serving)
    sock.sendall(REPORT.pack(0))
    wait_for(lambda: serving.service.count_connected() == 1, lambda: serving.poll(5))
    for index in range(3):
        serving.put(message(), wait=False)
        serving.poll(0)
        assert sock.recv(112, socket.MSG_WAITALL)[:12] == HEADER.pack(100 * index, 100)


def test_a_master_sends_what_its_disk_does_not_have(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-M-29 "MAY send bytes that are not yet on its own disk"."""
    flushed: list[MappedFile] = []
    serving = net.serve(HARDENED)
    monkeypatch.setattr(MappedFile, "flush", lambda file, *_: flushed.append(file))
    sock = net.connect(serving)
    sock.sendall(REPORT.pack(0))
    serving.put(message(), wait=False)
    assert len(net.receive(sock, serving, 112)) == 112
    assert not any(file in flushed for file in serving.service.log.queue.files)


def test_a_frame_is_sent_behind_a_frame_without_a_report_between(worlds: Any) -> None:
    """HA-M-28 "MUST NOT wait for a report between two frames"."""
    both = worlds(HARDENED, ha_transfer_batch_size=10)
    both.happens(PUT, events.Connect(0, ALL, ALL), events.DeliverReports(0, 8))
    assert len(both.link().to_slave) == 10 * (12 + 10)


# --- Life ------------------------------------------------------------------------------------------------------------


def test_a_master_that_nobody_talks_to_looks_at_the_time(net: Any) -> None:
    """HA-M-25 "An idle side MUST look at the time at least once a second", however long its caller allows it to wait."""
    serving = net.serve(HARDENED, Settings(FILE_SIZE, ha_housekeeping_interval_ms=100))
    took_s = []
    while not took_s or (took_s[-1] > 2 and len(took_s) < 3):  # it takes longer where the machine stands still
        sock = net.connect(serving)
        begun = time.monotonic()
        while serving.service.connections:
            serving.poll(60_000)
        took_s.append(time.monotonic() - begun)
        assert sock.recv(1) == b""
    assert took_s[-1] < 2


def test_one_end_that_ends_ends_the_other_and_nothing_is_kept(net: Any) -> None:
    """HA-M-36 "take the connection off the list, close its socket and release the bytes of the log that it holds"."""
    serving = net.serve(HARDENED, Settings(FILE_SIZE, ha_transfer_batch_size=900))
    sock = net.connect(serving)
    conn = serving.service.connections[0]
    (accepted,) = serving._links
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    for _ in range(2000):
        serving.put(message(800), wait=False)
    sock.sendall(REPORT.pack(1))
    wait_for(lambda: not conn.last_write_over, lambda: serving.poll(5))  # the peer reads nothing: a frame is stuck
    sock.shutdown(socket.SHUT_WR)  # it can send no more reports, but could still receive
    wait_for(lambda: not serving.service.connections, lambda: serving.poll(5))
    assert conn.last_write_over
    assert accepted.fileno() == -1
    assert serving._links == {}


def test_a_master_that_shuts_down_closes_every_connection_and_its_listener(net: Any) -> None:
    """HA-M-37 "MUST close every connection and its listening socket"."""
    serving = net.serve(HARDENED)
    socks = [net.connect(serving) for _ in range(3)]
    address, accepted = serving.address, list(serving._links)
    serving.close()
    assert [sock.fileno() for sock in accepted] == [-1] * 3
    for sock in socks:
        assert sock.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=PATIENCE_S)


def test_a_connection_is_in_the_list_for_as_long_as_it_lasts(net: Any) -> None:
    """HA-M-19 "from its accept until it is closed, and no longer", whichever end closes it, for any reason."""
    serving = net.serve(HARDENED)
    for end in ("close", "reset", "report"):
        sock = net.connect(serving)
        assert len(serving.service.connections) == 1
        if end == "report":
            sock.sendall(REPORT.pack(-1))
        else:
            linger = struct.pack("ii", end == "reset", 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            sock.close()
        wait_for(lambda: not serving.service.connections, lambda: serving.poll(5))


def test_a_report_is_handed_on_before_the_next_read(worlds: Any) -> None:
    """HA-M-24 "MUST be handed to the group transfer before the next read": the bad report after it comes too late to matter."""
    both = worlds(HARDENED, master_read_buffer_size=8)  # one report in each read
    both.happens(events.Connect(0, ALL, ALL), events.DeliverReports(0, 8), events.Put("T", bytes(8), "", 0, False))
    both.settle()  # the slave has acknowledged something, and counts (HA-G-5)
    both.happens(events.Put("T", bytes(8), "", 0, True), events.DeliverFrames(0, ALL))
    both.happens(events.ForgeReport(0, 10_000), events.DeliverReports(0, 16))
    assert [(done.next_offset, done.status) for done in both.cluster.done] == [(200, "PUT_OK")]
    assert both.link() is None


def test_reports_of_more_than_a_turn_are_all_read(worlds: Any) -> None:
    """HA-M-54: the next turn reads the rest: both worlds end with the last of 3,000 reports (in classic one for each byte)."""
    both = worlds(CLASSIC, mapped_file_size=8192, ha_transfer_batch_size=1, master_read_buffer_size=4096)
    both.happens(events.Put("T", bytes(3000), "", 0, False), events.Connect(0, ALL, ALL), events.Tick(5001))
    both.happens(events.DeliverReports(0, ALL), events.DeliverFrames(0, ALL))
    assert len(both.link().to_master) > MAX_REPORTS_TURN
    cluster = both.happens(events.DeliverReports(0, ALL))
    assert cluster.push2_slave_max_offset == both.link().conn.slave_ack_offset > 3000
