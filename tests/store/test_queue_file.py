"""The file of a consume queue takes the space of its entries, no mapping and few descriptors, however many queues there are.

HA-ST-91, HA-ST-28.
"""

import errno
import os
import threading
from pathlib import Path

import pytest

from kit.waiting import LONG_S, await_end
from rocketmq_ha.impl.errors import StoreCorrupt, StoreFull
from rocketmq_ha.impl.store.derived import queue_file
from rocketmq_ha.impl.store.derived.consume_queue import FILE_SIZE, ConsumeQueue
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.dispatch_request import DispatchRequest
from rocketmq_ha.impl.store.derived.queue_entry import ENTRY_SIZE
from rocketmq_ha.impl.store.derived.queue_file import OPEN_FILES, QueueFile, QueueFiles
from rocketmq_ha.impl.store.log import mapped_file, mapped_file_queue

SIZE = 4 * ENTRY_SIZE


def request(queue_id: int, number: int) -> DispatchRequest:
    return DispatchRequest(b"t", queue_id, 1000 * queue_id + 100 * number, 100, 7, 1, number, "", None, 0, 0)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are synced from now on."""
    names: list[str] = []
    real = mapped_file._sync_data

    def sync(fd: int) -> None:
        names.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(mapped_file, "_sync_data", sync)
    return names


# --- Space, mappings, descriptors ------------------------------------------------------------------------------------


def test_a_file_of_one_message_takes_one_block_of_the_disk(tmp_path: Path) -> None:
    """HA-ST-91 "MUST NOT take more space on the disk than its entries need"; its length is that of HA-ST-30."""
    queue = ConsumeQueue(tmp_path / "0", writable=True)
    queue.put(0, 92, -1, 0)
    queue.flush()
    found = (tmp_path / "0" / f"{0:020d}").stat()
    assert found.st_size == FILE_SIZE
    assert 0 < 512 * found.st_blocks <= 64 << 10  # a block of a file system may have 64 KiB
    queue.close()


def test_nothing_behind_an_impossible_queue_offset_is_in_a_queue(tmp_path: Path) -> None:
    """As if the messages had been put one by one in the order of the log: those before it are in their queues, no other is."""
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(0, 0)])
    messages = [
        request(1, 0)._replace(commit_log_offset=1000),
        request(0, 1)._replace(commit_log_offset=1100),
        request(2, 0)._replace(commit_log_offset=1200),
        request(4, 0)._replace(commit_log_offset=1240),
        request(3, -1)._replace(commit_log_offset=1250),
        request(0, 2)._replace(commit_log_offset=1270),
        request(1, 1 << 60)._replace(commit_log_offset=1300),
        request(5, 0)._replace(commit_log_offset=1500),
    ]
    with pytest.raises(StoreCorrupt, match="queue offset -1") as caught:
        table.put(messages)
    assert caught.value.offset == 1250
    held = {queue_id: [entry.offset for _, entry in queue.entries()] for (_, queue_id), queue in table}
    assert {queue_id: offsets for queue_id, offsets in held.items() if offsets} == {
        0: [0, 1100],
        1: [1000],
        2: [1200],
        4: [1240],
    }
    table.close()


def test_many_queues_take_no_mapping_and_few_descriptors(tmp_path: Path) -> None:
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    count = 2 * OPEN_FILES
    for number in range(2):
        table.put([request(queue_id, number) for queue_id in range(count)])
    table.flush()
    links = list(Path("/proc/self/fd").iterdir())
    held = [link for link in links if link.is_symlink() and str(link.readlink()).startswith(str(tmp_path))]
    assert len(held) <= OPEN_FILES
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    for queue_id in range(count):
        queue = table.get(b"t", queue_id)
        assert queue is not None
        assert [entry.offset for _, entry in queue.entries()] == [1000 * queue_id, 1000 * queue_id + 100]
    table.close()
    assert not any(link.is_symlink() and str(link.readlink()).startswith(str(tmp_path)) for link in links)


def test_a_descriptor_in_use_is_not_taken_away(tmp_path: Path) -> None:
    files = QueueFiles(tmp_path, open_files=1)
    first, second, third = (files.create(tmp_path, base, SIZE) for base in (0, SIZE, 2 * SIZE))
    first.append(b"1" * 20)
    with first._guard:
        second.append(b"2" * 20)
        assert first._fd >= 0
        third.append(b"3" * 20)
        assert (first._fd >= 0, second._fd) == (True, -1)
    assert [bytes(file.view(0, 20)) for file in (first, second, third)] == [b"1" * 20, b"2" * 20, b"3" * 20]
    for file in (first, second, third):
        file.close()


def test_a_file_that_was_cut_is_named(tmp_path: Path) -> None:
    file = QueueFiles(tmp_path).create(tmp_path, 0, SIZE)
    file.append(bytes(20))
    os.truncate(file.path, 10)
    for use in (lambda: file.view(0, 20), lambda: file.append(b"x"), file.flush):
        with pytest.raises(StoreCorrupt, match=f"{file.path}.*a length of 10 bytes, expected {SIZE}"):
            use()
    assert (file.wrote_position, file.flushed_position) == (20, 0)
    file.close()


def test_entries_for_which_the_disk_has_no_room_can_be_put_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole is filled by a call that fails, and not by a page fault that ends the process."""
    queue = ConsumeQueue(tmp_path / "0", SIZE, writable=True)
    queue.put(0, 100, 7, 0)
    with monkeypatch.context() as full:

        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        full.setattr(queue_file.os, "pwrite", refuse)
        with pytest.raises(StoreFull, match="no room"):
            queue.put(100, 100, 7, 1)
    assert queue.max_offset == 1
    queue.put(100, 100, 7, 1)
    assert [entry.offset for _, entry in queue.entries()] == [0, 100]
    queue.close()


