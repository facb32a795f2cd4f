"""One schedule of puts, cuts and reconnects over three transports: scripted sockets, tiny socket pairs, and TCP.

Whatever a transport takes and gives at one go, the outcomes must be equal.
"""

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kit.files import log_files
from kit.waiting import PATIENCE_S, accepted
from rocketmq_ha.fuzz.channel import Channel
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.link import MasterLink, SlaveLink
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE = 100_000
SETTINGS = Settings(FILE_SIZE, ha_transfer_batch_size=5000, master_read_buffer_size=64, slave_read_buffer_size=8192)
TINY = 1  # bytes of a socket's buffer; the system takes its least for it
TRANSPORTS = ("scripted", "pair", "tcp")


class Wire:
    """One connection: the two sockets, what moves bytes between them, and what breaks them."""

    def __init__(self, kind: str, resources: ExitStack, draw: random.Random) -> None:
        self.ends_short = kind == "tcp"
        self.move: Callable[[], object] = lambda: None
        if kind == "scripted":
            channel = Channel(0, 0, 0, 1 << 30)

            def move() -> None:
                channel.at_master.room = draw.randint(1, 3000)
                channel.deliver(channel.at_master, draw.randint(1, 3000))
                channel.deliver(channel.at_slave, draw.randint(1, 20))

            self.move, self.at_master, self.at_slave = move, channel.at_master, channel.at_slave
            self._channel = channel
            return
        ends: tuple[Any, Any]
        if kind == "pair":
            ends = socket.socketpair()
        else:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                ends = (socket.create_connection(listener.getsockname(), PATIENCE_S), accepted(listener))
        for sock in map(resources.enter_context, ends):
            sock.setblocking(False)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF) if kind == "pair" else ():
                sock.setsockopt(socket.SOL_SOCKET, option, TINY)
        self.at_master, self.at_slave = ends

    def break_at_slave(self) -> None:
        """The slave's end is gone; the master's end will see the end of the stream, or a reset."""
        self.at_slave.close()
        if hasattr(self, "_channel"):
            self._channel.sever()
            self.at_master.end_of_stream = True

    def break_at_master(self) -> None:
        self.at_master.close()
        if hasattr(self, "_channel"):
            self._channel.sever()
            self.at_slave.end_of_stream = True


@dataclass
class Outcome:
    """What every transport must agree on."""

    offsets: list[tuple[int, int, int]] = field(default_factory=list)  # of the logs and of the acknowledgement, when settled
    statuses: list[list[str | None]] = field(default_factory=list)  # of the puts, when settled
    reasons: list[tuple[str, str]] = field(default_factory=list)  # why each connection ended, at the master and at the slave
    first_reports: list[int] = field(default_factory=list)
    counts: list[tuple[int, int, int]] = field(default_factory=list)  # connections, slaves, waiting puts behind each cut


class Ends:
    """A master and a slave, and the connection between them."""

    def __init__(self, kind: str, directory: Path, resources: ExitStack, seed: int) -> None:
        self._kind, self._resources, self._draw = kind, resources, random.Random(f"{kind} {seed}")
        directory.mkdir(exist_ok=True)
        self.log = resources.enter_context(CommitLog.open(directory / "m", file_size=FILE_SIZE))
        self.copy = resources.enter_context(CommitLog.open(directory / "s", file_size=FILE_SIZE))
        self.service = HAService(self.log, SETTINGS, HARDENED)
        self.client = SlaveClient("master", self.copy, SETTINGS, HARDENED)
        self.requests: list[GroupCommitRequest] = []
        self.outcome = Outcome()
        self._connect()

    def _connect(self) -> None:
        self.wire = Wire(self._kind, self._resources, self._draw)
        conn = self.service.on_accept("10.0.0.7:4000", 0)
        self.master = MasterLink(self.wire.at_master, conn, self.service, ends_short=self.wire.ends_short)
        self.slave = SlaveLink(self.wire.at_slave, self.client, ends_short=self.wire.ends_short)
        self.slave.on_connect(0)
        self.outcome.first_reports.append(self.client.current_reported_offset)

    def put(self, size: int, *, wait: bool) -> None:
        self.requests.append(self.service.put(Message("T", bytes(size)), 0, wait=wait))

    def turn(self) -> None:
        self.wire.move()
        for step in (self.master.on_reports, self.slave.on_frames):
            assert step(0) is None
        self.master.on_transfer(0)

    def settle(self) -> None:
        """Run until the slave has everything, and the master knows it."""
        until = time.monotonic() + PATIENCE_S
        while (self.master.conn.slave_ack_offset, self.copy.max_offset) != (self.log.max_offset, self.log.max_offset):
            assert time.monotonic() < until, (self.copy.max_offset, self.log.max_offset)
            self.turn()
        self.outcome.offsets.append((self.log.max_offset, self.copy.max_offset, self.service.push2_slave_max_offset))
        self.outcome.statuses.append([request.status and request.status.value for request in self.requests])

    def cut(self, side: str, turns: int) -> None:
        """Break the connection with bytes on their way, let the other end find out, and connect again."""
        for _ in range(turns):
            self.turn()
        until = time.monotonic() + PATIENCE_S
        if side == "slave":
            self.slave.close("shutdown")
            self.wire.break_at_slave()
            while not self.master.conn.close_reason:
                assert time.monotonic() < until
                self.master.on_reports(0)
                self.master.on_transfer(0)
        else:
            self.master.close("shutdown")
            self.wire.break_at_master()
            while self.client.connected:
                assert time.monotonic() < until
                self.slave.on_frames(0)
        at_slave = self.client.close_reason.replace("report", "end_of_stream")  # a reset may show in a report first
        self.outcome.reasons.append((self.master.conn.close_reason, at_slave))
        self.outcome.counts.append(
            (len(self.service.connections), self.service.count_slaves(), self.service.push2_slave_max_offset)
        )
        self._connect()


