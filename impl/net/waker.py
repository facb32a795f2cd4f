"""Descriptors that wake a selectors loop besides its sockets: a wake-up from another thread, or a nested selector."""

import contextlib
import os
from typing import Final, Protocol

_MOST: Final = 4096  # pending wake-ups that one read removes


class Wakes(Protocol):
    """A descriptor for the loop to wait on, and the method that the loop calls when it is readable."""

    def fileno(self) -> int: ...

    def on_readable(self) -> None: ...


class Waker:
    """A pipe that is readable from `wake` until `on_readable`. Any thread may call `wake`; several calls count as one."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full: the loop will wake anyway
            os.write(self._write, b"\0")

    def on_readable(self) -> None:
        os.read(self._read, _MOST)

    def close(self) -> None:
        """Close the pipe. `wake` must not be called afterwards."""
        os.close(self._read)
        os.close(self._write)
