"""Readers work beside a writer, stop at the end of its log, and tell a torn tail from damage; verify finds differences."""

import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.files import delete_log_files, log_file, patch
from kit.waiting import PATIENCE_S, await_end
from rocketmq_ha.impl.errors import ConfigInvalid, StoreCorrupt
from rocketmq_ha.impl.store.log import layout as layout_module
from rocketmq_ha.impl.store.log import reader as reader_module
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.find_record import find_record
from rocketmq_ha.impl.store.log.fragment import is_fragment
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.scan import scan
from rocketmq_ha.impl.store.log.verify import Comparison, Summary, compare, verify
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.constants import MESSAGE_MAGIC_CODE_V2

FILE_SIZE = 1024


def message_of(size: int, fill: int = 1) -> Message:
    return Message("t", bytes([fill]) * (size - 92 - 6), properties_string="KEYS\x01k")


def make(store: Path, sizes: list[int]) -> list[int]:
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        return [log.append(message_of(size, index + 1)).offset for index, size in enumerate(sizes)]


def check(store: Path) -> Summary:
    with LogReader(store) as reader:
        return verify(reader)


def compared(a: Path, b: Path) -> Comparison:
    with LogReader(a) as reader_a, LogReader(b) as reader_b:
        verify(reader_a)
        verify(reader_b)
        return compare(reader_a, reader_b)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits: a reader reads damage 25 times within half a second, in case a writer completes it."""
    monkeypatch.setattr(reader_module, "LOOK_AGAIN_S", 0.001)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


# --- Walking ---------------------------------------------------------------------------------------------------------


def test_verify_counts_what_a_store_holds(store: Path) -> None:
    make(store, [250] * 10)
    assert check(store) == Summary(store, 3, 10, 2, 0, 2548, 0)


def test_a_reader_takes_no_lock_and_makes_nothing(store: Path) -> None:
    make(store, [250] * 10)
    (store / "lock").unlink()
    before = sorted(store.rglob("*"))
    with LogReader(store) as reader:
        assert len(list(reader.records())) == 10
    assert sorted(store.rglob("*")) == before


def test_an_empty_store_and_a_phantom_file_are_no_error(store: Path) -> None:
    make(store, [])
    assert check(store) == Summary(store, 0, 0, 0, 0, 0, 0)
    log_file(store, 4096).write_bytes(bytes(FILE_SIZE))
    assert check(store) == Summary(store, 1, 0, 0, 4096, 4096, 0)


def test_a_file_that_is_deleted_while_files_are_listed_is_left_out(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slave that begins at another place deletes its first file, and so does the deletion of old files."""
    offsets = make(store, [600, 600, 600])
    listed, really = [], layout_module._list_names

    def list_and_delete(directory: Path) -> tuple[list[int], list[Path]]:
        names = really(directory)
        listed.append(names[0])
        if len(listed) == 1:
            log_file(store, 0).unlink()
        return names

    monkeypatch.setattr(layout_module, "_list_names", list_and_delete)
    with LogReader(store) as reader:
        assert (reader.min_offset, len(reader.files)) == (FILE_SIZE, len(offsets) - 1)
    assert listed == [[0, FILE_SIZE, 2 * FILE_SIZE], [FILE_SIZE, 2 * FILE_SIZE]]


@pytest.mark.parametrize("gone", [1, 2])
def test_a_file_that_is_deleted_after_files_were_listed_is_left_out(store: Path, gone: int) -> None:
    offsets = make(store, [250] * 10)
    first, left = gone * FILE_SIZE, [offset for offset in offsets if offset >= gone * FILE_SIZE]
    with LogReader(store) as a, LogReader(store) as b, LogReader(store) as c:
        delete_log_files(store, first)
        assert a.message_at(0) is None
        assert [offset for offset, _, _ in b.records()] == left
        assert verify(c) == Summary(store, 3 - gone, len(left), 2 - gone, first, 2548, 0)


def test_the_size_of_a_log_that_begins_anew_after_files_were_listed(store: Path) -> None:
    make(store, [250])
    with LogReader(store) as reader:
        log_file(store).rename(log_file(store, FILE_SIZE))
        patch(log_file(store, FILE_SIZE), 250, b"data")
        assert (reader.data_size(), reader.min_offset) == (254, FILE_SIZE)


def test_a_reader_of_messages_goes_on_behind_files_that_are_deleted_before_it_comes_to_them(store: Path) -> None:
    offsets = make(store, [250] * 10)
    with LogReader(store) as reader:
        records = reader.records(offsets[1])
        assert next(records)[0] == offsets[1]
        delete_log_files(store, 2 * FILE_SIZE)
        # It has the first file in memory.
        assert [offset for offset, _, _ in records] == [*offsets[2:4], *offsets[8:]]


