"""A search for the start of a slave's empty log by given answers: what it finds, what it refuses, and each word of that."""

from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_ha.impl.errors import FileSizeDiffers
from rocketmq_ha.impl.ha.size_search import CannotTell, OnlyLastFile
from rocketmq_ha.impl.net import fresh as module
from rocketmq_ha.impl.net.feed import FeedEnded, OutOfRange, Stopped
from rocketmq_ha.impl.net.fresh import ASKING, WAITING, Found, FreshStart, NoSuchStart, Start, WrongFileSize
from rocketmq_ha.spec.constants import MAPPED_FILE_SIZE_COMMIT_LOG as GIB

PEER = "10.0.0.7:10912"


class Answers:
    """Stands in the place of the questions to a master. steps: what was asked, in order."""

    def __init__(self, last_file: int, size: int | Exception, *, is_fresh: bool = False) -> None:
        self.last_files, self.size, self.fresh = [last_file], size, is_fresh
        self.gone: list[int] = []  # offsets that the master has no more
        self.end, self.has_data = last_file + 300, True
        self.steps: list[Any] = []
        self.peer, self.address, self.connections = PEER, ("10.0.0.7", 10912), 0
        self.patience: list[float | None] = []

    def open(self, report: int) -> "Feed":
        self.connections += 1
        return Feed(self, report)

    def is_fresh(self, _: "Feed") -> bool:
        return self.fresh

    def settle(self, last_file: int) -> None:
        self.steps.append(("settle", last_file))

    def open_old(self, offset: int) -> "Feed":
        self.steps.append(("old", offset))
        if offset in self.gone:
            raise OutOfRange(PEER, offset, "it closes")
        return Feed(self, offset)

    def learn(self, _: object, last_file: int, is_fresh: bool, told: int | None = None) -> int:
        self.steps.append(("learn", last_file, is_fresh, told))
        if isinstance(self.size, Exception):
            raise self.size
        return self.size


class Feed:
    def __init__(self, answers: Answers, report: int) -> None:
        self.answers, self.report, self.peer, self.next_offset = answers, report, PEER, answers.end

    def first(self, _: Callable[[], bool], patience_s: float | None = None) -> tuple[int, bytes]:
        self.answers.patience.append(patience_s)
        found = self.answers.last_files
        return (found.pop(0) if len(found) > 1 else found[0]), b""

    def first_data(self, _: Callable[[], bool]) -> tuple[int, bytes] | None:
        return (0, b"x") if self.answers.has_data else None

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        self.answers.steps.append("closed")


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FreshStart]:
    """Make a search by given answers. Records are there wherever they are looked for."""

    def make(answers: Answers, told: int | None = None) -> FreshStart:
        monkeypatch.setattr(module, "Inquiry", lambda *_: answers)
        monkeypatch.setattr(module, "learn_file_size", answers.learn)
        monkeypatch.setattr(FreshStart, "_read_record", lambda _, __, base: answers.steps.append(("record", base)))
        return FreshStart(answers.address, told, lambda: False)

    return make


@pytest.mark.parametrize(
    ("start", "told", "size", "is_fresh", "found", "steps"),
    [
        ("last", None, 1000, False, (None, 1000), []),
        ("last", 1000, 1000, True, (None, 1000), []),
        (4999, None, 1000, False, (4000, 1000), [("old", 4000), ("record", 4000), "closed"]),
        (4000, None, 1000, True, (4000, 1000), [("settle", 5000), ("old", 4000), ("record", 4000), "closed"]),
        (999, 1000, 1000, False, (0, 1000), [("old", 1), ("record", 0), "closed"]),
        (5000, None, 1000, False, (5000, 1000), ["closed"]),
        (5300, None, 1000, True, (5000, 1000), [("settle", 5000), "closed"]),
    ],
)
def test_an_offset_is_looked_for_where_its_file_is(
    search: Callable[..., FreshStart], start: Start, told: int | None, size: int, is_fresh: bool,
    found: tuple[int | None, int | None], steps: list[Any],
) -> None:  # fmt: skip
    """HA-S-84; the size is learnt first, and a fresh file is waited for before an older offset is asked for."""
    answers = Answers(5000, size, is_fresh=is_fresh)
    assert search(answers, told).find(start) == Found(*found)
    assert answers.steps == ["closed", ("learn", 5000, is_fresh, told), *steps]


@pytest.mark.parametrize(
    ("start", "found", "steps"),
    [
        ("last", (None, None), []),
        ("min", (0, None), [("record", 0)]),
        (0, (0, None), [("record", 0)]),
        (7, (0, None), [("record", 0)]),
    ],
)
def test_a_master_in_its_first_file_has_no_size(
    search: Callable[..., FreshStart], start: Start, found: tuple[int | None, None], steps: list[Any]
) -> None:
    """HA-S-96 "Where that offset is 0 the slave cannot know the size yet"."""
    answers = Answers(0, AssertionError())
    assert search(answers).find(start) == Found(*found)
    assert answers.steps == [*steps, "closed"]


