"""Classic's group transfer: one thread gives each request five waits, in order, and each producer waits beside it.

    NO_WAITERS, NOTIFIED --put--> WAIT_1 --a second, or a notification--> ... --> WAIT_5 --> WAIT_1 of the next, or NO_WAITERS
    NO_WAITERS --ack--> NOTIFIED        any --shutdown--> STOPPED, once the batch is done

A producer that has given up leaves its request with the thread, which goes on waiting for it.
"""

from dataclasses import dataclass
from enum import Enum

from rocketmq_ha.reference import group_transfer
from rocketmq_ha.reference.group_transfer import (
    FLUSH_SLAVE_TIMEOUT,
    PUT_OK,
    SLAVE_NOT_AVAILABLE,
    GroupCommitRequest,
    GroupTransfer,
    is_slave_ok,
)
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Done, Output, Step, unique
from rocketmq_ha.spec.constants import GROUP_TRANSFER_WAIT_MS, GROUP_TRANSFER_WAITS
from rocketmq_ha.spec.profile import Settings


class FiveWaitsState(Enum):
    NO_WAITERS = "no_waiters"
    NOTIFIED = "notified"  # no request; the next wait will end at once
    WAIT_1 = "wait_1"
    WAIT_2 = "wait_2"
    WAIT_3 = "wait_3"
    WAIT_4 = "wait_4"
    WAIT_5 = "wait_5"
    STOPPED = "stopped"  # no request is served any more


@dataclass(frozen=True, slots=True)
class ServiceThread:
    """RocketMQ's GroupTransferService."""

    requests_write: tuple[GroupCommitRequest, ...] = ()  # the requests that have come; empty unless the thread is busy
    requests_read: tuple[GroupCommitRequest, ...] = ()  # the batch; the thread waits for the first request of it
    waits: int = 0  # how many waits for the first request have ended; fewer than five
    waiting_since_ms: int = 0  # when the present wait began
    has_notified: bool = False  # a notification came while the thread did not wait, and is kept
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class FiveWaits(GroupTransfer):
    """The waiting producers and the service thread."""

    service: ServiceThread = ServiceThread()


def service_of(group: GroupTransfer) -> ServiceThread:
    """The service thread of a group transfer. Hardened has none; then an idle thread."""
    return group.service if isinstance(group, FiveWaits) else ServiceThread()


def classify(group: FiveWaits) -> FiveWaitsState:
    service = group.service
    if service.requests_read:
        return FiveWaitsState[f"WAIT_{service.waits + 1}"]
    if service.stopped:
        return FiveWaitsState.STOPPED
    return FiveWaitsState.NOTIFIED if service.has_notified else FiveWaitsState.NO_WAITERS


def run(group: FiveWaits, push2_slave_max_offset: int, now_ms: int) -> Step[FiveWaits]:
    """The thread, from the end of a wait to its next one.

    Spec: HA-G-12 "works in batches: it swaps its empty list of requests for the list of those that have come"; HA-G-13 "the
    service waits for it at most five times"; HA-G-15 "the request ends with FLUSH_SLAVE_TIMEOUT".
    Source: article 001, doWaitTransfer.
    """
    waiting, service = group.requests, group.service
    outputs: list[Output] = []
    clauses: list[str] = []
    while True:
        if not service.requests_read:
            if service.stopped or not service.requests_write:
                break
            service = replace(service, requests_read=service.requests_write, requests_write=(), waits=0)
            clauses.append("HA-G-12")
        request = service.requests_read[0]
        transfer_ok = push2_slave_max_offset >= request.next_offset
        if transfer_ok or service.waits == GROUP_TRANSFER_WAITS:
            clauses.append("HA-G-1" if transfer_ok else "HA-G-15")
            if request in waiting:  # else its producer has timed out
                status = PUT_OK if transfer_ok else FLUSH_SLAVE_TIMEOUT
                outputs.append(Done(request.request_id, request.next_offset, status))
                waiting = tuple(other for other in waiting if other != request)
                clauses.append("HA-G-6")
            service = replace(service, requests_read=service.requests_read[1:], waits=0)
        elif service.has_notified:
            service = replace(service, has_notified=False, waits=service.waits + 1)
            clauses.append("HA-G-14")
        else:
            service = replace(service, waiting_since_ms=now_ms)
            clauses.append("HA-G-13")
            break
    return Step(FiveWaits(waiting, service), tuple(outputs), unique(clauses))


def on_put(
    group: FiveWaits,
    request_id: int,
    next_offset: int,
    slaves: int,
    push2_slave_max_offset: int,
    now_ms: int,
    settings: Settings,
) -> Step[FiveWaits]:
    """Give the thread a request and let its producer wait; or end the put at once, if no slave can answer.

    Args: slaves: connections that count as slaves (HA-G-4).
    Spec: HA-G-12 "the list of those that have come".  Source: article 001, handleHA, putRequest.
    """
    # GUARD
    if not is_slave_ok(slaves, next_offset, push2_slave_max_offset, settings):
        return Step(group, (Done(request_id, next_offset, SLAVE_NOT_AVAILABLE),), ("HA-G-3", "HA-G-6"))
    # STATE
    request = GroupCommitRequest(request_id, next_offset, now_ms + settings.sync_flush_timeout_ms)
    service = replace(group.service, requests_write=(*group.service.requests_write, request))
    after = FiveWaits((*group.requests, request), service)
    if service.requests_read:
        return Step(after)
    return run(after, push2_slave_max_offset, now_ms)


def on_ack(group: FiveWaits, push2_slave_max_offset: int, now_ms: int) -> Step[FiveWaits]:
    """A notification ends the current wait of the thread, or else the next one.

    Spec: HA-G-14 "that come while the service does not wait, one is kept, and ends its next wait at once".
    Source: article 001, notifyTransferSome; 4.5.2, WaitNotifyObject.
    """
    service = group.service
    if not service.requests_read:
        return Step(replace(group, service=replace(service, has_notified=True)), clauses=("HA-G-14",))
    after = replace(group, service=replace(service, waits=service.waits + 1))
    return run(after, push2_slave_max_offset, now_ms)


def on_tick(group: FiveWaits, push2_slave_max_offset: int, now_ms: int) -> Step[FiveWaits]:
    """Time ends the producers' waits, and then the thread's. A late wake-up of the thread counts as one wait.

    Spec: HA-G-2, HA-G-13.  Source: article 001, waitForFlush and doWaitTransfer.
    """
    gave_up = group_transfer.on_tick(group, now_ms)
    group, service = gave_up.state, gave_up.state.service
    # A timed wait ends exactly after a second; HA-T-1 is about compared intervals.
    if not service.requests_read or now_ms - service.waiting_since_ms < GROUP_TRANSFER_WAIT_MS:
        return gave_up
    went_on = run(replace(group, service=replace(service, waits=service.waits + 1)), push2_slave_max_offset, now_ms)
    return Step(went_on.state, (*gave_up.outputs, *went_on.outputs), unique((*gave_up.clauses, *went_on.clauses)))


def on_shutdown(group: FiveWaits) -> Step[FiveWaits]:
    """The thread ends its batch and takes no other one, so producers that came meanwhile get no status (quirk 33).

    Source: 4.5.2, GroupTransferService.run, which reads `stopped` only between two batches.
    """
    return Step(replace(group, service=replace(group.service, stopped=True)))
