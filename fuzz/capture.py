"""The connections of an HA port in a packet capture (pcap or pcapng), each direction put together as TCP would.

Retransmitted bytes count once, segments that came out of order wait for what is missing, sequence numbers wrap. A capture may
begin in the middle of a connection, and may lack packets: then the connection ends at the gap.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import dpkt

from rocketmq_ha.fuzz.errors import FuzzError
from rocketmq_ha.fuzz.link_rows import Chunk, Recording, Source

MAGICS: Final = (b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1", b"\x0a\x0d\x0d\x0a")
RAW: Final = dict.fromkeys((12, 101, 228, 229), "raw")
LINK_TYPES: Final = {0: "null", 108: "null", 1: "ethernet", 113: "sll", 276: "sll2", **RAW}
WRAP: Final = 1 << 32

Address = tuple[bytes, int]


def is_capture(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) in MAGICS


@dataclass(slots=True)
class Direction:
    """What one end has sent."""

    next_seq: int = -1  # of the next byte in order; -1: nothing known yet
    waiting: dict[int, bytes] = field(default_factory=dict)  # segments behind a gap, by sequence number
    ended: bool = False

    def take(self, seq: int, data: bytes) -> Iterator[bytes]:
        """Take a segment, and give what is in order now, piece by piece."""
        if self.next_seq < 0:
            self.next_seq = seq
        if len(data) > len(self.waiting.get(seq, b"")):
            self.waiting[seq] = data
        while (found := self._not_behind_a_gap()) is not None:
            ordered = self.waiting.pop(found)[(self.next_seq - found) % WRAP :]
            if ordered:
                self.next_seq = (self.next_seq + len(ordered)) % WRAP
                yield ordered

    @property
    def end_seq(self) -> int:
        """The next sequence number that the other end can acknowledge: a FIN counts as a byte."""
        return (self.next_seq + self.ended) % WRAP

    def _not_behind_a_gap(self) -> int | None:
        """A segment that begins at the next byte or before it."""
        return next((seq for seq in self.waiting if (self.next_seq - seq) % WRAP < WRAP // 2), None)


@dataclass(slots=True)
class _Connection:
    slave: Address
    master: Address
    has_begin: bool
    of_master: Direction = field(default_factory=Direction)
    of_slave: Direction = field(default_factory=Direction)
    chunks: list[Chunk] = field(default_factory=list)
    ended: bool = False
    lost: bool = False  # the capture lacks bytes that the other end has acknowledged


def connections(file: Path, port: int | None) -> list[Recording]:
    """The connections of a capture, in the order of their begin.

    Args: port: of the master; None: whoever was connected to is the master, so each connection must have its begin.
    Raises: FuzzError, for a file that is no capture, and for one that holds no whole packets.
    """
    open_: dict[tuple[Address, Address], _Connection] = {}
    found: list[_Connection] = []
    first_ts: float | None = None
    for ts, source, target, tcp, size in _segments(file):
        first_ts = ts if first_ts is None else first_ts
        is_syn = bool(tcp.flags & dpkt.tcp.TH_SYN)
        key = (min(source, target), max(source, target))
        begins = is_syn and not tcp.flags & dpkt.tcp.TH_ACK
        connection = open_.get(key)
        again = connection is not None and begins and _is_other(connection, source, tcp.seq)
        if connection is None or again:
            connection = _new(source, target, begins, is_syn, port)
            if connection is None:
                continue
            open_[key] = connection
            found.append(connection)
        if len(tcp.data) < size:
            raise FuzzError(f"{file}: found packets without their end, expected whole ones (tcpdump --snapshot-length 0)")
        _take(connection, source, tcp, round((ts - first_ts) * 1e9))
    return [_recording(file, number, one) for number, one in enumerate(found) if one.chunks]


def _is_other(connection: _Connection, source: Address, seq: int) -> bool:
    """A SYN that is no retransmission of this connection's: the ports are used again."""
    direction = connection.of_slave if source == connection.slave else connection.of_master
    return bool(connection.chunks) or connection.ended or direction.next_seq not in (-1, (seq + 1) % WRAP)


