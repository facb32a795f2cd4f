"""The slave's end of a connection over a played socket: what each result of a system call changes, and when it reports."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.played import AGAIN, PlayedSocket, Result, error
from rocketmq_ha.impl.errors import FileSizeDiffers, OutOfStep, PeerViolation
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net import link as link_module
from rocketmq_ha.impl.net.link import BULK, SlaveLink
from rocketmq_ha.impl.net.tls import TlsBroken
from rocketmq_ha.impl.net.tls_record import ALERT
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

FILE_SIZE = 1_000_000
GONE = tuple(error(number) for number in (errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT))
HEARTBEAT = HEADER.pack(0, 0)
MESSAGE = Message("T", bytes(8))  # 100 bytes


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "slave", file_size=FILE_SIZE) as log:
        yield log


@pytest.fixture
def records(tmp_path: Path) -> bytes:
    """A master's first 1,000 bytes: ten messages."""
    with CommitLog.open(tmp_path / "master", file_size=FILE_SIZE) as log:
        for _ in range(10):
            log.append(MESSAGE)
        data = log.data_at(0, 1000)
        assert data is not None
        return bytes(data)


def linked(
    log: CommitLog,
    reads: tuple[Result, ...] = (),
    writes: tuple[Result, ...] = (),
    profile: Profile = HARDENED,
    *,
    deadline_ms: int | None = None,
    flushes: bool = False,
    ends_short: bool = False,
    settings: Settings | None = None,
) -> tuple[SlaveLink, PlayedSocket]:
    """A link that is not connected yet. flushes: each flush is noted among the calls of the socket."""
    sock = PlayedSocket(reads, writes)
    client = SlaveClient("master", log, settings or Settings(FILE_SIZE), profile)
    flush = (lambda: sock.calls.append("flush")) if flushes else None
    return SlaveLink(sock, client, deadline_ms, flush, ends_short=ends_short), sock


# --- Reports ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("writes", "sent", "is_open"),
    [
        ((), 8, True),
        ((8,), 8, True),
        ((3, 5), 8, True),
        ((AGAIN, 8), 8, True),
        ((AGAIN, AGAIN, 8), 8, True),
        ((3, AGAIN, 5), 8, True),
        ((3, 3, 2), 8, True),
        ((3, 3, 1, 1), 7, False),
        ((3, AGAIN, 4, 1), 7, False),
        ((AGAIN, AGAIN, AGAIN, 8), 0, False),
        ((0, 0, 0, 8), 0, False),
        *(((failure, 8), 0, False) for failure in GONE),
        ((3, GONE[0], 5), 3, False),
    ],
)
def test_a_report_is_written_whole_in_three_tries(log: CommitLog, writes: tuple[Result, ...], sent: int, is_open: bool) -> None:
    """HA-S-8 "that the socket does not take whole, in at most 3 tries": the rest of it goes on where the write ended."""
    log.append(MESSAGE)
    link, sock = linked(log, writes=writes)
    link.on_connect(7000)
    assert (sock.sent, link.sent) == (REPORT.pack(1)[:sent], sent)
    assert (link.client.connected, link.client.close_reason, sock.closed) == (
        (True, "", 0) if is_open else (False, "report", 1)
    )
    assert sock.calls.count("send") <= 3
    assert link.client.last_write_timestamp == 7000  # HA-S-27 "whichever of its reasons it has"


def test_what_a_report_acknowledges_is_on_the_disk_before_it(log: CommitLog, records: bytes) -> None:
    """HA-S-60 "MUST have on its disk all that a report acknowledges": on connecting, of growth, and by the clock."""
    link, sock = linked(log, (HEADER.pack(0, 100) + records[:100], HEADER.pack(100, 0)), flushes=True)
    link.on_connect(0)
    assert sock.calls == ["flush", "send"]
    sock.calls.clear()
    link.on_frames(10)
    assert sock.calls == ["recv", "recv", "recv", "flush", "send"]
    sock.calls.clear()
    link.on_frames(20)  # brings nothing, and is not answered
    link.on_tick(5010)
    assert sock.calls == ["recv"]
    link.on_tick(5011)
    assert sock.calls == ["recv", "flush", "send"]
    assert sock.sent == REPORT.pack(0) + REPORT.pack(100) * 2
    assert link.sent == 24


