"""Classic's group transfer: RocketMQ's service thread as a generator, which stops wherever the thread would sleep.

Whoever notifies it, gives it a request or tells it the time lets it run on to its next sleep. Beside it each producer waits by
a clock of its own, and whichever gives up first decides: a status is set once.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.spec.constants import GROUP_TRANSFER_WAIT_MS, GROUP_TRANSFER_WAITS

_Sleep = Iterator[None]


class FiveWaits:
    """GroupTransferService, and the producers that wait for it."""

    def __init__(self) -> None:
        self.waits = 0  # that have ended, of the first request of the batch
        self.has_notified = False  # HA-G-14 "one is kept, and ends": it ends the next wait
        self._producers: list[GroupCommitRequest] = []  # that still wait, in the order of coming
        self._requests_write: deque[GroupCommitRequest] = deque()
        self._requests_read: deque[GroupCommitRequest] = deque()
        self._push2_slave_max_offset = self._now_ms = self._slept_at_ms = 0
        self._stopped = False
        self._thread: Final = self._run()

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[GroupCommitRequest]:
        return iter(self._producers)

    @property
    def requests(self) -> tuple[deque[GroupCommitRequest], deque[GroupCommitRequest]]:
        """What has come, and the batch, whose first request is the one that the thread waits for."""
        return self._requests_write, self._requests_read

    # --- What wakes the thread ---------------------------------------------------------------------------------------

    def add(self, request: GroupCommitRequest, now_ms: int) -> None:
        """HA-G-12 "swaps its empty list of requests for the list of those that have come", once the batch before is done."""
        self._producers.append(request)
        self._requests_write.append(request)
        if not self._requests_read:
            self._wake(now_ms)

    def on_ack(self, push2_slave_max_offset: int, now_ms: int) -> None:
        """A notification. HA-G-13 "or until it is notified"."""
        self._push2_slave_max_offset = push2_slave_max_offset
        if self._requests_read:
            self._wake(now_ms)
        else:
            self.has_notified = True

    def on_tick(self, now_ms: int) -> None:
        """The producers look at the time first (HA-G-2), then the thread does. HA-G-13 "each time for one second"."""
        for request in self._producers:
            if now_ms > request.deadline_ms:
                request.status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        if self._requests_read and now_ms >= self._slept_at_ms + GROUP_TRANSFER_WAIT_MS:
            self._wake(now_ms)
        self._forget_ended()

    def on_shutdown(self) -> None:
        """The thread ends after its batch, and tells nobody of what has come since (quirk 33)."""
        self._stopped = True

    def _wake(self, now_ms: int) -> None:
        self._now_ms = now_ms
        next(self._thread, None)
        self._forget_ended()

    def _forget_ended(self) -> None:
        self._producers = [request for request in self._producers if request.status is None]

    # --- The thread --------------------------------------------------------------------------------------------------

    def _run(self) -> _Sleep:
        """HA-G-12 "works in batches": each to its end, before it looks whether it is to stop."""
        while True:
            while not self._requests_write:
                if self._stopped:
                    return
                yield
            if self._stopped:
                return
            self._requests_read, self._requests_write = self._requests_write, self._requests_read
            while self._requests_read:
                yield from self._do_wait_transfer(self._requests_read[0])
                self._requests_read.popleft()
                self.waits = 0

    def _do_wait_transfer(self, request: GroupCommitRequest) -> _Sleep:
        """HA-G-13 "at most five times, each time for one second or until it is notified, and compares again"."""
        while not (transfer_ok := request.next_offset <= self._push2_slave_max_offset) and self.waits < GROUP_TRANSFER_WAITS:
            if self.has_notified:
                self.has_notified = False
            else:
                self._slept_at_ms = self._now_ms
                yield
            self.waits += 1
        if request.status is None:  # HA-G-15 "After five waits that were not enough"
            request.status = PutMessageStatus.PUT_OK if transfer_ok else PutMessageStatus.FLUSH_SLAVE_TIMEOUT
