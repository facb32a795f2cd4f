"""The order in which a master serves its peers, and the part of a turn for slaves that are behind: HA-M-60 to HA-M-63."""

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.limits import MIB, Serve, connect
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.link import MasterLink
from rocketmq_ha.impl.net.listeners import BACKLOG, listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings


class Hungry:
    """The socket of a peer that accepts all bytes once it is `open`; it calls back before it accepts some."""

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
    """Add a peer that has reported where to start, and accepts no bytes yet."""
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
    while at_master not in master._turns.reported:
        assert time.monotonic() < until
        master.poll(5)
    return sock, link, hungry


@pytest.mark.parametrize("batch_size", [32 * 1024, 4 * MIB - 12], ids=["32 KiB", "the largest"])
@pytest.mark.parametrize("readers", [1, 2, 20])
def test_a_slave_in_step_is_served_first_and_each_reader_in_its_turn(tmp_path: Path, readers: int, batch_size: int) -> None:
    """HA-M-60 "before it sends anything to a slave that is behind"; HA-M-61 "MUST NOT send more than 2 MiB in total";
    HA-M-62 "one of the others twice before it has served all of them". Counted in bytes and turns, with no clock.
    """
    crowd: list[MasterLink] = []
    served_at = [0] * readers  # the number of the last call that served each reader
    calls = bulk = 0  # bulk: bytes of this turn
    slaves: list[MasterLink] = []  # the slaves that are in step

    def takes(reader: int, nbytes: int) -> None:
        nonlocal calls, bulk
        behind = [index for index, link in enumerate(crowd) if not link.conn.has_all or index == reader]
        where = [crowd[index].conn.next_transfer_from_where for index in behind]
        goes_on = served_at[reader] == calls > 0  # its turn goes on
        if not goes_on and crowd[reader].conn.next_transfer_from_where < max(where):
            assert served_at[reader] == min(served_at[index] for index in behind)
        calls += 1
        served_at[reader] = calls
        bulk += nbytes
        assert [link.conn.next_transfer_from_where for link in slaves] == [log.max_offset] * len(slaves)

    settings = Settings(4 * MIB, ha_transfer_batch_size=batch_size, master_read_buffer_size=4096)
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


def test_connects_wait_for_their_accept(serve: Serve) -> None:
    """HA-M-63 "to keep 1,024 connects until it accepts them": in a burst no connect is dropped and retried a second later."""
    system = Path("/proc/sys/net/core/somaxconn")
    burst = 300  # more than the 128 that a listener has by itself
    if not system.exists() or int(system.read_text(encoding="ascii")) < burst:
        pytest.skip("the system keeps fewer connects, or does not say how many")
    assert BACKLOG == 1024
    master = serve(Limits())
    with contextlib.ExitStack() as stack:
        for _ in range(burst):
            stack.enter_context(connect(master))  # returns when it is connected, although the master does nothing
        until = time.monotonic() + PATIENCE_S
        while len(master.service.connections) < burst:
            assert time.monotonic() < until
            master.poll(5)
