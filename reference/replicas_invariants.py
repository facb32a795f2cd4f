"""The invariants of a hardened master and its replicas, one predicate for each property.

Classic breaks some of them: what it acknowledges outlives its slaves, and a put may be forgotten.
"""

from collections.abc import Callable
from typing import Final

from rocketmq_ha.reference.group_transfer import PUT_OK
from rocketmq_ha.reference.puts import Master
from rocketmq_ha.reference.replicas_state import Replicas, acks


def nobody_waits_for_what_is_acknowledged(replicas: Replicas, _setup: Master) -> bool:
    """HA-G-1: no put waits for an offset that push2_slave_max_offset has reached."""
    return all(request.next_offset > replicas.push2_slave_max_offset for request in replicas.puts.group.requests)


def nobody_waits_too_long(replicas: Replicas, _setup: Master) -> bool:
    """HA-G-2, HA-G-44: no put waits beyond its time, for either."""
    of_slaves = (request.deadline_ms for request in replicas.puts.group.requests)
    of_disk = (put.deadline_ms for put in replicas.puts.waiting if put.disk is None)
    return all(replicas.now_ms <= deadline_ms for deadline_ms in (*of_slaves, *of_disk))


def every_put_ends_once(replicas: Replicas, _setup: Master) -> bool:
    """HA-G-6: each put waits, or its producer has heard once, or its master was killed."""
    waiting = replicas.puts.waiting
    return len(waiting) + replicas.told + replicas.lost == len(replicas.ends)


def acknowledged_by_enough(replicas: Replicas, setup: Master) -> bool:
    """HA-G-30, HA-G-31: as many replicas as are needed have acknowledged push2_slave_max_offset, on open connections."""
    push2 = replicas.push2_slave_max_offset
    have = {replica for replica, ack in acks(replicas, setup.profile) if ack >= push2}
    return push2 == 0 or len(have) >= setup.settings.replicas


def put_ok_is_on_the_disk(replicas: Replicas, setup: Master) -> bool:
    """HA-G-44: a sync has covered each message whose put has waited for the disk, and ended with PUT_OK."""
    waited = [done for done in replicas.done if done.request_id in replicas.waited and done.status == PUT_OK]
    return not setup.flushes_synchronously or all(done.next_offset <= replicas.flushed_offset for done in waited)


INVARIANTS: Final[tuple[Callable[[Replicas, Master], bool], ...]] = (
    nobody_waits_for_what_is_acknowledged,
    nobody_waits_too_long,
    every_put_ends_once,
    acknowledged_by_enough,
    put_ok_is_on_the_disk,
)


def broken(replicas: Replicas, setup: Master) -> tuple[str, ...]:
    """Names of the invariants of a hardened master that do not hold."""
    return tuple(invariant.__name__ for invariant in INVARIANTS if not invariant(replicas, setup))
