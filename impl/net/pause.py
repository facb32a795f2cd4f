"""Keep a pause of this process from expiring deadlines: SIGSTOP, `docker pause`, a suspended virtual machine, a slow disk.

While a process is paused, time passes and it reads nothing. Afterwards the clock suggests that the peer was silent, although
the peer's bytes wait in the socket. Two rules prevent this mistake:

1. A loop reads the clock first, then its sockets, and then expires what is overdue by that reading of the clock.
2. In the second after a pause nothing expires. The peer may have waited for us, or was paused as well.
"""

from typing import Final

from rocketmq_ha.impl.clock import clock_ms

PAUSE_MS: Final = 1_000  # a loop that runs reads the clock at least once a second (HA-M-25, HA-S-35)
GRACE_MS: Final = 1_000
MOST_IN_A_ROW: Final = 8


class Pauses:
    """Decides whether a loop may expire deadlines. The caller passes the time.

    Spec: HA-T-21 "MUST let nothing expire in the second that follows", "MUST NOT put expiry off for more than 8 pauses in a
    row".
    """

    def __init__(self) -> None:
        self._looked_ms: int | None = None
        self._until_ms: int | None = None  # after a pause, nothing expires before this time
        self._in_a_row = 0

    def may_expire(self, now_ms: int) -> bool:
        """Return True if deadlines may expire. Call it exactly once for each reading of the clock."""
        before_ms, self._looked_ms = self._looked_ms, now_ms
        was_paused = before_ms is not None and now_ms - before_ms > PAUSE_MS
        if was_paused and self._in_a_row < MOST_IN_A_ROW:  # the bound keeps deadlines alive in a loop that is always slow
            self._in_a_row += 1
            self._until_ms = now_ms + GRACE_MS
        elif self._until_ms is not None and now_ms >= self._until_ms:
            self._until_ms, self._in_a_row = None, 0
        return self._until_ms is None


class Deadline:
    """The deadline of one wait. Call `has_passed` before each poll: it is True only if a poll came after the deadline.

    Spec: HA-T-20 "Between reading the clock and letting anything expire by that reading, each end MUST look at what has come".
    """

    def __init__(self, seconds: float) -> None:
        self._until_ms = clock_ms() + round(seconds * 1000)
        self._pauses = Pauses()
        self._pauses.may_expire(clock_ms())
        self._is_over = False

    def has_passed(self) -> bool:
        """Return True if the time was over at the previous call, too."""
        now = clock_ms()
        is_over = self._pauses.may_expire(now) and now > self._until_ms
        was_over, self._is_over = self._is_over, is_over
        return is_over and was_over

    @property
    def left_s(self) -> float:
        return max(0.0, (self._until_ms - clock_ms()) / 1000)
