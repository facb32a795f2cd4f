"""What a slave's loop forgets and keeps from one connection to the next: counts, reasons, refusals, back-off, a full disk."""

import errno
import logging
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.played import error
from kit.stage import FILE_SIZE, MESSAGE, FullableLog, MakeStage, Script, lines
from rocketmq_ha.impl.errors import AppendFailed
from rocketmq_ha.impl.net import client as client_module
from rocketmq_ha.impl.net.feed import FeedEnded, Stopped
from rocketmq_ha.impl.net.tls_record import ALERT
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER
from rocketmq_ha.spec.profile import CLASSIC, Settings

UNHEARD = "end_of_stream, without a byte: see whether the master's --allow names this address, and what its log says"


# --- Counts ---------------------------------------------------------------------------------------------------------------


def test_counts_go_on_over_connections_and_times_are_those_of_the_last(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage()
    follower = stage.follower
    assert (follower.connects, follower.failed_connects, follower.received_bytes, follower.sent_bytes) == (0, 0, 0, 0)
    assert (follower.last_close_reason, follower.last_close, follower.master_subject) == ("", "", "")
    seen = []

    def script() -> Script:
        for _ in range(3):
            yield from stage.life(HEADER.pack(0, 0))
            yield from stage.ended()
            seen.append((follower.connects, follower.received_bytes, follower.sent_bytes, follower.connected_timestamp))

    stage.refusals += [ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")]
    stage.play(script())
    assert [each[:3] for each in seen] == [(1, 12, 8), (2, 24, 16), (3, 36, 24)]
    times = [each[3] for each in seen]
    assert times == sorted(set(times))
    assert (follower.failed_connects, follower.connects) == (1, 3)
    assert f"{stage.peer}: connected at offset 0" in lines(caplog)


def test_a_slave_goes_on_where_its_log_ends_and_counts_what_it_was_sent(make_stage: MakeStage, records: bytes) -> None:
    stage = make_stage()
    follower, log = stage.follower, stage.log

    def script() -> Script:
        yield from stage.life(HEADER.pack(0, 100) + records[:100] + HEADER.pack(100, 100)[:5], then=lambda: log.max_offset)
        yield from stage.ended()
        assert (follower.received_bytes, follower.sent_bytes) == (117, 16)
        yield from stage.life(HEADER.pack(1, 199) + records[1:200], then=lambda: log.max_offset == 200)
        yield from stage.ended()

    stage.play(script())
    assert (follower.received_bytes, follower.sent_bytes) == (117 + 211, 32)
    assert (log.max_offset, follower.connects) == (200, 2)


def test_a_connection_that_is_gone_at_its_first_report_is_followed_by_another(
    make_stage: MakeStage, records: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A master that is being stopped, or a proxy before it, takes connections and resets them. The slave ended for good."""
    stage = make_stage()
    follower, log, connect = stage.follower, stage.log, client_module.connect

    def connecting(*arguments: Any) -> socket.socket:
        sock = connect(*arguments)
        if follower.connects == 0:
            sock.shutdown(socket.SHUT_WR)  # each send fails from now on, as after a reset
        return sock

    monkeypatch.setattr(client_module, "connect", connecting)

    def script() -> Script:
        yield from stage.until(lambda: follower.connects == 1)
        stage.accept().close()
        yield from stage.ended()
        assert follower.last_close_reason == "report"
        yield from stage.life(HEADER.pack(0, 100) + records[:100], then=lambda: log.max_offset == 100)
        yield from stage.ended()

    stage.play(script())
    assert (follower.connects, log.max_offset) == (2, 100)
    assert f"{stage.peer}: connection closed: report" in lines(caplog)


# --- Why a connection ended, and how long the slave waits ------------------------------------------------------------------


def test_each_end_has_its_reason_and_leaves_none_to_the_next(
    make_stage: MakeStage, records: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-S-25 "longer after each one that brought nothing": a violation waits longest, data and a long life begin anew."""
    stage = make_stage()
    follower, log = stage.follower, stage.log
    seen: list[tuple[str, str, float]] = []

    def later(seconds: float) -> Callable[[], bool]:
        def move() -> bool:
            stage.now_s += seconds
            return True

        return move

    rows: list[tuple[bytes, Callable[[], object], str, float]] = [
        (b"", lambda: True, UNHEARD, 0.05),
        (HEADER.pack(0, 0), lambda: True, "end_of_stream", 0.1),
        (HEADER.pack(0, -1), lambda: True, "frame (HA-S-11)", 5.0),
        (HEADER.pack(0, 0), lambda: True, "end_of_stream", 5.0),
        (HEADER.pack(0, 0), later(5.0), "end_of_stream", 5.0),
        (HEADER.pack(0, 0), later(5.5), "end_of_stream", 0.05),
        (HEADER.pack(0, 0), lambda: True, "end_of_stream", 0.1),
        (HEADER.pack(0, 100) + records[:100], lambda: log.max_offset, "end_of_stream", 0.05),
        (b"", lambda: True, UNHEARD, 0.1),
        (HEADER.pack(7, 0), lambda: True, "offset (HA-S-63)", 5.0),
        (ALERT, lambda: True, "the master speaks TLS on this port: give --tls-cert, --tls-key and --tls-ca, or the port of "
         "its --listen", 5.0),
        (b"", lambda: True, UNHEARD, 5.0),
    ]  # fmt: skip

    def script() -> Script:
        for data, then, *_ in rows:
            yield from stage.life(data, then=then)
            yield from stage.ended()
            seen.append((follower.last_close, follower.last_close_reason, stage.waits[-1]))

    stage.play(script())
    assert [(each[0], each[2]) for each in seen] == [(text, wait) for _, _, text, wait in rows]
    reasons = [each[1] for each in seen]
    assert reasons == [re.split(r"[ ,]", text)[0] if "TLS" not in text else "tls_port" for _, _, text, _ in rows]
    told = [line for line in lines(caplog, logging.WARNING) if "connection closed" in line]
    assert told == [f"{stage.peer}: connection closed: {text}" for _, _, text, _ in rows]
    violations = [record for record in caplog.records if "closed the connection" in record.getMessage()]
    assert [record.levelno for record in violations] == [logging.ERROR] * 2


@pytest.mark.parametrize(
    ("failure", "line", "level"),
    [
        (error(errno.ECONNREFUSED), "cannot connect: Connection refused", logging.INFO),
        (TimeoutError("timed out"), "cannot connect: timed out", logging.INFO),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "the host's name cannot be resolved: Name or service not known",
            logging.WARNING,
        ),
    ],
)
def test_a_connect_that_fails_is_counted_and_tried_again_later_and_later(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture, failure: OSError, line: str, level: int
) -> None:
    stage = make_stage()
    stage.refusals += [failure] * 9
    stage.play(stage.until(lambda: len(stage.waits) == 9))
    assert stage.waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert (stage.follower.failed_connects, stage.follower.connects) == (9, 0)
    told = [f"{stage.peer}: {line}; trying again in at most {wait:.1f} s" for wait in stage.waits]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(level, text) for text in told]


def test_a_socket_that_takes_no_option_is_read_all_the_same(
    make_stage: MakeStage, records: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems refuse an option if the peer has gone already: what it sent before is taken."""

    class Refusing(socket.socket):
        def setsockopt(self, *_: Any) -> None:  # type: ignore[override]
            raise error(errno.EINVAL)

    stage = make_stage()
    connecting = client_module.connect
    monkeypatch.setattr(client_module, "connect", lambda *arguments: Refusing(fileno=connecting(*arguments).detach()))
    stage.play(stage.life(HEADER.pack(0, 100) + records[:100], then=lambda: stage.log.max_offset == 100))
    assert (stage.follower.connects, stage.log.max_offset) == (1, 100)


# --- A full disk (HA-ST-68) --------------------------------------------------------------------------------------------------


def test_a_full_disk_is_said_once_for_each_offset_and_waited_for(
    make_stage: MakeStage, records: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-ST-68 "MUST close its connection, and connect again when there is room"."""
    room = [True, False, False]
    stage = make_stage(has_room=lambda: not room or room.pop())
    follower, log = stage.follower, stage.log
    assert isinstance(log, FullableLog)

    def fails(data: bytes) -> Script:
        log.failure = error(errno.ENOSPC)
        waits = len(stage.waits)
        yield from stage.life(data)
        yield from stage.until(lambda: len(stage.waits) > waits)
        assert follower.disk_full is not None
        assert (follower.client.close_reason, follower.last_close_reason) == ("disk_full", "disk_full")
        log.failure = None
        yield from stage.until(lambda: follower.disk_full is None)

    def script() -> Script:
        first = HEADER.pack(0, 100) + records[:100]
        yield from fails(first)
        assert room == []
        yield from fails(first)
        yield from stage.life(first, then=lambda: log.max_offset)
        yield from stage.ended()
        yield from fails(HEADER.pack(1, 199) + records[1:200])

    stage.play(script())
    assert stage.waits == [0.05, 0.05, 0.05, 0.1]  # what waits for room begins anew, and so does what has brought data
    told = [line for line in lines(caplog, logging.WARNING) if "until there is room" in line]
    where = "00000000000000000000: append at commit-log offset {}: No space left on device"
    assert told == [
        f"{stage.peer}: connection closed until there is room on the disk: {where.format(offset)}" for offset in (0, 100)
    ]


def test_another_error_of_the_disk_ends_the_slave(make_stage: MakeStage, records: bytes) -> None:
    stage = make_stage()
    assert isinstance(stage.log, FullableLog)
    stage.log.failure = error(errno.EIO)
    with pytest.raises(AppendFailed, match="append at commit-log offset 0: Input/output error"):
        stage.play(stage.life(HEADER.pack(0, 100) + records[:100]))
    assert stage.follower.disk_full is None


def test_a_quota_is_a_full_disk(make_stage: MakeStage, records: bytes) -> None:
    stage = make_stage()
    assert isinstance(stage.log, FullableLog)
    stage.log.failure = error(errno.EDQUOT)
    stage.play(stage.life(HEADER.pack(0, 100) + records[:100]))
    assert stage.follower.disk_full is not None


# --- What an empty log needs (HA-S-99) --------------------------------------------------------------------------------


def test_what_is_not_known_yet_is_asked_before_each_connect(make_stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    """HA-S-99 "MUST ask anew before each connect"; a master that does not answer is a failed connect, with its wait."""
    stage = make_stage()
    answers: list[Exception | bool] = [FeedEnded("m: closed"), Stopped(), False, True, True]
    asked: list[int] = []

    def prepare() -> bool:
        asked.append(stage.follower.connects)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def script() -> Script:
        for connects in (1, 2, 3):
            yield from stage.life(HEADER.pack(7, 0))  # HA-S-11, on an empty log: no start of a file
            yield from stage.ended()
            assert stage.follower.connects == connects

    stage.play(script(), prepare)
    assert asked == [0, 0, 0, 1, 2]
    assert stage.follower.failed_connects == 1
    assert "m: closed; trying again" in lines(caplog, logging.WARNING)
    levels = [record.levelno for record in caplog.records if "closed the connection" in record.getMessage()]
    assert levels == [logging.INFO, logging.ERROR, logging.ERROR]  # the first may mean a new file of the master
    assert stage.waits == [0.05, 0.1, 5.0, 5.0]


def test_a_size_that_was_learnt_on_the_way_is_said(
    make_stage: MakeStage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with CommitLog.open(tmp_path / "small", file_size=250) as small:
        for _ in range(3):
            small.append(MESSAGE)
        data = bytes(small.data_at(0, 250) or b"")
    stage = make_stage(settings=Settings(FILE_SIZE, adopts_file_size=True))
    stage.play(stage.life(HEADER.pack(0, 250) + data, then=lambda: stage.log.max_offset == 250))
    assert f"{stage.peer}: its commit-log files are of 250 bytes; so are ours, from now on" in lines(caplog)


def test_classic_gives_a_frame_all_the_time_it_takes(make_stage: MakeStage) -> None:
    stage = make_stage(profile=CLASSIC)

    def script() -> Script:
        yield from stage.until(lambda: stage.follower.client.connected)
        peer = stage.accept()
        peer.sendall(b"\0")
        for _ in range(130):
            stage.now_s += 1
            yield
        assert stage.follower.client.connected

    stage.play(script())