def test_a_file_that_stays_listed_and_is_not_there_is_an_error(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(store, [250])
    layout = layout_module.read_layout(store)
    log_file(store).unlink()
    monkeypatch.setattr(reader_module, "read_layout", lambda _: layout)
    with LogReader(store) as reader:
        for read in (reader.walk, reader.data_size, lambda: list(reader.records())):
            with pytest.raises(FileNotFoundError, match=log_file(store).name):
                read()


@pytest.mark.parametrize("begins_at", [0, FILE_SIZE])
def test_a_log_that_begins_anew_while_it_is_read(store: Path, monkeypatch: pytest.MonkeyPatch, begins_at: int) -> None:
    """HA-S-80: a slave deletes the file that it had prepared. Its next file may have the same name."""
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.begin_at(0)
    really, looked = MappedFile.data_end, list[int]()

    def begin_anew(file: MappedFile, start: int) -> int:
        looked.append(file.base)
        if len(looked) == 1:
            assert file.mapping[0] == 0  # the reader has mapped it
            with CommitLog.open(store, file_size=FILE_SIZE, clear_tail=True) as log:
                log.begin_at(begins_at)
                record = encode(message_of(250), physical_offset=begins_at)
                log.append_data(log.max_offset, [record[log.max_offset - begins_at :]])
        return really(file, start)

    monkeypatch.setattr(MappedFile, "data_end", begin_anew)
    assert check(store) == Summary(store, 1, 1, 0, begins_at, begins_at + 250, 0)
    assert looked[0] == 0


def test_a_store_that_is_not_there_is_named(store: Path) -> None:
    for text in ("no such directory", "no commitlog"):
        with pytest.raises(ConfigInvalid, match=text):
            LogReader(store)
        store.mkdir(exist_ok=True)


@pytest.mark.parametrize("start", [0, 1, 249, 250, 774, 1000, 1024, 1030, 2548, 9999])
def test_records_begin_at_or_behind_an_offset(store: Path, start: int) -> None:
    offsets = make(store, [250] * 10)
    with LogReader(store) as reader:
        assert [offset for offset, _, _ in reader.records(start)] == [offset for offset in offsets if offset >= start]


def test_records_before_the_damage_are_given(store: Path) -> None:
    offsets = make(store, [250] * 10)
    patch(log_file(store, 1024), 350, b"\xff")
    with LogReader(store) as reader:
        found: list[int] = []
        with pytest.raises(StoreCorrupt) as refused:
            found.extend(offset for offset, _, _ in reader.records(offsets[1]))
        assert refused.value.offset == offsets[5]
        assert found == offsets[1:5]


# --- Tails and damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0xDAA320A7, MESSAGE_MAGIC_CODE_V2])
@pytest.mark.parametrize("properties", ["", "KEYS\x01k", "P\x01" + "v" * 300])
@pytest.mark.parametrize("body", [b"", b"\x05" * 50, b"\x05" * 20 + bytes(20)])
@pytest.mark.parametrize("sys_flag", [0, 0x30])
def test_every_beginning_of_a_record_is_a_tail_or_is_whole(body: bytes, properties: str, magic: int, sys_flag: int) -> None:
    host = ("::1", 7) if sys_flag else ("1.2.3.4", 7)
    message = Message(
        "topic", body, sys_flag=sys_flag, born_host=host, store_host=host, properties_string=properties, magic=magic
    )
    record = encode(message, physical_offset=1 << 20)
    for present in range(len(record)):
        data = record[:present] + bytes(len(record) - present + 100)
        data_end = len(data.rstrip(b"\0"))
        if data_end == 0:
            continue
        is_whole = data[: len(record)] == record
        assert is_fragment(data, data_end, 1 << 20) != is_whole, present
    assert not is_fragment(record + bytes(100), len(record.rstrip(b"\0")), 1 << 20)


def test_every_beginning_of_a_blank_is_a_tail() -> None:
    blank = (100).to_bytes(4, "big") + bytes.fromhex("CBD43194") + bytes(92)
    for present in (4, 5, 6, 7):
        assert is_fragment(blank[:present] + bytes(100 - present), present, 0)
    for size in (8, 99, 101):  # HA-S-92: the master's files have another size
        assert is_fragment(size.to_bytes(4, "big") + bytes.fromhex("CBD431") + bytes(93), 7, 0)
    assert not is_fragment((7).to_bytes(4, "big") + bytes.fromhex("CBD431") + bytes(93), 7, 0)
    # a whole record that ends elsewhere
    assert not is_fragment((99).to_bytes(4, "big") + bytes.fromhex("CBD43194") + bytes(92), 8, 0)


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_a_flipped_bit_in_the_last_record_is_damage_not_a_tail(data: st.DataObject) -> None:
    """A record with properties does not pass for an unfinished one if a flipped bit enlarges its size."""
    record = bytearray(encode(message_of(data.draw(st.integers(100, 400))), physical_offset=2048))
    checked = [*range(12), *range(28, 36), *range(84, len(record) - 10)]
    record[data.draw(st.sampled_from(checked))] ^= 1 << data.draw(st.integers(0, 7))
    room = bytes(record) + bytes(data.draw(st.integers(0, 40_000)))
    assert not scan(room, 2048, 0, 1).messages
    assert not is_fragment(room, len(room.rstrip(b"\0")), 2048)


@pytest.mark.parametrize("present", range(1, 250))
def test_a_part_of_a_record_is_reported_as_a_tail(store: Path, present: int) -> None:
    make(store, [250] * 10)
    record = encode(message_of(250, 9), physical_offset=2548)
    patch(log_file(store, 2048), 500, record[:present])
    summary = check(store)
    tail_size = len(record[:present].rstrip(b"\0"))
    assert (summary.messages, summary.max_offset, summary.tail_size) == (10, 2548, tail_size)
    with LogReader(store) as reader:
        assert len(list(reader.records(1024))) == 6
        assert (reader.max_offset, reader.tail_size) == (2548, tail_size)


@pytest.mark.parametrize(
    ("damage", "offset", "found"),
    [
        ((0, 100, b"\xff"), 0, "body CRC"),
        ((1024, 254, b"\0\0\0\0"), 1274, "magic 0x00000000"),
        ((1024, 250, b"\x7f"), 1274, "total size"),
        ((1024, 250 + 35, b"\x01"), 1274, "physical offset"),
        ((1024, 250, bytes(250)), 1274, "zero bytes, and data behind, up to"),
        ((1024, 1000 - 249, b"\x01"), 1774, "a BLANK of 65786 bytes|total size|BLANK"),
        ((2048, 400, b"\xff"), 2298, "body CRC"),
        ((2048, 700, b"stray"), 2548, "zero bytes, and data behind, up to 2753"),
    ],
)
def test_damage_is_named_by_file_and_offset(store: Path, damage: tuple[int, int, bytes], offset: int, found: str) -> None:
    base, position, data = damage
    make(store, [250] * 10)
    patch(log_file(store, base), position, data)
    with pytest.raises(StoreCorrupt, match=found) as refused:
        check(store)
    assert (refused.value.file, refused.value.offset) == (log_file(store, base), offset)


def test_data_in_a_later_file_is_damage(store: Path) -> None:
    make(store, [250] * 10)
    log_file(store, 3072).write_bytes(bytes(FILE_SIZE))
    assert check(store).max_offset == 2548
    patch(log_file(store, 3072), 1000, b"x")
    with pytest.raises(StoreCorrupt, match="up to 4073"):
        check(store)


def test_a_whole_record_is_found_at_any_place(store: Path) -> None:
    """Also if its magic is split between two chunks of the file."""
    size = 3 << 20
    for position in (0, 1, 92, (1 << 20) - 6, (1 << 20) - 5, (1 << 20) - 4, (2 << 20) + 17, size - 250):
        store.mkdir(exist_ok=True)
        path = store / f"{position}"
        path.write_bytes(b"\xda\xa3\x20" * (size // 3))
        patch(path, position, encode(message_of(250), physical_offset=(1 << 40) + position))
        file = MappedFile(path, 1 << 40, size, writable=False)
        assert find_record(file, 0) == position
        assert find_record(file, position) == position
        assert find_record(file, position + 1) is None
        file.close()


# --- Beside a live writer --------------------------------------------------------------------------------------------


def test_readers_beside_a_live_writer_never_see_damage(store: Path) -> None:
    done = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with CommitLog.open(store, file_size=64 * 1024) as log:
                began = time.monotonic()
                index = 0
                # On a busy machine a reader of so much is slow: the writer then waits for it, and still writes.
                while (took := time.monotonic() - began) < 2 or (len(ends) <= 3 and took < PATIENCE_S):
                    log.append(message_of(100 + index % 900, index % 251))
                    index += 1
                    if took > 2:
                        time.sleep(0.001)
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    store.mkdir()
    (store / "commitlog").mkdir()
    ends: list[int] = []
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    while not done.is_set():
        summary = check(store)
        ends.append(summary.max_offset)
        assert summary.tail_size == 0
    await_end(writer)
    assert not failures
    assert len(ends) > 3
    assert ends == sorted(ends)
    assert check(store).max_offset >= ends[-1]


def test_a_write_that_is_completed_in_time_is_no_damage(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader sees a half-written record, even with its bytes out of order; a later read sees it whole."""
    make(store, [250] * 10)
    record = encode(message_of(250, 9), physical_offset=2548)
    patch(log_file(store, 2048), 600, record[100:])
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 5:
            patch(log_file(store, 2048), 500, record)

    monkeypatch.setattr(reader_module, "time", SimpleNamespace(sleep=sleep))
    summary = check(store)
    assert (summary.messages, summary.max_offset, len(slept)) == (11, 2798, 5)


# --- Two stores ------------------------------------------------------------------------------------------------------


def test_equal_logs_are_equal_and_the_longer_one_is_ahead(store: Path, tmp_path: Path) -> None:
    make(store, [250] * 10)
    shutil.copytree(store, tmp_path / "slave")
    patch(log_file(tmp_path / "slave", 2048), 400, bytes(200))
    assert compared(store, tmp_path / "slave") == Comparison(0, 2400 + 48, None, 0)
    log_file(store, 0).unlink()
    assert compared(store, tmp_path / "slave") == Comparison(1024, 2448, None, 0)


def test_file_sizes_need_not_agree(tmp_path: Path) -> None:
    data = b"".join(encode(message_of(256, index + 1), physical_offset=index * 256) for index in range(16))
    for name, size in (("a", 4096), ("b", 1024), ("c", 512)):
        with CommitLog.open(tmp_path / name, file_size=size) as log:
            for start in range(0, len(data), size):
                log.append_data(start, [data[start : start + size]])
    assert compared(tmp_path / "a", tmp_path / "b") == Comparison(0, 4096, None, 0)
    assert compared(tmp_path / "c", tmp_path / "b") == Comparison(0, 4096, None, 0)


@given(st.integers(0, 9), st.data())
@settings(deadline=None, max_examples=40)
def test_the_first_difference_is_named(index: int, data: st.DataObject) -> None:
    """Also in bytes that no check covers: a timestamp, a flag, a letter of the topic."""
    with tempfile.TemporaryDirectory() as directory:
        a, b = Path(directory) / "a", Path(directory) / "b"
        offset = make(a, [250] * 10)[index]
        shutil.copytree(a, b)
        position = data.draw(st.sampled_from([*range(12, 28), *range(40, 84), 245, 249]))
        base = offset - offset % FILE_SIZE
        byte = log_file(b, base).read_bytes()[offset - base + position]
        patch(log_file(b, base), offset - base + position, bytes([byte ^ 0x08]))
        found = compared(a, b).difference
        assert found is not None
        assert (found.offset, found.file_a, found.file_b) == (offset + position, log_file(a, base), log_file(b, base))
        assert (found.byte_a, found.byte_b) == (byte, byte ^ 0x08)


def test_padding_may_differ_and_is_counted(store: Path, tmp_path: Path) -> None:
    """HA-ST-17 "two logs that differ in padding alone MUST count as equal": a BLANK's bytes from its ninth on are ignored."""
    make(store, [200] * 13)
    other = tmp_path / "slave"
    shutil.copytree(store, other)
    patch(log_file(other, 0), 1020, b"old")
    patch(log_file(other, 1024), 1008, b"old bytes")
    assert compared(store, other) == Comparison(0, 2648, None, 2)
    patch(log_file(other, 1024), 50, b"\x08")
    difference = compared(store, other).difference
    assert difference is not None
    assert difference.offset == 1024 + 50


@pytest.mark.parametrize(("a_size", "b_size", "start"), [(1024, 1024, 1024), (1024, 512, 1024), (512, 1024, 512)])
def test_a_comparison_begins_again_behind_a_file_that_is_deleted_meanwhile(
    tmp_path: Path, a_size: int, b_size: int, start: int
) -> None:
    """a deletes its first file. The order in which the two are compared changes nothing."""
    data = b"".join(encode(message_of(256, index + 1), physical_offset=index * 256) for index in range(16))
    for name, size in (("a", a_size), ("b", b_size)):
        with CommitLog.open(tmp_path / name, file_size=size) as log:
            for base in range(0, len(data), size):
                log.append_data(base, [data[base : base + size]])
    with LogReader(tmp_path / "a") as a, LogReader(tmp_path / "b") as b:
        verify(a)
        verify(b)
        delete_log_files(tmp_path / "a", start)
        assert compare(a, b) == compare(b, a) == Comparison(start, 4096, None, 0)
        delete_log_files(tmp_path / "a", 4096)
        a.close()
        assert compare(a, b) == Comparison(4096, 4096, None, 0)


def test_a_tail_is_compared_too(store: Path, tmp_path: Path) -> None:
    make(store, [250] * 10)
    other = tmp_path / "slave"
    shutil.copytree(store, other)
    with CommitLog.open(store) as log:
        log.append(message_of(250, 9))
    record = log_file(store, 2048).read_bytes()[500:620]
    patch(log_file(other, 2048), 500, record)
    assert compared(store, other) == Comparison(0, 2548 + 120, None, 0)
    patch(log_file(other, 2048), 513, b"\x07")
    difference = compared(store, other).difference
    assert difference is not None
    assert difference.offset == 2548 + 13
