"""Every kind of record on its way to a slave: its log gets the same bytes, and it knows its last record for what it is.

The frames, and what the slave must say of them, are made here. HA-S-5, HA-S-61, HA-S-62, HA-S-90, HA-W-10.
"""

from pathlib import Path

import pytest

from kit.sockets import Net
from kit.variant_tables import LARGEST, VARIANTS
from kit.variants import Variant, blank, log_of, name_of
from kit.waiting import wait_for
from rocketmq_ha.impl.errors import OutOfStep
from rocketmq_ha.impl.ha.feed import NotARecord, Records
from rocketmq_ha.impl.ha.file_size import End, Shows, Walk
from rocketmq_ha.impl.ha.overlap import Overlap, find_overlap, first_difference_from_log, recovered_end
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.reference import overlap
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

FILE_SIZE = 1 << 16
BASE = 3 * 1024
FIRST = Variant("first", b"first", b"a body before")
SMALL = [variant for variant in VARIANTS if variant.size < 2000]
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
every_small = pytest.mark.parametrize("variant", SMALL, ids=name_of)


def frames_of(log: bytes, start: int, largest: int = 5000) -> bytes:
    """Transfer frames of a log's bytes from an offset on; none crosses a file."""
    wire, at = b"", start
    while at < len(log):
        body = log[at : min(at + largest, at - at % FILE_SIZE + FILE_SIZE)]
        wire += at.to_bytes(8, "big") + len(body).to_bytes(4, "big") + body
        at += len(body)
    return wire


def receive(client: SlaveClient, wire: bytes, piece: int) -> None:
    """Give a slave the bytes in pieces, and let it take what it can after each."""
    for at in range(0, len(wire), piece):
        data = wire[at : at + piece]
        while data:
            buffer = client.recv_buffer()
            taken = min(len(buffer), len(data))
            buffer[:taken] = data[:taken]
            client.on_frames(taken, 0)
            while (report := client.dispatch()) is not None:
                client.on_report_written(len(report), 0)
            data = data[taken:]


def bytes_of(log: CommitLog) -> bytes:
    return b"".join(bytes(log.data_at(base, FILE_SIZE) or b"") for base in range(0, log.max_offset, FILE_SIZE))


