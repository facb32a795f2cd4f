"""The writer process: it puts many messages at a time, and reports each begin and acknowledgement on stdout (ledger.ENTRY).

    python tests/crash/writer.py STORE SEED PUTS [--sync]

Eight threads have 32 puts each in flight. After PUTS it closes the store; 0: never.
"""

import os
import random
import sys
import threading
import zlib
from collections import deque
from pathlib import Path
from typing import Final

from ledger import ENTRY

from rocketmq_ha.impl.store.derived.index_file import Geometry
from rocketmq_ha.impl.store.message_store import MessageStore, PendingPut, StoreOptions
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.constants import BODY_CRC_MASK

THREADS: Final = 8
WINDOW: Final = 32  # puts in flight for each thread
OPTIONS: Final = StoreOptions(file_size=1 << 18, queue_file_size=20_000, index_geometry=Geometry(500, 5000), floor_size=0)


def tell(kind: bytes, offset: int = 0, size: int = 0, body_crc: int = 0, queue_id: int = 0, queue_offset: int = 0) -> None:
    os.write(1, ENTRY.pack(kind, offset, size, body_crc, queue_id, queue_offset))


def acknowledge(body: bytes, queue_id: int, put: PendingPut) -> None:
    result = put.result()
    if result.is_ok:
        append = result.append
        tell(b"A", append.offset, append.size, zlib.crc32(body) & BODY_CRC_MASK, queue_id, append.queue_offset)


def work(store: MessageStore, number: int, seed: str, puts: int) -> None:
    rng = random.Random(f"{seed} {number}")
    in_flight: deque[tuple[bytes, PendingPut]] = deque()
    index = 0
    while not puts or index < puts:
        body = rng.randbytes(rng.choice((0, 10, 100, 1000)))
        tell(b"S")
        message = Message("orders", body, queue_id=number, properties_string=f"UNIQ_KEY\1{seed}-{number}-{index}")
        in_flight.append((body, store.submit(message)))
        index += 1
        if len(in_flight) >= WINDOW:
            body, put = in_flight.popleft()
            acknowledge(body, number, put)
    for body, put in in_flight:
        acknowledge(body, number, put)


def main() -> None:
    path, seed, puts = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    options = StoreOptions(
        file_size=OPTIONS.file_size,
        queue_file_size=OPTIONS.queue_file_size,
        index_geometry=OPTIONS.index_geometry,
        floor_size=0,
        sync_flush="--sync" in sys.argv,
    )
    tell(b"P", os.getpid())
    with MessageStore.open(path, options) as store:
        threads = [threading.Thread(target=work, args=(store, number, seed, puts), daemon=True) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tell(b"C")


if __name__ == "__main__":
    main()
