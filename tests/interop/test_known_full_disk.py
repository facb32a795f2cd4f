"""Quirk 42 on the real RocketMQ: a slave acknowledges what its full disk did not take; ours, on the same disk, does not.

The disk has room for the beginning of the log's first file alone. RocketMQ makes that file all the same: its length is there,
and no space for it.

HA-S-37, HA-S-38.
"""

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from results import Among, Results, text_of
from rocketmq import Rocketmq, wait
from small_disk import SmallDisk
from test_known_violations import compare

from kit.files import end_of
from rocketmq_ha.fuzz.processes import Node

DISK_SIZE: Final = 1 << 20
FILE_SIZE: Final = 16 << 20
TRIES: Final = 4
LARGEST: Final = 30_000  # bytes of a body: each message is one frame
CONF: Final = {"mappedFileSizeCommitLog": str(FILE_SIZE), "slaveTimeout": "2000", "syncFlushTimeout": "2000"}
FAILURE: Final = "Error occurred when append message to mappedFile"


def first_file(store: Path) -> bytes:
    """It is read, not mapped: a mapped hole takes space as somebody looks at it."""
    return (store / "commitlog" / f"{0:020}").read_bytes()


def same_until(ours: bytes, theirs: bytes) -> int:
    """How many bytes two files have in common at their beginning."""
    low, high = 0, len(theirs)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if ours[:middle] == theirs[:middle] else (low, middle - 1)
    return low


def put_until_full(rocketmq: Rocketmq, store: Path, results: Results) -> tuple[dict[str, int], int]:
    """Put to a master until its log is longer than the disk. Returns: how the last put ended, and where it begins."""
    results.check("puts while there is room", {"SEND_OK": 20}, rocketmq.send("Interop", 20, 80_000, producers=1))
    begin = end_of(store)
    assert begin < DISK_SIZE - 2 * LARGEST
    for seed in range(1, 100):
        ended = rocketmq.send("Interop", 1, LARGEST, seed, producers=1)
        end = end_of(store)
        if end > DISK_SIZE or ended != {"SEND_OK": 1}:
            return ended, begin
        begin = end
    raise AssertionError("the log did not become longer than the disk")


def test_a_real_slave(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results) -> None:
    """Where it writes into the mapping its thread ends by the failure, most often after the report, now and then before it."""
    through_channel = "`FileChannel`" in rocketmq.does("an append that fails to write")
    ended: dict[str, int] = {}
    for number in range(1 if through_channel else TRIES):
        theirs, disk = tmp_path / f"theirs-{number}", nodes.enter_context(SmallDisk(tmp_path / f"disk-{number}", DISK_SIZE))
        before = rocketmq.log("master").count("request offset") if number else 0
        rocketmq.start_broker("master", theirs, "SYNC_MASTER", **CONF)
        rocketmq.start_broker("slave", tmp_path / f"slave-{number}", "SLAVE", disk, **CONF)
        wait("the slave has reported", lambda before=before: rocketmq.log("master").count("request offset") > before)  # type: ignore[misc]
        ended, _ = put_until_full(rocketmq, theirs, results)
        if ended == {"SEND_OK": 1}:
            break
        rocketmq.kill("slave")
        rocketmq.kill("master")
        rocketmq.servers.await_no_broker()
    end, has = end_of(theirs), first_file(disk.outside)
    same = same_until(has, first_file(theirs))
    assert DISK_SIZE <= same < end
    found = f"the put that the disk cannot hold {text_of(ended)}; behind the disk's end the slave has "
    found += "other bytes" if any(has[same:]) else "zeros"
    among = Among(3, ("SEND_OK", "FLUSH_SLAVE_TIMEOUT"), "SEND_OK", 3 if through_channel else 0)
    results.check("three more puts", among, rocketmq.send("Interop", 3, LARGEST, seed=100, producers=3))
    if through_channel:
        results.check("its log names the failure", True, FAILURE in rocketmq.log("slave"))
    compare(results, rocketmq.release, {42: found})


def test_a_real_master(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results) -> None:
    """For comparison: the first put that a master's own disk cannot hold fails. In 5.3.3 later ones may not."""
    disk = nodes.enter_context(SmallDisk(tmp_path / "disk", DISK_SIZE))
    rocketmq.start_broker("master", tmp_path / "theirs", "ASYNC_MASTER", disk, **CONF)
    results.check("puts while there is room", {"SEND_OK": 20}, rocketmq.send("Interop", 20, 80_000, producers=1))
    ended = {"SEND_OK": 1}
    for seed in range(1, 100):
        if ended != {"SEND_OK": 1}:
            break
        ended = rocketmq.send("Interop", 1, LARGEST, seed, producers=1)
    results.check("the put that the disk cannot hold", {"FAILED": 1}, ended)


def test_our_slave(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results) -> None:
    """HA-S-38: no put ends SEND_OK of which the slave has not every byte. Its file has holes as a copy of a store may have."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    rocketmq.start_broker("master", theirs, "SYNC_MASTER", **CONF)
    follow = ("--master", rocketmq.ha_address, "--file-size", str(FILE_SIZE), "--min-free-space", "0")
    first = Node(tmp_path / "first.log", "slave", "--store", str(ours), *follow)
    nodes.callback(first.stop)
    wait("our slave has reported", lambda: "request offset" in rocketmq.log("master"))
    results.check("puts on another disk", {"SEND_OK": 3}, rocketmq.send("Interop", 3, LARGEST, producers=1))
    first.stop()
    disk = nodes.enter_context(SmallDisk(tmp_path / "disk", DISK_SIZE))
    disk.sparse_file(0, FILE_SIZE, first_file(ours)[: end_of(ours)])
    before = rocketmq.log("master").count("request offset")
    slave = Node(tmp_path / "our-slave.log", "slave", "--store", str(disk.inside), *follow, behind=disk.enter)
    nodes.callback(slave.stop)
    wait("our slave has reported", lambda: rocketmq.log("master").count("request offset") > before)
    ended, acknowledged = put_until_full(rocketmq, theirs, results)
    assert same_until(first_file(disk.outside), first_file(theirs)) >= acknowledged
    results.check("the put that the disk cannot hold", {"FLUSH_SLAVE_TIMEOUT": 1}, ended)
    more = Among(3, ("FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"), "SLAVE_NOT_AVAILABLE", 0)
    results.check("three more puts", more, rocketmq.send("Interop", 3, LARGEST, seed=100, producers=3))
    said = (tmp_path / "our-slave.log").read_text(encoding="utf-8")
    results.check("lines that name the failure", 1, len(re.findall(r"append at commit-log offset \d+: No space left", said)))
