"""The clients that are connected: which connection belongs to which producer and consumer groups, and what the groups consume.

Everything comes from heartbeats, and ends with the connection, by request 35, or 120 s after the last heartbeat. When the
consumers of a group change, the broker tells those that remain, and they share the queues anew.

Spec: HA-BT-40 to HA-BT-49, HA-BT-75.
Source: 4.9.8 ConsumerManager, ConsumerGroupInfo, ProducerManager, ClientHousekeepingService.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from rocketmq_ha.impl.broker.heartbeat_bounds import REGISTRATION_SIZE, subscription_size
from rocketmq_ha.impl.broker.subscription import SubscriptionData
from rocketmq_ha.impl.remoting.command import RemotingCommand

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())

CHANNEL_EXPIRED_TIMEOUT: Final = 120_000  # ms


class Channel(Hashable, Protocol):
    """What the tables need of a connection."""

    @property
    def peer(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    def send(self, command: RemotingCommand) -> None: ...


@dataclass(slots=True)
class ClientChannelInfo:
    """A client at one connection. last_update_timestamp: ms of the clock that does not step, when its last heartbeat came."""

    channel: Channel
    client_id: str
    language: str
    version: int
    last_update_timestamp: int

    def is_expired(self, now_ms: int) -> bool:
        """HA-BT-45 "more than 120 s"."""
        return now_ms - self.last_update_timestamp > CHANNEL_EXPIRED_TIMEOUT


@dataclass(slots=True)
class ConsumerGroupInfo:
    """The consumers of one group, and what they subscribe to. subscription_size: bytes of that table (HA-BT-75)."""

    group_name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    channel_info_table: dict[Channel, ClientChannelInfo] = field(default_factory=dict)
    subscription_size: int = 0

    def all_client_ids(self) -> list[str]:
        """The ids of its consumers, in the order in which they came."""
        return [info.client_id for info in self.channel_info_table.values()]

    def update_channel(self, info: ClientChannelInfo) -> bool:
        """Note a heartbeat. Returns: True if the connection is new to the group."""
        old = self.channel_info_table.get(info.channel)
        if old is None or old.client_id != info.client_id:
            if old is not None:
                logger.warning("%s: group %s: found client %s, expected %s as before", info.channel.peer, self.group_name,
                               info.client_id, old.client_id)  # fmt: skip
            self.channel_info_table[info.channel] = info
        else:
            old.last_update_timestamp = info.last_update_timestamp
        return old is None

    def update_subscription(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Take what a consumer subscribes to. HA-BT-42 "MUST count for the group: its topics replace the group's".

        Returns: True if a topic came or went. A newer version of a subscription replaces the older, which is no such change.
        """
        table = newer(self.subscription_table, subscriptions)
        for topic in self.subscription_table:
            if topic not in table:
                logger.info("group %s no longer subscribes to %s", self.group_name, topic)
        updated = table.keys() != self.subscription_table.keys()
        self.subscription_table, self.subscription_size = table, table_size(table)
        return updated


def newer(old: Mapping[str, SubscriptionData], subscriptions: Iterable[SubscriptionData]) -> dict[str, SubscriptionData]:
    """The subscriptions of a group after a heartbeat, by topic. HA-BT-42 "if its `subVersion` is greater": it is taken."""
    table: dict[str, SubscriptionData] = {}
    for found in subscriptions:
        before = table.get(found.topic) or old.get(found.topic)
        if before is None or found.sub_version > before.sub_version:
            table[found.topic] = found
        else:
            table[found.topic] = before
    return table


def table_size(table: Mapping[str, SubscriptionData]) -> int:
    """Bytes that the subscriptions of a group take."""
    return sum(map(subscription_size, table.values()))


