"""A scripted connection: two sockets in one process that move exactly the numbers of bytes that the schedule says."""

from collections.abc import Iterable


class ScriptedSocket:
    """One end. `room`: bytes that it may still take; `arrived`: received bytes; `in_flight`: sent bytes not delivered yet."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.in_flight = bytearray()  # sent here, not yet delivered to the other end
        self.arrived = bytearray()  # delivered here, not yet read
        self.severed = False  # the network delivers nothing any more
        self.end_of_stream = False  # the other end has closed, and this end can see it
        self.closed = False  # this end has closed

    # The socket's own methods.

    def recv_into(self, buffer: memoryview, /) -> int:
        n = min(len(buffer), len(self.arrived))
        if n == 0:
            if self.end_of_stream:
                return 0
            raise BlockingIOError
        buffer[:n] = self.arrived[:n]
        del self.arrived[:n]
        return n

    def send(self, data: bytes, /) -> int:
        return self.sendmsg((memoryview(data),))

    def sendmsg(self, buffers: Iterable[memoryview], /) -> int:
        data = b"".join(buffers)[: self.room]
        if not data:
            raise BlockingIOError
        self.room -= len(data)
        if not self.severed:
            self.in_flight += data
        return len(data)

    def close(self) -> None:
        self.closed = True


class Channel:
    """One connection between the master and a slave, as seen from outside."""

    def __init__(self, link_id: int, slave: int, room: int, slave_room: int) -> None:
        self.link_id, self.slave = link_id, slave
        self.at_master = ScriptedSocket(room)
        self.at_slave = ScriptedSocket(slave_room)

    def deliver(self, sender: ScriptedSocket, nbytes: int) -> int:
        """Deliver up to `nbytes` bytes from `sender`; if negative, all but that many. Returns: the number delivered."""
        receiver = self.at_slave if sender is self.at_master else self.at_master
        data = sender.in_flight[:nbytes]
        del sender.in_flight[: len(data)]
        receiver.arrived += data
        return len(data)

    def sever(self) -> None:
        """Break the network: bytes in flight and all later bytes are lost."""
        for end in (self.at_master, self.at_slave):
            end.severed = True
            end.in_flight.clear()
