"""Every kind of record, read in every way: recovery, dispatch and readers take it for what it is, up to where it ends.

The bytes are those of tests/kit/variants.py. HA-ST-2, HA-ST-5, HA-ST-14, HA-ST-72.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from kit.files import log_file
from kit.variant_tables import BROKEN, GARBLED, LARGEST, UNPUTTABLE, VARIANTS
from kit.variants import STORED_MS, V1, V2, Variant, blank, log_of, name_of
from rocketmq_ha.impl.errors import MessageMalformed, StoreCorrupt
from rocketmq_ha.impl.store.derived.dispatch_request import Read, read_handed
from rocketmq_ha.impl.store.log import mapped_file
from rocketmq_ha.impl.store.log import reader as reader_module
from rocketmq_ha.impl.store.log.checkpoint_hint import first_file
from rocketmq_ha.impl.store.log.find_record import find_record
from rocketmq_ha.impl.store.log.fragment import is_fragment
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.recovery import Recovery, recover
from rocketmq_ha.impl.store.log.scan import QueueOffsets, Scan, Stop, scan
from rocketmq_ha.impl.wire.batch import HandedFields
from rocketmq_ha.impl.wire.message import decode, encode, read_header
from rocketmq_ha.reference import dispatch_request, message, store
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.store import Log
from rocketmq_ha.reference.store_recovery import before_a_hole
from rocketmq_ha.spec.profile import CLASSIC, HARDENED

BASE = 7 << 20
SECTOR = 512
SMALL = [variant for variant in VARIANTS if variant.size < 2000]
every_variant = pytest.mark.parametrize("variant", (*VARIANTS, LARGEST), ids=name_of)
every_small = pytest.mark.parametrize("variant", SMALL, ids=name_of)
NO_RECORD = pytest.mark.parametrize("variant", (*BROKEN, *GARBLED), ids=name_of)


def handed_of(variant: Variant, offset: int, number: int) -> HandedFields:
    """What the dispatch needs of a record that was laid out by `Variant.record`."""
    end = (number if variant.is_queued else 0, variant.sys_flag, variant.prepared_transaction_offset)
    return variant.topic, variant.queue_id, offset, variant.size, variant.properties, STORED_MS, *end


def dispatched(data: bytes, *, room: int | None = None, limit: int = 1 << 20) -> tuple[list[HandedFields], int, Read]:
    """What the dispatch reads of the bytes from BASE on, how far it comes, and why it ends."""
    handed: list[HandedFields] = []
    room = len(data) if room is None else room
    offset, why = read_handed(memoryview(data), BASE, room, BASE + len(data), limit, handed)
    return handed, offset - BASE, why


# --- One record, and what stands behind it -----------------------------------------------------------------------------------


@every_variant
def test_a_record_is_decoded_to_its_message_and_encoded_to_its_bytes(variant: Variant) -> None:
    expected = replace(variant.message(), physical_offset=BASE, queue_offset=5 if variant.is_queued else 0)
    record = variant.record(BASE, expected.queue_offset)
    assert len(record) == variant.size
    assert encode(variant.message(), expected.queue_offset, BASE) == encode(expected) == record
    for before, behind in ((b"", b""), (b"xyz", b"\xff" * 9)):
        assert decode(memoryview(before + record + behind), len(before)) == expected
        assert read_header(before + record + behind, len(before)) == (variant.size, variant.magic)
    found = message.decode(record)  # the model's
    assert found is not None
    assert (found[1], found[0].topic, found[0].body, found[0].properties) == (
        *(variant.size, variant.topic, variant.body),
        variant.properties,
    )
    if variant.magic == V1:
        assert message.encode(found[0]) == record


# What stands behind two records to the end of a file; how recovery's walk ends there, and how the dispatch's.
BEHIND: dict[str, tuple[bytes, Stop, Read]] = {
    "nothing": (b"", Stop.FULL, Read.BOUND),
    "1 zero": (bytes(1), Stop.ZERO, Read.BAD),
    "7 zeros": (bytes(7), Stop.ZERO, Read.BAD),
    "8 zeros": (bytes(8), Stop.ZERO, Read.BAD),
    "200 zeros": (bytes(200), Stop.ZERO, Read.BAD),
    "8 zeros and more": (bytes(8) + b"x" * 100, Stop.ZERO, Read.BAD),
    "7 zeros and more": (bytes(7) + b"x" * 100, Stop.BAD, Read.BAD),
    "7 bytes": (b"\0\0\0\x07\xcb\xd4\x31", Stop.BAD, Read.BAD),
    "BLANK of 8": (blank(8), Stop.FULL, Read.BLANK),
    "BLANK of 9": (blank(9), Stop.FULL, Read.BLANK),
    "BLANK of 91": (blank(91), Stop.FULL, Read.BLANK),
    "BLANK of 92": (blank(92), Stop.FULL, Read.BLANK),
    "BLANK of 300": (blank(300), Stop.FULL, Read.BLANK),
    "BLANK and stale bytes": (blank(300)[:8] + b"x" * 292, Stop.FULL, Read.BLANK),
    "BLANK too long": (blank(301)[:300], Stop.BAD, Read.BAD),
    "BLANK too short": (blank(299) + b"\0", Stop.BAD, Read.BAD),
    "another magic": (blank(300)[:7] + b"\x95" + bytes(292), Stop.BAD, Read.BAD),
}


@every_small
@pytest.mark.parametrize("behind", BEHIND)
def test_a_walk_counts_the_records_and_says_how_the_file_goes_on(variant: Variant, behind: str) -> None:
    """HA-ST-5 "MUST end behind the last whole record": "A BLANK counts to the end of its file"."""
    bytes_behind, stop, why = BEHIND[behind]
    records = log_of([variant] * 2, BASE)
    data, is_blank = records + bytes_behind, behind.startswith("BLANK") and stop is Stop.FULL
    queue_offsets: QueueOffsets = {}
    position = len(data) if is_blank else len(records)
    blank_position = len(records) if is_blank else None
    assert scan(data, BASE, 0, None, queue_offsets) == Scan(position, stop, 2, variant.size, blank_position)
    assert queue_offsets == ({(variant.queue_id, variant.topic): 2} if variant.is_queued else {})
    handed = [handed_of(variant, BASE, 0), handed_of(variant, BASE + variant.size, 1)]
    assert dispatched(data) == (handed, position, why)


@every_small
def test_a_part_of_a_record_ends_the_walk_before_it(variant: Variant) -> None:
    """HA-ST-36 "MUST dispatch the records that it has appended": the dispatch waits for the rest. Recovery's walk ends there
    unless all lengths are right; the end of topic or properties it does not miss (fragment.py).
    """
    told = variant.size - len(variant.properties) if variant.properties else variant.topic_position
    records = log_of([variant] * 2, BASE)
    record = records[variant.size :]
    for size in (*range(1, min(variant.size, 130)), variant.size - 1):
        there = records[: variant.size + size]
        handed, position, why = dispatched(there, room=len(records) + 100)
        assert (len(handed), position, why) == (1, variant.size, Read.PART), size
        count = 1 if any(record[size:told]) else 2  # a zero byte that is missing counts as there
        found = scan(there + bytes(variant.size - size + 100), BASE)
        assert (found.messages, found.position) == (count, count * variant.size), size


@every_small
@pytest.mark.parametrize("limit", (1, 2, 3))
def test_a_walk_ends_at_its_bound_and_the_dispatch_at_its_limit(variant: Variant, limit: int) -> None:
    records = log_of([variant] * 3, BASE)
    for bound, count in ((1, 1), (variant.size, 1), (variant.size + 1, 2), (2 * variant.size, 2), (3 * variant.size - 1, 3)):
        found = scan(records, BASE, 0, bound)
        assert (found.messages, found.position, found.stop) == (count, count * variant.size, Stop.BOUND)
        handed: list[HandedFields] = []
        offset, why = read_handed(memoryview(records), BASE, len(records), BASE + bound, limit, handed)
        assert (len(handed), offset, why) == (min(count, limit), BASE + min(count, limit) * variant.size, Read.BOUND)
    assert scan(records, BASE, variant.size, 2 * variant.size).last_position == variant.size


@every_small
def test_a_record_of_another_place_is_none(variant: Variant) -> None:
    """HA-ST-15 "The physical offset in a record MUST be the commit-log offset of the record itself"."""
    for offset in (BASE + 1, BASE - 1, 0, BASE + (1 << 40)):
        record = variant.record(offset)
        assert scan(record, BASE).stop is Stop.BAD
        assert dispatched(record) == ([], 0, Read.BAD)


@every_small
def test_many_records_of_one_kind_are_looked_at_together(variant: Variant) -> None:
    """Records alike are compared 128 at a time (uniform_run.py): more than two such runs, and one unlike them behind."""
    other = Variant("other", b"elsewhere", queue_id=99)
    records = log_of([variant] * 300 + [other], BASE)
    queue_offsets: QueueOffsets = {}
    found = scan(records, BASE, 0, None, queue_offsets)
    assert (found.messages, found.position, found.stop) == (301, len(records), Stop.FULL)
    assert queue_offsets == {(99, b"elsewhere"): 1} | ({(variant.queue_id, variant.topic): 300} if variant.is_queued else {})
    handed = [handed_of(variant, BASE + number * variant.size, number) for number in range(300)]
    handed.append(handed_of(other, BASE + 300 * variant.size, 0))
    assert dispatched(records) == (handed, len(records), Read.BOUND)


# --- What is no record -------------------------------------------------------------------------------------------------------

MALFORMED = {
    "no topic": "topic length: found 0, expected 1 to 0",
    "V2 no topic": "topic length: found 0, expected 1 to 1",
    "topic of 128": "topic length: found 128, expected 1 to 127",
    "topic of 255": "topic length: found 255, expected 1 to 127",
    "born IPv6 topic of 200": "topic length: found 200, expected 1 to 127",
    "V2 topic of 32768": "topic length: found 32768, expected 1 to 32767",
    "V2 topic of 65535": "topic length: found 65535, expected 1 to 32767",
    "properties of 32768": "total size: found 32868, expected -32668, the sum of the parts",
    "V2 properties of 65535": "total size: found 65636, expected 100, the sum of the parts",
    "magic of no record": "magic: found 0xdaa320a8, expected 0xdaa320a7 or 0xdaa320ab",
    "a byte too long": "total size: found 101, expected 100, the sum of the parts",
    "a byte too short": "topic length: found 5, expected 1 to 4",
    "both IPv6 a byte too short": "topic length: found 5, expected 1 to 4",
    "topic length one more": "topic length: found 6, expected 1 to 5",
    "topic length one less": "total size: found 100, expected 25443, the sum of the parts",
    "V2 topic length one more": "topic length: found 6, expected 1 to 5",
    "properties length one more": "total size: found 106, expected 107, the sum of the parts",
    "properties length one less": "total size: found 106, expected 105, the sum of the parts",
    "body length one more": "topic length: found 116, expected 1 to 4",
    "body length one less": "topic length: found 121, expected 1 to 6",
    "body length negative": "body length: found -1, expected 0 to 11",
    "CRC off by its lowest bit": "body CRC: found 0x5ba80bb3, expected 0x5ba80bb2, that of the body",
    "CRC with its highest bit": "body CRC: found 0xdba80bb2, expected 0x5ba80bb2, that of the body",
    "no body, CRC not 0": "body CRC: found 0x00000001, expected 0x00000000, that of the body",
}


@NO_RECORD
def test_what_is_no_record_is_one_to_nobody(variant: Variant, tmp_path: Path) -> None:
    """HA-ST-72 "A topic MUST have 1 to 127 bytes in a V1 record, and 1 to 32,767 in a V2 record". A wrong CRC is the exception:
    the dispatch does not look at it (quirk 29).
    """
    record = variant.record(BASE) + bytes(200)
    with pytest.raises(MessageMalformed) as refused:
        decode(record)
    assert str(refused.value) == MALFORMED[variant.name]
    assert message.decode(record) is None
    for follower in (b"", Variant("whole").record(BASE + len(record))):
        found = scan(record + follower, BASE)
        assert (found.messages, found.position, found.stop) == (0, 0, Stop.BAD)
    is_dispatched = bool(variant.crc_change)
    handed, position, why = dispatched(record[: variant.size])
    assert (len(handed), position) == ((1, variant.size) if is_dispatched else (0, 0))
    assert why is (Read.BOUND if is_dispatched else Read.BAD)
    told = dispatch_request.check_message_and_return_size(Log(1 << 20, BASE, record), BASE)
    assert (told is not None) == is_dispatched
    path = tmp_path / "00000000000007340032"
    path.write_bytes(b"x" + record)
    assert find_record(MappedFile(path, BASE - 1, len(record) + 1, writable=False), 0) is None


@every_small
def test_the_first_bytes_of_a_record_are_a_part_of_it_and_nothing_else_is(variant: Variant) -> None:
    """A slave's log may end anywhere. With a byte that is wrong, it is damage, not a part: fragment.py."""
    record = variant.record(BASE)
    for present in range(1, len(record)):
        data = record[:present] + bytes(len(record) - present + 50)
        data_end = len(data.rstrip(b"\0"))
        if data_end:
            assert is_fragment(data, data_end, BASE) != (data[: len(record)] == record), present
    for position in (*range(1, 8), *range(28, 36)):  # magic, offset and the size but for its first byte
        if position < 4:
            continue
        wrong = bytearray(record[:-1] + bytes(60))
        wrong[position] ^= 0x40
        assert not is_fragment(wrong, len(wrong.rstrip(b"\0")), BASE), position
    room = bytes(record[:-1])
    assert not is_fragment(room, len(room.rstrip(b"\0")), BASE)  # it would reach beyond its file


