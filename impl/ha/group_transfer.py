"""The puts that wait for a slave: released by acks, expired by deadlines, ended by shutdown. Classic's are in five_waits.py."""

from collections import deque
from collections.abc import Iterator
from typing import Final

from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageStatus

_PUT_OK: Final = PutMessageStatus.PUT_OK  # a member of an enumeration is slow to look up


class GroupCommitRequest:
    """One put: `status` is None while it waits, and is set once."""

    __slots__ = ("append", "deadline_ms", "next_offset", "status")
    append: AppendResult  # where its message went; set by HAService, which appends it

    def __init__(self, next_offset: int, deadline_ms: int = 0) -> None:
        self.next_offset, self.deadline_ms = next_offset, deadline_ms
        self.status: PutMessageStatus | None = None


class GroupTransfer:
    """The waiting puts, by ascending offsets; so the first that must wait ends every search.

    Spec: HA-G-7 "MUST NOT wait for an offset greater than its own".
    """

    def __init__(self) -> None:
        self._requests: deque[GroupCommitRequest] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[GroupCommitRequest]:
        return iter(self._requests)

    def add(self, request: GroupCommitRequest, now_ms: int) -> None:
        """Append and wait are one step, so that no put overtakes another between them. `now_ms` is classic's alone."""
        del now_ms
        requests = self._requests
        assert not requests or requests[-1].next_offset < request.next_offset
        requests.append(request)

    def on_ack(self, push2_slave_max_offset: int, now_ms: int) -> None:
        """HA-G-1 "MUST end with PUT_OK when push2_slave_max_offset is at least the offset after its message"."""
        del now_ms
        requests = self._requests
        while requests and requests[0].next_offset <= push2_slave_max_offset:
            requests.popleft().status = _PUT_OK

    def on_tick(self, now_ms: int) -> None:
        """HA-G-2 "MUST end with FLUSH_SLAVE_TIMEOUT". Deadlines do not ascend where the clock has stepped back."""
        late = [request for request in self._requests if now_ms > request.deadline_ms]
        for request in late:
            request.status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        if late:
            self._requests = deque(request for request in self._requests if request.status is None)

    def on_shutdown(self) -> None:
        """HA-G-6 "MUST end exactly once" (quirk 33): nobody waits for a master that is gone."""
        while self._requests:
            self._requests.popleft().status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
