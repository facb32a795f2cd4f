"""Queues that have got a message: from the thread of the dispatch to the loop that holds the pulls.

The dispatch tells every round of messages; the loop is woken only for queues that a pull waits for. So a broker whose consumers
are all busy, or of which none waits, has no wake-up.

The order of the two steps matters: the loop first enters a queue as waited for, then looks at its end; the dispatch first puts
the entry, then looks who waits. So at least one of the two sees the other.
"""

from collections import deque
from collections.abc import Callable, Collection

from rocketmq_ha.impl.store.derived.dispatch_round import QueueKey


class Arrivals:
    """The queues that the loop waits for, and those of them that have got a message.

    Args:  wake: wakes the loop; any thread may call it (impl/net/waker.py).
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waited_for: set[QueueKey] = set()  # the loop changes it, the dispatch reads it
        self._arrived: deque[QueueKey] = deque()

    def wait_for(self, key: QueueKey) -> None:
        """In the loop: tell of this queue from now on."""
        self._waited_for.add(key)

    def forget(self, key: QueueKey) -> None:
        """In the loop: nobody waits for this queue any more."""
        self._waited_for.discard(key)

    def on_dispatched(self, keys: Collection[QueueKey]) -> None:
        """In the dispatch: these queues have got entries. HA-P-17 "When a message of the queue has been dispatched"."""
        if self._waited_for:
            found = [key for key in keys if key in self._waited_for]
            if found:
                self._arrived.extend(found)
                self._wake()

    def note(self, key: QueueKey) -> None:
        """In the loop: a queue had its message already when it was entered. The next turn looks at it."""
        self._arrived.append(key)
        self._wake()

    def wake(self) -> None:
        """Have the loop run another turn."""
        self._wake()

    def take(self) -> list[QueueKey]:
        """In the loop: the queues that have got a message since the last call, each once."""
        found: dict[QueueKey, None] = {}
        while self._arrived:
            found[self._arrived.popleft()] = None
        return list(found)
