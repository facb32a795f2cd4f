"""Many slaves in one process, so light that the master is what is measured: they look at headers, and drop bodies unread.

A hundred slaves run on as many machines. In one process their socket buffers are more than any cache holds, and copying out of
them all takes longer than the master takes to fill them. So a body stays in the system, which throws it away (MSG_TRUNC, which
on a stream is Linux's alone; elsewhere it is read). Every frame must follow the one before, and what was taken is acknowledged.

Run as a program, with the master's port; it answers `ready=1`. Then `follow SLAVES START END`: that many slaves, whose logs
stand at START, connect and follow to END; it answers `seconds=S`, from the first connect to the last byte of all.
"""

import selectors
import socket
import sys
import time
from typing import Final

from rocketmq_ha.impl.wire.frame import HEADER, REPORT

from .line_process import reply

MAX_TURN: Final = 4 * 1024 * 1024  # bytes, as our slave
_DROP: Final = socket.MSG_TRUNC if sys.platform == "linux" else 0
_dropped: Final = memoryview(bytearray(1024 * 1024))


class Light:
    """One slave: where its log ends, and how much of a frame's body is still to come."""

    def __init__(self, port: int, start: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.max_offset, self._left = start, 0
        self._header = bytearray()
        self.sock.send(REPORT.pack(start))

    def on_readable(self) -> None:
        """Take what is there, at most MAX_TURN or a frame more, and acknowledge the whole frames of it."""
        moved, before = 0, self.max_offset
        try:
            while moved < MAX_TURN:
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
            slave = Light(port, start)
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
