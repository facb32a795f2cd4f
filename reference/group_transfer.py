"""The puts that wait for a slave, and hardened's way of ending them: each by its own deadline. Classic's is in five_waits.py.

NO_WAITERS <--all done-- WAITING <--put that waits-- NO_WAITERS
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from rocketmq_ha.reference.replace import replace
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
    next_offset: int  # HA-G-10 "the offset after its message: the offset at which it was written plus its size"
    deadline_ms: int  # the last instant at which its producer still waits


@dataclass(frozen=True, slots=True)
class GroupTransfer:
    """The puts whose producers wait, in the order in which they came: in hardened by ascending next_offset."""

    requests: tuple[GroupCommitRequest, ...] = ()


Group = TypeVar("Group", bound=GroupTransfer)


def classify(group: GroupTransfer) -> GroupTransferState:
    return GroupTransferState.WAITING if group.requests else GroupTransferState.NO_WAITERS


def acknowledged(acks: Iterable[tuple[int, int]], replicas: int) -> int:
    """The greatest offset that `replicas` replicas have acknowledged; 0 if fewer have acknowledged anything.

    Args: acks: (replica, acknowledgement) of each connection, in any order; 0 for nothing.
    Spec: HA-G-30 "MUST be the N-th greatest among the acknowledgements of the replicas"; HA-G-31 "MUST count once, by the
    greatest of their acknowledgements".

    >>> acknowledged([(1, 700), (2, 500), (3, 900)], 2), acknowledged([(1, 700), (1, 900), (2, 500)], 2)
    (700, 500)
    >>> acknowledged([(1, 700), (1, 900)], 2), acknowledged([], 1)
    (0, 0)
    """
    greatest: dict[int, int] = {}
    for replica, ack in acks:
        greatest[replica] = max(ack, greatest.get(replica, 0))
    ranked = sorted(greatest.values(), reverse=True)
    return ranked[replicas - 1] if replicas <= len(ranked) else 0


def is_slave_ok(slaves: int, next_offset: int, push2_slave_max_offset: int, settings: Settings) -> bool:
    """Return True if there are slaves that could answer in time. Else a put ends at once:

    Spec: HA-G-3 "when there is no slave, or when the offset after its message is ha_slave_fallbehind_max or more beyond
    push2_slave_max_offset"; HA-G-32 "MUST end with SLAVE_NOT_AVAILABLE, without waiting,
    when fewer than N replicas count".
    Source: article 001, isSlaveOK.
    """
    return slaves >= settings.replicas and next_offset - push2_slave_max_offset < settings.ha_slave_fallbehind_max


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

    Args: slaves: how many count: in classic connections, in hardened replicas (HA-G-4, HA-G-5, HA-G-31).
    Spec: HA-G-3 "MUST end with SLAVE_NOT_AVAILABLE, without waiting"; HA-G-11 "The request MUST be known to the group transfer,
    and the write sides be woken, before the put begins to wait": it is by the end of this step.
    Source: article 001, handleHA, isSlaveOK, and doWaitTransfer, which looks before it waits.
    """
    # GUARD
    if not is_slave_ok(slaves, next_offset, push2_slave_max_offset, settings):
        too_few = ("HA-G-32",) if 0 < slaves < settings.replicas else ()
        return Step(group, (Done(request_id, next_offset, SLAVE_NOT_AVAILABLE),), ("HA-G-3", *too_few, "HA-G-6"))
    if next_offset <= push2_slave_max_offset:  # nobody honest has reported so much yet, and hardened believes nobody else
        return Step(group, (Done(request_id, next_offset, PUT_OK),), ("HA-G-1", "HA-G-6"))
    # STATE
    request = GroupCommitRequest(request_id, next_offset, now_ms + settings.sync_flush_timeout_ms)
    return Step(replace(group, requests=(*group.requests, request)))


def on_ack(group: GroupTransfer, push2_slave_max_offset: int) -> Step[GroupTransfer]:
    """Release every put whose bytes enough slaves have reported.

    Spec: HA-G-1 "MUST end with PUT_OK when push2_slave_max_offset is at least the offset after its message"; HA-G-7 "MUST NOT
    wait for an offset greater than its own".
    Source: article 001, doWaitTransfer.
    """
    done = tuple(request for request in group.requests if request.next_offset <= push2_slave_max_offset)
    if not done:
        return Step(group)
    rest = tuple(request for request in group.requests if request.next_offset > push2_slave_max_offset)
    return Step(
        replace(group, requests=rest),
        tuple(Done(request.request_id, request.next_offset, PUT_OK) for request in done),
        ("HA-G-1", "HA-G-6", "HA-G-7") if rest else ("HA-G-1", "HA-G-6"),
    )


def on_tick(group: Group, now_ms: int) -> Step[Group]:
    """End every put that has waited too long. Classic's producers wait by this too.

    Spec: HA-G-2 "MUST end with FLUSH_SLAVE_TIMEOUT when more than sync_flush_timeout has passed since the put".
    Source: article 001, waitForFlush.
    """
    done = tuple(request for request in group.requests if now_ms > request.deadline_ms)
    if not done:
        return Step(group)
    rest = tuple(request for request in group.requests if now_ms <= request.deadline_ms)
    return Step(
        replace(group, requests=rest),
        tuple(Done(request.request_id, request.next_offset, FLUSH_SLAVE_TIMEOUT) for request in done),
        ("HA-T-1", "HA-G-2", "HA-G-6"),
    )


def on_shutdown(group: GroupTransfer) -> Step[GroupTransfer]:
    """End every put: the master is going away.

    Spec: HA-G-6 "Every waiting put MUST end exactly once".  Source: quirk 33, which this corrects.
    """
    done = tuple(Done(request.request_id, request.next_offset, FLUSH_SLAVE_TIMEOUT) for request in group.requests)
    return Step(GroupTransfer(), done, ("HA-G-6",) if done else ())
