"""A slave with another file size adopts its master's, or stops, before its log holds bytes that recovery would refuse."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kit.command_line import run
from kit.files import log_files
from kit.nodes import follow, serve, serving
from kit.waiting import wait_for
from rocketmq_ha.impl.errors import FileSizeDiffers, PeerViolation
from rocketmq_ha.impl.ha.file_size import Shows, Walk
from rocketmq_ha.impl.ha.slave import SlaveClient
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.wire.frame import HEADER
from rocketmq_ha.impl.wire.message import Message, encode
from rocketmq_ha.reference import file_size as model
from rocketmq_ha.reference import invariants, store
from rocketmq_ha.reference.cluster import new_cluster, step
from rocketmq_ha.reference.events import Connect, DeliverFrames, DeliverReports, Event, Put
from rocketmq_ha.reference.store import Log
from rocketmq_ha.spec.constants import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile, Settings

MAGIC, BLANK = MESSAGE_MAGIC_CODE, BLANK_MAGIC_CODE
ALL = 1 << 18

# --- The walk --------------------------------------------------------------------------------------------------------


def laid(heads: list[tuple[int, int]]) -> bytes:
    """Records and BLANKs with these (size, magic); an impossible size makes a head alone."""
    return b"".join(
        (size & 0xFFFFFFFF).to_bytes(4, "big") + magic.to_bytes(4, "big") + b"\1" * max(0, min(size, 2000) - 8)
        for size, magic in heads
    )


RECORDS = st.lists(
    st.tuples(st.sampled_from((92, 100, 100, 100, 150)), st.sampled_from((MAGIC, MAGIC, MAGIC, MESSAGE_MAGIC_CODE_V2))),
    max_size=30,
)
LAST = st.sampled_from(
    ([], [(8, BLANK)], [(300, BLANK)], [(7, BLANK)], [(91, MAGIC)], [(1 << 30, MAGIC)], [(-1, MAGIC)], [(0, 0)], [(99, 7)])
)


@example([(100, MAGIC)] * 10, [(24, BLANK)], 1024, [])  # files that end as they should
@example([(100, MAGIC)] * 10, [(23, BLANK)], 1024, [1003, 1007])
@example([(100, MAGIC)] * 11, [], 1107, [])  # a record with 7 bytes to spare
@example([(100, MAGIC)] * 11, [], 1108, [])
@hypothesis_settings(max_examples=300)
@given(RECORDS, LAST, st.integers(200, 3200), st.lists(st.integers(0, 3300)))
def test_the_walk_sees_what_the_model_sees_however_the_bytes_come(
    records: list[tuple[int, int]], last: list[tuple[int, int]], file_size: int, cuts: list[int]
) -> None:
    """HA-S-90 "MUST walk the heads of the records that it is sent"; HA-S-93 "MUST end the walk and nothing else"."""
    data = laid([*records, *last])[:file_size]
    walk, ended, at = Walk(file_size), None, 0
    for stop in sorted({*(cut for cut in cuts if cut < len(data)), len(data)}):
        if ended is None:
            ended = walk.take(b"?" * 5 + data[at:stop] + b"?" * 5, 5, 5 + stop - at)
        at = stop
    expected = model.walk(Log(file_size), data)
    if ended is None:
        assert (walk.position, walk.end) == (expected.position, len(data))
    else:
        assert ended.position == expected.position
        assert ended.size == expected.size
    assert (ended is not None and ended.shows is Shows.SAME) == expected.is_same
    assert (ended is not None and ended.shows is Shows.OTHER) == expected.differs


@pytest.mark.parametrize("count", [4, 5, 47, 48, 49, 255, 256, 257, 300])
def test_a_head_that_differs_is_seen_in_a_run_of_any_length(count: int) -> None:
    """Heads alike are compared many at a time, in one way if they are few and in another if they are many.

    Each byte of the first, of the second, of the middle and of the last head is changed, and all bytes come at once.
    """
    data = laid([(100, MAGIC)] * count + [(60, BLANK)])
    for record in (0, 1, count // 2, count - 1):
        for at in range(8):
            changed = bytearray(data)
            changed[record * 100 + at] ^= 1
            walk = Walk(len(data))
            ended, expected = walk.take(bytes(changed), 0, len(data)), model.walk(Log(len(data)), bytes(changed))
            shown = Shows.SAME if expected.is_same else Shows.OTHER if expected.differs else None
            found = (walk.position, None) if ended is None else (ended.position, ended.size)
            assert found == (expected.position, expected.size), (record, at)
            assert (None if ended is None or ended.shows is Shows.NOTHING else ended.shows) == shown, (record, at)


# --- The slave -------------------------------------------------------------------------------------------------------


def records_of(count: int, size: int = 100, base: int = 0) -> bytes:
    """Consecutive records of one size, encoded from an offset on."""
    return b"".join(encode(Message("t", bytes(size - 93) + b"\1", queue_id=0), n, base + n * size) for n in range(count))


def blank_of(size: int) -> bytes:
    return size.to_bytes(4, "big") + BLANK.to_bytes(4, "big") + bytes(size - 8)


def client_of(log: CommitLog, *, adopts: bool = False, profile: Profile = HARDENED) -> SlaveClient:
    client = SlaveClient("master", log, Settings(log.file_size, adopts_file_size=adopts), profile)
    client.on_connect(0)
    return client


def receive(client: SlaveClient, offset: int, body: bytes) -> None:
    """Deliver one whole frame."""
    frame = HEADER.pack(offset, len(body)) + body
    while frame:
        buffer = client.recv_buffer()
        size = min(len(buffer), len(frame))
        buffer[:size] = frame[:size]
        client.on_frames(size, 0)
        client.dispatch()
        frame = frame[size:]


@pytest.mark.parametrize("cut", [0, 1, 300, 504, 505, 507, 508, 520])
def test_a_slave_that_was_told_no_size_takes_its_masters_by_the_first_blank(tmp_path: Path, cut: int) -> None:
    """HA-S-91 "MUST make its one file as long as the master's are, before it appends that BLANK", wherever the frames end."""
    data = records_of(5) + blank_of(24)
    with CommitLog.open(tmp_path, file_size=1 << 16) as log:
        client = client_of(log, adopts=True)
        for offset, body in ((0, data[:cut]), (cut, data[cut:])):
            if body:
                receive(client, offset, body)
        assert (log.file_size, log.max_offset) == (524, 524)
        receive(client, 524, b"\0")
    with CommitLog.open(tmp_path) as log:
        assert (log.file_size, log.max_offset, len(list(log.records()))) == (524, 524, 5)


def test_it_takes_it_after_a_restart_too(tmp_path: Path) -> None:
    """Also if only a part of the last record had arrived: the slave cuts it off, gets it again, and walks it again."""
    data = records_of(5) + blank_of(24)
    with CommitLog.open(tmp_path, file_size=1 << 16) as log:
        receive(client_of(log, adopts=True), 0, data[:350])
    with CommitLog.open(tmp_path) as log:
        client = client_of(log, adopts=True)
        assert (log.max_offset, client.current_reported_offset, log.file_size) == (300, 200, 1 << 16)
        receive(client, 200, data[200:])  # overlap, rest and BLANK in one frame
        assert (log.file_size, log.max_offset) == (524, 524)


@pytest.mark.parametrize("blank_size", [8, 24])
@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("adopts", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_slave_that_stopped_where_a_file_ends_goes_on(
    tmp_path: Path, blank_size: int, files: int, adopts: bool, restarts: bool
) -> None:
    """HA-S-90 "Until its log holds a full file": exactly one full file is enough, after a reconnect and after a restart."""
    file_size = 500 + blank_size
    end = files * file_size
    data = b"".join(records_of(5, base=base) + blank_of(blank_size) for base in range(0, end, file_size))
    more = records_of(3, base=end)
    with ExitStack() as logs:
        log = logs.enter_context(CommitLog.open(tmp_path, file_size=file_size))
        client = client_of(log, adopts=adopts)
        for base in range(0, end, file_size):
            receive(client, base, data[base : base + file_size])
        assert log.max_offset == end
        if restarts:
            logs.close()
            log = logs.enter_context(CommitLog.open(tmp_path))
        client = client_of(log, adopts=adopts)
        at = client.current_reported_offset
        assert end - file_size < at <= end
        if at < end:
            receive(client, at, data[at:])
        receive(client, end, more)
        assert (log.file_size, log.max_offset) == (file_size, end + len(more))


@pytest.mark.parametrize("cut", [0, 1, 250, 500, 503, 507])
def test_a_slave_that_was_told_a_size_stops_where_a_blank_says_another(tmp_path: Path, cut: int) -> None:
    """HA-S-92 "append nothing from that record on, close the connection, and stop with an error that names both sizes"."""
    data = records_of(5) + blank_of(24)
    with CommitLog.open(tmp_path, file_size=1000) as log:
        client = client_of(log)
        if cut:
            receive(client, 0, data[:cut])
        with pytest.raises(
            FileSizeDiffers, match=r"found 524 bytes each, expected 1000, as this store's are; .* --file-size 524"
        ):
            receive(client, cut, data[cut:])
        assert log.max_offset == max(500, cut)
        # The part of a head that came before stays in the log, and recovery cuts it off.
        client.close_master("file_size")
        client.on_connect(0)
        with pytest.raises(FileSizeDiffers, match="found 524 bytes"):
            receive(client, 400, data[400:])
    with CommitLog.open(tmp_path) as log:
        assert (log.file_size, log.max_offset, len(list(log.records()))) == (1000, 500, 5)


@pytest.mark.parametrize(("file_size", "kept"), [(500, 4), (507, 4), (501, 4), (450, 4), (508, 5)])
@pytest.mark.parametrize("adopts", [False, True])
def test_a_record_that_leaves_too_little_of_the_file_says_that_the_masters_are_longer(
    tmp_path: Path, file_size: int, kept: int, adopts: bool
) -> None:
    """HA-S-90 "where a record leaves less than 8 bytes before that end": a master with this file size would have ended its file
    before the record.
    """
    with CommitLog.open(tmp_path, file_size=file_size) as log:
        client = client_of(log, adopts=adopts)
        frames = [records_of(5)[at : at + 100] for at in range(0, 500, 100)]
        if kept == 5:
            receive(client, 0, b"".join(frames))
        else:
            receive(client, 0, b"".join(frames[:4]))
            with pytest.raises(FileSizeDiffers, match=f"found more than {file_size} bytes each"):
                receive(client, 400, frames[4][: file_size - 400])
        assert (log.max_offset, log.file_size) == (kept * 100, file_size)
    with CommitLog.open(tmp_path) as log:
        assert log.max_offset == kept * 100


@pytest.mark.parametrize(
    ("own", "masters", "told"),
    [
        (1000, 524, "to start anew without --file-size, or with --file-size 524"),
        (1000, None, "to start anew without --file-size"),
        (1 << 30, None, "to start anew with the master's --file-size, while the master has one file alone"),
    ],
)
def test_the_option_is_asked_for_only_where_a_new_store_needs_it(own: int, masters: int | None, told: str) -> None:
    """A new store learns the size, except if the master is in its first file and that is longer than 1 GiB."""
    assert str(FileSizeDiffers("master", own, masters)).endswith(told)


def test_a_frame_that_crosses_the_file_stops_the_slave_only_until_the_size_is_known(tmp_path: Path) -> None:
    """HA-S-90 "or where a frame crosses it"; HA-S-11 "MUST close the connection" once a BLANK has ended the slave's file."""
    with CommitLog.open(tmp_path / "unknown", file_size=524) as log:
        client = client_of(log)
        receive(client, 0, records_of(3))
        with pytest.raises(FileSizeDiffers, match="more than 524"):
            receive(client, 300, bytes(225))
        assert log.max_offset == 300
    with CommitLog.open(tmp_path / "known", file_size=524) as log:
        client = client_of(log)
        receive(client, 0, records_of(5) + blank_of(24)[:10])
        with pytest.raises(PeerViolation, match="HA-S-11"):
            receive(client, 510, bytes(15))
        client.close_master("frame")
        client.on_connect(0)
        receive(client, 400, records_of(5)[400:] + blank_of(24))
        with pytest.raises(PeerViolation, match="HA-S-11"):
            receive(client, 524, bytes(525))


