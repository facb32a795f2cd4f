"""The commit log over mapped files keeps what is appended, in RocketMQ's format, also after it is opened again.

HA-ST-1 to 9.
"""

import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kit.children import Child
from kit.files import log_file, patch, snapshot
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.errors import AppendRefused, ConfigInvalid, MessageIllegal, StoreCorrupt, StoreLocked
from rocketmq_ha.impl.store.log import mapped_file
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import verify
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.spec.constants import MESSAGE_MAGIC_CODE_V2

FILE_SIZE = 1024
SMALLEST = 92  # bytes of a record with a topic of one letter


def message_of(size: int, fill: int = 1, **fields: int) -> Message:
    """A message whose record has a given size."""
    return Message("t", bytes([fill]) * (size - SMALLEST), **fields)


def contents(log: CommitLog) -> bytes:
    parts, offset = [], log.min_offset
    while (part := log.data_at(offset, 1 << 30)) is not None:
        parts.append(bytes(part))
        offset += len(part)
    return b"".join(parts)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def full_store(store: Path) -> Path:
    """Three files of ten messages, closed cleanly. Each message has its own fill byte."""
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        for index in range(10):
            log.append(message_of(250, index + 1))
    return store


# --- Appending and reading -------------------------------------------------------------------------------------------


def test_a_new_store_is_made_only_where_its_parent_exists(store: Path) -> None:
    with pytest.raises(ConfigInvalid, match="parent"):
        CommitLog.open(store / "deeper", file_size=FILE_SIZE)
    assert not store.exists()
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        assert (log.file_size, log.min_offset, log.max_offset) == (FILE_SIZE, 0, 0)
        assert log.data_at(0, 10) is None
    assert {path.name for path in store.iterdir()} == {"commitlog", "lock"}
    assert list((store / "commitlog").iterdir()) == []


def test_a_new_store_has_files_of_one_gibibyte_by_default(store: Path) -> None:
    """HA-ST-11 "holds 1 GiB, 1,073,741,824 bytes, by default"."""
    with CommitLog.open(store) as log:
        assert log.file_size == 1 << 30


@given(st.lists(st.integers(0, 690), max_size=30), st.sampled_from([800, 801, 1024, 4096]))
@settings(deadline=None)
def test_messages_come_back_from_where_append_said(sizes: list[int], file_size: int) -> None:
    """HA-ST-12 "at the end of the log, one at a time"; HA-ST-15 "MUST be the commit-log offset of the record itself";
    HA-ST-11 "MUST keep the size with which it was begun".
    """
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        put = []
        with CommitLog.open(store, file_size=file_size) as log:
            for index, size in enumerate(sizes):
                message = Message("topic", bytes([index]) * size, queue_id=index % 3)
                result = log.append(message)
                assert log.max_offset == result.offset + result.size
                assert result.queue_offset == index // 3
                put.append((result.offset, result.size, index % 3, result.queue_offset, message.body))
            before = contents(log)
            assert read_back(log) == put
        with CommitLog.open(store) as log:
            assert (log.file_size, contents(log)) == ((file_size, before) if sizes else (1 << 30, b""))
            assert read_back(log) == put
            for _, size, *_ in put:
                offset = log.max_offset
                assert log.data_at(offset, size) is None


def read_back(log: CommitLog) -> list[tuple[int, int, int, int, bytes]]:
    found = []
    for offset, size, message in log.records():
        assert message.physical_offset == offset
        record = log.data_at(offset, size)
        assert record is not None
        assert bytes(record) == encode(message)
        found.append((offset, size, message.queue_id, message.queue_offset, message.body))
    return found


