"""What an open port meets: chapter 2's limits on a master, and chapter 3's on a slave. Time is told where it can be."""

import contextlib
import gc
import itertools
import logging
import os
import resource
import select
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_ha.impl.cli import main
from rocketmq_ha.impl.cli.limit_options import limits_from
from rocketmq_ha.impl.cli.replication import MASTER_READ_BUFFER_SIZE
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net import limits as limits_module
from rocketmq_ha.impl.net import server as server_module
from rocketmq_ha.impl.net.allowance import BURST_MS, Allowance
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.limits import HARDENED_LIMITS, LOOPBACK, Door, Limits, fit_descriptors, limits_of, parse_networks
from rocketmq_ha.impl.net.link import MAX_REPORTS_TURN, MasterLink, SlaveLink
from rocketmq_ha.impl.net.peer_log import LINES, WINDOW_MS, PeerLog
from rocketmq_ha.impl.net.server import ACCEPTS_TURN, BACKLOG, NO_DESCRIPTORS_MS, Master, listen
from rocketmq_ha.impl.store.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference.events import Connect, DeliverFrames, DeliverReports, Put, Tick
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings

ALL = 1 << 18

MIB = 1024 * 1024
PATIENCE_S = 20


class Clock:
    """The master's clock, which stands still unless it is moved."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server_module, "clock_ms", clock)
    return clock


Serve = Callable[..., Master]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Serves a log of zeros; what the limits do not say is without limit."""
    opened: list[tuple[Master, CommitLog]] = []

    def start(limits: Limits, size: int = 0, send_buffer: int | None = None) -> Master:
        log = CommitLog.open(tmp_path / "m", file_size=4 * MIB)
        if size:
            log.append_data(0, [memoryview(bytes(size))])
        listener = listen("127.0.0.1", 0)
        if send_buffer:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        settings = Settings(4 * MIB, master_read_buffer_size=MASTER_READ_BUFFER_SIZE)
        opened.append((Master(log, listener, settings, HARDENED, limits), log))
        return opened[-1][0]

    yield start
    for master, log in opened:
        master.close()
        log.close()


def connect(master: Master, host: str = "127.0.0.1", receive_buffer: int | None = None) -> socket.socket:
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.bind((host, 0))
    sock.settimeout(PATIENCE_S)
    sock.connect(master.address)
    return sock


def polled(master: Master, times: int = 5) -> None:
    for _ in range(times):
        master.poll(5)


def until_blocked(master: Master, link: MasterLink) -> None:
    until = time.monotonic() + PATIENCE_S
    while link.blocked_since_ms is None or select.select([], [link.sock], [], 0.02)[1]:  # what it took may be on its way
        assert time.monotonic() < until, f"waited in vain: {link.conn.sent_offset} of {master.service.log.max_offset} sent"
        master.poll(5)


def is_closed(sock: socket.socket) -> bool:
    """Whether the master has closed; bytes that it has sent before are skipped."""
    sock.setblocking(False)
    try:
        while sock.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


# --- Who may come in -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("networks", "host", "may"),
    [
        (["10.1.0.0/16"], "10.1.255.255", True),
        (["10.1.0.0/16"], "10.2.0.0", False),
        (["10.1.0.0/16"], "::ffff:10.1.2.3", True),
        (["10.1.0.0/16"], "::ffff:10.2.2.3", False),
        (["10.1.0.0/16"], "::1", False),
        (["10.1.2.3"], "10.1.2.3", True),
        (["fd00::/8", "10.0.0.0/8"], "fd12::5", True),
        (["fe80::/10"], "fe80::1%eth0", True),
        (["::/0"], "10.0.0.1", False),
        (["0.0.0.0/0"], "203.0.113.9", True),
    ],
)
def test_a_network_admits_its_own_addresses(networks: list[str], host: str, may: bool) -> None:
    assert Door(Limits(allow=parse_networks(networks))).admits(host) is may


