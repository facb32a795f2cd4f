"""`master --replicas N`, over TCP: each address counts as one replica, with all its connections (HA-G-31)."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.command_line import invoke, status_of
from kit.waiting import wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.net.status_socket import SOCKET_NAME
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import Comparison, compare, verify

FILE_SIZE = 1 << 20
PUTS = 300
PATIENT = ("--sync-flush-timeout", "60000")


def has_second_loopback() -> bool:
    """Linux answers on all of 127.0.0.0/8; elsewhere an address may have to be set up first."""
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.2", 0))
        except OSError:
            return False
        return True


pytestmark = pytest.mark.skipif(not has_second_loopback(), reason="this machine has no 127.0.0.2")


def serve(nodes: ExitStack, store: Path, *more: str) -> tuple[Node, str]:
    serving = ("master", "--store", str(store), "--listen", "127.0.0.1:0", "--file-size", str(FILE_SIZE))
    node = Node(store.parent / f"{store.name}.log", *serving, *more)
    nodes.callback(node.stop)
    return node, node.line("listening")


def follow(nodes: ExitStack, store: Path, master: str, address: str) -> Node:
    """Start a slave that connects from an address."""
    following = ("slave", "--store", str(store), "--master", master, "--file-size", str(FILE_SIZE), "--bind", address)
    node = Node(store.parent / f"{store.name}.log", *following)
    nodes.callback(node.stop)
    wait_for((store / SOCKET_NAME).exists)
    return node


def counts(line: str) -> dict[str, int]:
    """The counts of the statuses in the last line of --put."""
    return {name: int(value) for name, value in (word.split("=") for word in line.split()) if name.isupper()}


def putting(replicas: int, slaves: int) -> tuple[str, ...]:
    return ("--put", str(PUTS), "--replicas", str(replicas), "--await-slaves", str(slaves), *PATIENT)


def test_two_slaves_at_two_addresses_are_two_replicas(tmp_path: Path, nodes: ExitStack) -> None:
    """HA-G-30: every PUT_OK is in both logs, byte for byte. A message whose put does not wait comes before them."""
    a, b, c = (tmp_path / name for name in "abc")
    master, address = serve(nodes, a, *putting(2, 2))
    slaves = [follow(nodes, b, address, "127.0.0.2"), follow(nodes, c, address, "127.0.0.3")]
    told = "put=" + master.line("put")
    # one more if one slave already has everything when the other connects
    unwaited = int(told.split()[1].removeprefix("unwaited="))
    assert (counts(told), unwaited in (1, 2)) == ({"PUT_OK": PUTS}, True)
    found = status_of(a)
    assert (found["replicas_needed"], found["replicas_counted"], found["slaves"]) == (2, 2, 2)
    assert sorted(conn["replica"] for conn in found["connections"]) == ["127.0.0.2", "127.0.0.3"]
    assert found["push2_slave_max_offset"] == found["max_offset"] == status_of(b)["max_offset"] == status_of(c)["max_offset"]
    shown = invoke("status", str(a)).stdout
    assert "2 count, a put that waits needs 2" in shown
    slaves[1].stop()
    wait_for(lambda: status_of(a)["replicas_counted"] == 1)
    assert status_of(a)["push2_slave_max_offset"] == 0
    for node in (slaves[0], master):
        node.stop()
    for store in (b, c):
        with LogReader(a) as ours, LogReader(store) as theirs:
            assert verify(ours).messages == verify(theirs).messages == PUTS + unwaited
            assert compare(ours, theirs) == Comparison(0, found["max_offset"], None, 0)


def test_puts_wait_for_so_many_distinct_replicas(tmp_path: Path, nodes: ExitStack) -> None:
    """--await-replicas 2: two slaves at one address are never enough; a third one at another address is."""
    a, b, c, d = (tmp_path / name for name in "abcd")
    master, address = serve(nodes, a, "--put", str(PUTS), "--replicas", "2", "--await-replicas", "2", *PATIENT)
    for store in (b, c):
        follow(nodes, store, address, "127.0.0.2")
    wait_for(lambda: status_of(a)["slaves"] == 2)
    assert status_of(a)["replicas_counted"] == 1
    with LogReader(a) as reader:
        assert 1 <= verify(reader).messages <= 3  # one for each set of slaves that had everything, and none of --put's
    follow(nodes, d, address, "127.0.0.3")
    told = "put=" + master.line("put")
    assert counts(told) == {"PUT_OK": PUTS}
    unwaited = int(told.split()[1].removeprefix("unwaited="))
    master.stop()
    with LogReader(a) as reader:
        assert verify(reader).messages == PUTS + unwaited


def test_a_slave_that_is_sent_something_needs_no_message_more(tmp_path: Path, nodes: ExitStack) -> None:
    """--put N puts N messages: the slave acknowledges the existing messages, so no extra message is put first."""
    a, b = (tmp_path / name for name in "ab")
    serve(nodes, a, "--put", "10")[0].line("put")
    nodes.pop_all().close()
    master, address = serve(nodes, a, "--put", str(PUTS), "--await-slaves", "1", *PATIENT)
    follow(nodes, b, address, "127.0.0.1")
    told = "put=" + master.line("put")
    assert ("unwaited" in told, counts(told)) == (False, {"PUT_OK": PUTS})
    master.stop()
    with LogReader(a) as reader:
        assert verify(reader).messages == 10 + PUTS


def test_two_slaves_at_one_address_are_one_replica(tmp_path: Path, nodes: ExitStack) -> None:
    """HA-G-31 "Connections of one replica MUST count once"; HA-G-32: so one replica is missing, and no put waits."""
    a, b, c, d = (tmp_path / name for name in "abcd")
    master, address = serve(nodes, a, *putting(2, 2))
    for store in (b, c):
        follow(nodes, store, address, "127.0.0.2")
    # None of them is the extra message, which is put without waiting so that slaves have something to acknowledge.
    assert counts("put=" + master.line("put")) == {"SLAVE_NOT_AVAILABLE": PUTS}
    found = status_of(a)
    assert (found["replicas_needed"], found["replicas_counted"], found["slaves"]) == (2, 1, 2)
    assert found["push2_slave_max_offset"] == 0
    follow(nodes, d, address, "127.0.0.4")
    wait_for(lambda: status_of(d)["max_offset"] == status_of(a)["max_offset"])
    wait_for(lambda: status_of(a)["push2_slave_max_offset"] == status_of(a)["max_offset"])
    assert status_of(a)["replicas_counted"] == 2
