"""Model and implementation compute the same overlap; over sockets it tells different histories apart."""

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.waiting import PATIENCE_S, accepted, await_end
from rocketmq_ha.impl.errors import OutOfStep, PeerViolation
from rocketmq_ha.impl.ha.overlap import find_overlap, first_difference_from_log
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.client import REFUSALS, Follower
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.reference import overlap, slave, store, wire
from rocketmq_ha.reference.message import Record
from rocketmq_ha.reference.slave import Slave
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

FILE_SIZE = 1024
SETTINGS = Settings(
    FILE_SIZE, ha_send_heartbeat_interval_ms=50, ha_housekeeping_interval_ms=20_000, master_read_buffer_size=4096
)
BOTH = pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: f"{profile.name}-master")


# --- The two agree -----------------------------------------------------------------------------------------------------------


class View:
    """A log of the model behind the interface that the implementation reads."""

    def __init__(self, log: Log) -> None:
        self._log, self.file_size = log, log.file_size

    @property
    def min_offset(self) -> int:
        return store.min_offset(self._log)

    @property
    def max_offset(self) -> int:
        return store.max_offset(self._log)

    def data_at(self, offset: int, limit: int) -> memoryview | None:
        return memoryview(store.data_at(self._log, offset, limit)) or None


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Logs of records or of any bytes, cut anywhere, that begin at any file."""
    log = Log(draw(st.sampled_from((128, 256))), draw(st.sampled_from((0, 256, 1024))))
    for body in draw(st.lists(st.binary(max_size=28), max_size=6)):
        log = store.append_record(log, Record(b"t", body))[0]
    data = log.data + draw(st.just(b"") | st.binary(max_size=200) | st.just(store.blank(40)))
    return Log(log.file_size, log.base, data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@given(log=logs(), near=st.integers(0, 4))
@example(log=Log(128, 0, b""), near=0)
@example(log=Log(128, 256, b"\0"), near=0)
@example(log=Log(128, 0, bytes(300)), near=0)
@example(log=store.append_record(Log(128, 0), Record(b"t", b""))[0], near=0)
def test_model_and_implementation_begin_at_the_same_place(log: Log, near: int) -> None:
    """HA-S-61 "to the start of its last whole record, or of its log where it has none, or to 1 where that is 0"."""
    found = find_overlap(View(log))
    assert (store.max_offset(log) if found is None else found.position) == overlap.first_report(log)
    if found is not None:
        # A hint of a record's offset leads to the same result.
        shorter = find_overlap(View(Log(log.file_size, log.base, log.data[: len(log.data) * near // 4])))
        assert find_overlap(View(log), shorter.record if shorter else 0) == found


@given(log=logs(), changes=st.lists(st.tuples(st.integers(0, 1 << 12), st.integers(1, 255)), max_size=3), sizes=st.data())
def test_model_and_implementation_find_the_same_difference(
    log: Log, changes: list[tuple[int, int]], sizes: st.DataObject
) -> None:
    """HA-S-62 "except the padding of a BLANK (HA-ST-17)"."""
    found = find_overlap(View(log))
    if found is None:
        return
    master = bytearray(log.data[found.position - store.min_offset(log) :])
    for at, change in changes:
        if master:
            master[at % len(master)] ^= change
    while found.position < found.end:
        rest_of_file = log.file_size - found.position % log.file_size
        size = min(sizes.draw(st.integers(1, 200)), rest_of_file, found.end - found.position)
        start = found.position - (found.end - len(master))  # the master's bytes begin where the overlap begins
        body = bytes(master[start : start + size])
        at_byte = first_difference_from_log(View(log), found, memoryview(body))
        assert (at_byte is not None) == overlap.differs(log, found.position, body)
        if at_byte is not None:
            assert found.position <= at_byte < found.position + size
            assert at_byte not in found.padding
            return
        found.position += size


@pytest.mark.parametrize("at", range(92, 128))
@pytest.mark.parametrize("behind", [b"", b"more"], ids=["at the end", "with a part of a record in the next file"])
def test_padding_may_differ_and_the_blank_before_it_may_not(at: int, behind: bytes) -> None:
    """HA-S-62 "except the padding of a BLANK": after a record of 92 bytes, a BLANK of 36 with 28 of padding."""
    whole = store.append_record(Log(128, 128), Record(b"t", b""))[0]
    assert len(whole.data) == 92
    log = Log(128, 128, whole.data + store.blank(36) + behind)
    found = find_overlap(View(log))
    assert found is not None
    master = bytearray(log.data[:128])
    master[at] ^= 1
    is_padding = at >= 92 + 8
    assert overlap.differs(log, 128, bytes(master)) is not is_padding
    assert first_difference_from_log(View(log), found, memoryview(master)) == (None if is_padding else 128 + at)


# --- Over sockets ------------------------------------------------------------------------------------------------------------


def message(index: int, history: str = "one") -> Message:
    return Message("topic", f"{history} {index}".encode().ljust(60), queue_id=0, store_timestamp=index)


def filled(path: Path, *histories: tuple[str, int]) -> bytes:
    """Fill a store with the given numbers of messages of each history. Returns: its log."""
    with CommitLog.open(path, file_size=FILE_SIZE) as log:
        for history, count in histories:
            for index in range(count):
                log.append(message(index, history))
        log.flush()
    return log_of(path)


def log_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))


@contextmanager
def served(path: Path, profile: Profile, delete_before: int = 0) -> Iterator[Master]:
    """Run a master in a thread."""
    stopped = threading.Event()
    with CommitLog.open(path, file_size=FILE_SIZE) as log:
        log.delete_before(delete_before)
        master = Master(log, listen("127.0.0.1", 0), SETTINGS, profile)

        def run() -> None:
            while not stopped.is_set():
                master.poll(20)

        thread = threading.Thread(target=run, name="master", daemon=True)
        thread.start()
        try:
            yield master
        finally:
            stopped.set()
            await_end(thread)
            master.close()


def follow(path: Path, master: Master, until_offset: int | None = None) -> int:
    """Run a hardened slave until its log reaches an offset, or it stops by itself. Returns: its max offset."""
    give_up = time.monotonic() + PATIENCE_S
    with CommitLog.open(path, file_size=FILE_SIZE) as log:
        follower = Follower(log, *master.address, SETTINGS, HARDENED)
        follower.run(lambda: time.monotonic() > give_up or (until_offset is not None and log.max_offset >= until_offset))
        return log.max_offset


@BOTH
def test_a_slave_goes_on_where_its_last_record_is_its_masters(profile: Profile, tmp_path: Path) -> None:
    """HA-S-62 "until they have all come it reports how far it has compared, and appends nothing"."""
    filled(tmp_path / "s", ("one", 15))
    log = filled(tmp_path / "m", ("one", 40))
    with served(tmp_path / "m", profile) as master:
        end = master.service.log.max_offset
        assert follow(tmp_path / "s", master, end) == end
    assert log_of(tmp_path / "s") == log


@BOTH
def test_a_slave_of_another_history_stops_and_keeps_its_log(profile: Profile, tmp_path: Path) -> None:
    """HA-S-62 "Where a byte differs it MUST close the connection, and stop with an error that names the offset" (quirk 9)."""
    before = filled(tmp_path / "s", ("one", 4), ("two", 1))
    filled(tmp_path / "m", ("one", 30))
    with served(tmp_path / "m", profile) as master, pytest.raises(OutOfStep) as caught:
        follow(tmp_path / "s", master)
    record = len(before.rstrip(b"\0")) // 5  # five records of the same size
    offset = next(at for at in range(4 * record, 5 * record) if before[at] != log_of(tmp_path / "m")[at])
    assert f"diverged: the log is another from commit-log offset {offset} on" in str(caught.value)
    assert "rocketmq-ha resync" in str(caught.value)
    assert log_of(tmp_path / "s") == before


@pytest.mark.parametrize("garbled", ["the body", "the size", "a record that is not whole", "nothing: another history"])
def test_a_restart_is_advised_first_where_recovery_cuts_what_differs(garbled: str, tmp_path: Path) -> None:
    """A slave appends garbled bytes (quirk 29). The next open cuts them off, and the slave goes on."""
    whole = filled(tmp_path / "m", ("one", 9))
    size = len(encode(message(0)))
    good = filled(tmp_path / "s", ("one", 4))[: 4 * size]
    record = bytearray(whole[4 * size : 5 * size])
    match garbled:
        case "the body":
            record[-20] ^= 0xFF
        case "the size":
            record[:4] = b"\x7f\xff\xff\xff"
        case "a record that is not whole":
            del record[-9:]
            record[-1] ^= 0xFF
        case _:
            record = bytearray(filled(tmp_path / "other", ("one", 4), ("two", 1))[4 * size : 5 * size])
    is_cut = "history" not in garbled
    with served(tmp_path / "m", HARDENED) as master, CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as log:
        log.append_data(4 * size, [memoryview(record)])
        give_up = time.monotonic() + PATIENCE_S
        with pytest.raises(OutOfStep) as caught:
            Follower(log, *master.address, SETTINGS, HARDENED).run(lambda: time.monotonic() > give_up)
    words = "behind the last message of this store whose CRC holds, and a restart of this slave cuts it off: try that first"
    assert (words in str(caught.value)) == is_cut
    assert "`rocketmq-ha resync` moves this store aside" in str(caught.value)
    with served(tmp_path / "m", HARDENED) as master:
        if is_cut:
            assert follow(tmp_path / "s", master, master.service.log.max_offset) == master.service.log.max_offset
            assert log_of(tmp_path / "s")[: 9 * size] == whole[: 9 * size]
            assert whole.startswith(good)
        else:
            with pytest.raises(OutOfStep, match="diverged"):
                follow(tmp_path / "s", master)


def test_two_heartbeats_where_there_should_be_data_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """HA-S-64: the slave logs a line before it asks for the master's last file, which may take a while."""
    caplog.set_level(logging.WARNING, "rocketmq_ha")
    filled(tmp_path / "s", ("one", 9))
    filled(tmp_path / "m", ("one", 4))
    with served(tmp_path / "m", CLASSIC) as master, pytest.raises(OutOfStep, match="ahead"):
        follow(tmp_path / "s", master)
    told = [line for line in caplog.messages if "two heartbeats in a row, and no data at offset" in line]
    assert len(told) == 1 and "asking where the master's last file begins (HA-S-64)" in told[0]


