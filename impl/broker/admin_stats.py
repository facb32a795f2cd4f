"""The requests that ask how far queues and groups have come, and who is connected: 202, 203, 204, 208, 300.

Spec: HA-BT-62 to HA-BT-65, HA-BT-72.  Source: 4.9.8 AdminBrokerProcessor.
"""

from collections.abc import Callable, Iterable
from typing import Final

from rocketmq_ha.impl.broker.clients import Channel, ClientChannelInfo, ConsumerManager, ProducerManager
from rocketmq_ha.impl.broker.consumer_offsets import ConsumerOffsetManager
from rocketmq_ha.impl.broker.queue_figures import QueueFigures
from rocketmq_ha.impl.broker.rebalance_lock import MessageQueue
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import TopicConfigManager
from rocketmq_ha.impl.remoting import body_json, fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler

_MOST_QUEUES: Final = 100_000  # of one answer to 208: a group may have committed in very many topics


class AdminStatsProcessor:
    """Handlers of 202, 203, 204, 208 and 300. tps: messages a second that a group gets of a topic."""

    def __init__(
        self,
        settings: TableSettings,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        producers: ProducerManager,
        consumers: ConsumerManager,
        queues: QueueFigures,
        tps: Callable[[str, str], float] = lambda _group, _topic: 0.0,
    ) -> None:
        self._settings, self._topics, self._offsets = settings, topics, offsets
        self._producers, self._consumers, self._queues, self._tps = producers, consumers, queues, tps

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats_info,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connection_list,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connection_list,
            RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.query_topic_consume_by_who,
        }

    def get_topic_stats_info(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """202. HA-BT-62 "MUST answer for each write queue of the topic its min offset"."""
        topic = fields.text(request, "topic")
        config = self._topics.select_topic_config(topic)
        if config is None:
            return response_to(request, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        table = {}
        for queue_id in range(config.write_queue_nums):
            max_offset = max(0, self._queues.max_offset_in_queue(topic, queue_id))
            stored_ms = self._queues.message_store_timestamp(topic, queue_id, max_offset - 1) if max_offset > 0 else 0
            table[self._mq(topic, queue_id)] = {
                "lastUpdateTimestamp": max(0, stored_ms),
                "maxOffset": max_offset,
                "minOffset": max(0, self._queues.min_offset_in_queue(topic, queue_id)),
            }
        return response_to(request, body=body_json.write({"offsetTable": table}))

    def get_consume_stats(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """208. HA-BT-63 "MUST answer for each read queue of the topics in which the group has committed"."""
        group = fields.text(request, "consumerGroup")
        table: dict[str, dict[str, int]] = {}
        tps = 0.0
        for name in self._topics_of_progress(request, group):
            config = self._topics.select_topic_config(name)
            if config is None:
                continue
            if len(table) + config.read_queue_nums > _MOST_QUEUES:
                break
            for queue_id in range(config.read_queue_nums):
                table[self._mq(name, queue_id)] = self._offset_wrapper(group, name, queue_id)
            tps += self._tps(group, name)
        return response_to(request, body=body_json.write({"consumeTps": tps, "offsetTable": table}))

    def get_consumer_connection_list(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """203. HA-BT-65 "CONSUMER_NOT_ONLINE (206) for 203"."""
        group = fields.text(request, "consumerGroup")
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            return response_to(request, ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        body = {
            "connectionSet": _connections(info.channel_info_table.values()),
            "consumeFromWhere": info.consume_from_where,
            "consumeType": info.consume_type,
            "messageModel": info.message_model,
            "subscriptionTable": {topic: found.fields() for topic, found in info.subscription_table.items()},
        }
        return response_to(request, body=body_json.write(body))

    def get_producer_connection_list(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """204. HA-BT-65 "MUST answer the connections of a consumer group": and those of a producer group."""
        group = fields.text(request, "producerGroup")
        found = self._producers.group_channel_table.get(group)
        if found is None:
            return response_to(request, ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return response_to(request, body=body_json.write({"connectionSet": _connections(found.values())}))

    def query_topic_consume_by_who(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """300. HA-BT-72 "MUST answer the groups that have consumers which subscribe to a topic, or offsets in it"."""
        topic = fields.text(request, "topic")
        groups = self._consumers.query_topic_consume_by_who(topic).union(self._offsets.which_group_by_topic(topic))
        return response_to(request, body=body_json.write({"groupList": sorted(groups)}))

    def _topics_of_progress(self, request: RemotingCommand, group: str) -> Iterable[str]:
        """HA-BT-63 "A `topicList`, names with `;` between them, stands in place of `topic`, and of what is subscribed to"."""
        listed = fields.optional_text(request, "topicList", "")
        if listed.strip() and (names := [name for name in listed.split(";") if name]):
            return dict.fromkeys(names)
        topic = fields.optional_text(request, "topic", "")
        found = [topic] if topic.strip() else self._offsets.which_topic_by_consumer(group)
        return [name for name in found if self._may_consume(group, name)]

    def _may_consume(self, group: str, topic: str) -> bool:
        """False if the group has consumers with subscriptions, and none to the topic."""
        has_none = self._consumers.find_subscription_data(group, topic) is None
        return not (has_none and self._consumers.find_subscription_data_count(group) > 0)

    def _offset_wrapper(self, group: str, topic: str, queue_id: int) -> dict[str, int]:
        consumer_offset = max(0, self._offsets.query_offset(group, topic, queue_id))
        stored_ms = self._queues.message_store_timestamp(topic, queue_id, consumer_offset - 1) if consumer_offset else 0
        return {
            "brokerOffset": max(0, self._queues.max_offset_in_queue(topic, queue_id)),
            "consumerOffset": consumer_offset,
            "lastTimestamp": max(0, stored_ms),
            "pullOffset": consumer_offset,  # HA-BT-63 "its offset once more as `pullOffset`"
        }

    def _mq(self, topic: str, queue_id: int) -> str:
        return MessageQueue(topic, self._settings.broker_name, queue_id).key()


def _connections(clients: Iterable[ClientChannelInfo]) -> list[dict[str, object]]:
    return [
        {
            "clientAddr": client.channel.peer,
            "clientId": client.client_id,
            "language": client.language,
            "version": client.version,
        }
        for client in clients
    ]
