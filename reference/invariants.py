"""The invariants of every cluster in the hardened profile, one predicate for each property.

Classic violates some of them; spec/violations.md has the catalogue with shortest traces.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from rocketmq_ha.reference import group_transfer, store
from rocketmq_ha.reference.cluster import Cluster
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import HARDENED, Settings


def _served(cluster: Cluster) -> list[Slave]:
    """The slaves that must agree with their master.

    If a master has lost bytes: the slaves on an intact connection whose first report the master has accepted, and that have
    compared the whole overlap (HA-S-62). Otherwise all slaves.
    """
    if not cluster.has_lost:
        return list(cluster.slaves)
    nodes = [
        cluster.slaves[link.slave]
        for link in cluster.links
        if link.slave_open and not link.severed and not link.conn.close_reason and link.conn.slave_request_offset != -1
    ]
    return [node for node in nodes if node.current_reported_offset == store.max_offset(node.log)]


def slave_holds_a_prefix(cluster: Cluster, _settings: Settings) -> bool:
    """Every byte of a slave's log equals the master's byte at that offset; the master has all of these bytes."""
    return all(_agrees(cluster, node.log) for node in _served(cluster))


def _agrees(cluster: Cluster, log: Log) -> bool:
    """Whether the master has the bytes of a slave's log; of what is before the master's own log nobody can say it."""
    if log.base is None:
        return True
    first = store.min_offset(cluster.log)
    begin = max(log.base, first)
    held = log.data[begin - log.base :]
    return cluster.log.data[begin - first : begin - first + len(held)] == held


def slave_is_not_ahead(cluster: Cluster, _settings: Settings) -> bool:
    """No slave's log extends beyond its master's."""
    return all(store.max_offset(node.log) <= store.max_offset(cluster.log) for node in _served(cluster))


def transfer_is_within_the_log(cluster: Cluster, _settings: Settings) -> bool:
    """The master never promises bytes that it does not have."""
    return all(
        link.conn.next_transfer_from_where <= store.max_offset(cluster.log)
        for link in cluster.links
        if not link.conn.close_reason
    )


def ack_is_appended(cluster: Cluster, _settings: Settings) -> bool:
    """A slave holds every byte that its live connection has acknowledged."""
    return all(
        link.conn.slave_ack_offset <= store.max_offset(cluster.slaves[link.slave].log)
        for link in cluster.links
        if link.slave_open and not link.conn.close_reason
    )


def holds_up_to(cluster: Cluster, node: Slave, next_offset: int) -> bool:
    """Return True if a slave has the master's bytes from the beginning of its own log up to an offset."""
    base = node.log.base
    if base is None or store.max_offset(node.log) < next_offset:
        return False
    first, end = store.min_offset(cluster.log), max(base, next_offset)  # of what is before its log it need hold nothing
    begin = max(base, first)
    return end <= begin or node.log.data[begin - base : end - base] == cluster.log.data[begin - first : end - first]


def put_ok_is_replicated(cluster: Cluster, settings: Settings) -> bool:
    """A put that ended with PUT_OK in this step is in the logs of as many slaves as it needs. HA-G-30, HA-S-38."""
    ended = [done.next_offset for done in cluster.done if done.status == group_transfer.PUT_OK]
    return all(
        sum(holds_up_to(cluster, node, next_offset) for node in cluster.slaves) >= settings.replicas for next_offset in ended
    )


@lru_cache(maxsize=16)  # most events leave the log of a slave as it is
def _recovered(log: Log) -> Log:
    return store.recover(log, HARDENED).state


def slave_log_opens(cluster: Cluster, _settings: Settings) -> bool:
    """What a slave holds can be opened again, with its own file size: a recovery cuts off no record that is whole. HA-S-90.

    So after a restart it still has everything that it acknowledged, except a partial record.
    """
    for node in _served(cluster):
        recovered = _recovered(node.log)
        first = store.min_offset(cluster.log)
        cut = store.max_offset(recovered) if recovered.base is not None else store.min_offset(node.log)
        if node.log.base is None or cut == store.max_offset(node.log) or cut < first:
            continue
        size = store.record_size(cluster.log, cut - first)
        if cut + size <= store.max_offset(node.log):
            return False
    return True


def slave_is_on_a_frame_boundary_when_idle(cluster: Cluster, _settings: Settings) -> bool:
    """A slave without a connection holds no unparsed bytes."""
    return all(node.connected or not node.byte_buffer_read for node in cluster.slaves)


INVARIANTS: Final[tuple[Callable[[Cluster, Settings], bool], ...]] = (
    slave_holds_a_prefix,
    slave_is_not_ahead,
    transfer_is_within_the_log,
    ack_is_appended,
    put_ok_is_replicated,
    slave_log_opens,
    slave_is_on_a_frame_boundary_when_idle,
)


def broken(cluster: Cluster, settings: Settings) -> tuple[str, ...]:
    """Names of the invariants that do not hold."""
    return tuple(invariant.__name__ for invariant in INVARIANTS if not invariant(cluster, settings))
