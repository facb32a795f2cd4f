"""Our slave on a real master that is not its own any more: it finds out, says so and stops, and its store stays as it was."""

import shutil
from contextlib import ExitStack
from pathlib import Path

from links import assert_same_logs, await_same_end, start_slave
from results import Results
from rocketmq import Rocketmq
from servers import wait

from kit.files import end_of

STOPPED = 2  # the exit status of every error that a user can correct


def test_our_slave_on_a_real_master_with_another_history(
    rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results
) -> None:
    """HA-S-61 "the start of its last whole record": a real master sends it again. Quirk 9, and HA-S-64."""
    theirs, ours, kept = tmp_path / "theirs", tmp_path / "ours", tmp_path / "kept"
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    results.check("the first history", {"SEND_OK": 300}, rocketmq.send("Interop", 300, seed=5))
    first = start_slave(nodes, tmp_path, ours, rocketmq.ha_address)
    await_same_end(ours, theirs)
    first.stop()

    results.check("more of it", {"SEND_OK": 50}, rocketmq.send("Interop", 50, seed=6))
    again = start_slave(nodes, tmp_path, ours, rocketmq.ha_address)
    await_same_end(ours, theirs)
    again.stop()
    results.check("a slave that comes back goes on", 350, assert_same_logs(ours, theirs))
    shutil.copytree(ours, kept)
    rocketmq.stop("master")

    shutil.rmtree(theirs)
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    results.check("another history, shorter", {"SEND_OK": 20}, rocketmq.send("Interop", 20, seed=7))
    results.check("ahead", (STOPPED, True, True), stops_with(nodes, tmp_path, ours, rocketmq.ha_address, ": ahead: "))
    results.check("another history, longer", {"SEND_OK": 600}, rocketmq.send("Interop", 600, seed=8))
    assert end_of(theirs) > end_of(ours)
    results.check("diverged", (STOPPED, True, True), stops_with(nodes, tmp_path, ours, rocketmq.ha_address, ": diverged: "))
    results.check("our log is as it was", 350, assert_same_logs(ours, kept))


def stops_with(nodes: ExitStack, tmp_path: Path, store: Path, master: str, words: str) -> tuple[int | None, bool, bool]:
    """The status with which our slave ends by itself, and whether its last line has the words, and says what to do."""
    node = start_slave(nodes, tmp_path, store, master)
    wait("our slave stops", lambda: node.status is not None)
    last = (tmp_path / "our-slave.log").read_text().splitlines()[-1]
    return node.status, words in last, "rocketmq-ha resync" in last