@pytest.mark.parametrize("remaining", range(92 + 16, -1, -1))
def test_a_blank_takes_the_rest_whatever_remains(store: Path, remaining: int) -> None:
    """HA-ST-3 at every size of the rest: a record of 92 bytes stays if 100 are left, and rolls if fewer are."""
    fits = remaining >= SMALLEST + 8
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        used = FILE_SIZE - remaining
        if remaining >= 8:
            log.append(message_of(used))
        else:  # only replicated bytes can end this near to the end of a file
            log.append_data(0, [encode(message_of(used))])
        if 0 < remaining < 8:
            with pytest.raises(AppendRefused, match=r"8, for a BLANK"):
                log.append(message_of(SMALLEST))
            assert log.max_offset == used
            return
        result = log.append(message_of(SMALLEST))
        assert result.offset == (used if fits else FILE_SIZE)
        rest = bytes(log.data_at(used, FILE_SIZE) or b"")
        if not fits and remaining:
            assert rest == struct.pack(">iI", remaining, 0xCBD43194) + bytes(remaining - 8)
        before = contents(log)
    with CommitLog.open(store) as log:
        assert contents(log) == before


def test_the_padding_of_a_blank_is_zero_bytes_whatever_was_there(store: Path) -> None:
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.append(message_of(900))
    patch(log_file(store, 0), 1000, b"stale")
    with CommitLog.open(store, clear_tail=False) as log:
        log.append(message_of(SMALLEST))
        log.append(message_of(SMALLEST))
    assert log_file(store, 0).read_bytes()[1000:] == bytes(24)


def test_a_record_that_fits_no_file_is_refused_and_nothing_is_written(store: Path) -> None:
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        for _ in range(2):
            with pytest.raises(MessageIllegal, match="at most 1016"):
                log.append(message_of(FILE_SIZE - 7))
            assert log.max_offset in (0, SMALLEST)
            log.append(message_of(SMALLEST))
        log.append(message_of(FILE_SIZE - 8))
        assert (log.min_offset, log.max_offset) == (0, 2 * FILE_SIZE - 8)


def test_queues_count_by_topic_and_queue_and_prepared_messages_do_not_count(store: Path) -> None:
    """4.9.8 doAppend: a prepared or rolled-back message gets queue offset 0 and leaves the queue as it was."""

    def put(log: CommitLog, topic: str, queue_id: int, transaction: int = 0) -> int:
        return log.append(Message(topic, b"", queue_id=queue_id, sys_flag=transaction)).queue_offset

    with CommitLog.open(store, file_size=4096) as log:
        assert [put(log, "a", 0), put(log, "a", 0), put(log, "a", 1), put(log, "b", 0)] == [0, 1, 0, 0]
        assert [put(log, "a", 0, 0x4), put(log, "a", 0, 0xC), put(log, "a", 0, 0x8), put(log, "a", 0)] == [0, 0, 2, 3]
        assert put(log, "\udcff", 0) == 0
    with CommitLog.open(store) as log:
        assert [put(log, "a", 0, 0x4), put(log, "a", 0), put(log, "a", 1), put(log, "b", 0)] == [0, 4, 1, 1]
        assert put(log, "\udcff", 0) == 1


def test_views_are_read_only_and_outlive_the_log(full_store: Path) -> None:
    log = CommitLog.open(full_store)
    view = log.data_at(0, 100)
    assert view is not None
    assert view.readonly
    expected = bytes(view)
    log.close()
    log.close()
    assert bytes(view) == expected


def test_data_at_stays_in_one_file_and_below_the_end(full_store: Path) -> None:
    with CommitLog.open(full_store) as log:
        end = log.max_offset
        assert end == 2 * FILE_SIZE + 500
        for offset, limit, size in [
            (0, 10, 10),
            (0, 5000, FILE_SIZE),
            (FILE_SIZE - 1, 10, 1),
            (FILE_SIZE, 5000, FILE_SIZE),
            (end - 3, 10, 3),
        ]:
            assert len(log.data_at(offset, limit) or b"") == size
        assert [log.data_at(offset, 10) for offset in (-1, end, end + 1, 1 << 62)] == [None] * 4


def test_flush_reaches_the_disk_calls_and_a_second_one_is_harmless(full_store: Path) -> None:
    with CommitLog.open(full_store) as log:
        log.flush()
        log.append(message_of(900))
        log.flush()
        log.flush()


# --- Replicated bytes ------------------------------------------------------------------------------------------------


