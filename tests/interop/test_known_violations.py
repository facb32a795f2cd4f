"""What spec/violations.toml says that real versions show, reproduced on them: `make interop VIOLATIONS=1`.

Each item is done to a real broker over its HA port, and what it does is put in words. The record has those of each release.
"""

import contextlib
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from fake_peers import FakeMaster, FakeSlave
from known import compare
from results import Results, text_of
from rocketmq import FILE_SIZE, Rocketmq, wait

I64_MAX: Final = (1 << 63) - 1
READ_BUFFER: Final = 4 << 20
LOOKS: Final = 25  # at a process that may spin
LOOK_S: Final = 0.2  # between two of them


def test_masters(rocketmq: Rocketmq, tmp_path: Path, results: Results) -> None:
    """Quirks 1, 3 and 4, on one SYNC_MASTER."""
    rocketmq.start_broker("master", tmp_path / "store", "SYNC_MASTER")
    port = rocketmq.ports.master + 1

    def put(seed: int) -> str:
        return text_of(rocketmq.send("Interop", 3, seed=seed))

    found = {}
    alone = put(1)
    with FakeSlave(port):
        found[3] = f"without a slave {alone}; with a socket that says nothing {put(2)}"
    with FakeSlave(port) as slave:
        slave.report(-5)
        before = {slave.frame() for _ in range(2)}
        slave.report(0)
        after = {slave.frame() for _ in range(3)}
        found[4] = f"heartbeats of {_offsets(before)}; after a report of 0, of {_offsets(after)}"
    with FakeSlave(port) as slave:
        slave.report(I64_MAX)
        slave.frame()  # the report has been read
        forged = put(3)
    with FakeSlave(port):
        found[1] = f"with a report of 2^63-1 {forged}; later with a socket that says nothing {put(4)}"
    compare(results, rocketmq.release, found)


def _offsets(frames: set[tuple[int, int]]) -> str:
    assert all(size == 0 for _, size in frames), frames
    return ", ".join(str(offset) for offset, _ in sorted(frames))


def phantom_file(master: FakeMaster, store: Path, spinning: Callable[[], set[str]]) -> str:
    del spinning
    start = master.first_report()
    master.header(0, 0)
    wait("the heartbeat has made a file", (store / "commitlog" / f"{0:020}").exists)
    again = master.first_report()
    master.frame(FILE_SIZE, bytes(500))
    landed = master.answer()
    master.frame(FILE_SIZE + 500, bytes(100))
    return (
        f"reports {start}; a heartbeat makes file 0; reports {again}; after 500 bytes at {FILE_SIZE} reports {landed}; "
        f"at the frame behind it {master.answer()}"
    )


def negative_size(master: FakeMaster, store: Path, spinning: Callable[[], set[str]]) -> str:
    del store, spinning
    master.first_report()
    master.frame(0, bytes(1000))
    had = master.answer()
    master.header(1000, -4)
    return f"has {had}; after a size of -4 has {master.first_report()}"


def overflowing_size(master: FakeMaster, store: Path, spinning: Callable[[], set[str]]) -> str:
    del store, spinning
    master.first_report()
    master.frame(0, bytes(1000))
    had = master.answer()
    master.header(1000, (1 << 31) - 8)
    try:
        return f"has {had}; after a size of 2^31-8 has {master.first_report()}"
    except TimeoutError:  # its thread has ended, by an error that nothing catches
        return f"has {had}; after a size of 2^31-8 takes no notice of the connection's end"


def oversized_frame(master: FakeMaster, store: Path, spinning: Callable[[], set[str]]) -> str:
    del store
    master.first_report()
    largest = READ_BUFFER - 12
    master.frame(0, bytes(largest))
    taken = master.answer(30)
    before = spinning()
    master.header(largest, largest + 1)
    master.link.settimeout(2)
    with contextlib.suppress(TimeoutError):  # what the slave does not read stays in the sockets
        master.link.sendall(bytes(largest + 1))
    answer = master.answer()
    more = spinning() - before
    return (
        f"takes a body of {largest} (reports {taken}); at one of {largest + 1} {answer or 'stands still'}"
        + ", spinning" * bool(more)
    )


SLAVE_ITEMS: Final = {17: phantom_file, 20: negative_size, 22: overflowing_size, 23: oversized_frame}


@pytest.mark.parametrize("quirk", SLAVE_ITEMS)
def test_slaves(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results, quirk: int) -> None:
    master = FakeMaster()
    nodes.callback(master.close)
    nodes.callback(rocketmq.servers.register_master(master.address).close)
    size = {"mappedFileSizeCommitLog": str(4 * READ_BUFFER)} if quirk == 23 else {}
    rocketmq.start_broker("slave", tmp_path / "store", "SLAVE", **size)
    pid = rocketmq.cluster.running["slave"].pid
    compare(results, rocketmq.release, {quirk: SLAVE_ITEMS[quirk](master, tmp_path / "store", lambda: spinning_threads(pid))})


def spinning_threads(pid: int) -> set[str]:
    """The threads of a process that run, or wait for a processor, each time that one looks: on a busy machine too."""
    always = running_threads(pid)
    for _ in range(LOOKS):
        time.sleep(LOOK_S)
        always &= running_threads(pid)
    return always


def running_threads(pid: int) -> set[str]:
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if (thread / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                found.add(thread.name)
    return found
