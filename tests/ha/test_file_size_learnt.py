"""A slave without a file size learns its master's; a slave with another size stops before it takes a byte.

HA-S-96 to HA-S-99. Against our masters in both profiles, with files of many sizes, some deleted, and against lying masters.
"""

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kit.command_line import invoke
from kit.files import delete_log_files
from kit.nodes import serving
from kit.waiting import PATIENCE_S, accepted, await_end, wait_for
from rocketmq_ha.impl.app import logs
from rocketmq_ha.impl.app.fresh_store import FreshStore
from rocketmq_ha.impl.errors import PeerViolation, RocketmqHaError
from rocketmq_ha.impl.ha.size_search import MOST_QUESTIONS, CannotTell, Contradiction, OnlyLastFile, factors, find_file_size
from rocketmq_ha.impl.net import feed
from rocketmq_ha.impl.net import file_size as file_size_module
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.feed import FeedEnded
from rocketmq_ha.impl.net.file_size import learn_file_size
from rocketmq_ha.impl.net.fresh import FreshStart, WrongFileSize
from rocketmq_ha.impl.net.inquiry import Inquiry
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import compare
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.constants import HA_TRANSFER_BATCH_SIZE, MAPPED_FILE_SIZE_COMMIT_LOG
from rocketmq_ha.spec.profile import PROFILES, Settings

LONG_AGO_MS = 1_700_000_000_000  # so old that no put can still wait
GIB = MAPPED_FILE_SIZE_COMMIT_LOG
SIZES = (512, 1000, 4096, 3 * 4096, 4099, 65_521)  # also primes, and sizes that are no power of two


@pytest.fixture(autouse=True)
def no_data_is_seen_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for deleted data, for which a classic master sends nothing.

    At a heartbeat every 100 ms, 0.7 s are enough.
    """
    monkeypatch.setattr(feed, "_DATA_AFTER_HEARTBEAT_S", 0.7)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Restore the signal handlers and log handlers that a command sets."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    logs.logging.getLogger("rocketmq_ha").handlers.clear()


# --- The search ------------------------------------------------------------------------------------------------------


class Answers:
    """A master's answers, and their number. Its files have `size` bytes; those before `first` are deleted."""

    def __init__(self, size: int, count: int, first: int = 0) -> None:
        self.size, self.last_file, self.first = size, size * count, size * first
        self.questions = self.gone = 0

    def body_size_at(self, offset: int) -> int | None:
        assert 0 < offset < self.last_file
        self.questions += 1
        if offset < self.first:
            self.gone += 1
            return None
        return min(HA_TRANSFER_BATCH_SIZE, self.size - offset % self.size)


@settings(deadline=None)
@given(
    size=st.one_of(st.integers(8, 2**31 - 1), st.integers(3, 30).map(lambda power: 1 << power), st.sampled_from(SIZES)),
    count=st.integers(1, 20_000),
    left=st.integers(1, 20_000),
    likely=st.one_of(st.none(), st.just(GIB), st.integers(8, 2**31 - 1)),
)
@example(size=GIB, count=3, left=1, likely=GIB)
@example(size=2 * GIB - 1, count=5000, left=2, likely=None)
@example(size=512, count=2, left=1, likely=512)
@example(size=512, count=1, left=1, likely=None)
@example(size=720_720, count=2460, left=1, likely=720_720)
@example(size=4096, count=12, left=12, likely=2 * 4096)
@example(size=4096, count=12, left=12, likely=2048)
def test_the_size_is_found_where_files_begin(size: int, count: int, left: int, likely: int | None) -> None:
    """HA-S-96 "the smallest divisor of the offset at which the master's last file begins": whatever files are deleted, no
    other size is found.
    """
    answers = Answers(size, count, max(0, count - left))
    try:
        found = find_file_size(answers.last_file, answers.body_size_at, likely)
    except CannotTell:
        assert answers.questions == MOST_QUESTIONS and likely != size and answers.first
    else:
        assert found == size


@pytest.mark.parametrize("left", [1, 2, 5000])
def test_three_questions_find_the_default(left: int) -> None:
    answers = Answers(GIB, 5000, 5000 - left)
    assert find_file_size(answers.last_file, answers.body_size_at, GIB) == GIB
    assert (answers.questions, answers.gone) == ((3, 0) if left > 1 else (5, 2))


