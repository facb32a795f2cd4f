"""The cutting proxy over loopback: what passes, what is cut, what is recorded and counted."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from kit.waiting import accepted, wait_for
from rocketmq_ha.fuzz.proxy import CuttingProxy, PlannedCut
from rocketmq_ha.fuzz.transcript import Piece, Restarted, Transcript
from rocketmq_ha.impl.wire.frame import HEADER, REPORT

LIMIT_S: Final = 20


class Ends:
    """A master and a slave of the test, with a proxy between them."""

    def __init__(self, resources: ExitStack) -> None:
        self._resources = resources
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(LIMIT_S)
        resources.callback(self._listener.close)
        self.transcript: Transcript = []

    def proxy(self, *cuts: PlannedCut) -> CuttingProxy:
        found = CuttingProxy(self._listener.getsockname()[:2], list(cuts), self.transcript)
        self._resources.callback(found.close)
        return found

    def connect(self, proxy: CuttingProxy) -> tuple[socket.socket, socket.socket]:
        """(the slave's end, the master's end)."""
        before = proxy.links
        host, _, port = proxy.address.rpartition(":")
        slave = self._resources.enter_context(socket.create_connection((host, int(port)), LIMIT_S))
        master = accepted(self._listener)
        self._resources.enter_context(master)
        master.settimeout(LIMIT_S)
        wait_for(lambda: proxy.links > before)  # it counts a connection after it has connected to the master
        return slave, master


@pytest.fixture
def ends() -> Iterator[Ends]:
    with ExitStack() as resources:
        yield Ends(resources)


def read(end: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes and (part := end.recv(nbytes - len(data))):
        data += part
    return data


def frame(offset: int, size: int) -> bytes:
    return HEADER.pack(offset, size) + bytes(at % 255 for at in range(size))


def test_bytes_pass_both_ways_and_the_last_whole_report_is_noted(ends: Ends) -> None:
    proxy = ends.proxy()
    slave, master = ends.connect(proxy)
    assert (proxy.links, proxy.slave_ack_offset, proxy.body_bytes) == (1, 0, 0)
    slave.sendall(REPORT.pack(5) + REPORT.pack(700)[:3])
    assert read(master, 11) == REPORT.pack(5) + REPORT.pack(700)[:3]
    assert proxy.slave_ack_offset == 5
    slave.sendall(REPORT.pack(700)[3:] + REPORT.pack(900) + REPORT.pack(1)[:7])
    assert read(master, 20) == REPORT.pack(700)[3:] + REPORT.pack(900) + REPORT.pack(1)[:7]
    assert proxy.slave_ack_offset == 900
    master.sendall(frame(0, 30) + frame(30, 0))
    assert read(slave, 54) == frame(0, 30) + frame(30, 0)
    wait_for(lambda: proxy.body_bytes == 30)
    assert (proxy.cuts_in_header, proxy.cuts_in_body) == (0, 0)
    assert all(isinstance(piece, Piece) and piece.passed == len(piece.data) for piece in ends.transcript)
    for source, sent in (("slave", 31), ("master", 54)):
        pieces = [piece for piece in ends.transcript if isinstance(piece, Piece) and piece.source == source]
        assert sum(len(piece.data) for piece in pieces) == sent
        assert {piece.link for piece in pieces} == {0}


def test_each_planned_cut_happens_once_behind_its_bytes(ends: Ends) -> None:
    """The first is due when 20 bytes of bodies have passed, the second at 40: they count all connections together."""
    proxy = ends.proxy(PlannedCut(20, 5), PlannedCut(40, 0))
    slave, master = ends.connect(proxy)
    master.sendall(frame(0, 19))
    assert read(slave, 31) == frame(0, 19)
    wait_for(lambda: proxy.body_bytes == 19)
    master.sendall(frame(19, 1))  # the cut is not due yet
    assert read(slave, 13) == frame(19, 1)
    wait_for(lambda: proxy.body_bytes == 20)
    master.sendall(frame(20, 50))
    assert read(slave, 999) == frame(20, 50)[:5]
    slave.close()
    wait_for(lambda: proxy.cuts_in_header == 1)
    assert (proxy.cuts_in_body, proxy.body_bytes) == (0, 20)
    second_slave, second_master = ends.connect(proxy)
    second_master.sendall(frame(20, 20))
    assert read(second_slave, 32) == frame(20, 20)
    wait_for(lambda: proxy.body_bytes == 40)
    second_master.sendall(frame(40, 10))
    assert read(second_slave, 999) == frame(40, 10)[: 12 + 5]
    second_slave.close()
    wait_for(lambda: proxy.cuts_in_body == 1)
    third_slave, third_master = ends.connect(proxy)
    third_master.sendall(frame(45, 100))
    assert read(third_slave, 112) == frame(45, 100)
    wait_for(lambda: proxy.body_bytes == 145)
    assert (proxy.cuts_in_header, proxy.cuts_in_body, proxy.links) == (1, 1, 3)
    cut = [piece for piece in ends.transcript if isinstance(piece, Piece) and piece.passed < len(piece.data)]
    assert [(piece.link, piece.source, len(piece.data), piece.passed) for piece in cut] == [
        (0, "master", 62, 5),
        (1, "master", 22, 17),
    ]


def test_the_end_of_either_side_ends_the_other(ends: Ends) -> None:
    proxy = ends.proxy()
    slave, master = ends.connect(proxy)
    slave.close()
    assert master.recv(1) == b""
    slave, master = ends.connect(proxy)
    master.close()
    assert slave.recv(1) == b""
    assert proxy.links == 2


def test_a_held_proxy_passes_reports_but_no_frames(ends: Ends) -> None:
    proxy = ends.proxy()
    slave, master = ends.connect(proxy)
    proxy.hold()
    master.sendall(frame(0, 10))
    slave.sendall(REPORT.pack(4))
    assert read(master, 8) == REPORT.pack(4)
    assert proxy.body_bytes == 0
    proxy.release()
    assert read(slave, 22) == frame(0, 10)


def test_a_restart_is_recorded_where_it_happens(ends: Ends) -> None:
    proxy = ends.proxy()
    slave, master = ends.connect(proxy)
    slave.sendall(REPORT.pack(4))
    read(master, 8)
    proxy.note_restart()
    assert ends.transcript == [Piece(0, "slave", REPORT.pack(4), 8), Restarted()]
    silent = CuttingProxy(("127.0.0.1", 1), [])
    silent.note_restart()  # it records nothing
    silent.close()


def test_a_closed_proxy_listens_no_more(ends: Ends) -> None:
    proxy = ends.proxy()
    ends.connect(proxy)
    host, _, port = proxy.address.rpartition(":")
    proxy.close()
    assert "proxy" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), LIMIT_S)