# --- What is flushed -------------------------------------------------------------------------------------------------


def test_a_clean_stop_leaves_nothing_to_flush(tmp_path: Path, syncs: list[str]) -> None:
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(queue_id, number) for queue_id in range(3) for number in range(5)])
    table.flush()
    table.close()
    assert len(syncs) == 6  # two files of each queue
    again = ConsumeQueueTable(tmp_path, writable=True)
    again.recover(0, 10_000)
    again.flush()
    assert len(syncs) == 6
    again.put([request(1, 5)])
    again.flush()
    assert syncs[6:] == [str(tmp_path / "consumequeue" / "t" / "1" / f"{SIZE:020d}")]
    again.close()


def test_what_a_recovery_cuts_off_is_flushed_with_the_next_entries(tmp_path: Path, syncs: list[str]) -> None:
    """HA-ST-7: the zeros must be on the disk before a checkpoint, or the end of `abort`, says that all is."""
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(queue_id, number) for queue_id in range(3) for number in range(3)])
    table.flush()
    table.close()
    syncs.clear()
    again = ConsumeQueueTable(tmp_path, writable=True)
    again.keep_before(0, 1100, lambda *_: True)  # all of queue 0, one message of queue 1, none of queue 2
    assert [queue.max_offset for _, queue in again] == [3, 1, 0]
    assert not syncs
    again.flush()
    assert syncs == [str(tmp_path / "consumequeue" / "t" / "1" / f"{0:020d}")]
    again.flush()
    assert len(syncs) == 1
    again.close()


def test_a_file_without_a_kept_entry_is_taken_again_or_removed(tmp_path: Path, syncs: list[str]) -> None:
    """HA-ST-38, HA-ST-73: entries that nobody vouches for come again, most often into the same place."""
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(queue_id, number) for queue_id in range(4) for number in range(6)])
    table.close()
    paths = [tmp_path / "consumequeue" / "t" / str(queue_id) / f"{0:020d}" for queue_id in range(4)]
    inodes = [path.stat().st_ino for path in paths]
    again = ConsumeQueueTable(tmp_path, writable=True)
    again.keep_before(0, 0, lambda *_: True)
    assert [queue.max_offset for _, queue in again] == [0] * 4
    assert [path.read_bytes() for path in paths] == [bytes(SIZE)] * 4
    again.put([request(0, 0), request(1, 5), request(3, 0)])  # the log of queue 1 begins later; queue 2 has no message left
    again.drop_unused()
    assert [path.exists() for path in paths] == [True, False, False, True]
    assert [path.stat().st_ino for path in (paths[0], paths[3])] == [inodes[0], inodes[3]]
    assert [queue.max_offset for _, queue in again] == [1, 6, 0, 1]
    again.flush()
    assert syncs == [str(paths[0]), str(paths[1].with_name(f"{SIZE:020d}")), str(paths[3])]
    again.drop_unused()
    assert paths[0].exists()
    again.close()


