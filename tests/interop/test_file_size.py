"""A slave on a real master whose files are not of 1 GiB: told no size it takes the master's, told another it stops.

HA-S-90 to HA-S-93, HA-S-96 to HA-S-99.
"""

from contextlib import ExitStack
from pathlib import Path

from links import assert_same_logs, await_same_end
from results import Results
from rocketmq import FILE_SIZE, Rocketmq, wait

from kit.files import end_of
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import compare, verify

LARGEST = 6000  # bytes of a body
FEW, MANY = 60, 900  # messages: less than a file, and some files
WRONG = (FILE_SIZE // 2, 2 * FILE_SIZE)


def follow(nodes: ExitStack, store: Path, address: str, *more: str) -> Node:
    node = Node(store.with_suffix(".log"), "slave", "--store", str(store), "--master", address, *more)
    nodes.callback(node.stop)
    return node


def file_sizes(store: Path) -> set[int]:
    return {path.stat().st_size for path in (store / "commitlog").iterdir() if path.name.isdigit()}


def refused(node: Node, wrong: int) -> bool:
    """It has ended with status 2, and names both sizes, or that the master's is greater. Waits for the end."""
    wait("the slave ends", lambda: node.status is not None)
    last = node.log.read_text(encoding="utf-8").splitlines()[-1]
    assert node.status == 2, last
    assert str(wrong) in last, last
    return str(FILE_SIZE) in last or f"more than {wrong}" in last


def test_a_slave_on_a_real_master_of_another_file_size(
    rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results
) -> None:
    """From the master's first file on, and from a later one."""
    theirs, early, late = (tmp_path / name for name in ("theirs", "early", "late"))
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    address = rocketmq.ha_address
    assert rocketmq.send("Interop", FEW, LARGEST) == {"SEND_OK": FEW}
    assert end_of(theirs) < FILE_SIZE // 2
    first = follow(nodes, early, address)
    wrongs = {wrong: follow(nodes, tmp_path / f"early-{wrong}", address, "--file-size", str(wrong)) for wrong in WRONG}
    await_same_end(early, theirs)
    assert rocketmq.send("Interop", MANY, LARGEST, seed=2) == {"SEND_OK": MANY}
    assert end_of(theirs) > 2 * FILE_SIZE
    await_same_end(early, theirs)
    results.check("from the first file: the slave's files", {FILE_SIZE}, file_sizes(early))
    for wrong, node in wrongs.items():
        results.check(f"from the first file, --file-size {wrong}: refused, both sizes named", True, refused(node, wrong))

    first.stop()
    second = follow(nodes, late, address)
    wrongs = {wrong: follow(nodes, tmp_path / f"late-{wrong}", address, "--file-size", str(wrong)) for wrong in WRONG}
    await_same_end(late, theirs)
    follow(nodes, early, address)
    assert rocketmq.send("Interop", MANY, LARGEST, seed=3) == {"SEND_OK": MANY}
    for store in (early, late):
        await_same_end(store, theirs)
    for wrong, node in wrongs.items():  # a file that begins at a multiple of the greater size shows nothing until it ends
        results.check(f"from a later file, --file-size {wrong}: refused, both sizes named", True, refused(node, wrong))
    results.check("from a later file: the slave's files", {FILE_SIZE}, file_sizes(late))
    second.stop()
    rocketmq.stop("master")
    results.check("messages in both logs", FEW + 2 * MANY, assert_same_logs(early, theirs))
    with LogReader(late) as a, LogReader(theirs) as b:
        verify(a)
        verify(b)
        results.check("the difference to the master's log", None, compare(a, b).difference)
