"""The puts that wait for a slave: released by acks, expired by deadlines, ended by shutdown. Classic's are in five_waits.py.

reference/group_transfer.py lists its functions in the same order.
"""

from collections import deque
from collections.abc import Collection, Iterator
from typing import Final

from rocketmq_ha.impl.store.log.results import AppendResult, PutMessageStatus
from rocketmq_ha.spec.profile import Settings

_PUT_OK: Final = PutMessageStatus.PUT_OK  # a member of an enumeration is slow to look up


class GroupCommitRequest:
    """One put: `status` is None while it waits, and is set once."""

    __slots__ = ("append", "deadline_ms", "next_offset", "status")
    append: AppendResult  # where its message went; set by HAService, which appends it

    def __init__(self, next_offset: int, deadline_ms: int = 0) -> None:
        self.next_offset, self.deadline_ms = next_offset, deadline_ms
        self.status: PutMessageStatus | None = None


def acknowledged(acks: Collection[int], replicas: int) -> int:
    """The offset that enough replicas have acknowledged, or 0. Twin: reference.group_transfer.acknowledged.

    Args: acks: the greatest acknowledgement of each replica that has acknowledged anything.
    Spec: HA-G-30 "MUST be the N-th greatest among the acknowledgements of the replicas", "and 0 where fewer than N".
    """
    return sorted(acks, reverse=True)[replicas - 1] if replicas <= len(acks) else 0


def is_slave_ok(has_slaves: bool, next_offset: int, push2_slave_max_offset: int, settings: Settings) -> bool:
    """Return True if slaves could answer in time. Twin: reference.group_transfer.is_slave_ok.

    Args: has_slaves: True if as many slaves count as are needed.
    Spec: HA-G-3 "when there is no slave, or when the offset after its message is ha_slave_fallbehind_max or more beyond
    push2_slave_max_offset"; HA-G-32 "when fewer than N replicas count".
    """
    return has_slaves and next_offset - push2_slave_max_offset < settings.ha_slave_fallbehind_max


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

    def on_put(
        self, request: GroupCommitRequest, has_slaves: bool, push2_slave_max_offset: int, now_ms: int, settings: Settings
    ) -> None:
        """Let a put wait, or end it at once. Twin: reference.group_transfer.on_put.

        Append and wait are one step, so that no put overtakes another between them.
        Spec: HA-G-3 "MUST end with SLAVE_NOT_AVAILABLE, without waiting".
        """
        request.deadline_ms = now_ms + settings.sync_flush_timeout_ms
        if not is_slave_ok(has_slaves, request.next_offset, push2_slave_max_offset, settings):
            request.status = PutMessageStatus.SLAVE_NOT_AVAILABLE
        elif request.next_offset <= push2_slave_max_offset:
            request.status = _PUT_OK
        else:
            requests = self._requests
            assert not requests or requests[-1].next_offset < request.next_offset
            requests.append(request)

    def on_ack(self, push2_slave_max_offset: int, now_ms: int) -> None:
        """Release every put whose bytes enough slaves have reported. Twin: reference.group_transfer.on_ack.

        Args: now_ms: for classic alone.
        Spec: HA-G-1 "MUST end with PUT_OK when push2_slave_max_offset is at least the offset after its message".
        """
        del now_ms
        requests = self._requests
        while requests and requests[0].next_offset <= push2_slave_max_offset:
            requests.popleft().status = _PUT_OK

    def on_tick(self, now_ms: int) -> None:
        """End every put that has waited too long. Twin: reference.group_transfer.on_tick.

        All deadlines are compared: they do not ascend if the clock has stepped back.
        Spec: HA-G-2 "MUST end with FLUSH_SLAVE_TIMEOUT".
        """
        late = [request for request in self._requests if now_ms > request.deadline_ms]
        for request in late:
            request.status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        if late:
            self._requests = deque(request for request in self._requests if request.status is None)

    def on_shutdown(self) -> None:
        """End every put, since the master is going away. Twin: reference.group_transfer.on_shutdown.

        Spec: HA-G-6 "MUST end exactly once" (quirk 33).
        """
        while self._requests:
            self._requests.popleft().status = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
