"""SIGINT and SIGTERM as a flag."""

import signal


class Stop:
    """True after SIGINT or SIGTERM. A flag, and not an exception, which could interrupt an append in its middle."""

    def __init__(self) -> None:
        self._stopped = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._set)

    def _set(self, *_: object) -> None:
        self._stopped = True

    def __call__(self) -> bool:
        return self._stopped
