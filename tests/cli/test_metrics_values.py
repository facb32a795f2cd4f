"""Each metric has the value of its own field, in its unit; the words and the borders of health and readiness."""

from types import SimpleNamespace
from typing import Any

import pytest

from rocketmq_ha.impl.app import metrics as module
from rocketmq_ha.impl.app.metrics import Metrics

PROCESS = {"version": "1", "profile": "hardened", "uptime_s": 3.5, "disk_full": None}
GAUGES = {
    "min_offset": "min_offset_bytes", "max_offset": "max_offset_bytes", "flushed_offset": "flushed_offset_bytes",
    "growth_per_second": "growth_bytes_per_second", "slaves": "slaves", "replicas_counted": "replicas_counted",
    "replicas_needed": "replicas_needed", "push2_slave_max_offset": "push2_slave_max_offset_bytes",
    "waiting_puts": "waiting_puts", "reported_offset": "reported_offset_bytes", "unparsed_bytes": "unparsed_bytes",
    "free_disk_bytes": "free_disk_bytes",
}  # fmt: skip
COUNTERS = {
    "appended_bytes": "appended_bytes", "sent_bytes": "sent_bytes", "received_bytes": "received_bytes", "syncs": "fsyncs",
    "sync_seconds": "fsync_seconds", "accepted_connections": "accepted_connections", "reconnects": "reconnects",
    "deleted_files": "deleted_files", "deleted_bytes": "deleted_bytes", "refused_connections": "refused_connections",
    "connects": "connects", "failed_connects": "failed_connects",
}  # fmt: skip
OF_SLAVES = {
    "ack_offset": "ack_offset_bytes", "sent_offset": "sent_offset_bytes", "lag_bytes": "lag_bytes",
    "acks_per_second": "acked_bytes_per_second",
}  # fmt: skip


