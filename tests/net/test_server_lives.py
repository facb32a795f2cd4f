"""However a connection to a master ends, the master forgets all of it, says why, and serves the next one the same way."""

import logging
import selectors
import socket
from collections.abc import Callable
from typing import Any

import pytest

from kit.limits import MIB, Clock, Serve, connect, is_closed, passing, polled, until_blocked
from kit.played import PlayedSocket
from kit.stage import lines
from kit.waiting import wait_for
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.net.deadlines import missed_deadline
from rocketmq_ha.impl.net.limits import Limits, parse_networks
from rocketmq_ha.impl.net.link import MasterLink
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.transfer_turns import BULK_TURN, SHARE, TransferTurns
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.spec.profile import HARDENED, Settings

LIMITS = Limits(max_connections=3, max_connections_per_address=2, report_deadline_ms=10_000, write_stall_deadline_ms=30_000)


def remembered(master: Master) -> dict[str, int]:
    """How much a master holds for its connections."""
    return {
        "links": len(master._links),
        "hosts": len(master._hosts),
        "counted": master.limiter._open.total(),
        "turns": len(master._turns.reported),
        "connections": len(master.service.connections),
        "subjects": len(master.subjects),
        "watched": len(master._selector.get_map()) - 1,
    }


def closes(_: Master, sock: socket.socket, __: Clock) -> None:
    sock.close()


def resets(_: Master, sock: socket.socket, __: Clock) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()


def lies(_: Master, sock: socket.socket, __: Clock) -> None:
    sock.sendall(REPORT.pack(1 << 40))


def is_silent(master: Master, _: socket.socket, clock: Clock) -> None:
    passing(clock, 20_200, master)


def is_turned_away(master: Master, _: socket.socket, __: Clock) -> None:
    master.allow(parse_networks(["10.0.0.0/8"]))
    master.limiter.allow(None)


ENDS: list[tuple[Callable[[Master, socket.socket, Clock], None], str, str]] = [
    (closes, "end_of_stream", ""),
    (resets, "end_of_stream", ""),
    (lies, "report", "closed a connection: {peer}: found report 1099511627776, expected 0 to 100 (HA-M-11)"),
    (is_silent, "housekeeping", "{peer}: closed: silent for more than the housekeeping interval"),
    (is_turned_away, "allow", ""),
]


@pytest.mark.parametrize(("end", "reason", "warning"), ENDS, ids=lambda value: getattr(value, "__name__", None))
def test_a_connection_that_has_reported_leaves_nothing(
    serve: Serve, clock: Clock, caplog: pytest.LogCaptureFixture, end: Any, reason: str, warning: str
) -> None:
    """HA-M-36 "take the connection off the list, close its socket"; three times, for what is left would add up."""
    caplog.set_level(logging.INFO, "rocketmq_ha")
    master = serve(LIMITS, 100)
    heartbeats = 3 * HEADER.size if end is is_silent else 0  # one every 5 s
    for lives in (1, 2, 3):
        caplog.clear()
        with connect(master) as sock:
            peer = "{}:{}".format(*sock.getsockname())
            sock.sendall(REPORT.pack(0))
            wait_for(lambda: any(conn.has_all for conn in master.service.connections), lambda: master.poll(5))
            assert set(remembered(master).values()) == {0, 1}  # no subjects
            (conn,) = master.service.connections
            end(master, sock, clock)
            wait_for(lambda: not master.service.connections, lambda: master.poll(5))
            assert conn.close_reason == reason
        assert remembered(master) == dict.fromkeys(remembered(master), 0)
        assert (master.accepted_connections, master.sent_bytes) == (lives, lives * (HEADER.size + 100 + heartbeats))
        assert master.received_bytes == lives * 8 * (2 if end is lies else 1)
        assert lines(caplog)[0] == f"{peer}: connected"
        assert lines(caplog)[-1] == f"{peer}: disconnected: {reason}"
        assert lines(caplog, logging.WARNING) == ([warning.format(peer=peer)] if warning else [])


