"""A gate for calls: `shut` refuses new calls and waits for those inside."""

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType


class Gate:
    """Use `with gate:` around a call. When the gate is shut it raises `make_error()`."""

    def __init__(self, make_error: Callable[[], Exception]) -> None:
        self._make_error = make_error
        self._changed = threading.Condition()
        self._inside: deque[None] = deque()  # one for each call that is inside, or is about to be refused
        self.is_shut = False

    # No lock, since every read passes here. A call first registers, then checks `is_shut`; `shut`
    # does it the other way round. So at least one of them sees the other.

    def __enter__(self) -> None:
        self._inside.append(None)
        if self.is_shut:
            self._leave()
            raise self._make_error()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave()

    def _leave(self) -> None:
        self._inside.pop()
        if self.is_shut:
            with self._changed:
                self._changed.notify_all()

    def shut(self) -> bool:
        """Let nobody in any more, and wait for those that are inside. Returns: False where it was shut before."""
        with self._changed:
            if self.is_shut:
                return False
            self.is_shut = True
            self._changed.wait_for(lambda: not self._inside)
            return True
