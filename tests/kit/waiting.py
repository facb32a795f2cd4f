"""Wait for a condition, with a time limit."""

import time
from collections.abc import Callable

PATIENCE_S = 60  # a loaded machine takes seconds to start a process


def wait_for(condition: Callable[[], object], turn: Callable[[], object] = lambda: time.sleep(0.01)) -> None:
    """Call `turn` until the condition holds. Raises: AssertionError if it does not hold within PATIENCE_S."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"the condition did not hold within {PATIENCE_S} s"
        turn()
