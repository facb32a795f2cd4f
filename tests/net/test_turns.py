"""Limits of one peer's share of a turn of the loop, and of descriptors: HA-M-54, HA-M-58."""

import itertools
import os
import resource
from pathlib import Path

import pytest

from kit.limits import MIB, Clock, Serve, connect, polled
from rocketmq_ha.impl.ha.service import HAService
from rocketmq_ha.impl.net import limits as limits_module
from rocketmq_ha.impl.net.limits import Limits, fit_descriptors
from rocketmq_ha.impl.net.link import MAX_REPORTS_TURN, MasterLink
from rocketmq_ha.impl.net.listeners import ACCEPTS_TURN, NO_DESCRIPTORS_MS
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.spec.profile import HARDENED, Settings


def test_a_turn_accepts_a_few_and_leaves_the_others_for_the_next(serve: Serve) -> None:
    """HA-M-54 "In one turn of its loop a master MUST accept no more than 16 connections"."""
    master = serve(Limits())
    socks = [connect(master) for _ in range(2 * ACCEPTS_TURN + 1)]
    seen = []
    while len(master.service.connections) < len(socks):
        master.poll(5)
        seen.append(len(master.service.connections))
    assert seen[0] <= 16
    assert all(after - before <= 16 for before, after in itertools.pairwise(seen))
    for sock in socks:
        sock.close()


class Flood:
    """A socket whose peer sends the same report for ever."""

    def __init__(self) -> None:
        self.taken = 0

    def recv_into(self, buffer: memoryview, /) -> int:
        buffer[:] = bytes(len(buffer))
        self.taken += len(buffer)
        return len(buffer)


def test_a_flood_of_reports_ends_its_turn(tmp_path: Path) -> None:
    """HA-M-54 "MUST NOT read more than 16 KiB of one connection"."""
    with CommitLog.open(tmp_path, file_size=MIB) as log:
        service = HAService(log, Settings(MIB, master_read_buffer_size=4096), HARDENED)
        flood = Flood()
        link = MasterLink(flood, service.on_accept("flood", 0), service)  # type: ignore[arg-type]
        for turn in (1, 2):
            assert link.on_reports(0) is None
            assert flood.taken == turn * MAX_REPORTS_TURN == turn * 16 * 1024
        assert service.count_connected() == 1


def test_without_descriptors_the_listener_is_left_alone_for_a_while(
    serve: Serve, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """HA-M-58 "MUST NOT ask its listening socket again before 100 ms have passed": each try would log a line."""
    master = serve(Limits())
    late = connect(master)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 32, hard))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(late.fileno()))
        polled(master, 20)
        assert caplog.text.count("cannot accept") == 1
        clock.ms += NO_DESCRIPTORS_MS
        polled(master, 20)
        assert caplog.text.count("cannot accept") == 2
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    clock.ms += NO_DESCRIPTORS_MS
    polled(master)
    assert len(master.service.connections) == 1
    late.close()


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "soft_after", "cap"),
    [
        (1024, 4096, 512, 1024, 512),
        (256, 4096, 512, 768, 512),
        (256, 600, 512, 600, 344),
        (256, resource.RLIM_INFINITY, 10_000, 10_256, 10_000),
        (100, 100, 512, 100, 1),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 512, resource.RLIM_INFINITY, 512),
    ],
)
def test_descriptors_are_kept_for_the_log(
    soft: int, hard: int, wanted: int, soft_after: int, cap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 are reserved: a log without a descriptor for its next file stops its master."""
    now = [soft, hard]
    monkeypatch.setattr(limits_module.resource, "getrlimit", lambda _: tuple(now))
    monkeypatch.setattr(limits_module.resource, "setrlimit", lambda _, values: now.__setitem__(slice(None), values))
    assert fit_descriptors(Limits(wanted)).max_connections == cap
    assert now == [soft_after, hard]
