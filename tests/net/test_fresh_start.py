"""`slave --from`: a store without a log begins at the given place, with any master, or else stays unchanged."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.command_line import COMMAND, invoke
from kit.files import delete_log_files, end_of
from kit.nodes import follow, serving
from kit.scrapes import get
from kit.sockets import kept_port
from kit.waiting import PATIENCE_S, accepted, await_end, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.errors import PeerViolation
from rocketmq_ha.impl.net import feed
from rocketmq_ha.impl.net.feed import FeedEnded, MasterFeed, OutOfRange, Stopped, Unreachable
from rocketmq_ha.impl.net.fresh import FreshStart, NoSuchStart, WrongFileSize
from rocketmq_ha.impl.net.open_feed import open_old
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.net.status_socket import ask
from rocketmq_ha.impl.net.tls_ends import ClientTls
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import compare
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message, encode

FILE_SIZE = 4096
PROFILES = ("classic", "hardened")
LONG_AGO_MS = 1_700_000_000_000  # so old that no put can still wait


@pytest.fixture(autouse=True)
def no_data_is_seen_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for deleted data, for which a classic master sends nothing.

    At a heartbeat every 100 ms, 0.7 s are enough.
    """
    monkeypatch.setattr(feed, "_DATA_AFTER_HEARTBEAT_S", 0.7)


def fill(store: Path, count: int = 60, *, stored_ms: int = LONG_AGO_MS) -> Path:
    """Put messages of about 330 bytes: ten in a file."""
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        for index in range(count):
            log.append(Message("topic", b"%3d" % index * 80, queue_id=index % 4, store_timestamp=stored_ms))
    return store


def last_file_of(store: Path) -> int:
    return max(int(path.name) for path in (store / "commitlog").iterdir())


def find(master: Master | tuple[str, int], start: str | int, file_size: int = FILE_SIZE, settle_s: float = 0) -> int:
    address = master.address if isinstance(master, Master) else master
    until = time.monotonic() + PATIENCE_S
    base, found_size = FreshStart(address, file_size, lambda: time.monotonic() > until, settle_s).find(start)
    assert found_size in (None, file_size)
    assert base is not None
    return base


# --- The store -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [FILE_SIZE, 7 * FILE_SIZE])
def test_a_log_that_begins_at_a_file_reports_its_start(tmp_path: Path, base: int) -> None:
    """HA-S-81 "MUST make that file, empty, and nothing else"."""
    with CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as log:
        log.begin_at(base)
        assert (log.min_offset, log.max_offset, log.flush()) == (base, base, base)
        assert [path.name for path in (tmp_path / "s/commitlog").iterdir()] == [f"{base:020d}"]
        log.append_data(base, [memoryview(b"x")])
        assert log.max_offset == base + 1


def test_a_log_that_begins_at_0_reports_1(tmp_path: Path) -> None:
    """HA-S-82 "MUST hold one byte, the byte 0x00, the first of a record's size"."""
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        log.begin_at(0)
        assert (log.min_offset, log.max_offset, bytes(log.data_at(0, 9) or b"")) == (0, 1, b"\0")
        record = encode(Message("t", b"body"))
        assert record[:1] == b"\0"
        log.append_data(1, [memoryview(record)[1:]])
        assert [message.body for _, _, message in log.records()] == [b"body"]


@pytest.mark.parametrize("clear_tail", [True, False])
def test_a_prepared_store_is_opened_as_one_without_a_log_and_prepared_anew(tmp_path: Path, clear_tail: bool) -> None:
    """HA-S-80: repeatedly, at any start, and after any part of a first record."""
    part = encode(Message("t", b"body" * 40, physical_offset=FILE_SIZE))[:100]
    for base, data in ((FILE_SIZE, b""), (0, b""), (0, part[1:]), (FILE_SIZE, part), (2 * FILE_SIZE, b""), (FILE_SIZE, b"")):
        with CommitLog.open(tmp_path, file_size=FILE_SIZE, clear_tail=clear_tail) as log:
            assert log.max_offset == log.min_offset
            if clear_tail:
                assert not list((tmp_path / "commitlog").iterdir())
            log.begin_at(base)
            assert (log.min_offset, log.max_offset) == (base, base or 1)
            if data:
                log.append_data(log.max_offset, [memoryview(data)])
    with CommitLog.open(tmp_path, file_size=FILE_SIZE, clear_tail=clear_tail) as log:
        assert log.max_offset == log.min_offset


