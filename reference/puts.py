"""A put at a broker: whether it is taken, what it waits for, and what its producer hears.

    refused (SLAVE)
    append --> waits for the disk and for a slave, for one of them, or for nothing --> one status, once

What waits for a slave is in group_transfer.py (hardened) and five_waits.py (classic). What waits for the disk is here: one
thread takes all requests that have come, flushes for them, and takes those that have come meanwhile.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.reference import group_transfer_service
from rocketmq_ha.reference.group_transfer import PUT_OK, GroupTransfer
from rocketmq_ha.reference.replace import replace
from rocketmq_ha.reference.step import Done, Output, Step, unique
from rocketmq_ha.spec.constants import PROPERTY_NAME_SEPARATOR, PROPERTY_SEPARATOR
from rocketmq_ha.spec.profile import Profile, Settings
from rocketmq_ha.spec.role import BrokerRole

FLUSH_DISK_TIMEOUT: Final = "FLUSH_DISK_TIMEOUT"
SERVICE_NOT_AVAILABLE: Final = "SERVICE_NOT_AVAILABLE"


@dataclass(frozen=True, slots=True)
class Master:
    """What does not change while a broker runs."""

    role: BrokerRole
    flushes_synchronously: bool
    settings: Settings
    profile: Profile


@dataclass(frozen=True, slots=True)
class Slaves:
    """What the puts are told of the slaves. See HA-G-4 and HA-G-5."""

    count: int = 0
    push2_slave_max_offset: int = 0


@dataclass(frozen=True, slots=True)
class WaitingPut:
    """One whose producer waits. None: that wait has not ended, or not begun."""

    request_id: int
    next_offset: int
    deadline_ms: int  # the last instant at which it still waits for the disk
    disk: str | None
    slave: str | None


@dataclass(frozen=True, slots=True)
class FlushRequest:
    """One put's, which stays with the thread when its producer has given up."""

    request_id: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Puts:
    group: GroupTransfer  # classic: a FiveWaits
    waiting: tuple[WaitingPut, ...] = ()  # by ascending next_offset
    gathered: tuple[FlushRequest, ...] = ()  # what the flush under way is for; empty: the thread sleeps
    queued: tuple[FlushRequest, ...] = ()  # what the next one is for


def refusal(role: BrokerRole) -> str | None:
    """The status of a put that is not taken; None where it is.

    Spec: HA-R-1 "A broker MUST have one of three roles"; HA-R-5 "A slave MUST refuse puts, with SERVICE_NOT_AVAILABLE".
    """
    return SERVICE_NOT_AVAILABLE if role is BrokerRole.SLAVE else None


def waits(properties: str) -> bool:
    """Whether a message lets its put wait: HA-G-8, HA-G-40 "does not carry the property WAIT with the value false".

    Of a repeated name the last counts; a pair without a name or a value is none.
    """
    said = "true"
    for pair in properties.split(PROPERTY_SEPARATOR):
        name, separator, value = pair.partition(PROPERTY_NAME_SEPARATOR)
        if name == "WAIT" and separator and value:
            said = value
    return said.lower() == "true"


def outcome(disk: str, slave: str) -> str:
    """HA-G-41 "MUST end with the outcome of its wait for a slave if that is not PUT_OK, and else with that of its wait for the
    disk".
    """
    return disk if slave == PUT_OK else slave


