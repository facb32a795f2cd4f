"""Cost of a consume queue: of reading all messages through it, and of dispatching messages into it.

The floor of a read is a copy of the same records, one by one, out of the page cache. The read copies its records too, because
views alone would cost nothing. Floor and read take turns, and the ratio is the median of the ratios of the pairs.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from rocketmq_ha.impl.store.derived.consume_queue_table import ConsumeQueueTable
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.derived.dispatch_request import RequestMaker
from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.derived.index_service import IndexService
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message

PAIRS: Final = 9
TOTAL_SIZE: Final = 128 << 20
DISPATCHED: Final = 50_000


def in_turns(floor: Callable[[], None], measured: Callable[[], None]) -> tuple[float, float, float]:
    """Return medians over the pairs: (seconds of the floor, seconds measured, floor divided by measured)."""
    pairs = []
    for _ in range(PAIRS):
        started = time.perf_counter()
        floor()
        between = time.perf_counter()
        measured()
        pairs.append((between - started, time.perf_counter() - between))
    ratio = statistics.median(first / second for first, second in pairs)
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs), ratio


@pytest.mark.benchmark(group="read")
@pytest.mark.parametrize("size", [1024, 32 * 1024])
def test_warm_read_by_consume_queue(benchmark: BenchmarkFixture, tmp_path: Path, size: int) -> None:
    count = TOTAL_SIZE // size
    options = StoreOptions(file_size=2 * TOTAL_SIZE, floor_size=0, index_geometry=Geometry(1000, 1000))
    with MessageStore.open(tmp_path / "store", options) as store:
        batch = [Message("bench", bytes(range(256)) * (size // 256))] * (1 << 20 >> 16 if size > 4096 else 512)
        for _ in range(count // len(batch)):
            store.put_batch(batch)
        assert store.wait_for_dispatch(timeout_s=60)
        queue = store.queues.get(b"bench", 0)
        assert queue is not None
        places = [(entry.offset, entry.size) for _, entry in queue.entries()]
        mapping = store.log.queue.files[0].mapping

        def copy() -> None:
            for offset, record_size in places:
                _ = mapping[offset : offset + record_size]

        def read() -> None:
            queue_offset = 0
            while queue_offset < len(places):
                found = store.get("bench", 0, queue_offset, max_messages=64, max_size=4 << 20)
                for record in found.records:
                    _ = bytes(record)
                queue_offset = found.next_begin_offset

        copy()  # warms the page cache and maps all pages
        floor_s, read_s, ratio = in_turns(copy, read)
        benchmark.extra_info |= {
            "bytes": sum(record_size for _, record_size in places),
            "floor_s": floor_s,
            "read_s": read_s,
            "share_of_memcpy": round(ratio, 3),
        }
        benchmark.pedantic(read, rounds=1)


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in range(1_000_000))


@pytest.mark.benchmark(group="dispatch")
@pytest.mark.parametrize("keys", [0, 1, 2])
def test_dispatch(benchmark: BenchmarkFixture, stores: Iterator[Path], keys: int) -> None:
    """Measure CPU microseconds per message: parsing properties, one entry in one of four queues, `keys` index entries."""
    named = ["TAGS\x01TagA", "UNIQ_KEY\x01{0:032X}", "KEYS\x01key-{0}"][: 1 + keys]
    properties = ["\x02".join(named).format(number).encode() for number in range(DISPATCHED)]
    make = RequestMaker(DelayLevels.parse())

    def dispatch() -> float:
        store = next(stores)
        table = ConsumeQueueTable(store, writable=True)
        index = IndexService(store, writable=True)
        started = time.thread_time()
        for start in range(0, DISPATCHED, 4096):
            requests = [
                make(b"bench", number & 3, 1200 * number, 1200, properties[number], 1_700_000_000_000, number >> 2, 0, 0)
                for number in range(start, min(DISPATCHED, start + 4096))
            ]
            table.put(requests)
            index.put(requests)
        spent = time.thread_time() - started
        table.close()
        index.close()
        return spent

    spent = statistics.median(dispatch() for _ in range(PAIRS))
    benchmark.extra_info["us_a_message"] = round(spent / DISPATCHED * 1e6, 3)
    benchmark.pedantic(dispatch, rounds=1)
