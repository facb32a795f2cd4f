"""A reader's connection to a master: what it makes of the bytes wherever they are cut, and of each result of a system call."""

import errno
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kit.limits import Clock
from kit.played import AGAIN, PlayedSocket, Result, error
from kit.waiting import accepted
from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.ha.feed import LARGEST_BODY, LARGEST_RECORD, NotARecord, Pieces, Records
from rocketmq_ha.impl.net import feed as module
from rocketmq_ha.impl.net import pause
from rocketmq_ha.impl.net.feed import WITHOUT_A_BYTE, FeedEnded, MasterFeed, SpeaksTls, Stopped, Unreachable
from rocketmq_ha.impl.net.tls_record import ALERT
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.impl.wire.record_layout import SMALLEST_RECORD
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE

# --- Frames ----------------------------------------------------------------------------------------------------------------


def pieces_of(*parts: bytes) -> list[tuple[int, bytes]]:
    pieces = Pieces("master")
    return [(offset, bytes(data)) for part in parts for offset, data in pieces.take(memoryview(part))]


@pytest.mark.parametrize("at", range(46))
def test_pieces_join_to_the_log_wherever_the_stream_is_cut(at: int) -> None:
    """HA-W-8 "MUST NOT depend on where its reads split the stream"."""
    stream = HEADER.pack(5, 0) + HEADER.pack(5, 3) + b"abc" + HEADER.pack(8, 4) + b"defg"
    assert len(stream) == 43
    found = pieces_of(stream[:at], stream[at:])
    assert found[0] == (5, b"")
    assert b"".join(data for _, data in found) == b"abcdefg"
    position = 5
    for offset, data in found:
        assert offset == position
        position += len(data)


def test_a_reader_knows_where_the_next_byte_belongs_and_how_large_the_first_body_was() -> None:
    pieces = Pieces("master")
    assert (pieces.next_offset, pieces.first_body_size, pieces.unparsed) == (None, None, b"")
    seen = []
    for part in (HEADER.pack(5, 0), HEADER.pack(5, 3)[:4], HEADER.pack(5, 3)[4:], b"ab", b"c", HEADER.pack(8, 9)):
        assert len(list(pieces.take(memoryview(part)))) <= 1
        seen.append((pieces.next_offset, pieces.first_body_size, len(pieces.unparsed)))
    assert seen == [(5, None, 0), (5, None, 4), (5, 3, 0), (7, 3, 0), (8, 3, 0), (8, 3, 0)]


@pytest.mark.parametrize(
    ("frames", "told"),
    [
        (HEADER.pack(0, LARGEST_BODY), None),
        (HEADER.pack(0, LARGEST_BODY + 1), f"body size of {LARGEST_BODY + 1}, expected 0 to {LARGEST_BODY} (HA-S-11)"),
        (HEADER.pack(0, -1), f"a frame with a body size of -1, expected 0 to {LARGEST_BODY} (HA-S-11)"),
        (HEADER.pack(-1, 0), "a frame at offset -1, expected an offset of 0 or more (HA-S-11)"),
        (HEADER.pack(7, 0) + HEADER.pack(6, 0), "a frame at offset 6, expected offset 7 (HA-S-4)"),
        (HEADER.pack(7, 1) + b"x" + HEADER.pack(7, 0), "a frame at offset 7, expected offset 8 (HA-S-4)"),
        (HEADER.pack(7, 1) + b"x" + HEADER.pack(8, 0), None),
    ],
)
def test_a_frame_that_no_master_sends_is_refused(frames: bytes, told: str | None) -> None:
    if told is None:
        pieces_of(frames)
        return
    with pytest.raises(PeerViolation) as found:
        pieces_of(frames)
    assert str(found.value).endswith(told)
    assert found.value.peer == "master"


# --- Records ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A log of two files of 250 bytes: two messages and a BLANK, and a message."""
    with CommitLog.open(tmp_path_factory.mktemp("log") / "s", file_size=250) as log:
        for _ in range(3):
            log.append(Message("T", bytes(8)))
        return bytes(log.data_at(0, 250) or b"") + bytes(log.data_at(250, 100) or b"")


@pytest.mark.parametrize("size", [1, 2, 7, 8, 49, 50, 51, 99, 100, 101, 350])
def test_records_come_whole_however_the_log_comes(two_files: bytes, size: int) -> None:
    records = Records(0)
    found = []
    for at in range(0, len(two_files), size):
        assert records.next_offset == at
        found += list(records.take(memoryview(two_files[at : at + size])))
    assert found == [(at, two_files[at : at + 100]) for at in (0, 100, 250)]
    assert (records.position, records.next_offset) == (350, 350)