@given(st.data(), st.integers(1, 1500))
@settings(deadline=None)
def test_replicated_bytes_are_the_same_bytes_however_they_are_cut(data: st.DataObject, piece: int) -> None:
    """HA-W-10 "MAY begin and end anywhere in a record"."""
    with tempfile.TemporaryDirectory() as directory:
        with CommitLog.open(Path(directory) / "a", file_size=FILE_SIZE) as master:
            for index in range(data.draw(st.integers(1, 12))):
                master.append(message_of(data.draw(st.integers(SMALLEST, 400)), index))
            with CommitLog.open(Path(directory) / "b", file_size=FILE_SIZE) as slave:
                while (part := master.data_at(slave.max_offset, piece)) is not None:
                    cut = data.draw(st.integers(0, len(part)))
                    slave.append_data(slave.max_offset, [part[:cut], bytes(part[cut:])])
                assert contents(slave) == contents(master)
            before = contents(master)
        with CommitLog.open(Path(directory) / "b") as slave:
            assert contents(slave) == before


def test_one_append_takes_more_buffers_than_a_system_call(store: Path) -> None:
    with CommitLog.open(store, file_size=8192) as log:
        log.append_data(0, [bytes([index % 251]) for index in range(3000)])
        log.append_data(3000, [b"", b"x" * 5192, b""])
        assert contents(log) == bytes(index % 251 for index in range(3000)) + b"x" * 5192


