"""The master process: it puts until it is killed, and reports each begin and each PUT_OK on stdout (ledger.ENTRY).

    python tests/crash/producer.py STORE FD SEED [--async]

FD is the listening socket, made by the parent, which must know the port. 128 puts are in flight. An entry holds the end offset
of the message and the size of its body. With --async no put waits: each is acknowledged at once.
"""

import logging
import os
import random
import socket
import sys
import zlib
from collections import deque
from pathlib import Path
from typing import Final

from ledger import ENTRY

from rocketmq_ha.impl.ha.group_transfer import GroupCommitRequest
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.store.log.results import PutMessageStatus
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE: Final = 1 << 18
IN_FLIGHT: Final = 128


def tell(kind: bytes, offset: int = 0, size: int = 0, body_crc: int = 0) -> None:
    os.write(1, ENTRY.pack(kind, offset, size, body_crc, 0, 0))


def serve(master: Master, rng: random.Random, *, wait: bool) -> None:
    """Put a new message at each PUT_OK, so that at least IN_FLIGHT - 1 puts always wait."""
    waiting: deque[tuple[bytes, GroupCommitRequest]] = deque()

    def put() -> None:
        body = rng.randbytes(rng.choice((0, 10, 100, 1000)))
        tell(b"S")
        waiting.append((body, master.put(Message("orders", body), wait=wait)))

    service, asked = master.service, 0
    while True:
        if service.count_slaves() == 0 and not waiting:
            # HA-G-5 "from its first acknowledgement on": send a slave one message, for which no put waits.
            if wait and service.count_connected() > asked:
                asked += 1
                master.put(Message("orders", b"first"), wait=False)
            if wait or service.count_connected() == 0:
                master.poll(10)
                continue
        for _ in range(IN_FLIGHT - len(waiting) if wait else 1):
            put()
        master.poll(10 if wait else 0)
        while waiting and waiting[0][1].status is not None:
            body, request = waiting.popleft()
            if request.status is PutMessageStatus.PUT_OK:
                tell(b"A", request.next_offset, len(body), zlib.crc32(body))
            if wait:
                put()


def main() -> None:
    logging.disable()  # lost connections are expected; anything left on stderr is an error
    store, listener, seed = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])), sys.argv[3]
    tell(b"P", os.getpid())
    with CommitLog.open(store, file_size=FILE_SIZE) as log:
        master = Master(log, listener, Settings(mapped_file_size=FILE_SIZE), HARDENED)
        serve(master, random.Random(seed), wait="--async" not in sys.argv)


if __name__ == "__main__":
    main()