def test_a_reader_may_know_the_first_bytes_already(two_files: bytes) -> None:
    records = Records(100, known=two_files[100:103])
    assert records.next_offset == 103
    assert [offset for offset, _ in records.take(memoryview(two_files[103:200]))] == [100]


def head(size: int, magic: int, offset: int | None = None) -> bytes:
    data = struct.pack(">iI", size, magic)
    return data if offset is None else data + bytes(20) + struct.pack(">q", offset)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (head(8, BLANK_MAGIC_CODE), None),
        (head(7, BLANK_MAGIC_CODE), "a BLANK of 7 bytes, expected at least 8"),
        (head(100, 0x1234), "magic 0x00001234, expected 0x"),
        (head(SMALLEST_RECORD, MESSAGE_MAGIC_CODE), None),
        (head(SMALLEST_RECORD - 1, MESSAGE_MAGIC_CODE), f"total size {SMALLEST_RECORD - 1}, expected {SMALLEST_RECORD} to "),
        (head(LARGEST_RECORD, MESSAGE_MAGIC_CODE), None),
        (head(LARGEST_RECORD + 1, MESSAGE_MAGIC_CODE), f"total size {LARGEST_RECORD + 1}, expected {SMALLEST_RECORD} to "),
        (head(100, MESSAGE_MAGIC_CODE, 500), None),
        (head(100, MESSAGE_MAGIC_CODE, 501), "a record of offset 501, expected one of offset 500"),
        (head(100, MESSAGE_MAGIC_CODE, 501)[:-1], None),
        (head(100, 0x1234)[:7], None),
    ],
)
def test_what_is_no_record_is_refused_as_soon_as_it_shows(data: bytes, told: str | None) -> None:
    records = Records(500)
    if told is None:
        assert list(records.take(memoryview(data))) == []
        return
    with pytest.raises(NotARecord) as found:
        list(records.take(memoryview(data)))
    assert str(found.value).startswith(f"at commit-log offset 500: found {told}")
    assert found.value.offset == 500


# --- The connection ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for each in (module, pause):
        monkeypatch.setattr(each, "clock_ms", clock)
    return clock


@pytest.fixture
def reader(net: Any, clock: Clock) -> Iterator[MasterFeed]:
    """A reader that has reported 77; the test plays its socket from then on."""
    assert clock.ms
    listener = net.listener()
    with MasterFeed(listener.getsockname(), 77, heartbeat_ms=1000, housekeeping_ms=3000) as feed:
        peer = accepted(listener)
        with peer:
            peer.settimeout(60)
            assert peer.recv(REPORT.size) == REPORT.pack(77)
            yield feed


def played(reader: MasterFeed, reads: tuple[Result, ...] = (), writes: tuple[Result, ...] = ()) -> PlayedSocket:
    sock = PlayedSocket(reads, writes)
    reader._end = sock  # type: ignore[assignment]
    return sock


