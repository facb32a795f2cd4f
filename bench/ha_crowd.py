"""Many light slaves in one process. They check frame headers and drop bodies unread, so that the master is the bottleneck.

In production a hundred slaves run on a hundred machines. In one process their socket buffers exceed every cache, and copying
out of all of them takes longer than the master needs to fill them. So the kernel drops the bodies without copying them
(MSG_TRUNC, which works on a stream only on Linux; on other systems the bodies are read). Each slave checks that every frame
follows the previous one, and acknowledges what it received.

Run as a program with the master's port. It answers `ready=1`. The command `follow SLAVES START END` connects SLAVES slaves
whose logs end at START. They follow until END. The answer `seconds=S` is the time from the first connect to the last byte.
"""

import selectors
import socket
import sys
import time
from typing import Final

from rocketmq_ha.impl.wire.frame import HEADER, REPORT

from .line_process import reply

MAX_TURN_SIZE: Final = 4 * 1024 * 1024  # as in our slave
_DROP: Final = socket.MSG_TRUNC if sys.platform == "linux" else 0
_dropped: Final = memoryview(bytearray(1024 * 1024))


class LightSlave:
    """One slave: the max offset of its log, and the bytes left of the current frame's body."""

    def __init__(self, port: int, start: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.max_offset, self._left = start, 0
        self._header = bytearray()
        self.sock.send(REPORT.pack(start))

    def on_readable(self) -> None:
        """Receive the available bytes, up to about MAX_TURN_SIZE, and acknowledge the whole frames among them."""
        moved, before = 0, self.max_offset
        try:
            while moved < MAX_TURN_SIZE:
                if self._left:
                    nbytes = self.sock.recv_into(_dropped[: self._left], 0, _DROP)
                    self._left -= nbytes
                    self.max_offset += nbytes
                else:
                    part = self.sock.recv(HEADER.size - len(self._header))
                    nbytes = len(part)
                    self._take_header(part)
                assert nbytes, "the master has closed the connection"
                moved += nbytes
        except BlockingIOError:
            pass
        if self.max_offset > before and not self._left:
            self.sock.send(REPORT.pack(self.max_offset))

    def _take_header(self, part: bytes) -> None:
        self._header += part
        if len(self._header) == HEADER.size:
            offset, self._left = HEADER.unpack(self._header)
            assert offset == self.max_offset, f"a frame at {offset}, expected {self.max_offset}"
            self._header.clear()


def follow(port: int, count: int, start: int, end: int) -> float:
    started = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for _ in range(count):
            slave = LightSlave(port, start)
            selector.register(slave.sock, selectors.EVENT_READ, slave)
        while selector.get_map():
            for key, _ in selector.select():
                slave = key.data
                slave.on_readable()
                if slave.max_offset >= end:
                    selector.unregister(slave.sock)
                    slave.sock.close()
    return time.perf_counter() - started


def main() -> None:
    reply(ready=1)
    for line in sys.stdin:
        count, start, end = map(int, line.split()[1:])
        reply(seconds=follow(int(sys.argv[1]), count, start, end))


if __name__ == "__main__":
    main()