def test_a_connection_that_has_not_reported_leaves_nothing(
    serve: Serve, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-M-52; and a TLS handshake on the plain port (HA-M-86), whose bytes could pass for a report."""
    master = serve(LIMITS, 100)
    for _ in range(2):
        with connect(master) as late, connect(master) as secret:
            names = ["{}:{}".format(*sock.getsockname()) for sock in (late, secret)]
            polled(master)
            secret.sendall(b"\x16\x03\x01\x02\0\1\0\1\xfc\x03\x03")
            wait_for(lambda: len(master.service.connections) == 1, lambda: master.poll(5))
            passing(clock, 10_000, master)
            assert not is_closed(late)
            passing(clock, 200, master)
            assert is_closed(late)
            assert is_closed(secret)
        assert remembered(master) == dict.fromkeys(remembered(master), 0)
    told = lines(caplog, logging.WARNING)[-2:]
    assert told == [
        f"{names[1]}: closed: a TLS handshake on the plain port, expected a report; "
        "the port for TLS: there is none: --tls-listen",
        f"{names[0]}: closed: no report within --report-deadline",
    ]
    assert master.received_bytes == 0


def test_a_peer_that_takes_nothing_leaves_nothing(serve: Serve, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-53; its socket was watched for room, and no longer is."""
    master = serve(Limits(write_stall_deadline_ms=10_000), 3 * MIB, send_buffer=4096)
    with connect(master, receive_buffer=4096) as sock:
        sock.sendall(REPORT.pack(0))
        polled(master)
        (link,) = master._links.values()
        until_blocked(master, link)
        assert link.is_watched
        events = {key.events for key in master._selector.get_map().values() if key.data is link}
        assert events == {selectors.EVENT_READ | selectors.EVENT_WRITE}
        for _ in range(10):  # bytes on their way may be taken late
            if not link.conn.close_reason:
                sock.sendall(REPORT.pack(0))
            passing(clock, 5_000, master)
        peer = "{}:{}".format(*sock.getsockname())
    assert f"{peer}: closed: it has taken nothing of what it is sent for more than --write-stall-deadline" in lines(caplog)
    assert remembered(master) == dict.fromkeys(remembered(master), 0)


def test_a_socket_is_watched_for_room_only_while_it_is_full(serve: Serve) -> None:
    master = serve(Limits(), 3 * MIB, send_buffer=4096)
    with connect(master, receive_buffer=4096) as sock:
        sock.sendall(REPORT.pack(0))
        polled(master)
        (link,) = master._links.values()
        until_blocked(master, link)
        sock.setblocking(True)
        received = 0
        while received < 3 * MIB:
            received += len(sock.recv(1 << 18))
            master.poll(1)
        wait_for(lambda: link.conn.has_all, lambda: master.poll(5))
        polled(master)
        assert (link.is_watched, link.is_full, link.blocked_since_ms) == (False, False, None)
        assert {key.events for key in master._selector.get_map().values()} == {selectors.EVENT_READ}


# --- Deadlines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reported", "blocked_ms", "limits", "now_ms", "missed"),
    [
        (False, None, LIMITS, 10_500, None),
        (False, None, LIMITS, 10_501, "report_deadline"),
        (False, None, Limits(), 99_999, None),
        (True, None, LIMITS, 99_999, None),
        (True, 2000, LIMITS, 32_000, None),
        (True, 2000, LIMITS, 32_001, "write_stall"),
        (True, 2000, Limits(report_deadline_ms=1), 99_999, None),
        (True, 0, LIMITS, 30_001, "write_stall"),
        (False, 2000, LIMITS, 32_001, "report_deadline"),
    ],
)
def test_a_deadline_is_missed_when_more_than_its_time_has_passed(
    tmp_path: Any, reported: bool, blocked_ms: int | None, limits: Limits, now_ms: int, missed: str | None
) -> None:
    """HA-T-1 "strictly more than its length"; HA-M-52 counts from the accept, at 500 ms here."""
    with CommitLog.open(tmp_path, file_size=1000) as log:
        service = HAService(log, Settings(1000), HARDENED)
        link = MasterLink(PlayedSocket((REPORT.pack(0),) if reported else ()), service.on_accept("peer", 500), service)
        link.on_reports(600)
        link.blocked_since_ms = blocked_ms
        assert missed_deadline(link, limits, now_ms) == missed


