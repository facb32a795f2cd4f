"""What claims about clauses are made on: both worlds in lock-step, a master and a slave over sockets, and one with limits."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from rocketmq_ha.fuzz import lockstep
from rocketmq_ha.fuzz.lockstep import Lockstep
from rocketmq_ha.impl.app.run_master import MASTER_READ_BUFFER_SIZE
from rocketmq_ha.impl.net import server as server_module
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.server import Master, listen
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.reference.cluster import Cluster, Link
from rocketmq_ha.reference.events import DeliverFrames, DeliverReports, Event
from rocketmq_ha.spec.event_log import VERDICT_OK
from rocketmq_ha.spec.profile import HARDENED, Profile, Settings

sys.path.insert(0, str(Path(__file__).resolve().parent))  # of limits_kit.py: these tests are in no package

from limits_kit import MIB, Clock, Serve

FILE_SIZE = 1000
ALL = 1 << 18
PATIENCE_S = 20


class Worlds:
    """The model and the implementation in lock-step: what is asserted of the one holds of the other."""

    def __init__(self, both: Lockstep) -> None:
        self._both = both

    def happens(self, *events: Event) -> Cluster:
        """The cluster after the events. Raises: AssertionError where the worlds disagree."""
        for event in events:
            outcome = self._both.apply(event)
            assert outcome.verdict == VERDICT_OK, outcome
        return self.cluster

    def settle(self, slave: int = 0) -> Cluster:
        """Deliver until nothing is in flight on a slave's link."""
        while (link := self.link(slave)) and (link.to_slave or link.to_master):
            self.happens(DeliverReports(slave, ALL), DeliverFrames(slave, ALL))
        return self.cluster

    @property
    def cluster(self) -> Cluster:
        return self._both.reference.cluster

    def link(self, slave: int = 0) -> Link | None:
        """The link whose slave's end is open."""
        return next((link for link in self.cluster.links if link.slave == slave and link.slave_open), None)


class MakeWorlds(Protocol):
    def __call__(self, profile: Profile, slaves: int = 1, **settings: int) -> Worlds: ...


@pytest.fixture
def worlds() -> Iterator[MakeWorlds]:
    """Makes worlds of empty stores with files of 1000 bytes."""
    with ExitStack() as resources:

        def make(profile: Profile, slaves: int = 1, **settings: int) -> Worlds:
            directory = resources.enter_context(lockstep.scratch_directory())
            both = Lockstep(slaves, replace(Settings(mapped_file_size=FILE_SIZE), **settings), profile, directory)
            resources.callback(both.close)
            return Worlds(both)

        yield make


class Net:
    """Masters and slaves over loopback."""

    def __init__(self, directory: Path, resources: ExitStack) -> None:
        self._directory, self._resources = directory, resources

    def open_log(self, name: str) -> CommitLog:
        return self._resources.enter_context(CommitLog.open(self._directory / name, file_size=FILE_SIZE))

    def serve(self, profile: Profile, settings: Settings | None = None) -> Master:
        """A master, which the test polls."""
        master = Master(self.open_log("master"), listen("127.0.0.1", 0), settings or Settings(FILE_SIZE), profile)
        self._resources.callback(master.close)
        return master

    def follow(self, port: int, profile: Profile, settings: Settings | None = None) -> CommitLog:
        """The log of a slave that runs in a thread of its own."""
        log, stopped = self.open_log("slave"), threading.Event()
        follower = Follower(log, "127.0.0.1", port, settings or Settings(FILE_SIZE), profile)
        thread = threading.Thread(target=follower.run, args=(stopped.is_set,), name="slave")

        def stop() -> None:
            stopped.set()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

        thread.start()
        self._resources.callback(stop)
        return log

    def listener(self) -> socket.socket:
        """A socket that takes the place of a master."""
        listener = self._resources.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(PATIENCE_S)
        return listener

    def connect(self, master: Master) -> socket.socket:
        """A socket that takes the place of a slave, and that the master has accepted."""
        known = len(master.service.connections)
        sock = self._resources.enter_context(socket.create_connection(master.address))
        wait_for(lambda: len(master.service.connections) > known, lambda: master.poll(5))
        sock.settimeout(PATIENCE_S)
        return sock

    def receive(self, sock: socket.socket, master: Master, nbytes: int) -> bytes:
        """The next bytes that the master sends; it is polled until they are there."""
        sock.setblocking(False)
        data = b""
        until = time.monotonic() + PATIENCE_S
        while len(data) < nbytes:
            assert time.monotonic() < until, f"{len(data)} bytes of {nbytes}"
            master.poll(5)
            try:
                data += sock.recv(nbytes - len(data))
            except BlockingIOError:
                continue
        return data

    wait_for = staticmethod(lambda condition, turn=lambda: time.sleep(0.01): wait_for(condition, turn))


def wait_for(condition: Callable[[], object], turn: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        turn()


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    with ExitStack() as resources:
        yield Net(tmp_path, resources)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(server_module, "clock_ms", clock)
    return clock


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