@pytest.mark.parametrize("size", [1 << 16, 1 << 20, 100 << 20, 3 << 20, 10**9, 1_000_003, 2**31 - 1])
@pytest.mark.parametrize("count", [2, 7, 60, 720, 5040])
def test_an_unlikely_size_takes_some_tens_of_questions(size: int, count: int) -> None:
    for left in (count, min(count, 3), 1):
        answers = Answers(size, count, count - left)
        assert find_file_size(answers.last_file, answers.body_size_at, GIB) == size
        assert answers.questions <= (20 if left == count else MOST_QUESTIONS)


@settings(deadline=None)
@given(
    last_file=st.one_of(st.integers(1, 2**63 - 1), st.sampled_from([2**62, 720_720 * GIB, 2**61 - 1])),
    lies=st.lists(st.sampled_from([None, 1, 2, 500]), max_size=200),
    later=st.sampled_from([None, 1, 2]),
)
def test_a_liar_is_asked_64_questions_at_most(last_file: int, lies: list[int | None], later: int | None) -> None:
    """HA-S-97 "MUST NOT ask more than 64 questions"."""
    answers, questions = iter(lies), 0

    def lie(_: int) -> int | None:
        nonlocal questions
        questions += 1
        return next(answers, later)

    try:
        found = find_file_size(last_file, lie)
        assert last_file % found == 0
    except (CannotTell, Contradiction) as error:
        assert "\n" not in str(error)
    assert questions <= MOST_QUESTIONS


def test_a_master_whose_size_takes_more_questions_is_asked_64() -> None:
    """HA-S-97 "MUST NOT ask more than 64 questions": one file before the last, whose size has many divisors."""
    answers = Answers(720_720, 2460, 2459)
    with pytest.raises(CannotTell, match="64 questions about what is before 1772971200 were not enough"):
        find_file_size(answers.last_file, answers.body_size_at)
    assert answers.questions == MOST_QUESTIONS


def test_what_cannot_be_told_is_said() -> None:
    with pytest.raises(CannotTell, match="begins at 7, which is no multiple of any size"):
        find_file_size(7, lambda _: 2)
    with pytest.raises(OnlyLastFile, match="nothing before its last file, which begins at 4096"):
        find_file_size(4096, lambda _: None)
    with pytest.raises(CannotTell, match="byte by byte"):
        find_file_size(4096, lambda _: 1)
    with pytest.raises(Contradiction, match="no size fits"):
        find_file_size(2**31 - 1 << 1, lambda _: 2)
    with pytest.raises(Contradiction, match="a frame of 100 bytes from 48, and its last file begins at 50"):
        find_file_size(50, lambda _: 100)  # HA-W-4: a file ends at 50, so no frame may cross it
    answers = iter([2, 2, 1, None])
    with pytest.raises(Contradiction, match="it has no longer"):
        find_file_size(4096, lambda _: next(answers), 8)


def test_factors() -> None:
    assert [factors(number) for number in (2, 1 << 30, 36, 97, 2 * 3 * 5 * 7, 2**31 - 1, (2**31 - 1) * 6)] == [
        {2: 1},
        {2: 30},
        {2: 2, 3: 2},
        {97: 1},
        {2: 1, 3: 1, 5: 1, 7: 1},
        {2**31 - 1: 1},
        {2: 1, 3: 1, 2**31 - 1: 1},
    ]


# --- Masters ---------------------------------------------------------------------------------------------------------


