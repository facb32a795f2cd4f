"""The puts that wait for a slave: released by acks, expired by deadlines, ended by shutdown."""

from collections import deque
from enum import Enum


class PutMessageStatus(Enum):
    """RocketMQ's names. In every one of them the message is stored."""

    PUT_OK = "PUT_OK"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class GroupCommitRequest:
    """One put: `status` is None while it waits, and is set once."""

    __slots__ = ("deadline_ms", "next_offset", "status")

    def __init__(self, next_offset: int, deadline_ms: int) -> None:
        self.next_offset, self.deadline_ms = next_offset, deadline_ms
        self.status: PutMessageStatus | None = None


class GroupTransfer:
    """The waiting puts. Offsets ascend, for one log orders all puts; so the first that must wait ends every search (HA-G-7)."""

    def __init__(self) -> None:
        self._requests: deque[GroupCommitRequest] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: GroupCommitRequest) -> None:
        assert not self._requests or self._requests[-1].next_offset < request.next_offset
        self._requests.append(request)

    def on_ack(self, push2_slave_max_offset: int) -> None:
        """HA-G-1."""
        requests = self._requests
        while requests and requests[0].next_offset <= push2_slave_max_offset:
            requests.popleft().status = PutMessageStatus.PUT_OK

    def on_tick(self, now_ms: int) -> None:
        """HA-G-2. One timeout for all, so deadlines ascend with the offsets, unless the clock steps back (HA-T-2)."""
        requests = self._requests
        while requests and now_ms > requests[0].deadline_ms:
            requests.popleft().status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT

    def on_shutdown(self) -> None:
        """HA-G-6 (quirk 33): nobody waits for a master that is gone."""
        while self._requests:
            self._requests.popleft().status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
