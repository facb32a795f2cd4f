"""Which connections a reader opens, and in which order, to find an offset, the first file and the size of a master's files."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kit.stage import lines
from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.ha.size_search import Contradiction, OnlyLastFile
from rocketmq_ha.impl.net import file_size as file_size_module
from rocketmq_ha.impl.net import inquiry as inquiry_module
from rocketmq_ha.impl.net import open_feed as module
from rocketmq_ha.impl.net.feed import FeedEnded, OutOfRange, Stopped
from rocketmq_ha.impl.net.file_size import learn_file_size
from rocketmq_ha.impl.net.inquiry import Inquiry
from rocketmq_ha.impl.net.open_feed import find_min, open_feed, open_old, settle, settle_before

ADDRESS = ("10.0.0.7", 10912)
PEER = "10.0.0.7:10912"
NOW_MS = 1_700_000_000_000
SIZE = 1000


def record_head(stored_ms: int, size: int = 76) -> memoryview:
    """The beginning of a record that was stored at a time."""
    return memoryview(bytes(56) + stored_ms.to_bytes(8, "big") + bytes(60))[:size]


OLD = record_head(NOW_MS - 10**7)


class Broker:
    """A master that has `first` to `last` and more, in files of SIZE; feeds to it stand in the place of connections."""

    def __init__(self, first: int, last: int, data: memoryview | None = OLD) -> None:
        self.first, self.last, self.data = first, last, data
        self.reports: list[int] = []
        self.open: list[Any] = []
        self.options: list[dict[str, Any]] = []
        self.failures: list[BaseException] = []

    def __call__(self, address: tuple[str, int], report: int, **options: Any) -> "Feed":
        assert address == ADDRESS
        self.reports.append(report)
        self.options.append(options)
        self.open.append(feed := Feed(self, report))
        return feed


class Feed:
    def __init__(self, broker: Broker, report: int) -> None:
        self.broker, self.report, self.peer = broker, report, PEER
        self.first_offset: int | None = None
        self.first_body_size: int | None = None
        self.closed = 0

    def first(self, stopped: Callable[[], bool], _: float | None = None) -> tuple[int, memoryview]:
        if stopped():
            raise Stopped
        if self.broker.failures:
            raise self.broker.failures.pop(0)
        if self.report and self.report < self.broker.first:
            raise FeedEnded(f"{PEER}: the master has closed the connection")
        self.first_offset = self.report or self.broker.last
        self.first_body_size = SIZE - self.first_offset % SIZE
        return self.first_offset, OLD if self.broker.data is None else self.broker.data

    def first_data(self, stopped: Callable[[], bool]) -> tuple[int, memoryview] | None:
        found = self.first(stopped)
        return None if self.broker.data is None else found

    def close(self) -> None:
        self.closed += 1
        self.broker.open.remove(self)

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broker], Broker]:
    """Let connections go to a broker."""
    monkeypatch.setattr(module, "wall_clock_ms", lambda: NOW_MS)
    monkeypatch.setattr(module, "_AGAIN_S", 0)

    def using(broker: Broker) -> Broker:
        monkeypatch.setattr(module, "MasterFeed", broker)
        monkeypatch.setattr(inquiry_module, "MasterFeed", broker)
        return broker

    return using


Use = Callable[[Broker], Broker]


# --- Settling -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "is_fresh"),
    [
        (record_head(NOW_MS - 60_000), False),
        (record_head(NOW_MS - 59_999), True),
        (record_head(NOW_MS + 5), True),
        (record_head(0, 76), False),
        (record_head(0, 75), True),
        (record_head(0, 0), True),
    ],
)
def test_a_file_that_began_less_than_a_minute_ago_is_fresh(use: Use, data: memoryview, is_fresh: bool) -> None:
    """Also one whose first record is not there to its timestamp, which an IPv6 host may move by 12 bytes."""
    use(Broker(0, 0))
    assert settle_before(data) is is_fresh


@pytest.mark.parametrize(("settle_s", "ends"), [(10.0, True), (2.5, False), (0, True)])
def test_a_wait_for_puts_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, settle_s: float, ends: bool
) -> None:
    caplog.set_level(logging.INFO, "rocketmq_ha")
    slept: list[float] = []
    monkeypatch.setattr(module, "sleep_unless_stopped", lambda seconds, _: (slept.append(seconds), ends)[1])
    if ends:
        settle(PEER, 5000, settle_s, lambda: False)
    else:
        with pytest.raises(Stopped):
            settle(PEER, 5000, settle_s, lambda: False)
    told = f"{PEER}: has just begun file 5000; waiting {settle_s:g} s, for no put may take a report of ours for its own"
    assert (slept, lines(caplog)) == ([settle_s], [told] if settle_s else [])


# --- Opening --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "overlap", "stored_ms", "reports", "settles"),
    [
        (None, None, NOW_MS, [0], False),
        (5000, None, NOW_MS, [0], False),
        (5001, 4000, NOW_MS, [0], False),
        (4999, None, 0, [0, 4999], False),
        (4999, None, NOW_MS, [0, 4999], True),
        (4999, 4200, 0, [0, 4200], False),
        (1, 0, 0, [0, 1], False),
        (0, None, 0, [0, 1], False),
    ],
)
def test_an_offset_of_an_older_file_takes_a_second_connection(
    use: Use, monkeypatch: pytest.MonkeyPatch, target: int | None, overlap: int | None, stored_ms: int,
    reports: list[int], settles: bool,
) -> None:  # fmt: skip
    """The first one is closed before the second is opened, and a fresh file is waited for between them."""
    broker = use(Broker(0, 5000, record_head(stored_ms)))
    waits: list[tuple[Any, ...]] = []
    monkeypatch.setattr(module, "settle", lambda *arguments: waits.append((*arguments[:3], len(broker.open))))
    feed = open_feed(ADDRESS, target, bool, overlap=overlap, settle_s=3, heartbeat_ms=77, source_address=("10.0.0.1", 0))
    assert (broker.reports, broker.open) == (reports, [feed])
    assert waits == ([(PEER, 5000, 3, 0)] if settles else [])
    assert broker.options == [{"heartbeat_ms": 77, "tls": None, "source_address": ("10.0.0.1", 0)}] * len(reports)


@pytest.mark.parametrize("failure", [FeedEnded("gone"), PeerViolation("HA-W-1", PEER, 1, 2), Stopped(), KeyboardInterrupt()])
def test_a_connection_that_fails_is_closed(use: Use, failure: BaseException) -> None:
    for ask in (lambda: open_feed(ADDRESS, 7, bool), lambda: open_old(ADDRESS, 7, bool)):
        broker = use(Broker(0, 5000))
        broker.failures = [failure] * 3
        with pytest.raises((type(failure), OutOfRange)):
            ask()
        assert broker.open == []


def test_a_master_that_has_not_the_offset_is_said(use: Use) -> None:
    broker = use(Broker(3000, 5000))
    with pytest.raises(OutOfRange) as found:
        open_old(ADDRESS, 2999, bool)
    why = f"it closes, or stays silent ({PEER}: the master has closed the connection)"
    assert str(found.value) == f"{PEER}: offset 2999 is out of the master's range: {why}"
    assert (broker.reports, broker.open) == ([2999] * 3, [])
    silent = use(Broker(0, 5000, None))
    with pytest.raises(OutOfRange) as found:
        open_old(ADDRESS, 2999, bool)
    why = "it sends heartbeats and no data, though its log goes on behind"
    assert str(found.value) == f"{PEER}: offset 2999 is out of the master's range: {why}"
    assert (silent.reports, silent.open) == ([2999], [])


@pytest.mark.parametrize(
    ("first", "last", "reports"),
    [
        (0, 0, [0]),
        (0, 8000, [0, 1]),
        (8000, 8000, [0, 1, 4000, 6000, 7000, 0]),
        (7000, 8000, [0, 1, 4000, 6000, 7000, 7000]),
        (1000, 8000, [0, 1, 4000, 2000, 1000, 1000]),
        (3000, 8000, [0, 1, 4000, 2000, 3000, 3000]),
        (1000, 1000, [0, 1, 0]),
        (2000, 3000, [0, 1, 1000, 2000, 2000]),
    ],
)
def test_the_first_file_is_found_by_halving(
    use: Use, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, first: int, last: int, reports: list[int]
) -> None:
    """One question at a time; all connections but the last are closed. The last file is asked for by 0 alone."""
    caplog.set_level(logging.INFO, "rocketmq_ha")
    monkeypatch.setattr(module, "_REFUSALS", 1)
    broker = use(Broker(first, last))
    own: dict[str, Any] = {"heartbeat_ms": 77, "tls": object(), "source_address": ("10.0.0.1", 0)}
    feed = find_min(ADDRESS, SIZE, bool, **own)
    assert (broker.reports, broker.open) == (reports, [feed])
    assert broker.options == [own] * len(reports)  # each connection is as the first
    assert lines(caplog) == ([f"{PEER}: file 0 is gone; looking for the first one"] if first else [])


def test_a_size_that_does_not_fit_is_asked_for(use: Use) -> None:
    broker = use(Broker(4000, 8500))
    with pytest.raises(OutOfRange) as found:
        find_min(ADDRESS, SIZE, bool)
    why = "it begins a file, and is no multiple of 1000: say --file-size"
    assert str(found.value) == f"{PEER}: offset 8500 is out of the master's range: {why}"
    assert broker.open == []


# --- Questions ------------------------------------------------------------------------------------------------------------


def test_a_question_is_the_size_of_one_frame(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    """None where the master has nothing; a frame of another offset is the master's mistake."""
    broker = use(Broker(3000, 5000))
    inquiry = Inquiry(ADDRESS, bool, 0, source_address=("10.0.0.1", 0))
    assert [inquiry.body_size_at(offset) for offset in (3000, 3999, 2999)] == [1000, 1, None]
    assert (inquiry.peer, inquiry.connections, inquiry.last_file(), broker.open) == (PEER, 3, 5000, [])
    assert inquiry.connections == 4
    assert {options["source_address"] for options in broker.options} == {("10.0.0.1", 0)}
    monkeypatch.setattr(inquiry_module, "open_old", lambda *_, **__: broker(ADDRESS, 0))
    feed = broker(ADDRESS, 0)
    feed.first_offset = 7
    monkeypatch.setattr(inquiry_module, "open_old", lambda *_, **__: feed)
    with pytest.raises(PeerViolation) as found:
        inquiry.body_size_at(6)
    assert str(found.value) == f"{PEER}: found a frame at offset 7, expected offset 6 (HA-M-5)"
    assert feed.closed == 1


