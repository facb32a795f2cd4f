"""A slave in a process, which leaves behind how far its log was on the disk, whenever it dies.

    python tests/crash/replica.py STORE PORT FLUSHED appended|flushed

After each sync the flushed offset goes to the file FLUSHED: what lies beyond it in the store is what a power cut may take.
A file outlives kill -9, whoever has not flushed it.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from producer import FILE_SIZE

from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.profile import HARDENED, Settings


def telling(sync: Callable[[], int], file: int) -> Callable[[], int]:
    def flush() -> int:
        flushed = sync()
        os.pwrite(file, flushed.to_bytes(8, "big"), 0)
        return flushed

    return flush


def main() -> None:
    logging.disable()  # that a connection ends is what is asked for; what is left on stderr is a mistake
    store, port, flushed, ack = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        file = os.open(flushed, os.O_RDWR | os.O_CREAT)
        log.flush = telling(log.flush, file)  # type: ignore[method-assign]
        log.flush()  # what the store held before
        Follower(log, "127.0.0.1", port, Settings(mapped_file_size=FILE_SIZE), HARDENED, flushes=ack == "flushed").run(
            lambda: bool(stopped)
        )
        log.flush()


if __name__ == "__main__":
    main()
