"""A scripted connection: two sockets in one process that take and give exactly as many bytes as the schedule says."""

from collections.abc import Iterable


class ScriptedSocket:
    """One end: what it may take is `room`, what it has received waits in `arrived`, what it sent lies in `in_flight`."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.in_flight = bytearray()  # sent here, not yet delivered to the other end
        self.arrived = bytearray()  # delivered here, not yet read
        self.severed = False  # the network carries nothing any more
        self.end_of_stream = False  # the other end has closed, and this one is told
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
        """Move up to `nbytes` of what `sender` sent (all but so many, if negative). Returns: how many there were."""
        receiver = self.at_slave if sender is self.at_master else self.at_master
        data = sender.in_flight[:nbytes]
        del sender.in_flight[: len(data)]
        receiver.arrived += data
        return len(data)

    def sever(self) -> None:
        """The network breaks: what is in flight is lost, and so is whatever is sent from now on."""
        for end in (self.at_master, self.at_slave):
            end.severed = True
            end.in_flight.clear()