def test_a_slave_that_comes_back_flushes_before_it_says_what_it_has(log: CommitLog) -> None:
    """HA-S-60: a report on connecting acknowledges in classic's masters what the life before has appended."""
    for _ in range(2):
        log.append(MESSAGE)
    link, sock = linked(log, flushes=True)
    for connects in (1, 2):
        link.on_connect(0)
        assert sock.calls == ["flush", "send"] * connects
        link.client.close_master("end_of_stream")


def test_a_flush_that_fails_reports_nothing(log: CommitLog) -> None:
    failure = error(errno.EIO)

    def fail() -> None:
        raise failure

    for event in ("connect", "tick"):
        sock = PlayedSocket()
        client = SlaveClient("master", log, Settings(FILE_SIZE), HARDENED if event == "connect" else CLASSIC)
        link = SlaveLink(sock, client, None, fail)
        with pytest.raises(OSError, match="Input/output"):
            link.on_connect(0)
            link.on_tick(5001)
        assert (sock.sent, link.sent) == (b"", 0)


def test_classic_reports_by_the_clock_alone_and_hardened_on_connecting(log: CommitLog) -> None:
    """HA-S-2 "has passed since its last report": 5,000 ms have not passed by themselves."""
    for profile, at_connect in ((CLASSIC, b""), (HARDENED, REPORT.pack(0))):
        link, sock = linked(log, profile=profile)
        link.on_connect(1000)
        assert sock.sent == at_connect
        link.on_tick(6000)
        assert sock.sent == at_connect
        link.on_tick(6001)
        assert sock.sent == at_connect + REPORT.pack(0)
        link.on_tick(11_001)
        assert len(sock.sent) == len(at_connect) + 8
        link.on_tick(11_002)
        assert len(sock.sent) == len(at_connect) + 16


def test_a_report_that_fails_ends_the_tick(log: CommitLog) -> None:
    """The reason of the close is the report, not the silence behind it."""
    link, _ = linked(log, writes=(8, GONE[0]))
    link.on_connect(0)
    link.on_tick(50_000)
    assert (link.client.connected, link.client.close_reason) == (False, "report")


# --- Reads --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [b"", *GONE], ids=lambda result: errno.errorcode[result.errno] if result else "end")
def test_the_end_of_a_stream_or_an_error_closes(log: CommitLog, records: bytes, result: Result) -> None:
    """HA-S-13: whole frames before it are kept, parts are dropped, and nothing more is reported."""
    link, sock = linked(log, (HEADER.pack(0, 100) + records[:100] + HEADER.pack(100, 100)[:7], result))
    link.on_connect(0)
    assert link.on_frames(10) is None
    assert (link.client.connected, link.client.close_reason, sock.closed) == (False, "end_of_stream", 1)
    assert (log.max_offset, link.received, link.client.unparsed_size) == (100, 119, 0)
    assert sock.sent == REPORT.pack(0)


def test_a_tls_alert_at_the_end_names_the_port(log: CommitLog) -> None:
    for first, reason in ((ALERT, "tls_port"), (ALERT[:3], "tls_port"), (ALERT[:2], "end_of_stream"), (b"", "end_of_stream")):
        link, _ = linked(log, (first, b"") if first else (b"",))
        link.on_connect(0)
        link.on_frames(10)
        assert link.client.close_reason == reason


@pytest.mark.parametrize("clause", ["HA-S-70", "HA-S-11"])
def test_a_violation_of_the_socket_is_one_of_tls(log: CommitLog, clause: str) -> None:
    violation = TlsBroken(clause, "master", "no TLS", "TLS")
    link, sock = linked(log, (violation,))
    link.on_connect(0)
    assert link.on_frames(10) is violation
    assert (link.client.close_reason, sock.closed) == ("tls", 1)


@pytest.mark.parametrize(
    ("frame", "reason", "clause"),
    [
        (HEADER.pack(0, -1), "frame", "HA-S-11"),
        (HEADER.pack(500, 10), "frame", "HA-S-11"),
        (HEADER.pack((1 << 63) - 1, 0), "frame", "HA-S-52"),
        (HEADER.pack(0, 10) + bytes(10) + HEADER.pack(11, 1), "offset", "HA-S-4"),
    ],
)
def test_a_frame_that_no_master_sends_closes(log: CommitLog, frame: bytes, reason: str, clause: str) -> None:
    link, sock = linked(log, (frame, HEARTBEAT))
    link.on_connect(0)
    violation = link.on_frames(10)
    assert isinstance(violation, PeerViolation)
    assert (violation.clause, violation.peer) == (clause, "master")
    assert (link.client.close_reason, sock.closed, link.out_of_step) == (reason, 1, None)
    assert sock.sent == REPORT.pack(0)  # HA-S-28: a close reports nothing, even if something was appended


