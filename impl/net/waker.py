"""What ends the wait of a selectors loop, besides its sockets: another thread, or a selector of somebody else."""

import contextlib
import os
from typing import Final, Protocol

_MOST: Final = 4096  # wakes that are taken at once


class Wakes(Protocol):
    """A descriptor that is readable when somebody wants to be called, and what the loop calls then."""

    def fileno(self) -> int: ...

    def on_readable(self) -> None: ...


class Waker:
    """A descriptor that is readable from `wake` until `on_readable`. Any thread may wake; several wakes are one."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full of wakes that nobody has taken yet
            os.write(self._write, b"\0")

    def on_readable(self) -> None:
        os.read(self._read, _MOST)

    def close(self) -> None:
        """Nobody may wake any more."""
        os.close(self._read)
        os.close(self._write)
