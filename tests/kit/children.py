"""Child processes that cannot outlive a test that waits for them."""

import subprocess
import sys
import threading
from typing import Any

from kit.waiting import PATIENCE_S


class Child(subprocess.Popen[Any]):
    """A process that is killed after limit_s, so each read of its output ends, and each wait for it."""

    def __init__(self, *arguments: Any, limit_s: float = 2 * PATIENCE_S, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit_s = limit_s
        self._timer = threading.Timer(limit_s, self._end)
        self._timer.daemon = True
        self._timer.start()

    def _end(self) -> None:
        if self.poll() is None:
            sys.stderr.write(f"killed, because it has not ended within {self._limit_s} s: {self.args}\n")
            self.kill()

    def poll(self) -> int | None:
        status = super().poll()
        if status is not None:
            self._timer.cancel()
        return status

    def wait(self, timeout: float | None = None) -> int:
        status = super().wait(timeout)
        self._timer.cancel()
        return status
