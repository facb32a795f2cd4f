"""The figures of a running end as Prometheus metrics, over HTTP.

The HTTP server has a thread of its own, which sees nothing but the last snapshot that the loop has published: a dict that
nobody changes any more. A scrape can neither wait for the log nor make the loop wait.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address, parse_address
from rocketmq_ha.impl.net.figures import KINDS

PUBLISH_EVERY_S: Final = 1.0

# field of a snapshot: metric and help.
_GAUGES: Final = {
    "min_offset": ("min_offset_bytes", "Commit-log offset of the first byte."),
    "max_offset": ("max_offset_bytes", "Commit-log offset behind the last byte."),
    "flushed_offset": ("flushed_offset_bytes", "The commit log before this offset is on the disk."),
    "growth_per_second": ("growth_bytes_per_second", "Growth of the commit log, over ten seconds."),
    "slaves": ("slaves", "Connections that count as slaves."),
    "replicas_counted": ("replicas_counted", "Distinct slaves that count."),
    "replicas_needed": ("replicas_needed", "Distinct slaves that must have a put which waits."),
    "push2_slave_max_offset": ("push2_slave_max_offset_bytes", "The greatest offset that slaves enough have acknowledged."),
    "waiting_puts": ("waiting_puts", "Puts that wait for a slave."),
    "reported_offset": ("reported_offset_bytes", "The offset that this slave has reported last."),
    "unparsed_bytes": ("unparsed_bytes", "Bytes of a frame that is not whole."),
    "silent_ms": ("silent_seconds", "Since the master was heard."),
}
_COUNTERS: Final = {
    "deleted_files": ("deleted_files", "Files of the commit log that retention has deleted."),
    "deleted_bytes": ("deleted_bytes", "Their bytes."),
    "refused_connections": ("refused_connections", "Connections that were not let in."),
    "connects": ("connects", "Connections to the master that came about."),
    "failed_connects": ("failed_connects", "Connections to the master that did not."),
}
_OF_CONNECTIONS: Final = {
    "ack_offset": ("ack_offset_bytes", "The offset that a slave has acknowledged."),
    "sent_offset": ("sent_offset_bytes", "The offset behind the last byte that its socket has taken."),
    "reported_offset": ("reported_offset_bytes", "The offset that it has reported last; a reader repeats one."),
    "lag_bytes": ("lag_bytes", "What a slave has not acknowledged, in bytes."),
    "lag_ms": ("lag_seconds", "How long there have been bytes that a slave has not acknowledged."),
    "silent_ms": ("silent_seconds", "Since it was heard."),
    "acks_per_second": ("acked_bytes_per_second", "Growth of a slave's acknowledgements, over ten seconds."),
}


class Metrics(Collector):
    """Serves the last snapshot. `publish` is called by the loop; `close` at the end."""

    def __init__(self, address: str) -> None:
        """Listen. Raises: ConfigInvalid."""
        host, port = parse_address(address)
        self._published: tuple[float, dict[str, Any]] | None = None
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigInvalid(f"cannot listen on {format_address(host, port)}: {error.strerror or error}") from error
        self._next_s = 0.0

    @property
    def address(self) -> str:
        """Where it listens; the port that was taken, if 0 was asked for."""
        host, port = self._server.server_address[:2]
        return format_address(str(host), int(port))

    def is_due(self) -> bool:
        """Whether it is time to publish again."""
        now = time.monotonic()
        if now < self._next_s:
            return False
        self._next_s = now + PUBLISH_EVERY_S
        return True

    def publish(self, snapshot: dict[str, Any]) -> None:
        """Let scrapes see this one. It must not be changed any more."""
        self._published = (time.time(), snapshot)

    def collect(self) -> Iterator[Metric]:
        """What a scrape sees. Called by the HTTP server's threads, and once as it is registered."""
        if self._published is None:
            return
        published_s, snapshot = self._published
        told = {name: str(snapshot[name]) for name in ("version", "role", "profile")}
        yield InfoMetricFamily("rocketmq_ha", "What runs.", value=told)
        yield GaugeMetricFamily(
            "rocketmq_ha_snapshot_timestamp_seconds", "When the loop took these figures.", value=published_s
        )
        yield GaugeMetricFamily("rocketmq_ha_uptime_seconds", "Since the start.", value=snapshot["uptime_s"])
        if snapshot["role"] == "slave":
            is_connected = snapshot["state"] == "connected"
            yield GaugeMetricFamily("rocketmq_ha_connected", "Whether the master is connected.", value=float(is_connected))
        for field, (name, text) in _GAUGES.items():
            if snapshot.get(field) is not None:
                yield GaugeMetricFamily(f"rocketmq_ha_{name}", text, value=_scaled(field, snapshot[field]))
        is_full = snapshot["disk_full"] is not None
        yield GaugeMetricFamily("rocketmq_ha_disk_full", "Whether the log has no room for its next file.", value=float(is_full))
        for field, (name, text) in _COUNTERS.items():
            if field in snapshot:
                yield CounterMetricFamily(f"rocketmq_ha_{name}", text, value=snapshot[field])
        if snapshot["role"] == "master":
            kinds = GaugeMetricFamily("rocketmq_ha_connections", "Connections, by what they are.", labels=["kind"])
            for kind in KINDS:
                kinds.add_metric([kind], sum(conn["kind"] == kind for conn in snapshot["connections"]))
            yield kinds
        for field, (name, text) in _OF_CONNECTIONS.items():
            family = GaugeMetricFamily(f"rocketmq_ha_connection_{name}", text, labels=["peer"])
            for conn in snapshot.get("connections", ()):
                if conn[field] is not None:
                    family.add_metric([conn["peer"]], _scaled(field, conn[field]))
            if family.samples:
                yield family

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _scaled(field: str, value: float) -> float:
    """Times in seconds, as Prometheus has them."""
    return value / 1000 if field.endswith("_ms") else value
