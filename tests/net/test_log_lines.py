"""Peers can provoke only a limited number of log lines: HA-M-57."""

import logging

import pytest

from kit.limits import Clock, Serve, connect, polled
from rocketmq_ha.impl.net.limits import Limits
from rocketmq_ha.impl.net.peer_log import LINES, WINDOW_MS, PeerLog


def test_lines_about_peers_are_few_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-57 "it MUST log how many lines it left out"."""
    peers = PeerLog(logging.getLogger("rocketmq_ha.test"))
    with caplog.at_level(logging.INFO):
        for index in range(1000):
            peers.write(index, logging.DEBUG, "not wanted")
            peers.write(index, logging.INFO, "line %d", index)
        peers.end_window(WINDOW_MS - 1)
        assert [record.getMessage() for record in caplog.records] == [f"line {index}" for index in range(LINES)]
        peers.end_window(WINDOW_MS)
        assert caplog.records[-1].getMessage() == "970 more lines about peers in 10 s were left out"
        peers.write(WINDOW_MS + 1, logging.INFO, "again")
    assert caplog.records[-1].getMessage() == "again"
    assert len(caplog.records) == LINES + 2


def test_a_flood_of_strangers_writes_thirty_lines(serve: Serve, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """HA-M-57 "MUST NOT write more than 30 log lines about its peers in any window of 10 s"."""
    master = serve(Limits(max_connections=1))
    with connect(master):
        polled(master)
        for _ in range(100):
            with connect(master):
                polled(master, 2)
        clock.ms += WINDOW_MS
        polled(master)
    assert master.limiter.refused.total() == 100
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) <= LINES + 1
    assert "were left out" in told[-1]
