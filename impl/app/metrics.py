"""The HTTP server of a running master or slave: Prometheus metrics, liveness, readiness and status. docs/metrics.md lists all.

The server has its own threads. They read only the last snapshot that the loop has published, a dict that no code changes any
more. So a scrape never waits for the log, and the loop never waits for a scrape.
"""

import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from rocketmq_ha.impl.app.remoting_metrics import broker_metrics, name_server_metrics
from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address, parse_address, reason
from rocketmq_ha.impl.net.figures import CONNECTED, KINDS, SLAVE
from rocketmq_ha.impl.net.fresh import ASKING, WAITING
from rocketmq_ha.impl.net.remote_status import STATUS_PATH

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication
    from wsgiref.types import WSGIEnvironment as Environ

PUBLISH_EVERY_S: Final = 1.0
ALIVE_S: Final = 15.0  # a loop that makes no turn for this time hangs; a slave's connect takes up to 5 s
HEARD_S: Final = 15.0  # three heartbeats of a master, by default

# field of a snapshot: its metric and the metric's help.
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
    "free_disk_bytes": ("free_disk_bytes", "Bytes that are free for this user on the log's file system."),
}
_COUNTERS: Final = {
    "appended_bytes": ("appended_bytes", "Bytes by which the log has grown since the start."),
    "sent_bytes": ("sent_bytes", "Bytes that the sockets of the replication have taken, frames or reports."),
    "received_bytes": ("received_bytes", "Bytes that were read from them."),
    "syncs": ("fsyncs", "Files of the log that were forced to the disk."),
    "sync_seconds": ("fsync_seconds", "Time that this took."),
    "accepted_connections": ("accepted_connections", "Connections that were let in."),
    "reconnects": ("reconnects", "Connections to the master that came about after the first."),
    "deleted_files": ("deleted_files", "Files of the commit log that retention has deleted."),
    "deleted_bytes": ("deleted_bytes", "Their bytes."),
    "refused_connections": ("refused_connections", "Connections that were not let in."),
    "connects": ("connects", "Connections to the master that came about."),
    "failed_connects": ("failed_connects", "Connections to the master that did not."),
}
# Metrics for each slave. If it has several connections, the one counts that has acknowledged the most.
_SLAVE_GAUGES: Final = {
    "ack_offset": ("ack_offset_bytes", "The offset that it has acknowledged."),
    "sent_offset": ("sent_offset_bytes", "The offset behind the last byte that its socket has taken."),
    "lag_bytes": ("lag_bytes", "What it has not acknowledged, in bytes."),
    "lag_ms": ("lag_seconds", "How long there have been bytes that it has not acknowledged."),
    "silent_ms": ("silent_seconds", "Since it was heard."),
    "acks_per_second": ("acked_bytes_per_second", "Growth of its acknowledgements, over ten seconds."),
}


