"""What `make modes --product` has of RocketMQ, its cluster and its clients: one short round of each."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from cell import run_round, wait
from java_cluster import JavaCluster
from java_traffic import JavaTraffic
from mode_faults import FAULTS
from our_cluster import OurCluster
from power import compile_library
from under_test import ClusterUnderTest, Group

POWER = FAULTS["power"]


def cut_when_tables_have_copies(cluster: ClusterUnderTest, group: Group) -> object:
    """A broker writes the offsets every 5 s, and keeps what was there as a copy: without one it would start again."""
    copy = cluster.store(group.master) / "config" / "consumerOffset.json.bak"
    wait("consumerOffset.json has a copy", copy.exists)
    return POWER.breaks(cluster, group)


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
def test_a_power_cut_of_rocketmq_is_measured(release: str, tmp_path: Path) -> None:
    """With synchronous flush nothing is lost: the switch sees what a JVM syncs. The tables are lost: none of them is synced.

    Source: MixAll.string2File, ConfigManager.load, MappedFile.flush (5.x: DefaultMappedFile.flush).
    """
    cluster = JavaCluster("1m", "sync", tmp_path / "cluster", compile_library(tmp_path), release=release)
    fault = replace(POWER, breaks=cut_when_tables_have_copies, window_s=4.0)
    found = run_round(cluster, fault, "1", 100, lambda _: None)
    figures = found.figures
    assert (figures.writable_any.in_fault, figures.readable_hit.in_fault) == (None, None)
    assert figures.writable_hit.after_mend is not None and figures.readable_hit.after_mend is not None
    assert figures.acknowledged > 200
    assert (figures.lost, figures.unreadable) == (0, 0)
    assert found.routed_again_s is not None
    [line] = found.ended
    assert line.startswith("broker-a: ended with status ") and "without its tables" in line, line
    assert str(tmp_path) not in line
    assert not any(cluster.is_up(node) for node in ("namesrv", "broker-a"))


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD")
def test_java_clients_are_measured(release: str, tmp_path: Path) -> None:
    """A slave is killed, which they do not notice. After the loss of a master they might ask for its route a minute later."""
    cluster = OurCluster("async-2m-2s", "async", tmp_path / "cluster", compile_library(tmp_path))
    fault = replace(FAULTS["slave"], window_s=4.0)
    found = run_round(cluster, fault, "1", 100, lambda _: None, partial(JavaTraffic, release=release))
    figures = found.figures
    for span in (figures.writable_any, figures.writable_hit, figures.readable_hit):
        assert span.in_fault is not None and span.after_mend is not None
    assert figures.sends > 100 and figures.acknowledged > 200
    assert (figures.lost, figures.unreadable, figures.unconsumed) == (0, 0, 0)


def test_java_clients_that_end_are_noticed(release: str) -> None:
    traffic = JavaTraffic("127.0.0.1:1", 100, release=release)
    try:
        traffic.process.kill()
        wait("the end is noticed", lambda: traffic.error is not None)
        assert isinstance(traffic.error, EOFError) and "ended with status -9" in str(traffic.error)
        traffic.is_paused = True
        with pytest.raises(AssertionError, match="ended with status"):
            traffic.stop_sending(1)
    finally:
        traffic.close()
