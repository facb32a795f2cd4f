"""`master` and `slave` append to a log without dispatching; whoever opens the store next has every message.

HA-ST-50 to HA-ST-52.
"""

import logging
import shutil
import struct
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.files import contents, log_file, patch
from kit.nodes import follow, serve
from kit.waiting import wait_for
from rocketmq_ha.impl.app.bare_log import bare_log
from rocketmq_ha.impl.errors import StoreCorrupt
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.topic_config import read_topics, write_topics
from rocketmq_ha.impl.store.derived.verify import verify_derived
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import verify
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.recovery_plan import plan_recovery
from rocketmq_ha.impl.wire.message import Message, encode

FILE_SIZE = 4096
OPTIONS = StoreOptions(file_size=FILE_SIZE, queue_file_size=200, index_geometry=Geometry(5, 12))


def put(store: MessageStore | CommitLog, numbers: range) -> None:
    """Put messages of one topic into three queues, each with its own key."""
    for number in numbers:
        message = Message("t", b"%d" % number * 40, queue_id=number % 3, properties_string=f"KEYS\x01key-{number}")
        if isinstance(store, MessageStore):
            store.put(message)
        else:
            store.append(message, 1_700_000_000_000 + number * 1000)


def copy_log(source: Path, target: CommitLog) -> None:
    """Append the bytes that one log has beyond the end of another, as a slave does."""
    with CommitLog.open(source) as log:
        while (data := log.data_at(target.max_offset, 1000)) is not None:
            target.append_data(target.max_offset, [data])


def end_of(store: Path) -> int:
    """The max offset of a store, read beside its writer; 0 if it has no file yet."""
    if not any((store / "commitlog").glob("0*")):
        return 0
    with LogReader(store) as reader:
        reader.walk()
        return reader.max_offset


def served_from(store: MessageStore, queue_id: int, index: int) -> list[Message]:
    """The messages of a queue from a queue offset on."""
    served: list[Message] = []
    while (found := store.get("t", queue_id, index)).records:
        served += found.messages()
        index = found.next_begin_offset
    return served


def check_all_is_served(store_dir: Path, count: int) -> None:
    """Check that every message is found in its queue, at its queue offset, and by the index; then stop cleanly."""
    with MessageStore.open(store_dir, OPTIONS) as store:
        for queue_id in range(3):
            served = served_from(store, queue_id, 0)
            assert [message.queue_offset for message in served] == list(range(len(range(queue_id, count, 3))))
            assert [message.body for message in served] == [b"%d" % number * 40 for number in range(queue_id, count, 3)]
        for number in range(count):
            assert len(store.query("t", f"key-{number}")) == 1
    assert not (store_dir / "abort").exists()
    with LogReader(store_dir) as reader:
        verify(reader)
        found = verify_derived(reader)
    assert (found.queue_entries, found.queue_entries_missing, found.index_keys_missing) == (count, 0, 0)