@pytest.mark.parametrize(
    ("start", "told", "last_file", "size", "kind", "words"),
    [
        (6000, None, 5000, 1000, NoSuchStart, "offset 6000 is beyond the master's end: its last file begins at 5000"),
        (5301, None, 5000, 1000, NoSuchStart, "offset 5301 is beyond the master's end, 5300"),
        (3500, None, 5000, 1000, NoSuchStart,
         "offset 3000 is out of the master's range: it closes; it has deleted the file of offset 3500: "
         "--from min begins with its first"),
        ("last", 500, 5000, 1000, WrongFileSize,
         "the master's files are of 1000 bytes, not of 500; --file-size must be theirs"),
        ("last", 999, 5000, CannotTell("why"), WrongFileSize,
         "the master's files are not of 999 bytes: its last one begins at 5000; --file-size must be theirs"),
        ("last", None, 5000, CannotTell("why"), WrongFileSize,
         "the size of the master's files cannot be learnt: why; give it, by --file-size"),
        ("last", None, 5000, OnlyLastFile("one"), WrongFileSize,
         "the size of the master's files cannot be learnt: one; give it, by --file-size"),
        ("last", None, 2 * GIB, CannotTell("why"), WrongFileSize,
         "the size of the master's files cannot be learnt: why; give it, by --file-size"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(
    search: Callable[..., FreshStart], start: Start, told: int | None, last_file: int, size: int | Exception,
    kind: type[Exception], words: str,
) -> None:  # fmt: skip
    """HA-S-83, HA-S-97, HA-S-98."""
    answers = Answers(last_file, size)
    answers.gone.append(3000)
    answers.has_data = start != 5301
    with pytest.raises(kind) as found:
        search(answers, told).find(start)
    assert str(found.value) == f"{PEER}: {words}"


@pytest.mark.parametrize(
    ("told", "last_file", "size", "found"),
    [
        (500, 5000, CannotTell("why"), (None, 500)),  # a size that divides the start is believed
        (None, 2 * GIB, OnlyLastFile("one"), (None, None)),  # the default, on trial
        (GIB, 2 * GIB, OnlyLastFile("one"), (None, GIB)),
    ],
)
def test_a_size_that_may_be_is_taken(
    search: Callable[..., FreshStart], told: int | None, last_file: int, size: Exception, found: tuple[None, int | None]
) -> None:
    assert search(Answers(last_file, size), told).find("last") == Found(*found)


def test_the_start_of_a_last_file_without_a_message_is_a_start(search: Callable[..., FreshStart]) -> None:
    answers = Answers(5000, 1000)
    answers.has_data = False
    assert search(answers).find(5000) == Found(5000, 1000)


def test_a_master_that_begins_a_file_meanwhile_is_asked_anew(search: Callable[..., FreshStart]) -> None:
    answers = Answers(5000, 1000)
    answers.last_files = [5000, 6000]
    with pytest.raises(FeedEnded) as found:
        search(answers).find(5001)
    assert str(found.value) == f"{PEER}: it has begun another file meanwhile"


@pytest.mark.parametrize(
    ("told", "size", "kind", "words"),
    [
        (1000, AssertionError(), None, ""),
        (999, 1000, FileSizeDiffers, str(FileSizeDiffers(PEER, 999, 1000))),
        (999, CannotTell("why"), WrongFileSize,
         f"{PEER}: the master's files are not of 999 bytes: its last one begins at 5000; --file-size must be theirs"),
    ],
)  # fmt: skip
def test_a_log_that_goes_on_is_checked_by_one_question(
    search: Callable[..., FreshStart], told: int, size: int | Exception, kind: type[Exception] | None, words: str
) -> None:
    """HA-S-98; the caller says how long the first answer may take."""
    answers = Answers(5000, size)
    if kind is None:
        search(answers, told).check(2.5)
        assert (answers.steps, answers.patience) == (["closed"], [2.5])
        return
    with pytest.raises(kind) as found:
        search(answers, told).check(2.5)
    assert str(found.value) == words


def test_its_state_is_said_from_the_first_connection_on(search: Callable[..., FreshStart]) -> None:
    answers = Answers(5000, 1000)
    finding = search(answers)
    states = [finding.state]
    answers.connections = 1
    states.append(finding.state)
    finding._is_waiting = True
    states.append(finding.state)
    assert states == ["", ASKING, WAITING]


def test_who_is_told_to_stop_reads_nothing(search: Callable[..., FreshStart]) -> None:
    finding = search(Answers(5000, 1000))
    finding._stopped = lambda: True
    with pytest.raises(Stopped):
        finding._pieces(object())  # type: ignore[arg-type]
