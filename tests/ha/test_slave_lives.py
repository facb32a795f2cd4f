"""What a slave's end forgets when its connection ends, and what it keeps for the next one: each field over several lives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.impl.errors import FileSizeDiffers, OutOfStep
from rocketmq_ha.impl.ha import slave as slave_module
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

FILE_SIZE = 1000
MESSAGE = Message("T", bytes(8))  # 100 bytes
PROFILES = pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)


@pytest.fixture
def records(tmp_path: Path) -> bytes:
    """The first file of a master: nine messages, and a BLANK of 100 bytes."""
    with CommitLog.open(tmp_path / "master", file_size=FILE_SIZE) as log:
        for _ in range(10):
            log.append(MESSAGE)
        return bytes(log.data_at(0, FILE_SIZE) or b"")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "slave", file_size=FILE_SIZE) as log:
        yield log


def client_of(log: CommitLog, profile: Profile = HARDENED, **settings: Any) -> SlaveClient:
    return SlaveClient("master", log, Settings(FILE_SIZE, **settings), profile)


def given(client: SlaveClient, data: bytes, now_ms: int = 0) -> list[bytes]:
    """Give bytes to a slave as one read. Returns: the reports that dispatch asks for."""
    buffer = client.recv_buffer()
    buffer[: len(data)] = data
    client.on_frames(len(data), now_ms)
    reports = []
    while report := client.dispatch():
        reports.append(report)
    return reports


def frame(offset: int, body: bytes = b"") -> bytes:
    return HEADER.pack(offset, len(body)) + body


# --- Each field, in a life, at its end, and in the next one ----------------------------------------------------------------


@PROFILES
def test_a_new_slave_has_no_connection(log: CommitLog, profile: Profile) -> None:
    client = client_of(log, profile)
    assert (client.connected, client.deaf, client.close_reason) == (False, False, "")
    assert (client.current_reported_offset, client.last_write_timestamp, client.last_read_timestamp) == (0, 0, 0)
    assert (client.overlap, client.heartbeats, client.unparsed, client.unparsed_size, client.stalled) == (
        None,
        0,
        b"",
        0,
        False,
    )


@PROFILES
def test_a_connection_begins_at_the_end_of_the_log_with_its_clocks_at_now(
    log: CommitLog, records: bytes, profile: Profile
) -> None:
    """HA-S-1 "MUST set current_reported_offset to its max offset and last_write_timestamp to now", on every connect anew."""
    client = client_of(log, profile)
    for now_ms, held, reported in ((1000, 0, 0), (2000, 100, 1), (3000, 300, 200)):
        log.append_data(log.max_offset, [memoryview(records[log.max_offset : held])])
        report = client.on_connect(now_ms)
        expected = reported if profile is HARDENED else held
        assert report == (REPORT.pack(expected) if profile is HARDENED else None)
        assert client.current_reported_offset == expected
        assert (client.last_write_timestamp, client.last_read_timestamp) == (now_ms, now_ms)
        assert (client.connected, client.close_reason) == (True, "")
        client.close_master("end_of_stream")
        assert (client.connected, client.close_reason) == (False, "end_of_stream")
        assert (client.last_write_timestamp, client.current_reported_offset) == (now_ms, expected)


@PROFILES
def test_a_part_of_a_frame_is_forgotten_with_its_connection(log: CommitLog, records: bytes, profile: Profile) -> None:
    """HA-S-13 "the slave MUST drop the unparsed bytes"."""
    client = client_of(log, profile)
    client.on_connect(0)
    given(client, frame(0, records[:100]) + frame(100, records[100:200])[:40])
    assert (client.unparsed_size, log.max_offset) == (40, 100)
    client.close_master("end_of_stream")
    assert (client.unparsed, client.unparsed_size) == (b"", 0)
    client.on_connect(0)
    if profile is HARDENED:
        given(client, frame(1, records[1:100]))
    given(client, frame(100, records[100:200]))
    assert (log.max_offset, client.unparsed) == (200, b"")


@pytest.mark.parametrize("unparsed", [1, 2, 3, 11, 12, 13, 110, 111])
def test_what_is_unparsed_in_a_full_buffer_is_kept(log: CommitLog, records: bytes, unparsed: int) -> None:
    """HA-S-9: the first full buffer holds a frame of 112 bytes, and the first bytes of the next one."""
    client = client_of(log, slave_read_buffer_size=112 + unparsed)
    client.on_connect(0)
    stream = b"".join(frame(offset, records[offset : offset + 100]) for offset in range(0, 900, 100))
    given(client, stream[: 112 + unparsed])
    assert (client.unparsed, log.max_offset) == (stream[112 : 112 + unparsed], 100)
    rest = stream[112 + unparsed :]
    while rest:
        free = len(client.recv_buffer())
        given(client, rest[:free])
        rest = rest[free:]
    assert (client.unparsed, bytes(log.data_at(0, 900) or b"")) == (b"", records[:900])


@pytest.mark.parametrize("unparsed", [1, 2, 11])
def test_no_byte_of_an_earlier_frame_is_taken_for_one_of_the_next(log: CommitLog, records: bytes, unparsed: int) -> None:
    """The offsets of two frames mostly begin with the same byte. That of a master out of step does not."""
    client = client_of(log, slave_read_buffer_size=112 + unparsed)
    client.on_connect(0)
    given(client, frame(0, records[:100]) + frame(-1)[:unparsed])
    assert len(client.recv_buffer()) == 112
    assert client.unparsed == frame(-1)[:unparsed]


def test_a_deaf_slave_hears_on_its_next_connection(log: CommitLog, records: bytes) -> None:
    """HA-S-36 "leaves the slave deaf" for one connection: it counts what it reads as life, and keeps none of it."""
    client = client_of(log, CLASSIC)
    client.on_connect(0)
    given(client, HEADER.pack(0, -1) + frame(0, records[:100]), 10)
    assert (client.deaf, client.unparsed_size, log.max_offset) == (True, 0, 0)
    assert given(client, frame(0, records[:100]), 20) == []
    assert (client.deaf, client.unparsed_size, log.max_offset, client.last_read_timestamp) == (True, 0, 0, 20)
    client.close_master("end_of_stream")
    assert not client.deaf
    client.on_connect(30)
    assert given(client, frame(0, records[:100]), 40) == [REPORT.pack(100)]


@pytest.mark.parametrize(("size", "deaf"), [(-1, True), (0x7FFFFFFF - 11, True), (0x7FFFFFFF - 12, False)])
def test_a_size_beyond_an_array_makes_classic_deaf(log: CommitLog, size: int, deaf: bool) -> None:
    client = client_of(log, CLASSIC)
    client.on_connect(0)
    given(client, HEADER.pack(0, size))
    assert (client.deaf, client.unparsed_size) == (deaf, 0 if deaf else 12)


def test_heartbeats_are_counted_anew_on_each_connection(log: CommitLog, records: bytes) -> None:
    """HA-S-64 counts heartbeats in a row on one connection: one on each of two connections are not two in a row."""
    log.append_data(0, [memoryview(records[:200])])
    client = client_of(log)
    for _ in range(3):
        client.on_connect(0)
        assert client.heartbeats == 0
        given(client, frame(100))
        assert client.heartbeats == 1
        client.close_master("end_of_stream")
    client.on_connect(0)
    given(client, frame(100) * 2)
    assert client.heartbeats == 2
    given(client, frame(100, records[100:150]))
    assert client.heartbeats == 0
    given(client, frame(150))
    assert (client.heartbeats, client.overlap is not None) == (1, True)


def test_a_comparison_is_forgotten_with_its_connection_and_begun_again(log: CommitLog, records: bytes) -> None:
    """HA-S-61 "the start of its last whole record": half a comparison counts for nothing on the next connection."""
    log.append_data(0, [memoryview(records[:200])])
    client = client_of(log)
    client.on_connect(0)
    overlap = client.overlap
    assert overlap is not None
    assert (overlap.record, overlap.position, overlap.end) == (100, 100, 200)
    given(client, frame(100, records[100:160]))
    assert (overlap.position, client.report_slave_max_offset_plus()) == (160, REPORT.pack(160))
    client.close_master("end_of_stream")
    assert client.overlap is None
    assert client.on_connect(0) == REPORT.pack(100)
    assert client.overlap is not None
    assert client.overlap.position == 100
    given(client, frame(100, records[100:200]))
    assert (client.overlap, client.report_slave_max_offset_plus()) == (None, REPORT.pack(200))


def test_a_log_that_is_compared_up_to_its_end_already_compares_nothing(log: CommitLog) -> None:
    """A log of its first byte alone reports 1, which is its end: nothing is left to compare, now and on the next connect."""
    log.append_data(0, [memoryview(b"\0")])
    client = client_of(log)
    for _ in range(2):
        assert client.on_connect(0) == REPORT.pack(1)
        assert (client.overlap, client.current_reported_offset) == (None, 1)
        client.close_master("end_of_stream")


def test_the_search_for_the_last_record_goes_on_from_where_it_was(
    log: CommitLog, records: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of the last record outlives a connection, so that a reconnect does not walk the whole file again."""
    found: list[int] = []
    find_overlap = slave_module.find_overlap
    monkeypatch.setattr(slave_module, "find_overlap", lambda log, near: (found.append(near), find_overlap(log, near))[1])
    client = client_of(log)
    for held in (300, 700, 700):
        log.append_data(log.max_offset, [memoryview(records[log.max_offset : held])])
        assert client.on_connect(0) == REPORT.pack(held - 100)
        client.close_master("end_of_stream")
    assert found == [0, 200, 600]