def fill(store: Path, file_size: int, files: int, *, stored_ms: int = LONG_AGO_MS) -> Path:
    """Put messages until the last file begins at `files` times the file size."""
    body = bytes(min(300, file_size // 4))
    with CommitLog.open(store, file_size=file_size) as log:
        while log.max_offset <= files * file_size:
            log.append(Message("topic", body, store_timestamp=stored_ms))
    return store


def address_of(master: Master) -> str:
    return f"127.0.0.1:{master.address[1]}"


def until_patience_ends() -> Callable[[], bool]:
    until = time.monotonic() + PATIENCE_S
    return lambda: time.monotonic() > until


@pytest.mark.parametrize("file_size", SIZES)
@pytest.mark.parametrize("files", [1, 6])
def test_a_master_shows_the_size_of_its_files(tmp_path: Path, file_size: int, files: int) -> None:
    store = fill(tmp_path / "a", file_size, files)
    reports: set[int] = set()
    with serving(store, file_size, "hardened", reports.add) as master:
        inquiry = Inquiry(master.address, until_patience_ends(), 0)
        for likely in (None, file_size):
            assert learn_file_size(inquiry, inquiry.last_file(), False, likely) == file_size
    assert max(reports) < files * file_size  # no byte of the last file is acknowledged


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_deleted_files_do_not_hide_the_size(tmp_path: Path, profile: str) -> None:
    store = fill(tmp_path / "a", 1000, 6)
    with serving(store, 1000, profile) as master:
        inquiry = Inquiry(master.address, until_patience_ends(), 0)
        for gone in (2, 5):
            master.service.log.delete_before(gone * 1000)  # type: ignore[attr-defined]
            assert learn_file_size(inquiry, 6000, False, 1000) == 1000
        if profile == "hardened":  # hardened refuses at once; each question to a classic master costs a wait
            assert learn_file_size(inquiry, 6000, False) == 1000
        master.service.log.delete_before(6000)  # type: ignore[attr-defined]
        with pytest.raises(OnlyLastFile):
            learn_file_size(inquiry, 6000, False)


def test_a_search_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HA-S-97 "MUST NOT take longer than 120 s"."""
    assert file_size_module.MOST_S == 120
    monkeypatch.setattr(file_size_module, "MOST_S", 0)
    with serving(fill(tmp_path / "a", 1000, 2), 1000) as master, pytest.raises(FeedEnded, match="0 s have not told how large"):
        learn_file_size(Inquiry(master.address, until_patience_ends(), 0), 2000, False)


# --- Slaves ----------------------------------------------------------------------------------------------------------


@contextmanager
def following(
    store: Path,
    master: tuple[str, int],
    *,
    start: str | int | None = None,
    file_size: int | None = None,
    asked: Callable[[CommitLog], None] = lambda _: None,
) -> Iterator[CommitLog]:
    """Run a slave in a thread, built as the command builds it. Gives its log.

    Args:  asked: called each time the slave has asked its master, before it connects.
    """
    stopped = threading.Event()
    failed: list[BaseException] = []
    with (
        FreshStore(store, start, 0, file_size, learns=True) as fresh,
        CommitLog.open(store, file_size=file_size) as log,
    ):
        intervals = Settings(log.file_size, ha_send_heartbeat_interval_ms=100, adopts_file_size=file_size is None)
        follower = Follower(log, *master, intervals, PROFILES["hardened"])

        def prepare() -> bool:
            is_prepared = fresh.prepare(log, master, stopped.is_set)
            asked(log)
            return is_prepared

        def run() -> None:
            try:
                follower.run(stopped.is_set, prepare)
            except RocketmqHaError as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield log
        finally:
            stopped.set()
            await_end(thread)
    if failed:
        raise failed[0]


def assert_same_logs(ours: Path, theirs: Path, start: int) -> None:
    with LogReader(ours) as a, LogReader(theirs) as b:
        a.walk()
        b.walk()
        assert (a.file_size, a.min_offset, a.max_offset) == (b.file_size, start, b.max_offset)
        assert compare(a, b).difference is None


@pytest.mark.parametrize("file_size", [1000, 4099])
@pytest.mark.parametrize(("start", "base"), [(None, 5), ("last", 5), ("min", 2), (3, 3), (5, 5)])
def test_a_slave_without_a_size_takes_the_masters(tmp_path: Path, file_size: int, start: str | int | None, base: int) -> None:
    """HA-S-96 "MUST learn the size of its master's files before it asks for data that it keeps". start: also in files."""
    store, slave = fill(tmp_path / "a", file_size, 5), tmp_path / "b"
    delete_log_files(store, 2 * file_size)
    begin = start * file_size + 7 if isinstance(start, int) else start
    with serving(store, file_size) as master, following(slave, master.address, start=begin) as log:
        wait_for(lambda: log.max_offset == master.service.log.max_offset)
        assert log.file_size == file_size
        last_size = log.file_size
        for _ in range(20):  # into the next file
            master.put(Message("topic", bytes(last_size // 4)), wait=False)
        wait_for(lambda: log.max_offset == master.service.log.max_offset)
    assert_same_logs(slave, store, base * file_size)


def slave(store: Path, master: str, *more: object) -> str:
    """The last line of `slave`, which ends with status 2 and has created nothing."""
    arguments = ("slave", "--store", store, "--master", master, "--settle", 0, *more)
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert not store.exists()
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("start", [(), ("--from", "last"), ("--from", "min"), ("--from", "2500")])
@pytest.mark.parametrize("told", [2000, 500, 1001, GIB])
def test_a_slave_that_was_told_another_size_stops_before_it_takes_a_byte(
    tmp_path: Path, start: tuple[str, ...], told: int
) -> None:
    """HA-S-98 "MUST stop in one error that names both sizes"."""
    with serving(fill(tmp_path / "a", 1000, 4), 1000) as master:
        address = address_of(master)
        line = slave(tmp_path / "b", address, "--file-size", told, *start)
    assert line == f"rocketmq-ha: {address}: the master's files are of 1000 bytes, not of {told}; --file-size must be theirs"


def test_a_master_that_has_its_last_file_alone_cannot_tell(tmp_path: Path) -> None:
    """HA-S-97 "the slave MUST stop in one error that asks for the size"."""
    store = fill(tmp_path / "a", 1000, 4)
    delete_log_files(store, 4000)
    why = "it has nothing before its last file, which begins at 4000"
    with serving(store, 1000) as master:
        address = address_of(master)
        for start in ((), ("--from", "min"), ("--from", "4001")):
            told = f"the size of the master's files cannot be learnt: {why}; give it, by --file-size"
            assert slave(tmp_path / "b", address, *start) == f"rocketmq-ha: {address}: {told}"
        told = "the master's files are not of 3000 bytes: its last one begins at 4000; --file-size must be theirs"
        assert slave(tmp_path / "b", address, "--file-size", 3000) == f"rocketmq-ha: {address}: {told}"
        with following(tmp_path / "c", master.address, file_size=1000) as log:
            wait_for(lambda: log.max_offset == master.service.log.max_offset)


def test_the_default_size_is_taken_on_trial_where_the_last_file_may_have_it() -> None:
    """HA-S-97 "unless that file begins at a multiple of the default size"."""
    with scripted(lambda asked: frame(3 * GIB, b"") if asked == 0 else b"") as (address, _):
        search = FreshStart(address, None, until_patience_ends(), 0)
        assert search.find("last") == (None, None)
        assert search.find("min") == (3 * GIB, None)


@pytest.mark.parametrize("start", ["last", "min"])
@pytest.mark.parametrize("told", [500, 2000, 4000, 3000])
def test_a_given_size_is_checked_with_the_master_even_if_its_last_file_is_new(tmp_path: Path, start: str, told: int) -> None:
    """HA-S-98 "before it asks for data that it keeps": also where 500, 2000 and 4000 divide the start of the last file. The
    slave waits first, so it acknowledges no put that may still wait (HA-S-85).
    """
    store = fill(tmp_path / "a", 1000, 4, stored_ms=time.time_ns() // 1_000_000)
    reports: list[tuple[float, int]] = []
    with serving(store, 1000, "hardened", lambda offset: reports.append((time.monotonic(), offset))) as master:
        began = time.monotonic()
        with pytest.raises(WrongFileSize, match=f"of 1000 bytes, not of {told}"):
            FreshStart(master.address, told, until_patience_ends(), 0.2).find(start)
        assert FreshStart(master.address, 1000, until_patience_ends(), 0).find("last") == (None, 1000)
    assert all(at >= began + 0.2 for at, offset in reports if offset > 0)


def test_a_master_that_rolls_after_it_was_asked_is_asked_again(tmp_path: Path) -> None:
    """HA-S-99 "MUST ask anew before each connect": the master is in its first file when it is asked, and in a later one when it
    sends.
    """
    store, slave_store = fill(tmp_path / "a", 1000, 0, stored_ms=LONG_AGO_MS), tmp_path / "b"
    answered: list[int] = []
    with serving(store, 1000) as master:

        def roll(log: CommitLog) -> None:
            answered.append(log.file_size)
            while len(answered) == 1 and master.service.log.max_offset < 3100:
                master.put(Message("topic", bytes(200), store_timestamp=LONG_AGO_MS), wait=False)

        with following(slave_store, master.address, asked=roll) as log:
            wait_for(lambda: log.max_offset == master.service.log.max_offset > 3000)
    assert answered[:2] == [GIB, 1000]
    assert_same_logs(slave_store, store, 3000)


@pytest.mark.parametrize("told", [700, 2000])
def test_a_log_that_goes_on_is_compared_by_one_question(tmp_path: Path, told: int) -> None:
    """HA-S-98: the slave's log was begun with another size while the master was in its first file."""
    store, slave_store = fill(tmp_path / "a", 1000, 3), tmp_path / "b"
    with CommitLog.open(slave_store, file_size=told) as log:
        log.append(Message("topic", bytes(10)))
        end = log.max_offset
    with serving(store, 1000) as master:
        arguments = ["slave", "--store", str(slave_store), "--master", address_of(master), "--settle", "0"]
        done = invoke(*arguments, "--file-size", str(told))
    assert done.exit_code == 2
    line = done.stderr.splitlines()[-1]
    assert f"found 1000 bytes each, expected {told}, as this store's are" in line
    assert line.endswith("--file-size 1000")
    with CommitLog.open(slave_store) as log:
        assert (log.file_size, log.max_offset) == (told, end)


def test_each_question_comes_from_the_address_that_bind_says(tmp_path: Path) -> None:
    store = fill(tmp_path / "a", 1000, 4)
    delete_log_files(store, 1000)
    peers: set[str] = set()
    with serving(store, 1000) as master:
        search = FreshStart(master.address, None, until_patience_ends(), 0, source_address=("127.0.0.2", 0))
        seen = threading.Event()

        def watch() -> None:
            while not seen.is_set():
                peers.update(conn.peer.rpartition(":")[0] for conn in master.service.connections)

        watching = threading.Thread(target=watch, daemon=True)
        watching.start()
        try:
            for start in ("min", "last", 1500, 4001):
                assert search.find(start).file_size == 1000
        finally:
            seen.set()
            await_end(watching)
    assert peers == {"127.0.0.2"}


# --- Masters that lie ------------------------------------------------------------------------------------------------


def frame(offset: int, body: bytes) -> bytes:
    return HEADER.pack(offset, len(body)) + body


@contextmanager
def scripted(answer: Callable[[int], bytes]) -> Iterator[tuple[tuple[str, int], list[int]]]:
    """A peer that answers a first report, then stays silent or closes at once.

    Gives its address, and the reports that it got.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[int] = []
    kept: list[socket.socket] = []

    def talk() -> None:
        while True:
            try:
                sock = accepted(listener)
            except OSError:
                return
            (offset,) = REPORT.unpack(sock.recv(8))
            asked.append(offset)
            if data := answer(offset):
                sock.sendall(data)
                kept.append(sock)
            else:
                sock.close()

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    try:
        yield listener.getsockname(), asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for sock in kept:
            sock.close()
        await_end(thread)


RECORD_LONG_AGO = bytes(56) + LONG_AGO_MS.to_bytes(8, "big") + bytes(12)
LAST = 720_720 * 4096


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        (lambda asked: frame(asked, b"x"), WrongFileSize, "byte by byte"),
        (lambda asked: frame(asked, b"xy"), PeerViolation, "no size fits"),
        (lambda asked: frame(asked + 1, b"xy"), PeerViolation, f"a frame at offset {LAST - 1}, expected offset {LAST - 2}"),
        (
            lambda asked: frame(asked, b"x" * (1 + (asked * 7919 >> 3) % 2)),
            RocketmqHaError,
            "master's files|no size fits",
        ),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n", PeerViolation, "body size"),
    ],
    ids=["one byte each", "two bytes each", "elsewhere", "by chance", "another service"],
)
def test_a_master_that_lies_is_one_line_after_some_questions(
    answer: Callable[[int], bytes], error: type[Exception], told: str
) -> None:
    with (
        scripted(lambda asked: frame(LAST, RECORD_LONG_AGO) if asked == 0 else answer(asked)) as (address, asked),
        pytest.raises(error, match=told) as caught,
    ):
        FreshStart(address, None, until_patience_ends(), 0).find("last")
    assert "\n" not in str(caught.value)
    assert len(asked) <= MOST_QUESTIONS + 2
