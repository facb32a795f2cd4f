"""Gain of many waiting puts from sharing a flush. The floor is one put at a time, each with its own flush.

In `submitted`, one thread has all puts in flight. In `threads`, each put waits in its own thread, which must be woken.
The threads are started before the measurement, because the start of a thread costs as much as thirty puts.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message

SINGLE_PUTS = 100
ROUNDS_OF_PUTS = 20
MESSAGE = Message("bench", bytes(range(256)) * 4, properties_string="TAGS\x01a")

Pairs = Callable[..., float]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", StoreOptions(file_size=1 << 30, sync_flush=True)) as store:
        yield store


@pytest.mark.benchmark(group="sync-flush")
@pytest.mark.parametrize("waiters", [1, 64, 512])
def test_submitted(pairs: Pairs, store: MessageStore, waiters: int) -> None:
    def put() -> None:
        for _ in range(ROUNDS_OF_PUTS):
            pending = [store.submit(MESSAGE) for _ in range(waiters)]
            assert all(put.result().is_ok for put in pending)

    pairs(
        put, lambda: [store.put(MESSAGE) for _ in range(SINGLE_PUTS)], items=ROUNDS_OF_PUTS * waiters, floor_items=SINGLE_PUTS
    )


@pytest.mark.benchmark(group="sync-flush")
@pytest.mark.parametrize("waiters", [64, 512])
def test_threads(pairs: Pairs, store: MessageStore, waiters: int) -> None:
    begin, end = (threading.Barrier(waiters + 1, timeout=60) for _ in range(2))
    is_over = False

    def work() -> None:
        while True:
            begin.wait()
            if is_over:
                return
            for _ in range(ROUNDS_OF_PUTS):
                assert store.put(MESSAGE).is_ok
            end.wait()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(waiters)]
    for thread in threads:
        thread.start()

    def put() -> None:
        begin.wait()
        end.wait()

    pairs(
        put, lambda: [store.put(MESSAGE) for _ in range(SINGLE_PUTS)], items=ROUNDS_OF_PUTS * waiters, floor_items=SINGLE_PUTS
    )
    is_over = True
    begin.wait()
    for thread in threads:
        thread.join()
