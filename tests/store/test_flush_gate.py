"""A put that comes while the thread that flushes takes its requests waits for the next flush, and not at an open gate."""

import threading
from types import TracebackType

import pytest

from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.store.log.flush import GroupCommitRequest, GroupCommitService
from rocketmq_ha.impl.store.log.results import PutMessageStatus


class Disk:
    """A log whose flushes wait until the test lets them."""

    def __init__(self) -> None:
        self.flushed_offset, self.end = 0, 0
        self.may_flush = threading.Semaphore(0)

    def flush(self) -> None:
        assert self.may_flush.acquire(timeout=PATIENCE_S)
        self.flushed_offset = self.end


class Window:
    """A guard that lets a put in at the first moment after the service's thread has left it."""

    def __init__(self, service: GroupCommitService, offset: int) -> None:
        self._lock, self._service, self._offset = threading.Lock(), service, offset
        self._is_used = False
        self.late: GroupCommitRequest | None = None

    def __enter__(self) -> None:
        assert self._lock.acquire(timeout=PATIENCE_S)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()
        if threading.current_thread().name == "GroupCommitService" and not self._is_used:
            self._is_used = True
            self.late = self._service.put_request(self._offset)


@pytest.mark.parametrize("more", [0, 3])
def test_a_put_right_behind_the_gathering_waits_at_the_next_gate(more: int) -> None:
    """HA-ST-27 "one thread flushes for all that have gathered": requests and their gate are taken together."""
    disk = Disk()
    service = GroupCommitService(disk)
    window = Window(service, 200)
    service._guard = window  # type: ignore[assignment]
    first = [service.put_request(100 - number) for number in range(1 + more)]
    service.start()
    try:
        disk.end = 100
        disk.may_flush.release()
        assert {request.wait(PATIENCE_S) for request in first} == {PutMessageStatus.PUT_OK}
        late = window.late
        assert late is not None
        assert late.status is None
        assert late._gate.locked()
        disk.end = 200
        disk.may_flush.release()
        assert late.wait(PATIENCE_S) is PutMessageStatus.PUT_OK
    finally:
        disk.may_flush.release(10)
        service.shutdown()
