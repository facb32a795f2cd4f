"""Where recovery begins, what it takes for flushed, and where it ends: each number below, at and above its bound.

HA-ST-5, HA-ST-10, HA-ST-18 to HA-ST-20, HA-ST-24, HA-ST-46.
"""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kit.files import log_file, patch
from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint
from rocketmq_ha.impl.store.log.checkpoint_hint import first_file, place_hint, recovery_hint
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.find_record import find_record
from rocketmq_ha.impl.store.log.mapped_file import MappedFile
from rocketmq_ha.impl.store.log.opening import RecoveryHint
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.recovery import recover
from rocketmq_ha.impl.store.recovery_plan import plan_recovery
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.reference import store as model
from rocketmq_ha.spec.constants import MESSAGE_MAGIC_CODE_V2
from rocketmq_ha.spec.profile import HARDENED

FILE_SIZE = 4096
STORED = 1_000_000
USUAL = Message("t", b"body", store_timestamp=STORED)
VARIANTS = {
    "usual": USUAL,
    "V2": replace(USUAL, magic=MESSAGE_MAGIC_CODE_V2),
    "born IPv6": replace(USUAL, born_host=("::1", 1), sys_flag=0x10),
    "stored IPv6": replace(USUAL, store_host=("::1", 1), sys_flag=0x20),
    "both IPv6": replace(USUAL, born_host=("::1", 1), store_host=("::1", 1), sys_flag=0x30),
    "prepared": replace(USUAL, sys_flag=0x4),
}
QUEUE_FILE = f"t/0/{0:020d}"
BLANK_MAGIC = bytes.fromhex("cbd43194")


def blank(size: int) -> bytes:
    return size.to_bytes(4, "big") + BLANK_MAGIC + bytes(size - 8)


def write_files(store: Path, *files: bytes, base: int = 0, file_size: int = FILE_SIZE) -> list[MappedFile]:
    """The files of a log, each with these bytes at its start, and zeros behind them."""
    (store / "commitlog").mkdir(parents=True)
    found = []
    for number, data in enumerate(files):
        path = log_file(store, base + number * file_size)
        path.write_bytes(data.ljust(file_size, b"\0"))
        found.append(MappedFile(path, base + number * file_size, file_size, writable=False))
    return found


def checkpoint_file(store: Path, *times: int) -> None:
    (store / "checkpoint").write_bytes(struct.pack(">qqq", *times).ljust(4096, b"\0"))


