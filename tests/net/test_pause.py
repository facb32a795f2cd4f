"""A paused process must not take its own pause for silence of its peer: HA-T-20, HA-T-21.

The tests set the clocks, and let waits return nothing, as they do after a stop of the process.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kit.limits import MIB, Clock, Serve, connect, is_closed, passing, polled, until_blocked
from kit.waiting import accepted, await_end, wait_for
from rocketmq_ha.impl.app import tail as tail_module
from rocketmq_ha.impl.app.doctor import probe as probe_module
from rocketmq_ha.impl.ha.puts import FlushedPut, Puts
from rocketmq_ha.impl.net import address as address_module
from rocketmq_ha.impl.net import broker_info, client, feed, pause, status_socket, tls_ends
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.pause import GRACE_MS, PAUSE_MS, Deadline, Pauses
from rocketmq_ha.impl.net.server import TICK_MS, Master
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

MINUTE_MS = 60_000


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of code that waits for a single event."""
    clock = Clock()
    for module in (pause, feed):
        monkeypatch.setattr(module, "clock_ms", clock)
    return clock


class Interrupted:
    """A selector whose waits are ended by a stop and return nothing. A call with timeout 0 sees the ready sockets."""

    def __init__(self, selector: Any) -> None:
        self._selector = selector

    def select(self, timeout: float) -> Any:
        return [] if timeout else self._selector.select(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


def interrupt(master: Master) -> None:
    master._selector = Interrupted(master._selector)  # type: ignore[assignment]


def step(clock: Clock, master: Master, ms: int) -> None:
    """Let time pass in steps too short for a pause, with every wait of the loop interrupted."""
    while ms > 0:
        clock.ms += min(ms, PAUSE_MS)
        ms -= PAUSE_MS
        master.poll(50)


# --- The rules themselves --------------------------------------------------------------------------------------------


def test_nothing_expires_in_the_second_after_a_pause() -> None:
    """HA-T-21 "MUST let nothing expire in the second that follows"; a step of one second is no pause."""
    pauses = Pauses()
    assert [pauses.may_expire(now_ms) for now_ms in (5_000, 5_100, 6_100)] == [True] * 3
    assert [pauses.may_expire(now_ms) for now_ms in (7_101, 7_201, 8_100)] == [False] * 3
    assert pauses.may_expire(7_101 + GRACE_MS)
    assert not pauses.may_expire(20_000)
    assert not pauses.may_expire(21_001)  # another pause
    assert [pauses.may_expire(now_ms) for now_ms in (21_900, 22_001, 22_100)] == [False, True, True]


def test_a_loop_that_is_always_slow_ends_what_is_overdue() -> None:
    """HA-T-21 "MUST NOT put expiry off for more than 8 pauses in a row"."""
    pauses = Pauses()
    found = [pauses.may_expire(now_ms) for now_ms in range(0, 40_000, 2_000)]
    assert found == [True, *[False] * 8, True, *[False] * 8, True, False]


def test_a_deadline_is_over_only_after_a_look_behind_it(told: Clock) -> None:
    """HA-T-20 "Between reading the clock and letting anything expire by that reading, each end MUST look at what has come"."""
    deadline = Deadline(0.5)
    told.ms += 500
    assert not deadline.has_passed()  # strictly more: HA-T-1
    told.ms += 1
    assert [deadline.has_passed(), deadline.has_passed()] == [False, True]
    deadline = Deadline(0.5)
    told.ms += MINUTE_MS
    assert [deadline.has_passed(), deadline.has_passed(), deadline.has_passed()] == [False] * 3
    told.ms += GRACE_MS
    assert [deadline.has_passed(), deadline.has_passed()] == [False, True]


# --- A master --------------------------------------------------------------------------------------------------------


def test_a_master_reads_what_has_come_before_it_calls_a_slave_silent(serve: Serve, clock: Clock) -> None:
    """HA-M-9; another connection, which has reported nothing, is closed in time."""
    master = serve(Limits(), 100)
    with connect(master) as slave, connect(master) as silent:
        for sock in (slave, silent):
            sock.sendall(REPORT.pack(0))
        polled(master)
        interrupt(master)
        for _ in range(5):
            slave.sendall(REPORT.pack(0))
            wait_for(lambda: master._selector.select(0))
            step(clock, master, 5_000)
        assert (is_closed(slave), is_closed(silent)) == (False, True)


def test_a_put_whose_acknowledgement_waits_in_the_socket_ends_with_put_ok(serve: Serve, clock: Clock) -> None:
    """HA-T-20, HA-G-1: without a pause, and after a pause of a minute."""
    for ms in (PAUSE_MS, MINUTE_MS):
        master = serve(Limits())
        with connect(master) as slave:
            slave.sendall(REPORT.pack(0))
            polled(master)
            first = master.put(Message("T", b"first"), wait=False)
            polled(master)
            slave.sendall(REPORT.pack(first.next_offset))
            polled(master)
            put = master.put(Message("T", b"second"), wait=True)
            polled(master)
            assert put.status is None
            passing(clock, master.service.settings.sync_flush_timeout_ms, master)
            interrupt(master)
            slave.sendall(REPORT.pack(put.next_offset))
            wait_for(lambda master=master: master._selector.select(0))
            clock.ms += ms
            master.poll(50)
            assert put.status is PutMessageStatus.PUT_OK
        master.close()
        master.service.log.close()


def test_a_put_that_was_not_sent_before_a_pause_is_sent_and_acknowledged_after_it(serve: Serve, clock: Clock) -> None:
    """HA-T-21 "MUST let nothing expire in the second that follows"; a put that no slave acknowledges then ends."""
    master = serve(Limits())
    with connect(master) as slave:
        slave.sendall(REPORT.pack(0))
        polled(master)
        first = master.put(Message("T", b"first"), wait=False)
        polled(master)
        slave.sendall(REPORT.pack(first.next_offset))
        polled(master)
        put, behind = (master.put(Message("T", body), wait=True) for body in (b"second", b"third"))
        clock.ms += MINUTE_MS
        polled(master)
        assert put.status is None
        slave.sendall(REPORT.pack(put.next_offset))
        polled(master)
        assert (put.status, behind.status) == (PutMessageStatus.PUT_OK, None)
        passing(clock, GRACE_MS + TICK_MS, master)
        assert behind.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_a_report_that_waits_in_the_socket_is_in_time(serve: Serve, clock: Clock) -> None:
    """HA-M-52; a peer that has sent nothing is closed."""
    master = serve(Limits(report_deadline_ms=10_000), 100)
    with connect(master) as slave, connect(master) as silent:
        polled(master)
        interrupt(master)
        slave.sendall(REPORT.pack(0))
        wait_for(lambda: master._selector.select(0))
        step(clock, master, 12_000)
        assert (is_closed(slave), is_closed(silent)) == (False, True)


def test_what_is_pending_is_written_before_its_socket_counts_as_full(serve: Serve, clock: Clock) -> None:
    """HA-M-53; a peer that reads nothing all the while is closed."""
    master = serve(Limits(write_stall_deadline_ms=10_000), 3 * MIB, send_buffer=4096)
    with connect(master, receive_buffer=4096) as slave:
        slave.sendall(REPORT.pack(0))
        polled(master)
        (link,) = master._links.values()
        until_blocked(master, link)
        passing(clock, 9_900, master)
        assert link.blocked_since_ms is not None
        blocked_since_ms = link.blocked_since_ms
        interrupt(master)
        slave.settimeout(20)
        while not master._selector.select(0):  # until its socket has room, which the interrupted wait does not show
            assert slave.recv(1 << 16)
        clock.ms += 900
        master.poll(50)
        assert not link.conn.close_reason
        assert link.blocked_since_ms != blocked_since_ms
        for _ in range(5):  # a byte that it has read may show late
            if not link.conn.close_reason:
                slave.sendall(REPORT.pack(0))  # so that it is not silent
            step(clock, master, 5_000)
        assert link.conn.close_reason == "write_stall"


def test_after_a_pause_silent_peers_have_a_second_to_speak(serve: Serve, clock: Clock) -> None:
    """HA-T-21: a peer that was paused together with the master comes back with it."""
    master = serve(Limits(), 100)
    with connect(master) as slave, connect(master) as gone:
        for sock in (slave, gone):
            sock.sendall(REPORT.pack(0))
        polled(master)
        clock.ms += MINUTE_MS
        polled(master)
        assert (is_closed(slave), is_closed(gone)) == (False, False)
        slave.sendall(REPORT.pack(0))
        passing(clock, GRACE_MS + TICK_MS, master)
        polled(master)
        assert (is_closed(slave), is_closed(gone)) == (False, True)


def test_a_wait_for_the_disk_does_not_end_before_the_loop_lets_it() -> None:
    """HA-T-21, HA-G-44: the flushing thread was paused, too."""
    flush, slave = SimpleNamespace(status=None), SimpleNamespace(status=PutMessageStatus.PUT_OK, next_offset=8)
    service = SimpleNamespace(profile=HARDENED, expired_ms=4_900)
    puts = Puts(service, BrokerRole.ASYNC_MASTER)  # type: ignore[arg-type]
    put = FlushedPut(flush, slave, deadline_ms=5_000)  # type: ignore[arg-type]
    puts._flushing.append(put)
    puts.on_turn(MINUTE_MS)
    assert put.status is None
    service.expired_ms = 5_001
    puts.on_turn(MINUTE_MS)
    assert put.status is PutMessageStatus.FLUSH_DISK_TIMEOUT


# --- A slave ---------------------------------------------------------------------------------------------------------


class InterruptedPoll:
    """Like Interrupted, but for `select.poll`; each wait lets half a second pass."""

    def __init__(self, clock: Clock, real: Callable[[], Any]) -> None:
        self._clock, self._poll = clock, real()

    def register(self, *arguments: Any) -> None:
        self._poll.register(*arguments)

    def poll(self, timeout_ms: int) -> Any:
        if timeout_ms:
            self._clock.ms += 500
            time.sleep(0.002)
            return []
        return self._poll.poll(0)


def test_a_slave_reads_what_has_come_before_it_calls_its_master_silent(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-S-12 "the slave MUST close the connection" of a silent master; in the end this master is silent."""
    clock, real = Clock(), client.select.poll
    monkeypatch.setattr(client, "clock_ms", clock)
    listener = net.listener()
    began_ms = clock.ms
    peers: list[socket.socket] = []

    class Poll(InterruptedPoll):
        """The master beats in each wait of the slave for a minute."""

        def poll(self, timeout_ms: int) -> Any:
            if timeout_ms and not peers:
                peers.append(accepted(listener))
            if timeout_ms and clock.ms < began_ms + MINUTE_MS:
                peers[0].sendall(HEADER.pack(0, 0))
            return super().poll(timeout_ms)

    monkeypatch.setattr(client, "select", SimpleNamespace(poll=lambda: Poll(clock, real), POLLIN=1))
    with net.open_log("slave") as log:
        follower = client.Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        follower.run(lambda: bool(follower.last_close_reason))
        assert (follower.connects, follower.last_close_reason) == (1, "housekeeping")
        assert clock.ms > began_ms + MINUTE_MS + Settings().ha_housekeeping_interval_ms
    peers[0].close()


def test_a_frame_in_parts_has_a_second_after_a_pause(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-S-50, HA-T-21: the rest may not have come during the pause, for the slave did not read."""
    clock, real = Clock(), client.select.poll
    monkeypatch.setattr(client, "clock_ms", clock)
    waits: list[int] = []

    class Poll(InterruptedPoll):
        def poll(self, timeout_ms: int) -> Any:
            if timeout_ms:
                waits.append(clock.ms)
                clock.ms += MINUTE_MS * 2 if len(waits) == 20 else 10
            return self._poll.poll(20 if timeout_ms else 0)

    monkeypatch.setattr(client, "select", SimpleNamespace(poll=lambda: Poll(clock, real), POLLIN=1))
    listener = net.listener()

    def dribble() -> None:
        peer = accepted(listener)
        with peer:
            peer.sendall(HEADER.pack(0, 100) + bytes(50))
            wait_for(lambda: len(waits) > 22)
            peer.sendall(bytes(50))
            peer.recv(100)
            wait_for(lambda: follower.last_close_reason or log.max_offset)

    with net.open_log("slave") as log:
        follower = client.Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        thread = threading.Thread(target=dribble, daemon=True)
        thread.start()
        follower.run(lambda: bool(follower.last_close_reason or log.max_offset))
        assert (follower.last_close_reason, log.max_offset) == ("shutdown", 100) or log.max_offset == 100
    await_end(thread)


# --- A reader --------------------------------------------------------------------------------------------------------


@contextmanager
def feeding(net: Any, *frames: bytes) -> Iterator[tuple[MasterFeed, socket.socket]]:
    listener = net.listener()
    with MasterFeed(listener.getsockname(), 0) as reader:
        peer = accepted(listener)
        with peer:
            for frame in frames:
                peer.sendall(frame)
            yield reader, peer


def stops(monkeypatch: pytest.MonkeyPatch, module: Any, clock: Clock, times: int = 1) -> None:
    """Stop the reader for a minute in its first waits for the master; they return nothing."""
    real, left = module.wait_readable, [times]

    def wait_readable(reader: MasterFeed, timeout_ms: int) -> bool:
        if timeout_ms and left[0]:
            left[0] -= 1
            clock.ms += MINUTE_MS
            return False
        return bool(real(reader, timeout_ms))

    monkeypatch.setattr(module, "wait_readable", wait_readable)


def test_a_reader_that_was_paused_finds_the_first_frame(net: Any, told: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stops(monkeypatch, feed, told)
    with feeding(net, HEADER.pack(0, 4) + b"data") as (reader, _):
        assert reader.first(lambda: False)[0] == 0


def test_a_reader_that_was_paused_finds_the_data_behind_a_heartbeat(
    net: Any, told: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with feeding(net, HEADER.pack(7, 0)) as (reader, peer):
        reader.first(lambda: False)
        peer.sendall(HEADER.pack(7, 4) + b"data")
        stops(monkeypatch, feed, told)
        found = reader.first_data(lambda: False)
        assert found is not None
        assert bytes(found[1]) == b"data"


def test_a_reader_that_was_paused_does_not_call_its_master_silent(net: Any, told: Clock) -> None:
    """Not after the pause, and not while there is data to read; a master that stays silent is given up."""
    with feeding(net) as (reader, peer):
        reader.tick()
        told.ms += MINUTE_MS
        reader.tick()
        told.ms += GRACE_MS
        peer.sendall(HEADER.pack(0, 0))
        wait_for(lambda: feed.wait_readable(reader, 0))
        reader.tick()
        assert reader.read()
        for _ in range(20):
            told.ms += PAUSE_MS
            reader.tick()
        told.ms += PAUSE_MS
        with pytest.raises(FeedEnded, match="silent for 21 s"):
            reader.tick()


def test_a_doctor_that_was_paused_reads_on(net: Any, told: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stops(monkeypatch, probe_module, told)
    with feeding(net, HEADER.pack(0, 0)) as (reader, _):
        found = probe_module.MasterProbe(0, 0)
        probe_module._read(reader, probe_module.Records(0), found, None, 8.0, lambda: False)
        assert found.is_end


def test_a_tail_that_was_paused_does_not_take_the_pause_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat, a stop of three seconds after a read, then the data that the master, also stopped, still sends."""
    clock = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(tail_module, "time", SimpleNamespace(monotonic=lambda: clock.s, time_ns=time.time_ns, sleep=time.sleep))
    heartbeat, message = (0, memoryview(b"")), (0, memoryview(bytes(4)))

    class Feed:
        peer, first_offset, next_offset, may_expire, has_ready = "master", 0, 0, True, True

        def __init__(self) -> None:
            self.reads = [[heartbeat], [], [], [message]]
            self.pauses = Pauses()

        def tick(self, *, is_reading: bool) -> None:
            assert is_reading
            self.may_expire = self.pauses.may_expire(round(clock.s * 1000))

        def read(self) -> list[tuple[int, memoryview]]:
            found = self.reads.pop(0)
            clock.s += 3 if len(self.reads) == 2 else 0.1  # a stop after the second read
            return found

    ends: list[float] = []
    monkeypatch.setattr(tail_module.Tail, "_at_end", lambda *_: ends.append(clock.s))
    monkeypatch.setattr(tail_module.Tail, "_wait_for", lambda *_: None)
    writer = SimpleNamespace(write=lambda: None, is_full=False, put=lambda *_: None, reached=None)
    options = SimpleNamespace(start="last", cursor=None, topics=())
    reader = Feed()
    tail_module.Tail(options, writer, None)._follow(reader, lambda: not reader.reads)  # type: ignore[arg-type]
    assert ends == []


# --- Clients that ask once -----------------------------------------------------------------------------------------------


class Stopped:
    """A socket whose first reads take a minute's stop, and time out although data is there."""

    def __init__(self, clock: Clock, answer: bytes) -> None:
        self._clock, self._answer, self._left = clock, answer, 2

    def recv(self, _: int) -> bytes:
        if self._left:
            self._left -= 1
            self._clock.ms += MINUTE_MS
            raise TimeoutError
        return self._answer


def test_who_asks_a_broker_and_was_paused_hears_the_answer(told: Clock) -> None:
    sock: Any = Stopped(told, b"1234")
    assert broker_info._exactly(sock, "broker", 4, Deadline(5)) == b"1234"
    with pytest.raises(broker_info.NotTold, match="does not answer"):
        broker_info._exactly(Silent(told), "broker", 4, Deadline(5))  # type: ignore[arg-type]


def test_who_asks_for_a_status_and_was_paused_hears_the_answer(told: Clock) -> None:
    sock: Any = Stopped(told, json.dumps({}).encode())
    assert status_socket._receive(sock, Deadline(10)) == b"{}"
    with pytest.raises(TimeoutError):
        status_socket._receive(Silent(told), Deadline(10))  # type: ignore[arg-type]


class Silent:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def recv(self, _: int) -> bytes:
        self._clock.ms += 100
        raise TimeoutError


@pytest.mark.parametrize(("took_s", "tries"), [(5, 1), (60, 2)])
def test_a_connect_during_a_pause_is_tried_once_more(took_s: int, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, tried = SimpleNamespace(s=0.0), []

    def create_connection(*arguments: Any) -> Any:
        tried.append(arguments)
        clock.s += took_s
        raise TimeoutError

    monkeypatch.setattr(address_module, "time", SimpleNamespace(monotonic=lambda: clock.s))
    monkeypatch.setattr(socket, "create_connection", create_connection)
    with pytest.raises(TimeoutError):
        address_module.connect(("192.0.2.1", 10912), ("127.0.0.9", 0), 4.5)
    assert tried == [(("192.0.2.1", 10912), 4.5, ("127.0.0.9", 0))] * tries  # each try is the same


def test_a_handshake_during_a_pause_goes_on(told: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-S-71 "not finished after 5 s MUST be given up", counts only time in which the handshake could go on."""
    ends = SimpleNamespace(turns=0, has_ended=False)

    def handshake() -> bool:
        return ends.turns == 3

    def wait(_: int) -> None:
        ends.turns += 1
        told.ms += MINUTE_MS if ends.turns == 1 else 100

    ends.handshake, ends.wait = handshake, wait
    monkeypatch.setattr(tls_ends, "TlsSocket", lambda *_: ends)
    context = object.__new__(tls_ends.ClientTls)
    context._context = context._scratch = context._name = None  # type: ignore[assignment]
    sock: Any = SimpleNamespace(setblocking=lambda _: None)
    assert context.open(sock, "master", "localhost") is ends
    ends.turns = -1_000
    with pytest.raises(TimeoutError, match="no TLS within 5 s"):
        context.open(sock, "master", "localhost")
