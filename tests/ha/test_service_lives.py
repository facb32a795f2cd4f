"""What a master forgets with a connection and what it keeps: acknowledgements, replicas, waiting puts, needed files."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.played import AGAIN, PlayedSocket
from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.ha.master import MasterConnection
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.net.link import MasterLink
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

FILE_SIZE = 1000
MESSAGE = Message("T", bytes(8))  # 100 bytes
PROFILES = pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    """Ten messages; the second file begins at 1000 with the last of them."""
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        for _ in range(10):
            log.append(MESSAGE)
        assert log.max_offset == 1100
        yield log


class Peer:
    """A slave of the master under test: what it reports, and the link at the master."""

    def __init__(self, service: HAService, address: str, first: int | None, *acks: int, now_ms: int = 0) -> None:
        self.sock = PlayedSocket()
        self.service = service
        self.conn = service.on_accept(address, now_ms)
        self.link = MasterLink(self.sock, self.conn, service)
        for offset in (first, *acks):
            if offset is not None:
                self.reports(offset)

    def reports(self, offset: int, now_ms: int = 0) -> PeerViolation | None:
        self.sock.reads += [REPORT.pack(offset), AGAIN]
        violation = self.link.on_reports(now_ms)
        self.link.on_transfer(now_ms)
        return violation


def service_of(log: CommitLog, profile: Profile = HARDENED, **settings: int) -> HAService:
    return HAService(log, Settings(FILE_SIZE, **settings), profile)


# --- Acknowledgements ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(((300, "a"), (200, "a"), (250, "b")))))
@pytest.mark.parametrize("lost", ["a", "b", "c"])
def test_a_replica_counts_by_the_greatest_of_the_connections_that_are_left(
    log: CommitLog, order: tuple[tuple[int, str], ...], lost: str
) -> None:
    """HA-G-31 "by the greatest of their acknowledgements", in whatever order its connections stand in the list."""
    service = service_of(log, replicas=2)
    peers = [Peer(service, f"10.0.0.{name}:{4000 + ack}", 100, ack) for ack, name in order]
    going = Peer(service, f"10.0.0.{lost}:9", 100, 400)
    expected = {"a": 250, "b": 300, "c": 300}[lost]  # with the one that goes: the second greatest of the replicas
    assert service.push2_slave_max_offset == expected
    going.link.close("end_of_stream")
    assert service.push2_slave_max_offset == 250  # a has 300, b has 250
    assert (service.count_slaves(), service.count_replicas()) == (3, 2)
    greatest = next(peer for peer, (ack, _) in zip(peers, order, strict=True) if ack == 300)
    greatest.link.close("end_of_stream")
    assert service.push2_slave_max_offset == 200  # a has 200 on the connection that is left
    assert (service.count_slaves(), service.count_replicas()) == (2, 2)


def test_a_replica_that_has_lost_its_last_connection_acknowledges_nothing(log: CommitLog) -> None:
    """HA-G-30 "and 0 where fewer than N have acknowledged anything", and from 0 on again when it comes back."""
    service = service_of(log, replicas=2)
    a, _ = Peer(service, "a:1", 100, 300), Peer(service, "b:1", 100, 500)
    assert service.push2_slave_max_offset == 300
    a.link.close("end_of_stream")
    assert (service.push2_slave_max_offset, service.count_replicas()) == (0, 1)
    assert service.put(MESSAGE, 0, wait=True).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
    again = Peer(service, "a:2", 300)
    assert (service.push2_slave_max_offset, service.count_replicas()) == (0, 1)
    again.reports(301)
    assert (service.push2_slave_max_offset, service.count_replicas()) == (301, 2)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_last_acknowledgements_count_when_a_connection_without_any_is_closed(log: CommitLog, replicas: int) -> None:
    service = service_of(log, replicas=replicas)
    Peer(service, "a:1", 100, 300), Peer(service, "b:1", 100, 500)
    silent = Peer(service, "a:2", 100)
    before = service.push2_slave_max_offset
    assert before == (500 if replicas == 1 else 300)
    silent.link.close("end_of_stream")
    assert service.push2_slave_max_offset == before


def test_a_replica_that_has_acknowledged_nothing_is_none_whoever_goes(log: CommitLog) -> None:
    """HA-G-32 "MUST end with SLAVE_NOT_AVAILABLE, without waiting, when fewer than N replicas count": asking is not having."""
    service = service_of(log, replicas=2)
    Peer(service, "a:1", 100, 300), Peer(service, "b:1", 100)
    for name in "bcd":
        Peer(service, f"{name}:9", 100).link.close("end_of_stream")
        assert (service.push2_slave_max_offset, service.count_replicas()) == (0, 1)
        assert service.put(MESSAGE, 0, wait=True).status is PutMessageStatus.SLAVE_NOT_AVAILABLE


def test_what_a_reader_has_reported_does_not_count_when_a_slave_leaves(log: CommitLog) -> None:
    """HA-G-5 "greater than the offset at which the transfer of its connection started"."""
    service = service_of(log)
    Peer(service, "reader:1", 500)
    slave = Peer(service, "a:1", 100, 400)
    assert service.push2_slave_max_offset == 400
    slave.link.close("end_of_stream")
    assert service.push2_slave_max_offset == 0


@PROFILES
def test_what_a_lost_slave_acknowledged_is_forgotten_in_hardened_alone(log: CommitLog, profile: Profile) -> None:
    """HA-G-5 "of the connections that are open"; HA-G-4 "the greatest report ever received from anyone"."""
    service = service_of(log, profile)
    first, second = Peer(service, "a:1", 100, 700), Peer(service, "b:1", 100, 400)
    assert service.push2_slave_max_offset == 700
    first.link.close("end_of_stream")
    assert service.push2_slave_max_offset == (400 if profile is HARDENED else 700)
    second.link.close("end_of_stream")
    assert service.push2_slave_max_offset == (0 if profile is HARDENED else 700)
    assert service.put(MESSAGE, 0, wait=True).status is PutMessageStatus.SLAVE_NOT_AVAILABLE  # classic: none is connected
    third = Peer(service, "a:2", 1000, 1000)
    assert service.push2_slave_max_offset == (0 if profile is HARDENED else 1000)
    third.reports(1200)
    assert service.push2_slave_max_offset == 1200


def test_the_slave_that_puts_rely_on_is_looked_for_again_when_it_goes(log: CommitLog) -> None:
    service = service_of(log)
    first, second, third = (Peer(service, f"{name}:1", 100, *acks) for name, acks in (("a", ()), ("b", (300,)), ("c", (200,))))
    waiting = [service.put(MESSAGE, 0, wait=True)]
    for gone, has_slaves in ((first, True), (second, True), (third, False)):
        gone.link.close("end_of_stream")
        waiting.append(service.put(MESSAGE, 0, wait=True))
        assert (waiting[-1].status is None) is has_slaves
    assert waiting[-1].status is PutMessageStatus.SLAVE_NOT_AVAILABLE
    assert [one.status for one in waiting[:-1]] == [None] * 3  # HA-G-2 decides about those that wait already


def test_no_put_waits_for_the_only_slave_when_it_has_gone(log: CommitLog) -> None:
    service = service_of(log)
    only = Peer(service, "a:1", 100, 300)
    assert service.put(MESSAGE, 0, wait=True).status is None
    only.link.close("end_of_stream")
    assert service.put(MESSAGE, 0, wait=True).status is PutMessageStatus.SLAVE_NOT_AVAILABLE


def test_a_violation_ends_its_connection_and_nothing_else(log: CommitLog) -> None:
    """HA-M-11 "MUST NOT be used": neither the acknowledgement before it nor the one that broke the rule counts."""
    service = service_of(log)
    good, bad = Peer(service, "a:1", 100, 300), Peer(service, "b:1", 100, 600)
    assert service.push2_slave_max_offset == 600
    assert bad.reports(599) is not None
    assert (service.push2_slave_max_offset, service.connections) == (300, [good.conn])
    assert bad.conn.close_reason == "report"


def test_a_shutdown_ends_every_put_and_every_connection(log: CommitLog) -> None:
    """HA-G-6 "MUST end exactly once"; HA-M-37 "MUST close every connection"."""
    service = service_of(log)
    peers = [Peer(service, f"{name}:1", 100, 300) for name in "abc"]
    waiting = [service.put(MESSAGE, 0, wait=True) for _ in range(3)]
    service.shutdown()
    assert {one.status for one in waiting} == {PutMessageStatus.FLUSH_SLAVE_TIMEOUT}
    assert {peer.conn.close_reason for peer in peers} == {"shutdown"}
    assert (service.connections, service.push2_slave_max_offset, len(service.group_transfer)) == ([], 0, 0)


# --- Counts --------------------------------------------------------------------------------------------------------------


def test_what_counts_as_connected_as_a_slave_and_as_a_replica(log: CommitLog) -> None:
    """HA-G-5 "from its first acknowledgement on"; HA-G-4 "from its accept on"; HA-G-31 "MUST count once"."""
    counts = []
    for profile in (HARDENED, CLASSIC):
        service = service_of(log, profile)
        for _ in range(2):
            service.on_accept("10.0.0.1:1", 0)
        for number in range(3):
            Peer(service, f"10.0.0.2:{number}", 100)
        for number in range(4):
            Peer(service, f"10.0.0.{3 + number % 2}:{number}", 100, 200)
        counts.append((len(service.connections), service.count_connected(), service.count_slaves(), service.count_replicas()))
    assert counts == [(9, 7, 4, 2), (9, 7, 9, 4)]


@pytest.mark.parametrize(
    ("first", "acks", "needs"),
    [
        (None, (), None),
        (0, (), 1100),  # it has asked for the last file, and was sent it
        (100, (), 1100),
        (100, (100,), 1100),  # a report of its start acknowledges nothing
        (100, (101,), 100),  # a slave asks again for the record of its last byte
        (100, (300, 800), 799),
        (1000, (1100,), 1099),
    ],
)
def test_the_offset_that_a_peer_needs(log: CommitLog, first: int | None, acks: tuple[int, ...], needs: int | None) -> None:
    """HA-ST-66 "A file MUST NOT be deleted while a peer needs it"."""
    service = service_of(log)
    if first is None:
        service.on_accept("a:1", 0)
    else:
        Peer(service, "a:1", first, *acks)
    assert service.needed_offset() == needs


def test_the_least_need_counts_and_ends_with_its_connection(log: CommitLog) -> None:
    service = service_of(log)
    assert service.needed_offset() is None
    peers = [Peer(service, f"{name}:1", 100, ack) for name, ack in (("a", 500), ("b", 300), ("c", 900))]
    asking = service.on_accept("d:1", 0)
    needs = [service.needed_offset()]
    for peer in (peers[1], peers[0], peers[2]):
        peer.link.close("end_of_stream")
        needs.append(service.needed_offset())
    assert needs == [299, 499, 899, None]
    for offset, needed in ((0, None), (1, 1), (700, 700)):  # a first report, before anything was sent
        asking.slave_request_offset = offset
        assert service.needed_offset() == needed


# --- One connection -------------------------------------------------------------------------------------------------------


def test_a_new_connection_knows_nothing_and_has_its_clocks_at_now(log: CommitLog) -> None:
    """HA-M-40 "the master MUST set its last_read_timestamp and its last_write_timestamp to now"."""
    conn = MasterConnection("a:1", log, 777, Settings(FILE_SIZE), HARDENED)
    assert (conn.connected_timestamp, conn.last_read_timestamp, conn.last_write_timestamp) == (777, 777, 777)
    assert (conn.slave_request_offset, conn.slave_ack_offset, conn.start_offset, conn.sent_offset) == (-1, -1, -1, -1)
    assert (conn.next_transfer_from_where, conn.process_position, conn.unparsed, conn.taken, conn.offered) == (-1, 0, 0, 0, 0)
    assert (conn.close_reason, conn.has_all, conn.last_write_over, conn.replica) == ("", False, True, "a:1")
    assert (conn.acked_offset, conn.needed_offset) == (0, None)
    assert MasterConnection("a:1", log, 777, Settings(FILE_SIZE), HARDENED, "CN=a").replica == "CN=a"


def test_reports_move_the_acknowledgement_and_the_first_one_the_start_alone(log: CommitLog) -> None:
    """HA-M-3 "a later report MUST move slave_ack_offset"; HA-M-27 "once, when the write side first finds a report"."""
    peer = Peer(service_of(log), "a:1", 100)
    conn, seen = peer.conn, []
    for offset in (100, 300, 300, 1100):
        assert peer.reports(offset, 50) is None
        seen.append((conn.slave_request_offset, conn.slave_ack_offset, conn.start_offset, conn.acked_offset))
    assert seen == [(100, 100, 100, 0), (100, 300, 100, 300), (100, 300, 100, 300), (100, 1100, 100, 1100)]
    assert (conn.last_read_timestamp, conn.sent_offset, conn.next_transfer_from_where) == (50, 1100, 1100)


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [
        (-1, None, "found first report -1, expected 0 to 1100 (HA-M-11)"),
        (1101, None, "found first report 1101, expected 0 to 1100 (HA-M-11)"),
        (1100, None, None),
        (300, 299, "found report 299, expected 300 to 1100 (HA-M-11)"),
        (300, 1101, "found report 1101, expected 300 to 1100 (HA-M-11)"),
        (300, 1100, None),
        (300, 300, None),
    ],
)
def test_a_report_that_no_slave_sends_is_refused_with_both_numbers(
    log: CommitLog, first: int, later: int | None, expected: str | None
) -> None:
    peer = Peer(service_of(log), "10.0.0.9:40", None if later is None else first)
    violation = peer.reports(first if later is None else later)
    assert (violation and str(violation)) == (expected and f"10.0.0.9:40: {expected}")
    kept = -1 if later is None else first
    assert peer.conn.slave_ack_offset == (kept if expected else later or first)


def test_a_first_report_before_the_log_begins_is_refused(tmp_path: Path) -> None:
    """HA-M-12 "greater than 0 and less than the log's min offset"; 0 asks for the last file, wherever the log begins."""
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        log.append_data(2000, [memoryview(bytes(500))])
        for offset, expected in ((0, None), (1, "0, or 2000 on"), (1999, "0, or 2000 on"), (2000, None), (2500, None)):
            service = service_of(log)
            sock = PlayedSocket((REPORT.pack(offset),))
            violation = MasterLink(sock, service.on_accept("a:1", 0), service).on_reports(0)
            assert (violation and violation.expected) == expected
            assert violation is None or (violation.clause, violation.found) == ("HA-M-12", f"first report {offset}")


def test_a_heartbeat_goes_first_and_leaves_the_place_in_the_log(log: CommitLog) -> None:
    """HA-M-8 "MUST send a heartbeat before it looks for data"; HA-M-34: whatever the socket takes puts the next one off."""
    peer = Peer(service_of(log), "a:1", 1100)
    conn, sock = peer.conn, peer.sock
    sent = []
    for now_ms in (5000, 5001, 10_001, 10_002):
        peer.link.on_transfer(now_ms)
        sent.append(bytes(sock.sent))
        sock.sent.clear()
    heartbeat = HEADER.pack(1100, 0)
    assert sent == [b"", heartbeat, b"", heartbeat]
    log.append(MESSAGE)
    peer.link.on_transfer(20_000)
    assert sock.sent[:12] == heartbeat
    assert sock.sent[12:24] == HEADER.pack(1100, 100)
    assert (conn.sent_offset, conn.next_transfer_from_where, conn.last_write_timestamp) == (1200, 1200, 20_000)


def test_half_a_heartbeat_is_finished_before_the_next_frame(log: CommitLog) -> None:
    """HA-M-6 "A frame once begun MUST be finished", a heartbeat as well; no second one comes meanwhile."""
    peer = Peer(service_of(log), "a:1", 1100)
    peer.sock.writes += [5, AGAIN, AGAIN, 6, AGAIN]
    taken = []
    for now_ms in (6000, 9000, 12_000, 12_001):
        if now_ms == 9000:
            log.append(MESSAGE)
        peer.link.on_transfer(now_ms)
        taken.append((peer.conn.taken, peer.conn.last_write_over, peer.conn.last_write_timestamp))
    assert taken == [(5, False, 6000), (5, False, 6000), (11, False, 12_000), (0, True, 12_001)]
    assert peer.sock.sent == HEADER.pack(1100, 0) + HEADER.pack(1100, 100) + bytes(log.data_at(1100, 100) or b"")


def test_silence_counts_from_the_last_byte_that_was_read(log: CommitLog) -> None:
    """HA-M-9 "nothing has been read for more than ha_housekeeping_interval"."""
    service = service_of(log)
    silent, talking = Peer(service, "a:1", 100, now_ms=0), Peer(service, "b:1", 100, now_ms=0)
    talking.sock.reads += [b"\0", AGAIN]  # a byte of a report is a sign of life
    talking.link.on_reports(1)
    assert [service.on_tick(now_ms) for now_ms in (20_000, 20_001, 20_002)] == [
        [],
        [silent.conn],
        [silent.conn, talking.conn],
    ]
    assert service.connections == [silent.conn, talking.conn]  # the caller closes them