def test_a_log_is_on_the_disk_before_the_checkpoint_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-24 "up to which messages, then consume queues, then the index are on the disk"; no thread has flushed it here."""
    flushed: list[tuple[int, int]] = []
    flush = StoreCheckpoint.flush

    def flushing(checkpoint: StoreCheckpoint) -> None:
        flushed.append((checkpoint.physic_msg_timestamp, log.flushed_offset))
        flush(checkpoint)

    with bare_log(tmp_path, file_size=FILE_SIZE, clear_tail=True, replicated=False) as log:
        put(log, range(2))
        assert log.flushed_offset == 0
        monkeypatch.setattr(StoreCheckpoint, "flush", flushing)
    assert flushed == [(1_700_000_001_000, log.max_offset)]


@pytest.mark.parametrize("before", [0, 40])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_store_that_was_appended_to_without_dispatching_serves_all(tmp_path: Path, before: int, is_killed: bool) -> None:
    """HA-ST-50 "MUST leave `abort` behind", HA-ST-51 "lower the checkpoint's second time to the least of its three".

    On a new store, and on one that a dispatching store wrote and closed cleanly before, with full index files.
    """
    source, store = tmp_path / "source", tmp_path / "store"
    with MessageStore.open(source, OPTIONS) as master:
        put(master, range(before))
    if before:
        shutil.copytree(source, store)
        checkpoint = StoreCheckpoint(store)
        assert checkpoint.index_msg_timestamp > 0
        checkpoint.index_msg_timestamp -= 5000  # as if the last full index file had ended then
        checkpoint.flush()
    with MessageStore.open(source, OPTIONS) as master:
        put(master, range(before, 100))
    with ExitStack() as stack:
        log = stack.enter_context(bare_log(store, file_size=FILE_SIZE, clear_tail=True, replicated=True))
        assert (store / "abort").exists()
        told = StoreCheckpoint(store)
        assert told.logics_msg_timestamp <= told.index_msg_timestamp
        copy_log(source, log)
        left = shutil.copytree(store, tmp_path / "killed") if is_killed else store  # a kill leaves the page cache
    assert (left / "abort").exists()
    assert not plan_recovery(left).is_clean
    if not is_killed:
        assert read_topics(left) == {"t": 3}
        assert StoreCheckpoint(left).physic_msg_timestamp == StoreCheckpoint(source).physic_msg_timestamp
    check_all_is_served(left, 100)


MORE = struct.pack(">qqqq", 4, 5, 1 << 40, 7)  # the fields of RocketMQ 5.5.1 after the three times, and 7 for a future field


def write_more(store: Path) -> None:
    with (store / "checkpoint").open("r+b") as checkpoint:
        checkpoint.seek(24)
        checkpoint.write(MORE)


def more_of(store: Path) -> tuple[int, ...]:
    return struct.unpack(">qqqq", (store / "checkpoint").read_bytes()[24:56])


def test_the_offset_by_which_5_5_1_recovers_is_cleared(tmp_path: Path) -> None:
    """HA-ST-51 "MUST set the i64 at byte 40 of the checkpoint to 0": 5.5.1 ignores the times where it is above 0."""
    source, store = tmp_path / "source", tmp_path / "store"
    with MessageStore.open(source, OPTIONS) as master:
        put(master, range(10))
    shutil.copytree(source, store)
    write_more(store)
    with MessageStore.open(source, OPTIONS) as master:
        put(master, range(10, 20))
    with bare_log(store, file_size=None, clear_tail=True, replicated=True) as log:
        assert more_of(store) == (4, 5, 0, 7)
        copy_log(source, log)
    assert more_of(store) == (4, 5, 0, 7)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_recovery_that_dispatches_again_clears_that_offset(tmp_path: Path, is_clean: bool) -> None:
    """HA-ST-51 "A recovery after which messages are dispatched again MUST clear that i64 as well"."""
    with MessageStore.open(tmp_path, OPTIONS) as store:
        put(store, range(10))
    write_more(tmp_path)
    if not is_clean:
        (tmp_path / "abort").touch()
    MessageStore.open(tmp_path, OPTIONS).close()
    assert more_of(tmp_path) == (4, 5, 1 << 40 if is_clean else 0, 7)


def test_a_store_to_which_nothing_was_appended_stays_as_it_was(tmp_path: Path) -> None:
    """HA-ST-50 "If it has appended nothing, it MUST leave the store as it was": with `abort` or without."""
    with MessageStore.open(tmp_path, OPTIONS) as store:
        put(store, range(40))
    write_more(tmp_path)
    for _ in range(2):
        before = contents(tmp_path)
        with bare_log(tmp_path, file_size=None, clear_tail=True, replicated=True) as log:
            assert (tmp_path / "abort").exists()
            assert log.max_offset > 0
        assert contents(tmp_path) == before
        (tmp_path / "abort").touch()  # for the second time
    with bare_log(tmp_path / "new", file_size=FILE_SIZE, clear_tail=True, replicated=True) as log:
        log.begin_at(FILE_SIZE)
    assert not (tmp_path / "new/abort").exists()
    assert not (tmp_path / "new/checkpoint").exists()


def test_a_log_that_begins_in_the_middle_serves_what_it_has(tmp_path: Path) -> None:
    """HA-ST-50 "MUST leave `abort` behind": with `--from`; the messages keep their queue offsets, and new messages continue
    them.
    """
    with MessageStore.open(tmp_path / "source", OPTIONS) as master:
        put(master, range(100))
    with bare_log(tmp_path / "s", file_size=FILE_SIZE, clear_tail=True, replicated=True) as log:
        log.begin_at(2 * FILE_SIZE)
        copy_log(tmp_path / "source", log)
    assert (tmp_path / "s/abort").exists()
    with MessageStore.open(tmp_path / "source") as whole, MessageStore.open(tmp_path / "s", OPTIONS) as store:
        for queue_id in range(3):
            first = store.get("t", queue_id, 0).min_offset
            served = [message.queue_offset for message in served_from(store, queue_id, first)]
            assert served == list(range(first, whole.get("t", queue_id, 0).max_offset))
            assert 0 < first < served[-1]
            assert store.put(Message("t", b"new", queue_id=queue_id)).append.queue_offset == served[-1] + 1


def test_an_error_while_nothing_was_appended_leaves_no_abort(tmp_path: Path) -> None:
    """HA-ST-50 "as it was": for example, after a slave was refused."""
    with pytest.raises(ZeroDivisionError), bare_log(tmp_path / "s", file_size=FILE_SIZE, clear_tail=True, replicated=True):
        raise ZeroDivisionError
    assert not (tmp_path / "s/abort").exists()
    with (
        pytest.raises(ZeroDivisionError),
        bare_log(tmp_path / "s", file_size=FILE_SIZE, clear_tail=True, replicated=True) as log,
    ):
        put(log, range(3))
        raise ZeroDivisionError
    assert (tmp_path / "s/abort").exists()
    check_all_is_served(tmp_path / "s", 3)


def test_a_master_and_a_slave_leave_abort(tmp_path: Path) -> None:
    """HA-ST-50 "MUST leave `abort` behind": as processes, after a clean stop of the master and a kill of the slave."""
    with ExitStack() as nodes:
        master, address = serve(nodes, tmp_path / "m", "--put", "50", "--size", "100", "--sync", "0", file_size=1 << 16)
        master.line("put")
        slave = follow(nodes, tmp_path / "s", address, "--file-size", str(1 << 16))
        wait_for(lambda: end_of(tmp_path / "s") == end_of(tmp_path / "m") > 0)
        wait_for(lambda: read_topics(tmp_path / "s") == {"rocketmq-ha": 4})  # it reads its log while it appends
        slave.kill()
        assert master.stop() == 0
    for name in ("m", "s"):
        assert (tmp_path / name / "abort").exists()
        assert read_topics(tmp_path / name) == {"rocketmq-ha": 4}
        with MessageStore.open(tmp_path / name) as store:
            assert sum(len(store.get("rocketmq-ha", queue_id, 0).records) for queue_id in range(4)) == 50
        assert not (tmp_path / name / "abort").exists()


def test_topics_are_noted_while_a_process_appends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """HA-ST-52 "MUST have `config/topics.json` name the topics and queues": topics of messages that are put, that a master
    sent, and that were there before.
    """
    with bare_log(tmp_path / "m", file_size=FILE_SIZE, clear_tail=True, replicated=False) as log:
        log.append(Message("first", b"1", queue_id=2), 1)
        wait_for(lambda: read_topics(tmp_path / "m") == {"first": 3})
        log.append(Message("second", b"2"), 2)
        wait_for(lambda: read_topics(tmp_path / "m") == {"first": 3, "second": 1})
    with CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as slave, CommitLog.open(tmp_path / "m") as master:
        data = master.data_at(0, FILE_SIZE)
        assert data is not None
        first = int.from_bytes(data[:4], "big")
        slave.append_data(0, [bytes(data[:first])])
        second = bytes(data[first:])
    with bare_log(tmp_path / "s", file_size=None, clear_tail=True, replicated=True) as log:
        log.append_data(first, [second[:50]])
        (tmp_path / "s/config").mkdir()
        (tmp_path / "s/config/topics.json").write_text("[]")
        wait_for(lambda: "topics are not noted" in caplog.text)
        (tmp_path / "s/config/topics.json").unlink()
        wait_for(lambda: read_topics(tmp_path / "s") == {"first": 3})
        write_topics(tmp_path / "s", {"second": 8, "other": 1})
        log.append_data(first + 50, [second[50:]])
    assert read_topics(tmp_path / "s") == {"first": 3, "second": 8, "other": 1}
    with bare_log(tmp_path / "s", file_size=None, clear_tail=True, replicated=True):
        (tmp_path / "s/config/topics.json").unlink()
    assert read_topics(tmp_path / "s") == {}


def test_topics_are_noted_while_a_slave_learns_the_file_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-52 "MUST have `config/topics.json` name the topics": the topics of the file with the new length, and of those after
    it.
    """
    with CommitLog.open(tmp_path / "m", file_size=FILE_SIZE) as master:
        for _ in range(10):
            topic = "first" if master.max_offset < FILE_SIZE else "second"
            master.append(Message(topic, b"x" * 700), 1)
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "m/commitlog").iterdir()))
    read, steps = CommitLog.data_at, iter(("refuse", "learn"))
    with bare_log(tmp_path / "s", file_size=2 * FILE_SIZE, clear_tail=True, replicated=True) as log:

        def data_at(self: CommitLog, offset: int, limit: int) -> memoryview | None:
            step = next(steps, "") if threading.current_thread().name == "TopicWatch" else ""
            if step == "refuse":
                raise StoreCorrupt("file", 0, "another length", 0)
            if step == "learn":  # between two reads of the reader
                log.adopt_file_size(FILE_SIZE)
                log.append_data(100, [data[100:FILE_SIZE]])
                log.append_data(FILE_SIZE, [data[FILE_SIZE:]])
            return read(self, offset, limit)

        monkeypatch.setattr(CommitLog, "data_at", data_at)
        log.append_data(0, [data[:100]])
        wait_for(lambda: read_topics(tmp_path / "s") == {"first": 1, "second": 1})