def test_a_large_file_without_a_kept_entry_is_removed(tmp_path: Path) -> None:
    queue = ConsumeQueue(tmp_path / "0", 20 << 16, writable=True)
    queue.put_all([field for number in range(1 << 15) for field in (number, 100 * number, 100, 0)])
    queue.close()
    again = ConsumeQueue(tmp_path / "0", 20 << 16, writable=True)
    again.keep_before(0, lambda *_: True)
    assert not list((tmp_path / "0").iterdir())
    again.close()


def test_a_flush_syncs_the_folder_of_a_topic_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose name is not on the disk is lost: so is one whose folder's name is not."""
    names: list[str] = []
    real = mapped_file_queue._sync_directory

    def sync(directory: Path) -> None:
        names.append(str(directory.relative_to(tmp_path)))
        real(directory)

    monkeypatch.setattr(mapped_file_queue, "_sync_directory", sync)
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(queue_id, 0) for queue_id in range(3)])
    table.flush()
    folders = ["consumequeue", "consumequeue/t", *(f"consumequeue/t/{queue_id}" for queue_id in range(3))]
    assert sorted(names) == folders
    table.put([request(3, 0)])
    table.flush()
    assert names[5:] == ["consumequeue/t/3", "consumequeue/t", "consumequeue"]
    table.put([request(3, number) for number in range(1, 6)])
    table.flush()
    assert names[8:] == ["consumequeue/t/3"]  # for its second file
    table.close()


def test_zeros_whose_sync_failed_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-28 "only over bytes that a successful sync has covered" (quirk 36)."""
    file = QueueFiles(tmp_path).create(tmp_path, 0, SIZE)
    file.append(b"x" * 60)
    file.truncate(20)
    assert file.clear(20)
    written: list[tuple[int, int]] = []
    with monkeypatch.context() as broken:

        def fail(_: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        broken.setattr(mapped_file, "_sync_data", fail)
        with pytest.raises(OSError, match=f"Input/output error: '{file.path}'"):
            file.flush()
    assert not file.is_flushed
    real = os.pwrite
    with monkeypatch.context() as watched:

        def note(fd: int, data: bytes, position: int) -> int:
            written.append((position, len(data)))
            return real(fd, data, position)

        watched.setattr(queue_file.os, "pwrite", note)
        file.flush()
    assert (20, SIZE - 20) in written
    assert file.is_flushed
    assert file.path.read_bytes() == b"x" * 20 + bytes(SIZE - 20)
    file.close()


def test_a_flush_waits_for_another_that_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-ST-24: otherwise the second would find no queue to flush, and the checkpoint would vouch for what the first has not
    brought to the disk."""
    table = ConsumeQueueTable(tmp_path, SIZE, writable=True)
    table.put([request(0, 0)])
    is_in, may_go = threading.Event(), threading.Event()
    real, ended = mapped_file._sync_data, []

    def sync(fd: int) -> None:
        is_in.set()
        assert may_go.wait(LONG_S)
        ended.append("sync")
        real(fd)

    monkeypatch.setattr(mapped_file, "_sync_data", sync)
    first = threading.Thread(target=table.flush, daemon=True)
    second = threading.Thread(target=lambda: (table.flush(), ended.append("second")), daemon=True)
    first.start()
    assert is_in.wait(LONG_S)
    second.start()
    second.join(0.1)  # it would be over long before
    may_go.set()
    await_end(first)
    await_end(second)
    assert ended == ["sync", "second"]
    table.close()


def test_a_queue_file_is_flushed_by_a_descriptor_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file may take the descriptor while the disk is busy."""
    files = QueueFiles(tmp_path, open_files=1)
    file, other = files.create(tmp_path, 0, SIZE), files.create(tmp_path, SIZE, SIZE)
    file.append(b"x" * 20)
    real, names = mapped_file._sync_data, []

    def sync(fd: int) -> None:
        other.append(b"y" * 20)
        assert file._fd < 0
        names.append(Path(f"/proc/self/fd/{fd}").readlink())
        real(fd)

    monkeypatch.setattr(mapped_file, "_sync_data", sync)
    file.flush()
    assert names == [file.path]
    assert isinstance(file, QueueFile)
    file.close()
    other.close()
