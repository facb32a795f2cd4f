"""Decisions of the model of the store at their bounds: a round of the flush, times of the checkpoint, bytes behind the log."""

from dataclasses import replace

import pytest

from rocketmq_ha.reference import checkpoint, store
from rocketmq_ha.reference.checkpoint import StoreCheckpoint
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

PAGE = 4096
FILE_SIZE = 4 * PAGE


@pytest.mark.parametrize(
    ("end", "flushed", "least_pages", "expected"),
    [
        # Any amount.
        (5_000, 0, 0, 5_000),
        (5_000, 4_999, 0, 5_000),
        (5_000, 5_000, 0, 5_000),
        (FILE_SIZE + 1, FILE_SIZE, 0, FILE_SIZE + 1),
        (2 * FILE_SIZE, 100, 0, FILE_SIZE),  # one file in a round
        # Whole pages.
        (PAGE - 1, 0, 1, 0),
        (PAGE, 0, 1, PAGE),
        (2 * PAGE - 1, PAGE, 1, PAGE),
        (2 * PAGE, PAGE, 1, 2 * PAGE),
        (2 * PAGE - 1, PAGE - 1, 1, 2 * PAGE - 1),
        (3 * PAGE, 0, 4, 0),
        (3 * PAGE, 0, 3, 3 * PAGE),
        (FILE_SIZE + 2 * PAGE, FILE_SIZE, 2, FILE_SIZE + 2 * PAGE),
        (FILE_SIZE + 2 * PAGE, FILE_SIZE, 3, FILE_SIZE),
        # A full file, however few pages of it are left.
        (FILE_SIZE, FILE_SIZE - 1, 4, FILE_SIZE),
        (FILE_SIZE, 0, 5, FILE_SIZE),
        (FILE_SIZE - 1, 0, 4, 0),
        (FILE_SIZE + 5, FILE_SIZE - 1, 4, FILE_SIZE),
        (2 * FILE_SIZE, FILE_SIZE, 4, 2 * FILE_SIZE),
        (FILE_SIZE, FILE_SIZE, 0, FILE_SIZE),
    ],
)
@pytest.mark.parametrize("base", [0, 3 * FILE_SIZE])
def test_a_round_of_the_flush(base: int, end: int, flushed: int, least_pages: int, expected: int) -> None:
    log = Log(FILE_SIZE, base, bytes(end))
    assert checkpoint.flush(log, base + flushed, least_pages, synced=True) == base + expected
    assert checkpoint.flush(log, base + flushed, least_pages, synced=False) == base + flushed  # HA-ST-28


def test_a_flush_begins_at_the_first_file_that_is_left() -> None:
    assert checkpoint.flush(Log(FILE_SIZE, FILE_SIZE, bytes(5_000)), 7, 1, synced=True) == FILE_SIZE + 5_000
    assert checkpoint.flush(Log(FILE_SIZE), 0, 0, synced=True) == 0


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, StoreCheckpoint()),
        (23, StoreCheckpoint()),
        (24, StoreCheckpoint(1, -2, 3)),
        (40, StoreCheckpoint(1, -2, 3)),
        (48, StoreCheckpoint(1, -2, 3, -4)),
        (4096, StoreCheckpoint(1, -2, 3, -4)),
    ],
)
def test_a_checkpoint_of_any_length(size: int, expected: StoreCheckpoint) -> None:
    """HA-ST-24 "begins with three times in ms, each an i64"."""
    data = checkpoint.encode(StoreCheckpoint(1, -2, 3, -4))
    assert len(data) == 4096
    assert checkpoint.decode(data[:size]) == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [((9_000, 8_000), 5_000), ((8_000, 9_000), 5_000), ((3_001, 9_000), 1), ((3_000, 9_000), 0), ((2_999, 9_000), 0)],
)
def test_the_time_by_which_recovery_begins(times: tuple[int, int], expected: int) -> None:
    """HA-ST-19 "the lesser of the checkpoint's first two times, less 3 s"."""
    assert checkpoint.min_timestamp(StoreCheckpoint(*times, 1)) == expected


def records(count: int) -> Log:
    """A log of files of 240 bytes: two records of 112 bytes, a BLANK, and so on."""
    log = Log(240)
    for number in range(count):
        log = store.append_record(log, Record(b"T", bytes(20), store_timestamp=1_000 + number))[0]
    return log


@pytest.mark.parametrize(
    ("until", "expected"),
    [(0, 0), (111, 0), (112, 1_000), (223, 1_000), (224, 1_001), (240, 1_001), (351, 1_001), (352, 1_002)],
)
def test_the_time_of_the_last_message_that_ends_by_an_offset(until: int, expected: int) -> None:
    assert checkpoint.last_store_timestamp(records(3), until) == expected


@pytest.mark.parametrize(("count", "left"), [(1, 0), (2, 112), (3, 240), (4, 352)])
@pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)
def test_a_power_cut_takes_the_last_record(count: int, left: int, profile: Profile) -> None:
    """Its bytes are zeros, so that recovery cuts the log where it began. A BLANK before it stays."""
    log = records(count)
    lost = store.without_last_record(log)
    assert (lost.data, lost.stale, lost.base) == (log.data[:left], b"", 0)
    recovered = store.recover(lost, profile).state
    expected = Log(240) if left == 0 and profile.clears_tail else replace(log, data=log.data[:left])
    assert recovered == expected


@pytest.mark.parametrize(
    ("base", "offset", "size", "expected"),
    [
        (None, 0, 3, 0),
        (None, 239, 3, 0),
        (None, 240, 3, 240),
        (None, 500, 3, 480),
        (None, -1, 3, 0),  # Java divides towards zero
        (None, -239, 3, 0),
        (None, -240, 3, None),
        (None, 0, 240, 0),
        (None, 0, 241, None),
        (480, 0, 240, 480),  # once there is a file, the offset says nothing
        (480, 0, 241, 480),
    ],
)
def test_replicated_bytes_open_the_file_that_holds_their_offset(
    base: int | None, offset: int, size: int, expected: int | None
) -> None:
    """HA-ST-6 "open the file that holds their offset, and are written from its start"; a body that does not fit is dropped."""
    found = store.append_data(Log(240, base), offset, b"x" * size)
    assert (found.base, found.data) == (expected, b"x" * size if size <= 240 and expected is not None else b"")


def test_a_log_is_read_within_a_file_and_within_itself() -> None:
    """HA-W-4 "MUST NOT cross the end of a commit-log file"."""
    log = Log(10, 20, bytes(range(15)))
    seen = [store.data_at(log, offset, 4) for offset in (19, 20, 27, 30, 32, 34, 35)]
    assert seen == [b"", b"\0\1\2\3", b"\7\x08\x09", b"\x0a\x0b\x0c\x0d", b"\x0c\x0d\x0e", b"\x0e", b""]
    assert store.data_at(Log(10), 0, 4) == b""
