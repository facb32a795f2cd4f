"""Put 1 KiB messages into a store. Print `full` when its log has almost BYTES bytes, then go on until killed.

Run as a program: fill_store.py STORE BYTES.
"""

import sys
from pathlib import Path

from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.wire.batch import MessageBatch
from rocketmq_ha.impl.wire.message import Message

BATCH = 64
KILL_ROOM = 16 << 20  # bytes below BYTES at which `full` is printed, because puts go on until the kill


def main(store_dir: Path, size: int) -> None:
    body, tags = bytes(range(256)) * 4, "TAGS\x01TagA"
    batches = [MessageBatch(Message("Bench", b"", queue_id=n), [body] * BATCH, [tags] * BATCH) for n in range(4)]
    is_full = False
    with MessageStore.open(store_dir) as store:
        while True:
            for batch in batches:
                store.put_batch(batch)
            if not is_full and store.max_offset >= size - KILL_ROOM:
                is_full = store.wait_for_dispatch(timeout_s=60)
                sys.stdout.write("full\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
