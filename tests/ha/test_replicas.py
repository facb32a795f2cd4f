"""Chapter 4, several copies: puts that need several distinct slaves. The tests run in lock-step unless they say otherwise."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.reference import group_transfer
from rocketmq_ha.reference.cluster import Cluster
from rocketmq_ha.reference.events import Connect, Cut, DeliverFrames, DeliverReports, Put, Tick
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings

ALL = 1 << 18
FILE_SIZE = 1000
PUT = Put("T", bytes(8), "", 0, False)  # 100 bytes
SYNC_PUT = Put("T", bytes(8), "", 0, True)


def ended(cluster: Cluster) -> list[tuple[int, str]]:
    """(next offset, status) of the puts that the last event ended."""
    return [(done.next_offset, done.status) for done in cluster.done]


def received(both: Any, slave: int) -> Cluster:
    """Deliver all frames in flight to a slave, and its reports to the master."""
    cluster: Cluster = both.happens(DeliverFrames(slave, ALL), DeliverReports(slave, ALL))
    return cluster


def with_slaves(worlds: Any, slaves: int, replicas: int, **settings: int) -> Any:
    """Connect every slave, and let it acknowledge the first message."""
    both = worlds(HARDENED, slaves, replicas=replicas, **settings)
    both.happens(PUT, *(Connect(index, ALL, ALL) for index in range(slaves)))
    for index in range(slaves):
        both.settle(index)
    return both


def test_a_put_that_needs_two_ends_when_the_second_of_three_has_it(worlds: Any) -> None:
    """HA-G-30 "the N-th greatest among the acknowledgements of the replicas": not the greatest acknowledgement, and not the
    least.
    """
    both = with_slaves(worlds, 3, 2)
    assert both.cluster.push2_slave_max_offset == 100
    both.happens(SYNC_PUT)
    assert ended(received(both, 2)) == []
    assert both.cluster.push2_slave_max_offset == 100
    assert ended(received(both, 0)) == [(200, "PUT_OK")]
    assert (both.cluster.push2_slave_max_offset, both.link(1).conn.slave_ack_offset) == (200, 100)


def test_where_fewer_have_acknowledged_anything_nothing_is_acknowledged(worlds: Any) -> None:
    """HA-G-30 "and 0 where fewer than N have acknowledged anything": one of two slaves is lost, and comes back."""
    both = with_slaves(worlds, 2, 2)
    both.happens(Cut(1, "both"))
    assert both.cluster.push2_slave_max_offset == 0
    both.happens(Connect(1, ALL, ALL), DeliverReports(1, ALL))
    assert both.cluster.push2_slave_max_offset == 0  # the slave has only asked where to start (HA-G-5)
    both.happens(PUT)
    received(both, 0)
    assert received(both, 1).push2_slave_max_offset == 200


def test_two_connections_of_one_slave_count_once(worlds: Any) -> None:
    """HA-G-31 "Connections of one replica MUST count once, by the greatest of their acknowledgements". The link of one slave
    broke unnoticed by its master, which has the acknowledgements of the old connection and of the new one.
    """
    both = with_slaves(worlds, 2, 2)
    both.happens(Cut(1, "both"), PUT)
    assert received(both, 0).push2_slave_max_offset == 0
    both.happens(Cut(0, "slave"), Connect(0, ALL, ALL), DeliverReports(0, ALL), PUT)
    received(both, 0)
    acks = [link.conn.slave_ack_offset for link in both.cluster.links]
    assert (sorted(acks), both.cluster.push2_slave_max_offset) == ([200, 300], 0)
    assert ended(both.happens(SYNC_PUT)) == [(400, "SLAVE_NOT_AVAILABLE")]
    both.happens(Connect(1, ALL, ALL), DeliverReports(1, ALL))
    assert received(both, 1).push2_slave_max_offset == 300  # the new connection of the other slave, not its old one


def test_the_old_connection_of_a_slave_still_counts_for_it(worlds: Any) -> None:
    """HA-G-31 "by the greatest of their acknowledgements": the slave comes back, and has what it acknowledged before."""
    both = with_slaves(worlds, 2, 2)
    both.happens(SYNC_PUT)
    received(both, 0)
    both.happens(DeliverFrames(1, ALL), Cut(1, "slave"), Connect(1, ALL, ALL), DeliverReports(1, ALL))
    assert both.cluster.push2_slave_max_offset == 100
    assert ended(both.happens(PUT)) == []
    assert ended(received(both, 1)) == [(200, "PUT_OK")]


def test_too_few_replicas_are_as_good_as_none(worlds: Any) -> None:
    """HA-G-32 "MUST end with SLAVE_NOT_AVAILABLE, without waiting, when fewer than N replicas count"."""
    both = with_slaves(worlds, 2, 3)
    assert ended(both.happens(SYNC_PUT)) == [(200, "SLAVE_NOT_AVAILABLE")]
    both = with_slaves(worlds, 2, 2)
    assert ended(both.happens(Cut(0, "both"), SYNC_PUT)) == [(200, "SLAVE_NOT_AVAILABLE")]


def test_a_put_that_waits_already_goes_on_when_a_replica_is_lost(worlds: Any) -> None:
    """HA-G-32 is about a put "that would wait": one that waits already goes on until its deadline (HA-G-2), or until the
    replica comes.
    """
    for back in (True, False):
        both = with_slaves(worlds, 2, 2)
        both.happens(SYNC_PUT, DeliverFrames(0, ALL), Cut(1, "both"))
        assert ended(both.happens(DeliverReports(0, ALL))) == []
        if back:
            both.happens(Connect(1, ALL, ALL), DeliverReports(1, ALL))
            assert ended(received(both, 1)) == [(200, "PUT_OK")]
        else:
            assert ended(both.happens(Tick(5001))) == [(200, "FLUSH_SLAVE_TIMEOUT")]


def test_the_lag_of_replicas_is_that_of_the_last_one_that_is_needed(worlds: Any) -> None:
    """HA-G-3 "ha_slave_fallbehind_max or more beyond push2_slave_max_offset", which is now the acknowledgement of the N-th
    replica (HA-G-30).
    """
    for replicas, outcome in ((1, []), (2, [(300, "SLAVE_NOT_AVAILABLE")])):
        both = with_slaves(worlds, 2, replicas, ha_slave_fallbehind_max=200)
        both.happens(PUT)
        received(both, 0)
        assert ended(both.happens(SYNC_PUT)) == outcome


@pytest.mark.parametrize(
    ("replicas", "profile", "expected"),
    ((0, HARDENED, "at least 1"), (-1, CLASSIC, "at least 1"), (2, CLASSIC, "1 in the classic profile")),
)
def test_a_number_that_cannot_be_is_refused(replicas: int, profile: Any, expected: str, tmp_path: Path) -> None:
    """HA-G-33 "below 1, or in classic other than 1, MUST be refused before it starts"."""
    with (
        CommitLog.open(tmp_path, file_size=FILE_SIZE) as log,
        listen("127.0.0.1", 0) as listener,
        pytest.raises(ConfigInvalid, match=f"replicas {replicas}: expected {expected}"),
    ):
        Master(log, listener, Settings(FILE_SIZE, replicas=replicas), profile)


# --- The implementation alone ------------------------------------------------------------------------------------------------


def test_a_peer_without_a_certificate_is_known_by_its_address(tmp_path: Path) -> None:
    """HA-G-31 "the address that the peer connects from, without its port"."""
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        service = HAService(log, Settings(FILE_SIZE), HARDENED)
        peers = ("10.0.0.2:4000", "10.0.0.2:4001", "[::1]:4000", "slave-0")
        assert [service.on_accept(peer, 0).replica for peer in peers] == ["10.0.0.2", "10.0.0.2", "[::1]", "slave-0"]
        assert service.on_accept("10.0.0.2:4002", 0, replica="CN=b").replica == "CN=b"


steps = st.lists(st.tuples(st.sampled_from(("accept", "ack", "ack", "ack", "close")), st.integers(0, 9), st.integers(1, 30)))


@given(steps=steps, replicas=st.integers(1, 4))
@hypothesis_settings(max_examples=300, deadline=None)
def test_the_acknowledged_offset_is_right_while_connections_come_and_go(
    steps: list[tuple[str, int, int]], replicas: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """HA-G-30, HA-G-31: updated with each report, the offset equals one that is computed from scratch. It alone ends puts."""
    with CommitLog.open(tmp_path_factory.mktemp("store"), file_size=1 << 16) as log:
        service = HAService(log, Settings(1 << 16, replicas=replicas), HARDENED)
        waiting: list[GroupCommitRequest] = []
        for event, number, more in steps:
            open_ones: list[MasterConnection] = service.connections
            if event == "accept":
                conn = service.on_accept(f"peer:{number}", 0, replica=f"replica {number % 5}")
                conn.start_offset = conn.slave_ack_offset = 100 * (more % 4)
            elif event == "ack" and open_ones:
                conn = open_ones[number % len(open_ones)]
                conn.slave_ack_offset += 10 * (more % 5)
                service.on_ack(conn)
            elif event == "close" and open_ones:
                service.close(open_ones[number % len(open_ones)], "end_of_stream")
            push2 = service.push2_slave_max_offset
            acks = [(int(conn.replica[-1]), conn.acked_offset) for conn in service.connections if conn.acked_offset]
            assert push2 == group_transfer.acknowledged(acks, replicas)
            assert service.count_replicas() == len({replica for replica, _ in acks})
            assert all(one.status is (PutMessageStatus.PUT_OK if one.next_offset <= push2 else None) for one in waiting)
            waiting = [one for one in waiting if one.status is None]
            request = service.put(Message("T", b""), 0, wait=True)
            if service.count_replicas() < replicas:
                assert request.status is PutMessageStatus.SLAVE_NOT_AVAILABLE
            elif request.next_offset <= push2:
                assert request.status is PutMessageStatus.PUT_OK
            else:
                assert request.status is None
                waiting.append(request)
