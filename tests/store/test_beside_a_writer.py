"""Readers run beside a process that writes: they report no damage where there is none, and nothing to recover.

HA-ST-49 "MUST report no damage and nothing to cut while the owner is writing, and MUST report how far that store has come".
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kit.children import Child
from kit.command_line import invoke
from kit.waiting import PATIENCE_S, wait_for
from rocketmq_ha.fuzz.processes import Node
from rocketmq_ha.impl.app import logs
from rocketmq_ha.impl.errors import StoreCorrupt, StoreLocked
from rocketmq_ha.impl.store import recovery_plan
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.log import reader as reader_module
from rocketmq_ha.impl.store.log import recovery
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.lock import StoreLock, lock_holder
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.store.recovery_plan import plan_recovery
from rocketmq_ha.impl.wire.message import Message, encode

FILE_SIZE = 4096
OPTIONS = StoreOptions(file_size=FILE_SIZE, queue_file_size=6000, index_geometry=Geometry(50, 100), floor_size=0)
STRESS_S = 1.5  # for each kind of writer


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    logs.logging.getLogger("rocketmq_ha").handlers.clear()


def told(result: Result) -> dict[str, str]:
    return dict(word.split("=", 1) for word in result.stdout.split())


# --- A record that changes between two reads -------------------------------------------------------------------------


def record(offset: int, body: bytes = b"x" * 300) -> bytes:
    return encode(Message("t", body, store_timestamp=1_700_000_000_000, properties_string="KEYS\x01k"), None, offset)


class Torn:
    """A store whose third record lacks its end, and a writer that completes the record."""

    def __init__(self, store: Path) -> None:
        with CommitLog.open(store, file_size=FILE_SIZE) as log:
            for _ in range(2):
                log.append_data(log.max_offset, [record(log.max_offset)])
            self.end = log.max_offset
        (store / "lock").unlink()
        self.path = store / "commitlog" / f"{0:020d}"
        self.whole = record(self.end)
        self.write(self.end, self.whole[:200])

    def write(self, position: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(position)
            file.write(data)

    def complete(self) -> None:
        self.write(self.end, self.whole)

    def complete_and_go_on(self) -> None:
        self.complete()
        self.write(self.end + len(self.whole), record(self.end + len(self.whole)))


def once_after(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Run a writer's step after the first call of a function that recovery uses."""
    original, calls = getattr(recovery, name), []

    def watched(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if not calls:
            calls.append(1)
            act()
        return result

    monkeypatch.setattr(recovery, name, watched)


@pytest.mark.parametrize("look", ["scan", "whole_record_at"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["one record", "and the next"])
def test_a_record_that_is_completed_between_two_looks_is_whole(
    look: str, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process holds the lock: the writer takes no lock, or it started after the reader checked the lock."""
    torn = Torn(tmp_path / "s")
    once_after(monkeypatch, look, torn.complete_and_go_on if goes_on else torn.complete)
    plan = plan_recovery(tmp_path / "s")
    seen = 3 + goes_on
    assert (plan.messages, plan.end, plan.cut_size) == (seen, seen * len(torn.whole), 0)


def test_a_record_whose_sector_is_missing_is_damage_where_a_flushed_one_follows(tmp_path: Path) -> None:
    """A clock stepped back: a later message may lie before a message that the checkpoint vouches for.

    The store is not at fault.
    """
    properties = "X\x01" + "p" * 1500
    first = encode(Message("t", b"", store_timestamp=9_000_000, properties_string=properties), None, 0)
    second = encode(Message("t", b"", store_timestamp=1_000_000), None, len(first))
    with CommitLog.open(tmp_path / "s", file_size=FILE_SIZE) as log:
        log.append_data(0, [first, second])
        files = log.queue.files
        with (tmp_path / "s" / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(512)
            file.write(bytes(512))
        with pytest.raises(StoreCorrupt, match=r"512 zero bytes in topic or properties.*a whole record follows") as refused:
            recovery.recover(files, strict=True, flushed_before_ms=5_000_000)
        assert refused.value.offset == 0


# --- The lock --------------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from rocketmq_ha.impl.store.log.lock import StoreLock
lock = StoreLock(Path(sys.argv[1]), create=True)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A store, and the id of the process that has its lock."""
    path = tmp_path / "held"
    with CommitLog.open(path, file_size=FILE_SIZE) as log:
        for _ in range(20):
            log.append_data(log.max_offset, [record(log.max_offset)]) if FILE_SIZE - log.max_offset % FILE_SIZE > 408 else None
    holder = Child([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    yield path, holder.pid
    holder.communicate("", timeout=PATIENCE_S)


def test_the_holder_of_a_lock_is_named_and_the_lock_left_alone(held: tuple[Path, int], tmp_path: Path) -> None:
    path, pid = held
    assert lock_holder(path) == pid
    with pytest.raises(StoreLocked):
        StoreLock(path, create=False)
    assert lock_holder(tmp_path) is None
    assert lock_holder(tmp_path / "nowhere") is None
    with StoreLock(tmp_path, create=True):
        assert lock_holder(tmp_path) == os.getpid()
        code = (
            "from pathlib import Path; from rocketmq_ha.impl.store.log.lock import *\n"
            f"print(lock_holder(Path({str(tmp_path)!r})))"
        )
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
        assert int(other.stdout) == os.getpid()  # checking the lock did not release the lock of this process
    assert lock_holder(tmp_path) is None


def test_recover_says_who_has_the_store_open_and_what_it_saw(held: tuple[Path, int]) -> None:
    path, pid = held
    (path / "abort").touch()
    found = told(invoke("recover", path))
    assert (found["stop"], found["held_by"], found["verdict"]) == ("running", str(pid), "HELD")
    assert (found["cut"], found["entries_cut"], found["keys_cut"]) == ("0", "0", "0")


def test_recover_writes_nothing_and_looks_at_nothing_where_a_process_has_the_store_open(
    held: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_plan, "recover", lambda *_, **__: pytest.fail("the log was looked at before the lock"))
    result = invoke("recover", held[0], "--write")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"rocketmq-ha: {held[0]}: locked by another process, expected a store that nobody has open\n"


def test_recover_keeps_the_lock_from_its_look_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process can change what recover has reported."""
    with MessageStore.open(tmp_path / "s", OPTIONS) as store:
        store.put(Message("t", b"x"))
    owners: list[int | None] = []
    once_after(monkeypatch, "scan", lambda: owners.append(lock_holder(tmp_path / "s")))
    assert told(invoke("recover", tmp_path / "s", "--write"))["verdict"] == "RECOVERED"
    assert owners == [os.getpid()]
    assert lock_holder(tmp_path / "s") is None


def test_a_store_that_is_opened_during_a_look_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_plan, "_LOOK_AGAIN_S", 0.001)
    with MessageStore.open(tmp_path / "s", OPTIONS) as store:
        store.put(Message("t", b"x"))
    opened: list[MessageStore] = []
    once_after(monkeypatch, "scan", lambda: opened.append(MessageStore.open(tmp_path / "s", OPTIONS)))
    try:
        plan = plan_recovery(tmp_path / "s")
        assert (plan.stop, plan.holder) == ("running", os.getpid())
    finally:
        opened[0].close()
    assert plan_recovery(tmp_path / "s").stop == "clean"


def test_how_far_a_store_is_dispatched_is_told_while_it_is_open(tmp_path: Path) -> None:
    """HA-ST-49 "MUST report no damage and nothing to cut": nor report a dispatch that would start again, as after a crash."""
    with MessageStore.open(tmp_path / "s", OPTIONS) as store:
        for _ in range(20):
            store.put(Message("t", bytes(500)))
        assert store.wait_for_dispatch()
        shutil.copytree(tmp_path / "s", tmp_path / "crashed", ignore=lambda *_: ["rocketmq-ha.sock"])
        plan = plan_recovery(tmp_path / "s")
        assert (plan.stop, plan.is_clean, plan.end) == ("running", False, store.log.max_offset)
        assert plan.start < plan.dispatch_from == plan.end
        assert told(invoke("recover", tmp_path / "s"))["dispatch_from"] == str(plan.end)
    plan = plan_recovery(tmp_path / "crashed")
    assert (plan.stop, plan.dispatch_from) == ("unclean", plan.start)
    assert plan.start < plan.end
    plan = plan_recovery(tmp_path / "s")
    assert (plan.stop, plan.dispatch_from) == ("clean", plan.end)


def test_damage_beside_a_writer_is_damage_still(held: tuple[Path, int]) -> None:
    file = held[0] / "commitlog" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    file.write_bytes(data)
    result = invoke("recover", held[0])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "a whole record follows" in result.stderr


def test_a_killed_writer_leaves_an_unclean_stop(tmp_path: Path) -> None:
    """HA-ST-23 "finding it at the start means that the last stop was not clean"."""
    for number, stops in enumerate((Node.kill, Node.stop)):
        store = tmp_path / f"s{number}"
        node = Node(tmp_path / "log", *master_of(store, 50))
        try:
            node.line("listening")
            node.line("put")
            found = told(invoke("recover", store))
            assert (found["stop"], found["verdict"]) == ("running", "HELD")
        finally:
            stops(node)
        found = told(invoke("recover", store))
        assert (found["stop"], found["held_by"]) == ("unclean", "none")


# --- Under load ------------------------------------------------------------------------------------------------------

WRITER = """
import sys, time
from pathlib import Path
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message
options = StoreOptions(file_size=16384, queue_file_size=2000, index_geometry=Geometry(50, 200), floor_size=0)
with MessageStore.open(Path(sys.argv[1]), options) as store:
    print("open", flush=True)
    number = 0
    while True:
        keys = f"KEYS\\1k{number} all\\2UNIQ_KEY\\1u{number}\\2TAGS\\1a"
        store.put(Message(f"t{number % 3}", b"x" * (number * 37 % 900), queue_id=number % 4, properties_string=keys))
        number += 1
        if number % 20 == 0:
            time.sleep(0.005 if number < 20_000 else 0.5)  # each file has a descriptor, and a busy machine reads for long
"""


def master_of(store: Path, count: int, *more: str) -> list[str]:
    return [
        *("master", "--store", str(store), "--listen", "127.0.0.1:0", "--file-size", "16384", "--put", str(count)),
        *("--size", "700", "--role", "ASYNC_MASTER", *more),
    ]


# A put waits for the slave, and this limits the rate to the slave: else there are thousands of files within seconds.
IN_STEP = ("--await-slaves", "1", "--role", "SYNC_MASTER", "--in-flight", "8", "--max-transfer-rate", "300000")


def read_all(store: Path) -> None:
    """Run each reader repeatedly. Each reports correct figures, and no less than before."""
    ends: dict[str, int] = {}
    deadline, rounds = time.monotonic() + STRESS_S, 0
    while time.monotonic() < deadline or rounds < 2:
        rounds += 1
        results = {name: invoke(name, store) for name in ("recover", "verify")}
        found = {name: told(result) for name, result in results.items()}
        verdicts = {name: each.get("verdict") for name, each in found.items()}
        assert verdicts == {"recover": "HELD", "verify": "OK"}, [result.output + result.stderr for result in results.values()]
        for name, each in found.items():
            assert int(each["max_offset"]) >= ends.get(name, 0)
            ends[name] = int(each["max_offset"])
        assert [found["recover"][name] for name in ("cut", "entries_cut", "keys_cut")] == ["0", "0", "0"]
        start = max(0, ends["verify"] - 16384)
        for arguments in (
            ("inspect", store, "--json", "--from", start),
            ("query", store, "--topic", "t1", "--key", "all", "--json"),
        ):
            result = invoke(*arguments)
            if result.exit_code == 1 and arguments[0] == "query":
                continue  # the log of `master` has no such key
            assert (result.exit_code, result.stderr) == (0, "")
            offsets = [json.loads(line)["commit_log_offset"] for line in result.stdout.splitlines()]
            assert offsets == sorted(offsets)
    assert ends["verify"] > 16384


def test_the_readers_beside_a_message_store_under_load(tmp_path: Path) -> None:
    store = tmp_path / "s"
    writer = Child([sys.executable, "-c", WRITER, str(store)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        read_all(store)
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate(timeout=PATIENCE_S)
    assert told(invoke("recover", store))["stop"] == "unclean"


def test_the_readers_beside_a_master_and_its_slave_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "LOOK_AGAIN_S", 0.005)
    nodes: list[Node] = []
    try:
        nodes.append(Node(tmp_path / "master.log", *master_of(tmp_path / "a", 10_000_000, *IN_STEP)))
        address = nodes[0].line("listening")
        nodes.append(
            Node(tmp_path / "slave.log", "slave", "--store", str(tmp_path / "b"), "--master", address, "--file-size", "16384")
        )
        wait_for((tmp_path / "b" / "commitlog" / f"{32768:020d}").exists)
        for store in (tmp_path / "b", tmp_path / "a"):
            read_all(store)
        for node in nodes:
            node.check()
    finally:
        for node in reversed(nodes):
            node.kill()
