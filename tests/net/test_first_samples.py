"""Right after a start, a connect and a reconnect no rate counts bytes that came before, however far the log is from 0."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from kit.limits import Clock
from kit.played import AGAIN, PlayedSocket
from rocketmq_ha.impl.net import figures as module
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.figures import MasterFigures, SlaveFigures
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.link import MasterLink
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE: Final = 100_000
BEGIN: Final = 3 * FILE_SIZE
MESSAGE: Final = Message("T", bytes(8))  # 100 bytes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "clock_ms", clock)
    return clock


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    """A log without a byte."""
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        yield log


def grow(log: CommitLog, messages: int) -> None:
    """Append messages; the first one of a log begins its fourth file."""
    for _ in range(messages):
        if log.max_offset:
            log.append(MESSAGE)
        else:
            log.append_data(BEGIN, [memoryview(encode(MESSAGE, 0, BEGIN))])


class Connections:
    """A master's connections, whose peers the test plays."""

    def __init__(self, log: CommitLog, clock: Clock, stack: ExitStack) -> None:
        self.clock = clock
        self.master = Master(log, listen("127.0.0.1", 0), Settings(FILE_SIZE), HARDENED, Limits())
        stack.callback(self.master.close)
        self.figures = MasterFigures(self.master, "hardened")

    def connect(self) -> MasterLink:
        conn = self.master.service.on_accept("10.0.0.7:4000", self.clock.ms)
        return MasterLink(PlayedSocket(), conn, self.master.service)

    def report(self, link: MasterLink, offset: int, after_ms: int = 1000) -> dict[str, Any]:
        """A report comes, the master answers, and time passes. Returns: the figures of the last connection."""
        assert isinstance(link.sock, PlayedSocket)
        link.sock.reads += [REPORT.pack(offset), AGAIN]
        link.on_reports(self.clock.ms)
        link.on_transfer(self.clock.ms)
        self.clock.ms += after_ms
        assert self.figures.sample()
        found: dict[str, Any] = self.figures.snapshot()["connections"][-1]
        return found


@pytest.mark.parametrize("first", [0, BEGIN, BEGIN + 300], ids=("asks", "file", "middle"))
def test_a_new_slave_has_acknowledged_what_it_was_sent_and_no_more(log: CommitLog, clock: Clock, first: int) -> None:
    """A first report of 0 asks for the last file: what lies before that file was acknowledged to nobody."""
    grow(log, 10)
    with ExitStack() as stack:
        connections = Connections(log, clock, stack)
        link = connections.connect()
        begin = first or BEGIN
        assert connections.report(link, first)["acks_per_second"] is None
        assert connections.report(link, begin + 200)["acks_per_second"] == 100.0
        assert connections.report(link, begin + 200)["acks_per_second"] == round(200 / 3, 1)
        link.close("end_of_stream")
        link = connections.connect()  # and again, from where it stands
        assert connections.report(link, begin + 200)["acks_per_second"] is None
        assert connections.report(link, begin + 300)["acks_per_second"] == 50.0


def test_a_slave_that_reports_between_two_samples_has_its_rate_at_once(log: CommitLog, clock: Clock) -> None:
    """A snapshot may come before any sample has seen the connection."""
    grow(log, 10)
    with ExitStack() as stack:
        connections = Connections(log, clock, stack)
        link = connections.connect()
        assert isinstance(link.sock, PlayedSocket)
        for offset in (0, BEGIN + 500):
            link.sock.reads += [REPORT.pack(offset), AGAIN]
            link.on_reports(clock.ms)
            link.on_transfer(clock.ms)
        clock.ms += 100
        (found,) = connections.figures.snapshot()["connections"]
        assert (found["kind"], found["acks_per_second"]) == ("slave", 5000.0)


@pytest.mark.parametrize("role", ["master", "slave"])
@pytest.mark.parametrize("before", [0, 10], ids=("empty", "with messages"))
def test_a_log_grows_by_what_is_appended_since_the_start(log: CommitLog, clock: Clock, role: str, before: int) -> None:
    """An empty slave's log may begin at any offset; that offset is no growth."""
    grow(log, before)
    with ExitStack() as stack:
        if role == "master":
            figures: module.Figures = Connections(log, clock, stack).figures
        else:
            figures = SlaveFigures(Follower(log, "10.0.0.7", 10912, Settings(FILE_SIZE), HARDENED), log, "hardened")
        seen = []
        for messages in (0, 5, 5, 0):
            grow(log, messages)
            figures.sample()
            found = figures.snapshot()
            seen.append((found["appended_bytes"], found["growth_per_second"]))
            clock.ms += 1000
        assert seen == [(0, 0.0), (500, 500.0), (1000, 500.0), (1000, round(1000 / 3, 1))]
        clock.ms += 9_000  # ten seconds after the third sample
        figures.sample()
        assert figures.snapshot()["growth_per_second"] == 0.0


def test_a_start_has_sent_received_and_put_nothing(log: CommitLog, clock: Clock) -> None:
    grow(log, 10)
    with ExitStack() as stack:
        master = Connections(log, clock, stack).figures.snapshot()
        slave = SlaveFigures(Follower(log, "10.0.0.7", 10912, Settings(FILE_SIZE), HARDENED), log, "hardened").snapshot()
    counted = ("appended_bytes", "sent_bytes", "received_bytes", "growth_per_second")
    for found in (master, slave):
        assert [found[name] for name in counted] == [0] * 4
    assert (set(master["puts"].values()), master["accepted_connections"], master["refused_connections"]) == ({0}, 0, 0)
    assert (slave["connects"], slave["reconnects"], slave["failed_connects"]) == (0, 0, 0)
