"""`--metrics`: the HTTP answers, and that docs/metrics.md and examples/alerts.yaml name only metrics that exist."""

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit.nodes import follow, serve
from kit.scrapes import get, samples
from kit.waiting import PATIENCE_S, accepted, await_end, wait_for
from rocketmq_ha.impl.app import metrics as metrics_module
from rocketmq_ha.impl.app.metrics import ALIVE_S, HEARD_S, Metrics
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.net.figures import SlaveFigures
from rocketmq_ha.impl.net.fresh import ASKING, WAITING
from rocketmq_ha.impl.net.status_socket import ask
from rocketmq_ha.impl.store.log.commit_log import CommitLog
from rocketmq_ha.impl.wire.frame import HEADER, REPORT
from rocketmq_ha.spec.profile import HARDENED, Settings

ROOT = Path(__file__).resolve().parents[2]
FILE_SIZE = 1 << 20


def documented() -> set[str]:
    return set(re.findall(r"`((?:rocketmq_ha|process)_[a-z0-9_]+)`", (ROOT / "docs/metrics.md").read_text("utf-8")))


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    served = Metrics("127.0.0.1:0")
    yield served
    served.close()


# --- A master and a slave ----------------------------------------------------------------------------------------------


def test_what_is_served_is_what_is_documented_and_a_reconnect_makes_no_new_series(tmp_path: Path, nodes: ExitStack) -> None:
    putting = ("--put", "300", "--size", "1000", "--await-slaves", "1", "--sync-flush-timeout", "1000000")
    master, address = serve(nodes, tmp_path / "a", *putting, "--metrics", "127.0.0.1:0", file_size=FILE_SIZE)
    at = master.line("metrics")
    options = ("--file-size", str(FILE_SIZE), "--metrics", "127.0.0.1:0", "--flush-interval-commit-log", "100")
    first = follow(nodes, tmp_path / "b", address, *options)
    first.line("metrics")
    assert "PUT_OK=300" in master.line("put")
    end = ask(tmp_path / "a")["max_offset"]
    wait_for(lambda: samples(at).get("rocketmq_ha_slave_ack_offset_bytes") == {("127.0.0.1",): end})
    wait_for(lambda: samples(at)["rocketmq_ha_puts_total"][("PUT_OK",)] == 300)
    before = samples(at)
    assert sum(before["rocketmq_ha_puts_total"].values()) == 300
    assert before["rocketmq_ha_appended_bytes_total"][()] == end
    assert before["rocketmq_ha_sent_bytes_total"][()] > end  # sent bytes include headers
    assert before["rocketmq_ha_received_bytes_total"][()] >= 8
    accepted = before["rocketmq_ha_accepted_connections_total"][()]
    assert accepted >= 1
    assert 0 < before["rocketmq_ha_free_disk_bytes"][()] < 1 << 60
    first.stop()
    wait_for(lambda: not ask(tmp_path / "a")["connections"])
    second = follow(nodes, tmp_path / "b", address, *options)
    slave_at = second.line("metrics")
    wait_for(lambda: samples(at).get("rocketmq_ha_slave_ack_offset_bytes") == {("127.0.0.1",): end})
    wait_for(lambda: samples(slave_at).get("rocketmq_ha_received_bytes_total", {}).get((), 0) > 0)
    after, theirs = samples(at), samples(slave_at)
    labels = {name: set(values) for name, values in after.items()}
    assert labels == {name: set(values) for name, values in before.items()}
    counters = [(name, key) for name in before if name.endswith("_total") for key in before[name]]
    assert not [(name, key) for name, key in counters if after[name][key] < before[name][key]]
    assert after["rocketmq_ha_accepted_connections_total"][()] > accepted
    assert theirs["rocketmq_ha_sent_bytes_total"][()] >= 8
    assert theirs["rocketmq_ha_reconnects_total"][()] == 0
    assert (after["rocketmq_ha_fsyncs_total"][()] > 0) == (after["rocketmq_ha_fsync_seconds_total"][()] > 0)
    assert {name for name in after.keys() | theirs.keys() if not name.endswith("_created")} == documented()
    text = get(at, "/metrics")[1]
    port = address.rpartition(":")[2]
    assert not re.search(rf'="[^"]*:({port}|[0-9]{{4,5}})"', text)  # no label has a port


