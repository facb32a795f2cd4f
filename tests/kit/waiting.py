"""Every wait of a test has a limit: a mistake in the code fails a test with a word, and never hangs it."""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

PATIENCE_S = 60  # a loaded machine takes seconds to start a process
LONG_S = 300  # of a process that runs Spark, pip or pytest


def wait_for(condition: Callable[[], object], turn: Callable[[], object] = lambda: time.sleep(0.01)) -> None:
    """Call `turn` until the condition holds. Raises: AssertionError if it does not hold within PATIENCE_S."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"the condition did not hold within {PATIENCE_S} s"
        turn()


def await_end(thread: threading.Thread, limit_s: float = PATIENCE_S) -> None:
    """Wait for the end of a thread. Raises: AssertionError if it still runs after limit_s."""
    thread.join(limit_s)
    assert not thread.is_alive(), f"the thread {thread.name} has not ended within {limit_s} s"


def accepted(listener: socket.socket) -> socket.socket:
    """The next connection. The listener gets PATIENCE_S as its limit if it has none, and the connection gets it too."""
    if listener.gettimeout() is None:
        listener.settimeout(PATIENCE_S)
    sock, _ = listener.accept()
    sock.settimeout(PATIENCE_S)
    return sock


@contextmanager
def limited(what: str, limit_s: float = PATIENCE_S) -> Iterator[None]:
    """Fail the test if the block is not left within limit_s. Only the main thread can be interrupted; others have no limit.

    pytest-timeout uses the same timer; it goes on afterwards with what is left of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> None:
        pytest.fail(f"{what} has not ended within {limit_s} s")

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, late)
    left_s, interval_s = signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left_s:
            signal.setitimer(signal.ITIMER_REAL, max(left_s - (time.monotonic() - began), 0.001), interval_s)
