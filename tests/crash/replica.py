"""The slave process. It keeps its flushed offset in a file, which survives its death.

    python tests/crash/replica.py STORE PORT FLUSHED appended|flushed

After each sync it writes the flushed offset to the file FLUSHED: a power cut may lose everything beyond it. That file survives
kill -9 without a sync.
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
    logging.disable()  # lost connections are expected; anything left on stderr is an error
    store, port, flushed, ack = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        file = os.open(flushed, os.O_RDWR | os.O_CREAT)
        log.flush = telling(log.flush, file)  # type: ignore[method-assign]
        log.flush()  # the bytes that the store held before
        Follower(log, "127.0.0.1", port, Settings(mapped_file_size=FILE_SIZE), HARDENED, flushes=ack == "flushed").run(
            lambda: bool(stopped)
        )
        log.flush()


if __name__ == "__main__":
    main()
