"""Connect masters, slaves and bare sockets over loopback, within one process."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kit.waiting import PATIENCE_S, await_end, wait_for
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.profile import Profile, Settings

FILE_SIZE = 1000


@contextmanager
def kept_port() -> Iterator[tuple[str, int]]:
    """An address where nobody listens, unless the test does: as long as the context lasts no other process gets the port."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that a server of the test can listen beside it
        keeper.bind(("127.0.0.1", 0))
        host, port = keeper.getsockname()
        yield host, port


class Net:
    """Masters and slaves over loopback. They are closed when `resources` is."""

    def __init__(self, directory: Path, resources: ExitStack) -> None:
        self._directory, self._resources = directory, resources

    def open_log(self, name: str) -> CommitLog:
        return self._resources.enter_context(CommitLog.open(self._directory / name, file_size=FILE_SIZE))

    def serve(self, profile: Profile, settings: Settings | None = None) -> Master:
        """Open a master. The test polls it."""
        # A heartbeat would come among the frames of a test that takes 5 s.
        settings = settings or Settings(FILE_SIZE, ha_send_heartbeat_interval_ms=10**6)
        master = Master(self.open_log("master"), listen("127.0.0.1", 0), settings, profile)
        self._resources.callback(master.close)
        return master

    def follow(self, port: int, profile: Profile, settings: Settings | None = None) -> CommitLog:
        """Run a slave in a thread. Returns: its log."""
        log, stopped = self.open_log("slave"), threading.Event()
        follower = Follower(log, "127.0.0.1", port, settings or Settings(FILE_SIZE), profile)
        thread = threading.Thread(target=follower.run, args=(stopped.is_set,), name="slave", daemon=True)

        def stop() -> None:
            stopped.set()
            await_end(thread)

        thread.start()
        self._resources.callback(stop)
        return log

    def listener(self) -> socket.socket:
        """Listen in the place of a master."""
        listener = self._resources.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(PATIENCE_S)
        return listener

    def connect(self, master: Master) -> socket.socket:
        """Connect in the place of a slave, and wait until the master has accepted."""
        known = len(master.service.connections)
        sock = self._resources.enter_context(socket.create_connection(master.address, timeout=PATIENCE_S))
        wait_for(lambda: len(master.service.connections) > known, lambda: master.poll(5))
        sock.settimeout(PATIENCE_S)
        return sock

    def receive(self, sock: socket.socket, master: Master, nbytes: int) -> bytes:
        """Poll the master until `nbytes` more bytes have come. Returns: those bytes."""
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
