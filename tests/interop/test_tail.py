"""`tail` and `doctor` on real brokers: a feed of every message, no forged acknowledgement, and a true account of the link."""

import base64
import json
import re
import signal
import subprocess
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from releases import run_on
from rocketmq import FILE_SIZE, Rocketmq, wait

from kit.children import Child
from kit.command_line import COMMAND
from kit.files import end_of
from kit.waiting import LONG_S
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.net.figures import CONNECTED
from rocketmq_ha.impl.net.status_socket import ask
from rocketmq_ha.impl.store.log.reader import LogReader

MESSAGES = 1200
LARGEST = 6000  # bytes of a body: compressed beyond 4 KiB, and files of 1 MiB roll


def tail(nodes: ExitStack, out: Path, address: str, *more: object) -> "subprocess.Popen[bytes]":
    command = [*COMMAND, "tail", "--master", address, *map(str, more)]
    with out.open("ab") as file, out.with_suffix(".log").open("ab") as log:
        process = Child(command, stdin=subprocess.DEVNULL, stdout=file, stderr=log, limit_s=LONG_S)
    nodes.callback(process.kill)
    return process


def lines_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def stored(store: Path) -> list[tuple[int, str, int]]:
    """(offset, topic, CRC of the stored body) of every message."""
    with LogReader(store) as reader:
        return [(offset, message.topic, zlib.crc32(message.body)) for offset, _, message in reader.records()]


def told(out: Path) -> list[tuple[int, str, int]]:
    return [
        (line["commit_log_offset"], line["topic"], zlib.crc32(base64.b64decode(line["body_base64"]))) for line in lines_of(out)
    ]


def doctor(*arguments: object) -> tuple[int, dict[str, str]]:
    command = [*COMMAND, "doctor", "--json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout, done.stderr
    return done.returncode, {row["check"]: row["text"] for row in json.loads(done.stdout)["findings"]}


# Of frames as they come, which are the same in both releases; how each counts what it reports is the next test's matter.
@pytest.mark.parametrize("release", run_on("5.3.3"), indirect=True, scope="session")
def test_tail_is_a_feed_of_a_real_broker_through_its_kill(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack) -> None:
    store, out = tmp_path / "theirs", tmp_path / "feed"
    rocketmq.start_broker("master", store, "ASYNC_MASTER")
    arguments = ("--from", "min", "--cursor", tmp_path / "cursor", "--body", "raw", "--settle", 1)
    first = tail(nodes, out, rocketmq.ha_address, *arguments)
    rocketmq.send("Interop", MESSAGES, LARGEST)
    wait("the feed has all", lambda: told(out) == stored(store))
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 0
    rocketmq.send("Interop", 100, LARGEST, seed=2)
    second = tail(nodes, out, rocketmq.ha_address, *arguments)
    wait("the feed goes on", lambda: told(out) == stored(store))
    rocketmq.kill("master")
    rocketmq.start_broker("master", store, "ASYNC_MASTER")
    rocketmq.send("Interop", 100, LARGEST, seed=3)
    wait("the feed goes on after the kill", lambda: told(out) == stored(store))
    second.send_signal(signal.SIGTERM)
    assert second.wait(20) == 0
    assert len(told(out)) >= MESSAGES + 200
    keys = [line["keys"] for line in lines_of(out) if line["topic"] == "Interop"]
    assert {f"key-{number}" for number in range(MESSAGES)} <= {key for row in keys for key in row}


def test_a_real_sync_master_takes_no_tail_for_a_replica(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack) -> None:
    store, out = tmp_path / "theirs", tmp_path / "feed"
    rocketmq.start_broker("master", store, "SYNC_MASTER", slaveTimeout="2000")
    following = tail(nodes, out, rocketmq.ha_address, "--from", "min", "--body", "raw")
    wait("the tail has reported", lambda: "request offset" in rocketmq.log("master"))
    _assert_unacknowledged(rocketmq.send("Interop", 4))
    wait("the feed has all", lambda: told(out) == stored(store))
    # A new connection, with all of the log behind it: what it asks for acknowledges nothing either.
    following.send_signal(signal.SIGTERM)
    assert following.wait(20) == 0
    tail(nodes, out, rocketmq.ha_address, "--from", lines_of(out)[-1]["next_offset"], "--body", "raw")
    wait("the tail has reported", lambda: rocketmq.log("master").count("request offset") >= 2)
    _assert_unacknowledged(rocketmq.send("Interop", 4, seed=2))
    wait("the feed has all", lambda: told(out) == stored(store))


def _assert_unacknowledged(statuses: dict[str, int]) -> None:
    """Each put timed out; in 4.9.8 one after the other (quirk 32), so that its producer may have given up before."""
    assert sum(statuses.values()) == 4
    assert statuses.get("FLUSH_SLAVE_TIMEOUT", 0) > 0
    assert set(statuses) <= {"FLUSH_SLAVE_TIMEOUT", "FAILED"}, statuses


def test_doctor_on_a_real_broker(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER", haSendHeartbeatInterval="5000")
    rocketmq.send("Interop", 600, LARGEST)
    follow = ("slave", "--store", str(ours), "--master", rocketmq.ha_address, "--file-size", str(FILE_SIZE))
    node = Node(tmp_path / "our-slave.log", *follow)
    nodes.callback(node.stop)
    wait("our slave has all", lambda: end_of(ours) == end_of(theirs) > 0)
    wait("our slave is connected", lambda: ask(ours)["state"] == CONNECTED)
    broker = f"127.0.0.1:{rocketmq.ports.master}"
    status, told_of = doctor("--master", rocketmq.ha_address, "--broker", broker, "--store", ours)
    assert status == 0, told_of
    assert told_of["process"].startswith("a slave, pid ")
    after = re.search(r"heartbeat after (\d+)\.", told_of["heartbeat"])
    assert after is not None and 5 <= int(after[1]) < 20
    assert "messages that both have are the same" in told_of["overlap"]
    assert told_of["lag"] == "the store has all"
    assert "known" in told_of
    status, told_of = doctor("--master", rocketmq.ha_address, "--broker", broker)
    version = f"V{rocketmq.release.replace('.', '_')}"
    assert status == 0
    assert "its log holds" in told_of["broker"] or version in told_of["broker"]
    status, told_of = doctor("--master", broker, "--patience", 3)
    assert status == 1
    assert "protocol" in told_of
