"""A slave whose master refuses it, or answers with heartbeats alone: when it asks, what it forgets, when it stops (HA-S-64)."""

import logging
import socket

import pytest

from kit.stage import MakeStage, Script, Stage, lines
from kit.waiting import accepted
from rocketmq_ha.impl.errors import OutOfStep
from rocketmq_ha.impl.net.client import HEARTBEATS, REFUSALS
from rocketmq_ha.impl.wire.frame import HEADER, REPORT


def refused(stage: Stage, times: int) -> Script:
    for _ in range(times):
        yield from stage.life()
        yield from stage.ended()


def answered(stage: Stage, last_file: int | None) -> Script:
    """Answer the slave's question for the last file; None: close without an answer."""
    yield
    with stage.accept() as asking:
        assert asking.recv(REPORT.size, socket.MSG_WAITALL) == REPORT.pack(0)
        if last_file is not None:
            asking.sendall(HEADER.pack(last_file, 0))
            yield


def test_five_refusals_and_one_more_behind_an_answer_end_the_slave(make_stage: MakeStage) -> None:
    """The master answers for its last file and closes again: it has not got our offset, however often it is asked."""
    stage = make_stage(messages=2)
    assert REFUSALS == 5

    def script() -> Script:
        yield from refused(stage, 4)
        yield from stage.life()
        yield from answered(stage, 0)
        yield from stage.life()
        raise AssertionError("the slave goes on")

    with pytest.raises(OutOfStep) as found:
        stage.play(script())
    assert str(found.value).startswith(
        f"{stage.peer}: ahead: the master's log ends before this store's: found no data at commit-log offset 100, and a last "
        "file that begins at 0, expected the last message of this store, which begins at 100; "
    )
    assert stage.follower.connects == 6


def test_a_connection_that_brings_a_byte_is_no_refusal_and_the_count_begins_anew(make_stage: MakeStage) -> None:
    """A heartbeat, or a part of one, is a word of the master: four refusals before it and four behind it ask nothing."""
    stage = make_stage(messages=2)

    def script() -> Script:
        for word in (HEADER.pack(100, 0), b"\0"):
            yield from refused(stage, REFUSALS - 1)
            assert stage.follower._refusals == REFUSALS - 1
            yield from stage.life(word)
            yield from stage.ended()
            assert stage.follower._refusals == 0
        yield from refused(stage, REFUSALS - 1)

    stage.play(script())
    assert stage.follower.connects == 3 * REFUSALS - 1
    stage.listener.setblocking(False)
    with pytest.raises(BlockingIOError):  # no question has come on a connection of its own
        accepted(stage.listener)


def test_an_answer_is_forgotten_when_the_master_speaks_again(make_stage: MakeStage) -> None:
    stage = make_stage(messages=2)

    def script() -> Script:
        yield from refused(stage, REFUSALS - 1)
        yield from stage.life()
        yield from answered(stage, 0)
        yield from stage.ended()
        assert (stage.follower._refusals, stage.follower._last_file) == (REFUSALS, 0)
        yield from stage.life(HEADER.pack(100, 0))
        yield from stage.ended()
        assert (stage.follower._refusals, stage.follower._last_file) == (0, None)
        yield from refused(stage, REFUSALS - 1)

    stage.play(script())


def test_a_question_without_an_answer_is_asked_again_at_the_next_refusal(make_stage: MakeStage) -> None:
    """A master that is just starting, or a proxy before it, closes connections too: that alone ends no slave."""
    stage = make_stage(messages=2)

    def script() -> Script:
        yield from refused(stage, REFUSALS - 1)
        for _ in range(3):
            yield from stage.life()
            yield from answered(stage, None)
            yield from stage.ended()
        assert (stage.follower._refusals, stage.follower._last_file) == (REFUSALS + 2, None)

    stage.play(script())


def test_an_empty_slave_asks_nothing_however_often_it_is_refused(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.play(refused(stage, REFUSALS + 2))
    assert (stage.follower._refusals, stage.follower.connects) == (0, REFUSALS + 2)


# --- Two heartbeats (HA-S-64) ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "last_file", "says"),
    [
        (0, 0, "ahead: the master's log ends before this store's"),
        (1000, 1000, "ahead: the master's log ends before this store's"),
        (1000, 2000, "out of range: the master has deleted that file"),
        (1000, 0, "ahead: the master's log ends before this store's"),
    ],
)
def test_two_heartbeats_where_data_should_be_end_the_slave(
    make_stage: MakeStage, base: int, last_file: int, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-S-64 "MUST stop with an error that says where its last record and the master's last file begin"."""
    stage = make_stage(messages=0 if base else 1, base=base)
    position = max(1, base)

    def script() -> Script:
        yield from stage.until(lambda: stage.follower.client.connected)
        peer = stage.accept()
        peer.sendall(HEADER.pack(position, 0) * HEARTBEATS)
        yield from answered(stage, last_file)
        yield from stage.until(lambda: False)

    with pytest.raises(OutOfStep) as found:
        stage.play(script())
    text = (
        f"{stage.peer}: {says}: found no data at commit-log offset {position}, and a last file that begins at {last_file}, "
        f"expected the last message of this store, which begins at {base}; "
    )
    assert str(found.value).startswith(text)
    assert (
        f"{stage.peer}: two heartbeats in a row, and no data at offset {position}, which this slave has: asking where the "
        "master's last file begins (HA-S-64)"
    ) in lines(caplog, logging.WARNING)


def test_heartbeats_on_two_connections_are_not_two_in_a_row(make_stage: MakeStage, caplog: pytest.LogCaptureFixture) -> None:
    stage = make_stage(messages=2)

    def script() -> Script:
        for _ in range(3):
            yield from stage.life(HEADER.pack(100, 0))
            yield from stage.ended()

    stage.play(script())
    assert "two heartbeats" not in caplog.text


def test_a_question_that_is_not_answered_is_asked_again_behind_two_more(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make_stage(messages=2)

    def script() -> Script:
        yield from stage.until(lambda: stage.follower.client.connected)
        peer = stage.accept()
        for _ in range(2):
            peer.sendall(HEADER.pack(100, 0) * HEARTBEATS)
            yield from answered(stage, None)
            yield from stage.until(lambda: stage.follower.client.heartbeats == 0)
            peer.sendall(HEADER.pack(100, 0))
            yield from stage.until(lambda: stage.follower.client.heartbeats == 1)
            for _ in range(3):
                yield
            if caplog.text.count("two heartbeats") == 2:
                return

    stage.play(script())
    assert caplog.text.count("two heartbeats") == 2


def test_data_that_came_meanwhile_outweigh_the_answer(make_stage: MakeStage, records: bytes) -> None:
    """HA-S-64 "has read what came on the first": the master was slow, and not without the data."""
    stage = make_stage(messages=2)

    def script() -> Script:
        yield from stage.until(lambda: stage.follower.client.connected)
        peer = stage.accept()
        peer.sendall(HEADER.pack(100, 0) * HEARTBEATS)
        yield
        with stage.accept() as asking:
            peer.sendall(HEADER.pack(100, 200) + records[100:300])
            asking.sendall(HEADER.pack(0, 0))
            yield from stage.until(lambda: stage.log.max_offset == 300)
        assert peer.recv(REPORT.size * 2, socket.MSG_WAITALL) == REPORT.pack(100) + REPORT.pack(300)

    stage.play(script())
    assert stage.follower.client.overlap is None
