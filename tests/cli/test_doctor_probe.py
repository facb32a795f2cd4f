"""What `doctor` observes of a store and of a master: each figure, from prepared frames and from a master in a thread."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kit.nodes
from kit.files import delete_log_files
from kit.scripted_master import frame, scripted_master
from rocketmq_ha.impl.app.doctor import probe as probe_module
from rocketmq_ha.impl.app.doctor.file_sizes import compare_file_sizes
from rocketmq_ha.impl.app.doctor.findings import Findings
from rocketmq_ha.impl.app.doctor.probe import MasterProbe, StoreProbe, probe_master, probe_store
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, OutOfRange
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.message import Message, encode

FILE_SIZE = 4_096
NEVER: Callable[[], bool] = lambda: False  # noqa: E731


def fill(store: Path, numbers: range, file_size: int = FILE_SIZE) -> Path:
    """Put messages; equal numbers give equal messages."""
    with CommitLog.open(store, file_size=file_size) as log:
        for number in numbers:
            log.append(Message("topic", b"%d" % number * 30, queue_id=number, store_timestamp=1_700_000_000_000 + number))
    return store


def records_of(store: Path) -> list[tuple[int, int]]:
    """Offset and end of each message."""
    with LogReader(store) as reader:
        return [(offset, offset + size) for offset, size, _ in reader.records()]


def observed(address: tuple[str, int], store: Path | None, patience_s: float = 5.0) -> tuple[MasterProbe, StoreProbe | None]:
    if store is None:
        with MasterFeed(address, 0) as feed:
            return probe_master(feed, None, patience_s, 0.0, NEVER), None
    with LogReader(store) as reader, MasterFeed(address, 0) as feed:
        found = probe_store(reader)
        return probe_master(feed, found, patience_s, 0.0, NEVER), found


# --- Prepared frames -----------------------------------------------------------------------------------------------------

BASE = 8_192
MESSAGES = []
for body in (b"a" * 10, b"b" * 20, b"c" * 30):
    at = BASE + sum(map(len, MESSAGES))
    MESSAGES.append(encode(Message("t", body, physical_offset=at, store_timestamp=1_000 + len(body))))
DATA = b"".join(MESSAGES)


def test_all_that_a_master_sends_is_counted() -> None:
    with scripted_master(frame(BASE, DATA[:50]) + frame(BASE + 50, DATA[50:]) + frame(BASE + len(DATA))) as master:
        found, _ = observed(master.address, None)
        assert set(master.reports[0]) == {0}
    assert (found.last_file, found.end, found.received) == (BASE, BASE + len(DATA), len(DATA))
    assert (found.messages, found.newest_ms, found.is_end, found.connections) == (3, 1_030, True, 1)
    assert (found.damage, found.lost, found.difference, found.compared) == ("", None, None, 0)
    assert found.heartbeat_s is not None and 0 <= found.heartbeat_s < 5
    assert (found.file_size, found.file_size_unseen, found.out_of_range) == (None, "", None)


def test_a_heartbeat_is_measured_from_the_last_bytes_and_not_from_the_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the probe stands a hundred seconds behind the connect, as after a long log."""
    monkeypatch.setattr(probe_module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 100))
    with scripted_master(frame(BASE, DATA) + frame(BASE + len(DATA))) as master:
        found, _ = observed(master.address, None)
    assert found.heartbeat_s is not None and found.heartbeat_s < 50


def test_a_heartbeat_alone_is_the_end_of_an_empty_file() -> None:
    with scripted_master(frame(BASE)) as master:
        found, _ = observed(master.address, None)
    assert (found.last_file, found.end, found.received, found.messages, found.is_end) == (BASE, BASE, 0, 0, True)
    assert (found.newest_ms, found.seconds) == (None, 0.0)


def test_half_a_message_is_read_and_is_no_message() -> None:
    with scripted_master(frame(BASE, DATA)[: 12 + len(MESSAGES[0]) + 7]) as master:
        found, _ = observed(master.address, None, patience_s=1.0)
    assert (found.messages, found.received, found.end) == (1, len(MESSAGES[0]) + 7, BASE + len(MESSAGES[0]) + 7)
    assert (found.is_end, found.heartbeat_s, found.lost, found.damage) == (False, None, None, "")
    assert found.newest_ms == 1_010


