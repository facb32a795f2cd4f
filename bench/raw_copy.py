"""The raw ceiling of replication: send a mapped file over loopback into a new file, in frames, without checking the bytes.

Run as a program. `send FILE SIZE` answers `port=N` and then sends the file on every connection. `receive PORT SIZE FILE`
receives it once for each line of input, and answers `seconds=S`, the time from its connect to the last byte in a new file. The
line names the method: `pwritev`, 1 MiB at a time, or `mmap`, into a mapping of the file.
"""

import mmap
import os
import select
import socket
import sys
import time
from pathlib import Path

from .line_process import reply

FRAME = 32 * 1024
FRAMES = 16  # in each sendmsg, as in our master
HEADER = bytes(12)
CHUNK = 1024 * 1024


def framed_size(size: int) -> int:
    return size + -(-size // FRAME) * len(HEADER)


def send(path: Path, size: int) -> None:
    with path.open("rb") as file, socket.create_server(("127.0.0.1", 0)) as listener:
        view = memoryview(mmap.mmap(file.fileno(), size, mmap.MAP_SHARED, mmap.PROT_READ))
        reply(port=listener.getsockname()[1])
        while listener in select.select([sys.stdin, listener], [], [])[0]:  # ends when stdin is closed: the parent is gone
            sock, _ = listener.accept()
            with sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _send_all(sock, view)


def _send_all(sock: socket.socket, view: memoryview) -> None:
    for start in range(0, len(view), FRAMES * FRAME):
        buffers: list[memoryview] = []
        for at in range(start, min(start + FRAMES * FRAME, len(view)), FRAME):
            buffers += (memoryview(HEADER), view[at : at + FRAME])
        left = sum(map(len, buffers))
        while sent := sock.sendmsg(buffers):  # even a blocking socket may take only a part
            left -= sent
            if not left:
                break
            while sent >= len(buffers[0]):
                sent -= len(buffers.pop(0))
            buffers[0] = buffers[0][sent:]


def receive(port: int, size: int, path: Path, how: str) -> float:
    """Receive `size` bytes in frames into a new file, and remove the file. Returns: seconds.

    The file's space is allocated before the connect, as a store does it.
    """
    whole = framed_size(size)
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, whole)
        started = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port)) as sock:
            if how == "pwritev":
                _receive_by_pwritev(sock, file.fileno(), whole)
            else:
                _receive_by_mmap(sock, file.fileno(), whole)
        took = time.perf_counter() - started
    path.unlink()
    return took


def _receive_by_pwritev(sock: socket.socket, fd: int, whole: int) -> None:
    buffer, at = memoryview(bytearray(CHUNK)), 0
    while at < whole:
        nbytes = sock.recv_into(buffer)
        assert nbytes
        os.pwritev(fd, [buffer[:nbytes]], at)
        at += nbytes


def _receive_by_mmap(sock: socket.socket, fd: int, whole: int) -> None:
    with mmap.mmap(fd, whole) as mapping, memoryview(mapping) as view:
        at = 0
        while at < whole:
            with view[at : at + CHUNK] as part:
                nbytes = sock.recv_into(part)
            assert nbytes
            at += nbytes


def main() -> None:
    if sys.argv[1] == "send":
        send(Path(sys.argv[2]), int(sys.argv[3]))
        return
    for line in sys.stdin:
        reply(seconds=receive(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), line.strip()))


if __name__ == "__main__":
    main()
