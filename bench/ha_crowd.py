"""Many slaves in one process: our own ends of the connection, acknowledgements and all, over logs that keep nothing.

Run as a program, with the master's port; it answers `ready=1`. Then `follow SLAVES START END`: that many slaves, whose logs
stand at START, connect and follow to END; it answers `seconds=S`, from the first connect to the last byte of all.
"""

import selectors
import socket
import sys
import time
from collections.abc import Sequence

from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.link import SlaveLink
from rocketmq_ha.impl.net.server import clock_ms
from rocketmq_ha.spec.profile import HARDENED, Settings

from .line_process import reply

FILE_SIZE = 1 << 30
READ_BUFFER_SIZE = 64 * 1024  # so that a hundred of them stay in the cache as one does


class Nowhere:
    """A log that knows only how far it goes."""

    file_size = FILE_SIZE

    def __init__(self, max_offset: int) -> None:
        self.max_offset = max_offset

    def append_data(self, offset: int, buffers: Sequence[memoryview]) -> None:
        del offset
        self.max_offset += sum(map(len, buffers))


def follow(port: int, count: int, start: int, end: int) -> float:
    settings = Settings(mapped_file_size=FILE_SIZE, slave_read_buffer_size=READ_BUFFER_SIZE)
    logs = [Nowhere(start) for _ in range(count)]
    started = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for log in logs:
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = SlaveLink(sock, SlaveClient("master", log, settings, HARDENED))
            link.on_connect(clock_ms())
            selector.register(sock, selectors.EVENT_READ, (link, log))
        while selector.get_map():
            for key, _ in selector.select():
                link, log = key.data
                violation = link.on_readable(clock_ms())
                assert link.client.connected, violation or link.client.close_reason
                if log.max_offset >= end:
                    selector.unregister(key.fileobj)
                    link.close("done")
    return time.perf_counter() - started


def main() -> None:
    reply(ready=1)
    for line in sys.stdin:
        count, start, end = map(int, line.split()[1:])
        reply(seconds=follow(int(sys.argv[1]), count, start, end))


if __name__ == "__main__":
    main()
