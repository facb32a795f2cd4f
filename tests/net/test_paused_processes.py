"""Processes that are stopped and go on (SIGSTOP, SIGCONT) keep their connections: HA-T-20, HA-T-21."""

import json
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from kit.children import Child
from kit.command_line import COMMAND
from kit.nodes import follow, serve
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.impl.net.status_socket import ask

FILE_SIZE = 1 << 20
PAUSE_S = 3.0  # longer than SHORT, and longer than the second that one turn of a loop may take
SHORT = ("--ha-housekeeping-interval", "2500")
BEATS = ("--ha-send-heartbeat-interval", "100")
ROUNDS = 2


def test_a_master_a_slave_and_a_tail_that_are_stopped_keep_their_connections(tmp_path: Path, nodes: ExitStack) -> None:
    """In each pair only the stopped end has a short housekeeping interval. Puts that wait meanwhile end with PUT_OK."""
    count = 600
    putting = ("--put", str(count), "--size", "1000", "--await-slaves", "1", "--in-flight", "8", "--sync-flush-timeout", "2500")
    slow = ("--max-transfer-rate", str(count * 1200 // 5))  # the puts last for about 5 s
    stopped_master, first = serve(nodes, tmp_path / "a", *putting, *slow, *SHORT, *BEATS, file_size=FILE_SIZE)
    follow(nodes, tmp_path / "b", first, "--file-size", str(FILE_SIZE), *BEATS)
    _, second = serve(nodes, tmp_path / "c", "--put", "50", "--sync", "0", *BEATS, file_size=FILE_SIZE)
    stopped_slave = follow(nodes, tmp_path / "d", second, "--file-size", str(FILE_SIZE), *SHORT, *BEATS)
    tail = Child(
        [*COMMAND, "tail", "--master", second, "--heartbeat", "100", "--body", "none"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    nodes.callback(tail.wait, PATIENCE_S)
    nodes.callback(tail.terminate)
    assert tail.stdout is not None
    assert all(json.loads(tail.stdout.readline()) for _ in range(50))
    wait_for(lambda: ask(tmp_path / "a")["slaves"] and ask(tmp_path / "d")["state"] == "connected")
    pids = [stopped_master._process.pid, stopped_slave._process.pid, tail.pid]
    for _ in range(ROUNDS):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.3)
    assert f"PUT_OK={count}" in stopped_master.line("put")
    connections = [ask(tmp_path / name)["connects"] for name in ("b", "d")]
    assert connections == [1, 1]
    assert tail.poll() is None
    assert len(ask(tmp_path / "c")["connections"]) == 2
    logs = "".join((tmp_path / f"{name}.log").read_text() for name in "abcd")
    assert not any(word in logs for word in (": closed:", "connection closed", "disconnected: housekeeping"))
