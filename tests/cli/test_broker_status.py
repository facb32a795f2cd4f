"""What `status` and `--metrics` say of a broker: each line and each metric, and what a live one counts."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kit.brokers import LiveBroker, pull_fields
from kit.snapshots import Snapshot, broker_snapshot, followed, master_connection
from rocketmq_ha.impl.app.broker_figures import BrokerFigures
from rocketmq_ha.impl.app.following import Following
from rocketmq_ha.impl.app.remoting_metrics import broker_metrics
from rocketmq_ha.impl.broker.broker import BrokerSettings
from rocketmq_ha.impl.cli.status import show
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.net.client import Follower
from rocketmq_ha.impl.remoting.command import request
from rocketmq_ha.spec.profile import HARDENED, Settings
from rocketmq_ha.spec.role import BrokerRole

ROOT = Path(__file__).resolve().parents[2]
REFUSED = "cannot connect: Connection refused"


def shown(snapshot: Snapshot, width: int = 1000) -> str:
    file = io.StringIO()
    show(snapshot, Console(file=file, width=width, highlight=False, soft_wrap=True, color_system=None))
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


def test_the_status_of_a_broker() -> None:
    of_its_log = ("process", "log", "flushed")
    assert [line for line in shown(broker_snapshot()).splitlines() if not line.startswith(of_its_log)] == [
        "role      SYNC_MASTER, profile hardened",
        "broker    broker-a of cluster-x, id 0",
        "deleted   1,234 files, 3.0 MiB",
        "listens   127.0.0.1:10911, 127.0.0.1:10909, for slaves 127.0.0.1:10912",
        "slaves    21, which have acknowledged up to 7,000,024; 25 puts wait",
        "replicas  23 count, a put that waits needs 22",
        "tables    81 topics, 82 groups",
        "clients   61 connections: 62 producers, 63 consumers in 64 groups",
        "requests  1,069.0 a second, 1,201 so far",
        "waiting   73 pulls, 74 sends",
        "namesrv   10.0.0.5:9876, registered 3.1 s ago",
        f"          10.0.0.6:9876, not registered yet; it failed: {REFUSED}",
        "",
        "no connections of slaves",
    ]


def lines(snapshot: Snapshot) -> dict[str, str]:
    """The lines of a status, by their names."""
    found = [
        re.split(r"\s{2,}|(?<=^replicas)\s+", line, maxsplit=1) for line in shown(snapshot).splitlines() if line[:1].strip()
    ]
    return {each[0]: each[-1] for each in found}


def test_the_status_of_a_slave_broker_has_its_master_in_the_place_of_its_slaves() -> None:
    found = lines(broker_snapshot(broker_role="SLAVE", broker_id=1, following=followed()))
    assert found["master"] == "10.0.0.9:10912, connected for 41.0 s, heard 4.2 s ago"
    assert found["lag"] == "1.5 KiB behind, 2.5 s ago"
    assert found["synced"] == "changes taken from 10.0.0.9:10911 8.6 s ago, at most 8.9 s behind"
    assert not {"slaves", "replicas"} & found.keys()


@pytest.mark.parametrize(
    ("changed", "name", "expected"),
    [
        ({"master": None, "state": "disconnected"}, "master", "none is known yet"),
        ({"state": "disconnected"}, "master", "10.0.0.9:10912, disconnected"),
        (
            {"state": "disconnected", "last_close_reason": "end_of_stream"},
            "master",
            "10.0.0.9:10912, disconnected; the last connection ended: end_of_stream",
        ),
        ({"state": "disk full"}, "master", "10.0.0.9:10912, disk full"),
        ({"lag_bytes": None}, "lag", "unknown: its master has not said where its log ends"),
        ({"lag_bytes": 0}, "lag", "0 B behind, 2.5 s ago"),
        ({"tables_ms": None}, "synced", "never taken"),
        ({"tables_ms": None, "tables_error": "why"}, "synced", "never taken; since then: why"),
        (
            {"tables_error": "why", "tables_by": "whole tables"},
            "synced",
            "whole tables taken from 10.0.0.9:10911 8.6 s ago, at most 8.9 s behind; since then: why",
        ),
    ],
)
def test_each_state_of_a_slave_broker_has_its_words(changed: Snapshot, name: str, expected: str) -> None:
    assert lines(broker_snapshot(following=followed(**changed)))[name] == expected


def test_refused_clients_and_a_broker_without_name_servers() -> None:
    snapshot = broker_snapshot(name_servers=[])
    snapshot["clients"] |= {"refused_connections": 1_026}
    found = lines(snapshot)
    assert found["clients"].endswith("; 1,026 refused")
    assert found["namesrv"] == "none: clients cannot find this broker"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("role", ["SYNC_MASTER", "SLAVE"])
def test_no_line_is_wider_than_the_screen(width: int, role: str) -> None:
    large = 9_876_543_210_123
    follows = followed(
        master="[2001:db8:1234:5678:9abc:def0:1234:5678]:54321", lag_bytes=large, tables_error=f"x: {REFUSED} " * 3
    )
    snapshot = broker_snapshot(broker_role=role, following=follows if role == "SLAVE" else None)
    snapshot["clients"] |= dict.fromkeys(("connections", "producers", "consumers", "consumer_groups", "parked_pulls"), large)
    snapshot["connections"] = [master_connection(1), master_connection(2)]
    text = shown(snapshot, width)
    assert f"{large:,} connections" in text.replace("\n          ", " ")
    assert [line for line in text.splitlines() if len(line) > width] == []


# --- Metrics -----------------------------------------------------------------------------------------------------------------


def samples(snapshot: Snapshot) -> dict[Any, float]:
    return {
        (sample.name.removeprefix("rocketmq_ha_"), *sample.labels.values()): sample.value
        for family in broker_metrics(snapshot)
        for sample in family.samples
    }


def test_each_figure_of_a_broker_has_its_metric() -> None:
    assert samples(broker_snapshot()) == {
        ("topics",): 81,
        ("consumer_groups",): 82,
        ("remoting_connections",): 61,
        ("producers",): 62,
        ("consumers",): 63,
        ("pending_requests",): 72,
        ("parked_pulls",): 73,
        ("waiting_sends",): 74,
        ("remoting_accepted_connections_total",): 65,
        ("remoting_refused_connections_total",): 0,
        ("remoting_sent_bytes_total",): 75,
        ("remoting_received_bytes_total",): 76,
        ("remoting_invalid_frames_total",): 70,
        ("remoting_failures_total",): 71,
        ("requests_total", "10"): 1_066,
        ("requests_total", "11"): 67,
        ("requests_total", "unsupported"): 68,
        ("registered", "10.0.0.5:9876"): 1,
        ("registered", "10.0.0.6:9876"): 0,
        ("registration_age_seconds", "10.0.0.5:9876"): 3.1,
    }


def test_a_broker_that_a_name_server_refuses_now_is_not_registered() -> None:
    refused = {"address": "n:1", "registered_ms": 61_000, "error": "code 1: full"}
    found = samples(broker_snapshot(name_servers=[refused]))
    assert (found["registered", "n:1"], found["registration_age_seconds", "n:1"]) == (0, 61)


def test_a_slave_broker_has_the_metrics_of_its_master() -> None:
    """What is not known has no series."""
    names = {"connected", "master_lag_bytes", "master_lag_age_seconds", "tables_age_seconds", "tables_lag_seconds"}

    def found(**changed: object) -> dict[str, float]:
        return {
            key[0]: value for key, value in samples(broker_snapshot(following=followed(**changed))).items() if key[0] in names
        }

    lags = {"master_lag_bytes": 1_536, "master_lag_age_seconds": 2.5, "tables_age_seconds": 8.6, "tables_lag_seconds": 8.9}
    assert found() == {"connected": 1, **lags}
    unknown = found(state="disconnected", lag_bytes=None, lag_told_ms=None, tables_ms=None, tables_lag_ms=None)
    assert unknown == {"connected": 0}
    assert not names & {key[0] for key in samples(broker_snapshot())}


def test_the_metrics_of_a_broker_are_those_of_its_page() -> None:
    """docs/broker.md; those that a master has as well are in docs/metrics.md."""
    page = (ROOT / "docs" / "broker.md").read_text("utf-8")
    documented = set(re.findall(r"`rocketmq_ha_([a-z0-9_]+)`", page))
    assert {key[0] for key in samples(broker_snapshot(following=followed()))} == documented


# --- A live broker -----------------------------------------------------------------------------------------------------------


def heartbeat(**groups: list[dict[str, object]]) -> bytes:
    return json.dumps({"clientID": "c", "producerDataSet": [], "consumerDataSet": [], **groups}).encode()


def test_a_broker_counts_its_clients_its_requests_and_its_parked_pulls(tmp_path: Path) -> None:
    broker = LiveBroker(tmp_path)
    try:
        nobody = Following(broker.store, lambda log, address: Follower(log, *address, Settings(1), HARDENED))
        figures = BrokerFigures(broker.controller, broker.master, "hardened", nobody)
        assert figures.snapshot()["clients"]["connections"] == 0
        broker.send()
        broker.await_dispatch(1)
        consumes = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": []}  # fmt: skip
        produces = [{"groupName": name} for name in ("p1", "p2")]
        body = heartbeat(producerDataSet=produces, consumerDataSet=[consumes])  # type: ignore[list-item]
        assert broker.ask(34, {}, body).code == 0
        broker.invoke(request(11, pull_fields(1, 60_000)))
        broker.turn_until(lambda: broker.controller.pulls.hold.count)
        figures._next_sample_ms = 0
        figures.sample()
        snapshot = figures.snapshot()
        clients = snapshot["clients"]
        assert {name: clients[name] for name in ("connections", "producers", "consumers", "consumer_groups")} == {
            "connections": 1, "producers": 1, "consumers": 1, "consumer_groups": 1
        }  # fmt: skip
        assert (clients["parked_pulls"], clients["pending"]) == (1, 1)
        assert clients["requests"] == {"11": 1, "310": 1, "34": 1}
        assert clients["requests_per_second"] > 0
        later_ms = clock_ms() + 11_000
        figures._sample(later_ms)  # ten seconds without a request
        assert figures._clients(later_ms + 500)["requests_per_second"] == 0
        assert (snapshot["following"], snapshot["name_servers"], snapshot["broker_id"]) == (None, [], 0)
        assert shown(snapshot).endswith("\nno connections of slaves\n")
    finally:
        broker.close()


def test_a_slave_broker_says_what_it_lacks_and_of_whom_it_has_its_tables(tmp_path: Path) -> None:
    master = LiveBroker(tmp_path / "master")
    settings = BrokerSettings(BrokerRole.SLAVE, ("127.0.0.1", 10921), ("127.0.0.1", 10922), broker_id=1)
    slave = LiveBroker(tmp_path / "slave", settings)
    following = Following(slave.store, lambda log, address: Follower(log, *address, Settings(4 << 20), HARDENED))
    figures = BrokerFigures(slave.controller, slave.master, "hardened", following)

    def turn() -> dict[str, Any]:
        master.turn()
        slave.turn()
        found: dict[str, Any] = figures.snapshot()["following"]
        return found

    try:
        assert turn() == dict.fromkeys(turn()) | {"state": "disconnected"}
        master.send(b"x" * 1000)
        rounds = slave.controller.synchronize
        assert rounds is not None
        rounds.master_addr = master.address
        slave.turn_until(lambda: turn()["lag_bytes"])
        assert figures.snapshot()["following"]["lag_bytes"] == master.store.max_offset  # it has nothing yet
        following.start()
        following.follow(master.master.address)
        slave.turn_until(lambda: turn()["state"] == "connected")
        found = turn()
        host, port = master.master.address
        assert (found["master"], found["tables_of"]) == (f"{host}:{port}", master.address)
        assert found["connected_ms"] >= 0 and found["silent_ms"] >= 0
    finally:
        following.shutdown()
        slave.close()
        master.close()
