"""A slave that catches up with 64 MiB over loopback; the floor is a plain socket copy of the same bytes into a file."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.server import Master, listen
from rocketmq_ha.impl.store.commit_log import CommitLog
from rocketmq_ha.impl.wire.message import Message
from rocketmq_ha.spec.profile import HARDENED, Settings

FILE_SIZE = 128 * 1024 * 1024  # one file: a new slave starts at the beginning of the last one
SIZE = 64 * 1024 * 1024
CHUNK = 1024 * 1024


@pytest.fixture(scope="module")
def master_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommitLog]:
    message = Message(topic="bench", body=os.urandom(16 * 1024))
    with CommitLog.open(tmp_path_factory.mktemp("bench") / "master", file_size=FILE_SIZE) as log:
        while log.max_offset < SIZE:
            log.append(message)
        yield log


@pytest.mark.benchmark(group="catch-up")
def test_plain_copy(benchmark: BenchmarkFixture, master_log: CommitLog, tmp_path: Path) -> None:
    data = master_log.data_at(0, SIZE)
    assert data is not None

    def copy() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener, (tmp_path / "copy").open("w+b") as file:
            sender = threading.Thread(target=_send, args=(listener, data))
            sender.start()
            os.posix_fallocate(file.fileno(), 0, FILE_SIZE)
            buffer = memoryview(bytearray(CHUNK))
            with socket.create_connection(listener.getsockname()) as sock:
                while nbytes := sock.recv_into(buffer):
                    file.write(buffer[:nbytes])
            sender.join()

    benchmark.pedantic(copy, rounds=7)


def _send(listener: socket.socket, data: memoryview) -> None:
    sock, _ = listener.accept()
    with sock:
        sock.sendall(data)


@pytest.mark.benchmark(group="catch-up")
def test_catch_up(benchmark: BenchmarkFixture, master_log: CommitLog, tmp_path: Path) -> None:
    settings = Settings(mapped_file_size=FILE_SIZE, master_read_buffer_size=4096)
    end = master_log.max_offset
    rounds = iter(range(100))

    def catch_up() -> None:
        server = Master(master_log, listen("127.0.0.1", 0), settings, HARDENED)
        with CommitLog.open(tmp_path / str(next(rounds)), file_size=FILE_SIZE) as log:
            follower = Follower(log, *server.address, settings, HARDENED)
            done = threading.Event()

            def serve() -> None:
                while not done.is_set():
                    server.poll(20)

            def caught_up() -> bool:
                assert time.monotonic() < deadline, f"at {log.max_offset} of {end}"
                return log.max_offset == end

            deadline = time.monotonic() + 60
            thread = threading.Thread(target=serve)
            thread.start()
            follower.run(caught_up)
            done.set()
            thread.join()
            server.close()

    benchmark.pedantic(catch_up, rounds=7)
