"""The slave's limits against a hostile master: HA-S-50 to HA-S-52."""

import contextlib
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kit.waiting import PATIENCE_S, accepted, await_end
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.back_off import BackOff
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.link import SlaveLink
from rocketmq_ha.impl.net.peer_log import LINES, WINDOW_MS
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings


def test_a_frame_that_does_not_become_whole_ends_the_connection(net: Any, tmp_path: Path) -> None:
    """HA-S-50 "A frame that has begun and is not whole after frame_deadline MUST end the connection", even if bytes keep
    coming.
    """
    listener, served = net.listener(), []

    def dribble() -> None:
        peer = accepted(listener)
        served.append(peer)
        with contextlib.suppress(ConnectionError):
            for byte in HEADER.pack(0, 900) + bytes(900):
                peer.sendall(bytes((byte,)))
                time.sleep(0.02)

    thread = threading.Thread(target=dribble, daemon=True)
    thread.start()
    with CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED, frame_deadline_ms=100)
        follower.run(lambda: bool(follower.last_close_reason))
        assert follower.last_close_reason == "frame_deadline"
        assert log.max_offset == 0
    await_end(thread)
    for peer in served:
        peer.close()


def test_a_name_that_cannot_be_resolved_is_a_warning_with_its_pause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", fail)
    caplog.set_level(logging.INFO, "rocketmq_ha")
    with CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, "no-such-host", 10912, Settings(1000), HARDENED)
        follower.run(lambda: follower.failed_connects == 2)
    (first, *_) = caplog.records
    told = "no-such-host:10912: the host's name cannot be resolved: Name or service not known; trying again in at most 0.1 s"
    assert (first.levelname, first.message) == ("WARNING", told)


def test_a_connection_that_is_closed_for_a_frame_names_the_clause(
    net: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_ha")
    listener = net.listener()

    def serve() -> None:
        peer = accepted(listener)
        with peer:
            peer.sendall(HEADER.pack(0, -1))
            peer.recv(100)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        follower.run(lambda: any("connection closed" in line for line in caplog.messages))
    assert follower.last_close == "frame (HA-S-11)"
    assert any(line.endswith("connection closed: frame (HA-S-11)") for line in caplog.messages)
    await_end(thread)


class Stream:
    """A socket that returns the chunks that the test gives it."""

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
    """HA-S-50 "60 s by default": reads end inside headers, and the next read completes them. Classic has no deadline."""
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
            link.on_frames(now_ms)
            now_ms += 15_000
            link.on_tick(now_ms)
            stream.arrived = heartbeat[7:] + heartbeat[:7]
        link.on_frames(now_ms)
        for byte in heartbeat[7:-1]:
            assert client.connected
            stream.arrived = bytes((byte,))
            now_ms += 15_001
            link.on_frames(now_ms)
            link.on_tick(now_ms)
        assert client.close_reason == ("frame_deadline" if profile is HARDENED else "")


def test_a_master_that_only_greets_is_left_alone_for_longer_and_longer(net: Any, tmp_path: Path) -> None:
    """HA-S-25 "longer after each one that brought nothing", and a heartbeat counts as nothing."""
    listener = net.listener()

    def greet() -> None:
        for _ in range(6):
            peer = accepted(listener)
            peer.sendall(HEADER.pack(0, 0))
            peer.close()

    thread = threading.Thread(target=greet, daemon=True)
    thread.start()
    with CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        follower.run(lambda: follower.connects >= 6 and not follower.client.connected)
        assert follower.back_off.next_s >= 0.05 * 2**5
    await_end(thread)


@pytest.mark.parametrize("holds_a_message", [False, True])
def test_a_slave_that_is_refused_comes_back_later_and_later_and_says_what_may_help(
    net: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, holds_a_message: bool
) -> None:
    """HA-S-25 "longer after each one that brought nothing": also if the slave itself has sent a report."""
    listener, rounds = net.listener(), 4

    def refuse() -> None:
        for _ in range(rounds):
            peer = accepted(listener)
            peer.close()

    thread = threading.Thread(target=refuse, daemon=True)
    thread.start()
    caplog.set_level(logging.INFO, "rocketmq_ha")
    with CommitLog.open(tmp_path / "store", file_size=1000) as log:
        if holds_a_message:
            log.append(Message("t", b"body"))
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        follower.run(lambda: follower.connects >= rounds and not follower.client.connected)
        assert follower.back_off.next_s >= 0.05 * 2 ** (rounds - 1)
    await_end(thread)
    assert follower.last_close.startswith("end_of_stream, without a byte: see whether the master's --allow names this address")
    assert sum("closed: end_of_stream, without a byte: see" in line for line in caplog.messages) == rounds - 1


def test_a_slave_that_is_always_sent_away_does_not_fill_its_log(
    monkeypatch: pytest.MonkeyPatch, net: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-S-51 "MUST NOT write more than 30 log lines about its master in any window of 10 s"; here the slave connects again
    without a pause.
    """
    listener, rounds = net.listener(), 100
    monkeypatch.setattr(BackOff, "wait", lambda *_: None)

    def refuse() -> None:
        for _ in range(rounds):
            peer = accepted(listener)
            peer.close()

    thread = threading.Thread(target=refuse, daemon=True)
    thread.start()
    with caplog.at_level(logging.INFO), CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        begun_s = time.monotonic()
        follower.run(lambda: follower.connects >= rounds and not follower.client.connected)
        windows = (time.monotonic() - begun_s) * 1000 // WINDOW_MS + 1
    await_end(thread)
    assert len(caplog.records) <= (LINES + 1) * windows


@pytest.mark.parametrize("nbytes", [0, 8, 1000])
def test_a_file_at_the_end_of_all_offsets_is_refused(nbytes: int, net: Any, tmp_path: Path) -> None:
    """HA-S-52 "A frame whose file would end beyond the greatest offset", or at it: no report could hold the offset after it.

    A frame at the start of the file before it is accepted.
    """
    listener = net.listener()
    last = (1 << 63) - (1 << 63) % 1000 - 1000  # the last file of 1000 bytes that ends before 2^63
    sent = [HEADER.pack(last + 1000, nbytes), HEADER.pack(last, 1000)]

    def serve_both() -> None:
        for header in sent:
            peer = accepted(listener)
            with peer, contextlib.suppress(ConnectionError):
                peer.sendall(header + bytes(1000))
                peer.settimeout(PATIENCE_S)
                while peer.recv(100):
                    pass

    thread = threading.Thread(target=serve_both, daemon=True)
    thread.start()
    with CommitLog.open(tmp_path / "store", file_size=1000) as log:
        follower = Follower(log, *listener.getsockname(), Settings(1000), HARDENED)
        reasons = []
        follower.run(lambda: reasons.append(follower.last_close_reason) or log.max_offset > 0)  # type: ignore[func-returns-value]
        assert "frame" in reasons
        assert log.max_offset == last + 1000 < 1 << 63
    await_end(thread)
