"""The puts that wait for a slave, in either profile: each function calls that of group_transfer.py or of five_waits.py.

The state says which: hardened has a `GroupTransfer`, classic a `FiveWaits`.
"""

from rocketmq_ha.reference import five_waits, group_transfer
from rocketmq_ha.reference.five_waits import FiveWaits, FiveWaitsState
from rocketmq_ha.reference.group_transfer import GroupTransfer, GroupTransferState
from rocketmq_ha.reference.step import Step
from rocketmq_ha.spec.profile import Profile, Settings


def new_group(profile: Profile) -> GroupTransfer:
    """The group transfer of a master that has just started: no put waits."""
    return GroupTransfer() if profile.serves_by_deadline else FiveWaits()


def classify(group: GroupTransfer) -> GroupTransferState | FiveWaitsState:
    return five_waits.classify(group) if isinstance(group, FiveWaits) else group_transfer.classify(group)


def on_put(
    group: GroupTransfer,
    request_id: int,
    next_offset: int,
    slaves: int,
    push2_slave_max_offset: int,
    now_ms: int,
    settings: Settings,
) -> Step[GroupTransfer]:
    if isinstance(group, FiveWaits):
        return five_waits.on_put(group, request_id, next_offset, slaves, push2_slave_max_offset, now_ms, settings)
    return group_transfer.on_put(group, request_id, next_offset, slaves, push2_slave_max_offset, now_ms, settings)


def on_ack(group: GroupTransfer, push2_slave_max_offset: int, now_ms: int) -> Step[GroupTransfer]:
    if isinstance(group, FiveWaits):
        return five_waits.on_ack(group, push2_slave_max_offset, now_ms)
    return group_transfer.on_ack(group, push2_slave_max_offset)


def on_tick(group: GroupTransfer, push2_slave_max_offset: int, now_ms: int) -> Step[GroupTransfer]:
    if isinstance(group, FiveWaits):
        return five_waits.on_tick(group, push2_slave_max_offset, now_ms)
    return group_transfer.on_tick(group, now_ms)


def on_shutdown(group: GroupTransfer) -> Step[GroupTransfer]:
    return five_waits.on_shutdown(group) if isinstance(group, FiveWaits) else group_transfer.on_shutdown(group)
