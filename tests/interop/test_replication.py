"""Our slave on a real master, and a real slave on our master: the logs are byte for byte the same. HA-W-1 to HA-W-5."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from rocketmq import FILE_SIZE, Rocketmq, wait

from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.fuzz.proxy import CuttingProxy, PlannedCut
from rocketmq_ha.impl.net.address import parse_address
from rocketmq_ha.impl.store.reader import LogReader
from rocketmq_ha.impl.store.verify import compare, verify

MESSAGES = 1500
LARGEST = 6000  # bytes of a body; with MESSAGES about 4.5 MB, so that files of 1 MiB roll


@pytest.fixture
def nodes() -> Iterator[ExitStack]:
    """Our processes of a test; stopped at its end, the last first."""
    with ExitStack() as stack:
        yield stack


def start_slave(nodes: ExitStack, tmp_path: Path, store: Path, master: str) -> Node:
    follow = ("slave", "--store", str(store), "--master", master, "--file-size", str(FILE_SIZE))
    node = Node(tmp_path / "our-slave.log", *follow)
    nodes.callback(node.stop)
    return node


def start_master(nodes: ExitStack, tmp_path: Path, store: Path, *more: str) -> tuple[Node, str]:
    serve = ("master", "--store", str(store), "--listen", "127.0.0.1:0", "--file-size", str(FILE_SIZE))
    node = Node(tmp_path / "our-master.log", *serve, *more)
    nodes.callback(node.stop)
    return node, node.line("listening")


def end_of(store: Path) -> int:
    """The max offset of a store beside its writer; 0 where there is none yet."""
    if not (store / "commitlog").is_dir() or not any((store / "commitlog").iterdir()):
        return 0
    with LogReader(store) as reader:
        reader.walk()
        return reader.max_offset


def assert_same_logs(ours: Path, theirs: Path) -> int:
    """Every record of both is right, and they are the same but for padding. Returns: messages."""
    with LogReader(ours) as a, LogReader(theirs) as b:
        summaries = verify(a), verify(b)
        comparison = compare(a, b)
    assert comparison.difference is None, comparison.difference
    assert (summaries[0].min_offset, summaries[0].max_offset) == (summaries[1].min_offset, summaries[1].max_offset)
    assert summaries[0].messages == summaries[1].messages
    return summaries[0].messages


def test_our_slave_follows_a_real_master_through_cuts_and_a_kill(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    rocketmq.start_broker("master", theirs, "SYNC_MASTER")
    cuts = [PlannedCut(1_000_000 * n, header_bytes) for n, header_bytes in enumerate((5, 0, 11), 1)]
    proxy = CuttingProxy(parse_address(rocketmq.ha_address), cuts)
    nodes.callback(proxy.close)
    first = start_slave(nodes, tmp_path, ours, proxy.address)
    wait("our slave has reported", lambda: "request offset" in rocketmq.log("master"))
    statuses = rocketmq.send("Interop", MESSAGES, LARGEST)
    sent = statuses["SEND_OK"]
    assert sum(statuses.values()) == MESSAGES, statuses
    assert sent >= MESSAGES - 400, statuses  # a put that waits while the link is cut may end FLUSH_SLAVE_TIMEOUT
    first.kill()
    again = rocketmq.send("Interop", 200, LARGEST, seed=2)
    start_slave(nodes, tmp_path, ours, proxy.address)
    wait("our slave has all", lambda: end_of(ours) == end_of(theirs))
    assert (proxy.cuts_in_header, proxy.cuts_in_body) == (2, 1)
    assert assert_same_logs(ours, theirs) >= MESSAGES + sum(again.values())
    rocketmq.stop("master")


def test_a_real_sync_master_counts_our_slave_and_misses_it(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack) -> None:
    in_sync = {"inSyncReplicas": "2", "minInSyncReplicas": "1"} if rocketmq.release.startswith("5.") else {}
    rocketmq.start_broker("master", tmp_path / "theirs", "SYNC_MASTER", **in_sync)
    alone = rocketmq.send("Interop", 3)
    assert alone == {"FLUSH_SLAVE_TIMEOUT" if in_sync else "SLAVE_NOT_AVAILABLE": 3}  # versions.md
    start_slave(nodes, tmp_path, tmp_path / "ours", rocketmq.ha_address)
    wait("our slave has all", lambda: end_of(tmp_path / "ours") == end_of(tmp_path / "theirs"))
    assert rocketmq.send("Interop", 50, seed=2) == {"SEND_OK": 50}
    assert assert_same_logs(tmp_path / "ours", tmp_path / "theirs") >= 53


def test_a_real_slave_follows_our_master_and_outlives_its_kill(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    put = ("--put", str(MESSAGES), "--size", str(LARGEST // 2), "--await-slaves", "1", "--sync", "1")
    master, address = start_master(nodes, tmp_path, ours, *put)
    nodes.callback(rocketmq.register_master(address).close)
    rocketmq.start_broker("slave", theirs, "SLAVE")
    counts = dict(pair.split("=") for pair in master.line("put").split()[1:])
    assert counts["PUT_OK"] == str(MESSAGES), counts  # the line tells every status that was seen
    wait("their slave has all", lambda: end_of(theirs) == end_of(ours))
    assert assert_same_logs(ours, theirs) == MESSAGES
    master.kill()
    port = address.rpartition(":")[2]
    again = ("master", "--store", str(ours), "--listen", f"127.0.0.1:{port}", "--put", "300", "--await-slaves", "1")
    second = Node(tmp_path / "our-master.log", *again)
    nodes.callback(second.stop)
    assert second.line("listening") == address
    assert "PUT_OK=300" in second.line("put")
    wait("their slave has all", lambda: end_of(theirs) == end_of(ours))
    assert assert_same_logs(ours, theirs) == MESSAGES + 300
    rocketmq.stop("slave")
    assert_same_logs(ours, theirs)