def test_paths_and_what_they_say(tmp_path: Path, nodes: ExitStack) -> None:
    master, address = serve(nodes, tmp_path / "a", "--put", "5", "--sync", "0", "--metrics", "127.0.0.1:0", file_size=FILE_SIZE)
    at = master.line("metrics")
    options = ("--file-size", str(FILE_SIZE), "--metrics", "127.0.0.1:0")
    slave = follow(nodes, tmp_path / "b", address, *options)
    slave_at = slave.line("metrics")
    for where in (at, slave_at):
        wait_for(lambda where=where: get(where, "/readyz") == (200, "ok\n"))
        assert get(where, "/healthz") == (200, "ok\n")
        for path in ("/", "/metrics/", "/healthzz", "/readyz/x", "/favicon.ico"):
            assert get(where, path) == (404, "expected /metrics, /healthz, /readyz or /status\n")
    master.stop()
    wait_for(lambda: get(slave_at, "/readyz") == (503, "not connected to the master\n"))
    assert get(slave_at, "/healthz") == (200, "ok\n")


def test_a_process_that_is_stopped_answers_nothing_and_goes_on(tmp_path: Path, nodes: ExitStack) -> None:
    """A scrape that hangs in a client does not hold up the loop."""
    master, address = serve(nodes, tmp_path / "a", "--metrics", "127.0.0.1:0", file_size=FILE_SIZE)
    at = master.line("metrics")
    hanging = [
        nodes.enter_context(socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])), timeout=PATIENCE_S))
        for _ in range(20)
    ]
    for sock in hanging:
        sock.sendall(b"GET /metrics HTTP/1.1\r\n")
    os.kill(master._process.pid, signal.SIGSTOP)
    os.kill(master._process.pid, signal.SIGCONT)
    before = ask(tmp_path / "a")["uptime_s"]
    wait_for(lambda: ask(tmp_path / "a")["uptime_s"] > before)
    assert get(at, "/healthz")[0] == 200
    assert address


def test_no_counter_of_a_slave_goes_back_when_it_connects_anew(tmp_path: Path) -> None:
    """The counters add up the bytes of all connections, and keep their values between two of them."""
    stopped = threading.Event()
    with CommitLog.open(tmp_path / "b", file_size=FILE_SIZE) as log, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        follower = Follower(log, *listener.getsockname(), Settings(FILE_SIZE), HARDENED)
        figures = SlaveFigures(follower, log, "hardened")
        seen: list[dict[str, Any]] = []

        def look() -> dict[str, Any]:
            seen.append(figures.snapshot())
            return seen[-1]

        thread = threading.Thread(target=follower.run, args=(stopped.is_set,), daemon=True)
        thread.start()
        try:
            for number in range(1, 4):
                with accepted(listener) as sock:
                    sock.sendall(HEADER.pack(0, 0) * number)  # heartbeats
                    expected = HEADER.size * sum(range(number + 1))
                    wait_for(lambda expected=expected: look()["received_bytes"] >= expected)
                    wait_for(lambda number=number: look()["sent_bytes"] >= REPORT.size * number)
                    assert (seen[-1]["received_bytes"], seen[-1]["connects"]) == (expected, number)
                # It may have connected again since the last look.
                wait_for(lambda number=number: not follower.client.connected or follower.connects > number)
                assert look()["received_bytes"] == expected
            wait_for(lambda: look()["connects"] == 4)
        finally:
            stopped.set()
            await_end(thread)
    counters = metrics_module._COUNTERS.keys() & seen[0].keys()
    assert counters >= {"received_bytes", "sent_bytes", "connects", "reconnects", "failed_connects", "appended_bytes"}
    for name in counters:
        values = [snapshot[name] for snapshot in seen]
        assert values == sorted(values), name


