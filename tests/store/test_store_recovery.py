"""Recovery after every kind of stop: nothing flushed is lost, nothing torn is served. HA-ST-5, HA-ST-18 to 20."""

import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.children import Child
from kit.files import log_file, patch
from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived.consume_queue import ConsumeQueue
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.get_result import GetMessageStatus
from rocketmq_ha.impl.store.log import recovery
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint, was_aborted
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.scan import scan
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message, decode, encode
from rocketmq_ha.reference import mapped_file_queue, store_recovery
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2

FILE_SIZE = 16_384
OPTIONS = StoreOptions(file_size=FILE_SIZE, queue_file_size=2000, index_geometry=Geometry(500, 5000), floor_size=0)
SECTOR = 512


def fill(store: MessageStore, count: int, size: int = 1000) -> None:
    for index in range(count):
        store.put(Message("t", b"%05d" % index * (size // 5), queue_id=index % 2, properties_string=f"KEYS\x01k{index}"))


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Eight files, closed cleanly, with 14 records of 1,098 to 1,103 bytes in each."""
    with MessageStore.open(tmp_path / "s", OPTIONS) as store:
        fill(store, 110)
        assert len(store.log.queue.files) == 8
    return tmp_path / "s"


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The start offsets of the files that recovery walks."""
    bases: list[int] = []
    real = recovery.scan

    def scan(buffer: object, base: int, *rest: object, **options: object) -> object:
        bases.append(base)
        return real(buffer, base, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "scan", scan)
    return bases


def abort(store: Path, physic: int, logics: int | None = None) -> None:
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(struct.pack(">qqq", physic, physic if logics is None else logics, 0) + bytes(4072))


def first_stored_ms(store: Path, base: int) -> int:
    return decode(log_file(store, base).read_bytes()).store_timestamp


def set_times(store: Path) -> None:
    """Give the messages of file k the store time (k + 1) * 100 s, as if they were put that far apart."""
    for base in range(0, 8 * FILE_SIZE, FILE_SIZE):
        data, position = bytearray(log_file(store, base).read_bytes()), 0
        while struct.unpack_from(">I", data, position + 4)[0] == MESSAGE_MAGIC_CODE:
            data[position + 56 : position + 64] = ((base // FILE_SIZE + 1) * 100_000).to_bytes(8, "big")
            position += struct.unpack_from(">i", data, position)[0]
        log_file(store, base).write_bytes(data)


# --- Where it begins: its cost depends on the tail -------------------------------------------------------------------


def test_after_a_clean_stop_the_last_three_files_are_looked_at(full: Path, looked_at: list[int]) -> None:
    """HA-ST-18 "MUST begin three files before the end of the log, or at its first file if there are fewer"."""
    with MessageStore.open(full, OPTIONS) as store:
        assert looked_at == [5 * FILE_SIZE, 6 * FILE_SIZE, 7 * FILE_SIZE]
        assert store.log.recovery.messages < 110
        assert store.put(Message("t", b"", queue_id=1)).append.queue_offset == 55  # the queues have the others
        assert len(list(store.log.records())) == 111


@pytest.mark.parametrize(
    ("physic", "logics", "first"),
    [
        (503_000, 503_000, 4),  # file 4 begins at 500 s: not after the checkpoint, less 3 s
        (502_999, 503_000, 3),
        (803_000, 402_999, 2),  # the smaller of the two
        (10**15, 10**15, 7),
        (1, 10**15, 0),
        (0, 0, 0),
    ],
)
def test_after_another_stop_the_checkpoint_says_where_to_begin(
    full: Path, looked_at: list[int], physic: int, logics: int, first: int
) -> None:
    """HA-ST-19 "the last file whose first message has a known magic and a store timestamp that is not 0"."""
    set_times(full)
    abort(full, physic, logics)
    with MessageStore.open(full, OPTIONS) as store:
        assert looked_at == [base * FILE_SIZE for base in range(first, 8)]
        assert len(list(store.log.records())) == 110
        assert store.put(Message("t", b"", queue_id=0)).append.queue_offset == 55


@pytest.mark.parametrize("present", [8, 61, 62, 63, 70, 500])
def test_a_file_whose_first_message_is_not_whole_is_none_to_begin_at(full: Path, looked_at: list[int], present: int) -> None:
    """HA-ST-46 "whose first message is not whole MUST NOT be the one": a partly written timestamp is an earlier time.

    The process was killed while it copied that message, and then the machine failed. Recovery must also check what lies before
    it.
    """
    set_times(full)
    last = log_file(full, 7 * FILE_SIZE)
    patch(last, 0, last.read_bytes()[:present].ljust(FILE_SIZE, b"\0"))
    abort(full, 793_000)  # covers 786,432 ms, which the first 62 bytes leave of the time, but not 800,000 ms, the real time
    with MessageStore.open(full, OPTIONS) as store:
        assert looked_at == [6 * FILE_SIZE, 7 * FILE_SIZE]
        assert store.max_offset == 7 * FILE_SIZE


def test_a_file_that_begins_with_a_time_below_0_is_none_to_begin_at(full: Path, looked_at: list[int]) -> None:
    """HA-ST-46 "The same holds where the store timestamp of that message is below 0": a damaged time, which no CRC shows."""
    set_times(full)
    patch(log_file(full, 5 * FILE_SIZE), 56, b"\xff")
    abort(full, 0, 0)
    with MessageStore.open(full, OPTIONS) as store:
        assert looked_at == [base * FILE_SIZE for base in range(8)]
        assert len(list(store.log.records())) == 110


def test_queues_and_index_that_are_gone_are_made_again(full: Path, looked_at: list[int]) -> None:
    """Queues and index are built again from the whole log; recovery itself checks only the tail."""
    shutil.rmtree(full / "consumequeue")
    shutil.rmtree(full / "index")
    with MessageStore.open(full, OPTIONS) as store:
        assert looked_at[0] == 5 * FILE_SIZE
        assert store.get("t", 1, 54).status is GetMessageStatus.FOUND
        assert len(store.query("t", "k3")) == 1
        assert store.put(Message("t", b"", queue_id=0)).append.queue_offset == 55


def test_damage_before_the_place_where_recovery_begins_shows_when_it_is_read(full: Path) -> None:
    """Recovery does not check that place: the open succeeds, the read fails."""
    patch(log_file(full, 0), 200, b"\xff")
    with MessageStore.open(full, OPTIONS) as store:
        with pytest.raises(Exception, match="body CRC"):
            list(store.get("t", 0, 0, 1).messages())
        assert next(store.get("t", 1, 0, 1).messages()).body.startswith(b"00001")
    with pytest.raises(StoreCorrupt, match="body CRC"):
        CommitLog.open(full)  # checks all files


# --- Tears and damage ------------------------------------------------------------------------------------------------


def test_a_hole_among_what_was_not_flushed_is_a_tear_and_what_is_behind_it_goes(full: Path) -> None:
    """A power cut loses pages in any order: no put has promised the whole records after a lost one."""
    set_times(full)
    hole = 7 * FILE_SIZE + 2 * 1100
    patch(log_file(full, 7 * FILE_SIZE), 2 * 1100, bytes(SECTOR))
    with pytest.raises(StoreCorrupt, match="a whole record follows"):
        MessageStore.open(full, OPTIONS)  # after a clean stop everything is on the disk, so a hole is damage
    abort(full, 802_999)  # messages stored at 800 s, less than 3 s before, may have missed the flush
    with MessageStore.open(full, OPTIONS) as store:
        assert hole - 1103 < store.max_offset <= hole
        file = store.log.queue.files[-1]
        assert not any(file.view(store.max_offset - file.base, file.size))  # HA-ST-7
        for queue_id in (0, 1):
            queue = store.queues.get(b"t", queue_id)
            assert queue is not None
            assert queue.max_physic_offset <= store.max_offset
        assert store.query("t", "k109") == []
        put = [store.put(Message("t", b"new", queue_id=queue_id)).append for queue_id in (0, 1)]
        assert [append.queue_offset for append in put] == [
            1 + max(message.queue_offset for _, _, message in list(store.log.records())[:-2] if message.queue_id == queue_id)
            for queue_id in (0, 1)
        ]


def test_a_hole_among_what_was_flushed_is_damage(full: Path) -> None:
    """HA-ST-20 "MUST be refused, unchanged, with an error that names the file and the offset"."""
    set_times(full)
    patch(log_file(full, 7 * FILE_SIZE), 2 * 1100, bytes(SECTOR))
    abort(full, 803_000)  # messages stored at 800 s were on the disk
    before = log_file(full, 7 * FILE_SIZE).read_bytes()
    with pytest.raises(StoreCorrupt, match=f"{7 * FILE_SIZE:020d}.*a whole record follows"):
        MessageStore.open(full, OPTIONS)
    assert log_file(full, 7 * FILE_SIZE).read_bytes() == before
    assert was_aborted(full)


MAGICS = [code.to_bytes(4, "big") for code in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, BLANK_MAGIC_CODE)]
ENDED_EARLY = [magic[:there] + bytes(4 - there) for magic in MAGICS for there in range(5)]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "magic", [*ENDED_EARLY, b"\x7fELF", b"\x00\x00\x00\x01", MAGICS[0][:3] + b"\x01", MAGICS[0][1:] + b"\x00"]
)
def test_files_of_another_program_are_no_log(tmp_path: Path, magic: bytes, is_clean: bool) -> None:
    """HA-ST-92 "MUST be refused, unchanged": HA-ST-7 would remove them. The model says the same of each."""
    with MessageStore.open(tmp_path, OPTIONS) as store:
        store.put(Message("t", b"body"))
    data = b"\x00\x00\x01\x00" + magic + random.Random(1).randbytes(FILE_SIZE - 8)
    log_file(tmp_path, 0).write_bytes(data)
    if not is_clean:
        abort(tmp_path, 0)
    log = mapped_file_queue.load(FILE_SIZE, {"0" * 20: data})
    assert isinstance(log, Log)
    assert (store_recovery.no_log(log) is None) == (magic in ENDED_EARLY)
    if magic in ENDED_EARLY:
        with MessageStore.open(tmp_path, OPTIONS) as store:
            assert store.max_offset == 0
        return
    with pytest.raises(
        StoreCorrupt, match=f"{0:020d}: at commit-log offset 0: found magic 0x{magic.hex()}, expected that of a"
    ):
        MessageStore.open(tmp_path, OPTIONS)
    assert log_file(tmp_path, 0).read_bytes() == data
    with MessageStore.open(tmp_path, replace(OPTIONS, clear_tail=False)):  # classic goes on, as RocketMQ does
        pass


@pytest.mark.parametrize("at", range(500, 525, 3))
def test_a_sector_of_properties_that_was_lost_makes_a_record_torn(tmp_path: Path, at: int) -> None:
    """HA-ST-10 "hold nothing but zeros from a multiple of 512 in its file to the next one": no CRC covers them. Flushed
    bytes have no holes, so there zeros are genuine.
    """
    path = tmp_path / "s"
    with MessageStore.open(path, OPTIONS) as store:
        first = store.put(Message("t", bytes(at - 2 * 92))).append
        store.put(Message("t", b"torn", properties_string="KEYS\x01" + "k" * 1200))
        store.put(Message("t", b"behind"))
    patch(log_file(path, 0), 1024, bytes(SECTOR))
    with MessageStore.open(path, OPTIONS) as store:
        assert len(list(store.log.records())) == 3
    abort(path, 0)
    with MessageStore.open(path, OPTIONS) as store:
        assert store.max_offset == first.next_offset
        assert len(list(store.log.records())) == 1


def test_a_whole_record_is_whole_wherever_its_sectors_begin() -> None:
    """A record without properties ends in two zero bytes; recovery must not cut it off because of them."""
    for size in range(SECTOR):
        first = encode(Message("t", bytes(size)), 0, 0)
        data = first + encode(Message("topic", b"", properties_string="K\x01v"), 0, len(first))
        found = scan(data + bytes(FILE_SIZE - len(data)), 0, suspect_from_ms=0)
        assert (found.messages, found.position) == (2, len(data))


def test_any_subset_of_unflushed_sectors_leaves_a_store_that_opens(tmp_path: Path) -> None:
    """Lose any combination of unflushed sectors: all flushed messages are there, each other message is whole or gone."""
    rng = random.Random(1)
    path = tmp_path / "s"
    with MessageStore.open(path, OPTIONS) as store:
        fill(store, 12, 300)
        store.wait_for_dispatch()
        store.flush()
        flushed = store.flushed_offset
        checkpoint = store.checkpoint.path.read_bytes()
        files = {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}
        time.sleep(0.005)
        fill(store, 25, 300)
        store.wait_for_dispatch()
        end = store.max_offset
        live = {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    seen = set()
    for number in range(120):
        crashed = tmp_path / f"crash{number}"
        share = rng.choice((0.02, 0.1, 0.5, 0.9))
        for name, data in live.items():
            was = files.get(name, bytes(len(data)))
            torn = bytearray(data)
            for start in range(0, len(data), SECTOR):
                if rng.random() < share:
                    torn[start : start + SECTOR] = was[start : start + SECTOR]
            (crashed / name).parent.mkdir(parents=True, exist_ok=True)
            (crashed / name).write_bytes(torn)
        (crashed / "checkpoint").write_bytes(checkpoint)
        (crashed / "abort").touch()
        with MessageStore.open(crashed, OPTIONS) as store:
            assert store.max_offset >= flushed
            records = list(store.log.records())
            for offset, size, message in records:
                assert (
                    bytes(store.log.data_at(offset, size) or b"")
                    == live[Path("commitlog") / f"{0:020d}"][offset : offset + size]
                )
                found = store.get("t", message.queue_id, message.queue_offset, 1)
                assert [one.physical_offset for one in found.messages()] == [offset]
                key = message.properties["KEYS"]
                assert offset in [at for at, _, _ in store.query("t", key)]
            assert records[-1][0] + records[-1][1] == store.max_offset
            seen.add(store.max_offset)
            again = store.put(Message("t", b"new")).append
            assert again.offset == store.max_offset - again.size
        shutil.rmtree(crashed)
    assert len(seen) > 10
    assert max(seen) <= end


def test_a_log_of_which_the_first_files_have_expired_keeps_its_place(full: Path) -> None:
    """HA-ST-7 "keeps its place while there are consume queues": else offsets would be used twice."""
    for base in range(0, 7 * FILE_SIZE, FILE_SIZE):
        log_file(full, base).unlink()
    log_file(full, 7 * FILE_SIZE).write_bytes(bytes(FILE_SIZE))  # never flushed
    abort(full, 0)
    begin = 7 * FILE_SIZE
    with MessageStore.open(full, OPTIONS) as store:
        assert (store.min_offset, store.max_offset) == (begin, begin)
        assert [file.base for file in store.log.queue.files] == [begin]
        queue = store.queues.get(b"t", 1)
        assert queue is not None
        next_offset = queue.max_offset
        assert queue.min_offset == next_offset > 40
        append = store.put(Message("t", b"", queue_id=1)).append
        assert (append.offset, append.queue_offset) == (begin, next_offset)
    shutil.rmtree(full / "consumequeue")
    log_file(full, begin).write_bytes(bytes(FILE_SIZE))
    with MessageStore.open(full, OPTIONS) as store:
        assert store.log.queue.files == ()


def test_a_queue_begins_with_the_first_message_that_the_log_has(full: Path) -> None:
    """HA-ST-33: the fillers that recovery writes into a queue are no messages."""
    for base in range(0, 5 * FILE_SIZE, FILE_SIZE):
        log_file(full, base).unlink()
    queue = full / "consumequeue" / "t" / "1"
    names = sorted(path.name for path in queue.iterdir())
    data = bytearray((queue / names[0]).read_bytes())
    data[20 * 30 :] = bytes(len(data) - 20 * 30)  # message 30 and all later ones did not reach the disk
    (queue / names[0]).write_bytes(data)
    abort(full, 0)
    with MessageStore.open(full, OPTIONS) as store:
        found = store.queues.get(b"t", 1)
        assert found is not None
        entry = found.entry(found.min_offset)
        assert entry is not None
        assert not entry.is_filler
        assert found.min_offset > 30
        assert store.get("t", 1, found.min_offset).status is GetMessageStatus.FOUND


def test_an_index_file_that_the_checkpoint_does_not_vouch_for_is_looked_at(tmp_path: Path) -> None:
    """HA-ST-45 "the files that the checkpoint's third time vouches for": a full one that was never flushed has holes."""
    path = tmp_path / "s"
    options = replace(OPTIONS, index_geometry=Geometry(3, 11))
    with MessageStore.open(path, options) as store:
        fill(store, 35)
        assert store.wait_for_dispatch()
        whole = [file.path.read_bytes() for file in store.index.files]
        assert [file.is_full for file in store.index.files] == [True, True, True, False]
    names = sorted(file.name for file in (path / "index").iterdir())
    vouched = first_stored_ms(path, 2 * FILE_SIZE) + 3000  # recovery begins after message 27
    zeros = bytes(len(whole[1]))
    for number, torn in ((1, zeros), (1, whole[1][:40] + zeros[40:]), (1, whole[1][:92] + zeros[92:]), (0, zeros)):
        for spoilt_slots in (False, True):
            (path / "index" / names[number]).write_bytes(torn)
            if spoilt_slots:
                (path / "index" / names[2]).write_bytes(whole[2][:40] + bytes(12) + whole[2][52:])
            abort(path, vouched)
            with MessageStore.open(path, options) as store:
                assert store.log.recovery.start == 2 * FILE_SIZE
                for index in range(35):
                    assert len(store.query("t", f"k{index}")) == 1, index
                assert [file.path.read_bytes() for file in store.index.files] == whole
            names = sorted(file.name for file in (path / "index").iterdir())


def test_the_checkpoint_does_not_vouch_for_an_index_file_that_is_cut(tmp_path: Path) -> None:
    """HA-ST-45: it fills up again with times that the checkpoint covers, but its new entries may miss the disk."""
    path = tmp_path / "s"
    options = replace(OPTIONS, index_geometry=Geometry(3, 11))
    with MessageStore.open(path, options) as store:
        fill(store, 35)
    third = StoreCheckpoint(path).index_msg_timestamp
    assert third > 0
    sizes = [len(record.read_bytes()) for record in (path / "index").iterdir()]
    assert len(set(sizes)) == 1
    log_file(path, 2 * FILE_SIZE).unlink()  # the log has lost messages that two of the files point to
    file = log_file(path, FILE_SIZE)
    file.write_bytes(bytes(FILE_SIZE))
    abort(path, 0)
    with (path / "checkpoint").open("r+b") as checkpoint:
        checkpoint.seek(16)
        checkpoint.write(struct.pack(">q", third))
    with MessageStore.open(path, options) as store:
        told = struct.unpack(">qqq", (path / "checkpoint").read_bytes()[:24])[2]
        ends = [file.header.end_timestamp for file in store.index.files if file.is_full]
        assert told <= max(ends, default=0)
        assert all(file.header.end_phy_offset < store.max_offset for file in store.index.files)


@pytest.mark.parametrize("name", ["index", "index/.."])
def test_the_name_of_an_index_file_is_on_the_disk_with_its_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """HA-ST-24 "then the index are on the disk": POSIX does not promise that fsync of a file brings its name."""
    path = tmp_path / "s"
    synced: list[tuple[int, int]] = []
    real = os.fsync

    def note(fd: int) -> None:
        real(fd)
        synced.append((os.fstat(fd).st_dev, os.fstat(fd).st_ino))

    monkeypatch.setattr(os, "fsync", note)
    with MessageStore.open(path, OPTIONS) as store:
        fill(store, 3)
        assert store.wait_for_dispatch()
        synced.clear()
        store.index.flush()
        wanted = (path / name).stat()
        assert (wanted.st_dev, wanted.st_ino) in synced


def test_a_queue_is_read_beside_the_deletion_of_its_files(full: Path) -> None:
    """HA-ST-37; a reader beside a live broker may meet files that the broker has deleted meanwhile."""
    directory = full / "consumequeue" / "t" / "0"
    [path] = directory.iterdir()
    data = path.read_bytes()
    path.unlink()
    for start in range(0, 55 * 20, 200):  # the same entries, in files of ten
        (directory / f"{start:020d}").write_bytes(data[start : start + 200])
    queue = ConsumeQueue(directory, 200, writable=False)
    queue.recover()
    queue.close()
    queue = ConsumeQueue(directory, 200, writable=False)
    (directory / f"{0:020d}").unlink()
    (directory / f"{200:020d}").unlink()
    assert [number for number, _ in queue.entries()] == list(range(20, 60))
    assert queue.entry(5) is None
    assert queue.entry(25) is not None

    def stored_ms(offset: int, _: int) -> int:
        return offset

    found = queue.entry(30)
    assert found is not None
    assert queue.offset_by_time(found.offset, stored_ms) == 30
    assert queue.lower_offset_by_time(found.offset, stored_ms) == 30
    assert queue.lower_offset_by_time(0, stored_ms) == 20


@pytest.mark.parametrize(("physic", "logics"), [(303_000, 903_000), (903_000, 303_000), (0, 903_000)])
def test_the_checkpoint_does_not_vouch_for_what_is_dispatched_again(full: Path, physic: int, logics: int) -> None:
    """HA-ST-24: a second power cut, after a flush of the log alone, must not find a time from before the first one."""
    set_times(full)
    abort(full, physic, logics)
    with MessageStore.open(full, OPTIONS) as store:
        assert store.log.recovery.start == (2 * FILE_SIZE if physic else 0)
        told = struct.unpack(">qqq", (full / "checkpoint").read_bytes()[:24])
        assert told[:2] == (physic, min(physic, logics))


def test_nor_does_it_after_a_clean_stop_where_queues_are_gone(full: Path) -> None:
    set_times(full)
    (full / "checkpoint").write_bytes(struct.pack(">qqq", 900_000, 900_000, 0) + bytes(4072))
    shutil.rmtree(full / "consumequeue")
    with MessageStore.open(full, OPTIONS):
        assert struct.unpack(">qqq", (full / "checkpoint").read_bytes()[:24])[1] == 100_000


# --- A process that is killed ----------------------------------------------------------------------------------------


WRITER = """
import os, sys, threading, time
sys.path[:0] = {path!r}
from pathlib import Path
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message

options = StoreOptions(file_size={file_size}, queue_file_size=2000, floor_size=0, sync_flush=True)
store = MessageStore.open(Path({store!r}), options)

def work(number):
    index = 0
    while True:
        pending = [store.submit(Message("t", b"%d-%d" % (number, index + n) * 20, queue_id=number)) for n in range(16)]
        index += 16
        lines = ""
        for put in pending:
            result = put.result()
            if result.is_ok:
                lines += f"{{result.append.offset}} {{result.append.size}}\\n"
        os.write(1, lines.encode())  # in one piece: the threads would mix their lines in sys.stdout's buffer

for number in range(4):
    threading.Thread(target=work, args=(number,), daemon=True).start()
time.sleep(60)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_process_loses_no_message_that_it_had_acknowledged(tmp_path: Path, seed: int) -> None:
    """kill -9 with 64 puts in flight, three times on one store. This process keeps the list of acknowledged offsets."""
    rng = random.Random(seed)
    path = tmp_path / "s"
    script = WRITER.format(path=sys.path, store=str(path), file_size=FILE_SIZE)
    acknowledged: dict[int, int] = {}
    for _ in range(3):
        process = Child([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, process.stderr.read() if process.stderr else ""
        time.sleep(rng.uniform(0, 0.3))
        os.kill(process.pid, signal.SIGKILL)
        lines = (first + process.stdout.read()).split("\n")[:-1]  # the last may be half a line
        process.communicate(timeout=PATIENCE_S)
        acknowledged |= {int(offset): int(size) for offset, size in map(str.split, lines)}
        assert was_aborted(path)
        with MessageStore.open(path, replace(OPTIONS, sync_flush=False)) as store:
            there = {offset: size for offset, size, _ in store.log.records()}
            assert acknowledged.items() <= there.items()
            for offset, _, message in store.log.records():
                [found] = store.get("t", message.queue_id, message.queue_offset, 1).messages()
                assert found.physical_offset == offset
        assert StoreCheckpoint(path).physic_msg_timestamp > 0
    assert len(acknowledged) >= 3 * 16