def test_bytes_that_are_no_head_end_the_walk_and_are_appended(tmp_path: Path) -> None:
    """HA-S-93 "they are appended like others", and so are the bytes after them."""
    data = records_of(2) + bytes(16) + blank_of(30)
    with CommitLog.open(tmp_path, file_size=1000) as log:
        receive(client_of(log), 0, data)
        assert log.max_offset == len(data)


def test_a_blank_that_begins_no_multiple_of_the_new_size_is_not_taken(tmp_path: Path) -> None:
    """HA-S-91 "where the file's start is no multiple of the new size, HA-S-92 holds"."""
    with CommitLog.open(tmp_path, file_size=1000) as log:
        with pytest.raises(FileSizeDiffers, match="found 524 bytes"):
            receive(client_of(log, adopts=True), 1000, records_of(5) + blank_of(24))
        assert (log.file_size, log.min_offset, log.max_offset) == (1000, 1000, 1500)


def test_classic_takes_no_notice(tmp_path: Path) -> None:
    """As RocketMQ (quirk 19): a strict recovery refuses the resulting log."""
    with CommitLog.open(tmp_path, file_size=1000) as log:
        receive(client_of(log, profile=CLASSIC), 0, records_of(5) + blank_of(24))
        assert log.max_offset == 524


# --- The model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("slave_file_size", [128, 4096])
def test_what_a_slave_acknowledges_can_be_opened_again(checks: bool, slave_file_size: int) -> None:
    """The invariant `slave_log_opens` holds for a slave with another file size, and breaks if the slave ignores the size."""
    settings = Settings(256, ha_transfer_batch_size=64, slave_file_size=slave_file_size)
    put = Put("T", b"\1" * 20, "", 0, wait=True)
    # Frames of 64 bytes, which end at the ends of the shorter files.
    events: list[Event] = [put, put, Connect(0, ALL, ALL), DeliverReports(0, ALL), put]
    profile, now, broken = replace(HARDENED, checks_file_size=checks), new_cluster(1, settings, HARDENED, 0), set[str]()
    for event in [*events, DeliverFrames(0, ALL), DeliverReports(0, ALL), Connect(0, ALL, ALL)]:
        now, _ = step(now, event, settings, profile)
        broken |= {*invariants.broken(now, settings)}
    assert broken == (set() if checks else {"slave_log_opens"})
    assert store.max_offset(now.slaves[0].log) == (
        min(224, slave_file_size // 112 * 112) if checks else store.max_offset(now.log)
    )


# --- The program -----------------------------------------------------------------------------------------------------


def test_a_slave_without_a_file_size_takes_its_masters_and_can_be_used_afterwards(tmp_path: Path) -> None:
    """600 acknowledged messages of 300 bytes, files of 64 KiB: the slave's store is opened, verified, and then used by a
    master.
    """
    with ExitStack() as nodes:
        more = ("--put", "600", "--size", "300", "--in-flight", "4", "--await-slaves", "1", "--sync-flush-timeout", "60000")
        master, address = serve(nodes, tmp_path / "master", *more, file_size=65536)
        follower = follow(nodes, tmp_path / "slave", address)
        assert "PUT_OK=600" in master.line("put")
        follower.stop()
        again = follow(nodes, tmp_path / "slave", address)
        again.stop()
        master.stop()
    assert f"{tmp_path / 'master'}: commit-log files of 65536 bytes" in (tmp_path / "master.log").read_text()
    assert "its commit-log files are of 65536 bytes; so are ours" in (tmp_path / "slave.log").read_text()
    assert log_files(tmp_path / "slave").keys() == log_files(tmp_path / "master").keys()
    verified = run("verify", str(tmp_path / "master"), str(tmp_path / "slave"))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert run("recover", str(tmp_path / "slave")).returncode == 0
    with ExitStack() as nodes:
        serve(nodes, tmp_path / "slave", file_size=65536)[0].stop()


@pytest.mark.parametrize(
    ("masters", "own", "told"),
    [(65536, 1 << 20, "found 65536 bytes each, expected 1048576"), (8 << 20, 1 << 20, "found more than 1048576 bytes each")],
    ids=["longer than its master's", "shorter than its master's"],
)
def test_a_slave_of_another_file_size_stops_and_its_store_is_as_good_as_before(
    tmp_path: Path, masters: int, own: int, told: str
) -> None:
    """HA-S-92 "stop with an error that names both sizes": exit status 2, one line, no reconnect. The same at the next start,
    where the slave may learn it before it connects (HA-S-98).
    """

    def put(master: Master, count: int) -> int:
        for _ in range(count):
            master.service.log.append(Message("t", b"\1" * 1000))
        return master.service.log.max_offset

    with ExitStack() as nodes, serving(tmp_path / "master", masters) as master:
        host, port = master.address
        end = put(master, 1)
        node = follow(nodes, tmp_path / "slave", f"{host}:{port}", "--file-size", str(own))
        wait_for(lambda: master.service.push2_slave_max_offset == end)  # the slave cannot know the size yet
        put(master, 1300)
        wait_for(lambda: node.status is not None)
        assert node.status == 2
        said = node.log.read_text()
        assert told in said.splitlines()[-1]
        assert "Traceback" not in said
        assert "connection closed" not in said
        again = run("slave", "--store", str(tmp_path / "slave"), "--master", f"{host}:{port}", "--file-size", str(own))
        assert again.returncode == 2, again.stderr
        assert str(own) in again.stderr.splitlines()[-1]
        with LogReader(tmp_path / "slave") as reader:
            reader.walk()
            messages, end = reader.messages, reader.max_offset
        assert messages > 50
    verified = run("verify", str(tmp_path / "slave"))
    assert verified.returncode == 0, verified.stderr
    with CommitLog.open(tmp_path / "slave") as log:
        assert (log.file_size, log.max_offset) == (own, end)
