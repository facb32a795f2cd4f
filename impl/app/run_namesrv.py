"""A name server process: brokers register with it, and clients ask it where the topics are."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketmq_ha.impl.app.reload import ConfigurationSource, Reload
from rocketmq_ha.impl.app.remoting_tls import RemotingTlsFiles, remoting_tls
from rocketmq_ha.impl.app.status_publisher import serving_metrics
from rocketmq_ha.impl.app.stop import Stop
from rocketmq_ha.impl.app.thread_faults import ending_with_threads
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.namesrv.kv_config import KVConfigManager
from rocketmq_ha.impl.namesrv.name_server import NameServer
from rocketmq_ha.impl.namesrv.processor import DefaultRequestProcessor
from rocketmq_ha.impl.namesrv.route_info_manager import RouteInfoManager, RouteLimits
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.listeners import listen
from rocketmq_ha.impl.remoting.limits import RemotingLimits
from rocketmq_ha.impl.remoting.server import RemotingServer

POLL_MS: Final = 200  # the longest wait of a turn: a signal is noticed this soon


@dataclass(frozen=True, slots=True)
class NamesrvOptions:
    """The options of `rocketmq-ha namesrv`."""

    listen: tuple[str, int]
    kv_config: Path
    order_message_enable: bool
    tls: RemotingTlsFiles | None
    limits: RemotingLimits
    route_limits: RouteLimits
    metrics_address: str | None


def run_namesrv(options: NamesrvOptions, configuration: ConfigurationSource, print_line: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM. Raises: ConfigInvalid for an address or a file that cannot be used; OSError."""
    stopped, reload, tls = Stop(), Reload(configuration), remoting_tls(options.tls)
    with (
        ending_with_threads(),
        listen(*options.listen, "--listen") as listener,
        serving_metrics(options.metrics_address) as metrics,
    ):
        kv_config = KVConfigManager(options.kv_config)
        routes = RouteInfoManager(options.route_limits)
        server = RemotingServer([listener], options.limits, tls)
        try:
            host, port = server.addresses[0]
            settings = {
                "bindAddress": host,
                "listenPort": str(port),
                "kvConfigPath": str(kv_config.path),
            }
            processor = DefaultRequestProcessor(routes, kv_config, settings, order_message_enable=options.order_message_enable)
            name_server = NameServer(server, routes, processor)
            reload.serve(tls, master=server, set_order_message_enable=processor.set_order_message_enable)
            print_line(f"listening={format_address(host, port)}")
            if metrics is not None:
                print_line(f"metrics={metrics.address}")
            while not stopped():
                now_ms = clock_ms()
                server.poll(POLL_MS)
                name_server.turn(now_ms)
                reload.poll()
                if metrics is not None:
                    metrics.turned()
                    if metrics.is_due():
                        metrics.publish(name_server.snapshot(clock_ms()))
        finally:
            server.close()