def test_short_writes_are_continued(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(mapped_file.os, "pwritev", lambda fd, buffers, at: real(fd, [b"".join(map(bytes, buffers))[:3]], at))
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.append_data(0, [b"ab", b"cdefg", memoryview(b"hij"), b"k"])
        assert contents(log) == b"abcdefghijk"


@pytest.mark.parametrize(
    ("offset", "base"), [(0, 0), (5, 0), (1023, 0), (1024, 1024), (5 * 1024 + 7, 5 * 1024), (-1, 0), (-1023, 0)]
)
def test_the_first_bytes_open_the_file_that_would_hold_their_offset(store: Path, offset: int, base: int) -> None:
    """HA-ST-6 "they open the file that holds their offset, and are written from its start" (quirk 18)."""
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.append_data(offset, [b"abc"])
        assert (log.min_offset, log.max_offset, contents(log)) == (base, base + 3, b"abc")


def test_no_bytes_on_an_empty_log_make_a_phantom_file(store: Path) -> None:
    """Quirk 17. With clear_tail=False the phantom file survives a restart; else a log without records has no files."""
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.append_data(0, [])
        assert (log.min_offset, log.max_offset) == (0, 0)
        assert log_file(store, 0).stat().st_size == FILE_SIZE
    with CommitLog.open(store, clear_tail=False) as log:
        log.append_data(4096, [b"abc"])
        assert (log.min_offset, log.max_offset) == (0, 3)
    with CommitLog.open(store) as log:
        assert not log_file(store, 0).exists()
        assert (log.file_size, log.max_offset) == (FILE_SIZE, 0)
        log.append_data(4096, [b"abc"])
        assert (log.min_offset, log.max_offset) == (4096, 4099)


def test_bytes_that_cross_the_end_of_a_file_are_refused(store: Path) -> None:
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        with pytest.raises(AppendRefused):
            log.append_data(0, [bytes(FILE_SIZE + 1)])
        with pytest.raises(AppendRefused):
            log.append_data(-FILE_SIZE, [b"x"])
        assert list((store / "commitlog").iterdir()) == []
        log.append_data(0, [bytes(1000)])
        with pytest.raises(AppendRefused, match=r"found 25 bytes, expected at most 24"):
            log.append_data(1000, [bytes(20), bytes(5)])
        assert log.max_offset == 1000
        log.append_data(1000, [bytes(24)])
        with pytest.raises(AppendRefused):
            log.append_data(1024, [bytes(FILE_SIZE + 1)])
        assert not log_file(store, 1024).exists()
        log.append_data(1024, [bytes(FILE_SIZE)])
        assert log.max_offset == 2 * FILE_SIZE


def test_a_full_disk_is_an_error_and_changes_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-8 "MUST be allocated on the disk before it is mapped", and before the BLANK is written."""
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.append(message_of(950))
        before = snapshot(store)

        def no_space(_fd: int, _start: int, _size: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(mapped_file.os, "posix_fallocate", no_space)
        with pytest.raises(OSError, match="No space") as refused:
            log.append(message_of(SMALLEST))
        assert refused.value.filename == str(log_file(store, FILE_SIZE))
        assert log.max_offset == 950
        assert {name: entry[2] for name, entry in snapshot(store).items()} == {name: entry[2] for name, entry in before.items()}
        monkeypatch.undo()
        assert log.append(message_of(SMALLEST)).offset == FILE_SIZE


def test_a_file_that_was_never_finished_is_swept_away(full_store: Path) -> None:
    leftover = full_store / "commitlog" / "00000000000000003072.creating"
    leftover.write_bytes(b"half")
    with CommitLog.open(full_store) as log:
        assert log.max_offset == 2548
    assert not leftover.exists()


# --- Recovery --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clear_tail", [True, False])
@pytest.mark.parametrize("present", [*range(1, 12), 36, 40, 87, 88, 100, 246])
def test_a_partial_record_at_the_tail_is_cut_off(full_store: Path, present: int, clear_tail: bool) -> None:
    record = encode(message_of(250, 77), physical_offset=2548)
    patch(log_file(full_store, 2048), 500, record[:present])
    with CommitLog.open(full_store, clear_tail=clear_tail) as log:
        assert log.max_offset == 2548
        log.append_data(2548, [record])
        assert [message.body[0] for _, _, message in log.records()][-1] == 77


@pytest.mark.parametrize("properties", ["", "KEYS\x01key\x02TAGS\x01tag"])
def test_a_record_without_the_end_of_its_topic_or_properties_is_not_whole(store: Path, properties: str) -> None:
    """HA-ST-10 "end in a zero byte is not whole", HA-ST-89 "MUST be refused when". Lengths and CRC are right:
    RocketMQ takes the record for whole, and from then on its log differs from its master's.
    """
    message = Message("topic", b"body", queue_id=1, properties_string=properties)
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        first = log.append(message)
        record = encode(message, 1, first.size)
    end = len(record) - 2 if not properties else len(record)
    looks_whole = []
    for present in range(1, end):
        patch(log_file(store, 0), first.size, record[:present] + bytes(len(record) - present))
        with CommitLog.open(store, clear_tail=False) as log:  # as RocketMQ does
            looks_whole.append(log.max_offset > first.size)
        with CommitLog.open(store) as log:
            assert (log.max_offset, log.recovery.messages) == (first.size, 1)
            assert log.append(message).queue_offset == 1
    assert sum(looks_whole) == (len(properties) or len("topic"))


@pytest.mark.parametrize("message", [Message("t\0", b""), Message("t", b"", properties_string="KEYS\x01k\0")])
def test_a_message_that_recovery_would_cut_off_is_refused(store: Path, message: Message) -> None:
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        with pytest.raises(MessageIllegal, match="zero byte"):
            log.append(message)
        assert log.max_offset == 0
        log.append(Message("t\0t", b"\0", properties_string="KEYS\x01\0k"))


ZEROS = "KEYS\x01" + "\0" * 512 + "k"


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"", properties_string=ZEROS),
        Message("t", b"", properties_string=ZEROS, sys_flag=4),
        Message("t" + "\0" * 512 + "t", b"", properties_string="KEYS\x01k", magic=MESSAGE_MAGIC_CODE_V2),
        Message("t" + "\0" * 512 + "t", b"", magic=MESSAGE_MAGIC_CODE_V2),
    ],
)
def test_a_message_that_recovery_could_take_for_one_with_a_lost_sector_is_refused(store: Path, message: Message) -> None:
    """HA-ST-10 "nothing but zeros from a multiple of 512 in its file to the next one": at any position of the record."""
    with CommitLog.open(store, file_size=4096) as log:
        with pytest.raises(MessageIllegal, match="512 zero bytes in a row"):
            log.append(message)
        with pytest.raises(MessageIllegal, match="512 zero bytes in a row"):
            log.append_batch([replace(message, sys_flag=0)])
        assert log.max_offset == 0
        fewer = replace(message, properties_string=message.properties_string.replace("\0", "", 1), topic="t")
        assert log.append(fewer).offset == 0


def test_missing_bytes_that_would_be_zero_count_as_there(full_store: Path) -> None:
    """HA-ST-5: a new file is all zeros, so a record without properties is whole once its topic is."""
    patch(log_file(full_store, 2048), 500, encode(message_of(250, 77), physical_offset=2548)[:-2])
    with CommitLog.open(full_store) as log:
        assert (log.max_offset, log.recovery.cut_size) == (2798, 0)


def test_what_is_cut_off_becomes_zero_or_stays(full_store: Path) -> None:
    """HA-ST-7 "What recovery cuts off MUST be set to zero"; left alone, stale bytes stay (quirk 35)."""
    log_file(full_store, 3072).write_bytes(bytes(FILE_SIZE))
    patch(log_file(full_store, 2048), 500, b"stale")
    patch(log_file(full_store, 2048), 900, b"bytes")
    with CommitLog.open(full_store, clear_tail=False) as log:
        assert log.max_offset == 2548
    assert log_file(full_store, 2048).read_bytes()[900:905] == b"bytes"
    assert not log_file(full_store, 3072).exists()  # it begins beyond the end
    with CommitLog.open(full_store) as log:
        assert (log.max_offset, log.recovery.cut_size, log.recovery.messages) == (2548, 405, 10)
    assert log_file(full_store, 2048).read_bytes()[500:] == bytes(524)


@pytest.mark.parametrize("clear_tail", [True, False])
def test_a_file_prepared_ahead_is_used_or_removed(full_store: Path, clear_tail: bool) -> None:
    """RocketMQ allocates the next file before it needs it."""
    log_file(full_store, 3072).write_bytes(bytes(FILE_SIZE))
    with CommitLog.open(full_store, clear_tail=clear_tail) as log:
        assert log.max_offset == 2548
        for _ in range(4):
            log.append(message_of(250))
        assert log.max_offset == 3072 + 500
        before = contents(log)
    with CommitLog.open(full_store) as log:
        assert contents(log) == before


def test_a_blank_counts_to_the_end_of_its_file(full_store: Path) -> None:
    """HA-ST-5, with the next file and without it."""
    log_file(full_store, 2048).write_bytes(bytes(FILE_SIZE))
    with CommitLog.open(full_store, clear_tail=False) as log:
        assert log.max_offset == 2048
    log_file(full_store, 2048).unlink()
    with CommitLog.open(full_store) as log:
        assert log.max_offset == 2048
        assert log.append(message_of(250)).offset == 2048


def test_a_reopened_log_equals_the_one_that_was_killed(store: Path) -> None:
    """A killed process loses nothing that it has appended, for the page cache belongs to the kernel."""
    script = f"""
import os, signal, sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message
log = CommitLog.open(Path({str(store)!r}), file_size=4096)
for index in range(100):
    log.append(Message("t", bytes([index]) * 200))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=PATIENCE_S).returncode == -9
    with CommitLog.open(store) as log:
        assert [message.body[0] for _, _, message in log.records()] == list(range(100))


