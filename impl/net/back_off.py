"""The delay before each further try to connect.

Spec: HA-S-25 "SHOULD wait before every further try, longer after each one that brought nothing, with jitter, and 5 s at most".
"""

import random
import time
from collections.abc import Callable
from typing import Final

FIRST_BACK_OFF_S: Final = 0.05
LAST_BACK_OFF_S: Final = 5.0
_SLEEP_S: Final = 0.02  # how often the caller is asked whether to stop


class BackOff:
    """A delay that doubles at each wait, up to 5 s. Jitter keeps many slaves from reconnecting at once.

    next_s: seconds that the next wait takes at most.
    """

    def __init__(self) -> None:
        self.next_s = FIRST_BACK_OFF_S

    def reset(self) -> None:
        """Begin anew with the shortest delay: a connection has brought something."""
        self.next_s = FIRST_BACK_OFF_S

    def use_longest(self) -> None:
        """Take the longest delay next: the error is one that does not pass by itself."""
        self.next_s = LAST_BACK_OFF_S

    def wait(self, stopped: Callable[[], bool], meanwhile: Callable[[float], object] | None = None) -> None:
        """Wait for half the delay to all of it, or until `stopped()`, and double the delay.

        Args:  meanwhile: called again and again with the seconds that are left.
        """
        seconds = self.next_s * random.uniform(0.5, 1)
        self.next_s = min(2 * self.next_s, LAST_BACK_OFF_S)
        sleep_unless_stopped(seconds, stopped, meanwhile)


def sleep_unless_stopped(
    seconds: float, stopped: Callable[[], bool], meanwhile: Callable[[float], object] | None = None
) -> bool:
    """Sleep in short pieces until the time is over or `stopped()`. Returns: whether the time is over.

    Args:  meanwhile: called before each piece with the seconds that are left.
    """
    until = time.monotonic() + seconds
    while (left_s := until - time.monotonic()) > 0:
        if stopped():
            return False
        if meanwhile is not None:
            meanwhile(left_s)
        time.sleep(max(0.0, min(until - time.monotonic(), _SLEEP_S)))
    return True
