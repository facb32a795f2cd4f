"""The puts that wait for a slave.

NO_WAITERS <--all done-- WAITING <--put that waits-- NO_WAITERS
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from rocketmq_ha.reference.step import Done, Step
from rocketmq_ha.spec.profile import Settings

PUT_OK = "PUT_OK"
FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class GroupTransferState(Enum):
    NO_WAITERS = "no_waiters"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class GroupCommitRequest:
    """One waiting put."""

    request_id: int
    next_offset: int  # the offset after its message; strictly greater than that of the request before
    deadline_ms: int  # the last instant at which it still waits


@dataclass(frozen=True, slots=True)
class GroupTransfer:
    requests: tuple[GroupCommitRequest, ...] = ()  # ascending next_offset


NO_REQUESTS: Final = GroupTransfer()


def classify(group: GroupTransfer) -> GroupTransferState:
    return GroupTransferState.WAITING if group.requests else GroupTransferState.NO_WAITERS


def on_put(
    group: GroupTransfer,
    request_id: int,
    next_offset: int,
    slaves: int,
    push2_slave_max_offset: int,
    now_ms: int,
    settings: Settings,
) -> Step[GroupTransfer]:
    """Let a put wait, or end it at once: where no slave could answer, or where one already has.

    Args: slaves: connections that count as slaves (HA-G-4, HA-G-5).
    Spec: HA-G-1, HA-G-3.  Source: article 001, handleHA, isSlaveOK, and doWaitTransfer, which looks before it waits.
    """
    # GUARD
    if slaves == 0 or next_offset - push2_slave_max_offset >= settings.ha_slave_fallbehind_max:
        return Step(group, (Done(request_id, next_offset, SLAVE_NOT_AVAILABLE),), ("HA-G-3", "HA-G-6"))
    if next_offset <= push2_slave_max_offset:  # only a report that nobody honest sent is beyond the log (quirk 1)
        return Step(group, (Done(request_id, next_offset, PUT_OK),), ("HA-G-1", "HA-G-6"))
    # STATE
    request = GroupCommitRequest(request_id, next_offset, now_ms + settings.sync_flush_timeout_ms)
    return Step(GroupTransfer((*group.requests, request)))


def on_ack(group: GroupTransfer, push2_slave_max_offset: int) -> Step[GroupTransfer]:
    """Release every put whose bytes a slave has reported.

    Spec: HA-G-1, HA-G-6, HA-G-7.  Source: article 001, doWaitTransfer.
    """
    done = tuple(request for request in group.requests if request.next_offset <= push2_slave_max_offset)
    if not done:
        return Step(group)
    rest = tuple(request for request in group.requests if request.next_offset > push2_slave_max_offset)
    return Step(
        GroupTransfer(rest),
        tuple(Done(request.request_id, request.next_offset, PUT_OK) for request in done),
        ("HA-G-1", "HA-G-6", "HA-G-7") if rest else ("HA-G-1", "HA-G-6"),
    )


def on_tick(group: GroupTransfer, now_ms: int) -> Step[GroupTransfer]:
    """End every put that has waited too long.

    Spec: HA-G-2, HA-G-6, HA-T-1.  Source: article 001, waitForFlush.
    """
    done = tuple(request for request in group.requests if now_ms > request.deadline_ms)
    if not done:
        return Step(group)
    rest = tuple(request for request in group.requests if now_ms <= request.deadline_ms)
    return Step(
        GroupTransfer(rest),
        tuple(Done(request.request_id, request.next_offset, FLUSH_SLAVE_TIMEOUT) for request in done),
        ("HA-T-1", "HA-G-2", "HA-G-6"),
    )


def on_shutdown(group: GroupTransfer) -> Step[GroupTransfer]:
    """End every put: the master is going away.

    Spec: HA-G-6.  Source: quirk 33, which this mends: RocketMQ lets them wait for ever.
    """
    done = tuple(Done(request.request_id, request.next_offset, FLUSH_SLAVE_TIMEOUT) for request in group.requests)
    return Step(NO_REQUESTS, done, ("HA-G-6",) if done else ())