def schedule(seed: int) -> Iterator[Callable[[Ends], None]]:
    """Puts of one byte to several frames, waiting or not, between cuts of either end; the same for each transport."""
    draw = random.Random(seed)
    for _ in range(4):
        for _ in range(draw.randint(1, 6)):
            size, wait = draw.choice((1, 500, 4900, 30_000)), draw.random() < 0.5
            yield lambda ends, size=size, wait=wait: ends.put(size, wait=wait)  # type: ignore[misc]
        if draw.random() < 0.8:
            side, turns = draw.choice(("slave", "master")), draw.randint(0, 6)
            yield lambda ends, side=side, turns=turns: ends.cut(side, turns)  # type: ignore[misc]
        yield Ends.settle


@pytest.mark.parametrize("seed", range(4))
def test_a_schedule_ends_alike_over_every_transport(seed: int, tmp_path: Path) -> None:
    """HA-W-8 "MUST NOT depend on where its reads split the stream"; HA-M-6, HA-M-13, HA-S-1 over real sockets as well."""
    outcomes = []
    for kind in TRANSPORTS:
        with ExitStack() as resources:
            ends = Ends(kind, tmp_path / kind, resources, seed)
            ends.put(8, wait=False)
            ends.settle()
            for step in schedule(seed):
                step(ends)
            ends.master.close("done")
            ends.slave.close("done")
            ends.outcome.first_reports[1:] = []  # where the slave stood at a cut is the network's choice
            outcomes.append(ends.outcome)
        assert log_files(tmp_path / kind / "m") == log_files(tmp_path / kind / "s")
    assert outcomes[0].reasons
    assert {reason for pair in outcomes[0].reasons for reason in pair} == {"shutdown", "end_of_stream"}
    assert all(log == copy == ack for log, copy, ack in outcomes[0].offsets)
    for kind, outcome in zip(TRANSPORTS[1:], outcomes[1:], strict=True):
        for name, found in vars(outcome).items():
            assert found == getattr(outcomes[0], name), (kind, name)


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_a_reset_is_the_end_of_a_stream(kind: str, tmp_path: Path) -> None:
    """HA-M-13: bytes that the slave has not read make its close a reset, which the master meets in a read or in a write."""
    with ExitStack() as resources:
        ends = Ends(kind, tmp_path, resources, 1)
        ends.put(60_000, wait=False)
        for _ in range(3):
            ends.turn()
        ends.cut("slave", 0)
        assert ends.outcome.reasons == [("end_of_stream", "shutdown")]
        assert ends.outcome.counts == [(0, 0, 0)]
        ends.settle()
        assert ends.outcome.statuses == [["PUT_OK"]]


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_garbage_ends_both_ends_with_the_reason_of_each(kind: str, tmp_path: Path) -> None:
    with ExitStack() as resources:
        ends = Ends(kind, tmp_path, resources, 1)
        ends.put(8, wait=False)
        ends.settle()
        ends.wire.at_slave.send(REPORT.pack(1 << 40))
        until, violation = time.monotonic() + PATIENCE_S, None
        while violation is None:
            assert time.monotonic() < until
            ends.wire.move()
            violation = ends.master.on_reports(0)
        assert (violation.clause, ends.master.conn.close_reason) == ("HA-M-11", "report")
        ends.wire.break_at_master()
        while ends.client.connected:
            assert time.monotonic() < until
            ends.slave.on_frames(0)
        assert (ends.client.close_reason, ends.service.push2_slave_max_offset) == ("end_of_stream", 0)
