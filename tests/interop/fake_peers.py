"""One end of a link that is not what it should be: it sends what a test says, and tells what the real end answers."""

import socket
import time
from types import TracebackType
from typing import Final, Literal

from rocketmq_ha.reference.wire import pack_header, pack_report, unpack_header, unpack_report
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE

PATIENCE_S: Final = 60.0  # for what must come
QUIET_S: Final = 6.0  # in which what does not come is taken not to come; six intervals


class FakeSlave:
    """A connection to a real master's HA port."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def report(self, offset: int) -> None:
        self.socket.sendall(pack_report(offset))

    def frame(self) -> tuple[int, int]:
        """(offset, body size) of the next frame, whose body is read."""
        offset, body_size = unpack_header(_read(self.socket, TRANSFER_HEADER_SIZE))
        _read(self.socket, body_size)
        return offset, body_size

    def __enter__(self) -> "FakeSlave":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()


class FakeMaster:
    """A listener to which a real slave connects, and its present connection. Close it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(PATIENCE_S)
        self.connection: socket.socket | None = None
        self.last_report = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    @property
    def link(self) -> socket.socket:
        assert self.connection is not None, "no slave has connected"
        return self.connection

    def first_report(self) -> int:
        """End the connection, with all that was sent before; of the next one the first report.

        Raises: TimeoutError if the slave keeps the connection, or makes no other.
        """
        if self.connection is not None:
            self.connection.shutdown(socket.SHUT_WR)
            self.await_close(PATIENCE_S)
            self.connection.close()
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(PATIENCE_S)
        self.last_report = unpack_report(_read(self.connection, REPORT_SIZE))
        return self.last_report

    def frame(self, offset: int, body: bytes) -> None:
        self.link.sendall(pack_header(offset, len(body)) + body)

    def header(self, offset: int, body_size: int) -> None:
        """A header with nothing behind it."""
        self.link.sendall(pack_header(offset, body_size))

    def answer(self, seconds: float = QUIET_S) -> Literal["closes"] | int | None:
        """The first report that is another than the last; "closes"; or None if nothing but repetitions comes for some time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.link.settimeout(left)
            try:
                data = self.link.recv(REPORT_SIZE, socket.MSG_WAITALL)
            except TimeoutError:
                break
            except ConnectionError:
                return "closes"
            if len(data) < REPORT_SIZE:
                return "closes"
            if (report := unpack_report(data)) != self.last_report:
                self.last_report = report
                return report
        return None

    def await_close(self, seconds: float) -> None:
        """Raises: TimeoutError if the slave does not close within so many seconds."""
        deadline = time.monotonic() + seconds
        while self.answer(deadline - time.monotonic()) != "closes":
            if time.monotonic() >= deadline:
                raise TimeoutError(f"the slave has not closed the connection in {seconds:.0f} s")

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.listener.close()


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, f"the real end closed the connection; expected {size} bytes, found {len(data)}"
        data += piece
    return data
