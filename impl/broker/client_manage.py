"""The requests by which clients come and go: heartbeat (34), unregistration (35), and the check of a subscription (46).

Spec: HA-BT-40 to HA-BT-44, HA-BT-49, HA-BT-60, HA-BT-75.  Source: 4.9.8 ClientManageProcessor, HeartbeatData, ConsumerData.
"""

from dataclasses import dataclass
from typing import Final

from rocketmq_ha.impl.broker import body_fields
from rocketmq_ha.impl.broker.body_fields import Fields
from rocketmq_ha.impl.broker.clients import Channel, ClientChannelInfo, ConsumerManager, ProducerManager
from rocketmq_ha.impl.broker.groups import SubscriptionGroupManager, check_group_name, retry_topic
from rocketmq_ha.impl.broker.heartbeat_bounds import (
    EXPRESSION_MAX,
    LANGUAGE_MAX,
    TAGS_MAX,
    TOPIC_MAX,
    check_count,
    check_tags,
    checked_length,
)
from rocketmq_ha.impl.broker.subscription import SUB_ALL, TAG, SubscriptionData
from rocketmq_ha.impl.broker.table_settings import TableSettings
from rocketmq_ha.impl.broker.topic_config import PERM_READ, PERM_WRITE, TopicConfigManager
from rocketmq_ha.impl.errors import RequestInvalid
from rocketmq_ha.impl.remoting import fields
from rocketmq_ha.impl.remoting.codes import RequestCode, ResponseCode
from rocketmq_ha.impl.remoting.command import RemotingCommand, request, response_to
from rocketmq_ha.impl.remoting.dispatch import Handler

CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE: Final = (
    *("CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET"),
    *("CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"),
)
_UNIT_SUB: Final = 2  # bit of topicSysFlag


@dataclass(frozen=True, slots=True)
class ConsumerData:
    """What a heartbeat says of one consumer group."""

    group_name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscription_data_set: tuple[SubscriptionData, ...]
    unit_mode: bool


@dataclass(frozen=True, slots=True)
class HeartbeatData:
    """A heartbeat: the client's id and its groups."""

    client_id: str
    producer_groups: tuple[str, ...]
    consumers: tuple[ConsumerData, ...]


class ClientManageProcessor:
    """Handlers of 34, 35 and 46."""

    def __init__(
        self,
        settings: TableSettings,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        producers: ProducerManager,
        consumers: ConsumerManager,
    ) -> None:
        self._settings, self._topics, self._groups = settings, topics, groups
        self._producers, self._consumers = producers, consumers

    def handlers(self) -> dict[int, Handler]:
        """For the server's table."""
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def heart_beat(self, channel: Channel, request: RemotingCommand, now_ms: int) -> RemotingCommand:
        """34. HA-BT-40 "MUST register its connection". A body that is refused changes nothing: it is read as a whole first."""
        heartbeat = read_heartbeat(request.body, self._settings)
        checked_length("language", request.language, LANGUAGE_MAX)
        self._check_count(channel, heartbeat)
        self._check_size(channel, heartbeat)
        for data in heartbeat.consumers:
            config = self._groups.find_subscription_group_config(data.group_name)
            if config is not None:
                # HA-BT-41 "MUST create the group's retry topic"
                self._topics.create_topic_in_send_message_back_method(
                    retry_topic(data.group_name),
                    config.retry_queue_nums,
                    PERM_WRITE | PERM_READ,
                    _UNIT_SUB if data.unit_mode else 0,
                )
            self._consumers.register_consumer(
                data.group_name,
                ClientChannelInfo(channel, heartbeat.client_id, request.language, request.version, now_ms),
                data.consume_type,
                data.message_model,
                data.consume_from_where,
                data.subscription_data_set,
                is_notify=config is None or config.notify_consumer_ids_changed_enable,
            )
        for group in heartbeat.producer_groups:
            self._producers.register_producer(
                group, ClientChannelInfo(channel, heartbeat.client_id, request.language, request.version, now_ms)
            )
        return response_to(request)

    def unregister_client(self, channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """35. A client takes one producer group, or one consumer group, or both, off its connection. HA-BT-43."""
        fields.text(request, "clientID")
        if (group := request.ext_fields.get("producerGroup")) is not None:
            self._producers.unregister_producer(group, channel)
        if (group := request.ext_fields.get("consumerGroup")) is not None:
            config = self._groups.subscription_group_table.get(group)
            is_notify = config is None or config.notify_consumer_ids_changed_enable
            self._consumers.unregister_consumer(group, channel, is_notify=is_notify)
        return response_to(request)

    def check_client_config(self, _channel: Channel, request: RemotingCommand, _now_ms: int) -> RemotingCommand:
        """46. HA-BT-48 "MUST answer SYSTEM_ERROR": for a filter that is no tag."""
        subscription = body_fields.read_object(request.body, "body").get("subscriptionData") if request.body else None
        if subscription is not None:
            kind = body_fields.text(body_fields.as_object(subscription, "subscriptionData"), "expressionType", TAG)
            if kind not in ("", TAG):
                remark = f"The broker does not support consumer to filter message by {kind[:60]}"
                return response_to(request, ResponseCode.SYSTEM_ERROR, remark)
        return response_to(request)

    def _check_count(self, channel: Channel, heartbeat: HeartbeatData) -> None:
        groups = {*self._producers.groups_of(channel), *heartbeat.producer_groups}
        consumed = {*self._consumers.groups_of(channel), *(data.group_name for data in heartbeat.consumers)}
        count = len(groups) + len(consumed)
        if count > self._settings.max_client_groups:
            raise RequestInvalid(
                "heartbeat", f"{count} groups of one connection", f"at most {self._settings.max_client_groups}"
            )

    def _check_size(self, channel: Channel, heartbeat: HeartbeatData) -> None:
        """HA-BT-75 "MUST bound what the heartbeats of all connections make it hold"; "A heartbeat beyond it is refused"."""
        consumers = ((data.group_name, data.subscription_data_set) for data in heartbeat.consumers)
        size = self._consumers.size_after(channel, consumers)
        size += self._producers.size_after(channel, heartbeat.producer_groups)
        if size > self._settings.max_clients_size:
            found = f"{size} bytes of names and subscriptions with those of all clients"
            raise RequestInvalid("heartbeat", found, f"at most {self._settings.max_clients_size}")


def notify_consumer_ids_changed(group: str) -> RemotingCommand:
    """40, oneway: the broker tells a consumer that others of its group came or went."""
    return request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, oneway=True)


