"""SIGINT and SIGTERM as a flag."""

import signal


class Stop:
    """Whether SIGINT or SIGTERM has asked this process to end. A flag, so that no append is torn by an exception."""

    def __init__(self) -> None:
        self._stopped = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._set)

    def _set(self, *_: object) -> None:
        self._stopped = True

    def __call__(self) -> bool:
        return self._stopped
