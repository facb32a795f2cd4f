"""Each metric of a snapshot: its name, type, help and value, from snapshots in which no two figures are equal."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kit.snapshots import Snapshot, master_connection, master_snapshot, slave_snapshot
from rocketmq_ha.impl.app import metrics as metrics_module
from rocketmq_ha.impl.app.metrics import Metrics

PUBLISHED_S = 1_700_000_000.5

BOTH = """\
rocketmq_ha_snapshot_timestamp_seconds gauge 1700000000.5 When the loop took these figures.
rocketmq_ha_uptime_seconds gauge 93784.5 Since the start.
rocketmq_ha_min_offset_bytes gauge 1001 Commit-log offset of the first byte.
rocketmq_ha_max_offset_bytes gauge 7890123 Commit-log offset behind the last byte.
rocketmq_ha_flushed_offset_bytes gauge 7888888 The commit log before this offset is on the disk.
rocketmq_ha_growth_bytes_per_second gauge 2560.0 Growth of the commit log, over ten seconds.
rocketmq_ha_free_disk_bytes gauge 99999 Bytes that are free for this user on the log's file system.
rocketmq_ha_disk_full gauge 0.0 Whether the log has no room for its next file.
rocketmq_ha_appended_bytes_total counter 11111 Bytes by which the log has grown since the start.
rocketmq_ha_fsyncs_total counter 12 Files of the log that were forced to the disk.
rocketmq_ha_fsync_seconds_total counter 0.75 Time that this took.
rocketmq_ha_deleted_files_total counter 1234 Files of the commit log that retention has deleted.
rocketmq_ha_deleted_bytes_total counter 3145728 Their bytes.
"""
MASTER = """\
rocketmq_ha_info{profile=hardened,role=master,version=9.8.7} info 1 What runs.
rocketmq_ha_slaves gauge 21 Connections that count as slaves.
rocketmq_ha_replicas_counted gauge 23 Distinct slaves that count.
rocketmq_ha_replicas_needed gauge 22 Distinct slaves that must have a put which waits.
rocketmq_ha_push2_slave_max_offset_bytes gauge 7000024 The greatest offset that slaves enough have acknowledged.
rocketmq_ha_waiting_puts gauge 25 Puts that wait for a slave.
rocketmq_ha_sent_bytes_total counter 28 Bytes that the sockets of the replication have taken, frames or reports.
rocketmq_ha_received_bytes_total counter 29 Bytes that were read from them.
rocketmq_ha_accepted_connections_total counter 27 Connections that were let in.
rocketmq_ha_refused_connections_total counter 1026 Connections that were not let in.
rocketmq_ha_connections{kind=slave} gauge 3 Connections, by what they are.
rocketmq_ha_connections{kind=reader} gauge 2 Connections, by what they are.
rocketmq_ha_connections{kind=new} gauge 1 Connections, by what they are.
rocketmq_ha_connections{kind=not reported} gauge 0 Connections, by what they are.
rocketmq_ha_puts_total{status=PUT_OK} counter 31 Puts that have ended, by how.
rocketmq_ha_puts_total{status=FLUSH_DISK_TIMEOUT} counter 32 Puts that have ended, by how.
rocketmq_ha_puts_total{status=FLUSH_SLAVE_TIMEOUT} counter 33 Puts that have ended, by how.
rocketmq_ha_puts_total{status=SLAVE_NOT_AVAILABLE} counter 34 Puts that have ended, by how.
rocketmq_ha_slave_ack_offset_bytes{replica=10.0.0.3} gauge 1500003 The offset that it has acknowledged.
rocketmq_ha_slave_ack_offset_bytes{replica=10.0.0.2} gauge 1500002 The offset that it has acknowledged.
rocketmq_ha_slave_sent_offset_bytes{replica=10.0.0.3} gauge 1400003 The offset behind the last byte that its socket has taken.
rocketmq_ha_slave_sent_offset_bytes{replica=10.0.0.2} gauge 1400002 The offset behind the last byte that its socket has taken.
rocketmq_ha_slave_lag_bytes{replica=10.0.0.3} gauge 163 What it has not acknowledged, in bytes.
rocketmq_ha_slave_lag_bytes{replica=10.0.0.2} gauge 162 What it has not acknowledged, in bytes.
rocketmq_ha_slave_lag_seconds{replica=10.0.0.3} gauge 0.173 How long there have been bytes that it has not acknowledged.
rocketmq_ha_slave_lag_seconds{replica=10.0.0.2} gauge 0.172 How long there have been bytes that it has not acknowledged.
rocketmq_ha_slave_silent_seconds{replica=10.0.0.3} gauge 2.103 Since it was heard.
rocketmq_ha_slave_silent_seconds{replica=10.0.0.2} gauge 2.102 Since it was heard.
rocketmq_ha_slave_acked_bytes_per_second{replica=10.0.0.3} gauge 183.0 Growth of its acknowledgements, over ten seconds.
rocketmq_ha_slave_acked_bytes_per_second{replica=10.0.0.2} gauge 182.0 Growth of its acknowledgements, over ten seconds.
"""
SLAVE = """\
rocketmq_ha_info{profile=hardened,role=slave,version=9.8.7} info 1 What runs.
rocketmq_ha_connected gauge 1.0 Whether the master is connected.
rocketmq_ha_reported_offset_bytes gauge 7000043 The offset that this slave has reported last.
rocketmq_ha_unparsed_bytes gauge 44 Bytes of a frame that is not whole.
rocketmq_ha_silent_seconds gauge 4.2 Since the master was heard.
rocketmq_ha_sent_bytes_total counter 47 Bytes that the sockets of the replication have taken, frames or reports.
rocketmq_ha_received_bytes_total counter 48 Bytes that were read from them.
rocketmq_ha_reconnects_total counter 46 Connections to the master that came about after the first.
rocketmq_ha_connects_total counter 45 Connections to the master that came about.
rocketmq_ha_failed_connects_total counter 49 Connections to the master that did not.
"""
# The connection with the greatest offset of the replica .3 comes first, between those of others.
CONNECTIONS = [
    master_connection(3),
    master_connection(4, kind="reader", ack_offset=None),
    master_connection(1, replica="10.0.0.3"),
    master_connection(2),
    master_connection(5, kind="reader", ack_offset=None),
    master_connection(6, kind="new", ack_offset=None),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Metrics]:
    """One server for all tests: its end takes half a second."""
    served = Metrics("127.0.0.1:0")
    yield served
    served.close()


@pytest.fixture
def metrics(server: Metrics, monkeypatch: pytest.MonkeyPatch) -> Metrics:
    """The server, as it is when nothing was published. Its clock stands."""
    monkeypatch.setattr(metrics_module, "time", SimpleNamespace(time=lambda: PUBLISHED_S, monotonic=lambda: 500.0))
    monkeypatch.setattr(server, "_published", None)
    monkeypatch.setattr(server, "_turned_s", None)
    return server


def collected(metrics: Metrics) -> set[str]:
    """One line for each sample: name{labels} type value help."""
    lines = set()
    for family in metrics.collect():
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            name = sample.name + (f"{{{labels}}}" if labels else "")
            lines.add(f"{name} {family.type} {sample.value} {family.documentation}")
    return lines


@pytest.mark.parametrize(
    ("snapshot", "own"),
    [
        pytest.param(master_snapshot(connections=CONNECTIONS), MASTER, id="master"),
        pytest.param(slave_snapshot(), SLAVE, id="slave"),
    ],
)
def test_each_metric_has_its_type_its_value_and_its_help(snapshot: Snapshot, own: str, metrics: Metrics) -> None:
    assert collected(metrics) == set()
    metrics.publish(snapshot)
    assert collected(metrics) == set((BOTH + own).splitlines())


@pytest.mark.parametrize(
    ("snapshot", "name", "value"),
    [
        (master_snapshot(disk_full="no room"), "rocketmq_ha_disk_full", "1.0"),
        (slave_snapshot(disk_full="no room"), "rocketmq_ha_disk_full", "1.0"),
        (slave_snapshot(state="disconnected"), "rocketmq_ha_connected", "0.0"),
        (slave_snapshot(state="disk full"), "rocketmq_ha_connected", "0.0"),
        (slave_snapshot(state=metrics_module.ASKING), "rocketmq_ha_connected", "1.0"),
        (slave_snapshot(state=metrics_module.WAITING), "rocketmq_ha_connected", "1.0"),
        (slave_snapshot(silent_ms=None), "rocketmq_ha_silent_seconds", None),
        (slave_snapshot(silent_ms=0), "rocketmq_ha_silent_seconds", "0.0"),
        (slave_snapshot(unparsed_bytes=None), "rocketmq_ha_unparsed_bytes", None),
        (slave_snapshot(reported_offset=None), "rocketmq_ha_reported_offset_bytes", None),
        (slave_snapshot(free_disk_bytes=None), "rocketmq_ha_free_disk_bytes", None),
        (master_snapshot(broker_role="ASYNC_MASTER"), "rocketmq_ha_replicas_needed", None),
        (master_snapshot(broker_role="ASYNC_MASTER"), "rocketmq_ha_replicas_counted", "23"),
        (master_snapshot(), "rocketmq_ha_slave_ack_offset_bytes", None),  # no connection, no series
        (master_snapshot(), "rocketmq_ha_connected", None),
    ],
)
def test_a_metric_that_does_not_apply_is_absent(snapshot: Snapshot, name: str, value: str | None, metrics: Metrics) -> None:
    metrics.publish(snapshot)
    assert [line.split()[2] for line in collected(metrics) if line.startswith(name)] == ([value] if value else [])


def test_of_connections_with_equal_acknowledgements_the_first_is_shown(metrics: Metrics) -> None:
    same = [master_connection(number, replica="r", ack_offset=7) for number in (1, 2)]
    metrics.publish(master_snapshot(connections=same))
    assert "rocketmq_ha_slave_lag_bytes{replica=r} gauge 161 What it has not acknowledged, in bytes." in collected(metrics)


# --- HTTP ------------------------------------------------------------------------------------------------------------


def get(metrics: Metrics, path: str) -> tuple[int, str, str]:
    """Status, content type and body."""
    try:
        with urllib.request.urlopen(f"http://{metrics.address}{path}", timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


TEXT = "text/plain; charset=utf-8"


def test_the_status_is_the_snapshot_that_was_published(metrics: Metrics) -> None:
    assert get(metrics, "/status") == (503, TEXT, "starting\n")
    metrics.publish(slave_snapshot(state="disconnected"))
    status, kind, body = get(metrics, "/status")
    assert (status, kind, json.loads(body)) == (200, "application/json", slave_snapshot(state="disconnected"))
    assert body.endswith("}\n")


@pytest.mark.parametrize(
    ("snapshot", "told"),
    [
        (slave_snapshot(silent_ms=15_000), "ok"),
        (slave_snapshot(silent_ms=15_001), "the master has not been heard for 15 s"),
        (slave_snapshot(silent_ms=None), "ok"),
        (slave_snapshot(disk_full="no room", state="disk full"), "the disk is full: no room"),
    ],
)
def test_a_slave_is_ready_while_it_hears_its_master(snapshot: Snapshot, told: str, metrics: Metrics) -> None:
    metrics.publish(snapshot)
    assert get(metrics, "/readyz") == (200 if told == "ok" else 503, TEXT, f"{told}\n")


@pytest.mark.parametrize(("silence_s", "told"), [(0.0, "ok"), (15.0, "ok"), (15.1, "the loop has not turned for 15 s")])
def test_a_process_is_alive_while_its_loop_turns(
    silence_s: float, told: str, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics.publish(slave_snapshot())
    metrics.turned()
    monkeypatch.setattr(metrics_module.time, "monotonic", lambda: 500.0 + silence_s)
    assert get(metrics, "/healthz") == get(metrics, "/readyz") == (200 if told == "ok" else 503, TEXT, f"{told}\n")


def test_figures_are_due_once_a_second(metrics: Metrics, monkeypatch: pytest.MonkeyPatch) -> None:
    due = []
    for now_s in (500.0, 500.999, 501.0, 501.5, 502.1, 503.0, 503.1):
        monkeypatch.setattr(metrics_module.time, "monotonic", lambda now_s=now_s: now_s)
        due.append(metrics.is_due())
    assert due == [True, False, True, False, True, False, True]
