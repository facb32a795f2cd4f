"""A clock that the test moves, and peers for a master with limits."""

import select
import socket
import time
from collections.abc import Callable

from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.net.link import MasterLink
from rocketmq_ha.impl.net.server import Master

MIB = 1024 * 1024

Serve = Callable[..., Master]  # the fixture of tests/net/conftest.py; arguments: limits, size of the log, send buffer


class Clock:
    """The master's clock. Only the test moves it."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def connect(master: Master, host: str = "127.0.0.1", receive_buffer: int | None = None) -> socket.socket:
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.bind((host, 0))
    sock.settimeout(PATIENCE_S)
    sock.connect(master.address)
    return sock


def polled(master: Master, times: int = 5) -> None:
    for _ in range(times):
        master.poll(5)


def passing(clock: Clock, ms: int, *masters: Master) -> None:
    """Move the clock while the masters run, in steps too short to count as a pause (HA-T-21)."""
    while ms > 0:
        step = min(ms, 500)
        clock.ms += step
        ms -= step
        for master in masters:
            master.poll(0)


def until_blocked(master: Master, link: MasterLink) -> None:
    until = time.monotonic() + PATIENCE_S
    while link.blocked_since_ms is None or select.select([], [link.sock], [], 0.02)[1]:  # the peer may still be receiving
        assert time.monotonic() < until, f"not blocked: {link.conn.sent_offset} of {master.service.log.max_offset} sent"
        master.poll(5)


def is_closed(sock: socket.socket) -> bool:
    """Whether the master has closed the connection. Bytes that it sent before are discarded."""
    sock.setblocking(False)
    try:
        while sock.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True
