"""The master's end of a connection over a played socket: what each result of a system call changes, and what it leaves."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.played import AGAIN, PlayedSocket, Result, error
from rocketmq_ha.impl.errors import PeerViolation, StoreCorrupt
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.net import link as link_module
from rocketmq_ha.impl.net.link import MAX_REPORTS_TURN, MasterLink
from rocketmq_ha.impl.net.tls import TlsBroken
from rocketmq_ha.impl.net.token_bucket import TokenBucket
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE = 100_000
FRAME = HEADER.size + 100  # one frame of the log below
GONE = tuple(error(number) for number in (errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[HAService]:
    """A master's service over a log of 100 bytes."""
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        log.append_data(0, [memoryview(bytes(range(100)))])
        yield HAService(log, Settings(FILE_SIZE, ha_transfer_batch_size=1000, master_read_buffer_size=4096), HARDENED)


def reporting(
    service: HAService,
    writes: tuple[Result, ...] = (),
    reads: tuple[Result, ...] = (),
    *,
    ends_short: bool = False,
    bucket: TokenBucket | None = None,
) -> tuple[MasterLink, PlayedSocket]:
    """A link whose peer has asked for the last file at 500 ms."""
    sock = PlayedSocket((REPORT.pack(0), AGAIN, *reads), writes)
    link = MasterLink(sock, service.on_accept("10.0.0.7:4000", 0), service, bucket, ends_short=ends_short)
    assert link.on_reports(500) is None
    sock.calls.clear()
    return link, sock


# --- Writes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends_short", [False, True])
@pytest.mark.parametrize(
    ("writes", "moved", "is_full", "has_all", "taken"),
    [
        ((), FRAME, False, True, 0),
        ((AGAIN,), 0, True, False, 0),
        ((5, AGAIN), 5, True, False, 5),
        ((HEADER.size, AGAIN), HEADER.size, True, False, HEADER.size),
        ((FRAME - 1, AGAIN), FRAME - 1, True, False, FRAME - 1),
        ((FRAME,), FRAME, False, True, 0),
    ],
)
def test_a_socket_that_takes_less_than_all_is_full(
    service: HAService,
    writes: tuple[Result, ...],
    moved: int,
    is_full: bool,
    has_all: bool,
    taken: int,
    ends_short: bool,
) -> None:
    """HA-M-6 "the write side only goes on" with a frame that the socket has not taken: the rest comes with the next turn."""
    link, sock = reporting(service, writes, ends_short=ends_short)
    assert link.on_transfer(1000) is False
    assert (link.moved, link.is_full, link.conn.has_all, link.conn.taken) == (moved, is_full, has_all, taken)
    assert link.blocked_since_ms == (1000 if is_full else None)
    assert sock.sent == (HEADER.pack(0, 100) + bytes(range(100)))[:moved]
    sock.writes.clear()
    assert link.on_transfer(1100) is False
    assert (link.moved, link.conn.has_all, link.blocked_since_ms) == (FRAME - moved, True, None)
    assert sock.sent == HEADER.pack(0, 100) + bytes(range(100))
    assert link.conn.sent_offset == link.conn.next_transfer_from_where == 100


def test_a_partial_write_saves_the_call_that_would_confirm_it(service: HAService) -> None:
    assert [len(_calls_of_a_partial_write(service, ends_short)) for ends_short in (False, True)] == [2, 1]


def _calls_of_a_partial_write(service: HAService, ends_short: bool) -> list[str]:
    link, sock = reporting(service, (5, AGAIN), ends_short=ends_short)
    link.on_transfer(1000)
    return sock.calls


@pytest.mark.parametrize("ends_short", [False, True])
def test_the_clock_of_a_stall_runs_from_the_last_byte_that_was_taken(service: HAService, ends_short: bool) -> None:
    """HA-M-53 "taken no byte of a pending frame for more than write_stall_deadline": each byte sets it anew, all end it."""
    partial: tuple[Result, ...] = (3,) if ends_short else (3, AGAIN)
    link, sock = reporting(service, (AGAIN, AGAIN, *partial, AGAIN), ends_short=ends_short)
    since = []
    for now_ms in (1000, 2000, 3000, 4000, 5000):
        link.on_transfer(now_ms)
        since.append(link.blocked_since_ms)
    assert since == [1000, 1000, 3000, 3000, None]
    service.log.append_data(100, [memoryview(bytes(50))])
    sock.writes.append(AGAIN)
    link.on_transfer(9000)
    assert link.blocked_since_ms == 9000