def read_heartbeat(body: bytes, settings: TableSettings) -> HeartbeatData:
    """A heartbeat's body. Raises: RequestInvalid."""
    found = body_fields.read_object(body, "heartbeat")
    producers, consumers = body_fields.objects(found, "producerDataSet"), body_fields.objects(found, "consumerDataSet")
    check_count("heartbeat", [*producers, *consumers], settings.max_client_groups, "groups")
    return HeartbeatData(
        checked_length("clientID", body_fields.text(found, "clientID")),
        tuple(_group_name(data) for data in producers),
        tuple(_read_consumer(data, settings) for data in consumers),
    )


def _read_consumer(data: Fields, settings: TableSettings) -> ConsumerData:
    subscriptions = body_fields.objects(data, "subscriptionDataSet")
    check_count("subscriptionDataSet", subscriptions, settings.max_subscriptions, "topics")
    return ConsumerData(
        _group_name(data),
        body_fields.enum(data, "consumeType", CONSUME_TYPES, CONSUME_TYPES[1]),
        body_fields.enum(data, "messageModel", MESSAGE_MODELS, MESSAGE_MODELS[1]),
        body_fields.enum(data, "consumeFromWhere", CONSUME_FROM_WHERE, CONSUME_FROM_WHERE[0]),
        tuple(map(read_subscription, subscriptions)),
        body_fields.boolean(data, "unitMode", missing=False),
    )


def read_subscription(data: Fields) -> SubscriptionData:
    """A subscription from its JSON object. Raises: RequestInvalid."""
    tags, codes = body_fields.array(data, "tagsSet"), body_fields.array(data, "codeSet")
    check_count("tagsSet", tags, TAGS_MAX, "tags")
    check_count("codeSet", codes, TAGS_MAX, "hash codes")
    if not all(isinstance(tag, str) for tag in tags):
        raise RequestInvalid("tagsSet", body_fields.shown(tags), "texts")
    check_tags(tags)
    return SubscriptionData(
        checked_length("topic", body_fields.text(data, "topic"), TOPIC_MAX),
        checked_length("subString", body_fields.text(data, "subString", SUB_ALL), EXPRESSION_MAX),
        frozenset(tags),
        frozenset(body_fields.as_integer(code, "codeSet", 32) for code in codes),
        body_fields.integer(data, "subVersion", 0),
        checked_length("expressionType", body_fields.text(data, "expressionType", TAG)),
        body_fields.boolean(data, "classFilterMode", missing=False),
    )


def _group_name(data: Fields) -> str:
    """The name of a group, which becomes part of the name of a topic. Raises: RequestInvalid."""
    name = body_fields.text(data, "groupName")
    check_group_name(name)
    return name
