"""The ids that a producer gives its messages.

Source: 4.9.8 MessageClientIDSetter.
"""

import time
from collections.abc import Callable
from typing import Final

UNIQ_KEY: Final = "UNIQ_KEY"
_A_LITTLE_MS: Final = 1_000_000  # by which a clock may be set back


def month_of(now_ms: int) -> tuple[int, int]:
    """When the month of a time began, and when the next begins, by the local time; all in ms since 1970."""
    local = time.localtime(now_ms / 1000)

    def first(month: int) -> int:
        return int(time.mktime((local.tm_year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000

    return first(local.tm_mon), first(local.tm_mon + 1)


class MessageClientIDSetter:
    """Makes ids: HA-C-7 "of the parts of the table in hexadecimal digits". No two of one instance are equal for 65,536 calls in
    one millisecond.
    """

    def __init__(self, ip: bytes, pid: int, number: int, month: Callable[[int], tuple[int, int]] = month_of) -> None:
        """ip: 4 or 16 bytes. number: an i32 that tells this client from others of the process."""
        head = ip + (pid & 0xFFFF).to_bytes(2, "big") + (number & 0xFFFF_FFFF).to_bytes(4, "big")
        self._fixed: Final = head.hex().upper()
        self._month = month
        self._start_ms = self._next_start_ms = 0
        self._counter = 0

    def create_uniq_id(self, now_ms: int) -> str:
        """An id. now_ms: since 1970."""
        if now_ms >= self._next_start_ms:
            self._start_ms, self._next_start_ms = self._month(now_ms)
        diff = now_ms - self._start_ms
        if -_A_LITTLE_MS < diff < 0:
            diff = 0
        counter, self._counter = self._counter, (self._counter + 1) & 0xFFFF
        return f"{self._fixed}{diff & 0xFFFF_FFFF:08X}{counter:04X}"