@pytest.mark.parametrize("failure", GONE, ids=lambda failure: errno.errorcode[failure.errno])
@pytest.mark.parametrize("before", [(), (5,)], ids=["at once", "within a frame"])
def test_an_error_of_a_write_ends_the_connection(service: HAService, failure: OSError, before: tuple[Result, ...]) -> None:
    """HA-M-13 "An end of stream or an error of the socket MUST close the connection"."""
    link, sock = reporting(service, (*before, failure))
    other, _ = reporting(service)
    assert link.on_transfer(1000) is False
    assert (link.conn.close_reason, link.unread, sock.closed) == ("end_of_stream", None, 1)
    assert (link.moved, link.conn.taken) == (sum(before), 0)  # type: ignore[arg-type]
    assert service.connections == [other.conn]


def test_a_file_that_was_cut_under_a_write_is_the_stores_fault(service: HAService) -> None:
    """HA-M-88 "MUST end the connection for which it reads": the system says so by EFAULT."""
    failure = error(errno.EFAULT)
    link, sock = reporting(service, (failure,))
    assert link.on_transfer(1000) is False
    assert (link.conn.close_reason, link.unread, sock.closed) == ("store", failure, 1)


def test_a_turn_ends_at_its_number_of_bytes(service: HAService) -> None:
    """A turn may exceed `most` by one call, and goes on while it is below."""
    service.log.append_data(100, [memoryview(bytes(40_000))])  # 40 frames of 1,000 bytes and one of 100; 16 in one call
    first = 16 * (HEADER.size + 1000)
    for most, calls, has_more in ((first - 1, 1, True), (first, 1, True), (first + 1, 2, True), (1 << 20, 3, False)):
        link, sock = reporting(service)
        assert link.on_transfer(1000, most) is has_more
        assert sock.calls == ["send"] * calls
        assert link.moved == len(sock.sent)
        assert link.conn.has_all is not has_more


def test_a_call_sends_no_more_than_max_send(service: HAService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "MAX_SEND", 50)
    link, sock = reporting(service, (), ends_short=True)
    assert link.on_transfer(1000, 50) is True  # all 50 that were offered were taken, so the socket is not full
    assert (len(sock.sent), link.is_full, link.blocked_since_ms) == (50, False, None)
    assert link.on_transfer(1000) is False
    assert sock.sent == HEADER.pack(0, 100) + bytes(range(100))


# --- Rate ----------------------------------------------------------------------------------------------------------------


def test_an_empty_bucket_ends_the_turn_and_costs_no_call(service: HAService) -> None:
    """HA-M-56 "headers and bodies counted"; the bucket of 100,000 bytes a second gives out 4,096 bytes or more."""
    service.log.append_data(100, [memoryview(bytes(9900))])
    link, sock = reporting(service, bucket=TokenBucket(100_000, 0))
    assert (link.on_transfer(40), link.is_throttled, link.moved, sock.calls) == (False, True, 0, [])
    assert (link.on_transfer(41), link.is_throttled, link.moved, sock.calls) == (False, True, 4100, ["send"])
    assert (link.is_full, link.blocked_since_ms) == (False, None)  # the rate has stopped it, not the peer
    assert (link.on_transfer(81), link.is_throttled, link.moved) == (False, True, 0)
    assert (link.on_transfer(141), link.is_throttled, link.moved) == (False, False, 10_000 + 10 * HEADER.size - 4100)
    assert link.conn.has_all


def test_bytes_that_the_socket_refuses_cost_no_tokens(service: HAService) -> None:
    service.log.append_data(100, [memoryview(bytes(9900))])
    link, sock = reporting(service, (AGAIN, 100, AGAIN), bucket=TokenBucket(100_000, 0))
    assert (link.on_transfer(50), link.moved, link.is_throttled) == (False, 0, False)
    assert (link.on_transfer(50), link.moved) == (False, 100)
    assert (link.on_transfer(50), link.is_throttled, len(sock.sent)) == (False, True, HEADER.size + 1000)  # the frame's rest
    assert (link.on_transfer(52), link.is_throttled, len(sock.sent)) == (False, True, 5200)


# --- Reads ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [b"", *GONE], ids=lambda result: errno.errorcode[result.errno] if result else "end")
def test_the_end_of_a_stream_or_an_error_closes(service: HAService, result: Result) -> None:
    """HA-M-13; the bytes before it count."""
    link, sock = reporting(service, reads=(b"\0\0\0", result))
    assert link.on_reports(2000) is None
    assert (link.conn.close_reason, sock.closed, link.received) == ("end_of_stream", 1, 11)
    assert link.conn.last_read_timestamp == 2000
    assert service.connections == []


