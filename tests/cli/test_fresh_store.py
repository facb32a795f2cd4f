"""The preparation of a new slave's store: what it asks of its master, and what it makes of each answer, which is given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_ha.impl.app import fresh_store as fresh_module
from rocketmq_ha.impl.app.fresh_store import FreshStore
from rocketmq_ha.impl.errors import ConfigInvalid, PeerViolation
from rocketmq_ha.impl.net.feed import FeedEnded, Stopped, Unreachable
from rocketmq_ha.impl.net.fresh import ASKING, Found
from rocketmq_ha.impl.store.log.commit_log import CommitLog

FILE_SIZE = 4_096
ADDRESS, OURS = ("h", 3), ("127.0.0.7", 0)
NEVER: Callable[[], bool] = lambda: False  # noqa: E731


OF_2048 = "its files are of 2048 bytes, as the master's"
AT_8192 = "its log begins with the master's file 8192"


class Search:
    """Stands in the place of the search at a master: its answers are given, and what it is asked is kept."""

    answers: list[Found | Exception]
    asked: list[tuple[object, ...]]
    state = ASKING

    def __init__(self, address: object, told: object, stopped: object, settle_s: object, tls: object, source: object) -> None:
        assert (address, stopped, settle_s, tls, source) == (ADDRESS, NEVER, 5.5, "tls", OURS)
        self._told = told

    def find(self, start: object) -> Found:
        self.asked.append(("find", start, self._told))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def check(self, patience_s: float) -> None:
        self.asked.append(("check", patience_s, self._told))
        if self.answers and isinstance(error := self.answers.pop(0), Exception):
            raise error


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What the searches of a test are asked."""
    Search.asked, Search.answers = [], []
    monkeypatch.setattr(fresh_module, "FreshStart", Search)
    return Search.asked


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log lines."""
    found: list[str] = []
    monkeypatch.setattr(fresh_module.log, "info", lambda text, *values: found.append(text % values))
    return found


def prepare(fresh: FreshStore, log: CommitLog) -> bool:
    tls: Any = "tls"
    return fresh.prepare(log, ADDRESS, NEVER, tls, OURS)


def opened(directory: Path, size: int = 0, start: int = 0, file_size: int = FILE_SIZE) -> CommitLog:
    """A log with this number of bytes from an offset on."""
    log = CommitLog.open(directory / "s", file_size=file_size)
    while size:
        part = min(size, file_size - start % file_size)
        log.append_data(start, [memoryview(b"x" * part)])
        start, size = start + part, size - part
    return log


@pytest.mark.parametrize(
    ("start", "learns", "answer", "question", "is_prepared", "max_offset", "file_size", "lines"),
    [
        pytest.param(None, False, None, None, True, 0, 4_096, [], id="nothing is asked"),
        pytest.param(None, True, Found(None, None), "last", False, 0, 4_096, [], id="the size is not known yet"),
        pytest.param(
            None, True, Found(None, 2_048), "last", True, 0, 2_048, [OF_2048], id="a size"
        ),
        pytest.param(None, True, Found(None, 4_096), "last", True, 0, 4_096, [], id="the size that it has"),
        pytest.param("last", False, Found(None, 4_096), "last", True, 0, 4_096, [], id="last"),
        pytest.param(
            "min", False, Found(8_192, None), "min", True, 8_192, 4_096, [AT_8192], id="min"
        ),
        pytest.param(
            8_192, False, Found(8_192, None), 8_192, True, 8_192, 4_096, [AT_8192], id="offset"
        ),
        pytest.param(
            8_200,
            True,
            Found(8_192, 2_048),
            8_200,
            True,
            8_192,
            2_048,
            [
                OF_2048,
                "its log begins with the master's file 8192, which holds offset 8200",
            ],
            id="an offset in a file, and a size",
        ),
        pytest.param(0, False, Found(0, None), 0, True, 1, 4_096, ["its log begins with the master's file 0"], id="offset 0"),
    ],
)  # fmt: skip
def test_an_empty_log_gets_the_start_and_the_size_that_the_master_tells(
    start: str | int | None,
    learns: bool,
    answer: Found | None,
    question: object,
    is_prepared: bool,
    max_offset: int,
    file_size: int,
    lines: list[str],
    asked: list[tuple[object, ...]],
    said: list[str],
    tmp_path: Path,
) -> None:
    Search.answers += [answer] if answer else []
    with FreshStore(tmp_path / "s", start, 5.5, None, learns) as fresh, opened(tmp_path) as log:
        assert prepare(fresh, log) == is_prepared
        assert asked == ([("find", question, None)] if answer else [])
        assert (log.max_offset, log.file_size) == (max_offset, file_size)
        assert said == [f"{tmp_path / 's'}: {line}" for line in lines]
        if is_prepared:
            assert prepare(fresh, log)
            assert len(asked) == bool(answer)  # it asks no more
        else:
            Search.answers.append(Found(None, 2_048))
            assert prepare(fresh, log)
            assert (len(asked), log.file_size) == (2, 2_048)
        assert fresh.state == ""


@pytest.mark.parametrize(
    ("file_size", "has_file", "told"), [(7, False, 7), (7, True, 7), (None, True, FILE_SIZE), (None, False, None)]
)
def test_the_size_that_is_given_or_that_an_empty_file_has_is_told(
    file_size: int | None, has_file: bool, told: int | None, asked: list[tuple[object, ...]], tmp_path: Path
) -> None:
    Search.answers.append(Found(None, None))
    with opened(tmp_path) as log:
        if has_file:
            log.begin_at(8_192)
        assert bool(log.queue.files) == has_file
        prepare(FreshStore(tmp_path / "s", "last", 5.5, file_size, False), log)
    assert asked == [("find", "last", told)]


@pytest.mark.parametrize(
    ("size", "start", "file_size", "learns", "is_checked"),
    [
        (1, 0, FILE_SIZE, True, True),
        (FILE_SIZE, 0, FILE_SIZE, True, True),
        (FILE_SIZE + 1, 0, FILE_SIZE, True, False),
        (100, 8_192, FILE_SIZE, True, True),
        (100, 0, None, True, False),
        (100, 0, FILE_SIZE, False, False),
    ],
)
def test_a_log_that_has_a_record_goes_on_and_its_size_is_compared_if_it_is_given(
    size: int,
    start: int,
    file_size: int | None,
    learns: bool,
    is_checked: bool,
    asked: list[tuple[object, ...]],
    said: list[str],
    tmp_path: Path,
) -> None:
    """HA-S-80 "a log that holds a record MUST go on where it ends"."""
    with opened(tmp_path, size, start) as log:
        fresh = FreshStore(tmp_path / "s", "min", 5.5, file_size, learns)
        assert prepare(fresh, log) and prepare(fresh, log)
        assert asked == ([("check", 2.0, FILE_SIZE)] if is_checked else [])
        assert (log.min_offset, log.max_offset) == (start, start + size)
    ends = f"its log holds {start} to {start + size}, and goes on"
    assert said == [f"{tmp_path / 's'}: --from min means nothing here: {ends}"]


@pytest.mark.parametrize(
    "error",
    [Unreachable("a"), FeedEnded("b"), PeerViolation("HA-W-2", "h:3", 1, 2)],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("is_left", [False, True], ids=["new", "left empty by a process that has ended"])
def test_an_error_that_may_pass_leaves_the_next_try_as_the_first(
    is_left: bool, error: Exception, asked: list[tuple[object, ...]], tmp_path: Path
) -> None:
    Search.answers += [error, Found(8_192, None)]
    with FreshStore(tmp_path / "s", "min", 5.5, None, False) as fresh, opened(tmp_path) as log:
        if is_left:
            log.begin_at(4_096)
        with pytest.raises(type(error)):
            prepare(fresh, log)
        assert fresh.state == ""
        assert prepare(fresh, log)
        assert log.max_offset == 8_192
    assert asked == [("find", "min", FILE_SIZE if is_left else None)] * 2
    assert (tmp_path / "s" / "commitlog").is_dir()


def test_an_error_while_the_size_is_compared_is_the_slaves_to_meet(asked: list[tuple[object, ...]], tmp_path: Path) -> None:
    Search.answers.append(Unreachable("a"))
    with opened(tmp_path, 100) as log:
        assert prepare(FreshStore(tmp_path / "s", None, 5.5, FILE_SIZE, True), log)
    assert len(asked) == 1


@pytest.mark.parametrize("had_directory", [False, True])
def test_a_refusal_leaves_the_store_as_it_was(had_directory: bool, asked: list[tuple[object, ...]], tmp_path: Path) -> None:
    """HA-S-83 "with the store left as it was"."""
    if had_directory:
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / "mine").touch()
    Search.answers.append(ConfigInvalid("no such start"))
    with (
        pytest.raises(ConfigInvalid, match="no such start"),
        FreshStore(tmp_path / "s", 7, 5.5, None, False) as fresh,
        opened(tmp_path) as log,
    ):
        prepare(fresh, log)
    assert asked == [("find", 7, None)]
    assert [path.name for path in tmp_path.rglob("*")] == (["s", "mine"] if had_directory else [])


def test_a_stop_leaves_what_was_made_for_the_next_start(asked: list[tuple[object, ...]], tmp_path: Path) -> None:
    Search.answers.append(Stopped())  # type: ignore[arg-type]
    with (
        pytest.raises(Stopped),
        FreshStore(tmp_path / "s", "min", 5.5, None, False) as fresh,
        opened(tmp_path) as log,
    ):
        prepare(fresh, log)
    assert len(asked) == 1
    assert (tmp_path / "s" / "commitlog").is_dir()
