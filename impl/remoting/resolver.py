"""Names to addresses without holding up a loop: an IP address at once, a name in a thread of its own."""

import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

from rocketmq_ha.impl.net.address import reason
from rocketmq_ha.impl.net.waker import Waker

# family and address, as for socket.socket and connect; or why there is none
Found = tuple[int, Any] | str


class Resolver:
    """The loop waits for `waker`, and calls `take` when it is readable."""

    def __init__(self) -> None:
        self.waker = Waker()
        self._found: queue.SimpleQueue[tuple[Callable[[Found], object], Found]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._is_closed = False

    def resolve(self, host: str, port: int, tell: Callable[[Found], object]) -> None:
        """Call `tell` with the address: at once for an IP address, else from within `take`."""
        try:
            found = _look_up(host, port, socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            threading.Thread(target=self._run, args=(host, port, tell), name=f"resolve {host}", daemon=True).start()
        else:
            tell(found)

    def take(self) -> None:
        """Tell what the threads have found."""
        while True:
            try:
                tell, found = self._found.get_nowait()
            except queue.Empty:
                return
            tell(found)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self.waker.close()

    def _run(self, host: str, port: int, tell: Callable[[Found], object]) -> None:
        try:
            found: Found = _look_up(host, port, 0)
        except (OSError, UnicodeError) as error:
            found = reason(error) if isinstance(error, OSError) else "no name of a host"
        self._found.put((tell, found))
        with self._lock:
            if not self._is_closed:
                self.waker.wake()


def _look_up(host: str, port: int, flags: int) -> Found:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)[0]
    return family, address
