"""Classic's group transfer: RocketMQ's service thread, and the producers that wait beside it.

The thread is a generator that stops where RocketMQ's thread would sleep; a put, a notification and a tick let it run to its
next wait. Each producer also waits by its own deadline. The thread or the deadline ends a put, whichever comes first: a status
is set once. reference/five_waits.py lists its functions in the same order.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest, is_slave_ok
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.spec.constants import GROUP_TRANSFER_WAIT_MS, GROUP_TRANSFER_WAITS
from rocketmq_ha.spec.profile import Settings

_Sleep = Iterator[None]


class ServiceThread:
    """RocketMQ's GroupTransferService. It is a generator, which stops where the thread would sleep."""

    def __init__(self) -> None:
        self.requests_write: deque[GroupCommitRequest] = deque()  # the requests that have come
        self.requests_read: deque[GroupCommitRequest] = deque()  # the batch; the thread waits for the first request of it
        self.waits = 0  # how many waits for the first request have ended
        self.has_notified = False  # HA-G-14 "one is kept, and ends" the next wait
        self.waiting_since_ms = 0  # when the present wait began
        self.stopped = False
        self.push2_slave_max_offset = 0  # of the last notification
        self._now_ms = 0
        self._thread: Final = self._batches()

    def run(self, now_ms: int) -> None:
        """Let the thread run to its next wait. Twin: reference.five_waits.run."""
        self._now_ms = now_ms
        next(self._thread, None)

    def _batches(self) -> _Sleep:
        """HA-G-12 "works in batches": each to its end, before it looks whether it is to stop."""
        while True:
            while not self.requests_write:
                if self.stopped:
                    return
                yield
            if self.stopped:
                return
            self.requests_read, self.requests_write = self.requests_write, self.requests_read
            while self.requests_read:
                yield from self._do_wait_transfer(self.requests_read[0])
                self.requests_read.popleft()
                self.waits = 0

    def _do_wait_transfer(self, request: GroupCommitRequest) -> _Sleep:
        """HA-G-13 "at most five times, each time for one second or until it is notified, and compares again"."""
        while not (transfer_ok := request.next_offset <= self.push2_slave_max_offset) and self.waits < GROUP_TRANSFER_WAITS:
            if self.has_notified:
                self.has_notified = False
            else:
                self.waiting_since_ms = self._now_ms
                yield
            self.waits += 1
        if request.status is None:  # HA-G-15 "After five waits that were not enough"
            request.status = PutMessageStatus.PUT_OK if transfer_ok else PutMessageStatus.FLUSH_SLAVE_TIMEOUT


class FiveWaits:
    """The service thread, and the producers that wait for it."""

    def __init__(self) -> None:
        self.service: Final = ServiceThread()
        self._producers: list[GroupCommitRequest] = []  # the puts whose producers still wait, in the order of coming

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[GroupCommitRequest]:
        return iter(self._producers)

    def on_put(
        self, request: GroupCommitRequest, has_slaves: bool, push2_slave_max_offset: int, now_ms: int, settings: Settings
    ) -> None:
        """Give the thread a request, or end the put at once. Twin: reference.five_waits.on_put.

        Spec: HA-G-12 "swaps its empty list of requests for the list of those that have come", once the batch before is done.
        """
        request.deadline_ms = now_ms + settings.sync_flush_timeout_ms
        if not is_slave_ok(has_slaves, request.next_offset, push2_slave_max_offset, settings):
            request.status = PutMessageStatus.SLAVE_NOT_AVAILABLE
            return
        self._producers.append(request)
        self.service.requests_write.append(request)
        if not self.service.requests_read:
            self._wake(now_ms)

    def on_ack(self, push2_slave_max_offset: int, now_ms: int) -> None:
        """Notify the thread: it ends its wait, or else the next one. Twin: reference.five_waits.on_ack.

        Spec: HA-G-13 "or until it is notified".
        """
        self.service.push2_slave_max_offset = push2_slave_max_offset
        if self.service.requests_read:
            self._wake(now_ms)
        else:
            self.service.has_notified = True

    def on_tick(self, now_ms: int) -> None:
        """End the producers' waits (HA-G-2), and then the thread's wait. Twin: reference.five_waits.on_tick.

        Spec: HA-G-13 "each time for one second".
        """
        for request in self._producers:
            if now_ms > request.deadline_ms:
                request.status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        if self.service.requests_read and now_ms >= self.service.waiting_since_ms + GROUP_TRANSFER_WAIT_MS:
            self._wake(now_ms)
        self._forget_ended()

    def on_shutdown(self) -> None:
        """Let the thread end its batch and take no other (quirk 33). Twin: reference.five_waits.on_shutdown."""
        self.service.stopped = True

    def _wake(self, now_ms: int) -> None:
        self.service.run(now_ms)
        self._forget_ended()

    def _forget_ended(self) -> None:
        self._producers = [request for request in self._producers if request.status is None]