def on_put(
    puts: Puts, master: Master, request_id: int, next_offset: int, properties: str, slaves: Slaves, now_ms: int
) -> Step[Puts]:
    """The message is in the log, and its producer waits for what it must.

    Spec: HA-G-40 "MUST wait for the disk if the master flushes synchronously", "and only then"; HA-G-8 "MUST wait for a slave
    if the broker is a SYNC_MASTER", "and only then"; HA-G-42 "MUST begin both waits when its message is appended".
    """
    may_wait = waits(properties)
    for_disk = may_wait and master.flushes_synchronously
    for_slave = may_wait and master.role is BrokerRole.SYNC_MASTER
    # STATE
    put = WaitingPut(
        request_id,
        next_offset,
        now_ms + master.settings.sync_flush_timeout_ms,
        None if for_disk else PUT_OK,
        None if for_slave else PUT_OK,
    )
    after = replace(puts, waiting=(*puts.waiting, put))
    request = FlushRequest(request_id, next_offset)
    if for_disk and after.gathered:
        after = replace(after, queued=(*after.queued, request))
    elif for_disk:
        after = replace(after, gathered=(request,))
    step = Step(after, (), ("HA-G-8", "HA-G-40"))
    if for_slave and not (for_disk and not master.profile.waits_at_once):
        step = _ask_slaves(after, master, put, slaves, now_ms, "HA-G-42" if for_disk else "")
    # OUTPUT
    return _tell(step)


def on_flush(puts: Puts, master: Master, flushed_offset: int, slaves: Slaves, now_ms: int) -> Step[Puts]:
    """The flush under way ends, and the thread goes on with those that have come meanwhile.

    It may have covered them too; then there is nothing to flush for them. Of those for whom it has failed each is told.
    Spec: HA-G-44 "MUST end with PUT_OK when a sync has covered the message, and with FLUSH_DISK_TIMEOUT when the flush that was
    to cover it has failed".
    """
    next_ones = tuple(request for request in puts.queued if request.next_offset > flushed_offset)
    told = {
        request.request_id: _of_flush(request.next_offset <= flushed_offset, master.profile)
        for request in (*puts.gathered, *puts.queued)
        if request not in next_ones
    }
    return _disk_tells(replace(puts, gathered=next_ones, queued=()), master, told, slaves, now_ms, "HA-G-44")


def on_disk_end(puts: Puts, master: Master, request_id: int, slaves: Slaves, now_ms: int) -> Step[Puts]:
    """What follows the end of a wait for the disk.

    Spec: HA-G-43 "waits for the disk first, and looks for slaves when that wait is over"; HA-G-42: nothing.
    """
    put = next(put for put in puts.waiting if put.request_id == request_id)
    if put.slave is not None or master.profile.waits_at_once:
        return Step(puts)
    return _ask_slaves(puts, master, put, slaves, now_ms, "HA-G-43")


def on_ack(puts: Puts, push2_slave_max_offset: int, now_ms: int) -> Step[Puts]:
    """push2_slave_max_offset has grown."""
    return _tell(_slave_tells(puts, group_transfer_service.on_ack(puts.group, push2_slave_max_offset, now_ms)))


def on_tick(puts: Puts, master: Master, slaves: Slaves, now_ms: int) -> Step[Puts]:
    """Time ends waits of either kind."""
    step = tick_slaves(puts, slaves, now_ms)
    return _then(step, tick_disk(step.state, master, slaves, now_ms))


def tick_slaves(puts: Puts, slaves: Slaves, now_ms: int) -> Step[Puts]:
    """The first half of a tick: HA-G-2 "when more than sync_flush_timeout has passed since the put"."""
    return _tell(_slave_tells(puts, group_transfer_service.on_tick(puts.group, slaves.push2_slave_max_offset, now_ms)))


def tick_disk(puts: Puts, master: Master, slaves: Slaves, now_ms: int) -> Step[Puts]:
    """The second half of a tick: HA-G-44 "or more than sync_flush_timeout has passed since the put"."""
    late = {put.request_id: FLUSH_DISK_TIMEOUT for put in puts.waiting if put.disk is None and now_ms > put.deadline_ms}
    return _disk_tells(puts, master, late, slaves, now_ms, "HA-G-44")


def on_shutdown(puts: Puts, master: Master, flushed_offset: int, slaves: Slaves, now_ms: int) -> Step[Puts]:
    """The master goes: the disk first, then the slaves. Args: flushed_offset: after the last flush."""
    step = shut_disk(puts, master, flushed_offset, slaves, now_ms)
    return _then(step, shut_slaves(step.state))