def test_what_is_out_of_step_is_kept_for_the_caller(log: CommitLog, records: bytes) -> None:
    """HA-S-62 "MUST close the connection, and stop with an error"; a comparison at another offset is a violation (HA-S-63)."""
    log.append_data(0, [memoryview(records[:200])])
    link, sock = linked(log, (HEADER.pack(100, 100) + bytes(100),))
    link.on_connect(0)
    assert link.on_frames(10) is None
    assert isinstance(link.out_of_step, OutOfStep)
    assert (link.client.close_reason, sock.closed) == ("diverged", 1)
    link, sock = linked(log, (HEADER.pack(200, 100) + bytes(100),))
    link.on_connect(0)
    violation = link.on_frames(10)
    assert (violation and violation.clause, link.client.close_reason, link.out_of_step) == ("HA-S-63", "offset", None)


def test_files_of_another_size_are_a_reason_of_their_own(tmp_path: Path) -> None:
    """HA-S-92 "MUST append nothing from that record on"."""
    with CommitLog.open(tmp_path / "small", file_size=250) as small:
        for _ in range(3):
            small.append(MESSAGE)  # two messages, a BLANK of 50 bytes, and one of the next file
        first = bytes(small.data_at(0, 250) or b"")
    with CommitLog.open(tmp_path / "large", file_size=1000) as log:
        link, sock = linked(log, (HEADER.pack(0, 250) + first,), settings=Settings(1000))
        link.on_connect(0)
        assert link.on_frames(10) is None
        assert isinstance(link.out_of_step, FileSizeDiffers)
        assert (link.client.close_reason, sock.closed, log.max_offset) == ("file_size", 1, 200)


def test_a_frame_that_fills_the_buffer_stalls_a_classic_slave(log: CommitLog) -> None:
    """HA-S-14 "A frame that fills the read buffer without being complete"; one byte less of it waits for the rest."""
    settings = Settings(FILE_SIZE, slave_read_buffer_size=64)
    for offset, size, reason in ((0, 52, ""), (52, 53, "stalled")):
        link, sock = linked(log, (HEADER.pack(offset, size) + bytes(51), bytes(1)), profile=CLASSIC, settings=settings)
        link.on_connect(0)
        link.on_frames(10)
        assert (link.client.close_reason, log.max_offset, sock.closed) == (reason, 52, int(bool(reason)))


@pytest.mark.parametrize(("most", "reads"), [(24, 2), (25, 3), (36, 3), (37, 4)])
def test_a_turn_reads_until_it_has_its_bytes(log: CommitLog, monkeypatch: pytest.MonkeyPatch, most: int, reads: int) -> None:
    """HA-S-7 "at the latest after 4 MiB, the slave MUST report its max offset"."""
    assert link_module.MAX_TURN == 4 * 1024 * 1024
    monkeypatch.setattr(link_module, "MAX_TURN", most)
    link, sock = linked(log, (HEARTBEAT,) * 5)
    link.on_connect(0)
    sock.calls.clear()
    link.on_frames(10)
    assert (sock.calls, link.received) == (["recv"] * reads, reads * 12)


@pytest.mark.parametrize(("size", "reads"), [(BULK - 1, 1), (BULK, 2)])
def test_a_read_of_much_is_followed_by_another(log: CommitLog, size: int, reads: int) -> None:
    body = size - HEADER.size
    link, sock = linked(log, (HEADER.pack(0, body) + bytes(body),), ends_short=True)
    link.on_connect(0)
    sock.calls.clear()
    link.on_frames(10)
    assert sock.calls == ["recv"] * reads + ["send"]


def test_a_read_that_fills_a_small_buffer_is_followed_by_another(log: CommitLog) -> None:
    link, sock = linked(log, (HEARTBEAT * 3,), ends_short=True, settings=Settings(FILE_SIZE, slave_read_buffer_size=36))
    link.on_connect(0)
    link.on_frames(10)
    assert sock.calls == ["send", "recv", "recv"]


