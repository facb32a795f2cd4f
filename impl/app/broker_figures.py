"""The figures of a broker: of its log and slaves, its clients, its name servers, and of the master that a slave follows."""

from typing import Any

from rocketmq_ha.impl.app.following import Following
from rocketmq_ha.impl.broker.broker import BrokerController
from rocketmq_ha.impl.clock import clock_ms
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.net.figures import CONNECTED, DISCONNECTED, DISK_FULL, MasterFigures, Rate, Snapshot
from rocketmq_ha.impl.net.server import Master


class BrokerFigures(MasterFigures):
    """The figures of one broker, taken by its loop."""

    def __init__(self, broker: BrokerController, master: Master, profile: str, following: Following) -> None:
        super().__init__(master, profile, broker.settings.role, broker.store.kept)
        self._broker, self._following = broker, following
        self._requests = Rate(0, clock_ms())
        master.service.tallies.append(broker.sends.statuses)

    def _sample(self, now_ms: int) -> None:
        super()._sample(now_ms)
        self._requests.sample(sum(self._broker.server.requests.values()), now_ms)

    def _more(self, now_ms: int) -> Snapshot:
        broker = self._broker
        settings = broker.settings
        return {
            **super()._more(now_ms),
            "broker_name": settings.tables.broker_name,
            "broker_id": settings.broker_id,
            "cluster": settings.tables.broker_cluster_name,
            "topics": len(broker.topics.topic_config_table),
            "groups": len(broker.groups.subscription_group_table),
            "clients": self._clients(now_ms),
            "name_servers": [
                {"address": each.address, "registered_ms": _since(each.registered_ms, now_ms), "error": each.error or None}
                for each in broker.registration.name_servers
            ],
            "following": None if broker.synchronize is None else self._followed(now_ms),
        }

    def _clients(self, now_ms: int) -> Snapshot:
        """The port of producers and consumers. A connection counts as both if it has groups of both."""
        broker, server = self._broker, self._broker.server
        producers = {channel for group in broker.producers.group_channel_table.values() for channel in group}
        consumers = {channel for group in broker.consumers.consumer_table.values() for channel in group.channel_info_table}
        requests = server.requests
        return {
            "listen": [format_address(*address) for address in server.addresses],
            "connections": len(server.channels),
            "producers": len(producers),
            "consumers": len(consumers),
            "consumer_groups": len(broker.consumers.consumer_table),
            "accepted_connections": server.accepted_connections,
            "refused_connections": server.limiter.refused.total(),
            "requests": {str(code): count for code, count in sorted(requests.items(), key=str)},
            "requests_per_second": self._requests.per_second(sum(requests.values()), now_ms),
            "invalid_frames": server.invalid_frames,
            "failures": server.failures,
            "pending": server.pending,
            "parked_pulls": broker.pulls.hold.count,
            "waiting_puts": broker.sends.waiting,
            "sent_bytes": server.sent_bytes,
            "received_bytes": server.received_bytes,
        }

    def _followed(self, now_ms: int) -> Snapshot:
        """The master of a slave. What its thread changes meanwhile is read as it is at the moment."""
        rounds, end, follower = self._broker.synchronize, self._broker.master_end, self._following.follower
        assert rounds is not None and end is not None
        found: dict[str, Any] = {
            "master": None if self._following.master is None else format_address(*self._following.master),
            "certificate": None if follower is None else follower.master_subject or None,
            "state": DISCONNECTED,
            "connected_ms": None,
            "silent_ms": None,
            "last_close_reason": None,
            "lag_bytes": end.lag_bytes,
            "lag_told_ms": _since(end.told_ms, now_ms),
            "tables_of": rounds.master_addr or None,
            "tables_ms": _since(rounds.synchronized_ms, now_ms),
            "tables_lag_ms": _since(rounds.as_of_ms, now_ms),
            "tables_by": rounds.taken_by or None,
            "tables_error": rounds.error or None,
        }
        if follower is None:
            return found
        found["last_close_reason"] = follower.last_close or None
        if follower.client.connected:
            since, heard = follower.connected_timestamp, follower.client.last_read_timestamp
            return found | {"state": CONNECTED, "connected_ms": max(0, now_ms - since), "silent_ms": max(0, now_ms - heard)}
        return found | {"state": DISK_FULL if follower.disk_full else DISCONNECTED}


def _since(then_ms: int | None, now_ms: int) -> int | None:
    return None if then_ms is None else max(0, now_ms - then_ms)