@pytest.mark.parametrize("piece", (7, 1777))
@pytest.mark.parametrize("profile", (CLASSIC, HARDENED), ids=lambda profile: profile.name)
def test_a_slave_has_its_masters_bytes_over_two_lives(tmp_path: Path, profile: Profile, piece: int) -> None:
    """HA-W-10 "MAY begin and end anywhere in a record". Its second life begins at its end, hardened at its last record."""
    variants = SMALL if piece < 100 else VARIANTS
    half = log_of(variants[: len(variants) // 2], 0, FILE_SIZE)
    whole = log_of(variants, 0, FILE_SIZE)
    last = len(half) - variants[len(variants) // 2 - 1].size
    settings = Settings(FILE_SIZE)
    with CommitLog.open(tmp_path / "slave", file_size=FILE_SIZE) as log:
        client = SlaveClient("master", log, settings, profile)
        client.on_connect(0)
        receive(client, frames_of(half, 0), piece)
        assert bytes_of(log) == half
    with CommitLog.open(tmp_path / "slave", file_size=FILE_SIZE) as log:
        assert log.max_offset == len(half)
        client = SlaveClient("master", log, settings, profile)
        report = client.on_connect(0)
        start = last if profile is HARDENED else len(half)
        assert (client.current_reported_offset, report) == (start, start.to_bytes(8, "big") if profile is HARDENED else None)
        receive(client, frames_of(whole, start), piece)
        assert bytes_of(log) == whole


def test_small_records_of_every_kind_come_over_tcp(net: Net, tmp_path: Path) -> None:
    """By a master and a slave that are connected by sockets, with several files. The slave has the first record already."""
    log = log_of([FIRST, *(variant for variant in SMALL if variant.size < 900)], 0, 1000)
    with CommitLog.open(tmp_path / "slave", file_size=1000) as begun:
        begun.append_data(0, [log[: FIRST.size]])
    master = net.serve(HARDENED)
    for base in range(0, len(log), 1000):
        master.service.log.append_data(base, [log[base : base + 1000]])
    slave = net.follow(master.address[1], HARDENED)
    wait_for(lambda: slave.max_offset == len(log), lambda: master.poll(5))
    assert b"".join(bytes(slave.data_at(base, 1000) or b"") for base in range(0, len(log), 1000)) == log


# --- The overlap -------------------------------------------------------------------------------------------------------------


class OneFile:
    """A log of one file that holds some bytes. It begins at an offset, a multiple of its size."""

    def __init__(self, data: bytes, file_size: int, base: int) -> None:
        assert base % file_size == 0
        self._data, self.file_size, self.min_offset, self.max_offset = data, file_size, base, base + len(data)

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        at = offset - self.min_offset
        return memoryview(self._data)[at : at + limit] if 0 <= at < len(self._data) else None


@every_variant
def test_the_overlap_begins_at_the_last_whole_record(variant: Variant) -> None:
    """HA-S-61 "the start of its last whole record"; a BLANK behind it has padding, a part of a record is not whole."""
    size = FIRST.size + variant.size
    file_size = size + 100
    base = 3 * file_size
    records = log_of([FIRST, variant], base)
    end, last = base + size, base + FIRST.size
    behind = {
        "nothing": (b"", end, range(0)),
        "7 bytes": (blank(8)[:7], end + 7, range(0)),
        "BLANK of 8": (blank(8), end + 8, range(end + 8, end + 100)),
        "BLANK of 100": (blank(100), end + 100, range(end + 8, end + 100)),
        "a part": (FIRST.record(end)[:-1], end + FIRST.size - 1, range(0)),
    }
    for name, (rest, max_offset, padding) in behind.items():
        log = OneFile(records + rest, file_size, base)
        found = find_overlap(log)
        assert found == Overlap(last, last, max_offset, padding), name
        assert overlap.first_report(Log(file_size, base, records + rest)) == last, name
        assert recovered_end(log, found) == (base + file_size if padding else end), name
        assert find_overlap(log, last) == found
    garbled = bytearray(records)
    garbled[FIRST.size + (variant.body_position if variant.body else 11)] ^= 1  # its body, or its CRC
    log = OneFile(bytes(garbled), file_size, base)
    found = find_overlap(log)
    assert found is not None and recovered_end(log, found) == last


@every_small
def test_each_byte_of_the_last_record_is_compared(variant: Variant) -> None:
    """HA-S-62 "MUST compare the bytes that it is sent before its max offset with its own", but for the padding of a BLANK."""
    file_size, start = FIRST.size + variant.size + 20, FIRST.size
    base = 2 * file_size
    records = log_of([FIRST, variant], base) + blank(20)
    log = OneFile(records, file_size, base)
    found = find_overlap(log)
    assert found is not None
    sent = bytearray(records[start:])
    assert first_difference_from_log(log, found, memoryview(sent)) is None
    for at in range(len(sent)):
        sent[at] ^= 0x80
        expected = base + start + at if at < variant.size + 8 else None
        assert first_difference_from_log(log, found, memoryview(sent)) == expected, at
        assert first_difference_from_log(log, found, memoryview(sent)[:at]) is None, at
        sent[at] ^= 0x80


@every_small
def test_a_slave_stops_where_its_last_record_is_another(tmp_path: Path, variant: Variant) -> None:
    records = log_of([FIRST, variant])
    with CommitLog.open(tmp_path / "slave", file_size=FILE_SIZE) as log:
        log.append_data(0, [records])
        client = SlaveClient("master", log, Settings(FILE_SIZE), HARDENED)
        assert client.on_connect(0) == FIRST.size.to_bytes(8, "big")
        other = records[:-1] + bytes([records[-1] ^ 1])
        with pytest.raises(OutOfStep) as stopped:
            receive(client, frames_of(other, FIRST.size), 1777)
        assert f"from commit-log offset {len(records) - 1} on" in str(stopped.value)
        assert log.max_offset == len(records)


# --- Walks over what comes ---------------------------------------------------------------------------------------------------


@every_small
@pytest.mark.parametrize(("count", "piece"), [(1, 1), (3, 13), (40, 1 << 20)])
def test_the_walk_over_heads_ends_at_the_blank(variant: Variant, count: int, piece: int) -> None:
    """HA-S-90 "MUST walk the heads of the records that it is sent": the BLANK tells the size of the master's files."""
    records = log_of([variant] * count)
    for room in (8, 9, 100):
        data = records + blank(room)[:8]
        for file_size, shows, told in (
            (len(records) + room, Shows.SAME, None),
            (len(records) + room + 1, Shows.OTHER, len(records) + room),
            (len(records) + room - 1, Shows.OTHER, len(records) + room),
        ):
            if file_size < len(records) + 8:
                continue  # the last record has no room for a BLANK behind it, see below
            walk, ended = Walk(file_size), None
            for start in range(0, len(data), piece):
                assert ended is None
                ended = walk.take(data, start, min(start + piece, len(data)))
            assert ended == End(shows, len(records), told), (room, file_size)
    walk = Walk(len(records) + 7)  # the last of them leaves no room for a BLANK in such a file
    assert walk.take(records, 0, len(records)) == End(Shows.OTHER, len(records) - variant.size)
    walk = Walk(len(records) + 8)
    assert walk.take(records, 0, len(records)) is None


@pytest.mark.parametrize("variant", (*VARIANTS, LARGEST), ids=name_of)
def test_a_reader_of_a_stream_gets_each_record_when_it_is_whole(variant: Variant) -> None:
    """The change feed: `tail` and `doctor` read records so. A BLANK and its padding are left out, wherever a piece ends."""
    log = log_of([FIRST, variant], BASE) + blank(30)
    log += variant.record(BASE + len(log))
    expected = [(BASE, FIRST.size), (BASE + FIRST.size, variant.size), (BASE + len(log) - variant.size, variant.size)]
    for piece in (1, 91, 1 << 23) if variant.size < 2000 else (4093, 1 << 23):
        records, found = Records(BASE), []
        for start in range(0, len(log), piece):
            found += [(offset, record, start) for offset, record in records.take(memoryview(log)[start : start + piece])]
            assert records.next_offset == BASE + min(start + piece, len(log))
        assert [(offset, len(record)) for offset, record, _ in found] == expected
        for offset, record, start in found:
            at = offset - BASE
            assert record == log[at : at + len(record)]
            assert start < at + len(record) <= start + piece  # with the piece that holds its last byte, no later
        assert records.position == BASE + len(log)


@every_small
def test_a_reader_of_a_stream_refuses_what_stands_elsewhere(variant: Variant) -> None:
    for offset in (0, BASE - 1, BASE + 1):
        with pytest.raises(NotARecord) as refused:
            list(Records(BASE).take(memoryview(variant.record(offset))))
        text = f"at commit-log offset {BASE}: found a record of offset {offset}, expected one of offset {BASE}"
        assert str(refused.value) == text


SIZES = (
    (91, "total size 91"),
    (92, ""),
    (64 << 20, ""),
    ((64 << 20) + 1, "total size 67108865"),
    (0, "total size 0"),
    (-1, "total size -1"),
)


@pytest.mark.parametrize(("size", "found"), SIZES)
@pytest.mark.parametrize("magic", ("daa320a7", "daa320ab"))
def test_a_reader_of_a_stream_bounds_the_size_of_a_record(size: int, found: str, magic: str) -> None:
    """91 bytes are the fixed part; a broker's maxMessageSize may be raised, to 64 MiB here."""
    head = size.to_bytes(4, "big", signed=True) + bytes.fromhex(magic)
    if not found:
        assert list(Records(0).take(memoryview(head))) == []
        return
    with pytest.raises(NotARecord) as refused:
        list(Records(0).take(memoryview(head)))
    assert str(refused.value) == f"at commit-log offset 0: found {found}, expected 92 to 67108864"


@pytest.mark.parametrize(("size", "is_refused"), [(7, True), (8, False), (9, False), (-8, True)])
def test_a_reader_of_a_stream_bounds_the_size_of_a_blank(size: int, is_refused: bool) -> None:
    head = size.to_bytes(4, "big", signed=True) + bytes.fromhex("cbd43194")
    records = Records(5)
    if not is_refused:
        assert list(records.take(memoryview(head))) == []
        assert (records.position, records.next_offset) == (5 + size, 5 + 8)
        return
    with pytest.raises(NotARecord) as refused:
        list(records.take(memoryview(head)))
    assert str(refused.value) == f"at commit-log offset 5: found a BLANK of {size} bytes, expected at least 8"


def test_a_reader_of_a_stream_refuses_another_magic() -> None:
    with pytest.raises(NotARecord) as refused:
        list(Records(0).take(memoryview(bytes.fromhex("00000064 daa320a8"))))
    assert str(refused.value).endswith("found magic 0xdaa320a8, expected 0xdaa320a7 or 0xdaa320ab")
