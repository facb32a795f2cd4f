"""A master closes connections that report nothing, or read nothing: HA-M-52, HA-M-53. The tests set the clock."""

from kit.limits import MIB, Clock, Serve, connect, is_closed, passing, polled, until_blocked
from rocketmq_ha.impl.net import server as server_module
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.wire.frame import REPORT


def test_a_peer_that_has_not_reported_by_the_deadline_is_closed(serve: Serve, clock: Clock) -> None:
    """HA-M-52 "that has not sent a whole report report_deadline after its accept MUST be closed", even if it sends parts of
    reports.
    """
    master = serve(Limits(report_deadline_ms=15_000), 100)  # not the 10 s of the profile
    with connect(master) as silent, connect(master) as dribbling, connect(master) as slave:
        polled(master)
        slave.sendall(REPORT.pack(0))
        for _ in range(5):
            dribbling.sendall(b"\0")
            passing(clock, 3000, master)
            polled(master)
        assert [is_closed(sock) for sock in (silent, dribbling, slave)] == [False] * 3
        clock.ms += 1
        slave.sendall(REPORT.pack(0))  # or the master would close it as silent
        clock.ms += server_module.TICK_MS
        polled(master)
        assert [is_closed(sock) for sock in (silent, dribbling, slave)] == [True, True, False]


def test_a_peer_that_reads_nothing_is_closed_and_one_that_resumes_is_not(serve: Serve, clock: Clock) -> None:
    """HA-M-53 "has taken no byte of a pending frame for more than write_stall_deadline", reports or not."""
    deadline_ms = 5_000  # not the 20 s of the profile
    master = serve(Limits(write_stall_deadline_ms=deadline_ms), 3 * MIB, send_buffer=4096)
    with connect(master, receive_buffer=4096) as sock:
        sock.sendall(REPORT.pack(0))
        polled(master)
        (link,) = master._links.values()
        read = 0
        for _ in range(5):
            until_blocked(master, link)
            passing(clock, deadline_ms - 1, master)
            sock.sendall(REPORT.pack(0))
            polled(master)
            enough = read + MIB // 8  # more than all buffers hold
            sock.setblocking(False)
            while read < enough:
                try:
                    read += len(sock.recv(1 << 16))
                except BlockingIOError:
                    master.poll(5)
            until_blocked(master, link)
        assert clock.ms - 1_000_000 > 4 * deadline_ms
        assert not link.conn.close_reason
        for _ in range(6):  # a byte that it has read may show late
            if not link.conn.close_reason:
                sock.sendall(REPORT.pack(0))  # so that it is not silent
            passing(clock, deadline_ms // 2, master)
        assert link.conn.close_reason == "write_stall"
        assert master.service.connections == []