def test_reports_say_how_far_the_comparison_has_come(log: CommitLog, records: bytes) -> None:
    """HA-S-62 "reports how far it has compared", and what grows behind it; nothing is reported twice."""
    log.append_data(0, [memoryview(records[:200])])
    client = client_of(log)
    client.on_connect(0)
    assert client.report_slave_max_offset_plus() is None
    seen = []
    for at, to in ((100, 101), (101, 199), (199, 240), (240, 300)):
        given(client, frame(at, records[at:to]))
        seen.append((client.report_slave_max_offset_plus(), client.report_slave_max_offset_plus()))
    assert seen == [(REPORT.pack(to), None) for to in (101, 199, 240, 300)]
    assert (log.max_offset, client.current_reported_offset) == (300, 300)


def test_an_error_of_the_comparison_leaves_the_log_and_may_be_met_again(log: CommitLog, records: bytes) -> None:
    """HA-S-62: the same difference is found on each connection, at its own offset."""
    log.append_data(0, [memoryview(records[:200])])
    other = bytearray(records)
    other[177] ^= 0xFF
    client = client_of(log)
    for _ in range(2):
        client.on_connect(0)
        given(client, frame(100, bytes(other[100:150])))
        with pytest.raises(OutOfStep, match=r"from commit-log offset 177 on, or before: found byte 0xff, expected 0x00"):
            given(client, frame(150, bytes(other[150:250])))
        assert log.max_offset == 200
        client.close_master("diverged")


