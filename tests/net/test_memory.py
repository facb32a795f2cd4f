"""The memory that a connection may cost a master: HA-M-55."""

import gc
import tracemalloc

from kit.limits import MIB, Serve, connect, polled
from rocketmq_ha.impl.app.run_master import MASTER_READ_BUFFER_SIZE
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.link import MasterLink
from rocketmq_ha.impl.wire.frame import REPORT


def test_a_connection_costs_less_than_64_kib(serve: Serve) -> None:
    """HA-M-55 "MUST NOT cost the master more than 64 KiB of memory, whatever its peer does".

    Each peer leaves a frame unread, has flooded the master with reports, and has sent a part of one more.
    """
    count = 100
    master = serve(Limits(), 3 * MIB, send_buffer=4096)
    socks = [connect(master, receive_buffer=4096)]
    polled(master)  # so that one-time allocations do not count
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        socks += [connect(master, receive_buffer=4096) for _ in range(count)]
        reports = REPORT.pack(0) * 2000 + bytes(7)
        for sock in socks:
            sock.sendall(reports)
        links: list[MasterLink] = []
        for _ in range(10_000):
            master.poll(5)
            links = list(master._links.values())
            if len(links) == count + 1 and all(link.blocked_since_ms is not None and link.conn.unparsed for link in links):
                break
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    assert all(link.blocked_since_ms is not None and link.conn.unparsed == 7 for link in links)
    assert MASTER_READ_BUFFER_SIZE < each < 64 * 1024
    for sock in socks:
        sock.close()