class Now:
    """The clocks of the server; the test moves them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.s = 1000.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.s, time=lambda: self.s + 7))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    return Now(monkeypatch)


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch, now: Now) -> Metrics:  # noqa: ARG001  (its clocks)
    """Without its HTTP server."""
    monkeypatch.setattr(module, "_Server", lambda *_: SimpleNamespace(serve_forever=lambda: None))
    return Metrics("127.0.0.1:0")


def found(metrics: Metrics, snapshot: dict[str, Any]) -> dict[Any, float]:
    """The samples of a snapshot: name, or name and labels -> value."""
    metrics.publish(snapshot)
    return {
        (sample.name.removeprefix("rocketmq_ha_"), *sample.labels.values()) if sample.labels else
        sample.name.removeprefix("rocketmq_ha_"): sample.value
        for family in metrics.collect() for sample in family.samples
    }  # fmt: skip


def test_each_figure_has_its_metric(metrics: Metrics) -> None:
    """Unequal numbers in every place; a time in ms is told in seconds."""
    numbers = {name: float(100 + index) for index, name in enumerate([*GAUGES, *COUNTERS])}
    snapshot = PROCESS | numbers | {"role": "slave", "broker_role": "SLAVE", "state": "connected", "silent_ms": 1500}
    samples = found(metrics, snapshot)
    assert samples == {
        **{name: numbers[field] for field, name in GAUGES.items()},
        **{f"{name}_total": numbers[field] for field, name in COUNTERS.items()},
        ("info", "1", "slave", "hardened"): 1.0,
        "snapshot_timestamp_seconds": 1007.0, "uptime_seconds": 3.5, "connected": 1.0, "disk_full": 0.0,
        "silent_seconds": 1.5,
    }  # fmt: skip


def test_a_figure_of_0_has_its_metric(metrics: Metrics) -> None:
    """A series that appears with its first event has no increase of it: rate() needs the 0 before."""
    zeros = dict.fromkeys([*GAUGES, *COUNTERS], 0)
    snapshot = PROCESS | zeros | {"role": "master", "broker_role": "SYNC_MASTER", "silent_ms": 0, "uptime_s": 0}
    samples = found(metrics, snapshot | {"connections": [], "puts": {"PUT_OK": 0, "FLUSH_SLAVE_TIMEOUT": 0}})
    kinds = ("slave", "reader", "new", "not reported")
    assert samples == {
        **dict.fromkeys(GAUGES.values(), 0), **{f"{name}_total": 0 for name in COUNTERS.values()},
        **{("connections", kind): 0 for kind in kinds},
        **{("puts_total", status): 0 for status in ("PUT_OK", "FLUSH_SLAVE_TIMEOUT")},
        ("info", "1", "master", "hardened"): 1.0,
        "snapshot_timestamp_seconds": 1007.0, "uptime_seconds": 0, "disk_full": 0, "silent_seconds": 0,
    }  # fmt: skip
    conn = dict.fromkeys([*OF_SLAVES, "silent_ms", "lag_ms"], 0) | {"kind": "slave", "replica": "r"}
    samples = found(metrics, snapshot | {"connections": [conn], "puts": {}})
    assert {key[0]: value for key, value in samples.items() if key[1:] == ("r",)} == dict.fromkeys(
        [*(f"slave_{name}" for name in OF_SLAVES.values()), "slave_silent_seconds", "slave_lag_seconds"], 0
    )


@pytest.mark.parametrize(
    ("state", "connected"),
    [("connected", 1.0), (module.ASKING, 1.0), (module.WAITING, 1.0), ("disconnected", 0.0), ("disk full", 0.0)],
)
def test_a_slave_is_connected_or_not(metrics: Metrics, state: str, connected: float) -> None:
    """What is not known has no metric."""
    samples = found(
        metrics, PROCESS | {"role": "slave", "broker_role": "SLAVE", "state": state, "silent_ms": None, "disk_full": "why"}
    )
    assert (samples["connected"], samples["disk_full"], "silent_seconds" in samples) == (connected, 1.0, False)


def test_a_master_counts_connections_by_kind_and_puts_by_status(metrics: Metrics) -> None:
    kinds = ["slave", "slave", "slave", "reader", "reader", "new"]
    connections = [
        {"kind": kind, "replica": f"r{min(index, 1)}", "silent_ms": 250, "lag_ms": 4000}
        | {name: 10 * index + at for at, name in enumerate(OF_SLAVES)}
        for index, kind in enumerate(kinds)
    ]
    snapshot = PROCESS | {"role": "master", "broker_role": "ASYNC_MASTER", "connections": connections, "replicas_needed": 2,
                          "puts": {"PUT_OK": 5, "FLUSH_SLAVE_TIMEOUT": 6}}  # fmt: skip
    samples = found(metrics, snapshot)
    shown = {key: value for key, value in samples.items() if isinstance(key, tuple) and key[0] != "info"}
    assert shown == {
        ("connections", "slave"): 3, ("connections", "reader"): 2, ("connections", "new"): 1,
        ("connections", "not reported"): 0,
        ("puts_total", "PUT_OK"): 5, ("puts_total", "FLUSH_SLAVE_TIMEOUT"): 6,
        **{(f"slave_{name}", replica): 10 * index + at
           for at, name in enumerate(OF_SLAVES.values()) for replica, index in (("r0", 0), ("r1", 2))},
        **{("slave_silent_seconds", replica): 0.25 for replica in ("r0", "r1")},
        **{("slave_lag_seconds", replica): 4.0 for replica in ("r0", "r1")},
    }  # fmt: skip
    assert "replicas_needed" not in samples
    assert found(metrics, snapshot | {"broker_role": "SYNC_MASTER"})["replicas_needed"] == 2


@pytest.mark.parametrize(("silence_s", "why"), [(15.0, ""), (15.6, "the loop has not turned for 16 s")])
def test_a_loop_that_has_not_turned_for_more_than_15_s_is_dead(metrics: Metrics, now: Now, silence_s: float, why: str) -> None:
    assert metrics._why_dead() == ""
    metrics.turned()
    now.s += silence_s
    assert metrics._why_dead() == why


@pytest.mark.parametrize(("silent_ms", "why"), [(15_000, ""), (15_001, "the master has not been heard for 15 s"), (None, "")])
def test_a_master_that_was_not_heard_for_more_than_15_s_makes_unready(
    metrics: Metrics, silent_ms: int | None, why: str
) -> None:
    assert metrics._why_unready() == "starting"
    metrics.publish({"role": "slave", "disk_full": None, "state": "connected", "comparing": False, "silent_ms": silent_ms})
    assert metrics._why_unready() == why


def test_figures_are_published_once_a_second(metrics: Metrics, now: Now) -> None:
    due = []
    for step in (0.0, 0.0, 0.75, 0.25, 0.5, 5.0, 0.5):
        now.s += step
        due.append(metrics.is_due())
    assert due == [True, False, False, True, False, True, False]