# --- Finding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
def test_the_first_file_is_found(tmp_path: Path, profile: str) -> None:
    store = fill(tmp_path / "a")
    last_file = last_file_of(store)
    assert last_file >= 4 * FILE_SIZE
    # Each deleted file costs the reader of a classic master 0.7 s.
    for first in (0, 2 * FILE_SIZE) if profile == "classic" else range(0, last_file + 1, FILE_SIZE):
        delete_log_files(store, first)
        with serving(store, FILE_SIZE, profile) as master:
            assert find(master, "min") == first


@pytest.mark.parametrize("profile", PROFILES)
def test_an_offset_means_the_start_of_its_file(tmp_path: Path, profile: str) -> None:
    """HA-S-84 "An offset inside a file MUST mean the start of that file"."""
    store, end = fill(tmp_path / "a"), end_of(tmp_path / "a")
    last_file = last_file_of(store)
    reports: set[int] = set()
    with serving(store, FILE_SIZE, profile, reports.add) as master:
        for offset in (0, 1, FILE_SIZE - 1, FILE_SIZE, 2 * FILE_SIZE + 77, last_file - 1, last_file, last_file + 5, end):
            assert find(master, offset) == offset - offset % FILE_SIZE
    assert max(reports) < last_file  # HA-S-85 "MUST NOT report an offset that a put of the master may still wait for"