# --- The walk over the heads ----------------------------------------------------------------------------------------------


def test_the_walk_over_heads_begins_anew_at_the_last_record_of_the_log(log: CommitLog, records: bytes) -> None:
    """HA-S-90 "MUST go on from the log's last whole record": what a broken connection had seen counts for nothing."""
    client = client_of(log)
    client.on_connect(0)
    given(client, frame(0, records[:203]))
    assert client._walk is not None
    assert client._walk.position == 200
    client.close_master("end_of_stream")
    client.on_connect(0)
    assert client._walk is not None
    assert (client._walk.position, client._walk.end, client._is_file_size_known) == (200, 203, False)
    given(client, frame(100, records[100:203]))
    given(client, frame(203, records[203:]))
    assert (client._walk, client._is_file_size_known, log.max_offset) == (None, True, FILE_SIZE)
    client.close_master("end_of_stream")
    client.on_connect(0)
    assert (client._walk, client._is_file_size_known) == (None, True)


def test_a_log_with_a_whole_file_knows_its_masters_size(log: CommitLog, records: bytes) -> None:
    """A slave that starts over a log of a whole file walks over nothing; one with a byte less does."""
    log.append_data(0, [memoryview(records[:999])])
    client = client_of(log)
    client.on_connect(0)
    assert (client._is_file_size_known, client._walk) == (True, None)  # the BLANK's head is there, and ends this file
    client.close_master("end_of_stream")
    log.append_data(999, [memoryview(records[999:])])
    other = client_of(log)
    other.on_connect(0)
    assert (other._is_file_size_known, other._walk) == (True, None)


def test_classic_walks_over_nothing(log: CommitLog) -> None:
    client = client_of(log, CLASSIC)
    client.on_connect(0)
    assert (client._is_file_size_known, client._walk) == (True, None)