@pytest.mark.parametrize(("seconds_before", "is_refused"), [(2.999, False), (3.0, True), (3.001, True)])
def test_damage_behind_what_the_checkpoint_vouches_for_is_cut_off_and_verify_names_it_anywhere(
    tmp_path: Path, seconds_before: float, is_refused: bool
) -> None:
    """HA-ST-20. A `master` leaves `abort` at its clean stop too, so its last messages are judged as after a crash."""
    last_ms = 1_700_000_000_000
    with bare_log(tmp_path / "s", file_size=FILE_SIZE, clear_tail=True, replicated=False) as log:
        damaged = log.append(Message("t", b"damaged"), last_ms - 60_000)
        log.append(Message("t", b"behind"), last_ms - int(seconds_before * 1000))
        end = log.append(Message("t", b"last"), last_ms).next_offset
    patch(log_file(tmp_path / "s"), damaged.offset + 90, b"\xff")
    with LogReader(tmp_path / "s") as reader, pytest.raises(StoreCorrupt, match="body CRC") as named:
        verify(reader)
    assert named.value.offset == damaged.offset
    if is_refused:
        with pytest.raises(StoreCorrupt, match="no tear, for a whole record follows"):
            plan_recovery(tmp_path / "s")
    else:
        plan = plan_recovery(tmp_path / "s")
        assert (plan.end, plan.cut_size, plan.changes_something) == (0, end - 2, True)  # its properties' length is zeros


