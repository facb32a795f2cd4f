"""A broker: its store, its tables, its handlers and its registrations, all of them in the loop that holds the server.

    turn:  requests -> puts that have ended -> pulls that are woken -> answers of name servers -> what is due

The loop belongs to the process (impl/app/run_broker.py): it waits for the sockets of slaves and of clients, and for the threads
that flush and dispatch.

Source: 4.9.8 BrokerController.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketmq_ha.impl.broker.admin import AdminBrokerProcessor, AdminSources
from rocketmq_ha.impl.broker.admin_stats import AdminStatsProcessor
from rocketmq_ha.impl.broker.client_manage import ClientManageProcessor, notify_consumer_ids_changed
from rocketmq_ha.impl.broker.clients import Channel as AnyChannel
from rocketmq_ha.impl.broker.clients import ClientHousekeepingService, ConsumerManager, ProducerManager
from rocketmq_ha.impl.broker.config_file import ConfigFile
from rocketmq_ha.impl.broker.consumer_manage import ConsumerManageProcessor
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.delayed import ScheduleMessageService
from rocketmq_ha.impl.broker.deleted_topics import DeletedTopics
from rocketmq_ha.impl.broker.groups import SubscriptionGroupManager
from rocketmq_ha.impl.broker.lock_manage import LockManageProcessor
from rocketmq_ha.impl.broker.master_end import MasterEnd
from rocketmq_ha.impl.broker.metadata_changes import MetadataChanges
from rocketmq_ha.impl.broker.pull import PullMessageProcessor, PullSettings
from rocketmq_ha.impl.broker.pull_hold import HoldSettings
from rocketmq_ha.impl.broker.query import QueryMessageProcessor, QueueOffsetProcessor
from rocketmq_ha.impl.broker.queue_figures import ACCESS_MESSAGE_IN_MEMORY_MAX_RATIO, QueueFigures
from rocketmq_ha.impl.broker.rebalance_lock import RebalanceLockManager
from rocketmq_ha.impl.broker.registration import BrokerOuterAPI, RegistrationSettings
from rocketmq_ha.impl.broker.reset_offset import Broker2Client
from rocketmq_ha.impl.broker.runtime_info import runtime_info
from rocketmq_ha.impl.broker.send import SendMessageProcessor, SendSettings
from rocketmq_ha.impl.broker.send_back import SendBackProcessor
from rocketmq_ha.impl.broker.send_prepare import SendPreparation
from rocketmq_ha.impl.broker.slave_synchronize import SlaveSynchronize, can_be_asked
from rocketmq_ha.impl.broker.slave_tables import SlaveTables
from rocketmq_ha.impl.broker.stats import BrokerStats
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.broker.transaction_check import CheckSettings, TransactionalMessageCheckService
from rocketmq_ha.impl.broker.transaction_ops import RecentOps
from rocketmq_ha.impl.broker.transactions import EndTransactionProcessor
from rocketmq_ha.impl.clock import utc_offset_ms, wall_clock_ms
from rocketmq_ha.impl.ha.puts import Puts
from rocketmq_ha.impl.net.address import format_address
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.client import RemotingClient
from rocketmq_ha.impl.remoting.server import RemotingServer
from rocketmq_ha.impl.store.derived.delay import DelayLevels
from rocketmq_ha.impl.store.message_store import MessageStore
from rocketmq_ha.impl.store.pull import PullBounds
from rocketmq_ha.impl.wire.message import Host
from rocketmq_ha.spec.profile import HARDENED, Profile
from rocketmq_ha.spec.role import BrokerRole

TICK_MS: Final = 200  # how often what depends on time is looked at
_SHOWN: Final = 100  # characters of an address that is none

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """RocketMQ's names in snake case.

    broker_addr: where clients reach it, brokerIP1:listenPort; ha_server_addr: where slaves do. name_servers: each HOST:PORT.
    config: all settings as text, for those who ask (26). Sizes are in bytes, times in ms.
    """

    role: BrokerRole
    broker_addr: Host
    ha_server_addr: Host
    broker_id: int = 0
    name_servers: tuple[str, ...] = ()
    tables: TableSettings = field(default_factory=TableSettings)
    broker_permission: int = 6
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    max_message_size: int = 4 << 20
    register_name_server_period: int = 30_000
    slave_read_enable: bool = False
    access_message_in_memory_max_ratio: int = ACCESS_MESSAGE_IN_MEMORY_MAX_RATIO
    hold: HoldSettings = field(default_factory=HoldSettings)
    delay_levels: DelayLevels = field(default_factory=DelayLevels.parse)
    reject_transaction_message: bool = False
    checks: CheckSettings = field(default_factory=CheckSettings)
    profile: Profile = HARDENED
    config: Mapping[str, str] = field(default_factory=dict)


class BrokerController:
    """All parts of one broker.

    Args:  puts: what the puts of a master wait for; None for a slave. wake: wakes the loop; any thread may call it. ha_status:
           the answer to 907, of whoever knows the slaves. is_connected_to_master: of a slave, at this moment.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        puts: Puts | None,
        server: RemotingServer,
        client: RemotingClient,
        wake: Callable[[], None],
        ha_status: Callable[[], Mapping[str, object]],
        is_connected_to_master: Callable[[], bool],
        now_ms: int,
    ) -> None:
        """Read the tables, and enter the handlers. Raises: ConfigInvalid for a damaged file of `config/`; OSError."""
        self.settings: Final = settings
        self.store: Final = store
        self.server: Final = server
        self._puts, self._client = puts, client
        tables, store_dir = settings.tables, store.store_dir
        self.topics: Final = TopicConfigManager(store_dir, tables)
        self.groups: Final = SubscriptionGroupManager(store_dir, tables)
        self.offsets: Final = ConsumerOffsetManager(store_dir, tables, now_ms)
        has_topics = self.topics.load()
        for table in (self.groups, self.offsets):
            table.load()
        self.deleted: Final = DeletedTopics(store, ConfigFile(store_dir / "config" / "deletedTopics.json"))
        profile = settings.profile
        is_slave = settings.role is BrokerRole.SLAVE
        topics = self.topics.topic_config_table if has_topics and not is_slave else None
        self.deleted.load(topics=topics, forgets=is_slave and not profile.asks_changes)
        self.figures: Final = QueueFigures(store, ratio=settings.access_message_in_memory_max_ratio)
        if not is_slave:
            self.topics.note_queues(self.figures.queue_nums())
        elif profile.serves_topics_of_log:
            self.topics.queue_nums_of = self.figures.queue_nums_of
        self.stats: Final = BrokerStats(now_ms, wall_clock_ms(), utc_offset_ms())
        self.producers: Final = ProducerManager()
        self.consumers: Final = ConsumerManager(_notify, is_enabled=tables.notify_consumer_ids_changed_enable)
        self.locks: Final = RebalanceLockManager(tables)
        self.housekeeping: Final = ClientHousekeepingService(self.producers, self.consumers, self._close_channel, now_ms)
        self.registration: Final = BrokerOuterAPI(_registration_settings(settings), self.topics, client)
        self.topics.on_change = lambda _: self.registration.topics_changed()
        self.registration.on_master = self._on_master
        levels = settings.delay_levels
        permission = settings.broker_permission
        delay_offset = ConfigFile(store_dir / "config" / "delayOffset.json")
        self.delayed: Final = ScheduleMessageService(store, levels, delay_offset, now_ms, role=settings.role)
        self.delayed.load()
        self.ha_server_addr = ""  # of the master, as the name servers say; HOST:PORT
        self.synchronize: SlaveSynchronize | None = None
        self.master_end: MasterEnd | None = None
        if is_slave:
            own_addr = format_address(*settings.broker_addr)
            own_tables = self.topics, self.groups, self.offsets, self.deleted, delay_offset
            of_master = SlaveTables(*own_tables, lambda: store.max_offset, profile, now_ms)
            self.synchronize = rounds = SlaveSynchronize(own_addr, of_master, client, now_ms)
            self.master_end = MasterEnd(own_addr, lambda: rounds.master_addr, lambda: store.max_offset, client)
        send_back = SendBackProcessor(store, self.topics, self.groups, levels, broker_permission=permission, is_slave=is_slave)
        rejects = settings.reject_transaction_message
        prepares = SendPreparation(send_back, levels, reject_transaction_message=rejects)
        self.sends: Final = SendMessageProcessor(_send_settings(settings), store, puts, self.topics, prepares, self.stats)
        recent = RecentOps(lambda: store.dispatcher.reput_from_offset)
        self.checks: Final = TransactionalMessageCheckService(
            store, self.topics, self.offsets, self.producers, recent, now_ms, settings=settings.checks, role=settings.role
        )
        ends = EndTransactionProcessor(store, levels, settings.broker_addr, wall_clock_ms, recent, is_slave=is_slave)
        self.pulls: Final = PullMessageProcessor.of_store(
            store,
            wake,
            self.topics,
            self.groups,
            self.consumers,
            self.offsets,
            PullSettings(permission, settings.role, settings.slave_read_enable),
            PullBounds(self.figures.in_memory),
            settings.hold,
            is_connected_to_master,
        )
        sources = AdminSources(
            is_slave=lambda: is_slave,
            runtime_info=lambda: runtime_info(store, self.stats, wall_clock_ms()),
            ha_status=ha_status,
            config=lambda: settings.config,
            delay_offset=self.delayed.encode,
            hide_messages=self.deleted.delete,
        )
        processors = (
            self.sends,
            self.pulls,
            QueryMessageProcessor(store),
            QueueOffsetProcessor(self.figures),
            send_back,
            ClientManageProcessor(tables, self.topics, self.groups, self.producers, self.consumers),
            ConsumerManageProcessor(self.offsets, self.consumers, self.figures),
            LockManageProcessor(self.locks),
            AdminBrokerProcessor(tables, self.topics, self.groups, self.offsets, sources),
            AdminStatsProcessor(tables, self.topics, self.offsets, self.producers, self.consumers, self.figures),
            Broker2Client(tables, self.topics, self.offsets, self.consumers, self.figures),
        )
        for processor in processors:
            server.handlers.update(processor.handlers())
        if not is_slave and profile.asks_changes:
            server.handlers.update(self._metadata_changes().handlers())
        if not rejects:  # HA-SE-14: all three parts of transactions, or none
            server.handlers.update(ends.handlers())
        server.on_close.append(self._on_close)
        self._next_tick_ms = now_ms

    def _metadata_changes(self) -> MetadataChanges:
        tables = self.topics, self.groups, self.offsets, self.deleted
        return MetadataChanges(*tables, self.figures, lambda: self.store.max_offset, self.delayed.encode)

    def start(self, now_ms: int) -> None:
        """Register with the name servers. The server takes requests already."""
        self.registration.start(now_ms)

    def turn(self, now_ms: int) -> None:
        """Serve what has come, answer what has ended, and do what is due. Never waits.

        Raises: RocketmqHaError, if an error has ended the dispatch: no consumer would get a message any more.
        """
        if (error := self.store.dispatcher.error) is not None:
            raise error
        self.server.turn(now_ms)
        if self._puts is not None:
            self._puts.on_turn(now_ms)
            self.sends.on_turn()
        self.pulls.turn(now_ms)
        wall_ms = wall_clock_ms()
        self.delayed.turn(now_ms, wall_ms)
        self.checks.turn(now_ms, wall_ms)
        self._client.turn(now_ms)
        self.registration.on_turn(now_ms)
        if self.synchronize is not None and self.master_end is not None:
            self.synchronize.on_turn(now_ms)
            self.master_end.on_turn(now_ms)
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + TICK_MS
            self._tick(now_ms)

    @property
    def next_turn_ms(self) -> int:
        """When `turn` has something to do even if nothing comes: delayed messages that are due, half messages to be checked."""
        return min(self.delayed.next_turn_ms, self.checks.next_turn_ms)

    def _tick(self, now_ms: int) -> None:
        self.stats.got.total = self.pulls.messages
        self.stats.on_tick(now_ms, wall_clock_ms())
        self.topics.on_tick(now_ms)
        self.deleted.table.on_tick(now_ms)
        self.groups.on_tick(now_ms)
        self.offsets.on_tick(now_ms)
        self.locks.on_tick(now_ms)
        self.housekeeping.on_tick(now_ms)

    def finish(self) -> None:
        """Answer the sends whose puts were ended, and write the tables, when the loop has ended. Raises: OSError."""
        self.store.on_dispatched = None
        self.pulls.shutdown()
        self.sends.finish()
        self.offsets.persist()
        self.topics.table.close()
        self.deleted.table.close()
        self.groups.table.close()
        self.delayed.shutdown()
        if self.synchronize is not None:
            self.synchronize.finish()

    def _on_master(self, ha_server_addr: str, master_addr: str) -> None:
        """A name server has answered a registration. A master's answer names nobody.

        Spec: HA-R-14 "MUST connect to the HA address, `haServerAddr`, of its master, and ask for metadata at `masterAddr`".
        """
        if self.synchronize is not None:  # a name server that knows no master takes nothing back
            if not (can_be_asked(ha_server_addr) and can_be_asked(master_addr)):
                found = f"{ha_server_addr[:_SHOWN]!r} and {master_addr[:_SHOWN]!r}"
                log.warning("a name server tells %s as a master's addresses, expected HOST:PORT: passed over", found)
                return
            self.synchronize.master_addr = master_addr or self.synchronize.master_addr
            self.ha_server_addr = ha_server_addr or self.ha_server_addr

    def _on_close(self, channel: Channel) -> None:
        self.housekeeping.on_channel_close(channel)
        self.pulls.on_close(channel)

    def _close_channel(self, channel: AnyChannel, reason: str) -> None:
        assert isinstance(channel, Channel)
        self.server.drop(channel, reason)


def _notify(channel: AnyChannel, group: str) -> None:
    """HA-BT-43: tell a consumer that its group has changed."""
    assert isinstance(channel, Channel)
    channel.send(notify_consumer_ids_changed(group))


def _send_settings(settings: BrokerSettings) -> SendSettings:
    return SendSettings(
        settings.tables.broker_cluster_name,
        settings.broker_addr,
        broker_permission=settings.broker_permission,
        max_message_size=settings.max_message_size,
        region_id=settings.region_id,
        trace_on=settings.trace_on,
        is_slave=settings.role is BrokerRole.SLAVE,
    )


def _registration_settings(settings: BrokerSettings) -> RegistrationSettings:
    return RegistrationSettings(
        settings.tables.broker_cluster_name,
        settings.tables.broker_name,
        settings.broker_id,
        format_address(*settings.broker_addr),
        format_address(*settings.ha_server_addr),
        settings.name_servers,
        register_name_server_period=settings.register_name_server_period,
        broker_permission=settings.broker_permission,
        registers_again=settings.profile.registers_again,
    )