@pytest.mark.parametrize("profile", PROFILES)
def test_what_the_master_does_not_have_is_one_error(tmp_path: Path, profile: str) -> None:
    """HA-S-83 "beyond the master's end, or that the master has deleted, or that is no start of one of its files"."""
    store, end = fill(tmp_path / "a"), end_of(tmp_path / "a")
    delete_log_files(store, 2 * FILE_SIZE)
    with serving(store, FILE_SIZE, profile) as master:
        for offset, told in (
            (end + 1, f"offset {end + 1} is beyond the master's end, {end}"),
            (last_file_of(store) + FILE_SIZE, "is beyond the master's end: its last file begins at"),
            (1 << 60, "is beyond the master's end: its last file begins at"),
            (0, "it has deleted the file of offset 0"),
            (2 * FILE_SIZE - 1, f"it has deleted the file of offset {2 * FILE_SIZE - 1}"),
        ):
            with pytest.raises(NoSuchStart, match=told):
                find(master, offset)
        assert find(master, 2 * FILE_SIZE) == 2 * FILE_SIZE


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("gone", [0, 1, 3])
def test_files_of_another_size_are_found_out(tmp_path: Path, profile: str, gone: int) -> None:
    """HA-W-4 "MUST NOT cross the end of a commit-log file": so frames show where a file ends."""
    store, count = tmp_path / "a", 60
    while not (store / "commitlog").is_dir() or last_file_of(store) < 12 * FILE_SIZE:
        fill(store, count)
        count = 4
    delete_log_files(store, gone * FILE_SIZE)
    last_file = last_file_of(store)
    assert last_file == 12 * FILE_SIZE
    with serving(store, FILE_SIZE, profile) as master:
        sizes = (FILE_SIZE // 2, FILE_SIZE // 8, 2 * FILE_SIZE, 3 * FILE_SIZE, FILE_SIZE + 1, 1 << 30)
        for size in sizes if profile == "hardened" else sizes[::4]:  # with a classic master each deleted file costs a wait
            for start in ("min", last_file - 10):
                told = f"files are of {FILE_SIZE} bytes, not of {size}; --file-size must be theirs"
                with pytest.raises(WrongFileSize, match=told):
                    find(master, start, size)


def test_files_of_another_size_are_found_out_where_only_two_are_left(tmp_path: Path) -> None:
    store = fill(tmp_path / "a")
    last_file = last_file_of(store)
    delete_log_files(store, last_file - FILE_SIZE)
    with serving(store, FILE_SIZE) as master:
        assert find(master, "min") == last_file - FILE_SIZE
        for size in (FILE_SIZE // 2, last_file):
            with pytest.raises(WrongFileSize, match=f"files are of {FILE_SIZE} bytes, not of {size};"):
                find(master, "min", size)


def test_an_empty_master_is_waited_for(tmp_path: Path) -> None:
    with serving(tmp_path / "a", FILE_SIZE) as master:
        found: list[int] = []
        finding = [
            threading.Thread(target=lambda start=start: found.append(find(master, start)), daemon=True) for start in ("min", 0)
        ]
        for thread in finding:
            thread.start()
        wait_for(lambda: sum(conn.slave_request_offset == 0 for conn in master.service.connections) == 2)
        assert not found
        with pytest.raises(NoSuchStart, match="offset 7 is beyond the master's end, 0"):
            find(master, 7)
        master.put(Message("T", b"first"), wait=False)
        for thread in finding:
            await_end(thread)
        assert found == [0, 0]


def test_who_is_told_to_stop_stops(tmp_path: Path) -> None:
    with serving(tmp_path / "a", FILE_SIZE) as master:
        until = time.monotonic() + 0.3
        with pytest.raises(Stopped):
            FreshStart(master.address, FILE_SIZE, lambda: time.monotonic() > until).find("min")


def test_a_file_that_was_just_begun_is_waited_for(tmp_path: Path) -> None:
    """HA-S-85 "MUST NOT report an offset that a put of the master may still wait for": a put in the file before may wait."""
    store = fill(tmp_path / "a", stored_ms=time.time_ns() // 1_000_000)
    reports: list[tuple[float, int]] = []
    with serving(store, FILE_SIZE, on_report=lambda offset: reports.append((time.monotonic(), offset))) as master:
        began = time.monotonic()
        assert find(master, "min", settle_s=1.5) == 0
    assert all(offset <= 0 for at, offset in reports if at < began + 1.5)
    assert any(offset > 0 for _, offset in reports)


# --- Peers that are no masters, and masters that go away
# ---------------------------------------------------------------------------------------


@pytest.fixture
def scripted() -> Iterator[Callable[[dict[int, bytes]], tuple[str, int]]]:
    """Return a factory for peers that answer a first report from a table, then stay silent; they close on other reports."""
    listeners: list[socket.socket] = []

    def make(answers: dict[int, bytes]) -> tuple[str, int]:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        kept = []

        def talk() -> None:
            while True:
                try:
                    sock = accepted(listener)
                except OSError:
                    return
                (asked,) = REPORT.unpack(sock.recv(8))
                if asked in answers:
                    sock.sendall(answers[asked])
                    kept.append(sock)
                else:
                    sock.close()

        threading.Thread(target=talk, daemon=True).start()
        host, port = listener.getsockname()
        return host, port

    yield make
    for listener in listeners:
        listener.close()


def frame(offset: int, body: bytes) -> bytes:
    return HEADER.pack(offset, len(body)) + body


def test_a_peer_that_lies_is_not_believed(scripted: Callable[[dict[int, bytes]], tuple[str, int]]) -> None:
    record = encode(Message("t", b"x" * 50, physical_offset=0, store_timestamp=LONG_AGO_MS))
    last = frame(FILE_SIZE, encode(Message("t", b"y" * 50, physical_offset=FILE_SIZE, store_timestamp=LONG_AGO_MS)))
    border = {0: last, FILE_SIZE - 1: frame(FILE_SIZE - 1, b"\0"), FILE_SIZE // 2 - 1: frame(FILE_SIZE // 2 - 1, b"ab")}
    assert find(scripted(border | {1: frame(1, record[1:])}), "min") == 0
    assert find(scripted(border | {1: frame(1, record[1:7]) + frame(7, b"") + frame(7, record[7:])}), 0) == 0
    with pytest.raises(NoSuchStart, match=r"no log can begin at 0: .*magic"):
        find(scripted(border | {1: frame(1, bytes(200))}), "min")
    with pytest.raises(PeerViolation, match="a frame at offset 5, expected offset 1"):
        find(scripted(border | {1: frame(5, record[5:])}), "min")
    with pytest.raises(NoSuchStart, match=r"body CRC"):
        find(scripted(border | {1: frame(1, record[1:-20] + b"z" + record[-19:])}), "min")
    # HA-S-82 "whose first record is of 16 MiB or more MUST be refused".
    large = encode(Message("t", bytes(1 << 24), physical_offset=0), max_body_size=1 << 25)
    with pytest.raises(NoSuchStart, match="no log can begin at 0: "):
        find(scripted(border | {1: frame(1, large[1:3000])}), "min")
    with pytest.raises(NoSuchStart, match=r"no log can begin at 0: .*found 0x01, the first byte of a size"):
        find(scripted({0: frame(0, large[:1])}), "min")
    with pytest.raises(FeedEnded, match="closed the connection"):
        find(scripted({}), "min")
    with pytest.raises(PeerViolation):
        find(scripted({0: b"HTTP/1.1 400 Bad Request\r\n"}), "min")


def test_a_master_that_was_away_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A deleted file looks like a master that is just starting, so the slave asks a second time."""
    store = fill(tmp_path / "a")
    with serving(store, FILE_SIZE) as master:
        from rocketmq_ha.impl.net import fresh

        found = fresh.find_min

        def away_for_a_moment(*_: object, **__: object) -> object:
            feed = open_old(master.address, 3 * FILE_SIZE, lambda: False)
            monkeypatch.setattr(fresh, "find_min", found)
            return feed

        monkeypatch.setattr(fresh, "find_min", away_for_a_moment)
        with pytest.raises(FeedEnded, match=f"what it did not have before offset {3 * FILE_SIZE} is there"):
            find(master, "min")
        assert find(master, "min") == 0


@pytest.mark.parametrize("start", ["min", 2 * FILE_SIZE])
def test_what_a_master_does_not_send_once_it_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, start: str | int
) -> None:
    store = fill(tmp_path / "a")
    with serving(store, FILE_SIZE) as master:
        from rocketmq_ha.impl.net import inquiry

        last_file, asked = last_file_of(store), set[int]()

        def not_the_first_time(
            address: tuple[str, int],
            offset: int,
            stopped: Callable[[], bool],
            tls: ClientTls | None,
            source_address: tuple[str, int] | None,
        ) -> MasterFeed:
            if offset not in asked and offset in (last_file - 2, start):
                asked.add(offset)
                raise OutOfRange("peer", offset, "it closes")
            return open_old(address, offset, stopped, tls=tls, source_address=source_address)

        monkeypatch.setattr(inquiry, "open_old", not_the_first_time)
        assert find(master, start) == (0 if start == "min" else start)
    assert asked == {last_file - 2, start} - {"min"}


def test_nobody_there_is_said() -> None:
    with kept_port() as address, pytest.raises(Unreachable):
        find(address, "min")


# --- Processes -------------------------------------------------------------------------------------------------------


def assert_same_logs(ours: Path, theirs: Path, start: int) -> None:
    with LogReader(ours) as a, LogReader(theirs) as b:
        a.walk()
        b.walk()
        found = compare(a, b)
        assert (a.min_offset, a.max_offset) == (start, b.max_offset)
        assert (found.start, found.stop, found.difference) == (start, b.max_offset, None)


def address_of(master: Master) -> str:
    return f"127.0.0.1:{master.address[1]}"


# Reports ten times a second: a classic slave first reports after an interval.
SIZED = ("--file-size", str(FILE_SIZE), "--ha-send-heartbeat-interval", "100")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_slave_has_all_from_where_it_was_told_to_begin(tmp_path: Path, nodes: ExitStack, profile: str) -> None:
    store = fill(tmp_path / "a")
    with serving(store, FILE_SIZE, profile) as master:
        ends = master.service.log.max_offset
        for number, (start, base) in enumerate((("min", 0), (0, 0), (FILE_SIZE + 1, FILE_SIZE), ("last", last_file_of(store)))):
            slave = tmp_path / f"b{number}"
            node = follow(nodes, slave, address_of(master), *SIZED, "--from", str(start), "--profile", profile)
            wait_for(lambda slave=slave: end_of(slave) == ends)
            assert node.stop() == 0
            assert_same_logs(slave, store, base)
        assert f"its log begins with the master's file {FILE_SIZE}, which holds offset {FILE_SIZE + 1}" in (
            tmp_path / "b2.log"
        ).read_text("utf-8")


def test_the_option_may_stay_for_later_starts(tmp_path: Path, nodes: ExitStack) -> None:
    """HA-S-80 "a log that holds a record MUST go on where it ends, whatever the slave is told"."""
    store, slave = fill(tmp_path / "a"), tmp_path / "b"
    with serving(store, FILE_SIZE) as master:
        for number, start in enumerate(("min", "min", "last", str(3 * FILE_SIZE), str(1 << 60))):
            node = follow(nodes, slave, address_of(master), "--from", start, *SIZED)
            wait_for(lambda: end_of(slave) == end_of(store))
            wait_for(lambda n=number: (tmp_path / "b.log").read_text("utf-8").count("means nothing here") == n)
            assert node.stop() == 0
        assert_same_logs(slave, store, 0)
    lines = [line for line in (tmp_path / "b.log").read_text("utf-8").splitlines() if "means nothing here" in line]
    assert len(lines) == 4
    assert f"--from min means nothing here: its log holds 0 to {end_of(store)}, and goes on" in lines[0]


PREPARE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from rocketmq_ha.impl.store.log.commit_log import CommitLog
with CommitLog.open(Path(sys.argv[1]), file_size=int(sys.argv[2])) as log:
    log.begin_at(int(sys.argv[3]))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("profile", PROFILES)
def test_a_kill_before_the_first_data_leaves_a_store_that_starts_again(tmp_path: Path, nodes: ExitStack, profile: str) -> None:
    """It starts at the same place, or at another if the option says so now."""
    store = fill(tmp_path / "a")
    with serving(store, FILE_SIZE) as master:
        for number, (base, start) in enumerate(
            ((0, 0), (FILE_SIZE, FILE_SIZE), (2 * FILE_SIZE, 0), (0, FILE_SIZE), (FILE_SIZE, 3 * FILE_SIZE))
        ):
            slave = tmp_path / f"b{number}"
            command = [sys.executable, "-c", PREPARE_AND_DIE, str(slave), str(FILE_SIZE), str(base)]
            assert subprocess.run(command, check=False, timeout=PATIENCE_S).returncode == -signal.SIGKILL
            assert [path.name for path in (slave / "commitlog").iterdir()] == [f"{base:020d}"]
            node = follow(nodes, slave, address_of(master), *SIZED, "--from", str(start), "--profile", profile)
            wait_for(lambda slave=slave: end_of(slave) == end_of(store))
            assert node.stop() == 0
            assert_same_logs(slave, store, start)


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("made", [(), ("b",), ("b", "b/commitlog"), ("b", "b/lock"), ("b", "b/other")])
def test_an_error_leaves_the_store_as_it_was(tmp_path: Path, made: tuple[str, ...]) -> None:
    store = fill(tmp_path / "a")
    for name in made:
        (tmp_path / name).touch() if name == "b/lock" else (tmp_path / name).mkdir()
    with serving(store, FILE_SIZE) as master:
        address, before = address_of(master), contents(tmp_path)
        command = [*COMMAND, "slave", "--store", str(tmp_path / "b")]
        command += ["--master", address, *SIZED, "--from", str(1 << 40)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        after = contents(tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"rocketmq-ha: {address}: offset {1 << 40} is beyond the master's end: its last file begins")
    assert after == before


def test_a_slave_waits_for_its_master_and_tells_how_it_stands_meanwhile(tmp_path: Path, nodes: ExitStack) -> None:
    store, slave = fill(tmp_path / "a"), tmp_path / "b"
    address = "{}:{}".format(*nodes.enter_context(kept_port()))
    node = follow(nodes, slave, address, "--from", "min", *SIZED)
    wait_for(lambda: "cannot connect: Connection refused; trying again" in (tmp_path / "b.log").read_text("utf-8"))
    told = invoke("status", str(slave))
    assert (told.exit_code, "state    disconnected" in told.stdout) == (0, True), told.output
    serving_node = Node(tmp_path / "a.log", "master", "--store", str(store), "--listen", address)
    nodes.callback(serving_node.stop)
    wait_for(lambda: end_of(slave) == end_of(store))
    node.stop()
    assert_same_logs(slave, store, 0)


def test_a_slave_that_waits_can_be_stopped(tmp_path: Path, nodes: ExitStack) -> None:
    with serving(tmp_path / "a", FILE_SIZE) as master:
        node = follow(nodes, tmp_path / "b", address_of(master), "--from", "min", *SIZED, "--metrics", "127.0.0.1:0")
        wait_for(lambda: "waiting for its first message" in (tmp_path / "b.log").read_text("utf-8"))
        at, waiting = node.line("metrics"), "waiting for the master's first message"
        wait_for(lambda: ask(tmp_path / "b")["state"] == waiting)
        assert f"state    {waiting}\n" in invoke("status", str(tmp_path / "b")).stdout
        wait_for(lambda: "\nrocketmq_ha_connected 1.0\n" in get(at, "/metrics")[1])
        wait_for(lambda: get(at, "/readyz") == (503, waiting + "\n"))
        assert node.stop() == 0
    assert not list((tmp_path / "b" / "commitlog").iterdir())


def test_a_word_that_is_none_is_told(tmp_path: Path) -> None:
    for word in ("first", "-1", "end", str(1 << 63), ""):
        done = invoke("slave", "--store", str(tmp_path / "b"), "--master", "h:1", "--from", word)
        assert done.exit_code == 2
        assert "--from" in done.stderr
        assert "expected last, min or a commit-log offset" in done.stderr
    config = tmp_path / "ha.toml"
    config.write_text(f'store = "{tmp_path}/b"\n[slave]\nmaster = "h:1"\nfrom = "first"\n')
    done = invoke("slave", "--config", str(config))
    assert f"{config}: from = 'first': 'first': expected last, min or a commit-log offset" in done.stderr
