"""Stores without threads: whoever drives one calls the rounds of its services, in any order, at any time of day.

A put that waits for the disk has one round of the GroupCommitService made for all puts that wait by then.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from rocketmq_ha.impl.store import message_store
from rocketmq_ha.impl.store.derived import index_service
from rocketmq_ha.impl.store.derived.dispatch import ReputMessageService
from rocketmq_ha.impl.store.housekeeping import Housekeeping
from rocketmq_ha.impl.store.log.allocate import AllocateService
from rocketmq_ha.impl.store.log.flush import FlushRealTimeService, GroupCommitRequest, GroupCommitService
from rocketmq_ha.impl.store.log.results import PutMessageStatus

THREADS: Final = (AllocateService, FlushRealTimeService, GroupCommitService, Housekeeping, ReputMessageService)


class Replaced:
    """Attributes of modules and classes that have other values while this is entered. It may be entered again and again."""

    def __init__(self, values: list[tuple[Any, str, Any]]) -> None:
        self._values = values
        self._before: list[list[Any]] = []

    def __enter__(self) -> None:
        before = [getattr(owner, name) for owner, name, _ in self._values]
        for owner, name, value in self._values:
            setattr(owner, name, value)
        self._before.append(before)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for (owner, name, _), value in zip(reversed(self._values), reversed(self._before.pop()), strict=True):
            setattr(owner, name, value)


def at_hand(clock_ms: Callable[[], int], further: list[tuple[Any, str, Any]] | None = None) -> Replaced:
    """Open stores without threads and with the given clock. further: what else to replace meanwhile."""
    services: dict[int, GroupCommitService] = {}
    put_request, wait = GroupCommitService.put_request, GroupCommitRequest.wait

    def put_request_noted(service: GroupCommitService, next_offset: int) -> GroupCommitRequest:
        request = put_request(service, next_offset)
        services[id(request)] = service
        return request

    def wait_at_hand(request: GroupCommitRequest, timeout_s: float) -> PutMessageStatus:
        service = services.pop(id(request))
        if request.status is None:
            service._requests.put(None)  # ends the round
            service._run()
        return wait(request, timeout_s)

    return Replaced(
        [
            *((module, "wall_clock_ms", clock_ms) for module in (message_store, index_service)),
            *((thread, "start", lambda _: None) for thread in THREADS),
            (GroupCommitService, "put_request", put_request_noted),
            (GroupCommitRequest, "wait", wait_at_hand),
            *(further or ()),
        ]
    )
