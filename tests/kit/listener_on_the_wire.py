"""A relay between two ends that keeps every byte of both directions, as a listener on the wire would see them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kit.waiting import accepted, await_end

_LOOK_S = 0.05


@dataclass
class Heard:
    """The bytes of one connection."""

    from_client: bytearray = field(default_factory=bytearray)
    from_server: bytearray = field(default_factory=bytearray)


class ListenerOnTheWire:
    """Listens on a port of 127.0.0.1, and passes on what comes to a server; `heard` has the connections in their order.

    server: of the connections from now on. One to a server that is not there is closed.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self.server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_LOOK_S)
        self.port: int = self._listener.getsockname()[1]
        self.heard: list[Heard] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, name="accept", daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            await_end(thread)
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                client = accepted(self._listener)
            except TimeoutError:
                continue
            try:
                server = socket.create_connection(self.server, timeout=_LOOK_S)
            except OSError:
                client.close()
                continue
            heard = Heard()
            self.heard.append(heard)
            client.settimeout(_LOOK_S)
            for source, sink, kept in ((client, server, heard.from_client), (server, client, heard.from_server)):
                thread = threading.Thread(target=self._pass_on, args=(source, sink, kept), name="pass on", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
        try:
            while not self._is_over.is_set():
                try:
                    data = source.recv(1 << 16)
                except TimeoutError:
                    continue
                if not data:
                    break
                kept += data
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for sock in (source, sink):  # the other thread's next read ends it too
                sock.close()


@contextmanager
def listening_to(server: tuple[str, int]) -> Iterator[ListenerOnTheWire]:
    """A relay until the end of the block."""
    relay = ListenerOnTheWire(server)
    try:
        yield relay
    finally:
        relay.close()


def tls_records(data: bytes) -> list[int]:
    """The content types of the TLS records that bytes are; the last may be cut. Raises: AssertionError if they are none.

    20 change_cipher_spec, 21 alert, 22 handshake, 23 application data.
    """
    types, at = [], 0
    while at < len(data):
        kind, version = data[at], data[at + 1 : at + 3]
        assert kind in (20, 21, 22, 23) and b"\x03\x01\x03\x03".find(version) % 2 == 0, (
            f"no TLS at byte {at}: {data[at : at + 20]!r}"
        )
        types.append(kind)
        at += 5 + int.from_bytes(data[at + 3 : at + 5], "big")
    return types
