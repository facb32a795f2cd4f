"""Progress of a command begins at its own first byte, never goes back, and ends at the total: wherever the log begins."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from kit.damaged import END, OPTIONS, write_store
from rocketmq_ha.impl.app import query
from rocketmq_ha.impl.app.query import KeyQuery, find_messages
from rocketmq_ha.impl.app.recover import recover_store
from rocketmq_ha.impl.app.verify import compare_logs, verify_store
from rocketmq_ha.impl.store.log import reader
from rocketmq_ha.impl.store.log import verify as log_verify
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.wire.message import Message, encode

MESSAGE: Final = Message("a", bytes(100), properties_string="K\x01v")  # the last byte of its record is not 0


class Shown:
    """Work on bytes as a person sees it: what, of how many, and each number that is done."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, int, list[int]]] = []

    @contextmanager
    def __call__(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        done: list[int] = []
        self.parts.append((what, total, done))
        yield done.append


def later(path: Path) -> Path:
    """A store whose first file has expired: 1,024 to 2,699."""
    return write_store(path)


def from_zero(path: Path) -> Path:
    """A store of three files whose first one is there."""
    with MessageStore.open(path, OPTIONS) as store:
        for number in range(20):
            store.put(Message("a", bytes(40), properties_string=f"KEYS\x01k{number}"))
    return path


def bare(path: Path) -> Path:
    """A log without queues and index that begins at 2,048."""
    with CommitLog.open(path, file_size=1024) as log:
        log.append_data(2048, [memoryview(encode(MESSAGE, 0, 2048))])
        for _ in range(12):
            log.append(MESSAGE)
    return path


def torn(path: Path) -> Path:
    """A log of a slave that ends in 50 bytes of a record."""
    with CommitLog.open(bare(path), file_size=1024, clear_tail=False) as log:
        log.append_data(log.max_offset, [memoryview(encode(MESSAGE, 0, log.max_offset))[:50]])
    return path


def empty(path: Path) -> Path:
    """A store without a message."""
    MessageStore.open(path, OPTIONS).close()
    return path


MAKERS: Final = (later, from_zero, bare, torn, empty)
each_store = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


@pytest.fixture(autouse=True)
def short_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "STRIDE", 300)
    monkeypatch.setattr(log_verify, "_COMPARED_AT_ONCE", 300)
    monkeypatch.setattr(query, "_REPORTED_EVERY", 2)


def check(shown: Shown, expected: list[tuple[str, int]], at_the_end: int = 0) -> None:
    """Check all parts of the work. at_the_end: bytes of a torn record, which no walk passes."""
    assert [(what.partition(" /")[0], total) for what, total, _ in shown.parts] == expected
    for what, total, done in shown.parts:
        assert done == sorted(done), what
        assert all(0 <= each <= total for each in done), (what, total, done)
        assert (done or [0])[-1] in (total, total - at_the_end), (what, total, done)
        assert total < 1000 or len(done) > 1, (what, total, done)


@each_store
def test_progress_of_verify(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    shown = Shown()
    store = make(tmp_path / "s")
    with LogReader(store) as log:
        verify_store(log, shown)
        size = log.max_offset - log.min_offset
        expected = [("verifying", size + log.tail_size)]
        if (store / "consumequeue").exists():
            expected.append(("verifying queues and index of", size))
        check(shown, expected, log.tail_size)
        assert (size == 0) == (make is empty)


@each_store
@pytest.mark.parametrize("dry_run", [True, False])
def test_progress_of_recover(tmp_path: Path, make: Callable[[Path], Path], dry_run: bool) -> None:
    store = make(tmp_path / "s")
    size = sum(file.stat().st_size for file in (store / "commitlog").iterdir())
    shown = Shown()
    recover_store(store, dry_run=dry_run, show_progress=shown)
    check(shown, [("looking at", size)])


@each_store
@pytest.mark.parametrize("scan", [False, True], ids=("index", "scan"))
def test_progress_of_query(tmp_path: Path, make: Callable[[Path], Path], scan: bool) -> None:
    """With an index only what is behind its last message is looked through."""
    shown, store = Shown(), make(tmp_path / "s")
    wanted = KeyQuery("a", "none", 0, (1 << 63) - 1, 1)
    find_messages(store, wanted, shown, scan=scan)
    with LogReader(store) as log:
        log.walk()
        size = log.max_offset + log.tail_size - log.min_offset
        indexed = {later: 2261 - 1024, from_zero: 2748}.get(make, 0)
        check(shown, [("looking through", size if scan else size - indexed)])


@each_store
def test_progress_of_a_comparison(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    """Of a log with one of 1,024 to 2,699, and with itself."""
    with LogReader(make(tmp_path / "s")) as mine, LogReader(later(tmp_path / "t")) as theirs:
        for log in (mine, theirs):
            log.walk()
        begin = max(mine.min_offset, 1024)
        for other, end in ((theirs, min(mine.max_offset + mine.tail_size, END)), (mine, mine.max_offset + mine.tail_size)):
            begin = mine.min_offset if other is mine else begin
            shown = Shown()
            found = compare_logs(mine, other, shown)
            if found.difference is None:
                check(shown, [("comparing", max(0, end - begin))])
            else:
                assert [(what, total) for what, total, _ in shown.parts] == [("comparing", max(0, end - begin))]