def test_a_second_try_comes_behind_a_question_for_0(use: Use) -> None:
    """A master that is just starting has no data at first."""
    broker = use(Broker(3000, 5000))
    tls: Any = object()
    inquiry = Inquiry(ADDRESS, bool, 0, tls, ("10.0.0.1", 0))
    with pytest.raises(OutOfRange):
        inquiry.open_old(2000)
    assert broker.reports == [2000] * 3 + [0] + [2000] * 3
    assert (inquiry.open_old(3000).report, inquiry.connections) == (3000, 4)
    assert {(options["tls"], options["source_address"]) for options in broker.options} == {(tls, ("10.0.0.1", 0))}


def test_puts_are_waited_for_once(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-S-85; a wait that is stopped is waited again."""
    use(Broker(0, 5000))
    ends: list[BaseException | None] = [Stopped(), None]
    waits: list[tuple[Any, ...]] = []

    def waiting(*arguments: Any) -> None:
        waits.append(arguments[:3])
        if error := ends.pop(0):
            raise error

    monkeypatch.setattr(inquiry_module, "settle", waiting)
    inquiry = Inquiry(ADDRESS, bool, 4.0)
    with pytest.raises(Stopped):
        inquiry.settle(5000)
    for _ in range(3):
        inquiry.settle(5000)
    assert waits == [(PEER, 5000, 4.0)] * 2


@pytest.mark.parametrize(("data", "is_fresh"), [(OLD, False), (record_head(NOW_MS), True), (None, True)])
def test_a_last_file_without_data_is_fresh(use: Use, data: memoryview | None, is_fresh: bool) -> None:
    use(Broker(0, 5000, data))
    inquiry = Inquiry(ADDRESS, bool, 0)
    with inquiry.open(0) as feed:
        assert inquiry.is_fresh(feed) is is_fresh


# --- The size -------------------------------------------------------------------------------------------------------------


class Searched:
    """Stands for the search: it raises or returns what the test lists, and keeps what it was asked with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *results: int | Exception) -> None:
        self.results, self.likely = list(results), list[int | None]()
        monkeypatch.setattr(file_size_module, "find_file_size", self)

    def __call__(self, _: int, __: Any, likely: int | None) -> int:
        self.likely.append(likely)
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def test_a_master_that_shows_one_file_is_asked_again(
    use: Use, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be just starting: behind an answer to 0 the search begins anew, and once alone."""
    caplog.set_level(logging.DEBUG, "rocketmq_ha")
    broker = use(Broker(0, 5000))
    searched = Searched(monkeypatch, OnlyLastFile("one"), 1000, OnlyLastFile("one"), OnlyLastFile("two"))
    inquiry = Inquiry(ADDRESS, bool, 0)
    assert learn_file_size(inquiry, 5000, False, 500) == 1000
    assert (broker.reports, searched.likely) == ([0], [500, 500])
    assert lines(caplog, logging.DEBUG) == [f"{PEER}: files of 1000 bytes, by 1 connections"]
    with pytest.raises(OnlyLastFile, match=r"^two$"):
        learn_file_size(inquiry, 5000, False)
    assert searched.likely[2:] == [1 << 30] * 2


def test_answers_that_contradict_are_the_masters_mistake(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    use(Broker(0, 5000))
    Searched(monkeypatch, Contradiction("two answers"))
    with pytest.raises(PeerViolation) as found:
        learn_file_size(Inquiry(ADDRESS, bool, 0), 5000, False)
    assert str(found.value) == f"{PEER}: found two answers, expected frames that end where a file ends (HA-W-4)"


@pytest.mark.parametrize("is_fresh", [True, False])
def test_questions_end_after_two_minutes_behind_the_wait_for_puts(
    use: Use, monkeypatch: pytest.MonkeyPatch, is_fresh: bool
) -> None:
    """HA-S-97 "MUST NOT take longer than 120 s"."""
    use(Broker(0, 5000))
    now = [100.0]
    monkeypatch.setattr(file_size_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    inquiry = Inquiry(ADDRESS, bool, 0)
    settled: list[int] = []

    def settling(last_file: int) -> None:
        settled.append(last_file)
        now[0] += 10

    def search(_: int, body_size_at: Callable[[int], int | None], __: int) -> int:
        assert settled == ([5000] if is_fresh else [])
        now[0] += 120.0
        settled.append(body_size_at(4999) or 0)
        now[0] += 0.5
        body_size_at(4999)
        raise AssertionError

    monkeypatch.setattr(inquiry, "settle", settling)
    monkeypatch.setattr(file_size_module, "find_file_size", search)
    with pytest.raises(FeedEnded) as found:
        learn_file_size(inquiry, 5000, is_fresh)
    assert settled == [5000, 1][not is_fresh :]  # asked when exactly 120 s had passed
    assert str(found.value) == f"{PEER}: 120 s have not told how large the master's files are"
