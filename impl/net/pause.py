"""What a pause of this process means for a deadline: SIGSTOP, `docker pause`, a virtual machine that is held, a slow disk.

While a process does not run, time passes and nothing is read. Afterwards the clock says that the peer was silent, and the
peer's bytes wait in the socket. Two rules keep the one from being taken for the other:

1. The clock is read first, then the sockets are looked at, then what is overdue by that reading expires.
2. In the second after a pause nothing expires: the peer could not go on without us, and was perhaps paused as well.
"""

import time
from typing import Final

PAUSE_MS: Final = 1_000  # a loop looks at the time at least once a second (HA-M-25, HA-S-35)
GRACE_MS: Final = 1_000
MOST_IN_A_ROW: Final = 8


class Pauses:
    """Tells whether a loop may let anything expire. No clock: time is told.

    Spec: HA-T-21 "MUST let nothing expire in the second that follows", "MUST NOT put expiry off for more than 8 pauses in a
    row".
    """

    def __init__(self) -> None:
        self._looked_ms: int | None = None
        self._until_ms: int | None = None  # nothing expires before, after a pause
        self._in_a_row = 0

    def may_expire(self, now_ms: int) -> bool:
        """Call it whenever the loop looks at the time, and only then."""
        before_ms, self._looked_ms = self._looked_ms, now_ms
        was_paused = before_ms is not None and now_ms - before_ms > PAUSE_MS
        if was_paused and self._in_a_row < MOST_IN_A_ROW:  # else a loop that is always slow would end nothing
            self._in_a_row += 1
            self._until_ms = now_ms + GRACE_MS
        elif self._until_ms is not None and now_ms >= self._until_ms:
            self._until_ms, self._in_a_row = None, 0
        return self._until_ms is None


class Deadline:
    """How long one thing is waited for. Ask `has_passed` before each look: it is true only after a look behind the time.

    Spec: HA-T-20 "Between reading the clock and letting anything expire by that reading, each end MUST look at what has come".
    """

    def __init__(self, seconds: float) -> None:
        self._until_ms = now_ms() + round(seconds * 1000)
        self._pauses = Pauses()
        self._pauses.may_expire(now_ms())
        self._is_over = False

    def has_passed(self) -> bool:
        """Whether the time was over when this was asked before, too."""
        now = now_ms()
        is_over = self._pauses.may_expire(now) and now > self._until_ms
        was_over, self._is_over = self._is_over, is_over
        return is_over and was_over

    @property
    def left_s(self) -> float:
        return max(0.0, (self._until_ms - now_ms()) / 1000)


def now_ms() -> int:
    """Milliseconds of a clock that does not step (HA-T-3)."""
    return time.monotonic_ns() // 1_000_000
