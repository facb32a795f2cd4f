"""Cost of a read by consume queue with a warm page cache. The floor is a copy of the same bytes within memory.

Both sides copy the bytes into a buffer of the reader, from which they could be sent to a socket.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message

SIZE = 64 << 20  # bytes of records

Pairs = Callable[..., float]


@pytest.mark.benchmark(group="get")
@pytest.mark.parametrize("size", [32 << 10, 1 << 10])
def test_get(pairs: Pairs, tmp_path: Path, size: int) -> None:
    """Each read gets what a consumer's pull gets by default: 32 messages, but at most 256 KiB."""
    record_size = size + 88 + 6 + 2
    count = SIZE // record_size
    with MessageStore.open(tmp_path / "store", StoreOptions(file_size=256 << 20)) as store:
        for index in range(count):
            store.put(Message("bench", index.to_bytes(4, "big") * (size // 4)))
        assert store.wait_for_dispatch(timeout_s=60)
        buffer = bytearray(512 << 10)
        view = memoryview(buffer)
        source = memoryview(bytes(store.log.data_at(0, count * record_size) or b""))
        messages = min(32, (256 << 10) // record_size)

        def copy() -> None:
            step = messages * record_size
            for start in range(0, count * record_size - step, step):
                view[:step] = source[start : start + step]

        def read() -> None:
            offset = 0
            while offset < count:
                found = store.get("bench", 0, offset)
                position = 0
                for record in found.records:
                    end = position + len(record)
                    view[position:end] = record
                    position = end
                offset = found.next_begin_offset

        pairs(read, copy, items=count)
