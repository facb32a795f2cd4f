"""The route table of a name server: the brokers that are there, their groups, and the topics of the groups.

    topic_queue_table    topic -> group -> QueueData
    broker_addr_table    group -> BrokerData (broker id -> address)
    cluster_addr_table   cluster -> groups
    broker_live_table    address -> BrokerLiveInfo

Each address of broker_addr_table is in broker_live_table and the reverse, and each group of the other tables is in
broker_addr_table. Time is an argument, in milliseconds of a clock that never goes back. A channel is whatever identifies a
connection. Nothing is kept over a restart: HA-R-47 "Name servers know nothing of each other". The twin is
`reference/route_table.py`.
"""

import logging
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.namesrv.registration import Registration
from rocketmq_ha.impl.namesrv.route_data import BrokerData, DataVersion, QueueData, TopicRouteData
from rocketmq_ha.impl.net.peer_log import PeerLog

MASTER_ID: Final = 0
CHANNEL_EXPIRED_MS: Final = 120_000  # HA-R-17 "nothing has come for more than 120 s"
PERM_READ: Final = 4
PERM_WRITE: Final = 2
FLAG_UNIT: Final = 1
FLAG_UNIT_SUB: Final = 2

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RouteLimits:
    """The most that a table holds. queue_datas: topics, counted once for each group that has them. HA-R-56."""

    brokers: int = 1_000
    queue_datas: int = 200_000