# --- Where it begins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False], ids=["hardened", "classic"])
@pytest.mark.parametrize(("later", "begins"), [(-1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_recovery_begins_at_a_file_that_was_begun_by_the_checkpoints_time(
    tmp_path: Path, variant: str, later: int, begins: int, strict: bool
) -> None:
    """HA-ST-19 "not after the lesser of the checkpoint's first two times, less 3 s", whatever kind its first message is of."""
    files = write_files(tmp_path, b"", encode(VARIANTS[variant], 0, FILE_SIZE), b"")
    assert first_file(files, STORED + later, strict=strict) == begins
    (tmp_path / "abort").touch()
    for times in ((STORED + 3000 + later, 1 << 60), (1 << 60, STORED + 3000 + later)):
        checkpoint_file(tmp_path, *times, 0)
        assert recovery_hint(tmp_path, files, strict=strict).first == begins


@pytest.mark.parametrize(
    ("first_message", "hardened", "classic"),
    [
        (encode(USUAL, 0, FILE_SIZE), 2, 2),
        (encode(replace(USUAL, store_timestamp=0), 0, FILE_SIZE), 1, 1),
        (encode(replace(USUAL, store_timestamp=1), 0, FILE_SIZE), 2, 2),
        (encode(USUAL, 0, FILE_SIZE)[:-2] + b"\0\1", 1, 2),  # not whole
        (encode(USUAL, 0, FILE_SIZE + 1), 1, 2),  # of another place
        (b"\0\0\0\x60\xda\xa3\x20\xa8" + encode(USUAL, 0, FILE_SIZE)[8:], 1, 1),  # a magic that nobody knows
        (blank(FILE_SIZE), 1, 1),
        (b"", 1, 1),
    ],
    ids=["whole", "no time", "the first ms", "torn", "elsewhere", "magic", "BLANK", "nothing"],
)
def test_a_file_with_another_beginning_is_none_to_begin_at(
    tmp_path: Path, first_message: bytes, hardened: int, classic: int
) -> None:
    moved = first_message.replace(FILE_SIZE.to_bytes(8, "big"), (2 * FILE_SIZE).to_bytes(8, "big"))
    files = write_files(tmp_path, b"", encode(USUAL, 0, FILE_SIZE), moved)
    assert first_file(files, 1 << 60) == hardened
    assert first_file(files, 1 << 60, strict=False) == classic


@pytest.mark.parametrize(("file_size", "begins"), [(91, 0), (92, 1), (93, 1)])
def test_a_file_may_be_as_small_as_its_first_message(tmp_path: Path, file_size: int, begins: int) -> None:
    files = write_files(tmp_path, b"", encode(replace(USUAL, body=b""), 0, file_size)[:file_size], file_size=file_size)
    assert first_file(files, STORED) == begins


@pytest.mark.parametrize(("count", "first"), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 2)])
def test_after_a_clean_stop_three_files_are_looked_at(tmp_path: Path, count: int, first: int) -> None:
    """HA-ST-18 "three files before the end of the log, or at its first file if there are fewer"; all was on the disk."""
    files = write_files(tmp_path, *[b""] * count)
    checkpoint_file(tmp_path, 1 << 60, 1 << 60, 0)
    found = recovery_hint(tmp_path, files)
    assert (found.first, found.flushed_before_ms, found.keeps_place) == (first, None, False)
    (tmp_path / "abort").touch()
    assert recovery_hint(tmp_path, files).flushed_before_ms == (1 << 60) - 2999


@pytest.mark.parametrize(
    ("base", "queue", "keeps"),
    [(0, QUEUE_FILE, False), (FILE_SIZE, QUEUE_FILE, True), (FILE_SIZE, "t/0", False), (FILE_SIZE, "", False)],
)
def test_a_log_keeps_its_place_while_there_are_queues(tmp_path: Path, base: int, queue: str, keeps: bool) -> None:
    """HA-ST-7 "a log whose first files have expired keeps its place while there are consume queues"."""
    files = write_files(tmp_path, b"", base=base)
    path = tmp_path / "consumequeue" / queue
    path.parent.mkdir(parents=True, exist_ok=True)
    if queue.count("/") == 2:
        path.write_bytes(struct.pack(">qiq", 0, 96, 0))
    else:
        path.mkdir(exist_ok=True)
    assert place_hint(tmp_path, files).keeps_place == keeps
    assert place_hint(tmp_path, []).keeps_place is False
    (tmp_path / "abort").touch()
    assert recovery_hint(tmp_path, files).keeps_place == keeps
    plan = plan_recovery(tmp_path, is_ours=True)
    assert (plan.files_removed, plan.end) == ((0, base) if keeps else (1, 0))
    with CommitLog.open(tmp_path, hint=lambda found: recovery_hint(tmp_path, found)) as log:
        assert (log.min_offset, len(log.queue.files)) == ((base, 1) if keeps else (0, 0))


# --- The checkpoint --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "least", "earliest", "flushed_before"),
    [
        ((0, 0, 0), 0, 0, 0),
        ((2_998, 5_000, 0), 0, 0, 0),
        ((2_999, 5_000, 0), 0, 0, 0),
        ((3_000, 5_000, 0), 0, 0, 1),
        ((3_001, 5_000, 7), 7, 1, 2),
        ((9_000, 3_001, 4_000), 3_001, 1, 6_001),
        ((9_000, 9_000, 9_001), 9_000, 6_000, 6_001),
    ],
)
def test_what_a_checkpoint_vouches_for(
    tmp_path: Path, times: tuple[int, int, int], least: int, earliest: int, flushed_before: int
) -> None:
    """HA-ST-24: "a message that was stored 3 s or more before its first time"."""
    checkpoint_file(tmp_path, *times)
    found = StoreCheckpoint(tmp_path)
    assert (found.least_timestamp, found.min_timestamp, found.flushed_before_ms) == (least, earliest, flushed_before)


@pytest.mark.parametrize("length", [0, 23, 24, 47, 48, 4095, 4096, 4097])
def test_a_checkpoint_of_any_length_is_read_and_made_whole(tmp_path: Path, length: int) -> None:
    """One that is too short has no offset that anybody could believe, and no bytes that must stay."""
    path = tmp_path / "checkpoint"
    path.write_bytes((struct.pack(">qqqqqq", 1, 2, 3, 4, 5, 6) + bytes(4100))[:length])
    found = StoreCheckpoint(tmp_path)
    has_times, is_whole = length >= 24, length >= 4096
    assert (found.physic_msg_timestamp, found.logics_msg_timestamp, found.index_msg_timestamp) == (
        (1, 2, 3) if has_times else (0, 0, 0)
    )
    assert found.logics_physical_offset == (6 if is_whole else 0)
    found.physic_msg_timestamp = 9
    found.flush()
    rest = struct.pack(">qqq", 4, 5, 6) if is_whole else bytes(24)
    written = path.read_bytes()
    assert len(written) == max(4096, length)
    assert written[:48] == struct.pack(">qqq", 9, *((2, 3) if has_times else (0, 0))) + rest
    assert not any(written[48:])


