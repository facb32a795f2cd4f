"""A scripted connection moves the numbers of bytes that the schedule says, in order, and loses what a cut loses."""

import pytest

from rocketmq_ha.fuzz.channel import Channel, ScriptedSocket


def views(*parts: bytes) -> list[memoryview]:
    return [memoryview(part) for part in parts]


@pytest.mark.parametrize(("room", "taken"), [(1, 1), (4, 4), (5, 5), (6, 5)])
def test_a_socket_takes_as_many_bytes_as_it_has_room_for(room: int, taken: int) -> None:
    end = ScriptedSocket(room)
    assert end.sendmsg(views(b"abc", b"de")) == taken
    assert (end.in_flight, end.room) == (b"abcde"[:taken], room - taken)


def test_a_socket_without_room_would_block() -> None:
    end = ScriptedSocket(2)
    assert end.send(b"ab") == 2
    with pytest.raises(BlockingIOError):
        end.send(b"c")
    with pytest.raises(BlockingIOError):
        ScriptedSocket(5).sendmsg([])
    assert end.in_flight == b"ab"


@pytest.mark.parametrize(
    ("nbytes", "arrived"), [(1, b"a"), (5, b"abcde"), (9, b"abcde"), (-1, b"abcd"), (-4, b"a"), (-5, b""), (-9, b""), (0, b"")]
)
def test_delivery_moves_the_first_bytes_or_all_but_the_last(nbytes: int, arrived: bytes) -> None:
    channel = Channel(3, 1, 100, 100)
    channel.at_master.send(b"abcde")
    assert channel.deliver(channel.at_master, nbytes) == len(arrived)
    assert (channel.at_slave.arrived, channel.at_master.in_flight) == (arrived, b"abcde"[len(arrived) :])
    assert channel.at_master.arrived == b""


def test_each_end_has_its_room_and_sends_to_the_other() -> None:
    channel = Channel(3, 1, 4, 2)
    assert (channel.link_id, channel.slave) == (3, 1)
    assert (channel.at_master.room, channel.at_slave.room) == (4, 2)
    channel.at_slave.send(b"xyz")
    channel.deliver(channel.at_slave, 9)
    channel.at_master.send(b"pqrst")
    channel.deliver(channel.at_master, 3)
    channel.deliver(channel.at_master, 9)
    assert (channel.at_master.arrived, channel.at_slave.arrived) == (b"xy", b"pqrs")


def test_a_read_takes_what_has_arrived_up_to_its_buffer() -> None:
    channel = Channel(0, 0, 100, 100)
    channel.at_master.send(b"abcde")
    channel.deliver(channel.at_master, 4)
    buffer = bytearray(3)
    assert channel.at_slave.recv_into(memoryview(buffer)) == 3
    assert (bytes(buffer), channel.at_slave.arrived) == (b"abc", b"d")
    assert channel.at_slave.recv_into(memoryview(buffer)) == 1
    assert bytes(buffer) == b"dbc"
    with pytest.raises(BlockingIOError):
        channel.at_slave.recv_into(memoryview(buffer))


def test_the_end_of_the_stream_is_read_behind_the_last_byte() -> None:
    end = ScriptedSocket(0)
    end.arrived += b"a"
    end.end_of_stream = True
    buffer = bytearray(3)
    assert end.recv_into(memoryview(buffer)) == 1
    assert end.recv_into(memoryview(buffer)) == 0


def test_a_cut_loses_what_is_in_flight_and_all_later_bytes_of_both_ends() -> None:
    channel = Channel(0, 0, 100, 100)
    channel.at_master.send(b"ab")
    channel.at_slave.send(b"cd")
    channel.sever()
    assert (channel.at_master.severed, channel.at_slave.severed) == (True, True)
    # The sockets go on taking bytes until they are full.
    assert (channel.at_master.send(b"ef"), channel.at_slave.send(b"g")) == (2, 1)
    assert (channel.at_master.in_flight, channel.at_slave.in_flight) == (b"", b"")
    assert (channel.at_master.room, channel.at_slave.room) == (96, 97)
    assert (channel.deliver(channel.at_master, 9), channel.deliver(channel.at_slave, 9)) == (0, 0)


def test_a_closed_end_says_so() -> None:
    end = ScriptedSocket(1)
    assert not end.closed
    end.close()
    assert end.closed
