"""A log file is truncated under a live master: one connection ends, and the service goes on."""

import logging
import os
import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.waiting import PATIENCE_S
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.net.server import Master
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE = 1 << 20


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    """A master with three files; the first two are full."""
    with CommitLog.open(tmp_path, file_size=FILE_SIZE) as log:
        while log.max_offset < 2 * FILE_SIZE:
            log.append(Message("topic", bytes(100_000)))
        listener = listen("127.0.0.1", 0)
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, 4096
        )  # accepted sockets inherit it, so a frame is sent in parts
        serving = Master(log, listener, Settings(FILE_SIZE), HARDENED)
        yield serving
        serving.close()


def connected(master: Master, report: int, receive_buffer: int | None = None) -> socket.socket:
    """Connect a slave that has reported, and wait until the master serves it."""
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(PATIENCE_S)
    sock.connect(master.address)
    before = len(master.service.connections)
    until = time.monotonic() + PATIENCE_S
    while len(master.service.connections) == before and time.monotonic() < until:
        master.poll(5)
    sock.sendall(REPORT.pack(report))
    return sock


def drained(master: Master, sock: socket.socket, size: int | None = None) -> bytes:
    """Receive a number of bytes, or up to the end of the stream, while the master runs."""
    sock.setblocking(False)
    got, until = bytearray(), time.monotonic() + PATIENCE_S
    while size is None or len(got) < size:
        assert time.monotonic() < until, "waited in vain"
        master.poll(1)
        try:
            data = sock.recv(1 << 20)
        except BlockingIOError:
            continue
        except ConnectionError:
            break
        if not data:
            break
        got += data
    return bytes(got)


def file_of(tmp_path: Path, base: int) -> Path:
    return tmp_path / "commitlog" / f"{base:020d}"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "its part of the log cannot be read" in line]


def assert_serves(master: Master, slave: socket.socket) -> None:
    """Assert that the other slave receives a new put."""
    end = master.service.log.max_offset
    master.put(Message("topic", b"after"), wait=False)
    frame = drained(master, slave, HEADER.size + master.service.log.max_offset - end)
    assert HEADER.unpack_from(frame) == (end, master.service.log.max_offset - end)


def test_a_cut_file_ends_the_read_that_finds_it_and_no_other(
    master: Master, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-M-88 "the master MUST end the connection for which it reads, with an error that names the file and both lengths"."""
    caplog.set_level(logging.INFO, "rocketmq_ha")
    with connected(master, master.service.log.max_offset) as in_step:
        os.truncate(file_of(tmp_path, 0), 5000)
        for number in (1, 2):
            with connected(master, 4096) as reader:
                assert drained(master, reader) == b""
            assert len(told(caplog)) == number
        assert (
            f"{file_of(tmp_path, 0)}: at commit-log offset 0: found a length of 5000 bytes, expected {FILE_SIZE}"
            in told(caplog)[0]
        )
        with connected(master, FILE_SIZE) as other:  # the second file is whole
            assert HEADER.unpack_from(drained(master, other, HEADER.size))[0] == FILE_SIZE
        assert_serves(master, in_step)


def test_a_file_that_is_cut_while_a_frame_of_it_is_half_sent_ends_that_connection(
    master: Master, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-M-88: the file is checked again before the rest of the frame is read."""
    caplog.set_level(logging.INFO, "rocketmq_ha")
    with connected(master, master.service.log.max_offset) as in_step, connected(master, 4096, 4096) as slow:
        conn = master.service.connections[-1]
        until = time.monotonic() + PATIENCE_S
        while conn.last_write_over:
            assert time.monotonic() < until, "waited in vain"
            master.poll(5)
        os.truncate(file_of(tmp_path, conn.next_transfer_from_where // FILE_SIZE * FILE_SIZE), 4096)
        assert len(drained(master, slow)) < 2 * FILE_SIZE
        assert len(told(caplog)) == 1 and "found a length of 4096 bytes" in told(caplog)[0]
        assert_serves(master, in_step)


class Cutting:
    """A socket that truncates the file between the check and the system's copy."""

    def __init__(self, sock: Any, file: Path) -> None:
        self._sock, self._file = sock, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendmsg(self, buffers: Iterable[memoryview]) -> int:
        os.truncate(self._file, 0)
        return int(self._sock.sendmsg(buffers))


def test_a_file_that_is_cut_between_look_and_use_ends_the_connection(
    master: Master, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-M-88: a copy by the system fails with EFAULT; a copy by the process would be SIGBUS."""
    caplog.set_level(logging.INFO, "rocketmq_ha")
    with connected(master, master.service.log.max_offset) as in_step, connected(master, 4096) as reader:
        link = list(master._links.values())[-1]
        link.sock = Cutting(link.sock, file_of(tmp_path, 0))
        assert len(drained(master, reader)) <= HEADER.size
        assert len(told(caplog)) == 1
        assert_serves(master, in_step)