def test_a_damaged_message_and_bytes_that_are_none_are_damage() -> None:
    damaged = bytearray(DATA)
    damaged[len(MESSAGES[0]) + 95] ^= 1
    with scripted_master(frame(BASE, bytes(damaged))) as master:
        found, _ = observed(master.address, None)
    assert "crc" in found.damage.lower()
    assert (found.messages, found.newest_ms) == (2, 1_010)
    with scripted_master(frame(BASE, MESSAGES[0] + b"\x7f" * 100)) as master:
        found, _ = observed(master.address, None)
    assert found.damage.startswith(f"at commit-log offset {BASE + len(MESSAGES[0])}: found ")
    assert found.messages == 1


def test_a_link_that_ends_while_it_is_read_is_lost() -> None:
    with scripted_master(frame(BASE, DATA), b"", closes=True) as master:
        found, _ = observed(master.address, None)
    assert isinstance(found.lost, FeedEnded)
    assert (found.messages, found.is_end) == (3, False)


# --- A store beside a master ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def master_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("doctor") / "a", range(60))


@pytest.mark.parametrize("count", [1, 20, 45, 59, 60])
def test_each_message_that_both_have_is_compared(count: int, master_store: Path, tmp_path: Path) -> None:
    """Those of the last file; of a store that ends before it, those from its last message on."""
    store = fill(tmp_path / "b", range(count))
    every = records_of(master_store)
    last_file = every[-1][0] - every[-1][0] % FILE_SIZE
    with kit.nodes.serving(master_store, FILE_SIZE) as master:
        found, had = observed(master.address, store)
    assert had is not None and (had.last_offset, had.end) == every[count - 1]
    assert (found.last_file, found.end, found.is_end) == (last_file, every[-1][1], True)
    in_last = [at for at, _ in every if at >= last_file]
    assert found.messages == len(in_last)
    both = [at for at, _ in every[:count] if at >= last_file]
    is_old = 0 < every[count - 1][0] < last_file
    assert found.compared == len(both) + is_old
    assert (found.difference, found.out_of_range, found.file_size) == (None, None, FILE_SIZE)
    assert found.connections > 1


@pytest.mark.parametrize("number", [10, 20, 44, 50, 59])
def test_the_first_byte_that_differs_is_found(number: int, master_store: Path, tmp_path: Path) -> None:
    """One byte of one message of the store is another. Only its last message and the last file are compared."""
    store = fill(tmp_path / "b", range(60) if number >= 44 else range(number + 1))
    every = records_of(master_store)
    last_file = every[-1][0] - every[-1][0] % FILE_SIZE
    at = every[number][0] + 12  # the queue's id: no check of the store sees it
    file = store / "commitlog" / f"{at - at % FILE_SIZE:020d}"
    data = bytearray(file.read_bytes())
    data[at % FILE_SIZE + 3] ^= 0xFF
    file.write_bytes(data)
    with kit.nodes.serving(master_store, FILE_SIZE) as master:
        found, _ = observed(master.address, store)
    is_seen = every[number][0] >= last_file or number < 44
    assert found.difference == (at + 3 if is_seen else None)


def test_a_store_whose_first_messages_are_gone_is_compared_from_its_first_on(master_store: Path) -> None:
    """It has nothing before the middle of the master's last file."""
    every = records_of(master_store)
    last_file = every[-1][0] - every[-1][0] % FILE_SIZE
    in_last = [(begin, end) for begin, end in every if begin >= last_file]
    with LogReader(master_store) as reader:
        found = StoreProbe(reader, True, FILE_SIZE, min_offset=in_last[1][0], end=in_last[3][1], last_offset=in_last[3][0])
        with kit.nodes.serving(master_store, FILE_SIZE) as master, MasterFeed(master.address, 0) as feed:
            seen = probe_master(feed, found, 5.0, 0.0, NEVER)
            tail = StoreProbe(reader, True, FILE_SIZE, 0, in_last[3][1], in_last[4][1] - in_last[3][1], in_last[3][0])
            with MasterFeed(master.address, 0) as other:
                with_tail = probe_master(other, tail, 5.0, 0.0, NEVER)
    assert (seen.compared, with_tail.compared) == (3, 5)


def test_a_store_that_the_master_has_deleted_is_out_of_range(tmp_path: Path) -> None:
    master_copy, store = fill(tmp_path / "a", range(60)), fill(tmp_path / "b", range(5))
    (master_copy / "commitlog" / f"{0:020d}").unlink()
    with kit.nodes.serving(master_copy, FILE_SIZE) as master:
        found, had = observed(master.address, store)
    assert found.out_of_range is not None and had is not None
    assert found.out_of_range.offset == had.overlap == records_of(store)[-1][0]
    assert (found.compared, found.difference) == (0, None)


