"""Chapter 1: the bytes on the wire."""

from typing import Any

import pytest

from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.reference import wire
from rocketmq_ha.reference.events import Connect, DeliverFrames, DeliverReports, Event, Put, Tick
from rocketmq_ha.spec.profile import CLASSIC, HARDENED, Profile

ALL = 1 << 18
PROFILES = pytest.mark.parametrize("profile", [CLASSIC, HARDENED], ids=lambda profile: profile.name)


def test_integers_are_signed_and_their_highest_byte_comes_first() -> None:
    """HA-W-6 "MUST be big-endian, two's complement and signed": literal bytes, for both codecs."""
    for offset, told in ((1000, "00000000000003e8"), (-5, "fffffffffffffffb"), (-(1 << 63), "8000000000000000")):
        assert wire.pack_report(offset).hex() == REPORT.pack(offset).hex() == told
        assert wire.unpack_report(bytes.fromhex(told)) == REPORT.unpack(bytes.fromhex(told))[0] == offset
    assert wire.pack_header(-1, -4).hex() == HEADER.pack(-1, -4).hex() == "ff" * 8 + "fffffffc"


@PROFILES
def test_a_connection_carries_reports_and_frames_and_nothing_else(profile: Profile, worlds: Any) -> None:
    """HA-W-7 "From its first byte to its last": over puts, a file's end, heartbeats and reports by time."""
    both = worlds(profile, ha_transfer_batch_size=150)
    events: list[Event] = [Connect(0, ALL, ALL), Tick(5001)]
    events += [
        Put("T", bytes(300), "", 0, False),
        Tick(5001),
        Put("T", bytes(250), "", 0, False),
        Put("T", bytes(300), "", 0, False),
    ]
    events += [Tick(5001), Tick(1)]
    to_slave = to_master = b""
    for event in events:
        both.happens(event)
        while (link := both.link()) and (link.to_slave or link.to_master):
            to_slave, to_master = to_slave + link.to_slave, to_master + link.to_master
            both.happens(DeliverFrames(0, len(link.to_slave)), DeliverReports(0, len(link.to_master)))
    log = both.cluster.log
    at, offset, heartbeats = 0, 0, 0
    while at < len(to_slave):
        start, size = wire.unpack_header(to_slave[at : at + 12])
        assert start == offset
        assert to_slave[at + 12 : at + 12 + size] == log.data[start : start + size]
        at, offset, heartbeats = at + 12 + size, start + size, heartbeats + (size == 0)
    assert (at, offset) == (len(to_slave), len(log.data))
    assert len(log.data) > log.file_size
    assert heartbeats >= 2
    assert len(to_master) % 8 == 0
    reports = [wire.unpack_report(to_master[at : at + 8]) for at in range(0, len(to_master), 8)]
    assert reports == sorted(reports)
    assert reports[-1] == len(log.data)


@PROFILES
def test_one_report_says_where_to_start_what_is_held_and_that_its_slave_lives(profile: Profile, worlds: Any) -> None:
    """HA-W-9 "MUST be taken for three things at once"."""
    both = worlds(profile)
    both.happens(Put("T", bytes(8), "", 0, False), Connect(0, ALL, ALL), Tick(5001))
    both.settle()
    first = both.link().conn
    assert (first.slave_request_offset, first.slave_ack_offset) == (0, 100)
    both.happens(Tick(15_000), DeliverFrames(0, ALL), DeliverReports(0, 8))
    both.happens(Tick(15_000), DeliverFrames(0, ALL))
    assert both.link().conn.close_reason == ""  # 30 s after the first report, 15 s after the last
    both.happens(Tick(5_001))
    assert both.link() is None
    assert both.cluster.slaves[0].close_reason == "end_of_stream"  # so the master closed the connection