@pytest.mark.parametrize("starts_at", [None, 0, 5 * 4096])
def test_what_was_appended_does_not_become_less_when_files_are_deleted(tmp_path: Path, starts_at: int | None) -> None:
    """starts_at: where the log begins at the start; None: it is empty then, and later begins far beyond 0."""
    with CommitLog.open(tmp_path / "b", file_size=4096) as log:
        if starts_at is not None:
            log.append_data(starts_at, [memoryview(bytes(100))])
        start = 7 * 4096 if starts_at is None else log.max_offset
        figures = SlaveFigures(Follower(log, "127.0.0.1", 9, Settings(4096), HARDENED), log, "hardened")
        assert figures.snapshot()["appended_bytes"] == 0
        if starts_at is None:
            log.append_data(start, [memoryview(bytes(4096))])
        else:
            log.append_data(start, [memoryview(bytes(3996))])
        for base in range(log.max_offset, log.max_offset + 3 * 4096, 4096):
            log.append_data(base, [memoryview(bytes(4096))])
            assert figures.snapshot()["appended_bytes"] == log.max_offset - start
        log.delete_before(log.max_offset - 4096)
        assert log.min_offset > start
        assert figures.snapshot()["appended_bytes"] == log.max_offset - start


# --- What it says of a snapshot ------------------------------------------------------------------------------------------


def slave_snapshot(**changed: Any) -> dict[str, Any]:
    return {"role": "slave", "disk_full": None, "state": "connected", "comparing": False, "silent_ms": 10} | changed


@pytest.mark.parametrize(
    ("snapshot", "says"),
    [
        (slave_snapshot(), ""),
        (slave_snapshot(state="disconnected"), "not connected to the master"),
        (slave_snapshot(state=ASKING), "asking the master about its files"),
        (slave_snapshot(state=WAITING), "waiting for the master's first message"),
        (slave_snapshot(comparing=True), "comparing the last message with the master's"),
        (slave_snapshot(silent_ms=HEARD_S * 1000 + 500), "the master has not been heard for 16 s"),
        (slave_snapshot(disk_full="no room"), "the disk is full: no room"),
        ({"role": "master", "disk_full": None, "accepting": True}, ""),
        ({"role": "master", "disk_full": None, "accepting": False}, "no connection is accepted: there are no descriptors"),
        ({"role": "master", "disk_full": "no room", "accepting": True}, "the disk is full: no room"),
    ],
)
def test_who_is_ready(snapshot: dict[str, Any], says: str, metrics: Metrics) -> None:
    assert get(metrics.address, "/readyz") == (503, "starting\n")
    metrics.publish(snapshot)
    metrics.turned()
    assert get(metrics.address, "/readyz") == ((503, says + "\n") if says else (200, "ok\n"))


def test_a_loop_that_hangs_is_not_healthy(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(metrics.address, "/healthz") == (200, "ok\n")  # the store is being opened
    metrics.turned()
    metrics.publish(slave_snapshot())
    now = metrics_module.time.monotonic()
    monkeypatch.setattr(metrics, "_turned_s", now - ALIVE_S - 1)
    for path in ("/healthz", "/readyz"):
        code, text = get(metrics.address, path)
        assert (code, text[:30]) == (503, "the loop has not turned for 16")
    metrics.turned()
    assert get(metrics.address, "/healthz") == (200, "ok\n")


def test_of_two_connections_of_a_replica_the_one_that_has_more_is_shown() -> None:
    def connection(peer: str, kind: str, ack: int | None, replica: str = "a") -> dict[str, Any]:
        return {"peer": peer, "kind": kind, "ack_offset": ack, "replica": replica}

    shown = metrics_module._by_replica(
        [
            connection("a:1", "slave", 5),
            connection("a:2", "slave", 7),
            connection("a:3", "slave", 7),  # the same: the series stays with the first, and does not jump
            connection("a:4", "reader", None),
            connection("b:1", "new", None, "b"),
        ]
    )
    assert {replica: conn["peer"] for replica, conn in shown.items()} == {"a": "a:2"}


def test_the_alert_rules_are_yaml_and_name_metrics_that_there_are() -> None:
    yaml = pytest.importorskip("yaml")
    rules = [
        rule
        for group in yaml.safe_load((ROOT / "examples/alerts.yaml").read_text("utf-8"))["groups"]
        for rule in group["rules"]
    ]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert {"alert", "expr", "labels", "annotations"} <= rule.keys()
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        named = set(re.findall(r"rocketmq_ha_[a-z0-9_]+", rule["expr"]))
        assert named <= documented(), rule["alert"]
        assert rule["expr"].count("(") == rule["expr"].count(")")
