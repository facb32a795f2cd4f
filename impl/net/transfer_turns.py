"""The order in which the slaves are served in one turn of the master's loop, and how many bytes each of them gets.

A slave is in step if it had everything before the last puts. Slaves in step come first, with MAX_TURN bytes for each, because
synchronous puts wait for them. The slaves behind share BULK_TURN bytes: first the one with the least left to send, then the
others in rotation.

Spec: HA-M-60 "A master MUST send the bytes of the last puts to the slaves that are in step before"; HA-M-61 "MUST NOT send more
than 2 MiB"; HA-M-62 "MUST serve in each turn the slave with the least left to send; it MUST NOT serve one of the others twice".
"""

import socket
from collections.abc import Callable
from typing import Final

from rocketmq_ha.impl.net.link import MAX_TURN, MasterLink

# Bytes in one turn for all slaves behind together. The last call may exceed it by MAX_SEND at most.
BULK_TURN: Final = 1024 * 1024
SHARE: Final = 256 * 1024  # bytes of it for each slave behind, if there are several; the last call may exceed it, too


class TransferTurns:
    """Serves the links that have reported.

    reported: by socket; of the links behind, the one that was served longest ago comes first. has_more: some link has more to
    write than its turn allowed. is_throttled: some link waits for its token bucket. offered: the end of the log that every link
    has been offered.
    """

    def __init__(self, write: Callable[[socket.socket, MasterLink, int, int], bool]) -> None:
        """write: lets a link write about `most` bytes: (socket, link, now_ms, most); it returns whether the link has more."""
        self._write = write
        self.reported: dict[socket.socket, MasterLink] = {}
        self.has_more = self.is_throttled = False
        self.offered = 0
        self._bulk_left = BULK_TURN

    def begin(self) -> None:
        """Begin a turn of the loop."""
        self._bulk_left = BULK_TURN

    def serve(self, end: int, now_ms: int, *, at_tick: bool = False) -> None:
        """Let every link write that has something to write and a socket that may take it.

        Args:  end: the max offset of the log. at_tick: try full sockets as well, since the selector reports one only when much
               of its buffer is free; and let heartbeats go out.
        """
        self.has_more = self.is_throttled = False
        self.offered = end
        in_step, behind = self._due(end, at_tick=at_tick)
        for sock, link in in_step:
            self._serve_one(sock, link, now_ms, MAX_TURN)
        if len(behind) > 1:
            least = max(range(len(behind)), key=lambda index: behind[index][1].conn.next_transfer_from_where)
            behind.insert(0, behind.pop(least))
        for sock, link in behind:
            if self._bulk_left <= 0:
                self.has_more = True
                break
            self.reported[sock] = self.reported.pop(sock)  # the others come before it in the next turn
            self._serve_one(sock, link, now_ms, SHARE if len(behind) > 1 else self._bulk_left)
            self._bulk_left -= link.moved

    def _due(self, end: int, *, at_tick: bool) -> tuple[list[tuple[socket.socket, MasterLink]], ...]:
        """The links to serve: those in step, and those behind."""
        in_step: list[tuple[socket.socket, MasterLink]] = []
        behind: list[tuple[socket.socket, MasterLink]] = []
        for sock, link in self.reported.items():
            if at_tick:
                link.is_full = False
            elif link.is_full or (link.conn.has_all and link.conn.next_transfer_from_where == end):
                continue
            (in_step if link.conn.has_all else behind).append((sock, link))
        return in_step, behind

    def _serve_one(self, sock: socket.socket, link: MasterLink, now_ms: int, most: int) -> None:
        self.has_more |= self._write(sock, link, now_ms, most)
        self.is_throttled |= link.is_throttled