class Metrics(Collector):
    """Serves the last snapshot. The loop calls `publish`; the end of the process calls `close`."""

    def __init__(self, address: str) -> None:
        """Listen at HOST:PORT. Raises: ConfigInvalid."""
        host, port = parse_address(address)
        self._published: tuple[float, dict[str, Any]] | None = None
        self._turned_s: float | None = None
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        self._metrics = make_wsgi_app(registry)
        try:
            self._server = _Server(host, port, self._answer)
        except OSError as error:
            raise ConfigInvalid(f"cannot listen on {format_address(host, port)}: {reason(error)}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        self._next_s = 0.0

    @property
    def address(self) -> str:
        """The address on which it listens. Its port is the real one, also if 0 was asked for."""
        host, port = self._server.server_address[:2]
        return format_address(str(host), int(port))

    def turned(self) -> None:
        """Note that the loop has made a turn."""
        self._turned_s = time.monotonic()

    def is_due(self) -> bool:
        """Return True at most once per PUBLISH_EVERY_S: it is time to publish."""
        now = time.monotonic()
        if now < self._next_s:
            return False
        self._next_s = now + PUBLISH_EVERY_S
        return True

    def publish(self, snapshot: dict[str, Any]) -> None:
        """Replace the snapshot that scrapes see. The caller must not change it any more."""
        self._published = (time.time(), snapshot)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of a scrape. The threads of the HTTP server call this, and the registry once as it registers us."""
        if self._published is None:
            return
        published_s, snapshot = self._published
        yield from _process_metrics(published_s, snapshot)
        if snapshot["role"] == "namesrv":
            yield from name_server_metrics(snapshot)
            return
        yield from _log_metrics(snapshot)
        if snapshot["role"] == "master":
            yield from _master_metrics(snapshot)
        if "clients" in snapshot:
            yield from broker_metrics(snapshot)
        yield from _slave_metrics(snapshot)

    # --- HTTP, in the server's threads ------------------------------------------------------------------------------

    def _answer(self, environ: "Environ", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics(environ, start_response)
            return found
        if path == STATUS_PATH and self._published is not None:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._published[1]).encode() + b"\n"]
        if path == "/healthz":
            why = self._why_dead()
        elif path in ("/readyz", STATUS_PATH):
            why = self._why_dead() or self._why_unready()
        else:
            return _text(start_response, "404 Not Found", "expected /metrics, /healthz, /readyz or /status")
        return _text(start_response, "503 Service Unavailable", why) if why else _text(start_response, "200 OK", "ok")

    def _why_dead(self) -> str:
        """The reason to restart the process; "" if there is none. Opening a store may take long, and is no reason."""
        turned_s = self._turned_s
        silence_s = 0.0 if turned_s is None else time.monotonic() - turned_s
        return f"the loop has not turned for {silence_s:.0f} s" if silence_s > ALIVE_S else ""

    def _why_unready(self) -> str:
        """The reason why this process is not ready; "" if it is."""
        if self._published is None:
            return "starting"
        snapshot = self._published[1]
        if snapshot.get("disk_full") is not None:
            return f"the disk is full: {snapshot['disk_full']}"
        if snapshot["role"] in ("master", "namesrv"):
            return "" if snapshot["accepting"] else "no connection is accepted: there are no descriptors"
        if snapshot["state"] in (ASKING, WAITING):
            return str(snapshot["state"])
        if snapshot["state"] != CONNECTED:
            return "not connected to the master"
        if snapshot["comparing"]:
            return "comparing the last message with the master's"
        silent_s = (snapshot["silent_ms"] or 0) / 1000
        return f"the master has not been heard for {silent_s:.0f} s" if silent_s > HEARD_S else ""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """A threading WSGI server, as prometheus_client has it, for our own paths."""

    daemon_threads = True

    def __init__(self, host: str, port: int, app: "WSGIApplication") -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Bind without asking the name server, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # a silent client keeps a thread no longer

    def log_message(self, format: str, *args: object) -> None:
        """Log no line for a scrape."""


def _text(start_response: "StartResponse", status: str, text: str) -> list[bytes]:
    body = f"{text}\n".encode()
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))])
    return [body]


def _process_metrics(published_s: float, snapshot: dict[str, Any]) -> Iterator[Metric]:
    labels = {name: str(snapshot[name]) for name in ("version", "role", "profile")}
    yield InfoMetricFamily("rocketmq_ha", "What runs.", value=labels)
    yield GaugeMetricFamily("rocketmq_ha_snapshot_timestamp_seconds", "When the loop took these figures.", value=published_s)
    yield GaugeMetricFamily("rocketmq_ha_uptime_seconds", "Since the start.", value=snapshot["uptime_s"])
    if snapshot["role"] == "slave":
        is_connected = snapshot["state"] in (CONNECTED, ASKING, WAITING)
        yield GaugeMetricFamily("rocketmq_ha_connected", "Whether the master is connected.", value=float(is_connected))


def _log_metrics(snapshot: dict[str, Any]) -> Iterator[Metric]:
    for field, (name, text) in _GAUGES.items():
        if field == "replicas_needed" and snapshot["broker_role"] == "ASYNC_MASTER":
            continue  # no put waits for a slave, so an alert on too few has nothing to compare with
        if snapshot.get(field) is not None:
            yield GaugeMetricFamily(f"rocketmq_ha_{name}", text, value=_scaled(field, snapshot[field]))
    is_full = snapshot["disk_full"] is not None
    yield GaugeMetricFamily("rocketmq_ha_disk_full", "Whether the log has no room for its next file.", value=float(is_full))
    for field, (name, text) in _COUNTERS.items():
        if field in snapshot:
            yield CounterMetricFamily(f"rocketmq_ha_{name}", text, value=snapshot[field])


def _master_metrics(snapshot: dict[str, Any]) -> Iterator[Metric]:
    kinds = GaugeMetricFamily("rocketmq_ha_connections", "Connections, by what they are.", labels=["kind"])
    for kind in KINDS:
        kinds.add_metric([kind], sum(conn["kind"] == kind for conn in snapshot["connections"]))
    yield kinds
    puts = CounterMetricFamily("rocketmq_ha_puts", "Puts that have ended, by how.", labels=["status"])
    for status, count in snapshot["puts"].items():
        puts.add_metric([status], count)
    yield puts


def _slave_metrics(snapshot: dict[str, Any]) -> Iterator[Metric]:
    """Yield a master's metrics of its slaves, one labelled value for each slave."""
    slaves = _by_replica(snapshot.get("connections", ()))
    for field, (name, text) in _SLAVE_GAUGES.items():
        family = GaugeMetricFamily(f"rocketmq_ha_slave_{name}", text, labels=["replica"])
        for replica, conn in slaves.items():
            family.add_metric([replica], _scaled(field, conn[field]))
        if slaves:
            yield family


def _by_replica(connections: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the slaves by their identity: the address without the port, or the certificate. A reconnect keeps the identity."""
    slaves: dict[str, dict[str, Any]] = {}
    for conn in connections:
        if conn["kind"] == SLAVE:
            other = slaves.get(conn["replica"])
            if other is None or conn["ack_offset"] > other["ack_offset"]:
                slaves[conn["replica"]] = conn
    return slaves


def _scaled(field: str, value: float) -> float:
    """Convert milliseconds to seconds, the unit of Prometheus."""
    return value / 1000 if field.endswith("_ms") else value