def test_a_read_that_would_block_leaves_the_connection(service: HAService) -> None:
    link, sock = reporting(service, reads=(b"\0\0\0", AGAIN, bytes(4)))
    assert (link.on_reports(2000), link.received, link.conn.unparsed) == (None, 11, 3)
    assert (link.on_reports(3000), link.received, link.conn.unparsed) == (None, 15, 7)
    assert (link.on_reports(4000), link.received, link.conn.last_read_timestamp) == (None, 15, 3000)
    assert (link.conn.close_reason, sock.closed) == ("", 0)


@pytest.mark.parametrize(
    ("reads", "reason"),
    [
        ((REPORT.pack(101),), "report"),
        ((TlsBroken("HA-M-70", "10.0.0.7:4000", "no TLS", "TLS"),), "tls"),
        ((TlsBroken("HA-S-70", "10.0.0.7:4000", "no TLS", "TLS"),), "tls"),
        ((PeerViolation("HA-M-12", "10.0.0.7:4000", "3", "4"),), "report"),
    ],
)
def test_a_violation_closes_and_is_returned(service: HAService, reads: tuple[Result, ...], reason: str) -> None:
    link, sock = reporting(service, reads=reads)
    violation = link.on_reports(2000)
    assert isinstance(violation, PeerViolation)
    assert violation.peer == "10.0.0.7:4000"
    assert (link.conn.close_reason, sock.closed, service.connections) == (reason, 1, [])


@pytest.mark.parametrize(("last", "reads"), [(4095, 5), (4096, 4)])
def test_a_turn_reads_16_kib(service: HAService, last: int, reads: int) -> None:
    """HA-M-54 "MUST NOT read more than 16 KiB of one connection" at one go; with one byte less it looks once more."""
    assert MAX_REPORTS_TURN == 4 * 4096
    sock = PlayedSocket([bytes(4096)] * 3 + [bytes(last)])
    link = MasterLink(sock, service.on_accept("peer", 0), service)
    assert link.on_reports(500) is None
    assert (sock.calls, link.received) == (["recv"] * reads, 3 * 4096 + last)


@pytest.mark.parametrize(("size", "reads"), [(4095, 1), (4096, 2)])
def test_a_read_that_does_not_fill_its_buffer_is_the_last_one(service: HAService, size: int, reads: int) -> None:
    sock = PlayedSocket([bytes(size)])
    link = MasterLink(sock, service.on_accept("peer", 0), service, ends_short=True)
    link.on_reports(500)
    assert sock.calls == ["recv"] * reads


def test_a_report_counts_before_the_next_read(service: HAService) -> None:
    """HA-M-24 "MUST be handed to the group transfer before the next read", also where that read finds the end."""
    link, sock = reporting(service)
    link.on_transfer(500)
    seen: list[int] = []
    service.tallies.clear()
    on_ack = service.on_ack
    object.__setattr__(service, "on_ack", lambda conn: (on_ack(conn), seen.append(service.push2_slave_max_offset)))
    sock.reads += [REPORT.pack(60), REPORT.pack(100), b""]
    link.on_reports(600)
    assert seen == [60, 100]
    assert service.push2_slave_max_offset == 0  # HA-G-5: it is gone


# --- The end -------------------------------------------------------------------------------------------------------------


def test_the_first_reason_stays_and_the_service_is_told_once(service: HAService) -> None:
    link, sock = reporting(service, (5, AGAIN))
    link.on_transfer(1000)
    for reason in ("report_deadline", "write_stall"):
        link.close(reason)
    assert (link.conn.close_reason, sock.closed) == ("report_deadline", 2)
    assert (link.conn.last_write_over, link.conn.taken) == (True, 0)
    assert service.connections == []


def test_a_new_link_has_moved_nothing_and_is_not_full(service: HAService) -> None:
    link = MasterLink(PlayedSocket(), service.on_accept("peer", 0), service)
    assert (link.moved, link.received, link.blocked_since_ms, link.unread) == (0, 0, None, None)
    assert (link.is_throttled, link.is_full, link.is_watched) == (False, False, False)


def test_an_error_of_the_log_is_kept_for_the_line_that_names_it(service: HAService, tmp_path: Path) -> None:
    """HA-M-88 "MUST end the connection for which it reads": the file was cut under the master."""
    link, sock = reporting(service)
    (file,) = (tmp_path / "commitlog").iterdir()
    with file.open("r+b") as opened:
        opened.truncate(50)
    assert link.on_transfer(1000) is False
    assert (type(link.unread), link.conn.close_reason, sock.closed, sock.sent) == (StoreCorrupt, "store", 1, b"")
