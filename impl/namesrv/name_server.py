"""A name server: the handlers on a remoting server, the close of connections, and the brokers that fall silent."""

import logging
import os
import time
from typing import Any, Final

from rocketmq_ha.impl.namesrv.processor import DefaultRequestProcessor
from rocketmq_ha.impl.namesrv.route_info_manager import RouteInfoManager
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.figures import FORMAT, program_version
from rocketmq_ha.impl.net.pause import Pauses
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.server import RemotingServer

SCAN_MS: Final = 5_000  # how often silent brokers are looked for; HA-R-17
BROKERS_SHOWN: Final = 1_000  # in a snapshot

log = logging.getLogger(__name__)


class NameServer:
    """Serves the routes of `routes` on `server`. The loop of the process calls `server.poll`, then `turn`."""

    def __init__(self, server: RemotingServer, routes: RouteInfoManager, processor: DefaultRequestProcessor) -> None:
        self._server, self._routes = server, routes
        server.handlers.update(processor.handlers())
        server.on_close.append(self._on_close)
        self._pauses = Pauses()
        self._next_scan_ms = 0
        self._now_ms = 0  # of the last turn
        self._started = time.time()

    def turn(self, now_ms: int) -> None:
        """Take silent brokers off, if it is time to look for them.

        Args:  now_ms: the clock as it was before the last `poll` of the server: HA-T-20 "Between reading the clock and letting
               anything expire by that reading, each end MUST look at what has come".
        """
        self._now_ms = now_ms
        may_expire = self._pauses.may_expire(now_ms)
        if now_ms < self._next_scan_ms or not may_expire:
            return
        self._next_scan_ms = now_ms + SCAN_MS
        for channel in self._routes.scan_not_active_broker(now_ms):
            assert isinstance(channel, Channel)
            self._server.drop(channel, "nothing came from its broker")

    def _on_close(self, channel: Channel) -> None:
        self._routes.on_channel_close(channel, self._now_ms)

    def snapshot(self, now_ms: int) -> dict[str, Any]:
        """The figures of the process, as JSON values. Times in ms."""
        server, routes = self._server, self._routes
        return {
            "format": FORMAT,
            "version": program_version(),
            "role": "namesrv",
            "profile": "hardened",
            "pid": os.getpid(),
            "uptime_s": round(time.time() - self._started, 1),
            "listen": [format_address(*address) for address in server.addresses],
            "brokers": len(routes.broker_live_table),
            "groups": len(routes.broker_addr_table),
            "clusters": len(routes.cluster_addr_table),
            "topics": len(routes.topic_queue_table),
            "group_topics": routes.queue_data_count,
            "connections": len(server.channels),
            "accepted_connections": server.accepted_connections,
            "refused_connections": server.limiter.refused.total(),
            "accepting": server.is_accepting,
            "requests": {str(code): count for code, count in sorted(server.requests.items(), key=str)},
            "failures": server.failures,
            "invalid_frames": server.invalid_frames,
            "sent_bytes": server.sent_bytes,
            "received_bytes": server.received_bytes,
            "listed": [
                {
                    "broker": addr,
                    "broker_name": live.broker_name,
                    "broker_id": live.broker_id,
                    "cluster": routes.broker_addr_table[live.broker_name].cluster,
                    "silent_ms": now_ms - live.last_update_ms,
                }
                for addr, live in sorted(routes.broker_live_table.items())[:BROKERS_SHOWN]
            ],
        }