def _new(source: Address, target: Address, begins: bool, is_syn: bool, port: int | None) -> _Connection | None:
    """The connection of a packet of none that is known; None if it is not of the port, or nobody knows its master."""
    if port is not None:
        ends = [end for end in (source, target) if end[1] == port]
        if len(ends) != 1:
            return None
        return _Connection(target if ends[0] == source else source, ends[0], is_syn)
    if not is_syn:
        return None
    return _Connection(source, target, True) if begins else _Connection(target, source, True)


def _take(connection: _Connection, source: Address, tcp: Any, ts_ns: int) -> None:
    is_master = source == connection.master
    direction = connection.of_master if is_master else connection.of_slave
    other = connection.of_slave if is_master else connection.of_master
    name: Source = "master" if is_master else "slave"
    if tcp.flags & dpkt.tcp.TH_SYN:
        direction.next_seq = (tcp.seq + 1) % WRAP
        return
    if connection.ended or connection.lost:
        return
    if tcp.flags & dpkt.tcp.TH_ACK and other.next_seq >= 0 and 0 < (tcp.ack - other.end_seq) % WRAP < WRAP // 2:
        connection.lost = True
        return
    if tcp.data:
        for data in direction.take(tcp.seq, bytes(tcp.data)):
            connection.chunks.append(Chunk(name, data, ts_ns))
    if tcp.flags & dpkt.tcp.TH_RST:
        connection.ended = True
    elif tcp.flags & dpkt.tcp.TH_FIN:
        direction.ended = True
        connection.ended = other.ended and not other.waiting


def _recording(file: Path, number: int, connection: _Connection) -> Recording:
    has_end = (connection.ended or connection.of_master.ended or connection.of_slave.ended) and not connection.lost
    return Recording(
        f"{file.name}#{number}", tuple(connection.chunks), connection.has_begin, "end_of_stream" if has_end else ""
    )


def _segments(file: Path) -> Iterator[tuple[float, Address, Address, Any, int]]:
    """(time, source, target, TCP segment, size of its data) of each TCP packet."""
    try:
        with file.open("rb") as opened:
            reader = dpkt.pcap.UniversalReader(opened)
            kind = LINK_TYPES.get(reader.datalink())
            if kind is None:
                raise FuzzError(f"{file}: found link type {reader.datalink()}, expected Ethernet, Linux cooked or raw IP")
            for ts, packet in reader:
                found = _tcp(kind, packet)
                if found is not None:
                    yield (float(ts), *found)
    except (ValueError, dpkt.UnpackError, EOFError) as error:
        raise FuzzError(f"{file}: found no whole capture ({error}), expected pcap or pcapng") from error


def _tcp(kind: str, packet: bytes) -> tuple[Address, Address, Any, int] | None:
    try:
        ip = _ip(kind, packet)
    except dpkt.UnpackError:
        return None
    if not isinstance(ip, dpkt.ip.IP | dpkt.ip6.IP6) or not isinstance(ip.data, dpkt.tcp.TCP):
        return None
    tcp = ip.data
    whole = ip.len - 4 * ip.hl if isinstance(ip, dpkt.ip.IP) else ip.plen
    size = whole - 4 * tcp.off
    if size >= 0:
        tcp.data = tcp.data[:size]  # behind it Ethernet may have padding
    return (bytes(ip.src), tcp.sport), (bytes(ip.dst), tcp.dport), tcp, max(0, size)


def _ip(kind: str, packet: bytes) -> Any:
    if kind == "ethernet":
        return dpkt.ethernet.Ethernet(packet).data
    if kind == "sll":
        return dpkt.sll.SLL(packet).data
    if kind == "sll2":
        return dpkt.sll2.SLL2(packet).data
    data = packet[4:] if kind == "null" else packet
    return dpkt.ip6.IP6(data) if data[:1] and data[0] >> 4 == 6 else dpkt.ip.IP(data)