@pytest.mark.parametrize(("host", "may"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("10.0.0.1", False)])
def test_loopback_is_let_in_unless_more_is_said(host: str, may: bool) -> None:
    """HA-M-50 "loopback by default"; classic takes everybody, as RocketMQ does."""
    assert Door(limits_of(HARDENED)).admits(host) is may
    assert Door(limits_of(CLASSIC)).admits(host)


def test_a_stranger_is_closed_and_told_of_in_the_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-50 "MUST NOT serve a peer from outside the networks that it is told to allow"."""
    master = serve(Limits(allow=parse_networks(["127.0.0.2/32"])), 100)
    with connect(master, "127.0.0.1") as stranger, connect(master, "127.0.0.2") as known:
        for sock in (stranger, known):
            sock.sendall(REPORT.pack(0))
        polled(master)
        assert is_closed(stranger)
        assert len(known.recv(1 << 16)) == HEADER.size + 100
        assert master.door.refused == {"allow": 1}
    assert "127.0.0.1" in caplog.text
    assert "--allow" in caplog.text


def test_who_listens_for_strangers_and_lets_none_in_is_warned(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = parse_networks(["127.0.0.9"])  # so that 127.0.0.1 takes the place of an address that is not loopback
    monkeypatch.setattr(server_module, "LOOPBACK", elsewhere)
    serve(Limits(allow=elsewhere))
    assert "--allow NETWORK" in caplog.text


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0.1/8", "localhost", "", "::/129"])
def test_a_network_that_is_none_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="expected one as"):
        parse_networks([text])
    found = CliRunner().invoke(main, ["master", "--store", str(tmp_path / "new"), "--listen", "127.0.0.1:0", "--allow", text])
    assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1)
    assert repr(text) in found.stderr
    assert not (tmp_path / "new").exists()


def test_connections_beyond_the_caps_are_closed_at_once(serve: Serve) -> None:
    """HA-M-51 "MUST be closed as it is accepted, before anything is read from it"; a place that is left is taken again."""
    master = serve(Limits(max_connections=3, max_connections_per_address=2))
    with connect(master) as first, connect(master) as second, connect(master) as third:
        polled(master)
        assert [is_closed(sock) for sock in (first, second, third)] == [False, False, True]
        with connect(master, "127.0.0.2") as other, connect(master, "127.0.0.3") as beyond:
            polled(master)
            assert [is_closed(sock) for sock in (other, beyond)] == [False, True]
            assert master.door.refused == {"max_connections": 1, "max_connections_per_address": 1}
            first.close()
            polled(master)
            with connect(master) as again:
                polled(master)
                assert not is_closed(again)
                assert len(master.service.connections) == 3


def test_the_options_change_the_limits_of_the_profile() -> None:
    assert limits_from(HARDENED, (), None, None, None, None, None) == HARDENED_LIMITS
    assert limits_from(CLASSIC, (), None, None, None, None, None) == Limits()
    said = limits_from(CLASSIC, ("10.0.0.0/8",), 1, 2, 0.5, 2, 4096)
    assert said == Limits(1, 2, 500, 2000, parse_networks(["10.0.0.0/8"]), 4096)
    assert limits_from(HARDENED, (), 7, None, None, None, None).allow == LOOPBACK


# --- Deadlines -------------------------------------------------------------------------------------------------------


def test_who_has_not_reported_by_the_deadline_is_closed(serve: Serve, clock: Clock) -> None:
    """HA-M-52 "that has not sent a whole report report_deadline after its accept MUST be closed", be it ever so lively."""
    master = serve(Limits(report_deadline_ms=10_000), 100)
    with connect(master) as silent, connect(master) as dribbling, connect(master) as slave:
        polled(master)
        slave.sendall(REPORT.pack(0))
        for _ in range(5):
            dribbling.sendall(b"\0")
            clock.ms += 2000
            polled(master)
        assert [is_closed(sock) for sock in (silent, dribbling, slave)] == [False] * 3
        clock.ms += 1
        slave.sendall(REPORT.pack(0))  # else it is silent for too long by and by
        clock.ms += server_module.TICK_MS
        polled(master)
        assert [is_closed(sock) for sock in (silent, dribbling, slave)] == [True, True, False]


def test_who_takes_nothing_is_closed_and_who_stops_and_goes_on_is_not(serve: Serve, clock: Clock) -> None:
    """HA-M-53 "has taken no byte of a pending frame for more than write_stall_deadline", reports or not."""
    deadline_ms = 10_000
    master = serve(Limits(write_stall_deadline_ms=deadline_ms), 3 * MIB, send_buffer=4096)
    with connect(master, receive_buffer=4096) as sock:
        sock.sendall(REPORT.pack(0))
        polled(master)
        (link,) = master._links.values()
        read = 0
        for _ in range(5):
            until_blocked(master, link)
            clock.ms += deadline_ms - 1
            sock.sendall(REPORT.pack(0))
            polled(master)
            enough = read + MIB // 8  # more than all buffers hold
            sock.setblocking(False)
            while read < enough:
                try:
                    read += len(sock.recv(1 << 16))
                except BlockingIOError:
                    master.poll(5)
            until_blocked(master, link)
        assert clock.ms - 1_000_000 > 4 * deadline_ms
        assert not link.conn.close_reason
        clock.ms += deadline_ms + server_module.TICK_MS
        sock.sendall(REPORT.pack(0))
        polled(master)
        assert link.conn.close_reason == "write_stall"
        assert master.service.connections == []


# --- Turns -----------------------------------------------------------------------------------------------------------


def test_a_turn_accepts_a_few_and_leaves_the_others_for_the_next(serve: Serve) -> None:
    """HA-M-54 "In one turn of its loop a master MUST accept no more than 16 connections"."""
    master = serve(Limits())
    socks = [connect(master) for _ in range(2 * ACCEPTS_TURN + 1)]
    seen = []
    while len(master.service.connections) < len(socks):
        master.poll(5)
        seen.append(len(master.service.connections))
    assert seen[0] <= 16
    assert all(after - before <= 16 for before, after in itertools.pairwise(seen))
    for sock in socks:
        sock.close()


def test_connects_wait_for_their_accept(serve: Serve) -> None:
    """HA-M-63 "to keep 1,024 connects until it accepts them": of a burst nobody is sent away to try again a second later."""
    system = Path("/proc/sys/net/core/somaxconn")
    burst = 300  # more than the 128 that a listener has by itself
    if not system.exists() or int(system.read_text(encoding="ascii")) < burst:
        pytest.skip("the system keeps fewer connects, or does not say how many")
    assert BACKLOG == 1024
    master = serve(Limits())
    with contextlib.ExitStack() as stack:
        for _ in range(burst):
            stack.enter_context(connect(master))  # waits until it is connected, while the master does nothing
        until = time.monotonic() + PATIENCE_S
        while len(master.service.connections) < burst:
            assert time.monotonic() < until
            master.poll(5)


class Flood:
    """A socket whose peer sends the same report for ever."""

    def __init__(self) -> None:
        self.taken = 0

    def recv_into(self, buffer: memoryview, /) -> int:
        buffer[:] = bytes(len(buffer))
        self.taken += len(buffer)
        return len(buffer)


def test_a_flood_of_reports_ends_its_turn(tmp_path: Path) -> None:
    """HA-M-54 "nor read of one connection more than 16 KiB"."""
    with CommitLog.open(tmp_path, file_size=MIB) as log:
        service = HAService(log, Settings(MIB, master_read_buffer_size=4096), HARDENED)
        flood = Flood()
        link = MasterLink(flood, service.accept("flood", 0), service)  # type: ignore[arg-type]
        for turn in (1, 2):
            assert link.on_readable(0) is None
            assert flood.taken == turn * MAX_REPORTS_TURN == turn * 16 * 1024
        assert service.count_connected() == 1


def test_reports_of_more_than_a_turn_are_all_read(worlds: Any) -> None:
    """HA-M-54: what a turn leaves comes in the next: both worlds end with the last of 3,000 reports (classic: one a byte)."""
    both = worlds(CLASSIC, mapped_file_size=8192, ha_transfer_batch_size=1, master_read_buffer_size=4096)
    both.happens(Put("T", bytes(3000), "", 0, False), Connect(0, ALL, ALL), Tick(5001))
    both.happens(DeliverReports(0, ALL), DeliverFrames(0, ALL))
    assert len(both.link().to_master) > MAX_REPORTS_TURN
    cluster = both.happens(DeliverReports(0, ALL))
    assert cluster.push2_slave_max_offset == both.link().conn.slave_ack_offset > 3000


class Hungry:
    """The socket of a peer that takes all that it is sent, once it is `open`; before it takes any, it says so."""

    def __init__(self, sock: socket.socket, takes: Callable[[int], None]) -> None:
        self._sock, self._takes, self.open = sock, takes, False

    def recv_into(self, buffer: memoryview, /) -> int:
        return self._sock.recv_into(buffer)

    def sendmsg(self, buffers: list[memoryview], /) -> int:
        if not self.open:
            raise BlockingIOError
        nbytes = sum(map(len, buffers))
        self._takes(nbytes)
        return nbytes

    def close(self) -> None:
        self._sock.close()


def join(master: Master, offset: int, takes: Callable[[int], None]) -> tuple[socket.socket, MasterLink, Hungry]:
    """A peer that has reported where it wants to start, and takes nothing yet."""
    sock = connect(master)
    until = time.monotonic() + PATIENCE_S
    known = set(master._links)
    while not (new := set(master._links) - known):
        assert time.monotonic() < until
        master.poll(5)
    (at_master,) = new
    link = master._links[at_master]
    link.sock = hungry = Hungry(at_master, takes)
    sock.sendall(REPORT.pack(offset))
    while at_master not in master._reported:
        assert time.monotonic() < until
        master.poll(5)
    return sock, link, hungry


@pytest.mark.parametrize("batch_size", [32 * 1024, 4 * MIB], ids=["32 KiB", "4 MiB"])
@pytest.mark.parametrize("readers", [1, 2, 20])
def test_a_slave_in_step_is_served_first_and_each_reader_in_its_turn(tmp_path: Path, readers: int, batch_size: int) -> None:
    """HA-M-60 "before anything is sent to one that is behind"; HA-M-61 "MUST NOT send more than 2 MiB to all slaves together";
    HA-M-62 "and of the others nobody twice before all have been served". Counted in bytes and turns, with no clock.
    """
    crowd: list[MasterLink] = []
    served_at = [0] * readers  # the number of the last call to each, of all calls
    calls = bulk = 0  # bulk: bytes of this turn
    slaves: list[MasterLink] = []  # that are in step

    def takes(reader: int, nbytes: int) -> None:
        nonlocal calls, bulk
        behind = [index for index, link in enumerate(crowd) if not link.conn.has_all or index == reader]
        where = [crowd[index].conn.next_transfer_from_where for index in behind]
        goes_on = served_at[reader] == calls > 0  # with the turn that it has
        if not goes_on and crowd[reader].conn.next_transfer_from_where < max(where):
            assert served_at[reader] == min(served_at[index] for index in behind)
        calls += 1
        served_at[reader] = calls
        bulk += nbytes
        assert [link.conn.next_transfer_from_where for link in slaves] == [log.max_offset] * len(slaves)

    settings = Settings(4 * MIB, ha_transfer_batch_size=batch_size, master_read_buffer_size=MASTER_READ_BUFFER_SIZE)
    with CommitLog.open(tmp_path / "m", file_size=4 * MIB) as log, contextlib.ExitStack() as stack:
        master = Master(log, listen("127.0.0.1", 0), settings, HARDENED, Limits())
        stack.callback(master.close)
        for _ in range(2):
            log.append_data(log.max_offset, [memoryview(bytes(4 * MIB))])
        peers = [join(master, 1, lambda nbytes, reader=reader: takes(reader, nbytes)) for reader in range(readers)]  # type: ignore[misc]
        for _ in range(2):
            sock, slave, its = join(master, log.max_offset, lambda _: None)
            stack.enter_context(sock)
            slaves.append(slave)
            its.open = True
        until = time.monotonic() + PATIENCE_S
        while not all(slave.conn.has_all for slave in slaves):
            assert time.monotonic() < until
            master.poll(5)
        for sock, link, its in peers:
            stack.enter_context(sock)
            crowd.append(link)
            its.open = True
        turns = 0
        while behind := [index for index, link in enumerate(crowd) if not link.conn.has_all]:
            for _ in range(3):
                master.put(Message("T", bytes(100)), wait=False)
            least = max(crowd[index].conn.next_transfer_from_where for index in behind)
            nearest = [index for index in behind if crowd[index].conn.next_transfer_from_where == least]
            bulk, before = 0, calls
            master.poll(0)
            assert bulk <= 2 * MIB
            assert any(served_at[index] > before for index in nearest)
            turns += 1
            assert turns < 1000
        assert turns >= readers * 4


def test_without_descriptors_the_listener_is_left_alone_for_a_while(
    serve: Serve, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-M-58 "MUST NOT ask its listening socket again before 100 ms have passed": a try would be a line of the log."""
    master = serve(Limits())
    late = connect(master)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 32, hard))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(late.fileno()))
        polled(master, 20)
        assert caplog.text.count("cannot accept") == 1
        clock.ms += NO_DESCRIPTORS_MS
        polled(master, 20)
        assert caplog.text.count("cannot accept") == 2
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    clock.ms += NO_DESCRIPTORS_MS
    polled(master)
    assert len(master.service.connections) == 1
    late.close()


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "soft_after", "cap"),
    [
        (1024, 4096, 512, 1024, 512),
        (256, 4096, 512, 768, 512),
        (256, 600, 512, 600, 344),
        (256, resource.RLIM_INFINITY, 10_000, 10_256, 10_000),
        (100, 100, 512, 100, 1),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 512, resource.RLIM_INFINITY, 512),
    ],
)
def test_descriptors_are_kept_for_the_log(
    soft: int, hard: int, wanted: int, soft_after: int, cap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 of them: a log that finds none for its next file stops its master."""
    now = [soft, hard]
    monkeypatch.setattr(limits_module.resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(limits_module.resource, "setrlimit", lambda _, values: now.__setitem__(slice(None), values))
    assert fit_descriptors(Limits(wanted)).max_connections == cap
    assert now == [soft_after, hard]


# --- Memory ----------------------------------------------------------------------------------------------------------


def test_a_connection_costs_less_than_64_kib(serve: Serve) -> None:
    """HA-M-55 "MUST NOT cost the master more than 64 KiB of memory, whatever its peer does".

    Each has a frame pending that it does not take, has flooded reports, and has begun another one.
    """
    count = 100
    master = serve(Limits(), 3 * MIB, send_buffer=4096)
    socks = [connect(master, receive_buffer=4096)]
    polled(master)  # what is made once
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        socks += [connect(master, receive_buffer=4096) for _ in range(count)]
        reports = REPORT.pack(0) * 2000 + bytes(7)
        for sock in socks:
            sock.sendall(reports)
        links: list[MasterLink] = []
        for _ in range(10_000):
            master.poll(5)
            links = list(master._links.values())
            if len(links) == count + 1 and all(link.blocked_since_ms is not None and link.conn.unparsed for link in links):
                break
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    assert all(link.blocked_since_ms is not None and link.conn.unparsed == 7 for link in links)
    assert MASTER_READ_BUFFER_SIZE < each < 64 * 1024
    for sock in socks:
        sock.close()


# --- Rate ------------------------------------------------------------------------------------------------------------


@given(
    rate=st.integers(1024, 10**9),
    steps=st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 1)), max_size=50),
)
def test_no_stretch_of_time_has_more_than_its_rate_and_one_burst(rate: int, steps: list[tuple[int, float]]) -> None:
    """HA-M-56 "save for one burst of a tenth of it", however much of what it may send is sent."""
    allowance, now_ms = Allowance(rate, 0), 0
    spent: list[tuple[int, int]] = []
    for pause_ms, share in steps:
        now_ms += pause_ms
        nbytes = int(allowance.left(now_ms) * share)
        allowance.spend(nbytes)
        spent.append((now_ms, nbytes))
    for begin in range(len(spent)):
        total = 0
        for at_ms, nbytes in spent[begin:]:
            total += nbytes
            assert total * 1000 <= rate * (at_ms - spent[begin][0] + BURST_MS)


def test_a_slave_is_sent_its_rate_and_no_more(serve: Serve, clock: Clock) -> None:
    """HA-M-56 "headers and bodies counted": quirk 15 counts headers alone, and sends 40 times as much."""
    rate, size = 200_000, 600_000
    master = serve(Limits(max_transfer_rate=rate), size)
    with connect(master) as sock:
        sock.sendall(REPORT.pack(0))
        sock.setblocking(False)
        polled(master)
        start_ms, stream = clock.ms, b""
        frames = -(-size // Settings().ha_transfer_batch_size)
        while len(stream) < size + frames * HEADER.size:
            clock.ms += 20
            polled(master, 2)
            with contextlib.suppress(BlockingIOError):
                stream += sock.recv(1 << 20)
            assert len(stream) * 1000 <= rate * (clock.ms - start_ms + BURST_MS)
            sock.sendall(REPORT.pack(0))
            assert clock.ms - start_ms < 5000
    body = b""
    while stream:
        offset, body_size = HEADER.unpack_from(stream)
        assert offset == len(body)
        body += stream[12 : 12 + body_size]
        stream = stream[12 + body_size :]
    assert body == bytes(size)


# --- Log lines -------------------------------------------------------------------------------------------------------


def test_lines_about_peers_are_few_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-57 "how many were left out MUST be told"."""
    peers = PeerLog(logging.getLogger("rocketmq_ha.test"))
    with caplog.at_level(logging.INFO):
        for index in range(1000):
            peers.write(index, logging.DEBUG, "not wanted")
            peers.write(index, logging.INFO, "line %d", index)
        peers.look(WINDOW_MS - 1)
        assert [record.getMessage() for record in caplog.records] == [f"line {index}" for index in range(LINES)]
        peers.look(WINDOW_MS)
        assert caplog.records[-1].getMessage() == "970 more lines about peers in 10 s were left out"
        peers.write(WINDOW_MS + 1, logging.INFO, "again")
    assert caplog.records[-1].getMessage() == "again"
    assert len(caplog.records) == LINES + 2


def test_a_flood_of_strangers_writes_thirty_lines(serve: Serve, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-57 "The log lines of a master about its peers MUST NOT exceed 30 in any window of 10 s"."""
    master = serve(Limits(max_connections=1))
    with connect(master):
        polled(master)
        for _ in range(100):
            with connect(master):
                polled(master, 2)
        clock.ms += WINDOW_MS
        polled(master)
    assert master.door.refused.total() == 100
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) <= LINES + 1
    assert "were left out" in told[-1]


# --- The slave -------------------------------------------------------------------------------------------------------


def test_a_frame_that_does_not_become_whole_ends_the_connection(net: Any, tmp_path: Path) -> None:
    """HA-S-50 "A frame that has begun and is not whole after frame_deadline MUST end the connection", byte for byte sent."""
    listener, served = net.listener(), []

    def dribble() -> None:
        peer, _ = listener.accept()
        served.append(peer)
        with contextlib.suppress(ConnectionError):
            for byte in HEADER.pack(0, 900) + bytes(900):
                peer.sendall(bytes((byte,)))
                time.sleep(0.02)

    thread = threading.Thread(target=dribble)
    thread.start()
    with CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED, frame_deadline_ms=100)
        follower.run(lambda: bool(follower.last_close_reason))
        assert follower.last_close_reason == "frame_deadline"
        assert log.max_offset == 0
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    for peer in served:
        peer.close()


class Stream:
    """A socket that gives what it is told to give."""

    def __init__(self) -> None:
        self.arrived = b""

    def recv_into(self, buffer: memoryview, /) -> int:
        if not self.arrived:
            raise BlockingIOError
        nbytes = min(len(buffer), len(self.arrived))
        buffer[:nbytes] = self.arrived[:nbytes]
        self.arrived = self.arrived[nbytes:]
        return nbytes

    def send(self, data: bytes, /) -> int:
        return len(data)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_frames_that_become_whole_one_by_one_are_in_time(profile: Any, tmp_path: Path) -> None:
    """HA-S-50 "60 s by default": reads end in the middle of headers, which become whole. Classic waits for ever."""
    with CommitLog.open(tmp_path, file_size=1000) as log:
        stream = Stream()
        client = SlaveClient("master", log, Settings(1000), profile)
        follower = Follower(log, "127.0.0.1", 9, Settings(1000), profile)
        assert follower._frame_deadline_ms == (60_000 if profile is HARDENED else None)
        link = SlaveLink(stream, client, follower._frame_deadline_ms)  # type: ignore[arg-type]
        link.on_connect(0)
        now_ms, heartbeat = 0, HEADER.pack(0, 0)
        stream.arrived = heartbeat[:7]
        for _ in range(20):
            link.on_readable(now_ms)
            now_ms += 15_000
            link.on_tick(now_ms)
            stream.arrived = heartbeat[7:] + heartbeat[:7]
        link.on_readable(now_ms)
        for byte in heartbeat[7:-1]:
            assert client.connected
            stream.arrived = bytes((byte,))
            now_ms += 15_001
            link.on_readable(now_ms)
            link.on_tick(now_ms)
        assert client.close_reason == ("frame_deadline" if profile is HARDENED else "")


def test_a_master_that_only_greets_is_left_alone_for_longer_and_longer(net: Any, tmp_path: Path) -> None:
    """HA-S-25 "longer after each one that brought nothing", and a heartbeat is nothing."""
    listener = net.listener()

    def greet() -> None:
        for _ in range(6):
            peer, _ = listener.accept()
            peer.sendall(HEADER.pack(0, 0))
            peer.close()

    thread = threading.Thread(target=greet)
    thread.start()
    with CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        follower.run(lambda: follower.connects >= 6 and not follower.client.connected)
        assert follower._back_off_s >= 0.05 * 2**5
    thread.join(PATIENCE_S)


def test_a_slave_that_is_always_sent_away_does_not_fill_its_log(
    monkeypatch: pytest.MonkeyPatch, net: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-S-51 "The log lines of a slave about its master MUST NOT exceed 30 in any window of 10 s"; here it does not wait."""
    listener, rounds = net.listener(), 100
    monkeypatch.setattr(Follower, "_wait", lambda *_: None)

    def refuse() -> None:
        for _ in range(rounds):
            peer, _ = listener.accept()
            peer.close()

    thread = threading.Thread(target=refuse)
    thread.start()
    with caplog.at_level(logging.INFO), CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        begun_s = time.monotonic()
        follower.run(lambda: follower.connects >= rounds and not follower.client.connected)
        windows = (time.monotonic() - begun_s) * 1000 // WINDOW_MS + 1
    thread.join(PATIENCE_S)
    assert len(caplog.records) <= (LINES + 1) * windows


@pytest.mark.parametrize("nbytes", [0, 8, 1000])
def test_a_file_at_the_end_of_all_offsets_is_refused(nbytes: int, net: Any, tmp_path: Path) -> None:
    """HA-S-52 "A frame whose file would end beyond the greatest offset", or at it: no report has room for what comes then.

    An honest start of the file before it is taken.
    """
    listener = net.listener()
    last = (1 << 63) - (1 << 63) % 1000 - 1000  # the last file of 1000 bytes that ends before 2^63
    sent = [HEADER.pack(last + 1000, nbytes), HEADER.pack(last, 1000)]

    def serve_both() -> None:
        for header in sent:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(ConnectionError):
                peer.sendall(header + bytes(1000))
                peer.settimeout(PATIENCE_S)
                while peer.recv(100):
                    pass

    thread = threading.Thread(target=serve_both)
    thread.start()
    with CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        reasons = []
        follower.run(lambda: reasons.append(follower.last_close_reason) or log.max_offset > 0)  # type: ignore[func-returns-value]
        assert "frame" in reasons
        assert log.max_offset == last + 1000 < 1 << 63
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