# --- Turns ------------------------------------------------------------------------------------------------------------------


class Crowd:
    """Links over played sockets, and what each turn lets them write."""

    def __init__(self, log: CommitLog) -> None:
        self.log = log
        self.service = HAService(log, Settings(log.file_size), HARDENED)
        self.turns = TransferTurns(self.write)
        self.wrote: list[tuple[int, int]] = []  # (link, at most), in order
        self.links: list[MasterLink] = []

    def join(self, offset: int) -> None:
        conn = self.service.on_accept(f"peer:{len(self.links)}", 0)
        link = MasterLink(PlayedSocket((REPORT.pack(offset),)), conn, self.service)
        link.on_reports(0)
        self.links.append(link)
        self.turns.reported[link.sock] = link  # type: ignore[index]

    def write(self, _: Any, link: MasterLink, now_ms: int, most: int) -> bool:
        self.wrote.append((self.links.index(link), most))
        return link.on_transfer(now_ms, most)

    def turn(self, **options: bool) -> list[tuple[int, int]]:
        self.wrote.clear()
        self.turns.begin()
        self.turns.serve(self.log.max_offset, 0, **options)
        return self.wrote[:]


def test_one_slave_behind_has_the_whole_turn_and_several_share_it(tmp_path: Any) -> None:
    """HA-M-61 "MUST NOT send more than 2 MiB"; HA-M-62: the nearest first, then the one that was served longest ago."""
    with CommitLog.open(tmp_path, file_size=16 * MIB) as log:
        log.append_data(0, [memoryview(bytes(12 * MIB))])
        crowd = Crowd(log)
        crowd.join(1)
        assert crowd.turn() == [(0, BULK_TURN)]
        assert (crowd.turns.has_more, crowd.turns.offered, crowd.turns.is_throttled) == (True, 12 * MIB, False)
        crowd.join(2 * MIB)
        assert crowd.turn() == [(0, SHARE), (1, SHARE)]  # where it begins is not known yet
        assert crowd.turn() == [(1, SHARE), (0, SHARE)]
        for _ in range(6):
            crowd.join(1)
        turns = [[number for number, _ in crowd.turn()] for _ in range(14)]
        assert [turn[0] for turn in turns] == [1] * 14
        assert {len(turn) for turn in turns} == {2}  # one call sends 512 KiB, beyond a share
        others = [number for turn in turns for number in turn[1:]]
        assert sorted(others[:7]) == [0, 2, 3, 4, 5, 6, 7]
        assert others[7:] == others[:7]
        assert crowd.turns.has_more


def test_what_has_everything_is_asked_for_new_bytes_and_at_ticks_alone(tmp_path: Any) -> None:
    with CommitLog.open(tmp_path, file_size=MIB) as log:
        log.append_data(0, [memoryview(bytes(1000))])
        crowd = Crowd(log)
        crowd.join(1)
        assert len(crowd.turn()) == 1
        assert (crowd.turn(), crowd.turns.has_more) == ([], False)
        assert len(crowd.turn(at_tick=True)) == 1
        log.append_data(1000, [memoryview(bytes(10))])
        assert [most for _, most in crowd.turn()] == [4 * MIB]  # it is in step, so it has no bound
        crowd.links[0].is_full = True
        log.append_data(1010, [memoryview(bytes(10))])
        assert crowd.turn() == []
        assert len(crowd.turn(at_tick=True)) == 1
        assert not crowd.links[0].is_full
