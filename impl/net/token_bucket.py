"""A token bucket: how many bytes a connection may send now under its rate. The caller passes the time."""

from collections.abc import Sequence
from typing import Final

BURST_MS: Final = 100
_QUANTUM: Final = 4096  # bytes; fewer are not worth a system call


class TokenBucket:
    """A bucket with room for the bytes of a tenth of a second; it starts empty.

    Spec: HA-M-56 "MUST NOT send one slave more bytes than that in a second, headers and bodies counted". RocketMQ 5.x
    counts the headers alone (quirk 15).
    """

    def __init__(self, rate: int, now_ms: int) -> None:
        """rate: bytes a second."""
        self._rate = rate
        self._full = rate * BURST_MS  # all levels are in thousandths of a byte
        self._least = min(self._full, _QUANTUM * 1000)
        self._level = 0
        self._filled_ms = now_ms

    def left(self, now_ms: int) -> int:
        """Bytes that may be sent now; 0 until the bucket holds at least _QUANTUM bytes."""
        self._level = min(self._full, self._level + self._rate * max(0, now_ms - self._filled_ms))
        self._filled_ms = max(now_ms, self._filled_ms)
        return self._level // 1000 if self._level >= self._least else 0

    def spend(self, nbytes: int) -> None:
        self._level -= nbytes * 1000


def first_bytes(buffers: Sequence[memoryview], nbytes: int) -> list[memoryview]:
    """The first nbytes bytes of the buffers, as views."""
    taken = []
    for buffer in buffers:
        taken.append(buffer[:nbytes])
        nbytes -= len(buffer)
        if nbytes <= 0:
            break
    return taken