def test_a_checkpoint_is_written_where_it_has_changed_or_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint = StoreCheckpoint(tmp_path)
    for field in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp", "logics_physical_offset"):
        setattr(checkpoint, field, 7)
        checkpoint.flush()
        assert getattr(StoreCheckpoint(tmp_path), field) == 7
    stamp = path.stat().st_mtime_ns
    patch(path, 1000, b"x")
    changed = path.stat().st_mtime_ns
    checkpoint.flush()
    assert path.stat().st_mtime_ns == changed >= stamp  # nothing to write
    path.unlink()
    checkpoint.flush()
    assert path.read_bytes() == struct.pack(">qqqqqq", 7, 7, 7, 0, 0, 7).ljust(4096, b"\0")


# --- What was flushed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [0, 1, 200], ids=["last", "one behind", "a run behind"])
@pytest.mark.parametrize("stored", [STORED - 1, STORED, STORED + 1])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_hole_counts_where_the_record_may_not_have_been_flushed(
    tmp_path: Path, variant: str, stored: int, behind: int
) -> None:
    """HA-ST-10 "any record stored later than 3 s before the checkpoint's first time whose topic or properties hold nothing but
    zeros from a multiple of 512": one that was stored before that time was on the disk, and has zeros of its own.
    """
    size, message = 64 << 10, replace(VARIANTS[variant], properties_string="K\x01" + "\0" * 1100 + "v", store_timestamp=stored)
    data = encode(message, 0, 0)
    for _ in range(behind):
        data += encode(replace(VARIANTS[variant], store_timestamp=STORED + 2), 0, len(data))
    files = write_files(tmp_path, data, file_size=size)
    found = recover(files, strict=True, flushed_before_ms=STORED)
    end = len(data) if stored < STORED else 0
    assert (found.end, found.messages) == (end, behind + 1 if end else 0)
    assert recover(files, strict=False, flushed_before_ms=STORED).end == len(data)  # classic knows of no holes
    assert recover(files, strict=True).end == len(data)


@pytest.mark.parametrize("at", [0, 3, 5, 127, 128, 131, 199])
@pytest.mark.parametrize("stored", [STORED - 1, STORED])
def test_a_hole_in_the_middle_of_a_run_is_seen(tmp_path: Path, at: int, stored: int) -> None:
    """Records of one shape are looked at many at once: the one with the hole ends the walk all the same."""
    text = "K\x01" + "v" * 1100
    whole = Message("t", b"", properties_string=text, store_timestamp=stored)
    torn = replace(whole, properties_string="K\x01" + "\0" * 1099 + "v")
    data = b""
    for number in range(200):
        data += encode(torn if number == at else whole, number, len(data))
    files = write_files(tmp_path, data, file_size=1 << 18)
    found = recover(files, strict=True, flushed_before_ms=STORED)
    assert found.messages == (200 if stored < STORED else at)


@pytest.mark.parametrize(("stored", "is_damage"), [(STORED - 1, True), (STORED, False), (STORED + 1, False)])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("file", [0, 1])
def test_a_whole_record_behind_a_tear_is_damage_where_it_was_flushed(
    tmp_path: Path, variant: str, stored: int, is_damage: bool, file: int
) -> None:
    """HA-ST-20 "a record stored later than 3 s before the checkpoint's first time does not count as the whole record"."""
    first = encode(USUAL, 0, 0)
    record = encode(replace(VARIANTS[variant], store_timestamp=stored), 1, 1000 if file == 0 else FILE_SIZE)
    if file == 0:
        files = write_files(tmp_path, (first + b"\xff").ljust(1000, b"\0") + record)
    else:
        files = write_files(tmp_path, first + b"\xff", record)
    offset = 1000 if file == 0 else FILE_SIZE
    if is_damage:
        with pytest.raises(StoreCorrupt, match=f"a whole record follows at offset {offset}$") as refused:
            recover(files, strict=True, flushed_before_ms=STORED)
        assert refused.value.offset == len(first)
    else:
        found = recover(files, strict=True, flushed_before_ms=STORED)
        assert (found.end, found.files, found.cut_size) == (len(first), 1, offset + len(record.rstrip(b"\0")) - len(first))
    assert find_record(files[file], 0 if file else 1000, STORED) == ((0 if file else 1000) if is_damage else None)
    with pytest.raises(StoreCorrupt, match="a whole record follows"):
        recover(files, strict=True)
    assert recover(files, strict=True, flushed_before_ms=0).end == len(first)  # nothing was ever promised


# --- Where it ends ---------------------------------------------------------------------------------------------------

