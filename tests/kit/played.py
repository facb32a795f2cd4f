"""A socket whose calls give what the test lists: it stands for the kernel, and for TLS where that raises a violation."""

import errno
import os
from collections import deque
from collections.abc import Iterable

Result = int | bytes | Exception


def error(number: int) -> OSError:
    """The error of a system call, of the class that Python raises for it."""
    return OSError(number, os.strerror(number))


AGAIN = error(errno.EAGAIN)


class PlayedSocket:
    """Plays the results of reads and of writes, each list in its order.

    A read gives bytes, in several reads if the buffer is small, or raises; behind the last one it would block.
    A write takes so many bytes at most, or raises; behind the last one it takes everything.

    calls: the names of the calls, in order. sent: all bytes that were taken.
    """

    def __init__(self, reads: Iterable[Result] = (), writes: Iterable[Result] = (), calls: list[str] | None = None) -> None:
        self.reads, self.writes = deque(reads), deque(writes)
        self.calls: list[str] = [] if calls is None else calls
        self.sent = bytearray()
        self.closed = 0  # how often it was closed

    def recv_into(self, buffer: memoryview, /) -> int:
        self.calls.append("recv")
        result = self.reads.popleft() if self.reads else AGAIN
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, bytes)
        nbytes = min(len(result), len(buffer))
        buffer[:nbytes] = result[:nbytes]
        if nbytes < len(result):
            self.reads.appendleft(result[nbytes:])
        return nbytes

    def send(self, data: bytes | memoryview, /) -> int:
        self.calls.append("send")
        result = self.writes.popleft() if self.writes else len(data)
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, int)
        self.sent += data[:result]
        return min(result, len(data))

    def sendmsg(self, buffers: Iterable[memoryview], /) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        self.calls.append("close")
        self.closed += 1