@BOTH
def test_a_slave_that_is_ahead_stops(profile: Profile, tmp_path: Path) -> None:
    """HA-S-64 "two heartbeats with nothing between them", "closes five connections in a row" (quirk 9)."""
    before = filled(tmp_path / "s", ("one", 9))
    filled(tmp_path / "m", ("one", 4))
    with (
        served(tmp_path / "m", profile) as master,
        pytest.raises(OutOfStep, match=r"ahead: .*last file that begins at 0") as caught,
    ):
        follow(tmp_path / "s", master)
    assert "rocketmq-ha resync" in str(caught.value)
    assert log_of(tmp_path / "s") == before


def follow_behind(tmp_path: Path, stand_in: Callable[[socket.socket], None]) -> None:
    """A slave gets its master's whole log, although a stand-in takes its first connections.

    Args:  stand_in: the stand-in, called with the listening socket. When it returns, the master takes the socket over.
    """
    filled(tmp_path / "s", ("one", 15))
    filled(tmp_path / "m", ("one", 40))
    listener = listen("127.0.0.1", 0)
    stopped = threading.Event()
    with CommitLog.open(tmp_path / "m", file_size=FILE_SIZE) as log:

        def run() -> None:
            stand_in(listener)
            master = Master(log, listener, SETTINGS, HARDENED)
            while not stopped.is_set():
                master.poll(20)
            master.close()

        thread = threading.Thread(target=run, name="master", daemon=True)
        thread.start()
        try:
            with CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as replica:
                follower = Follower(replica, *listener.getsockname(), SETTINGS, HARDENED)
                give_up = time.monotonic() + PATIENCE_S
                follower.run(lambda: replica.max_offset == log.max_offset or time.monotonic() > give_up)
                assert replica.max_offset == log.max_offset
        finally:
            stopped.set()
            await_end(thread)


