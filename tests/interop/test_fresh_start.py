"""`slave --from` on a real master: its whole history, what is left of it, and a real slave on a store that was prepared.

HA-S-80 to HA-S-85. A real master tells its min offset to nobody on this port, takes 0 for its last file, and answers what it
does not have by heartbeats.
"""

import subprocess
from contextlib import ExitStack
from pathlib import Path

from links import assert_same_logs, await_same_end, start_slave
from results import Results
from rocketmq import FILE_SIZE, Rocketmq

from kit.command_line import COMMAND
from kit.files import end_of
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.reader import LogReader
from rocketmq_ha.impl.store.log.verify import compare

MESSAGES = 1200
LARGEST = 6000  # bytes of a body: files of 1 MiB roll


def bases_of(store: Path) -> list[int]:
    return sorted(int(path.name) for path in (store / "commitlog").iterdir() if path.name.isdigit())


def min_of(store: Path) -> int:
    with LogReader(store) as reader:
        return reader.min_offset


def refusal(store: Path, master: str, *more: str) -> str:
    """What `slave` says last, when it ends with status 2."""
    command = [*COMMAND, "slave", "--store", str(store), "--master", master, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2, done.stderr
    assert not store.exists()
    return done.stderr.splitlines()[-1]


def test_a_fresh_slave_on_a_real_master(rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results) -> None:
    theirs = tmp_path / "theirs"
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    results.check("messages", {"SEND_OK": MESSAGES}, rocketmq.send("Interop", MESSAGES, LARGEST))
    end = end_of(theirs)
    assert end > 3 * FILE_SIZE, "the log has several files"
    address, sized = rocketmq.ha_address, ("--file-size", str(FILE_SIZE))

    slave = start_slave(nodes, tmp_path, tmp_path / "all", address, "--from", "min")
    await_same_end(tmp_path / "all", theirs)
    slave.stop()
    results.check("--from min begins at", 0, min_of(tmp_path / "all"))

    inside = FILE_SIZE + 12_345
    slave = start_slave(nodes, tmp_path, tmp_path / "some", address, "--from", str(inside))
    await_same_end(tmp_path / "some", theirs)
    slave.stop()
    results.check("--from an offset in the second file begins at", FILE_SIZE, min_of(tmp_path / "some"))

    wrong = refusal(tmp_path / "none", address, "--from", "min", "--file-size", str(FILE_SIZE // 2))
    results.check(
        "files of half the size", True, f"the master's files are of {FILE_SIZE} bytes, not of {FILE_SIZE // 2};" in wrong
    )
    beyond = refusal(tmp_path / "none", address, "--from", str(end + 5000), *sized)
    results.check("beyond the end", True, f"offset {end + 5000} is beyond the master's end" in beyond)

    rocketmq.stop("master")
    assert assert_same_logs(tmp_path / "all", theirs) >= MESSAGES  # beside a broker's own
    with LogReader(tmp_path / "some") as a, LogReader(theirs) as b:
        a.walk()
        b.walk()
        results.check("the difference to the master's log", None, compare(a, b).difference)


def test_a_fresh_slave_where_the_first_files_are_gone(
    rocketmq: Rocketmq, tmp_path: Path, nodes: ExitStack, results: Results
) -> None:
    theirs = tmp_path / "theirs"
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    results.check("messages", {"SEND_OK": MESSAGES}, rocketmq.send("Interop", MESSAGES, LARGEST))
    rocketmq.stop("master")
    for base in bases_of(theirs)[:2]:
        (theirs / "commitlog" / f"{base:020d}").unlink()
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    address = rocketmq.ha_address

    slave = start_slave(nodes, tmp_path, tmp_path / "all", address, "--from", "min")
    await_same_end(tmp_path / "all", theirs)
    slave.stop()
    results.check("--from min begins at", 2 * FILE_SIZE, min_of(tmp_path / "all"))
    assert_same_logs(tmp_path / "all", theirs)
    told = refusal(tmp_path / "none", address, "--from", "0", "--file-size", str(FILE_SIZE))
    results.check("--from 0", True, "it has deleted the file of offset 0" in told)


def test_a_real_slave_on_a_prepared_store(rocketmq: Rocketmq, tmp_path: Path, results: Results) -> None:
    """A process that ended before its first record leaves an empty file; RocketMQ reports its start, and goes on."""
    theirs, prepared = tmp_path / "theirs", tmp_path / "prepared"
    rocketmq.start_broker("master", theirs, "ASYNC_MASTER")
    results.check("messages", {"SEND_OK": MESSAGES}, rocketmq.send("Interop", MESSAGES, LARGEST))
    with CommitLog.open(prepared, file_size=FILE_SIZE) as log:
        log.begin_at(FILE_SIZE)
    rocketmq.start_broker("slave", prepared, "SLAVE")
    await_same_end(prepared, theirs)
    results.check("a real slave begins at", FILE_SIZE, min_of(prepared))
    with LogReader(prepared) as a, LogReader(theirs) as b:
        a.walk()
        b.walk()
        results.check("the difference to the master's log", None, compare(a, b).difference)
