"""Our store compared with Apache RocketMQ's DefaultMessageStore. The rounds of the two take turns.

Both sides put the same 1,024 messages again and again. The messages are made before the measurement. Dispatch runs, files have
1 GiB, and flush is asynchronous unless a test says otherwise. A `put` rate counts the time until the last result, a
`dispatched` rate the time until the consume queues have all messages.
If RocketMQ's jars are not available, the tests are skipped, and the table says so in one line.
"""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from pathlib import Path

import pytest

from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.batch import MessageBatch
from rocketmq_ha.impl.wire.message import Message

from . import java_store
from .java_store import JavaStore, Rates, Versus

MESSAGES = 1024  # distinct messages, as in StoreBench
BATCH = 32
PUTS = {1024: 48 * MESSAGES, 128: 96 * MESSAGES}  # body size: puts in a round
SYNC_PUTS = {1: 64, 64: 64 * 16, 512: 512 * 8}  # waiters: puts in a round
ROUNDS = java_store.WARM_UP_ROUNDS + java_store.ROUNDS
TAGS = "TAGS\x01TagA"
FILLER = Path(__file__).with_name("fill_store.py")
LOG_SIZE = 1 << 30  # bytes of the log that is recovered, if the disk has four times as much free
SMALL_LOG_SIZE = 256 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "ours") as store:
        yield store


@pytest.fixture
def sync_store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "ours", StoreOptions(sync_flush=True)) as store:
        yield store


def make_messages(size: int) -> list[Message]:
    return [Message("Bench", bytes(size), queue_id=n % 4, properties_string=TAGS, born_timestamp=1) for n in range(MESSAGES)]


def timed(store: MessageStore, count: int, work: Callable[[], None]) -> Rates:
    """Run a round and wait until its messages are dispatched. Returns: both rates of the round."""
    started = time.perf_counter()
    work()
    took = time.perf_counter() - started
    assert store.wait_for_dispatch(timeout_s=60)
    return {"per_second": count / took, "dispatched_per_second": count / (time.perf_counter() - started)}


@pytest.mark.benchmark(group="java")
@pytest.mark.parametrize("size", PUTS)
def test_put(versus: Versus, java: str, tmp_path: Path, store: MessageStore, size: int) -> None:
    messages, count = make_messages(size), PUTS[size]

    def work() -> None:
        put = store.put
        for message in islice(cycle(messages), count):
            put(message)

    with JavaStore(java, tmp_path / "theirs", "put", size, count, ROUNDS) as theirs:
        rows = {
            f"put, {size} B": ("per_second", "per_second"),
            f"put, {size} B, dispatched": ("dispatched_per_second", "dispatched_per_second"),
        }
        versus(rows, lambda: timed(store, count, work), theirs.round)


@pytest.mark.benchmark(group="java")
@pytest.mark.parametrize("size", PUTS)
def test_put_batch(versus: Versus, java: str, tmp_path: Path, store: MessageStore, size: int) -> None:
    """Put batches of 32, as a client sends them. Both sides make each batch anew. RocketMQ's single put is compared too."""
    head, count = make_messages(size)[0], PUTS[size]
    bodies, properties = [bytes(size)] * BATCH, [TAGS] * BATCH

    def work() -> None:
        for _ in range(count // BATCH):
            store.put_batch(MessageBatch(head, bodies, properties))

    with (
        JavaStore(java, tmp_path / "theirs", "batch", size, count, ROUNDS, BATCH) as batches,
        JavaStore(java, tmp_path / "theirs-single", "put", size, count, ROUNDS) as singles,
    ):

        def theirs() -> Rates:
            return {"batch": batches.round()["per_second"], "single": singles.round()["per_second"]}

        rows = {
            f"put in batches of {BATCH}, {size} B": ("per_second", "batch"),
            f"put in batches of {BATCH}, {size} B, beside single puts": ("per_second", "single"),
        }
        versus(rows, lambda: timed(store, count, work), theirs)


@pytest.mark.benchmark(group="java")
@pytest.mark.parametrize("waiters", SYNC_PUTS)
def test_sync_flush(versus: Versus, java: str, tmp_path: Path, sync_store: MessageStore, waiters: int) -> None:
    """Both sides have one thread for each waiter. Ours is also measured with the same number in flight from one thread."""
    message, count = make_messages(1024)[0], SYNC_PUTS[waiters]
    each = count // waiters

    def threads() -> None:
        def work() -> None:
            for _ in range(each):
                assert sync_store.put(message).is_ok

        for running in [pool.submit(work) for _ in range(waiters)]:
            running.result()

    def in_flight() -> None:
        for _ in range(each):
            pending = [sync_store.submit(message) for _ in range(waiters)]
            assert all(put.result().is_ok for put in pending)

    def ours() -> Rates:
        return {
            "threads": timed(sync_store, count, threads)["per_second"],
            "in_flight": timed(sync_store, count, in_flight)["per_second"],
        }

    with (
        ThreadPoolExecutor(waiters) as pool,
        JavaStore(java, tmp_path / "theirs", "sync", 1024, count, ROUNDS, waiters) as theirs,
    ):
        rows = {f"sync flush, {waiters} waiting threads": ("threads", "per_second")}
        if waiters > 1:
            rows[f"sync flush, {waiters} in flight from one thread"] = ("in_flight", "per_second")
        versus(rows, ours, theirs.round)


@pytest.mark.timeout(900)  # fourteen recoveries of a gigabyte
@pytest.mark.benchmark(group="java")
def test_recovery(versus: Versus, java: str, tmp_path: Path, note: Callable[[str], None]) -> None:
    """Both sides open the same store after a kill -9. The time ends when the whole log is checked and dispatched.

    RocketMQ runs in a new process each time, as a broker does after a crash. The start of the process is not counted, but the
    process compiles its code only while it recovers.
    """
    size = LOG_SIZE if shutil.disk_usage(tmp_path).free > 4 * LOG_SIZE else SMALL_LOG_SIZE
    killed, left = tmp_path / "killed", tmp_path / "left"
    _fill_and_kill(killed, size)
    _copy_all_but_the_log(killed, left)
    note(f"recovery: a log of {size >> 20} MiB with messages of 1 KiB")
    ends = set()

    def restore() -> None:
        for path in killed.iterdir():
            if path.name != "commitlog":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(left, killed, dirs_exist_ok=True)

    def ours() -> Rates:
        restore()
        started = time.perf_counter()
        store = MessageStore.open(killed)
        took = time.perf_counter() - started
        assert store.dispatcher.behind() == 0
        ends.add(store.max_offset)
        store.close()
        return {"per_second": store.max_offset / took}

    def theirs() -> Rates:
        restore()
        with JavaStore(java, killed, "recover") as process:
            answer = process.answer()
        ends.add(int(answer["max_offset"]))
        return {"per_second": answer["max_offset"] / answer["seconds"]}

    versus({"recovery after kill -9": ("per_second", "per_second")}, ours, theirs, unit="B/s", warm_up_rounds=0)
    assert len(ends) == 1


def _fill_and_kill(store_dir: Path, size: int) -> None:
    filler = subprocess.Popen([sys.executable, str(FILLER), str(store_dir), str(size)], stdout=subprocess.PIPE, text=True)
    assert filler.stdout is not None
    assert filler.stdout.readline() == "full\n"
    filler.send_signal(signal.SIGKILL)
    filler.wait()
    filler.stdout.close()
    assert (store_dir / "abort").exists()


def _copy_all_but_the_log(store_dir: Path, target: Path) -> None:
    shutil.copytree(store_dir, target, ignore=lambda path, _: ["commitlog"] if Path(path) == store_dir else [])
