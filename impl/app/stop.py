"""SIGINT and SIGTERM as a flag."""

import signal


class Stop:
    """True after SIGINT or SIGTERM. A flag, and not an exception, which could interrupt an append in its middle."""

    def __init__(self) -> None:
        self._stopped = False
        self.status = 0  # the exit status of a command that has ended before its end: 130, 143
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._set)

    def _set(self, number: int, *_: object) -> None:
        self._stopped, self.status = True, 128 + number

    def __call__(self) -> bool:
        return self._stopped