# --- Where to look, and for what ---------------------------------------------------------------------------------------------


@pytest.fixture
def files() -> Iterator[list[MappedFile]]:
    made: list[MappedFile] = []
    yield made
    for file in made:
        file.close()


def file_of(tmp_path: Path, files: list[MappedFile], base: int, data: bytes) -> MappedFile:
    path = tmp_path / f"{base:020d}"
    path.write_bytes(data)
    files.append(MappedFile(path, base, len(data), writable=False))
    return files[-1]


@every_small
def test_a_whole_record_is_found_wherever_it_stands(tmp_path: Path, files: list[MappedFile], variant: Variant) -> None:
    for at in (0, 1, 91, 3001):
        data = b"\xda\xa3\x20\xa7" * (at // 4) + b"\xda" * (at % 4) + variant.record(BASE + at) + bytes(300)
        file = file_of(tmp_path, files, BASE, data)
        assert find_record(file, 0) == find_record(file, at) == at
        assert find_record(file, at + 1) is None
        assert find_record(file, 0, STORED_MS) is None
        assert find_record(file, 0, STORED_MS + 1) == at


@pytest.mark.parametrize("before", range(-1, 9))
@pytest.mark.parametrize("variant", [Variant("V1"), Variant("V2", magic=V2)], ids=name_of)
def test_a_record_across_the_border_of_two_chunks_is_found(
    tmp_path: Path, files: list[MappedFile], variant: Variant, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That many bytes of its size and magic end a chunk of 64 bytes; a chunk earlier stands a magic without its record."""
    monkeypatch.setattr(mapped_file, "_CHUNK_SIZE", 64)
    at = 2 * 64 - before
    head = variant.record(BASE + at)[:8]
    data = b"\xda" * (64 - before) + head + b"\xda" * (at - (64 - before) - len(head)) + variant.record(BASE + at) + bytes(300)
    file = file_of(tmp_path, files, BASE, data)
    for start in (0, 1, 60, 64, 67, at):
        assert find_record(file, min(start, at)) == at, start
    assert find_record(file, at + 1) is None


@every_variant
def test_recovery_begins_at_a_file_by_the_time_of_its_first_record(
    tmp_path: Path, files: list[MappedFile], variant: Variant
) -> None:
    """HA-ST-19 "the last file whose first message has a known magic and a store timestamp that is not 0 and not after"."""
    record = variant.record(BASE, 0, STORED_MS)
    size = len(record) + 8
    file_of(tmp_path, files, BASE - size, bytes(size))
    file_of(tmp_path, files, BASE, record + blank(8))
    file_of(tmp_path, files, BASE + size, variant.record(BASE + size, 0, 0) + blank(8))
    for time_ms, index in ((STORED_MS - 1, 0), (STORED_MS, 1), (STORED_MS + 1, 1)):
        assert first_file(files, time_ms) == first_file(files, time_ms, strict=False) == index


# After a clean stop; after another, with records that the checkpoint does not vouch for, and with such as it does; classic.
STOPS = ((True, None), (True, STORED_MS), (True, STORED_MS + 1), (False, None), (False, STORED_MS))


@every_small
def test_recovery_keeps_every_record_of_every_file(tmp_path: Path, files: list[MappedFile], variant: Variant) -> None:
    """After every kind of stop, with a last file that is full, that has room, or that holds a part of a record."""
    file_size = 3 * variant.size + 50
    log = log_of([variant] * 7, 0, file_size)
    for data in (log, log_of([variant] * 6, 0, file_size) + blank(50)):
        path = tmp_path / f"{len(data)}"
        path.mkdir()
        for part in (0, 60):
            tear = variant.record(len(data))[:part] if len(data) % file_size else b""
            padded = data + tear + bytes(-len(data + tear) % file_size)
            parts = [file_of(path, files, at, padded[at : at + file_size]) for at in range(0, len(padded), file_size)]
            count = 7 if data is log else 6
            last = len(data) - variant.size if data is log else len(data) - 50 - variant.size
            queue_offsets = {(variant.queue_id, variant.topic): count} if variant.is_queued else {}
            expected = Recovery(len(data), len(parts), count, len(tear.rstrip(b"\0")), queue_offsets, 0, last)
            for strict, flushed_before_ms in STOPS:
                assert recover(parts, strict=strict, flushed_before_ms=flushed_before_ms) == expected


HOLES = (
    Variant("zeros in properties", properties=b"A\x01" + bytes(900) + b"v"),
    Variant("zeros in a V2 topic", topic=b"t" + bytes(900) + b"t", magic=V2),
    Variant("both IPv6 properties that end in zeros", properties=b"A\x01v" + bytes(90), sys_flag=0x30),
    Variant("topic that ends in zeros", topic=b"t" + bytes(100)),
    Variant("zeros in a body", body=b"x" + bytes(1200), properties=b"A\x01v"),
    Variant("no properties"),
)


@pytest.mark.parametrize("variant", HOLES, ids=name_of)
@pytest.mark.parametrize("behind", (False, True), ids=("last", "followed"))
def test_a_sector_of_zeros_in_topic_or_properties_is_a_hole(variant: Variant, behind: bool) -> None:
    """HA-ST-10 "from a multiple of 512 in its file to the next one, or to the end of the record", at each place of a sector;
    "the length field of properties that a record does not have is not counted as zeros".
    """
    stop_in = variant.size if variant.properties else variant.topic_position + len(variant.topic)
    seen = set()
    for at in range(SECTOR):
        data = bytes(at) + variant.record(BASE + at)
        sectors = [start for start in range(0, at + stop_in, SECTOR) if start >= at + variant.topic_position]
        is_hole = any(not any(data[start : min(start + SECTOR, at + stop_in)]) for start in sectors)
        data += Variant("whole", queue_id=1).record(BASE + len(data)) if behind else b""
        seen.add(is_hole)
        count = 1 + behind
        assert scan(data, BASE, at, None, None, STORED_MS).messages == (0 if is_hole else count), at
        log = Log(1 << 20, BASE, data)
        kept = before_a_hole(log, BASE + at, StoreCheckpoint(), SECTOR, HARDENED)  # the model's
        assert kept.data == (data[:at] if is_hole else data), at
        assert scan(data, BASE, at, None, None, STORED_MS + 1).messages == count, at
        assert scan(data, BASE, at).messages == count, at
    assert seen == ({False} if variant.name in ("zeros in a body", "no properties") else {False, True})


ZERO_ENDS = [each for each in UNPUTTABLE if "ends in zero" in each.name or "end in zero" in each.name]


every_zero_end = pytest.mark.parametrize("variant", ZERO_ENDS, ids=name_of)
whatever_is_behind = pytest.mark.parametrize(
    "behind",
    (
        "zeros",
        "a BLANK",
        "a BLANK and an empty file",
        "a record",
        "a BLANK and a record",
        "the begin of a record",
        "zeros and a byte in the next file",
    ),
)


def log_with_a_zero_end(variant: Variant, behind: str) -> tuple[int, bytes, int]:
    """Two records that end in zero. Returns: the size of a file, the log, and the end of all whole records and BLANKs."""
    file_size = variant.size * 2 + 150
    log = log_of([variant] * 2)
    end = len(log)
    if "BLANK" in behind:
        log += blank(file_size - end)
        end = file_size
    if behind == "the begin of a record":
        log += Variant("whole", queue_id=1).record(len(log))[:40]
    elif behind.endswith("record"):
        log += Variant("whole", queue_id=1).record(len(log))
        end = len(log)
    if behind.endswith("empty file"):
        log += bytes(file_size)
    log += bytes(-len(log) % file_size)
    if behind.endswith("next file"):
        log += bytes(file_size - 1) + b"x"
    return file_size, log, end


@every_zero_end
@whatever_is_behind
def test_a_last_record_that_ends_in_zero_is_cut_off_unless_something_follows(
    tmp_path: Path, files: list[MappedFile], variant: Variant, behind: str
) -> None:
    """HA-ST-10 "A last record whose topic, or whose properties if it has any, end in a zero byte is not whole". A BLANK behind
    it shows that it came to its end, and so do other bytes ("where only zeros follow it"). The model and the implementation
    say the same.
    """
    file_size, log, end = log_with_a_zero_end(variant, behind)
    is_cut = behind == "zeros"
    parts = [file_of(tmp_path, files, at, log[at : at + file_size]) for at in range(0, len(log), file_size)]
    found = recover(parts, strict=True)
    expected = variant.size if is_cut else end
    counts = {(variant.queue_id, variant.topic): 1 if is_cut else 2}
    if behind in ("a record", "a BLANK and a record"):
        counts[1, b"topic"] = 1
    assert (found.end, found.queue_offsets) == (expected, counts)
    assert recover(parts, strict=False).end == end
    assert len(store.recover(Log(file_size, 0, log), HARDENED).state.data) == expected
    assert len(store.recover(Log(file_size, 0, log), CLASSIC).state.data) == end


@every_zero_end
@whatever_is_behind
def test_a_reader_takes_a_record_that_ends_in_zero_for_whole_where_recovery_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: Variant, behind: str
) -> None:
    """Whether it walks, lists the messages or is asked for the one at an offset."""
    monkeypatch.setattr(reader_module, "LOOK_AGAIN_S", 0)
    file_size, log, end = log_with_a_zero_end(variant, behind)
    (tmp_path / "commitlog").mkdir()
    for at in range(0, len(log), file_size):
        log_file(tmp_path, at).write_bytes(log[at : at + file_size])
    second = variant.size
    is_cut = behind == "zeros"
    expected = [0] if is_cut else [0, second]
    if behind in ("a record", "a BLANK and a record"):
        expected.append(file_size if "BLANK" in behind else 2 * second)

    def ends() -> AbstractContextManager[object]:
        damaged = behind.endswith("next file")
        return pytest.raises(StoreCorrupt, match=f"at commit-log offset {end}: ") if damaged else nullcontext()

    with LogReader(tmp_path) as reader:
        assert [reader.message_at(at) is not None for at in (0, second)] == [True, not is_cut]
        listed = []
        with ends():
            for offset, _, _ in reader.records():
                listed.append(offset)
        assert listed == expected
    with LogReader(tmp_path) as reader:
        with ends():
            reader.walk()
            assert reader.max_offset == (second if is_cut else end)
        assert reader.messages == len(expected)


def test_the_tables_name_all_that_is_no_record() -> None:
    assert set(MALFORMED) == {variant.name for variant in (*BROKEN, *GARBLED)}
    assert all(scan(variant.record(BASE), BASE).messages == 1 for variant in UNPUTTABLE)
