"""Packet captures of connections, written with dpkt from the bytes of a recorded link."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dpkt

from rocketmq_ha.fuzz.transcript import Piece, Restarted

HA_PORT = 10912
SEGMENT = 1460  # bytes of data in a packet
ETHERNET = 1
TH = dpkt.tcp


@dataclass(frozen=True)
class Packet:
    """A TCP segment of a connection. source: "master" or "slave"."""

    link: int
    source: str
    seq: int
    ack: int
    flags: int
    data: bytes = b""


def packets(transcript: Iterable[Piece | Restarted], first_seq: int = 1000, segment: int = SEGMENT) -> list[Packet]:
    """Every connection with its SYN, its data in segments with an ACK of each, and a FIN of both ends."""
    pieces = [piece for piece in transcript if isinstance(piece, Piece)]
    found: list[Packet] = []
    for link in dict.fromkeys(piece.link for piece in pieces):
        found += _connection(link, [piece for piece in pieces if piece.link == link], first_seq, segment)
    return found


def _connection(link: int, pieces: list[Piece], first_seq: int, segment: int) -> Iterator[Packet]:
    seqs = {"slave": first_seq, "master": first_seq + 77}

    def packet(source: str, flags: int, data: bytes = b"") -> Packet:
        other = "slave" if source == "master" else "master"
        made = Packet(link, source, seqs[source] % (1 << 32), seqs[other] % (1 << 32), flags, data)
        seqs[source] += len(data) + bool(flags & (TH.TH_SYN | TH.TH_FIN))
        return made

    yield packet("slave", TH.TH_SYN)
    yield packet("master", TH.TH_SYN | TH.TH_ACK)
    yield packet("slave", TH.TH_ACK)
    for piece in pieces:
        data = piece.data[: piece.passed]
        for at in range(0, len(data), segment):
            yield packet(piece.source, TH.TH_ACK | TH.TH_PUSH, data[at : at + segment])
            yield packet("slave" if piece.source == "master" else "master", TH.TH_ACK)
    yield packet("slave", TH.TH_FIN | TH.TH_ACK)
    yield packet("master", TH.TH_FIN | TH.TH_ACK)
    yield packet("slave", TH.TH_ACK)


def write(
    file: Path, packets: Iterable[Packet], *, ipv6: bool = False, link_type: int = ETHERNET, snapshot: int = 1 << 16
) -> Path:
    """Write a pcap file, a millisecond between two packets. snapshot: bytes of each packet that are kept."""
    with file.open("wb") as opened:
        dpkt.pcap.Writer(opened, linktype=link_type)
        header = dpkt.pcap.LEPktHdr if sys.byteorder == "little" else dpkt.pcap.PktHdr
        for number, packet in enumerate(packets):
            data = bytes(_framed(_ip(packet, ipv6), ipv6, link_type))
            ts = 1_700_000_000 + number / 1000
            kept = data[:snapshot]
            opened.write(bytes(header(tv_sec=int(ts), tv_usec=round(ts % 1 * 1e6), caplen=len(kept), len=len(data))) + kept)
    return file


def _ip(packet: Packet, ipv6: bool) -> Any:
    slave_port = 40000 + packet.link
    ports = (HA_PORT, slave_port) if packet.source == "master" else (slave_port, HA_PORT)
    tcp = dpkt.tcp.TCP(sport=ports[0], dport=ports[1], seq=packet.seq, ack=packet.ack, flags=packet.flags, data=packet.data)
    last = (1, 2) if packet.source == "master" else (2, 1)
    if ipv6:
        addresses = [bytes(15) + bytes((one,)) for one in last]
        found = dpkt.ip6.IP6(src=addresses[0], dst=addresses[1], nxt=dpkt.ip.IP_PROTO_TCP, data=tcp, plen=len(tcp))
        found.extension_hdrs = {}
        return found
    addresses = [bytes((127, 0, 0, one)) for one in last]
    return dpkt.ip.IP(src=addresses[0], dst=addresses[1], p=dpkt.ip.IP_PROTO_TCP, data=tcp, len=20 + len(tcp))


def _framed(ip: Any, ipv6: bool, link_type: int) -> bytes:
    kind = dpkt.ethernet.ETH_TYPE_IP6 if ipv6 else dpkt.ethernet.ETH_TYPE_IP
    if link_type == ETHERNET:
        return bytes(dpkt.ethernet.Ethernet(type=kind, data=ip)).ljust(60, b"\0")  # short frames are padded
    if link_type == 113:
        return bytes(dpkt.sll.SLL(type=0, hrd=1, hlen=6, hdr=bytes(8), ethtype=kind, data=ip))
    return bytes(ip)
