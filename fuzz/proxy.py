"""A TCP proxy between a slave and its master that cuts the connection in mid-frame, at a byte that it chooses.

It parses the frames that pass to know its position. A cut in the header comes after 1 to 11 bytes of a frame, a cut in the body
after 13 bytes or more and before its end. Then the proxy half-closes the slave's side, so that the slave gets exactly the bytes
before the cut.
"""

import contextlib
import selectors
import socket
import threading
from dataclasses import dataclass
from typing import Final

from rocketmq_ha.fuzz.transcript import Piece, Restarted, Transcript
from rocketmq_ha.spec.constants import REPORT_SIZE, TRANSFER_HEADER_SIZE

CHUNK: Final = 256 * 1024
POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class PlannedCut:
    """Cut the first frame after `after_bytes` of bodies have passed, in all connections together."""

    after_bytes: int
    header_bytes: int  # header bytes that still pass, 1 to 11; 0: cut in the middle of the body


class Frames:
    """Tracks the frames of one connection byte by byte."""

    def __init__(self) -> None:
        self.position = 0  # bytes of the current frame that have passed
        self._header = bytearray()
        self._body_size = 0

    @property
    def in_header(self) -> bool:
        return 0 < self.position < TRANSFER_HEADER_SIZE

    @property
    def in_body(self) -> bool:
        return self.position > TRANSFER_HEADER_SIZE

    def take(self, data: bytes, cut: PlannedCut | None) -> tuple[int, int, bool]:
        """Pass over `data`, at most up to the place of `cut`.

        Returns: (bytes passed, how many of them belong to bodies, True if it stopped at the cut).
        """
        at = bodies = 0
        while at < len(data):
            header_left = TRANSFER_HEADER_SIZE - self.position
            if header_left > 0:
                if cut and self.position == cut.header_bytes > 0:
                    return at, bodies, True
                stop_in = cut.header_bytes - self.position if cut else 0
                step = min(stop_in if stop_in > 0 else header_left, len(data) - at)
                self._header += data[at : at + step]
                if len(self._header) == TRANSFER_HEADER_SIZE:
                    self._body_size = int.from_bytes(self._header[8:], "big")
            else:
                in_middle = cut is not None and cut.header_bytes == 0
                if in_middle and self.in_body:
                    return at, bodies, True
                left = self._body_size + header_left
                step = min(max(1, left // 2) if in_middle else left, len(data) - at)
                bodies += step
            at += step
            self.position += step
            if self.position == TRANSFER_HEADER_SIZE + self._body_size and len(self._header) == TRANSFER_HEADER_SIZE:
                self.position = 0
                self._header.clear()
        return at, bodies, False


class CuttingProxy:
    """Listens on loopback for one slave at a time, in a thread. The caller must close it.

    record: receives every byte of both directions before it is passed on, so causes precede their effects.
    """

    def __init__(self, upstream: tuple[str, int], cuts: list[PlannedCut], record: Transcript | None = None) -> None:
        self._upstream, self._cuts, self._record = upstream, list(cuts), record
        self.links = 0  # connections so far
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closed = threading.Event()
        self._held = threading.Event()
        self.cuts_in_header = self.cuts_in_body = 0
        self.body_bytes = 0  # body bytes passed to the slave
        self.slave_ack_offset = 0  # the last report that passed
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def hold(self) -> None:
        """Pass nothing to the slave, like a congested network."""
        self._held.set()

    def release(self) -> None:
        self._held.clear()

    def note_restart(self) -> None:
        """Record that the slave's process has ended."""
        if self._record is not None:
            self._record.append(Restarted())

    def close(self) -> None:
        self._closed.set()
        self._thread.join(5)
        self._listener.close()

    def _run(self) -> None:
        self._listener.settimeout(POLL_S)
        while not self._closed.is_set():
            try:
                slave, _ = self._listener.accept()
            except TimeoutError:
                continue
            with slave, contextlib.suppress(OSError), socket.create_connection(self._upstream, 5) as master:
                self._carry(slave, master)

    def _carry(self, slave: socket.socket, master: socket.socket) -> None:
        """Carry one connection until an end closes it, or until the cut."""
        self.links += 1
        frames, reports = Frames(), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(slave, selectors.EVENT_READ)
            selector.register(master, selectors.EVENT_READ)
            while not self._closed.is_set():
                for key, _ in selector.select(POLL_S):
                    if key.fileobj is slave:
                        data = slave.recv(CHUNK)
                        if not data:
                            return
                        if self._record is not None:
                            self._record.append(Piece(self.links - 1, "slave", data, len(data)))
                        self._note_reports(reports, data)
                        master.sendall(data)
                    elif self._held.is_set():
                        self._closed.wait(POLL_S)  # the master's bytes stay in the socket buffers
                    else:
                        data = master.recv(CHUNK)
                        if not data or self._forward(frames, slave, data):
                            self._end(slave)
                            return

    def _forward(self, frames: Frames, slave: socket.socket, data: bytes) -> bool:
        """Pass frames on. Returns: True if the connection must be cut behind them."""
        due = self._cuts[0] if self._cuts and self.body_bytes >= self._cuts[0].after_bytes else None
        passed, bodies, stopped = frames.take(data, due)
        if self._record is not None:
            self._record.append(Piece(self.links - 1, "master", data, passed))
        slave.sendall(data[:passed])
        self.body_bytes += bodies
        if stopped:
            self._cuts.pop(0)
            self.cuts_in_header += frames.in_header
            self.cuts_in_body += frames.in_body
        return stopped

    def _note_reports(self, reports: bytearray, data: bytes) -> None:
        reports += data
        whole = len(reports) - len(reports) % REPORT_SIZE
        if whole:
            self.slave_ack_offset = int.from_bytes(reports[whole - REPORT_SIZE : whole], "big")
            del reports[:whole]

    def _end(self, slave: socket.socket) -> None:
        """Half-close, and wait until the slave has read everything: a plain close could discard bytes on the way."""
        slave.shutdown(socket.SHUT_WR)
        slave.settimeout(2)
        while slave.recv(CHUNK):
            pass