def test_the_report_is_repeated_when_more_than_its_interval_has_passed(reader: MasterFeed, clock: Clock) -> None:
    sock = played(reader)
    seen = []
    for ms in (1000, 1, 999, 1, 1):
        clock.ms += ms
        reader.tick()
        seen.append(len(sock.sent) // 8)
    assert seen == [0, 1, 1, 1, 2]
    assert sock.sent == REPORT.pack(77) * 2


def test_a_master_that_is_silent_for_longer_than_its_time_is_given_up(reader: MasterFeed, clock: Clock) -> None:
    played(reader)
    for ms in (1000, 1000, 1000):
        clock.ms += ms
        reader.tick()
    clock.ms += 1
    with pytest.raises(FeedEnded, match=rf"^{reader.peer}: the master has been silent for 3 s$"):
        reader.tick()
    reader.tick(is_reading=False)  # who does not read hears nothing
    clock.ms += 1000
    reader.tick()


def test_bytes_begin_the_silence_anew_and_are_counted(reader: MasterFeed, clock: Clock) -> None:
    played(reader, (HEADER.pack(9, 0), HEADER.pack(9, 2) + b"ab", AGAIN, HEADER.pack(11, 1)[:5]))
    seen = []
    for _ in range(4):
        clock.ms += 900
        found = [(offset, bytes(data)) for offset, data in reader.read()]
        seen.append((found, reader.received, reader.last_read_ms - clock.ms))
    assert seen == [([(9, b"")], 0, 0), ([(9, b"ab")], 2, 0), ([], 2, -900), ([], 2, 0)]
    assert (reader.first_offset, reader.next_offset, reader.first_body_size) == (9, 11, 2)


@pytest.mark.parametrize(
    ("reads", "kind", "text"),
    [
        ((b"",), FeedEnded, f"the master has closed the connection, {WITHOUT_A_BYTE}"),
        ((b"\0", b""), FeedEnded, "the master has closed the connection"),
        ((HEADER.pack(9, 0), b""), FeedEnded, "the master has closed the connection"),
        ((ALERT, b""), SpeaksTls, "the master speaks TLS on this port: give --tls-cert, --tls-key and --tls-ca"),
        ((error(errno.ECONNRESET),), FeedEnded, "connection lost: Connection reset by peer"),
        ((HEADER.pack(9, 0), error(errno.ETIMEDOUT)), FeedEnded, "connection lost: Connection timed out"),
    ],
)
def test_each_end_of_a_connection_has_its_text(
    reader: MasterFeed, reads: tuple[Result, ...], kind: type[Exception], text: str
) -> None:
    played(reader, reads)
    with pytest.raises(FeedEnded) as found:
        for _ in reads:
            reader.read()
    assert (type(found.value), str(found.value)) == (kind, f"{reader.peer}: {text}")


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (8, None),
        (AGAIN, None),
        (7, "a report was cut"),
        (0, "a report was cut"),
        (error(errno.EPIPE), "connection lost: Broken pipe"),
    ],
)
def test_a_report_that_is_not_taken_ends_the_connection_only_if_it_is_cut(
    reader: MasterFeed, clock: Clock, write: Result, text: str | None
) -> None:
    """A report that waits is the master's concern; half of one would shift all that follow."""
    sock = played(reader, writes=(write,))
    clock.ms += 1001
    if text is None:
        reader.tick()
        clock.ms += 1000
        reader.tick()
        assert sock.calls == ["send"]  # the next one is due an interval later, taken or not
        return
    with pytest.raises(FeedEnded, match=rf"^{reader.peer}: {text}$"):
        reader.tick()


def test_the_first_piece_is_kept_for_the_next_read(reader: MasterFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "wait_readable", lambda *_: True)
    played(reader, (AGAIN, HEADER.pack(9, 2) + b"ab", b"c"))
    assert not reader.has_ready
    offset, data = reader.first(lambda: False)
    assert (offset, bytes(data), reader.has_ready) == (9, b"ab", True)
    assert [bytes(data) for _, data in reader.read()] == [b"ab"]
    assert not reader.has_ready


def test_a_master_that_sends_nothing_is_given_up_after_the_patience(
    reader: MasterFeed, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def waits(_: MasterFeed, ms: int) -> bool:
        clock.ms += ms
        asked.append(clock.ms)
        return False

    monkeypatch.setattr(module, "wait_readable", waits)
    played(reader)
    began = clock.ms
    with pytest.raises(FeedEnded, match=r"connected, but the master sends nothing$"):
        reader.first(lambda: False, 2.0)
    assert clock.ms - began == 2200  # strictly more than two seconds, and one more look
    with pytest.raises(Stopped):
        reader.first(lambda: True, 2.0)


@pytest.mark.parametrize(("more", "data"), [((), None), ((HEADER.pack(9, 0), HEADER.pack(9, 1) + b"x"), b"x")])
def test_heartbeats_alone_are_no_data(
    reader: MasterFeed, clock: Clock, monkeypatch: pytest.MonkeyPatch, more: tuple[Result, ...], data: bytes | None
) -> None:
    def waits(feed: MasterFeed, ms: int) -> bool:
        clock.ms += ms
        return bool(feed._end.reads)  # type: ignore[union-attr]

    monkeypatch.setattr(module, "wait_readable", waits)
    played(reader, (HEADER.pack(9, 0), *more))
    found = reader.first_data(lambda: False)
    assert (found and bytes(found[1])) == data


def test_a_master_that_is_not_there_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise error(errno.ECONNREFUSED)

    monkeypatch.setattr(module, "connect", refuse)
    with pytest.raises(Unreachable, match=r"^\[::1\]:10912: cannot connect: Connection refused$"):
        MasterFeed(("::1", 10912), 0)


def test_a_reader_that_cannot_report_closes_its_socket(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, opened = net.listener(), []
    connect = module.connect

    class Cutting(module.socket.socket):
        def send(self, *_: Any) -> int:  # type: ignore[override]
            return 3

    def connecting(*arguments: Any) -> Any:
        opened.append(Cutting(fileno=connect(*arguments).detach()))
        return opened[-1]

    monkeypatch.setattr(module, "connect", connecting)
    with pytest.raises(FeedEnded, match="a report was cut"):
        MasterFeed(listener.getsockname(), 0)
    assert opened[0].fileno() == -1