def shut_disk(puts: Puts, master: Master, flushed_offset: int, slaves: Slaves, now_ms: int) -> Step[Puts]:
    """The first half of a shutdown.

    Spec: HA-G-45 "MUST flush once more for the puts that wait for the disk, before it lets go of them".
    """
    told = {
        put.request_id: _of_flush(put.next_offset <= flushed_offset, master.profile) for put in puts.waiting if put.disk is None
    }
    return _disk_tells(replace(puts, gathered=(), queued=()), master, told, slaves, now_ms, "HA-G-45")


def shut_slaves(puts: Puts) -> Step[Puts]:
    """The second half of a shutdown."""
    return _tell(_slave_tells(puts, group_transfer_service.on_shutdown(puts.group)))


# --- What both kinds share -------------------------------------------------------------------------------------------


def _ask_slaves(puts: Puts, master: Master, put: WaitingPut, slaves: Slaves, now_ms: int, clause: str) -> Step[Puts]:
    """The wait for slaves begins. clause: the one that says when it begins for a put that waits for both; "" for any other."""
    asked = group_transfer_service.on_put(
        *(puts.group, put.request_id, put.next_offset, slaves.count, slaves.push2_slave_max_offset, now_ms, master.settings)
    )
    clauses = (clause, *asked.clauses) if clause else asked.clauses
    return _slave_tells(puts, Step(asked.state, asked.outputs, clauses))


def _slave_tells(puts: Puts, ended: Step[GroupTransfer]) -> Step[Puts]:
    told = {done.request_id: done.status for done in ended.outputs if isinstance(done, Done)}
    waiting = tuple(replace(put, slave=told.get(put.request_id, put.slave)) for put in puts.waiting)
    return Step(replace(puts, waiting=waiting, group=ended.state), (), ended.clauses)


def _disk_tells(puts: Puts, master: Master, told: dict[int, str], slaves: Slaves, now_ms: int, clause: str) -> Step[Puts]:
    """Each put whose wait for the disk has not ended yet hears of it, in the order of the log."""
    ending = [put.request_id for put in puts.waiting if put.disk is None and put.request_id in told]
    waiting = (replace(put, disk=told[put.request_id] if put.request_id in ending else put.disk) for put in puts.waiting)
    step = Step(replace(puts, waiting=tuple(waiting)), (), (clause,) if ending else ())
    for request_id in ending:
        step = _then(step, on_disk_end(step.state, master, request_id, slaves, now_ms))
    return _tell(step)


def _of_flush(has_covered: bool, profile: Profile) -> str:
    """How a wait for the disk ends by a flush. HA-G-46 "A flush that fails counts as done" in classic (quirk 36)."""
    return PUT_OK if has_covered or not profile.checks_flush else FLUSH_DISK_TIMEOUT


def _tell(step: Step[Puts]) -> Step[Puts]:
    """Each producer both of whose waits have ended hears of it, once."""
    # OUTPUT
    ended: list[Output] = []
    waiting: list[WaitingPut] = []
    for put in step.state.waiting:
        if put.disk is None or put.slave is None:
            waiting.append(put)
        else:
            ended.append(Done(put.request_id, put.next_offset, outcome(put.disk, put.slave)))
    clauses = ("HA-G-6", "HA-G-41") if ended else ()
    return Step(replace(step.state, waiting=tuple(waiting)), (*step.outputs, *ended), unique((*step.clauses, *clauses)))


def _then(first: Step[Puts], second: Step[Puts]) -> Step[Puts]:
    return Step(second.state, (*first.outputs, *second.outputs), unique((*first.clauses, *second.clauses)))


def statuses(outputs: Iterable[Output]) -> list[tuple[int, str]]:
    """(request id, status) of the puts that a step has ended."""
    return [(done.request_id, done.status) for done in outputs if isinstance(done, Done)]