def test_a_store_that_deletes_a_file_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    every = records_of(fill(tmp_path, range(60)))
    with LogReader(tmp_path) as reader:
        delete_log_files(tmp_path, FILE_SIZE)
        found = probe_store(reader)
    assert (found.min_offset, found.end, found.last_offset) == (FILE_SIZE, every[-1][1], every[-1][0])


@pytest.mark.parametrize("goes_on", [1, 9])
def test_a_store_whose_slave_goes_on_meanwhile_is_asked_for_again(
    master_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: int
) -> None:
    """A master with short retention has soon deleted what its slave had at the doctor's first look."""
    store, really, asked = fill(tmp_path / "b", range(5)), probe_module.open_old, list[int]()

    def refuse(address: tuple[str, int], offset: int, *arguments: Any, **options: Any) -> MasterFeed:
        asked.append(offset)
        if len(asked) > goes_on:
            return really(address, offset, *arguments, **options)
        fill(store, range(4 + len(asked), 5 + len(asked)))
        raise OutOfRange("peer", offset, "it closes")

    monkeypatch.setattr(probe_module, "open_old", refuse)
    with kit.nodes.serving(master_store, FILE_SIZE) as master:
        found, _ = observed(master.address, store)
    assert asked == [at for at, _ in records_of(store)][4 : 4 + len(asked)]
    assert (len(asked), found.out_of_range) == (min(goes_on + 1, 5), None)
    assert (found.compared, found.difference) == (1 if goes_on == 1 else 0, None)


@pytest.mark.parametrize("wrong", [frame(0, b"x"), frame(BASE + 1, DATA)], ids=["another offset", "behind the last file"])
def test_the_connections_of_a_search_that_fails_count_too(wrong: bytes, master_store: Path) -> None:
    """The doctor tells how many connections it has opened, so that an operator finds them in the master's log."""
    with (
        scripted_master(frame(BASE, DATA) + frame(BASE + len(DATA)), wrong, wrong, wrong) as master,
        LogReader(master_store) as reader,
        MasterFeed(master.address, 0) as feed,
    ):
        seen = probe_master(feed, StoreProbe(reader, True, FILE_SIZE, 0), 5.0, 0.0, NEVER)
        assert (seen.file_size, seen.connections) == (None, len(master.reports))
    assert seen.file_size_unseen
    assert seen.connections > 1


def test_an_empty_store_is_compared_with_nothing(master_store: Path, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    with kit.nodes.serving(master_store, FILE_SIZE) as master:
        found, had = observed(master.address, tmp_path)
    assert had is not None and (had.has_files, had.overlap) == (False, 0)
    assert (found.compared, found.file_size) == (0, FILE_SIZE)


@pytest.mark.parametrize("split", [7, 8, 60])
def test_a_store_without_files_has_no_size_to_compare_with_what_the_master_sends(tmp_path: Path, split: int) -> None:
    """A slave of ours would learn the master's size at the end of its first file, so there is nothing to advise."""
    (tmp_path / "commitlog").mkdir()
    data = b"".join(encode(Message("t", b"a" * 10, physical_offset=at)) for at in (0, 102))
    frames = frame(0, data[:split]) + frame(split, data[split:]) + frame(len(data))
    with scripted_master(frames) as master:
        found, had = observed(master.address, tmp_path)
    assert had is not None and len(data) == 204
    assert (found.last_file, found.messages, found.file_size, found.is_longer) == (0, 2, None, False)
    findings = Findings()
    compare_file_sizes(found, had, None, findings)
    text = "how large the master's files are is not seen: it is in its first file, and --broker can ask it"
    assert [(each.level, each.text) for each in findings.all] == [("note", text)]


def test_what_is_compared_of_an_old_file_has_a_limit(
    master_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail of the store is compared too, up to the limit; a message behind its end is not."""
    store = fill(tmp_path / "b", range(10))
    every = records_of(master_store)
    with LogReader(store) as reader:
        probe_store(reader)
        had = StoreProbe(reader, True, FILE_SIZE, 0, every[9][1], 0, every[6][0])
        with kit.nodes.serving(master_store, FILE_SIZE) as master:
            for limit, least in ((1 << 20, 4), (1, 1)):
                monkeypatch.setattr(probe_module, "_COMPARED_SIZE", limit)
                with MasterFeed(master.address, 0) as feed:
                    found = probe_master(feed, had, 5.0, 0.0, NEVER)
                assert least <= found.compared <= 4
                assert found.difference is None