@pytest.mark.parametrize(("before_ms", "expected"), [(0, 1_700_000_004_000), (1_700_000_004_001, 1_700_000_004_001)])
@pytest.mark.parametrize("replicated", [False, True])
def test_the_checkpoint_has_the_time_of_the_last_record_and_never_goes_back(
    before_ms: int, expected: int, replicated: bool, tmp_path: Path
) -> None:
    """Five messages, a second apart. The offset by which dispatch begins stays 0: HA-ST-51 "the i64 at byte 40"."""
    if before_ms:
        checkpoint = StoreCheckpoint(tmp_path)
        checkpoint.physic_msg_timestamp = before_ms
        checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp = before_ms + 1, before_ms + 2
        checkpoint.logics_physical_offset = 77
        checkpoint.flush()
    with bare_log(tmp_path, file_size=FILE_SIZE, clear_tail=True, replicated=replicated) as log:
        put(log, range(5))
    found = StoreCheckpoint(tmp_path)
    assert (found.physic_msg_timestamp, found.logics_msg_timestamp) == (expected, before_ms)
    assert found.logics_physical_offset == 0


def test_a_last_record_that_is_damaged_gives_no_time_to_the_checkpoint(tmp_path: Path) -> None:
    """A slave appends what its master sends. The next opening cuts that record off."""
    good = encode(Message("t", b"good", store_timestamp=1_700_000_000_000), 0, 0)
    bad = bytearray(encode(Message("t", b"bad", store_timestamp=1_700_000_099_000), 1, len(good)))
    bad[88] ^= 1  # of the body, which its CRC covers
    checkpoint = StoreCheckpoint(tmp_path)
    checkpoint.physic_msg_timestamp = 1_600_000_000_000
    checkpoint.flush()
    with bare_log(tmp_path, file_size=FILE_SIZE, clear_tail=True, replicated=True) as log:
        log.append_data(0, [good])
        log.append_data(len(good), [bytes(bad)])
    assert StoreCheckpoint(tmp_path).physic_msg_timestamp == 1_600_000_000_000
    assert (tmp_path / "abort").exists()


@pytest.mark.parametrize("replicated", [False, True])
def test_a_master_names_the_size_of_its_files_and_a_slave_does_not(
    replicated: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The slaves of a master need this size; a slave may learn another one after it has opened its log."""
    logger = logging.getLogger("rocketmq_ha.impl.app.bare_log")
    level = logger.level
    logger.addHandler(caplog.handler)
    logger.setLevel(logging.INFO)
    try:
        with bare_log(tmp_path, file_size=FILE_SIZE, clear_tail=True, replicated=replicated):
            pass
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(level)
    told = {record.getMessage() for record in caplog.records if record.name == logger.name}
    assert told == (set() if replicated else {f"{tmp_path}: commit-log files of {FILE_SIZE} bytes"})