@given(st.integers(0, 9), st.data())
@settings(deadline=None, max_examples=60)
def test_one_flipped_bit_names_file_and_offset_and_costs_no_byte(index: int, data: st.DataObject) -> None:
    """HA-ST-20 "MUST be refused, unchanged, with an error that names the file and the offset".

    In classic the log ends at the damage, as in RocketMQ.
    """
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        with CommitLog.open(store, file_size=FILE_SIZE) as log:
            offsets = [log.append(message_of(250, fill + 1)).offset for fill in range(11)]
        base = offsets[index] - offsets[index] % FILE_SIZE
        checked = [*range(12), *range(28, 36), *range(84, 247)]
        position = offsets[index] - base + data.draw(st.sampled_from(checked))
        byte = log_file(store, base).read_bytes()[position]
        patch(log_file(store, base), position, bytes([byte ^ 1 << data.draw(st.integers(0, 7))]))
        before = snapshot(store)
        with pytest.raises(StoreCorrupt) as refused:
            CommitLog.open(store)
        assert refused.value.offset == offsets[index]
        assert refused.value.file == log_file(store, base)
        assert snapshot(store) == before
        with CommitLog.open(store, clear_tail=False) as log:
            assert log.max_offset == offsets[index]


def test_a_lost_page_before_a_whole_record_is_damage_too(full_store: Path) -> None:
    patch(log_file(full_store, 1024), 0, bytes(1024))
    with pytest.raises(StoreCorrupt, match="found zero bytes") as refused:
        CommitLog.open(full_store)
    assert refused.value.offset == 1024


