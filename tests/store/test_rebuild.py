"""The recovery of queues and index alone: where the dispatch begins, and what the checkpoint vouches for afterwards.

HA-ST-45, HA-ST-51, HA-ST-73 "MUST be dispatched again, to queues and index".
"""

import shutil
import struct
from pathlib import Path

import pytest

from kit.damaged import (
    B_K,
    END,
    OPTIONS,
    Damage,
    both,
    entry,
    gone,
    index,
    index_count,
    index_gone,
    key,
    stored_ms,
    write_store,
)
from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.derived.rebuild import DerivedRecovery, RecoveredLog
from rocketmq_ha.impl.store.log.checkpoint import StoreCheckpoint
from rocketmq_ha.impl.store.log.checkpoint_hint import recovery_hint
from rocketmq_ha.impl.store.log.commit_log import CommitLog


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("derived") / "whole")


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "s")


def nothing(_: Path) -> None:
    pass


BEYOND = both(key(2, 2, hash=B_K, offset=END), index_count(2, 3), index(2, 24, END, 8))
ALL_TIMES = (stored_ms(14), stored_ms(14), stored_ms(13))  # of the log, of queues and index, of full index files


@pytest.mark.parametrize(
    ("damage", "is_clean", "start", "times", "entries", "index_files"),
    [
        pytest.param(nothing, True, END, ALL_TIMES, 13, 3, id="whole"),
        pytest.param(nothing, False, 2048, ALL_TIMES, 10, 2, id="whole, unclean"),
        pytest.param(entry("a/0", 6, 0, 0), True, 2481, ALL_TIMES, 12, 3, id="no last entry"),
        pytest.param(gone("consumequeue"), True, 1024, (ALL_TIMES[0], stored_ms(7), ALL_TIMES[2]), 0, 3, id="no queues"),
        pytest.param(gone("consumequeue"), False, 2048, ALL_TIMES, 0, 2, id="no queues, unclean"),
        pytest.param(index_gone(2), True, END, ALL_TIMES, 13, 2, id="no last index file"),
        pytest.param(gone("index"), True, END, ALL_TIMES, 13, 0, id="no index"),
        pytest.param(gone("index"), False, 2048, (*ALL_TIMES[:2], 0), 10, 0, id="no index, unclean"),
        pytest.param(index_gone(0), False, 2048, ALL_TIMES, 10, 1, id="no first index file, unclean"),
        pytest.param(index_count(0, 5), False, 2048, (*ALL_TIMES[:2], 0), 10, 2, id="first index file not full, unclean"),
        pytest.param(
            both(index_count(1, 5), key(1, 2, before=0)),
            False,
            1199,  # the only key before the damage may lack others of its message
            (ALL_TIMES[0], stored_ms(8), stored_ms(7)),
            10,
            2,
            id="a broken chain in an index file that is not full, unclean",
        ),
        pytest.param(BEYOND, True, END, ALL_TIMES, 13, 3, id="a key beyond the end"),
        pytest.param(BEYOND, False, 2048, ALL_TIMES, 10, 2, id="a key beyond the end, unclean"),
        pytest.param(
            both(BEYOND, key(2, 1, before=1), entry("a/0", 4, 2600, 50), entry("a/0", 5, 0, 0)),
            True,
            2261,  # where the index begins to lack keys; the end of that queue is none
            (ALL_TIMES[0], stored_ms(13), ALL_TIMES[2]),
            11,
            2,
            id="a damaged index, and a queue whose last entry is wrong",
        ),
        pytest.param(entry("b/3", 4, END, 9), True, END, ALL_TIMES, 13, 3, id="an entry beyond the end"),
    ],
)
def test_where_the_dispatch_begins(
    store: Path,
    damage: Damage,
    is_clean: bool,
    start: int,
    times: tuple[int, int, int],
    entries: int,
    index_files: int,
) -> None:
    damage(store)
    if not is_clean:
        (store / "abort").touch()
    checkpoint = StoreCheckpoint(store)
    with CommitLog.open(store, hint=lambda files: recovery_hint(store, files)) as log:
        queues, found = ConsumeQueueTable(store, writable=True), IndexService(store, OPTIONS.index_geometry, writable=True)
        try:
            recovery = DerivedRecovery(RecoveredLog(log.queue.files, log.recovery, log.max_offset), queues, found, checkpoint)
            assert recovery.run(is_clean=is_clean) == start
            assert sum(queue.max_offset for _, queue in queues) == entries
            assert len(found.files) == index_files
        finally:
            queues.close()
            found.close()
    data = (store / "checkpoint").read_bytes()
    assert struct.unpack_from(">qqq", data) == times
    assert len(data) == 4096


@pytest.mark.parametrize(
    ("offset", "begins_at", "stored"),
    [
        (1024, 1024, 7),
        (1025, 1024, None),
        (1198, 1024, None),
        (1199, 1199, 8),
        (1200, 1199, None),
        (1786, 1786, 11),
        (1990, 1786, None),  # a BLANK is no record
        (1991, 1786, None),
        (2047, 1786, None),
        (2048, 2048, 12),
        (2049, 2048, None),
        (2481, 2481, 14),
        (END - 1, 2481, None),
        (END, END, None),
        (END + 1, END + 1, None),
        (4096, 4096, None),
        (1023, 1023, None),
    ],
)
def test_the_record_at_or_before_an_offset(store: Path, offset: int, begins_at: int, stored: int | None) -> None:
    with CommitLog.open(store) as log:
        queues, found = ConsumeQueueTable(store, writable=True), IndexService(store, OPTIONS.index_geometry, writable=True)
        recovery = DerivedRecovery(
            RecoveredLog(log.queue.files, log.recovery, log.max_offset), queues, found, StoreCheckpoint(store)
        )
        assert recovery.stored_ms(offset) == (0 if stored is None else stored_ms(stored))
        assert recovery._record_at_or_before(offset) == begins_at
        queues.close()
        found.close()