LAST = {
    "a whole record": (encode(Message("t", b"b", properties_string="K\x01v")), True),
    "topic without its end": (encode(Message("t\0", b"b")), False),
    "properties without their end": (encode(Message("t", b"b", properties_string="K\x01v\0")), False),
    "V2, topic without its end": (encode(Message("t\0", b"b", magic=MESSAGE_MAGIC_CODE_V2)), False),
    "IPv6, properties without their end": (
        encode(Message("t", b"b", properties_string="K\x01v\0", sys_flag=0x30, born_host=("::1", 1), store_host=("::1", 1))),
        False,
    ),
}
BEHIND = [
    "nothing",
    "a BLANK",
    "a BLANK and a record",
    "a record",
    "a full file",
    "a full file and an empty one",
    "a full file and a record",
]


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("last", LAST)
def test_a_record_without_its_end_is_cut_off_only_where_it_is_the_last(tmp_path: Path, last: str, behind: str) -> None:
    """HA-ST-10 "A last record": what stands behind it, a BLANK too, shows that all of it had come."""
    record, is_whole = LAST[last]
    first = encode(USUAL, 0, 0)

    def at(record: bytes, offset: int) -> bytes:
        return record[:28] + offset.to_bytes(8, "big") + record[36:]

    data = first + at(record, len(first))
    if behind.startswith("a full file"):
        file_size = len(data)
        end = len(data)
        if behind.endswith("one"):
            data += bytes(file_size)
        if behind.endswith("record"):
            data += encode(USUAL, 1, end)
            end = len(data)
    else:
        file_size = FILE_SIZE
        end = len(data)
        if behind.startswith("a BLANK"):
            data += blank(FILE_SIZE - len(data))
            end = FILE_SIZE
        if behind.endswith("record"):
            data += encode(USUAL, 1, end)
            end = len(data)
    has_end = is_whole or behind not in ("nothing", "a full file", "a full file and an empty one")
    if not has_end:
        end = len(first)
    files = write_files(tmp_path, *[data[at : at + file_size] for at in range(0, len(data), file_size)], file_size=file_size)
    found = recover(files, strict=True)
    assert found.end == end
    assert model.recover(model.Log(file_size, 0, data), HARDENED).state.data == data[:end]
    all_of_it = data.rstrip(b"\0") if behind.endswith("one") else data
    if not behind.endswith("one"):
        assert recover(files, strict=False).end == len(data)
    with LogReader(tmp_path) as reader:
        reader.walk()
        assert reader.max_offset == end
        assert reader.messages == found.messages
        assert reader.tail_size == (0 if has_end else len(all_of_it.rstrip(b"\0")) - end)
        assert [offset + size for offset, size, _ in reader.records()][-1] == end - (
            FILE_SIZE - len(first) - len(record) if behind == "a BLANK" else 0
        )


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (blank(FILE_SIZE), FILE_SIZE),
        (blank(FILE_SIZE)[:8], FILE_SIZE),
        (blank(FILE_SIZE)[:7], 0),
        ((FILE_SIZE - 1).to_bytes(4, "big") + BLANK_MAGIC, 0),
        ((FILE_SIZE + 1).to_bytes(4, "big") + BLANK_MAGIC, 0),
    ],
    ids=["whole", "its head", "a part of its head", "too small", "too large"],
)
def test_a_blank_tells_the_rest_of_its_file(tmp_path: Path, data: bytes, end: int) -> None:
    files = write_files(tmp_path, data)
    assert recover(files, strict=True).end == end
    assert model.recover(model.Log(FILE_SIZE, 0, data), HARDENED).state.data == (data.ljust(end, b"\0") if end else b"")


@pytest.mark.parametrize("room", [8, 9])
def test_a_blank_may_be_as_small_as_its_head(tmp_path: Path, room: int) -> None:
    first = encode(replace(USUAL, body=bytes(FILE_SIZE - room - 92)), 0, 0)
    files = write_files(tmp_path, first + blank(room), encode(USUAL, 1, FILE_SIZE))
    found = recover(files, strict=True)
    assert (found.messages, found.files, found.last_offset) == (2, 2, FILE_SIZE)
    assert found.queue_offsets == {(0, b"t"): 2}


@pytest.mark.parametrize("base", [0, FILE_SIZE])
@pytest.mark.parametrize("keeps_place", [True, False])
def test_a_record_that_was_cut_off_says_the_next_queue_offset_if_the_log_keeps_its_place(
    tmp_path: Path, base: int, keeps_place: bool
) -> None:
    """HA-ST-7. Found by a guided campaign (torn-record-of-a-log-that-begins-anew.json)."""
    record = encode(replace(USUAL, properties_string="K\x01v"), 5, base)
    for file in write_files(tmp_path, record[:-3], base=base):
        file.close()
    with CommitLog.open(tmp_path, hint=lambda _: RecoveryHint(keeps_place=keeps_place)) as log:
        assert log.max_offset == (base if keeps_place else 0)
        put = log.append(USUAL)
        assert (put.offset, put.queue_offset) == ((base, 5) if keeps_place else (0, 0))