def test_a_log_of_records_of_another_place_is_refused_unless_the_tail_is_left_alone(store: Path) -> None:
    """HA-ST-95 "MUST be refused, unchanged, with an error that names the file and the offset" (quirks 17 and 18).

    RocketMQ takes this log for empty; to wipe it would be worse.
    """
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        log.append_data(0, [encode(message_of(200), physical_offset=4096)])
    before = log_file(store, 0).read_bytes()
    with pytest.raises(StoreCorrupt, match="physical offset 4096, expected 0"):
        CommitLog.open(store)
    with CommitLog.open(store, clear_tail=False) as log:
        assert log.max_offset == 0
    assert log_file(store, 0).read_bytes() == before


@given(
    st.lists(st.integers(SMALLEST, 500), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 3000), st.binary(min_size=1, max_size=300)), max_size=3),
)
@settings(deadline=None, max_examples=200)
@example([92, 92], [(181, b"\0"), (184, b"\1")])
def test_whatever_stands_in_the_files_an_open_heals_or_refuses(sizes: list[int], noise: list[tuple[int, bytes]]) -> None:
    """Each error names a file; a refusal changes nothing; a store that was opened is sound, and opens again with the same
    contents. A last record that ends in a zero byte is an exception: if the first opening kept it for the bytes behind it, and
    cut those off, the second one cuts it off (HA-ST-10 "where only zeros follow it").
    """
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        with CommitLog.open(store, file_size=FILE_SIZE) as log:
            for index, size in enumerate(sizes):
                log.append(message_of(size, index + 1))
        bases = sorted(int(path.name) for path in (store / "commitlog").iterdir())
        for position, data in noise:
            base = bases[min(position // FILE_SIZE, len(bases) - 1)]
            patch(log_file(store, base), position % FILE_SIZE, data[: FILE_SIZE - position % FILE_SIZE])
        before = snapshot(store)
        try:
            with CommitLog.open(store) as log:
                healed = contents(log)
                records = list(log.records())
                assert len(records) == log.recovery.messages
        except StoreCorrupt:
            assert snapshot(store) == before
            return
        end = len(healed)
        for offset, size, message in records[-1:]:
            if offset + size == end and (message.properties_bytes or message.topic_bytes).endswith(b"\0"):
                end = offset
        with LogReader(store) as reader:
            assert verify(reader).max_offset == end
        with CommitLog.open(store) as log:
            assert (contents(log), log.recovery.cut_size) == (healed[:end], len(healed[end:].rstrip(b"\0")))


# --- Refused opens change nothing ------------------------------------------------------------------------------------


def _wrong_length(store: Path) -> None:
    with log_file(store, 1024).open("r+b") as file:
        file.truncate(1000)


def _longer(store: Path) -> None:
    with log_file(store, 2048).open("ab") as file:
        file.write(b"x")


def _gap(store: Path) -> None:
    log_file(store, 1024).unlink()


def _wrong_name(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("hello")


def _name_off_by_one(store: Path) -> None:
    log_file(store, 2048).rename(log_file(store, 2047))


def _directory_for_a_file(store: Path) -> None:
    log_file(store, 3072).mkdir()


def _empty_file(store: Path) -> None:
    log_file(store, 3072).touch()


def _corrupt(store: Path) -> None:
    patch(log_file(store, 0), 100, b"\xff")


REFUSALS = {
    _wrong_length: (StoreCorrupt, "00000000000000001024.*1000 bytes.*1024"),
    _longer: (StoreCorrupt, "00000000000000002048.*1025 bytes.*1024"),
    _gap: (StoreCorrupt, "00000000000000000000.*1024 bytes.*2048"),
    _wrong_name: (StoreCorrupt, "notes.txt"),
    _name_off_by_one: (StoreCorrupt, "00000000000000002047.*00000000000000002048"),
    _directory_for_a_file: (StoreCorrupt, "00000000000000003072"),
    _empty_file: (StoreCorrupt, "00000000000000003072.*0 bytes.*1024"),
    _corrupt: (StoreCorrupt, "00000000000000000000: at commit-log offset 0: found body CRC"),
}


@pytest.mark.parametrize("has_lock", [True, False])
@pytest.mark.parametrize("damage", REFUSALS, ids=lambda damage: damage.__name__)
def test_a_refused_open_says_why_and_changes_nothing(full_store: Path, damage: object, has_lock: bool) -> None:
    assert callable(damage)
    damage(full_store)
    if not has_lock:
        (full_store / "lock").unlink()
    before = snapshot(full_store)
    error, text = REFUSALS[damage]
    with pytest.raises(error, match=text) as refused:
        CommitLog.open(full_store)
    assert "\n" not in str(refused.value)
    assert snapshot(full_store) == before


@pytest.mark.parametrize("file_size", [0, 7, -1, 1 << 31, 2048])
def test_a_file_size_that_disagrees_or_cannot_be_is_refused(full_store: Path, file_size: int) -> None:
    before = snapshot(full_store)
    with pytest.raises(ConfigInvalid, match=str(file_size)):
        CommitLog.open(full_store, file_size=file_size)
    assert snapshot(full_store) == before


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(ConfigInvalid, match="not a directory"):
        CommitLog.open(path)
    store = tmp_path / "store"
    store.mkdir()
    (store / "commitlog").write_text("x")
    with pytest.raises(ConfigInvalid, match="not a directory"):
        CommitLog.open(store)
    assert {entry.name for entry in store.iterdir()} == {"commitlog"}


# --- The lock --------------------------------------------------------------------------------------------------------


@pytest.fixture
def other_process(full_store: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that locks the store as RocketMQ does: one byte of the file `lock`, by fcntl."""
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); "
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0); print('locked', flush=True); sys.stdin.read()"
    )
    process = Child(
        [sys.executable, "-c", script, str(full_store / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate(timeout=PATIENCE_S)


def test_a_store_that_another_process_owns_is_refused(full_store: Path, other_process: subprocess.Popen[str]) -> None:
    """HA-ST-9 "One process at a time MUST own a store for writing"."""
    before = snapshot(full_store)
    with pytest.raises(StoreLocked, match=str(full_store)):
        CommitLog.open(full_store)
    assert snapshot(full_store) == before
    other_process.communicate(timeout=PATIENCE_S)
    CommitLog.open(full_store).close()


def test_a_store_is_opened_once_in_a_process(full_store: Path, tmp_path: Path) -> None:
    """A POSIX lock belongs to the process: a second descriptor would get it too, and closing that one would release it for
    both.
    """
    link = tmp_path / "link"
    link.symlink_to(full_store)
    with CommitLog.open(full_store) as log:
        for path in (full_store, link):
            with pytest.raises(StoreLocked):
                CommitLog.open(path)
        script = "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
        probe = subprocess.run(
            [sys.executable, "-c", script, str(full_store / "lock")],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert "BlockingIOError" in probe.stderr
        log.append(message_of(SMALLEST))
    CommitLog.open(full_store).close()


def test_a_refused_open_leaves_no_lock_behind(full_store: Path) -> None:
    patch(log_file(full_store, 0), 100, b"\xff")
    for _ in range(2):
        with pytest.raises(StoreCorrupt):
            CommitLog.open(full_store)
    patch(log_file(full_store, 0), 100, b"\x01")
    CommitLog.open(full_store).close()


# --- Space -----------------------------------------------------------------------------------------------------------


def test_an_empty_gigabyte_is_neither_read_nor_kept(store: Path) -> None:
    """The search for stale bytes skips space that was never written, or each open would read a whole file."""
    (store / "commitlog").mkdir(parents=True)
    with log_file(store, 0).open("wb") as file:
        file.truncate(1 << 30)
    ahead = MappedFile(log_file(store, 0), 0, 1 << 30, writable=False)
    assert sum(len(chunk) for _, chunk in ahead.chunks(0)) < 1 << 24
    ahead.close()
