"""Let calls in while a thing is open; shutting waits for those that are inside, and lets none in afterwards."""

import threading
from collections.abc import Callable
from types import TracebackType


class Gate:
    """`with gate:` around a call. Raises, when it is shut: what `make_error` makes."""

    def __init__(self, make_error: Callable[[], Exception]) -> None:
        self._make_error = make_error
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._inside = 0
        self.is_shut = False

    def __enter__(self) -> None:
        with self._lock:
            if self.is_shut:
                raise self._make_error()
            self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._inside -= 1
            if self.is_shut and not self._inside:
                self._changed.notify_all()

    def shut(self) -> bool:
        """Let nobody in any more, and wait for those that are inside. Returns: False where it was shut before."""
        with self._changed:
            if self.is_shut:
                return False
            self.is_shut = True
            self._changed.wait_for(lambda: not self._inside)
            return True
