"""The tables of a broker with the handlers of their requests, over a store of its own, without sockets."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kit.remoting import Quiet
from rocketmq_ha.impl.broker.admin import AdminBrokerProcessor, AdminSources
from rocketmq_ha.impl.broker.admin_stats import AdminStatsProcessor
from rocketmq_ha.impl.broker.client_manage import ClientManageProcessor, notify_consumer_ids_changed
from rocketmq_ha.impl.broker.clients import ClientHousekeepingService, ConsumerManager, ProducerManager
from rocketmq_ha.impl.broker.config_file import ConfigFile
from rocketmq_ha.impl.broker.consumer_manage import ConsumerManageProcessor
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.deleted_topics import DeletedTopics
from rocketmq_ha.impl.broker.groups import SubscriptionGroupManager
from rocketmq_ha.impl.broker.lock_manage import LockManageProcessor
from rocketmq_ha.impl.broker.metadata_changes import MetadataChanges
from rocketmq_ha.impl.broker.queue_figures import QueueFigures
from rocketmq_ha.impl.broker.rebalance_lock import RebalanceLockManager
from rocketmq_ha.impl.broker.reset_offset import Broker2Client
from rocketmq_ha.impl.broker.runtime_info import SlaveFigures, master_status, runtime_info
from rocketmq_ha.impl.broker.stats import BrokerStats
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting.channel import Channel
from rocketmq_ha.impl.remoting.codes import ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request, response_to
from rocketmq_ha.impl.store.message_store import MessageStore, StoreOptions
from rocketmq_ha.impl.wire.message import Message


class BrokerTables:
    """Everything of a broker but sending and pulling. The time of day is `wall_ms`, and the other clock stands at 0."""

    def __init__(self, directory: Path, resources: ExitStack, settings: TableSettings | None = None) -> None:
        self.settings = settings or TableSettings(broker_name="b", broker_cluster_name="c")
        self.wall_ms = 1_700_000_000_000
        options = StoreOptions(file_size=1 << 20, queue_file_size=6000, notes_topics=False, floor_size=0)
        self.store = resources.enter_context(MessageStore.open(directory, options))
        self.queues = QueueFigures(self.store)
        self.topics = TopicConfigManager(directory, self.settings, lambda: self.wall_ms)
        self.groups = SubscriptionGroupManager(directory, self.settings, lambda: self.wall_ms)
        self.offsets = ConsumerOffsetManager(directory, self.settings, 0)
        self.producers = ProducerManager()
        self.consumers = ConsumerManager(
            lambda channel, group: channel.send(notify_consumer_ids_changed(group)),
            is_enabled=self.settings.notify_consumer_ids_changed_enable,
        )
        self.stats = BrokerStats(0, self.wall_ms)
        self.is_slave = False
        self.delay_offset: bytes | None = None
        self.deleted = DeletedTopics(self.store, ConfigFile(directory / "config" / "deletedTopics.json"), lambda: self.wall_ms)
        sources = AdminSources(
            is_slave=lambda: self.is_slave,
            runtime_info=lambda: runtime_info(self.store, self.stats, self.wall_ms),
            ha_status=lambda: master_status(self.store.max_offset, [SlaveFigures("127.0.0.1:10912", 7, 9)]),
            config=lambda: {"brokerName": self.settings.broker_name, "listenPort": "10911"},
            hide_messages=self.deleted.delete,
        )
        tables = (self.topics, self.offsets)
        self.changes = MetadataChanges(
            *(self.topics, self.groups, self.offsets, self.deleted, self.queues),
            lambda: self.store.max_offset,
            lambda: self.delay_offset or b'{"offsetTable":{}}',
        )
        self.admin = AdminBrokerProcessor(self.settings, self.topics, self.groups, self.offsets, sources)
        self.handlers = {
            **self.admin.handlers(),
            **self.changes.handlers(),
            **AdminStatsProcessor(self.settings, *tables, self.producers, self.consumers, self.queues).handlers(),
            **Broker2Client(self.settings, *tables, self.consumers, self.queues).handlers(),
            **ClientManageProcessor(self.settings, self.topics, self.groups, self.producers, self.consumers).handlers(),
            **ConsumerManageProcessor(self.offsets, self.consumers, self.queues).handlers(),
            **LockManageProcessor(RebalanceLockManager(self.settings)).handlers(),
        }
        self.housekeeping = ClientHousekeepingService(
            self.producers, self.consumers, lambda channel, reason: channel.close(reason), 0
        )
        self.channel = Quiet()

    def ask(
        self, code: int, ext_fields: dict[str, str] | None = None, body: object = None, channel: Quiet | None = None
    ) -> RemotingCommand:
        """Ask over a connection, as the server does it. body: bytes, or what JSON is made of."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        answer = (channel or self.channel).ask(self._answered(self.handlers[code]), request(code, ext_fields, data))
        assert answer is not None
        return answer

    @staticmethod
    def _answered(
        handler: Callable[[Channel, RemotingCommand, int], RemotingCommand | None],
    ) -> Callable[[Channel, RemotingCommand, int], RemotingCommand | None]:
        """A handler whose RequestInvalid is answered, as by the server."""

        def call(channel: Channel, asked: RemotingCommand, now_ms: int) -> RemotingCommand | None:
            try:
                return handler(channel, asked, now_ms)
            except RequestInvalid as error:
                return response_to(asked, ResponseCode.SYSTEM_ERROR, str(error))

        return call

    def json(self, code: int, ext_fields: dict[str, str] | None = None, body: object = None) -> Any:
        """The JSON body of an answer, which is a success."""
        answer = self.ask(code, ext_fields, body)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        return json.loads(answer.body)

    def put(self, topic: str, queue_id: int, count: int = 1) -> None:
        """Put messages, which are dispatched when this returns."""
        for _ in range(count):
            self.store.put(Message(topic, b"body", queue_id=queue_id))
        assert self.store.wait_for_dispatch()


def heartbeat(
    client_id: str, *, consumers: dict[str, list[str]] | None = None, producers: list[str] | None = None
) -> dict[str, object]:
    """The body of a heartbeat. consumers: from group to topics."""
    return {
        "clientID": client_id,
        "consumerDataSet": [
            {
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "consumeType": "CONSUME_PASSIVELY",
                "groupName": group,
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics],
            }
            for group, topics in (consumers or {}).items()
        ],
        "producerDataSet": [{"groupName": group} for group in producers or []],
    }