class ConsumerManager:
    """The consumer groups that have consumers now.

    notify: told a connection and a group whose consumers have changed. HA-BT-43 "MUST send NOTIFY_CONSUMER_IDS_CHANGED (40,
    oneway) to each consumer of the group". It must not call back.
    is_enabled: `notifyConsumerIdsChangedEnable` of the broker; without it nobody is told.
    """

    def __init__(self, notify: Callable[[Channel, str], object], *, is_enabled: bool = True) -> None:
        self._notify, self._is_enabled = notify, is_enabled
        self._table: dict[str, ConsumerGroupInfo] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self._held = 0  # bytes: HA-BT-75

    @property
    def consumer_table(self) -> Mapping[str, ConsumerGroupInfo]:
        """All groups with consumers, by name."""
        return self._table

    def groups_of(self, channel: Channel) -> Collection[str]:
        """The consumer groups of a connection."""
        return self._groups_of.get(channel, ())

    def size_after(self, channel: Channel, heartbeat: Iterable[tuple[str, Iterable[SubscriptionData]]]) -> int:
        """Bytes that all consumers will take when those of a heartbeat are registered. HA-BT-75.

        heartbeat: its groups, of which one may come twice, with their subscriptions.
        """
        size = self._held
        tables: dict[str, dict[str, SubscriptionData]] = {}
        for group, subscriptions in heartbeat:
            info = self._table.get(group)
            if group not in tables:
                is_new = info is None or channel not in info.channel_info_table
                size += is_new * REGISTRATION_SIZE - (0 if info is None else info.subscription_size)
            old = tables.get(group, {} if info is None else info.subscription_table)
            tables[group] = newer(old, subscriptions)
        return size + sum(map(table_size, tables.values()))

    def get_consumer_group_info(self, group: str) -> ConsumerGroupInfo | None:
        """A group; None if it has no consumer now."""
        return self._table.get(group)

    def find_channel(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """The consumer of a group with a client id; None if there is none now."""
        info = self._table.get(group)
        channels = info.channel_info_table.values() if info is not None else ()
        return next((found for found in channels if found.client_id == client_id), None)

    def find_subscription_data(self, group: str, topic: str) -> SubscriptionData | None:
        """What a group subscribes to in a topic; None if it has no consumer now, or none that subscribes to the topic."""
        info = self._table.get(group)
        return None if info is None else info.subscription_table.get(topic)

    def find_subscription_data_count(self, group: str) -> int:
        """The number of topics that a group subscribes to."""
        info = self._table.get(group)
        return 0 if info is None else len(info.subscription_table)

    def query_topic_consume_by_who(self, topic: str) -> set[str]:
        """The groups with consumers that subscribe to a topic."""
        return {group for group, info in self._table.items() if topic in info.subscription_table}

    def register_consumer(
        self,
        group: str,
        client: ClientChannelInfo,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Iterable[SubscriptionData],
        *,
        is_notify: bool,
    ) -> bool:
        """Note what a heartbeat says of one group. Returns: whether a consumer or a topic came, or a topic went."""
        info = self._table.get(group)
        if info is None:
            info = self._table[group] = ConsumerGroupInfo(group, consume_type, message_model, consume_from_where)
        info.consume_type, info.message_model, info.consume_from_where = consume_type, message_model, consume_from_where
        is_new = info.update_channel(client)
        self._groups_of.setdefault(client.channel, set()).add(group)
        self._held -= info.subscription_size
        is_other = info.update_subscription(subscriptions)
        self._held += info.subscription_size + is_new * REGISTRATION_SIZE
        if (is_new or is_other) and is_notify:
            self._notify_all(info)
        return is_new or is_other

    def unregister_consumer(self, group: str, channel: Channel, *, is_notify: bool) -> None:
        """Take a connection off a group."""
        info = self._table.get(group)
        if info is None:
            return
        self._remove(info, channel)
        if is_notify:
            self._notify_all(info)

    def do_channel_close_event(self, channel: Channel) -> None:
        """Take a closed connection off all its groups. HA-BT-44 "MUST be told, whatever their group's settings"."""
        for group in list(self._groups_of.get(channel, ())):
            info = self._table[group]
            self._remove(info, channel)
            self._notify_all(info)

    def scan_not_active_channel(self, now_ms: int) -> list[Channel]:
        """Take connections without a heartbeat off their groups; nobody is told. Returns: these connections. HA-BT-45."""
        expired = []
        for info in list(self._table.values()):
            for found in [found for found in info.channel_info_table.values() if found.is_expired(now_ms)]:
                self._remove(info, found.channel)
                expired.append(found.channel)
        return expired

    def _remove(self, info: ConsumerGroupInfo, channel: Channel) -> None:
        if info.channel_info_table.pop(channel, None) is not None:
            self._held -= REGISTRATION_SIZE
        if (groups := self._groups_of.get(channel)) is not None:
            groups.discard(info.group_name)
            if not groups:
                del self._groups_of[channel]
        if not info.channel_info_table and self._table.pop(info.group_name, None) is not None:
            self._held -= info.subscription_size

    def _notify_all(self, info: ConsumerGroupInfo) -> None:
        for channel in info.channel_info_table if self._is_enabled else ():
            if channel.is_open:
                self._notify(channel, info.group_name)


class ProducerManager:
    """The producer groups that have producers now."""

    def __init__(self) -> None:
        self._table: dict[str, dict[Channel, ClientChannelInfo]] = {}
        self._groups_of: dict[Channel, set[str]] = {}
        self._held = 0  # bytes: HA-BT-75
        self._asked = 0  # how often a producer was asked for

    @property
    def group_channel_table(self) -> Mapping[str, Mapping[Channel, ClientChannelInfo]]:
        """All producers, by group and connection."""
        return self._table

    def groups_of(self, channel: Channel) -> Collection[str]:
        """The producer groups of a connection."""
        return self._groups_of.get(channel, ())

    def size_after(self, channel: Channel, groups: Iterable[str]) -> int:
        """Bytes that all producers will take when those of a heartbeat are registered. HA-BT-75."""
        return self._held + REGISTRATION_SIZE * len(set(groups).difference(self.groups_of(channel)))

    def register_producer(self, group: str, client: ClientChannelInfo) -> None:
        """Note what a heartbeat says of one group. HA-BT-47 "stays that of its first heartbeat": the client id."""
        channels = self._table.setdefault(group, {})
        self._held += (client.channel not in channels) * REGISTRATION_SIZE
        found = channels.setdefault(client.channel, client)
        found.last_update_timestamp = client.last_update_timestamp
        self._groups_of.setdefault(client.channel, set()).add(group)

    def unregister_producer(self, group: str, channel: Channel) -> None:
        """Take a connection off a group."""
        channels = self._table.get(group)
        if channels is None:
            return
        if channels.pop(channel, None) is not None:
            self._held -= REGISTRATION_SIZE
        if not channels:
            del self._table[group]
        if (groups := self._groups_of.get(channel)) is not None:
            groups.discard(group)
            if not groups:
                del self._groups_of[channel]

    def do_channel_close_event(self, channel: Channel) -> None:
        """Take a closed connection off all its groups."""
        for group in list(self._groups_of.get(channel, ())):
            self.unregister_producer(group, channel)

    def scan_not_active_channel(self, now_ms: int) -> list[Channel]:
        """Take connections without a heartbeat off their groups. Returns: these connections. HA-BT-45."""
        expired = []
        for group, channels in list(self._table.items()):
            for found in [found for found in channels.values() if found.is_expired(now_ms)]:
                self.unregister_producer(group, found.channel)
                expired.append(found.channel)
        return expired

    def get_available_channel(self, group: str) -> Channel | None:
        """A connection of a producer of the group, another with each call; None if there is none. For check-back (39)."""
        channels = [channel for channel in self._table.get(group, ()) if channel.is_open]
        if not channels:
            return None
        self._asked += 1
        return channels[self._asked % len(channels)]


class ClientHousekeepingService:
    """HA-BT-45 "MUST look every 10 s": closes the connections of clients without a heartbeat. It is told of closed ones.

    close: closes a connection, with a reason; the server then calls `on_channel_close`, at once or later.
    """

    SCAN_INTERVAL: Final = 10_000  # ms

    def __init__(
        self, producers: ProducerManager, consumers: ConsumerManager, close: Callable[[Channel, str], object], now_ms: int
    ) -> None:
        self._producers, self._consumers, self._close = producers, consumers, close
        self.next_scan_ms = now_ms + self.SCAN_INTERVAL

    def on_channel_close(self, channel: Channel) -> None:
        """For the server's `on_close`. HA-BT-44."""
        self._producers.do_channel_close_event(channel)
        self._consumers.do_channel_close_event(channel)

    def on_tick(self, now_ms: int) -> None:
        """Look if it is time. Call it when the server has read what has come, or a pause of the process ends connections."""
        if now_ms < self.next_scan_ms:
            return
        self.next_scan_ms = now_ms + self.SCAN_INTERVAL
        expired = [*self._producers.scan_not_active_channel(now_ms), *self._consumers.scan_not_active_channel(now_ms)]
        for channel in dict.fromkeys(expired):
            self._close(channel, f"no heartbeat for {CHANNEL_EXPIRED_TIMEOUT // 1000} s")
