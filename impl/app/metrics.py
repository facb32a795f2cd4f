"""The figures of a running end as Prometheus metrics, and whether it lives and is ready, over HTTP. docs/metrics.md names all.

The HTTP server has a thread of its own, which sees nothing but the last snapshot that the loop has published: a dict that
nobody changes any more. A scrape can neither wait for the log nor make the loop wait.
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

from rocketmq_ha.impl.errors import ConfigInvalid
from rocketmq_ha.impl.net.address import format_address, parse_address, reason
from rocketmq_ha.impl.net.figures import CONNECTED, KINDS, SLAVE
from rocketmq_ha.impl.net.fresh import ASKING, WAITING
from rocketmq_ha.impl.net.remote_status import STATUS_PATH

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication
    from wsgiref.types import WSGIEnvironment as Environ

PUBLISH_EVERY_S: Final = 1.0
ALIVE_S: Final = 15.0  # a loop that has not turned for so long hangs; a slave's connect takes up to 5 s
HEARD_S: Final = 15.0  # three heartbeats of a master, by default

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
# Of each slave; where it has several connections, of the one that has acknowledged the most.
_OF_SLAVES: Final = {
    "ack_offset": ("ack_offset_bytes", "The offset that it has acknowledged."),
    "sent_offset": ("sent_offset_bytes", "The offset behind the last byte that its socket has taken."),
    "lag_bytes": ("lag_bytes", "What it has not acknowledged, in bytes."),
    "lag_ms": ("lag_seconds", "How long there have been bytes that it has not acknowledged."),
    "silent_ms": ("silent_seconds", "Since it was heard."),
    "acks_per_second": ("acked_bytes_per_second", "Growth of its acknowledgements, over ten seconds."),
}


class Metrics(Collector):
    """Serves the last snapshot. `publish` is called by the loop; `close` at the end."""

    def __init__(self, address: str) -> None:
        """Listen. Raises: ConfigInvalid."""
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
        """Where it listens; the port that was taken, if 0 was asked for."""
        host, port = self._server.server_address[:2]
        return format_address(str(host), int(port))

    def turned(self) -> None:
        """The loop has turned."""
        self._turned_s = time.monotonic()

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
            is_connected = snapshot["state"] in (CONNECTED, ASKING, WAITING)
            yield GaugeMetricFamily("rocketmq_ha_connected", "Whether the master is connected.", value=float(is_connected))
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
        if snapshot["role"] == "master":
            kinds = GaugeMetricFamily("rocketmq_ha_connections", "Connections, by what they are.", labels=["kind"])
            for kind in KINDS:
                kinds.add_metric([kind], sum(conn["kind"] == kind for conn in snapshot["connections"]))
            yield kinds
            puts = CounterMetricFamily("rocketmq_ha_puts", "Puts that have ended, by how.", labels=["status"])
            for status, count in snapshot["puts"].items():
                puts.add_metric([status], count)
            yield puts
        slaves = _by_replica(snapshot.get("connections", ()))
        for field, (name, text) in _OF_SLAVES.items():
            family = GaugeMetricFamily(f"rocketmq_ha_slave_{name}", text, labels=["replica"])
            for replica, conn in slaves.items():
                family.add_metric([replica], _scaled(field, conn[field]))
            if slaves:
                yield family

    # --- HTTP: in threads of the server ------------------------------------------------------------------------------

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
        """Why the process should be started anew; "" where it need not. A store that is being opened takes its time."""
        turned_s = self._turned_s
        silence_s = 0.0 if turned_s is None else time.monotonic() - turned_s
        return f"the loop has not turned for {silence_s:.0f} s" if silence_s > ALIVE_S else ""

    def _why_unready(self) -> str:
        """Why nothing should rely on this end now; "" where it may."""
        if self._published is None:
            return "starting"
        snapshot = self._published[1]
        if snapshot["disk_full"] is not None:
            return f"the disk is full: {snapshot['disk_full']}"
        if snapshot["role"] == "master":
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
    """As prometheus_client's own, with paths of ours."""

    daemon_threads = True

    def __init__(self, host: str, port: int, app: "WSGIApplication") -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _Handler)
        self.set_app(app)

    def server_bind(self) -> None:
        """Without a look at the name server, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # a client that says nothing keeps a thread no longer

    def log_message(self, format: str, *args: object) -> None:
        """No line for each scrape."""


def _text(start_response: "StartResponse", status: str, text: str) -> list[bytes]:
    body = f"{text}\n".encode()
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))])
    return [body]


def _by_replica(connections: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The slaves by who they are: an address without its port, or a certificate, so that one that comes back is the same."""
    slaves: dict[str, dict[str, Any]] = {}
    for conn in connections:
        if conn["kind"] == SLAVE:
            other = slaves.get(conn["replica"])
            if other is None or conn["ack_offset"] > other["ack_offset"]:
                slaves[conn["replica"]] = conn
    return slaves


def _scaled(field: str, value: float) -> float:
    """Times in seconds, as Prometheus has them."""
    return value / 1000 if field.endswith("_ms") else value
