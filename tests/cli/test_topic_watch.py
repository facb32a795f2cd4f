"""The topics of a log without dispatch: what is read of it, how fast, and what `config/topics.json` gets of it.

HA-ST-52 "MUST have `config/topics.json` name the topics and queues".
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rocketmq_ha.impl.app import topic_watch as module
from rocketmq_ha.impl.app.topic_watch import TopicWatch
from rocketmq_ha.impl.store.derived.topic_config import read_topics
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message, encode

FILE_SIZE = 1 << 14


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as opened:
        yield opened


def append(log: CommitLog, *messages: Message) -> None:
    """Append the records of messages, as a slave appends those of its master."""
    for message in messages:
        log.append_data(log.max_offset, [encode(message, 0, log.max_offset)])


def watching(tmp_path: Path, log: CommitLog) -> TopicWatch:
    return TopicWatch(tmp_path / "s", log, reads=True)


class Waits:
    """The event by which a watch is stopped. Notes each pause, and lets the watch have some turns."""

    def __init__(self, turns: int) -> None:
        self.turns, self.pauses = turns, list[float]()

    def wait(self, pause_s: float) -> bool:
        self.pauses.append(round(pause_s, 6))
        return len(self.pauses) > self.turns


def test_a_log_that_begins_at_a_later_file_is_read_from_its_start(tmp_path: Path, log: CommitLog) -> None:
    watch = watching(tmp_path, log)
    log.begin_at(5 * FILE_SIZE)
    append(log, Message("t", b"", queue_id=2))
    watch.start()
    watch.finish()
    assert read_topics(tmp_path / "s") == {"t": 3}


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_the_rest_is_read_to_its_end_in_batches(
    batch: int, tmp_path: Path, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven topics, at most `batch` records a read. The watch is stopped before its first turn."""
    monkeypatch.setattr(module, "_BATCH", batch)
    watch = watching(tmp_path, log)
    append(log, *(Message(f"t{number}", b"") for number in range(7)))
    watch.start()
    watch.finish()
    assert read_topics(tmp_path / "s") == {f"t{number}": 1 for number in range(7)}


def test_the_rest_is_read_for_ten_seconds_at_most(tmp_path: Path, log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes four seconds: the looks at 4 and at 8 allow a read, the one at 12 does not."""
    clock = iter(range(100, 500, 4))
    monkeypatch.setattr(module, "_BATCH", 1)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    watch = watching(tmp_path, log)
    append(log, *(Message(f"t{number}", b"") for number in range(7)))
    watch._thread = watch._stop = module.threading.Event()  # type: ignore[assignment]
    watch._thread.join = lambda: None  # type: ignore[method-assign]
    watch.finish()
    assert read_topics(tmp_path / "s") == {"t0": 1, "t1": 1}


def test_a_log_whose_puts_are_known_is_not_read(tmp_path: Path, log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_: TopicWatch) -> bool:
        raise AssertionError

    monkeypatch.setattr(TopicWatch, "_read", read)
    watch = TopicWatch(tmp_path / "s", log, reads=False)
    log.append(Message("t", b"", queue_id=4))
    watch.start()
    watch.finish()
    assert read_topics(tmp_path / "s") == {"t": 5}


@pytest.mark.parametrize(
    ("is_more", "took_s", "pause_s"),
    [
        (True, 0.1, 1.9),
        (True, 0.001, 0.019),  # a log that is far behind is read again soon
        (False, 0.1, 1.9),
        (False, 0.001, 0.2),
        (False, 0.0, 0.2),
    ],
)
def test_reading_and_noting_take_a_twentieth_of_a_processor(
    is_more: bool, took_s: float, pause_s: float, tmp_path: Path, log: CommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the disk is: each write of the file waits three seconds for it here, and no look comes later for that."""
    now, used = [50.0], [7.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "thread_time", lambda: used[0])

    def read(_: TopicWatch) -> bool:
        now[0], used[0] = now[0] + took_s / 4, used[0] + took_s / 4
        return is_more

    def note(_: TopicWatch) -> None:
        now[0], used[0] = now[0] + 3.0, used[0] + took_s * 3 / 4

    monkeypatch.setattr(TopicWatch, "_read", read)
    monkeypatch.setattr(TopicWatch, "_note", note)
    watch = watching(tmp_path, log)
    waits = watch._stop = Waits(turns=2)  # type: ignore[assignment]
    watch._run()
    assert waits.pauses == [0.2, pause_s, pause_s]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        # Many queues, because a set gives them in any order.
        pytest.param([("t", 7 * number % 101) for number in range(101)], {"t": 101}, id="the largest queue counts"),
        pytest.param([("a/b", 0), ("ok", 0)], {"ok": 1}, id="a name with a slash"),
        pytest.param([("..", 0), (".", 0), ("ok", 0)], {"ok": 1}, id="names of directories"),
        pytest.param([("\udcff", 0), ("ok", 0)], {"ok": 1}, id="a name that is no text"),
        pytest.param([("Gr\u00fc\u00dfe", 1)], {"Gr\u00fc\u00dfe": 2}, id="a name beyond ASCII"),
    ],
)
def test_a_topic_that_a_broker_can_serve_is_noted_with_its_queues(
    messages: Sequence[tuple[str, int]], expected: dict[str, int], tmp_path: Path, log: CommitLog
) -> None:
    watch = watching(tmp_path, log)
    append(log, *(Message(topic, b"", queue_id=queue_id) for topic, queue_id in messages))
    watch.start()
    watch.finish()
    assert read_topics(tmp_path / "s") == expected


def test_a_failure_is_logged_once_until_a_write_succeeds(
    tmp_path: Path, log: CommitLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = [True, True, False, True, True]
    written: list[dict[str, int]] = []

    def write(_: Path, queue_nums: dict[str, int]) -> None:
        if fails.pop(0):
            raise PermissionError(13, "Permission denied", "f")
        written.append(queue_nums)

    monkeypatch.setattr(module, "write_topics", write)
    logger = logging.getLogger(module.__name__)
    logger.addHandler(caplog.handler)
    try:
        watch = watching(tmp_path, log)
        told = []
        for topic in ("a", "", "", "", "b", ""):
            append(log, *([Message(topic, b"")] if topic else []))
            watch._read()
            watch._note()
            told.append(len({id(record) for record in caplog.records}))
    finally:
        logger.removeHandler(caplog.handler)
    assert told == [1, 1, 1, 1, 2, 2]
    assert written == [{"a": 1}]
    assert fails == []  # what is noted is not written again
    assert caplog.records[0].getMessage() == "topics are not noted, which is tried again: [Errno 13] Permission denied: 'f'"
