"""A peer in the place of a master: it sends prepared bytes on each connection, and keeps what it is sent."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kit.waiting import PATIENCE_S, accepted, await_end
from rocketmq_ha.impl.wire.frame import HEADER


def frame(offset: int, body: bytes = b"") -> bytes:
    """A frame; without a body it is a heartbeat."""
    return HEADER.pack(offset, len(body)) + body


class ScriptedMaster:
    """address: to connect to. reports: what came on each connection, the first report included."""

    def __init__(self, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        self.address: tuple[str, int] = host, port
        self.reports: list[bytearray] = []

    @property
    def name(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


@contextmanager
def scripted_master(*answers: bytes, closes: bool = False, then: bytes = b"") -> Iterator[ScriptedMaster]:
    """Answer the first report of each connection with the next bytes. A further connection is not accepted.

    closes: end each connection after its answer, but for the last; otherwise the client ends it. then: the answer to the second
    report of a connection.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        found = ScriptedMaster(listener)

        def serve() -> None:
            for number, answer in enumerate(answers, 1):
                try:
                    sock = accepted(listener)
                except OSError:  # the test has ended
                    return
                with sock:
                    sock.settimeout(PATIENCE_S)
                    found.reports.append(bytearray(sock.recv(8)))
                    sock.sendall(answer)
                    if closes and number < len(answers):
                        sock.shutdown(socket.SHUT_WR)
                    try:
                        while data := sock.recv(64):
                            if then and len(found.reports[-1]) < 16 <= len(found.reports[-1]) + len(data):
                                sock.sendall(then)
                            found.reports[-1] += data
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            await_end(thread)