# --- Deadlines ----------------------------------------------------------------------------------------------------------


def test_the_clock_of_a_frame_runs_from_its_first_byte(log: CommitLog) -> None:
    """HA-S-50 "not whole after frame_deadline": a byte of the same frame does not set it anew, its end does."""
    link, sock = linked(log)
    link.on_connect(0)
    since = []
    for now_ms, data in (
        (10, HEARTBEAT[:3]),
        (20, HEARTBEAT[3:5]),
        (30, HEARTBEAT[5:] + HEARTBEAT[:1]),
        (40, HEARTBEAT[1:11]),
        (50, HEARTBEAT[11:]),
        (60, HEARTBEAT),
        (70, HEARTBEAT + HEARTBEAT[:5]),
        (80, HEARTBEAT[5:11]),
        (90, HEARTBEAT[11:] + HEARTBEAT[:1]),
    ):
        sock.reads.append(data)
        link.on_frames(now_ms)
        since.append(link._frame_since_ms)
    assert since == [10, 10, 30, 30, None, None, 70, 70, 90]


@pytest.mark.parametrize(("now_ms", "may_expire", "reason"), [(110, True, ""), (111, True, "frame_deadline"), (111, False, "")])
def test_a_partial_frame_ends_the_connection_after_its_deadline(
    log: CommitLog, now_ms: int, may_expire: bool, reason: str
) -> None:
    """HA-S-50; HA-T-1 "strictly more than its length"; HA-T-21: not right after a pause."""
    link, sock = linked(log, (HEARTBEAT[:3],), deadline_ms=100)
    link.on_connect(0)
    link.on_frames(10)
    link.on_tick(now_ms, may_expire=may_expire)
    assert (link.client.close_reason, sock.closed) == (reason, int(bool(reason)))


@pytest.mark.parametrize(
    ("now_ms", "profile", "may_expire", "reason"),
    [
        (20_010, HARDENED, True, ""),
        (20_011, HARDENED, True, "housekeeping"),
        (20_011, HARDENED, False, ""),
        (90_000, CLASSIC, True, ""),
    ],
)
def test_a_silent_master_is_left(log: CommitLog, now_ms: int, profile: Profile, may_expire: bool, reason: str) -> None:
    """HA-S-12 "nothing has been read for more than ha_housekeeping_interval is silent"; HA-S-29: never in classic."""
    link, sock = linked(log, (HEARTBEAT,), profile=profile, deadline_ms=100)
    link.on_connect(0)
    link.on_frames(10)
    link.on_tick(now_ms, may_expire=may_expire)
    assert (link.client.close_reason, sock.closed) == (reason, int(bool(reason)))
    assert sock.sent[-8:] == REPORT.pack(0)  # the report that was due goes first


def test_a_close_forgets_what_the_connection_had(log: CommitLog) -> None:
    link, sock = linked(log, (HEARTBEAT[:5],))
    link.on_connect(0)
    link.on_frames(10)
    link.close("shutdown")
    link.close("housekeeping")
    assert (link.client.close_reason, link.client.unparsed, sock.closed) == ("shutdown", b"", 2)


@pytest.mark.parametrize(
    ("writes", "end", "received"), [((), 300, 336), ((GONE[0],), 100, 224), ((8, AGAIN, AGAIN, AGAIN), 200, 224)]
)
def test_a_report_that_fails_between_two_frames_ends_the_turn(
    log: CommitLog, records: bytes, writes: tuple[Result, ...], end: int, received: int
) -> None:
    """HA-S-6: classic reports after each frame; the frames behind a report that fails are dropped with the connection."""
    frames = [HEADER.pack(at, 100) + records[at : at + 100] for at in (0, 100, 200)]
    link, sock = linked(log, (frames[0] + frames[1], frames[2]), writes, CLASSIC)
    link.on_connect(0)
    assert link.on_frames(10) is None
    assert (log.max_offset, link.received, link.client.connected) == (end, received, end == 300)
    assert (link.client.close_reason, sock.closed) == (("", 0) if end == 300 else ("report", 1))
    assert sock.sent == b"".join(REPORT.pack(at) for at in range(100, end + (end == 300), 100))
