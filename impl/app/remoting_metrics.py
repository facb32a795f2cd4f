"""The metrics of a remoting port: those of a name server, and those that a broker has beside a master's."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rocketmq_ha.impl.net.figures import CONNECTED

Fields = Mapping[str, tuple[str, str]]  # field of a snapshot: its metric and the metric's help

_SHARED_COUNTERS: Final = {
    "sent_bytes": ("remoting_sent_bytes", "Bytes that the sockets of brokers and clients have taken."),
    "received_bytes": ("remoting_received_bytes", "Bytes that were read from them."),
    "invalid_frames": ("remoting_invalid_frames", "Connections closed for a frame that cannot be read."),
    "failures": ("remoting_failures", "Requests that have met a bug of this program."),
}
_NAME_SERVER_GAUGES: Final = {
    "brokers": ("namesrv_brokers", "Brokers that are listed."),
    "groups": ("namesrv_groups", "Their groups: a master and its slaves."),
    "topics": ("namesrv_topics", "Topics that have a route."),
    "group_topics": ("namesrv_group_topics", "The same, one that several groups have counted for each."),
    "connections": ("remoting_connections", "Open connections of brokers and clients."),
}
_NAME_SERVER_COUNTERS: Final = {
    "accepted_connections": ("accepted_connections", "Connections that were let in."),
    "refused_connections": ("refused_connections", "Connections that were not let in."),
    **_SHARED_COUNTERS,
}
_BROKER_GAUGES: Final = {
    "topics": ("topics", "Topics of the broker."),
    "groups": ("consumer_groups", "Consumer groups that it knows."),
}
_CLIENT_GAUGES: Final = {
    "connections": ("remoting_connections", "Open connections of clients and slaves."),
    "producers": ("producers", "Connections of producers, by their heartbeats."),
    "consumers": ("consumers", "Connections of consumers, by their heartbeats."),
    "pending": ("pending_requests", "Requests that have no answer yet, parked pulls among them."),
    "parked_pulls": ("parked_pulls", "Pulls that wait for a message."),
    "waiting_puts": ("waiting_sends", "Sends that wait for a slave or the disk."),
}
_CLIENT_COUNTERS: Final = {
    "accepted_connections": ("remoting_accepted_connections", "Connections of clients and slaves that were let in."),
    "refused_connections": ("remoting_refused_connections", "Connections of clients and slaves that were not let in."),
    **_SHARED_COUNTERS,
}


def name_server_metrics(snapshot: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the metrics of a name server."""
    yield from _gauges(_NAME_SERVER_GAUGES, snapshot)
    yield from _counters(_NAME_SERVER_COUNTERS, snapshot)


def broker_metrics(snapshot: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield what a broker has beside the metrics of a master."""
    yield from _gauges(_BROKER_GAUGES, snapshot)
    yield from _gauges(_CLIENT_GAUGES, snapshot["clients"])
    yield from _counters(_CLIENT_COUNTERS, snapshot["clients"])
    yield from _registrations(snapshot["name_servers"])
    if (followed := snapshot["following"]) is not None:
        yield from _followed(followed)


def _gauges(fields: Fields, snapshot: Mapping[str, Any]) -> Iterator[Metric]:
    for field, (name, text) in fields.items():
        yield GaugeMetricFamily(f"rocketmq_ha_{name}", text, value=snapshot[field])


def _counters(fields: Fields, snapshot: Mapping[str, Any]) -> Iterator[Metric]:
    for field, (name, text) in fields.items():
        yield CounterMetricFamily(f"rocketmq_ha_{name}", text, value=snapshot[field])
    requests = CounterMetricFamily("rocketmq_ha_requests", "Requests that have come, by code.", labels=["code"])
    for code, count in snapshot["requests"].items():
        requests.add_metric([code], count)
    yield requests


def _registrations(name_servers: list[dict[str, Any]]) -> Iterator[Metric]:
    if not name_servers:
        return
    labels = ["name_server"]
    registered = GaugeMetricFamily("rocketmq_ha_registered", "Whether the last registration was taken.", labels=labels)
    ages = GaugeMetricFamily("rocketmq_ha_registration_age_seconds", "Since the last one that was.", labels=labels)
    for each in name_servers:
        taken_ms = each["registered_ms"]
        registered.add_metric([each["address"]], float(taken_ms is not None and each["error"] is None))
        if taken_ms is not None:
            ages.add_metric([each["address"]], taken_ms / 1000)
    yield registered
    yield ages


def _followed(followed: Mapping[str, Any]) -> Iterator[Metric]:
    """A figure that is not known has no series."""
    connected = float(followed["state"] == CONNECTED)
    yield GaugeMetricFamily("rocketmq_ha_connected", "Whether the master is connected.", value=connected)
    for field, (name, text) in {
        "lag_bytes": ("master_lag_bytes", "What the log lacked when the master last said where its own ends."),
        "lag_told_ms": ("master_lag_age_seconds", "Since it said so."),
        "tables_ms": ("tables_age_seconds", "Since all tables of the master were taken."),
        "tables_lag_ms": ("tables_lag_seconds", "Since they were asked for: what is newer may be missing."),
    }.items():
        value = followed[field]
        if value is not None:
            scale = 1000 if field.endswith("_ms") else 1
            yield GaugeMetricFamily(f"rocketmq_ha_{name}", text, value=value / scale)
