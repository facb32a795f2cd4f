"""Our slave on a real master, and a real slave on our master, both SYNC_MASTER: the statuses, the logs, and every byte between.

HA-W-1 to HA-W-5. Each link goes through a proxy that cuts it in mid-frame and records it; in the end the record is held against
the reference model, with the classic profile for the real end.
"""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from links import (
    RecordedLink,
    assert_same_logs,
    await_same_end,
    log_of,
    puts_of,
    start_master,
    start_slave,
    statuses_of,
)
from results import Among, Results
from rocketmq import FILE_SIZE, Rocketmq, wait

from kit.files import end_of
from rocketmq_ha.fuzz.proxy import PlannedCut
from rocketmq_ha.fuzz.trace import TraceRefusedError, check_transcript
from rocketmq_ha.fuzz.transcript import Piece, Transcript
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Settings

MESSAGES = 1000
LARGEST = 6000  # bytes of a body; with MESSAGES about 3 MB, so that files of 1 MiB roll
# Where a link is cut, a put may meet no slave, or wait for one that does not come back in time.
UNLUCKY = ("SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT")


def test_our_slave_on_a_real_sync_master(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results) -> None:
    """Cuts in headers and in a body, kill -9 of either side; in 5.x with inSyncReplicas=2."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    rocketmq.start_broker("master", theirs, "SYNC_MASTER")
    results.check("no slave", {rocketmq.status_without_a_slave: 3}, rocketmq.send("Interop", 3, seed=5))
    link = RecordedLink(nodes, rocketmq.ha_address, [PlannedCut(700_000 * n, at) for n, at in enumerate((5, 0, 11), 1)])
    first = start_slave(nodes, tmp_path, ours, link.proxy.address)
    await_same_end(ours, theirs)
    results.check("our slave follows", {"SEND_OK": 50}, rocketmq.send("Interop", 50, seed=6))

    # While it is away the master answers at once, and most of the messages may be put meanwhile.
    among_cuts = Among(MESSAGES, ("SEND_OK", *UNLUCKY), "SEND_OK", 10)
    results.check("three cuts", among_cuts, rocketmq.send("Interop", MESSAGES, LARGEST))
    wait("three cuts", lambda: sum(link.cuts) == 3)
    results.check("cuts in a header, in a body", (2, 1), link.cuts)
    await_same_end(ours, theirs)
    results.check("our slave follows again", {"SEND_OK": 50}, rocketmq.send("Interop", 50, seed=7))

    first.kill()
    link.proxy.note_restart()
    away = Among(20, UNLUCKY, rocketmq.status_without_a_slave, 0)
    results.check("our slave is killed", away, rocketmq.send("Interop", 20, LARGEST, seed=2, producers=20))
    second = start_slave(nodes, tmp_path, ours, link.proxy.address)
    await_same_end(ours, theirs)

    rocketmq.kill("master")
    before = rocketmq.log("master").count("request offset")
    rocketmq.start_broker("master", theirs, "SYNC_MASTER")
    wait("our slave is back", lambda: rocketmq.log("master").count("request offset") > before)
    results.check("the real master was killed", {"SEND_OK": 100}, rocketmq.send("Interop", 100, LARGEST, seed=3))
    await_same_end(ours, theirs)
    rocketmq.stop("master")
    await_same_end(ours, theirs)
    second.stop()
    messages = assert_same_logs(ours, theirs)
    results.check("messages in both logs", 3 + 50 + MESSAGES + 50 + 20 + 100, messages)

    found = link.check(tmp_path, theirs, CLASSIC, HARDENED)
    results.check("the model ends where the logs do", end_of(theirs), found.slave_max_offset)
    assert found.links >= 6  # the first, three cuts, a kill on each side
    assert found.frames - found.heartbeats > 150
    refuse_a_planted_edit(link.transcript, theirs)


def refuse_a_planted_edit(transcript: Transcript, store: Path) -> None:
    """One bit of a body, in the middle of what was recorded: the check must see it."""
    pieces = [
        n
        for n, piece in enumerate(transcript)
        if isinstance(piece, Piece) and piece.source == "master" and len(piece.data) > 500
    ]
    number = pieces[len(pieces) // 2]
    piece = transcript[number]
    assert isinstance(piece, Piece)
    edited = piece.data[:300] + bytes((piece.data[300] ^ 16,)) + piece.data[301:]
    planted = [*transcript[:number], replace(piece, data=edited), *transcript[number + 1 :]]
    with pytest.raises(TraceRefusedError):
        check_transcript(planted, log_of(store), Settings(FILE_SIZE), CLASSIC, HARDENED)


def test_a_real_slave_on_our_sync_master(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results) -> None:
    """A cut in a header and one in a body, kill -9 of either side. Our puts wait for the real slave."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    master, address = start_master(nodes, tmp_path, ours, "127.0.0.1:0", "--put", "5", "--sync", "1")
    results.check("no slave", {"SLAVE_NOT_AVAILABLE": 5}, statuses_of(master))
    master.stop()

    put = ("--put", str(MESSAGES), "--size", str(LARGEST // 2), "--await-slaves", "1", "--sync", "1", "--in-flight", "16")
    master, _ = start_master(nodes, tmp_path, ours, address, *put, "--seed", "1")
    link = RecordedLink(nodes, address, [PlannedCut(700_000, 7), PlannedCut(1_400_000, 0)])
    nodes.callback(rocketmq.servers.register_master(link.proxy.address).close)
    rocketmq.start_broker("slave", theirs, "SLAVE")
    # 5.3.3 waits 5 s before it connects again: what was in flight at a cut has timed out by then.
    among_cuts = Among(MESSAGES, ("PUT_OK", *UNLUCKY), "PUT_OK", MESSAGES - 2 * 17)
    statuses, unwaited = puts_of(master)
    results.check("two cuts", among_cuts, statuses)
    wait("two cuts", lambda: sum(link.cuts) == 2)
    results.check("cuts in a header, in a body", (1, 1), link.cuts)
    await_same_end(theirs, ours)

    master.kill()
    again = ("--put", "300", "--await-slaves", "1", "--sync", "1", "--in-flight", "16", "--seed", "2")
    master, _ = start_master(nodes, tmp_path, ours, address, *again)
    statuses, unwaited_again = puts_of(master)
    results.check("our master was killed", {"PUT_OK": 300}, statuses)
    await_same_end(theirs, ours)

    rocketmq.kill("slave")
    link.proxy.note_restart()
    master.stop()
    master, _ = start_master(nodes, tmp_path, ours, address, "--put", "200", "--sync", "0", "--seed", "3")
    results.check("the real slave is killed", {"PUT_OK": 200}, statuses_of(master))
    rocketmq.start_broker("slave", theirs, "SLAVE")
    await_same_end(theirs, ours)
    rocketmq.stop("slave")
    messages = assert_same_logs(theirs, ours)
    results.check("messages in both logs", 5 + unwaited + MESSAGES + unwaited_again + 300 + 200, messages)

    found = link.check(tmp_path, ours, HARDENED, CLASSIC)
    results.check("the model ends where the logs do", end_of(ours), found.slave_max_offset)
    assert found.links >= 5  # the first, two cuts, a kill on each side