@dataclass(frozen=True, slots=True)
class RegisterBrokerResult:
    """The addresses of the group's master, for a slave whose master is listed."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(slots=True)
class BrokerLiveInfo:
    """A listed broker. channel: of its last registration. last_update_ms: of its last sign of life."""

    broker_name: str
    broker_id: int
    ha_server_addr: str
    data_version: DataVersion | None
    channel: Hashable
    last_update_ms: int
    timeout_ms: int


class RouteInfoManager:
    """The table. Its methods are in the order of the model's functions. Not thread-safe."""

    def __init__(self, limits: RouteLimits | None = None) -> None:
        self.limits: Final = limits or RouteLimits()
        self.topic_queue_table: Final[dict[str, dict[str, QueueData]]] = {}
        self.broker_addr_table: Final[dict[str, BrokerData]] = {}
        self.cluster_addr_table: Final[dict[str, set[str]]] = {}
        self.broker_live_table: Final[dict[str, BrokerLiveInfo]] = {}
        self.queue_data_count = 0
        self._peers = PeerLog(log)
        self._addrs_of: Final[dict[Hashable, set[str]]] = {}  # channel -> the addresses whose last registration came by it

    def _remove_broker(self, addr: str, why: str, now_ms: int) -> None:
        """Take a listed broker off, and its group if no other broker is left in it."""
        live = self._unlist(addr)
        text, of = "broker %s, id %d of %s, is off the routes: %s", (addr, live.broker_id, live.broker_name, why)
        self._peers.write(now_ms, logging.INFO, text, *of)
        self._remove_group_if_empty(live.broker_name)

    def _unlist(self, addr: str) -> BrokerLiveInfo:
        """Take a listed broker out of its group, which may be empty then."""
        live = self.broker_live_table.pop(addr)
        addrs = self._addrs_of[live.channel]
        addrs.discard(addr)
        if not addrs:
            del self._addrs_of[live.channel]
        del self.broker_addr_table[live.broker_name].broker_addrs[live.broker_id]
        return live

    def _remove_group_if_empty(self, broker_name: str) -> None:
        """HA-R-44 "the group MUST leave its cluster and all its topics", "a topic without queues and a cluster without groups
        MUST be forgotten", "While a broker is left, the topics MUST stay".
        """
        if self.broker_addr_table[broker_name].broker_addrs:
            return
        del self.broker_addr_table[broker_name]
        for cluster, names in list(self.cluster_addr_table.items()):
            names.discard(broker_name)
            if not names:
                del self.cluster_addr_table[cluster]
        self._remove_queue_datas(list(self.topic_queue_table), {broker_name})

    def _remove_queue_datas(self, topics: Iterable[str], broker_names: Iterable[str]) -> None:
        """Take what these groups have of these topics off."""
        for topic in topics:
            queue_datas = self.topic_queue_table[topic]
            for broker_name in broker_names:
                self.queue_data_count -= queue_datas.pop(broker_name, None) is not None
            if not queue_datas:
                del self.topic_queue_table[topic]

    def register_broker(self, registration: Registration, channel: Hashable, now_ms: int) -> RegisterBrokerResult:
        """List a broker.

        Raises: RequestInvalid if the table is full; nothing has changed then.
        Spec: HA-R-38 "MUST be listed with the group and the id that it gives, and its address under no other group and no
        other id", "a broker that had the id before MUST no longer be listed"; HA-R-37 "MUST NOT take a topic off because a
        registration does not name it"; HA-R-3 "MUST count as one group".
        """
        name, broker_id, addr = registration.broker_name, registration.broker_id, registration.broker_addr
        group = self.broker_addr_table.get(name)
        holder = group.broker_addrs.get(broker_id) if group else None
        before = self.broker_live_table.get(addr)
        # GUARD
        if holder is not None and holder != addr:
            held = _state_version(self.broker_live_table[holder].data_version)
            if _state_version(registration.data_version) < held:
                # HA-R-39 "MUST be answered with SUCCESS, without haServerAddr and masterAddr, and its address MUST NOT be
                # listed"
                text = "%s: not listed as id %d of %s: %s has it since a later term"
                self._peers.write(now_ms, logging.WARNING, text, addr, broker_id, name, holder)
                if before is not None:
                    self._remove_broker(addr, f"{holder} is the master of a later term", now_ms)
                return RegisterBrokerResult()
        taken = self._taken_topics(registration)
        added = sum(name not in self.topic_queue_table.get(topic, ()) for topic in taken)
        self._check_room(added, is_new_broker=before is None and holder is None)
        # STATE
        if group is None:
            group = self.broker_addr_table[name] = BrokerData(registration.cluster_name, name, {})
        self.cluster_addr_table.setdefault(registration.cluster_name, set()).add(name)
        if before is not None:
            self._unlist(addr)
        if holder is not None and holder != addr:
            self._unlist(holder)
        if before is None or (before.broker_name, before.broker_id) != (name, broker_id):
            instead = "" if holder is None else f", instead of {holder}: expected one broker with this id"
            # Two brokers that are configured alike take each other's place at each registration.
            level = logging.INFO if holder is None else logging.WARNING
            self._peers.write(now_ms, level, "broker %s is listed as id %d of %s%s", addr, broker_id, name, instead)
        self._list(registration, channel, now_ms)
        if before is not None:
            self._remove_group_if_empty(before.broker_name)
        for topic, queue_data in taken.items():
            self.topic_queue_table.setdefault(topic, {})[name] = queue_data
        self.queue_data_count += added
        # OUTPUT
        return self._masters_addresses(registration)

    def _list(self, registration: Registration, channel: Hashable, now_ms: int) -> None:
        addr, timeout_ms = registration.broker_addr, registration.heartbeat_timeout_ms
        self.broker_addr_table[registration.broker_name].broker_addrs[registration.broker_id] = addr
        self.broker_live_table[addr] = BrokerLiveInfo(
            registration.broker_name,
            registration.broker_id,
            registration.ha_server_addr,
            registration.data_version,
            channel,
            now_ms,
            # HA-R-40 "MUST be taken off after that time instead of 120 s"
            CHANNEL_EXPIRED_MS if timeout_ms is None else timeout_ms,
        )
        self._addrs_of.setdefault(channel, set()).add(addr)

    def _taken_topics(self, registration: Registration) -> dict[str, QueueData]:
        """The topics whose queues a registration replaces.

        Spec: HA-R-35 "MUST take the topics of a registration with brokerId 0, and of one that gives enableActingMaster if no
        broker of its group has a smaller id", "MUST NOT take those of any other"; HA-R-36 "MUST replace what its group has of
        that topic if the address was not listed with that group, id and DataVersion, or if the group has nothing of that
        topic", "else it MUST change nothing".
        """
        name, broker_id, addr = registration.broker_name, registration.broker_id, registration.broker_addr
        if broker_id != MASTER_ID:
            group = self.broker_addr_table.get(name)
            others = [known for known, other in group.broker_addrs.items() if other != addr] if group else []
            if not registration.gives_acting_master or min(others, default=broker_id) < broker_id:
                return {}
        before, version = self.broker_live_table.get(addr), registration.data_version
        if (
            before is None
            or version is None
            or (before.broker_name, before.broker_id, before.data_version) != (name, broker_id, version)
        ):
            return registration.topics
        known = self.topic_queue_table
        return {topic: queue_data for topic, queue_data in registration.topics.items() if name not in known.get(topic, ())}

    def _check_room(self, added: int, *, is_new_broker: bool = False) -> None:
        """HA-R-56 "MUST be refused with SYSTEM_ERROR, and change nothing". Raises: RequestInvalid."""
        brokers, queue_datas = len(self.broker_live_table), self.queue_data_count + added
        if is_new_broker and brokers >= self.limits.brokers:
            raise RequestInvalid("brokers", f"{brokers} and a new one", f"at most {self.limits.brokers} (--max-brokers)")
        if added and queue_datas > self.limits.queue_datas:
            raise RequestInvalid("topics", f"{queue_datas} of all groups", f"at most {self.limits.queue_datas} (--max-topics)")

    def _masters_addresses(self, registration: Registration) -> RegisterBrokerResult:
        """HA-R-10 "MUST give haServerAddr and masterAddr of the group's master if that is alive, and the answer to that of a
        master neither".
        """
        master = self.broker_addr_table[registration.broker_name].broker_addrs.get(MASTER_ID)
        if registration.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResult()
        return RegisterBrokerResult(self.broker_live_table[master].ha_server_addr, master)

    def unregister_broker(self, broker_name: str, broker_addr: str, now_ms: int) -> None:
        """HA-R-43 "MUST take off the broker of the address that it gives if that is listed in the group that it gives, and
        nothing else".
        """
        live = self.broker_live_table.get(broker_addr)
        if live is not None and live.broker_name == broker_name:
            self._remove_broker(broker_addr, "it says so", now_ms)

    def on_channel_close(self, channel: Hashable, now_ms: int) -> None:
        """A connection has closed.

        Spec: HA-R-41 "the brokers whose last registration came by it MUST be taken off the routes, and no others"; HA-R-17
        "whose connection has closed, MUST be taken off the routes".
        """
        for addr in sorted(self._addrs_of.get(channel, ())):
            self._remove_broker(addr, "its connection has closed", now_ms)

    def scan_not_active_broker(self, now_ms: int) -> list[Hashable]:
        """Take off the brokers from which nothing came. Returns: the channels to be closed.

        Spec: HA-R-17 "from which nothing has come for more than 120 s"; HA-R-42 "MUST close the connection of a broker that it
        takes off because nothing came from it, unless another broker is listed that registered by it".
        """
        gone = [(addr, live) for addr, live in self.broker_live_table.items() if now_ms - live.last_update_ms > live.timeout_ms]
        for addr, live in gone:
            self._remove_broker(addr, f"nothing came from it for {now_ms - live.last_update_ms} ms", now_ms)
        self._peers.end_window(now_ms)
        return list(dict.fromkeys(live.channel for _, live in gone if live.channel not in self._addrs_of))

    def update_broker_info_update_timestamp(self, broker_addr: str, now_ms: int) -> None:
        """Note a sign of life of a broker; of an address that is not listed it means nothing."""
        live = self.broker_live_table.get(broker_addr)
        if live is not None:
            live.last_update_ms = now_ms

    def query_broker_topic_config(
        self, broker_addr: str, data_version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Return whether a broker's topics have changed, and the version that is known.

        Spec: HA-R-46 "MUST say in changed whether the DataVersion of its body differs from the one that the address has
        registered", "an equal one MUST count as a sign of life".
        """
        live = self.broker_live_table.get(broker_addr)
        known = live.data_version if live else None
        changed = known is None or known != data_version
        if not changed:
            self.update_broker_info_update_timestamp(broker_addr, now_ms)
        return changed, known

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Forget a topic, or what the groups of a cluster have of it. HA-R-51, code 216."""
        if topic in self.topic_queue_table:
            groups = self.cluster_addr_table.get(cluster_name, ()) if cluster_name else list(self.topic_queue_table[topic])
            self._remove_queue_datas([topic], groups)

    def wipe_write_perm_of_broker(self, broker_name: str) -> int:
        """Take the permission to write from a group's topics. Returns: how many topics it has. HA-R-51, code 205."""
        return self._operate_write_perm(broker_name, ~PERM_WRITE, 0)

    def add_write_perm_of_broker(self, broker_name: str) -> int:
        """Let a group's topics be read and written. Returns: how many topics it has. HA-R-51, code 327."""
        return self._operate_write_perm(broker_name, 0, PERM_READ | PERM_WRITE)

    def _operate_write_perm(self, broker_name: str, kept: int, added: int) -> int:
        count = 0
        for queue_datas in self.topic_queue_table.values():
            if (old := queue_datas.get(broker_name)) is not None:
                queue_datas[broker_name] = msgspec.structs.replace(old, perm=old.perm & kept | added)
                count += 1
        return count

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Add what groups have of a topic, or nothing if one of them is not there. HA-R-51, code 217.

        Raises: RequestInvalid if the table is full: HA-R-56 "A registration, code 100 or code 217".
        """
        new = {queue_data.broker_name: queue_data for queue_data in queue_datas}
        if not new or not new.keys() <= self.broker_addr_table.keys():
            return
        added = len(new.keys() - self.topic_queue_table.get(topic, {}).keys())
        self._check_room(added)
        self.topic_queue_table.setdefault(topic, {}).update(new)
        self.queue_data_count += added

    # --- Questions -------------------------------------------------------------------------------------------------------

    def pickup_topic_route_data(self, topic: str) -> TopicRouteData | None:
        """Where a topic is; None if no group has it: HA-R-48 "MUST be answered with TOPIC_NOT_EXIST (17)".

        Spec: HA-R-19 "MUST list for a topic its queues and the brokers that have them, each with the addresses of its group by
        brokerId".
        """
        queue_datas = self.topic_queue_table.get(topic)
        if queue_datas is None:
            return None
        names = sorted(queue_datas)
        return TopicRouteData([queue_datas[name] for name in names], [self.broker_addr_table[name] for name in names], {})

    def get_all_topic_list(self) -> list[str]:
        """All topics. HA-R-50, code 206."""
        return list(self.topic_queue_table)

    def get_topics_by_cluster(self, cluster_name: str) -> list[str]:
        """The topics of a cluster's groups; none for a cluster that is not there. HA-R-50, code 224."""
        groups = self.cluster_addr_table.get(cluster_name, set())
        return [topic for topic, queue_datas in self.topic_queue_table.items() if not groups.isdisjoint(queue_datas)]

    def get_system_topic_list(self) -> list[str]:
        """The names of the clusters and of the groups, which are topics of their own. HA-R-50, code 304."""
        return list({*self.cluster_addr_table, *self.broker_addr_table})

    def get_unit_topics(self, wanted: int, unwanted: int = 0) -> list[str]:
        """Topics one of whose groups has all wanted bits in its flag, and none of the unwanted. HA-R-50, codes 311 to 313."""
        bits = wanted | unwanted
        return [
            topic
            for topic, queue_datas in self.topic_queue_table.items()
            if any(queue_data.topic_sys_flag & bits == wanted for queue_data in queue_datas.values())
        ]


def _state_version(data_version: DataVersion | None) -> int:
    """HA-R-39 "with a smaller stateVersion than that broker's"; a broker that says no version has 0."""
    return data_version.state_version if data_version else 0