def test_a_master_that_only_begins_by_closing_does_not_stop_a_slave(tmp_path: Path) -> None:
    """HA-S-64 "then it answers a report of 0; then it closes the next connection too": five closed connections alone prove
    nothing.
    """

    def close_five(listener: socket.socket) -> None:
        for _ in range(REFUSALS):
            sock = accepted(listener)
            while len(sock.recv(8, socket.MSG_WAITALL)) < 8:
                pass
            sock.close()

    follow_behind(tmp_path, close_five)


def test_heartbeats_of_one_that_is_gone_when_the_master_answers_do_not_stop_a_slave(tmp_path: Path) -> None:
    """HA-S-64 "which is still open, and has nothing more compared"."""

    def send_heartbeats(listener: socket.socket) -> None:
        with accepted(listener) as sock:
            report = b""
            while len(report) < 8:
                report += sock.recv(8 - len(report))
            sock.sendall((report + bytes(4)) * 4096)
            select.select([listener], [], [], PATIENCE_S)  # the slave asks on another connection

    follow_behind(tmp_path, send_heartbeats)


@BOTH
def test_a_slave_whose_file_is_deleted_stops(profile: Profile, tmp_path: Path) -> None:
    """HA-S-64 "says where its last record and the master's last file begin" (quirk 7)."""
    filled(tmp_path / "s", ("one", 3))
    filled(tmp_path / "m", ("one", 40))
    with (
        served(tmp_path / "m", profile, delete_before=2 * FILE_SIZE) as master,
        pytest.raises(OutOfStep, match=r"out of range: .*last file that begins at [1-9]"),
    ):
        follow(tmp_path / "s", master)


def test_a_frame_that_is_not_where_the_comparison_stands_closes(tmp_path: Path) -> None:
    """HA-S-63 "a frame whose offset is not where the comparison stands MUST close the connection": in the model and in the
    implementation.
    """
    log = store.append_record(Log(FILE_SIZE, 0), Record(b"t", b"body"))[0]
    frame = wire.pack_header(store.max_offset(log), 1) + b"x"  # a slave that compares nothing would append it
    node = slave.on_connect(Slave(log), 8, 0, HARDENED).state
    assert slave.on_frames(node, frame, 8, 0, SETTINGS, HARDENED).clauses[-2:] == ("HA-S-63", "HA-S-13")

    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as real:
        real.append_data(0, [log.data])
        client = SlaveClient("master", real, SETTINGS, HARDENED)
        client.on_connect(0)
        client.recv_buffer()[: len(frame)] = frame
        client.on_frames(len(frame), 0)
        with pytest.raises(PeerViolation, match="HA-S-63"):
            client.dispatch()