@pytest.mark.parametrize("lives", [1, 2])
def test_a_size_is_adopted_on_any_connection_and_no_second_time(tmp_path: Path, lives: int) -> None:
    """HA-S-91 "MUST make its one file as long as the master's are", whether the heads came on one connection or on two."""
    with CommitLog.open(tmp_path / "small", file_size=250) as small:
        for _ in range(5):
            small.append(MESSAGE)
        data = b"".join(bytes(small.data_at(at, 250) or b"") for at in (0, 250, 500))
    with CommitLog.open(tmp_path / "large", file_size=FILE_SIZE) as log:
        client = client_of(log, adopts_file_size=True)
        client.on_connect(0)
        if lives == 2:
            given(client, frame(0, data[:150]))
            client.close_master("end_of_stream")
            client.on_connect(0)
            given(client, frame(1, data[1:150]))
        at = log.max_offset
        given(client, frame(at, data[at:250]))
        assert (log.file_size, log.max_offset, client._is_file_size_known, client._walk) == (250, 250, True, None)
        given(client, frame(250, data[250:500]) + frame(500, data[500:600]))
        assert log.max_offset == 600
        client.close_master("end_of_stream")
        assert client.on_connect(0) == REPORT.pack(500)
        assert client._walk is None


def test_a_frame_across_the_end_shows_a_larger_size_only_while_the_first_file_is_not_full(log: CommitLog) -> None:
    """HA-S-90 "or where a frame crosses it"; behind the first file it is the frame of no honest master (HA-S-11)."""
    client = client_of(log)
    client.on_connect(0)
    with pytest.raises(FileSizeDiffers, match="more than 1000 bytes"):
        given(client, HEADER.pack(0, 1001))
    assert log.max_offset == 0


# --- The read buffer ---------------------------------------------------------------------------------------------------


def test_the_buffer_grows_for_one_frame_and_keeps_its_size_for_the_next_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HA-S-32 "MUST hold 4 MiB by default": it doubles while one frame fills it, up to its setting."""
    monkeypatch.setattr(slave_module, "RECV_SIZE", 64)
    with CommitLog.open(tmp_path, file_size=4096) as log:
        client = SlaveClient("master", log, Settings(4096, slave_read_buffer_size=200), HARDENED)
        body = bytes(range(188))
        sizes = []
        for _ in range(2):
            client.on_connect(0)
            data = HEADER.pack(log.max_offset, 188) + body if log.max_offset == 0 else b""
            while data:
                size = min(len(client.recv_buffer()), len(data))
                sizes.append(len(client.recv_buffer()))
                given(client, data[:size])
                data = data[size:]
            client.close_master("end_of_stream")
        assert sizes == [64, 64, 72]
        assert bytes(log.data_at(0, 188) or b"") == body
        assert len(client.recv_buffer()) == 200


def test_bytes_move_to_the_start_of_a_full_buffer(log: CommitLog, records: bytes) -> None:
    """HA-S-9 "It MAY move the bytes within one buffer instead"; a buffer that is used up is begun anew."""
    client = client_of(log, slave_read_buffer_size=120)
    client.on_connect(0)
    stream = b"".join(frame(at, records[at : at + 100]) for at in range(0, FILE_SIZE, 100))
    while stream:
        size = min(len(client.recv_buffer()), len(stream))
        assert size > 0
        given(client, stream[:size])
        stream = stream[size:]
        assert not client.stalled
    assert bytes(log.data_at(0, FILE_SIZE) or b"") == records


# --- Clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_the_two_clocks_run_from_different_events(log: CommitLog, profile: Profile) -> None:
    """HA-S-27 "MUST set last_write_timestamp, whichever of its reasons it has"; reads alone set last_read_timestamp."""
    client = client_of(log, profile)
    client.on_connect(1000)
    given(client, frame(0)[:3], 2000)
    assert (client.last_read_timestamp, client.last_write_timestamp) == (2000, 1000)
    assert [client.on_tick(at) for at in (6000, 6001)] == [None, REPORT.pack(0)]
    assert client.last_write_timestamp == 1000
    assert client.on_report_written(8, 6001) is True
    assert client.on_report_written(7, 7000) is False
    assert (client.last_read_timestamp, client.last_write_timestamp) == (2000, 7000)
    silent = [client.is_master_silent(at) for at in (22_000, 22_001)]
    assert silent == [False, profile is HARDENED]
